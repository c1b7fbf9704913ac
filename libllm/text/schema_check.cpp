#include "text/schema_check.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <optional>
#include <set>
#include <stdexcept>

#include "text/grammar.h"
#include "text/number_grammar.h"
#include "text/regex_grammar.h"

namespace {

constexpr size_t DEPTH_MAX = 64;
constexpr size_t SCHEMAS_MAX = 8192;
constexpr size_t PROPERTIES_MAX = 512; /* of one object: the converter's work grows with their square */
constexpr size_t NAME_BYTES_MAX = 256;
constexpr size_t REF_BYTES_MAX = 1024;
constexpr size_t REFS_IN_A_ROW_MAX = 64;
constexpr size_t LENGTH_MAX = 2000;        /* that is kept to: a grammar repeats nothing more often */
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

/* That are kept to. */
struct kept_format {
    const char *name;
    const char *expression; /* NULL: the converter knows it */
};

const kept_format FORMATS[] = {
    {"date", nullptr},
    {"time", nullptr},
    {"date-time", nullptr},
    {"uuid", nullptr},
    {"uuid1", nullptr},
    {"uuid2", nullptr},
    {"uuid3", nullptr},
    {"uuid4", nullptr},
    {"uuid5", nullptr},
    {"duration", "^P([0-9]{1,9}W|([0-9]{1,9}Y([0-9]{1,9}M([0-9]{1,9}D)?)?|[0-9]{1,9}M([0-9]{1,9}D)?|[0-9]{1,9}D)(T([0-"
                 "9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|[0-9]{1,9}S))?|"
                 "T([0-9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|[0-9]{1,9}S))$"},
    {"email", "^[A-Za-z0-9_+-]+([.][A-Za-z0-9_+-]+)*@([A-Za-z0-9]+(-[A-Za-z0-9]+)*[.])+[A-Za-z]{2,}$"},
};
const char *const FIRST[] = {"$ref", "oneOf", "anyOf", "const", "enum", "allOf"};
const char *const SHAPES[] = {"properties", "required", "items",   "prefixItems", "allOf",     "anyOf",
                              "oneOf",      "$ref",     "pattern", "minLength",   "maxLength", "minItems",
                              "maxItems",   "minimum",  "maximum", "enum",        "const"};

/* Names are texts: a schema that says no more lets all be. */
bool lets_all_names(const schema_json &names)
{
    return names == true || names == schema_json::object() || names == schema_json::object({{"type", "string"}});
}

bool is_unkept(const schema_json &schema, const char *keyword)
{
    const auto found = schema.find(keyword);
    return found != schema.end() && !(strcmp(keyword, "propertyNames") == 0 && lets_all_names(*found));
}

const std::string *ref_of(const schema_json &schema)
{
    const auto ref = schema.is_object() ? schema.find("$ref") : schema.end();
    return schema.is_object() && ref != schema.end() && ref->is_string() ? ref->get_ptr<const std::string *>()
                                                                         : nullptr;
}

/* The element of that name or number; NULL: there is none. */
const schema_json *element_of(const schema_json &value, const std::string &name)
{
    if (value.is_object()) {
        const auto found = value.find(name);
        return found != value.end() ? &*found : nullptr;
    }
    try {
        const unsigned long long index = value.is_array() ? std::stoull(name) : ULLONG_MAX;
        return index < value.size() ? &value[static_cast<size_t>(index)] : nullptr;
    } catch (const std::logic_error &) { /* no number, or too large a one */
        return nullptr;
    }
}

/* What it points to in this schema, as llama.cpp finds it: without escapes, whatever stands before the first slash. NULL:
 * nothing. */
const schema_json *target_of(const schema_json &root, const std::string &ref)
{
    const schema_json *found = &root;
    for (size_t at = ref.find('/'); at != std::string::npos && found != nullptr;) {
        const size_t end = ref.find('/', at + 1);
        found = element_of(*found, ref.substr(at + 1, end - at - 1));
        at = end;
    }
    return found;
}

void check_ref(const schema_json &root, const std::string *ref)
{
    for (size_t n = 0; ref != nullptr; n++) {
        if (ref->size() > REF_BYTES_MAX) {
            throw grammar_fault("a $ref of more than " + std::to_string(REF_BYTES_MAX) + " bytes");
        }
        if (n == REFS_IN_A_ROW_MAX) {
            throw grammar_fault("the $ref " + ref->substr(0, 128) + " leads to itself, or to more than " +
                                std::to_string(REFS_IN_A_ROW_MAX) + " others");
        }
        const schema_json *target = target_of(root, *ref);
        ref = target != nullptr ? ref_of(*target) : nullptr;
    }
}

void check_refs_within(const schema_json &root, const schema_json &value)
{
    check_ref(root, ref_of(value));
    for (const schema_json &item : value) {
        if (item.is_structured()) {
            check_refs_within(root, item);
        }
    }
}

class checker {
  public:
    explicit checker(bool strict) : is_strict(strict) {}
    std::vector<schema_taken> taken_out;

