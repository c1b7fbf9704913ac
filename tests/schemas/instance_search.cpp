#include "schemas/instance_search.h"

#include <algorithm>
#include <iterator>

#include "text/grammar/character.h"

namespace {

constexpr size_t STEPS_MAX = 4'000'000; /* characters, each for one stack: about a second */
constexpr size_t SUBSETS_MAX = 20'000;  /* of the members of one object */

/* Writes a number as JSON.stringify does: 1.0 as 1. */
std::string scalar_text(const schema_json &value)
{
    const std::string text = value.dump(-1, ' ', false, schema_json::error_handler_t::replace);
    const bool is_whole = value.is_number_float() && text.size() > 2 && text.compare(text.size() - 2, 2, ".0") == 0;
    return is_whole ? text.substr(0, text.size() - 2) : text;
}

std::string head_of(const std::string &name)
{
    return scalar_text(name) + ": ";
}

void join(std::vector<uint32_t> &into, const std::vector<uint32_t> &more)
{
    std::vector<uint32_t> all;
    std::set_union(into.begin(), into.end(), more.begin(), more.end(), std::back_inserter(all));
    into = std::move(all);
}

} // namespace

instance_search::instance_search(const grammar &rules, const schema_json &schema) : g(rules), pushed_stacks(1)
{
    find_ranks(schema);
}

void instance_search::find_ranks(const schema_json &value)
{
    for (auto it = value.begin(); value.is_structured() && it != value.end(); ++it) {
        if (value.is_object() && it.key() == "properties" && it->is_object()) {
            for (auto one = it->begin(); one != it->end(); ++one) {
                ranks.try_emplace(one.key(), ranks.size());
            }
        }
        find_ranks(*it);
    }
}

size_t instance_search::rank_of(const std::string &name) const
{
    const auto found = ranks.find(name);
    return found != ranks.end() ? found->second : SIZE_MAX;
}

std::string instance_search::written(const schema_json &value, bool by_schema) const
{
    if (!value.is_structured()) {
        return scalar_text(value);
    }
    std::vector<schema_json::const_iterator> parts;
    for (auto it = value.begin(); it != value.end(); ++it) {
        parts.push_back(it);
    }
    if (value.is_object() && by_schema) {
        std::stable_sort(parts.begin(), parts.end(),
                         [&](const auto &a, const auto &b) { return rank_of(a.key()) < rank_of(b.key()); });
    }
    std::string out = value.is_object() ? "{" : "[";
    for (size_t i = 0; i < parts.size(); i++) {
        out += (i > 0 ? ", " : "") + (value.is_object() ? head_of(parts[i].key()) : "") + written(*parts[i], by_schema);
    }
    return out + (value.is_object() ? "}" : "]");
}

search_verdict instance_search::find(const schema_json &value, std::string *text)
{
    const auto is_end = [](const stacks &at) { return !at.empty() && at.front() == 0; };
    const stacks begin = start();
    for (const bool by_schema : {false, true}) {
        *text = written(value, by_schema);
        if (is_end(after_text(begin, *text))) {
            return search_verdict::TAKEN;
        }
    }
    text->clear();
    const auto reached = [&](effort how_hard) {
        known.clear();
        n_steps = 0;
        is_cut = false;
        tried = how_hard;
        return is_end(after(begin, value));
    };
    if (!reached(effort::ANY_NUMBER_OF_TIMES) && !is_cut) {
        return search_verdict::FORBIDDEN;
    }
    if (reached(effort::TWO_ORDERS) || reached(effort::ALL_ORDERS)) {
        return search_verdict::TAKEN;
    }
    return is_cut ? search_verdict::UNDECIDED : search_verdict::FORBIDDEN;
}

/* ---- positions ----------------------------------------------------------------------------------------------------- */

uint32_t instance_search::pushed(uint32_t element, uint32_t below)
{
    const auto [found, is_new] = stack_numbers.try_emplace(static_cast<uint64_t>(element) << 32 | below,
                                                           static_cast<uint32_t>(pushed_stacks.size()));
    if (is_new) {
        pushed_stacks.emplace_back(element, below);
    }
    return found->second;
}

/* The stack after its innermost element. */
uint32_t instance_search::popped(uint32_t stack)
{
    const auto [element, below] = pushed_stacks[stack];
    return g.elements[element + 1].ends_sequence() ? below : pushed(element + 1, below);
}

void instance_search::open_rule(uint32_t rule, uint32_t below, stacks &todo)
{
    for (uint32_t i = g.rules[rule];; i++) {
        todo.push_back(g.elements[i].ends_sequence() ? below : pushed(i, below));
        while (!g.elements[i].ends_sequence()) {
            i++;
        }
        if (g.elements[i].is == grammar_element::END) {
            return;
        }
    }
}

instance_search::stacks instance_search::expanded(stacks &todo)
{
    stacks found;
    n_expansions++;
    while (!todo.empty()) {
        const uint32_t id = todo.back();
        todo.pop_back();
        last_seen.resize(pushed_stacks.size(), 0);
        if (std::exchange(last_seen[id], n_expansions) == n_expansions) {
            continue;
        }
        if (id != 0 && g.elements[pushed_stacks[id].first].is == grammar_element::RULE) {
            open_rule(g.elements[pushed_stacks[id].first].value, popped(id), todo);
        } else {
            found.push_back(id);
        }
    }
    std::sort(found.begin(), found.end());
    return found;
}

instance_search::stacks instance_search::start()
{
    stacks todo;
    open_rule(g.root, 0, todo);
    return expanded(todo);
}

