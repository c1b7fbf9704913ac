/* grammar_walk.cpp: follows the stacks of a grammar through an answer. The header explains what stacks, places and ways
 * are. */
#include "text/grammar/grammar_walk.h"

#include <algorithm>

namespace {

/* limit on the stacks that one call of a public function examines. So many stacks take a fraction of a second */
constexpr uint64_t STEP_WORK_MAX = 5'000'000;
/* the same limit for all calls since be_quick. So many stacks take at most about 100 us */
constexpr uint64_t QUICK_WORK_MAX = 2'000;
constexpr size_t STACKS_MAX = 1 << 21, STACKS_KEPT = 1 << 17; /* beyond STACKS_MAX the request fails */
constexpr size_t PLACES_MAX = 1 << 18, PLACES_KEPT = 1 << 13;
constexpr size_t WAYS_KEPT = 1 << 20;
constexpr uint32_t CHARACTER_MAX = 0x10ffff;

uint64_t pair_of(uint32_t a, uint32_t b)
{
    return static_cast<uint64_t>(a) << 32 | b;
}

uint64_t hash_of(const std::vector<uint32_t> &numbers)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const uint32_t n : numbers) {
        hash = (hash ^ n) * UINT64_C(0x100000001b3);
    }
    return hash;
}

} // namespace

grammar_walk::grammar_walk(std::shared_ptr<const grammar> rules_, std::shared_ptr<const vocabulary_trie> vocabulary)
    : read(std::move(rules_)), rules(*read), trie(std::move(vocabulary)), stacks(1), places(1), seen(1)
{
    has_named = std::any_of(rules.elements.begin(), rules.elements.end(),
                            [](const grammar_element &e) { return e.is == grammar_element::TOKEN; });
    now = {start(), {}};
}

void grammar_walk::be_quick(bool is_quick_now)
{
    is_quick = is_quick_now;
    work = 0;
}

void grammar_walk::begin_call()
{
    work = is_quick ? work : 0;
}

void grammar_walk::spend(uint64_t n)
{
    work += n;
    if (work > (is_quick ? QUICK_WORK_MAX : STEP_WORK_MAX)) {
        throw grammar_fault("the grammar takes too long: it has too many ways to go on");
    }
}

/* Returns the number of the stack that has `element` on top of the stack `below`. Each stack exists only once. So two
 * derivations that arrive at the same stack continue as one stack. Otherwise the number of stacks of an ambiguous
 * grammar could double with every character. If a guess runs out of memory, the walk is still used. So the table is
 * updated last, and `seen` never has fewer elements than `stacks`. */
uint32_t grammar_walk::pushed(uint32_t element, uint32_t below)
{
    const auto found = stack_of.find(pair_of(element, below));
    if (found != stack_of.end()) {
        return found->second;
    }
    if (stacks.size() >= STACKS_MAX) {
        throw grammar_fault("the grammar takes too much memory: it nests too deeply");
    }
    const uint32_t made = static_cast<uint32_t>(stacks.size());
    seen.resize(stacks.size() + 1, 0);
    stacks.push_back({element, below});
    stack_of.emplace(pair_of(element, below), made);
    return made;
}

/* Returns the stack that remains after the top element has been matched. If that element was the last of its
 * alternative, the result is the existing stack below the element. Otherwise a rule that ends with itself, such as a
 * list, would make its stack higher with each item. */
uint32_t grammar_walk::advanced(uint32_t id)
{
    const stack s = stacks[id];
    return rules.elements[s.element + 1].ends_sequence() ? s.below : pushed(s.element + 1, s.below);
}

/* Adds to `todo` one stack for each alternative of the rule. The stack `below` contains the elements that follow the
 * rule. */
void grammar_walk::expand_rule(uint32_t rule, uint32_t below, std::vector<uint32_t> &todo)
{
    for (uint32_t i = rules.rules[rule];; i++) {
        todo.push_back(rules.elements[i].ends_sequence() ? below : pushed(i, below));
        while (!rules.elements[i].ends_sequence()) {
            i++;
            spend(1);
        }
        if (rules.elements[i].is == grammar_element::END) {
            return;
        }
    }
}

/* Expands the rules on top of the stacks in `todo`. Afterwards each stack has a character, a token or nothing on top.
 * Adds these stacks to `found`. `seen` ensures that each stack is expanded once. Two alternatives often lead to the
 * same stack. A repetition of an element that can be empty leads back to a stack that was already expanded. */
void grammar_walk::expand(std::vector<uint32_t> &todo, std::vector<uint32_t> &found)
{
    expansion++;
    while (!todo.empty()) {
        const uint32_t id = todo.back();
        todo.pop_back();
        spend(1);
        if (seen[id] == expansion) {
            continue;
        }
        seen[id] = expansion;
        if (id == NONE || rules.elements[stacks[id].element].is != grammar_element::RULE) {
            found.push_back(id);
        } else {
            expand_rule(rules.elements[stacks[id].element].value, advanced(id), todo);
        }
    }
}

