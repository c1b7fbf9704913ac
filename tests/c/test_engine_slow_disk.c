/* Tests a disk that does not respond: commands that wait for the disk do not delay other requests. */
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#include "engine/engine.h"
#include "engine_driver.h"
#include "snapshot_files.h"

enum { PROMPT = 40, N_PINS = 300, N_RESETS = 3 * LLM_REQUESTS_MAX, N_SESSIONS = 20 };

static char directory[FILES_PATH_BYTES];
static _Atomic bool is_held;

/* Replaces the library's function. While is_held is set, the disk does not answer. */
int fsync(int fd)
{
    while (is_held) {
        usleep(1000);
    }
    return (int)syscall(SYS_fsync, fd);
}

static void four_states_in_flight(driver *d)
{
    d->engine->ledger.n_in_flight_max = (4 << 20) + (4 << 10);
}

static void one_state_in_flight(driver *d)
{
    d->engine->ledger.n_in_flight_max = 1;
}

static uint64_t ask_for(driver *d, const char *name, uint32_t max_tokens)
{
    static int32_t tokens[PROMPT];
    make_prompt(tokens, PROMPT, name != NULL && name[0] == 's' ? (uint64_t)atoi(name + 1) + 2 : 1);
    return driver_generate(
        d, &(generate_call){.session = name, .prompt = tokens, .n_prompt = PROMPT, .max_tokens = max_tokens});
}

static void test_commands_for_the_disk_keep_nobody_else_waiting(void)
{
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0,step_us=20000", .state_dir = directory});
    CHECK_INT(driver_wait(d, ask_for(d, "a", 3))->status, LLM_OK);
    is_held = true;
    const uint64_t endless = ask_for(d, "b", 0), closed = ask_for(d, "c", 0);
    driver_wait_started(d, endless);
    driver_wait_started(d, closed);
    uint64_t pins[N_PINS];
    for (int i = 0; i < N_PINS; i++) {
        pins[i] = driver_pin(d, 0, "a", i % 2 == 0);
    }
    CHECK_INT(driver_wait(d, ask_for(d, NULL, 3))->status, LLM_OK);
    driver_cancel(d, endless);
    CHECK_INT(driver_wait(d, endless)->finished.outcome, LLM_OUTCOME_CANCELLED);
    /* the session's request ends immediately, and the reply comes later */
    const uint64_t closing = driver_close_session(d, 0, "c");
    CHECK_INT(driver_wait(d, closed)->finished.outcome, LLM_OUTCOME_CANCELLED);
    CHECK(!driver_answer(d, pins[0])->is_over);
    CHECK_INT(driver_wait(d, pins[N_PINS - 1])->status, LLM_OVERLOADED);
    is_held = false;
    CHECK_INT(driver_wait(d, closing)->status, LLM_OK);
    uint32_t n_refused = 0;
    for (int i = 0; i < N_PINS; i++) {
        const uint32_t status = driver_wait(d, pins[i])->status;
        CHECK(status == LLM_OK || status == LLM_OVERLOADED);
        n_refused += status == LLM_OVERLOADED;
    }
    CHECK(n_refused > 0 && n_refused < N_PINS / 2);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "a", true))->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
}

/* Each reset of a pinned session waits for the disk, and none is refused. Commands that need no disk are carried out
 * meanwhile. */
static void test_removals_that_wait_for_the_disk_keep_nobody_waiting(void)
{
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0,step_us=20000", .state_dir = directory});
    CHECK_INT(driver_wait(d, ask_for(d, "a", 3))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "a", true))->status, LLM_OK);
    const uint64_t endless = ask_for(d, "b", 0);
    driver_wait_started(d, endless);
    is_held = true;
    uint64_t resets[N_RESETS];
    for (int i = 0; i < N_RESETS; i++) {
        resets[i] = driver_reset(d, 0, "a");
    }
    CHECK_INT(driver_wait(d, ask_for(d, NULL, 3))->status, LLM_OK);
    driver_cancel(d, endless);
    CHECK_INT(driver_wait(d, endless)->finished.outcome, LLM_OUTCOME_CANCELLED);
    CHECK(!driver_answer(d, resets[0])->is_over);
    is_held = false;
    for (int i = 0; i < N_RESETS; i++) {
        CHECK_INT(driver_wait(d, resets[i])->status, LLM_OK);
    }
    CHECK_INT(driver_close(d), 0);
}

/* The engine stops before an event was taken. There are more results of the disk than replies fit into the ring. Each
 * command nevertheless gets its reply. */
static void test_results_of_the_disk_without_room_are_answered_after_the_stop(void)
{
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0", .state_dir = directory});
    CHECK_INT(driver_wait(d, ask_for(d, "a", 3))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "a", true))->status, LLM_OK);
    uint64_t resets[N_RESETS];
    for (int i = 0; i < N_RESETS; i++) {
        resets[i] = driver_reset(d, 0, "a");
    }
    llm_engine_stop(d->engine);
    while (driver_drain(d)) {
    }
    for (int i = 0; i < N_RESETS; i++) {
        CHECK(driver_answer(d, resets[i])->is_over);
        CHECK_INT(driver_answer(d, resets[i])->status, LLM_OK);
    }
    CHECK_INT(driver_close(d), 0);
}

