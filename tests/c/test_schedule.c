#include <math.h>

#include "check.h"
#include "random.h"
#include "policy/schedule.h"

enum { N_RUNS_MAX = 40 };

/* Makes the pace that a prompt token takes token_us, and `steep` more for each token before it. With 0, no pace is
 * known. */
static void prompts_take(schedule_pace *pace, double token_us, double steep)
{
    pace->prefill_at = (linear_fit){0};
    for (int i = 0; i < 10 && token_us > 0; i++) {
        linear_fit_learn(&pace->prefill_at, i * 1000, token_us + steep * i * 1000);
    }
    pace->prefill_at.drift = 1;
}

static const uint32_t SHALLOW[N_RUNS_MAX];

static schedule_input input(uint32_t n_runs, const uint32_t *left, bool mixed)
{
    schedule_input in = {.n_runs = n_runs,
                         .prefill_left = left,
                         .depth = SHALLOW,
                         .n_batch = 512,
                         .mixed_calls = mixed,
                         .gap_ms_target = 100,
                         .pace = {.decode_us = 20000}};
    prompts_take(&in.pace, 500, 0);
    return in;
}

static void test_decoding_runs_take_one_each(void)
{
    const uint32_t left[3] = {0};
    uint32_t take[3];
    const schedule_input in = input(3, left, true);
    CHECK_INT(schedule_step(&in, take), 3);
    CHECK(take[0] == 1 && take[1] == 1 && take[2] == 1);
}

static void test_prefill_is_sized_in_time(void)
{
    const uint32_t left[2] = {0, 10000};
    uint32_t take[2];
    schedule_input in = input(2, left, true);
    schedule_step(&in, take);
    CHECK_INT(take[1], 160); /* (100 ms - 20 ms) / 500 us */
    in.pace.decode_us = 200000;
    schedule_step(&in, take);
    CHECK_INT(take[1], 400); /* the gap is two steps without prefill */
    prompts_take(&in.pace, 1e6, 0);
    schedule_step(&in, take);
    CHECK_INT(take[1], 16);
    in.mixed_calls = false; /* a separate prefill call must read all weights */
    schedule_step(&in, take);
    CHECK_INT(take[1], 32);
    prompts_take(&in.pace, 0, 0);
    schedule_step(&in, take);
    CHECK_INT(take[1], 128);
}

static void test_where_nobody_decodes_calls_are_larger(void)
{
    const uint32_t left[2] = {10000, 0};
    uint32_t take[2];
    schedule_input in = input(1, left, true);
    prompts_take(&in.pace, 5000, 0);
    CHECK_INT(schedule_step(&in, take), 50); /* 250 ms / 5 ms */
    in.gap_ms_target = 1000;
    CHECK_INT(schedule_step(&in, take), 192); /* in whole blocks */
    in.gap_ms_target = 100;
    in.pace.decode_us = 100000;
    CHECK_INT(schedule_step(&in, take), 64); /* 4 steps of 100 ms */
    in.n_stoppable = 1;
    CHECK_INT(schedule_step(&in, take), 512);
    in.pace.decode_us = 20000;
    in.n_runs = 2;
    in.gap_ms_target = 200;
    schedule_step(&in, take);
    CHECK_INT(take[0], 36); /* (200 ms - 20 ms) / 5 ms */
}

/* For each long prompt in a call, the call reads all its earlier tokens. So only one long prompt takes part. */
static void test_mixed_prefill_goes_to_one_in_turn_and_short_ones_finish(void)
{
    const uint32_t left[4] = {1000, 5, 990, 0};
    uint32_t take[4];
    schedule_input in = input(4, left, true);
    prompts_take(&in.pace, 800, 0); /* a step has room for 100 tokens */
    CHECK_INT(schedule_step(&in, take), 101);
    CHECK(take[0] == 0 && take[1] == 5 && take[2] == 95); /* the long prompt with the fewest tokens left */
    in.turn = 1;                                          /* in the other steps, the prompts take turns */
    CHECK_INT(schedule_step(&in, take), 101);
    CHECK(take[0] == 95 && take[1] == 5 && take[2] == 0);
    in.turn = 3;
    CHECK_INT(schedule_step(&in, take), 101);
    CHECK(take[0] == 0 && take[1] == 5 && take[2] == 95);
}

