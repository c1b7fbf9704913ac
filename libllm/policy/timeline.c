#include "policy/timeline.h"

bool timeline_continues(const timeline *t)
{
    const uint32_t n_head = t->n_history > t->n_head ? t->n_head : 0;
    return t->n_history == 0 || (t->n_common > n_head && t->n_common - n_head > (t->n_history - n_head) / 2);
}

static bool is_better(const timeline *a, const timeline *b)
{
    if (a->n_common != b->n_common) {
        return a->n_common > b->n_common;
    }
    if (a->is_busy != b->is_busy) {
        return !a->is_busy;
    }
    return a->used > b->used;
}

/* The best of those that the prompt continues, or of those that it may write over; n: none. */
static uint32_t best_of(const timeline *timelines, uint32_t n, bool over)
{
    uint32_t best = n;
    for (uint32_t i = 0; i < n; i++) {
        const timeline *t = &timelines[i];
        if (over ? t->is_anchored : !timeline_continues(t)) {
            continue;
        }
        if (best == n || is_better(t, &timelines[best])) {
            best = i;
        }
    }
    return best;
}

static uint32_t oldest_idle(const timeline *timelines, uint32_t n)
{
    uint32_t oldest = n;
    for (uint32_t i = 0; i < n; i++) {
        const bool may_go = !timelines[i].is_busy && !timelines[i].is_anchored;
        if (may_go && (oldest == n || timelines[i].used < timelines[oldest].used)) {
            oldest = i;
        }
    }
    return oldest;
}

static uint32_t count_anchored(const timeline *timelines, uint32_t n)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        count += timelines[i].is_anchored;
    }
    return count;
}

timeline_choice timeline_choose(const timeline *timelines, uint32_t n, uint32_t n_max)
{
    if (n == 0) {
        return (timeline_choice){.verb = TIMELINE_OPEN};
    }
    const uint32_t continued = best_of(timelines, n, false);
    if (continued < n) {
        return (timeline_choice){.verb = TIMELINE_CONTINUE, .index = continued};
    }
    const uint32_t n_anchored = count_anchored(timelines, n);
    const uint32_t limit = n_max > n_anchored ? n_max : n_anchored + 1;
    if (n < limit) {
        return (timeline_choice){.verb = TIMELINE_OPEN};
    }
    const uint32_t idle = oldest_idle(timelines, n);
    if (limit > 1 && idle < n) {
        return (timeline_choice){.verb = TIMELINE_REPLACE, .index = idle};
    }
    return (timeline_choice){.verb = TIMELINE_CONTINUE, .index = best_of(timelines, n, true)};
}
