/* Compares log probabilities with the same sums in double precision. */
#include "text/sampling/logprobs.h"

#include <math.h>

#include "check.h"
#include "llm.h"
#include "random.h"

enum { N = 1003 }; /* not a multiple of a vector's size */

static double log_sum(const float *logits, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += isnan(logits[i]) ? 0 : exp((double)logits[i]);
    }
    return log(sum);
}

static void fill(float *logits, random_source *random)
{
    for (uint32_t i = 0; i < N; i++) {
        logits[i] = (float)random_below(random, 2000) / 100 - 10;
    }
}

static void they_are_the_softmax(void)
{
    random_source random = {3};
    float logits[N];
    token_logprob likeliest[LLM_LOGPROBS_MAX];
    for (int round = 0; round < 200; round++) {
        fill(logits, &random);
        const double of_all = log_sum(logits, N);
        const int32_t token = (int32_t)random_below(&random, N);
        const uint32_t n = random_below(&random, LLM_LOGPROBS_MAX + 1);
        const float own = logprobs_read(logits, N, token, n, likeliest);
        CHECK(fabs((double)own - ((double)logits[token] - of_all)) < 1e-5);
        for (uint32_t i = 0; i < n; i++) {
            const token_logprob *one = &likeliest[i];
            CHECK(fabs((double)one->logprob - ((double)logits[one->token] - of_all)) < 1e-5);
            CHECK(i == 0 || one->logprob < one[-1].logprob ||
                  (one->logprob == one[-1].logprob && one->token > one[-1].token));
        }
        for (uint32_t i = 0, n_above = 0; i < N && n > 0; i++) { /* no larger logit is missing */
            n_above += logits[i] > logits[likeliest[n - 1].token];
            CHECK(n_above < n);
        }
    }
}

static void large_logits_do_not_overflow(void)
{
    float logits[N];
    for (uint32_t i = 0; i < N; i++) {
        logits[i] = i < 2 ? 3e38f : -3e38f;
    }
    token_logprob likeliest[3];
    CHECK(fabs((double)logprobs_read(logits, N, 1, 3, likeliest) - log(0.5)) < 1e-5);
    CHECK(likeliest[0].token == 0 && likeliest[1].token == 1 && likeliest[2].logprob == LOGPROB_LEAST);
}

static void what_is_no_number_is_impossible(void)
{
    float logits[N];
    token_logprob likeliest[2];
    for (uint32_t i = 0; i < N; i++) {
        logits[i] = i % 3 == 0 ? NAN : -INFINITY;
    }
    logits[7] = 1;
    CHECK(fabs((double)logprobs_read(logits, N, 7, 2, likeliest)) < 1e-6);
    CHECK(likeliest[0].token == 7 && likeliest[1].logprob == LOGPROB_LEAST);
    CHECK(logprobs_read(logits, N, 6, 0, NULL) == LOGPROB_LEAST);
    CHECK(logprobs_read(logits, N, 8, 0, NULL) == LOGPROB_LEAST);
    logits[9] = INFINITY;
    CHECK(logprobs_read(logits, N, 9, 0, NULL) == 0 && logprobs_read(logits, N, 7, 0, NULL) == LOGPROB_LEAST);
    logits[7] = -INFINITY;
    logits[9] = NAN;
    CHECK(!isnan(logprobs_read(logits, N, 7, 2, likeliest)) && !isnan(likeliest[0].logprob));
}

int main(void)
{
    RUN(they_are_the_softmax);
    RUN(large_logits_do_not_overflow);
    RUN(what_is_no_number_is_impossible);
    return CHECK_RESULT();
}
