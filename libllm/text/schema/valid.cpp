/* valid.cpp: tests the values in an enum or const. A value must satisfy all schemas that hold together, and the other
 * keywords of its own schema. In {"enum": ["a", 1], "type": "string"}, the merged conditions contain both values. Each
 * value is tested before the grammar is written, and 1 is left out because it is not a string. The same test finds
 * declared member names that propertyNames forbids.
 *
 * A keyword that cannot be tested makes the verdict "unknown". If the verdict were "valid", `not` would turn the
 * verdict into "invalid" and forbid a value that may be valid. A value with an unknown verdict is allowed. Exception:
 * for certain keywords, the policy STRICT refuses the schema. */
#include <algorithm>
#include <cmath>

#include "text/schema/keywords.h"
#include "text/schema/shape.h"

namespace {

constexpr size_t DEPTH_MAX = 64; /* limit on references and nested schemas. Deeper schemas get the verdict UNKNOWN */

size_t length_of(const std::string &text)
{
    return static_cast<size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }));
}

verdict verdict_of(bool is_valid)
{
    return {is_valid ? verdict::VALID : verdict::INVALID};
}

/* Returns the verdict UNKNOWN. The policy STRICT then refuses the schema, with an error that names `keyword`. If
 * `keyword` is NULL, STRICT accepts the value. */
verdict unknown(const schema_json &schema, const char *keyword)
{
    return {verdict::UNKNOWN, &schema, keyword};
}

/* Returns the verdict `v`. If `v` is UNKNOWN and has no keyword, adds `keyword`, so that the policy STRICT refuses the
 * schema. Used for `not`, `oneOf` and `if`, which turn a verdict into another. Without a keyword, STRICT would treat
 * the UNKNOWN verdict as valid. */
verdict named(const verdict &v, const schema_json &schema, const char *keyword)
{
    return v.is == verdict::UNKNOWN && v.keyword == nullptr ? unknown(schema, keyword) : v;
}

verdict negated(const verdict &v, const schema_json &schema, const char *keyword)
{
    return v.is == verdict::UNKNOWN ? named(v, schema, keyword) : verdict_of(v.is == verdict::INVALID);
}

/* Combines the verdict *all with the verdict `one`. *all stays VALID only if `one` is VALID. Returns false if *all is
 * now INVALID. */
bool add(verdict *all, const verdict &one)
{
    const bool is_worse = one.is == verdict::INVALID ||
                          (one.is == verdict::UNKNOWN && (all->is == verdict::VALID || all->keyword == nullptr));
    if (all->is != verdict::INVALID && is_worse) {
        *all = one;
    }
    return all->is != verdict::INVALID;
}

bool is_of_type(const schema_json &value, const std::string &name)
{
    const bool is_whole = value.is_number_integer() ||
                          (value.is_number_float() && std::floor(value.get<double>()) == value.get<double>());
    return (name == "null" && value.is_null()) || (name == "boolean" && value.is_boolean()) ||
           (name == "number" && value.is_number()) || (name == "integer" && is_whole) ||
           (name == "string" && value.is_string()) || (name == "array" && value.is_array()) ||
           (name == "object" && value.is_object());
}

verdict type_verdict(const schema_json &value, const schema_json &schema)
{
    const schema_json &type = schema["type"];
    if (value.is_null() && schema.contains("nullable") && schema["nullable"] == true) {
        return verdict_of(true);
    }
    bool is_known = true;
    const auto is_met = [&](const schema_json &one) {
        const std::string name = one.is_string() ? one.get<std::string>() : "";
        is_known = is_known && schema_type(name) != json_type::NOTHING;
        return is_of_type(value, name);
    };
    if (type.is_array() ? std::any_of(type.begin(), type.end(), is_met) : is_met(type)) {
        return verdict_of(true);
    }
    return is_known ? verdict_of(false) : unknown(schema, "type");
}

/* Returns whether two values are equal, regardless of the order of object members. The operator == of schema_json
 * depends on that order. Each member is searched for linearly, so comparing two objects takes time in proportion to the
 * square of their size. Also returns false if the budget is spent. So after a false result the caller must check the
 * budget. */
