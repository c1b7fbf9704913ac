/* sampler_chain.h: llama.cpp's own samplers, in any order, for what sampler.cpp has no fast way for. One for each answer. */
#ifndef LLM_SAMPLER_CHAIN_H
#define LLM_SAMPLER_CHAIN_H

#include <cstdint>
#include <string>
#include <vector>

#include "llm.h"
#include "model/model.h"

struct llama_sampler;

/* The seed of a random number generator: a seed below 2^32 is used as it is, as in llama.cpp; of a larger one all bits
 * count. Never LLAMA_DEFAULT_SEED (2^32 - 1): llama.cpp would draw a new seed each time. */
uint32_t generator_seed(uint64_t seed);

class sampler_chain {
  public:
    /* Takes a look at the whole vocabulary for DRY's breakers. Throws std::bad_alloc. */
    sampler_chain(const model *m, const llm_sampling &s, const std::vector<std::string> &breakers);
    ~sampler_chain();
    sampler_chain(const sampler_chain &) = delete;
    sampler_chain &operator=(const sampler_chain &) = delete;

    /* Whether this is needed. If not, `s` is what has the same meaning in the usual order: what is not in the order asked
     * for is off. */
    static bool is_needed(llm_sampling &s);

    void accept(int32_t token);
    /* -1: every token is ruled out. */
    int32_t pick(const float *logits, uint32_t n);

  private:
    llama_sampler *chain;
    const float *current = nullptr; /* logits of the current pick */
};

#endif