/* Opens an engine with two slots, and memory for the logits and for four parked states, of which three are not being
 * written. With four_states_in_flight, four more may be on their way to the disk. */
static driver *open_small(void)
{
    return driver_open_then(&(llm_engine_options){.model = "sim:dense,length=0,state_kb=1024,ctx=65536,step_us=2000",
                                                  .n_ctx = 65536,
                                                  .n_sessions = 2,
                                                  .n_parked_max = 2 * N_SESSIONS,
                                                  .parked_bytes_max = (4 << 20) + (64 << 10),
                                                  .capacity_policy = LLM_POLICY_PARK,
                                                  .state_dir = directory},
                            four_states_in_flight);
}

static const answer *say(driver *d, uint32_t i)
{
    char name[16];
    snprintf(name, sizeof name, "s%u", i);
    return driver_wait(d, ask_for(d, name, 3));
}

/* The disk hangs. After a wait, parked states that it has not taken are dropped. New sessions begin, running
 * generations continue, and no session loses its tokens. */
static void test_new_sessions_do_not_wait_for_a_disk_that_hangs(void)
{
    driver *d = open_small();
    const uint64_t endless = ask_for(d, NULL, 0);
    driver_wait_text(d, endless);
    is_held = true;
    for (uint32_t i = 0; i < N_SESSIONS; i++) {
        CHECK_INT(say(d, i)->status, LLM_OK);
    }
    CHECK(!driver_answer(d, endless)->is_over);
    driver_cancel(d, endless);
    CHECK_INT(driver_wait(d, endless)->finished.outcome, LLM_OUTCOME_CANCELLED);
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_DROPPED), N_SESSIONS - 2 - 3 - 4);
    CHECK_INT(driver_session(d, "s0").n_tokens, driver_session(d, "s19").n_tokens);
    char text[512];
    CHECK_INT(llm_engine_complaint(d->engine, text, sizeof text), LLM_OK);
    CHECK(strstr(text, "takes longer") != NULL);
    CHECK_INT(llm_engine_complaint(d->engine, text, sizeof text), LLM_NOT_FOUND);
    is_held = false;
    CHECK_INT(driver_close(d), 0);
}

/* A read waits behind a write that hangs. After a wait, the session's tokens are prefilled instead. */
static void test_a_session_on_a_disk_that_hangs_is_read_again(void)
{
    driver *d = open_small();
    for (uint32_t i = 0; i < N_SESSIONS; i++) {
        CHECK_INT(say(d, i)->status, LLM_OK);
        driver_wait(d, driver_unsave(d, 0, "nothing")); /* waits until the store has done its earlier jobs */
    }
    is_held = true;
    CHECK_INT(say(d, N_SESSIONS)->status, LLM_OK); /* its state is being written */
    const answer *a = say(d, 0);
    CHECK_INT(a->status, LLM_OK);
    CHECK_INT(a->reason, LLM_REASON_TORN);
    is_held = false;
    driver_wait(d, driver_unsave(d, 0, "nothing"));
    CHECK(say(d, 1)->n_reused > 0);
    CHECK_INT(driver_close(d), 0);
}

/* Copying a state needs memory. If states on their way to the disk use all of it, no copy is made. */
static void test_a_copy_waits_for_no_memory_that_is_in_flight(void)
{
    driver *d = driver_open_then(&(llm_engine_options){.model = "sim:dense,length=0,state_kb=1024",
                                                       .n_sessions = 3,
                                                       .n_parked_max = N_SESSIONS,
                                                       .parked_bytes_max = 1,
                                                       .capacity_policy = LLM_POLICY_PARK,
                                                       .exact = 1, /* so that a copy copies bytes */
                                                       .state_dir = directory},
                                 one_state_in_flight);
    CHECK_INT(say(d, 1)->status, LLM_OK);
    CHECK_INT(say(d, 2)->status, LLM_OK);
    is_held = true;
    CHECK_INT(driver_wait(d, driver_park(d, 0, "s1"))->status, LLM_OK);
    CHECK_INT(driver_wait(d, ask_for(d, "s2-copy", 3))->reason, LLM_REASON_NEW);
    is_held = false;
    driver_wait(d, driver_unsave(d, 0, "nothing"));
    CHECK_INT(driver_wait(d, ask_for(d, "s2-other", 3))->reason, LLM_REASON_SHARED);
    CHECK_INT(driver_close(d), 0);
}

int main(void)
{
    RUN_FILES(test_a_copy_waits_for_no_memory_that_is_in_flight);
    RUN_FILES(test_new_sessions_do_not_wait_for_a_disk_that_hangs);
    RUN_FILES(test_a_session_on_a_disk_that_hangs_is_read_again);
    RUN_FILES(test_removals_that_wait_for_the_disk_keep_nobody_waiting);
    RUN_FILES(test_results_of_the_disk_without_room_are_answered_after_the_stop);
    RUN_FILES(test_commands_for_the_disk_keep_nobody_else_waiting);
    return CHECK_RESULT();
}
