/* chat_tools.h: schemas of tools in words that more templates can show. The grammar of calls keeps the client's schema. Private
 * to the chat door. */
#ifndef LLM_CHAT_TOOLS_H
#define LLM_CHAT_TOOLS_H

#include <common/json.h>

#include <map>

/* Templates that write a schema out look each `type` up, and some fail on one they do not expect. */
enum class shown_types {
    GIVEN,         /* as the client wrote them */
    SINGLE,        /* each schema has one type, the first that is not null, and `required` beside `properties` */
    WITHOUT_LISTS, /* and lists have no type */
};

/* The tools of one request, however often that is rendered: each kind of types is set once. */
class typed_tools {
  public:
    /* `tools` is of OpenAI's form, and the same in every call. The result lives as long as both. Needs a chat_budget, and
     * throws chat_limit. */
    const common_json &of(const common_json &tools, shown_types types);

  private:
    std::map<shown_types, common_json> by_types;
};

#endif
