/* call_grammar.h: the grammar of calls in which each argument is between marks, for example <parameter=city> and
 * </parameter> (Qwen3-Coder, GLM, MiniMax, DeepSeek V3.2). llama.cpp's grammar for these families requires arguments in
 * the order of the schema, allows any text for a string, and allows no argument that the schema does not declare. This
 * grammar enforces the schema (enum, pattern, lengths), and allows any order if this takes few rules. Pure. */
#ifndef LLM_CALL_GRAMMAR_H
#define LLM_CALL_GRAMMAR_H

#include <common/chat.h>

#include <string>

#include "text/answer/tool_schema.h"

/* Returns the grammar of an answer whose calls have arguments of `schemas`. schemas.put() completes the grammar.
 * Returns "" if this family writes no marks around arguments. */
std::string call_grammar(const common_chat_params &form, tool_schemas *schemas);

#endif
