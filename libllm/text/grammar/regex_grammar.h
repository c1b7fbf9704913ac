/* regex_grammar.h: translates a regular expression into GBNF. The expression must match the whole text, not only a part
 * of it. The functions are pure. */
#ifndef LLM_REGEX_GRAMMAR_H
#define LLM_REGEX_GRAMMAR_H

#include <cstdint>
#include <string>

#include "text/grammar/character_set.h"

enum class regex_of { TEXT, JSON_STRING };

/* Returns the expression as the right side of a GBNF rule. With JSON_STRING, the rule matches the text as it is written
 * between the quotes of a JSON string. Some characters must be escaped there. Such a character is written with its
 * short escape, such as \n. Control characters without a short escape are left out of character sets. Throws
 * grammar_fault for a malformed expression. Throws grammar_beyond for a part that cannot be expressed. The message
 * names the part. */
std::string regex_grammar(const std::string &expression, regex_of where);

/* Returns GBNF that matches any one character of the set. Returns "" if none of these characters can be written. */
std::string grammar_set(character_set set, regex_of where);

std::string utf8_of(uint32_t character);

/* Returns the text as it is written between the quotes of a JSON string. */
std::string json_escaped(const std::string &text);

/* Returns GBNF that matches exactly this text: the text in quotes. */
std::string grammar_literal(const std::string &text);

#endif
