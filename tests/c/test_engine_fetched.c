/* Tests that the state of another session on disk is read for a prompt with the same beginning, if that is faster than
 * prefill. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#include "engine_driver.h"
#include "snapshot_files.h"

enum { LONG = 400, HEAD = 300, SHORT_HEAD = 20, N_MAX = 12 };

static char directory[FILES_PATH_BYTES];
static char path[FILES_PATH_BYTES];
static const char *const classes[] = {"dense", "window", "recurrent", "hybrid"};
static const char *simulated;
static _Atomic bool is_held;

/* Replaces the library's function. While is_held is set, the disk does not answer. */
int fsync(int fd)
{
    while (is_held) {
        usleep(1000);
    }
    return (int)syscall(SYS_fsync, fd);
}

static void check(bool holds)
{
    if (!holds) {
        abort();
    }
}

static driver *open_sim(uint64_t parked_bytes_max)
{
    return driver_open(&(llm_engine_options){.model = simulated,
                                             .capacity_policy = LLM_POLICY_PARK,
                                             .state_dir = directory,
                                             .parked_bytes_max = parked_bytes_max});
}

/* Returns a call whose first n_head tokens are always the same. The others depend on `seed`. */
static generate_call call_of(const char *session, uint32_t n_head, uint64_t seed)
{
    static int32_t tokens[8][LONG];
    static uint32_t n_made;
    int32_t *t = tokens[n_made++ % 8];
    make_prompt(t, n_head, 77);
    make_prompt(t + n_head, LONG - n_head, seed);
    return (generate_call){.session = session, .prompt = t, .n_prompt = LONG, .max_tokens = N_MAX, .n_head = n_head};
}

/* Returns a call without the length of its head, so no checkpoint is made there. */
static generate_call headless_call_of(const char *session, uint64_t seed)
{
    generate_call call = call_of(session, HEAD, seed);
    call.n_head = 0;
    return call;
}

static const answer *say(driver *d, generate_call call)
{
    const answer *a = driver_wait(d, driver_generate(d, &call));
    check(a->status == LLM_OK);
    return a;
}

/* Opens an engine after a restart. Before the restart, session a had a prompt with this head. */
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
    const answer *own = say(d, call_of("a", HEAD, 1)); /* the first session still has its state */
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

/* The memory budget has no room for the state, except while a request needs it. */
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

/* Several requests need the same state on the disk. Each of them waits until it is loaded. */
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
    /* 0 if the session was closed first, HEAD if the state was loaded first */
    CHECK(a->n_reused == 0 || a->n_reused == HEAD);
    CHECK_INT(driver_close(d), 0);
}

/* The header of the file is good, but its contents are damaged. */
static void test_what_cannot_be_read_is_read_again(void)
{
    size_t n_bytes = 0;
    driver *d = restarted(HEAD, 0);
    CHECK_INT(driver_close(d), 0);
    files_model_directory(directory, path);
    const uint64_t id = files_any(path, "llmd-state");
    uint8_t *bytes = files_read(path, id, "llmd-state", &n_bytes);
    check(bytes != NULL);
    bytes[n_bytes - 1 - sizeof(uint64_t)] ^= 1; /* the last byte before the checksum */
    files_write(path, id, "llmd-state", bytes, n_bytes);
    free(bytes);
    d = open_sim(0);
    CHECK_INT(say(d, call_of("b", HEAD, 2))->reason, LLM_REASON_NEW);
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_FETCHED), 1);
    CHECK_INT(driver_close(d), 0);
}

/* The disk does not finish an earlier job. A request does not wait forever for a state behind this job. */
static void test_a_disk_that_does_not_answer(void)
{
    driver *d = restarted(HEAD, 0);
    is_held = true;
    const uint64_t pin = driver_pin(d, 0, "a", true);
    driver_fence(d);
    CHECK_INT(say(d, call_of("b", HEAD, 2))->reason, LLM_REASON_NEW);
    CHECK(!driver_answer(d, pin)->is_over);
    is_held = false;
    CHECK_INT(driver_wait(d, pin)->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
}

/* The file of a state cannot be opened for another session's request. The state's own session can still load it
 * later. */
static void test_a_read_that_fails_in_passing(void)
{
    struct rlimit usual;
    driver *d = restarted(HEAD, 0);
    check(getrlimit(RLIMIT_NOFILE, &usual) == 0);
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = usual.rlim_max};
    check(setrlimit(RLIMIT_NOFILE, &none) == 0);
    const uint32_t reason = say(d, call_of("b", HEAD, 2))->reason;
    check(setrlimit(RLIMIT_NOFILE, &usual) == 0);
    CHECK_INT(reason, LLM_REASON_NEW);
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_FETCHED), 1);
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_DROPPED), 0);
    CHECK_INT(driver_wait(d, driver_close_session(d, 0, "b"))->status, LLM_OK);
    CHECK(say(d, call_of("a", HEAD, 1))->n_reused >= LONG - 1);
    CHECK_INT(driver_close(d), 0);
}

