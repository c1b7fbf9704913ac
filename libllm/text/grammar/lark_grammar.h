/* lark_grammar.h: translates a grammar of Lark (a parser for Python) into GBNF. The function is pure. */
#ifndef LLM_LARK_GRAMMAR_H
#define LLM_LARK_GRAMMAR_H

#include <string>

#include "text/grammar/regex_grammar.h"

/* Returns a GBNF grammar of the texts that the rule `start` matches. For JSON_STRING, these texts are written as JSON
 * strings, with quotes, and with escapes as in regex_grammar. Supported are rules, terminals, string literals, regular
 * expressions, ranges, groups, repetitions, and imports from `common`. Aliases and priorities are accepted and ignored,
 * because they do not change which texts match. For anything else (%ignore, templates, flags), throws grammar_beyond,
 * whose message names the construct. Throws grammar_fault if the definition is not a Lark grammar. */
std::string lark_grammar(const std::string &definition, regex_of where);

#endif
