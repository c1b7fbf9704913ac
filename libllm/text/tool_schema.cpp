#include "text/tool_schema.h"

#include <common/json-schema-to-grammar.h>

#include <algorithm>
#include <new>
#include <string>

namespace {

constexpr size_t SCHEMA_BYTES_MAX = 64 << 10, GRAMMAR_BYTES_MAX = 512 << 10;
constexpr size_t DEPTH_MAX = 24;      /* the converter recurses, and its grammars grow with the square of it */
constexpr int64_t REPEATS_MAX = 1000; /* a grammar writes repetitions out */

const char *const REPEATS[] = {"minLength", "maxLength", "minItems", "maxItems"};

size_t depth_of(const common_json &value)
{
    size_t most = 0;
    if (value.is_object() || value.is_array()) {
        for (const common_json &item : value) {
            most = std::max(most, depth_of(item));
        }
    }
    return most + 1;
}

bool is_too_often(const common_json &count)
{
    return !count.is_number_integer() || count.get<int64_t>() < 0 || count.get<int64_t>() > REPEATS_MAX;
}

/* Without counts that would make a grammar too long. */
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
        const bool is_count = std::find(std::begin(REPEATS), std::end(REPEATS), name) != std::end(REPEATS);
        if (!is_count || item.is_object() || !is_too_often(item)) {
            out[name] = relaxed(item);
        }
    }
    return out;
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

/* Each property that cannot be expressed takes any value. */
common_json with_expressible_properties(const common_json &schema)
{
    if (!schema.is_object() || !schema.contains("properties") || !schema.at("properties").is_object()) {
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
    if (is_expressible(out)) {
        return out;
    }
    common_json plain = empty_object();
    for (const auto &[name, property] : schema.at("properties").items()) {
        plain["properties"][name] = common_json::object();
    }
    return plain;
}

} // namespace

common_json tool_with_expressible_schema(const common_json &tool)
{
    common_json out = tool;
    common_json &function = out["function"];
    common_json parameters = function.value("parameters", common_json());
    if (!parameters.is_object() || parameters.empty()) {
        parameters = empty_object();
    }
    if (depth_of(parameters) > DEPTH_MAX || parameters.dump_safe().size() > SCHEMA_BYTES_MAX) {
        common_json plain = empty_object();
        const common_json properties = parameters.value("properties", common_json::object());
        for (const auto &[name, property] : properties.items()) {
            plain["properties"][name] = common_json::object();
        }
        parameters = plain;
    }
    parameters = relaxed(parameters);
    function["parameters"] = is_expressible(parameters) ? parameters : with_expressible_properties(parameters);
    return out;
}
