#include "text/schema/automaton.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "text/grammar/character.h"

namespace {

constexpr uint32_t NOWHERE = UINT32_MAX;
constexpr size_t WAYS_MAX = 1 << 16; /* limit on the transitions of a product of two automata */

std::vector<uint32_t> characters_of(const std::string &text)
{
    std::vector<uint32_t> out;
    character c;
    for (const char byte : text) {
        if (!c.take(static_cast<uint8_t>(byte))) {
            throw grammar_fault("a text of the schema is not UTF-8");
        }
        if (c.n_missing == 0) {
            out.push_back(c.value);
        }
    }
    return out;
}

uint32_t target(const automaton::state &s, uint32_t value)
{
    const auto beyond = std::upper_bound(s.ways.begin(), s.ways.end(), value,
                                         [](uint32_t v, const automaton::way &w) { return v < w.low; });
    return beyond != s.ways.begin() && value <= (beyond - 1)->high ? (beyond - 1)->to : NOWHERE;
}

void add_way(std::vector<automaton::way> &ways, automaton::way next)
{
    if (!ways.empty() && ways.back().to == next.to && ways.back().high + 1 == next.low) {
        ways.back().high = next.high;
    } else {
        ways.push_back(next);
    }
}

/* For each state, the states with a transition to it, one entry per transition. All entries are in one array, because a
 * list per state takes longer to build. */
class predecessors {
  public:
    explicit predecessors(const automaton &a) : begins(a.states.size() + 2, 0)
    {
        for (const automaton::state &s : a.states) {
            for (const automaton::way &w : s.ways) {
                begins[w.to + 2]++;
            }
        }
        std::partial_sum(begins.begin(), begins.end(), begins.begin());
        states.resize(begins.back());
        for (uint32_t i = 0; i < a.states.size(); i++) {
            for (const automaton::way &w : a.states[i].ways) {
                states[begins[w.to + 1]++] = i; /* afterwards begins[s + 1] is the end of the range of s */
            }
        }
    }

    const uint32_t *begin(uint32_t of) const
    {
        return states.data() + begins[of];
    }

    const uint32_t *end(uint32_t of) const
    {
        return states.data() + begins[of + 1];
    }

  private:
    std::vector<uint32_t> begins, states;
};

/* Returns for each state whether an accepting state can be reached from it. */
std::vector<bool> living(const automaton &a)
{
    const predecessors from(a);
    std::vector<bool> lives(a.states.size(), false);
    std::vector<uint32_t> todo;
    for (uint32_t i = 0; i < a.states.size(); i++) {
        if (a.states[i].is_end) {
            lives[i] = true;
            todo.push_back(i);
        }
    }
    while (!todo.empty()) {
        const uint32_t at = todo.back();
        todo.pop_back();
        for (const uint32_t *before = from.begin(at); before != from.end(at); before++) {
            if (!lives[*before]) {
                lives[*before] = true;
                todo.push_back(*before);
            }
        }
    }
    return lives;
}

/* Classes of equivalent states (Hopcroft's algorithm). Two states are equivalent if both accept or both reject, and
 * each character leads from them to equivalent states. The algorithm starts with two classes, the accepting states and
 * all others. The algorithm splits classes until all states of a class lead to the same classes. After a split, the
 * largest part keeps the number of the class. Then only the states that lead to the smaller parts are examined. So each
 * state is examined at most log n times per transition. A simpler algorithm examines all states after every split. For
 * a chain of n states, this takes n * n steps. Every length and repetition in a pattern is such a chain. */
class partition {
  public:
    partition(const automaton &of_states, work_budget &spent)
        : a(of_states), budget(spent), of(a.states.size(), 0), members(1), from(a), is_changed(a.states.size(), false)
    {
        std::vector<uint32_t> ends, others;
        for (uint32_t i = 0; i < a.states.size(); i++) {
            (a.states[i].is_end ? ends : others).push_back(i);
        }
        members[0] = others.empty() ? ends : others;
        if (!others.empty() && !ends.empty()) {
            add_class(std::move(ends));
        }
        std::vector<uint32_t> todo(a.states.size());
        std::iota(todo.begin(), todo.end(), 0);
        while (!todo.empty()) {
            split(todo);
        }
    }

