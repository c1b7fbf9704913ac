/* lark_grammar.h: translates a grammar of Lark (a parser for Python) into GBNF. Pure. */
#ifndef LLM_LARK_GRAMMAR_H
#define LLM_LARK_GRAMMAR_H

#include <string>

#include "text/grammar/regex_grammar.h"

/* Returns a grammar of the texts that the rule `start` matches, for JSON_STRING between quotes and with escapes as in
 * regex_grammar. Supported: rules, terminals, texts, expressions, ranges, groups, repetitions, aliases, priorities
 * (which change no text), and imports from `common`. Throws grammar_beyond, which names the construct, for anything
 * else (%ignore, templates, flags), and grammar_fault if the definition is not a Lark grammar. */
std::string lark_grammar(const std::string &definition, regex_of where);

#endif
