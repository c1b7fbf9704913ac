/* tool_schema.h: what of a tool's schema can be enforced. A tool that a client brings works in any case: where llama.cpp
 * cannot express a part of its schema, that part takes any value. Pure. */
#ifndef LLM_TOOL_SCHEMA_H
#define LLM_TOOL_SCHEMA_H

#include <common/json.h>

enum class tool_schema_detail {
    EXPRESSIBLE, /* all that a grammar can have */
    NAMES,       /* of the arguments */
    NOTHING,     /* any object */
};

/* `tool` is of OpenAI's form. */
common_json tool_with_schema(const common_json &tool, tool_schema_detail detail);

#endif
