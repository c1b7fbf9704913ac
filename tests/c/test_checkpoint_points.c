#include <string.h>

#include "check.h"
#include "policy/checkpoint_points.h"
#include "random.h"

static checkpoint_points opened(uint32_t n_prompt, uint32_t n_head, const uint32_t *boundaries, uint32_t n_boundaries)
{
    checkpoint_points c;
    checkpoint_points_open(&c, &(checkpoint_points_input){.n_prompt = n_prompt,
                                                          .n_head = n_head,
                                                          .needs_boundaries = true,
                                                          .boundaries = boundaries,
                                                          .n_boundaries = n_boundaries});
    return c;
}

static resume_plan plan(uint32_t n_keep, int32_t diverged_at, int32_t checkpoint)
{
    return (resume_plan){.n_keep = n_keep, .diverged_at = diverged_at, .donor = -1, .checkpoint = checkpoint};
}

static void begin(checkpoint_points *c, uint32_t n_keep, int32_t diverged_at, int32_t checkpoint)
{
    const resume_plan p = plan(n_keep, diverged_at, checkpoint);
    checkpoint_points_begin(c, &p);
}

static void test_a_plain_prompt_has_one_at_its_end(void)
{
    checkpoint_points c = opened(100, 0, NULL, 0);
    begin(&c, 0, -1, -1);
    CHECK_INT(checkpoint_points_next(&c), 100);
    CHECK_INT(checkpoint_points_reached(&c, 60), CHECKPOINT_NONE);
    CHECK_INT(checkpoint_points_next(&c), 100);
    CHECK_INT(checkpoint_points_reached(&c, 100), CHECKPOINT_OWN);
    CHECK_INT(checkpoint_points_next(&c), 100);
}

static void test_prefill_pauses_at_each_boundary(void)
{
    const uint32_t boundaries[] = {10, 40, 100};
    checkpoint_points c = opened(100, 0, boundaries, 3);
    begin(&c, 0, -1, -1);
    CHECK_INT(checkpoint_points_next(&c), 10);
    CHECK_INT(checkpoint_points_reached(&c, 10), CHECKPOINT_OWN);
    CHECK_INT(checkpoint_points_next(&c), 40);
    CHECK_INT(checkpoint_points_reached(&c, 40), CHECKPOINT_OWN);
    CHECK_INT(checkpoint_points_next(&c), 100); /* the end is returned once */
    CHECK_INT(checkpoint_points_reached(&c, 100), CHECKPOINT_OWN);
}

static void test_the_last_point_that_is_still_to_come(void)
{
    const uint32_t boundaries[] = {40, 90};
    checkpoint_points c = opened(100, 60, boundaries, 2);
    begin(&c, 0, -1, -1);
    CHECK_INT(checkpoint_points_last(&c, 39), 0);
    CHECK_INT(checkpoint_points_last(&c, 89), 60);
    CHECK_INT(checkpoint_points_last(&c, 99), 90);
    CHECK_INT(checkpoint_points_last(&c, 100), 100);
    CHECK_INT(checkpoint_points_reached(&c, 40), CHECKPOINT_OWN);
    CHECK_INT(checkpoint_points_reached(&c, 60), CHECKPOINT_HEAD);
    CHECK_INT(checkpoint_points_last(&c, 89), 0);
    CHECK_INT(checkpoint_points_last(&c, 90), 90);
}

/* The same prompt may be sent again, and then needs no token. So there is a checkpoint at the end, even if another one
 * is near. The last call of the prefill ends there anyway. */
static void test_the_end_is_one_however_near_another_lies(void)
{
    const uint32_t boundaries[] = {40, 99};
    checkpoint_points c = opened(100, 0, boundaries, 2);
    begin(&c, 0, -1, -1);
    CHECK_INT(checkpoint_points_reached(&c, 40), CHECKPOINT_OWN);
    CHECK_INT(checkpoint_points_reached(&c, 99), CHECKPOINT_OWN);
    CHECK_INT(checkpoint_points_next(&c), 100);
    CHECK_INT(checkpoint_points_reached(&c, 100), CHECKPOINT_OWN);
}

