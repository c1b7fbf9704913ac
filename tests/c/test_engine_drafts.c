/* Drafts change no answer: with drafts that are right or wrong at every position, an engine returns the same answers,
 * and its branches hold the same tokens, as an engine without drafts. */
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "engine_driver.h"
#include "machine/last_words.h"
#include "model/sim/sim_model.h"

#include "draft_oracle.h"

model_result __real_sim_remove_drafts(model *m, uint16_t seq, uint32_t k);
model_result __wrap_sim_remove_drafts(model *m, uint16_t seq, uint32_t k);
int __real_sampler_next(sampler *s, float *logits, int32_t *token);
int __wrap_sampler_next(sampler *s, float *logits, int32_t *token);

static atomic_bool keeps_drafts, dies, holds_picks, is_held;
static driver *dying;

model_result __wrap_sim_remove_drafts(model *m, uint16_t seq, uint32_t k)
{
    if (atomic_load(&dies)) {
        const bool is_busy = llm_session_table_counter(dying->session_table, LLM_COUNTER_IN_STEP) == 1;
        last_words_say(is_busy ? "busy" : "idle");
        _exit(3);
    }
    if (!atomic_load(&keeps_drafts)) {
        return __real_sim_remove_drafts(m, seq, k);
    }
    if (m->info.memory != LLM_MEMORY_RECURRENT && m->info.memory != LLM_MEMORY_HYBRID) {
        return MODEL_FAILED_BATCH;
    }
    for (uint32_t i = 0; i < m->info.n_seq; i++) {
        sim_sequence_spoil(sim_of(m), &sim_of(m)->sequences[i]);
    }
    return MODEL_FAILED_ALL;
}

int __wrap_sampler_next(sampler *s, float *logits, int32_t *token)
{
    while (atomic_load(&holds_picks)) {
        atomic_store(&is_held, true);
        usleep(1000);
    }
    return __real_sampler_next(s, logits, token);
}

enum { N_CASES = 40, N_TOGETHER = 5, N_PROMPT_MAX = 60, N_TOKENS_MAX = 1024 };

static const uint32_t rights[] = {0, 50, 90, 100};

static driver *opened(const char *name, bool has_drafts)
{
    return driver_open(&(llm_engine_options){.model = name,
                                             .n_sessions = N_TOGETHER,
                                             .n_batch = 64,
                                             .n_threads = 1,
                                             .checkpoint_every = 16,
                                             .exact = strstr(name, ".gguf") != NULL,
                                             .no_drafts = !has_drafts});
}

/* Grammars that often allow only one text. The text contains the stop string of any_call. */
static const char *const forms[] = {
    "{\"grammar\":\"root ::= (\\\"{\\\" ws \\\"name of the thing\\\" ws \\\":\\\" ws [0-9]+ \\\"}\\\" ws)*\\nws ::= "
    "\\\"\\\" | "
    "\\\" \\\" | \\\"\\n\\\" [ ]{0,9}\"}",
    "{\"grammar\":\"root ::= (\\\"<call the tool>\\\" [a-z ]{1,9} \\\"</call>\\\")*\"}",
    "{\"grammar\":\"root ::= \\\"(\\\" (\\\"alpha beta\\\" | \\\"alpha gamma\\\") "
    "\\\")\\\"*\",\"lazy\":true,\"triggers\":[{\"type\":"
    "\"word\",\"value\":\"(\"}]}",
    "{\"grammar\":\"root ::= .*\",\"lazy\":true,\"triggers\":[{\"type\":\"word\",\"value\":\" a\"}]}",
};

static generate_call any_call(random_source *r, const char *session, const int32_t *prompt, uint32_t n_prompt)
{
    return (generate_call){
        .session = session,
        .prompt = prompt,
        .n_prompt = n_prompt,
        .max_tokens = 1 + random_below(r, 60),
        .stop = random_below(r, 3) == 0 ? " the" : NULL,
        .temperature = (float)random_below(r, 3) / 4,
        .seed = random_below(r, 1000),
        .n_logprobs_and_1 = random_below(r, 3),
        .flags = (random_below(r, 3) == 0 ? LLM_GENERATE_RETURN_TOKENS : 0) |
                 (random_below(r, 6) == 0 ? LLM_GENERATE_NO_DRAFTS : 0),
        .min_tokens = random_below(r, 4) == 0 ? 5 : 0,
        .bias = random_below(r, 4) == 0 ? (logit_bias){260, 3} : (logit_bias){0, 0},
        .constraint = random_below(r, 2) == 0 ? forms[random_below(r, sizeof forms / sizeof *forms)] : NULL,
    };
}

