#include "text/schema_check.h"

#include <cstring>

#include "text/grammar.h"
#include "text/regex_grammar.h"

namespace {

constexpr size_t DEPTH_MAX = 64;
constexpr size_t SCHEMAS_MAX = 8192;
constexpr size_t PROPERTIES_MAX = 512; /* of one object: the converter's work grows with their square */
constexpr size_t NAME_BYTES_MAX = 256;
constexpr size_t PATH_BYTES_MAX = 1 << 20; /* of all schemas together: the converter names its rules by them */

const char *const NOT_KEPT[] = {"not",
                                "if",
                                "then",
                                "else",
                                "dependentRequired",
                                "dependentSchemas",
                                "dependencies",
                                "patternProperties",
                                "propertyNames",
                                "unevaluatedProperties",
                                "unevaluatedItems",
                                "multipleOf",
                                "minProperties",
                                "maxProperties",
                                "contains",
                                "minContains",
                                "maxContains",
                                "$dynamicRef",
                                "$recursiveRef"};
const char *const BOUNDS[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
const char *const SHAPES[] = {"properties", "required", "items",   "prefixItems", "allOf",     "anyOf",
                              "oneOf",      "$ref",     "pattern", "minLength",   "maxLength", "minItems",
                              "maxItems",   "minimum",  "maximum", "enum",        "const"};

class checker {
  public:
    explicit checker(bool strict) : is_strict(strict) {}
    std::vector<schema_pattern> patterns;

    void check(schema_json &schema, const std::string &path, size_t depth)
    {
        n_schemas++;
        n_path_bytes += path.size();
        if (depth > DEPTH_MAX || n_schemas > SCHEMAS_MAX || n_path_bytes > PATH_BYTES_MAX) {
            throw grammar_fault("the schema is too large: at most " + std::to_string(SCHEMAS_MAX) + " schemas, " +
                                std::to_string(DEPTH_MAX) + " levels, and names of " + std::to_string(PATH_BYTES_MAX) +
                                " bytes along all paths");
        }
        if (!schema.is_object()) {
            if (is_strict && !schema.is_boolean()) {
                fail(path, "a schema is expected");
            }
            return;
        }
        check_keywords(schema, path);
        check_numbers(schema, path);
        take_pattern(schema, path);
        descend(schema, path, depth);
    }

  private:
    bool is_strict;
    size_t n_schemas = 0, n_path_bytes = 0;

    [[noreturn]] static void fail(const std::string &path, const std::string &what)
    {
        throw grammar_fault("schema" + (path.size() > 128 ? path.substr(0, 128) + "..." : path) + ": " + what);
    }

    [[noreturn]] static void fail_keyword(const std::string &path, const std::string &keyword)
    {
        fail(path, "the keyword " + keyword + " cannot be enforced");
    }

    void check_keywords(const schema_json &schema, const std::string &path) const
    {
        if (!is_strict) {
            return;
        }
        for (const char *keyword : NOT_KEPT) {
            if (schema.contains(keyword)) {
                fail_keyword(path, keyword);
            }
        }
        if (schema.contains("uniqueItems") && schema["uniqueItems"] == true) {
            fail_keyword(path, "uniqueItems");
        }
        const bool has_number = schema.contains("type") && (schema["type"] == "number" || schema["type"].is_array());
        for (const char *bound : BOUNDS) {
            if (schema.contains(bound) && (has_number || !schema.contains("type"))) {
                fail_keyword(path, std::string(bound) + " of a number that is no integer");
            }
        }
        check_beside(schema, path);
    }

    /* Some keywords make the converter look at nothing else. */
    static void check_beside(const schema_json &schema, const std::string &path)
    {
        for (const char *first : {"$ref", "oneOf", "anyOf", "const", "enum", "allOf"}) {
            if (!schema.contains(first)) {
                continue;
            }
            for (const char *other : SHAPES) {
                if (strcmp(first, other) != 0 && schema.contains(other)) {
                    fail_keyword(path, std::string(other) + " beside " + first);
                }
            }
            return;
        }
        if (schema.contains("items") && schema.contains("prefixItems")) {
            fail_keyword(path, "prefixItems beside items");
        }
    }

    static void check_numbers(const schema_json &schema, const std::string &path)
    {
        for (const char *name : {"Length", "Items"}) {
            const std::string least = std::string("min") + name, most = std::string("max") + name;
            if (schema.contains(least) && schema.contains(most) && schema[least].is_number() &&
                schema[most].is_number() && schema[least] > schema[most]) {
                fail(path, least + " is more than " + most);
            }
        }
        if (schema.contains("minimum") && schema.contains("maximum") && schema["minimum"].is_number() &&
            schema["maximum"].is_number() && schema["minimum"] > schema["maximum"]) {
            fail(path, "minimum is more than maximum");
        }
    }

    void take_pattern(schema_json &schema, const std::string &path)
    {
        const auto pattern = schema.find("pattern");
        if (pattern == schema.end() || (schema.contains("type") && schema["type"] != "string")) {
            return;
        }
        if (!pattern->is_string()) {
            fail(path, "pattern is no text");
        }
        if (is_strict && (schema.contains("minLength") || schema.contains("maxLength"))) {
            fail_keyword(path, "minLength or maxLength beside pattern");
        }
        const std::string expression = pattern->get<std::string>();
        schema.erase("pattern");
        try {
            const std::string name = "llmd-pattern-" + std::to_string(patterns.size());
            const std::string rule = regex_grammar(expression, regex_of::JSON_STRING, true);
            patterns.push_back({name, grammar_literal("\"" + name + "\""), "\"\\\"\" " + rule + " \"\\\"\""});
            schema = {{"const", name}};
        } catch (const grammar_fault &e) {
            if (is_strict) {
                fail(path, std::string("pattern: ") + e.what());
            }
        }
    }

    void check_members(schema_json &members, const std::string &path, size_t depth)
    {
        if (!members.is_object()) {
            return;
        }
        if (members.size() > PROPERTIES_MAX) {
            fail(path, std::to_string(members.size()) + " members; at most " + std::to_string(PROPERTIES_MAX));
        }
        for (auto it = members.begin(); it != members.end(); ++it) {
            if (it.key().size() > NAME_BYTES_MAX) {
                fail(path, "a name of more than " + std::to_string(NAME_BYTES_MAX) + " bytes");
            }
            check(it.value(), path + "/" + it.key(), depth + 1);
        }
    }

    void descend(schema_json &schema, const std::string &path, size_t depth)
    {
        for (const char *name : {"properties", "$defs", "definitions"}) {
            if (schema.contains(name)) {
                check_members(schema[name], path + "/" + name, depth);
            }
        }
        for (const char *name : {"items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties"}) {
            if (!schema.contains(name)) {
                continue;
            }
            schema_json &found = schema[name];
            for (size_t i = 0; found.is_array() && i < found.size(); i++) {
                check(found[i], path + "/" + name + "/" + std::to_string(i), depth + 1);
            }
            if (found.is_object()) {
                check(found, path + "/" + name, depth + 1);
            }
        }
    }
};

} // namespace

std::vector<schema_pattern> schema_check(schema_json &schema, bool is_strict)
{
    checker c(is_strict);
    c.check(schema, "", 0);
    return std::move(c.patterns);
}
