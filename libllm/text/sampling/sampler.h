/* sampler.h: picks tokens from logits. One sampler for each generation, owned by the decode thread; while sampler_next
 * runs in another thread (sampling.h), by that thread. It works on plain logits, so that the simulated model is sampled
 * by the same code. */
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

/* Everything is copied. Pointers are NULL where the count is 0. */
typedef struct sampler_options {
    llm_sampling sampling; /* UINT64_MAX as the seed: one is drawn at random, see sampler_seed */
    const logit_bias *biases;
    size_t n_biases;
    bool ignore_end; /* end-of-turn tokens of the model are never sampled */
    const int32_t *stop_tokens;
    size_t n_stop_tokens;
    uint32_t min_tokens;    /* before, no token that ends the answer is picked, unless nothing else is possible */
    const char *constraint; /* the document of llm_wire.h */
    size_t n_constraint_bytes;
    bool has_breakers; /* sequence breakers of DRY; false: the default ones */
    uint32_t n_breakers;
    const char *const *breakers;
    const size_t *breaker_bytes;
} sampler_options;

/* LLM_OK, LLM_TOKEN (a token is outside the vocabulary), LLM_NO_MEMORY. The constraint is read with the first token,
 * since that may take long. */
int sampler_open(const model *m, const sampler_options *options, sampler **out);
void sampler_close(sampler *s); /* NULL is allowed */

/* Gives the sampler the tokens of the prompt, in order. It takes only as many of the last ones as its penalties look
 * back over: for a prompt of 120,000 tokens all of them were 7 ms of the decode thread. */
void sampler_accept(sampler *s, const int32_t *tokens, size_t n);

/* Picks a token as sampler_next does, but does not accept it yet. */
int sampler_pick(sampler *s, float *logits, int32_t *token);
/* Picks the next token from n_vocab logits, which it may modify, and accepts it. If all tokens are excluded and there
 * is no constraint, the largest logit wins. LLM_OK; LLM_CONSTRAINT (the constraint is faulty, too large, or allows no
 * token) or LLM_NO_MEMORY: the answer cannot continue. */
int sampler_next(sampler *s, float *logits, int32_t *token);

/* Returns whether the next sampler_next may take long (a hundred milliseconds, or a second) and should run in a thread
 * that no other stream waits for. */
bool sampler_is_slow(const sampler *s);

/* Returns whether the token ends the answer; it is no part of the text then. */
bool sampler_ends(const sampler *s, int32_t token);
/* Returns whether the text of this control token is part of the answer's text. */
bool sampler_shows(const sampler *s, int32_t token);

/* Returns whether the last token belongs to the reasoning, or is a blank between that and the answer. Only known if the
 * constraint says how an answer reasons; stop strings are ignored there. */
bool sampler_is_before_answer(const sampler *s);

uint64_t sampler_seed(const sampler *s);

#ifdef __cplusplus
}
#endif
#endif
