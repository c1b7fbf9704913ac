#include "text/schema/compile.h"

#include "text/schema/writer.h"

namespace {

constexpr size_t LEVELS_MAX = 200;
const size_t FEWER_LEVELS[] = {LEVELS_MAX, 8, 5, 3, 2, 1}; /* of a loose schema, until its grammar is small enough */

std::string compiled(const schema_json &document, schema_policy policy, size_t most_bytes, size_t n_levels)
{
    const references refs(document);
    pattern_set patterns;
    expansion meaning(refs, policy, patterns);
    rules out(most_bytes);
    const std::string root = writer(meaning, patterns, out, n_levels).value(node_of({{&document}}));
    if (root.empty() && policy == schema_policy::STRICT) {
        throw grammar_fault("no value is valid for the schema");
    }
    return out.grammar(root.empty() ? "value" : root);
}

} // namespace

std::string schema_grammar(const schema_json &document, schema_policy policy, size_t most_bytes)
{
    if (policy == schema_policy::STRICT) {
        return compiled(document, policy, most_bytes, LEVELS_MAX);
    }
    for (const size_t n_levels : FEWER_LEVELS) {
        try {
            return compiled(document, policy, most_bytes, n_levels);
        } catch (const grammar_too_large &) {
        }
    }
    return compiled(true, policy, most_bytes, 1);
}
