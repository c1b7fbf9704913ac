#include "text/schema/writer.h"

#include <algorithm>
#include <set>

#include "text/grammar/regex_grammar.h"

namespace {

const char *const NO_TEXT = "[^\\x00-\\U0010FFFF]"; /* an empty set of characters, which matches nothing */
/* limit on the strings of an enum that are written one by one. More strings become a prefix tree */
constexpr size_t TEXTS_MAX = 8;

} // namespace

std::string writer::either(const std::vector<std::string> &ways)
{
    std::string all;
    for (const std::string &way : ways) {
        all += (all.empty() ? "" : " | ") + way;
    }
    return all;
}

void writer::add_once(std::vector<std::string> &to, std::string way)
{
    if (!way.empty() && std::find(to.begin(), to.end(), way) == to.end()) {
        to.push_back(std::move(way));
    }
}

/* Returns the rule of a node (the set of conditions on a value, shape.h). If a schema refers to itself, its node is
 * reached again while the node's rule is being written. In this case, the rule's name is reserved, and the rule is
 * defined at the end. Returns "" for a node that no value satisfies. If the name was reserved for such a node, other
 * rules refer to this name. So a rule that matches nothing is defined under the name. After the budget is spent, every
 * node allows any value, so that the grammar is complete. */
std::string writer::value(const node &conditions)
{
    if (conditions.empty() || level >= levels_max) {
        return "value";
    }
    const node n = shapes.without_repetitions(conditions);
    if (!budget.take(work_budget::NODE)) {
        shapes.give_up(*n.front().schema, work_budget::beyond());
        return "value";
    }
    known_node &entry = known[n]; /* the reference stays valid while other entries are added */
    if (entry.is_open && !entry.is_reserved) {
        entry.name = out.reserve();
        entry.is_reserved = true;
    }
    if (entry.is_open || !entry.name.empty() || entry.is_reserved) {
        return entry.name;
    }
    entry.is_open = true;
    level++;
    const std::string body = all_shapes(n);
    level--;
    entry.is_open = false;
    if (entry.is_reserved) {
        out.define(entry.name, body.empty() ? NO_TEXT : body);
    } else {
        entry.is_reserved = body.empty(); /* no value satisfies the node */
        entry.name = body.empty() ? "" : out.add(body);
    }
    return entry.name;
}

/* Returns GBNF for all shapes of a node, that is for all alternatives of a schema. The values of all enums and consts
 * are collected and written together, each value once. Alternatives often repeat constants, and many strings can share
 * one prefix tree. */
std::string writer::all_shapes(const node &n)
{
    const std::vector<shape> all = shapes.shapes_of(n); /* copied, because the loop changes the cache to which the
                                                         * result of shapes_of refers */
    std::vector<std::string> ways;
    std::vector<const schema_json *> constants;
    std::set<std::string> known_constants;
    for (const shape &s : all) {
        if (s.is_anything()) {
            return "value";
        }
        if (!s.values.has_value()) {
            add_once(ways, one_shape(s, n));
            continue;
        }
        for (const schema_json *one : *s.values) {
            const std::string text = one->dump();
            const bool is_new =
                known_constants.count(text) == 0 && !is_excluded(s, *one) && known_constants.insert(text).second;
            if (is_new && shapes.is_kept(*one, n)) { /* a value that this shape excludes is tested again in another
                                                      * shape, which can allow it */
                constants.push_back(one);
            }
        }
    }
    add_once(ways, values(constants));
    return either(ways);
}

bool writer::is_excluded(const shape &s, const schema_json &value) const
{
    if (budget.is_spent() || !budget.take(s.excluded.size())) {
        return false; /* the budget is spent, so the value is not tested (compile.cpp handles a spent budget) */
    }
    return std::any_of(s.excluded.begin(), s.excluded.end(), [&](const schema_json *one) { return *one == value; });
}

