/* Tests requests that arrive together and have the same head. One request prefills the head, and the others wait and
 * share its state. The test holds back model calls, so that all requests arrive while the first one is prefilling the
 * head. */
#include <sched.h>

#include "check.h"
#include "engine/engine.h"
#include "engine_driver.h"

enum { N_HEAD = 400, N_OWN = 40, N_PROMPT = N_HEAD + N_OWN, N = 6, N_BATCH = 64, CALLS_BEFORE = 2 };

static const char *const classes[] = {"sim:dense,length=0", "sim:window,length=0", "sim:recurrent,length=0",
                                      "sim:hybrid,length=0"};
static const char *const names[N] = {"a", "b", "c", "d", "e", "f"};

/* ---- the gate ---- */

static const model_ops *real_ops;
static model_ops gated_ops;
static _Atomic uint32_t n_calls, n_calls_max; /* calls that have begun, and calls that may continue */

static model_result gated_decode(model *m, const model_batch *batch)
{
    n_calls++;
    while (n_calls > n_calls_max) {
        sched_yield();
    }
    return real_ops->decode(m, batch);
}

static void hook(driver *d)
{
    real_ops = d->engine->model->ops;
    gated_ops = *real_ops;
    gated_ops.decode = gated_decode;
    d->engine->model->ops = &gated_ops;
}

static void wait_for_call(uint32_t call)
{
    while (n_calls < call) {
        sched_yield();
    }
}

static driver *open_gated(const char *name, uint32_t n_sessions)
{
    n_calls = 0;
    n_calls_max = 0;
    return driver_open_then(&(llm_engine_options){.model = name,
                                                  .n_sessions = n_sessions,
                                                  .n_scratch = N,
                                                  .n_batch = N_BATCH,
                                                  .capacity_policy = LLM_POLICY_PARK},
                            hook);
}

/* ---- the requests ---- */

typedef struct together {
    driver *d, *reference;
    int32_t prompts[N][N_PROMPT]; /* the prompts differ from the first token after the head on */
    generate_call calls[N];
    uint64_t asked[N];
} together;

static void prepare_on(together *t, const char *name, const char *reference, uint32_t n_sessions)
{
    t->d = open_gated(name, n_sessions);
    t->reference = driver_open_model(reference);
    for (uint32_t i = 0; i < N; i++) {
        make_prompt(t->prompts[i], N_HEAD, 1);
        make_prompt(t->prompts[i] + N_HEAD, N_OWN, 10 + i);
        t->prompts[i][N_HEAD] = t->prompts[0][N_HEAD] + (int32_t)i;
        t->calls[i] = (generate_call){.session = names[i],
                                      .prompt = t->prompts[i],
                                      .n_prompt = N_PROMPT,
                                      .n_head = N_HEAD,
                                      .max_tokens = 12,
                                      .flags = LLM_GENERATE_IGNORE_END};
    }
}

static void prepare(together *t, const char *name, uint32_t n_sessions)
{
    prepare_on(t, name, name, n_sessions);
}

/* Pushes the first request, and pushes the others while its first call runs. When this returns, the next call has begun
 * and waits at the gate. The head is not yet consumed, and the engine has seen all requests. */
static void push_all(together *t, uint32_t n)
{
    t->asked[0] = driver_generate(t->d, &t->calls[0]);
    wait_for_call(1);
    for (uint32_t i = 1; i < n; i++) {
        t->asked[i] = driver_generate(t->d, &t->calls[i]);
    }
    n_calls_max = CALLS_BEFORE;
    wait_for_call(CALLS_BEFORE + 1);
    driver_drain(t->d);
}

static void open_gate(void)
{
    n_calls_max = UINT32_MAX;
}

static const answer *answer_of(const together *t, uint32_t i)
{
    return driver_answer(t->d, t->asked[i]);
}

static bool waits(const together *t, uint32_t i)
{
    return answer_of(t, i)->is_admitted && !answer_of(t, i)->is_started && !answer_of(t, i)->is_over;
}