static void test_what_one_in_turn_leaves_goes_to_those_behind_it_if_it_is_much(void)
{
    const uint32_t left[4] = {1000, 90, 0, 70};
    uint32_t take[4];
    schedule_input in = input(4, left, true);
    prompts_take(&in.pace, 800, 0); /* a step has room for 100 tokens */
    CHECK_INT(schedule_step(&in, take), 101);
    CHECK(take[0] == 0 && take[1] == 30 && take[3] == 70);
    /* a step has room for 85 tokens; the remaining 15 are too few for another prompt */
    prompts_take(&in.pace, 80000 / 85.0, 0);
    CHECK_INT(schedule_step(&in, take), 71);
    CHECK(take[0] == 0 && take[1] == 0 && take[3] == 70);
}

/* Several prompts wait, and a call with only one of them can be aborted. Then one prompt gets the whole call. */
static void test_where_nobody_decodes_one_has_a_call_that_can_be_given_up(void)
{
    const uint32_t left[3] = {10000, 9000, 30};
    uint32_t take[3];
    schedule_input in = input(2, left, true);
    prompts_take(&in.pace, 5000, 0); /* 250 ms: room for 50 tokens of one prompt, or 25 of each */
    in.turn = 1;
    CHECK_INT(schedule_step(&in, take), 50);
    CHECK(take[0] == 50 && take[1] == 0);
    in.n_stoppable = 1;
    CHECK_INT(schedule_step(&in, take), 512);
    CHECK(take[0] == 512 && take[1] == 0);
    in.n_runs = 3; /* a short prompt would have to wait until the call ends */
    prompts_take(&in.pace, 1000, 0);
    CHECK_INT(schedule_step(&in, take), 80); /* the short prompt soon decodes, so the call is short: 100 ms - 20 ms */
    CHECK(take[2] == 30);
    in.n_stoppable = 3; /* even if a call with all three can be aborted */
    CHECK_INT(schedule_step(&in, take), 80);
    CHECK(take[2] == 30);
}

/* How many tokens of a prompt a step takes depends on how many tokens this prompt has already, not on other prompts. */
static void test_what_each_takes_is_priced_by_its_own_depth(void)
{
    const uint32_t left[3] = {10000, 0, 10000}, depth[3] = {8000, 0, 0};
    uint32_t take[3];
    schedule_input in = input(3, left, true);
    in.depth = depth;
    in.turn = 1;
    prompts_take(&in.pace, 500, 0.25);
    schedule_step(&in, take);
    CHECK(take[0] == 31 && take[2] == 0); /* 80 ms / (500 + 0.25 * 8016 us) */
    in.turn = 3;
    schedule_step(&in, take);
    CHECK(take[0] == 0 && take[2] == 154); /* 80 ms / (500 + 0.25 * 77 us) */
    const uint32_t shorter[3] = {10000, 0, 60};
    in.prefill_left = shorter; /* this prompt ends in the step, and a deep one gets the rest of the time */
    schedule_step(&in, take);
    CHECK(take[0] == 19 && take[2] == 60);
}

/* With recurrent states, prompts with the same number of tokens go through the weights together. So each prompt gets
 * the same number. */
