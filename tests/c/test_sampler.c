/* Tests the sampler on plain logits. */
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "fake_model.h"
#include "text/sampling/sampler.h"

enum { N = FAKE_VOCABULARY };

static fake_model fake;

static llm_sampling plain(float temperature)
{
    llm_sampling s = {.temperature = temperature, .top_p = 1, .repeat_penalty = 1, .penalty_last_n = 64, .seed = 7};
    s.typical_p = 1;
    return s;
}

static sampler *opened(llm_sampling s, const logit_bias *biases, size_t n_biases, int ignore_end)
{
    sampler *out = NULL;
    const sampler_options options = {
        .sampling = s, .biases = biases, .n_biases = n_biases, .ignore_end = ignore_end != 0};
    return sampler_open(&fake.base, &options, &out) == LLM_OK ? out : NULL;
}

/* Picks from a copy of the logits. */
static int32_t pick(sampler *s, const float *logits)
{
    float copy[N];
    memcpy(copy, logits, sizeof copy);
    int32_t token = -1;
    return sampler_pick(s, copy, &token) == LLM_OK ? token : -1;
}

static int32_t pick_once(llm_sampling sampling, const logit_bias *biases, size_t n_biases, int ignore_end,
                         const float *logits)
{
    sampler *s = opened(sampling, biases, n_biases, ignore_end);
    int32_t token = s == NULL ? -1 : pick(s, logits);
    sampler_close(s);
    return token;
}

static void flat(float *logits)
{
    for (int i = 0; i < N; i++) {
        logits[i] = 0;
    }
}

static void test_greedy_takes_the_largest(void)
{
    float logits[N];
    flat(logits);
    logits[9] = 3;
    logits[17] = 3;
    CHECK_INT(pick_once(plain(0), NULL, 0, 0, logits), 9);
    logits[17] = 3.5f;
    CHECK_INT(pick_once(plain(0), NULL, 0, 0, logits), 17);
}

static void test_biases_move_the_choice(void)
{
    float logits[N];
    flat(logits);
    logits[9] = 3;
    logit_bias up = {40, 5}, down = {9, -INFINITY}, outside = {N, 1}, negative = {-1, 1};
    CHECK_INT(pick_once(plain(0), &up, 1, 0, logits), 40);
    CHECK_INT(pick_once(plain(0), &down, 1, 0, logits), 0);
    llm_sampling s = plain(0);
    sampler *out = NULL;
    CHECK_INT(sampler_open(&fake.base, &(sampler_options){.sampling = s, .biases = &outside, .n_biases = 1}, &out),
              LLM_TOKEN);
    CHECK_INT(sampler_open(&fake.base, &(sampler_options){.sampling = s, .biases = &negative, .n_biases = 1}, &out),
              LLM_TOKEN);
    CHECK(out == NULL);
}

static void test_everything_ruled_out_still_gives_the_largest(void)
{
    float logits[N];
    logit_bias all[N];
    for (int i = 0; i < N; i++) {
        logits[i] = (float)(i % 50);
        all[i] = (logit_bias){i, -INFINITY};
    }
    CHECK_INT(pick_once(plain(0), all, N, 0, logits), 49);
    CHECK_INT(pick_once(plain(1), all, N, 0, logits), 49);
}

static void test_end_tokens_can_be_ignored(void)
{
    float logits[N];
    flat(logits);
    logits[FAKE_END] = 9;
    logits[FAKE_EOS] = 8;
    logits[3] = 1;
    CHECK_INT(pick_once(plain(0), NULL, 0, 0, logits), FAKE_END);
    CHECK_INT(pick_once(plain(0), NULL, 0, 1, logits), 3);
    logit_bias back = {FAKE_END, 100};
    CHECK_INT(pick_once(plain(0), &back, 1, 1, logits), 3);
}

static void test_nan_and_infinity_are_survived(void)
{
    float logits[N];
    for (int i = 0; i < N; i++) {
        logits[i] = NAN;
    }
    int32_t token = pick_once(plain(1), NULL, 0, 0, logits);
    CHECK(token >= 0 && token < N);
    logits[5] = 1;
    CHECK_INT(pick_once(plain(1), NULL, 0, 0, logits), 5);
    llm_sampling top = plain(1);
    top.top_k = 3;
    CHECK_INT(pick_once(top, NULL, 0, 0, logits), 5);
    logits[6] = INFINITY;
    CHECK_INT(pick_once(plain(1), NULL, 0, 0, logits), 6);
    top.temperature = 1e-30f;
    CHECK_INT(pick_once(top, NULL, 0, 0, logits), 6);
}

