/* Tests lookup.h: a repeated text is found. Tests draft.h: drafts are verified only if they save time. */
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "policy/draft.h"
#include "policy/lookup.h"
#include "random.h"

static void the_text_after_the_longest_match_is_the_draft(void)
{
    /* 1 2 3 occurs twice before the end; the longest match is 9 9 9 1 2 3, which 50 follows */
    const int32_t tokens[] = {9, 9, 9, 1, 2, 3, 50, 51, 52, 7, 1, 2, 3, 40, 41, 42, 9, 9, 9, 1, 2};
    lookup l;
    int32_t draft[4];
    uint32_t n_matched = 0;
    CHECK(lookup_open(&l, 21));
    CHECK_INT(lookup_find(&l, tokens, 21, 3, draft, 4, &n_matched), 4);
    CHECK_INT(n_matched, 6);
    CHECK(draft[0] == 50 && draft[1] == 51 && draft[2] == 52 && draft[3] == 7);
    CHECK_INT(lookup_find(&l, tokens, 15, 99, draft, 4, &n_matched), 0);
    CHECK_INT(n_matched, 0);
    lookup_close(&l);
}

static void a_text_that_repeats_continues_beyond_its_end(void)
{
    const int32_t tokens[] = {5, 6, 5, 6, 5};
    lookup l;
    int32_t draft[5];
    uint32_t n_matched = 0;
    CHECK(lookup_open(&l, 5));
    CHECK_INT(lookup_find(&l, tokens, 5, 6, draft, 5, &n_matched), 5);
    for (int i = 0; i < 5; i++) {
        CHECK_INT(draft[i], i % 2 == 0 ? 5 : 6);
    }
    lookup_close(&l);
}

/* A random sequence is extended, truncated and changed. Each draft follows an earlier match of the stated length. */
static void a_draft_always_follows_its_match(void)
{
    enum { N = 400 };
    random_source r = {5};
    for (int round = 0; round < 200; round++) {
        int32_t tokens[N], draft[8];
        lookup l;
        uint32_t n = random_below(&r, 20), n_found = 0;
        for (uint32_t i = 0; i < N; i++) {
            tokens[i] = (int32_t)random_below(&r, 3);
        }
        CHECK(lookup_open(&l, n));
        while (n < N - 20) {
            const int32_t next = tokens[n];
            uint32_t n_matched = 0;
            if (lookup_find(&l, tokens, n, next, draft, 8, &n_matched) > 0) {
                bool is_there = false;
                for (uint32_t place = n_matched; place <= n && !is_there; place++) {
                    bool is_equal = true;
                    for (uint32_t i = 0; i < n_matched; i++) {
                        is_equal = is_equal && tokens[place - 1 - i] == tokens[n - i];
                    }
                    for (uint32_t i = 0; i < 8 && is_equal && place + i <= n; i++) {
                        is_equal = draft[i] == tokens[place + i];
                    }
                    is_there = is_equal;
                }
                CHECK(n_matched >= LOOKUP_MATCH_MIN && n_matched <= LOOKUP_MATCH_MAX && is_there);
                n_found++;
            }
            n = random_below(&r, 30) == 0 && n > 10 ? n - 10 : n + 1 + random_below(&r, 5);
        }
        CHECK(n_found > 20);
        lookup_close(&l);
    }
}

static const uint8_t classes[DRAFT_TOKENS_MAX] = {0};

static draft_costs costs_of(uint32_t n_decoding, double token_share)
{
    draft_costs costs = {.n_decoding = 0};
    draft_learn_cost(&costs, n_decoding, 0, 1000);
    for (uint32_t n = 1; n <= DRAFT_TOKENS_MAX; n *= 2) {
        draft_learn_cost(&costs, n_decoding, n, 1000 * (1 + token_share * n));
    }
    draft_learn_cost(&costs, n_decoding, 0, 1000);
    return costs;
}

static draft_rates rates_of(double rate)
{
    draft_rates rates = {.n_tried = {0}};
    for (uint32_t c = 0; c < DRAFT_CLASSES; c++) {
        rates.n_tried[c] = 1e6;
        rates.n_right[c] = rate * 1e6;
    }
    return rates;
}

static uint32_t planned(double rate, double token_share)
{
    const draft_rates rates = rates_of(rate);
    const draft_costs costs = costs_of(1, token_share);
    const draft_candidate candidate = {16, classes, &rates};
    uint32_t n = 99;
    draft_plan(&candidate, 1, 16, &costs, &n);
    return n;
}

