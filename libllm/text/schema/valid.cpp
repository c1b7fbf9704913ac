/* valid.cpp: whether a value that a schema itself contains, in enum or const, meets conditions. Such a value is tested
 * instead of merged: {"enum": ["a", 1], "type": "string"} has the shape of a list, from which 1 is left out when the
 * list is written. A name that propertyNames forbids is found in the same way. What is not tested here (format,
 * uniqueItems) counts as met. */
#include <algorithm>
#include <cmath>

#include "text/schema/shape.h"

namespace {

constexpr size_t DEPTH_MAX = 64; /* references and nested schemas; what is deeper counts as met */

size_t length_of(const std::string &text)
{
    return static_cast<size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }));
}

bool is_of_type(const schema_json &value, const schema_json &type)
{
    const std::string name = type.is_string() ? type.get<std::string>() : "";
    const bool is_whole = value.is_number_integer() ||
                          (value.is_number_float() && std::floor(value.get<double>()) == value.get<double>());
    return (name == "null" && value.is_null()) || (name == "boolean" && value.is_boolean()) ||
           (name == "number" && value.is_number()) || (name == "integer" && is_whole) ||
           (name == "string" && value.is_string()) || (name == "array" && value.is_array()) ||
           (name == "object" && value.is_object()) || schema_type(name) == json_type::NOTHING;
}

/* The members may come in any order: schema_json keeps them in the order of the document, and compares the order,
 * too. */
bool is_equal(const schema_json &a, const schema_json &b)
{
    if (!a.is_object() || !b.is_object()) {
        return a == b;
    }
    return a.size() == b.size() && std::all_of(a.items().begin(), a.items().end(), [&](const auto &member) {
               const auto found = b.find(member.key());
               return found != b.end() && is_equal(member.value(), *found);
           });
}

/* Returns whether the value is in the list. Mostly it comes from this very list, so that addresses are compared first:
 * comparing each value of a list with each value takes the square of its length. */
bool is_one_of(const schema_json &value, const schema_json &values)
{
    return std::any_of(values.begin(), values.end(), [&](const schema_json &one) { return &one == &value; }) ||
           std::any_of(values.begin(), values.end(), [&](const schema_json &one) { return is_equal(value, one); });
}

bool is_valid_number(const schema_json &value, const schema_json &schema)
{
    const auto has = [&](const char *name) { return schema.contains(name) && schema[name].is_number(); };
    const auto is_true = [&](const char *name) { return schema.contains(name) && schema[name] == true; };
    if ((has("minimum") && (is_true("exclusiveMinimum") ? value <= schema["minimum"] : value < schema["minimum"])) ||
        (has("maximum") && (is_true("exclusiveMaximum") ? value >= schema["maximum"] : value > schema["maximum"])) ||
        (has("exclusiveMinimum") && value <= schema["exclusiveMinimum"]) ||
        (has("exclusiveMaximum") && value >= schema["exclusiveMaximum"])) {
        return false;
    }
    if (!has("multipleOf") || schema["multipleOf"].get<double>() <= 0) {
        return true;
    }
    const double n = value.get<double>() / schema["multipleOf"].get<double>();
    return std::fabs(n - std::round(n)) < 1e-9 * std::max(1.0, std::fabs(n)); /* 0.3 / 0.1 is no integer as a double */
}

} // namespace

bool expansion::is_valid(const schema_json &value, const node &n)
{
    return std::all_of(n.begin(), n.end(), [&](const condition &c) { return is_valid_condition(value, c, DEPTH_MAX); });
}

bool expansion::is_valid_condition(const schema_json &value, const condition &c, size_t depth)
{
    return c.keyword != nullptr || is_valid_schema(value, *c.schema, depth) != c.is_negated;
}

bool expansion::is_valid_text(const schema_json &value, const schema_json &schema)
{
    const std::string &text = value.get_ref<const std::string &>();
    const size_t n = length_of(text);
    if (schema.contains("minLength") && schema["minLength"].is_number() && n < schema_count(schema["minLength"])) {
        return false;
    }
    if (schema.contains("maxLength") && n > schema_count(schema["maxLength"])) {
        return false;
    }
    if (!schema.contains("pattern") || !schema["pattern"].is_string()) {
        return true;
    }
    const automaton *pattern = patterns.find(schema["pattern"].get<std::string>(), nullptr);
    return pattern == nullptr || pattern->accepts(text);
}

