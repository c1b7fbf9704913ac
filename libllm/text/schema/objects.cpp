/* objects.cpp: writes GBNF for the JSON objects of a shape. A shape is the result of merging schemas, for one
 * combination of their alternatives (shape.h). */
#include <algorithm>
#include <set>

#include "text/grammar/regex_grammar.h"
#include "text/schema/writer.h"

namespace {

constexpr size_t COUNTED_MAX = 4096; /* limit on the grammar rules of an object whose members are counted */
constexpr size_t NAME_CLASSES_MAX = 64, MEMBERS_MAX = 4096;
/* largest number of members that are allowed in any order. n such members take 2^n rules */
constexpr size_t UNORDERED_MAX = 5;

const schema_json *object_in(const schema_json &source, const char *name)
{
    const auto found = source.find(name);
    return found != source.end() && found->is_object() ? &*found : nullptr;
}

/* Returns the member names that the schemas of the shape mention. Declared names come first, in the order of the
 * declarations. Names that are only required or forbidden follow. */
std::vector<std::string> names_of(const shape &s)
{
    std::vector<std::string> names;
    std::set<std::string> seen;
    const auto add = [&](const std::string &name) {
        if (seen.insert(name).second) {
            names.push_back(name);
        }
    };
    for (const schema_json *source : s.object_sources) {
        const schema_json *properties = object_in(*source, "properties");
        for (auto it = properties != nullptr ? properties->begin() : schema_json::const_iterator();
             properties != nullptr && it != properties->end(); ++it) {
            add(it.key());
        }
    }
    for (const auto &[name, what] : s.members) {
        add(name);
    }
    for (const std::string &name : s.required) {
        add(name);
    }
    for (const std::string &name : s.absent) {
        add(name);
    }
    return names;
}

} // namespace

/* Fills plan->members. Returns false if a required member has no valid value. Then no object is valid. */
bool writer::plan_members(const shape &s, object_plan *plan)
{
    const std::vector<std::string> names = names_of(s);
    if (names.size() > MEMBERS_MAX) { /* checked first, because the lookups below take time in proportion to the square
                                       * of the number of names */
        throw grammar_too_large("an object of more than " + std::to_string(MEMBERS_MAX) + " members");
    }
    for (const std::string &name : names) {
        const bool is_required = s.required.has(name);
        const bool is_absent =
            s.absent.count(name) > 0 || !std::all_of(s.names.begin(), s.names.end(), [&](const condition &c) {
                return shapes.is_kept(name, shapes.node_of({c}));
            });
        if (out.name_with_colon(name).empty()) { /* the grammar cannot express this name, so the member is left out */
            continue;
        }
        const std::string element = is_absent ? "" : value(shapes.member_node(s, name));
        if (element.empty() && is_required) {
            return false;
        }
        plan->members.push_back({name, element, is_required});
    }
    return true;
}

/* Removes from *names the names that the shape's propertyNames forbid. */
void writer::narrow_names(const shape &s, automaton *names)
{
    for (const condition &c : s.names) {
        if (const std::optional<automaton> all = texts_of(shapes.node_of({c}))) {
            *names = automaton_of(automaton_operation::BOTH, *names, *all, budget);
        }
    }
}

/* Returns the conditions on the value of an undeclared member whose name is in the class `one`. Each schema of the
 * shape adds conditions. A schema with patterns that match the name adds the schemas of these patterns. Any other
 * schema adds its additionalProperties. `are_known` is false if some pattern has no automaton. In this case, a schema
 * with patterns adds no additionalProperties, because the unknown pattern could match the name. */
