#include "text/grammar_walk.h"

#include <algorithm>

namespace {

constexpr uint64_t STEP_WORK_MAX = 5'000'000; /* stacks looked at: a fraction of a second */
constexpr size_t STACKS_MAX = 1 << 21, STACKS_KEPT = 1 << 17;
constexpr size_t PLACES_MAX = 1 << 18, PLACES_KEPT = 1 << 13;
constexpr uint32_t UNKNOWN = UINT32_MAX, ASCII = 128, NONE = 0;

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

/* Whether a character that has begun so may have this byte next: none longer than it has to be, no half of a pair, and none
 * behind the last one. */
bool goes_on(uint32_t character, uint8_t n_missing, uint8_t byte)
{
    if (byte >> 6 != 2) {
        return false;
    }
    if (n_missing == 2) {
        return character == 0 ? byte >= 0xa0 : character != 0xd || byte < 0xa0;
    }
    return n_missing < 2 || (character == 0 ? byte >= 0x90 : character != 4 || byte < 0x90);
}

} // namespace

grammar_walk::grammar_walk(std::shared_ptr<const grammar> rules_, std::shared_ptr<const vocabulary_trie> vocabulary)
    : read(std::move(rules_)), rules(*read), trie(std::move(vocabulary)), stacks(1), places(1), seen(1)
{
    now = {start(), 0, 0};
}

void grammar_walk::spend(uint64_t n)
{
    work += n;
    if (work > STEP_WORK_MAX) {
        throw grammar_fault("the grammar takes too long: it has too many ways to go on");
    }
}

uint32_t grammar_walk::pushed(uint32_t element, uint32_t below)
{
    const auto [found, is_new] = stack_of.try_emplace(pair_of(element, below), static_cast<uint32_t>(stacks.size()));
    if (is_new) {
        if (stacks.size() >= STACKS_MAX) {
            throw grammar_fault("the grammar takes too much memory: it nests too deep");
        }
        stacks.push_back({element, below});
        seen.push_back(0);
    }
    return found->second;
}

/* Behind the element on top. */
uint32_t grammar_walk::advanced(uint32_t id)
{
    const stack s = stacks[id];
    return rules.elements[s.element + 1].ends_sequence() ? s.below : pushed(s.element + 1, s.below);
}

/* Every way to match the rule, over what comes after it. */
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

/* Opens rules until each stack is at a character, a token or its end. */
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
    places.push_back({std::move(found), {}});
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

grammar_walk::place grammar_walk::step_anew(place from, uint32_t character)
{
    std::vector<uint32_t> todo, found;
    const std::vector<uint32_t> open = places[from].stacks;
    for (const uint32_t id : open) {
        spend(1);
        const grammar_element *e = id != NONE ? &rules.elements[stacks[id].element] : nullptr;
        if (e != nullptr && e->is == grammar_element::CHARACTER && rules.matches(*e, character)) {
            todo.push_back(advanced(id));
        }
    }
    expand(todo, found);
    return place_with(found);
}

grammar_walk::place grammar_walk::step(place from, uint32_t character)
{
    if (character >= ASCII) {
        const auto found = steps.find(pair_of(from, character));
        return found != steps.end() ? found->second : steps[pair_of(from, character)] = step_anew(from, character);
    }
    if (places[from].ascii.empty()) {
        places[from].ascii.assign(ASCII, UNKNOWN);
    }
    if (places[from].ascii[character] == UNKNOWN) {
        const place to = step_anew(from, character);
        places[from].ascii[character] = to;
    }
    return places[from].ascii[character];
}

/* False: no text of the grammar has this byte here. */
bool grammar_walk::take_byte(point &p, uint8_t byte)
{
    if (p.n_missing > 0) {
        if (!goes_on(p.character, p.n_missing, byte)) {
            return false;
        }
        p.character = p.character << 6 | (byte & 0x3fu);
        if (--p.n_missing > 0) {
            return true;
        }
        p.at = step(p.at, p.character);
    } else if (byte < 0x80) {
        p.at = step(p.at, byte);
    } else if (byte < 0xc2 || byte > 0xf4) {
        return false;
    } else {
        p.n_missing = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
        p.character = byte & (0x3fu >> p.n_missing);
    }
    return p.at != NONE;
}

