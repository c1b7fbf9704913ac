/* A disk that does not answer: commands that wait for it keep nobody else from being served. */
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#include "engine_driver.h"
#include "snapshot_files.h"

enum { PROMPT = 40, N_PINS = 300, N_RESETS = 3 * LLM_REQUESTS_MAX };

static char directory[FILES_PATH_BYTES];
static _Atomic bool is_held;

/* Instead of the library's. */
int fsync(int fd)
{
    while (is_held) {
        usleep(1000);
    }
    return (int)syscall(SYS_fsync, fd);
}

static uint64_t ask_for(driver *d, const char *name, uint32_t max_tokens)
{
    static int32_t tokens[PROMPT];
    make_prompt(tokens, PROMPT, 1);
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
    const uint64_t closing = driver_close_session(d, 0, "c"); /* ends what it can, and is answered later */
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

/* Each reset of a pinned session waits until its file is written, and is never refused: however many of them wait, commands
 * that need no disk are carried out. */
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

/* More results than replies have room, when the engine stops and nobody has taken an event: each command gets its reply. */
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

int main(void)
{
    RUN_FILES(test_removals_that_wait_for_the_disk_keep_nobody_waiting);
    RUN_FILES(test_results_of_the_disk_without_room_are_answered_after_the_stop);
    RUN_FILES(test_commands_for_the_disk_keep_nobody_else_waiting);
    return CHECK_RESULT();
}
