/* sampler_infill.h: llama.cpp's sampler "infill", for filling in the middle of a text. If the text of a candidate token
 * begins with the text of another candidate, the probabilities of the two are added. The answer ends as soon as an end
 * token is likely. Owned by one sampler chain. */
#ifndef LLM_SAMPLER_INFILL_H
#define LLM_SAMPLER_INFILL_H

#include "model/model.h"

struct llama_sampler;

/* `logits` is the address of the chain's pointer. Each pick sets this pointer to the current logits. Creating and
 * applying the sampler can throw std::bad_alloc. */
llama_sampler *sampler_infill(const model *m, const float *const *logits);

#endif
