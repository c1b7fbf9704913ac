/* What a session's files promise, through the engine: other options, kills, disks that fail, too few places. */
#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "engine_driver.h"
#include "page.h"
#include "page_layout.h"
#include "snapshot_files.h"

enum { LONG = 400, N_MANY = 24, MANY_STATE_KB = 512 };

static char directory[FILES_PATH_BYTES];

static const answer *say(driver *d, const char *session, uint64_t seed)
{
    static int32_t tokens[LONG];
    make_prompt(tokens, LONG, seed);
    const generate_call call = {.session = session, .prompt = tokens, .n_prompt = LONG, .max_tokens = 5};
    return driver_wait(d, driver_generate(d, &call));
}

static driver *open_sim(const char *simulated, uint32_t n_sessions, llm_policy policy)
{
    return driver_open(&(llm_engine_options){.model = simulated,
                                             .n_sessions = n_sessions,
                                             .capacity_policy = policy,
                                             .n_parked_max = 1,
                                             .state_dir = directory});
}

static driver *open_usual(uint32_t n_sessions)
{
    return open_sim("sim:hybrid,length=0", n_sessions, LLM_POLICY_PARK);
}

/* The open session of that name; slot UINT32_MAX: there is none. */
static llm_session_view view_of(const driver *d, const char *name)
{
    llm_page_view page_view;
    llm_page_read(d->page, &page_view);
    for (uint32_t slot = 0; slot < page_view.n_slots; slot++) {
        llm_session_view view;
        if (llm_page_session(d->page, slot, &view) == LLM_OK && strcmp(view.name, name) == 0) {
            return view;
        }
    }
    return (llm_session_view){.slot = UINT32_MAX};
}

static bool is_open(const driver *d, const char *name)
{
    return view_of(d, name).slot != UINT32_MAX;
}

/* All complaints in one text. */
static const char *complaints(driver *d)
{
    static char all[1 << 14];
    char text[512];
    all[0] = '\0';
    while (llm_engine_complaint(d->engine, text, sizeof text) == LLM_OK) {
        strcat(all, text);
        strcat(all, "\n");
    }
    return all;
}

/* The directory of the one model that was served. */
static void model_directory(char *out, size_t n)
{
    DIR *d = opendir(directory);
    const struct dirent *entry;
    while ((entry = readdir(d)) != NULL) {
        if (entry->d_name[0] != '.') {
            snprintf(out, n, "%.100s/%.16s", directory, entry->d_name);
        }
    }
    closedir(d);
}

static uint32_t count_files(const char *ending)
{
    char path[FILES_PATH_BYTES];
    uint32_t n = 0;
    model_directory(path, sizeof path);
    DIR *d = opendir(path);
    const struct dirent *entry;
    while ((entry = readdir(d)) != NULL) {
        const char *dot = strchr(entry->d_name, '.');
        n += dot != NULL && strcmp(dot + 1, ending) == 0;
    }
    closedir(d);
    return n;
}

/* ---- other options ---- */

/* As many places, a context or another memory layout: the session is there with its tokens, and is read again. */
static void test_another_layout_keeps_the_session(void)
{
    driver *d = open_usual(4);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "it", true))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_command(d, LLM_COMMAND_SAVE, 0, "it", "label"))->status, LLM_OK);
    const uint32_t n = view_of(d, "it").n_tokens;
    CHECK_INT(driver_close(d), 0);
    d = open_sim("sim:hybrid,length=0,layout=1", 2, LLM_POLICY_PARK);
    CHECK_INT(view_of(d, "it").n_tokens, n);
    CHECK_INT(view_of(d, "it").is_pinned, 1);
    CHECK(strstr(complaints(d), "1 session was saved under another memory layout") != NULL);
    CHECK_INT(say(d, "it", 1)->reason, LLM_REASON_TORN);
    const answer *loaded = driver_wait(d, driver_command(d, LLM_COMMAND_LOAD, 0, "other", "label"));
    CHECK_INT(loaded->status, LLM_OK);
    CHECK_INT(loaded->n_tokens, n);
    CHECK_INT(driver_close(d), 0);
}

static void test_more_places_keep_the_state(void)
{
    driver *d = open_usual(4);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
    d = open_usual(7);
    CHECK_STR(complaints(d), "");
    CHECK_INT(say(d, "it", 1)->n_reused, LONG);
    CHECK_INT(driver_close(d), 0);
}

/* ---- kills ---- */

static const char *segment_name(void)
{
    static char name[64];
    snprintf(name, sizeof name, "/llmd-test-files-%d", (int)getpid());
    return name;
}