static void test_unmixed_prefill_is_shared_alike(void)
{
    const uint32_t left[5] = {64, 0, 70, 63, 200};
    uint32_t take[5];
    schedule_input in = input(5, left, false);
    in.pace.decode_us = 90000; /* a step has room for 180 tokens */
    CHECK_INT(schedule_step(&in, take), 1 + 4 * 45);
    CHECK(take[0] == 45 && take[1] == 1 && take[2] == 45 && take[3] == 45 && take[4] == 45);
    prompts_take(&in.pace, 90000 / 40.0, 0); /* a step has room for two shares */
    CHECK_INT(schedule_step(&in, take), 1 + 40);
    CHECK(take[0] == 20 && take[2] == 20);
}

static void test_what_is_left_of_one_is_all_that_others_take_with_it(void)
{
    const uint32_t left[3] = {5, 4000, 4000};
    uint32_t take[3];
    schedule_input in = input(3, left, false);
    CHECK_INT(schedule_step(&in, take), 15);
    CHECK(take[0] == 5 && take[1] == 5 && take[2] == 5);
    in.turn = 1;                              /* without the prompt that has fewer tokens left */
    CHECK_INT(schedule_step(&in, take), 448); /* 250 ms / 500 us, in whole blocks */
    CHECK(take[0] == 0 && take[1] == 224 && take[2] == 224);
}

/* Prompts are treated equally, wherever decoding requests are between them. */
static void test_turns_are_counted_among_those_that_prefill(void)
{
    const uint32_t left[5] = {4000, 0, 0, 4000, 4000};
    uint32_t taken[5] = {0};
    for (uint32_t step = 0; step < 99; step++) {
        uint32_t take[5];
        schedule_input in = input(5, left, false);
        prompts_take(&in.pace, 80000 / 40.0, 0); /* a step has room for two shares */
        in.turn = step;
        CHECK_INT(schedule_step(&in, take), 2 + 40);
        for (uint32_t i = 0; i < 5; i++) {
            taken[i] += take[i];
        }
    }
    CHECK_INT(taken[0], taken[3]);
    CHECK_INT(taken[3], taken[4]);
}

/* In mixed calls, the prompt with the fewest tokens left gets every other step. In the other steps, the prompts take
 * turns, however many short prompts are between them. */
static void test_the_shortest_is_done_first_and_all_go_on(void)
{
    uint32_t left[6] = {9000, 0, 1, 4000, 9000, 2}, done_at[6] = {0}, steps = 0;
    while (left[0] > 0 || left[4] > 0) {
        uint32_t take[6];
        schedule_input in = input(6, left, true);
        prompts_take(&in.pace, 800, 0); /* a step has room for 100 tokens */
        in.turn = steps++;
        schedule_step(&in, take);
        for (uint32_t i = 0; i < 6; i++) {
            left[i] -= left[i] > 0 ? take[i] : 0;
            done_at[i] = left[i] == 0 && done_at[i] == 0 ? steps : done_at[i];
        }
        left[2] = left[5] = steps % 3; /* short prompts come and go */
        CHECK(steps < 400);
        CHECK(steps != 60 || (left[0] < 8500 && left[4] < 8500));
    }
    CHECK(done_at[3] < 70 && done_at[0] < 190 && done_at[4] > done_at[0]);
}

static void test_bounds_hold_for_random_inputs(void)
{
    random_source random = {.state = 99};
    for (int round = 0; round < 100000; round++) {
        uint32_t left[N_RUNS_MAX];
        uint32_t take[N_RUNS_MAX];
        const uint32_t n = 1 + random_below(&random, N_RUNS_MAX);
        uint32_t n_decoding = 0;
        for (uint32_t i = 0; i < n; i++) {
            left[i] = random_below(&random, 3) == 0 ? 0 : random_below(&random, 2000);
            n_decoding += left[i] == 0;
        }
        schedule_input in = input(n, left, random_below(&random, 2) == 0);
        in.n_batch = N_RUNS_MAX + random_below(&random, 500);
        in.turn = (uint32_t)random_next(&random);
        prompts_take(&in.pace, random_below(&random, 3000), 0);
        const uint32_t total = schedule_step(&in, take);
        uint32_t sum = 0;
        for (uint32_t i = 0; i < n; i++) {
            sum += take[i];
            CHECK(left[i] == 0 ? take[i] == 1 : take[i] <= left[i]);
        }
        CHECK_INT(total, sum);
        CHECK(sum - n_decoding <= in.n_batch);
        CHECK(!in.mixed_calls || sum <= in.n_batch);
        CHECK(sum > n_decoding || n_decoding == n || (in.mixed_calls && n_decoding == in.n_batch));
    }
}