node writer::undeclared_value(const shape &s, const name_class &one, bool are_known)
{
    node conditions;
    for (const schema_json *source : s.object_sources) {
        const schema_json *expressions = object_in(*source, "patternProperties");
        bool is_met = false;
        for (const std::string &pattern : one.met) {
            if (expressions != nullptr && expressions->contains(pattern)) {
                conditions.push_back({&(*expressions)[pattern]});
                is_met = true;
            }
        }
        if (!is_met && source->contains("additionalProperties") && (are_known || expressions == nullptr)) {
            conditions.push_back({&(*source)["additionalProperties"]});
        }
    }
    return shapes.node_of(std::move(conditions));
}

/* Splits the set of names `all` into classes. All names of a class match the same patterns of `expressions`. The value
 * of a name that matches two patterns must satisfy the schemas of both. n patterns can make 2^n classes, one for each
 * combination of matching patterns. NAME_CLASSES_MAX therefore limits the number of classes. */
std::vector<writer::name_class> writer::classes_of(automaton all, const std::vector<std::string> &expressions)
{
    std::vector<name_class> classes;
    classes.push_back({std::move(all), {}});
    for (const std::string &expression : expressions) {
        const automaton &pattern = *patterns.find(expression, nullptr);
        std::vector<name_class> split;
        for (name_class &one : classes) {
            name_class met = {automaton_of(automaton_operation::BOTH, one.names, pattern, budget), one.met};
            met.met.push_back(expression);
            split.push_back(std::move(met));
            split.push_back(
                {automaton_of(automaton_operation::FIRST_ONLY, one.names, pattern, budget), std::move(one.met)});
        }
        split.erase(std::remove_if(split.begin(), split.end(), [](const auto &c) { return c.names.is_empty(); }),
                    split.end());
        classes = std::move(split);
        if (classes.size() > NAME_CLASSES_MAX) {
            throw grammar_beyond("patternProperties overlap in too many ways");
        }
    }
    return classes;
}

/* Returns the classes of undeclared member names, and for each class the conditions on the members' values. The list is
 * empty if at least one schema of the shape has additionalProperties: false and no patterns. This schema forbids
 * undeclared members. Other schemas of the shape may allow them, but a value must satisfy all schemas. If the names
 * cannot be split into classes, the only class has all undeclared names and no conditions. Declared names stay excluded
 * even then. Otherwise a model could write a declared member once more, with a value that the member's schema
 * forbids. */
std::vector<writer::undeclared> writer::undeclared_of(const shape &s, const node &n,
                                                      const std::vector<std::string> &declared)
{
    std::vector<std::string> expressions;
    bool are_known = true, is_closed = false;
    for (const schema_json *source : s.object_sources) {
        const schema_json *properties = object_in(*source, "patternProperties");
        is_closed =
            is_closed || ((properties == nullptr || properties->empty()) && source->contains("additionalProperties") &&
                          (*source)["additionalProperties"] == false);
        for (auto it = properties != nullptr ? properties->begin() : schema_json::const_iterator();
             properties != nullptr && it != properties->end(); ++it) {
            std::string why;
            if (patterns.find(it.key(), &why) == nullptr) {
                shapes.give_up(*source, "the keyword patternProperties: " + why);
                are_known = false;
            } else {
                add_once(expressions, it.key());
            }
        }
    }
    std::vector<undeclared> found;
    if (is_closed) {
        return found;
    }
    automaton others = automaton_of_other_texts(declared, budget);
    const bool is_one_class = s.names.empty() && expressions.empty(); /* if true, nothing in the `try` block throws, so
                                                                       * `others` can be moved */
    try {
        automaton all = is_one_class ? std::move(others) : others;
        narrow_names(s, &all);
        for (name_class &one : classes_of(std::move(all), are_known ? expressions : std::vector<std::string>())) {
            if (!one.names.is_empty()) {
                const node value = undeclared_value(s, one, are_known);
                found.push_back({std::move(one.names), value});
            }
        }
    } catch (const grammar_beyond &e) {
        shapes.give_up(*n.front().schema, e.what());
        found.assign(1, {std::move(others), {}});
    }
    return found;
}

const char *writer::name_opening() const
{
    return out.syntax() == value_syntax::JSON ? "\"\\\"\" " : "";
}

