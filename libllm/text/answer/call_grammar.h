/* call_grammar.h: makes the grammar of tool calls in which each argument is between its own delimiters, for example
 * <parameter=city> and </parameter> (Qwen3-Coder, GLM, MiniMax, DeepSeek V3.2). llama.cpp's grammar for these model
 * families requires arguments in the order of the schema, allows any text for a string, and allows no argument that the
 * schema does not declare. The grammar made here enforces the schema (enum, pattern, lengths). This grammar allows
 * arguments in any order, unless that would take too many rules. The function is pure. */
#ifndef LLM_CALL_GRAMMAR_H
#define LLM_CALL_GRAMMAR_H

#include <common/chat.h>

#include <string>

#include "text/answer/tool_schema.h"

/* Returns the grammar of an answer with tool calls, whose arguments must match `schemas`. The caller completes the
 * grammar with schemas.put(). `form` has llama.cpp's parser and grammar of the answer. If the model family has no
 * delimiters around single arguments, and is not Gemma 4, returns "". In this case, llama.cpp's grammar can be used. */
std::string call_grammar(const common_chat_params &form, tool_schemas *schemas);

#endif