    const std::vector<uint32_t> &classes() const
    {
        return of;
    }

    size_t n_classes() const
    {
        return members.size();
    }

  private:
    const automaton &a;
    work_budget &budget;
    std::vector<uint32_t> of; /* class of each state */
    std::vector<std::vector<uint32_t>> members;
    const predecessors from;
    std::vector<bool> is_changed;

    /* States of one class whose transitions lead to the same classes by the same characters. */
    struct part {
        size_t signature, n; /* position and length of the part's signature in `signatures` */
        std::vector<uint32_t> states;
    };
    std::vector<uint32_t> signatures;                  /* signatures of all parts: ranges and target classes */
    std::unordered_multimap<uint64_t, size_t> part_of; /* parts by the hash of their signature */

    void add_class(std::vector<uint32_t> states)
    {
        for (const uint32_t state : states) {
            of[state] = static_cast<uint32_t>(members.size());
        }
        members.push_back(std::move(states));
    }

    /* Appends the state's signature (character ranges and their target classes). Returns its hash. */
    uint64_t sign(uint32_t state)
    {
        const size_t begin = signatures.size();
        for (const automaton::way &w : a.states[state].ways) {
            const size_t n = signatures.size();
            if (n > begin && signatures[n - 1] == of[w.to] && signatures[n - 2] + 1 == w.low) {
                signatures[n - 2] = w.high;
            } else {
                signatures.insert(signatures.end(), {w.low, w.high, of[w.to]});
            }
        }
        uint64_t hash = 0;
        for (size_t i = begin; i < signatures.size(); i++) {
            hash = (hash ^ signatures[i]) * UINT64_C(0x9e3779b97f4a7c15);
            hash ^= hash >> 32;
        }
        return hash;
    }

    bool is_signed(const part &one, size_t begin) const
    {
        const auto at = [&](size_t i) { return signatures.begin() + static_cast<std::ptrdiff_t>(i); };
        return std::equal(at(one.signature), at(one.signature + one.n), at(begin), signatures.end());
    }

    void add_to_part(uint32_t state, std::vector<part> &parts)
    {
        const size_t begin = signatures.size();
        const uint64_t hash = sign(state);
        const auto [first, last] = part_of.equal_range(hash);
        const auto found =
            std::find_if(first, last, [&](const auto &one) { return is_signed(parts[one.second], begin); });
        if (found != last) {
            signatures.resize(begin);
            parts[found->second].states.push_back(state);
            return;
        }
        part_of.emplace(hash, parts.size());
        parts.push_back({begin, signatures.size() - begin, {state}});
    }

    /* Splits class `number`. Its states in `changed` are grouped by signature, because classes to which they lead were
     * split. All other states of the class form one part. */
    std::vector<part> parts_of(uint32_t number, const uint32_t *changed, const uint32_t *end)
    {
        std::vector<part> parts;
        signatures.clear();
        part_of.clear();
        for (; changed != end; changed++) {
            budget.spend(work_budget::TRANSITION * (1 + a.states[*changed].ways.size()));
            add_to_part(*changed, parts);
        }
        std::sort(parts.begin(), parts.end(), [&](const part &l, const part &r) {
            const uint32_t *all = signatures.data();
            return std::lexicographical_compare(all + l.signature, all + l.signature + l.n, all + r.signature,
                                                all + r.signature + r.n);
        });
        part unchanged = {};
        for (const uint32_t state : members[number]) {
            if (!is_changed[state]) {
                unchanged.states.push_back(state);
            }
        }
        budget.spend(members[number].size() / 8);
        if (!unchanged.states.empty()) {
            parts.push_back(std::move(unchanged));
        }
        return parts;
    }

