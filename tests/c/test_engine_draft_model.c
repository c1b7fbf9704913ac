/* A draft model changes no answer, whatever it guesses (engine/draft_model.h). It guesses right if it is the same
 * model, also after its sequence has gone back, begun anew, or changed to another session. */
#include <stdlib.h>

#include "check.h"
#include "engine_driver.h"
#include "policy/draft.h"

void __wrap_draft_plan(const draft_candidate *candidates, uint32_t n, uint32_t n_max, const draft_costs *costs,
                       uint32_t *n_drafts);
bool __wrap_draft_credit_allows(const draft_credit *credit, double cost_steps);
bool __wrap_draft_goes_on(double p_right, double cost_steps);
bool __wrap_draft_has_costs(const draft_costs *costs, uint32_t n_decoding);

static random_source random_plan; /* used by the decode thread of the engine with a draft model */

/* How many tokens are guessed and verified would depend on time. */
void __wrap_draft_plan(const draft_candidate *candidates, uint32_t n, uint32_t n_max, const draft_costs *costs,
                       uint32_t *n_drafts)
{
    (void)costs;
    uint32_t n_left = n_max < DRAFT_TOKENS_MAX ? n_max : DRAFT_TOKENS_MAX;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t n_most = candidates[i].n_max < n_left ? candidates[i].n_max : n_left;
        n_drafts[i] = random_below(&random_plan, 4) == 0 ? random_below(&random_plan, n_most + 1) : n_most;
        n_left -= n_drafts[i];
    }
}

bool __wrap_draft_credit_allows(const draft_credit *credit, double cost_steps)
{
    (void)credit;
    (void)cost_steps;
    return random_below(&random_plan, 10) > 0;
}

bool __wrap_draft_goes_on(double p_right, double cost_steps)
{
    (void)p_right;
    (void)cost_steps;
    return random_below(&random_plan, 6) > 0;
}

bool __wrap_draft_has_costs(const draft_costs *costs, uint32_t n_decoding)
{
    (void)costs;
    (void)n_decoding;
    return true;
}

enum { N_ROUNDS = 60, N_SESSIONS = 3, N_TOKENS_MAX = 4096, N_CTX = 1024 };

static driver *opened(const char *name, const char *draft_model, uint32_t n_ctx)
{
    return driver_open(&(llm_engine_options){.model = name,
                                             .n_ctx = n_ctx,
                                             .n_sessions = N_SESSIONS,
                                             .branches_max = 1,
                                             .n_batch = 64,
                                             .n_threads = 1,
                                             .checkpoint_every = 16,
                                             .exact = strstr(name, ".gguf") != NULL,
                                             .no_drafts = draft_model == NULL,
                                             .draft_model = draft_model});
}

/* Any turns of a few sessions: some go on, some edit the history, some are cancelled, one is as long as the draft
 * model's sequence. Sets *share to the percentage of the verified guesses that were accepted. */
static void converse(const char *name, const char *draft_model, uint32_t n_rounds, uint32_t n_long, uint32_t *share)
{
    static const char *const sessions[N_SESSIONS] = {"a", "b", "c"};
    static int32_t prompts[N_SESSIONS][N_TOKENS_MAX];
    uint32_t n_prompt[N_SESSIONS] = {0};
    const uint32_t n_ctx = n_long < N_CTX ? N_CTX : N_TOKENS_MAX;
    driver *d = opened(name, draft_model, n_ctx), *plain = opened(name, NULL, n_ctx);
    random_source r = {n_rounds};
    random_plan.state = 11;
    for (uint32_t round = 0; round < n_rounds; round++) {
        const uint32_t s = random_below(&r, N_SESSIONS);
        if (n_prompt[s] == 0 || n_prompt[s] > N_TOKENS_MAX / 2) {
            n_prompt[s] = 2 + random_below(&r, 40);
            make_prompt(prompts[s], n_prompt[s], random_next(&r));
        }
        const generate_call call = {.session = sessions[s],
                                    .prompt = prompts[s],
                                    .n_prompt = n_prompt[s],
                                    .max_tokens = round == n_rounds / 2 ? n_long : 1 + random_below(&r, 60),
                                    .temperature = (float)random_below(&r, 3) / 4,
                                    .seed = random_below(&r, 1000)};
        const uint64_t asked = driver_generate(d, &call);
        const bool is_cancelled = random_below(&r, 8) == 0;
        if (is_cancelled) {
            driver_cancel(d, asked);
        }
        const answer *a = driver_wait(d, asked);
        CHECK(is_cancelled || driver_equals_cold(plain, &call, a));
        driver_fence(d);
        const uint32_t n = driver_tokens(d, driver_session(d, sessions[s]).entry, prompts[s], N_TOKENS_MAX);
        const uint32_t n_kept = n > 0 && random_below(&r, 3) == 0 ? 1 + random_below(&r, n) : n;
        n_prompt[s] = n_kept + 1 + random_below(&r, 5);
        make_prompt(prompts[s] + n_kept, n_prompt[s] - n_kept, random_next(&r));
    }
    const uint64_t n_drafted = driver_counter(d, LLM_COUNTER_MODEL_DRAFTED_TOKENS);
    const uint64_t n_accepted = driver_counter(d, LLM_COUNTER_MODEL_ACCEPTED_TOKENS);
    CHECK(n_drafted > 10 * n_rounds && n_drafted > n_long / 2); /* also after the sequence has begun anew */
    CHECK(n_drafted <= driver_counter(d, LLM_COUNTER_DRAFTED_TOKENS));
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(driver_close(plain), 0);
    *share = (uint32_t)(100 * n_accepted / n_drafted);
}

