#include "text/schema/regex_automaton.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "text/grammar/regex.h"

namespace {

constexpr size_t NODES_MAX = 20000; /* limit on the nodes of the nondeterministic automaton. a{9} takes nine copies of
                                     * the nodes of a */

/* A regular expression as a nondeterministic automaton (Thompson's construction), which is then made deterministic. A
 * node consumes a character, or continues to two other nodes without consuming a character. The automaton is built from
 * the end of the expression. So the node after each part exists before the part is built. Each set of nodes that some
 * string can reach becomes a state of the deterministic automaton. For example, (a|b)*a(a|b){n} has 2^n such sets.
 * States and work are therefore limited.
 *
 * The beginning and the end of a string are treated as special characters, REGEX_BEGIN and REGEX_END. The anchors ^ and
 * $ consume them. So an anchor can be anywhere in an expression, also in one of several alternatives. Before and after
 * the expression there is a loop over any characters, because a pattern can match anywhere in a string. */
class net {
  public:
    net(const regex_part &root, work_budget &spent) : budget(spent)
    {
        nodes.push_back({{}, 0, 0});
        regex_part any;
        any.is = regex_part::SET;
        any.set = {{0, REGEX_END}};
        const uint32_t after = loop(any, 0);
        first = loop(any, built(root, after));
    }

    automaton deterministic()
    {
        todo = {first};
        close();
        const node_set start = reached;
        step_all(start, REGEX_BEGIN);
        (void)state_reached();
        for (size_t i = 0; i < sets.size(); i++) {
            step_all(*sets[i], REGEX_END);
            out.states[i].is_end = !reached.empty() && reached.front() == 0;
            find_ways(static_cast<uint32_t>(i), *sets[i]);
        }
        return automaton_reduced(out, budget);
    }

  private:
    struct node {
        character_set set; /* if empty, the node continues to both `next` and `other` without a character */
        uint32_t next, other;
    };
    work_budget &budget;
    static constexpr uint32_t ANYTHING = 2; /* the node that consumes any character after a match */
    std::vector<node> nodes;                /* node 0 is reached when the string has matched */
    uint32_t first = 0;
    using node_set = std::vector<uint32_t>; /* ascending node numbers */
    struct set_hash {
        size_t operator()(const node_set &set) const
        {
            return std::accumulate(set.begin(), set.end(), UINT64_C(0xcbf29ce484222325),
                                   [](uint64_t hash, uint32_t at) {
                                       hash = (hash ^ at) * UINT64_C(0x9e3779b97f4a7c15);
                                       return hash ^ hash >> 32;
                                   });
        }
    };
    std::unordered_map<node_set, uint32_t, set_hash> numbers; /* number of the deterministic state for each set of
                                                               * nodes */
    std::vector<const node_set *> sets;                       /* the set of nodes of each state */
    std::vector<uint32_t> seen, lows;
    uint32_t visit = 0;
    std::vector<uint32_t> todo; /* nodes that close() has not visited yet */
    node_set reached;           /* nodes reached by the last step */
    automaton out;

    uint32_t added(character_set set, uint32_t next, uint32_t other)
    {
        if (nodes.size() >= NODES_MAX) {
            throw grammar_beyond("the regular expression is too large");
        }
        nodes.push_back({std::move(set), next, other});
        return static_cast<uint32_t>(nodes.size() - 1);
    }

    uint32_t loop(const regex_part &p, uint32_t after)
    {
        const uint32_t split = added({}, after, after);
        const uint32_t body = built(p, split);
        nodes[split].next = body;
        return split;
    }

    uint32_t built(const regex_part &p, uint32_t after)
    {
        switch (p.is) {
        case regex_part::SET: return p.set.empty() ? added({{1, 0}}, after, after) : added(p.set, after, after);
        case regex_part::SEQUENCE:
            for (size_t i = p.parts.size(); i-- > 0;) {
                after = built(p.parts[i], after);
            }
            return after;
        case regex_part::EITHER: {
            uint32_t all = built(p.parts[0], after);
            for (size_t i = 1; i < p.parts.size(); i++) {
                const uint32_t one = built(p.parts[i], after);
                all = added({}, all, one);
            }
            return all;
        }
        case regex_part::REPEATED: return repeated(p, after);
        }
        return after;
    }

    uint32_t repeated(const regex_part &p, uint32_t after)
    {
        if (p.least > NODES_MAX || (p.most != REGEX_WITHOUT_END && p.most > NODES_MAX)) {
            throw grammar_beyond("the regular expression is too large");
        }
        if (p.most == REGEX_WITHOUT_END) {
            after = loop(p.parts[0], after);
        }
        const uint32_t skipped = after;
        for (uint64_t i = p.least; p.most != REGEX_WITHOUT_END && i < p.most; i++) {
            const uint32_t body = built(p.parts[0], after);
            after = added({}, body, skipped);
        }
        for (uint64_t i = 0; i < p.least; i++) {
            after = built(p.parts[0], after);
            if (nodes.size() + i > NODES_MAX) { /* `+ i` limits how often a part without nodes is repeated */
                throw grammar_beyond("the regular expression is too large");
            }
        }
        return after;
    }

    /* Finds all nodes that can be reached from the nodes in `todo` without consuming a character. Stores in `reached`
     * the nodes that consume a character, and node 0 if it was found. Node 0 is the end of the expression. For each
     * node, `seen` has the number of the last call that visited it. Clearing a flag per node would take longer than the
     * search. */
    void close()
    {
        seen.resize(nodes.size(), 0);
        visit++;
        reached.clear();
        while (!todo.empty()) {
            const uint32_t at = todo.back();
            todo.pop_back();
            if (seen[at] == visit) {
                continue;
            }
            seen[at] = visit;
            budget.spend(1);
            if (at == 0 || !nodes[at].set.empty()) {
                reached.push_back(at);
            } else {
                todo.push_back(nodes[at].next);
                todo.push_back(nodes[at].other);
            }
        }
        if (seen[ANYTHING] == visit) { /* after a match, every string is accepted, so one state is enough for all sets
                                        * of nodes after a match */
            reached = {0, ANYTHING};
        }
        std::sort(reached.begin(), reached.end());
    }

