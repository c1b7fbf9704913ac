/* tool_schema.h: the tools that llama.cpp makes a form of calls from. Their parameters are places: schemas so simple that every
 * family's form is made of them, and that its grammar shows as literals. Our grammar of the arguments takes their place there, so that
 * llama.cpp never sees a client's schema. Pure. */
#ifndef LLM_TOOL_SCHEMA_H
#define LLM_TOOL_SCHEMA_H

#include <common/json.h>

#include <string>
#include <vector>

#include "text/schema/arguments.h"

enum class tool_schema_detail {
    WHOLE,   /* one place for all arguments */
    NOTHING, /* the same, for any object */
    EACH,    /* one for each argument */
    NAMES,   /* which takes any value */
};

class tool_schemas {
  public:
    /* marks_items: the template writes each item of a list between marks of its own, so that the form of calls must know
     * which parameters are lists. */
    tool_schemas(tool_schema_detail how_much, bool marks_items);

    /* `tool` is of OpenAI's form. is_whole: its arguments may have one place. */
    common_json placed(const common_json &tool, bool is_whole);

    /* Whether the grammar has all places. */
    bool are_mentioned(const std::string &grammar) const;

    /* With our rules in their places. */
    std::string put(std::string grammar) const;

  private:
    struct place {
        std::string literal, element;
    };
    tool_schema_detail detail;
    bool marks_items;
    schema_arguments compiled;
    std::vector<place> places;

    common_json place_for(const std::string &element);
};

#endif