bool is_equal(const schema_json &a, const schema_json &b, work_budget &budget)
{
    const auto is_same = [&](const schema_json &x, const schema_json &y) { return is_equal(x, y, budget); };
    if (!budget.take(1 + (a.is_object() && b.is_object() ? a.size() * b.size() / 8 : 0))) {
        return false;
    }
    if (a.is_array() && b.is_array()) {
        return std::equal(a.begin(), a.end(), b.begin(), b.end(), is_same);
    }
    if (!a.is_object() || !b.is_object()) {
        return a == b;
    }
    return a.size() == b.size() && std::all_of(a.items().begin(), a.items().end(), [&](const auto &member) {
               const auto found = b.find(member.key());
               return found != b.end() && is_same(member.value(), *found);
           });
}

/* Returns whether the list `values` contains the value. Usually the value is an element of this very list, so addresses
 * are compared first. Comparing contents first would take time in proportion to the square of the list's length. */
bool is_one_of(const schema_json &value, const schema_json &values, work_budget &budget)
{
    return std::any_of(values.begin(), values.end(), [&](const schema_json &one) { return &one == &value; }) ||
           std::any_of(values.begin(), values.end(),
                       [&](const schema_json &one) { return is_equal(value, one, budget); });
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
    for (const char *name : {"multipleOf", "divisibleBy"}) {
        if (has(name) && schema[name].get<double>() > 0) {
            const double n = value.get<double>() / schema[name].get<double>();
            /* a small difference is allowed, because 0.3 / 0.1 is not exactly 3 in floating point */
            if (std::fabs(n - std::round(n)) >= 1e-9 * std::max(1.0, std::fabs(n))) {
                return false;
            }
        }
    }
    return true;
}

} // namespace

bool expansion::may_be_valid(const schema_json &value, const node &n)
{
    return verdict_on(value, n).is != verdict::INVALID;
}

bool expansion::is_kept(const schema_json &value, const node &n)
{
    const verdict v = verdict_on(value, n);
    if (v.is == verdict::UNKNOWN && v.keyword != nullptr) {
        give_up(*v.schema,
                std::string("the keyword ") + v.keyword + " cannot be tested for a listed value or a declared name");
    }
    return v.is != verdict::INVALID;
}

verdict expansion::verdict_on(const schema_json &value, const node &n)
{
    verdict all = verdict_of(true);
    for (const condition &c : n) {
        if (c.keyword != nullptr) {
            (void)add(&all, unknown(*c.schema, nullptr));
            continue;
        }
        const verdict one = schema_verdict(value, *c.schema, DEPTH_MAX);
        if (!add(&all, c.is_negated ? negated(one, *c.schema, "not") : one)) {
            break;
        }
    }
    return all;
}

/* The keyword `format` never makes a string of enum or const invalid. In JSON Schema a format is only an annotation,
 * which a validator may test. An author who lists a string wants it to be allowed. A string with a `format` therefore
 * never gets the verdict VALID, but UNKNOWN. STRICT accepts this verdict unless a negation depends on it. */
verdict expansion::text_verdict(const schema_json &value, const schema_json &schema)
{
    const std::string &text = value.get_ref<const std::string &>();
    const size_t n = length_of(text);
    if ((schema.contains("minLength") && schema["minLength"].is_number() && n < schema_count(schema["minLength"])) ||
        (schema.contains("maxLength") && n > schema_count(schema["maxLength"]))) {
        return verdict_of(false);
    }
    verdict all = verdict_of(true);
    (void)budget.take(text.size());
    if (schema.contains("pattern") && schema["pattern"].is_string()) {
        const automaton *pattern = patterns.find(schema["pattern"].get<std::string>(), nullptr);
        (void)add(&all, pattern == nullptr ? unknown(schema, "pattern") : verdict_of(pattern->accepts(text)));
    }
    if (schema.contains("format") && schema["format"].is_string()) {
        (void)add(&all, unknown(schema, nullptr));
    }
    return all;
}

/* If a schema has both `contains` and minContains or maxContains, the verdict is unknown. apply_arrays does not enforce
 * this combination either. */