    void step(const node_set &from, uint32_t value)
    {
        budget.spend(work_budget::TRANSITION + from.size());
        for (const uint32_t at : from) {
            const bool takes = std::any_of(nodes[at].set.begin(), nodes[at].set.end(),
                                           [&](const auto &r) { return r.low <= value && value <= r.high; });
            if (takes) {
                todo.push_back(nodes[at].next);
            }
        }
        close();
    }

    /* Consumes the special character `anchor` repeatedly, because several anchors can match at one position. In
     * (a$|,)+$, both $ match at the end of the string. */
    void step_all(const node_set &from, uint32_t anchor)
    {
        step(from, anchor);
        for (node_set all, more = reached; more.size() > all.size() && more.front() != 0;) {
            all = more;
            step(all, anchor);
            more.clear();
            std::set_union(all.begin(), all.end(), reached.begin(), reached.end(), std::back_inserter(more));
            reached = more;
        }
    }

    /* Returns the number of the deterministic state for the set of nodes `reached`. Makes a new state if this set has
     * not been reached before. */
    uint32_t state_reached()
    {
        const auto [found, is_new] = numbers.try_emplace(reached, static_cast<uint32_t>(sets.size()));
        if (is_new) {
            if (sets.size() >= AUTOMATON_STATES_MAX) {
                throw grammar_beyond("the regular expression takes more than " + std::to_string(AUTOMATON_STATES_MAX) +
                                     " states");
            }
            sets.push_back(&found->first);
            out.states.emplace_back();
        }
        return found->second;
    }

    /* Finds the transitions of a deterministic state. The bounds of all character ranges that the state's nodes consume
     * divide the characters into intervals. All characters of an interval lead to the same set of nodes, so one step
     * per interval is enough. */
    void find_ways(uint32_t number, const node_set &here)
    {
        lows.clear();
        for (const uint32_t at : here) {
            for (const grammar_range &r : nodes[at].set) {
                lows.push_back(r.low);
                lows.push_back(r.high + 1);
            }
        }
        std::sort(lows.begin(), lows.end());
        lows.erase(std::unique(lows.begin(), lows.end()), lows.end());
        for (size_t i = 0; i + 1 < lows.size() && lows[i] <= CHARACTER_LAST; i++) {
            step(here, lows[i]);
            if (!reached.empty()) {
                const uint32_t state = state_reached();
                out.states[number].ways.push_back({lows[i], std::min(lows[i + 1] - 1, CHARACTER_LAST), state});
            }
        }
    }
};

/* text[at] is the ( of a group. Returns the position of the ) that closes this group. */
size_t end_of_group(const std::string &text, size_t at)
{
    size_t depth = 0;
    for (bool is_set = false; at < text.size(); at++) {
        const char c = text[at];
        if (c == '\\') {
            at++;
        } else if (is_set) {
            is_set = c != ']';
        } else if (c == '[') {
            is_set = true;
        } else if (c == '(') {
            depth++;
        } else if (c == ')' && --depth == 0) {
            return at;
        }
    }
    throw grammar_fault("the regular expression has a ( that is not closed");
}

/* Returns whether the expression has a | outside of groups. */
bool has_ways(const std::string &text)
{
    size_t depth = 0;
    bool is_set = false;
    for (size_t at = 0; at < text.size(); at++) {
        const char c = text[at];
        if (c == '\\') {
            at++;
        } else if (is_set) {
            is_set = c != ']';
        } else if (c == '[') {
            is_set = true;
        } else if (c == '(' || c == ')') {
            depth += c == '(' ? 1 : SIZE_MAX;
        } else if (c == '|' && depth == 0) {
            return true;
        }
    }
    return false;
}

automaton simple_automaton(const std::string &expression, work_budget &budget)
{
    return net(regex_read(expression), budget).deterministic();
}

} // namespace

/* A look-ahead at the start is a condition on the whole string. The result is a product of the automata of the
 * look-ahead and of the rest of the expression. For example, ^(?!ab)a accepts the strings that begin with a, but not
 * with ab. A look-ahead elsewhere is refused, because it is a condition only on the rest of the string after some
 * position. A | outside of groups after a look-ahead is refused, because the look-ahead would apply to only one of the
 * alternatives. */
automaton regex_automaton(const std::string &expression, work_budget &budget)
{
    struct condition {
        std::string expression;
        bool is_negated;
    };
    std::vector<condition> conditions;
    std::string rest = expression;
    while (rest.compare(0, 4, "^(?!") == 0 || rest.compare(0, 4, "^(?=") == 0) {
        const size_t close = end_of_group(rest, 1);
        conditions.push_back({"^(?:" + rest.substr(4, close - 4) + ")", rest[3] == '!'});
        rest = "^" + rest.substr(close + 1);
    }
    if (!conditions.empty() && has_ways(rest)) {
        regex_refuse("a look-around in one of several alternatives");
    }
    automaton out = simple_automaton(rest, budget);
    for (const condition &c : conditions) {
        out = automaton_of(c.is_negated ? automaton_operation::FIRST_ONLY : automaton_operation::BOTH, out,
                           simple_automaton(c.expression, budget), budget);
    }
    return out;
}