/* All simulated models generate the same text. So guesses are wrong only where the temperature lets the sampler pick
 * another token. */
static void no_answer_changes(void)
{
    static const char *const models[] = {"sim:dense", "sim:window,window=40", "sim:recurrent", "sim:hybrid"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        for (size_t j = 0; j < sizeof models / sizeof *models; j++) {
            uint32_t share = 101;
            converse(models[i], models[j], N_ROUNDS, 100, &share);
            CHECK(share >= 10 && share <= 100);
        }
    }
}

/* Longer than the draft model's sequence, which then begins anew. */
static void a_long_answer_goes_on(void)
{
    uint32_t share = 0;
    converse("sim:dense,length=0", "sim:dense,length=0", 12, 2500, &share);
    converse("sim:dense,length=0", "sim:recurrent,length=0", 12, 2500, &share);
}

/* A draft model whose calls fail costs nothing but its guesses. */
static void a_draft_model_that_fails_does_no_harm(void)
{
    for (uint32_t at = 1; at < 40; at += 3) {
        char draft_model[60];
        snprintf(draft_model, sizeof draft_model, "sim:hybrid,length=0,fail_at=%u", at);
        driver *d = opened("sim:dense,length=0", draft_model, 0), *plain = opened("sim:dense,length=0", NULL, 0);
        int32_t prompt[20];
        make_prompt(prompt, 20, at);
        const generate_call call = {.session = "a", .prompt = prompt, .n_prompt = 20, .max_tokens = 60};
        CHECK(driver_equals_cold(plain, &call, driver_wait(d, driver_generate(d, &call))));
        CHECK_INT(driver_counter(d, LLM_COUNTER_STEPS_FAILED), 0);
        CHECK(driver_counter(d, LLM_COUNTER_MODEL_DRAFTED_TOKENS) > 10); /* the next tries succeed */
        CHECK_INT(driver_close(d), 0);
        CHECK_INT(driver_close(plain), 0);
    }
}

static const char *path_of(const char *file)
{
    static char path[4096];
    const char *models = getenv("LLMD_TEST_MODELS");
    snprintf(path, sizeof path, "%s/%s", models != NULL ? models : "", file);
    return models != NULL ? path : NULL;
}

static void check_refused(const char *name, const char *draft_model, int status, const char *expected)
{
    char error[600];
    llm_engine *engine = NULL;
    const llm_engine_options options = {
        .model = name, .n_sessions = 1, .n_scratch = 1, .n_threads = 1, .draft_model = draft_model};
    CHECK_INT(llm_engine_open(&options, &engine, error, sizeof error), status);
    CHECK(engine == NULL);
    CHECK(strncmp(error, "draft model: ", 13) == 0 && strstr(error, expected) != NULL);
}

static void an_unfit_draft_model_is_refused(void)
{
    check_refused("sim:dense", "sim:none,embed=8", LLM_INVALID, "generates no text");
    check_refused("sim:dense", "/nowhere.gguf", LLM_MODEL_LOAD, "/nowhere.gguf");
    if (path_of("tiny-dense.gguf") != NULL) {
        check_refused("sim:dense", path_of("tiny-dense.gguf"), LLM_INVALID, "vocabularies");
    }
}

/* On real models, equal to the bit where the arithmetic does not depend on batch shapes (LLMD_TEST_EXACT). Two of them
 * never agree, since their weights are random. */
static void no_answer_of_a_real_model_changes(void)
{
    static const char *const files[] = {"tiny-dense.gguf", "tiny-window.gguf", "tiny-recurrent.gguf",
                                        "tiny-hybrid.gguf"};
    const size_t n = getenv("LLMD_TEST_EXACT") != NULL && path_of("") != NULL ? sizeof files / sizeof *files : 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) {
            char name[4096];
            uint32_t share = 101;
            snprintf(name, sizeof name, "%s", path_of(files[i]));
            converse(name, path_of(files[j]), 10, 40, &share);
            CHECK(i == j ? share >= 20 : share <= 5);
        }
    }
}

int main(void)
{
    RUN(no_answer_changes);
    RUN(a_long_answer_goes_on);
    RUN(a_draft_model_that_fails_does_no_harm);
    RUN(an_unfit_draft_model_is_refused);
    RUN(no_answer_of_a_real_model_changes);
    return CHECK_RESULT();
}
