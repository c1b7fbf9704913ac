/* arguments.h: the schemas of tools, compiled into one grammar: as a whole, for templates that write a call's arguments
 * as an object of JSON, and each parameter by itself, for those that write every argument between marks of its own. The
 * thread that reads the request owns it.
 *
 * A schema of a tool is met loosely: a tool whose schema is unusual is offered with fewer conditions, or with none, and
 * never makes the request fail. */
#ifndef LLM_SCHEMA_ARGUMENTS_H
#define LLM_SCHEMA_ARGUMENTS_H

#include <optional>
#include <string>
#include <vector>

#include "text/schema/rules.h"
#include "text/schema/shape.h"

/* One parameter, or all those with other names, which the schema does not declare. Where the marks of a template hold
 * bare text, a text is written without quotes, so that an argument that may be a text or a number has two rules:
 * `texts` and `not_text`. */
struct schema_argument {
    std::string name;                          /* "": any of `names` */
    std::string element;                       /* a rule of the grammar */
    bool is_required = false;                  /* whichever way the schema is met */
    bool may_be_text = false, is_text = false; /* is_text: it can be nothing else */
    std::optional<automaton> names, texts;     /* texts: those that it may be; nullopt: any */
    std::string not_text;                      /* a rule: values that are no texts; "": there are none */
};

/* Keywords that cannot be enforced are ignored. All members throw nothing but std::bad_alloc. */
class schema_arguments {
  public:
    explicit schema_arguments(size_t most_bytes, value_syntax how = value_syntax::JSON) : out(most_bytes, budget, how)
    {}
    schema_arguments(const schema_arguments &) = delete;
    schema_arguments &operator=(const schema_arguments &) = delete;

    /* Returns the rule of the valid objects; of any object, if no object is valid or the grammar would become too
     * large. */
    std::string object(const schema_json &document);

    /* Returns each member that a way to meet the schema declares or requires. If there are too many, or the grammar
     * would become too large, it returns one of any name and value. */
    std::vector<schema_argument> members(const schema_json &document);

    /* Returns the rule of one of these names, as the marks of a template can hold it. "": none of them can be in a
     * mark. nullopt: the rule would be too large. */
    std::optional<std::string> bare_names(const automaton &names);

    /* Returns the rule of one of the texts between single quotes, of those that need no escapes there. nullopt: there
     * is none. */
    std::optional<std::string> quoted_texts(const automaton &texts);

    /* Returns the rule of one of the texts, as it is, and then `close`. nullopt: the rule would be too large, or no
     * text can stand before `close`. */
    std::optional<std::string> bare_texts(const automaton &texts, const std::string &close);

    /* Returns all rules, with those of any JSON: `object`, `value`, ... */
    std::string grammar() const
    {
        return out.grammar("object");
    }

  private:
    work_budget budget; /* of all tools; `out` refers to it */
    rules out;
    size_t n_names = 0; /* of all members */

    template <typename T, typename F> T with_levels(const T &nothing, F compile);
};

#endif