/* Returns GBNF for the values of a shape, with one alternative for each type, or "" if there are no values. */
std::string writer::one_shape(const shape &s, const node &n)
{
    std::vector<std::string> ways;
    if (std::any_of(s.excluded.begin(), s.excluded.end(), [](const auto *one) { return one->is_structured(); })) {
        shapes.give_up(*n.front().schema, "objects and lists that are excluded by not cannot be enforced");
    }
    if ((s.types & json_type::OBJECT) != 0) {
        add_once(ways, object(s, n));
    }
    if ((s.types & json_type::ARRAY) != 0) {
        add_once(ways, array(s, n));
    }
    if ((s.types & json_type::STRING) != 0) {
        add_once(ways, text(s, n));
    }
    if ((s.types & json_type::NUMBER) != 0) {
        add_once(ways, number(s, n));
    }
    for (const bool truth : {true, false}) {
        if ((s.types & json_type::BOOLEAN) != 0 && !is_excluded(s, truth)) {
            add_once(ways, truth ? "\"true\"" : "\"false\"");
        }
    }
    if ((s.types & json_type::NUL) != 0 && !is_excluded(s, nullptr)) {
        add_once(ways, "\"null\"");
    }
    return either(ways);
}

std::string writer::values(const std::vector<const schema_json *> &all)
{
    std::vector<std::string> texts, ways;
    for (const schema_json *one : all) {
        if (one->is_string()) {
            texts.push_back(one->get<std::string>());
        }
    }
    const bool are_together = texts.size() > TEXTS_MAX;
    if (are_together) {
        add_once(ways, out.text_value(automaton_of_texts(texts, budget)));
    }
    for (const schema_json *one : all) {
        if (!are_together || !one->is_string()) {
            add_once(ways, literal(*one));
        }
    }
    return either(ways);
}

/* Returns GBNF that matches only this value, with blanks where JSON allows them. Returns "" if GBNF cannot express the
 * value. */
