/* scratch_memory.h: memory for one number per token, or per block (lanes.h). The memory belongs to the thread and not
 * to the sampler. So the memory stays in the processor's cache when the thread samples for many requests. */
#ifndef LLM_SCRATCH_MEMORY_H
#define LLM_SCRATCH_MEMORY_H

#include <cstdint>
#include <vector>

#include "text/sampling/lanes.h"

inline float *weights_of_thread(uint32_t n)
{
    static thread_local std::vector<float> weights;
    if (weights.size() < n) {
        weights.resize(n);
    }
    return weights.data();
}

inline float *blocks_of_thread(uint32_t n)
{
    static thread_local std::vector<float> blocks;
    if (blocks.size() < n / BLOCK + 1) {
        blocks.resize(n / BLOCK + 1);
    }
    return blocks.data();
}

#endif
