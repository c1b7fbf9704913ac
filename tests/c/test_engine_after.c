/* Tests several answers to one prompt (`after`): generations wait for the first one's prefill and share its state. */
#include "check.h"
#include "engine_driver.h"

enum { N_PROMPT = 200, N_ANSWERS = 3 };

static const char *const classes[] = {"sim:dense,length=0", "sim:window,length=0", "sim:recurrent,length=0",
                                      "sim:hybrid,length=0"};

static driver *opened(const char *name, uint32_t n_scratch)
{
    return driver_open(&(llm_engine_options){.model = name, .n_scratch = n_scratch, .n_batch = 64});
}

static generate_call call_of(const int32_t *prompt, uint64_t seed)
{
    return (generate_call){.prompt = prompt,
                           .n_prompt = N_PROMPT,
                           .max_tokens = 24,
                           .flags = LLM_GENERATE_IGNORE_END,
                           .temperature = 1,
                           .seed = seed};
}

/* Sends all requests together. Returns the number of prompt tokens that were prefilled. */
static uint64_t ask_all(driver *d, const int32_t *prompt, bool share, uint64_t out[N_ANSWERS])
{
    const uint64_t before = driver_counter(d, LLM_COUNTER_PREFILL_TOKENS);
    for (uint64_t i = 0; i < N_ANSWERS; i++) {
        generate_call call = call_of(prompt, i);
        call.after = share && i > 0 ? out[0] : 0;
        call.flags |= share ? 0 : LLM_GENERATE_COLD;
        out[i] = driver_generate(d, &call);
    }
    driver_wait_all(d);
    driver_fence(d);
    return driver_counter(d, LLM_COUNTER_PREFILL_TOKENS) - before;
}

static void check_answers(const char *name, uint32_t n_scratch)
{
    driver *d = opened(name, n_scratch);
    driver *reference = opened(name, 1);
    int32_t prompt[N_PROMPT];
    uint64_t asked[N_ANSWERS];
    make_prompt(prompt, N_PROMPT, 1);
    const uint64_t n = ask_all(d, prompt, true, asked);
    if (n > N_PROMPT + N_ANSWERS - 1) {
        printf("%s, %u slots: %llu tokens were consumed for a prompt of %d\n", name, n_scratch, (unsigned long long)n,
               N_PROMPT);
    }
    /* without kept logits, each later request prefills the last token again */
    CHECK(n >= N_PROMPT && n <= N_PROMPT + N_ANSWERS - 1);
    for (uint64_t i = 0; i < N_ANSWERS; i++) {
        const answer *a = driver_answer(d, asked[i]);
        const generate_call call = call_of(prompt, i);
        CHECK_INT(a->finished.outcome, LLM_OUTCOME_LENGTH);
        CHECK(i == 0 || a->n_reused >= N_PROMPT - 1);
        CHECK(driver_equals_cold(reference, &call, a));
    }
    CHECK(strcmp(driver_answer(d, asked[0])->text, driver_answer(d, asked[1])->text) != 0);
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(driver_close(reference), 0);
}

static void a_prompt_is_consumed_once(void)
{
    for (size_t i = 0; i < 4; i++) {
        check_answers(classes[i], N_ANSWERS);
    }
}

/* There are fewer slots than answers, so later requests use the sequences that earlier requests leave. */
static void fewer_slots_than_answers_do(void)
{
    for (size_t i = 0; i < 4; i++) {
        check_answers(classes[i], 2);
    }
}

/* For comparison: requests that share nothing prefill the prompt each time. */
static void cold_requests_prefill_it_each_time(void)
{
    driver *d = opened("sim:dense,length=0,token_us=100", N_ANSWERS);
    int32_t prompt[N_PROMPT];
    uint64_t asked[N_ANSWERS];
    make_prompt(prompt, N_PROMPT, 1);
    CHECK(ask_all(d, prompt, false, asked) > N_PROMPT + N_ANSWERS - 1);
    CHECK_INT(driver_close(d), 0);
}

/* A first request that has not begun, because it waits for a paused generation in its session. */
typedef struct waiting {
    driver *d;
    int32_t prompt[N_PROMPT];
    uint64_t paused, first;
} waiting;

static void begin_waiting(waiting *w)
{
    /* at this speed, the generation takes seconds, so the pause comes before its end */
    w->d = opened("sim:dense,length=0,step_us=10000", 4);
    make_prompt(w->prompt, N_PROMPT, 2);
    generate_call call = call_of(w->prompt, 1);
    call.session = "a";
    call.max_tokens = 0;
    w->paused = driver_generate(w->d, &call);
    driver_wait_text(w->d, w->paused);
    driver_pause(w->d, w->paused, true);
    call.max_tokens = 5;
    w->first = driver_generate(w->d, &call);
}