bool expansion::is_valid_array(const schema_json &value, const schema_json &schema, size_t depth)
{
    if ((schema.contains("minItems") && schema["minItems"].is_number() &&
         value.size() < schema_count(schema["minItems"])) ||
        (schema.contains("maxItems") && value.size() > schema_count(schema["maxItems"]))) {
        return false;
    }
    const bool is_old = schema.contains("items") && schema["items"].is_array();
    const char *first = is_old ? "items" : "prefixItems", *rest = is_old ? "additionalItems" : "items";
    const size_t n = schema.contains(first) && schema[first].is_array() ? schema[first].size() : 0;
    for (size_t i = 0; i < value.size(); i++) {
        if (i < n ? !is_valid_schema(value[i], schema[first][i], depth)
                  : schema.contains(rest) && !is_valid_schema(value[i], schema[rest], depth)) {
            return false;
        }
    }
    return !schema.contains("contains") || std::any_of(value.begin(), value.end(), [&](const schema_json &item) {
        return is_valid_schema(item, schema["contains"], depth);
    });
}

bool expansion::is_valid_object(const schema_json &value, const schema_json &schema, size_t depth)
{
    if ((schema.contains("minProperties") && schema["minProperties"].is_number() &&
         value.size() < schema_count(schema["minProperties"])) ||
        (schema.contains("maxProperties") && value.size() > schema_count(schema["maxProperties"]))) {
        return false;
    }
    if (schema.contains("required") && schema["required"].is_array()) {
        for (const schema_json &name : schema["required"]) {
            if (name.is_string() && !value.contains(name.get<std::string>())) {
                return false;
            }
        }
    }
    shape here;
    here.object_sources.push_back(&schema);
    for (auto it = value.begin(); it != value.end(); ++it) {
        for (const condition &c : member_node(here, it.key())) {
            if (!is_valid_schema(*it, *c.schema, depth)) {
                return false;
            }
        }
    }
    return true;
}

bool expansion::is_valid_combination(const schema_json &value, const schema_json &schema, size_t depth)
{
    const auto n_valid = [&](const char *name) {
        return std::count_if(schema[name].begin(), schema[name].end(),
                             [&](const schema_json &one) { return is_valid_schema(value, one, depth); });
    };
    const auto has = [&](const char *name) { return schema.contains(name) && schema[name].is_array(); };
    if ((has("allOf") && static_cast<size_t>(n_valid("allOf")) < schema["allOf"].size()) ||
        (has("anyOf") && n_valid("anyOf") == 0) || (has("oneOf") && n_valid("oneOf") != 1)) {
        return false;
    }
    if (schema.contains("not") && is_valid_schema(value, schema["not"], depth)) {
        return false;
    }
    if (!schema.contains("if")) {
        return true;
    }
    const char *then = is_valid_schema(value, schema["if"], depth) ? "then" : "else";
    return !schema.contains(then) || is_valid_schema(value, schema[then], depth);
}

bool expansion::is_valid_schema(const schema_json &value, const schema_json &schema, size_t depth)
{
    if (schema.is_boolean()) {
        return schema == true;
    }
    if (depth == 0 || !schema.is_object() || !budget.take(work_budget::VALIDATED_SCHEMA)) {
        return true;
    }
    if (schema.contains("$ref")) {
        const schema_json *target = refs.target(schema);
        if (target != nullptr && !is_valid_schema(value, *target, depth - 1)) {
            return false;
        }
        if (refs.hides_siblings()) {
            return true;
        }
    }
    /* const comes first, since most values of a long oneOf are told apart by it */
    if (schema.contains("const") && !is_equal(value, schema["const"])) {
        return false;
    }
    if (schema.contains("enum") && schema["enum"].is_array() && !is_one_of(value, schema["enum"])) {
        return false;
    }
    if (schema.contains("type")) {
        const schema_json &type = schema["type"];
        const bool is_nullable = value.is_null() && schema.contains("nullable") && schema["nullable"] == true;
        const bool is_one = type.is_array() ? std::any_of(type.begin(), type.end(),
                                                          [&](const schema_json &t) { return is_of_type(value, t); })
                                            : is_of_type(value, type);
        if (!is_one && !is_nullable) {
            return false;
        }
    }
    return (!value.is_number() || is_valid_number(value, schema)) &&
           (!value.is_string() || is_valid_text(value, schema)) &&
           (!value.is_array() || is_valid_array(value, schema, depth - 1)) &&
           (!value.is_object() || is_valid_object(value, schema, depth - 1)) &&
           is_valid_combination(value, schema, depth - 1);
}
