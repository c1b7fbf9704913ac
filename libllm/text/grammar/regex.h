/* regex.h: reads a regular expression, as ECMA-262 writes them, into a tree: the one reader for expressions that are a whole answer
 * (regex_grammar), a terminal of a Lark grammar, and a schema's `pattern` (schema/regex_automaton). Pure. */
#ifndef LLM_REGEX_H
#define LLM_REGEX_H

#include <cstdint>
#include <string>
#include <vector>

#include "text/grammar/character_set.h"

/* ^ and $ match these: characters of their own that stand before and after each text. */
constexpr uint32_t REGEX_BEGIN = CHARACTER_LAST + 1, REGEX_END = CHARACTER_LAST + 2;
constexpr uint64_t REGEX_WITHOUT_END = UINT64_MAX;

struct regex_part {
    enum kind { SET, SEQUENCE, EITHER, REPEATED } is = SEQUENCE; /* a SEQUENCE without parts is empty */
    character_set set;
    std::vector<regex_part> parts;
    uint64_t least = 0, most = 0; /* most: REGEX_WITHOUT_END is any number */
};

/* Throws grammar_beyond for what no grammar can have (references back, word boundaries, look-around), grammar_fault for what is no
 * expression. */
regex_part regex_read(const std::string &expression);

[[noreturn]] void regex_refuse(const std::string &what); /* grammar_beyond */

#endif
