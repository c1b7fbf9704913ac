#include "text/chat/chat_tools.h"

#include <string>

#include "text/template/chat_budget.h"

namespace {

/* Members whose value is a schema, a list of schemas, or an object of schemas. */
const char *const WITH_SCHEMAS[] = {"items", "additionalProperties", "anyOf",      "oneOf",
                                    "allOf", "prefixItems",          "properties", "patternProperties"};

std::string type_of_value(const common_json &value)
{
    return value.is_boolean()          ? "boolean"
           : value.is_number_integer() ? "integer"
           : value.is_number()         ? "number"
           : value.is_array()          ? "array"
           : value.is_object()         ? "object"
                                       : "string";
}

/* Returns the type that a schema states. Returns "" if the schema states no type or only null. */
std::string own_type(const common_json &schema)
{
    const common_json nothing;
    if (schema.contains("type")) {
        const common_json &type = schema.at("type");
        if (type.is_string() && type != "null") {
            return type.get<std::string>();
        }
        for (const common_json &one : type.is_array() ? type : nothing) {
            chat_budget::current().spend(1);
            if (one.is_string() && one != "null") {
                return one.get<std::string>();
            }
        }
    }
    if (schema.contains("enum")) {
        for (const common_json &value : schema.at("enum")) {
            chat_budget::current().spend(1);
            if (!value.is_null()) {
                return type_of_value(value);
            }
        }
    }
    return schema.contains("const") && !schema.at("const").is_null() ? type_of_value(schema.at("const")) : "";
}

bool is_by_name(const std::string &member)
{
    return member == "properties" || member == "patternProperties";
}

bool has_alternatives(const std::string &member)
{
    return member == "anyOf" || member == "oneOf" || member == "allOf";
}

std::string set_types(common_json &schema, shown_types types);

/* Sets the types of the schemas in one member of a schema. Returns the type of the first schema that has a type, or ""
 * if no schema has one. */
std::string set_types_of_member(common_json &member, bool are_by_name, shown_types types)
{
    if (!member.is_array() && !(are_by_name && member.is_object())) {
        return set_types(member, types);
    }
    std::string first;
    for (common_json &schema : member) {
        const std::string type = set_types(schema, types);
        first = first.empty() ? type : first;
    }
    return first;
}

/* Sets the types of a schema and of all schemas inside it. Returns the schema's type, or "" if the type is unknown. An
 * unknown type is shown as "string", because a template that requires a type refuses a schema without one. Each schema
 * is visited once and not copied. A request can nest a hundred alternatives around a list of a megabyte. Copying at
 * each level would copy the list a hundred times. */
std::string set_types(common_json &schema, shown_types types)
{
    chat_budget::current().enter();
    if (!schema.is_object()) {
        return "";
    }
    std::string of_alternatives;
    for (const char *name : WITH_SCHEMAS) {
        if (schema.contains(name)) {
            const std::string first = set_types_of_member(schema.at(name), is_by_name(name), types);
            of_alternatives = has_alternatives(name) && of_alternatives.empty() ? first : of_alternatives;
        }
    }
    std::string type = own_type(schema);
    type = type.empty() ? of_alternatives : type;
    if (type.empty()) {
        type = schema.contains("properties") ? "object" : schema.contains("items") ? "array" : "";
    }
    schema["type"] = type.empty() ? "string" : type;
    if (types == shown_types::WITHOUT_LISTS && type == "array") {
        schema.erase("type");
    }
    if (schema.contains("properties") && !schema.contains("required")) {
        schema["required"] = common_json::array();
    }
    return type;
}

common_json with_types(const common_json &tools, shown_types types)
{
    common_json out = tools;
    for (common_json &tool : out) {
        common_json &function = tool["function"];
        if (function.contains("parameters") && function.at("parameters").is_object()) {
            set_types(function.at("parameters"), types);
            function.at("parameters")["type"] = "object";
        }
    }
    return out;
}

} // namespace

const common_json &typed_tools::of(const common_json &tools, shown_types types)
{
    if (types == shown_types::GIVEN) {
        return tools;
    }
    const auto known = by_types.find(types);
    return known != by_types.end() ? known->second : by_types.emplace(types, with_types(tools, types)).first->second;
}
