/* Tests failed steps and lack of memory. The affected request fails, its branch becomes invalid (torn), and the next
 * request of the session is right again. Other requests are not affected. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "engine_driver.h"
#include "machine/last_words.h"

enum { N = 4, PROMPT = 120, LENGTH = 60 };

static const char *const classes[] = {"dense", "window", "recurrent", "hybrid"};

/* Sessions with different prompts, so that they share nothing. */
typedef struct group {
    driver *d;
    int32_t prompts[N][PROMPT];
    char names[N][8];
    generate_call calls[N];
    uint64_t requests[N];
} group;

static void group_open(group *g, const char *name)
{
    g->d = driver_open(&(llm_engine_options){.model = name, .n_sessions = N});
    for (uint32_t i = 0; i < N; i++) {
        make_prompt(g->prompts[i], PROMPT, i + 1);
        snprintf(g->names[i], sizeof g->names[i], "s%u", i % 10);
        g->calls[i] = (generate_call){.session = g->names[i],
                                      .prompt = g->prompts[i],
                                      .n_prompt = PROMPT,
                                      .max_tokens = LENGTH,
                                      .flags = LLM_GENERATE_IGNORE_END};
    }
}

static void group_ask(group *g)
{
    for (uint32_t i = 0; i < N; i++) {
        g->requests[i] = driver_generate(g->d, &g->calls[i]);
    }
    driver_wait_all(g->d);
}

/* Checks the state after a fault: failed requests have left a torn session, the other answers are right. Then sends all
 * requests again, and checks that all answers are right. Returns how many requests failed the first time. */
static uint32_t check_recovery(group *g, driver *cold)
{
    uint32_t n_failed = 0;
    for (uint32_t i = 0; i < N; i++) {
        const answer *a = driver_answer(g->d, g->requests[i]);
        bool failed = a->finished.outcome == LLM_OUTCOME_FAILED;
        n_failed += failed;
        if (failed ? strcmp(llm_word(LLM_STATUSES, (int)a->status), "step_failed") != 0 ||
                         driver_state(g->d, a->entry) != LLM_STATE_TORN
                   : !driver_equals_cold(cold, &g->calls[i], a)) {
            printf("%s: request %u after the fault\n", g->d->info.name, i);
            return UINT32_MAX;
        }
    }
    uint64_t failed_before[N];
    memcpy(failed_before, g->requests, sizeof failed_before);
    group_ask(g);
    for (uint32_t i = 0; i < N; i++) {
        const answer *a = driver_answer(g->d, g->requests[i]);
        bool was_torn = driver_answer(g->d, failed_before[i])->finished.outcome == LLM_OUTCOME_FAILED;
        bool says_so = a->reason == LLM_REASON_TORN || (a->n_reused > 0 && a->reason == LLM_REASON_SHARED);
        if (a->status != LLM_OK || !driver_equals_cold(cold, &g->calls[i], a) || (was_torn && !says_so)) {
            printf("%s: request %u is %s (%s) afterwards\n", g->d->info.name, i, llm_word(LLM_STATUSES, (int)a->status),
                   llm_word(LLM_REASONS, (int)a->reason));
            return UINT32_MAX;
        }
    }
    return n_failed;
}

/* One fault of this kind, at various calls: during the prefills, between them, and while all requests decode. */
static void one_fault(const char *kind)
{
    static const int calls[] = {1, 2, 3, 7, 20, 41};
    for (size_t i = 0; i < 4 * (sizeof calls / sizeof calls[0]); i++) {
        char name[96], reference[32];
        snprintf(name, sizeof name, "sim:%s,fail_at=%d,fail_kind=%s", classes[i % 4], calls[i / 4], kind);
        snprintf(reference, sizeof reference, "sim:%s", classes[i % 4]);
        group g;
        group_open(&g, name);
        driver *cold = driver_open_model(reference);
        group_ask(&g);
        CHECK_INT(driver_counter(g.d, LLM_COUNTER_STEPS_FAILED), 1);
        uint32_t n_failed = check_recovery(&g, cold);
        CHECK(n_failed >= 1 && n_failed <= N);
        CHECK(driver_is_idle(g.d));
        CHECK_INT(driver_close(g.d) + driver_close(cold), 0);
    }
}

static void a_failed_batch(void)
{
    one_fault("batch");
}

static void a_failed_model(void)
{
    one_fault("all");
}

static void a_step_that_stops_half_way(void)
{
    one_fault("half");
}