static void drafts_are_verified_where_they_pay(void)
{
    CHECK_INT(planned(0.95, 0), 16);
    CHECK_INT(planned(0.05, 0.2), 0);
    CHECK_INT(planned(0.3, 0.4), 0);
    CHECK(planned(0.9, 0.1) > planned(0.6, 0.1) && planned(0.6, 0.1) > 0);
    CHECK_INT(planned(0.99, 1), 0); /* a draft token takes as long as a step, so drafts never pay off */
}

/* With recurrent states, removing a wrong draft takes nearly as long as a step. */
static void a_wrong_draft_costs_its_removal(void)
{
    const draft_rates good = rates_of(0.97), fair = rates_of(0.5);
    const draft_candidate likely = {16, classes, &good}, possible = {16, classes, &fair};
    draft_costs costs = costs_of(1, 0.1);
    uint32_t n = 0, n_free = 0;
    draft_plan(&possible, 1, 16, &costs, &n_free);
    CHECK(n_free > 0);
    for (int i = 0; i < 20; i++) {
        draft_learn_removal(&costs, 1000);
    }
    draft_plan(&possible, 1, 16, &costs, &n);
    CHECK_INT(n, 0);
    draft_plan(&likely, 1, 16, &costs, &n);
    CHECK(n > 2);
    for (int i = 0; i < 50; i++) {
        draft_learn_removal(&costs, 1);
    }
    draft_plan(&possible, 1, 16, &costs, &n);
    CHECK_INT(n, n_free);
}

/* A removal counts as at most one step with the longest draft, even if such a step is slow. */
static void a_slow_removal_counts_up_to_a_step(void)
{
    const draft_rates fair = rates_of(0.82);
    const draft_candidate candidate = {16, classes, &fair};
    uint32_t n_slow = 0, n_outlier = 0;
    draft_costs costs = costs_of(1, 0.25);
    for (int i = 0; i < 20; i++) {
        draft_learn_removal(&costs, 2000);
    }
    draft_plan(&candidate, 1, 16, &costs, &n_slow);
    CHECK(n_slow > 0);
    for (int i = 0; i < 20; i++) {
        draft_learn_removal(&costs, 4500);
    }
    draft_plan(&candidate, 1, 16, &costs, &n_slow);
    CHECK_INT(n_slow, 0);
    const draft_rates good = rates_of(0.97);
    const draft_candidate likely = {16, classes, &good};
    for (int i = 0; i < 20; i++) {
        draft_learn_removal(&costs, 1e9);
    }
    draft_plan(&likely, 1, 16, &costs, &n_outlier);
    CHECK(n_outlier > 0);
}

/* The time of a step without drafts must be known first. */
static void costs_are_measured_first_and_again(void)
{
    const draft_rates rates = rates_of(1);
    const draft_candidate candidates[] = {{8, classes, &rates}, {8, classes, &rates}};
    draft_costs costs = {.n_decoding = 0};
    uint32_t n[2];
    draft_plan(candidates, 1, 16, &costs, n);
    CHECK_INT(n[0], 0);
    draft_learn_cost(&costs, 1, 0, 1000);
    draft_plan(candidates, 1, 16, &costs, n);
    CHECK(n[0] > 0);
    draft_plan(candidates, 2, 16, &costs, n);
    CHECK_INT(n[0] + n[1], 0);
    uint32_t n_steps = 0;
    do {
        draft_learn_cost(&costs, 1, 8, 1500);
        draft_plan(candidates, 1, 16, &costs, n);
        n_steps++;
    } while (n[0] > 0 && n_steps < 1000);
    CHECK(n_steps > 10 && n_steps < 100);
}

/* Returns the time of n steps, of which those with drafts take draft_us longer. *n_with is the number of steps with
 * drafts. */
static double time_of(draft_costs *costs, uint32_t n_steps, double draft_us, uint32_t *n_with)
{
    const draft_rates rates = rates_of(0.95);
    double sum = 0;
    *n_with = 0;
    for (uint32_t i = 0; i < n_steps; i++) {
        uint32_t n = 0;
        draft_plan(&(draft_candidate){1, classes, &rates}, 1, 16, costs, &n);
        const double us = 1000 + (n > 0 ? draft_us : 0);
        draft_learn_cost(costs, 1, n, us);
        *n_with += n > 0;
        sum += us;
    }
    return sum;
}

