#include "policy/worth.h"

enum { MIB = 1024 * 1024 };

double worth_token_us_first(uint64_t n_params, bool on_gpu)
{
    const double operations_per_us = on_gpu ? 3e8 : 2e6;
    const double us = 2.0 * (double)n_params / operations_per_us, least_us = on_gpu ? 5 : 50;
    return us > least_us ? us : least_us;
}

uint32_t worth_tokens(const worth_pace *pace, size_t n_bytes)
{
    if (n_bytes <= WORTH_FREE_BYTES || pace->token_us <= 0) {
        return 0;
    }
    const double tokens = (double)n_bytes / MIB * pace->mib_us / pace->token_us;
    return tokens < UINT32_MAX / 2 ? (uint32_t)tokens : UINT32_MAX / 2;
}

static void learn(double *mib_us, size_t n_bytes, double us)
{
    const double weight = 0.2;
    if (n_bytes <= WORTH_FREE_BYTES) {
        return; /* the call itself took most of the time */
    }
    const double sample = us * MIB / (double)n_bytes;
    *mib_us = *mib_us <= 0 ? sample : *mib_us + weight * (sample - *mib_us);
}

void worth_learn(worth_pace *pace, size_t n_bytes, double us)
{
    learn(&pace->mib_us, n_bytes, us);
}

void worth_learn_disk(worth_pace *pace, size_t n_bytes, double us)
{
    learn(&pace->disk_us, n_bytes, us);
}

double worth_copy_us(const worth_pace *pace, size_t n_bytes)
{
    return (double)n_bytes / MIB * (pace->mib_us > 0 ? pace->mib_us : WORTH_MIB_US_FIRST);
}

static double reading_us(const worth_pace *pace, uint32_t n_tokens)
{
    return n_tokens * (pace->token_us > 0 ? pace->token_us : pace->token_us_first);
}

double worth_fetching_us(const worth_pace *pace, size_t n_bytes, size_t n_bytes_before, uint32_t n_tokens)
{
    const double disk_us = pace->disk_us > 0 ? pace->disk_us : WORTH_DISK_MIB_US_FIRST;
    const double from_disk_us = ((double)n_bytes + (double)n_bytes_before) / MIB * disk_us;
    const double us = reading_us(pace, n_tokens) - from_disk_us - worth_copy_us(pace, n_bytes);
    return n_tokens >= WORTH_TOKENS_MIN && us > 0 ? us : 0;
}

double worth_waiting_us(const worth_pace *pace, uint32_t n_tokens)
{
    const double us = reading_us(pace, n_tokens), least_us = 1e6;
    return us > least_us ? us : least_us;
}

static bool is_answer_replaced(const worth_cut *c)
{
    return c->n_common < c->n_prompt && c->n_common + WORTH_SUFFIX_TOKENS >= c->n_history;
}

bool worth_keeping(const worth_cut *c)
{
    const uint32_t n_lost = c->n_tokens - c->n_common;
    return n_lost >= WORTH_TOKENS_MIN && n_lost > c->n_cost && c->copy_us <= c->patience_us && !is_answer_replaced(c);
}
