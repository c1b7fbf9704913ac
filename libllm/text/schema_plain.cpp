#include "text/schema_plain.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>

#include "text/grammar.h"
#include "text/schema_refs.h"

namespace {

constexpr size_t DEPTH_MAX = 64;
constexpr size_t COPIED_BYTES_MAX = 4 << 20;      /* of all that is written more than once, as text */
constexpr int64_t INTEGER_MAX = 9999999999999999; /* the converter writes no longer ones where there is no bound */
constexpr int64_t BOUND_MAX = INT64_MAX - 1;      /* the converter takes a greater one for none */

const char *const SHAPES[] = {"$ref",
                              "anyOf",
                              "oneOf",
                              "allOf",
                              "const",
                              "enum",
                              "properties",
                              "required",
                              "items",
                              "prefixItems",
                              "pattern",
                              "minLength",
                              "maxLength",
                              "format",
                              "minItems",
                              "maxItems",
                              "minimum",
                              "maximum",
                              "exclusiveMinimum",
                              "exclusiveMaximum",
                              "additionalProperties"};
const char *const SEVERAL[] = {"$ref", "anyOf", "oneOf", "allOf", "const", "enum"};

struct type_keyword {
    const char *type, *keyword;
};
const type_keyword OF_TYPE[] = {{"string", "pattern"},
                                {"string", "minLength"},
                                {"string", "maxLength"},
                                {"string", "format"},
                                {"array", "items"},
                                {"array", "prefixItems"},
                                {"array", "minItems"},
                                {"array", "maxItems"},
                                {"array", "uniqueItems"},
                                {"object", "properties"},
                                {"object", "required"},
                                {"object", "additionalProperties"},
                                {"integer", "minimum"},
                                {"integer", "maximum"},
                                {"integer", "exclusiveMinimum"},
                                {"integer", "exclusiveMaximum"},
                                {"integer", "multipleOf"},
                                {"number", "minimum"},
                                {"number", "maximum"},
                                {"number", "exclusiveMinimum"},
                                {"number", "exclusiveMaximum"},
                                {"number", "multipleOf"}};

bool has_any(const schema_json &schema, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (schema.contains(words[i])) {
            return true;
        }
    }
    return false;
}

/* It says more than what it is about. */
bool has_shape(const schema_json &schema)
{
    return has_any(schema, SHAPES, sizeof SHAPES / sizeof SHAPES[0]) || schema_has_unkept(schema);
}

/* What may still be written more than once: schemas that contain themselves have no end. */
class allowance {
  public:
    bool takes(const schema_json &copied)
    {
        const size_t n = 64 + copied.dump(-1, ' ', false, schema_json::error_handler_t::replace).size();
        const bool has_room = n <= n_bytes;
        n_bytes -= has_room ? n : n_bytes;
        return has_room;
    }

  private:
    size_t n_bytes = COPIED_BYTES_MAX;
};

/* ---- allOf --------------------------------------------------------------------------------------------------------- */

/* The object that all of them are. */
class joined_object {
  public:
    joined_object(const schema_json &schemas, allowance &copies) : root(schemas), copied(copies) {}

    bool add(const schema_json &schema, size_t depth)
    {
        if (!schema.is_object() || depth > DEPTH_MAX) {
            return false;
        }
        if (schema.contains("$ref")) {
            const schema_json *target = schema["$ref"].is_string() ? schema_defined_as(root, schema["$ref"]) : nullptr;
            schema_json said = schema; /* beside it */
            said.erase("$ref");
            return target != nullptr && !has_shape(said) && add(*target, depth + 1);
        }
        if (!copied.takes(schema)) {
            return false;
        }
        for (const auto &[word, value] : schema.items()) {
            if (!add_word(word, value, depth)) {
                return false;
            }
        }
        return !schema.contains("additionalProperties") || add_others(schema);
    }

    /* False: nothing is all of them. */
    bool take(schema_json *out) const
    {
        for (const schema_json *only : closed) {
            for (const auto &[name, property] : properties.items()) {
                if (!only->contains(name)) {
                    return false;
                }
            }
        }
        *out = {{"type", "object"}, {"properties", properties}, {"required", required}};
        if (is_open && closed.empty()) {
            (*out)["additionalProperties"] = true;
        }
        return true;
    }

  private:
    const schema_json &root;
    allowance &copied;
    schema_json properties = schema_json::object(), required = schema_json::array();
    const schema_json none = schema_json::object();
    std::vector<const schema_json *> closed; /* properties beside which there are no others */
    bool is_open = false;

    bool add_word(const std::string &word, const schema_json &value, size_t depth)
    {
        if (word == "type") {
            return value == "object";
        }
        if (word == "allOf") {
            return value.is_array() && std::all_of(value.begin(), value.end(), [&](const schema_json &part) {
                       return part == true || add(part, depth + 1);
                   });
        }
        if (word == "properties") {
            return add_properties(value);
        }
        if (word == "required") {
            for (const schema_json &name : value) {
                if (std::find(required.begin(), required.end(), name) == required.end()) {
                    required.push_back(name);
                }
            }
            return value.is_array();
        }
        return word == "additionalProperties" || !has_shape({{word, value}});
    }

