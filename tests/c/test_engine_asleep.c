/* Sessions that sleep in the store, and those just woken: no command costs them what they hold. */
#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#include "engine_driver.h"
#include "snapshot_files.h"

enum { LONG = 400 };

static char directory[FILES_PATH_BYTES];

static uint64_t ask_for(driver *d, const char *name, uint64_t seed, uint32_t max_tokens)
{
    static int32_t tokens[LONG];
    make_prompt(tokens, LONG, seed);
    return driver_generate(
        d, &(generate_call){.session = name, .prompt = tokens, .n_prompt = LONG, .max_tokens = max_tokens});
}

static const answer *say(driver *d, const char *name, uint64_t seed)
{
    return driver_wait(d, ask_for(d, name, seed, 5));
}

static driver *open_with(const char *simulated, uint32_t n_sessions, uint32_t idle_s_max)
{
    return driver_open(&(llm_engine_options){.model = simulated,
                                             .n_sessions = n_sessions,
                                             .capacity_policy = LLM_POLICY_EVICT,
                                             .idle_s_max = idle_s_max,
                                             .state_dir = directory});
}

static driver *open_sim(uint32_t n_sessions)
{
    return open_with("sim:hybrid,length=0", n_sessions, 0);
}

/* Three sessions; with two places a, the oldest, sleeps. */
static void leave_three(void)
{
    const char *names[] = {"a", "b", "c"};
    driver *d = open_sim(3);
    for (uint64_t i = 0; i < 3; i++) {
        CHECK_INT(say(d, names[i], i + 1)->status, LLM_OK);
        usleep(2000); /* the next stamp is another one */
    }
    CHECK_INT(driver_close(d), 0);
}

static uint32_t n_asleep(driver *d)
{
    driver_loop(d);
    return (uint32_t)driver_counter(d, LLM_COUNTER_SESSIONS_DORMANT);
}

static driver *open_with_a_asleep(const char *simulated)
{
    leave_three();
    driver *d = open_with(simulated, 2, 0);
    if (n_asleep(d) != 1) {
        abort();
    }
    return d;
}

static const answer *command(driver *d, llm_command_op op, const char *name, const char *other)
{
    return driver_wait(d, driver_command(d, op, 0, name, other));
}

static uint32_t n_reused(uint32_t n_sessions, const char *name, uint64_t seed)
{
    driver *d = open_sim(n_sessions);
    const uint32_t n = say(d, name, seed)->n_reused;
    driver_close(d);
    return n;
}

/* Whoever looks at the segment before the decode thread has gone round once. */
static void test_who_sleeps_is_told_from_the_start(void)
{
    leave_three();
    const llm_engine_options options = {.model = "sim:hybrid,length=0",
                                        .n_sessions = 2,
                                        .n_scratch = 2,
                                        .n_ctx = 1024,
                                        .capacity_policy = LLM_POLICY_EVICT,
                                        .state_dir = directory};
    llm_engine *engine = NULL;
    CHECK_INT(llm_engine_open(&options, &engine, NULL, 0), LLM_OK);
    const llm_page *page = llm_engine_page(engine);
    const uint64_t n_dormant = llm_page_counter(page, LLM_COUNTER_SESSIONS_DORMANT);
    const uint64_t n_named = llm_page_counter(page, LLM_COUNTER_SESSIONS_NAMED);
    llm_engine_close(engine);
    CHECK_INT(n_dormant, 1);
    CHECK_INT(n_named, 2);
}

/* While its tokens are on their way, nothing may write a file without them. The step of another request lets both commands
 * arrive together. */
static void test_what_wakes_is_not_written_over(void)
{
    const llm_command_op ops[] = {LLM_COMMAND_PIN, LLM_COMMAND_RENAME, LLM_COMMAND_SAVE, LLM_COMMAND_FORK};
    for (int i = 0; i < 4; i++) {
        driver *d = open_with_a_asleep("sim:hybrid,length=0,step_us=100000");
        const uint64_t scratch = ask_for(d, NULL, 9, 3);
        driver_wait_started(d, scratch);
        const uint64_t woken = ask_for(d, "a", 1, 1);
        const uint64_t asked = ops[i] == LLM_COMMAND_PIN    ? driver_pin(d, 0, "a", true)
                               : ops[i] == LLM_COMMAND_FORK ? driver_fork(d, 0, "a", "other", UINT32_MAX)
                                                            : driver_command(d, ops[i], 0, "a", "other");
        driver_cancel(d, woken);
        const uint32_t status = driver_wait(d, asked)->status;
        CHECK_INT(status, LLM_OK);
        driver_cancel(d, scratch);
        driver_wait_all(d);
        CHECK_INT(driver_close(d), 0);
        CHECK_INT(n_reused(4, ops[i] == LLM_COMMAND_RENAME ? "other" : "a", 1), LONG);
        files_remove_directory(directory);
        files_make_directory(directory);
    }
}

