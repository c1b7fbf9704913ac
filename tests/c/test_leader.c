/* Tests leader.h: for which prefill a request waits, and when waiting would take longer than not waiting. */
#include "check.h"
#include "policy/copy_cost.h"
#include "policy/leader.h"
#include "random.h"

static checkpoint_points points_of(uint32_t n_prompt, uint32_t n_head, bool needs_boundaries)
{
    static const uint32_t boundaries[] = {1000, 1200};
    checkpoint_points c;
    checkpoint_points_open(&c, &(checkpoint_points_input){.n_prompt = n_prompt,
                                                          .n_head = n_head,
                                                          .needs_boundaries = needs_boundaries,
                                                          .boundaries = boundaries,
                                                          .n_boundaries = 2});
    return c;
}

static void test_memory_that_can_be_truncated_leaves_every_prefix(void)
{
    const checkpoint_points with_head = points_of(2000, 900, false), without = points_of(2000, 0, false);
    CHECK_INT(leader_shared(&without, 0), 0);
    CHECK_INT(leader_shared(&without, 700), 700);
    CHECK_INT(leader_shared(&with_head, 700), 700);
    CHECK_INT(leader_shared(&with_head, 900), 900);
    /* so few tokens after the head usually belong to the template */
    CHECK_INT(leader_shared(&with_head, 900 + COPY_COST_TOKENS_MIN - 1), 900);
    CHECK_INT(leader_shared(&with_head, 900 + COPY_COST_TOKENS_MIN), 900 + COPY_COST_TOKENS_MIN);
}

static void test_other_memory_leaves_a_state_at_its_checkpoints(void)
{
    checkpoint_points c = points_of(2000, 900, true);
    CHECK_INT(leader_shared(&c, 899), 0);
    CHECK_INT(leader_shared(&c, 999), 900);
    CHECK_INT(leader_shared(&c, 1999), 1200);
    CHECK_INT(leader_shared(&c, 2000), 2000);
    CHECK_INT(checkpoint_points_reached(&c, 900), CHECKPOINT_HEAD);
    CHECK_INT(leader_shared(&c, 999), 0); /* the checkpoint of the head exists already */
    CHECK_INT(leader_shared(&c, 1000), 1000);
}

static int32_t choose_one(uint32_t n_shared, uint32_t n_consumed, uint32_t n_cost, uint32_t n_known, uint32_t n_call)
{
    const leader_candidate c = {.n_shared = n_shared, .n_consumed = n_consumed, .n_cost = n_cost};
    return leader_choose(&c, 1, n_known, n_call);
}

static void test_requests_that_start_together_wait(void)
{
    CHECK_INT(choose_one(20000, 0, 0, 0, 0), 0);
    /* the request arrives later, and cannot copy the consumed tokens */
    CHECK_INT(choose_one(20000, 15000, 0, 0, 0), 0);
    /* the request arrives later, and can copy the consumed tokens */
    CHECK_INT(choose_one(20000, 15000, 0, 15000, 0), 0);
    CHECK_INT(choose_one(20000, 0, 8000, 0, 100), 0); /* the copy takes less time than the prefill */
    CHECK_INT(leader_choose(NULL, 0, 0, 0), -1);
}

static void test_a_wait_that_takes_longer_than_none_is_none(void)
{
    CHECK_INT(choose_one(20000, 0, 20001, 0, 0), -1); /* the copy takes longer than the prefill */
    CHECK_INT(choose_one(300, 0, 0, 0, 301), -1);     /* one call more takes longer than the shared tokens */
    /* the request already has many tokens that the leader lacks */
    CHECK_INT(choose_one(20000, 0, 0, 15000, 0), -1);
    CHECK_INT(choose_one(20000, 20000, 0, 0, 0), -1);     /* the leader has passed the shared tokens */
    CHECK_INT(choose_one(20000, 19000, 0, 20000, 0), -1); /* the request already has all shared tokens */
    CHECK_INT(choose_one(20000, 19000, 0, 25000, 0), -1);
    CHECK_INT(choose_one(COPY_COST_TOKENS_MIN - 1, 0, 0, 0, 0), -1);
    CHECK_INT(choose_one(COPY_COST_TOKENS_MIN, 0, 0, 0, 0), 0);
    CHECK_INT(choose_one(UINT32_MAX, 0, UINT32_MAX, 0, UINT32_MAX), -1);
}

static void test_the_best_of_several_is_chosen(void)
{
    const leader_candidate candidates[] = {
        {.n_shared = 500, .n_consumed = 100},
        {.n_shared = 900, .n_consumed = 100},
        {.n_shared = 900, .n_consumed = 300},
        {.n_shared = 900, .n_consumed = 300},
        {.n_shared = 1000, .n_consumed = 300, .n_cost = 200},
    };
    CHECK_INT(leader_choose(candidates, 5, 0, 0), 2);
    CHECK_INT(leader_choose(candidates, 2, 0, 0), 1);
    CHECK_INT(leader_choose(candidates, 5, 880, 0), -1);
}

/* Computes how long it takes without a wait until the request has n_own more tokens, if the leader prefills its n_left
 * tokens in turn with it. Each token takes a microsecond. */
static uint64_t us_without_wait(uint32_t n_own, uint32_t n_left)
{
    uint64_t us = 0;
    while (n_own > 0) {
        n_own--;
        us++;
        if (n_left > 0) {
            n_left--;
            us++;
        }
    }
    return us;
}

static void test_no_wait_is_longer_than_a_prefill_in_turns(void)
{
    random_source r = {7};
    uint32_t n_waits = 0;
    for (int i = 0; i < 20000; i++) {
        leader_candidate candidates[4];
        const uint32_t n = 1 + random_below(&r, 4), n_known = random_below(&r, 300), n_call = random_below(&r, 60);
        for (uint32_t k = 0; k < n; k++) {
            candidates[k] = (leader_candidate){.n_shared = random_below(&r, 500),
                                               .n_consumed = random_below(&r, 500),
                                               .n_cost = random_below(&r, 3) > 0 ? 0 : random_below(&r, 200)};
        }
        const int32_t chosen = leader_choose(candidates, n, n_known, n_call);
        CHECK(chosen >= -1 && chosen < (int32_t)n);
        if (chosen < 0) {
            continue;
        }
        const leader_candidate *c = &candidates[chosen];
        CHECK(c->n_consumed < c->n_shared && n_known + COPY_COST_TOKENS_MIN <= c->n_shared);
        const uint32_t n_left = c->n_shared - c->n_consumed;
        CHECK(n_left + c->n_cost + n_call <= us_without_wait(c->n_shared - n_known, n_left));
        n_waits++;
    }
    CHECK(n_waits > 2000 && n_waits < 18000);
}

int main(void)
{
    RUN(test_memory_that_can_be_truncated_leaves_every_prefix);
    RUN(test_other_memory_leaves_a_state_at_its_checkpoints);
    RUN(test_requests_that_start_together_wait);
    RUN(test_a_wait_that_takes_longer_than_none_is_none);
    RUN(test_the_best_of_several_is_chosen);
    RUN(test_no_wait_is_longer_than_a_prefill_in_turns);
    return CHECK_RESULT();
}
