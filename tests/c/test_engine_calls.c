/* Tests the work between two model calls. Decoded tokens are delivered before the next call, and a first token before a
 * copy. No thread is woken without need. A call is stopped if all its requests are cancelled. */
#include <poll.h>
#include <sched.h>

#include "check.h"
#include "engine/engine.h"
#include "engine_driver.h"

enum { N_PROMPT = 600, N_BATCH = 64 };

static const model_ops *real_ops;
static model_ops hooked_ops;
static driver *hooked;

/* The decode thread writes these counters of model calls. The test reads them. */
static _Atomic uint32_t n_calls;     /* calls that have begun */
static _Atomic uint32_t n_calls_max; /* the call after this one waits */
static _Atomic uint32_t n_between;   /* prefill calls directly after a call that decoded */
static _Atomic uint32_t n_saved;     /* states that were copied */
static _Atomic uint32_t n_held_back; /* prefill calls while text waited to be sent */
/* states that were copied before a token was picked, or while text waited to be sent */
static _Atomic uint32_t n_waited;
static bool has_decoded;

static bool holds_text(void)
{
    const decode *d = &hooked->engine->decode;
    bool holds = false;
    for (uint32_t i = 0; i < d->n_requests; i++) {
        holds = holds || d->requests[i]->out.n_text > 0;
    }
    return holds;
}

static model_result hooked_decode(model *m, const model_batch *batch)
{
    n_calls++;
    while (n_calls > n_calls_max) {
        sched_yield();
    }
    const bool prefills = batch->outputs[0] == 0;
    if (prefills && has_decoded) {
        n_between++;
        n_held_back += holds_text();
    }
    has_decoded = !prefills;
    return real_ops->decode(m, batch);
}

/* Returns whether the whole prompt is consumed, and the next token is not picked yet. */
static bool waits_for_a_token(const request *r)
{
    const uint32_t n_prompt = r->claim.prompt.n_tokens;
    return r->phase == REQUEST_RUNNING && branch_n_tokens(r->branch) == n_prompt + r->n_generated;
}

static bool anybody_waits_for_a_token(void)
{
    const decode *d = &hooked->engine->decode;
    bool waits = false;
    for (uint32_t i = 0; i < d->n_requests; i++) {
        waits = waits || waits_for_a_token(d->requests[i]);
    }
    return waits;
}

static size_t hooked_save(model *m, uint16_t seq, model_state_kind kind, void *out, size_t n_bytes)
{
    n_saved++;
    n_waited += holds_text() || anybody_waits_for_a_token();
    return real_ops->state_save(m, seq, kind, out, n_bytes);
}

static void hook(driver *d)
{
    hooked = d;
    real_ops = d->engine->model->ops;
    hooked_ops = *real_ops;
    hooked_ops.decode = hooked_decode;
    hooked_ops.state_save = hooked_save;
    d->engine->model->ops = &hooked_ops;
}

static driver *opened(const char *name, uint32_t n_calls_at_once)
{
    n_calls = n_between = n_saved = n_held_back = n_waited = 0;
    n_calls_max = n_calls_at_once;
    return driver_open_then(&(llm_engine_options){.model = name, .n_batch = N_BATCH, .gap_ms_target = 1}, hook);
}

static generate_call call_of(const char *name, const int32_t *prompt, uint32_t n_prompt, uint32_t max_tokens)
{
    return (generate_call){.session = name,
                           .prompt = prompt,
                           .n_prompt = n_prompt,
                           .max_tokens = max_tokens,
                           .flags = LLM_GENERATE_IGNORE_END};
}

static uint64_t push(driver *d, const char *name, const int32_t *prompt, uint32_t n_prompt, uint32_t max_tokens)
{
    const generate_call call = call_of(name, prompt, n_prompt, max_tokens);
    return driver_generate(d, &call);
}

static void wait_for_call(uint32_t n)
{
    while (n_calls < n) {
        sched_yield();
    }
}

static void test_what_was_decoded_leaves_before_a_prompt_is_read_on(void)
{
    driver *d = opened("sim:hybrid,length=0", 5);
    int32_t prompt[N_PROMPT];
    make_prompt(prompt, N_PROMPT, 1);
    const uint64_t talks = push(d, "a", prompt, 40, 200);
    wait_for_call(6); /* request `talks` generates text */
    const uint64_t reads = push(d, "b", prompt, N_PROMPT, 1);
    n_calls_max = UINT32_MAX;
    driver_wait_all(d);
    CHECK_INT(driver_answer(d, talks)->finished.outcome, LLM_OUTCOME_LENGTH);
    CHECK_INT(driver_answer(d, reads)->finished.outcome, LLM_OUTCOME_LENGTH);
    CHECK(n_between > 1);
    CHECK_INT(n_held_back, 0);
    CHECK_INT(driver_close(d), 0);
}

/* There is no other request. The first token does not wait for the checkpoint that the prefill has made. */
static void test_the_first_token_leaves_before_a_checkpoint_is_taken(void)
{
    /* a model that decodes and prefills in separate calls, and one that does both in one call */
    static const char *const kinds[] = {"sim:hybrid,length=0", "sim:window,length=0"};
    for (size_t i = 0; i < 2; i++) {
        driver *d = opened(kinds[i], UINT32_MAX);
        int32_t prompt[N_PROMPT];
        make_prompt(prompt, N_PROMPT, 1);
        for (uint32_t n = 1; n <= 3; n++) {
            const answer *a = driver_wait(d, push(d, "a", prompt, n * 200, 1));
            CHECK_INT(a->finished.outcome, LLM_OUTCOME_LENGTH);
            driver_fence(d);
            CHECK_INT(n_saved, n);
        }
        CHECK_INT(n_waited, 0);
        CHECK_INT(driver_close(d), 0);
    }
}

