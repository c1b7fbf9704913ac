/* Tests cancel, reset and close in every state, full entries and queues, and a stop with running and waiting
 * requests. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "engine_driver.h"

enum { LONG = 3000, N_TRIES = 20 };

static const char *const classes[] = {"dense", "window", "recurrent", "hybrid"};

typedef enum verb { VERB_CANCEL, VERB_RESET, VERB_CLOSE, N_VERBS } verb;

static driver *open_slow(const char *class)
{
    char name[96];
    snprintf(name, sizeof name, "sim:%s,length=0,step_us=100,token_us=50", class);
    return driver_open(&(llm_engine_options){.model = name, .n_ctx = 8192});
}

static int32_t *long_prompt(void)
{
    static int32_t tokens[LONG];
    make_prompt(tokens, LONG, 1);
    return tokens;
}

static generate_call call_of(const char *session, uint32_t n_prompt, uint32_t max_tokens)
{
    return (generate_call){.session = session, .prompt = long_prompt(), .n_prompt = n_prompt, .max_tokens = max_tokens};
}

/* Returns the number of a generation that is paused in this state, or 0. Whether it was still in the state when the
 * pause came is known only afterwards. So this may need several tries. */
static uint64_t stand_still_in(driver *d, llm_state state, const char *session)
{
    for (int i = 0; i < N_TRIES; i++) {
        generate_call call = call_of(session, state == LLM_STATE_PREFILL ? LONG : 20, 0);
        call.flags = LLM_GENERATE_COLD;
        uint64_t request = driver_generate(d, &call);
        if (state == LLM_STATE_DECODE) {
            driver_wait_text(d, request);
        } else {
            driver_wait_started(d, request);
        }
        driver_pause(d, request, true);
        driver_fence(d);
        const answer *a = driver_answer(d, request);
        if (!a->is_over && driver_state(d, a->entry) == (int)state) {
            return request;
        }
        driver_cancel(d, request);
        driver_wait(d, request);
    }
    return 0;
}

static void do_verb(driver *d, verb v, uint64_t request, const char *session)
{
    switch (v) {
    case VERB_CANCEL: driver_cancel(d, request); break;
    case VERB_RESET: CHECK_INT(driver_wait(d, driver_reset(d, 0, session))->status, LLM_OK); break;
    default: CHECK_INT(driver_wait(d, driver_close_session(d, 0, session))->status, LLM_OK);
    }
}

/* Checks the session after the verb. A cancelled generation leaves a valid session with the tokens that were
 * consumed. */
static void check_after(driver *d, verb v, const answer *a, const char *session, uint32_t n_before)
{
    static int32_t tokens[8192];
    driver_fence(d);
    uint32_t n = driver_tokens(d, a->entry, tokens, 8192);
    CHECK_INT(n, v == VERB_CANCEL ? n_before : 0);
    CHECK_INT(driver_state(d, a->entry), v == VERB_CLOSE ? -1 : v == VERB_RESET ? LLM_STATE_EMPTY : LLM_STATE_IDLE);
    generate_call next = call_of(session, LONG, 3);
    const answer *b = driver_wait(d, driver_generate(d, &next));
    CHECK_INT(b->finished.outcome, LLM_OUTCOME_LENGTH);
    if (v == VERB_CANCEL && n < LONG && memcmp(tokens, next.prompt, n * sizeof *tokens) == 0) {
        CHECK_STR(llm_word(LLM_REASONS, (int)b->reason), "exact_prefix");
        CHECK_INT(b->n_reused, n);
    }
    driver_wait(d, driver_close_session(d, 0, session));
}

