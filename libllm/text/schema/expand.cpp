/* expand.cpp: turns the conditions on a value into shapes (shape.h). A shape describes the values that one combination
 * of alternatives allows. Conditions that hold together are merged into one `state`. The keywords anyOf, oneOf and if
 * are choices. The state is copied for each alternative of a choice.
 *
 * Several choices multiply the shapes: ten anyOf of four alternatives each have a million combinations. Choices are
 * therefore postponed until all unconditional conditions are merged. Most alternatives then immediately contradict the
 * state and leave no shape. For example, under {"type": "object", "oneOf": [...]} an alternative of another type is
 * dropped immediately. The choices inside such an alternative are never tried. If more than SHAPES_MAX shapes remain,
 * or the budget is spent, the policy STRICT refuses the schema. The policy LOOSE ignores all choices of the value and
 * enforces only the unconditional conditions. */
#include <algorithm>
#include <cmath>

#include "text/schema/regex_automaton.h"
#include "text/schema/keywords.h"
#include "text/schema/shape.h"

namespace {

constexpr size_t SHAPES_MAX = 256;      /* limit on the shapes (combinations of alternatives) of one value */
constexpr size_t CONDITIONS_MAX = 4096; /* limit on the conditions that are merged into one shape */
/* limit on the levels that are searched for a contradiction between two alternatives of oneOf */
constexpr size_t NOTHING_DEPTH = 4;

struct too_many_ways : grammar_beyond {
    using grammar_beyond::grammar_beyond;
};

template <typename T> void add_once(std::vector<T> &to, T value)
{
    if (std::find(to.begin(), to.end(), value) == to.end()) {
        to.push_back(value);
    }
}

} // namespace

size_t schema_count(const schema_json &value)
{
    if (!value.is_number()) {
        return SIZE_MAX;
    }
    const double n = value.get<double>();
    return n < 0 ? 0 : n >= 1e15 ? SIZE_MAX : static_cast<size_t>(std::floor(n));
}

uint8_t schema_type(const std::string &name)
{
    const std::pair<const char *, uint8_t> types[] = {{"null", json_type::NUL},      {"boolean", json_type::BOOLEAN},
                                                      {"number", json_type::NUMBER}, {"integer", json_type::NUMBER},
                                                      {"string", json_type::STRING}, {"array", json_type::ARRAY},
                                                      {"object", json_type::OBJECT}};
    for (const auto &[known, bit] : types) {
        if (name == known) {
            return bit;
        }
    }
    return json_type::NOTHING;
}

bool shape::is_anything() const
{
    return types == json_type::ANY && !is_integer && least.empty() && most.empty() && multiples.empty() &&
           length_least == 0 && length_most == SIZE_MAX && patterns.empty() && formats.empty() &&
           array_sources.empty() && object_sources.empty() && items_least == 0 && items_most == SIZE_MAX &&
           !is_unique && contained.empty() && required.empty() && absent.empty() && members.empty() &&
           members_least == 0 && members_most == SIZE_MAX && names.empty() && !values.has_value() && excluded.empty();
}

const automaton *pattern_set::find(const std::string &pattern, std::string *why)
{
    auto found = known.find(pattern);
    if (found == known.end()) {
        entry made;
        try {
            made.made = regex_automaton(pattern, budget);
        } catch (const grammar_fault &e) {
            made.why = e.what();
        }
        found = known.emplace(pattern, std::move(made)).first;
    }
    if (why != nullptr) {
        *why = found->second.why;
    }
    return found->second.made.has_value() ? &*found->second.made : nullptr;
}

