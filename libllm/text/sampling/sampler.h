/* sampler.h: picks tokens from logits: one sampler per generation, owned by the decode thread, and while sampler_next works on
 * another one (sampling.h) by that. Works on plain logits, so that the simulated model is sampled by the same code. */
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

/* All is copied. NULL where there are none. */
typedef struct sampler_options {
    llm_sampling sampling; /* a seed of UINT64_MAX is drawn at random; sampler_seed tells the one in use */
    const logit_bias *biases;
    size_t n_biases;
    bool ignore_end; /* end-of-turn tokens of the model are never sampled */
    const int32_t *stop_tokens;
    size_t n_stop_tokens;
    uint32_t min_tokens;    /* before, no token that ends the answer is sampled, unless nothing else is possible */
    const char *constraint; /* the document of llm_wire.h */
    size_t n_constraint_bytes;
    bool has_breakers; /* of DRY; false: the usual ones */
    uint32_t n_breakers;
    const char *const *breakers;
    const size_t *breaker_bytes;
} sampler_options;

/* LLM_OK, LLM_TOKEN (one is outside the vocabulary), LLM_NO_MEMORY. The constraint is not read yet. */
int sampler_open(const model *m, const sampler_options *options, sampler **out);
void sampler_close(sampler *s); /* NULL is allowed */

/* Tells the sampler about the tokens of the prompt, in order: it takes the latest ones, which it looks back over. */
void sampler_accept(sampler *s, const int32_t *tokens, size_t n);

/* As sampler_next, but the token is not accepted yet. */
int sampler_pick(sampler *s, float *logits, int32_t *token);
/* Picks the next token from n_vocab logits, which it may modify, and accepts it. Should every candidate be ruled out, and
 * there is no constraint, the largest logit wins. LLM_OK; LLM_CONSTRAINT (it is faulty, too large, or leads nowhere),
 * LLM_NO_MEMORY: the answer cannot go on. */
int sampler_next(sampler *s, float *logits, int32_t *token);

/* The next sampler_next is not for a thread that others wait for: it may take a hundred milliseconds, or a second. */
bool sampler_is_slow(const sampler *s);

/* The token ends the answer, and is no part of its text. */
bool sampler_ends(const sampler *s, int32_t token);
/* The text of this control token is part of the answer's. */
bool sampler_shows(const sampler *s, int32_t token);

/* What was accepted last is thought, or a blank between that and the answer: known where the constraint says how an answer
 * thinks. */
bool sampler_is_before_answer(const sampler *s);

uint64_t sampler_seed(const sampler *s);

#ifdef __cplusplus
}
#endif
#endif