/* Returns the number of the place (set of stacks) that consists of the stacks in `found`. `found` has no duplicates.
 * Returns NONE if `found` is empty. */
grammar_walk::place grammar_walk::place_with(std::vector<uint32_t> &found)
{
    if (found.empty()) {
        return NONE;
    }
    std::sort(found.begin(), found.end());
    const uint64_t hash = hash_of(found);
    const auto [first, last] = place_of.equal_range(hash);
    for (auto it = first; it != last; ++it) {
        if (places[it->second].stacks == found) {
            return it->second;
        }
    }
    if (places.size() >= PLACES_MAX) {
        throw grammar_fault("the grammar takes too much memory: it has too many ways to go on");
    }
    const place made = static_cast<place>(places.size());
    places.push_back({});
    places.back().stacks = std::move(found);
    place_of.emplace(hash, made);
    return made;
}

grammar_walk::place grammar_walk::start()
{
    std::vector<uint32_t> todo, found;
    expand_rule(rules.root, NONE, todo);
    expand(todo, found);
    return place_with(found);
}

/* Computes the place (set of stacks) to which the character leads. Called only if the result is not in a table yet. */
grammar_walk::place grammar_walk::step_anew(place from, uint32_t value)
{
    std::vector<uint32_t> todo, found;
    for (const uint32_t id : places[from].stacks) {
        spend(1);
        const grammar_element *e = id != NONE ? &rules.elements[stacks[id].element] : nullptr;
        if (e != nullptr && e->is == grammar_element::CHARACTER && rules.matches(*e, value)) {
            todo.push_back(advanced(id));
        }
    }
    expand(todo, found);
    return place_with(found);
}

/* Divides all characters into ways. A way is a range of characters that lead from the place `from` (a set of stacks) to
 * the same next place. The bounds of the ranges are those of all character sets on top of the stacks. So each set
 * contains all characters of a way or none. The end of ASCII is an additional bound, because there is a table for ASCII
 * characters. */
void grammar_walk::find_ways(place from)
{
    std::vector<uint32_t> lows = {0, ASCII};
    for (const uint32_t id : places[from].stacks) {
        const grammar_element *e = id != NONE ? &rules.elements[stacks[id].element] : nullptr;
        const uint32_t n = e != nullptr && e->is == grammar_element::CHARACTER ? e->n : 0;
        spend(1 + 2 * uint64_t{n});
        for (uint32_t i = 0; i < n; i++) {
            const grammar_range &r = rules.ranges[e->value + i];
            lows.push_back(r.low);
            if (r.high < CHARACTER_MAX) {
                lows.push_back(r.high + 1);
            }
        }
    }
    std::sort(lows.begin(), lows.end());
    lows.erase(std::unique(lows.begin(), lows.end()), lows.end());
    std::vector<place> ascii(ASCII, UNKNOWN);
    std::vector<way> ways;
    for (const uint32_t low : lows) {
        ways.push_back({low, UNKNOWN});
    }
    n_ways += ways.size();
    places[from].ascii = std::move(ascii);
    places[from].ways = std::move(ways);
}

/* Returns the place (set of stacks) to which the way `number` leads. A way is a range of the characters that can follow
 * the place `from`. No reference to places[from] is kept while step_anew runs. step_anew can enlarge the vector and so
 * move its elements. */
grammar_walk::place grammar_walk::step_by(place from, size_t number)
{
    if (places[from].ways[number].to == UNKNOWN) {
        const place to = step_anew(from, places[from].ways[number].low);
        places[from].ways[number].to = to;
    }
    return places[from].ways[number].to;
}

size_t grammar_walk::way_of(place from, uint32_t value)
{
    if (places[from].ways.empty()) {
        find_ways(from);
    }
    const std::vector<way> &ways = places[from].ways;
    if (value >= ways.back().low) {
        return ways.size() - 1;
    }
    const auto beyond =
        std::upper_bound(ways.begin(), ways.end(), value, [](uint32_t v, const way &w) { return v < w.low; });
    return static_cast<size_t>(beyond - ways.begin()) - 1;
}

grammar_walk::place grammar_walk::step(place from, uint32_t value)
{
    if (value >= ASCII) {
        return step_by(from, way_of(from, value));
    }
    if (places[from].ascii.empty() || places[from].ascii[value] == UNKNOWN) {
        const place to = step_by(from, way_of(from, value));
        places[from].ascii[value] = to;
    }
    return places[from].ascii[value];
}