/* By the known pace, no gap between two tokens is longer than gap_ms_target, and no gap is much shorter. */
static void test_the_gap_is_kept_and_used(void)
{
    random_source random = {.state = 3};
    for (int round = 0; round < 100000; round++) {
        uint32_t left[N_RUNS_MAX], take[N_RUNS_MAX], depth[N_RUNS_MAX];
        const uint32_t n = 2 + random_below(&random, N_RUNS_MAX - 1), common_depth = random_below(&random, 10000);
        const bool mixed = random_below(&random, 2) == 0;
        for (uint32_t i = 0; i < n; i++) {
            const bool is_short = mixed && random_below(&random, 4) == 0;
            left[i] = random_below(&random, 2) * (is_short ? 1 + random_below(&random, 99) : 10000);
            depth[i] = mixed ? random_below(&random, 10000) : common_depth;
        }
        left[0] = 0;
        left[1] = 10000;
        schedule_input in = input(n, left, mixed);
        in.depth = depth;
        in.n_batch = 2048;
        in.turn = (uint32_t)random_next(&random);
        in.takes_checkpoint = random_below(&random, 2) == 0;
        in.n_stoppable = random_below(&random, 2) * n;
        const double token_us = 1 + random_below(&random, 20000), steep = token_us * random_below(&random, 3) / 5000;
        in.pace = (schedule_pace){.decode_us = 1 + random_below(&random, 300000),
                                  .checkpoint_us = random_below(&random, 50000)};
        prompts_take(&in.pace, token_us, steep);
        schedule_step(&in, take);
        uint32_t n_prefill = 0, deepest = 0;
        double us = in.pace.decode_us + (in.takes_checkpoint ? in.pace.checkpoint_us : 0);
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t n_taken = left[i] > 0 ? take[i] : 0;
            n_prefill += n_taken;
            us += n_taken * (token_us + steep * (depth[i] + (mixed ? n_taken : 0) / 2.0));
            deepest = depth[i] > deepest ? depth[i] : deepest;
        }
        us += mixed ? 0 : n_prefill * steep * n_prefill / 2.0;
        const double gap_us = 2 * in.pace.decode_us > 100000 ? 2 * in.pace.decode_us : 100000;
        const double least_us = (mixed ? 16 : 32) * (token_us + steep * (deepest + 16));
        /* the prompt whose turn it is gets at least this many tokens, at any cost */
        CHECK(us <= 1.01 * gap_us + least_us);
        CHECK(us + least_us > 0.99 * gap_us || n_prefill + n >= in.n_batch || n_prefill == in.n_batch);
    }
}

/* A copy may delay decoding requests no longer than a prefill may. */
static void test_how_long_others_wait(void)
{
    schedule_pace pace = {.decode_us = 20000};
    CHECK(schedule_stall_budget_us(&pace, 100, 3) == 80000);
    pace.decode_us = 70000;
    CHECK(schedule_stall_budget_us(&pace, 100, 1) == 70000);
    CHECK(schedule_stall_budget_us(&pace, 100, 0) == HUGE_VAL);
}

