#include "policy/copy_cost.h"

enum { MIB = 1024 * 1024 };

double copy_cost_token_us_first(uint64_t n_params, bool on_gpu)
{
    const double operations_per_us = on_gpu ? 3e8 : 2e6;
    const double us = 2.0 * (double)n_params / operations_per_us, least_us = on_gpu ? 5 : 50;
    return us > least_us ? us : least_us;
}

uint32_t copy_cost_tokens(const copy_cost_pace *pace, size_t n_bytes)
{
    if (n_bytes <= COPY_COST_FREE_BYTES || pace->token_us <= 0) {
        return 0;
    }
    const double tokens = (double)n_bytes / MIB * pace->mib_us / pace->token_us;
    return tokens < UINT32_MAX / 2 ? (uint32_t)tokens : UINT32_MAX / 2;
}

static void learn(double *mib_us, size_t n_bytes, double us)
{
    const double weight = 0.2;
    if (n_bytes <= COPY_COST_FREE_BYTES) {
        return; /* a small copy, in which fixed costs took most of the time */
    }
    const double sample = us * MIB / (double)n_bytes;
    *mib_us = *mib_us <= 0 ? sample : *mib_us + weight * (sample - *mib_us);
}

void copy_cost_learn(copy_cost_pace *pace, size_t n_bytes, double us)
{
    learn(&pace->mib_us, n_bytes, us);
}

void copy_cost_learn_disk(copy_cost_pace *pace, size_t n_bytes, double us)
{
    learn(&pace->disk_us, n_bytes, us);
}

double copy_cost_us(const copy_cost_pace *pace, size_t n_bytes)
{
    return (double)n_bytes / MIB * (pace->mib_us > 0 ? pace->mib_us : COPY_COST_MIB_US_FIRST);
}

static double reading_us(const copy_cost_pace *pace, uint32_t n_tokens)
{
    return n_tokens * (pace->token_us > 0 ? pace->token_us : pace->token_us_first);
}

double copy_cost_fetch_saves_us(const copy_cost_pace *pace, size_t n_bytes, size_t n_bytes_before, uint32_t n_tokens)
{
    const double disk_us = pace->disk_us > 0 ? pace->disk_us : COPY_COST_DISK_MIB_US_FIRST;
    const double from_disk_us = ((double)n_bytes + (double)n_bytes_before) / MIB * disk_us;
    const double us = reading_us(pace, n_tokens) - from_disk_us - copy_cost_us(pace, n_bytes);
    return n_tokens >= COPY_COST_TOKENS_MIN && us > 0 ? us : 0;
}

double copy_cost_wait_us_max(const copy_cost_pace *pace, uint32_t n_tokens)
{
    const double us = reading_us(pace, n_tokens), least_us = 1e6;
    return us > least_us ? us : least_us;
}

static bool is_answer_replaced(const copy_cost_divergence *c)
{
    return c->n_common < c->n_prompt && c->n_common + COPY_COST_SUFFIX_TOKENS >= c->n_history;
}

bool copy_cost_pays_off(const copy_cost_divergence *c)
{
    const uint32_t n_lost = c->n_tokens - c->n_common;
    return n_lost >= COPY_COST_TOKENS_MIN && n_lost > c->n_cost && c->copy_us <= c->stall_budget_us &&
           !is_answer_replaced(c);
}
