/* arguments.h: compiles the parameter schemas of all tools of a request into one grammar. If the chat template writes
 * the arguments of a tool call as a JSON object, each schema is compiled as a whole. If the template writes each
 * argument between its own delimiters (<parameter=city>Rome</parameter>), each parameter is compiled separately. A
 * schema_arguments object is owned by the thread that reads the request.
 *
 * Schemas of tools are enforced loosely. An unusual schema is enforced in part or not at all, but never makes the
 * request fail. */
#ifndef LLM_SCHEMA_ARGUMENTS_H
#define LLM_SCHEMA_ARGUMENTS_H

#include <optional>
#include <string>
#include <vector>

#include "text/schema/rules.h"
#include "text/schema/shape.h"

/* One parameter of a tool, or a group of parameters whose names the schema does not declare. Some templates write a
 * string argument without quotes between its delimiters. With such a template, strings and other values are written
 * differently. `texts` is the set of strings that the parameter allows. `not_text` is the rule of the other values that
 * it allows. */
struct schema_argument {
    std::string name;                          /* "" for a group of undeclared parameters, whose names are in `names` */
    std::string element;                       /* GBNF that matches the value */
    bool is_required = false;                  /* true only if all alternatives of the schema require the parameter */
    bool may_be_text = false, is_text = false; /* whether the value can be a string, and whether the value can only be a
                                                * string */
    std::optional<automaton> names, texts;     /* `texts` has the allowed strings. nullopt means any string */
    std::string not_text;                      /* rule of the allowed values that are not strings, or "" */
};

/* Compiles the schemas of a request's tools, one after the other. Keywords that cannot be enforced are ignored. The
 * functions throw no exception but std::bad_alloc. */
class schema_arguments {
  public:
    explicit schema_arguments(size_t most_bytes, value_syntax how = value_syntax::JSON) : out(most_bytes, budget, how)
    {}
    schema_arguments(const schema_arguments &) = delete;
    schema_arguments &operator=(const schema_arguments &) = delete;

    /* Returns the grammar rule of all JSON objects that are valid for the schema. If no object is valid, or the grammar
     * would become too large, returns the rule of any object. */
    std::string object(const schema_json &document);

    /* Returns each parameter that the schema declares or requires in any of its alternatives, and groups of undeclared
     * parameters. If there are too many parameters, or the grammar would become too large, returns a single group of
     * undeclared parameters. The group allows any name with any value. */
    std::vector<schema_argument> members(const schema_json &document);

    /* Returns the rule of those parameter names in `names` that can be written between a template's delimiters. Returns
     * "" if no name can be written there. Returns nullopt if the rule would be too large. */
    std::optional<std::string> bare_names(const automaton &names);

    /* Returns the rule of these strings, written between single quotes. Strings that need escapes are left out. Returns
     * nullopt if every string needs escapes, or if the rule would be too large. */
    std::optional<std::string> quoted_texts(const automaton &texts);

    /* Returns the rule of these strings, written without quotes and escapes, followed by the closing delimiter `close`.
     * Returns nullopt if the rule would be too large. Also returns nullopt if no string can be written before `close`,
     * for example because each string contains `close`. */
    std::optional<std::string> bare_texts(const automaton &texts, const std::string &close);

    /* Returns the whole grammar: all rules so far, and the rules of any JSON value. */
    std::string grammar() const
    {
        return out.grammar("object");
    }

  private:
    work_budget budget; /* work budget that all tools share. `out` refers to this budget */
    rules out;
    size_t n_names = 0; /* number of parameters in all tools so far */

    template <typename T, typename F> T with_levels(const T &nothing, F compile);
};

#endif