static void test_when_a_call_is_given_up(void)
{
    schedule_call c = {.elapsed_us = 900, .expected_us = 1000, .share_needed = 1};
    CHECK(!schedule_stops(&c));
    c.share_needed = 0;
    CHECK(schedule_stops(&c));
    /* the prompts in the rest of the call were cancelled */
    c = (schedule_call){.elapsed_us = 400, .expected_us = 1000, .share_needed = 0.1};
    CHECK(schedule_stops(&c));
    c.elapsed_us = 900; /* the call ends sooner than a new call would */
    CHECK(!schedule_stops(&c));
    c.elapsed_us = 400;
    c.lost_us = 500; /* a limit on lost time, so that a call ends, however many are cancelled */
    CHECK(!schedule_stops(&c));
    c = (schedule_call){.elapsed_us = 100, .expected_us = 1000, .share_needed = 0.6};
    CHECK(!schedule_stops(&c));
    c = (schedule_call){.elapsed_us = 400, .expected_us = 1000, .share_needed = 1, .has_newcomer = true};
    CHECK(schedule_stops(&c));
    c.elapsed_us = 600; /* the call ends sooner than the lost part would be repeated */
    CHECK(!schedule_stops(&c));
    c.elapsed_us = 5; /* the requests come together, so hardly anything is lost */
    c.lost_us = 10;
    CHECK(schedule_stops(&c));
    c.lost_us = 500; /* a limit on lost time, so that a call ends, however many come */
    CHECK(!schedule_stops(&c));
    c = (schedule_call){.elapsed_us = 400, .share_needed = 1, .has_newcomer = true}; /* no pace is known yet */
    CHECK(!schedule_stops(&c));
}

/* All prompts are complete after a bounded number of steps. */
static void test_nobody_starves(void)
{
    for (int mixed = 0; mixed < 2; mixed++) {
        uint32_t left[8];
        for (uint32_t i = 0; i < 8; i++) {
            left[i] = 200 * (i + 1);
        }
        uint32_t steps = 0;
        uint32_t still = 8;
        while (still > 0) {
            uint32_t take[8];
            schedule_input in = input(8, left, mixed == 1);
            in.turn = steps++;
            schedule_step(&in, take);
            still = 0;
            for (uint32_t i = 0; i < 8; i++) {
                left[i] -= left[i] > 0 ? take[i] : 0;
                still += left[i] > 0;
            }
            CHECK(steps < 200);
        }
    }
}

static void test_learning_ignores_tiny_prefills(void)
{
    schedule_pace pace = {0};
    schedule_learn(&pace, 0, 0, 4, 1000);
    CHECK(pace.decode_us == 1000);
    schedule_learn(&pace, 1, 0, 4, 1500);
    schedule_learn(&pace, 20, 0, 0, 1500);
    CHECK(pace.prefill_token_us == 0 && linear_fit_at(&pace.prefill_at, 0) == 0);
    schedule_learn(&pace, 100, 0, 4, 11000);
    CHECK(pace.prefill_token_us == 100 && linear_fit_at(&pace.prefill_at, 0) == 100);
}

/* The time of a call next to four streams, as measured: a constant for each earlier token, a cost of attention for each
 * token, and some noise. */
static double call_us(uint32_t n, uint32_t depth, random_source *random)
{
    const double us = 20000 + 4.0 * depth + n * (1000 + 0.85 * (depth + n / 2.0));
    return us * (0.95 + random_below(random, 1001) / 10000.0);
}

/* Prefills one prompt. With `is_known`, all gaps are close to the target. */
static void check_gaps(schedule_pace *pace, uint32_t n_prompt, bool is_known, random_source *random)
{
    uint32_t left[2] = {0, n_prompt}, take[2];
    while (left[1] > 0) {
        schedule_input in = input(2, left, true);
        in.pace = *pace;
        const uint32_t depth[2] = {0, n_prompt - left[1]};
        in.depth = depth;
        schedule_step(&in, take);
        const double us = call_us(take[1], depth[1], random);
        if (is_known) {
            CHECK(us < 130000 || take[1] == 16);
            CHECK(us > 80000 || take[1] == left[1]);
        }
        schedule_learn(pace, take[1], depth[1] + take[1] / 2.0, 1, us);
        left[1] -= take[1];
    }
}

