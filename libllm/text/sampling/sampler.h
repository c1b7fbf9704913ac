/* sampler.h: picks tokens from logits. One sampler per generation. The decode thread owns the sampler. While another
 * thread runs sampler_next, that thread owns the sampler (sampling.h). A sampler works on plain logits, so that it also
 * works with the simulated model. */
#ifndef LLM_SAMPLER_H
#define LLM_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llm.h"
#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sampler sampler;

typedef struct logit_bias {
    int32_t token;
    float bias;
} logit_bias;

/* Options of a sampler, which copies all arrays and strings. A pointer is NULL if its count is 0. */
typedef struct sampler_options {
    llm_sampling sampling; /* a seed of UINT64_MAX is replaced by a random seed, see sampler_seed */
    const logit_bias *biases;
    size_t n_biases;
    bool ignore_end; /* end-of-turn tokens of the model are never sampled */
    const int32_t *stop_tokens;
    size_t n_stop_tokens;
    uint32_t min_tokens;    /* before the answer has this many tokens, a token that ends the answer is picked only if no
                             * other token is possible */
    const char *constraint; /* the constraint as a document (llm_wire.h) */
    size_t n_constraint_bytes;
    bool no_guesses;   /* sampler_guess is not called */
    bool has_breakers; /* whether the request has sequence breakers for DRY. If not, the default breakers are used */
    uint32_t n_breakers;
    const char *const *breakers;
    const size_t *breaker_bytes;
} sampler_options;

/* Returns LLM_OK, LLM_TOKEN (a token is outside the vocabulary) or LLM_NO_MEMORY. The constraint is parsed when the
 * first token is picked, because parsing can take long. */
int sampler_open(const model *m, const sampler_options *options, sampler **out);
void sampler_close(sampler *s); /* NULL is allowed */

/* Passes the prompt's tokens to the sampler, in order. The sampler copies only as many of the last tokens as its
 * penalties use. Copying all tokens of a prompt of 120,000 tokens took 7 ms of the decode thread. */
void sampler_accept(sampler *s, const int32_t *tokens, size_t n);

/* Does the same as sampler_next, but does not accept the token. */
int sampler_pick(sampler *s, float *logits, int32_t *token);
/* Picks the next token from n_vocab logits, which the function can modify, and accepts this token. If all tokens are
 * excluded and there is no constraint, the token with the largest logit is picked. Returns LLM_OK on success.
 * LLM_CONSTRAINT and LLM_NO_MEMORY mean that the answer cannot continue. LLM_CONSTRAINT means that the constraint is
 * malformed, too large, or allows no token. */
int sampler_next(sampler *s, float *logits, int32_t *token);

/* Does the same as sampler_next if that takes at most a fraction of a millisecond. Returns false otherwise. Then no
 * token was picked, and sampler_next must be called with the same logits. sampler_next should run in a thread for which
 * no other request waits, because it can take long, for example 100 ms or a second. Both functions pick the same token.
 * After a slow pick, sampler_next_quick returns false at once for some of the next tokens (backoff.h). */
bool sampler_next_quick(sampler *s, float *logits, int *status, int32_t *token);

/* Returns whether sampler_next_quick will certainly return false. */
bool sampler_is_slow(const sampler *s);

/* Returns whether picks check a constraint, which takes longer than other picks. */
bool sampler_is_constrained(const sampler *s);

/* Writes the next tokens, as far as the grammar allows only one continuation. Returns the number of these tokens, at
 * most n_max. */
uint32_t sampler_guess(sampler *s, int32_t *tokens, uint32_t n_max);

/* Returns whether the token ends the answer. Such a token is not part of the text. */
bool sampler_ends(const sampler *s, int32_t token);
/* Returns whether the text of this control token is part of the answer's text. */
bool sampler_shows(const sampler *s, int32_t token);

/* Returns whether the last token is reasoning, or a blank between reasoning and answer. Stop strings are ignored in
 * such tokens. Returns false if the constraint does not say where reasoning ends. */
bool sampler_is_before_answer(const sampler *s);

uint64_t sampler_seed(const sampler *s);

#ifdef __cplusplus
}
#endif
#endif