/* Adds to `ways` the GBNF alternative "the member, then `rest`". */
void writer::add_member(const object_plan::member &member, const std::string &rest, std::vector<std::string> *ways)
{
    if (!member.value.empty() && !rest.empty()) {
        ways->push_back(out.name_with_colon(member.name) + " " + member.value + " ws " + rest);
    }
}

/* Adds to `ways` one GBNF alternative for each class of undeclared members: "a member of this class, then everything up
 * to the object's end". */
void writer::add_others(object_plan &plan, size_t at, size_t n_written, std::vector<std::string> *ways)
{
    const std::string rest = plan.others.empty() ? "" : rest_from(plan, at, n_written + 1);
    for (const std::string &other : plan.others) {
        add_once(*ways, rest.empty() ? "" : other + " " + rest);
    }
}

/* Returns the rule for an object's text from the name of the next member to the closing brace. The next member can be a
 * declared or an undeclared one. */
std::string writer::any_name_from(object_plan &plan, size_t at, size_t n_written)
{
    const std::string declared = names_from(plan, at, n_written);
    if (!plan.has_others_between || plan.others.empty() || plan.counted(n_written) >= plan.most) {
        return declared;
    }
    std::vector<std::string> ways;
    add_once(ways, declared);
    add_others(plan, at, n_written, &ways);
    return ways.empty() ? "" : out.add(either(ways));
}

/* The members of an object are written by two kinds of rules that refer to each other. A names_from rule begins with a
 * member's name. A rest_from rule begins with the comma before a name, or with the closing brace. For example, let `a`
 * be required, `b` optional, and undeclared members forbidden:
 *
 *   names_from(a)  the name a, its value, rest_from(b)
 *   rest_from(b)   "," names_from(b) | "}"
 *   names_from(b)  the name b, its value, rest_from(end)
 *
 * A rule depends only on the next member. So there are about as many rules as members, and not one rule for each set of
 * members that can follow. If the number of members is limited, a rule also depends on how many members precede it. The
 * plan stores each rule by the next member and the number of members that precede it.
 *
 * Returns the rule for an object's text from the name of the next member to the closing brace. The next member is
 * member `at` or a later declared member. Returns "" if the object cannot be completed. */
std::string writer::names_from(object_plan &plan, size_t at, size_t n_written)
{
    n_written = plan.counted(n_written);
    if (n_written >= plan.most) {
        return "";
    }
    const auto key = std::make_pair(at, n_written);
    const auto found = plan.names.find(key);
    if (found != plan.names.end()) {
        return found->second;
    }
    std::vector<std::string> ways;
    if (plan.is_unordered) {
        for (size_t i = 0; i < plan.members.size(); i++) {
            const size_t with = at | size_t{1} << i;
            add_member(plan.members[i], with == at ? "" : rest_from(plan, with, n_written + 1), &ways);
        }
    } else if (at < plan.members.size()) {
        const object_plan::member &member = plan.members[at];
        add_member(member, member.value.empty() ? "" : rest_from(plan, at + 1, n_written + 1), &ways);
        const std::string others = member.is_required ? "" : names_from(plan, at + 1, n_written);
        if (ways.empty()) {
            return plan.names[key] = others;
        }
        add_once(ways, others);
    } else if (!plan.has_others_between) {
        add_others(plan, at, n_written, &ways);
    }
    return plan.names[key] = ways.empty() ? "" : out.add(either(ways));
}

/* Returns the rule of everything that follows a member and the blanks after it. Where undeclared members can follow,
 * the rule refers to itself, because any number of them is allowed. In this case, the rule's name is reserved before
 * the rule is written. */
