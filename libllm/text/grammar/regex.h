/* regex.h: parses a regular expression of ECMA-262 into a tree. The tree has three uses:
 * - expressions that a whole answer must match (regex_grammar)
 * - terminals of Lark grammars
 * - `pattern` in schemas (schema/regex_automaton)
 * The functions are pure. */
#ifndef LLM_REGEX_H
#define LLM_REGEX_H

#include <cstdint>
#include <string>
#include <vector>

#include "text/grammar/character_set.h"

/* The anchors ^ and $ are parsed as these two numbers, which are not Unicode characters. Code that uses the tree treats
 * every text as if REGEX_BEGIN stood before it and REGEX_END after it. So an anchor is an ordinary part of an
 * expression, wherever it occurs. */
constexpr uint32_t REGEX_BEGIN = CHARACTER_LAST + 1, REGEX_END = CHARACTER_LAST + 2;
constexpr uint64_t REGEX_WITHOUT_END = UINT64_MAX;

struct regex_part {
    enum kind { SET, SEQUENCE, EITHER, REPEATED } is = SEQUENCE; /* a SEQUENCE without parts matches the empty text */
    character_set set;
    std::vector<regex_part> parts;
    uint64_t least = 0, most = 0; /* limits of a REPEATED part. `most` is REGEX_WITHOUT_END if there is no upper
                                   * limit */
};

/* Parses an expression. Throws grammar_fault if the expression is malformed. Throws grammar_beyond for parts that no
 * grammar can enforce, such as back references, word boundaries and look-around. */
regex_part regex_read(const std::string &expression);

[[noreturn]] void regex_refuse(const std::string &what); /* throws grammar_beyond */

#endif