    /* What is referred to outside the schemas that these consist of, too: the converter goes there. */
    void check_all(schema_json &root)
    {
        check(root, "", 0, 1);
        for (size_t i = 0; i < refs.size(); i++) {
            const std::string ref = refs[i];
            const schema_json *target = target_of(root, ref);
            if (target != nullptr && visited.count(target) == 0) {
                check(const_cast<schema_json &>(*target), ref, 0, 1); /* of root, which may be changed */
            }
        }
    }

    /* n_times: the converter builds it once for each of the types of those around it. */
    void check(schema_json &schema, const std::string &path, size_t depth, size_t n_times)
    {
        visited.insert(&schema);
        n_schemas += n_times;
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
        if (const std::string *ref = ref_of(schema)) {
            refs.push_back(*ref);
        }
        check_keywords(schema, path);
        check_numbers(schema, path);
        take_pattern(schema, path);
        take_format(schema);
        take_number(schema, path);
        descend(schema, path, depth, n_times * n_types(schema));
    }

  private:
    bool is_strict;
    size_t n_schemas = 0, n_path_bytes = 0;
    std::set<const schema_json *> visited;
    std::vector<std::string> refs;

    static size_t n_types(const schema_json &schema)
    {
        const auto type = schema.find("type");
        return type != schema.end() && type->is_array() && !type->empty() ? type->size() : 1;
    }

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
            if (is_unkept(schema, keyword)) {
                fail_keyword(path, keyword);
            }
        }
        if (schema.contains("uniqueItems") && schema["uniqueItems"] == true) {
            fail_keyword(path, "uniqueItems");
        }
        const bool has_types = !schema.contains("type") || schema["type"].is_array();
        for (const char *bound : BOUNDS) {
            if (schema.contains(bound) && has_types) {
                fail_keyword(path, std::string(bound) + " without the type number or integer alone");
            }
        }
        check_beside(schema, path);
    }

    static bool has_several(const schema_json &schema)
    {
        return std::any_of(std::begin(FIRST), std::end(FIRST), [&](const char *word) { return schema.contains(word); });
    }

    /* Some keywords make the converter look at nothing else. */
    static void check_beside(const schema_json &schema, const std::string &path)
    {
        for (const char *first : FIRST) {
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
        for (const char *items : {"items", "prefixItems"}) {
            if (schema.contains(items) && schema[items].is_array()) {
                check_tuple(schema, items, path);
            }
        }
    }

    /* The converter writes one item for each schema, whatever the bounds are. */
    static void check_tuple(const schema_json &schema, const char *items, const std::string &path)
    {
        const size_t n = schema[items].size();
        if (schema.contains("minItems") && schema["minItems"] > n) {
            fail_keyword(path, std::string("minItems beyond ") + items);
        }
        if (schema.contains("maxItems") && schema["maxItems"] < n) {
            fail_keyword(path, std::string("maxItems below ") + items);
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

    static bool has_length(const schema_json &schema)
    {
        return schema.contains("minLength") || schema.contains("maxLength");
    }

    /* NULL: none, or one that others decide beside, for which there is only an expression. */
    static const kept_format *format_of(const schema_json &schema)
    {
        const bool is_text = schema.contains("type") && schema["type"] == "string";
        const bool is_alone = is_text && !has_several(schema) && !has_length(schema);
        const auto found = std::find_if(std::begin(FORMATS), std::end(FORMATS), [&](const kept_format &format) {
            return schema.contains("format") && schema["format"] == format.name;
        });
        return found != std::end(FORMATS) && (found->expression == nullptr || is_alone) ? found : nullptr;
    }

    static std::string string_rule(const std::string &expression, const regex_count &length)
    {
        return "\"\\\"\" " + regex_grammar(expression, regex_of::JSON_STRING, true, length) + " \"\\\"\"";
    }

    void take_format(schema_json &schema)
    {
        const kept_format *format = format_of(schema);
        if (format != nullptr && format->expression != nullptr && !schema.contains("pattern")) {
            schema = taken(string_rule(format->expression, {}));
        }
    }

    void take_pattern(schema_json &schema, const std::string &path)
    {
        const auto pattern = schema.find("pattern");
        const bool has_format = format_of(schema) != nullptr;
        const bool is_bounded = has_length(schema);
        if (pattern == schema.end() || (schema.contains("type") && schema["type"] != "string")) {
            if (is_strict && has_format && is_bounded) {
                fail_keyword(path, "minLength or maxLength beside format");
            }
            return;
        }
        if (!pattern->is_string()) {
            fail(path, "pattern is no text");
        }
        const std::string expression = pattern->get<std::string>();
        const regex_count length = {count_of(schema, "minLength", 0, path),
                                    count_of(schema, "maxLength", SIZE_MAX, path)};
        schema.erase("pattern");
        std::optional<std::string> rule;
        if (is_bounded) {
            rule = pattern_rule(expression, length, "pattern beside minLength or maxLength", false, path);
        }
        if (!rule.has_value()) {
            rule = pattern_rule(expression, {}, "pattern", has_format, path);
        }
        if (rule.has_value()) {
            schema = taken(*rule);
        }
    }

    size_t count_of(const schema_json &schema, const char *word, size_t none, const std::string &path) const
    {
        if (schema.contains(word) && !schema[word].is_number_unsigned()) {
            if (is_strict) {
                fail(path, std::string(word) + " is no count");
            }
            return none;
        }
        const size_t count = schema.value(word, none);
        return none > 0 && count > LENGTH_MAX ? none : count;
    }

    /* nullopt: it is not kept to. `has_format`: which that expression only says again, if it is beyond a grammar. */
    std::optional<std::string> pattern_rule(const std::string &expression, const regex_count &length, const char *what,
                                            bool has_format, const std::string &path) const
    {
        try {
            return string_rule(expression, length);
        } catch (const grammar_beyond &e) {
            if (is_strict && !has_format) {
                fail(path, std::string(what) + ": " + e.what());
            }
        } catch (const grammar_fault &e) {
            if (is_strict) {
                fail(path, std::string(what) + ": " + e.what());
            }
        }
        return std::nullopt;
    }

    schema_json taken(const std::string &rule)
    {
        const std::string name = "llmd-taken-" + std::to_string(taken_out.size());
        taken_out.push_back({name, grammar_literal("\"" + name + "\""), rule});
        return {{"const", name}};
    }

    /* The bound on that side, or the narrower of two. */
    static std::optional<number_bound> bound_of(const schema_json &schema, const char *word, const char *word_beyond,
                                                int side)
    {
        std::optional<number_bound> found;
        const bool is_first = schema.contains(word_beyond) && schema[word_beyond] == true; /* as draft 4 has it */
        if (schema.contains(word) && schema[word].is_number()) {
            found = {schema[word].dump(), is_first};
        }
        if (schema.contains(word_beyond) && schema[word_beyond].is_number()) {
            const schema_json &beyond = schema[word_beyond];
            if (!found.has_value() || (side > 0 ? beyond >= schema[word] : beyond <= schema[word])) {
                found = {beyond.dump(), true};
            }
        }
        return found;
    }

    void take_number(schema_json &schema, const std::string &path)
    {
        if (!schema.contains("type") || schema["type"] != "number" || has_several(schema)) {
            return;
        }
        const std::optional<number_bound> least = bound_of(schema, "minimum", "exclusiveMinimum", 1);
        const std::optional<number_bound> most = bound_of(schema, "maximum", "exclusiveMaximum", -1);
        if (!least.has_value() && !most.has_value()) {
            return;
        }
        std::optional<std::string> rule;
        try {
            rule = number_grammar(least, most);
        } catch (const grammar_fault &e) {
            if (is_strict) {
                fail(path, e.what());
            }
            return;
        }
        if (!rule.has_value()) {
            fail(path, "no number is within the bounds");
        }
        schema = taken(*rule);
    }

    void check_members(schema_json &members, const std::string &path, size_t depth, size_t n_times)
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
            check(it.value(), path + "/" + it.key(), depth + 1, n_times);
        }
    }

    void descend(schema_json &schema, const std::string &path, size_t depth, size_t n_times)
    {
        for (const char *name : {"properties", "$defs", "definitions"}) {
            if (schema.contains(name)) {
                check_members(schema[name], path + "/" + name, depth, n_times);
            }
        }
        for (const char *name : {"items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties"}) {
            if (!schema.contains(name)) {
                continue;
            }
            schema_json &found = schema[name];
            for (size_t i = 0; found.is_array() && i < found.size(); i++) {
                check(found[i], path + "/" + name + "/" + std::to_string(i), depth + 1, n_times);
            }
            if (found.is_object()) {
                check(found, path + "/" + name, depth + 1, n_times);
            }
        }
    }
};

} // namespace

bool schema_has_unkept(const schema_json &schema)
{
    return std::any_of(std::begin(NOT_KEPT), std::end(NOT_KEPT),
                       [&](const char *keyword) { return is_unkept(schema, keyword); });
}

void schema_check_refs(const schema_json &schema)
{
    check_refs_within(schema, schema);
}

std::vector<schema_taken> schema_check(schema_json &schema, bool is_strict)
{
    schema_check_refs(schema);
    checker c(is_strict);
    c.check_all(schema);
    return std::move(c.taken_out);
}