static void check_answer(together *t, uint32_t i)
{
    const answer *a = driver_wait(t->d, t->asked[i]);
    CHECK_INT(a->finished.outcome, LLM_OUTCOME_LENGTH);
    CHECK(driver_equals_cold(t->reference, &t->calls[i], a));
}

static void check_answers(together *t, uint32_t from, uint32_t n)
{
    for (uint32_t i = from; i < n; i++) {
        check_answer(t, i);
    }
}

static uint64_t n_prefilled(const together *t)
{
    driver_fence(t->d);
    return driver_counter(t->d, LLM_COUNTER_PREFILL_TOKENS);
}

static void finish(together *t)
{
    CHECK(driver_is_idle(t->d));
    CHECK_INT(driver_counter(t->d, LLM_COUNTER_REQUESTS_EARLY), 0);
    CHECK_INT(driver_close(t->d), 0);
    CHECK_INT(driver_close(t->reference), 0);
}

/* ---- the head is prefilled once ---- */

static void check_once(const char *class, uint32_t n_sessions, bool is_named)
{
    together t;
    prepare(&t, class, n_sessions);
    for (uint32_t i = 0; i < N && !is_named; i++) {
        t.calls[i].session = NULL;
    }
    push_all(&t, N);
    CHECK_INT(driver_counter(t.d, LLM_COUNTER_REQUESTS_EARLY), N - 1);
    for (uint32_t i = 1; i < N; i++) {
        CHECK(waits(&t, i));
    }
    open_gate();
    check_answers(&t, 0, N);
    CHECK_INT(n_prefilled(&t), N_HEAD + N * N_OWN);
    CHECK_STR(llm_word(LLM_REASONS, (int)answer_of(&t, 0)->reason), "new");
    for (uint32_t i = 1; i < N; i++) {
        CHECK_STR(llm_word(LLM_REASONS, (int)answer_of(&t, i)->reason), "shared");
        CHECK_INT(answer_of(&t, i)->n_reused, N_HEAD);
        CHECK_INT(answer_of(&t, i)->finished.n_prefilled, N_OWN);
    }
    finish(&t);
}

static void a_head_is_prefilled_once(void)
{
    for (size_t i = 0; i < 4; i++) {
        check_once(classes[i], N, true);
        check_once(classes[i], N, false);
    }
}

static void with_fewer_slots_than_requests_too(void)
{
    for (size_t i = 0; i < 4; i++) {
        check_once(classes[i], 2, true);
    }
}

static void equal_prompts_are_prefilled_once(void)
{
    for (size_t i = 0; i < 4; i++) {
        together t;
        prepare(&t, classes[i], N);
        for (uint32_t k = 0; k < N; k++) {
            t.calls[k].prompt = t.prompts[0];
            t.calls[k].n_head = 0;
        }
        push_all(&t, N);
        open_gate();
        check_answers(&t, 0, N);
        const uint64_t n = n_prefilled(&t);
        /* without kept logits, each request prefills the last token again */
        CHECK(n >= N_PROMPT && n <= N_PROMPT + N - 1);
        finish(&t);
    }
}

/* Two of the requests share more than the head with each other. The second of them waits a second time, for the first
 * of them. */
static void a_longer_prefix_is_prefilled_once_too(void)
{
    together t;
    prepare(&t, classes[0], N);
    for (uint32_t i = 2; i < 4; i++) {
        make_prompt(t.prompts[i] + 200, N_PROMPT - 200, 99);
        t.prompts[i][N_PROMPT - 1] += (int32_t)i;
    }
    t.prompts[2][200] = t.prompts[3][200] = t.prompts[0][200] + 1;
    push_all(&t, 4);
    open_gate();
    check_answers(&t, 0, 4);
    CHECK_INT(n_prefilled(&t), N_PROMPT + N_OWN + (N_PROMPT - 200) + 1);
    CHECK_INT(answer_of(&t, 3)->n_reused, N_PROMPT - 1);
    finish(&t);
}

