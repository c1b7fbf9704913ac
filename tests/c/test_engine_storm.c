/* Tests thousands of random commands on few sessions, with and without faults, and with drafts if the kind of memory
 * allows drafts. Every request must end exactly once. A request that ends without a fault must have the text that it
 * would have alone. Nothing may be left at the end. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "engine_driver.h"

#include "draft_oracle.h"

enum { N_NAMES = 7, N_COMMANDS = 1500, PROMPT_MAX = 180, N_COMPARED_MAX = 250, N_HISTORIES = 4 };

/* A GENERATE command, which can be sent again. */
typedef struct asked {
    uint64_t request;
    uint32_t history, n_prompt; /* the first n_prompt tokens of this history */
    generate_call call;         /* its pointers point into the storm */
} asked;

typedef struct storm {
    driver *d;
    random_source random;
    int32_t histories[N_HISTORIES][PROMPT_MAX];
    char names[N_NAMES][8];
    asked asked[N_COMMANDS];
    uint32_t n_asked;
    uint32_t n_outcomes[LLM_OUTCOME_N];
} storm;

static const char *any_name(storm *s)
{
    return s->names[random_below(&s->random, N_NAMES)];
}

/* Returns a grammar that any answer can satisfy, or NULL. Threads pick tokens from the beginning, or after a
 * trigger. */
static const char *any_form(random_source *r)
{
    static const char *const forms[] = {
        "{\"grammar\":\"root ::= [^!]+ \\\"!\\\"\"}",
        "{\"grammar\":\"root ::= \\\"{\\\" [a-z ]{3,200} \\\"}\\\"\"}",
        "{\"grammar\":\"root ::= \\\" the\\\" .*\",\"lazy\":true,\"triggers\":[{\"type\":\"word\",\"value\":\" "
        "the\"}]}",
        "{\"grammar\":\"root ::= .*\",\"lazy\":true,\"triggers\":[{\"type\":\"pattern\",\"value\":\"a.e\"}],"
        "\"thinking\":{\"start\":[300],\"ends\":[{\"tokens\":[301]}],\"forced\":[301],\"max\":4,\"is_open\":true}}",
    };
    return random_below(r, 4) == 0 ? forms[random_below(r, 4)] : NULL;
}

static void generate(storm *s)
{
    static const int32_t boundaries[] = {40, 90};
    random_source *r = &s->random;
    asked *a = &s->asked[s->n_asked++];
    uint32_t n_prompt = 1 + random_below(r, PROMPT_MAX);
    a->call = (generate_call){.owner = random_below(r, 8) == 0,
                              .session = random_below(r, 5) == 0 ? NULL : any_name(s),
                              .prompt = s->histories[random_below(r, N_HISTORIES)],
                              .n_prompt = n_prompt,
                              .max_tokens = 1 + random_below(r, 40),
                              .flags = random_below(r, 10) == 0 ? LLM_GENERATE_COLD : 0,
                              .stop = random_below(r, 5) == 0 ? " the" : NULL,
                              .temperature = (float)random_below(r, 2),
                              .seed = random_below(r, 9),
                              .boundaries = boundaries,
                              .n_boundaries = n_prompt >= 90 ? random_below(r, 3) : 0,
                              .n_head = n_prompt >= 40 && random_below(r, 2) == 0 ? 40 : 0,
                              .parent = random_below(r, 10) == 0 ? any_name(s) : NULL,
                              .constraint = any_form(r),
                              .min_tokens = random_below(r, 8) == 0 ? 10 : 0,
                              .stop_token = random_below(r, 8) == 0 ? 310 : 0};
    a->request = driver_generate(s->d, &a->call);
}

/* Returns one of the latest requests, which may be over. */
static uint64_t recent(storm *s)
{
    uint32_t back = random_below(&s->random, 12);
    return s->n_asked > back ? s->asked[s->n_asked - 1 - back].request : UINT64_MAX;
}

static void command(storm *s)
{
    uint32_t kind = random_below(&s->random, 100);
    if (kind < 55) {
        generate(s);
    } else if (kind < 65) {
        driver_cancel(s->d, recent(s));
    } else if (kind < 72) {
        driver_pause(s->d, recent(s), kind < 68);
    } else if (kind < 77) {
        driver_reset(s->d, 0, any_name(s));
    } else if (kind < 82) {
        driver_close_session(s->d, 0, any_name(s));
    } else if (kind < 86) {
        driver_park(s->d, 0, any_name(s));
    } else if (kind < 90) {
        driver_fork(s->d, 0, any_name(s), any_name(s), random_below(&s->random, PROMPT_MAX));
    } else {
        driver_drain(s->d);
    }
    if (kind % 10 == 0 && s->n_asked > 0) { /* lets some requests continue to their end */
        uint64_t request = recent(s);
        driver_pause(s->d, request, false);
        driver_drain(s->d);
    }
}

static storm *storm_open(const llm_engine_options *options, uint64_t seed)
{
    storm *s = calloc(1, sizeof *s);
    s->d = driver_open(options);
    s->random = (random_source){seed};
    for (uint32_t i = 0; i < N_HISTORIES; i++) { /* the first 60 tokens are the same in all histories */
        make_prompt(s->histories[i], PROMPT_MAX, 77);
        make_prompt(s->histories[i] + 60, PROMPT_MAX - 60, i);
    }
    for (uint32_t i = 0; i < N_NAMES; i++) {
        snprintf(s->names[i], sizeof s->names[i], "n%u", i % 10);
    }
    return s;
}

