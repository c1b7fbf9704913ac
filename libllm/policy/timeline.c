#include "policy/timeline.h"

#include "policy/worth.h"

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

static bool is_awake_to_write_over(const timeline *t)
{
    return !t->is_anchored && !t->is_asleep;
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
    return (double)t->n_worth / (1.0 + (double)(now - t->used));
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
static uint32_t least_valuable(const timeline *timelines, uint32_t n, bool of_the_awake)
{
    const uint64_t now = latest_use(timelines, n);
    uint32_t worst = n;
    for (uint32_t i = 0; i < n; i++) {
        const timeline *t = &timelines[i];
        if (t->is_busy || t->is_anchored || (of_the_awake && t->is_asleep)) {
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
        if (t->is_asleep) {
            continue; /* where it would be cut, it is not the one that is meant */
        }
        if (!t->is_far) {
            most_near = behind_head(t) > most_near ? behind_head(t) : most_near;
        } else if (!t->is_busy && !t->is_anchored && (best == n || is_better(t, &timelines[best]))) {
            best = i;
        }
    }
    return best < n && behind_head(&timelines[best]) >= most_near + WORTH_TOKENS_MIN ? best : n;
}

/* Those that are awake and may make way have all the places that the session may take. */
static bool lacks_place(const timeline *timelines, uint32_t n, bool has_room)
{
    return !has_room && best_of(timelines, n, is_awake_to_write_over) < n;
}

static bool is_only_one_awake(const timeline *timelines, uint32_t n)
{
    uint32_t n_awake = 0;
    for (uint32_t i = 0; i < n; i++) {
        n_awake += !timelines[i].is_asleep;
    }
    return n_awake == 1;
}

/* Nothing can make way: it goes on in one of them, whatever that holds. */
static timeline_choice write_over(const timeline *timelines, uint32_t n, bool one_awake)
{
    const uint32_t best = best_of(timelines, n, one_awake ? is_awake_to_write_over : may_be_written_over);
    const bool wakes = timelines[best].is_asleep;
    return (timeline_choice){
        .verb = wakes ? TIMELINE_OPEN : TIMELINE_CONTINUE, .index = best, .woken = wakes ? best : n};
}

/* How `woken`, or a new one (n), gets its place. */
static timeline_choice take_place(const timeline *timelines, uint32_t n, uint32_t n_max, bool has_room, uint32_t woken)
{
    const uint32_t limit = limit_of(timelines, n, n_max);
    const bool is_new = woken == n;
    const bool is_short = lacks_place(timelines, n, has_room);
    if (!is_short && !(is_new && n >= limit)) {
        return (timeline_choice){.verb = TIMELINE_OPEN, .woken = woken};
    }
    const bool may_replace = !is_new || (limit > 1 && !(is_short && is_only_one_awake(timelines, n)));
    const uint32_t idle = least_valuable(timelines, n, is_short);
    if (may_replace && idle < n) {
        return (timeline_choice){.verb = TIMELINE_REPLACE, .index = idle, .woken = woken};
    }
    return write_over(timelines, n, is_short);
}

timeline_choice timeline_choose(const timeline *timelines, uint32_t n, uint32_t n_max, bool has_room)
{
    const uint32_t continued = best_of(timelines, n, timeline_continues);
    const uint32_t chosen = continued < n ? continued : best_far(timelines, n);
    if (chosen < n && !timelines[chosen].is_asleep) {
        return (timeline_choice){.verb = TIMELINE_CONTINUE, .index = chosen, .woken = n};
    }
    return n > 0 ? take_place(timelines, n, n_max, has_room, chosen) : (timeline_choice){.verb = TIMELINE_OPEN};
}

timeline_choice timeline_aside(const timeline *timelines, uint32_t n, uint32_t n_max, uint32_t index, uint32_t n_worth)
{
    const timeline_choice nowhere = {.verb = TIMELINE_CONTINUE, .index = index};
    if (n_max == 1) {
        return nowhere;
    }
    if (n < limit_of(timelines, n, n_max)) {
        return (timeline_choice){.verb = TIMELINE_OPEN};
    }
    const uint32_t idle = least_valuable(timelines, n, true);
    if (idle == n || idle == index || value_of(&timelines[idle], latest_use(timelines, n)) >= (double)n_worth) {
        return nowhere;
    }
    return (timeline_choice){.verb = TIMELINE_REPLACE, .index = idle};
}