/* Only a step of one session fails. The states of the other sessions stay complete. */
static void bystanders_keep_their_state(void)
{
    for (int i = 0; i < 4; i++) {
        char name[96], reference[32];
        snprintf(name, sizeof name, "sim:%s,fail_seq=1", classes[i]); /* the sequence of the second session */
        snprintf(reference, sizeof reference, "sim:%s", classes[i]);
        group g;
        group_open(&g, name);
        driver *cold = driver_open_model(reference);
        CHECK_INT(driver_wait(g.d, driver_generate(g.d, &g.calls[0]))->status, LLM_OK);
        CHECK_INT(driver_wait(g.d, driver_generate(g.d, &g.calls[1]))->status, LLM_STEP_FAILED);
        CHECK_INT(driver_wait(g.d, driver_generate(g.d, &g.calls[2]))->status, LLM_OK);
        CHECK_INT(driver_wait(g.d, driver_generate(g.d, &g.calls[1]))->status, LLM_STEP_FAILED);
        int32_t longer[PROMPT + LENGTH + 8];
        uint32_t n = driver_tokens(g.d, 0, longer, PROMPT + LENGTH);
        make_prompt(longer + n, 8, 99);
        generate_call on = g.calls[0];
        on.prompt = longer;
        on.n_prompt = n + 8;
        const answer *a = driver_wait(g.d, driver_generate(g.d, &on));
        CHECK_STR(llm_word(LLM_REASONS, (int)a->reason), "exact_prefix");
        CHECK_INT(a->n_reused, n);
        CHECK(driver_equals_cold(cold, &on, a));
        CHECK_INT(driver_close(g.d) + driver_close(cold), 0);
    }
}

/* If the whole model fails, idle sessions are torn, too. The session table shows this. */
static void a_failed_model_tears_the_idle_ones(void)
{
    for (int i = 0; i < 4; i++) {
        char name[96], reference[32];
        snprintf(name, sizeof name, "sim:%s,fail_seq=1,fail_at=1,fail_kind=all", classes[i]);
        snprintf(reference, sizeof reference, "sim:%s", classes[i]);
        group g;
        group_open(&g, name);
        driver *cold = driver_open_model(reference);
        uint32_t entry = driver_wait(g.d, driver_generate(g.d, &g.calls[0]))->entry;
        CHECK_INT(driver_state(g.d, entry), LLM_STATE_IDLE);
        CHECK_INT(driver_wait(g.d, driver_generate(g.d, &g.calls[1]))->status, LLM_STEP_FAILED);
        CHECK_INT(driver_state(g.d, entry), LLM_STATE_TORN);
        const answer *a = driver_wait(g.d, driver_generate(g.d, &g.calls[0]));
        CHECK_INT(a->status, LLM_OK);
        /* SHARED if a checkpoint of the whole state was found */
        CHECK(a->reason == LLM_REASON_TORN || a->reason == LLM_REASON_SHARED);
        CHECK(driver_equals_cold(cold, &g.calls[0], a));
        CHECK_INT(driver_close(g.d) + driver_close(cold), 0);
    }
}

/* ---- cells ---- */

/* Two generations grow, but only one and a half fit. One fails, and the other one ends with the right answer.
 * Afterwards there is room again. */
static void the_grower_fails_when_cells_run_out(void)
{
    for (int i = 0; i < 4; i++) {
        char name[96], reference[32];
        snprintf(name, sizeof name, "sim:%s,cells=300", classes[i]);
        snprintf(reference, sizeof reference, "sim:%s", classes[i]);
        group g;
        group_open(&g, name);
        driver *cold = driver_open_model(reference);
        uint32_t n_full = 0;
        g.calls[0].max_tokens = g.calls[1].max_tokens = 100;
        g.requests[0] = driver_generate(g.d, &g.calls[0]);
        g.requests[1] = driver_generate(g.d, &g.calls[1]);
        driver_wait_all(g.d);
        for (int k = 0; k < 2; k++) {
            const answer *a = driver_answer(g.d, g.requests[k]);
            if (a->status == LLM_OK) {
                CHECK(driver_equals_cold(cold, &g.calls[k], a));
            } else {
                n_full++;
                CHECK_STR(llm_word(LLM_STATUSES, (int)a->status), "kv_cache_full");
                /* its cells are free, but its tokens are known */
                CHECK_INT(driver_state(g.d, a->entry), LLM_STATE_PARKED);
            }
        }
        CHECK_INT(n_full, 1); /* even if the other request ended before, because policy refuse parks no idle session */
        driver_wait(g.d, driver_reset(g.d, 0, g.names[0]));
        driver_wait(g.d, driver_reset(g.d, 0, g.names[1]));
        const answer *a = driver_wait(g.d, driver_generate(g.d, &g.calls[2]));
        CHECK_INT(a->status, LLM_OK);
        CHECK(driver_is_idle(g.d));
        CHECK_INT(driver_close(g.d) + driver_close(cold), 0);
    }
}

