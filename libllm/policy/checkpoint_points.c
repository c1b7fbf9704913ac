#include "policy/checkpoint_points.h"

#include <assert.h>
#include <string.h>

static void insert(checkpoint_points *c, uint32_t at)
{
    uint32_t i = 0;
    while (c->at[i] < at) {
        i++;
    }
    if (c->at[i] == at) {
        return;
    }
    assert(c->n < CHECKPOINT_POINTS_MAX);
    memmove(c->at + i + 1, c->at + i, (c->n - i) * sizeof c->at[0]);
    c->at[i] = at;
    c->n++;
}

void checkpoint_points_open(checkpoint_points *c, const checkpoint_points_input *in)
{
    assert(in->n_boundaries <= LLM_BOUNDARIES_MAX);
    *c = (checkpoint_points){.needs_boundaries = in->needs_boundaries};
    if (in->n_head >= CHECKPOINT_HEAD_TOKENS_MIN && in->n_head < in->n_prompt) {
        c->head_at = in->n_head;
    }
    for (uint32_t i = 0; i < in->n_boundaries && in->needs_boundaries; i++) {
        const uint32_t at = in->boundaries[i];
        if (at > 0 && at < in->n_prompt && (at >= c->head_at || at >= CHECKPOINT_HEAD_TOKENS_MIN)) {
            c->at[c->n++] = at;
        }
    }
    c->at[c->n++] = in->n_prompt;
    if (c->head_at > 0) {
        insert(c, c->head_at);
    }
}

static void pass(checkpoint_points *c, uint32_t n_tokens)
{
    while (c->next + 1 < c->n && c->at[c->next] <= n_tokens) {
        c->next++;
    }
}

void checkpoint_points_begin(checkpoint_points *c, const resume_plan *plan)
{
    const uint32_t at = plan->diverged_at > 0 ? (uint32_t)plan->diverged_at : 0;
    const uint32_t served = plan->n_keep + (plan->checkpoint >= 0 ? CHECKPOINT_NEAR_TOKENS : 0);
    if (c->needs_boundaries && at > served) {
        insert(c, at);
    }
    pass(c, plan->n_keep);
}

uint32_t checkpoint_points_next(const checkpoint_points *c)
{
    return c->at[c->next];
}

uint32_t checkpoint_points_last(const checkpoint_points *c, uint32_t n_max)
{
    uint32_t last = 0;
    for (uint32_t i = c->next; i < c->n && c->at[i] <= n_max; i++) {
        last = c->at[i];
    }
    return last;
}

checkpoint_due checkpoint_points_reached(checkpoint_points *c, uint32_t n_tokens)
{
    if (n_tokens != c->at[c->next]) {
        return CHECKPOINT_NONE;
    }
    pass(c, n_tokens);
    return n_tokens == c->head_at ? CHECKPOINT_HEAD : CHECKPOINT_OWN;
}

bool checkpoint_points_is_due(uint32_t n_tokens, uint32_t last_at, uint32_t every)
{
    return n_tokens - last_at >= every;
}
