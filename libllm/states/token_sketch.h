/* token_sketch.h: a sequence of tokens in a few hashes: how much of it a prompt begins with, as far as that can be proved
 * without the tokens. Pure.
 *
 * The hashes are of all but the last half, quarter, eighth ..., and of all. So, whatever part of it is a head that many prompts
 * share, one of these prefixes ends in the third quarter of what is behind the head; or only the whole proves anything. */
#ifndef LLM_TOKEN_SKETCH_H
#define LLM_TOKEN_SKETCH_H

#include "states/token_hash.h"

enum { TOKEN_SKETCH_PREFIXES = 10 };

typedef struct token_sketch {
    uint32_t n_tokens;
    token_hash prefixes[TOKEN_SKETCH_PREFIXES]; /* the shortest first */
} token_sketch;

token_sketch token_sketch_of(const int32_t *tokens, uint32_t n_tokens);

/* The longest of its prefixes that the prompt begins with; 0: no more than half is shared. */
uint32_t token_sketch_common(const token_sketch *s, const int32_t *prompt, uint32_t n_prompt);

#endif
