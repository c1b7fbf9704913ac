/* sampler.h: picks tokens from logits: one sampler per generation, owned by the decode thread.
 * Works on plain logits, so that the simulated model is sampled by the same code. */
#ifndef LLM_SAMPLER_H
#define LLM_SAMPLER_H

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

/* `biases` are copied. ignore_end: end-of-turn tokens of the model are never sampled. A seed of UINT64_MAX is drawn
 * at random; sampler_seed tells the one in use. LLM_OK, LLM_TOKEN (a bias outside the vocabulary), LLM_NO_MEMORY. */
int sampler_open(const model *m, const llm_sampling *sampling, const logit_bias *biases, size_t n_biases,
                 int ignore_end, sampler **out);
void sampler_close(sampler *s); /* NULL is allowed */

/* Tells the sampler about a token that precedes the next sample: prompt tokens and each sampled token, in order. */
void sampler_accept(sampler *s, int32_t token);

/* Picks a token from n_vocab logits (which it may modify). Never fails: should every candidate be ruled out, the
 * largest logit wins. Does not accept the token. */
int32_t sampler_sample(sampler *s, float *logits);

uint64_t sampler_seed(const sampler *s);

#ifdef __cplusplus
}
#endif
#endif