node expansion::node_of(node conditions)
{
    conditions.erase(std::remove_if(conditions.begin(), conditions.end(),
                                    [](const condition &c) {
                                        return !c.is_negated &&
                                               (*c.schema == true || (c.schema->is_object() && c.schema->empty()));
                                    }),
                     conditions.end());
    if (conditions.size() < 2) {
        return conditions;
    }
    for (const condition &c : conditions) {
        numbers.emplace(c.schema, numbers.size());
    }
    const auto key = [&](const condition &c) {
        const std::string_view keyword = c.keyword != nullptr ? c.keyword : "";
        return std::make_tuple(numbers.at(c.schema), keyword, c.index, c.is_negated);
    };
    std::sort(conditions.begin(), conditions.end(),
              [&](const condition &a, const condition &b) { return key(a) < key(b); });
    conditions.erase(std::unique(conditions.begin(), conditions.end()), conditions.end());
    return conditions;
}

node expansion::without_repetitions(node n)
{
    for (condition &c : n) {
        c.schema = refs.first_equal(c.schema);
    }
    return node_of(std::move(n));
}

void expansion::give_up(const schema_json &schema, const std::string &what) const
{
    if (policy == schema_policy::STRICT) {
        const std::string path = refs.path(&schema);
        throw grammar_beyond("schema" + (path.size() > 128 ? path.substr(0, 128) + "..." : path) + ": " + what);
    }
}

const std::vector<shape> &expansion::shapes_of(const node &n)
{
    const auto found = known.find(n);
    if (found != known.end()) {
        return found->second;
    }
    state s;
    s.pending = n;
    std::vector<shape> out;
    try {
        settle(s, true, out);
    } catch (const too_many_ways &e) {
        give_up(*n.front().schema, e.what());
        out.clear();
        settle(s, false, out);
    }
    return known.emplace(n, std::move(out)).first->second;
}

size_t expansion::state::n_items() const
{
    size_t n = pending.size() + met.size() + s.least.size() + s.most.size() + s.multiples.size() + s.patterns.size() +
               s.formats.size() + s.array_sources.size() + s.object_sources.size() + s.contained.size() +
               2 * s.required.size() + s.absent.size() + s.members.size() + s.names.size() + s.excluded.size() +
               (s.values.has_value() ? s.values->size() : 0);
    for (const std::vector<node> &choice : choices) {
        n += 1 + choice.size();
        for (const node &one : choice) {
            n += one.size();
        }
    }
    return n;
}

/* Merges all pending conditions of the state `s` (the conditions on one value). If choices remain, takes one choice and
 * calls itself for each alternative of this choice, with a copy of the state. Appends to `out` one shape for each
 * combination of alternatives that does not contradict itself. If `has_choices` is false, all choices are ignored.
 *
 * A condition that is already merged (in `met`) is skipped. Without this check, a schema such as {"allOf": [{"$ref":
 * "#"}]} would never end. If the state has both a condition and its negation, the state is dropped at once, without
 * comparing keywords. */
void expansion::settle(state s, bool has_choices, std::vector<shape> &out)
{
    if (has_choices && !budget.take(work_budget::MERGED_STATE)) {
        throw too_many_ways(work_budget::beyond());
    }
    if (has_choices && out.size() > SHAPES_MAX) {
        throw too_many_ways("its alternatives expand to more than " + std::to_string(SHAPES_MAX) + " shapes");
    }
    while (!s.pending.empty()) {
        const condition c = s.pending.back();
        s.pending.pop_back();
        if (!s.met.insert(c).second) {
            continue;
        }
        condition opposite = c;
        opposite.is_negated = !c.is_negated;
        if (s.met.size() > CONDITIONS_MAX) {
            if (has_choices) {
                throw too_many_ways("more than " + std::to_string(CONDITIONS_MAX) + " conditions at once");
            }
            break;
        }
        if (s.met.count(opposite) > 0 || !apply(s, c) || s.s.types == json_type::NOTHING) {
            return;
        }
    }
    if (s.choices.empty() || !has_choices) {
        out.push_back(std::move(s.s));
        return;
    }
    const std::vector<node> alternatives = std::move(s.choices.back());
    s.choices.pop_back();
    for (const node &one : alternatives) {
        /* before copies were charged to the budget, 3,000 choices were copied 3,000 times, which took 1.5 GB */
        if (!budget.take(s.n_items() * work_budget::COPIED_ITEM)) {
            throw too_many_ways(work_budget::beyond());
        }
        state next = s;
        next.pending = one;
        settle(std::move(next), true, out);
    }
}

