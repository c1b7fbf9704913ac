/* sampler_chain.h: picks tokens with llama.cpp's own samplers, in any order. Used for requests that the fast path of
 * sampler.cpp does not cover. One chain per answer, owned by its sampler. */
#ifndef LLM_SAMPLER_CHAIN_H
#define LLM_SAMPLER_CHAIN_H

#include <cstdint>
#include <string>
#include <vector>

#include "llm.h"
#include "model/model.h"

struct llama_sampler;

/* Returns the 32-bit seed for all random number generators of an answer, made from the seed of the request. A seed
 * below 2^32 is used unchanged, as in llama.cpp. A larger seed is folded, so that all its bits count. The result is
 * never LLAMA_DEFAULT_SEED (2^32 - 1). llama.cpp would replace that seed by a random one, and the same request would
 * get different answers. */
uint32_t generator_seed(uint64_t seed);

class sampler_chain {
  public:
    /* Searches the whole vocabulary for the sequence breakers of the sampler DRY, which is slow. Throws
     * std::bad_alloc. */
    sampler_chain(const model *m, const llm_sampling &s, const std::vector<std::string> &breakers);
    ~sampler_chain();
    sampler_chain(const sampler_chain &) = delete;
    sampler_chain &operator=(const sampler_chain &) = delete;

    /* Returns whether a chain is needed. If no chain is needed, changes `s` so that the default order has the same
     * effect as the requested order. For this, turns off the samplers that the requested order leaves out. */
    static bool is_needed(llm_sampling &s);

    void accept(int32_t token);
    /* Returns the picked token, or -1 if all tokens are excluded. */
    int32_t pick(const float *logits, uint32_t n);

  private:
    llama_sampler *chain;
    const float *current = nullptr; /* logits of the current pick, for sampler_infill */
};

#endif
