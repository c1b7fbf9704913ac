/* Tests a disk that is full or nearly full. No states are written, existing files stay, and no session loses its
 * tokens. The disk is simulated: the test sets the free space and the result of allocations. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "engine_driver.h"
#include "snapshot_files.h"
#include "states/durable.h"
#include "states/store.h"

enum { LONG = 300, N_SESSIONS = 20, DISK_MIB = 1000, MIB = 1 << 20 };

static char directory[FILES_PATH_BYTES];
static _Atomic bool is_held, is_full;
static _Atomic uint64_t n_free_bytes;
static _Atomic uint32_t n_allocated, n_refused, n_failing, n_seconds_later;

/* These three functions replace the library's. Only state files are allocated with fallocate. */
int fallocate(int fd, int mode, off_t offset, off_t n)
{
    while (is_held) {
        usleep(1000);
    }
    if (is_full || n_failing > 0) {
        n_failing -= n_failing > 0;
        n_refused++;
        errno = ENOSPC;
        return -1;
    }
    n_allocated++;
    return (int)syscall(SYS_fallocate, fd, mode, offset, n);
}

int fstatvfs(int fd, struct statvfs *out)
{
    (void)fd;
    *out = (struct statvfs){
        .f_frsize = 4096, .f_blocks = (uint64_t)DISK_MIB * MIB / 4096, .f_bavail = n_free_bytes / 4096};
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    const int result = (int)syscall(SYS_clock_gettime, clock, t);
    t->tv_sec += clock == CLOCK_MONOTONIC ? n_seconds_later : 0;
    return result;
}

/* Replaces the sleep of the simulated model, whose end is a time of the changed clock. */
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
    struct timespec t = *until;
    t.tv_sec -= clock == CLOCK_MONOTONIC && flags == TIMER_ABSTIME ? n_seconds_later : 0;
    return (int)syscall(SYS_clock_nanosleep, clock, flags, &t, left) == 0 ? 0 : errno;
}

static void reset_disk(void)
{
    is_held = is_full = false;
    n_free_bytes = (uint64_t)DISK_MIB * MIB;
    n_allocated = n_refused = n_failing = n_seconds_later = 0;
}

static driver *open_within(uint32_t n_sessions, uint64_t n_disk_bytes)
{
    return driver_open(&(llm_engine_options){.model = "sim:dense,length=0,state_kb=1024,step_us=500",
                                             .n_sessions = n_sessions,
                                             .n_parked_max = 2 * N_SESSIONS,
                                             .parked_bytes_max = 1,
                                             .parked_disk_bytes_max = n_disk_bytes,
                                             .capacity_policy = LLM_POLICY_PARK,
                                             .state_dir = directory});
}

static driver *open_with(uint32_t n_sessions)
{
    return open_within(n_sessions, 0);
}

static uint64_t begin(driver *d, const char *name, uint64_t seed, uint32_t max_tokens)
{
    static int32_t tokens[LONG];
    make_prompt(tokens, LONG, seed);
    return driver_generate(
        d, &(generate_call){.session = name, .prompt = tokens, .n_prompt = LONG, .max_tokens = max_tokens});
}

static void ask_each(driver *d, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        char name[16];
        snprintf(name, sizeof name, "s%u", i);
        CHECK_INT(driver_wait(d, begin(d, name, i + 1, 5))->status, LLM_OK);
        driver_wait(d, driver_unsave(d, 0, "nothing")); /* waits until the store has done all earlier jobs */
    }
}

static uint32_t count_complaints(driver *d, const char *part)
{
    uint32_t n = 0;
    char text[512];
    while (llm_engine_complaint(d->engine, text, sizeof text) == LLM_OK) {
        n += strstr(text, part) != NULL;
    }
    return n;
}

static uint32_t count_states(void)
{
    char path[FILES_PATH_BYTES];
    files_model_directory(directory, path);
    return files_count(path, SNAPSHOT_STATE) + files_count(path, SNAPSHOT_STATE_WRITING);
}

/* Only one state is tried, not one for each parked session. After a pause, another state is tried. When this works, a
 * message says so. */