verdict expansion::array_verdict(const schema_json &value, const schema_json &schema, size_t depth)
{
    if ((schema.contains("minItems") && schema["minItems"].is_number() &&
         value.size() < schema_count(schema["minItems"])) ||
        (schema.contains("maxItems") && value.size() > schema_count(schema["maxItems"]))) {
        return verdict_of(false);
    }
    verdict all = verdict_of(true);
    const bool is_old = schema.contains("items") && schema["items"].is_array();
    const char *first = is_old ? "items" : "prefixItems", *rest = is_old ? "additionalItems" : "items";
    const size_t n = schema.contains(first) && schema[first].is_array() ? schema[first].size() : 0;
    for (size_t i = 0; i < value.size(); i++) {
        const schema_json *item = i < n ? &schema[first][i] : schema.contains(rest) ? &schema[rest] : nullptr;
        if (item != nullptr && !add(&all, schema_verdict(value[i], *item, depth))) {
            return all;
        }
    }
    if (schema.contains("uniqueItems") && schema["uniqueItems"] == true && !add(&all, unique_verdict(value, schema))) {
        return all;
    }
    if (!schema.contains("contains")) {
        return all;
    }
    verdict any = verdict_of(false);
    for (const schema_json &item : value) {
        const verdict one = schema_verdict(item, schema["contains"], depth);
        any = one.is == verdict::VALID || any.is == verdict::INVALID ? one : any;
        if (any.is == verdict::VALID) {
            break;
        }
    }
    const bool is_counted = /* minContains 1 means the same as contains alone */
        schema.contains("maxContains") || (schema.contains("minContains") && schema["minContains"] != 1);
    (void)add(&all, is_counted ? unknown(schema, "contains") : any);
    return all;
}

verdict expansion::unique_verdict(const schema_json &value, const schema_json &schema)
{
    for (size_t i = 0; i < value.size(); i++) {
        if (!budget.take(i * work_budget::COPIED_ITEM)) {
            return unknown(schema, "uniqueItems");
        }
        if (std::any_of(value.begin(), value.begin() + static_cast<std::ptrdiff_t>(i),
                        [&](const schema_json &other) { return is_equal(other, value[i], budget); })) {
            return verdict_of(false);
        }
    }
    return budget.is_spent() ? unknown(schema, "uniqueItems") : verdict_of(true);
}

/* Combines *all with the verdicts on the value's dependencies (dependentRequired, dependentSchemas, dependencies). */
void expansion::add_dependencies(const schema_json &value, const schema_json &schema, size_t depth, verdict *all)
{
    for (const char *keyword : {keywords::DEPENDENT_REQUIRED, keywords::DEPENDENT_SCHEMAS, keywords::DEPENDENCIES}) {
        if (!schema.contains(keyword) || !schema[keyword].is_object()) {
            continue;
        }
        for (auto it = schema[keyword].begin(); it != schema[keyword].end(); ++it) {
            const auto has = [&](const std::string &name) { return budget.take(value.size()) && value.contains(name); };
            const bool is_there = has(it.key());
            const bool has_all =
                is_there && it->is_array() && std::all_of(it->begin(), it->end(), [&](const schema_json &name) {
                    return !name.is_string() || has(name.get<std::string>());
                });
            if (budget.is_spent()) {
                (void)add(all, unknown(schema, keyword));
                return;
            }
            if (!is_there) {
                continue;
            }
            (void)add(all, it->is_array() ? verdict_of(has_all) : schema_verdict(value, *it, depth));
        }
    }
}

verdict expansion::object_verdict(const schema_json &value, const schema_json &schema, size_t depth)
{
    if ((schema.contains("minProperties") && schema["minProperties"].is_number() &&
         value.size() < schema_count(schema["minProperties"])) ||
        (schema.contains("maxProperties") && value.size() > schema_count(schema["maxProperties"]))) {
        return verdict_of(false);
    }
    if (schema.contains("required") && schema["required"].is_array()) {
        for (const schema_json &name : schema["required"]) {
            if (!budget.take(1 + value.size())) {
                return unknown(schema, "required");
            }
            if (name.is_string() && !value.contains(name.get<std::string>())) {
                return verdict_of(false);
            }
        }
    }
    verdict all = verdict_of(true);
    shape here;
    here.object_sources.push_back(&schema);
    const bool has_patterns = schema.contains("patternProperties") && schema["patternProperties"].is_object();
    for (auto it = value.begin(); it != value.end(); ++it) {
        for (const condition &c : member_node(here, it.key())) {
            if (!add(&all, schema_verdict(*it, *c.schema, depth))) {
                return all;
            }
        }
        if (schema.contains("propertyNames") &&
            !add(&all, schema_verdict(schema_json(it.key()), schema["propertyNames"], depth))) {
            return all;
        }
    }
    for (auto it = has_patterns && !value.empty() ? schema["patternProperties"].begin() : schema_json::const_iterator();
         has_patterns && !value.empty() && it != schema["patternProperties"].end(); ++it) {
        if (patterns.find(it.key(), nullptr) == nullptr) {
            (void)add(&all, unknown(schema, "patternProperties"));
        }
    }
    add_dependencies(value, schema, depth, &all);
    return all;
}

