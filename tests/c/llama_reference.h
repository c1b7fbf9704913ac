/* llama_reference.h: llama.cpp's own samplers and grammars on a vocabulary_model, as it would be used there. */
#ifndef LLAMA_REFERENCE_H
#define LLAMA_REFERENCE_H

#include <stdbool.h>

#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Probability of each token after these samplers, NULL-terminated ("top_k", ...), have seen the history. */
void reference_distribution(const model *m, const llm_sampling *s, const char *const *order, const int32_t *history,
                            uint32_t n_history, const float *logits, double *out);

/* The tokens that these samplers draw from the same logits, one after the other; mirostat in their stead where `s` has it. */
void reference_draws(const model *m, const llm_sampling *s, const char *const *order, uint32_t seed,
                     const float *logits, int32_t *out, uint32_t n);

/* Which tokens the grammar allows after these. False: the grammar is none. */
bool reference_allowed(const model *m, const char *grammar, const int32_t *tokens, uint32_t n_tokens, bool *out);

#ifdef __cplusplus
}
#endif
#endif