static void test_penalties_look_at_what_was_accepted(void)
{
    float logits[N];
    flat(logits);
    logits[10] = 2;
    logits[11] = 1.9f;
    llm_sampling s = plain(0);
    s.presence_penalty = 0.5f;
    s.penalty_last_n = 2;
    sampler *p = opened(s, NULL, 0, 0);
    CHECK(p != NULL);
    CHECK_INT(pick(p, logits), 10);
    sampler_accept(p, &(int32_t){10}, 1);
    CHECK_INT(pick(p, logits), 11);
    sampler_accept(p, &(int32_t){11}, 1); /* both tokens have the same penalty */
    CHECK_INT(pick(p, logits), 10);
    sampler_accept(p, &(int32_t){30}, 1); /* 10 leaves the window of two tokens */
    CHECK_INT(pick(p, logits), 10);
    sampler_accept(p, &(int32_t){10}, 1);
    /* two occurrences do not double the presence penalty, and 11 has left the window */
    sampler_accept(p, &(int32_t){10}, 1);
    CHECK_INT(pick(p, logits), 11);
    sampler_close(p);
}

/* A sampler accepts only the end of a long prompt, as far as its penalties look back. It picks the same tokens as a
 * sampler that accepts all of it. */
static void test_a_prompt_counts_as_far_as_it_is_looked_back_over(void)
{
    enum { LONG = 500, BACK = 20 };
    static int32_t prompt[LONG];
    for (int dry = 0; dry < 2; dry++) {
        llm_sampling s = plain(1);
        s.seed = 7;
        s.repeat_penalty = 1.5f;
        s.frequency_penalty = 0.25f;
        s.penalty_last_n = s.dry_penalty_last_n = BACK;
        s.dry_multiplier = (float)dry;
        float logits[N];
        for (int i = 0; i < N; i++) {
            logits[i] = (float)(i % 7);
        }
        for (int i = 0; i < LONG; i++) {
            prompt[i] = (i * i + i) % N;
        }
        sampler *whole = opened(s, NULL, 0, 0), *end = opened(s, NULL, 0, 0);
        for (int i = 0; i < LONG; i++) {
            sampler_accept(whole, prompt + i, 1);
        }
        sampler_accept(end, prompt, LONG);
        for (int i = 0; i < 200; i++) {
            CHECK_INT(pick(end, logits), pick(whole, logits));
        }
        sampler_close(whole);
        sampler_close(end);
    }
}

static void test_repeat_penalty_makes_negative_logits_smaller(void)
{
    float logits[N];
    for (int i = 0; i < N; i++) {
        logits[i] = -5;
    }
    logits[20] = -1;
    logits[21] = -1.5f;
    llm_sampling s = plain(0);
    s.repeat_penalty = 2;
    sampler *p = opened(s, NULL, 0, 0);
    CHECK_INT(pick(p, logits), 20);
    sampler_accept(p, &(int32_t){20}, 1);
    CHECK_INT(pick(p, logits), 21);
    sampler_accept(p, &(int32_t){N + 5}, 1); /* there is no such token, so it is ignored */
    sampler_close(p);
}

static void test_a_penalty_does_not_bring_back_what_a_bias_ruled_out(void)
{
    float logits[N];
    flat(logits);
    logits[12] = 4;
    llm_sampling s = plain(0);
    s.frequency_penalty = -2; /* a negative penalty rewards repetition */
    logit_bias out = {12, -INFINITY};
    sampler *p = opened(s, &out, 1, 0);
    sampler_accept(p, &(int32_t){12}, 1);
    CHECK(pick(p, logits) != 12);
    sampler_close(p);
}

/* Draws many times. Only tokens from `first` to `last` may come, and at least n_least different ones. */
static void check_range(llm_sampling s, const float *logits, int32_t first, int32_t last, int32_t n_least)
{
    int seen[N] = {0};
    sampler *p = opened(s, NULL, 0, 0);
    CHECK(p != NULL);
    for (int i = 0; i < 2000; i++) {
        int32_t token = pick(p, logits);
        CHECK(token >= first && token <= last);
        seen[token]++;
    }
    sampler_close(p);
    int different = 0;
    for (int i = 0; i < N; i++) {
        different += seen[i] > 0;
    }
    CHECK(different >= n_least);
}

static void test_top_k_keeps_the_k_largest(void)
{
    float logits[N];
    for (int i = 0; i < N; i++) {
        logits[i] = (float)i * 0.01f;
    }
    llm_sampling s = plain(1);
    s.top_k = 5;
    check_range(s, logits, N - 5, N - 1, 5);
    s.top_k = 1;
    check_range(s, logits, N - 1, N - 1, 1);
    s.top_k = N + 10; /* more tokens than the vocabulary has, so top_k is off */
    check_range(s, logits, 0, N - 1, N - 50);
}