static bool are_bytes_equal(const void *a, const void *b, size_t n_bytes)
{
    return n_bytes == 0 || memcmp(a, b, n_bytes) == 0; /* because memcmp does not accept NULL */
}

static bool are_equal(const answer *a, const answer *b)
{
    const wire_finished *f = &a->finished, *g = &b->finished;
    return a->n_text == b->n_text && are_bytes_equal(a->text, b->text, a->n_text) && f->outcome == g->outcome &&
           f->status == g->status && f->n_generated == g->n_generated && f->n_resident == g->n_resident &&
           f->n_visible == g->n_visible && f->stop_index == g->stop_index && a->n_token_ids == b->n_token_ids &&
           are_bytes_equal(a->token_ids, b->token_ids, a->n_token_ids * sizeof *a->token_ids) &&
           are_bytes_equal(a->ends, b->ends, a->n_token_ids * sizeof *a->ends) && a->n_logprobs == b->n_logprobs &&
           are_bytes_equal(a->logprobs, b->logprobs, a->n_logprobs * sizeof *a->logprobs);
}

/* Compares the tokens of a session in both engines. Removes some of them, or parks the session, and appends tokens for
 * the next turn. Returns the number of tokens, or 0 if the engines differ. */
static uint32_t next_prompt(driver *d, driver *plain, const char *session, random_source *r, int32_t *out)
{
    static int32_t other[N_TOKENS_MAX];
    const uint32_t n = driver_tokens(d, driver_session(d, session).entry, out, N_TOKENS_MAX);
    const uint32_t n_other = driver_tokens(plain, driver_session(plain, session).entry, other, N_TOKENS_MAX);
    if (n == 0 || n != n_other || memcmp(out, other, n * sizeof *out) != 0) {
        return 0;
    }
    const uint32_t n_kept = random_below(r, 3) == 0 ? 1 + random_below(r, n) : n;
    if (random_below(r, 3) == 0) {
        driver_wait(d, driver_park(d, 0, session));
        driver_wait(plain, driver_park(plain, 0, session));
    }
    const uint32_t n_more = 1 + random_below(r, 20);
    make_prompt(out + n_kept, n_more, random_next(r));
    return n_kept + n_more;
}

/* Returns whether the model has recurrent states. It then verifies drafts only while one request decodes. */
static bool drafts_alone(const char *name)
{
    return strstr(name, "recurrent") != NULL || strstr(name, "hybrid") != NULL || strstr(name, "granite") != NULL;
}