/* A segment with this session as an engine like `d` leaves it when its process is killed. */
static page *leave_segment(const driver *d, const char *name, const int32_t *tokens, uint32_t n, bool is_pinned)
{
    llm_page_view view;
    llm_page_read(d->page, &view);
    page *p = NULL;
    char error[LLM_TEXT_BYTES_MAX];
    if (page_open(segment_name(), view.n_slots, view.n_ctx, view.model, view.fingerprint, &p, error, sizeof error) !=
        LLM_OK) {
        abort();
    }
    page_slot_open(p, 0, 0, name);
    page_append(p, 0, tokens, n);
    page_record_store(
        p, 0,
        &(page_record){.state = LLM_STATE_IDLE, .diverged_at = -1, .used_ms = UINT32_MAX, .is_pinned = is_pinned});
    const uint64_t another_start = 1; /* no process is as old as that: the owner is dead */
    const int fd = shm_open(segment_name(), O_RDWR, 0);
    if (pwrite(fd, &another_start, sizeof another_start, offsetof(page_header, pid_start)) != sizeof another_start) {
        abort();
    }
    close(fd);
    return p;
}

static driver *open_after_kill(void)
{
    return driver_open(&(llm_engine_options){.model = "sim:hybrid,length=0",
                                             .n_sessions = 2,
                                             .capacity_policy = LLM_POLICY_PARK,
                                             .dead_page_name = segment_name(),
                                             .state_dir = directory});
}

/* Killed, started, stopped in order before anybody used it: the session is known, pinned or not. */
static void test_an_orderly_stop_knows_no_less_than_a_kill(void)
{
    for (int pinned = 0; pinned < 2; pinned++) {
        driver *d = open_usual(2);
        int32_t tokens[LONG];
        make_prompt(tokens, LONG, 7);
        page *dead = leave_segment(d, "it", tokens, LONG, pinned);
        CHECK_INT(driver_close(d), 0);
        d = open_after_kill();
        CHECK_INT(view_of(d, "it").n_tokens, LONG);
        CHECK_INT(driver_close(d), 0);
        page_close(dead);
        d = open_usual(2);
        CHECK_INT(view_of(d, "it").n_tokens, LONG);
        CHECK_INT(view_of(d, "it").is_pinned, pinned);
        CHECK_INT(driver_wait(d, driver_close_session(d, 0, "it"))->status, LLM_OK);
        CHECK_INT(driver_close(d), 0);
    }
}

/* The file holds the state of fewer tokens than the segment knows: both are of use, together. */
static void test_longer_tokens_keep_the_older_state(void)
{
    driver *d = open_usual(2);
    int32_t tokens[1024];
    const uint32_t n = driver_tokens(d, say(d, "it", 1)->slot, tokens, 1024);
    make_prompt(tokens + n, 100, 3);
    page *dead = leave_segment(d, "it", tokens, n + 100, false);
    CHECK_INT(driver_close(d), 0);
    d = open_after_kill();
    CHECK_INT(view_of(d, "it").n_tokens, n + 100);
    CHECK_INT(driver_close(d), 0); /* and once more through the files */
    page_close(dead);
    d = open_usual(2);
    CHECK_INT(view_of(d, "it").n_tokens, n + 100);
    const generate_call call = {.session = "it", .prompt = tokens, .n_prompt = n + 100, .max_tokens = 3};
    const answer *a = driver_wait(d, driver_generate(d, &call));
    CHECK_INT(a->n_reused, n);
    CHECK_INT(a->reason, LLM_REASON_RESTORED);
    driver *reference = driver_open_model("sim:hybrid,length=0");
    CHECK(driver_equals_cold(reference, &call, a));
    CHECK_INT(driver_close(reference), 0);
    CHECK_INT(driver_close(d), 0);
}

/* ---- disks that fail ---- */

static void test_a_pin_that_cannot_be_written_is_none(void)
{
    char path[FILES_PATH_BYTES];
    driver *d = open_usual(2);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    model_directory(path, sizeof path);
    files_remove_directory(path);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "it", true))->status, LLM_IO);
    CHECK_INT(view_of(d, "it").is_pinned, 0);
    CHECK(strstr(complaints(d), "cannot be written") != NULL);
    CHECK_INT(mkdir(path, 0700), 0);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "it", true))->status, LLM_OK);
    CHECK_INT(view_of(d, "it").is_pinned, 1);
    CHECK_INT(count_files("llmd-session"), 1); /* now, not at the stop */
    files_remove_directory(path);
    CHECK_INT(driver_wait(d, driver_command(d, LLM_COMMAND_RENAME, 0, "it", "new"))->status, LLM_IO);
    CHECK(is_open(d, "it") && !is_open(d, "new"));
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "it", false))->status, LLM_IO);
    CHECK_INT(view_of(d, "it").is_pinned, 1);
    CHECK_INT(mkdir(path, 0700), 0);
    CHECK_INT(driver_close(d), 0);
}

