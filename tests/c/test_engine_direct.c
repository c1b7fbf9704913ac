/* Direct mode: sessions driven by calls do what served ones do, and say MISUSE while the decode thread has them. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "engine_driver.h"

enum { N_CTX = 600, PROMPT = 150, LENGTH = 40, VOCABULARY = 512 };

static const char *const classes[] = {"dense", "window", "recurrent", "hybrid"};

static llm_engine *open_direct(const char *class, const char *rest)
{
    char name[96];
    snprintf(name, sizeof name, "sim:%s%s", class, rest);
    llm_engine_options options = {.model = name, .n_sessions = 3, .n_scratch = 2, .n_ctx = N_CTX};
    llm_engine *engine = NULL;
    if (llm_engine_open(&options, &engine, NULL, 0) != LLM_OK) {
        abort();
    }
    return engine;
}

static llm_session *open_session(llm_engine *engine, const char *name)
{
    llm_session *s = NULL;
    if (llm_session_open(engine, name, &s) != LLM_OK) {
        abort();
    }
    return s;
}

/* Decodes n tokens into out; how many it got. */
static uint32_t decode(llm_session *s, int32_t *out, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && llm_session_decode(s, &out[i]) == LLM_OK) {
        i++;
    }
    return i;
}

static void it_says_what_serving_says(void)
{
    for (int i = 0; i < 4; i++) {
        for (int draws = 0; draws < 2; draws++) {
            int32_t prompt[PROMPT], tokens[LENGTH];
            char name[32], text[4096];
            make_prompt(prompt, PROMPT, 3);
            llm_engine *engine = open_direct(classes[i], "");
            llm_session *s = open_session(engine, "it");
            llm_sampling sampling = {.temperature = (float)draws,
                                     .top_p = 1,
                                     .repeat_penalty = 1,
                                     .penalty_last_n = 64,
                                     .seed = 7,
                                     .typical_p = 1};
            llm_resume resume;
            CHECK_INT(llm_session_prefill(s, prompt, PROMPT, &sampling, &resume), LLM_OK);
            CHECK_STR(llm_reason_word((int)resume.reason), "new");
            CHECK_INT(resume.n_prefilled, PROMPT);
            CHECK_INT(decode(s, tokens, LENGTH), LENGTH);
            CHECK_INT(llm_session_position(s), PROMPT + LENGTH - 1);
            int64_t n_text = llm_detokenize(engine, tokens, LENGTH, 0, text, sizeof text);
            CHECK(n_text > 0);
            llm_engine_close(engine);

            snprintf(name, sizeof name, "sim:%s", classes[i]);
            driver *d = driver_open(&(llm_engine_options){.model = name, .n_ctx = N_CTX});
            generate_call call = {.session = "it",
                                  .prompt = prompt,
                                  .n_prompt = PROMPT,
                                  .max_tokens = LENGTH,
                                  .temperature = (float)draws,
                                  .seed = 7};
            const answer *a = driver_wait(d, driver_generate(d, &call));
            size_t n_same = a->n_text; /* serving ends with the turn, and shows half a character as U+FFFD */
            if (n_same >= 3 && memcmp(a->text + n_same - 3, "\xef\xbf\xbd", 3) == 0) {
                n_same -= 3;
            }
            CHECK(n_same > 0 && n_same <= (size_t)n_text && memcmp(a->text, text, n_same) == 0);
            CHECK_INT(driver_close(d), 0);
        }
    }
}

