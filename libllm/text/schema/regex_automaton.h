/* regex_automaton.h: turns a regular expression (ECMAScript, like `pattern` in JSON Schema) into the automaton of all
 * strings that contain a match: the automaton of a accepts "bab", the automaton of ^a$ accepts only "a". The function
 * is pure. */
#ifndef LLM_SCHEMA_REGEX_AUTOMATON_H
#define LLM_SCHEMA_REGEX_AUTOMATON_H

#include <string>

#include "text/schema/automaton.h"

/* Throws grammar_fault for a malformed expression. Throws grammar_beyond for an expression that an automaton cannot
 * represent (back references, word boundaries, look-around other than a look-ahead at the start), that is too large, or
 * that takes too much work. */
automaton regex_automaton(const std::string &expression, work_budget &budget);

#endif
