#include "check.h"
#include "random.h"
#include "policy/branch_choice.h"

enum { N_MAX = 6 };

static void test_the_first_request_opens(void)
{
    CHECK_INT(branch_choose(NULL, 0, 3, true).verb, BRANCH_OPEN);
    CHECK_INT(branch_choose(NULL, 0, 1, true).verb, BRANCH_OPEN);
}

static bool continues(uint32_t n_common, uint32_t n_history, uint32_t n_head)
{
    return branch_is_continued(&(branch_candidate){.n_history = n_history, .n_common = n_common, .n_head = n_head});
}

static void test_more_than_half_of_a_history_continues_it(void)
{
    CHECK(continues(0, 0, 0));
    CHECK(continues(1, 1, 0));
    CHECK(!continues(5, 10, 0));
    CHECK(continues(6, 10, 0));
    CHECK(continues(UINT32_MAX, UINT32_MAX, 0));
}

/* After a long system prompt and a short conversation, the next conversation with this system prompt is another one. */
static void test_a_shared_head_is_no_common_history(void)
{
    CHECK(!continues(3000, 3500, 3000));
    CHECK(!continues(3003, 3500, 3000)); /* 3 tokens of the role are also common */
    CHECK(!continues(3250, 3500, 3000));
    CHECK(continues(3251, 3500, 3000));
    CHECK(continues(3500, 3500, 3000));
    const branch_candidate other = {.n_history = 3500, .n_common = 3003, .n_head = 3000, .used = 1};
    CHECK_INT(branch_choose(&other, 1, 3, true).verb, BRANCH_OPEN);
}

/* If a history is not longer than the head, nothing after the head can be compared. */
static void test_a_history_within_the_head(void)
{
    CHECK(continues(3000, 3000, 3000));
    CHECK(continues(200, 200, 3000));
    CHECK(!continues(20, 200, 3000)); /* the history begins with another head */
    CHECK(continues(0, 0, 3000));
}

/* A request for a title uses the session of a long conversation. It shares only the system prompt with that
 * conversation. */
static void test_an_early_divergence_opens_another(void)
{
    const branch_candidate main_one = {.n_history = 1000, .n_common = 200, .is_busy = true, .used = 1};
    CHECK_INT(branch_choose(&main_one, 1, 3, true).verb, BRANCH_OPEN);
    CHECK_INT(branch_choose(&main_one, 1, 1, true).verb, BRANCH_CONTINUE);
}

static void test_the_longest_common_prefix_wins(void)
{
    const branch_candidate t[] = {
        {.n_history = 100, .n_common = 90, .used = 9},
        {.n_history = 120, .n_common = 110, .used = 1, .is_busy = true},
        {.n_history = 100, .n_common = 90, .used = 5},
    };
    const branch_choice c = branch_choose(t, 3, 3, true);
    CHECK_INT(c.verb, BRANCH_CONTINUE);
    CHECK_INT(c.index, 1);
}

static void test_of_equals_the_free_one_then_the_recent_one(void)
{
    branch_candidate t[] = {
        {.n_history = 100, .n_common = 90, .used = 9, .is_busy = true},
        {.n_history = 100, .n_common = 90, .used = 3},
        {.n_history = 100, .n_common = 90, .used = 5},
    };
    CHECK_INT(branch_choose(t, 3, 3, true).index, 2);
    t[1].is_busy = t[2].is_busy = true;
    CHECK_INT(branch_choose(t, 3, 3, true).index, 0);
}

static void test_the_oldest_idle_one_makes_way(void)
{
    branch_candidate t[] = {
        {.n_history = 100, .n_common = 1, .used = 1, .is_busy = true},
        {.n_history = 100, .n_common = 9, .used = 3},
        {.n_history = 100, .n_common = 1, .used = 2},
    };
    const branch_choice c = branch_choose(t, 3, 3, true);
    CHECK_INT(c.verb, BRANCH_REPLACE);
    CHECK_INT(c.index, 2);
    t[1].is_busy = t[2].is_busy = true;
    const branch_choice waits = branch_choose(t, 3, 3, true);
    CHECK_INT(waits.verb, BRANCH_CONTINUE);
    CHECK_INT(waits.index, 1);
}

static void test_an_anchored_one_is_never_replaced(void)
{
    branch_candidate t[] = {
        {.n_history = 100, .n_common = 1, .used = 1, .is_anchored = true},
        {.n_history = 100, .n_common = 2, .used = 2, .is_anchored = true},
        {.n_history = 100, .n_common = 1, .used = 3},
    };
    CHECK_INT(branch_choose(t, 2, 2, true).verb, BRANCH_OPEN); /* opens a branch in addition to these two */
    CHECK_INT(branch_choose(t, 1, 1, true).verb, BRANCH_OPEN);
    for (uint32_t n_max = 1; n_max <= 3; n_max++) {
        const branch_choice c = branch_choose(t, 3, n_max, true);
        CHECK_INT(c.verb, BRANCH_REPLACE);
        CHECK_INT(c.index, 2);
    }
    t[2].is_busy = true; /* then the request waits for this branch, and replaces no other branch */
    CHECK_INT(branch_choose(t, 3, 2, true).verb, BRANCH_CONTINUE);
    CHECK_INT(branch_choose(t, 3, 2, true).index, 2);
    t[1].n_common = 80;
    CHECK_INT(branch_choose(t, 3, 2, true).index, 1);
}

