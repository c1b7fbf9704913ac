#include "text/schema/compile.h"

#include "text/schema/writer.h"

namespace {

constexpr size_t LEVELS_MAX = 200;
/* How many levels of the schema the policy LOOSE enforces in each attempt. If an attempt's grammar is too large, the
 * next attempt enforces fewer levels. */
const size_t FEWER_LEVELS[] = {LEVELS_MAX, 8, 5, 3, 2, 1};

std::string compiled(const schema_json &document, schema_policy policy, size_t most_bytes, size_t n_levels,
                     work_budget &budget)
{
    const references refs(document);
    pattern_set patterns(budget);
    expansion meaning(refs, policy, patterns, budget);
    rules out(most_bytes, budget);
    const std::string root = writer(meaning, patterns, out, n_levels, budget).value(meaning.node_of({{&document}}));
    if (budget.is_spent()) { /* with a spent budget, enum values are kept untested, so the grammar may be wrong */
        meaning.give_up(document, work_budget::beyond());
    }
    if (root.empty() && policy == schema_policy::STRICT) {
        throw grammar_fault("no value is valid for the schema");
    }
    return out.grammar(root.empty() ? "value" : root);
}

} // namespace

std::string schema_grammar(const schema_json &document, schema_policy policy, size_t most_bytes, work_budget &budget)
{
    if (policy == schema_policy::STRICT) {
        return compiled(document, policy, most_bytes, LEVELS_MAX, budget);
    }
    for (const size_t n_levels : FEWER_LEVELS) {
        work_budget part(budget.left() / 4 * 3); /* a quarter of the budget is left for the next attempts */
        try {
            std::string grammar = compiled(document, policy, most_bytes, n_levels, part);
            (void)budget.take(part.steps());
            return grammar;
        } catch (const grammar_too_large &) {
            (void)budget.take(part.steps());
        }
    }
    return compiled(true, policy, most_bytes, 1, budget);
}
