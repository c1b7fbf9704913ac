/* Embeddings of the simulated model: they follow from the state after the text alone, and are the same for the same text,
 * whatever is embedded beside it. */
#include <time.h>

#include "model/sim/sim_model.h"

enum { TEXTS_MAX = 4 }; /* of one batch */

int sim_embed(model *base, const int32_t *tokens, const uint32_t *n_tokens, uint32_t n_texts, float *out,
              uint32_t *n_done)
{
    const sim_model *m = sim_of(base);
    const uint32_t n = n_texts < TEXTS_MAX ? n_texts : TEXTS_MAX;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t hash = sim_state_empty().hash;
        for (uint32_t k = 0; k < n_tokens[i]; k++) {
            hash = sim_state_after(hash, tokens[k]);
        }
        tokens += n_tokens[i];
        for (uint32_t d = 0; d < m->base.info.n_embedding; d++) {
            hash = sim_state_after(hash, (int32_t)d);
            *out++ = (float)(int32_t)(hash >> 32) / 2147483648.0f;
        }
    }
    const struct timespec rest = {.tv_sec = (time_t)(m->options.step_us / 1000000),
                                  .tv_nsec = (long)(m->options.step_us % 1000000 * 1000)};
    nanosleep(&rest, NULL);
    *n_done = n;
    return LLM_OK;
}