/* Warm by any way equals cold, to the logit. */
static void warm_logits_equal_cold_ones(void)
{
    static float warm[VOCABULARY], cold[VOCABULARY];
    for (int i = 0; i < 4; i++) {
        llm_engine *engine = open_direct(classes[i], ""), *other = open_direct(classes[i], "");
        llm_session *s = open_session(engine, "it");
        random_source random = {9};
        int32_t prompt[400], token;
        uint32_t n = 0;
        for (int round = 0; round < 60; round++) {
            uint32_t keep = n == 0 ? 0 : random_below(&random, n + 1), more = 1 + random_below(&random, 60);
            if (random_below(&random, 3) > 0) {
                keep = n; /* mostly it goes on */
            }
            n = keep + more < 400 ? keep + more : 1;
            make_prompt(prompt + (keep < n ? keep : 0), keep < n ? n - keep : n, random_next(&random));
            llm_resume resume;
            CHECK_INT(llm_session_prefill(s, prompt, n, NULL, &resume), LLM_OK);
            CHECK_INT(resume.n_reused + resume.n_prefilled, n);
            CHECK_INT(llm_session_position(s), n);
            CHECK_INT(llm_session_logits(s, warm, VOCABULARY), LLM_OK);
            llm_session *fresh = open_session(other, "fresh");
            CHECK_INT(llm_session_prefill(fresh, prompt, n, NULL, &resume), LLM_OK);
            CHECK_INT(llm_session_logits(fresh, cold, VOCABULARY), LLM_OK);
            CHECK(memcmp(warm, cold, sizeof warm) == 0);
            CHECK_INT(llm_session_close(fresh), LLM_OK);
            for (uint32_t k = random_below(&random, 4); k > 0; k--) {
                CHECK_INT(llm_session_decode(s, &token), LLM_OK);
            }
        }
        llm_engine_close(engine);
        llm_engine_close(other);
    }
}

/* Memory that cannot be cut back: the checkpoints that serving takes are there for calls, too. */
static void it_takes_the_checkpoints_that_serving_takes(void)
{
    enum { SHARED = 60, EVERY = 16 };
    llm_engine_options options = {
        .model = "sim:hybrid", .n_sessions = 1, .n_scratch = 1, .n_ctx = N_CTX, .checkpoint_every = EVERY};
    llm_engine *engine = NULL;
    CHECK_INT(llm_engine_open(&options, &engine, NULL, 0), LLM_OK);
    llm_session *s = open_session(engine, "it");
    int32_t prompt[PROMPT], drawn[LENGTH];
    llm_resume resume;
    make_prompt(prompt, PROMPT, 1);
    CHECK_INT(llm_session_prefill(s, prompt, PROMPT, NULL, NULL), LLM_OK);
    make_prompt(prompt + SHARED, PROMPT - SHARED, 2);
    CHECK_INT(llm_session_prefill(s, prompt, PROMPT, NULL, &resume), LLM_OK);
    CHECK_INT(resume.n_reused, 0);
    make_prompt(prompt + SHARED, PROMPT - SHARED, 3); /* where histories parted once, they part again */
    CHECK_INT(llm_session_prefill(s, prompt, PROMPT, NULL, &resume), LLM_OK);
    CHECK_INT(resume.n_reused, SHARED);
    CHECK_INT(decode(s, drawn, LENGTH), LENGTH);
    int32_t longer[PROMPT + LENGTH];
    make_prompt(longer, PROMPT, 1);
    make_prompt(longer + SHARED, PROMPT - SHARED, 3);
    memcpy(longer + PROMPT, drawn, sizeof drawn);
    longer[PROMPT + LENGTH - 2]++; /* within the answer, behind a checkpoint */
    CHECK_INT(llm_session_prefill(s, longer, PROMPT + LENGTH, NULL, &resume), LLM_OK);
    CHECK_INT(resume.n_reused, PROMPT + LENGTH / EVERY * EVERY);
    llm_engine_close(engine);
}