static void test_a_close_that_cannot_be_written_is_told(void)
{
    char path[FILES_PATH_BYTES];
    driver *d = open_usual(2);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "it", true))->status, LLM_OK);
    model_directory(path, sizeof path);
    files_remove_directory(path);
    CHECK_INT(driver_wait(d, driver_close_session(d, 0, "it"))->status, LLM_IO);
    CHECK(!is_open(d, "it"));
    CHECK_INT(mkdir(path, 0700), 0);
    CHECK_INT(driver_close(d), 0);
}

/* What is answered has happened on the disk. */
static void test_answers_come_when_the_files_are_there_or_gone(void)
{
    driver *d = open_usual(2);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "it", true))->status, LLM_OK);
    CHECK_INT(count_files("llmd-session"), 1);
    CHECK_INT(driver_wait(d, driver_reset(d, 0, "it"))->status, LLM_OK);
    CHECK_INT(count_files("llmd-session"), 1); /* pinned: an empty one */
    CHECK_INT(driver_close(d), 0);
    d = open_usual(2);
    CHECK(!is_open(d, "it") || view_of(d, "it").n_tokens == 0);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "it", true))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_close_session(d, 0, "it"))->status, LLM_OK);
    CHECK_INT(count_files("llmd-session"), 0);
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(count_files("llmd-session") + count_files("llmd-state"), 0);
}

/* ---- too few places ---- */

static void leave_four(llm_policy policy)
{
    const char *names[] = {"pinned", "b", "c", "d"};
    driver *d = open_sim("sim:hybrid,length=0", 4, policy);
    for (uint64_t i = 0; i < 4; i++) {
        say(d, names[i], i);
        usleep(2000); /* stamps count milliseconds */
    }
    driver_wait(d, driver_pin(d, 0, "pinned", true));
    driver_close(d);
}

static void close_names(driver *d)
{
    const char *names[] = {"pinned", "b", "c", "d"};
    for (int i = 0; i < 4; i++) {
        driver_wait(d, driver_close_session(d, 0, names[i]));
    }
}

/* The pinned first, then the newest; the others sleep, are told, and wake when they are asked for. */
static void test_what_finds_no_place_sleeps(void)
{
    leave_four(LLM_POLICY_EVICT);
    driver *d = open_sim("sim:hybrid,length=0", 2, LLM_POLICY_EVICT);
    CHECK(is_open(d, "pinned") && is_open(d, "d") && !is_open(d, "b") && !is_open(d, "c"));
    driver_loop(d);
    CHECK_INT(driver_counter(d, LLM_COUNTER_SESSIONS_DORMANT), 2);
    const char *told = complaints(d);
    CHECK(strstr(told, "\"b\" found no place") != NULL && strstr(told, "\"c\" found no place") != NULL);
    const answer *a = say(d, "b", 1);
    CHECK_INT(a->n_reused, LONG);
    driver_loop(d);
    CHECK_INT(driver_counter(d, LLM_COUNTER_SESSIONS_DORMANT), 1);
    close_names(d);
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(count_files("llmd-session") + count_files("llmd-state"), 0);
}

/* Under every policy, asleep or open: a name that was closed is gone for good. */
static void test_a_closed_session_never_comes_back(void)
{
    for (llm_policy policy = LLM_POLICY_REFUSE; policy < LLM_POLICY_N; policy++) {
        leave_four(policy);
        driver *d = open_sim("sim:hybrid,length=0", 1, policy);
        close_names(d);
        CHECK_INT(driver_wait(d, driver_close_session(d, 0, "b"))->status, LLM_NOT_FOUND);
        CHECK_INT(driver_close(d), 0);
        d = open_sim("sim:hybrid,length=0", 4, policy);
        CHECK(!is_open(d, "pinned") && !is_open(d, "b") && !is_open(d, "c") && !is_open(d, "d"));
        CHECK_INT(driver_close(d), 0);
    }
}

