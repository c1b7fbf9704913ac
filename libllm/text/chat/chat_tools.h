/* chat_tools.h: rewrites the types in schemas of tools so that more templates can show them. The grammar of calls
 * keeps the client's schema. Private to the chat folder. */
#ifndef LLM_CHAT_TOOLS_H
#define LLM_CHAT_TOOLS_H

#include <common/json.h>

#include <map>

/* How types are shown. Templates that write a schema out look up each `type`, and some fail on one that they do not
 * expect. */
enum class shown_types {
    GIVEN,         /* the types that the client wrote */
    SINGLE,        /* one type per schema, the first that is not null, and `required` beside `properties` */
    WITHOUT_LISTS, /* SINGLE, and lists have no type */
};

/* The tools of one request with changed types. However often the request is rendered, each change is made once. */
class typed_tools {
  public:
    /* `tools` has OpenAI's form, and must be the same in every call. The result lives as long as `tools` and this
     * object. Needs a chat_budget, and throws chat_limit. */
    const common_json &of(const common_json &tools, shown_types types);

  private:
    std::map<shown_types, common_json> by_types;
};

#endif
