#include "policy/leader.h"

#include <stdbool.h>

#include "policy/copy_cost.h"

uint32_t leader_shared(const checkpoint_points *points, uint32_t n_common)
{
    const uint32_t at = checkpoint_points_last(points, n_common);
    return points->needs_boundaries || n_common - at < COPY_COST_TOKENS_MIN ? at : n_common;
}

/* Returns how many tokens the leader must still consume. */
static uint32_t n_left(const leader_candidate *c)
{
    return c->n_shared > c->n_consumed ? c->n_shared - c->n_consumed : 0;
}

/* Returns how many tokens the request need not prefill itself if it waits for the leader. */
static uint32_t n_saved(const leader_candidate *c, uint32_t n_known)
{
    return c->n_shared > n_known ? c->n_shared - n_known : 0;
}

static bool pays_off(const leader_candidate *c, uint32_t n_known, uint32_t n_call)
{
    const uint64_t own = n_saved(c, n_known), left = n_left(c);
    const uint64_t wait = left + c->n_cost + n_call;
    const uint64_t without_wait = own + (left < own ? left : own);
    return own >= COPY_COST_TOKENS_MIN && left > 0 && wait <= without_wait;
}

static int64_t gain_of(const leader_candidate *c)
{
    return (int64_t)c->n_shared - c->n_cost;
}

static bool is_better(const leader_candidate *a, const leader_candidate *b)
{
    return gain_of(a) != gain_of(b) ? gain_of(a) > gain_of(b) : n_left(a) < n_left(b);
}

int32_t leader_choose(const leader_candidate *candidates, uint32_t n, uint32_t n_known, uint32_t n_call)
{
    int32_t best = -1;
    for (uint32_t i = 0; i < n; i++) {
        if (pays_off(&candidates[i], n_known, n_call) && (best < 0 || is_better(&candidates[i], &candidates[best]))) {
            best = (int32_t)i;
        }
    }
    return best;
}
