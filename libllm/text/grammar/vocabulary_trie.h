/* vocabulary_trie.h: the texts of a model's tokens as a tree, for grammar_mask.cpp. The nodes are one array in the
 * order of a walk: a node's first child follows it, and `after` skips all below it. Control tokens and tokens without a
 * text are left out. Immutable; any thread. */
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
        uint32_t tokens_begin; /* the tokens that end here: up to the next node's tokens_begin */
        uint32_t branch;       /* index of branches; 0: none, with fewer than 8 tokens it would not pay */
    };
    /* The characters of all texts from a node's own byte on. */
    struct branch {
        uint64_t ascii[2];     /* the ASCII characters among them */
        uint32_t low, high;    /* bounds of the others, and of what a cut off one may become; 0: none */
        uint16_t n_characters; /* of the longest text; a cut off character counts as one */
        uint16_t n_before;     /* characters that begin above the node */
        bool is_text;          /* all are UTF-8, but for the last character, which may be cut off */
    };
    std::vector<node> nodes; /* one more at the end, for its tokens_begin */
    std::vector<branch> branches;
    std::vector<int32_t> tokens;
    std::vector<uint16_t> n_characters; /* characters that begin in each of `tokens` */
    token_set all;                      /* all of `tokens` */
    std::vector<int32_t> ends;          /* the tokens that end an answer, which are not in the tree */
    uint16_t depth_max = 0;

    /* Returns the tree of a model. That of the last model is kept, since making one takes a few hundred milliseconds
     * for a large vocabulary. Any thread; others wait for the one that makes it. */
    static std::shared_ptr<const vocabulary_trie> of(const model *m);
};

#endif