static void end_a_running_one(llm_state state)
{
    for (int i = 0; i < 4 * N_VERBS; i++) {
        verb v = (verb)(i % N_VERBS);
        driver *d = open_slow(classes[i / N_VERBS]);
        uint64_t request = stand_still_in(d, state, "it");
        CHECK(request != 0);
        const answer *a = driver_answer(d, request);
        static int32_t tokens[8192];
        uint32_t n = driver_tokens(d, a->entry, tokens, 8192);
        do_verb(d, v, request, "it");
        CHECK_STILL_GOOD();
        driver_wait(d, request);
        CHECK_INT(a->finished.outcome, LLM_OUTCOME_CANCELLED);
        CHECK_STR(llm_word(LLM_STATUSES, (int)a->status), "cancelled");
        CHECK_INT(a->finished.n_resident, n);
        CHECK(state != LLM_STATE_PREFILL || (a->finished.n_prefilled == n && n < LONG && a->n_text == 0));
        check_after(d, v, a, "it", n);
        CHECK_STILL_GOOD();
        CHECK(driver_is_idle(d));
        CHECK_INT(driver_close(d), 0);
    }
}

static void from_prefill(void)
{
    end_a_running_one(LLM_STATE_PREFILL);
}

static void from_decode(void)
{
    end_a_running_one(LLM_STATE_DECODE);
}

/* Two requests wait for a paused one. A cancel ends one of them; a reset or a close ends all three. */
static void from_waiting(void)
{
    for (int v = 0; v < N_VERBS; v++) {
        driver *d = open_slow("hybrid");
        uint64_t first = stand_still_in(d, LLM_STATE_PREFILL, "it");
        CHECK(first != 0);
        generate_call call = call_of("it", LONG, 1); /* this continues the busy branch, so it waits */
        uint64_t second = driver_generate(d, &call), third = driver_generate(d, &call);
        driver_fence(d);
        CHECK(driver_answer(d, second)->is_admitted && !driver_answer(d, second)->is_started);
        CHECK_INT(driver_counter(d, LLM_COUNTER_REQUESTS_WAITING), 2);
        do_verb(d, (verb)v, second, "it");
        CHECK_STILL_GOOD();
        CHECK_INT(driver_wait(d, second)->finished.outcome, LLM_OUTCOME_CANCELLED);
        CHECK(!driver_answer(d, second)->is_started && driver_answer(d, second)->finished.n_prefilled == 0);
        if (v == VERB_CANCEL) {
            driver_cancel(d, first);
            CHECK_INT(driver_wait(d, third)->finished.outcome, LLM_OUTCOME_LENGTH);
        } else {
            CHECK_INT(driver_wait(d, third)->finished.outcome, LLM_OUTCOME_CANCELLED);
            CHECK_INT(driver_wait(d, first)->finished.outcome, LLM_OUTCOME_CANCELLED);
        }
        CHECK(driver_is_idle(d));
        CHECK_INT(driver_close(d), 0);
    }
}

static void from_idle_and_never(void)
{
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "sim:%s", classes[i]);
        driver *d = driver_open_model(name);
        CHECK_INT(driver_wait(d, driver_reset(d, 0, "it"))->status, LLM_NOT_FOUND);
        CHECK_INT(driver_wait(d, driver_close_session(d, 0, "it"))->status, LLM_NOT_FOUND);
        driver_cancel(d, 12345);
        driver_pause(d, 12345, true);
        generate_call call = call_of("it", 100, 5);
        uint64_t request = driver_generate(d, &call);
        uint32_t entry = driver_wait(d, request)->entry;
        driver_cancel(d, request); /* the request is already over */
        CHECK_INT(driver_wait(d, driver_reset(d, 0, "it"))->status, LLM_OK);
        CHECK_INT(driver_wait(d, driver_reset(d, 0, "it"))->status, LLM_OK);
        CHECK_INT(driver_state(d, entry), LLM_STATE_EMPTY);
        CHECK_INT(driver_wait(d, driver_generate(d, &call))->status, LLM_OK);
        CHECK_INT(driver_wait(d, driver_close_session(d, 0, "it"))->status, LLM_OK);
        CHECK_INT(driver_wait(d, driver_close_session(d, 0, "it"))->status, LLM_NOT_FOUND);
        CHECK_INT(driver_state(d, entry), -1);
        CHECK_INT(driver_close(d), 0);
    }
}

/* A failed step has torn the session. Cancel does nothing, reset empties it, and close removes it. The next request is
 * right. */
