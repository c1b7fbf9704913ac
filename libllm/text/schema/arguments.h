/* arguments.h: compiles the schemas of tools into one grammar. For templates that write a call's arguments as a JSON
 * object, a schema is compiled as a whole. For templates that write each argument between delimiters of its own
 * (<parameter=city>Rome</parameter>), each parameter is compiled by itself. Owned by the thread that reads the request.
 *
 * Schemas of tools are enforced loosely: an unusual schema is enforced in part or not at all, but never makes the
 * request fail. */
#ifndef LLM_SCHEMA_ARGUMENTS_H
#define LLM_SCHEMA_ARGUMENTS_H

#include <optional>
#include <string>
#include <vector>

#include "text/schema/rules.h"
#include "text/schema/shape.h"

/* One parameter, or all parameters with names that the schema does not declare. Some templates write a text without
 * quotes between the delimiters. An argument that can be a text or a number therefore has two rules, `texts` and
 * `not_text`. */
struct schema_argument {
    std::string name;                          /* "" if this stands for the undeclared names in `names` */
    std::string element;                       /* a rule of the grammar */
    bool is_required = false;                  /* true only if every shape of the schema requires it */
    bool may_be_text = false, is_text = false; /* is_text: the argument can only be a text */
    std::optional<automaton> names, texts;     /* texts are the possible texts, or nullopt for any text */
    std::string not_text;                      /* rule of the values that are not texts; "" if every value is a text */
};

/* Keywords that cannot be enforced are ignored. The only exception that any member throws is std::bad_alloc. */
class schema_arguments {
  public:
    explicit schema_arguments(size_t most_bytes, value_syntax how = value_syntax::JSON) : out(most_bytes, budget, how)
    {}
    schema_arguments(const schema_arguments &) = delete;
    schema_arguments &operator=(const schema_arguments &) = delete;

    /* Returns the rule of the valid objects. If no object is valid or the grammar would become too large, returns
     * the rule of any object. */
    std::string object(const schema_json &document);

    /* Returns each member that one of the schema's shapes declares or requires. If there are too many members, or the
     * grammar would become too large, returns one member with any name and value. */
    std::vector<schema_argument> members(const schema_json &document);

    /* Returns the rule of those names that can be written between a template's delimiters. Returns "" if no name can,
     * and nullopt if the rule would be too large. */
    std::optional<std::string> bare_names(const automaton &names);

    /* Returns the rule of the texts between single quotes, without texts that need escapes. Returns nullopt if every
     * text needs escapes. */
    std::optional<std::string> quoted_texts(const automaton &texts);

    /* Returns the rule of the texts, without quotes and escapes, followed by `close`. Returns nullopt if the rule would
     * be too large or no text can precede `close`. */
    std::optional<std::string> bare_texts(const automaton &texts, const std::string &close);

    /* Returns all rules, including the rules of any JSON value: `object`, `value`, ... */
    std::string grammar() const
    {
        return out.grammar("object");
    }

  private:
    work_budget budget; /* shared by all tools; `out` refers to it */
    rules out;
    size_t n_names = 0; /* number of names in all tools so far */

    template <typename T, typename F> T with_levels(const T &nothing, F compile);
};

#endif