    /* `changed` contains states with a transition to a new class. Splits the classes of these states. Afterwards
     * `changed` contains the states with a transition to a class made by this call. */
    void split(std::vector<uint32_t> &changed)
    {
        for (const uint32_t state : changed) {
            is_changed[state] = true;
        }
        std::sort(changed.begin(), changed.end(),
                  [&](uint32_t l, uint32_t r) { return of[l] != of[r] ? of[l] < of[r] : l < r; });
        std::vector<part> moved;
        for (size_t i = 0, next = 0; i < changed.size(); i = next) {
            const uint32_t number = of[changed[i]];
            while (next < changed.size() && of[changed[next]] == number) {
                next++;
            }
            if (members[number].size() == 1) { /* a class of one state cannot be split */
                budget.spend(work_budget::TRANSITION * (1 + a.states[changed[i]].ways.size()));
                continue;
            }
            std::vector<part> parts = parts_of(number, changed.data() + i, changed.data() + next);
            const auto largest = std::max_element(parts.begin(), parts.end(), [](const auto &left, const auto &right) {
                return left.states.size() < right.states.size();
            });
            std::swap(*largest, parts.back());
            members[number] = std::move(parts.back().states);
            parts.pop_back();
            std::move(parts.begin(), parts.end(), std::back_inserter(moved));
        }
        for (const uint32_t state : changed) {
            is_changed[state] = false;
        }
        changed.clear();
        for (part &one : moved) {
            for (const uint32_t state : one.states) {
                changed.insert(changed.end(), from.begin(state), from.end(state));
            }
            add_class(std::move(one.states));
        }
        budget.spend(changed.size());
        std::sort(changed.begin(), changed.end());
        changed.erase(std::unique(changed.begin(), changed.end()), changed.end());
    }
};

/* Makes the product of two automata. A state of the product is a pair of their states. Only reachable pairs are made.
 * If one automaton has no transition for a character, its half of the pair becomes NOWHERE. The pair is needed, because
 * FIRST_ONLY and EITHER accept strings that one automaton rejects. */
class product {
  public:
    product(automaton_operation what, const automaton &first, const automaton &second, work_budget &spent)
        : operation(what), a(first), b(second), budget(spent)
    {}

    automaton made()
    {
        (void)state_of(a.is_empty() ? NOWHERE : 0, b.is_empty() ? NOWHERE : 0);
        for (size_t i = 0; i < pairs.size(); i++) {
            const auto [left, right] = pairs[i];
            out.states[i].is_end = is_end(left, right);
            find_ways(static_cast<uint32_t>(i), left, right);
        }
        return automaton_reduced(out, budget);
    }

  private:
    automaton_operation operation;
    const automaton &a, &b;
    work_budget &budget;
    automaton out;
    std::unordered_map<uint64_t, uint32_t> numbers; /* number of each pair of states */
    std::vector<std::pair<uint32_t, uint32_t>> pairs;
    std::vector<uint32_t> lows;       /* used by find_ways: starts of ranges */
    std::vector<automaton::way> ways; /* transitions of the state being made */
    size_t n_ways = 0;

    /* Looks up transitions of the state `from` for ascending characters. If `from` is NULL, every target is NOWHERE. */
    class follower {
      public:
        explicit follower(const automaton::state *from)
            : next(from != nullptr ? from->ways.data() : nullptr),
              end(from != nullptr ? next + from->ways.size() : nullptr)
        {}

        uint32_t target(uint32_t value)
        {
            while (next != end && next->high < value) {
                next++;
            }
            return next != end && next->low <= value ? next->to : NOWHERE;
        }

      private:
        const automaton::way *next, *end;
    };

    bool is_end(uint32_t left, uint32_t right) const
    {
        const bool l = left != NOWHERE && a.states[left].is_end, r = right != NOWHERE && b.states[right].is_end;
        switch (operation) {
        case automaton_operation::BOTH: return l && r;
        case automaton_operation::EITHER: return l || r;
        default: return l && !r;
        }
    }

    bool is_dead(uint32_t left, uint32_t right) const
    {
        switch (operation) {
        case automaton_operation::BOTH: return left == NOWHERE || right == NOWHERE;
        case automaton_operation::EITHER: return left == NOWHERE && right == NOWHERE;
        default: return left == NOWHERE;
        }
    }

    uint32_t state_of(uint32_t left, uint32_t right)
    {
        const auto [found, is_new] =
            numbers.try_emplace(static_cast<uint64_t>(left) << 32 | right, static_cast<uint32_t>(pairs.size()));
        if (is_new) {
            if (pairs.size() >= AUTOMATON_STATES_MAX) {
                throw grammar_beyond("the conditions on a text take more than " + std::to_string(AUTOMATON_STATES_MAX) +
                                     " states together");
            }
            pairs.emplace_back(left, right);
            out.states.emplace_back();
        }
        return found->second;
    }

