/* What another session has on the disk of a prompt's beginning: it is read for it where that is sooner done. */
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "engine_driver.h"
#include "snapshot_files.h"

enum { LONG = 400, HEAD = 300, SHORT_HEAD = 20, N_MAX = 12 };

static char directory[FILES_PATH_BYTES];
static char path[FILES_PATH_BYTES];
static const char *const classes[] = {"dense", "window", "recurrent", "hybrid"};
static const char *simulated;

static void check(bool holds)
{
    if (!holds) {
        abort();
    }
}

static driver *open_sim(uint64_t parked_bytes_max)
{
    return driver_open(
        &(llm_engine_options){.model = simulated, .state_dir = directory, .parked_bytes_max = parked_bytes_max});
}

/* The same first n_head tokens each time, and then others for each seed. */
static generate_call call_of(const char *session, uint32_t n_head, uint64_t seed)
{
    static int32_t tokens[8][LONG];
    static uint32_t n_made;
    int32_t *t = tokens[n_made++ % 8];
    make_prompt(t, n_head, 77);
    make_prompt(t + n_head, LONG - n_head, seed);
    return (generate_call){.session = session, .prompt = t, .n_prompt = LONG, .max_tokens = N_MAX, .n_head = n_head};
}

static const answer *say(driver *d, generate_call call)
{
    const answer *a = driver_wait(d, driver_generate(d, &call));
    check(a->status == LLM_OK);
    return a;
}

/* A session that has said something behind the head, and a restart behind it. */
static driver *restarted(uint32_t n_head, uint64_t parked_bytes_max)
{
    driver *d = open_sim(0);
    say(d, call_of("a", n_head, 1));
    check(driver_close(d) == 0);
    return open_sim(parked_bytes_max);
}

static void check_warm(const generate_call *call, const answer *a)
{
    CHECK_INT(a->reason, LLM_REASON_SHARED);
    CHECK_INT(a->n_reused, HEAD);
    driver *reference = driver_open_model(simulated);
    CHECK(driver_equals_cold(reference, call, a));
    CHECK_INT(driver_close(reference), 0);
}

static void test_another_session_begins_with_the_head(void)
{
    driver *d = restarted(HEAD, 0);
    const generate_call call = call_of("b", HEAD, 2);
    check_warm(&call, say(d, call));
    const answer *own = say(d, call_of("a", HEAD, 1)); /* whose it is has it still */
    CHECK(own->n_reused >= LONG - 1);
    CHECK_INT(driver_close(d), 0);
}

static void test_a_scratch_session_too(void)
{
    driver *d = restarted(HEAD, 0);
    const generate_call call = call_of(NULL, HEAD, 2);
    check_warm(&call, say(d, call));
    CHECK_INT(driver_close(d), 0);
}

/* There is no room in memory for it but while it is needed. */
static void test_what_was_read_is_there_for_its_reader(void)
{
    driver *d = restarted(HEAD, 1);
    const generate_call call = call_of("b", HEAD, 2);
    check_warm(&call, say(d, call));
    driver_loop(d);
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_MEMORY_BYTES), 0);
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_DROPPED), 0);
    CHECK(say(d, call_of("a", HEAD, 1))->n_reused >= LONG - 1);
    CHECK_INT(driver_close(d), 0);
}

/* All ask at once, and nobody begins without what is on its way. */
static void test_many_wait_for_one_reading(void)
{
    const char *names[] = {"b", "c", NULL};
    driver *d = restarted(HEAD, 0);
    generate_call calls[3];
    uint64_t requests[3];
    for (uint64_t i = 0; i < 3; i++) {
        calls[i] = call_of(names[i], HEAD, i + 2);
        requests[i] = driver_generate(d, &calls[i]);
    }
    for (int i = 0; i < 3; i++) {
        check_warm(&calls[i], driver_wait(d, requests[i]));
    }
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_FETCHED), 1);
    CHECK_INT(driver_close(d), 0);
}

static void check_left_alone(driver *d, const generate_call *call)
{
    const answer *a = say(d, *call);
    CHECK_INT(a->reason, LLM_REASON_NEW);
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_FETCHED), 0);
    CHECK_INT(driver_close(d), 0);
}

static void test_little_is_not_worth_it(void)
{
    const generate_call call = call_of("b", SHORT_HEAD, 2);
    check_left_alone(restarted(SHORT_HEAD, 0), &call);
}

