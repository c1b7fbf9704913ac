/* sampler_names.h: samplers by the names that model files give them. Pure. */
#ifndef LLM_MODEL_LLAMA_SAMPLER_NAMES_H
#define LLM_MODEL_LLAMA_SAMPLER_NAMES_H

#include <cstdint>
#include <string>

/* llm_sampling.samplers of a list like "top_k;temperature". llama.cpp accepts each name in any case, with hyphens or without
 * underscores, and some short ones (common_sampler_types_from_names). Unknown names are left out, as there. */
uint64_t sampler_order_of(const std::string &names);

#endif
