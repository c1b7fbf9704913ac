/* negate.cpp: negates schemas and keywords, for the keywords `not`, `oneOf` and `if`. A value violates a schema if it
 * violates at least one of the schema's keywords. So the negation of a schema with n keywords is a choice of n
 * alternatives. A keyword constrains only values of certain types. So the negation of the keyword demands one of these
 * types, too. For example, the negation of {"minimum": 3} allows numbers below 3, but no strings. If a schema cannot be
 * negated, the policy STRICT refuses the schema, and the policy LOOSE ignores the negation. */
#include <algorithm>
#include <cstring>

#include "text/schema/keywords.h"
#include "text/schema/shape.h"

namespace {

constexpr size_t NEGATED_PARTS_MAX = 64; /* limit on the alternatives of the negation of one schema */

bool is_named(const char *keyword, const char *name)
{
    return strcmp(keyword, name) == 0;
}

/* Returns whether the schema has the keyword with a value of the right type. For `minimum`, JSON Schema demands a
 * number. A keyword with a value of another type is ignored: every value satisfies the keyword, and no value satisfies
 * its negation. Without this check, the negation of {"minimum": {...}} made a grammar rule with the text of the object
 * instead of digits. */
bool says_something(const schema_json &schema, const char *keyword)
{
    const auto found = schema.find(keyword);
    const auto is_one_of = [&](const auto &names) {
        return std::any_of(std::begin(names), std::end(names),
                           [&](const char *name) { return is_named(keyword, name); });
    };
    if (found == schema.end()) {
        return false;
    }
    return is_one_of(keywords::WITH_NUMBER)   ? found->is_number()
           : is_one_of(keywords::WITH_LIST)   ? found->is_array()
           : is_one_of(keywords::WITH_OBJECT) ? found->is_object()
           : is_one_of(keywords::WITH_TEXT)   ? found->is_string()
                                              : true;
}

/* Returns the negations of the schema's keywords, one condition each. A value violates the schema if it satisfies at
 * least one of these conditions. */
std::vector<condition> negated_parts(const schema_json &schema)
{
    std::vector<condition> out;
    for (const char *keyword : keywords::SINGLE) {
        if (says_something(schema, keyword)) {
            out.push_back({&schema, true, keyword, 0});
        }
    }
    for (const char *keyword : {keywords::PROPERTIES, keywords::REQUIRED, keywords::ALL_OF}) {
        const size_t n = says_something(schema, keyword) ? schema[keyword].size() : 0;
        for (uint32_t i = 0; i < n; i++) {
            out.push_back({&schema, true, keyword, i});
        }
    }
    return out;
}

const schema_json &member_at(const schema_json &object, uint32_t index, std::string *name)
{
    auto it = object.begin();
    std::advance(it, index);
    if (object.is_object()) {
        *name = it.key();
    }
    return *it;
}

} // namespace

/* Returns whether the fields of a shape (shape.h) can express the negation of the schema. Callers ask this before they
 * negate anything, because a negation that lacks some alternatives would forbid valid values. Because a schema can
 * refer to itself, at most `depth` references and nested schemas are followed. */
bool expansion::can_negate(const schema_json &schema, size_t depth)
{
    if (schema.is_boolean()) {
        return true;
    }
    if (depth == 0 || !schema.is_object() || !budget.take(work_budget::VALIDATED_SCHEMA)) {
        return false;
    }
    for (const char *keyword : keywords::NOT_NEGATED) {
        if (schema.contains(keyword)) {
            return false;
        }
    }
    const schema_json types = schema.value("type", schema_json());
    const auto has = [&](const char *name) {
        return types == name || (types.is_array() && std::find(types.begin(), types.end(), name) != types.end());
    };
    if (has("integer") && !has("number")) {
        return false; /* the negation also allows numbers that are not integers, which no shape can express */
    }
    if (schema.contains("$ref")) {
        const schema_json *target = refs.target(schema);
        if (target == nullptr || !can_negate(*target, depth - 1)) {
            return false;
        }
    }
    for (const char *keyword : {"anyOf", "allOf", "properties"}) {
        const bool is_there = says_something(schema, keyword);
        for (auto it = schema.begin(); is_there && it != schema.end(); ++it) {
            if (it.key() != keyword) {
                continue;
            }
            for (const schema_json &one : *it) {
                if (!can_negate(one, depth - 1)) {
                    return false;
                }
            }
        }
    }
    return negated_parts(schema).size() <= NEGATED_PARTS_MAX;
}

bool expansion::apply_negated(state &s, const schema_json &schema)
{
    if (!can_negate(schema, 8)) {
        give_up(schema, "its negation, by not or if, cannot be enforced");
        return true;
    }
    if (schema.contains("$ref") && refs.hides_siblings()) {
        s.pending.push_back({&schema, true, "$ref", 0});
        return true;
    }
    const std::vector<condition> parts = negated_parts(schema);
    if (parts.empty()) {
        return false; /* the schema accepts every value, so its negation accepts none */
    }
    if (parts.size() == 1) {
        s.pending.push_back(parts[0]);
        return true;
    }
    std::vector<node> choice;
    for (const condition &part : parts) {
        choice.push_back({part});
    }
    s.choices.push_back(std::move(choice));
    return true;
}