instance_search::stacks instance_search::after_text(const stacks &from, const std::string &text)
{
    stacks at = from;
    character c;
    for (size_t i = 0; i < text.size() && !at.empty(); i++) {
        if (!c.take(static_cast<uint8_t>(text[i]))) {
            return {};
        }
        if (c.n_missing > 0) {
            continue;
        }
        stacks todo;
        n_steps += at.size();
        for (const uint32_t id : at) {
            const grammar_element &e = g.elements[pushed_stacks[id].first];
            if (id != 0 && e.is == grammar_element::CHARACTER && g.matches(e, c.value)) {
                todo.push_back(popped(id));
            }
        }
        at = expanded(todo);
    }
    return at;
}

/* ---- values -------------------------------------------------------------------------------------------------------- */

instance_search::stacks instance_search::after(const stacks &from, const schema_json &value)
{
    stacks all;
    for (const uint32_t stack : from) {
        join(all, after_one(stack, value));
    }
    return all;
}

instance_search::stacks instance_search::after_one(uint32_t stack, const schema_json &value)
{
    const auto found = known.find({&value, stack});
    if (found != known.end()) {
        return found->second;
    }
    if (n_steps > STEPS_MAX) {
        is_cut = true;
        return {};
    }
    const stacks from = {stack};
    stacks to = value.is_object()  ? after_object(from, value)
                : value.is_array() ? after_array(from, value)
                                   : after_text(from, scalar_text(value));
    return known.emplace(std::make_pair(&value, stack), std::move(to)).first->second;
}

instance_search::stacks instance_search::after_array(const stacks &from, const schema_json &value)
{
    stacks at = after_text(from, "[");
    for (size_t i = 0; i < value.size() && !at.empty(); i++) {
        at = after(i > 0 ? after_text(at, ", ") : at, value[i]);
    }
    return after_text(at, "]");
}

instance_search::stacks instance_search::after_member(const stacks &from, const member &next, bool is_first)
{
    return after(after_text(from, (is_first ? "" : ", ") + head_of(next.name)), *next.value);
}

/* Any member may be written any number of times, but each at least once somewhere: no order leads further than this. */
instance_search::stacks instance_search::any_number_of_times(const stacks &open, const std::vector<member> &members)
{
    std::vector<bool> is_written(members.size(), false);
    stacks reached, fresh;
    const auto write_all = [&](const stacks &from, bool is_first) {
        stacks all;
        for (size_t i = 0; i < members.size(); i++) {
            const stacks to = after_member(from, members[i], is_first);
            is_written[i] = is_written[i] || !to.empty();
            join(all, to);
        }
        return all;
    };
    for (fresh = write_all(open, true); !fresh.empty();) {
        join(reached, fresh);
        const stacks next = write_all(fresh, false);
        fresh.clear();
        std::set_difference(next.begin(), next.end(), reached.begin(), reached.end(), std::back_inserter(fresh));
    }
    const bool are_all = std::find(is_written.begin(), is_written.end(), false) == is_written.end();
    return are_all ? after_text(reached, "}") : stacks();
}

/* From the sets of k written members to those of k + 1. */
instance_search::stacks instance_search::in_any_order(const stacks &open, const std::vector<member> &members)
{
    std::map<uint64_t, stacks> layer = {{0, open}};
    size_t n_subsets = 0;
    for (size_t n = 0; n < members.size() && !layer.empty(); n++) {
        std::map<uint64_t, stacks> next;
        for (const auto &[subset, at] : layer) {
            for (size_t i = 0; i < members.size(); i++) {
                const uint64_t bit = uint64_t{1} << i;
                stacks to = (subset & bit) != 0 ? stacks() : after_member(at, members[i], n == 0);
                if (!to.empty()) {
                    join(next[subset | bit], to);
                }
            }
            if (++n_subsets > SUBSETS_MAX || n_steps > STEPS_MAX) {
                is_cut = true;
                return in_two_orders(open, members);
            }
        }
        layer = std::move(next);
    }
    return layer.empty() ? stacks() : after_text(layer.begin()->second, "}");
}

/* The next member is always the first one that can be written: in the order of the instance, and in the schema's. */
instance_search::stacks instance_search::in_two_orders(const stacks &open, std::vector<member> members)
{
    stacks all;
    for (size_t n_sorted = 0; n_sorted < 2; n_sorted++) {
        std::vector<member> left = members;
        stacks at = open;
        while (!left.empty() && !at.empty()) {
            stacks next;
            for (size_t i = 0; i < left.size() && next.empty(); i++) {
                next = after_member(at, left[i], left.size() == members.size());
                if (!next.empty()) {
                    left.erase(left.begin() + static_cast<long>(i));
                }
            }
            at = next;
        }
        join(all, after_text(at, "}"));
        std::stable_sort(members.begin(), members.end(),
                         [&](const member &a, const member &b) { return rank_of(a.name) < rank_of(b.name); });
    }
    return all;
}

instance_search::stacks instance_search::after_object(const stacks &from, const schema_json &value)
{
    const stacks open = after_text(from, "{");
    if (open.empty() || value.empty()) {
        return after_text(open, "}");
    }
    std::vector<member> members;
    for (auto it = value.begin(); it != value.end(); ++it) {
        members.push_back({it.key(), &*it});
    }
    switch (tried) {
    case effort::ANY_NUMBER_OF_TIMES: return any_number_of_times(open, members);
    case effort::TWO_ORDERS: return in_two_orders(open, std::move(members));
    default: break;
    }
    if (any_number_of_times(open, members).empty()) {
        return {};
    }
    if (members.size() > 64) {
        is_cut = true;
        return in_two_orders(open, std::move(members));
    }
    return in_any_order(open, members);
}