static void test_a_full_disk_is_tried_once(void)
{
    reset_disk();
    driver *d = open_with(2);
    is_full = true;
    ask_each(d, 0, N_SESSIONS);
    driver_fence(d);
    CHECK_INT(n_refused, 1);
    CHECK_INT(count_states(), 0);
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_DROPPED), N_SESSIONS - 2);
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_DISK_REFUSES), 1);
    CHECK_INT(driver_session(d, "s0").n_tokens, driver_session(d, "s19").n_tokens);
    CHECK_INT(count_complaints(d, "No space left"), 1);
    is_full = false;
    ask_each(d, N_SESSIONS, N_SESSIONS + 2);
    CHECK_INT(n_allocated, 0);
    n_seconds_later = STORE_PAUSE_S + 1;
    ask_each(d, N_SESSIONS + 2, N_SESSIONS + 4);
    CHECK_INT(n_allocated, 2);
    CHECK_INT(count_states(), 2);
    driver_fence(d);
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_DISK_REFUSES), 0);
    CHECK_INT(count_complaints(d, "again"), 1);
    CHECK_INT(driver_close(d), 0);
}

/* A part of the disk is reserved for other programs. No state is written into this part. */
static void test_a_part_of_the_disk_is_left_to_others(void)
{
    reset_disk();
    driver *d = open_with(2);
    n_free_bytes = (uint64_t)DISK_MIB * MIB / DURABLE_RESERVE_SHARE + MIB / 2;
    ask_each(d, 0, 4);
    CHECK_INT(n_allocated, 0);
    CHECK_INT(count_complaints(d, "No space left"), 1);
    n_free_bytes = n_free_bytes + 2 * MIB;
    n_seconds_later = STORE_PAUSE_S + 1;
    ask_each(d, 4, 6);
    CHECK_INT(n_allocated, 2);
    CHECK_INT(driver_close(d), 0);
}

/* A request waits for a state that is being written. If the write fails, the state stays in memory. */
static void test_a_state_that_is_waited_for_outlives_its_failed_write(void)
{
    reset_disk();
    driver *d = open_with(1);
    CHECK_INT(driver_wait(d, begin(d, "a", 1, 5))->status, LLM_OK);
    is_held = true;
    const uint64_t endless = begin(d, "b", 2, 0);
    driver_wait_text(d, endless);
    const uint64_t waiting = begin(d, "a", 1, 5);
    driver_fence(d);
    is_full = true;
    is_held = false;
    driver_wait(d, driver_unsave(d, 0, "nothing"));
    driver_cancel(d, endless);
    CHECK(driver_wait(d, waiting)->n_reused >= LONG - 1);
    CHECK_INT(n_refused, 1);
    CHECK_INT(driver_close(d), 0);
}

static driver *open_for_large(uint64_t n_disk_bytes)
{
    return driver_open(&(llm_engine_options){.model = "sim:dense,length=0,ctx=65536",
                                             .n_ctx = 65536,
                                             .parked_bytes_max = 1,
                                             .parked_disk_bytes_max = n_disk_bytes,
                                             .capacity_policy = LLM_POLICY_PARK,
                                             .state_dir = directory});
}

static void ask_large(driver *d)
{
    enum { LARGE = 40000 };
    int32_t *tokens = malloc(LARGE * sizeof *tokens);
    make_prompt(tokens, LARGE, 9);
    const generate_call call = {.session = "large", .prompt = tokens, .n_prompt = LARGE, .max_tokens = 5};
    CHECK_INT(driver_wait(d, driver_generate(d, &call))->status, LLM_OK);
    free(tokens);
}

static void park(driver *d, const char *name)
{
    CHECK_INT(driver_wait(d, driver_park(d, 0, name))->status, LLM_OK);
    driver_wait(d, driver_unsave(d, 0, "nothing")); /* waits until the state is on the disk, if there is room */
    driver_fence(d);
}