/* ---- the leader stops ---- */

static void when_it_is_cancelled_one_takes_over(void)
{
    for (size_t i = 0; i < 4; i++) {
        together t;
        prepare(&t, classes[i], N);
        push_all(&t, N);
        driver_cancel(t.d, t.asked[0]);
        open_gate();
        check_answers(&t, 1, N);
        CHECK_INT(answer_of(&t, 0)->finished.outcome, LLM_OUTCOME_CANCELLED);
        const uint32_t n_gone = answer_of(&t, 0)->finished.n_prefilled;
        CHECK_INT(n_gone, (CALLS_BEFORE + 1) * N_BATCH);
        CHECK_INT(answer_of(&t, 1)->n_reused, n_gone);
        CHECK_INT(n_prefilled(&t), N_HEAD + (N - 1) * N_OWN);
        finish(&t);
    }
}

static void when_its_session_is_closed_one_begins_anew(void)
{
    for (size_t i = 0; i < 4; i++) {
        together t;
        prepare(&t, classes[i], N);
        push_all(&t, N);
        const uint64_t closing = driver_close_session(t.d, 0, names[0]);
        open_gate();
        CHECK_INT(driver_wait(t.d, closing)->status, LLM_OK);
        check_answers(&t, 1, N);
        const uint32_t n_gone = answer_of(&t, 0)->finished.n_prefilled;
        CHECK_INT(answer_of(&t, 1)->n_reused, 0);
        CHECK_INT(n_prefilled(&t), n_gone + N_HEAD + (N - 1) * N_OWN);
        finish(&t);
    }
}

static void nobody_waits_for_a_paused_one(void)
{
    for (size_t i = 0; i < 4; i++) {
        together t;
        prepare(&t, classes[i], N);
        push_all(&t, N);
        driver_pause(t.d, t.asked[0], true);
        open_gate();
        check_answers(&t, 1, N);
        CHECK(!answer_of(&t, 0)->is_over);
        driver_pause(t.d, t.asked[0], false);
        check_answer(&t, 0);
        finish(&t);
    }
}

static void a_failed_step_ends_only_the_leader(void)
{
    together t;
    prepare_on(&t, "sim:dense,length=0,fail_at=3", classes[0], N);
    push_all(&t, N);
    open_gate();
    check_answers(&t, 1, N);
    CHECK_INT(answer_of(&t, 0)->finished.outcome, LLM_OUTCOME_FAILED);
    finish(&t);
}

/* The prompts of the leader and the others do not fit into the KV cache together. */
static void a_full_kv_cache_holds_nobody_up(void)
{
    for (size_t i = 0; i < 4; i += 3) {
        static char name[64];
        snprintf(name, sizeof name, "%s,cells=600", classes[i]);
        together t;
        prepare_on(&t, name, classes[i], N);
        push_all(&t, N);
        open_gate();
        check_answers(&t, 0, N);
        finish(&t);
    }
}

/* ---- the others ---- */

static void one_that_waits_can_be_cancelled(void)
{
    together t;
    prepare(&t, classes[0], N);
    push_all(&t, 3);
    driver_cancel(t.d, t.asked[1]);
    open_gate();
    const answer *a = driver_wait(t.d, t.asked[1]);
    CHECK(a->finished.outcome == LLM_OUTCOME_CANCELLED && !a->is_started && a->finished.n_prefilled == 0);
    check_answer(&t, 0);
    check_answer(&t, 2);
    finish(&t);
}

static void a_stop_ends_those_that_wait(void)
{
    together t;
    prepare(&t, classes[3], N);
    push_all(&t, N);
    /* the engine sees this after the call that waits at the gate */
    atomic_store(&t.d->engine->decode.stop_requested, true);
    open_gate();
    for (uint32_t i = 0; i < N; i++) {
        const answer *a = driver_wait(t.d, t.asked[i]);
        CHECK_INT(a->finished.outcome, LLM_OUTCOME_SHUTDOWN);
        CHECK_INT(a->is_started, i == 0);
    }
    CHECK_INT(driver_close(t.d), 0);
    CHECK_INT(driver_close(t.reference), 0);
}