static void it_waits_and_begins_when_the_first_one_ends(void)
{
    waiting w;
    begin_waiting(&w);
    generate_call call = call_of(w.prompt, 2);
    call.after = w.first;
    const uint64_t later = driver_generate(w.d, &call);
    driver_fence(w.d);
    CHECK(driver_answer(w.d, later)->is_admitted && !driver_answer(w.d, later)->is_started);
    driver_cancel(w.d, w.first);
    CHECK_INT(driver_wait(w.d, later)->finished.outcome, LLM_OUTCOME_LENGTH);
    driver_cancel(w.d, w.paused);
    CHECK_INT(driver_close(w.d), 0);
}

static void it_can_be_cancelled_while_it_waits(void)
{
    waiting w;
    begin_waiting(&w);
    generate_call call = call_of(w.prompt, 2);
    call.after = w.first;
    const uint64_t later = driver_generate(w.d, &call);
    driver_cancel(w.d, later);
    const answer *a = driver_wait(w.d, later);
    CHECK(a->finished.outcome == LLM_OUTCOME_CANCELLED && !a->is_started);
    driver_cancel(w.d, w.paused);
    CHECK_INT(driver_wait(w.d, w.first)->finished.outcome, LLM_OUTCOME_LENGTH);
    CHECK_INT(driver_close(w.d), 0);
}

/* The prompt of the first request is resident with its logits. So the first request ends its prefill without a step,
 * and no step wakes the other request. */
static void it_begins_where_the_first_one_needs_no_step(void)
{
    waiting w;
    begin_waiting(&w);
    driver_pause(w.d, w.first, true);
    generate_call call = call_of(w.prompt, 2);
    call.after = w.first;
    const uint64_t later = driver_generate(w.d, &call);
    driver_fence(w.d); /* the engine then sleeps, and the next command wakes it once */
    driver_cancel(w.d, w.paused);
    CHECK_INT(driver_wait(w.d, later)->finished.outcome, LLM_OUTCOME_LENGTH);
    CHECK(driver_answer(w.d, w.first)->n_reused == N_PROMPT && !driver_answer(w.d, w.first)->is_over);
    driver_cancel(w.d, w.first);
    CHECK_INT(driver_close(w.d), 0);
}

/* A request does not wait for a request that is unknown, has ended, or belongs to another owner. */
static void nobody_waits_for_strangers(void)
{
    waiting w;
    begin_waiting(&w);
    generate_call call = call_of(w.prompt, 2);
    call.owner = 1;
    call.after = w.first;
    CHECK_INT(driver_wait(w.d, driver_generate(w.d, &call))->finished.outcome, LLM_OUTCOME_LENGTH);
    call.owner = 0;
    call.after = UINT64_MAX;
    const uint64_t over = driver_generate(w.d, &call);
    CHECK_INT(driver_wait(w.d, over)->finished.outcome, LLM_OUTCOME_LENGTH);
    call.after = over;
    CHECK_INT(driver_wait(w.d, driver_generate(w.d, &call))->finished.outcome, LLM_OUTCOME_LENGTH);
    driver_cancel(w.d, w.paused);
    driver_cancel(w.d, w.first);
    CHECK_INT(driver_close(w.d), 0);
}

/* If each waited for the other, neither could begin. So a request does not wait for a request that comes later. */
static void nobody_waits_for_who_comes_later(void)
{
    waiting w;
    begin_waiting(&w);
    generate_call call = call_of(w.prompt, 2);
    call.session = "a";
    call.after = w.d->n_requests + 2;
    const uint64_t earlier = driver_generate(w.d, &call);
    call.after = 0;
    const uint64_t later = driver_generate(w.d, &call);
    CHECK_INT(later, earlier + 1);
    driver_cancel(w.d, w.paused);
    CHECK_INT(driver_wait(w.d, earlier)->finished.outcome, LLM_OUTCOME_LENGTH);
    CHECK_INT(driver_wait(w.d, later)->finished.outcome, LLM_OUTCOME_LENGTH);
    CHECK_INT(driver_close(w.d), 0);
}

int main(void)
{
    RUN(a_prompt_is_consumed_once);
    RUN(fewer_slots_than_answers_do);
    RUN(cold_requests_prefill_it_each_time);
    RUN(it_waits_and_begins_when_the_first_one_ends);
    RUN(it_can_be_cancelled_while_it_waits);
    RUN(it_begins_where_the_first_one_needs_no_step);
    RUN(nobody_waits_for_strangers);
    RUN(nobody_waits_for_who_comes_later);
    return CHECK_RESULT();
}