static void test_what_is_kept_is_passed(void)
{
    const uint32_t boundaries[] = {10, 40};
    checkpoint_points c = opened(100, 0, boundaries, 2);
    begin(&c, 40, -1, -1);
    CHECK_INT(checkpoint_points_next(&c), 100);
    c = opened(100, 0, boundaries, 2);
    begin(&c, 39, -1, -1);
    CHECK_INT(checkpoint_points_next(&c), 40);
    c = opened(100, 0, boundaries, 2);
    begin(&c, 100, -1, -1); /* the whole prompt is kept */
    CHECK_INT(checkpoint_points_next(&c), 100);
}

static void test_the_head_is_kept_for_all(void)
{
    const uint32_t boundaries[] = {20, 50, 60};
    checkpoint_points c = opened(100, 50, boundaries, 3);
    begin(&c, 0, -1, -1);
    CHECK_INT(checkpoint_points_next(&c), 50); /* the boundary at 20 is too close to the beginning of the prompt */
    CHECK_INT(checkpoint_points_reached(&c, 50), CHECKPOINT_HEAD);
    CHECK_INT(checkpoint_points_next(&c), 60);
    CHECK_INT(checkpoint_points_reached(&c, 60), CHECKPOINT_OWN);
}

/* A client can mark a place within the head where heads of different agents diverge. */
static void test_a_boundary_within_the_head_is_a_cut_of_its_own(void)
{
    const uint32_t boundaries[] = {CHECKPOINT_HEAD_TOKENS_MIN - 1, 40, 60};
    checkpoint_points c = opened(100, 50, boundaries, 3);
    begin(&c, 0, -1, -1);
    CHECK_INT(checkpoint_points_next(&c), 40);
    CHECK_INT(checkpoint_points_reached(&c, 40), CHECKPOINT_OWN);
    CHECK_INT(checkpoint_points_next(&c), 50);
    CHECK_INT(checkpoint_points_reached(&c, 50), CHECKPOINT_HEAD);
    CHECK_INT(checkpoint_points_next(&c), 60);
}

static void test_a_head_that_is_short_or_everything_is_no_cut(void)
{
    checkpoint_points c = opened(100, CHECKPOINT_HEAD_TOKENS_MIN - 1, NULL, 0);
    begin(&c, 0, -1, -1);
    CHECK_INT(checkpoint_points_next(&c), 100);
    c = opened(100, CHECKPOINT_HEAD_TOKENS_MIN, NULL, 0);
    begin(&c, 0, -1, -1);
    CHECK_INT(checkpoint_points_next(&c), CHECKPOINT_HEAD_TOKENS_MIN);
    c = opened(100, 100, NULL, 0);
    begin(&c, 0, -1, -1);
    CHECK_INT(checkpoint_points_next(&c), 100);
    CHECK_INT(checkpoint_points_reached(&c, 100), CHECKPOINT_OWN);
}

/* Dense memory can be truncated to any prefix, so its owner needs no checkpoints. But other sessions can use the
 * head. */
static void test_memory_that_needs_no_boundaries_keeps_the_head_only(void)
{
    const uint32_t boundaries[] = {60, 70};
    checkpoint_points c;
    checkpoint_points_open(
        &c, &(checkpoint_points_input){.n_prompt = 100, .n_head = 50, .boundaries = boundaries, .n_boundaries = 2});
    begin(&c, 0, 80, -1);
    CHECK_INT(checkpoint_points_next(&c), 50);
    CHECK_INT(checkpoint_points_reached(&c, 50), CHECKPOINT_HEAD);
    CHECK_INT(checkpoint_points_next(&c), 100);
}

static void test_where_the_prompt_left_what_was_resident_is_one(void)
{
    const uint32_t boundaries[] = {10, 40};
    checkpoint_points c = opened(100, 0, boundaries, 2);
    begin(&c, 10, 30, -1);
    CHECK_INT(checkpoint_points_next(&c), 30);
    CHECK_INT(checkpoint_points_reached(&c, 30), CHECKPOINT_OWN);
    CHECK_INT(checkpoint_points_next(&c), 40);
    c = opened(100, 0, boundaries, 2);
    begin(&c, 10, 40, -1); /* the boundary is at the same place */
    CHECK_INT(checkpoint_points_next(&c), 40);
    CHECK_INT(checkpoint_points_reached(&c, 40), CHECKPOINT_OWN);
    CHECK_INT(checkpoint_points_next(&c), 100);
    c = opened(100, 0, boundaries, 2);
    begin(&c, 40, 40, -1); /* the memory was truncated to this place */
    CHECK_INT(checkpoint_points_next(&c), 100);
}