/* A request with `after` waits for a request that waits for a leader. */
static void who_waits_for_a_waiting_one_begins_after_it(void)
{
    together t;
    prepare(&t, classes[0], N);
    t.asked[0] = driver_generate(t.d, &t.calls[0]);
    wait_for_call(1);
    t.asked[1] = driver_generate(t.d, &t.calls[1]);
    t.calls[2] = t.calls[1];
    t.calls[2].session = names[2];
    t.calls[2].after = t.asked[1];
    t.asked[2] = driver_generate(t.d, &t.calls[2]);
    n_calls_max = CALLS_BEFORE;
    wait_for_call(CALLS_BEFORE + 1);
    driver_drain(t.d);
    CHECK(waits(&t, 1) && waits(&t, 2));
    open_gate();
    check_answers(&t, 0, 3);
    CHECK_INT(n_prefilled(&t), N_HEAD + 2 * N_OWN + 1);
    finish(&t);
}

/* ---- who does not wait ---- */

static void check_begins_at_once(together *t, uint32_t n_reused)
{
    push_all(t, 2);
    CHECK(answer_of(t, 1)->is_started);
    CHECK_INT(answer_of(t, 1)->n_reused, n_reused);
    CHECK_INT(driver_counter(t->d, LLM_COUNTER_REQUESTS_EARLY), 0);
    open_gate();
    check_answers(t, 0, 2);
    finish(t);
}

static void owners_do_not_wait_for_each_other(void)
{
    for (size_t i = 0; i < 4; i++) {
        together t;
        prepare(&t, classes[i], N);
        t.calls[1].owner = 1;
        check_begins_at_once(&t, 0);
    }
}

static void nothing_is_shared_with_a_cold_request(void)
{
    together t;
    prepare(&t, classes[0], N);
    t.calls[1].flags |= LLM_GENERATE_COLD;
    check_begins_at_once(&t, 0);
}

static void a_short_prefix_is_not_waited_for(void)
{
    together t;
    prepare(&t, classes[0], N);
    t.prompts[1][N_BATCH + 31] =
        t.prompts[0][N_BATCH + 31] + 1; /* the leader's first call consumes all but 31 tokens */
    check_begins_at_once(&t, N_BATCH);
}

/* The leader has one checkpoint point in the other prompt's range, but it is after the last shared token. */
static void memory_without_a_checkpoint_there_is_not_waited_for(void)
{
    for (size_t i = 2; i < 4; i++) {
        together t;
        prepare(&t, classes[i], N);
        t.prompts[1][N_HEAD - 1]++;
        check_begins_at_once(&t, N_BATCH);
    }
}

int main(void)
{
    RUN(a_head_is_prefilled_once);
    RUN(with_fewer_slots_than_requests_too);
    RUN(equal_prompts_are_prefilled_once);
    RUN(a_longer_prefix_is_prefilled_once_too);
    RUN(when_it_is_cancelled_one_takes_over);
    RUN(when_its_session_is_closed_one_begins_anew);
    RUN(nobody_waits_for_a_paused_one);
    RUN(a_failed_step_ends_only_the_leader);
    RUN(a_full_kv_cache_holds_nobody_up);
    RUN(one_that_waits_can_be_cancelled);
    RUN(a_stop_ends_those_that_wait);
    RUN(who_waits_for_a_waiting_one_begins_after_it);
    RUN(owners_do_not_wait_for_each_other);
    RUN(nothing_is_shared_with_a_cold_request);
    RUN(a_short_prefix_is_not_waited_for);
    RUN(memory_without_a_checkpoint_there_is_not_waited_for);
    return CHECK_RESULT();
}
