/* constraint_grammar.h: makes the grammar of the structured output that a client requests. Used by llm_constraint_make.
 * Called by any thread, but on a separate large stack (chat_call_with_stack). A schema can nest deeper than the
 * thread's own stack allows. */
#ifndef LLM_CONSTRAINT_GRAMMAR_H
#define LLM_CONSTRAINT_GRAMMAR_H

#include <string>

#include "text/schema/references.h"

struct model;

/* Returns a grammar in GBNF that grammar::read accepts. If m is NULL, token names are not looked up. Throws
 * std::bad_alloc or grammar_fault. The message of grammar_fault says what cannot be expressed or which size is too
 * large. */
std::string constraint_grammar(const model *m, const std::string &kind, const std::string &text, bool is_strict);

/* Parses JSON of limited depth. `what` names the JSON in an error. Throws grammar_fault. */
schema_json constraint_json(const std::string &text, const char *what);

#endif