    bool add_properties(const schema_json &value)
    {
        if (!value.is_object()) {
            return false;
        }
        for (const auto &[name, property] : value.items()) {
            if (properties.contains(name) && properties[name] != property) {
                return false;
            }
            properties[name] = property;
        }
        return true;
    }

    bool add_others(const schema_json &schema)
    {
        const schema_json &others = schema["additionalProperties"];
        if (others == false) {
            closed.push_back(schema.contains("properties") ? &schema["properties"] : &none);
        }
        is_open = is_open || others == true;
        return others.is_boolean();
    }
};

/* ---- one schema ---------------------------------------------------------------------------------------------------- */

class writer {
  public:
    writer(schema_json &schemas, bool strict, bool move) : root(schemas), is_strict(strict), may_move(move) {}

    /* The converter refuses what is too deep. */
    void write(schema_json &schema, size_t depth)
    {
        if (depth > DEPTH_MAX) {
            return;
        }
        if (schema == true) {
            schema = schema_json::object();
        }
        if (!schema.is_object()) {
            return;
        }
        if (may_move) {
            for (size_t n = 0; n < DEPTH_MAX && one_of_all(schema); n++) {
            }
            one_type(schema);
        }
        if (schema.contains("prefixItems") && schema["prefixItems"].is_array() && schema.contains("items") &&
            schema["items"] == false) {
            schema.erase("items");
        }
        if (schema.contains("type") && schema["type"] == "integer") {
            bound(schema);
        }
        require(schema);
        descend(schema, depth);
    }

  private:
    schema_json &root; /* which is written */
    bool is_strict;
    bool may_move; /* nothing refers to what is within a schema */
    allowance copied;

    /* What is defined there stays: others refer to it. */
    static void replace(schema_json &schema, schema_json with)
    {
        for (const char *defined : SCHEMA_DEFINED) {
            if (schema.contains(defined) && !with.contains(defined)) {
                with[defined] = std::move(schema[defined]);
            }
        }
        schema = std::move(with);
    }

    static bool is_of(const std::string &word, const schema_json &type)
    {
        bool has_type = false;
        for (const type_keyword &k : OF_TYPE) {
            if (word == k.keyword) {
                if (type == k.type) {
                    return true;
                }
                has_type = true;
            }
        }
        return !has_type;
    }

    static void one_type(schema_json &schema)
    {
        if (!schema.contains("type") || !schema["type"].is_array() || schema["type"].empty()) {
            return;
        }
        const schema_json types = schema["type"];
        if (types.size() == 1) {
            schema["type"] = types[0];
        } else if (schema.contains("const") || schema.contains("enum")) {
            schema.erase("type");
        } else if (!has_any(schema, SEVERAL, sizeof SEVERAL / sizeof SEVERAL[0])) {
            schema_json each = schema_json::array();
            for (const schema_json &type : types) {
                schema_json one = schema_json::object();
                for (const auto &[word, value] : schema.items()) {
                    if (word != "type" && is_of(word, type) && word != SCHEMA_DEFINED[0] && word != SCHEMA_DEFINED[1]) {
                        one[word] = value;
                    }
                }
                one["type"] = type;
                each.push_back(std::move(one));
            }
            replace(schema, {{"anyOf", std::move(each)}});
        }
    }

    static bool are_values(const std::vector<const schema_json *> &parts)
    {
        return std::all_of(parts.begin(), parts.end(),
                           [](const schema_json *part) { return part->is_object() && part->contains("enum"); });
    }

    /* False: it is as it was. */
    bool one_of_all(schema_json &schema)
    {
        if (!schema.contains("allOf") || !schema["allOf"].is_array() || schema["allOf"].empty()) {
            return false;
        }
        std::vector<const schema_json *> parts;
        bool is_alone = true;
        for (const schema_json &part : schema["allOf"]) {
            if (part != true && !(part.is_object() && !part.contains("type") && !has_shape(part))) {
                parts.push_back(&part);
            }
        }
        for (const auto &[word, value] : schema.items()) {
            is_alone = is_alone && (word == "allOf" || !has_shape({{word, value}}));
        }
        joined_object joined(root, copied); /* of what is still as it was: it may be within itself */
        schema_json object;
        if (parts.empty()) {
            schema.erase("allOf");
        } else if (parts.size() == 1 && is_alone) {
            replace(schema, *parts[0]);
        } else if (joined.add(schema, 0) && joined.take(&object)) {
            replace(schema, std::move(object));
        } else if (are_values(parts)) {
            return false; /* the converter knows how */
        } else if (is_strict) {
            throw grammar_fault("schema: the keyword allOf cannot be enforced, but of objects whose properties agree");
        } else {
            replace(schema, *parts[0]);
        }
        return true;
    }