static void test_a_fork_replaces_no_sleeper(void)
{
    driver *d = open_with_a_asleep("sim:hybrid,length=0");
    d->forks_beside = true;
    CHECK_INT(driver_wait(d, driver_fork(d, 0, "b", "a", UINT32_MAX))->status, LLM_EXISTS);
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(n_reused(2, "a", 1), LONG);
}

static void test_what_was_reset_asleep_does_not_wake(void)
{
    driver *d = open_with_a_asleep("sim:hybrid,length=0");
    CHECK_INT(driver_wait(d, driver_reset(d, 0, "a"))->status, LLM_OK);
    CHECK_INT(n_asleep(d), 0);
    CHECK_INT(say(d, "a", 1)->n_reused, 0);
    CHECK_INT(driver_close(d), 0);
}

/* What comes for a sleeper wakes it, and waits until its tokens are there. */
static void test_a_sleeper_does_what_it_is_told(void)
{
    const llm_command_op ops[] = {LLM_COMMAND_PIN, LLM_COMMAND_PARK, LLM_COMMAND_SAVE, LLM_COMMAND_RENAME,
                                  LLM_COMMAND_FORK};
    for (int i = 0; i < 5; i++) {
        driver *d = open_with_a_asleep("sim:hybrid,length=0");
        const uint64_t asked = ops[i] == LLM_COMMAND_PIN    ? driver_pin(d, 0, "a", true)
                               : ops[i] == LLM_COMMAND_PARK ? driver_park(d, 0, "a")
                               : ops[i] == LLM_COMMAND_FORK ? driver_fork(d, 0, "a", "other", UINT32_MAX)
                                                            : driver_command(d, ops[i], 0, "a", "other");
        const answer *a = driver_wait(d, asked);
        CHECK_INT(a->status, LLM_OK);
        CHECK(a->n_tokens >= LONG);
        const bool is_other = ops[i] == LLM_COMMAND_RENAME || ops[i] == LLM_COMMAND_FORK;
        CHECK_INT(say(d, is_other ? "other" : "a", 1)->n_reused, LONG);
        CHECK_INT(driver_close(d), 0);
        files_remove_directory(directory);
        files_make_directory(directory);
    }
}

/* a sleeps, c is saved as "label", and nobody makes way. */
static driver *open_without_a_place(void)
{
    leave_three();
    driver *d = open_sim(3);
    command(d, LLM_COMMAND_SAVE, "c", "label");
    driver_close(d);
    return driver_open(&(llm_engine_options){
        .model = "sim:hybrid,length=0", .n_sessions = 2, .capacity_policy = LLM_POLICY_REFUSE, .state_dir = directory});
}

static void test_without_a_place_a_sleeper_sleeps_on(void)
{
    driver *d = open_without_a_place();
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "a", true))->status, LLM_CAPACITY);
    CHECK_INT(driver_wait(d, driver_reset(d, 0, "a"))->status, LLM_CAPACITY);
    CHECK_INT(command(d, LLM_COMMAND_RENAME, "a", "other")->status, LLM_CAPACITY);
    CHECK_INT(n_asleep(d), 1);
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(n_reused(3, "a", 1), LONG);
}

/* What would take a sleeper's name finds no place: it is refused, and costs nothing. */
static void test_what_finds_no_place_replaces_no_sleeper(void)
{
    driver *d = open_without_a_place();
    CHECK_INT(command(d, LLM_COMMAND_LOAD, "a", "label")->status, LLM_CAPACITY);
    CHECK_INT(driver_wait(d, driver_fork(d, 0, "b", "a", UINT32_MAX))->status, LLM_CAPACITY);
    CHECK_INT(n_asleep(d), 1);
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(n_reused(3, "a", 1), LONG);
}

/* Two timelines of a; with one place the older one sleeps. */
static void test_a_session_is_renamed_with_what_sleeps_of_it(void)
{
    driver *d = open_sim(4);
    for (uint64_t i = 1; i < 3; i++) {
        CHECK_INT(say(d, "a", i)->status, LLM_OK);
        usleep(2000);
    }
    CHECK_INT(driver_close(d), 0);
    d = open_sim(1);
    CHECK_INT(n_asleep(d), 1);
    CHECK_INT(command(d, LLM_COMMAND_RENAME, "a", "other")->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_close_session(d, 0, "a"))->status, LLM_NOT_FOUND);
    CHECK_INT(driver_close(d), 0);
    d = open_sim(4);
    CHECK_INT(say(d, "other", 1)->n_reused, LONG);
    CHECK_INT(say(d, "other", 2)->n_reused, LONG);
    CHECK_INT(driver_counter(d, LLM_COUNTER_SESSIONS_OPENED), 2);
    CHECK_INT(driver_close(d), 0);
}