std::string writer::rest_from(object_plan &plan, size_t at, size_t n_written)
{
    n_written = plan.counted(n_written);
    const auto key = std::make_pair(at, n_written);
    const auto found = plan.rests.find(key);
    if (found != plan.rests.end()) {
        return found->second;
    }
    const bool is_recursive = (plan.has_others_between || at == plan.members.size()) && !plan.others.empty();
    std::string name = is_recursive ? out.reserve() : "";
    plan.rests[key] = name;
    std::vector<std::string> ways;
    const std::string names = any_name_from(plan, at, n_written);
    if (!names.empty()) {
        ways.push_back(std::string("\",\" ws ") + name_opening() + names);
    }
    if (plan.has_needed(at) && n_written >= plan.least) {
        ways.push_back("\"}\"");
    }
    if (ways.empty()) {
        return plan.rests[key] = "";
    }
    if (is_recursive) {
        out.define(name, either(ways));
    } else {
        name = out.add(either(ways));
    }
    return plan.rests[key] = name;
}

/* For Gemma, orders the members by name. Gemma's templates sort the members of declared tools and of past tool calls by
 * name. So the model writes members in this order, too. */
void writer::order_members(object_plan *plan)
{
    if (out.syntax() == value_syntax::JSON) {
        return;
    }
    std::sort(plan->members.begin(), plan->members.end(), [](const auto &a, const auto &b) { return a.name < b.name; });
    plan->is_unordered = plan->members.size() <= UNORDERED_MAX;
    plan->has_others_between = true;
}

/* Returns GBNF for the objects of the shape, or "" if no object is valid. To count members, the grammar needs a copy of
 * all rules of the object for each number of members. So members are counted only if minProperties is larger than the
 * number of required members, or maxProperties is smaller than the number of possible members. */
std::string writer::object(const shape &s, const node &n)
{
    object_plan plan;
    if (!plan_members(s, &plan)) {
        return "";
    }
    if (plan.members.empty() && s.object_sources.empty() && s.names.empty() && s.members_least == 0 &&
        s.members_most == SIZE_MAX) {
        return "object";
    }
    order_members(&plan);
    std::vector<std::string> declared;
    for (const object_plan::member &member : plan.members) {
        declared.push_back(member.name);
    }
    for (const undeclared &one : undeclared_of(s, n, declared)) {
        const std::string element = value(one.value);
        const std::string name = element.empty() ? "" : out.names_with_colon(one.names);
        if (!name.empty()) {
            plan.others.push_back(name + " " + element + " ws");
        }
    }
    size_t n_required = 0, n_possible = 0;
    for (size_t i = 0; i < plan.members.size(); i++) {
        n_required += plan.members[i].is_required;
        n_possible += !plan.members[i].value.empty();
        plan.n_needed = plan.members[i].is_required ? i + 1 : plan.n_needed;
        plan.needed |= plan.is_unordered && plan.members[i].is_required ? size_t{1} << i : 0;
    }
    plan.least = s.members_least > n_required ? s.members_least : 0;
    plan.most = plan.others.empty() && s.members_most >= n_possible ? SIZE_MAX : s.members_most;
    if (s.members_most < n_required || (plan.others.empty() && s.members_least > n_possible)) {
        return "";
    }
    plan.is_counted = plan.least > 0 || plan.most != SIZE_MAX;
    const size_t n_counted = plan.most != SIZE_MAX ? plan.most : plan.least;
    if (plan.is_counted && (n_counted > COUNTED_MAX || (plan.members.size() + 1) * (n_counted + 1) > COUNTED_MAX)) {
        shapes.give_up(*n.front().schema, "minProperties or maxProperties: too many members to count");
        plan.is_counted = false;
        plan.least = 0;
        plan.most = SIZE_MAX;
    }
    const std::string names = any_name_from(plan, 0, 0);
    const bool may_be_empty = n_required == 0 && plan.least == 0;
    if (names.empty()) {
        return may_be_empty ? "\"{\" ws \"}\"" : "";
    }
    const std::string inner = name_opening() + names;
    return "\"{\" ws " + (may_be_empty ? out.add(inner + " | \"}\"") : inner);
}