static void idle_ones_make_way_where_the_policy_allows(void)
{
    for (int i = 0; i < 4; i++) {
        for (uint32_t policy = 0; policy < LLM_POLICY_N; policy++) {
            char name[96], reference[32];
            snprintf(name, sizeof name, "sim:%s,cells=300", classes[i]);
            snprintf(reference, sizeof reference, "sim:%s", classes[i]);
            group g;
            group_open(&g, reference); /* only for the prompts */
            driver *cold = g.d;
            g.d = driver_open(
                &(llm_engine_options){.model = name, .n_sessions = N, .capacity_policy = policy, .n_parked_max = 4});
            CHECK_INT(driver_wait(g.d, driver_generate(g.d, &g.calls[0]))->status, LLM_OK);
            const answer *a = driver_wait(g.d, driver_generate(g.d, &g.calls[1]));
            CHECK_STR(llm_word(LLM_STATUSES, (int)a->status), policy == LLM_POLICY_REFUSE ? "kv_cache_full" : "ok");
            CHECK(policy == LLM_POLICY_REFUSE || driver_equals_cold(cold, &g.calls[1], a));
            a = driver_wait(g.d, driver_generate(g.d, &g.calls[0]));
            CHECK_INT(a->status, LLM_OK);
            CHECK(driver_equals_cold(cold, &g.calls[0], a));
            CHECK(a->n_reused > 0 || policy == LLM_POLICY_EVICT);
            CHECK_INT(driver_close(g.d) + driver_close(cold), 0);
        }
    }
}

/* With parking, generations that do not fit together take turns. All of them end with the right answer. */
static void too_many_for_the_cells_take_turns(void)
{
    for (int i = 0; i < 4; i++) {
        char name[96], reference[32];
        snprintf(name, sizeof name, "sim:%s,cells=400", classes[i]);
        snprintf(reference, sizeof reference, "sim:%s", classes[i]);
        group g;
        group_open(&g, reference);
        driver *cold = g.d;
        g.d = driver_open(&(llm_engine_options){
            .model = name, .n_sessions = N, .capacity_policy = LLM_POLICY_PARK, .n_parked_max = 4});
        for (int round = 0; round < 3; round++) {
            group_ask(&g);
            for (int k = 0; k < N; k++) {
                const answer *a = driver_answer(g.d, g.requests[k]);
                CHECK_STR(llm_word(LLM_STATUSES, (int)a->status), "ok");
                CHECK(driver_equals_cold(cold, &g.calls[k], a));
            }
        }
        CHECK(driver_is_idle(g.d));
        CHECK_INT(driver_close(g.d) + driver_close(cold), 0);
    }
}

/* The model reports missing cells although it has enough. The engine tries again until the largest request has
 * failed. */
static void claimed_shortage_harms_nobody_else(void)
{
    for (int i = 0; i < 4; i++) {
        char name[96], reference[32];
        snprintf(name, sizeof name, "sim:%s,fail_at=20,fail_kind=cells", classes[i]);
        snprintf(reference, sizeof reference, "sim:%s", classes[i]);
        group g;
        group_open(&g, name);
        driver *cold = driver_open_model(reference);
        group_ask(&g);
        uint32_t n_failed = 0;
        for (int k = 0; k < N; k++) {
            const answer *a = driver_answer(g.d, g.requests[k]);
            n_failed += a->status == LLM_NO_CELLS;
            CHECK(a->status == LLM_NO_CELLS || driver_equals_cold(cold, &g.calls[k], a));
        }
        CHECK_INT(n_failed, 1);
        CHECK_INT(driver_close(g.d) + driver_close(cold), 0);
    }
}

/* ---- an assertion that fails in the middle of a step ---- */

/* Runs in a child, which exits without waiting for the end of the step. */
static void fail_in_a_step(void)
{
    int32_t prompt[PROMPT];
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,step_us=60000000", .n_sessions = N});
    make_prompt(prompt, PROMPT, 1);
    driver_generate(
        d, &(generate_call){.owner = 7, .session = "desk", .prompt = prompt, .n_prompt = PROMPT, .max_tokens = 1});
    while (llm_session_table_counter(d->session_table, LLM_COUNTER_IN_STEP) == 0) {
        usleep(1000);
    }
    last_words_say("ggml.c:1: GGML_ASSERT(a == b) failed");
    _exit(3);
}

static void last_words_name_the_sessions_in_the_step(void)
{
    char log[4096];
    const int status = child_run(fail_in_a_step, log, sizeof log);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    CHECK_STR(log, "llmd: an assertion of llama.cpp failed and ends the process: ggml.c:1: GGML_ASSERT(a == b) failed; "
                   "in the step: session desk (owner 7, 0 tokens)\n");
}

int main(void)
{
    RUN(a_failed_batch);
    RUN(a_failed_model);
    RUN(a_step_that_stops_half_way);
    RUN(bystanders_keep_their_state);
    RUN(a_failed_model_tears_the_idle_ones);
    RUN(the_grower_fails_when_cells_run_out);
    RUN(idle_ones_make_way_where_the_policy_allows);
    RUN(too_many_for_the_cells_take_turns);
    RUN(claimed_shortage_harms_nobody_else);
    RUN(last_words_name_the_sessions_in_the_step);
    return CHECK_RESULT();
}
