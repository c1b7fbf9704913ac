/* regex_automaton.h: from a regular expression (ECMAScript, as JSON schema's `pattern` has it) to the automaton of all
 * texts in which it matches somewhere: "a" accepts "bab", "^a$" only "a". Pure. */
#ifndef LLM_SCHEMA_REGEX_AUTOMATON_H
#define LLM_SCHEMA_REGEX_AUTOMATON_H

#include <string>

#include "text/schema/automaton.h"

/* Throws grammar_beyond for what an automaton cannot have (references back, word boundaries, look-around other than
 * ahead at the start) and for what is too large or takes too much work; grammar_fault for what is no expression. */
automaton regex_automaton(const std::string &expression, work_budget &budget);

#endif