static void test_a_shorter_context_keeps_the_session(void)
{
    driver *d = open_usual(2);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    const uint32_t n = view_of(d, "it").n_tokens;
    CHECK_INT(driver_close(d), 0);
    const llm_engine_options shorter = {.model = "sim:hybrid,length=0",
                                        .n_sessions = 2,
                                        .n_ctx = 256,
                                        .capacity_policy = LLM_POLICY_PARK,
                                        .state_dir = directory};
    d = driver_open(&shorter);
    CHECK(!is_open(d, "it"));
    CHECK(strstr(complaints(d), "more tokens than --ctx-size holds") != NULL);
    CHECK_INT(driver_close(d), 0);
    d = open_usual(2);
    CHECK_INT(view_of(d, "it").n_tokens, n);
    CHECK_INT(driver_wait(d, driver_close_session(d, 0, "it"))->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
}

/* ---- memory ---- */

/* Two seats, two dozen sessions on the disk that all come back at once: what cannot be seated is not read. */
static void test_sessions_that_return_together_are_read_one_by_one(void)
{
    char simulated[64];
    snprintf(simulated, sizeof simulated, "sim:dense,length=0,state_kb=%d", MANY_STATE_KB);
    const llm_engine_options options = {.model = simulated,
                                        .n_sessions = 2,
                                        .capacity_policy = LLM_POLICY_PARK,
                                        .n_parked_max = N_MANY,
                                        .parked_bytes_max = 1,
                                        .state_dir = directory};
    driver *d = driver_open(&options);
    for (uint64_t i = 0; i < N_MANY; i++) {
        const char name[] = {(char)('a' + i), '\0'};
        CHECK_INT(say(d, name, i)->status, LLM_OK);
    }
    CHECK_INT(driver_close(d), 0);
    d = driver_open(&options);
    uint64_t requests[N_MANY];
    for (uint64_t i = 0; i < N_MANY; i++) {
        const char name[] = {(char)('a' + i), '\0'};
        int32_t tokens[LONG];
        make_prompt(tokens, LONG, i);
        const generate_call call = {.session = name, .prompt = tokens, .n_prompt = LONG, .max_tokens = 5};
        requests[i] = driver_generate(d, &call);
    }
    uint64_t most = 0;
    for (uint64_t i = 0; i < N_MANY;) {
        driver_drain(d);
        const uint64_t n = driver_counter(d, LLM_COUNTER_PARKED_MEMORY_BYTES);
        most = n > most ? n : most;
        i += driver_answer(d, requests[i])->is_over;
    }
    for (uint64_t i = 0; i < N_MANY; i++) {
        CHECK_INT(driver_answer(d, requests[i])->reason, LLM_REASON_RESTORED);
    }
    CHECK(most <= 4u * MANY_STATE_KB * 1024);
    CHECK_INT(driver_close(d), 0);
}

/* ---- labels ---- */

/* What lies on the disk or was lost can be saved, too: its tokens are known. */
static void test_labels(void)
{
    driver *d = open_usual(2);
    CHECK_INT(say(d, "it", 1)->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
    d = open_usual(2);
    CHECK_INT(driver_wait(d, driver_command(d, LLM_COMMAND_SAVE, 0, "it", "label"))->status, LLM_OK);
    llm_saved found[2];
    CHECK_INT(llm_engine_saved(d->engine, found, 2), 1);
    CHECK_STR(found[0].label, "label");
    CHECK(found[0].n_bytes > 0); /* a second name of the state on the disk */
    CHECK_INT(driver_wait(d, driver_close_session(d, 0, "it"))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_command(d, LLM_COMMAND_LOAD, 0, "back", "label"))->status, LLM_OK);
    CHECK_INT(say(d, "back", 1)->n_reused, LONG);
    CHECK_INT(driver_wait(d, driver_unsave(d, 7, "label"))->status, LLM_NOT_FOUND);
    CHECK_INT(driver_wait(d, driver_unsave(d, 0, "label"))->status, LLM_OK);
    CHECK_INT(llm_engine_saved(d->engine, found, 2), 0);
    CHECK_INT(driver_wait(d, driver_close_session(d, 0, "back"))->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
}

static void in_its_own_directory(void (*test)(void))
{
    files_make_directory(directory);
    test();
    files_remove_directory(directory);
}

#define RUN_FILES(test)                                                                                                \
    do {                                                                                                               \
        int check_before = check_failures;                                                                             \
        in_its_own_directory(test);                                                                                    \
        printf("%s %s\n", check_failures == check_before ? "ok" : "FAILED", #test);                                    \
        fflush(stdout);                                                                                                \
    } while (0)

int main(void)
{
    RUN_FILES(test_another_layout_keeps_the_session);
    RUN_FILES(test_more_places_keep_the_state);
    RUN_FILES(test_an_orderly_stop_knows_no_less_than_a_kill);
    RUN_FILES(test_longer_tokens_keep_the_older_state);
    RUN_FILES(test_a_pin_that_cannot_be_written_is_none);
    RUN_FILES(test_a_close_that_cannot_be_written_is_told);
    RUN_FILES(test_answers_come_when_the_files_are_there_or_gone);
    RUN_FILES(test_what_finds_no_place_sleeps);
    RUN_FILES(test_a_closed_session_never_comes_back);
    RUN_FILES(test_a_shorter_context_keeps_the_session);
    RUN_FILES(test_sessions_that_return_together_are_read_one_by_one);
    RUN_FILES(test_labels);
    return CHECK_RESULT();
}