static void from_torn(void)
{
    for (int i = 0; i < 4 * N_VERBS; i++) {
        char name[64];
        snprintf(name, sizeof name, "sim:%s,fail_at=3", classes[i / N_VERBS]);
        driver *d = driver_open_model(name);
        generate_call call = call_of("it", 100, 20);
        uint64_t request = driver_generate(d, &call);
        const answer *a = driver_wait(d, request);
        CHECK_STR(llm_word(LLM_STATUSES, (int)a->status), "step_failed");
        CHECK_INT(driver_state(d, a->entry), LLM_STATE_TORN);
        do_verb(d, (verb)(i % N_VERBS), request, "it");
        CHECK_STILL_GOOD();
        const answer *b = driver_wait(d, driver_generate(d, &call));
        CHECK_INT(b->finished.status, LLM_OK);
        CHECK(driver_equals_cold(d, &call, b));
        CHECK_INT(driver_close(d), 0);
    }
}

/* Without a pause: the engine sees the cancel during or after one of several prefill calls. */
static void a_long_prefill_is_cancelled_on_its_way(void)
{
    for (int i = 0; i < 4; i++) {
        driver *d = open_slow(classes[i]);
        uint32_t n_early = 0;
        for (int k = 0; k < N_TRIES && n_early == 0; k++) {
            generate_call call = call_of("it", LONG, 1);
            call.flags = LLM_GENERATE_COLD;
            uint64_t request = driver_generate(d, &call);
            driver_wait_started(d, request);
            driver_cancel(d, request);
            const answer *a = driver_wait(d, request);
            if (a->finished.outcome == LLM_OUTCOME_CANCELLED) {
                n_early += a->finished.n_prefilled < LONG; /* 0 if the first call was aborted */
                CHECK_INT(a->finished.n_resident, a->finished.n_prefilled);
            }
        }
        CHECK(n_early > 0);
        CHECK_INT(driver_close(d), 0);
    }
}

/* A paused generation keeps its entry, and takes part in no step. Others continue. After the pause, it generates the
 * same text as without a pause. */
static void a_pause_changes_nothing_but_time(void)
{
    driver *d = open_slow("hybrid");
    uint64_t paused = stand_still_in(d, LLM_STATE_DECODE, "paused");
    CHECK(paused != 0);
    static int32_t tokens[8192];
    uint32_t n = driver_tokens(d, driver_answer(d, paused)->entry, tokens, 8192);
    generate_call call = call_of("other", 50, 50);
    CHECK_INT(driver_wait(d, driver_generate(d, &call))->finished.outcome, LLM_OUTCOME_LENGTH);
    CHECK_INT(driver_tokens(d, driver_answer(d, paused)->entry, tokens, 8192), n);
    driver_pause(d, paused, false);
    size_t n_text = driver_answer(d, paused)->n_text;
    while (driver_answer(d, paused)->n_text == n_text) {
        driver_fence(d);
    }
    driver_cancel(d, paused);
    driver_wait(d, paused);
    call = call_of("again", 20, driver_answer(d, paused)->n_tokens);
    const answer *b = driver_wait(d, driver_generate(d, &call));
    size_t n_common = driver_answer(d, paused)->n_text < b->n_text ? driver_answer(d, paused)->n_text : b->n_text;
    CHECK(n_common > 0 && memcmp(b->text, driver_answer(d, paused)->text, n_common) == 0);
    CHECK_INT(driver_close(d), 0);
}

/* ---- capacity ---- */

