/* chat_tools.h: rewrites the types in the schemas of tools, so that more templates can write these schemas. The grammar
 * of tool calls is not affected: it is made from the client's own schemas. Used only in this folder. */
#ifndef LLM_CHAT_TOOLS_H
#define LLM_CHAT_TOOLS_H

#include <common/json.h>

#include <map>

/* How the types in the schemas are passed to the template. Templates that write a schema as text use the value of each
 * `type`. Some of these templates fail on an unexpected value, for example a list of types. */
enum class shown_types {
    GIVEN,         /* the types that the client wrote */
    SINGLE,        /* one type per schema, the first that is not null. Each schema with `properties` also gets a
                    * `required` */
    WITHOUT_LISTS, /* like SINGLE, but a schema of an array has no type */
};

/* The tools of one request with changed types. Each change is made once, even if the request is rendered several
 * times. */
class typed_tools {
  public:
    /* Returns the tools with changed types. The result stays valid as long as `tools` and this object exist. `tools` is
     * as in OpenAI's API, and must be the same in every call. Throws chat_limit. The thread must have a chat_budget
     * (text/template/chat_budget.h). */
    const common_json &of(const common_json &tools, shown_types types);

  private:
    std::map<shown_types, common_json> by_types;
};

#endif
