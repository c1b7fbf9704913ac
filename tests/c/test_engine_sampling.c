/* Tests generations whose tokens are picked by sampling threads. Their texts must not depend on other generations.
 * Everything that can happen to a generation can also happen while a thread picks its token. */
#include <poll.h>
#include <stdlib.h>

#include "check.h"
#include "engine_driver.h"

enum { N_PROMPT = 60, N_FREE = 4 };

#define DIGITS "{\"grammar\":\"root ::= ([0-9]+ \\\" \\\")* \\\"!\\\"\"}"
#define FAULTY "{\"grammar\":\"root ::= nothing\"}"
#define DEAD_END "{\"grammar\":\"root ::= \\\"12\\\" <[258]> \\\"3\\\"\"}"
/* This grammar can divide a number in thousands of ways. So a thread picks its tokens. */
#define SLOW "{\"grammar\":\"root ::= a{1,30}\\na ::= b{1,30}\\nb ::= [0-9]{1,30}\"}"

static const char *const classes[] = {"sim:dense,length=0", "sim:window,length=0", "sim:recurrent,length=0",
                                      "sim:hybrid,length=0"};

static generate_call call_of(const int32_t *prompt, const char *session, const char *constraint, uint64_t seed)
{
    return (generate_call){.session = session,
                           .prompt = prompt,
                           .n_prompt = N_PROMPT,
                           .max_tokens = 40,
                           .temperature = 1,
                           .seed = seed,
                           .constraint = constraint};
}

static bool is_of(const char *text, const char *characters)
{
    return text[strspn(text, characters)] == '\0';
}

static void beside_others(const char *name)
{
    driver *d = driver_open(&(llm_engine_options){.model = name, .n_scratch = N_FREE + 2});
    driver *alone = driver_open_model(name);
    int32_t prompts[N_FREE + 2][N_PROMPT];
    generate_call calls[N_FREE + 2];
    uint64_t asked[N_FREE + 2];
    for (uint64_t i = 0; i < N_FREE + 2; i++) {
        make_prompt(prompts[i], N_PROMPT, i);
        calls[i] = call_of(prompts[i], NULL, i < N_FREE ? NULL : i == N_FREE ? DIGITS : SLOW, i);
        asked[i] = driver_generate(d, &calls[i]);
    }
    driver_wait_all(d);
    for (uint64_t i = 0; i < N_FREE + 2; i++) {
        const answer *a = driver_answer(d, asked[i]);
        CHECK(i > N_FREE || a->finished.status == LLM_OK);
        CHECK(a->finished.status != LLM_OK || driver_equals_cold(alone, &calls[i], a));
        CHECK(i < N_FREE || is_of(a->text, "0123456789 !"));
        CHECK(i != N_FREE || a->n_text > 0);
    }
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(driver_close(alone), 0);
}

static void others_say_what_they_say_alone(void)
{
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        beside_others(classes[i]);
    }
}

/* A session continues after an answer with a grammar. */
static void warm_equals_cold(void)
{
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        driver *d = driver_open_model(classes[i]);
        driver *reference = driver_open_model(classes[i]);
        int32_t tokens[1024];
        make_prompt(tokens, N_PROMPT, 5);
        generate_call call = call_of(tokens, "a", DIGITS, 3);
        const answer *a = driver_wait(d, driver_generate(d, &call));
        CHECK_INT(a->finished.status, LLM_OK);
        const uint32_t n = driver_tokens(d, driver_session(d, "a").entry, tokens, 1000);
        CHECK(n > N_PROMPT);
        tokens[n] = 'x';
        call.n_prompt = n + 1;
        call.seed = 4;
        a = driver_wait(d, driver_generate(d, &call));
        CHECK_INT(a->finished.status, LLM_OK);
        CHECK(a->n_reused >= n);
        CHECK(driver_equals_cold(reference, &call, a));
        CHECK_INT(driver_close(d), 0);
        CHECK_INT(driver_close(reference), 0);
    }
}

static void what_fails_harms_nobody(void)
{
    static const char *const failing[] = {FAULTY, DEAD_END, "no JSON"};
    driver *d = driver_open_model("sim:dense,length=0");
    driver *alone = driver_open_model("sim:dense,length=0");
    int32_t prompt[N_PROMPT];
    make_prompt(prompt, N_PROMPT, 9);
    const generate_call free_call = call_of(prompt, "free", NULL, 1);
    const uint64_t beside = driver_generate(d, &free_call);
    for (size_t i = 0; i < sizeof failing / sizeof failing[0]; i++) {
        const generate_call call = call_of(prompt, "bad", failing[i], 1);
        const answer *a = driver_wait(d, driver_generate(d, &call));
        CHECK_INT(a->finished.outcome, LLM_OUTCOME_FAILED);
        CHECK_INT(a->finished.status, LLM_CONSTRAINT);
        CHECK(is_of(a->text, "12"));
        const generate_call again = call_of(prompt, "bad", NULL, 2); /* the session is still usable */
        a = driver_wait(d, driver_generate(d, &again));
        CHECK(a->finished.status == LLM_OK && a->n_reused + 1 >= N_PROMPT);
        CHECK(driver_equals_cold(alone, &again, a));
    }
    CHECK(driver_equals_cold(alone, &free_call, driver_wait(d, beside)));
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(driver_close(alone), 0);
}

