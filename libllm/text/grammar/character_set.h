/* character_set.h: sets of Unicode characters, for regular expressions and grammars. The functions are pure. */
#ifndef LLM_CHARACTER_SET_H
#define LLM_CHARACTER_SET_H

#include <cstdint>
#include <vector>

#include "text/grammar/grammar.h"

constexpr uint32_t CHARACTER_LAST = 0x10ffff;

using character_set = std::vector<grammar_range>;

/* Sorts and merges the ranges of the set. Afterwards the ranges are ascending, disjoint and not adjacent. */
void character_set_normalize(character_set &set);

character_set character_set_complement(character_set set);

/* `letter` is the letter after the backslash of \d, \w, \s, \D, \W or \S. Stores in `out` the characters that
 * ECMA-262 defines for this letter. Of \d, \w and \s, only \s has characters beyond ASCII. Returns false for any
 * other letter. */
bool character_set_named(char letter, character_set &out);

#endif