/* Tokens at the end of a long prompt take longer. The end of one prompt must not decide the pace at the beginning of
 * the next. */
static void test_gaps_of_prompts_of_any_length(void)
{
    random_source random = {.state = 8};
    schedule_pace pace = {.decode_us = 20000};
    for (int i = 0; i < 60; i++) {
        const uint32_t lengths[] = {2000, 300, 4000, 1200};
        check_gaps(&pace, lengths[i % 4], i >= 4, &random);
    }
}

/* Other programs use the processors, or stop using them. After a few calls, the predictions are right again. */
static void test_the_pace_follows_the_machine(void)
{
    linear_fit l = {0};
    for (int i = 0; i < 600; i++) {
        const double slower = i / 100 % 2 == 0 ? 1 : i < 300 ? 1.9 : 3.5, x = i % 25 * 80, y = slower * (1000 + x);
        const double ratio = linear_fit_at(&l, x) / y;
        CHECK(i < 2 || i % 100 < 20 || (ratio > 0.85 && ratio < 1.2));
        linear_fit_learn(&l, x, y);
    }
}

static void test_a_linear_fit_through_one_point_is_level(void)
{
    linear_fit l = {0};
    CHECK(linear_fit_at(&l, 5) == 0);
    for (int i = 0; i < 10; i++) {
        linear_fit_learn(&l, 500, 80);
    }
    CHECK(fabs(linear_fit_at(&l, 0) - 80) < 1e-9 && fabs(linear_fit_at(&l, 9000) - 80) < 1e-9);
}

/* Measurements of nearly the same size do not determine the slope of a fit. */
static void test_neighbours_make_no_slope(void)
{
    linear_fit l = {0};
    for (int i = 0; i < 40; i++) {
        linear_fit_learn(&l, 500 + i % 2 * 3, 80 + i % 2 * 40);
    }
    CHECK(linear_fit_at(&l, 9000) < 130 && linear_fit_at(&l, 0) > 70);
}

/* After any measurements, the prediction is never zero. */
static void test_a_linear_fit_is_never_zero_once_known(void)
{
    random_source random = {.state = 21};
    linear_fit l = {0};
    for (int i = 0; i < 100000; i++) {
        linear_fit_learn(&l, random_below(&random, 100000), 1 + random_below(&random, 10000));
        const double at = linear_fit_at(&l, random_below(&random, 200000));
        CHECK(at > 0 && at < 1e7);
    }
}

int main(void)
{
    RUN(test_decoding_runs_take_one_each);
    RUN(test_prefill_is_sized_in_time);
    RUN(test_where_nobody_decodes_calls_are_larger);
    RUN(test_mixed_prefill_goes_to_one_in_turn_and_short_ones_finish);
    RUN(test_what_one_in_turn_leaves_goes_to_those_behind_it_if_it_is_much);
    RUN(test_where_nobody_decodes_one_has_a_call_that_can_be_given_up);
    RUN(test_what_each_takes_is_priced_by_its_own_depth);
    RUN(test_unmixed_prefill_is_shared_alike);
    RUN(test_what_is_left_of_one_is_all_that_others_take_with_it);
    RUN(test_turns_are_counted_among_those_that_prefill);
    RUN(test_the_shortest_is_done_first_and_all_go_on);
    RUN(test_bounds_hold_for_random_inputs);
    RUN(test_the_gap_is_kept_and_used);
    RUN(test_how_long_others_wait);
    RUN(test_when_a_call_is_given_up);
    RUN(test_nobody_starves);
    RUN(test_learning_ignores_tiny_prefills);
    RUN(test_gaps_of_prompts_of_any_length);
    RUN(test_the_pace_follows_the_machine);
    RUN(test_a_linear_fit_through_one_point_is_level);
    RUN(test_neighbours_make_no_slope);
    RUN(test_a_linear_fit_is_never_zero_once_known);
    return CHECK_RESULT();
}
