/* constraint_grammar.h: from the form that a client asks for (llm_constraint_make) to a grammar. Any thread, on a stack of its
 * own (chat_call_with_stack). */
#ifndef LLM_CONSTRAINT_GRAMMAR_H
#define LLM_CONSTRAINT_GRAMMAR_H

#include <string>

#include "text/schema/references.h"

struct model;

/* GBNF that grammar::read takes; without a model, names of tokens are not looked up. Throws grammar_fault: what cannot be
 * expressed, or how large it may be; and std::bad_alloc. */
std::string constraint_grammar(const model *m, const std::string &kind, const std::string &text, bool is_strict);

/* JSON of a bounded depth. Throws grammar_fault. */
schema_json constraint_json(const std::string &text, const char *what);

#endif