/* A step that was slow by chance turns drafts off for some time only. Slow drafts are seldom tried again. */
static void an_outlier_is_forgotten(void)
{
    draft_costs costs = costs_of(1, 0.1);
    uint32_t n_with = 0;
    for (uint32_t i = 0; i < 3; i++) {
        draft_learn_cost(&costs, 1, 1, 30000);
    }
    (void)time_of(&costs, 100, 100, &n_with);
    CHECK_INT(n_with, 0);
    (void)time_of(&costs, 4000, 100, &n_with);
    CHECK(n_with > 1000);
    const double us = time_of(&costs, 20000, 5000, &n_with);
    CHECK(n_with > 0 && us < 20000 * 1000 * 1.02);
}

/* Steps without drafts do not change a low measured cost. */
static void a_low_cost_is_kept(void)
{
    draft_costs costs = costs_of(1, 0.01);
    const double measured = draft_cost(&costs, 8);
    for (uint32_t i = 0; i < 2000; i++) {
        draft_learn_cost(&costs, 1, 0, 1000);
    }
    CHECK(draft_cost(&costs, 8) < measured + 0.01);
}

/* A request without a draft is not slowed down by drafts of others. If all requests gain, they share the step. */
static void no_request_becomes_slower_for_others(void)
{
    const draft_rates good = rates_of(0.95), bad = rates_of(0);
    const draft_costs costs = costs_of(2, 0.1);
    uint32_t n[2];
    draft_plan((draft_candidate[]){{8, classes, &good}, {0, classes, &bad}}, 2, 16, &costs, n);
    CHECK_INT(n[0] + n[1], 0);
    draft_plan((draft_candidate[]){{8, classes, &good}, {8, classes, &good}}, 2, 16, &costs, n);
    CHECK(n[0] > 0 && n[1] > 0 && n[0] + n[1] <= 16);
    draft_plan((draft_candidate[]){{8, classes, &good}, {8, classes, &good}}, 2, 3, &costs, n);
    CHECK(n[0] + n[1] <= 3);
}

static void rates_follow_what_happens(void)
{
    draft_rates rates = {.n_tried = {0}};
    const double first = draft_rate(&rates, draft_class_of_match(4));
    for (int i = 0; i < 100; i++) {
        draft_learn_rate(&rates, draft_class_of_match(4), true);
        draft_learn_rate(&rates, draft_class_of_match(30), false);
    }
    CHECK(draft_rate(&rates, draft_class_of_match(4)) > 0.85 && first < 0.3);
    CHECK(draft_rate(&rates, draft_class_of_match(30)) < 0.1);
    CHECK(draft_rate(&rates, draft_class_of_match(7)) > first); /* no match of this length was tried */
}

/* Guesses that are never right cost a limited time, and guesses that save more than they cost are always allowed. */
static void guesses_cost_a_limited_time(void)
{
    enum { N = 10000 };
    draft_credit wrong, right;
    double spent = 0;
    uint32_t n_denied = 0;
    draft_credit_open(&wrong);
    draft_credit_open(&right);
    for (uint32_t i = 0; i < N; i++) {
        const double cost = 0.3 + i % 7 * 0.1;
        if (draft_credit_allows(&wrong, cost)) {
            draft_credit_add(&wrong, -cost);
            spent += cost;
        } else {
            draft_credit_rest(&wrong);
        }
        n_denied += !draft_credit_allows(&right, cost);
        draft_credit_add(&right, 1 - cost);
    }
    CHECK(spent > 50 && spent < DRAFT_CREDIT_MAX + 0.01 * N);
    CHECK_INT(n_denied, 0);
}

static void a_clear_lead_is_a_higher_class(void)
{
    CHECK_INT(draft_class_of_lead(0), 0);
    CHECK_INT(draft_class_of_lead(NAN), 0);
    CHECK_INT(draft_class_of_lead(1), 1);
    CHECK_INT(draft_class_of_lead(2), 2);
    CHECK_INT(draft_class_of_lead(10), DRAFT_CLASSES - 1);
}

int main(void)
{
    RUN(the_text_after_the_longest_match_is_the_draft);
    RUN(a_text_that_repeats_continues_beyond_its_end);
    RUN(a_draft_always_follows_its_match);
    RUN(drafts_are_verified_where_they_pay);
    RUN(a_wrong_draft_costs_its_removal);
    RUN(a_slow_removal_counts_up_to_a_step);
    RUN(costs_are_measured_first_and_again);
    RUN(an_outlier_is_forgotten);
    RUN(a_low_cost_is_kept);
    RUN(no_request_becomes_slower_for_others);
    RUN(rates_follow_what_happens);
    RUN(guesses_cost_a_limited_time);
    RUN(a_clear_lead_is_a_higher_class);
    return CHECK_RESULT();
}