    void add_edges(const automaton &of, uint32_t at)
    {
        for (size_t i = 0; at != NOWHERE && i < of.states[at].ways.size(); i++) {
            lows.push_back(of.states[at].ways[i].low);
            lows.push_back(of.states[at].ways[i].high + 1);
        }
    }

    void find_ways(uint32_t number, uint32_t left, uint32_t right)
    {
        lows.clear();
        add_edges(a, left);
        add_edges(b, right);
        std::sort(lows.begin(), lows.end());
        lows.erase(std::unique(lows.begin(), lows.end()), lows.end());
        budget.spend(work_budget::TRANSITION * (8 + lows.size()));
        ways.clear();
        follower l(left != NOWHERE ? &a.states[left] : nullptr), r(right != NOWHERE ? &b.states[right] : nullptr);
        for (size_t i = 0; i + 1 < lows.size(); i++) {
            const uint32_t to_left = l.target(lows[i]), to_right = r.target(lows[i]);
            if (!is_dead(to_left, to_right)) {
                add_way(ways, {lows[i], lows[i + 1] - 1, state_of(to_left, to_right)});
            }
        }
        out.states[number].ways = ways;
        n_ways += ways.size();
        if (n_ways > WAYS_MAX) {
            throw grammar_beyond("the conditions on a text distinguish too many characters");
        }
    }
};

} // namespace

bool automaton::accepts(const std::string &text) const
{
    uint32_t at = states.empty() ? NOWHERE : 0;
    for (const uint32_t c : characters_of(text)) {
        at = at != NOWHERE ? target(states[at], c) : NOWHERE;
    }
    return at != NOWHERE && states[at].is_end;
}

automaton automaton_of(automaton_operation operation, const automaton &a, const automaton &b, work_budget &budget)
{
    return product(operation, a, b, budget).made();
}

automaton automaton_of_any()
{
    automaton out;
    out.states.push_back({{{0, CHARACTER_LAST, 0}}, true});
    return out;
}

namespace {

/* Returns a prefix tree of the strings. Equal states are not merged here: `rules` merges them later. The work is
 * charged to the budget. But tree_of never fails, even if the budget is spent (see automaton.h). */
automaton tree_of(const std::vector<std::string> &texts, work_budget &budget)
{
    automaton out;
    out.states.emplace_back();
    for (const std::string &text : texts) {
        uint32_t at = 0;
        (void)budget.take(work_budget::TRANSITION * (1 + text.size()));
        for (const uint32_t c : characters_of(text)) {
            std::vector<automaton::way> &ways = out.states[at].ways;
            const auto place = std::lower_bound(ways.begin(), ways.end(), c,
                                                [](const automaton::way &w, uint32_t v) { return w.low < v; });
            if (place == ways.end() || place->low != c) {
                const uint32_t made = static_cast<uint32_t>(out.states.size());
                ways.insert(place, {c, c, made});
                out.states.emplace_back();
                at = made;
            } else {
                at = place->to;
            }
        }
        out.states[at].is_end = true;
    }
    return out;
}

} // namespace

automaton automaton_of_texts(const std::vector<std::string> &texts, work_budget &budget)
{
    return texts.empty() ? automaton() : tree_of(texts, budget);
}

automaton automaton_of_other_texts(const std::vector<std::string> &texts, work_budget &budget)
{
    if (texts.empty()) {
        return automaton_of_any();
    }
    automaton out = tree_of(texts, budget);
    const uint32_t any = static_cast<uint32_t>(out.states.size());
    for (automaton::state &s : out.states) {
        std::vector<automaton::way> ways;
        ways.reserve(2 * s.ways.size() + 1);
        uint32_t next = 0;
        for (const automaton::way &w : s.ways) {
            if (w.low > next) {
                ways.push_back({next, w.low - 1, any});
            }
            ways.push_back(w);
            next = w.high + 1;
        }
        if (next <= CHARACTER_LAST) {
            ways.push_back({next, CHARACTER_LAST, any});
        }
        s.ways = std::move(ways);
        s.is_end = !s.is_end;
    }
    out.states.push_back({{{0, CHARACTER_LAST, any}}, true});
    return out;
}