/* Sends random commands, and waits until every request is over. */
static void storm_run(storm *s)
{
    for (uint32_t i = 0; i < N_COMMANDS; i++) {
        command(s);
        if (i % 250 == 249) { /* at times, paused requests continue, and all requests end */
            for (uint32_t k = 0; k < s->n_asked; k++) {
                if (!driver_answer(s->d, s->asked[k].request)->is_over) {
                    driver_pause(s->d, s->asked[k].request, false);
                }
            }
            driver_wait_all(s->d);
        }
    }
    for (uint32_t i = 0; i < s->n_asked; i++) {
        s->n_outcomes[driver_answer(s->d, s->asked[i].request)->finished.outcome]++;
    }
}

static void check_texts(storm *s, const char *reference)
{
    driver *cold = driver_open(&(llm_engine_options){.model = reference, .no_drafts = 1});
    uint32_t n_compared = 0;
    for (uint32_t i = 0; i < s->n_asked && n_compared < N_COMPARED_MAX; i++) {
        const answer *a = driver_answer(s->d, s->asked[i].request);
        if (a->finished.status == LLM_OK) {
            n_compared++;
            CHECK(driver_equals_cold(cold, &s->asked[i].call, a));
        }
    }
    CHECK(n_compared > 50);
    CHECK_INT(driver_close(cold), 0);
}

static void rage(const char *name, const char *reference, llm_policy policy, uint32_t n_sessions, uint64_t seed)
{
    oracle_open(reference, false, 80, seed);
    storm *s = storm_open(&(llm_engine_options){.model = name,
                                                .n_sessions = n_sessions,
                                                .capacity_policy = policy,
                                                .n_parked_max = 12,
                                                .checkpoint_every = 16},
                          seed);
    storm_run(s);
    bool idle = driver_is_idle(s->d);
    check_texts(s, reference);
    bool failed = s->n_outcomes[LLM_OUTCOME_FAILED] > 0;
    bool varied = s->n_outcomes[LLM_OUTCOME_CANCELLED] > 0 && s->n_outcomes[LLM_OUTCOME_LENGTH] > 0 &&
                  s->n_outcomes[LLM_OUTCOME_STOP] > 0;
    const bool has_drafts = driver_counter(s->d, LLM_COUNTER_ACCEPTED_TOKENS) > 0;
    uint32_t n_faults = driver_close(s->d);
    free(s);
    oracle_close();
    if (n_faults > 0 || !idle) {
        printf("in the storm on %s\n", name);
    }
    CHECK_INT(n_faults, 0);
    CHECK(idle && varied);
    /* with recurrent states, drafts need a request that decodes alone, which depends on time */
    CHECK(has_drafts || (strstr(name, "dense") == NULL && strstr(name, "window") == NULL));
    CHECK_INT(failed, strstr(name, "fail_") != NULL);
}

static void on_dense(void)
{
    rage("sim:dense", "sim:dense", LLM_POLICY_REFUSE, 4, 1);
    rage("sim:dense", "sim:dense", LLM_POLICY_EVICT, 3, 2);
    rage("sim:dense,cells=500", "sim:dense", LLM_POLICY_PARK, 3, 3);
}

static void on_window(void)
{
    rage("sim:window,window=50", "sim:window", LLM_POLICY_REFUSE, 4, 4);
    rage("sim:window,window=50", "sim:window", LLM_POLICY_EVICT, 3, 5);
    rage("sim:window,window=50,cells=500", "sim:window", LLM_POLICY_PARK, 3, 6);
}

static void on_recurrent(void)
{
    rage("sim:recurrent", "sim:recurrent", LLM_POLICY_REFUSE, 4, 7);
    rage("sim:recurrent", "sim:recurrent", LLM_POLICY_EVICT, 3, 8);
    rage("sim:recurrent", "sim:recurrent", LLM_POLICY_PARK, 3, 9);
}

static void on_hybrid(void)
{
    rage("sim:hybrid", "sim:hybrid", LLM_POLICY_REFUSE, 4, 10);
    rage("sim:hybrid", "sim:hybrid", LLM_POLICY_EVICT, 3, 11);
    rage("sim:hybrid,cells=500", "sim:hybrid", LLM_POLICY_PARK, 3, 12);
}

/* Calls take so long that some of them are aborted. */
static void with_calls_that_take_time(void)
{
    rage("sim:dense,token_us=20", "sim:dense", LLM_POLICY_EVICT, 4, 19);
    rage("sim:window,window=50,token_us=20", "sim:window", LLM_POLICY_PARK, 3, 20);
}

static void with_faults_on_dense_and_window(void)
{
    rage("sim:dense,fail_every=41", "sim:dense", LLM_POLICY_EVICT, 4, 13);
    rage("sim:window,window=50,fail_every=41,fail_kind=half", "sim:window", LLM_POLICY_PARK, 3, 14);
    rage("sim:dense,fail_every=97,fail_kind=all", "sim:dense", LLM_POLICY_PARK, 3, 15);
}

static void with_faults_on_recurrent_and_hybrid(void)
{
    rage("sim:recurrent,fail_every=41", "sim:recurrent", LLM_POLICY_EVICT, 4, 16);
    rage("sim:hybrid,fail_every=97,fail_kind=half", "sim:hybrid", LLM_POLICY_PARK, 3, 17);
    rage("sim:hybrid,fail_every=41", "sim:hybrid", LLM_POLICY_PARK, 3, 18);
}

int main(void)
{
    RUN(on_dense);
    RUN(on_window);
    RUN(on_recurrent);
    RUN(on_hybrid);
    RUN(with_calls_that_take_time);
    RUN(with_faults_on_dense_and_window);
    RUN(with_faults_on_recurrent_and_hybrid);
    return CHECK_RESULT();
}