/* The large state has room only if all other states are removed. One of them is worth more. */
static void test_no_state_goes_for_one_that_does_not_fit(void)
{
    reset_disk();
    driver *d = open_for_large(0);
    ask_large(d);
    park(d, "large");
    const uint64_t n_bytes = driver_counter(d, LLM_COUNTER_PARKED_DISK_BYTES);
    CHECK_INT(driver_close(d), 0);
    files_remove_directory(directory);
    files_make_directory(directory);

    d = open_for_large(n_bytes + 1);
    CHECK_INT(driver_wait(d, begin(d, "earlier", 1, 5))->status, LLM_OK);
    park(d, "earlier");
    ask_large(d);
    CHECK_INT(driver_wait(d, begin(d, "later", 2, 5))->status, LLM_OK);
    park(d, "later");
    CHECK_INT(count_states(), 2);
    park(d, "large");
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_DROPPED), 1);
    CHECK_INT(count_states(), 2);
    CHECK(driver_wait(d, begin(d, "earlier", 1, 5))->n_reused >= LONG - 1);
    CHECK_INT(driver_close(d), 0);
}

static void test_a_save_says_what_the_disk_said(void)
{
    reset_disk();
    driver *d = open_with(2);
    CHECK_INT(driver_wait(d, begin(d, "a", 1, 5))->status, LLM_OK);
    is_full = true;
    const answer *a = driver_wait(d, driver_command(d, LLM_COMMAND_SAVE, 0, "a", "label"));
    CHECK_INT(a->status, LLM_IO);
    CHECK_INT(a->os_error, ENOSPC);
    is_full = false;
    a = driver_wait(d, driver_command(d, LLM_COMMAND_SAVE, 0, "a", "label"));
    CHECK_INT(a->status, LLM_OK);
    CHECK_INT(a->os_error, 0);
    CHECK_INT(driver_close(d), 0);
}

/* When the write fails, the request that waited for a slot has already taken the state from memory. */
static void test_a_write_that_fails_takes_no_part_of_the_limit(void)
{
    reset_disk();
    driver *d = open_with(1);
    CHECK_INT(driver_wait(d, begin(d, "a", 1, 5))->status, LLM_OK);
    is_held = true;
    CHECK_INT(driver_wait(d, begin(d, "b", 2, 5))->status, LLM_OK);
    CHECK(driver_wait(d, begin(d, "a", 1, 5))->n_reused >= LONG - 1);
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_DISK_BYTES) / MIB, 2);
    is_full = true;
    is_held = false;
    driver_wait(d, driver_unsave(d, 0, "nothing"));
    driver_fence(d);
    CHECK_INT(n_refused, 2); /* the state of b was sent to the disk before the disk was full */
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_DISK_BYTES), 0);
    CHECK_INT(count_states(), 0);
    CHECK_INT(driver_close(d), 0);
}

/* A state is sent to the disk twice, and both writes fail. There is no file. */
static void test_two_writes_that_fail_take_no_part_of_the_limit(void)
{
    reset_disk();
    driver *d = open_with(1);
    CHECK_INT(driver_wait(d, begin(d, "a", 1, 5))->status, LLM_OK);
    is_held = true;
    CHECK_INT(driver_wait(d, begin(d, "b", 2, 5))->status, LLM_OK);
    CHECK(driver_wait(d, begin(d, "a", 1, 5))->n_reused >= LONG - 1);
    CHECK_INT(driver_wait(d, driver_park(d, 0, "a"))->status, LLM_OK);
    is_full = true;
    is_held = false;
    driver_wait(d, driver_unsave(d, 0, "nothing"));
    driver_fence(d);
    CHECK_INT(n_refused, 3);
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_DISK_BYTES), 0);
    CHECK_INT(count_states(), 0);
    CHECK_INT(driver_close(d), 0);
}