std::string writer::literal(const schema_json &value)
{
    if (value.is_string()) {
        return out.syntax() == value_syntax::JSON
                   ? grammar_literal("\"" + json_escaped(value.get_ref<const std::string &>()) + "\"")
                   : out.text_value(automaton_of_texts({value.get_ref<const std::string &>()}, budget));
    }
    if (!value.is_structured()) {
        std::string number = value.dump();
        const bool is_whole =
            value.is_number_float() && number.size() > 2 && number.compare(number.size() - 2, 2, ".0") == 0;
        if (is_whole) {
            number.resize(number.size() - 2);
            return grammar_literal(number) + " \".0\"?";
        }
        return grammar_literal(number);
    }
    std::string all = value.is_object() ? "\"{\" ws" : "\"[\" ws";
    size_t n = 0;
    for (auto it = value.begin(); it != value.end(); ++it) {
        const std::string name = value.is_object() ? out.name_with_colon(it.key()) : "";
        const std::string one = literal(*it);
        if (one.empty() || (value.is_object() && name.empty())) {
            return "";
        }
        all += n++ > 0 ? " \",\" ws" : "";
        all += value.is_object() ? std::string(" ") + name_opening() + name : "";
        all += " " + one + " ws";
    }
    return all + (value.is_object() ? " \"}\"" : " \"]\"");
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

namespace {

/* Returns the schema that `source` has for the array item at this index. NULL means no schema. */
const schema_json *item_of(const schema_json &source, size_t at)
{
    const bool is_list = source.contains("items") && source["items"].is_array();
    const char *first = is_list ? "items" : "prefixItems", *rest = is_list ? "additionalItems" : "items";
    if (source.contains(first) && source[first].is_array() && at < source[first].size()) {
        return &source[first][at];
    }
    return source.contains(rest) ? &source[rest] : nullptr;
}

size_t n_first(const schema_json &source)
{
    const bool is_list = source.contains("items") && source["items"].is_array();
    const char *first = is_list ? "items" : "prefixItems";
    return source.contains(first) && source[first].is_array() ? source[first].size() : 0;
}

} // namespace

/* Returns the rules of an array's items. Each item that has its own schema has its own rule. All items after these
 * share one rule. If no value is valid for an item, the array must end before this item. */
writer::item_plan writer::items_of(const shape &s)
{
    item_plan plan = {{}, "value", s.items_least, s.items_most};
    size_t n = 0;
    for (const schema_json *source : s.array_sources) {
        n = std::max(n, n_first(*source));
    }
    for (size_t i = 0; i <= n && i < plan.most; i++) {
        node item;
        for (const schema_json *source : s.array_sources) {
            if (const schema_json *one = item_of(*source, i)) {
                item.push_back({one});
            }
        }
        const std::string element = value(shapes.node_of(std::move(item)));
        if (element.empty()) {
            plan.rest.clear();
            plan.most = i;
        } else if (i < n) {
            plan.first.push_back(element);
        } else {
            plan.rest = element;
        }
    }
    return plan;
}

/* Returns GBNF for an array's text from the comma before item `at`, or from the closing bracket, to the end of the
 * array. Returns "" if the array cannot be completed. Each optional item has a rule that refers to the rule of the next
 * item. So these rules are written from the last to the first. The required items are written in one pass from the
 * first to the last. Earlier versions joined the required items one by one from the end. This took a level of the stack
 * for each item, and the time grew with the square of the number of items. */
std::string writer::rest_of_array(const item_plan &plan, size_t at)
{
    const size_t n_listed = std::min(plan.first.size(), plan.most), n_at_end = std::max(at, n_listed);
    std::string rest = n_at_end >= plan.least ? "\"]\"" : "";
    if (n_at_end < plan.most) {
        const std::string unit = out.add("\",\" ws " + plan.rest + " ws");
        const std::string more = out.repeated(unit, plan.least - std::min(plan.least, n_at_end),
                                              plan.most == SIZE_MAX ? SIZE_MAX : plan.most - n_at_end);
        rest = more + (more.empty() ? "" : " ") + "\"]\"";
    }
    const size_t n_required = std::max(at, std::min(n_listed, plan.least));
    for (size_t i = n_listed; i-- > n_required;) {
        if (budget.is_spent()) {
            return out.repeated(out.add("\",\" ws value ws"), 0, SIZE_MAX) + " \"]\"";
        }
        rest = rest.empty() ? "\"]\"" : out.add("\",\" ws " + plan.first[i] + " ws " + rest + " | \"]\"");
    }
    std::string all;
    for (size_t i = at; i < n_required && !rest.empty(); i++) {
        all += "\",\" ws " + plan.first[i] + " ws ";
    }
    return rest.empty() ? "" : all + rest;
}

/* Returns GBNF for an array in which at least one item matches `contained`. Any number of other items can be before and
 * after this item, and they can match `contained`, too. */
std::string writer::array_with(const item_plan &plan, const std::string &contained)
{
    return "\"[\" ws " + out.repeated(out.add(plan.rest + " ws \",\" ws"), 0, SIZE_MAX) + " " + contained + " ws " +
           out.repeated(out.add("\",\" ws " + plan.rest + " ws"), 0, SIZE_MAX) + " \"]\"";
}

std::string writer::array(const shape &s, const node &n)
{
    item_plan plan = items_of(s);
    if (s.is_unique && plan.most > 1) {
        shapes.give_up(*n.front().schema, "the keyword uniqueItems cannot be enforced");
    }
    if (plan.least > plan.most) {
        return "";
    }
    if (!s.contained.empty()) {
        const bool is_simple =
            s.contained.size() == 1 && plan.first.empty() && plan.least <= 1 && plan.most == SIZE_MAX;
        if (is_simple) {
            node item = {s.contained.front()};
            for (const schema_json *source : s.array_sources) {
                if (const schema_json *one = item_of(*source, 0)) {
                    item.push_back({one});
                }
            }
            const std::string contained = value(shapes.node_of(std::move(item)));
            return contained.empty() || plan.rest.empty() ? "" : array_with(plan, contained);
        }
        shapes.give_up(*n.front().schema,
                       "the keyword contains together with other conditions on items cannot be enforced");
    }
    const std::string end = plan.least == 0 ? "\"]\"" : "";
    if (plan.most == 0) {
        return end.empty() ? "" : "\"[\" ws \"]\"";
    }
    const std::string &item = plan.first.empty() ? plan.rest : plan.first.front();
    const std::string more = rest_of_array(plan, 1);
    const std::string next = more.empty() ? "" : item + " ws " + more;
    if (next.empty() && end.empty()) {
        return "";
    }
    return "\"[\" ws " + (next.empty() || end.empty() ? next + end : out.add(next + " | " + end));
}