static void compare(const char *name, uint32_t n_cases, uint32_t right_in_100)
{
    static int32_t prompts[N_TOGETHER][N_TOKENS_MAX];
    static const char *const names[N_TOGETHER] = {"a", "b", "c", "d", "e"};
    oracle_open(name, strstr(name, ".gguf") != NULL, right_in_100, right_in_100 + 1);
    driver *d = opened(name, true), *plain = opened(name, false);
    random_source r = {right_in_100 * 2 + 1};
    uint32_t n_prompt[N_TOGETHER];
    for (uint32_t c = 0; c < n_cases; c++) {
        uint64_t asked[N_TOGETHER], asked_plain[N_TOGETHER];
        bool has_drafts[N_TOGETHER];
        for (uint32_t i = 0; i < N_TOGETHER; i++) {
            if (c % 4 == 0) {
                n_prompt[i] = 2 + random_below(&r, N_PROMPT_MAX - 2);
                make_prompt(prompts[i], n_prompt[i], random_next(&r));
            }
            const generate_call call = any_call(&r, names[i], prompts[i], n_prompt[i]);
            has_drafts[i] = (call.flags & LLM_GENERATE_NO_DRAFTS) == 0;
            asked[i] = driver_generate(d, &call);
            asked_plain[i] = driver_generate(plain, &call);
            if (drafts_alone(name) && c % 4 != 1) {
                driver_wait_all(d);
            }
        }
        driver_wait_all(d);
        driver_wait_all(plain);
        driver_fence(d);
        driver_fence(plain);
        for (uint32_t i = 0; i < N_TOGETHER; i++) {
            CHECK(are_equal(driver_answer(d, asked[i]), driver_answer(plain, asked_plain[i])));
            CHECK(has_drafts[i] || driver_answer(d, asked[i])->finished.n_drafted == 0);
            CHECK_INT(driver_answer(plain, asked_plain[i])->finished.n_drafted, 0);
            n_prompt[i] = next_prompt(d, plain, names[i], &r, prompts[i]);
            CHECK(n_prompt[i] > 0);
        }
    }
    const uint64_t n_drafted = driver_counter(d, LLM_COUNTER_DRAFTED_TOKENS);
    const uint64_t n_accepted = driver_counter(d, LLM_COUNTER_ACCEPTED_TOKENS);
    CHECK(n_drafted > 20 * n_cases);
    const uint64_t n_of_grammar = driver_counter(d, LLM_COUNTER_GRAMMAR_ACCEPTED_TOKENS);
    CHECK(right_in_100 == 0 ? n_accepted - n_of_grammar < n_drafted / 20 : n_accepted > n_drafted * right_in_100 / 400);
    CHECK(n_of_grammar > n_cases / 4);
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(driver_close(plain), 0);
    oracle_close();
}

static void no_answer_changes(void)
{
    for (size_t i = 0; i < sizeof rights / sizeof *rights; i++) {
        compare("sim:dense", N_CASES, rights[i]);
        compare("sim:window,window=40", N_CASES, rights[i]);
        compare("sim:recurrent", N_CASES, rights[i]);
        compare("sim:hybrid", N_CASES, rights[i]);
    }
}

/* On real models, answers are equal to the bit if the arithmetic does not depend on batch shapes (LLMD_TEST_EXACT). */
static void no_answer_of_a_real_model_changes(void)
{
    static const char *const files[] = {"tiny-dense.gguf",     "tiny-dense-q8.gguf",     "tiny-experts.gguf",
                                        "tiny-latent.gguf",    "tiny-indexed.gguf",      "tiny-window.gguf",
                                        "tiny-recurrent.gguf", "tiny-hybrid.gguf",       "tiny-hybrid-q8.gguf",
                                        "tiny-granite.gguf",   "tiny-hybrid-window.gguf"};
    const char *models = getenv("LLMD_TEST_MODELS");
    for (size_t i = 0; models != NULL && getenv("LLMD_TEST_EXACT") != NULL && i < sizeof files / sizeof *files; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", models, files[i]);
        compare(path, 4, 80);
    }
}

/* A request that is cancelled between a draft and its acceptance leaves a branch that continues correctly. */
static void cancel(const char *name)
{
    enum { N_PROMPT = 30, N_ROUNDS = 60 };
    oracle_open(name, false, 80, 1);
    driver *d = opened(name, true), *plain = opened(name, false);
    random_source r = {7};
    static int32_t prompt[N_TOKENS_MAX];
    for (uint32_t i = 0; i < N_ROUNDS; i++) {
        make_prompt(prompt, N_PROMPT, i);
        driver_wait(d, driver_reset(d, 0, "a"));
        generate_call call = {.session = "a", .prompt = prompt, .n_prompt = N_PROMPT, .max_tokens = 600};
        const uint64_t asked = driver_generate(d, &call);
        driver_wait_text(d, asked);
        driver_cancel(d, asked);
        const answer *a = driver_wait(d, asked);
        CHECK(a->finished.outcome == LLM_OUTCOME_CANCELLED || a->finished.outcome == LLM_OUTCOME_LENGTH);
        driver_fence(d);
        const uint32_t n = driver_tokens(d, driver_session(d, "a").entry, prompt, N_TOKENS_MAX);
        CHECK(n >= N_PROMPT);
        make_prompt(prompt + n, 3, random_next(&r));
        call.n_prompt = n + 3;
        call.max_tokens = 20;
        a = driver_wait(d, driver_generate(d, &call));
        CHECK_INT(a->n_reused, n);
        CHECK(driver_equals_cold(plain, &call, a));
    }
    CHECK(driver_counter(d, LLM_COUNTER_ACCEPTED_TOKENS) > 100);
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(driver_close(plain), 0);
    oracle_close();
}