static void test_top_p_and_min_p_cut_the_tail(void)
{
    float logits[N];
    for (int i = 0; i < N; i++) {
        logits[i] = -20;
    }
    logits[0] = logf(0.6f);
    logits[1] = logf(0.3f);
    logits[2] = logf(0.1f);
    llm_sampling s = plain(1);
    s.top_p = 0.85f;
    check_range(s, logits, 0, 1, 2);
    s.top_p = 1;
    s.min_p = 0.2f;
    check_range(s, logits, 0, 1, 2);
    s.min_p = 0.1f;
    check_range(s, logits, 0, 2, 3);
    s.top_p = 0.85f;
    s.top_k = 3;
    check_range(s, logits, 0, 1, 2);
}

static void test_frequencies_follow_the_probabilities(void)
{
    float logits[N];
    for (int i = 0; i < N; i++) {
        logits[i] = -30;
    }
    logits[100] = logf(0.7f);
    logits[200] = logf(0.3f);
    sampler *p = opened(plain(1), NULL, 0, 0);
    int first = 0;
    for (int i = 0; i < 10000; i++) {
        first += pick(p, logits) == 100;
    }
    sampler_close(p);
    CHECK(first > 6800 && first < 7200);
    p = opened(plain(0.25f), NULL, 0, 0); /* a lower temperature: 0.7^4 / (0.7^4 + 0.3^4) = 0.967 */
    first = 0;
    for (int i = 0; i < 10000; i++) {
        first += pick(p, logits) == 100;
    }
    sampler_close(p);
    CHECK(first > 9550 && first < 9800);
}

static void test_a_seed_decides_everything(void)
{
    float logits[N];
    flat(logits);
    llm_sampling s = plain(1);
    sampler *a = opened(s, NULL, 0, 0), *b = opened(s, NULL, 0, 0);
    s.seed = 8;
    sampler *c = opened(s, NULL, 0, 0);
    int same = 0;
    for (int i = 0; i < 200; i++) {
        int32_t token = pick(a, logits);
        CHECK_INT(pick(b, logits), token);
        same += pick(c, logits) == token;
    }
    CHECK(same < 50);
    CHECK_INT(sampler_seed(a), 7);
    sampler_close(a);
    sampler_close(b);
    sampler_close(c);
    s.seed = UINT64_MAX;
    a = opened(s, NULL, 0, 0);
    b = opened(s, NULL, 0, 0);
    CHECK(sampler_seed(a) != UINT64_MAX);
    CHECK(sampler_seed(a) != sampler_seed(b)); /* equal only once in 2^31 */
    sampler_close(a);
    sampler_close(b);
    sampler_close(NULL);
}

/* The largest logit is at each place of the vocabulary once: in blocks that are searched with vectors, and in the rest
 * after them. */
static void test_the_largest_is_found_wherever_it_is(void)
{
    float logits[N];
    llm_sampling one_of_two = plain(1e-3f), likely = plain(1);
    one_of_two.top_k = 2;
    likely.min_p = 0.9f;
    for (int i = 0; i < N; i++) {
        flat(logits);
        logits[i] = 1;
        logits[(i + 7) % N] = NAN;
        logits[(i + 70) % N] = -INFINITY;
        CHECK_INT(pick_once(plain(0), NULL, 0, 0, logits), i);
        CHECK_INT(pick_once(one_of_two, NULL, 0, 0, logits), i);
        CHECK_INT(pick_once(likely, NULL, 0, 0, logits), i);
        logits[(i + 130) % N] = 1;
        CHECK_INT(pick_once(plain(0), NULL, 0, 0, logits), i + 130 < N ? i : (i + 130) % N);
    }
}

int main(void)
{
    fake = fake_model_open(NULL);
    RUN(test_greedy_takes_the_largest);
    RUN(test_the_largest_is_found_wherever_it_is);
    RUN(test_biases_move_the_choice);
    RUN(test_everything_ruled_out_still_gives_the_largest);
    RUN(test_end_tokens_can_be_ignored);
    RUN(test_nan_and_infinity_are_survived);
    RUN(test_penalties_look_at_what_was_accepted);
    RUN(test_a_prompt_counts_as_far_as_it_is_looked_back_over);
    RUN(test_repeat_penalty_makes_negative_logits_smaller);
    RUN(test_a_penalty_does_not_bring_back_what_a_bias_ruled_out);
    RUN(test_top_k_keeps_the_k_largest);
    RUN(test_top_p_and_min_p_cut_the_tail);
    RUN(test_frequencies_follow_the_probabilities);
    RUN(test_a_seed_decides_everything);
    return CHECK_RESULT();
}
