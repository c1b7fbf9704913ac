/* vocabulary_trie.cpp: builds the prefix tree of a vocabulary. The tokens are sorted by text. So tokens whose texts
 * begin alike are neighbors, and each text changes only the end of the path of the text before it. */
#include "text/grammar/vocabulary_trie.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>

#include "model/model.h"
#include "text/grammar/character.h"

namespace {

struct spelled {
    std::string text;
    int32_t token;

    bool operator<(const spelled &other) const
    {
        return text != other.text ? text < other.text : token < other.token;
    }
};

std::vector<spelled> spelled_tokens(const model *m, std::vector<int32_t> &ends)
{
    std::vector<spelled> all;
    char piece[MODEL_PIECE_BYTES_MAX];
    for (uint32_t t = 0; t < m->info.n_vocab; t++) {
        const int32_t token = static_cast<int32_t>(t);
        const int32_t n = m->ops->piece(m, token, false, piece, sizeof piece);
        if (m->ops->is_end(m, token)) {
            ends.push_back(token);
        } else if (n > 0) {
            all.push_back({std::string(piece, static_cast<size_t>(n)), token});
        }
    }
    std::sort(all.begin(), all.end());
    return all;
}

/* Builds the tree from texts in ascending order. A new text adds nodes only below the path of the text before it.
 * `enter` adds a node for a byte. `leave` merges the characters below a node into those of its parent. */
class builder {
  public:
    explicit builder(vocabulary_trie &out) : trie(out)
    {
        trie.branches.push_back({});
    }

    void add(const spelled &next)
    {
        size_t n_shared = 0;
        while (n_shared < path.size() && n_shared < next.text.size() &&
               trie.nodes[path[n_shared].node].byte == static_cast<uint8_t>(next.text[n_shared])) {
            n_shared++;
        }
        leave(n_shared);
        for (size_t i = n_shared; i < next.text.size(); i++) {
            enter(static_cast<uint8_t>(next.text[i]));
        }
        look_at(next.text);
        trie.tokens.push_back(next.token);
        trie.n_characters.push_back(n_begun());
    }

    void finish()
    {
        leave(0);
        trie.nodes.push_back({0, 0, 0, n_tokens(), 0});
    }

  private:
    static constexpr uint32_t BRANCH_TOKENS_MIN = 8;

    struct level {
        uint32_t node;
        vocabulary_trie::branch all;
    };
    vocabulary_trie &trie;
    std::vector<level> path; /* nodes from the root to the end of the last text */

    uint32_t n_tokens() const
    {
        return static_cast<uint32_t>(trie.tokens.size());
    }

    static uint16_t begins_character(uint8_t byte)
    {
        return byte >> 6 != 2;
    }

    /* Returns the number of characters that begin in the bytes of the path. */
    uint16_t n_begun() const
    {
        if (path.empty()) {
            return 0;
        }
        const level &last = path.back();
        return static_cast<uint16_t>(last.all.n_before + begins_character(trie.nodes[last.node].byte));
    }

    void enter(uint8_t byte)
    {
        level l = {static_cast<uint32_t>(trie.nodes.size()), {{0, 0}, 0, 0, begins_character(byte), n_begun(), true}};
        if (byte < 0x80) {
            l.all.ascii[byte / 64] = UINT64_C(1) << byte % 64;
        }
        path.push_back(l);
        trie.nodes.push_back({byte, static_cast<uint16_t>(path.size()), 0, n_tokens(), 0});
        trie.depth_max = std::max(trie.depth_max, static_cast<uint16_t>(path.size()));
    }

    /* Removes all nodes from the path except the first `n_stay`. No later text adds nodes below a removed node. So this
     * function sets the members `after` and `branch` of each removed node. grammar_mask.cpp allows or forbids a branch
     * as a whole by the characters in the branch. The characters are merged from the leaves up, once per model. */
    void leave(size_t n_stay)
    {
        for (; path.size() > n_stay; path.pop_back()) {
            const vocabulary_trie::branch &all = path.back().all;
            vocabulary_trie::node &node = trie.nodes[path.back().node];
            node.after = static_cast<uint32_t>(trie.nodes.size());
            if (n_tokens() - node.tokens_begin >= BRANCH_TOKENS_MIN) {
                node.branch = static_cast<uint32_t>(trie.branches.size());
                trie.branches.push_back(all);
            }
            if (path.size() > 1) {
                vocabulary_trie::branch &above = path[path.size() - 2].all;
                above.ascii[0] |= all.ascii[0];
                above.ascii[1] |= all.ascii[1];
                const uint16_t n_own = begins_character(trie.nodes[path[path.size() - 2].node].byte);
                above.n_characters = std::max(above.n_characters, static_cast<uint16_t>(all.n_characters + n_own));
            }
        }
    }

    static void widen(vocabulary_trie::branch &b, const character &c)
    {
        if (c.least() >= 0x80) {
            b.low = b.high == 0 ? c.least() : std::min(b.low, c.least());
            b.high = std::max(b.high, c.most());
        }
    }

    /* For each node on the path of a text, records the text's characters from the node's byte on. If the node's byte is
     * in the middle of a character, is_text becomes false, because the bytes from this byte on are not UTF-8. Skips
     * texts that have only ASCII characters, because `enter` has recorded these characters. */
    void look_at(const std::string &text)
    {
        if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; })) {
            return;
        }
        for (size_t first = 0; first < text.size(); first++) {
            vocabulary_trie::branch &b = path[first].all;
            character c;
            for (size_t i = first; i < text.size() && b.is_text; i++) {
                b.is_text = c.take(static_cast<uint8_t>(text[i]));
                if (b.is_text && (c.n_missing == 0 || i + 1 == text.size())) {
                    widen(b, c);
                }
            }
        }
    }
};

std::shared_ptr<const vocabulary_trie> build(const model *m)
{
    auto trie = std::make_shared<vocabulary_trie>();
    builder to(*trie);
    for (const spelled &next : spelled_tokens(m, trie->ends)) {
        to.add(next);
    }
    to.finish();
    trie->all.assign(m->info.n_vocab, false);
    for (const int32_t token : trie->tokens) {
        trie->all.set(token, true);
    }
    return trie;
}

} // namespace

int32_t vocabulary_trie::longest(const char *text, size_t n, size_t *n_bytes) const
{
    int32_t token = -1;
    size_t at = 0, end = nodes.size() - 1; /* the children of the node so far are in [at, end) */
    for (size_t depth = 1; depth <= n; depth++) {
        while (at < end && nodes[at].byte != static_cast<uint8_t>(text[depth - 1])) {
            at = nodes[at].after;
        }
        if (at == end) {
            break;
        }
        if (nodes[at].tokens_begin < nodes[at + 1].tokens_begin) {
            token = tokens[nodes[at].tokens_begin];
            *n_bytes = depth;
        }
        end = nodes[at++].after;
    }
    return token;
}

/* Only the last tree is kept. This tree is reused if its model has the same identity as `m`. Otherwise a new tree is
 * built. The addresses of models are not compared, because another model can later have the same address. */
std::shared_ptr<const vocabulary_trie> vocabulary_trie::of(const model *m)
{
    static std::mutex mutex;
    static uint8_t identity[sizeof m->info.identity];
    static std::shared_ptr<const vocabulary_trie> *kept = new std::shared_ptr<const vocabulary_trie>;

    const std::lock_guard<std::mutex> hold(mutex);
    if (*kept == nullptr || memcmp(identity, m->info.identity, sizeof identity) != 0) {
        kept->reset();
        *kept = build(m);
        memcpy(identity, m->info.identity, sizeof identity);
    }
    return *kept;
}