bool expansion::apply(state &s, const condition &c)
{
    if (c.keyword != nullptr) {
        return apply_negated_keyword(s, c);
    }
    if (c.schema->is_boolean()) {
        return *c.schema != c.is_negated;
    }
    (void)budget.take(c.schema->size() * work_budget::KEYWORD); /* charges the cost of looking up every keyword in the
                                                                 * schema */
    if (!c.schema->is_object()) {
        give_up(*c.schema, "a schema is expected");
        return true;
    }
    return c.is_negated ? apply_negated(s, *c.schema) : apply_schema(s, *c.schema);
}

namespace {

/* Applies the keyword `type`: keeps only the types that the keyword names. If one of the names is unknown, changes
 * nothing and sets *is_known to false. "integer" becomes NUMBER with is_integer set. ["integer", "number"] does not set
 * is_integer. */
void apply_types(shape &s, const schema_json &type, bool *is_known)
{
    uint8_t allowed = json_type::NOTHING;
    bool only_integers = true;
    const auto add = [&](const schema_json &one) {
        const uint8_t bit = one.is_string() ? schema_type(one.get<std::string>()) : json_type::NOTHING;
        *is_known = *is_known && bit != json_type::NOTHING;
        allowed = static_cast<uint8_t>(allowed | bit);
        only_integers = only_integers && one != "number";
    };
    if (type.is_array()) {
        for (const schema_json &one : type) {
            add(one);
        }
    } else {
        add(type);
    }
    if (*is_known) {
        s.types &= allowed;
        s.is_integer = s.is_integer || ((allowed & json_type::NUMBER) != 0 && only_integers);
    }
}

} // namespace

bool expansion::apply_schema(state &s, const schema_json &schema)
{
    if (schema.contains("$ref")) {
        const schema_json *target = refs.target(schema);
        if (target != nullptr) {
            s.pending.push_back({target});
        } else {
            give_up(schema,
                    "the keyword $ref leads nowhere: " +
                        schema["$ref"].dump(-1, ' ', false, schema_json::error_handler_t::replace).substr(0, 128));
        }
        if (refs.hides_siblings()) {
            return true;
        }
    }
    for (const char *keyword : keywords::NOT_ENFORCED) {
        if (schema.contains(keyword)) {
            give_up(schema, std::string("the keyword ") + keyword + " cannot be enforced");
        }
    }
    const auto type = schema.find("type");
    if (type != schema.end()) {
        const uint8_t before = s.s.types;
        bool is_known = true;
        apply_types(s.s, *type, &is_known);
        if (!is_known) {
            give_up(schema, "the keyword type has an unknown name");
        } else if (schema.contains("nullable") && schema["nullable"] == true) { /* `nullable` is a keyword of OpenAPI */
            s.s.types = static_cast<uint8_t>(s.s.types | (before & json_type::NUL));
        }
    }
    const auto add_values = [&](std::vector<const schema_json *> values) {
        if (!s.s.values.has_value() || values.size() < s.s.values->size()) {
            s.s.values = std::move(values); /* if several enums and consts hold together, only the shortest list of
                                             * values is stored. Later, is_kept tests these values against all
                                             * conditions */
        }
    };
    if (schema.contains("const")) {
        add_values({&schema["const"]});
    }
    if (schema.contains("enum") && schema["enum"].is_array()) {
        std::vector<const schema_json *> values;
        for (const schema_json &one : schema["enum"]) {
            values.push_back(&one);
        }
        add_values(std::move(values));
    }
    apply_numbers(s, schema);
    apply_texts(s, schema);
    apply_arrays(s, schema);
    apply_objects(s, schema);
    apply_choices(s, schema);
    return true;
}

