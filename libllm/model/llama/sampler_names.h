/* sampler_names.h: the names of samplers in model files (general.sampling.sequence). Pure function. */
#ifndef LLM_MODEL_LLAMA_SAMPLER_NAMES_H
#define LLM_MODEL_LLAMA_SAMPLER_NAMES_H

#include <cstdint>
#include <string>

/* Returns the value of llm_sampling.samplers for a list like "top_k;temperature". As in llama.cpp
 * (common_sampler_types_from_names), names can have upper or lower case letters, and underscores can be replaced by
 * hyphens or left out. Some names have short forms. Unknown names are ignored. */
uint64_t sampler_order_of(const std::string &names);

#endif
