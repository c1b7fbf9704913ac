#include "text/chat/chat_tools.h"

#include <string>

namespace {

/* Members that hold a schema, a list of schemas, or schemas by name. */
const char *const WITH_SCHEMAS[] = {"items", "additionalProperties", "anyOf",      "oneOf",
                                    "allOf", "prefixItems",          "properties", "patternProperties"};
const char *const ALTERNATIVES[] = {"anyOf", "oneOf", "allOf"};

std::string type_of_value(const common_json &value)
{
    return value.is_boolean()          ? "boolean"
           : value.is_number_integer() ? "integer"
           : value.is_number()         ? "number"
           : value.is_array()          ? "array"
           : value.is_object()         ? "object"
                                       : "string";
}

/* "": the schema names none, or only null. */
std::string type_of(const common_json &schema)
{
    if (!schema.is_object()) {
        return "";
    }
    const common_json type = schema.value("type", common_json());
    for (const common_json &one : type.is_array() ? type : common_json::array()) {
        if (one.is_string() && one != "null") {
            return one.get<std::string>();
        }
    }
    if (type.is_string() && type != "null") {
        return type.get<std::string>();
    }
    for (const common_json &value : schema.value("enum", common_json::array())) {
        if (!value.is_null()) {
            return type_of_value(value);
        }
    }
    if (schema.contains("const") && !schema.at("const").is_null()) {
        return type_of_value(schema.at("const"));
    }
    for (const char *name : ALTERNATIVES) {
        for (const common_json &one : schema.value(name, common_json::array())) {
            const std::string found = type_of(one);
            if (!found.empty()) {
                return found;
            }
        }
    }
    return schema.contains("properties") ? "object" : schema.contains("items") ? "array" : "";
}

common_json with_types(const common_json &schema, shown_types types);

bool is_by_name(const std::string &member)
{
    return member == "properties" || member == "patternProperties";
}

common_json schemas_with_types(const common_json &given, bool are_by_name, shown_types types)
{
    if (given.is_array()) {
        common_json out = common_json::array();
        for (const common_json &one : given) {
            out.push_back(with_types(one, types));
        }
        return out;
    }
    if (!are_by_name || !given.is_object()) {
        return with_types(given, types);
    }
    common_json out = common_json::object();
    for (const auto &[name, one] : given.items()) {
        out[name] = with_types(one, types);
    }
    return out;
}

/* What can be anything is shown as a text: a template that needs a type cannot say more. */
common_json with_types(const common_json &schema, shown_types types)
{
    if (!schema.is_object()) {
        return schema;
    }
    common_json out = schema;
    for (const char *name : WITH_SCHEMAS) {
        if (out.contains(name)) {
            out[name] = schemas_with_types(schema.at(name), is_by_name(name), types);
        }
    }
    const std::string type = type_of(schema);
    out["type"] = type.empty() ? "string" : type;
    if (types == shown_types::WITHOUT_LISTS && type == "array") {
        out.erase("type");
    }
    if (out.contains("properties") && !out.contains("required")) {
        out["required"] = common_json::array();
    }
    return out;
}

} // namespace

common_json tools_with_types(const common_json &tools, shown_types types)
{
    if (types == shown_types::GIVEN) {
        return tools;
    }
    common_json out = tools;
    for (common_json &tool : out) {
        common_json &function = tool["function"];
        if (function.contains("parameters") && function.at("parameters").is_object()) {
            common_json parameters = with_types(function.at("parameters"), types);
            parameters["type"] = "object";
            function["parameters"] = parameters;
        }
    }
    return out;
}