/* The automaton of Knuth, Morris and Pratt. State q means that the string so far ends with the first q characters of
 * `close`, and with no longer prefix of `close`. */
automaton automaton_of_text_before(const std::string &close)
{
    const std::vector<uint32_t> mark = characters_of(close);
    const size_t n = mark.size();
    std::vector<size_t> shorter(n, 0); /* [q]: length of the longest proper prefix of the first q characters of `close`
                                        * that is also a suffix of these q */
    const auto next = [&](size_t q, uint32_t c) {
        while (q > 0 && mark[q] != c) {
            q = shorter[q];
        }
        return mark[q] == c ? q + 1 : 0;
    };
    for (size_t q = 2; q < n; q++) {
        shorter[q] = next(shorter[q - 1], mark[q - 1]);
    }
    automaton out;
    for (size_t q = 0; q < n; q++) {
        std::map<uint32_t, size_t> ways = {{CHARACTER_LAST + 1, n}};
        for (const uint32_t c : mark) {
            ways[c] = next(q, c);
        }
        out.states.emplace_back();
        uint32_t low = 0;
        for (const auto &[c, to] : ways) {
            if (c > low) {
                add_way(out.states[q].ways, {low, c - 1, 0});
            }
            if (to < n) {
                add_way(out.states[q].ways, {c, c, static_cast<uint32_t>(to)});
            }
            low = c + 1;
        }
        size_t at = q, i = 0;
        while (i < n && at < n) {
            at = next(at, mark[i++]);
        }
        out.states[q].is_end = i == n;
    }
    return out;
}

automaton automaton_of_length(size_t least, size_t most)
{
    const size_t n = most == SIZE_MAX ? least : most;
    if (n >= AUTOMATON_STATES_MAX) {
        throw grammar_beyond("a length above " + std::to_string(AUTOMATON_STATES_MAX - 1) + " with other conditions");
    }
    automaton out;
    for (size_t i = 0; i <= n; i++) {
        const bool is_last = i == n;
        out.states.emplace_back();
        out.states[i].is_end = i >= least;
        if (!is_last || most == SIZE_MAX) {
            out.states[i].ways.push_back({0, CHARACTER_LAST, static_cast<uint32_t>(is_last ? i : i + 1)});
        }
    }
    return out;
}

automaton automaton_reduced(const automaton &a, work_budget &budget)
{
    const std::vector<bool> lives = living(a);
    if (a.states.empty() || !lives[0]) {
        return {};
    }
    automaton trimmed;
    std::vector<uint32_t> number(a.states.size(), NOWHERE);
    for (uint32_t i = 0; i < a.states.size(); i++) {
        if (lives[i]) {
            number[i] = static_cast<uint32_t>(trimmed.states.size());
            trimmed.states.push_back({{}, a.states[i].is_end});
        }
    }
    for (uint32_t i = 0; i < a.states.size(); i++) {
        if (!lives[i]) {
            continue;
        }
        std::vector<automaton::way> &ways = trimmed.states[number[i]].ways;
        ways.reserve(a.states[i].ways.size());
        for (const automaton::way &w : a.states[i].ways) {
            if (lives[w.to]) {
                add_way(ways, {w.low, w.high, number[w.to]});
            }
        }
    }
    const partition equal(trimmed, budget);
    if (equal.n_classes() == trimmed.states.size()) {
        return trimmed;
    }
    std::vector<uint32_t> name(equal.n_classes(), NOWHERE); /* new number of each class. The start state gets 0 */
    uint32_t n_named = 0;
    for (const uint32_t number_of_class : equal.classes()) {
        if (name[number_of_class] == NOWHERE) {
            name[number_of_class] = n_named++;
        }
    }
    automaton out;
    out.states.resize(n_named);
    std::vector<bool> is_written(n_named, false);
    for (size_t i = 0; i < trimmed.states.size(); i++) {
        const uint32_t at = name[equal.classes()[i]];
        if (is_written[at]) {
            continue;
        }
        is_written[at] = true;
        out.states[at].is_end = trimmed.states[i].is_end;
        out.states[at].ways.reserve(trimmed.states[i].ways.size());
        for (const automaton::way &w : trimmed.states[i].ways) {
            add_way(out.states[at].ways, {w.low, w.high, name[equal.classes()[w.to]]});
        }
    }
    return out;
}