static bool is_woken(const driver *d)
{
    struct pollfd looked = {.fd = llm_events_fd(d->engine), .events = POLLIN};
    return poll(&looked, 1, 0) == 1;
}

static void test_nobody_is_woken_for_a_part_of_a_prompt(void)
{
    driver *d = opened("sim:dense,length=0", 2);
    int32_t prompt[N_PROMPT];
    make_prompt(prompt, N_PROMPT, 1);
    const uint64_t asked = push(d, "a", prompt, N_PROMPT, 1);
    wait_for_call(3); /* all events of the beginning are in the ring */
    while (driver_drain(d)) {
    }
    CHECK(driver_answer(d, asked)->is_started);
    CHECK(!is_woken(d));
    n_calls_max = 6;
    wait_for_call(7); /* the prefill has continued */
    CHECK(!is_woken(d));
    n_calls_max = UINT32_MAX;
    driver_wait_all(d);
    CHECK_INT(driver_answer(d, asked)->finished.n_prefilled, N_PROMPT);
    CHECK_INT(driver_close(d), 0);
}

/* A call takes a minute if it is not aborted. An aborted call leaves nothing. */
static void test_a_cancelled_prompt_is_read_no_further(void)
{
    static const char *const classes[] = {"sim:dense,step_us=60000000", "sim:window,step_us=60000000"};
    for (size_t i = 0; i < 2; i++) {
        driver *d = opened(classes[i], UINT32_MAX);
        int32_t prompt[N_PROMPT];
        make_prompt(prompt, N_PROMPT, 1);
        const uint64_t asked = push(d, "a", prompt, N_PROMPT, 1);
        wait_for_call(1);
        driver_cancel(d, asked);
        const answer *a = driver_wait(d, asked);
        CHECK_INT(a->finished.outcome, LLM_OUTCOME_CANCELLED);
        CHECK_INT(a->finished.n_prefilled, 0);
        CHECK_INT(a->finished.n_resident, 0);
        CHECK_INT(driver_close(d), 0);
    }
}

/* Makes the engine believe that a token takes a thousand seconds, so that the end of a call is never near. */
static void hook_dear(driver *d)
{
    hook(d);
    linear_fit_learn(&d->engine->decode.step.pace.prefill_at, 0, 1e9);
}

static void test_who_is_in_a_call_with_a_cancelled_prompt_does_not_wait_for_its_end(void)
{
    n_calls = n_between = n_saved = n_held_back = n_waited = 0;
    n_calls_max = UINT32_MAX;
    driver *d = driver_open_then(
        &(llm_engine_options){.model = "sim:dense,step_us=60000000", .n_batch = N_BATCH, .gap_ms_target = 1},
        hook_dear);
    int32_t many[N_PROMPT], few[2];
    make_prompt(many, N_PROMPT, 1);
    make_prompt(few, 2, 2);
    const uint64_t leaves = push(d, "a", many, N_PROMPT, 1);
    wait_for_call(1);
    const uint64_t stays = push(d, "b", few, 2, 1);
    wait_for_call(2); /* this call has both; the first call was aborted for the second request */
    driver_cancel(d, leaves);
    CHECK_INT(driver_wait(d, leaves)->finished.n_prefilled, 0);
    wait_for_call(3); /* this call has only the remaining request */
    CHECK(!driver_answer(d, stays)->is_over);
    driver_cancel(d, stays);
    CHECK_INT(driver_wait(d, stays)->finished.n_prefilled, 0);
    CHECK_INT(driver_close(d), 0);
}

/* The cancelled requests are not in the call. So the call is not aborted, however many they are. */
static void test_who_leaves_elsewhere_does_not_end_a_call(void)
{
    enum { N_LEAVING = 3 };
    n_calls = n_between = n_saved = n_held_back = n_waited = 0;
    n_calls_max = 0;
    driver *d = driver_open_then(
        &(llm_engine_options){
            .model = "sim:hybrid,step_us=100000", .n_batch = N_BATCH, .n_scratch = 1, .gap_ms_target = 1},
        hook_dear);
    int32_t prompt[N_BATCH];
    make_prompt(prompt, N_BATCH, 1);
    const uint64_t stays = push(d, NULL, prompt, N_BATCH, 1);
    wait_for_call(1);
    uint64_t leaving[N_LEAVING];
    for (size_t i = 0; i < N_LEAVING; i++) {
        leaving[i] = push(d, NULL, prompt, N_BATCH, 1);
    }
    n_calls_max = 1;
    wait_for_call(2); /* the first call was aborted for the requests that came */
    for (size_t i = 0; i < N_LEAVING; i++) {
        driver_cancel(d, leaving[i]);
    }
    n_calls_max = UINT32_MAX;
    driver_wait_all(d);
    CHECK_INT(driver_answer(d, stays)->finished.n_prefilled, N_BATCH);
    CHECK_INT(n_calls, 2);
    CHECK_INT(driver_close(d), 0);
}

int main(void)
{
    RUN(test_what_was_decoded_leaves_before_a_prompt_is_read_on);
    RUN(test_the_first_token_leaves_before_a_checkpoint_is_taken);
    RUN(test_nobody_is_woken_for_a_part_of_a_prompt);
    RUN(test_a_cancelled_prompt_is_read_no_further);
    RUN(test_who_is_in_a_call_with_a_cancelled_prompt_does_not_wait_for_its_end);
    RUN(test_who_leaves_elsewhere_does_not_end_a_call);
    return CHECK_RESULT();
}
