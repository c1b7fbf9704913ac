/* grammar_mask.cpp: finds the tokens that can come next. For this, find_texts goes through the prefix tree of the
 * vocabulary (vocabulary_trie.h). A token is allowed if the grammar allows its whole text. In the tree, a beginning
 * that many tokens share is checked only once. If "st" is not allowed, thousands of tokens that begin with "st" are
 * skipped.
 *
 * Shared beginnings do not help if most tokens are allowed. In a JSON string nearly all 150,000 tokens are allowed.
 * Each character of each token would be a step. Therefore a branch of the tree can be allowed as a whole (see the
 * function skip). The condition is that each character in the branch has the same effect on the grammar's stacks as a
 * letter (grammar_walk.h). Unlike llmd, llama.cpp checks each token separately.
 *
 * The set of tokens that can come next is called the mask. The thread that samples computes a new mask for each token
 * that it picks. */

#include "text/grammar/grammar_walk.h"

/* Adds the tokens that the grammar names directly (<name>). For a negated name (!<name>), adds all other tokens. */
void grammar_walk::add_named(uint32_t n_vocab, token_set &allowed)
{
    for (const uint32_t id : places[now.at].stacks) {
        const grammar_element *e = id != NONE ? &rules.elements[stacks[id].element] : nullptr;
        if (e == nullptr || e->is != grammar_element::TOKEN || now.begun.n_missing > 0) {
            continue;
        }
        for (uint32_t token = 0; e->is_negated && token < n_vocab; token++) {
            if (token != e->value) {
                allowed.set(static_cast<int32_t>(token), true);
            }
        }
        if (!e->is_negated && e->value < n_vocab) {
            allowed.set(static_cast<int32_t>(e->value), true);
        }
    }
}

/* Returns the ASCII characters that lead from the place `from` to the place `to`. A place is a set of stacks. */
grammar_walk::run grammar_walk::run_to(place from, place to)
{
    run r = {to, {0, 0}};
    for (uint32_t c = 0; c < ASCII; c++) {
        if (step(from, c) == to) {
            r.ascii[c / 64] |= UINT64_C(1) << c % 64;
        }
    }
    return r;
}

namespace {

/* limit on the nodes of the vocabulary's tree that a call visits after be_quick. So many take at most about 100 us */
constexpr uint32_t QUICK_NODES_MAX = 1 << 13;

bool has_ascii(const uint64_t (&ascii)[2], const vocabulary_trie::branch &b)
{
    return (b.ascii[0] & ~ascii[0]) == 0 && (b.ascii[1] & ~ascii[1]) == 0;
}

} // namespace

/* Returns the place (set of stacks) to which letters lead from the place `from`. Returns NONE if some character in the
 * branch `b` of the vocabulary's tree does not lead there. */
grammar_walk::place grammar_walk::letters_lead(place from, const vocabulary_trie::branch &b)
{
    if (places[from].letters.to == UNKNOWN) {
        const place to = step(from, 'e');
        const run r = to != NONE ? run_to(from, to) : run();
        places[from].letters = r;
    }
    const run r = places[from].letters;
    const bool do_all = r.to != NONE && has_ascii(r.ascii, b) && (b.high == 0 || all_lead(from, b.low, b.high, r.to));
    return do_all ? r.to : NONE;
}

/* Returns whether the grammar allows none of the characters in the branch `b` of the vocabulary's tree at the place
 * `from`. */
bool grammar_walk::leads_nowhere(place from, const vocabulary_trie::branch &b)
{
    if (places[from].nowhere.to == UNKNOWN) {
        const run r = run_to(from, NONE);
        places[from].nowhere = r;
    }
    return has_ascii(places[from].nowhere.ascii, b) && (b.high == 0 || all_lead(from, b.low, b.high, NONE));
}

void grammar_walk::add(std::vector<stretch> &found, stretch next)
{
    if (!found.empty() && found.back().end == next.begin) {
        found.back().end = next.end;
    } else {
        found.push_back(next);
    }
}

