/* vocabulary_trie.h: the texts of a model's tokens as a tree, in one array: a node's first child follows it. Control tokens
 * and tokens without a text are left out. Immutable; any thread. */
#ifndef LLM_VOCABULARY_TRIE_H
#define LLM_VOCABULARY_TRIE_H

#include <cstdint>
#include <memory>
#include <vector>

struct model;

struct vocabulary_trie {
    struct node {
        uint8_t byte;
        uint16_t depth;        /* bytes down to here */
        uint32_t after;        /* the next node that is not below */
        uint32_t tokens_begin; /* those that end here: up to the next node's */
    };
    std::vector<node> nodes; /* one more at the end, for its tokens_begin */
    std::vector<int32_t> tokens;
    std::vector<int32_t> ends; /* the model's own, which are not in the tree */

    /* Made once for each model; the last model's is kept. Takes a few hundred milliseconds for a large vocabulary. */
    static std::shared_ptr<const vocabulary_trie> of(const model *m);
};

#endif
