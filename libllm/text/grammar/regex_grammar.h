/* regex_grammar.h: from a regular expression that matches a whole text to a rule in GBNF. Pure. */
#ifndef LLM_REGEX_GRAMMAR_H
#define LLM_REGEX_GRAMMAR_H

#include <cstdint>
#include <string>

#include "text/grammar/character_set.h"

enum class regex_of { TEXT, JSON_STRING };

/* The right side of a rule. JSON_STRING: the text as it stands between the quotes of a JSON string, with what has to be escaped there
 * escaped, by one letter where there is one; sets leave out control characters that have none. Throws grammar_beyond naming what
 * cannot be expressed, grammar_fault for what is no expression. */
std::string regex_grammar(const std::string &expression, regex_of where);

/* One of these characters; "": there is none that can be written. */
std::string grammar_set(character_set set, regex_of where);

std::string utf8_of(uint32_t character);

/* As it stands between the quotes of a JSON string. */
std::string json_escaped(const std::string &text);

/* A text as GBNF has it, in quotes. */
std::string grammar_literal(const std::string &text);

#endif