static void a_full_engine_refuses(void)
{
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense", .n_sessions = 2, .n_scratch = 1});
    generate_call a = call_of("a", 30, 3), b = call_of("b", 30, 3), c = call_of("c", 30, 3);
    driver_wait(d, driver_generate(d, &a));
    driver_wait(d, driver_generate(d, &b));
    const answer *refused = driver_wait(d, driver_generate(d, &c));
    CHECK_INT(refused->finished.outcome, LLM_OUTCOME_REFUSED);
    CHECK_STR(llm_word(LLM_STATUSES, (int)refused->status), "capacity_exhausted");
    /* the refused request has cost no session its tokens */
    CHECK(driver_wait(d, driver_generate(d, &a))->n_reused > 0);
    CHECK(driver_wait(d, driver_generate(d, &b))->n_reused > 0);
    c.session = NULL; /* scratch requests have entries of their own */
    CHECK_INT(driver_wait(d, driver_generate(d, &c))->status, LLM_OK);
    c.session = "c";
    driver_wait(d, driver_close_session(d, 0, "a"));
    CHECK_INT(driver_wait(d, driver_generate(d, &c))->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
}

static void a_full_engine_evicts_the_oldest_idle(void)
{
    driver *d = open_slow("dense");
    CHECK_INT(driver_close(d), 0);
    d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0,step_us=100,token_us=50",
                                          .n_sessions = 2,
                                          .n_ctx = 8192,
                                          .capacity_policy = LLM_POLICY_EVICT});
    generate_call idle = call_of("idle", 30, 3), third = call_of("third", 30, 3), fourth = call_of("fourth", 30, 3);
    driver_wait(d, driver_generate(d, &idle));
    uint64_t busy = stand_still_in(d, LLM_STATE_PREFILL, "busy");
    CHECK(busy != 0);
    CHECK_INT(driver_wait(d, driver_generate(d, &third))->status, LLM_OK); /* replaces "idle" */
    CHECK_INT(driver_wait(d, driver_reset(d, 0, "idle"))->status, LLM_NOT_FOUND);
    CHECK_INT(driver_counter(d, LLM_COUNTER_SESSIONS_EVICTED), 1);
    uint64_t also_busy = stand_still_in(d, LLM_STATE_PREFILL, "third");
    CHECK(also_busy != 0);
    CHECK_STR(llm_word(LLM_STATUSES, (int)driver_wait(d, driver_generate(d, &fourth))->status), "capacity_exhausted");
    driver_cancel(d, busy);
    driver_cancel(d, also_busy);
    driver_wait_all(d);
    CHECK_INT(driver_close(d), 0);
}

static void a_busy_session_has_a_bounded_queue(void)
{
    driver *d = open_slow("dense");
    uint64_t first = stand_still_in(d, LLM_STATE_PREFILL, "it");
    CHECK(first != 0);
    uint64_t waiting[LLM_SESSION_QUEUE_MAX];
    generate_call call = call_of("it", LONG, 1);
    for (int i = 0; i < LLM_SESSION_QUEUE_MAX; i++) {
        waiting[i] = driver_generate(d, &call);
    }
    const answer *refused = driver_wait(d, driver_generate(d, &call));
    CHECK_INT(refused->finished.outcome, LLM_OUTCOME_REFUSED);
    CHECK_STR(llm_word(LLM_STATUSES, (int)refused->status), "queue_full");
    driver_cancel(d, waiting[3]); /* makes room in the queue */
    uint64_t last = driver_generate(d, &call);
    driver_fence(d);
    CHECK(!driver_answer(d, last)->is_over);
    driver_cancel(d, first);
    driver_wait_all(d);
    for (int i = 0; i < LLM_SESSION_QUEUE_MAX; i++) {
        CHECK_INT(driver_answer(d, waiting[i])->finished.outcome, i == 3 ? LLM_OUTCOME_CANCELLED : LLM_OUTCOME_LENGTH);
    }
    CHECK_INT(driver_answer(d, last)->finished.outcome, LLM_OUTCOME_LENGTH);
    CHECK_INT(driver_close(d), 0);
}

