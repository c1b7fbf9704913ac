/* sampler_chain.h: llama.cpp's own samplers in any order, for requests that the fast path of sampler.cpp does not
 * cover. One chain per answer, owned by its sampler. */
#ifndef LLM_SAMPLER_CHAIN_H
#define LLM_SAMPLER_CHAIN_H

#include <cstdint>
#include <string>
#include <vector>

#include "llm.h"
#include "model/model.h"

struct llama_sampler;

/* Returns the seed of a random number generator, which is the same for all generators of an answer. A seed below 2^32
 * is used unchanged, as in llama.cpp; from a larger seed all bits are used. The result is never LLAMA_DEFAULT_SEED
 * (2^32 - 1), which llama.cpp would replace by a random seed, so that the same request would get different answers. */
uint32_t generator_seed(uint64_t seed);

class sampler_chain {
  public:
    /* Searches the whole vocabulary for DRY's breakers, which is slow. Throws std::bad_alloc. */
    sampler_chain(const model *m, const llm_sampling &s, const std::vector<std::string> &breakers);
    ~sampler_chain();
    sampler_chain(const sampler_chain &) = delete;
    sampler_chain &operator=(const sampler_chain &) = delete;

    /* Returns whether a chain is needed. If not, changes `s` to parameters that have the same effect in the default
     * order, in which samplers that the requested order leaves out are turned off. */
    static bool is_needed(llm_sampling &s);

    void accept(int32_t token);
    /* Returns the picked token, or -1 if all tokens are excluded. */
    int32_t pick(const float *logits, uint32_t n);

  private:
    llama_sampler *chain;
    const float *current = nullptr; /* logits of the current pick, for sampler_infill */
};

#endif