/* A branch with few tokens is worth less than one with many tokens, even if it was used a little later. */
static void test_of_those_that_may_go_the_least_valuable_does(void)
{
    branch_candidate t[] = {
        {.n_history = 100, .n_common = 1, .n_lost = 9000, .used = 1},
        {.n_history = 100, .n_common = 9, .n_lost = 40, .used = 3},
        {.n_history = 100, .n_common = 1, .n_lost = 9000, .used = 5},
    };
    CHECK_INT(branch_choose(t, 3, 3, true).verb, BRANCH_REPLACE);
    CHECK_INT(branch_choose(t, 3, 3, true).index, 1);
    t[1].used = t[2].used = 1000; /* but after a long time, age decides */
    CHECK_INT(branch_choose(t, 3, 3, true).index, 0);
    t[0].is_busy = true;
    CHECK_INT(branch_choose(t, 3, 3, true).index, 1);
}

/* A prompt leaves a long history at an early place. If the shared tokens can be copied, the prompt opens a branch.
 * Otherwise it continues the long history. */
static void test_one_that_is_far_is_gone_on_with(void)
{
    branch_candidate t[] = {
        {.n_history = 1000, .n_common = 400, .n_head = 100, .used = 1, .is_on_disk = true},
        {.n_history = 1000, .n_common = 100, .n_head = 100, .used = 2},
    };
    CHECK_INT(branch_choose(t, 2, 3, true).verb, BRANCH_CONTINUE);
    CHECK_INT(branch_choose(t, 2, 3, true).index, 0);
    t[1].n_common = 390; /* a copy of nearly as many tokens is possible without the disk */
    CHECK_INT(branch_choose(t, 2, 3, true).verb, BRANCH_OPEN);
    t[1].n_common = 100;
    t[0].n_common = 110; /* a request for the conversation's title, which shares hardly more than the head */
    CHECK_INT(branch_choose(t, 2, 3, true).verb, BRANCH_OPEN);
    t[0].n_common = 400;
    t[0].is_anchored = true; /* an anchored branch is never truncated */
    CHECK_INT(branch_choose(t, 2, 3, true).verb, BRANCH_OPEN);
    t[0].is_anchored = false;
    t[0].is_busy = true;
    CHECK_INT(branch_choose(t, 2, 3, true).verb, BRANCH_OPEN);
}

static void test_what_a_cut_discards_takes_the_place_of_what_is_worth_less(void)
{
    branch_candidate t[] = {
        {.n_lost = 3000, .used = 9, .is_busy = true},
        {.n_lost = 500, .used = 8},
        {.n_lost = 2000, .used = 7},
    };
    CHECK_INT(branch_choose_for_discarded(t, 3, 4, 0, 100).verb, BRANCH_OPEN);
    CHECK_INT(branch_choose_for_discarded(t, 1, 1, 0, 100).verb, BRANCH_CONTINUE); /* there is no other branch */
    const branch_choice c = branch_choose_for_discarded(t, 3, 3, 0, 300);
    CHECK_INT(c.verb, BRANCH_REPLACE);
    CHECK_INT(c.index, 1);
    /* the branch with 500 tokens is one use older, so 250 tokens do not outweigh it */
    CHECK_INT(branch_choose_for_discarded(t, 3, 3, 0, 250).verb, BRANCH_CONTINUE);
    t[1].is_anchored = true;
    CHECK_INT(branch_choose_for_discarded(t, 3, 3, 0, 700).index, 2);
    t[2].is_busy = true;
    CHECK_INT(branch_choose_for_discarded(t, 3, 3, 0, 700).verb, BRANCH_CONTINUE);
}

/* If a new entry would take another session's entry, one of this session's own branches is replaced. A session with one
 * branch continues it. */
static void test_without_room_one_of_its_own_makes_way(void)
{
    branch_candidate t[] = {
        {.n_history = 100, .n_common = 1, .n_lost = 100, .used = 1},
        {.n_history = 100, .n_common = 1, .n_lost = 100, .used = 2},
    };
    CHECK_INT(branch_choose(t, 2, 3, true).verb, BRANCH_OPEN);
    const branch_choice c = branch_choose(t, 2, 3, false);
    CHECK_INT(c.verb, BRANCH_REPLACE);
    CHECK_INT(c.index, 0);
    CHECK_INT(branch_choose(t, 1, 3, false).verb, BRANCH_CONTINUE);
    t[0].is_busy = t[1].is_busy = true;
    CHECK_INT(branch_choose(t, 2, 3, false).verb, BRANCH_CONTINUE);
    t[0].is_anchored = t[1].is_anchored = true; /* then a new entry is requested nevertheless */
    CHECK_INT(branch_choose(t, 2, 3, false).verb, BRANCH_OPEN);
}