/* Both writes have the same size, and only the later one succeeds. */
static void test_a_write_after_one_that_fails_is_counted(void)
{
    reset_disk();
    driver *d = open_with(1);
    CHECK_INT(driver_wait(d, begin(d, "a", 1, 5))->status, LLM_OK);
    is_held = true;
    CHECK_INT(driver_wait(d, driver_park(d, 0, "a"))->status, LLM_OK);
    CHECK(driver_wait(d, begin(d, "a", 1, 5))->n_reused >= LONG - 1);
    CHECK_INT(driver_wait(d, driver_park(d, 0, "a"))->status, LLM_OK);
    CHECK(driver_wait(d, begin(d, "a", 1, 5))->n_reused >= LONG - 1);
    n_failing = 1;
    is_held = false;
    driver_wait(d, driver_unsave(d, 0, "nothing"));
    driver_fence(d);
    CHECK_INT(n_refused, 1);
    CHECK_INT(count_states(), 1);
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_DISK_BYTES) / MIB, 1);
    CHECK_INT(driver_close(d), 0);
}

/* When the write fails, a request has already taken the state from memory, and no other write waits. Nevertheless, the
 * next state is not tried. A stop tries it. */
static void test_any_write_that_fails_keeps_others_from_a_full_disk(void)
{
    reset_disk();
    driver *d = open_with(1);
    CHECK_INT(driver_wait(d, begin(d, "a", 1, 5))->status, LLM_OK);
    is_held = true;
    CHECK_INT(driver_wait(d, begin(d, "b", 2, 5))->status, LLM_OK);
    const uint64_t closing = driver_close_session(d, 0, "b");
    CHECK(driver_wait(d, begin(d, "a", 1, 5))->n_reused >= LONG - 1);
    is_full = true;
    is_held = false;
    driver_wait(d, closing);
    driver_wait(d, driver_unsave(d, 0, "nothing"));
    driver_fence(d);
    CHECK_INT(n_refused, 1);
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_DISK_REFUSES), 1);
    ask_each(d, 2, 3);
    CHECK_INT(n_refused, 1);
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_DROPPED), 1);
    is_full = false;
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(count_states(), 1);
}

/* The next start continues with the older state. */
static void test_a_stop_that_cannot_write_leaves_the_older_state(void)
{
    reset_disk();
    driver *d = open_with(1);
    ask_each(d, 0, 2);
    CHECK_INT(count_states(), 1);
    CHECK(driver_wait(d, begin(d, "s0", 1, 9))->n_reused >= LONG - 1);
    driver_wait(d, driver_unsave(d, 0, "nothing"));
    const uint32_t n_before = count_states();
    CHECK(n_before >= 1);
    is_full = true;
    CHECK_INT(driver_close(d), 0);
    CHECK(n_refused > 0);
    CHECK_INT(count_states(), n_before);
}

/* There is no room for the newer state, neither on the disk nor in memory. The older state on the disk stays. */
static void test_a_spill_that_cannot_write_leaves_the_older_state(void)
{
    reset_disk();
    driver *d = open_with(1);
    ask_each(d, 0, 2);
    CHECK_INT(count_states(), 1);
    CHECK(driver_wait(d, begin(d, "s0", 1, 9))->n_reused >= LONG - 1);
    driver_wait(d, driver_unsave(d, 0, "nothing"));
    CHECK_INT(count_states(), 2);
    const uint64_t n_bytes = driver_counter(d, LLM_COUNTER_PARKED_DISK_BYTES);
    is_full = true;
    ask_each(d, 2, 3);
    driver_fence(d);
    CHECK_INT(n_refused, 1);
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_DROPPED), 1);
    CHECK_INT(count_states(), 2);
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_DISK_BYTES), n_bytes);
    CHECK_INT(driver_close(d), 0);
    is_full = false;
    d = open_with(1);
    CHECK(driver_wait(d, begin(d, "s0", 1, 9))->n_reused >= LONG - 1);
    CHECK_INT(driver_close(d), 0);
}

/* A request waited for a state on the disk, and was cancelled. Long afterwards, the session's next request waits
 * anew. */