static void calls_have_their_errors(void)
{
    llm_engine *engine = open_direct("hybrid", "");
    llm_session *s = NULL, *same = NULL, *more = NULL;
    static float logits[VOCABULARY];
    int32_t prompt[N_CTX + 1], token;
    char long_name[LLM_SESSION_NAME_BYTES_MAX + 2];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    make_prompt(prompt, N_CTX + 1, 1);
    CHECK_INT(llm_session_open(engine, "with space", &s), LLM_INVALID);
    CHECK_INT(llm_session_open(engine, long_name, &s), LLM_INVALID);
    CHECK_INT(llm_session_open(engine, NULL, &s), LLM_INVALID);
    CHECK_INT(llm_session_open(engine, "it", &s), LLM_OK);
    CHECK_INT(llm_session_open(engine, "it", &same), LLM_OK);
    CHECK(s == same);
    CHECK_INT(llm_session_decode(s, &token), LLM_NOT_FOUND);
    CHECK_INT(llm_session_logits(s, logits, VOCABULARY), LLM_NOT_FOUND);
    CHECK_INT(llm_session_prefill(s, prompt, 0, NULL, NULL), LLM_INVALID);
    CHECK_INT(llm_session_prefill(s, prompt, N_CTX + 1, NULL, NULL), LLM_CONTEXT_LENGTH);
    prompt[3] = VOCABULARY;
    CHECK_INT(llm_session_prefill(s, prompt, 10, NULL, NULL), LLM_TOKEN);
    CHECK_INT(llm_session_position(s), 0);
    prompt[3] = 300;
    CHECK_INT(llm_session_prefill(s, prompt, N_CTX, NULL, NULL), LLM_OK);
    CHECK_INT(llm_session_logits(s, logits, VOCABULARY - 1), LLM_SMALL_BUFFER);
    CHECK_INT(llm_session_decode(s, &token), LLM_OK); /* needs no room yet */
    CHECK_INT(llm_session_decode(s, &token), LLM_CONTEXT_LENGTH);
    CHECK_INT(llm_session_position(s), N_CTX);
    CHECK_INT(llm_session_open(engine, "b", &more), LLM_OK);
    CHECK_INT(llm_session_open(engine, "c", &more), LLM_OK);
    CHECK_INT(llm_session_open(engine, "d", &more), LLM_CAPACITY);
    CHECK_INT(llm_session_close(s), LLM_OK);
    CHECK_INT(llm_session_open(engine, "d", &more), LLM_OK);
    llm_engine_close(engine);
}

/* A caller's sessions are not given away, whatever the policy. */
static void held_sessions_are_not_evicted(void)
{
    for (uint32_t policy = 0; policy < LLM_POLICY_N; policy++) {
        llm_engine_options options = {
            .model = "sim:dense", .n_sessions = 1, .n_scratch = 1, .n_ctx = 100, .capacity_policy = policy};
        llm_engine *engine = NULL;
        llm_session *a = NULL, *b = NULL;
        int32_t prompt[10];
        make_prompt(prompt, 10, 1);
        CHECK_INT(llm_engine_open(&options, &engine, NULL, 0), LLM_OK);
        CHECK_INT(llm_session_open(engine, "a", &a), LLM_OK);
        CHECK_INT(llm_session_prefill(a, prompt, 10, NULL, NULL), LLM_OK);
        CHECK_INT(llm_session_open(engine, "b", &b), LLM_CAPACITY);
        CHECK_INT(llm_session_position(a), 10);
        CHECK_INT(llm_session_open(engine, "", &b), LLM_OK);
        CHECK_INT(llm_session_open(engine, "", &b), LLM_CAPACITY);
        llm_engine_close(engine);
    }
}

static void a_reset_empties(void)
{
    llm_engine *engine = open_direct("window", "");
    llm_session *s = open_session(engine, "it");
    int32_t prompt[PROMPT], token;
    make_prompt(prompt, PROMPT, 1);
    CHECK_INT(llm_session_reset(s), LLM_OK);
    CHECK_INT(llm_session_prefill(s, prompt, PROMPT, NULL, NULL), LLM_OK);
    CHECK_INT(llm_session_decode(s, &token), LLM_OK);
    CHECK_INT(llm_session_reset(s), LLM_OK);
    CHECK_INT(llm_session_position(s), 0);
    CHECK_INT(llm_session_decode(s, &token), LLM_NOT_FOUND);
    llm_engine_close(engine);
}

/* A failed step: torn until a reset. Of all sessions, when the whole model failed. */
static void a_failed_step_tears(void)
{
    for (int i = 0; i < 8; i++) {
        llm_engine *engine = open_direct(classes[i / 2], i % 2 == 0 ? ",fail_at=3" : ",fail_at=3,fail_kind=all");
        llm_session *s = open_session(engine, "it"), *other = open_session(engine, "other");
        int32_t prompt[30], token;
        make_prompt(prompt, 30, 1);
        CHECK_INT(llm_session_prefill(other, prompt, 30, NULL, NULL), LLM_OK);
        CHECK_INT(llm_session_prefill(s, prompt, 20, NULL, NULL), LLM_OK);
        CHECK_INT(llm_session_decode(s, &token), LLM_OK);
        CHECK_INT(llm_session_decode(s, &token), LLM_STEP_FAILED);
        CHECK_INT(llm_session_decode(s, &token), LLM_TORN);
        CHECK_INT(llm_session_prefill(s, prompt, 25, NULL, NULL), LLM_TORN);
        CHECK_INT(llm_session_decode(other, &token), i % 2 == 0 ? LLM_OK : LLM_TORN);
        CHECK_INT(llm_session_reset(s), LLM_OK);
        CHECK_INT(llm_session_prefill(s, prompt, 25, NULL, NULL), LLM_OK);
        CHECK_INT(llm_session_decode(s, &token), LLM_OK);
        llm_engine_close(engine);
    }
}