void expansion::apply_numbers(state &s, const schema_json &schema)
{
    const auto is_true = [&](const char *name) { return schema.contains(name) && schema[name] == true; };
    const auto add = [&](std::vector<shape::bound> &to, const char *name, bool is_exclusive) {
        if (schema.contains(name) && schema[name].is_number()) {
            to.push_back({&schema[name], is_exclusive});
        }
    };
    add(s.s.least, "minimum", is_true("exclusiveMinimum")); /* up to draft 4, exclusiveMinimum is a boolean */
    add(s.s.most, "maximum", is_true("exclusiveMaximum"));
    add(s.s.least, "exclusiveMinimum", true);
    add(s.s.most, "exclusiveMaximum", true);
    for (const char *name : {"multipleOf", "divisibleBy"}) {
        if (schema.contains(name) && schema[name].is_number()) {
            add_once(s.s.multiples, &schema[name]);
        }
    }
}

void expansion::apply_texts(state &s, const schema_json &schema)
{
    if (schema.contains("minLength")) {
        const size_t n = schema_count(schema["minLength"]);
        s.s.length_least = std::max(s.s.length_least, n == SIZE_MAX ? 0 : n);
    }
    if (schema.contains("maxLength")) {
        s.s.length_most = std::min(s.s.length_most, schema_count(schema["maxLength"]));
    }
    if (schema.contains("pattern") && schema["pattern"].is_string()) {
        s.s.patterns.emplace_back(schema["pattern"].get_ptr<const std::string *>(), false);
    }
    if (schema.contains("format") && schema["format"].is_string()) {
        s.s.formats.push_back(schema["format"].get_ptr<const std::string *>());
    }
}

void expansion::apply_arrays(state &s, const schema_json &schema)
{
    if (schema.contains("items") || schema.contains("prefixItems")) {
        add_once(s.s.array_sources, &schema);
    }
    if (schema.contains("minItems")) {
        const size_t n = schema_count(schema["minItems"]);
        s.s.items_least = std::max(s.s.items_least, n == SIZE_MAX ? 0 : n);
    }
    if (schema.contains("maxItems")) {
        s.s.items_most = std::min(s.s.items_most, schema_count(schema["maxItems"]));
    }
    s.s.is_unique = s.s.is_unique || (schema.contains("uniqueItems") && schema["uniqueItems"] == true);
    if (schema.contains("contains")) {
        if (schema.contains("maxContains") || (schema.contains("minContains") && schema["minContains"] != 1)) {
            give_up(schema, "the keyword contains together with minContains or maxContains cannot be enforced");
        } else {
            s.s.contained.push_back({&schema["contains"]});
        }
    }
}

void expansion::apply_objects(state &s, const schema_json &schema)
{
    if (schema.contains("properties") || schema.contains("patternProperties") ||
        schema.contains("additionalProperties")) {
        add_once(s.s.object_sources, &schema);
    }
    if (schema.contains("required") && schema["required"].is_array()) {
        for (const schema_json &name : schema["required"]) {
            (void)budget.take(work_budget::NAME);
            if (name.is_string()) {
                s.s.required.add(name.get_ref<const std::string &>());
            }
        }
    }
    if (schema.contains("minProperties")) {
        const size_t n = schema_count(schema["minProperties"]);
        s.s.members_least = std::max(s.s.members_least, n == SIZE_MAX ? 0 : n);
    }
    if (schema.contains("maxProperties")) {
        s.s.members_most = std::min(s.s.members_most, schema_count(schema["maxProperties"]));
    }
    if (schema.contains("propertyNames")) {
        s.s.names.push_back({&schema["propertyNames"]});
    }
    apply_dependencies(s, schema);
}

