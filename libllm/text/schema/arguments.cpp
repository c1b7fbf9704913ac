#include "text/schema/arguments.h"

#include <algorithm>
#include <map>
#include <new>

#include "text/schema/writer.h"

namespace {

const size_t LEVELS[] = {200, 8, 5, 3, 2, 1}; /* that are compiled, until the grammar is small enough */

const schema_json &any_object()
{
    static const schema_json schema = {{"type", "object"}};
    return schema;
}

/* The types that values of the node may have. */
uint8_t types_of(expansion &meaning, const node &n)
{
    uint8_t all = n.empty() ? json_type::ANY : json_type::NOTHING;
    const std::vector<shape> shapes = n.empty() ? std::vector<shape>() : meaning.shapes_of(n);
    for (const shape &s : shapes) {
        if (!s.values.has_value()) {
            all = static_cast<uint8_t>(all | s.types);
            continue;
        }
        for (const schema_json *value : *s.values) {
            all = static_cast<uint8_t>(all |
                                       (value->is_string() ? json_type::STRING : json_type::ANY & ~json_type::STRING));
        }
    }
    return all;
}

/* The names that the shapes know, in their order. */
std::vector<std::string> names_of(const std::vector<shape> &shapes)
{
    std::vector<std::string> names;
    const auto add = [&](const std::string &name) {
        if (std::find(names.begin(), names.end(), name) == names.end()) {
            names.push_back(name);
        }
    };
    for (const shape &s : shapes) {
        for (const schema_json *source : s.object_sources) {
            if (source->contains("properties") && (*source)["properties"].is_object()) {
                for (auto it = (*source)["properties"].begin(); it != (*source)["properties"].end(); ++it) {
                    add(it.key());
                }
            }
        }
        for (const std::string &name : s.required) {
            add(name);
        }
    }
    return names;
}

bool declares(const shape &s, const std::string &name)
{
    return std::any_of(s.object_sources.begin(), s.object_sources.end(), [&](const schema_json *source) {
        return source->contains("properties") && (*source)["properties"].is_object() &&
               (*source)["properties"].contains(name);
    });
}

schema_argument one_argument(expansion &meaning, writer &values, rules &out, const std::vector<shape> &shapes,
                             const std::string &name)
{
    schema_argument one = {name, "", !shapes.empty(), false, false};
    uint8_t types = json_type::NOTHING;
    std::string ways;
    const bool is_declared =
        std::any_of(shapes.begin(), shapes.end(), [&](const shape &s) { return declares(s, name); });
    for (const shape &s : shapes) {
        if (is_declared && !declares(s, name)) { /* it may be there, as anything, which is not what is meant */
            one.is_required = false;
            continue;
        }
        const node value = meaning.member_node(s, name);
        const std::string way = s.absent.count(name) > 0 ? "" : values.value(value);
        ways += (ways.empty() || way.empty() ? "" : " | ") + way;
        types = static_cast<uint8_t>(types | (way.empty() ? json_type::NOTHING : types_of(meaning, value)));
        one.is_required = one.is_required && std::find(s.required.begin(), s.required.end(), name) != s.required.end();
    }
    one.may_be_text = (types & json_type::STRING) != 0;
    one.is_text = types == json_type::STRING;
    one.element = ways.find(' ') == std::string::npos ? ways : out.add(ways);
    return one;
}

} // namespace

/* One after another, as long as the grammar is too large: `compile` is called with fewer levels each time. It may take half of the
 * work that is left, so that there is some for the next attempt, and for the next tool. */
template <typename T, typename F> T schema_arguments::with_levels(const T &nothing, F compile)
{
    for (const size_t n_levels : LEVELS) {
        work_budget part(budget.left() / 2);
        const rules::mark before = out.now();
        try {
            const T found = compile(n_levels, part);
            (void)budget.take(part.steps());
            return found;
        } catch (const grammar_too_large &) {
            (void)budget.take(part.steps());
            out.forget(before);
        } catch (const grammar_fault &) {
            (void)budget.take(part.steps());
            out.forget(before);
            return nothing;
        }
    }
    return nothing;
}

std::string schema_arguments::object(const schema_json &document)
{
    const std::string any = "object";
    const std::string found = with_levels(any, [&](size_t n_levels, work_budget &part) {
        const references refs(document);
        pattern_set patterns(part);
        expansion meaning(refs, schema_policy::LOOSE, patterns, part);
        return writer(meaning, patterns, out, n_levels, part).value(node_of({{&document}, {&any_object()}}));
    });
    return found.empty() ? any : found;
}

std::vector<schema_argument> schema_arguments::members(const schema_json &document)
{
    return with_levels(std::vector<schema_argument>(), [&](size_t n_levels, work_budget &part) {
        const references refs(document);
        pattern_set patterns(part);
        expansion meaning(refs, schema_policy::LOOSE, patterns, part);
        writer values(meaning, patterns, out, n_levels, part);
        std::vector<shape> shapes = meaning.shapes_of(node_of({{&document}, {&any_object()}}));
        shapes.erase(std::remove_if(shapes.begin(), shapes.end(),
                                    [](const shape &s) { return (s.types & json_type::OBJECT) == 0; }),
                     shapes.end());
        std::vector<schema_argument> all;
        for (const std::string &name : names_of(shapes)) {
            schema_argument one = one_argument(meaning, values, out, shapes, name);
            if (!one.element.empty()) {
                all.push_back(std::move(one));
            }
        }
        return all;
    });
}