static void without_cells_it_stays_valid(void)
{
    llm_engine *engine = open_direct("dense", ",cells=100");
    llm_session *a = open_session(engine, "a"), *b = open_session(engine, "b");
    int32_t prompt[80], other[80], token;
    make_prompt(prompt, 80, 1);
    make_prompt(other, 80, 2);
    CHECK_INT(llm_session_prefill(a, prompt, 80, NULL, NULL), LLM_OK);
    CHECK_INT(llm_session_prefill(b, other, 80, NULL, NULL), LLM_NO_CELLS);
    CHECK_INT(llm_session_position(b), 0);
    CHECK_INT(llm_session_prefill(b, other, 20, NULL, NULL), LLM_OK);
    CHECK_INT(llm_session_decode(a, &token), LLM_OK);
    CHECK_INT(llm_session_decode(a, &token), LLM_NO_CELLS);
    CHECK_INT(llm_session_position(a), 80);
    CHECK_INT(llm_session_close(b), LLM_OK);
    CHECK_INT(llm_session_decode(a, &token), LLM_OK);
    CHECK_INT(llm_session_position(a), 81);
    llm_engine_close(engine);
}

/* ---- cancel ---- */

static void *cancel_when_begun(void *context)
{
    llm_session *s = context;
    while (llm_session_position(s) == 0) {
        sched_yield();
    }
    llm_session_cancel(s);
    return NULL;
}

/* From another thread, seen at the next chunk; the rest of the prompt then goes on from there. */
static void a_cancel_ends_a_prefill(void)
{
    enum { LONG = 590 };
    for (int i = 0; i < 4; i++) {
        llm_engine_options options = {.n_sessions = 1, .n_scratch = 1, .n_ctx = N_CTX, .n_batch = 34};
        char name[64];
        snprintf(name, sizeof name, "sim:%s,token_us=300", classes[i]);
        options.model = name;
        llm_engine *engine = NULL;
        CHECK_INT(llm_engine_open(&options, &engine, NULL, 0), LLM_OK);
        llm_session *s = open_session(engine, "it");
        int32_t prompt[LONG];
        make_prompt(prompt, LONG, 1);
        llm_resume resume;
        llm_session_cancel(s); /* before: answered by the next call, and then gone */
        CHECK_INT(llm_session_prefill(s, prompt, LONG, NULL, &resume), LLM_CANCELLED);
        CHECK_INT(resume.n_prefilled, 0);
        bool cancelled = false;
        for (int k = 0; k < 20 && !cancelled; k++) { /* the other thread may come too late */
            pthread_t thread;
            CHECK_INT(llm_session_reset(s), LLM_OK);
            CHECK_INT(pthread_create(&thread, NULL, cancel_when_begun, s), 0);
            int status = llm_session_prefill(s, prompt, LONG, NULL, &resume);
            pthread_join(thread, NULL);
            cancelled = status == LLM_CANCELLED;
        }
        CHECK(cancelled && resume.n_prefilled > 0 && resume.n_prefilled < LONG);
        uint32_t n = (uint32_t)llm_session_position(s);
        CHECK_INT(n, resume.n_prefilled);
        CHECK_INT(llm_session_prefill(s, prompt, LONG, NULL, &resume), LLM_OK);
        CHECK_INT(resume.n_reused, n);
        llm_engine_close(engine);
    }
}

/* ---- while serving ---- */