    /* As it is rounded inwards; nullopt: no number of 64 bits. */
    static std::optional<int64_t> rounded(const schema_json &bound, bool is_up)
    {
        if (bound.is_number_unsigned()) {
            const uint64_t n = bound.get<uint64_t>();
            return n <= static_cast<uint64_t>(INT64_MAX) ? std::optional<int64_t>(n) : std::nullopt;
        }
        if (bound.is_number_integer()) {
            return bound.get<int64_t>();
        }
        const double n = is_up ? std::ceil(bound.get<double>()) : std::floor(bound.get<double>());
        return std::fabs(n) < 9e18 ? std::optional<int64_t>(static_cast<int64_t>(n)) : std::nullopt;
    }

    static bool is_negative(const schema_json &bound)
    {
        return bound.get<double>() < 0;
    }

    /* `side`: 1 for what is at least, -1 for what is at most. nullopt: none. */
    std::optional<int64_t> bound_of(const schema_json &schema, const char *word, const char *word_beyond,
                                    int side) const
    {
        std::optional<int64_t> found;
        const bool is_first = schema.contains(word_beyond) && schema[word_beyond] == true; /* as draft 4 has it */
        for (const char *name : {word, word_beyond}) {
            if (!schema.contains(name) || !schema[name].is_number()) {
                continue;
            }
            const schema_json &said = schema[name];
            const bool is_beyond = name == word_beyond || is_first;
            std::optional<int64_t> n = rounded(said, (side > 0) != is_beyond);
            if (!n.has_value() && is_negative(said) == (side > 0)) {
                continue; /* all integers keep to it */
            }
            if (n.has_value() && is_beyond) {
                n = (side > 0 ? *n == INT64_MAX : *n <= -INT64_MAX) ? std::nullopt : std::optional<int64_t>(*n + side);
            }
            if (!n.has_value()) {
                if (is_strict) {
                    throw grammar_fault(std::string("schema: ") + name + " is beyond integers of 64 bits");
                }
                continue;
            }
            found = !found.has_value() ? n : side > 0 ? std::max(*found, *n) : std::min(*found, *n);
        }
        return found.has_value() && (side > 0 ? *found < -BOUND_MAX : *found > BOUND_MAX) ? std::nullopt : found;
    }

    void bound(schema_json &schema) const
    {
        std::optional<int64_t> least = bound_of(schema, "minimum", "exclusiveMinimum", 1);
        std::optional<int64_t> most = bound_of(schema, "maximum", "exclusiveMaximum", -1);
        for (const char *word : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
            schema.erase(word);
        }
        if (!least.has_value() && !most.has_value()) {
            return;
        }
        if (!least.has_value()) {
            least = *most >= -INTEGER_MAX ? -INTEGER_MAX : -BOUND_MAX;
        }
        if (!most.has_value()) {
            most = *least <= INTEGER_MAX ? INTEGER_MAX : BOUND_MAX;
        }
        schema["minimum"] = *least;
        schema["maximum"] = *most;
    }

    void require(schema_json &schema)
    {
        const bool is_object = !schema.contains("type") || schema["type"] == "object";
        if (!is_object || !schema.contains("required") || !schema["required"].is_array() ||
            has_any(schema, SEVERAL, sizeof SEVERAL / sizeof SEVERAL[0])) {
            return;
        }
        const schema_json others =
            schema.contains("additionalProperties") ? schema["additionalProperties"] : schema_json(true);
        const schema_json required = schema["required"]; /* members that are added move the others */
        for (const schema_json &name : required) {
            if (!name.is_string() || (schema.contains("properties") && !schema["properties"].is_object()) ||
                (schema.contains("properties") && schema["properties"].contains(name.get<std::string>()))) {
                continue;
            }
            if (others == false) {
                if (is_strict) {
                    throw grammar_fault("schema: required names " + name.dump() +
                                        ", which is no property, and additionalProperties is false");
                }
                continue;
            }
            if (!schema.contains("properties") && !schema.contains("additionalProperties")) {
                schema["additionalProperties"] = true;
            }
            const bool is_given = others.is_object() && copied.takes(others);
            if (others.is_object() && !is_given && is_strict) {
                throw grammar_fault("schema: required names too much that is no property");
            }
            schema["properties"][name.get<std::string>()] = is_given ? others : schema_json::object();
            schema["type"] = "object";
        }
    }

    void descend(schema_json &schema, size_t depth)
    {
        for (const char *name : {"properties", "$defs", "definitions"}) {
            if (schema.contains(name) && schema[name].is_object()) {
                for (schema_json &member : schema[name]) {
                    write(member, depth + 1);
                }
            }
        }
        for (const char *name : {"items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties"}) {
            if (!schema.contains(name)) {
                continue;
            }
            schema_json &found = schema[name];
            if (found.is_array()) {
                for (schema_json &item : found) {
                    write(item, depth + 1);
                }
            } else if (found.is_object() || (found == true && strcmp(name, "items") == 0)) {
                write(found, depth + 1);
            }
        }
    }
};

} // namespace

void schema_plain(schema_json &schema, bool is_strict)
{
    if (schema.is_object()) {
        const bool may_move = schema_names_only(schema);
        if (may_move) {
            schema_name_definitions(schema);
        }
        writer(schema, is_strict, may_move).write(schema, 0);
    }
}
