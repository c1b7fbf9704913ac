/* Embeddings of the simulated model. An embedding depends only on the state after the text, so the same text gives the
 * same vector in any batch. */
#include <time.h>

#include "model/sim/sim_model.h"

enum { TEXTS_MAX = 4 }; /* most texts of one batch */

/* Sleeps for `us` microseconds, and checks the flag every millisecond. Returns false if the call was cancelled. */
static bool rest(uint64_t us, const int32_t *cancel_flag)
{
    enum { SLICE_US = 1000, NS = 1000 };
    for (; us > 0 && !model_embedding_is_cancelled(cancel_flag); us -= us < SLICE_US ? us : SLICE_US) {
        const struct timespec slice = {.tv_nsec = (long)(us < SLICE_US ? us : SLICE_US) * NS};
        nanosleep(&slice, NULL);
    }
    return !model_embedding_is_cancelled(cancel_flag);
}

int sim_embed(model *base, const int32_t *tokens, const uint32_t *n_tokens, uint32_t n_texts,
              const int32_t *cancel_flag, float *out, uint32_t *n_done)
{
    const sim_model *m = sim_of(base);
    const uint32_t n = n_texts < TEXTS_MAX ? n_texts : TEXTS_MAX;
    uint64_t us = m->options.step_us;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t hash = sim_state_empty().hash;
        for (uint32_t k = 0; k < n_tokens[i]; k++) {
            hash = sim_state_after(hash, tokens[k]);
        }
        tokens += n_tokens[i];
        us += m->options.token_us * n_tokens[i];
        for (uint32_t d = 0; d < m->base.info.n_embedding; d++) {
            hash = sim_state_after(hash, (int32_t)d);
            *out++ = (float)(int32_t)(hash >> 32) / 2147483648.0f;
        }
    }
    if (!rest(us, cancel_flag)) {
        return LLM_CANCELLED;
    }
    *n_done = n;
    return LLM_OK;
}