/* A character that has begun may become one that is allowed. */
bool grammar_walk::may_go_on(const point &p)
{
    const uint32_t n_bits = 6u * p.n_missing;
    const uint32_t high = p.character << n_bits | ((1u << n_bits) - 1);
    const uint32_t shortest = p.n_missing == 2 ? 0x800 : 0x10000; /* behind a first byte that says nothing */
    const uint32_t low = p.character == 0 ? shortest : p.character << n_bits;
    if (p.n_missing == 0) {
        return p.at != NONE;
    }
    return std::any_of(places[p.at].stacks.begin(), places[p.at].stacks.end(), [&](uint32_t id) {
        const grammar_element *e = id != NONE ? &rules.elements[stacks[id].element] : nullptr;
        return e != nullptr && e->is == grammar_element::CHARACTER && rules.may_match(*e, low, high);
    });
}

/* By its text and, where the grammar asks for tokens, as one. */
grammar_walk::point grammar_walk::after(int32_t token, const char *text, size_t n_bytes)
{
    point p = now;
    size_t i = 0;
    while (i < n_bytes && take_byte(p, static_cast<uint8_t>(text[i]))) {
        i++;
    }
    if (i < n_bytes || n_bytes == 0 || !may_go_on(p)) {
        p = {NONE, 0, 0};
    }
    if (now.n_missing > 0 || token < 0) {
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
    if (p.at != NONE && p.n_missing == 0) {
        found.insert(found.end(), places[p.at].stacks.begin(), places[p.at].stacks.end());
        std::sort(found.begin(), found.end());
        found.erase(std::unique(found.begin(), found.end()), found.end());
    }
    return {place_with(found), 0, 0};
}

bool grammar_walk::allows(int32_t token, const char *text, size_t n_bytes)
{
    work = 0;
    return now.at != NONE && after(token, text, n_bytes).at != NONE;
}

bool grammar_walk::accept(int32_t token, const char *text, size_t n_bytes)
{
    work = 0;
    now = now.at != NONE ? after(token, text, n_bytes) : now;
    if (stacks.size() > STACKS_KEPT || places.size() > PLACES_KEPT) {
        forget_others();
    }
    return now.at != NONE;
}

bool grammar_walk::is_complete() const
{
    return now.at != NONE && now.n_missing == 0 && places[now.at].stacks.front() == NONE;
}

/* Those that the grammar names. */
void grammar_walk::mark_tokens(std::vector<bool> &allowed)
{
    for (const uint32_t id : places[now.at].stacks) {
        const grammar_element *e = id != NONE ? &rules.elements[stacks[id].element] : nullptr;
        if (e == nullptr || e->is != grammar_element::TOKEN || now.n_missing > 0) {
            continue;
        }
        if (e->is_negated) {
            for (size_t token = 0; token < allowed.size(); token++) {
                allowed[token] = allowed[token] || token != e->value;
            }
        } else if (e->value < allowed.size()) {
            allowed[e->value] = true;
        }
    }
}

void grammar_walk::mark_allowed(std::vector<bool> &allowed)
{
    if (now.at == NONE) {
        return;
    }
    work = 0;
    mark_tokens(allowed);
    std::vector<point> path(1, now); /* by depth */
    const size_t n_nodes = trie->nodes.size() - 1;
    for (size_t i = 0; i < n_nodes;) {
        const vocabulary_trie::node &node = trie->nodes[i];
        spend(1);
        path.resize(node.depth, now);
        point p = path.back();
        const uint32_t end = trie->nodes[i + 1].tokens_begin;
        if (!take_byte(p, node.byte)) {
            i = node.after;
            continue;
        }
        if (node.tokens_begin < end && may_go_on(p)) {
            for (uint32_t t = node.tokens_begin; t < end; t++) {
                allowed[static_cast<size_t>(trie->tokens[t])] = true;
            }
        }
        path.push_back(p);
        i++;
    }
}

/* Numbers everything anew, of the place where the walk is. */
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
    steps.clear();
    expansion = 0;
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