static void it_is_misuse_while_serving(void)
{
    llm_engine *engine = open_direct("dense", "");
    llm_session *s = NULL;
    static float logits[VOCABULARY];
    int32_t prompt[10];
    make_prompt(prompt, 10, 1);
    CHECK_INT(llm_engine_start(engine), LLM_OK);
    CHECK_INT(llm_engine_start(engine), LLM_MISUSE);
    CHECK_INT(llm_session_open(engine, "it", &s), LLM_MISUSE);
    CHECK(s == NULL);
    CHECK_INT(llm_engine_stop(engine), LLM_OK);
    CHECK_INT(llm_session_open(engine, "it", &s), LLM_OK);
    CHECK_INT(llm_session_prefill(s, prompt, 10, NULL, NULL), LLM_OK);
    CHECK_INT(llm_session_logits(s, logits, VOCABULARY), LLM_OK);
    llm_engine_close(engine);
}

/* After the stop the sessions that were served are there, warm. */
static void a_served_session_goes_on_by_calls(void)
{
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "sim:%s", classes[i]);
        driver *d = driver_open(&(llm_engine_options){.model = name, .n_ctx = N_CTX});
        int32_t prompt[PROMPT + LENGTH + 10];
        make_prompt(prompt, PROMPT, 3);
        generate_call call = {.session = "it", .prompt = prompt, .n_prompt = PROMPT, .max_tokens = LENGTH};
        const answer *a = driver_wait(d, driver_generate(d, &call));
        uint32_t n = driver_tokens(d, a->place, prompt, PROMPT + LENGTH);
        CHECK_INT(n, a->finished.n_resident);
        CHECK_INT(llm_engine_stop(d->engine), LLM_OK);
        llm_session *s = open_session(d->engine, "it");
        CHECK_INT(llm_session_position(s), n);
        make_prompt(prompt + n, 10, 8);
        llm_resume resume;
        CHECK_INT(llm_session_prefill(s, prompt, n + 10, NULL, &resume), LLM_OK);
        CHECK_STR(llm_reason_word((int)resume.reason), "exact_prefix");
        CHECK_INT(resume.n_reused, n);
        CHECK_INT(driver_close(d), 0);
    }
}

/* A failed step takes the logits of every session it tore with it. */
static void torn_sessions_have_no_logits(void)
{
    static float logits[512];
    int32_t prompt[30];
    int32_t token;
    llm_engine *e;
    llm_session *failing;
    llm_session *bystander;
    make_prompt(prompt, 30, 1);
    const llm_engine_options options = {
        .model = "sim:dense,fail_at=3,fail_kind=all", .n_sessions = 2, .n_scratch = 1, .n_ctx = 100};
    CHECK_INT(llm_engine_open(&options, &e, NULL, 0), LLM_OK);
    CHECK_INT(llm_session_open(e, "failing", &failing), LLM_OK);
    CHECK_INT(llm_session_open(e, "bystander", &bystander), LLM_OK);
    CHECK_INT(llm_session_prefill(bystander, prompt, 30, NULL, NULL), LLM_OK);
    CHECK_INT(llm_session_prefill(failing, prompt, 1, NULL, NULL), LLM_OK);
    CHECK_INT(llm_session_logits(bystander, logits, 512), LLM_OK);
    CHECK_INT(llm_session_decode(failing, &token), LLM_OK);
    CHECK_INT(llm_session_decode(failing, &token), LLM_STEP_FAILED);
    CHECK_INT(llm_session_logits(failing, logits, 512), LLM_TORN);
    CHECK_INT(llm_session_logits(bystander, logits, 512), LLM_TORN);
    llm_engine_close(e);
}

int main(void)
{
    RUN(it_says_what_serving_says);
    RUN(warm_logits_equal_cold_ones);
    RUN(it_takes_the_checkpoints_that_serving_takes);
    RUN(calls_have_their_errors);
    RUN(held_sessions_are_not_evicted);
    RUN(a_reset_empties);
    RUN(a_failed_step_tears);
    RUN(without_cells_it_stays_valid);
    RUN(a_cancel_ends_a_prefill);
    RUN(it_is_misuse_while_serving);
    RUN(a_served_session_goes_on_by_calls);
    RUN(torn_sessions_have_no_logits);
    return CHECK_RESULT();
}