/* A request without a session asks for an entry more than once, while the state is loaded. It takes only one. */
static void test_a_scratch_session_costs_one(void)
{
    driver *d = restarted(HEAD, 0);
    say(d, call_of(NULL, 0, 3));
    say(d, call_of(NULL, 0, 4));
    CHECK_INT(say(d, call_of(NULL, HEAD, 2))->reason, LLM_REASON_SHARED);
    CHECK(say(d, call_of(NULL, 0, 4))->n_reused >= LONG - 1);
    CHECK_INT(driver_close(d), 0);
}

/* Before the new request begins, a slot is freed, and its state is parked. This exceeds the budget, but the loaded
 * state stays. */
static void test_what_is_parked_meanwhile_does_not_drive_it_out(void)
{
    enum { KIB = 1024 };
    simulated = "sim:dense,length=0,cells=700,state_kb=200,token_us=20";
    driver *d = open_sim(0);
    say(d, headless_call_of("a", 1));
    CHECK_INT(driver_close(d), 0);
    d = open_sim(300 * KIB);
    say(d, call_of("x", 0, 3));
    CHECK_INT(say(d, headless_call_of("b", 2))->n_reused, HEAD);
    CHECK_INT(driver_close(d), 0);
}

static void say_in_many(driver *d)
{
    enum { N = 300, SHORT = 10 };
    char name[16];
    int32_t tokens[SHORT];
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "s%d", i);
        make_prompt(tokens, SHORT, 100 + (uint64_t)i);
        say(d, (generate_call){.session = name, .prompt = tokens, .n_prompt = SHORT, .max_tokens = 1});
    }
}

/* The state is the last of hundreds of parked states. */
static void test_it_is_found_among_many(void)
{
    const llm_engine_options options = {.model = "sim:dense,length=0,token_us=100",
                                        .capacity_policy = LLM_POLICY_PARK,
                                        .state_dir = directory,
                                        .n_parked_max = 600};
    driver *d = driver_open(&options);
    say_in_many(d);
    say(d, headless_call_of("a", 1));
    CHECK_INT(driver_close(d), 0);
    d = driver_open(&options);
    say_in_many(d);
    CHECK_INT(say(d, headless_call_of("b", 2))->n_reused, HEAD);
    CHECK_INT(driver_close(d), 0);
}

/* The checkpoint budget has room for one history. Only those checkpoints of another history are loaded that a request
 * needs. */
static void test_it_costs_others_no_checkpoints(void)
{
    enum { KIB = 1024, EDITED_AT = 320 };
    static const int32_t boundaries[] = {100, 200, 300, 330, 350, 380};
    const llm_engine_options options = {.model = "sim:recurrent,length=0,state_kb=100,token_us=100",
                                        .capacity_policy = LLM_POLICY_PARK,
                                        .state_dir = directory,
                                        .checkpoint_bytes_max = 1000 * KIB};
    driver *d = driver_open(&options);
    generate_call call = call_of("a", HEAD, 1);
    call.boundaries = boundaries;
    call.n_boundaries = 6;
    say(d, call);
    CHECK_INT(driver_close(d), 0);
    d = driver_open(&options);
    generate_call live = call_of("live", 0, 9);
    live.boundaries = boundaries;
    live.n_boundaries = 6;
    say(d, live);
    CHECK_INT(say(d, call_of("b", HEAD, 2))->n_reused, HEAD);
    int32_t edited[LONG];
    memcpy(edited, live.prompt, sizeof edited);
    make_prompt(edited + EDITED_AT, LONG - EDITED_AT, 42);
    live.prompt = edited;
    CHECK_INT(say(d, live)->n_reused, boundaries[2]);
    CHECK_INT(driver_close(d), 0);
}

int main(void)
{
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "sim:%s,length=0,token_us=20", classes[i]);
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
        RUN_FILES(test_a_disk_that_does_not_answer);
        RUN_FILES(test_a_read_that_fails_in_passing);
        RUN_FILES(test_a_scratch_session_costs_one);
    }
    RUN_FILES(test_what_is_parked_meanwhile_does_not_drive_it_out);
    RUN_FILES(test_it_is_found_among_many);
    RUN_FILES(test_it_costs_others_no_checkpoints);
    return CHECK_RESULT();
}