static void test_just_after_a_restored_checkpoint_no_other_is_taken(void)
{
    checkpoint_points c = opened(100, 0, NULL, 0);
    begin(&c, 50, 50 + CHECKPOINT_NEAR_TOKENS, 0);
    CHECK_INT(checkpoint_points_next(&c), 100);
    c = opened(100, 0, NULL, 0);
    begin(&c, 50, 50 + CHECKPOINT_NEAR_TOKENS + 1, 0);
    CHECK_INT(checkpoint_points_next(&c), 50 + CHECKPOINT_NEAR_TOKENS + 1);
}

/* The largest number of boundaries, and also all other points. */
static void test_all_of_them_have_room(void)
{
    uint32_t boundaries[LLM_BOUNDARIES_MAX];
    for (uint32_t i = 0; i < LLM_BOUNDARIES_MAX; i++) {
        boundaries[i] = 100 + 10 * i;
    }
    checkpoint_points c = opened(10000, 50, boundaries, LLM_BOUNDARIES_MAX);
    begin(&c, 0, 55, -1);
    uint32_t n = 0;
    uint32_t before = 0;
    while (checkpoint_points_next(&c) < 10000) {
        CHECK(checkpoint_points_next(&c) > before);
        before = checkpoint_points_next(&c);
        CHECK_INT(checkpoint_points_reached(&c, before), before == 50 ? CHECKPOINT_HEAD : CHECKPOINT_OWN);
        n++;
    }
    CHECK_INT(n, LLM_BOUNDARIES_MAX + 2);
}

/* Any input: the points ascend, none is within the kept tokens, and the last one is the end. */
static void test_random_prompts(void)
{
    random_source random = {5};
    for (int round = 0; round < 2000; round++) {
        uint32_t boundaries[20];
        uint32_t n = 0;
        const uint32_t n_prompt = 1 + random_below(&random, 200);
        for (uint32_t at = 1 + random_below(&random, 40); at <= n_prompt && n < 20;
             at += 1 + random_below(&random, 40)) {
            boundaries[n++] = at;
        }
        const uint32_t n_keep = random_below(&random, n_prompt + 1);
        const int32_t diverged_at = (int32_t)random_below(&random, n_prompt + 1) - 1;
        checkpoint_points c = opened(n_prompt, random_below(&random, n_prompt + 1), boundaries, n);
        begin(&c, n_keep, diverged_at, -1);
        uint32_t at = n_keep;
        while (at < n_prompt) {
            CHECK(checkpoint_points_next(&c) > at && checkpoint_points_next(&c) <= n_prompt);
            at = checkpoint_points_next(&c);
            CHECK(checkpoint_points_reached(&c, at) != CHECKPOINT_NONE);
        }
        CHECK_INT(checkpoint_points_next(&c), n_prompt);
    }
}

static void test_behind_the_prompt_they_are_a_distance_apart(void)
{
    CHECK(!checkpoint_points_is_due(100, 100, 256));
    CHECK(!checkpoint_points_is_due(355, 100, 256));
    CHECK(checkpoint_points_is_due(356, 100, 256));
    CHECK(checkpoint_points_is_due(1000, 100, 256));
}

int main(void)
{
    RUN(test_a_plain_prompt_has_one_at_its_end);
    RUN(test_prefill_pauses_at_each_boundary);
    RUN(test_the_last_point_that_is_still_to_come);
    RUN(test_the_end_is_one_however_near_another_lies);
    RUN(test_what_is_kept_is_passed);
    RUN(test_the_head_is_kept_for_all);
    RUN(test_a_boundary_within_the_head_is_a_cut_of_its_own);
    RUN(test_a_head_that_is_short_or_everything_is_no_cut);
    RUN(test_memory_that_needs_no_boundaries_keeps_the_head_only);
    RUN(test_where_the_prompt_left_what_was_resident_is_one);
    RUN(test_just_after_a_restored_checkpoint_no_other_is_taken);
    RUN(test_all_of_them_have_room);
    RUN(test_random_prompts);
    RUN(test_behind_the_prompt_they_are_a_distance_apart);
    return CHECK_RESULT();
}
