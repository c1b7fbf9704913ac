/* regex_automaton.h: turns a regular expression into the automaton of all strings that contain a match. The syntax is
 * that of ECMAScript, as JSON Schema demands for `pattern`. For example, the automaton of the expression `a` accepts
 * "bab". The automaton of `^a$` accepts only "a". The function is pure. */
#ifndef LLM_SCHEMA_REGEX_AUTOMATON_H
#define LLM_SCHEMA_REGEX_AUTOMATON_H

#include <string>

#include "text/schema/automaton.h"

/* Throws grammar_fault for a malformed expression. Throws grammar_beyond for an expression that is too large or takes
 * too much work. Also throws grammar_beyond for constructs that this code cannot turn into an automaton: back
 * references, word boundaries, and look-around other than a look-ahead at the start. */
automaton regex_automaton(const std::string &expression, work_budget &budget);

#endif
