#include "text/vocabulary_trie.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>

#include "model/model.h"

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

std::shared_ptr<const vocabulary_trie> build(const model *m)
{
    auto trie = std::make_shared<vocabulary_trie>();
    std::vector<uint32_t> path; /* nodes down to the text before */
    std::string before;
    for (const spelled &next : spelled_tokens(m, trie->ends)) {
        size_t n_shared = 0;
        while (n_shared < before.size() && n_shared < next.text.size() && before[n_shared] == next.text[n_shared]) {
            n_shared++;
        }
        for (; path.size() > n_shared; path.pop_back()) {
            trie->nodes[path.back()].after = static_cast<uint32_t>(trie->nodes.size());
        }
        for (size_t i = n_shared; i < next.text.size(); i++) {
            path.push_back(static_cast<uint32_t>(trie->nodes.size()));
            trie->nodes.push_back({static_cast<uint8_t>(next.text[i]), static_cast<uint16_t>(i + 1), 0,
                                   static_cast<uint32_t>(trie->tokens.size())});
        }
        trie->tokens.push_back(next.token);
        before = next.text;
    }
    for (; !path.empty(); path.pop_back()) {
        trie->nodes[path.back()].after = static_cast<uint32_t>(trie->nodes.size());
    }
    trie->nodes.push_back({0, 0, 0, static_cast<uint32_t>(trie->tokens.size())});
    return trie;
}

} // namespace

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
