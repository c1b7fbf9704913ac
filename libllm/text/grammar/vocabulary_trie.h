/* vocabulary_trie.h: the texts of a model's tokens as a tree, in one array: a node's first child follows it. Control tokens
 * and tokens without a text are left out. Immutable; any thread. */
#ifndef LLM_VOCABULARY_TRIE_H
#define LLM_VOCABULARY_TRIE_H

#include <cstdint>
#include <memory>
#include <vector>

#include "text/grammar/token_set.h"

struct model;

struct vocabulary_trie {
    struct node {
        uint8_t byte;
        uint16_t depth;        /* bytes down to here */
        uint32_t after;        /* the next node that is not below */
        uint32_t tokens_begin; /* those that end here: up to the next node's */
        uint32_t branch;       /* index of branches; 0: none, it is too small */
    };
    /* What the texts from a node's own byte on are made of. */
    struct branch {
        uint64_t ascii[2];     /* which of these characters there are */
        uint32_t low, high;    /* of the others, and of what may become of one that is cut off; 0: there are none */
        uint16_t n_characters; /* of the longest; one that is cut off is one */
        uint16_t n_before;     /* characters that begin above */
        bool is_text;          /* each is UTF-8, if a character begins with the node's byte; the last may be cut off */
    };
    std::vector<node> nodes; /* one more at the end, for its tokens_begin */
    std::vector<branch> branches;
    std::vector<int32_t> tokens;
    std::vector<uint16_t> n_characters; /* that begin in each of `tokens` */
    token_set all;                      /* the same */
    std::vector<int32_t> ends;          /* the model's own, which are not in the tree */
    uint16_t depth_max = 0;

    /* Made once for each model; the last model's is kept. Takes a few hundred milliseconds for a large vocabulary. */
    static std::shared_ptr<const vocabulary_trie> of(const model *m);
};

#endif
