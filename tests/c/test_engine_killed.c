/* Tests what an engine adopts from the session table and the files of an engine that was killed with SIGKILL. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "engine_driver.h"
#include "snapshot_files.h"

/* a prompt takes several steps, so that the process can be killed between two of them */
enum { LONG = 400, KEPT = 300, N_BATCH = 48 };

static char directory[FILES_PATH_BYTES];
static _Atomic bool is_disk_stuck;

/* Replaces the library's function. While is_disk_stuck is set, the disk does not answer. */
int fsync(int fd)
{
    while (is_disk_stuck) {
        usleep(1000);
    }
    return (int)syscall(SYS_fsync, fd);
}

/* ---- lives ---- */

static pid_t test_process;

static const char *segment_of(uint32_t life)
{
    static char name[64];
    snprintf(name, sizeof name, "/llmd-test-killed-%d-%u", (int)test_process, life);
    return name;
}

/* Opens an engine that adopts what the earlier one left. */
static driver *open_life(uint32_t life)
{
    char before[64];
    strcpy(before, segment_of(life - 1));
    return driver_open(&(llm_engine_options){.model = "sim:hybrid,length=0,step_us=5000",
                                             .n_sessions = 8,
                                             .n_batch = N_BATCH,
                                             .capacity_policy = LLM_POLICY_EVICT,
                                             .table_name = segment_of(life),
                                             .dead_table_names = before,
                                             .state_dir = directory});
}

/* Runs `live` in a child process, and then kills the child. */
static void live_and_be_killed(uint32_t life, void (*live)(driver *d))
{
    const pid_t child = fork();
    if (child == 0) {
        live(open_life(life));
        kill(getpid(), SIGKILL);
    }
    int status = 0;
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void say(driver *d, const char *name, uint32_t edit)
{
    int32_t tokens[LONG];
    make_prompt(tokens, LONG, 1);
    make_prompt(tokens + KEPT, LONG - KEPT, 100 + edit);
    const answer *a = driver_wait(
        d, driver_generate(d, &(generate_call){.session = name, .prompt = tokens, .n_prompt = LONG, .max_tokens = 5}));
    if (a->status != LLM_OK) {
        abort();
    }
}

static void pin(driver *d, const char *name)
{
    if (driver_wait(d, driver_pin(d, 0, name, true))->status != LLM_OK) {
        abort();
    }
}

typedef struct found {
    uint32_t n, n_pinned, n_tokens;
    char name[LLM_SESSION_NAME_BYTES_MAX + 8];
} found;

/* Returns how many sessions the engine has now. n_tokens and name belong to the last one. */
static found look_at(const driver *d)
{
    found f = {0};
    llm_session_table_view table_view;
    llm_session_table_read(d->session_table, &table_view);
    for (uint32_t entry = 0; entry < table_view.n_entries; entry++) {
        llm_branch_view view;
        if (llm_session_table_entry(d->session_table, entry, &view) == LLM_OK) {
            f.n++;
            f.n_pinned += view.is_pinned == LLM_PIN_ANCHORED;
            f.n_tokens = view.n_tokens;
            memcpy(f.name, view.name, sizeof f.name);
        }
    }
    return f;
}

static uint32_t n_branch_files(void)
{
    char path[FILES_PATH_BYTES];
    files_model_directory(directory, path);
    return files_count(path, "llmd-session");
}

/* ---- what is left of an edited conversation ---- */

static void begin_pinned(driver *d)
{
    say(d, "it", 1);
    pin(d, "it");
    say(d, "it", 2); /* the client edits its last message, so the file is out of date */
}

static void edit_again(driver *d)
{
    say(d, "it", (uint32_t)getpid());
}

static void test_a_pinned_session_is_one_however_often_it_is_killed(void)
{
    enum { LIVES = 5 };
    live_and_be_killed(1, begin_pinned);
    for (uint32_t life = 2; life <= LIVES; life++) {
        live_and_be_killed(life, edit_again);
        CHECK_STILL_GOOD();
    }
    driver *d = open_life(LIVES + 1);
    const found f = look_at(d);
    CHECK_INT(f.n, 1);
    CHECK_INT(f.n_pinned, 1);
    CHECK_INT(f.n_tokens, LONG + 4); /* the last token was not consumed */
    CHECK_INT(n_branch_files(), 1);
    CHECK_INT(driver_close(d), 0);
}

/* ---- a name that has not reached the disk ---- */

static void be_renamed(driver *d)
{
    say(d, "old", 1);
    pin(d, "old");
    is_disk_stuck = true;
    driver_command(d, LLM_COMMAND_RENAME, 0, "old", "new");
    while (driver_session(d, "new").entry == UINT32_MAX) {
        usleep(1000);
    }
}

static void test_a_rename_that_is_killed_leaves_one_session(void)
{
    live_and_be_killed(1, be_renamed);
    CHECK_STILL_GOOD();
    driver *d = open_life(2);
    const found f = look_at(d);
    CHECK_INT(f.n, 1);
    CHECK_INT(f.n_pinned, 1);
    CHECK(strcmp(f.name, "old") == 0 || strcmp(f.name, "new") == 0);
    CHECK_INT(n_branch_files(), 1);
    CHECK_INT(driver_close(d), 0);
}

/* ---- a prompt that is read once more ---- */

static void begin_reading(driver *d)
{
    int32_t tokens[LONG];
    make_prompt(tokens, LONG, 1);
    make_prompt(tokens + KEPT, LONG - KEPT, 101);
    const uint64_t asked = driver_generate(
        d, &(generate_call){.session = "it", .prompt = tokens, .n_prompt = LONG, .flags = LLM_GENERATE_COLD});
    driver_wait_started(d, asked);
    while (driver_session(d, "it").n_tokens == 0) { /* until the first step has ended */
    }
}

static void begin_with_pin(driver *d)
{
    say(d, "it", 1);
    pin(d, "it");
}

/* The tokens that are prefilled again are the beginning of the tokens in the file. So the file is still right. */
static void test_a_prompt_that_is_read_again_costs_the_session_nothing(void)
{
    live_and_be_killed(1, begin_with_pin);
    live_and_be_killed(2, begin_reading);
    CHECK_STILL_GOOD();
    driver *d = open_life(3);
    const found f = look_at(d);
    CHECK_INT(f.n, 1);
    CHECK_INT(f.n_pinned, 1);
    CHECK(f.n_tokens >= LONG);
    CHECK_INT(driver_close(d), 0);
}

int main(void)
{
    test_process = getpid();
    RUN_FILES(test_a_pinned_session_is_one_however_often_it_is_killed);
    RUN_FILES(test_a_rename_that_is_killed_leaves_one_session);
    RUN_FILES(test_a_prompt_that_is_read_again_costs_the_session_nothing);
    for (uint32_t life = 0; life < 8; life++) {
        shm_unlink(segment_of(life)); /* remains of a failed test */
    }
    return CHECK_RESULT();
}