/* Away from the store, or back to it. */
static void move_session_files(bool away)
{
    char path[FILES_PATH_BYTES], from[2 * FILES_PATH_BYTES], to[2 * FILES_PATH_BYTES];
    files_model_directory(directory, path);
    DIR *d = opendir(path);
    const struct dirent *entry;
    while ((entry = readdir(d)) != NULL) {
        const char *dot = strstr(entry->d_name, ".llmd-session");
        if (dot == NULL || (dot[13] == '\0') != away) {
            continue;
        }
        snprintf(from, sizeof from, "%s/%.40s", path, entry->d_name);
        snprintf(to, sizeof to, "%s/%.16s.llmd-session%s", path, entry->d_name, away ? ".away" : "");
        CHECK_INT(rename(from, to), 0);
    }
    closedir(d);
}

/* What could not be read this time stays as it is: what is written later is another session's file. */
static void test_a_failed_waking_writes_over_nothing(void)
{
    driver *d = open_with_a_asleep("sim:hybrid,length=0");
    move_session_files(true);
    int32_t tokens[LONG];
    make_prompt(tokens, LONG, 1); /* another question late in the same conversation */
    make_prompt(tokens + LONG - 100, 100, 3);
    const answer *a = driver_wait(
        d, driver_generate(d, &(generate_call){.session = "a", .prompt = tokens, .n_prompt = LONG, .max_tokens = 5}));
    CHECK_INT(a->status, LLM_OK);
    CHECK_INT(n_asleep(d), 0);
    CHECK_INT(a->n_reused, 0);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "a", true))->status, LLM_OK);
    move_session_files(false);
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(n_reused(4, "a", 1), LONG);
}

/* A session is forgotten when nothing of it is left, open or asleep. */
static void test_a_name_is_forgotten_with_the_last_of_it(void)
{
    driver *d = open_sim(4);
    CHECK_INT(say(d, "a", 1)->status, LLM_OK);
    usleep(2000);
    CHECK_INT(say(d, "a", 2)->status, LLM_OK); /* another timeline */
    CHECK_INT(driver_counter(d, LLM_COUNTER_SESSIONS_OPENED), 2);
    CHECK_INT(driver_close(d), 0);
    d = open_sim(1);
    CHECK_INT(say(d, "c", 3)->status, LLM_OK);
    CHECK_INT(d->n_forgotten, 0); /* the other timeline of a sleeps */
    CHECK_INT(say(d, "a", 1)->status, LLM_OK);
    CHECK_INT(d->n_forgotten, 1);
    CHECK_STR(d->forgotten, "c");
    CHECK_INT(say(d, "c", 3)->status, LLM_OK);
    CHECK_INT(d->n_forgotten, 2);
    CHECK_STR(d->forgotten, "a");
    CHECK_INT(driver_close(d), 0);
}

static void test_a_sleeper_that_expires_is_told(void)
{
    leave_three();
    sleep(2);
    driver *d = open_with("sim:hybrid,length=0", 2, 1);
    while (d->n_forgotten < 3) {
        driver_drain(d);
    }
    CHECK_INT(driver_close(d), 0);
    d = open_sim(2);
    CHECK_INT(driver_counter(d, LLM_COUNTER_SESSIONS_OPEN), 0);
    CHECK_INT(driver_close(d), 0);
}

/* ---- many at once ---- */

static _Atomic uint32_t n_directory_syncs;

/* Instead of the library's: counts. */
int fsync(int fd)
{
    struct stat facts;
    n_directory_syncs += fstat(fd, &facts) == 0 && S_ISDIR(facts.st_mode);
    return (int)syscall(SYS_fsync, fd);
}

static void test_many_expire_with_one_sync(void)
{
    enum { N = 40 };
    char name[8], path[FILES_PATH_BYTES];
    driver *d = open_sim(N);
    for (uint64_t i = 0; i < N; i++) {
        snprintf(name, sizeof name, "s%d", (int)i);
        CHECK_INT(say(d, name, i + 1)->status, LLM_OK);
    }
    CHECK_INT(driver_close(d), 0);
    files_model_directory(directory, path);
    CHECK_INT(files_count(path, "llmd-session"), N);
    sleep(2);
    n_directory_syncs = 0;
    d = open_with("sim:hybrid,length=0", 2, 1);
    while (d->n_forgotten < N) {
        driver_drain(d);
    }
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(n_directory_syncs, 1);
    CHECK_INT(files_count(path, "llmd-session") + files_count(path, "llmd-state"), 0);
}

