/* arguments.h: the schemas of tools, compiled into one grammar: as a whole, for templates that write a call's arguments as an object
 * of JSON, and each parameter by itself, for those that write every argument between marks of its own. */
#ifndef LLM_SCHEMA_ARGUMENTS_H
#define LLM_SCHEMA_ARGUMENTS_H

#include <string>
#include <vector>

#include "text/schema/rules.h"
#include "text/schema/shape.h"

struct schema_argument {
    std::string name, element; /* a rule of the grammar */
    bool is_required;          /* whichever way the schema is met */
    bool may_be_text, is_text; /* is_text: it can be nothing else */
};

/* Loose: keywords that cannot be enforced are ignored. Only std::bad_alloc is thrown. */
class schema_arguments {
  public:
    explicit schema_arguments(size_t most_bytes) : out(most_bytes, budget) {}
    schema_arguments(const schema_arguments &) = delete;
    schema_arguments &operator=(const schema_arguments &) = delete;

    /* Returns the rule of the valid objects; of any object, if none is valid or the grammar would become too large. */
    std::string object(const schema_json &document);

    /* Returns each member that a way to meet the schema declares or requires. */
    std::vector<schema_argument> members(const schema_json &document);

    /* Returns all rules, with those of any JSON: `object`, `value`, ... */
    std::string grammar() const
    {
        return out.grammar("object");
    }

  private:
    work_budget budget; /* of all tools; `out` refers to it */
    rules out;

    template <typename T, typename F> T with_levels(const T &nothing, F compile);
};

#endif