static void a_cancelled_answer_leaves_a_valid_branch(void)
{
    cancel("sim:dense,length=0");
    cancel("sim:window,window=40,length=0");
    cancel("sim:recurrent,length=0");
    cancel("sim:hybrid,length=0");
}

/* If a draft cannot be removed from a sequence, its request ends. Other requests continue. */
static void a_sequence_that_keeps_a_draft_is_invalid(void)
{
    static const char name[] = "sim:window,length=0,step_us=300";
    int32_t prompts[2][20];
    make_prompt(prompts[0], 20, 1);
    make_prompt(prompts[1], 20, 2);
    const generate_call drafted = {.session = "a", .prompt = prompts[0], .n_prompt = 20, .max_tokens = 200};
    const generate_call beside = {
        .session = "b", .prompt = prompts[1], .n_prompt = 20, .max_tokens = 200, .flags = LLM_GENERATE_NO_DRAFTS};
    oracle_open(name, false, 50, 1);
    driver *d = opened(name, true), *plain = opened(name, false);
    atomic_store(&keeps_drafts, true);
    const uint64_t asked_beside = driver_generate(d, &beside);
    driver_wait_text(d, asked_beside);
    const uint64_t asked = driver_generate(d, &drafted);
    CHECK_INT(driver_wait(d, asked)->finished.outcome, LLM_OUTCOME_FAILED);
    CHECK_INT(driver_answer(d, asked)->finished.status, LLM_STEP_FAILED);
    CHECK(driver_equals_cold(plain, &beside, driver_wait(d, asked_beside)));
    atomic_store(&keeps_drafts, false);
    CHECK(driver_equals_cold(plain, &drafted, driver_wait(d, driver_generate(d, &drafted))));
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(driver_close(plain), 0);
    oracle_close();
}

/* A failed call verifies no drafts. All drafts in this test are right, so all verified drafts are accepted. */
static void a_failed_call_verifies_none(void)
{
    oracle_open("sim:dense,length=0", false, 100, 1);
    for (uint32_t i = 0; i < 20; i++) {
        char name[60];
        snprintf(name, sizeof name, "sim:dense,length=0,fail_at=%u", 4 + i);
        driver *d = opened(name, true);
        int32_t prompt[20];
        make_prompt(prompt, 20, i);
        const generate_call call = {.session = "a", .prompt = prompt, .n_prompt = 20, .max_tokens = 200};
        const answer *a = driver_wait(d, driver_generate(d, &call));
        CHECK_INT(a->finished.outcome, LLM_OUTCOME_FAILED);
        CHECK_INT(a->finished.n_drafted, a->finished.n_accepted);
        CHECK_INT(driver_counter(d, LLM_COUNTER_DRAFTED_TOKENS), driver_counter(d, LLM_COUNTER_ACCEPTED_TOKENS));
        CHECK_INT(driver_close(d), 0);
    }
    oracle_close();
}

/* With recurrent states: if the model fails to remove drafts, no sequence can be trusted. The session table shows this
 * for an idle session immediately, and the session's next request is right. */
