/* compile.h: from a JSON schema to a grammar: the door of this folder.
 *
 *   references   where $ref leads
 *   shape        what conditions that hold at once allow (expand, negate, nothing, valid)
 *   automaton    texts, by expression and formats
 *   writer       shapes as rules of GBNF (scalars, number, rules)
 *
 * Everything is bounded: the levels of the document, the conditions of a value, its shapes, the states of automata, the bytes of
 * the grammar, and the work of all of it together (work_budget). What is beyond a bound is refused (STRICT) or left open (LOOSE). Pure; any thread, on a stack of its own
 * (chat_call_with_stack). */
#ifndef LLM_SCHEMA_COMPILE_H
#define LLM_SCHEMA_COMPILE_H

#include <string>

#include "text/schema/shape.h"

/* GBNF that grammar::read takes, of at most so many bytes as JSON writes them. Throws grammar_fault naming the keyword that cannot be
 * enforced and where it is; std::bad_alloc. The document nests at most 128 levels (the caller sees to it). */
std::string schema_grammar(const schema_json &document, schema_policy policy, size_t most_bytes, work_budget &budget);

#endif
