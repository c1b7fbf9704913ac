/* tool_schema.h: the tools from which llama.cpp makes a form of calls. The parameters of these tools are replaced by
 * *places*. A place is a schema with one constant, which llama.cpp supports for every family and writes into its
 * grammar as a literal. libllm's own grammar of the arguments then replaces this literal, so llama.cpp never gets a
 * client's schema. Pure. */
#ifndef LLM_TOOL_SCHEMA_H
#define LLM_TOOL_SCHEMA_H

#include <common/json.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "text/schema/arguments.h"

enum class tool_schema_detail {
    WHOLE,   /* one place for all arguments */
    NOTHING, /* one place for all arguments, where any object is allowed */
    EACH,    /* one place for each argument */
    NAMES,   /* one place for each argument, where any value is allowed */
};

/* Returns whether all arguments of a tool have one place. */
inline bool is_whole(tool_schema_detail detail)
{
    return detail == tool_schema_detail::WHOLE || detail == tool_schema_detail::NOTHING;
}

/* Requirements of a template on the tools from which llama.cpp makes its form of calls. */
struct tool_template {
    /* The template writes each item of a list between marks, so that the form must know which parameters are lists. */
    bool marks_items = false;
    bool needs_types = false; /* the template fails on a parameter without a type */
    value_syntax values = value_syntax::JSON;
};

class tool_schemas {
  public:
    tool_schemas(tool_schema_detail how_much, const tool_template &wanted);

    /* Returns the tool with places instead of its parameters. `tool` is in OpenAI's form. With `has_form`, an argument
     * of the tool has a grammar of its own, so each argument gets a place. */
    common_json placed(const common_json &tool, bool has_form);

    /* Returns whether the grammar contains all places. */
    bool are_mentioned(const std::string &grammar) const;

    /* Returns llama.cpp's grammar with libllm's rules in the places. `behind` is an element that follows the arguments
     * of a tool with one place, or "". */
    std::string put(const std::string &grammar, const std::string &behind) const;

    /* Returns the grammar's element for the object of a tool's arguments, or "" if each argument has a place. */
    std::string object_of(const std::string &tool) const;

    /* The parameters of a tool if each argument has a place. */
    struct separate {
        std::vector<schema_argument> arguments;
        std::vector<bool> are_lists; /* for each argument, whether it is a list whose items the template writes between
                                      * marks */
        const char *any_name = "";   /* name of the placeholder for undeclared parameters (call_graph.h) */
    };
    const separate *separate_of(const std::string &tool) const;
    bool takes_any_value() const
    {
        return detail == tool_schema_detail::NAMES;
    }

    /* element_of returns an element of the grammar that `put` completes. The other three functions correspond to
     * bare_names, bare_texts and quoted_texts of schema_arguments. */
    static std::string element_of(const std::string &rule);
    std::optional<std::string> names(const automaton &texts);
    std::optional<std::string> bare(const automaton &texts, const std::string &close);
    std::optional<std::string> quoted(const automaton &texts);

  private:
    tool_schema_detail detail;
    tool_template tmpl;
    schema_arguments compiled;
    std::map<std::string, std::string, std::less<>> places; /* for each literal, the element that replaces it */
    std::map<std::string, std::string> objects;             /* for each tool, the element of its arguments */
    std::map<std::string, separate> separates;

    common_json place_for(const std::string &element);
    common_json place_of(const schema_argument &one);
};

#endif