static void a_removal_that_fails_invalidates_idle_sessions(void)
{
    static const char *const names[] = {"sim:recurrent,length=0", "sim:hybrid,length=0"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int32_t prompts[2][20];
        make_prompt(prompts[0], 20, 1);
        make_prompt(prompts[1], 20, 2);
        const generate_call drafted = {.session = "a", .prompt = prompts[0], .n_prompt = 20, .max_tokens = 200};
        const generate_call idle = {.session = "b", .prompt = prompts[1], .n_prompt = 20, .max_tokens = 20};
        oracle_open(names[i], false, 50, 1);
        driver *d = opened(names[i], true), *plain = opened(names[i], false);
        const uint32_t entry = driver_wait(d, driver_generate(d, &idle))->entry;
        CHECK_INT(driver_state(d, entry), LLM_STATE_IDLE);
        atomic_store(&keeps_drafts, true);
        CHECK_INT(driver_wait(d, driver_generate(d, &drafted))->finished.status, LLM_STEP_FAILED);
        CHECK_INT(driver_state(d, entry), LLM_STATE_TORN);
        atomic_store(&keeps_drafts, false);
        CHECK_INT(driver_counter(d, LLM_COUNTER_STEPS_FAILED), 1);
        CHECK(driver_equals_cold(plain, &idle, driver_wait(d, driver_generate(d, &idle))));
        CHECK(driver_equals_cold(plain, &drafted, driver_wait(d, driver_generate(d, &drafted))));
        CHECK_INT(driver_close(d), 0);
        CHECK_INT(driver_close(plain), 0);
        oracle_close();
    }
}

static void die_in_a_removal(void)
{
    int32_t prompt[20];
    make_prompt(prompt, 20, 1);
    oracle_open("sim:recurrent,length=0", false, 50, 1);
    dying = opened("sim:recurrent,length=0", true);
    atomic_store(&dies, true);
    driver_wait(dying,
                driver_generate(
                    dying, &(generate_call){
                               .owner = 7, .session = "desk", .prompt = prompt, .n_prompt = 20, .max_tokens = 200}));
}

/* The removal of drafts is like a step. If it crashes, the last words name the session, and the decode thread counts as
 * busy. */
static void last_words_name_the_session_of_a_removal(void)
{
    static const char expected[] = "failed and ends the process: busy; in the step: session desk (owner 7, ";
    char log[4096];
    const int status = child_run(die_in_a_removal, log, sizeof log);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    CHECK(strstr(log, expected) != NULL);
}

/* With recurrent states, there are no drafts while a thread picks a token for another request, although that request is
 * in no step. */
static void a_request_whose_token_is_picked_counts(void)
{
    static const char name[] = "sim:recurrent,length=0";
    int32_t prompts[2][20];
    make_prompt(prompts[0], 20, 1);
    make_prompt(prompts[1], 20, 2);
    const generate_call drafted = {.session = "a", .prompt = prompts[0], .n_prompt = 20, .max_tokens = 100};
    const generate_call picked = {
        .session = "b", .prompt = prompts[1], .n_prompt = 20, .max_tokens = 20, .constraint = forms[0]};
    oracle_open(name, false, 50, 1);
    driver *d = opened(name, true);
    atomic_store(&holds_picks, true);
    const uint64_t asked = driver_generate(d, &picked);
    while (!atomic_load(&is_held)) {
        usleep(1000);
    }
    CHECK_INT(driver_wait(d, driver_generate(d, &drafted))->finished.n_drafted, 0);
    atomic_store(&holds_picks, false);
    CHECK_INT(driver_wait(d, asked)->status, LLM_OK);
    CHECK(driver_wait(d, driver_generate(d, &drafted))->finished.n_drafted > 0);
    CHECK_INT(driver_close(d), 0);
    oracle_close();
}

/* After a removed draft, this model would lack the window's earlier cells. So it verifies no drafts. */
static void a_short_window_has_none(void)
{
    driver *d = opened("sim:window,window=15", true);
    int32_t prompt[20];
    make_prompt(prompt, 20, 1);
    const generate_call call = {.prompt = prompt, .n_prompt = 20, .max_tokens = 100};
    CHECK_INT(driver_wait(d, driver_generate(d, &call))->finished.n_drafted, 0);
    CHECK_INT(driver_close(d), 0);
}

int main(void)
{
    RUN(no_answer_changes);
    RUN(no_answer_of_a_real_model_changes);
    RUN(a_cancelled_answer_leaves_a_valid_branch);
    RUN(a_sequence_that_keeps_a_draft_is_invalid);
    RUN(a_failed_call_verifies_none);
    RUN(a_removal_that_fails_invalidates_idle_sessions);
    RUN(last_words_name_the_session_of_a_removal);
    RUN(a_request_whose_token_is_picked_counts);
    RUN(a_short_window_has_none);
    return CHECK_RESULT();
}
