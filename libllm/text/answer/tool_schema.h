/* tool_schema.h: prepares tools for llama.cpp, and completes the grammar that llama.cpp makes. llama.cpp makes its
 * parser and grammar of tool calls from these tools. The parameters of the tools are replaced by *places*. A place is a
 * schema that allows only one constant. llama.cpp supports such a schema for every model family, and writes the
 * constant into its grammar as a literal. tool_schemas::put replaces this literal by libllm's own grammar of the
 * arguments. So llama.cpp never gets a client's schema. The functions change only their tool_schemas object. */
#ifndef LLM_TOOL_SCHEMA_H
#define LLM_TOOL_SCHEMA_H

#include <common/json.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "text/schema/arguments.h"

/* Which constants replace the parameters of a tool. Each constant is the only value that a place allows (see the top of
 * this file). */
enum class tool_schema_detail {
    WHOLE,   /* one constant stands for all arguments of a tool */
    NOTHING, /* one constant stands for all arguments of a tool. Any object is allowed */
    EACH,    /* each argument has a constant of its own */
    NAMES,   /* each argument has a constant of its own. Any value is allowed */
};

/* Returns whether a single constant stands for all arguments of a tool. */
inline bool is_whole(tool_schema_detail detail)
{
    return detail == tool_schema_detail::WHOLE || detail == tool_schema_detail::NOTHING;
}

/* What a chat template requires of the tools from which llama.cpp makes its parser. */
struct tool_template {
    /* The template writes each item of a list between its own delimiters. So llama.cpp must know which parameters are
     * lists. */
    bool marks_items = false;
    bool needs_types = false; /* the template fails on a parameter without a type */
    value_syntax values = value_syntax::JSON;
};

class tool_schemas {
  public:
    tool_schemas(tool_schema_detail how_much, const tool_template &wanted);

    /* Returns the tool with places (see the top of this file) instead of its parameters. `tool` is a tool as in
     * OpenAI's API. `has_form` is true if the client has given a grammar for one of the arguments. In this case, each
     * argument gets a constant of its own. */
    common_json placed(const common_json &tool, bool has_form);

    /* Returns whether the grammar contains the constants of all places. */
    bool are_mentioned(const std::string &grammar) const;

    /* Returns llama.cpp's grammar with the constant of each place replaced by libllm's rule, and with these rules
     * appended. `behind` is a GBNF element that is allowed after the arguments of a tool if a single constant stands
     * for all of them, or "". */
    std::string put(const std::string &grammar, const std::string &behind) const;

    /* Returns the GBNF element that matches all arguments of a tool as one object. Returns "" if each argument has a
     * constant of its own. */
    std::string object_of(const std::string &tool) const;

    /* The parameters of a tool whose arguments each have a constant of their own. */
    struct separate {
        std::vector<schema_argument> arguments;
        std::vector<bool> are_lists; /* for each argument, whether the argument is a list whose items the template
                                      * writes between delimiters */
        const char *any_name = "";   /* name of the placeholder for undeclared parameters (call_graph.h) */
    };
    const separate *separate_of(const std::string &tool) const;
    bool takes_any_value() const
    {
        return detail == tool_schema_detail::NAMES;
    }

    /* element_of returns the name that a rule of `compiled` has in the grammar that `put` returns. The other three
     * functions return such names for the rules of bare_names, bare_texts and quoted_texts (schema_arguments). */
    static std::string element_of(const std::string &rule);
    std::optional<std::string> names(const automaton &texts);
    std::optional<std::string> bare(const automaton &texts, const std::string &close);
    std::optional<std::string> quoted(const automaton &texts);

  private:
    tool_schema_detail detail;
    tool_template tmpl;
    schema_arguments compiled;
    std::map<std::string, std::string, std::less<>> places; /* for each constant in llama.cpp's grammar, the GBNF
                                                             * element that replaces the constant */
    std::map<std::string, std::string> objects;             /* for each tool, the GBNF element of its arguments */
    std::map<std::string, separate> separates;

    common_json place_for(const std::string &element);
    common_json place_of(const schema_argument &one);
};

#endif