/* Each command comes at a random time, whether or not a thread is picking a token. */
static void whatever_happens_to_it(void)
{
    random_source random = {11};
    driver *d = driver_open(&(llm_engine_options){
        .model = "sim:dense,length=0", .n_sessions = 2, .capacity_policy = LLM_POLICY_PARK, .n_parked_max = 8});
    int32_t prompt[N_PROMPT];
    make_prompt(prompt, N_PROMPT, 2);
    for (int i = 0; i < 200; i++) {
        static const char *const names[] = {"a", "b", "c", NULL};
        const char *name = names[i % 4];
        const generate_call call = call_of(prompt, name, i % 3 == 0 ? SLOW : DIGITS, (uint64_t)i);
        const uint64_t request = driver_generate(d, &call);
        if (random_below(&random, 2) == 0) {
            (void)driver_wait_text(d, request);
        }
        switch (random_below(&random, 6)) {
        case 0: driver_cancel(d, request); break;
        case 1: driver_reset(d, 0, "a"); break;
        case 2: driver_close_session(d, 0, "b"); break;
        case 3:
            driver_pause(d, request, true);
            driver_loop(d);
            driver_pause(d, request, false);
            break;
        case 4: driver_park(d, 0, "c"); break;
        default: break;
        }
        if (i % 20 == 19) {
            driver_wait_all(d);
        }
    }
    driver_wait_all(d);
    CHECK(driver_is_idle(d));
    CHECK_INT(driver_close(d), 0);
}

/* The engine stops while threads pick tokens. */
static void it_may_be_stopped(void)
{
    int32_t prompt[N_PROMPT];
    make_prompt(prompt, N_PROMPT, 2);
    for (int i = 0; i < 10; i++) {
        driver *d = driver_open_model("sim:dense,length=0");
        for (uint64_t k = 0; k < 2; k++) {
            const generate_call call = call_of(prompt, NULL, SLOW, k);
            (void)driver_generate(d, &call);
        }
        poll(NULL, 0, i);
        llm_engine_stop(d->engine);
        driver_wait_all(d);
        CHECK_INT(driver_close(d), 0);
    }
}

/* If cells run out, the newest generation is parked in the middle of its answer, and continues later. */
static void it_is_parked_and_goes_on(void)
{
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0,cells=260",
                                                  .n_sessions = 4,
                                                  .capacity_policy = LLM_POLICY_PARK,
                                                  .n_parked_max = 8});
    driver *alone = driver_open_model("sim:dense,length=0");
    static const char *const names[] = {"a", "b", "c", "d"};
    int32_t prompts[4][N_PROMPT];
    generate_call calls[4];
    uint64_t asked[4];
    for (uint64_t i = 0; i < 4; i++) {
        make_prompt(prompts[i], N_PROMPT, 20 + i);
        calls[i] = call_of(prompts[i], names[i], "{\"grammar\":\"root ::= [0-9]{95} \\\"!\\\"\"}", i);
        calls[i].max_tokens = 100;
        asked[i] = driver_generate(d, &calls[i]);
    }
    driver_wait_all(d);
    for (int i = 0; i < 4; i++) {
        const answer *a = driver_answer(d, asked[i]);
        CHECK_INT(a->finished.status, LLM_OK);
        CHECK(driver_equals_cold(alone, &calls[i], a));
    }
    CHECK(driver_counter(d, LLM_COUNTER_PREEMPTIONS) > 0);
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(driver_close(alone), 0);
}

static void tokens_are_told(void)
{
    driver *d = driver_open_model("sim:dense,length=0");
    int32_t prompt[N_PROMPT];
    make_prompt(prompt, N_PROMPT, 2);
    generate_call call = call_of(prompt, NULL, DIGITS, 2);
    call.n_logprobs_and_1 = 3;
    const answer *a = driver_wait(d, driver_generate(d, &call));
    CHECK(a->finished.status == LLM_OK && a->n_token_ids > 0 && a->n_logprobs == a->n_token_ids);
    for (size_t i = 0; i < a->n_logprobs; i++) {
        CHECK(a->logprobs[i] < 0 && a->logprobs[i] >= LOGPROB_LEAST);
    }
    CHECK_INT(driver_close(d), 0);
}

/* Before min_tokens, neither the model nor a stop string ends the answer. A stop token ends it as the model's own end
 * does. */
static void least_length_and_stop_tokens(void)
{
    driver *d = driver_open_model("sim:dense,length=3");
    int32_t prompt[N_PROMPT];
    make_prompt(prompt, N_PROMPT, 2);
    for (uint64_t seed = 0; seed < 20; seed++) {
        generate_call call = call_of(prompt, NULL, NULL, seed);
        call.min_tokens = 20;
        call.stop = " ";
        const answer *a = driver_wait(d, driver_generate(d, &call));
        CHECK(a->finished.n_generated >= 20 && strchr(a->text, ' ') != NULL);
        call.min_tokens = 0;
        a = driver_wait(d, driver_generate(d, &call));
        CHECK(strchr(a->text, ' ') == NULL);
    }
    generate_call call = call_of(prompt, NULL, "{\"grammar\":\"root ::= \\\"12345\\\" [6-9]*\"}", 1);
    call.stop_token = '4';
    const answer *a = driver_wait(d, driver_generate(d, &call));
    CHECK_INT(a->finished.outcome, LLM_OUTCOME_END);
    CHECK_STR(a->text, "123");
    call.constraint = "{\"grammar\":\"root ::= \\\"12\\\" <[257]> \\\"3\\\"\",\"preserved\":[257]}";
    a = driver_wait(d, driver_generate(d, &call));
    CHECK_STR(a->text, "12<|im_start|>3"); /* only a control token of the grammar appears in the text */
    CHECK_INT(driver_close(d), 0);
}

int main(void)
{
    RUN(others_say_what_they_say_alone);
    RUN(warm_equals_cold);
    RUN(what_fails_harms_nobody);
    RUN(whatever_happens_to_it);
    RUN(it_may_be_stopped);
    RUN(it_is_parked_and_goes_on);
    RUN(tokens_are_told);
    RUN(least_length_and_stop_tokens);
    return CHECK_RESULT();
}