/* Decides which tokens below the tree node `top` are allowed, without visiting the nodes of these tokens. This is
 * possible if each character of these tokens has the same effect on the grammar's stacks as a letter. Then only the
 * length of a token's text matters. The function counts in n how many letters the grammar allows in a row. In a JSON
 * string a letter leaves the stacks as they are. So n is set to the length of the longest text, and all tokens are
 * allowed. If only 3 more characters fit into the string, n is 3. Then tokens with up to 3 characters from `top` on are
 * allowed. A token's characters above `top` (n_before) are not counted. An incomplete character at the end of a token
 * counts as one character. Returns false if the length does not decide. For example, after n letters the grammar may
 * forbid letters but allow another character of the branch. The caller must then visit the nodes. */
bool grammar_walk::skip(place from, const vocabulary_trie::node &top, std::vector<stretch> &found)
{
    const vocabulary_trie::branch &b = trie->branches[top.branch];
    const uint32_t end = trie->nodes[top.after].tokens_begin;
    uint32_t n = 0;
    while (b.is_text && n < b.n_characters) {
        const place to = letters_lead(from, b);
        if (to == NONE) {
            break;
        }
        n = to == from ? b.n_characters : n + 1;
        from = to;
    }
    if (n == 0 || (n < b.n_characters && !leads_nowhere(from, b))) {
        return false;
    }
    for (uint32_t t = top.tokens_begin, next = t; t < end; t = next) {
        next = n == b.n_characters ? end : t + 1;
        if (n == b.n_characters || trie->n_characters[t] <= b.n_before + n) {
            add(found, {t, next});
        }
    }
    return true;
}

/* Does the same as take_byte, but first looks for the result in a table, where most results are found. */
inline bool grammar_walk::take(point &p, uint8_t byte)
{
    const place_data &from = places[p.at];
    if (byte >= ASCII || p.begun.n_missing > 0 || from.ascii.empty() || from.ascii[byte] == UNKNOWN) {
        return take_byte(p, byte);
    }
    p.at = from.ascii[byte];
    return p.at != NONE;
}

/* Finds the tokens whose text the grammar allows, in the order of the tree. path[d] is the position in the grammar
 * after the first d bytes of the current text. So the position is known when the search returns to a node's parent. */
void grammar_walk::find_texts(std::vector<stretch> &found)
{
    const std::vector<vocabulary_trie::node> &nodes = trie->nodes;
    std::vector<point> path(trie->depth_max + 1u, now); /* positions in the grammar, by depth in the tree */
    uint32_t n_visited = 0;
    for (size_t i = 0; i + 1 < nodes.size();) {
        if (is_quick && ++n_visited > QUICK_NODES_MAX) {
            throw grammar_fault("the grammar allows too many tokens of the vocabulary");
        }
        const vocabulary_trie::node &node = nodes[i];
        point p = path[node.depth - 1u];
        if ((node.branch != 0 && p.begun.n_missing == 0 && skip(p.at, node, found)) || !take(p, node.byte)) {
            i = node.after;
            continue;
        }
        path[node.depth] = p;
        i++;
        if (node.tokens_begin < nodes[i].tokens_begin && may_go_on(p)) {
            add(found, {node.tokens_begin, nodes[i].tokens_begin});
        }
    }
}

/* Sets a bit for each allowed token. If most tokens are allowed, sets all bits and clears the bits of the forbidden
 * tokens, because these are fewer. */
void grammar_walk::find_allowed(uint32_t n_vocab, token_set &allowed)
{
    allowed.assign(n_vocab, false);
    if (now.at == NONE) {
        return;
    }
    begin_call();
    std::vector<stretch> found;
    find_texts(found);
    uint32_t n_found = 0;
    for (const stretch &s : found) {
        n_found += s.end - s.begin;
    }
    const bool are_most = n_found > trie->tokens.size() / 2;
    if (are_most) {
        allowed = trie->all;
        std::vector<stretch> between;
        uint32_t end = 0;
        found.push_back({static_cast<uint32_t>(trie->tokens.size()), 0});
        for (const stretch &s : found) {
            between.push_back({end, s.begin});
            end = s.end;
        }
        found = std::move(between);
    }
    for (const stretch &s : found) {
        for (uint32_t t = s.begin; t < s.end; t++) {
            allowed.set(trie->tokens[t], !are_most);
        }
    }
    add_named(n_vocab, allowed);
}
