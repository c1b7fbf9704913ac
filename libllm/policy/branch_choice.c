#include "policy/branch_choice.h"

#include "policy/copy_cost.h"

bool branch_is_continued(const branch_candidate *t)
{
    const uint32_t n_head = t->n_history > t->n_head ? t->n_head : 0;
    return t->n_history == 0 || (t->n_common > n_head && t->n_common - n_head > (t->n_history - n_head) / 2);
}

static bool is_better(const branch_candidate *a, const branch_candidate *b)
{
    if (a->n_common != b->n_common) {
        return a->n_common > b->n_common;
    }
    if (a->is_busy != b->is_busy) {
        return !a->is_busy;
    }
    return a->used > b->used;
}

static bool may_be_overwritten(const branch_candidate *t)
{
    return !t->is_anchored;
}

/* Returns the index of the best candidate (is_better) for which `qualifies` returns true, or n if there is none. */
static uint32_t best_of(const branch_candidate *candidates, uint32_t n, bool (*qualifies)(const branch_candidate *t))
{
    uint32_t best = n;
    for (uint32_t i = 0; i < n; i++) {
        const branch_candidate *t = &candidates[i];
        if (qualifies(t) && (best == n || is_better(t, &candidates[best]))) {
            best = i;
        }
    }
    return best;
}

static double value_of(const branch_candidate *t, uint64_t now)
{
    return (double)t->n_lost / (1.0 + (double)(now - t->used));
}

static uint64_t latest_use(const branch_candidate *candidates, uint32_t n)
{
    uint64_t latest = 0;
    for (uint32_t i = 0; i < n; i++) {
        latest = candidates[i].used > latest ? candidates[i].used : latest;
    }
    return latest;
}

/* Returns the index of the least valuable candidate that can be replaced. Returns n if no candidate can be replaced. If
 * several have the least value, returns the least recently used of them. */
static uint32_t least_valuable(const branch_candidate *candidates, uint32_t n)
{
    const uint64_t now = latest_use(candidates, n);
    uint32_t worst = n;
    for (uint32_t i = 0; i < n; i++) {
        const branch_candidate *t = &candidates[i];
        if (t->is_busy || t->is_anchored) {
            continue;
        }
        const double value = value_of(t, now);
        const double least = worst < n ? value_of(&candidates[worst], now) : value;
        if (worst == n || value < least || (value <= least && t->used < candidates[worst].used)) {
            worst = i;
        }
    }
    return worst;
}

static uint32_t count_anchored(const branch_candidate *candidates, uint32_t n)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        count += candidates[i].is_anchored;
    }
    return count;
}

/* Returns the limit on the session's branches. A pinned session has anchored branches, which no other branch replaces.
 * Whatever n_max is, such a session can have one branch more than it has anchored branches. This extra branch serves
 * prompts that continue no anchored branch. */
static uint32_t limit_of(const branch_candidate *candidates, uint32_t n, uint32_t n_max)
{
    const uint32_t n_anchored = count_anchored(candidates, n);
    return n_max > n_anchored ? n_max : n_anchored + 1;
}

/* Returns how many tokens a new branch could reuse from the candidate. Tokens of the head do not count. A new branch
 * gets the head from a checkpoint that many conversations share. */
static uint32_t n_after_head(const branch_candidate *t)
{
    return t->n_common > t->n_head ? t->n_common - t->n_head : 0;
}

/* Returns the index of the best candidate whose state is on disk. This state must save at least COPY_COST_TOKENS_MIN
 * more tokens of prefill than the best state in memory. Returns n if there is no such candidate. */
static uint32_t best_on_disk(const branch_candidate *candidates, uint32_t n)
{
    uint32_t best = n;
    uint32_t most_in_memory = 0;
    for (uint32_t i = 0; i < n; i++) {
        const branch_candidate *t = &candidates[i];
        if (!t->is_on_disk) {
            most_in_memory = n_after_head(t) > most_in_memory ? n_after_head(t) : most_in_memory;
        } else if (!t->is_busy && !t->is_anchored && (best == n || is_better(t, &candidates[best]))) {
            best = i;
        }
    }
    return best < n && n_after_head(&candidates[best]) >= most_in_memory + COPY_COST_TOKENS_MIN ? best : n;
}

/* Chooses the entry for a prompt that continues no candidate. */
static branch_choice take_entry(const branch_candidate *candidates, uint32_t n, uint32_t n_max, bool has_room)
{
    const uint32_t limit = limit_of(candidates, n, n_max);
    const uint32_t closest = best_of(candidates, n, may_be_overwritten);
    const bool is_short = !has_room && closest < n;
    if (!is_short && n < limit) {
        return (branch_choice){.verb = BRANCH_OPEN};
    }
    const bool may_replace = limit > 1 && !(is_short && n == 1);
    const uint32_t idle = least_valuable(candidates, n);
    if (may_replace && idle < n) {
        return (branch_choice){.verb = BRANCH_REPLACE, .index = idle};
    }
    /* no new branch can be opened. The prompt overwrites the branch with the longest common prefix. If requests use
     * this branch, the prompt waits for them */
    return (branch_choice){.verb = BRANCH_CONTINUE, .index = closest};
}

branch_choice branch_choose(const branch_candidate *candidates, uint32_t n, uint32_t n_max, bool has_room)
{
    const uint32_t continued = best_of(candidates, n, branch_is_continued);
    const uint32_t chosen = continued < n ? continued : best_on_disk(candidates, n);
    if (chosen < n) {
        return (branch_choice){.verb = BRANCH_CONTINUE, .index = chosen};
    }
    return take_entry(candidates, n, n_max, has_room);
}

branch_choice branch_choose_for_discarded(const branch_candidate *candidates, uint32_t n, uint32_t n_max,
                                          uint32_t index, uint32_t n_lost)
{
    const branch_choice nowhere = {.verb = BRANCH_CONTINUE, .index = index};
    if (n_max == 1) {
        return nowhere;
    }
    if (n < limit_of(candidates, n, n_max)) {
        return (branch_choice){.verb = BRANCH_OPEN};
    }
    const uint32_t idle = least_valuable(candidates, n);
    if (idle == n || idle == index || value_of(&candidates[idle], latest_use(candidates, n)) >= (double)n_lost) {
        return nowhere;
    }
    return (branch_choice){.verb = BRANCH_REPLACE, .index = idle};
}
