/* regex.h: reads a regular expression of ECMA-262 into a tree. It is the only reader: for expressions that are a whole
 * answer (regex_grammar), for terminals of Lark grammars, and for a schema's `pattern` (schema/regex_automaton).
 * Pure. */
#ifndef LLM_REGEX_H
#define LLM_REGEX_H

#include <cstdint>
#include <string>
#include <vector>

#include "text/grammar/character_set.h"

/* ^ and $ are read as these two characters, which no text has: a text is thought to begin and end with them, so that an
 * anchor is a part like any other, wherever it stands. */
constexpr uint32_t REGEX_BEGIN = CHARACTER_LAST + 1, REGEX_END = CHARACTER_LAST + 2;
constexpr uint64_t REGEX_WITHOUT_END = UINT64_MAX;

struct regex_part {
    enum kind { SET, SEQUENCE, EITHER, REPEATED } is = SEQUENCE; /* a SEQUENCE without parts is empty */
    character_set set;
    std::vector<regex_part> parts;
    uint64_t least = 0, most = 0; /* most: REGEX_WITHOUT_END is any number */
};

/* Throws grammar_beyond for parts that no grammar can enforce (back references, word boundaries, look-around),
 * grammar_fault if this is no expression. */
regex_part regex_read(const std::string &expression);

[[noreturn]] void regex_refuse(const std::string &what); /* grammar_beyond */

#endif
