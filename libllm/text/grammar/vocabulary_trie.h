/* vocabulary_trie.h: the texts of a model's tokens as a prefix tree with one node per byte, for grammar_mask.cpp. The
 * nodes are one array in depth-first order. A node's first child comes right after the node. `after` is the index of
 * the first node after its subtree. Control tokens and tokens without a text are left out. A finished tree is
 * immutable, so any thread can use it. */
#ifndef LLM_VOCABULARY_TRIE_H
#define LLM_VOCABULARY_TRIE_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "text/grammar/token_set.h"

struct model;

struct vocabulary_trie {
    struct node {
        uint8_t byte;
        uint16_t depth;        /* number of bytes from the root */
        uint32_t after;        /* index of the next node outside this node's subtree */
        uint32_t tokens_begin; /* index in `tokens` of the first token that ends at this node. The node's tokens end
                                * before the next node's tokens_begin */
        uint32_t branch;       /* index in `branches`, or 0. A branch of fewer than 8 tokens is not stored, because it
                                * would save no time */
    };
    /* A summary of the texts of all tokens below a node: their characters, from the node's own byte on. */
    struct branch {
        uint64_t ascii[2];     /* the ASCII characters in the texts of the branch's tokens, one bit each */
        uint32_t low, high;    /* smallest and largest of the characters beyond ASCII, or 0. A token can end with an
                                * incomplete character, which counts as all characters that it can become */
        uint16_t n_characters; /* number of characters of the branch's longest token text, from the node's own byte on.
                                * An incomplete character counts as one */
        uint16_t n_before;     /* number of characters that begin in the bytes before the node's own byte */
        bool is_text;          /* true if the texts of all tokens in the branch are UTF-8. The last character of a text
                                * can be incomplete */
    };
    std::vector<node> nodes; /* all nodes, and an additional node at the end, whose tokens_begin ends the tokens of the
                              * last node */
    std::vector<branch> branches;
    std::vector<int32_t> tokens;
    std::vector<uint16_t> n_characters; /* for each of `tokens`, the number of characters that begin in the token's
                                         * text */
    token_set all;                      /* the set of all `tokens` */
    std::vector<int32_t> ends;          /* tokens that end an answer, which are not in the tree */
    uint16_t depth_max = 0;

    /* Returns the token with the longest text with which the n bytes begin, and the length of this text. Returns -1 if
     * the bytes begin with the text of no token. */
    int32_t longest(const char *text, size_t n, size_t *n_bytes) const;

    /* Returns the tree of a model. The tree of the most recently used model is kept, because building a tree takes a
     * few hundred milliseconds for a large vocabulary. Any thread can call this function. While one thread builds the
     * tree, other callers wait. */
    static std::shared_ptr<const vocabulary_trie> of(const model *m);
};

#endif
