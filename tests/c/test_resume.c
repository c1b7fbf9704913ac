#include "check.h"
#include "random.h"
#include "resume.h"

enum { N_MAX = 200 };

static resume_plan decide(const int32_t *resident, uint32_t n_resident, const int32_t *prompt, uint32_t n_prompt,
                          uint32_t floor)
{
    return resume_decide(&(resume_input){.resident = resident,
                                         .n_resident = n_resident,
                                         .prompt = prompt,
                                         .n_prompt = n_prompt,
                                         .rewind_floor = floor});
}

static const int32_t A[] = {1, 2, 3, 4, 5, 6};
static const int32_t B[] = {1, 2, 3, 9, 9, 9};

static void test_new(void)
{
    const resume_plan p = decide(A, 0, A, 6, 1);
    CHECK_INT(p.reason, LLM_REASON_NEW);
    CHECK_INT(p.n_keep, 0);
    CHECK_INT(p.diverged_at, -1);
}

static void test_exact_prefix_on_every_memory(void)
{
    for (uint32_t floor = 1; floor <= 4; floor++) {
        const resume_plan p = decide(A, 4, A, 6, floor);
        CHECK_INT(p.reason, LLM_REASON_EXACT_PREFIX);
        CHECK_INT(p.n_keep, 4);
    }
}

static void test_equal_needs_a_cut_of_one(void)
{
    const resume_plan dense = decide(A, 6, A, 6, 1);
    CHECK_INT(dense.reason, LLM_REASON_EQUAL);
    CHECK_INT(dense.n_keep, 5);
    const resume_plan recurrent = decide(A, 6, A, 6, 6);
    CHECK_INT(recurrent.reason, LLM_REASON_MISMATCH);
    CHECK_INT(recurrent.n_keep, 0);
}

static void test_rewind_to_the_divergence(void)
{
    const resume_plan p = decide(A, 6, B, 6, 1);
    CHECK_INT(p.reason, LLM_REASON_REWIND);
    CHECK_INT(p.n_keep, 3);
    CHECK_INT(p.diverged_at, 3);
}

static void test_rewind_only_inside_the_window(void)
{
    CHECK_INT(decide(A, 6, B, 6, 3).reason, LLM_REASON_REWIND);
    const resume_plan p = decide(A, 6, B, 6, 4);
    CHECK_INT(p.reason, LLM_REASON_MISMATCH);
    CHECK_INT(p.diverged_at, 3);
}

static void test_shorter_prompt_leaves_one_token_to_consume(void)
{
    const resume_plan p = decide(A, 6, A, 4, 1);
    CHECK_INT(p.reason, LLM_REASON_REWIND);
    CHECK_INT(p.n_keep, 3);
}

static void test_torn_and_cold_reuse_nothing(void)
{
    resume_input in = {.resident = A, .n_resident = 4, .prompt = A, .n_prompt = 6, .rewind_floor = 1, .torn = true};
    CHECK_INT(resume_decide(&in).reason, LLM_REASON_TORN);
    CHECK_INT(resume_decide(&in).n_keep, 0);
    in.torn = false;
    in.cold = true;
    CHECK_INT(resume_decide(&in).reason, LLM_REASON_MISMATCH);
    CHECK_INT(resume_decide(&in).n_keep, 0);
}

/* Every k that the tokens and the memory prove, tried one by one. */
static uint32_t largest_provable(const resume_input *in)
{
    uint32_t best = 0;
    for (uint32_t k = 1; k < in->n_prompt && k <= in->n_resident; k++) {
        if (in->resident[k - 1] != in->prompt[k - 1]) {
            break;
        }
        if (k == in->n_resident || k >= in->rewind_floor) {
            best = k;
        }
    }
    return best;
}

static void test_always_the_largest_provable_reuse(void)
{
    random_source random = {.state = 20261120};
    for (int round = 0; round < 200000; round++) {
        int32_t resident[N_MAX];
        int32_t prompt[N_MAX];
        const uint32_t n_resident = random_below(&random, N_MAX);
        const uint32_t n_prompt = 1 + random_below(&random, N_MAX - 1);
        const uint32_t shared = random_below(&random, N_MAX);
        for (uint32_t i = 0; i < N_MAX; i++) {
            resident[i] = (int32_t)random_below(&random, 3);
            prompt[i] = i < shared ? resident[i] : (int32_t)random_below(&random, 3);
        }
        const resume_input in = {.resident = resident,
                                 .n_resident = n_resident,
                                 .prompt = prompt,
                                 .n_prompt = n_prompt,
                                 .rewind_floor = 1 + random_below(&random, n_resident + 1)};
        const resume_plan p = resume_decide(&in);
        CHECK_INT(p.n_keep, largest_provable(&in));
        CHECK(p.n_keep < n_prompt);
        CHECK(memcmp(resident, prompt, p.n_keep * sizeof *prompt) == 0);
        const bool warm = p.reason == LLM_REASON_EXACT_PREFIX || p.reason == LLM_REASON_EQUAL ||
                          p.reason == LLM_REASON_REWIND;
        CHECK(warm == (p.n_keep > 0));
        if (p.diverged_at >= 0) {
            CHECK(resident[p.diverged_at] != prompt[p.diverged_at]);
            CHECK(memcmp(resident, prompt, (size_t)p.diverged_at * sizeof *prompt) == 0);
        }
    }
}

int main(void)
{
    RUN(test_new);
    RUN(test_exact_prefix_on_every_memory);
    RUN(test_equal_needs_a_cut_of_one);
    RUN(test_rewind_to_the_divergence);
    RUN(test_rewind_only_inside_the_window);
    RUN(test_shorter_prompt_leaves_one_token_to_consume);
    RUN(test_torn_and_cold_reuse_nothing);
    RUN(test_always_the_largest_provable_reuse);
    return CHECK_RESULT();
}