/* Applies dependencies. If a member is present, a dependency requires other members, or demands that the object
 * satisfies a schema. Each dependency becomes a choice: the object has no such member, or it satisfies the dependency.
 * Each alternative of a choice is a condition, which must refer to a schema or keyword of the document. But no schema
 * in the document says "without this member". So the condition "without this member" refers to the dependency's
 * keyword, with the member's index in the keyword's object, and has is_negated true. The same condition with is_negated
 * false says that the dependent members are required (apply_dependency in negate.cpp). */
void expansion::apply_dependencies(state &s, const schema_json &schema)
{
    for (const char *keyword : {keywords::DEPENDENT_REQUIRED, keywords::DEPENDENT_SCHEMAS, keywords::DEPENDENCIES}) {
        if (!schema.contains(keyword) || !schema[keyword].is_object()) {
            continue;
        }
        uint32_t index = 0;
        for (auto it = schema[keyword].begin(); it != schema[keyword].end(); ++it, index++) {
            std::vector<node> choice = {{{&schema, true, keyword, index}}};
            if (it->is_array()) {
                choice.push_back({{&schema, false, keyword, index}});
            } else {
                choice.push_back({{&*it}});
            }
            s.choices.push_back(std::move(choice));
        }
    }
}

void expansion::apply_choices(state &s, const schema_json &schema)
{
    if (schema.contains("allOf") && schema["allOf"].is_array()) {
        for (size_t i = schema["allOf"].size(); i-- > 0;) { /* `pending` is a stack: pushed last, the first schema is
                                                             * merged first */
            s.pending.push_back({&schema["allOf"][i]});
        }
    }
    if (schema.contains("anyOf") && schema["anyOf"].is_array()) {
        std::vector<node> choice;
        for (const schema_json &one : schema["anyOf"]) {
            choice.push_back({{&one}});
        }
        s.choices.push_back(std::move(choice));
    }
    if (schema.contains("oneOf") && schema["oneOf"].is_array()) {
        apply_one_of(s, schema);
    }
    if (schema.contains("not")) {
        s.pending.push_back({&schema["not"], true});
    }
    if (schema.contains("if") && (schema.contains("then") || schema.contains("else"))) {
        node yes = {{&schema["if"]}}, no = {{&schema["if"], true}};
        if (schema.contains("then")) {
            yes.push_back({&schema["then"]});
        }
        if (schema.contains("else")) {
            no.push_back({&schema["else"]});
        }
        s.choices.push_back({yes, no});
    }
}

/* Applies oneOf as a choice between its alternatives. The i-th option of the choice says that the i-th alternative
 * holds. This option also negates every other alternative that could hold for the same value. Treating oneOf like anyOf
 * would accept values that satisfy two alternatives and are therefore invalid. It would be correct to negate all other
 * alternatives. But most alternatives have a keyword that llmd cannot negate (keywords::NOT_NEGATED), and each negation
 * multiplies the shapes. Most alternatives exclude each other by a type or a constant, which is_nothing detects. The
 * number of pairs to compare is the square of the number of alternatives. Without a budget, 1,500 constants took 19 s
 * and 950 MB. So oneOf is not enforced after the budget is spent. */
void expansion::apply_one_of(state &s, const schema_json &schema)
{
    const schema_json &all = schema["oneOf"];
    std::vector<node> choice;
    for (size_t i = 0; i < all.size(); i++) {
        node one = {{&all[i]}};
        for (size_t j = 0; j < all.size(); j++) {
            if (!budget.take(work_budget::COMPARED_PAIR)) {
                give_up(schema, work_budget::beyond());
                return;
            }
            if (j == i || is_nothing(node_of({{&all[i]}, {&all[j]}}), NOTHING_DEPTH)) {
                continue;
            }
            if (can_negate(all[j], 8)) {
                one.push_back({&all[j], true});
            } else {
                give_up(schema, "the keyword oneOf has alternatives that a value may satisfy together, which cannot be "
                                "distinguished");
            }
        }
        choice.push_back(std::move(one));
    }
    s.choices.push_back(std::move(choice));
}