static uint32_t n_pinned(const driver *d, const char *name)
{
    uint32_t n = 0;
    llm_page_view page_view;
    llm_page_read(d->page, &page_view);
    for (uint32_t place = 0; place < page_view.n_places; place++) {
        llm_session_view view;
        n += llm_page_session(d->page, place, &view) == LLM_OK && strcmp(view.name, name) == 0 &&
             view.is_pinned == LLM_PIN_ANCHORED;
    }
    return n;
}

/* As many as could be pinned with four places; only half a session is open. */
static void test_a_session_is_pinned_with_what_sleeps_of_it(void)
{
    driver *d = open_sim(4);
    CHECK_INT(say(d, "a", 1)->status, LLM_OK);
    usleep(2000);
    CHECK_INT(say(d, "a", 2)->status, LLM_OK);
    CHECK_INT(say(d, "b", 3)->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
    d = open_sim(2);
    CHECK_INT(n_asleep(d), 1); /* the first of a */
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "a", true))->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
    d = open_sim(4);
    CHECK_INT(n_pinned(d, "a"), 2);
    CHECK_INT(driver_close(d), 0);
}

static void pin_all_three(void)
{
    const char *names[] = {"a", "b", "c"};
    leave_three();
    driver *d = open_sim(4);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(driver_wait(d, driver_pin(d, 0, names[i], true))->status, LLM_OK);
    }
    CHECK_INT(driver_close(d), 0);
}

static void test_a_pinned_sleeper_that_is_reset_stays_pinned(void)
{
    pin_all_three();
    driver *d = open_sim(2);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "c", false))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_reset(d, 0, "a"))->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
    d = open_sim(4);
    CHECK_INT(n_pinned(d, "a"), 1);
    CHECK_INT(say(d, "a", 1)->n_reused, 0);
    CHECK_INT(driver_close(d), 0);
}

/* What was asked of the disk before a reset comes when the session is another one, whose state is being read, too. */
static void test_a_reset_sleeper_is_not_what_it_was(void)
{
    driver *d = open_with_a_asleep("sim:hybrid,length=0,step_us=100000");
    static int32_t tokens[LONG];
    make_prompt(tokens, LONG, 3);
    const generate_call call = {.session = "a", .prompt = tokens, .n_prompt = LONG, .max_tokens = 2};
    const uint64_t scratch = ask_for(d, NULL, 9, 2);
    driver_wait_started(d, scratch);
    driver_reset(d, 0, "a");
    driver_fork(d, 0, "c", "a", UINT32_MAX);
    const answer *a = driver_wait(d, driver_generate(d, &call));
    CHECK_INT(a->n_reused, LONG);
    driver *reference = driver_open_model("sim:hybrid,length=0");
    CHECK(driver_equals_cold(reference, &call, a));
    CHECK_INT(driver_close(reference), 0);
    CHECK_INT(driver_close(d), 0);
}

/* The timeline used last stays, and it is not the one that was pinned. */
static void test_a_pinned_session_that_is_reset_stays_pinned(void)
{
    driver *d = open_sim(4);
    CHECK_INT(say(d, "a", 1)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "a", true))->status, LLM_OK);
    CHECK_INT(say(d, "a", 2)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_reset(d, 0, "a"))->status, LLM_OK);
    CHECK_INT(n_pinned(d, "a"), 1);
    CHECK_INT(driver_close(d), 0);
    d = open_sim(4);
    CHECK_INT(n_pinned(d, "a"), 1);
    CHECK_INT(driver_close(d), 0);
}

int main(void)
{
    RUN_FILES(test_who_sleeps_is_told_from_the_start);
    RUN_FILES(test_what_wakes_is_not_written_over);
    RUN_FILES(test_a_fork_replaces_no_sleeper);
    RUN_FILES(test_what_was_reset_asleep_does_not_wake);
    RUN_FILES(test_a_sleeper_does_what_it_is_told);
    RUN_FILES(test_without_a_place_a_sleeper_sleeps_on);
    RUN_FILES(test_what_finds_no_place_replaces_no_sleeper);
    RUN_FILES(test_a_session_is_renamed_with_what_sleeps_of_it);
    RUN_FILES(test_a_failed_waking_writes_over_nothing);
    RUN_FILES(test_a_name_is_forgotten_with_the_last_of_it);
    RUN_FILES(test_a_sleeper_that_expires_is_told);
    RUN_FILES(test_many_expire_with_one_sync);
    RUN_FILES(test_a_session_is_pinned_with_what_sleeps_of_it);
    RUN_FILES(test_a_pinned_sleeper_that_is_reset_stays_pinned);
    RUN_FILES(test_a_reset_sleeper_is_not_what_it_was);
    RUN_FILES(test_a_pinned_session_that_is_reset_stays_pinned);
    return CHECK_RESULT();
}
