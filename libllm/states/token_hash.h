/* token_hash.h: a hash of 128 bits over a sequence of tokens. It serves to find checkpoints that may be prefixes of a
 * prompt. It also says to which tokens the state in a state file belongs. The hash has two independent multiply-xor
 * lanes, with the constants of splitmix64 (Steele et al. 2014). */
#ifndef LLM_TOKEN_HASH_H
#define LLM_TOKEN_HASH_H

#include <stdbool.h>
#include <stdint.h>

typedef struct token_hash {
    uint64_t lane[2];
} token_hash;

static inline token_hash token_hash_begin(uint32_t owner)
{
    return (token_hash){{0x9e3779b97f4a7c15ull + owner, 0xd1b54a32d192ed03ull ^ owner}};
}

static inline void token_hash_add(token_hash *h, int32_t token)
{
    const uint64_t x = (uint32_t)token + 1u;
    h->lane[0] = (h->lane[0] ^ x) * 0xbf58476d1ce4e5b9ull;
    h->lane[0] ^= h->lane[0] >> 29;
    h->lane[1] = (h->lane[1] + x) * 0x94d049bb133111ebull;
    h->lane[1] ^= h->lane[1] >> 31;
}

static inline token_hash token_hash_of(uint32_t owner, const int32_t *tokens, uint32_t n)
{
    token_hash h = token_hash_begin(owner);
    for (uint32_t i = 0; i < n; i++) {
        token_hash_add(&h, tokens[i]);
    }
    return h;
}

static inline bool token_hash_equal(token_hash a, token_hash b)
{
    return a.lane[0] == b.lane[0] && a.lane[1] == b.lane[1];
}

#endif
