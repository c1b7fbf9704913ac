#include <math.h>

#include "check.h"
#include "policy/copy_cost.h"

enum { MIB = 1024 * 1024 };

static void test_what_a_copy_costs(void)
{
    copy_cost_pace pace = {0};
    CHECK_INT(copy_cost_tokens(&pace, (size_t)100 * MIB), 0); /* no speed is known yet */
    pace.token_us = 1000;
    CHECK_INT(copy_cost_tokens(&pace, (size_t)100 * MIB), 0);
    copy_cost_learn(&pace, (size_t)10 * MIB, 5000);
    CHECK_INT(copy_cost_tokens(&pace, (size_t)100 * MIB), 50);
    CHECK_INT(copy_cost_tokens(&pace, MIB), 0); /* a small copy counts as free */
    pace.token_us = 1e-9;
    CHECK(copy_cost_tokens(&pace, SIZE_MAX) >= UINT32_MAX / 2);
}

static void test_learning(void)
{
    copy_cost_pace pace = {.token_us = 1};
    copy_cost_learn(&pace, MIB, 1e9); /* so small a copy measures the call and not the bytes */
    CHECK_INT(copy_cost_tokens(&pace, (size_t)2 * MIB), 0);
    for (int i = 0; i < 50; i++) {
        copy_cost_learn(&pace, (size_t)4 * MIB, 400);
    }
    CHECK_INT(copy_cost_tokens(&pace, (size_t)2 * MIB), 200);
    for (int i = 0; i < 50; i++) {
        copy_cost_learn(&pace, (size_t)4 * MIB, 4000);
    }
    const uint32_t n = copy_cost_tokens(&pace, (size_t)2 * MIB);
    CHECK(n > 1990 && n <= 2000);
}

/* Returns the truncation of a conversation with 1,000 tokens whose last prompt had 900 tokens. */
static copy_cost_divergence cut_at(uint32_t n_common, uint32_t n_prompt, uint32_t n_cost)
{
    return (copy_cost_divergence){.n_tokens = 1000,
                                  .n_history = 900,
                                  .n_common = n_common,
                                  .n_prompt = n_prompt,
                                  .n_cost = n_cost,
                                  .copy_us = 1e6,
                                  .stall_budget_us = HUGE_VAL};
}

static bool is_kept(uint32_t n_common, uint32_t n_prompt, uint32_t n_cost)
{
    const copy_cost_divergence c = cut_at(n_common, n_prompt, n_cost);
    return copy_cost_pays_off(&c);
}

static void test_what_is_kept(void)
{
    CHECK(is_kept(400, 700, 0));    /* the prompt leaves the history early */
    CHECK(is_kept(890, 950, 0));    /* only the last message differs */
    CHECK(is_kept(900, 900, 0));    /* the same prompt again, for a second answer */
    CHECK(is_kept(600, 600, 0));    /* a shorter prompt */
    CHECK(!is_kept(1000, 1100, 0)); /* no token is lost */
    CHECK(!is_kept(970, 970, 0));   /* hardly any token is lost */
}

static void test_what_costs_more_is_not(void)
{
    CHECK(is_kept(400, 700, 599));
    CHECK(!is_kept(400, 700, 600));
}

static void test_how_long_a_copy_takes(void)
{
    copy_cost_pace pace = {0};
    CHECK(copy_cost_us(&pace, (size_t)100 * MIB) == 100.0 * COPY_COST_MIB_US_FIRST);
    copy_cost_learn(&pace, (size_t)10 * MIB, 5000);
    CHECK(copy_cost_us(&pace, (size_t)100 * MIB) == 50000);
    CHECK(copy_cost_us(&pace, 0) == 0);
}

static void test_what_others_cannot_wait_for_is_not(void)
{
    copy_cost_divergence c = cut_at(400, 700, 0);
    CHECK(copy_cost_pays_off(&c)); /* the copy takes one second, but no request waits for it */
    c.stall_budget_us = 1e6;
    CHECK(copy_cost_pays_off(&c));
    c.stall_budget_us = 999999;
    CHECK(!copy_cost_pays_off(&c));
    c.copy_us = 0; /* shared cells cost nothing */
    c.stall_budget_us = 0;
    CHECK(copy_cost_pays_off(&c));
}

/* Some templates omit the reasoning of earlier answers, and also the marker that begins it. Then the prompt diverges
 * near its end. */
static void test_an_answer_that_its_client_changed_is_not(void)
{
    CHECK(!is_kept(900, 950, 0));
    CHECK(!is_kept(940, 1500, 0));
    CHECK(!is_kept(896, 950, 0));
    CHECK(is_kept(895, 950, 0));
}

static void test_the_first_guess(void)
{
    const uint64_t n_params = 8000000000;
    CHECK(copy_cost_token_us_first(n_params, false) == 8000);
    CHECK(copy_cost_token_us_first(n_params, true) > 50 && copy_cost_token_us_first(n_params, true) < 60);
    CHECK(copy_cost_token_us_first(0, false) == 50 && copy_cost_token_us_first(0, true) == 5);
}

static void test_what_is_fetched(void)
{
    copy_cost_pace pace = {.token_us_first = 200};
    const size_t n_bytes = (size_t)100 * MIB; /* 0.1 seconds to read from the disk, and as much to copy */
    CHECK(copy_cost_fetch_saves_us(&pace, n_bytes, 0, 1000) == 0);
    CHECK(copy_cost_fetch_saves_us(&pace, n_bytes, 0, 1100) > 0);
    CHECK(copy_cost_fetch_saves_us(&pace, n_bytes, n_bytes, 1100) == 0); /* so many bytes are moved first */
    CHECK(copy_cost_fetch_saves_us(&pace, 1, 0, COPY_COST_TOKENS_MIN - 1) == 0);
    CHECK(copy_cost_fetch_saves_us(&pace, 1, 0, COPY_COST_TOKENS_MIN) > 0);
    CHECK(copy_cost_wait_us_max(&pace, 1100) == 1e6);
    pace.token_us = 10000; /* a slow processor */
    CHECK(copy_cost_wait_us_max(&pace, 1100) == 11e6);
    CHECK(copy_cost_fetch_saves_us(&pace, n_bytes, 0, 1000) > 9e6);
    copy_cost_learn_disk(&pace, n_bytes, 20e6); /* and an even slower disk */
    CHECK(copy_cost_fetch_saves_us(&pace, n_bytes, 0, 1000) == 0);
    CHECK(copy_cost_fetch_saves_us(&pace, n_bytes, 0, 3000) > 0);
}

int main(void)
{
    RUN(test_what_a_copy_costs);
    RUN(test_learning);
    RUN(test_what_is_kept);
    RUN(test_what_costs_more_is_not);
    RUN(test_how_long_a_copy_takes);
    RUN(test_what_others_cannot_wait_for_is_not);
    RUN(test_an_answer_that_its_client_changed_is_not);
    RUN(test_the_first_guess);
    RUN(test_what_is_fetched);
    return CHECK_RESULT();
}
