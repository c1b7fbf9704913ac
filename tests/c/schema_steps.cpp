#include "schema_steps.h"

#include <algorithm>
#include <string>

#include "text/schema/compile.h"

size_t schema_steps(const char *schema, bool is_strict)
{
    std::string text = schema;
    std::replace(text.begin(), text.end(), '\'', '"');
    work_budget budget;
    try {
        (void)schema_grammar(schema_json::parse(text), is_strict ? schema_policy::STRICT : schema_policy::LOOSE,
                             1 << 20, budget);
    } catch (const grammar_fault &) { /* refused: the steps until then count */
    }
    return budget.steps();
}

size_t schema_steps_max(void)
{
    return work_budget::STEPS_MAX;
}
