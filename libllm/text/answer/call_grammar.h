/* call_grammar.h: the grammar of calls that write each argument between marks of its own. llama.cpp's grammar has required
 * arguments in the order of the schema, any text for a string, and no argument that the schema does not declare. This one has our
 * rules of the schema, and arguments in any order as long as that is affordable. Pure. */
#ifndef LLM_CALL_GRAMMAR_H
#define LLM_CALL_GRAMMAR_H

#include <common/chat.h>

#include <string>

#include "text/answer/tool_schema.h"

/* The grammar of an answer whose calls have arguments of `schemas`; "": the calls of this family have no arguments with marks. It is
 * complete with schemas.put(). */
std::string call_grammar(const common_chat_params &form, tool_schemas *schemas);

#endif