static void test_a_cancelled_request_takes_its_wait_for_the_disk_along(void)
{
    enum { LONGER_THAN_ANY_WAIT_S = 3600 };
    reset_disk();
    driver *d = open_with(1);
    ask_each(d, 0, 2); /* the state of s0 is now on the disk */
    is_held = true;
    /* the state of s1 is still being written, and reads come after it */
    CHECK_INT(driver_wait(d, begin(d, "s2", 3, 5))->status, LLM_OK);
    const uint64_t cancelled = begin(d, "s0", 1, 5);
    driver_fence(d);
    driver_cancel(d, cancelled);
    CHECK_INT(driver_wait(d, cancelled)->finished.outcome, LLM_OUTCOME_CANCELLED);
    n_seconds_later = LONGER_THAN_ANY_WAIT_S;
    const uint64_t again = begin(d, "s0", 1, 5);
    driver_fence(d);
    is_held = false;
    CHECK(driver_wait(d, again)->n_reused >= LONG - 1);
    CHECK_INT(driver_close(d), 0);
}

/* A write that hangs may free a slot when it ends, so a request waits for it. But the request does not wait forever if
 * the slot belongs to a generation that nobody reads. */
static void test_a_disk_that_hangs_keeps_no_slot_for_the_unread(void)
{
    enum { LONGER_THAN_ANY_WAIT_S = 3600 };
    reset_disk();
    driver *d = open_with(1);
    CHECK_INT(driver_wait(d, begin(d, "a", 1, 5))->status, LLM_OK);
    is_held = true;
    const uint64_t unread = begin(d, "b", 2, 0);
    driver_wait_text(d, unread);
    driver_pause(d, unread, true);
    const uint64_t waiting = begin(d, "c", 3, 5);
    driver_fence(d);
    CHECK(!driver_answer(d, waiting)->is_started);
    n_seconds_later = LONGER_THAN_ANY_WAIT_S;
    driver_fence(d);
    CHECK_INT(driver_wait(d, waiting)->status, LLM_OK);
    CHECK(!driver_answer(d, unread)->is_over);
    is_held = false;
    driver_cancel(d, unread);
    driver_wait_all(d);
    CHECK_INT(driver_close(d), 0);
}

/* The disk has room for three states: those of the most recently used sessions. If the limit is lower at the next
 * start, more states are removed. */
static void test_states_stay_within_the_limit_of_the_disk(void)
{
    reset_disk();
    driver *d = open_within(2, 3 * MIB + MIB / 2);
    ask_each(d, 0, 8);
    driver_fence(d);
    CHECK_INT(count_states(), 3);
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_DISK_BYTES) / MIB, 3);
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_DROPPED), 3);
    CHECK(driver_wait(d, begin(d, "s5", 6, 5))->n_reused >= LONG - 1);
    const answer *a = driver_wait(d, begin(d, "s0", 1, 5));
    CHECK_INT(a->reason, LLM_REASON_TORN);
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(count_states(), 3);
    d = open_within(2, MIB + MIB / 2);
    driver_wait(d, driver_unsave(d, 0, "nothing"));
    CHECK_INT(count_states(), 1);
    CHECK_INT(driver_session(d, "s1").n_tokens, driver_session(d, "s0").n_tokens);
    CHECK_INT(count_complaints(d, ""), 0);
    CHECK_INT(driver_close(d), 0);
}

int main(void)
{
    RUN_FILES(test_states_stay_within_the_limit_of_the_disk);
    RUN_FILES(test_a_full_disk_is_tried_once);
    RUN_FILES(test_a_part_of_the_disk_is_left_to_others);
    RUN_FILES(test_a_state_that_is_waited_for_outlives_its_failed_write);
    RUN_FILES(test_a_save_says_what_the_disk_said);
    RUN_FILES(test_no_state_goes_for_one_that_does_not_fit);
    RUN_FILES(test_a_write_that_fails_takes_no_part_of_the_limit);
    RUN_FILES(test_two_writes_that_fail_take_no_part_of_the_limit);
    RUN_FILES(test_a_write_after_one_that_fails_is_counted);
    RUN_FILES(test_any_write_that_fails_keeps_others_from_a_full_disk);
    RUN_FILES(test_a_stop_that_cannot_write_leaves_the_older_state);
    RUN_FILES(test_a_spill_that_cannot_write_leaves_the_older_state);
    RUN_FILES(test_a_cancelled_request_takes_its_wait_for_the_disk_along);
    RUN_FILES(test_a_disk_that_hangs_keeps_no_slot_for_the_unread);
    return CHECK_RESULT();
}