verdict expansion::combination_verdict(const schema_json &value, const schema_json &schema, size_t depth)
{
    verdict all = verdict_of(true);
    const auto has = [&](const char *name) { return schema.contains(name) && schema[name].is_array(); };
    if (has("allOf")) {
        for (const schema_json &one : schema["allOf"]) {
            if (!add(&all, schema_verdict(value, one, depth))) {
                return all;
            }
        }
    }
    for (const char *keyword : {"anyOf", "oneOf"}) {
        size_t n_valid = 0, n_unknown = 0;
        const bool is_one = keyword[0] == 'o';
        verdict open = verdict_of(false);
        if (!has(keyword)) {
            continue;
        }
        for (const schema_json &one : schema[keyword]) {
            const verdict v = schema_verdict(value, one, depth);
            n_valid += v.is == verdict::VALID;
            n_unknown += v.is == verdict::UNKNOWN;
            open = v.is == verdict::UNKNOWN && (open.is == verdict::INVALID || v.keyword == nullptr) ? v : open;
            if (n_valid > (is_one ? 1 : 0)) {
                break;
            }
        }
        const bool is_decided = is_one ? n_valid > 1 || n_unknown == 0 : n_valid > 0 || n_unknown == 0;
        if (!add(&all, is_decided                          ? verdict_of(is_one ? n_valid == 1 : n_valid > 0)
                       : is_one && n_valid + n_unknown > 1 ? named(open, schema, keyword)
                                                           : open)) {
            return all;
        }
    }
    if (schema.contains("not") && !add(&all, negated(schema_verdict(value, schema["not"], depth), schema, "not"))) {
        return all;
    }
    if (!schema.contains("if")) {
        return all;
    }
    const auto branch = [&](const char *name) {
        return schema.contains(name) ? schema_verdict(value, schema[name], depth) : verdict_of(true);
    };
    const verdict condition = schema_verdict(value, schema["if"], depth);
    if (condition.is != verdict::UNKNOWN) {
        (void)add(&all, branch(condition.is == verdict::VALID ? "then" : "else"));
        return all;
    }
    const verdict then = branch("then"), otherwise = branch("else");
    const bool is_same = then.is == otherwise.is && then.is != verdict::UNKNOWN;
    (void)add(&all, is_same ? then : named(condition, schema, "if"));
    return all;
}

verdict expansion::schema_verdict(const schema_json &value, const schema_json &schema, size_t depth)
{
    if (schema.is_boolean()) {
        return verdict_of(schema == true);
    }
    if (depth == 0) {
        return unknown(schema, "$ref"); /* the schema nests too deeply, or a chain of references is too long */
    }
    if (!schema.is_object() || budget.is_spent() || !budget.take(work_budget::VALIDATED_SCHEMA)) {
        return unknown(schema, nullptr);
    }
    verdict all = verdict_of(true);
    if (schema.contains("$ref")) {
        const schema_json *target = refs.target(schema);
        if (!add(&all, target == nullptr ? unknown(schema, "$ref") : schema_verdict(value, *target, depth - 1)) ||
            refs.hides_siblings()) {
            return all;
        }
    }
    /* const and enum are tested before the other keywords, because they decide most alternatives of a long oneOf */
    if ((schema.contains("const") && !is_equal(value, schema["const"], budget)) ||
        (schema.contains("enum") && schema["enum"].is_array() && !is_one_of(value, schema["enum"], budget))) {
        return budget.is_spent() ? unknown(schema, nullptr) : verdict_of(false);
    }
    if (schema.contains("type") && !add(&all, type_verdict(value, schema))) {
        return all;
    }
    for (const char *keyword : keywords::NOT_ENFORCED) {
        if (schema.contains(keyword)) {
            (void)add(&all, unknown(schema, keyword));
        }
    }
    const bool is_possible = (!value.is_number() || add(&all, verdict_of(is_valid_number(value, schema)))) &&
                             (!value.is_string() || add(&all, text_verdict(value, schema))) &&
                             (!value.is_array() || add(&all, array_verdict(value, schema, depth - 1))) &&
                             (!value.is_object() || add(&all, object_verdict(value, schema, depth - 1)));
    if (is_possible) {
        (void)add(&all, combination_verdict(value, schema, depth - 1));
    }
    return all;
}
