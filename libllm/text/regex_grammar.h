/* regex_grammar.h: from a regular expression that matches a whole text to a rule in GBNF. Pure. */
#ifndef LLM_REGEX_GRAMMAR_H
#define LLM_REGEX_GRAMMAR_H

#include <string>

enum class regex_of { TEXT, JSON_STRING };

/* The right side of a rule. JSON_STRING: the text as it stands between the quotes of a JSON string, with what has to be
 * escaped there escaped; a set of characters then means those that need no escape. `is_search`: the expression may match a
 * part of the text, where it is not anchored. Throws grammar_fault naming what cannot be expressed. */
std::string regex_grammar(const std::string &expression, regex_of where, bool is_search);

/* A text as GBNF has it, in quotes. */
std::string grammar_literal(const std::string &text);

#endif