/* Returns whether all characters from `low` to `high` lead from the place `from` to the place `to`. A place is a set of
 * stacks. */
bool grammar_walk::all_lead(place from, uint32_t low, uint32_t high, place to)
{
    const size_t first = way_of(from, low);
    for (size_t i = first; i < places[from].ways.size() && places[from].ways[i].low <= high; i++) {
        if (step_by(from, i) != to) {
            return false;
        }
    }
    return true;
}

/* Advances the position `p` by one byte of a token. A token can end in the middle of a character, so `p` also stores an
 * incomplete character. Returns false if the byte is not valid UTF-8 here. Also returns false if the byte completes a
 * character that the grammar does not allow. */
bool grammar_walk::take_byte(point &p, uint8_t byte)
{
    if (!p.begun.take(byte)) {
        return false;
    }
    if (p.begun.n_missing == 0) {
        p.at = step(p.at, p.begun.value);
    }
    return p.at != NONE;
}

/* Returns whether the answer can continue from the position `p`. An incomplete character in `p` must be able to become
 * a character that the grammar allows. Otherwise no token could complete it. */
bool grammar_walk::may_go_on(const point &p)
{
    return p.at != NONE && (p.begun.n_missing == 0 || !all_lead(p.at, p.begun.least(), p.begun.most(), NONE));
}

/* Returns the position after a token. A token can be matched by its text, or by a grammar element that names the token.
 * The position contains the stacks that follow from either match. */
grammar_walk::point grammar_walk::after(int32_t token, const char *text, size_t n_bytes)
{
    point p = now;
    size_t i = 0;
    while (i < n_bytes && take_byte(p, static_cast<uint8_t>(text[i]))) {
        i++;
    }
    if (i < n_bytes || n_bytes == 0 || !may_go_on(p)) {
        p = {NONE, {}};
    }
    if (!has_named || now.begun.n_missing > 0 || token < 0) {
        return p;
    }
    std::vector<uint32_t> todo, found;
    const std::vector<uint32_t> open = places[now.at].stacks;
    for (const uint32_t id : open) {
        const grammar_element *e = id != NONE ? &rules.elements[stacks[id].element] : nullptr;
        if (e != nullptr && e->is == grammar_element::TOKEN &&
            (e->value == static_cast<uint32_t>(token)) != e->is_negated) {
            todo.push_back(advanced(id));
        }
    }
    if (todo.empty()) {
        return p;
    }
    expand(todo, found);
    if (p.at != NONE && p.begun.n_missing == 0) {
        found.insert(found.end(), places[p.at].stacks.begin(), places[p.at].stacks.end());
        std::sort(found.begin(), found.end());
        found.erase(std::unique(found.begin(), found.end()), found.end());
    }
    return {place_with(found), {}};
}

bool grammar_walk::allows(int32_t token, const char *text, size_t n_bytes)
{
    begin_call();
    return now.at != NONE && after(token, text, n_bytes).at != NONE;
}

bool grammar_walk::accept(int32_t token, const char *text, size_t n_bytes)
{
    begin_call();
    if (now.at != NONE) {
        const point next = after(token, text, n_bytes);
        learn_blanks(text, n_bytes);
        now = next;
    }
    return now.at != NONE;
}

bool grammar_walk::is_full() const
{
    return stacks.size() > STACKS_KEPT || places.size() > PLACES_KEPT || n_ways > WAYS_KEPT;
}

void grammar_walk::forget()
{
    if (is_full()) {
        forget_others();
    }
}

bool grammar_walk::is_complete() const
{
    return now.at != NONE && now.begun.n_missing == 0 && places[now.at].stacks.front() == NONE;
}

/* Removes all places (sets of stacks) and stacks except the current place and its stacks. Without this, the walk of a
 * long answer would keep every place that the answer has visited. The remaining places and stacks get new numbers. May
 * only be called between tokens, because variables with old numbers become invalid. */
void grammar_walk::forget_others()
{
    const std::vector<stack> old = std::move(stacks);
    std::vector<uint32_t> found;
    std::vector<uint32_t> open = now.at != NONE ? std::move(places[now.at].stacks) : std::vector<uint32_t>();
    stacks.assign(1, {0, 0});
    seen.assign(1, 0);
    places.assign(1, {});
    stack_of.clear();
    place_of.clear();
    expansion = 0;
    n_ways = 0;
    for (const uint32_t id : open) {
        std::vector<uint32_t> chain;
        for (uint32_t at = id; at != NONE; at = old[at].below) {
            chain.push_back(old[at].element);
        }
        uint32_t copied = NONE;
        for (size_t i = chain.size(); i-- > 0;) {
            copied = pushed(chain[i], copied);
        }
        found.push_back(copied);
    }
    now.at = place_with(found);
}