static void scratch_has_a_bounded_queue(void)
{
    driver *d = open_slow("dense");
    uint64_t held[2], waiting[LLM_SCRATCH_QUEUE_MAX];
    held[0] = stand_still_in(d, LLM_STATE_PREFILL, NULL);
    held[1] = stand_still_in(d, LLM_STATE_PREFILL, NULL);
    CHECK(held[0] != 0 && held[1] != 0);
    generate_call call = call_of(NULL, 30, 2);
    for (int i = 0; i < LLM_SCRATCH_QUEUE_MAX; i++) {
        waiting[i] = driver_generate(d, &call);
    }
    CHECK_STR(llm_word(LLM_STATUSES, (int)driver_wait(d, driver_generate(d, &call))->status), "queue_full");
    CHECK(!driver_answer(d, waiting[0])->is_started);
    driver_cancel(d, waiting[5]);
    driver_cancel(d, held[0]);
    driver_cancel(d, held[1]);
    driver_wait_all(d);
    for (int i = 0; i < LLM_SCRATCH_QUEUE_MAX; i++) {
        CHECK_INT(driver_answer(d, waiting[i])->finished.outcome, i == 5 ? LLM_OUTCOME_CANCELLED : LLM_OUTCOME_LENGTH);
    }
    CHECK(driver_is_idle(d));
    CHECK_INT(driver_close(d), 0);
}

static void prompts_that_cannot_be_are_refused(void)
{
    driver *d = driver_open(&(llm_engine_options){.model = "sim:hybrid", .n_ctx = 100});
    generate_call call = call_of("it", 100, 5);
    CHECK_STR(llm_word(LLM_STATUSES, (int)driver_wait(d, driver_generate(d, &call))->status),
              "context_length_exceeded");
    call.n_prompt = 99;
    const answer *a = driver_wait(d, driver_generate(d, &call));
    CHECK(a->finished.outcome == LLM_OUTCOME_LENGTH || a->finished.outcome == LLM_OUTCOME_END);
    CHECK_INT(a->finished.n_generated, 1); /* the context has room for only one more token */
    int32_t bad[] = {260, 512}, negative[] = {-1};
    call = (generate_call){.session = "it", .prompt = bad, .n_prompt = 2, .max_tokens = 1};
    CHECK_STR(llm_word(LLM_STATUSES, (int)driver_wait(d, driver_generate(d, &call))->status), "invalid_token");
    call = (generate_call){.session = "other", .prompt = negative, .n_prompt = 1, .max_tokens = 1};
    CHECK_STR(llm_word(LLM_STATUSES, (int)driver_wait(d, driver_generate(d, &call))->status), "invalid_token");
    /* a refused request opens no session */
    CHECK_INT(driver_wait(d, driver_reset(d, 0, "other"))->status, LLM_NOT_FOUND);
    CHECK_INT(driver_close(d), 0);
}

/* There is one slot, in which "a" runs. "b" asks for it first. "a" then has another request, which needs no step
 * because logits are kept. So no step comes after which "b" would be looked at. */
static void a_slot_freed_without_a_step_is_given_on(void)
{
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0,step_us=1000",
                                                  .n_sessions = 1,
                                                  .n_ctx = 4096,
                                                  .capacity_policy = LLM_POLICY_PARK});
    generate_call a = call_of("a", LONG, 1), b = call_of("b", 30, 1);
    for (int i = 0; i < 3; i++) {
        a.flags = LLM_GENERATE_COLD;
        const uint64_t first = driver_generate(d, &a);
        driver_pause(d, first, true);
        driver_fence(d);
        const uint64_t other = driver_generate(d, &b);
        a.flags = 0;
        const uint64_t again = driver_generate(d, &a);
        driver_pause(d, first, false);
        driver_wait_all(d);
        CHECK_INT(driver_answer(d, other)->finished.outcome, LLM_OUTCOME_LENGTH);
        CHECK_STR(llm_word(LLM_REASONS, (int)driver_answer(d, again)->reason), "equal");
    }
    CHECK_INT(driver_close(d), 0);
}

int main(void)
{
    RUN(from_prefill);
    RUN(from_decode);
    RUN(from_waiting);
    RUN(from_idle_and_never);
    RUN(from_torn);
    RUN(a_long_prefill_is_cancelled_on_its_way);
    RUN(a_pause_changes_nothing_but_time);
    RUN(a_full_engine_refuses);
    RUN(a_full_engine_evicts_the_oldest_idle);
    RUN(a_busy_session_has_a_bounded_queue);
    RUN(scratch_has_a_bounded_queue);
    RUN(prompts_that_cannot_be_are_refused);
    RUN(a_slot_freed_without_a_step_is_given_on);
    return CHECK_RESULT();
}
