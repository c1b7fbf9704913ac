#include "text/tool_schema.h"

#include <common/json-schema-to-grammar.h>

#include <algorithm>
#include <new>
#include <string>

#include "text/grammar.h"
#include "text/schema_check.h"
#include "text/schema_plain.h"

namespace {

constexpr size_t SCHEMA_BYTES_MAX = 64 << 10, GRAMMAR_BYTES_MAX = 512 << 10;
constexpr size_t DEPTH_MAX = 24, MEMBERS_MAX = 128; /* of an object */
constexpr size_t BUILT_MAX = 16384, LEVELS_BUILT_MAX = 128;
constexpr int64_t REPEATS_MAX = 1000; /* a grammar writes repetitions out */

const char *const VALUES[] = {"const", "enum", "default", "examples"};
const char *const REPEATS[] = {"minLength", "maxLength", "minItems", "maxItems"};

/* The converter's work and its grammar grow with the square of depth and width. */
bool is_within_bounds(const common_json &value, size_t n_levels)
{
    if (!value.is_object() && !value.is_array()) {
        return true;
    }
    if (n_levels == 0 || (value.is_object() && value.size() > MEMBERS_MAX)) {
        return false;
    }
    for (const common_json &item : value) {
        if (!is_within_bounds(item, n_levels - 1)) {
            return false;
        }
    }
    return true;
}

/* The schema that a JSON pointer names, as the converter finds it; NULL: none. */
const common_json *target_of(const common_json &root, const std::string &ref)
{
    const common_json *found = &root;
    for (size_t at = ref.find('/'); at != std::string::npos && found != nullptr;) {
        const size_t end = ref.find('/', at + 1);
        const std::string name = ref.substr(at + 1, end - at - 1);
        found = found->is_object() && found->contains(name) ? &found->at(name) : nullptr;
        at = end;
    }
    return found;
}

/* Number of schemas that the converter builds: those below a list of types once for each type, and those that an allOf refers
 * to in place. An allOf that refers to a schema around it is unrolled without end, until the stack is full. */
size_t n_built(const common_json &root, const common_json &value, size_t n_levels, bool is_part_of_all)
{
    if (n_levels == 0) {
        return BUILT_MAX + 1;
    }
    size_t n = 1;
    if (value.is_object()) {
        for (const auto &[name, item] : value.items()) {
            if (n <= BUILT_MAX && (item.is_object() || item.is_array())) {
                n += n_built(root, item, n_levels - 1, name == "allOf");
            } else if (n <= BUILT_MAX && is_part_of_all && name == "$ref" && item.is_string()) {
                const common_json *target = target_of(root, item.get<std::string>());
                n += target != nullptr ? n_built(root, *target, n_levels - 1, true) : 0;
            }
        }
    } else {
        for (const common_json &item : value) {
            if (n <= BUILT_MAX && (item.is_object() || item.is_array())) {
                n += n_built(root, item, n_levels - 1, is_part_of_all);
            }
        }
    }
    const bool has_types = value.is_object() && value.contains("type") && value.at("type").is_array();
    n = has_types && !value.at("type").empty() ? n * value.at("type").size() : n;
    return std::min(n, BUILT_MAX + 1);
}

bool has_ends(const std::string &schema)
{
    try {
        schema_check_refs(schema_json::parse(schema));
        return true;
    } catch (const grammar_fault &) {
        return false;
    }
}

bool is_too_often(const common_json &count)
{
    return !count.is_number_integer() || count.get<int64_t>() < 0 || count.get<int64_t>() > REPEATS_MAX;
}

/* Without counts that would make a grammar too long, and without expressions, of which the converter complains on stderr. */
common_json relaxed(const common_json &value)
{
    if (value.is_array()) {
        common_json out = common_json::array();
        for (const common_json &item : value) {
            out.push_back(relaxed(item));
        }
        return out;
    }
    if (!value.is_object()) {
        return value;
    }
    common_json out = common_json::object();
    for (const auto &[name, item] : value.items()) {
        const bool is_value = std::find(std::begin(VALUES), std::end(VALUES), name) != std::end(VALUES);
        const bool is_count = std::find(std::begin(REPEATS), std::end(REPEATS), name) != std::end(REPEATS);
        const bool is_dropped =
            (is_count && !item.is_object() && is_too_often(item)) || (name == "pattern" && item.is_string());
        if (!is_dropped) {
            out[name] = is_value ? item : relaxed(item);
        }
    }
    return out;
}

common_json plain(const common_json &schema)
{
    schema_json out = schema_json::parse(schema.dump_safe());
    schema_plain(out, false);
    return common_json::parse(out.dump());
}

bool is_expressible(const common_json &schema)
{
    try {
        return json_schema_to_grammar(schema, true).size() <= GRAMMAR_BYTES_MAX;
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception &) {
        return false;
    }
}

common_json empty_object()
{
    common_json out = common_json::object();
    out["type"] = "object";
    out["properties"] = common_json::object();
    return out;
}

common_json any_object()
{
    common_json out = common_json::object();
    out["type"] = "object";
    return out;
}

common_json with_any_values(const common_json &schema)
{
    common_json out = empty_object();
    const common_json properties =
        schema.is_object() ? schema.value("properties", common_json::object()) : common_json::object();
    if (properties.is_object()) {
        for (const auto &[name, property] : properties.items()) {
            out["properties"][name] = common_json::object();
        }
    }
    return out;
}

/* Each property that cannot be expressed takes any value. */
common_json with_expressible_properties(const common_json &schema)
{
    if (!schema.contains("properties") || !schema.at("properties").is_object()) {
        return empty_object();
    }
    common_json out = schema;
    common_json one = schema;
    one["required"] = common_json::array();
    for (const auto &[name, property] : schema.at("properties").items()) {
        one["properties"] = common_json::object();
        one["properties"][name] = property;
        if (!is_expressible(one)) {
            out["properties"][name] = common_json::object();
        }
    }
    return is_expressible(out) ? out : with_any_values(schema);
}

common_json parameters_of(const common_json &tool)
{
    const common_json parameters = tool.at("function").value("parameters", common_json());
    return parameters.is_object() && !parameters.empty() ? parameters : empty_object();
}

common_json with_parameters(const common_json &tool, const common_json &parameters)
{
    common_json out = tool;
    out["function"]["parameters"] = parameters;
    return out;
}

} // namespace

common_json tool_with_schema(const common_json &tool, tool_schema_detail detail)
{
    const common_json given = parameters_of(tool);
    if (detail == tool_schema_detail::NOTHING) {
        return with_parameters(tool, any_object());
    }
    const std::string text = given.dump_safe();
    const bool is_bounded = text.size() <= SCHEMA_BYTES_MAX && is_within_bounds(given, DEPTH_MAX) && has_ends(text) &&
                            n_built(given, given, LEVELS_BUILT_MAX, false) <= BUILT_MAX;
    if (detail == tool_schema_detail::NAMES || !is_bounded) {
        return with_parameters(tool, with_any_values(given));
    }
    const common_json parameters = plain(relaxed(given));
    if (parameters.dump().size() > SCHEMA_BYTES_MAX ||
        n_built(parameters, parameters, LEVELS_BUILT_MAX, false) > BUILT_MAX) {
        return with_parameters(tool, with_any_values(given));
    }
    return with_parameters(tool, is_expressible(parameters) ? parameters : with_expressible_properties(parameters));
}
