/* llama_reference.h: runs llama.cpp's own samplers and grammars on a vocabulary_model, as references for tests. */
#ifndef LLAMA_REFERENCE_H
#define LLAMA_REFERENCE_H

#include <stdbool.h>

#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Computes the probability of each token after these samplers, which have received the history. `order` is a list of
 * names such as "top_k", and ends with NULL. */
void reference_distribution(const model *m, const llm_sampling *s, const char *const *order, const int32_t *history,
                            uint32_t n_history, const float *logits, double *out);

/* Draws tokens from the same logits with these samplers, one token after the other. If `s` enables mirostat, mirostat
 * replaces the samplers. */
void reference_draws(const model *m, const llm_sampling *s, const char *const *order, uint32_t seed,
                     const float *logits, int32_t *out, uint32_t n);

/* Finds the tokens that the grammar allows after these tokens. Returns false if the grammar is invalid. */
bool reference_allowed(const model *m, const char *grammar, const int32_t *tokens, uint32_t n_tokens, bool *out);

#ifdef __cplusplus
}
#endif
#endif