static branch_candidate any_candidate(random_source *r, uint64_t used)
{
    const uint32_t n_history = random_below(r, 8);
    return (branch_candidate){
        .n_history = n_history,
        .n_common = random_below(r, n_history + 3),
        .n_head = random_below(r, 6),
        .is_on_disk = random_below(r, 3) == 0,
        .is_busy = random_below(r, 2) == 1,
        .is_anchored = random_below(r, 3) == 0,
        .n_lost = random_below(r, 4),
        .used = used,
    };
}

static void check_aside(random_source *r, const branch_candidate *t, uint32_t n, uint32_t n_max)
{
    const uint32_t index = random_below(r, n);
    const branch_choice c = branch_choose_for_discarded(t, n, n_max, index, random_below(r, 4));
    CHECK(c.verb != BRANCH_OPEN || n_max > 1);
    CHECK(c.verb != BRANCH_CONTINUE || c.index == index);
    if (c.verb == BRANCH_REPLACE) {
        CHECK(c.index < n && c.index != index && !t[c.index].is_busy && !t[c.index].is_anchored);
    }
}

typedef struct counts {
    uint32_t continued, idle, anchored;
} counts;

static counts count(const branch_candidate *t, uint32_t n)
{
    counts c = {0};
    for (uint32_t i = 0; i < n; i++) {
        const bool may_go = !t[i].is_busy && !t[i].is_anchored;
        c.continued += branch_is_continued(&t[i]);
        c.idle += may_go;
        c.anchored += t[i].is_anchored;
    }
    return c;
}

static void check_best(const branch_candidate *t, uint32_t n, uint32_t best)
{
    for (uint32_t i = 0; i < n; i++) {
        CHECK(!branch_is_continued(&t[i]) || t[best].n_common >= t[i].n_common);
    }
}

static void check_choice(const branch_candidate *t, uint32_t n, uint32_t n_max, bool has_room)
{
    const branch_choice c = branch_choose(t, n, n_max, has_room);
    const counts of = count(t, n);
    const uint32_t limit = of.anchored + (n_max > of.anchored ? n_max - of.anchored : 1);
    const bool is_short = !has_room && of.anchored < n;
    CHECK(c.verb == BRANCH_OPEN || c.index < n);
    if (c.verb == BRANCH_CONTINUE) {
        const branch_candidate *on = &t[c.index];
        CHECK(branch_is_continued(on) || !on->is_anchored);
        CHECK(branch_is_continued(on) || on->is_on_disk || is_short || (n >= limit && (of.idle == 0 || limit == 1)));
    }
    if (c.verb == BRANCH_OPEN) {
        CHECK(!is_short && n < limit);
    }
    if (c.verb == BRANCH_REPLACE) {
        CHECK(!t[c.index].is_busy && !t[c.index].is_anchored);
        CHECK(limit > 1 && (is_short || n >= limit) && (!is_short || n > 1));
    }
    if (of.continued > 0) {
        CHECK_INT(c.verb, BRANCH_CONTINUE);
        check_best(t, n, c.index);
    }
}

static void test_any_branches(void)
{
    random_source r = {.state = 7};
    for (int round = 0; round < 20000; round++) {
        branch_candidate t[N_MAX];
        const uint32_t n = random_below(&r, N_MAX + 1);
        for (uint32_t i = 0; i < n; i++) {
            t[i] = any_candidate(&r, i * 7 % 11);
        }
        check_choice(t, n, 1 + random_below(&r, N_MAX), random_below(&r, 2) == 0);
        if (n > 0) {
            check_aside(&r, t, n, 1 + random_below(&r, N_MAX));
        }
        CHECK_STILL_GOOD();
    }
}

int main(void)
{
    RUN(test_the_first_request_opens);
    RUN(test_more_than_half_of_a_history_continues_it);
    RUN(test_a_shared_head_is_no_common_history);
    RUN(test_a_history_within_the_head);
    RUN(test_an_early_divergence_opens_another);
    RUN(test_the_longest_common_prefix_wins);
    RUN(test_of_equals_the_free_one_then_the_recent_one);
    RUN(test_the_oldest_idle_one_makes_way);
    RUN(test_an_anchored_one_is_never_replaced);
    RUN(test_of_those_that_may_go_the_least_valuable_does);
    RUN(test_one_that_is_far_is_gone_on_with);
    RUN(test_what_a_cut_discards_takes_the_place_of_what_is_worth_less);
    RUN(test_without_room_one_of_its_own_makes_way);
    RUN(test_any_branches);
    return CHECK_RESULT();
}
