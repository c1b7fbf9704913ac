#include "policy/timeline.h"

#include "policy/copy_cost.h"

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

static bool may_be_written_over(const timeline *t)
{
    return !t->is_anchored;
}

/* n: there is none such. */
static uint32_t best_of(const timeline *timelines, uint32_t n, bool (*is_such)(const timeline *t))
{
    uint32_t best = n;
    for (uint32_t i = 0; i < n; i++) {
        const timeline *t = &timelines[i];
        if (is_such(t) && (best == n || is_better(t, &timelines[best]))) {
            best = i;
        }
    }
    return best;
}

static double value_of(const timeline *t, uint64_t now)
{
    return (double)t->n_lost / (1.0 + (double)(now - t->used));
}

static uint64_t latest_use(const timeline *timelines, uint32_t n)
{
    uint64_t latest = 0;
    for (uint32_t i = 0; i < n; i++) {
        latest = timelines[i].used > latest ? timelines[i].used : latest;
    }
    return latest;
}

/* Of equals the oldest; n: none may go. */
static uint32_t least_valuable(const timeline *timelines, uint32_t n)
{
    const uint64_t now = latest_use(timelines, n);
    uint32_t worst = n;
    for (uint32_t i = 0; i < n; i++) {
        const timeline *t = &timelines[i];
        if (t->is_busy || t->is_anchored) {
            continue;
        }
        const double value = value_of(t, now);
        const double least = worst < n ? value_of(&timelines[worst], now) : value;
        if (worst == n || value < least || (value <= least && t->used < timelines[worst].used)) {
            worst = i;
        }
    }
    return worst;
}

static uint32_t count_anchored(const timeline *timelines, uint32_t n)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        count += timelines[i].is_anchored;
    }
    return count;
}

/* One beside those that are anchored may always be there. */
static uint32_t limit_of(const timeline *timelines, uint32_t n, uint32_t n_max)
{
    const uint32_t n_anchored = count_anchored(timelines, n);
    return n_max > n_anchored ? n_max : n_anchored + 1;
}

/* Tokens that a new timeline would share with it, the head's apart: many conversations have that. */
static uint32_t behind_head(const timeline *t)
{
    return t->n_common > t->n_head ? t->n_common - t->n_head : 0;
}

/* The one that is far, and worth coming for; n: none. */
static uint32_t best_far(const timeline *timelines, uint32_t n)
{
    uint32_t best = n;
    uint32_t most_near = 0;
    for (uint32_t i = 0; i < n; i++) {
        const timeline *t = &timelines[i];
        if (!t->is_far) {
            most_near = behind_head(t) > most_near ? behind_head(t) : most_near;
        } else if (!t->is_busy && !t->is_anchored && (best == n || is_better(t, &timelines[best]))) {
            best = i;
        }
    }
    return best < n && behind_head(&timelines[best]) >= most_near + COPY_COST_TOKENS_MIN ? best : n;
}

/* How another one gets its place. */
static timeline_choice take_place(const timeline *timelines, uint32_t n, uint32_t n_max, bool has_room)
{
    const uint32_t limit = limit_of(timelines, n, n_max);
    const uint32_t closest = best_of(timelines, n, may_be_written_over);
    const bool is_short = !has_room && closest < n;
    if (!is_short && n < limit) {
        return (timeline_choice){.verb = TIMELINE_OPEN};
    }
    const bool may_replace = limit > 1 && !(is_short && n == 1);
    const uint32_t idle = least_valuable(timelines, n);
    if (may_replace && idle < n) {
        return (timeline_choice){.verb = TIMELINE_REPLACE, .index = idle};
    }
    return (timeline_choice){.verb = TIMELINE_CONTINUE, .index = closest}; /* whatever that holds */
}

timeline_choice timeline_choose(const timeline *timelines, uint32_t n, uint32_t n_max, bool has_room)
{
    const uint32_t continued = best_of(timelines, n, timeline_continues);
    const uint32_t chosen = continued < n ? continued : best_far(timelines, n);
    if (chosen < n) {
        return (timeline_choice){.verb = TIMELINE_CONTINUE, .index = chosen};
    }
    return take_place(timelines, n, n_max, has_room);
}

timeline_choice timeline_aside(const timeline *timelines, uint32_t n, uint32_t n_max, uint32_t index, uint32_t n_lost)
{
    const timeline_choice nowhere = {.verb = TIMELINE_CONTINUE, .index = index};
    if (n_max == 1) {
        return nowhere;
    }
    if (n < limit_of(timelines, n, n_max)) {
        return (timeline_choice){.verb = TIMELINE_OPEN};
    }
    const uint32_t idle = least_valuable(timelines, n);
    if (idle == n || idle == index || value_of(&timelines[idle], latest_use(timelines, n)) >= (double)n_lost) {
        return nowhere;
    }
    return (timeline_choice){.verb = TIMELINE_REPLACE, .index = idle};
}
