/* regex_automaton.h: turns a regular expression (ECMAScript, like `pattern` in JSON schema) into the automaton of
 * all texts in which it matches somewhere: "a" accepts "bab", "^a$" accepts only "a". The function is pure. */
#ifndef LLM_SCHEMA_REGEX_AUTOMATON_H
#define LLM_SCHEMA_REGEX_AUTOMATON_H

#include <string>

#include "text/schema/automaton.h"

/* Throws grammar_beyond for expressions that an automaton cannot represent (back references, word boundaries,
 * look-around other than a look-ahead at the start) or that are too large or take too much work, and grammar_fault
 * for a malformed expression. */
automaton regex_automaton(const std::string &expression, work_budget &budget);

#endif
