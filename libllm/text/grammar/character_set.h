/* character_set.h: sets of Unicode characters, for regular expressions and grammars. Pure. */
#ifndef LLM_CHARACTER_SET_H
#define LLM_CHARACTER_SET_H

#include <cstdint>
#include <vector>

#include "text/grammar/grammar.h"

constexpr uint32_t CHARACTER_LAST = 0x10ffff;

using character_set = std::vector<grammar_range>;

/* Makes the ranges ascending, disjoint and not adjacent. */
void character_set_normalize(character_set &set);

character_set character_set_complement(character_set set);

/* Stores the set that ECMA-262 gives the escapes \d, \w, \s, \D, \W and \S; `letter` is the one after the backslash.
 * Only \s has characters beyond ASCII. Returns false for any other letter. */
bool character_set_named(char letter, character_set &out);

#endif
