#include <math.h>

#include "engine/engine.h"

static int texts_check(const model_info *info, const int32_t *tokens, const uint32_t *n_tokens, size_t n_texts)
{
    if (info->n_embedding == 0 || n_texts == 0 || n_texts > UINT32_MAX) {
        return LLM_INVALID;
    }
    for (size_t i = 0; i < n_texts; i++) {
        if (n_tokens[i] == 0 || n_tokens[i] > info->n_embedding_tokens) {
            return LLM_CONTEXT_LENGTH;
        }
        if (!branch_are_tokens(info, tokens, n_tokens[i])) {
            return LLM_TOKEN;
        }
        tokens += n_tokens[i];
    }
    return LLM_OK;
}

/* Scales a vector to length 1, but leaves a vector of zeros as it is. Returns false if values are not finite
 * numbers. */
static bool normalize(float *vector, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += (double)vector[i] * vector[i];
    }
    const double scale = sum > 0 ? 1 / sqrt(sum) : 0;
    for (uint32_t i = 0; i < n; i++) {
        vector[i] = (float)(vector[i] * scale);
    }
    return isfinite(sum);
}

int llm_embed(const llm_engine *engine, const int32_t *tokens, const uint32_t *n_tokens, size_t n_texts,
              const int32_t *cancel_flag, float *out, size_t *n_done)
{
    model *m = engine->model;
    uint32_t n = 0;
    int status = texts_check(&m->info, tokens, n_tokens, n_texts);
    if (status == LLM_OK) {
        status = m->ops->embed(m, tokens, n_tokens, (uint32_t)n_texts, cancel_flag, out, &n);
    }
    if (status != LLM_OK) {
        return status;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!normalize(out + (size_t)i * m->info.n_embedding, m->info.n_embedding)) {
            return LLM_STEP_FAILED;
        }
    }
    *n_done = n;
    return LLM_OK;
}