namespace {

/* Applies the negation of a keyword that limits a number or a count (minimum, maxLength, ...). Returns false for any
 * other keyword. The negation of a lower limit is an upper limit, and vice versa. The negation of an inclusive limit is
 * an exclusive limit, and vice versa. Every value satisfies a minimum count of 0 and a maximum count of SIZE_MAX. So no
 * value satisfies the negation of such a limit. */
bool negate_bound(shape &s, const char *keyword, const schema_json &schema)
{
    const schema_json &value = schema[keyword];
    const auto only = [&](uint8_t type) { s.types &= type; };
    const size_t n = schema_count(value);
    const auto is_true = [&](const char *name) { return schema.contains(name) && schema[name] == true; };
    if (is_named(keyword, "minimum")) {
        only(json_type::NUMBER);
        s.most.push_back({&value, !is_true("exclusiveMinimum")});
    } else if (is_named(keyword, "maximum")) {
        only(json_type::NUMBER);
        s.least.push_back({&value, !is_true("exclusiveMaximum")});
    } else if (is_named(keyword, "exclusiveMinimum") || is_named(keyword, "exclusiveMaximum")) {
        only(json_type::NUMBER);
        (is_named(keyword, "exclusiveMinimum") ? s.most : s.least).push_back({&value, false});
    } else if (is_named(keyword, "minLength")) {
        only(n > 0 ? json_type::STRING : json_type::NOTHING);
        s.length_most = std::min(s.length_most, n - 1);
    } else if (is_named(keyword, "maxLength")) {
        only(n < SIZE_MAX ? json_type::STRING : json_type::NOTHING);
        s.length_least = std::max(s.length_least, n + 1);
    } else if (is_named(keyword, "minItems")) {
        only(n > 0 ? json_type::ARRAY : json_type::NOTHING);
        s.items_most = std::min(s.items_most, n - 1);
    } else if (is_named(keyword, "maxItems")) {
        only(n < SIZE_MAX ? json_type::ARRAY : json_type::NOTHING);
        s.items_least = std::max(s.items_least, n + 1);
    } else if (is_named(keyword, "minProperties")) {
        only(n > 0 ? json_type::OBJECT : json_type::NOTHING);
        s.members_most = std::min(s.members_most, n - 1);
    } else if (is_named(keyword, "maxProperties")) {
        only(n < SIZE_MAX ? json_type::OBJECT : json_type::NOTHING);
        s.members_least = std::max(s.members_least, n + 1);
    } else {
        return false;
    }
    return true;
}

void negate_types(shape &s, const schema_json &type)
{
    const auto remove = [&](const schema_json &one) {
        const uint8_t bit = one.is_string() ? schema_type(one.get<std::string>()) : json_type::NOTHING;
        const bool is_part = one == "integer" && !s.is_integer; /* not "integer" allows numbers that are not integers,
                                                                 * so the type NUMBER stays */
        if (!is_part) {
            s.types = static_cast<uint8_t>(s.types & ~bit);
        }
    };
    if (type.is_array()) {
        for (const schema_json &one : type) {
            remove(one);
        }
    } else {
        remove(type);
    }
}

} // namespace

/* Applies one side of a dependency such as {"dependentRequired": {"a": ["b"]}} (see apply_dependencies). A negated
 * condition demands that the member `a` is absent. Any other condition requires the dependent member `b`. */
static void apply_dependency(shape &s, const condition &c)
{
    std::string name;
    const schema_json &others = member_at((*c.schema)[c.keyword], c.index, &name);
    if (c.is_negated) {
        s.absent.insert(name);
        return;
    }
    for (const schema_json &other : others) {
        if (other.is_string()) {
            s.required.add(other.get_ref<const std::string &>());
        }
    }
}

bool expansion::apply_negated_keyword(state &s, const condition &c)
{
    const schema_json &schema = *c.schema;
    const char *keyword = c.keyword;
    std::string name;
    if (is_named(keyword, keywords::DEPENDENT_REQUIRED) || is_named(keyword, keywords::DEPENDENT_SCHEMAS) ||
        is_named(keyword, keywords::DEPENDENCIES)) {
        apply_dependency(s.s, c);
        return true;
    }
    if (negate_bound(s.s, keyword, schema)) {
        return true;
    }
    if (is_named(keyword, "$ref")) {
        s.pending.push_back({refs.target(schema), true});
    } else if (is_named(keyword, "type")) {
        negate_types(s.s, schema["type"]);
    } else if (is_named(keyword, "const")) {
        s.s.excluded.push_back(&schema["const"]);
    } else if (is_named(keyword, "enum")) {
        for (const schema_json &one : schema["enum"]) {
            s.s.excluded.push_back(&one);
        }
    } else if (is_named(keyword, "pattern")) {
        s.s.types &= json_type::STRING;
        s.s.patterns.emplace_back(schema["pattern"].get_ptr<const std::string *>(), true);
    } else if (is_named(keyword, "anyOf")) {
        for (const schema_json &one : schema["anyOf"]) {
            s.pending.push_back({&one, true});
        }
    } else if (is_named(keyword, "not")) {
        s.pending.push_back({&schema["not"]});
    } else if (is_named(keyword, "contains")) {
        give_up(schema, "the negation of contains cannot be enforced");
    } else if (is_named(keyword, "items")) {
        s.s.types &= json_type::ARRAY;
        s.s.contained.push_back({&schema["items"], true});
    } else if (is_named(keyword, keywords::ALL_OF)) {
        s.pending.push_back({&member_at(schema["allOf"], c.index, &name), true});
    } else if (is_named(keyword, keywords::REQUIRED)) {
        const schema_json &one = member_at(schema["required"], c.index, &name);
        s.s.types &= json_type::OBJECT;
        s.s.absent.insert(one.is_string() ? one.get<std::string>() : "");
    } else if (is_named(keyword, keywords::PROPERTIES)) {
        const schema_json &one = member_at(schema["properties"], c.index, &name);
        s.s.types &= json_type::OBJECT;
        s.s.required.add(name);
        s.s.members.emplace_back(name, condition{&one, true});
    }
    return true;
}
