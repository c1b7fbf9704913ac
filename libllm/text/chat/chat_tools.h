/* chat_tools.h: schemas of tools in words that more templates can show. The grammar of calls keeps the client's schema. Pure. Private
 * to the chat door. */
#ifndef LLM_CHAT_TOOLS_H
#define LLM_CHAT_TOOLS_H

#include <common/json.h>

/* Templates that write a schema out look each `type` up, and some fail on one they do not expect. */
enum class shown_types {
    GIVEN,         /* as the client wrote them */
    SINGLE,        /* each schema has one type, the first that is not null, and `required` beside `properties` */
    WITHOUT_LISTS, /* and lists have no type */
};

/* `tools` is of OpenAI's form. */
common_json tools_with_types(const common_json &tools, shown_types types);

#endif
