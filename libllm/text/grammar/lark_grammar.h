/* lark_grammar.h: from a grammar as Lark has them to GBNF. Pure. */
#ifndef LLM_LARK_GRAMMAR_H
#define LLM_LARK_GRAMMAR_H

#include <string>

#include "text/grammar/regex_grammar.h"

/* What `start` matches. JSON_STRING: as regex_grammar has it, and the quotes around it. Rules, terminals, texts, expressions,
 * ranges, groups, repetitions, aliases, priorities (which change no text) and what `common` has that is imported. Throws
 * grammar_beyond naming what else there is (%ignore, templates, flags), grammar_fault for what is no such grammar. */
std::string lark_grammar(const std::string &definition, regex_of where);

#endif
