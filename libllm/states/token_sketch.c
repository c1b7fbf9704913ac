#include "states/token_sketch.h"

static uint32_t end_of(uint32_t n_tokens, uint32_t prefix)
{
    const uint32_t shift = prefix + 1;
    return n_tokens == 0 || shift == TOKEN_SKETCH_PREFIXES ? n_tokens : n_tokens - ((n_tokens - 1) >> shift);
}

static void add_until(token_hash *h, const int32_t *tokens, uint32_t *n_added, uint32_t end)
{
    for (; *n_added < end; (*n_added)++) {
        token_hash_add(h, tokens[*n_added]);
    }
}

token_sketch token_sketch_of(const int32_t *tokens, uint32_t n_tokens)
{
    token_sketch s = {.n_tokens = n_tokens};
    token_hash h = token_hash_begin(0);
    uint32_t n_added = 0;
    for (uint32_t i = 0; i < TOKEN_SKETCH_PREFIXES; i++) {
        add_until(&h, tokens, &n_added, end_of(n_tokens, i));
        s.prefixes[i] = h;
    }
    return s;
}

uint32_t token_sketch_common(const token_sketch *s, const int32_t *prompt, uint32_t n_prompt)
{
    token_hash h = token_hash_begin(0);
    uint32_t n_common = 0;
    uint32_t n_added = 0;
    for (uint32_t i = 0; i < TOKEN_SKETCH_PREFIXES; i++) {
        const uint32_t end = end_of(s->n_tokens, i);
        if (end > n_prompt) {
            break;
        }
        add_until(&h, prompt, &n_added, end);
        if (!token_hash_equal(h, s->prefixes[i])) {
            break;
        }
        n_common = end;
    }
    return n_common;
}