static void test_nothing_of_another_owner(void)
{
    driver *d = restarted(HEAD, 0);
    llm_engine_set_owners(d->engine, 2);
    generate_call call = call_of("b", HEAD, 2);
    call.owner = 1;
    check_left_alone(d, &call);
}

static void test_cold_is_cold(void)
{
    driver *d = restarted(HEAD, 0);
    generate_call call = call_of("b", HEAD, 2);
    call.flags = LLM_GENERATE_COLD;
    check_left_alone(d, &call);
}

static void test_one_that_is_given_up_meanwhile(void)
{
    driver *d = restarted(HEAD, 0);
    const generate_call given_up = call_of("b", HEAD, 2), call = call_of("c", HEAD, 3);
    const uint64_t request = driver_generate(d, &given_up);
    driver_cancel(d, request);
    driver_wait(d, request);
    check_warm(&call, say(d, call));
    CHECK_INT(driver_close(d), 0);
}

static void test_a_session_that_goes_meanwhile(void)
{
    driver *d = restarted(HEAD, 0);
    const generate_call call = call_of("b", HEAD, 2);
    const uint64_t request = driver_generate(d, &call);
    const uint64_t closing = driver_close_session(d, 0, "a");
    CHECK_INT(driver_wait(d, closing)->status, LLM_OK);
    const answer *a = driver_wait(d, request);
    CHECK_INT(a->status, LLM_OK);
    CHECK(a->n_reused == 0 || a->n_reused == HEAD); /* as it came */
    CHECK_INT(driver_close(d), 0);
}

/* Its heads say that it is there, and its contents are damaged. */
static void test_what_cannot_be_read_is_read_again(void)
{
    size_t n_bytes = 0;
    driver *d = restarted(HEAD, 0);
    CHECK_INT(driver_close(d), 0);
    files_model_directory(directory, path);
    const uint64_t id = files_any(path, "llmd-state");
    uint8_t *bytes = files_read(path, id, "llmd-state", &n_bytes);
    check(bytes != NULL);
    bytes[n_bytes - 1 - sizeof(uint64_t)] ^= 1; /* the last one before the checksum */
    files_write(path, id, "llmd-state", bytes, n_bytes);
    free(bytes);
    d = open_sim(0);
    CHECK_INT(say(d, call_of("b", HEAD, 2))->reason, LLM_REASON_NEW);
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_FETCHED), 1);
    CHECK_INT(driver_close(d), 0);
}

static void test_calls_begin_with_it(void)
{
    driver *d = restarted(HEAD, 0);
    CHECK_INT(driver_close(d), 0);
    llm_engine *engine = NULL;
    llm_session *s = NULL;
    llm_resume how;
    const llm_engine_options options = {
        .model = simulated, .state_dir = directory, .n_ctx = 1024, .n_sessions = 4, .n_scratch = 2};
    CHECK_INT(llm_engine_open(&options, &engine, NULL, 0), LLM_OK);
    CHECK_INT(llm_session_open(engine, "b", &s), LLM_OK);
    const generate_call call = call_of("b", HEAD, 2);
    CHECK_INT(llm_session_prefill(s, call.prompt, LONG, NULL, &how), LLM_OK);
    CHECK_INT(how.reason, LLM_REASON_SHARED);
    CHECK_INT(how.n_reused, HEAD);
    llm_session_close(s);
    llm_engine_close(engine);
}

int main(void)
{
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "sim:%s,length=0", classes[i]);
        simulated = name;
        RUN_FILES(test_another_session_begins_with_the_head);
        RUN_FILES(test_a_scratch_session_too);
        RUN_FILES(test_what_was_read_is_there_for_its_reader);
        RUN_FILES(test_many_wait_for_one_reading);
        RUN_FILES(test_little_is_not_worth_it);
        RUN_FILES(test_nothing_of_another_owner);
        RUN_FILES(test_cold_is_cold);
        RUN_FILES(test_one_that_is_given_up_meanwhile);
        RUN_FILES(test_a_session_that_goes_meanwhile);
        RUN_FILES(test_what_cannot_be_read_is_read_again);
        RUN_FILES(test_calls_begin_with_it);
    }
    return CHECK_RESULT();
}
