/* Tests more sessions on disk than --max-sessions and --max-parked allow. After a start, each session is unchanged and
 * obeys commands. Also tests sessions that get no entry. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "dead_segment.h"
#include "snapshot_files.h"

enum { LONG = 400, TITLE = 90 /* a seed that no other prompt has */ };

static char directory[FILES_PATH_BYTES];

static _Atomic uint32_t n_ms_later;

/* Replaces the library's function. Time stamps are later by n_ms_later. */
int clock_gettime(clockid_t clock, struct timespec *t)
{
    const int result = (int)syscall(SYS_clock_gettime, clock, t);
    if (clock == CLOCK_REALTIME || clock == CLOCK_BOOTTIME) {
        const uint64_t n_ns = (uint64_t)t->tv_nsec + (uint64_t)n_ms_later * 1000000;
        t->tv_sec += (time_t)(n_ns / 1000000000);
        t->tv_nsec = (long)(n_ns % 1000000000);
    }
    return result;
}

static const char HYBRID[] = "sim:hybrid,length=0";
static const char DENSE[] = "sim:dense,length=0";

static driver *open_with(const char *simulated, uint32_t n_sessions, llm_policy policy)
{
    return driver_open(&(llm_engine_options){.model = simulated,
                                             .n_sessions = n_sessions,
                                             .n_parked_max = 1,
                                             .capacity_policy = policy,
                                             .state_dir = directory});
}

static driver *open_sim(uint32_t n_sessions)
{
    return open_with(HYBRID, n_sessions, LLM_POLICY_EVICT);
}

static void check(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void start_anew(void)
{
    files_remove_directory(directory);
    files_make_directory(directory);
}

static uint64_t ask_for(driver *d, const char *name, uint64_t seed, uint32_t max_tokens)
{
    int32_t tokens[LONG];
    make_prompt(tokens, LONG, seed);
    return driver_generate(
        d, &(generate_call){.session = name, .prompt = tokens, .n_prompt = LONG, .max_tokens = max_tokens});
}

static const answer *say(driver *d, const char *name, uint64_t seed)
{
    const answer *a = driver_wait(d, ask_for(d, name, seed, 5));
    n_ms_later += 2; /* so that the next time stamp differs */
    return a;
}

static const char *const abc[] = {"a", "b", "c"};

/* Leaves three sessions, of which a is the oldest. */
static void leave_three(void)
{
    driver *d = open_sim(3);
    for (uint64_t i = 0; i < 3; i++) {
        CHECK_INT(say(d, abc[i], i + 1)->status, LLM_OK);
    }
    CHECK_INT(driver_close(d), 0);
}

static uint32_t n_reused(uint32_t n_sessions, const char *name, uint64_t seed)
{
    driver *d = open_sim(n_sessions);
    const uint32_t n = say(d, name, seed)->n_reused;
    driver_close(d);
    return n;
}

static uint32_t n_branches(const driver *d, const char *name, uint32_t pin)
{
    uint32_t n = 0;
    llm_session_table_view table_view;
    llm_session_table_read(d->session_table, &table_view);
    for (uint32_t entry = 0; entry < table_view.n_entries; entry++) {
        llm_branch_view view;
        n += llm_session_table_entry(d->session_table, entry, &view) == LLM_OK && strcmp(view.name, name) == 0 &&
             (pin == LLM_PIN_NONE || view.is_pinned == pin);
    }
    return n;
}

static uint32_t n_pinned(const driver *d, const char *name)
{
    return n_branches(d, name, LLM_PIN_ANCHORED);
}

static uint32_t count_files(const char *ending)
{
    char path[FILES_PATH_BYTES];
    files_model_directory(directory, path);
    return files_count(path, ending);
}

/* ---- each has an entry ---- */

/* The session table has all sessions before the first loop of the decode thread. */
static void test_all_of_them_are_told_from_the_start(void)
{
    for (llm_policy policy = LLM_POLICY_REFUSE; policy < LLM_POLICY_N; policy++) {
        leave_three();
        const llm_engine_options options = {.model = HYBRID,
                                            .n_sessions = 1,
                                            .n_scratch = 2,
                                            .n_ctx = 1024,
                                            .n_parked_max = 1,
                                            .capacity_policy = policy,
                                            .state_dir = directory};
        llm_engine *engine = NULL;
        CHECK_INT(llm_engine_open(&options, &engine, NULL, 0), LLM_OK);
        const llm_session_table *reader = llm_engine_session_table(engine);
        CHECK_INT(llm_session_table_counter(reader, LLM_COUNTER_SESSIONS_NAMED), 3);
        CHECK_INT(llm_session_table_counter(reader, LLM_COUNTER_SESSIONS_DORMANT), 0);
        char text[512];
        CHECK_INT(llm_engine_complaint(engine, text, sizeof text), LLM_NOT_FOUND);
        llm_engine_close(engine);
        start_anew();
    }
}

/* There is only one slot. The sessions take turns in it, and each keeps its state. */
static void test_each_comes_back_warm(void)
{
    leave_three();
    driver *d = open_with(HYBRID, 1, LLM_POLICY_PARK);
    for (uint64_t i = 0; i < 3; i++) {
        const answer *a = say(d, abc[i], i + 1);
        CHECK_INT(a->n_reused, LONG);
    }
    CHECK_INT(d->n_forgotten, 0);
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(count_files("llmd-session"), 3);
}

/* A new session replaces the least recently used one. There are never more sessions than at the start. */
static void test_a_new_session_takes_the_oldest_ones_entry(void)
{
    leave_three();
    driver *d = open_with(HYBRID, 1, LLM_POLICY_PARK);
    CHECK_INT(say(d, "new", 4)->status, LLM_OK);
    CHECK_INT(d->n_forgotten, 1);
    CHECK_STR(d->forgotten, "a");
    CHECK_INT(say(d, "b", 2)->n_reused, LONG);
    CHECK_INT(say(d, "c", 3)->n_reused, LONG);
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(count_files("llmd-session"), 3);
}

static void test_each_does_what_it_is_told(void)
{
    const llm_command_op ops[] = {LLM_COMMAND_PIN, LLM_COMMAND_PARK, LLM_COMMAND_SAVE, LLM_COMMAND_RENAME};
    for (llm_policy policy = LLM_POLICY_REFUSE; policy < LLM_POLICY_N; policy++) {
        for (int i = 0; i < 4; i++) {
            leave_three();
            driver *d = open_with(HYBRID, 2, policy);
            const uint64_t asked = ops[i] == LLM_COMMAND_PIN    ? driver_pin(d, 0, "a", true)
                                   : ops[i] == LLM_COMMAND_PARK ? driver_park(d, 0, "a")
                                                                : driver_command(d, ops[i], 0, "a", "other");
            const answer *a = driver_wait(d, asked);
            CHECK_INT(a->status, LLM_OK);
            CHECK(a->n_tokens >= LONG);
            CHECK_INT(d->n_forgotten, 0);
            CHECK_INT(say(d, ops[i] == LLM_COMMAND_RENAME ? "other" : "a", 1)->n_reused, LONG);
            CHECK_INT(driver_close(d), 0);
            start_anew();
        }
    }
}

/* The command comes while a state is loaded for the request. During another session's step, both arrive. */
static void test_a_command_beside_a_request(void)
{
    const llm_command_op ops[] = {LLM_COMMAND_PIN, LLM_COMMAND_RENAME, LLM_COMMAND_SAVE, LLM_COMMAND_FORK};
    for (int i = 0; i < 4; i++) {
        leave_three();
        driver *d = open_with("sim:hybrid,length=0,step_us=100000", 2, LLM_POLICY_PARK);
        const uint64_t scratch = ask_for(d, NULL, 9, 3);
        driver_wait_started(d, scratch);
        const uint64_t own = ask_for(d, "a", 1, 1);
        const uint64_t asked = ops[i] == LLM_COMMAND_PIN    ? driver_pin(d, 0, "a", true)
                               : ops[i] == LLM_COMMAND_FORK ? driver_fork(d, 0, "a", "other", UINT32_MAX)
                                                            : driver_command(d, ops[i], 0, "a", "other");
        driver_cancel(d, own);
        CHECK_INT(driver_wait(d, asked)->status, LLM_OK);
        driver_cancel(d, scratch);
        driver_wait_all(d);
        CHECK_INT(driver_close(d), 0);
        CHECK_INT(n_reused(4, ops[i] == LLM_COMMAND_RENAME ? "other" : "a", 1), LONG);
        start_anew();
    }
}

static void test_a_fork_replaces_none_of_them(void)
{
    leave_three();
    driver *d = open_sim(2);
    d->forks_beside = true;
    CHECK_INT(driver_wait(d, driver_fork(d, 0, "b", "a", UINT32_MAX))->status, LLM_EXISTS);
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(n_reused(3, "a", 1), LONG);
}

static void test_what_was_reset_does_not_come_back(void)
{
    leave_three();
    driver *d = open_sim(2);
    CHECK_INT(driver_wait(d, driver_reset(d, 0, "a"))->status, LLM_OK);
    CHECK_INT(say(d, "a", 1)->n_reused, 0);
    CHECK_INT(driver_close(d), 0);
}

/* A request asks for a state on the disk. Then the session is reset, and replaced by a fork. The first state is not
 * used for the fork. */
static void test_what_is_read_is_not_taken_for_what_came_after_a_reset(void)
{
    leave_three();
    driver *d = open_with("sim:hybrid,length=0,step_us=100000", 2, LLM_POLICY_EVICT);
    static int32_t tokens[LONG];
    make_prompt(tokens, LONG, 3);
    const generate_call call = {.session = "a", .prompt = tokens, .n_prompt = LONG, .max_tokens = 2};
    const uint64_t scratch = ask_for(d, NULL, 9, 2);
    driver_wait_started(d, scratch);
    ask_for(d, "a", 1, 2);
    driver_reset(d, 0, "a");
    driver_fork(d, 0, "c", "a", UINT32_MAX);
    const answer *a = driver_wait(d, driver_generate(d, &call));
    CHECK_INT(a->n_reused, LONG);
    driver *reference = driver_open_model(HYBRID);
    CHECK(driver_equals_cold(reference, &call, a));
    CHECK_INT(driver_close(reference), 0);
    driver_wait_all(d);
    CHECK_INT(driver_close(d), 0);
}

/* ---- what finds no entry costs nothing ---- */

/* No session is replaced under this policy, and there are already more sessions than may be opened. So a fourth is
 * refused, and all three stay. */
static void test_where_nobody_makes_way_nobody_is_lost(void)
{
    leave_three();
    driver *d = open_with(HYBRID, 2, LLM_POLICY_REFUSE);
    CHECK_INT(driver_wait(d, driver_fork(d, 0, "b", "new", UINT32_MAX))->status, LLM_CAPACITY);
    CHECK_INT(driver_wait(d, driver_command(d, LLM_COMMAND_SAVE, 0, "c", "label"))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_command(d, LLM_COMMAND_LOAD, 0, "new", "label"))->status, LLM_CAPACITY);
    CHECK_INT(say(d, "new", 9)->status, LLM_CAPACITY);
    CHECK_INT(driver_close(d), 0);
    for (uint64_t i = 0; i < 3; i++) {
        CHECK_INT(n_reused(3, abc[i], i + 1), LONG);
    }
}

/* All entries are pinned, except those of a session with two histories, one of them busy. A third history replaces the
 * idle one, although there are more sessions than may be opened. */
static void test_a_history_makes_way_only_for_one_that_is_served(void)
{
    driver *d = open_with(DENSE, 8, LLM_POLICY_PARK);
    say(d, "a", 1);
    say(d, "a", TITLE);
    for (uint64_t i = 0; i < 4; i++) {
        const char name[] = {(char)('p' + i), '\0'};
        say(d, name, 10 + i);
        CHECK_INT(driver_wait(d, driver_pin(d, 0, name, true))->status, LLM_OK);
    }
    CHECK_INT(driver_close(d), 0);
    d = driver_open(&(llm_engine_options){.model = DENSE,
                                          .n_sessions = 2,
                                          .n_parked_max = 1,
                                          .branches_max = 2,
                                          .capacity_policy = LLM_POLICY_EVICT,
                                          .state_dir = directory});
    const uint64_t busy = ask_for(d, "a", 1, 0);
    driver_wait_text(d, busy);
    CHECK_INT(say(d, "a", 7)->status, LLM_OK);
    CHECK_INT(n_branches(d, "a", LLM_PIN_NONE), 2);
    CHECK_INT(say(d, "new", 8)->status, LLM_OK); /* replaces the idle history of a */
    CHECK_INT(n_branches(d, "a", LLM_PIN_NONE), 1);
    CHECK_INT(say(d, "another", 9)->status, LLM_OK);
    driver_cancel(d, busy);
    driver_wait_all(d);
    CHECK_INT(driver_close(d), 0);
}

/* ---- sessions of several histories ---- */

/* Leaves two branches of a, and then other sessions. */
static void leave_two_of_a(llm_policy policy)
{
    driver *d = open_with(DENSE, 8, policy);
    say(d, "a", 1);
    say(d, "a", TITLE);
    say(d, "b", 2);
    say(d, "c", 3);
    CHECK_INT(driver_close(d), 0);
}

static void test_each_history_is_gone_on_with(void)
{
    leave_two_of_a(LLM_POLICY_PARK);
    driver *d = open_with(DENSE, 1, LLM_POLICY_PARK);
    for (int round = 0; round < 2; round++) {
        CHECK(say(d, "a", 1)->n_reused >= LONG - 1);
        CHECK(say(d, "a", TITLE)->n_reused >= LONG - 1);
    }
    CHECK_INT(d->n_forgotten, 0);
    CHECK(say(d, "b", 2)->n_reused >= LONG - 1);
    CHECK(say(d, "c", 3)->n_reused >= LONG - 1);
    CHECK_INT(driver_close(d), 0);
}

/* A fourth history replaces the oldest history of its own session, and no other session. */
static void test_the_limit_of_histories_holds(void)
{
    driver *d = open_with(DENSE, 8, LLM_POLICY_PARK);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        say(d, "a", seed);
    }
    say(d, "b", 4);
    say(d, "c", 5);
    CHECK_INT(driver_close(d), 0);
    d = open_with(DENSE, 1, LLM_POLICY_PARK);
    CHECK_INT(say(d, "a", TITLE)->n_reused, 0);
    CHECK_INT(n_branches(d, "a", LLM_PIN_NONE), 3);
    CHECK_INT(d->n_forgotten, 0);
    CHECK(say(d, "a", 2)->n_reused >= LONG - 1);
    CHECK(say(d, "a", 3)->n_reused >= LONG - 1);
    CHECK_INT(driver_close(d), 0);
    d = open_with(DENSE, 8, LLM_POLICY_PARK);
    CHECK_INT(say(d, "a", 1)->n_reused, 0);
    CHECK_INT(driver_close(d), 0);
}

/* With branches_max = 1, a session opens no further branch. */
static void test_with_one_history_no_other_is_opened(void)
{
    leave_two_of_a(LLM_POLICY_EVICT);
    driver *d = driver_open(&(llm_engine_options){.model = DENSE,
                                                  .n_sessions = 3,
                                                  .branches_max = 1,
                                                  .capacity_policy = LLM_POLICY_EVICT,
                                                  .state_dir = directory});
    CHECK_INT(driver_counter(d, LLM_COUNTER_SESSIONS_OPENED), 4);
    CHECK_INT(say(d, "a", 7)->status, LLM_OK);
    CHECK_INT(say(d, "a", 8)->status, LLM_OK);
    CHECK_INT(driver_counter(d, LLM_COUNTER_SESSIONS_OPENED), 4);
    CHECK_INT(driver_close(d), 0);
}

static const answer *say_behind(driver *d, const char *name, uint32_t n_head, uint64_t seed)
{
    int32_t tokens[LONG];
    make_prompt(tokens, n_head, 77);
    make_prompt(tokens + n_head, LONG - n_head, seed);
    const answer *a = driver_wait(
        d, driver_generate(
               d, &(generate_call){
                      .session = name, .prompt = tokens, .n_prompt = LONG, .max_tokens = 5, .n_head = n_head}));
    check(a->status == LLM_OK);
    n_ms_later += 2;
    return a;
}

/* A common system prompt does not make two conversations one, however long it is. */
static void test_a_head_continues_nobody(void)
{
    const uint32_t heads[] = {100, 300, 390};
    for (int i = 0; i < 3; i++) {
        driver *d = open_with(DENSE, 8, LLM_POLICY_PARK);
        say_behind(d, "a", heads[i], 1);
        say(d, "b", 2);
        say(d, "c", 3);
        CHECK_INT(driver_close(d), 0);
        d = open_with(DENSE, 3, LLM_POLICY_PARK);
        say_behind(d, "a", heads[i], TITLE);
        CHECK_INT(n_branches(d, "a", LLM_PIN_NONE), 2);
        CHECK(say_behind(d, "a", heads[i], 1)->n_reused >= LONG - 1);
        CHECK_INT(driver_close(d), 0);
        start_anew();
    }
}

static void test_a_session_is_renamed_with_all_of_it(void)
{
    leave_two_of_a(LLM_POLICY_PARK);
    driver *d = open_with(DENSE, 1, LLM_POLICY_PARK);
    CHECK_INT(driver_wait(d, driver_command(d, LLM_COMMAND_RENAME, 0, "a", "other"))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_close_session(d, 0, "a"))->status, LLM_NOT_FOUND);
    CHECK_INT(driver_close(d), 0);
    d = open_with(DENSE, 4, LLM_POLICY_PARK);
    CHECK_INT(n_branches(d, "other", LLM_PIN_NONE), 2);
    CHECK(say(d, "other", 1)->n_reused >= LONG - 1);
    CHECK(say(d, "other", TITLE)->n_reused >= LONG - 1);
    CHECK_INT(driver_close(d), 0);
}

/* A session is forgotten when its last branch is gone. */
static void test_a_name_is_forgotten_with_the_last_of_it(void)
{
    leave_two_of_a(LLM_POLICY_PARK); /* entries: a, a, b, c */
    driver *d = open_with(DENSE, 1, LLM_POLICY_PARK);
    CHECK_INT(say(d, "e", 5)->status, LLM_OK);
    CHECK_INT(d->n_forgotten, 0); /* the other branch of a still exists */
    CHECK_INT(say(d, "f", 6)->status, LLM_OK);
    CHECK_INT(d->n_forgotten, 1);
    CHECK_STR(d->forgotten, "a");
    CHECK_INT(driver_close(d), 0);
}

/* ---- pins ---- */

/* Opens an engine with four pinned sessions, although only three may be opened. */
static driver *open_with_four_pinned(llm_policy policy)
{
    const char *names[] = {"a", "b", "c", "e"};
    driver *d = open_with(DENSE, 8, policy);
    for (uint64_t i = 0; i < 4; i++) {
        say(d, names[i], i + 1);
        check(driver_wait(d, driver_pin(d, 0, names[i], true))->status == LLM_OK);
    }
    check(driver_close(d) == 0);
    d = open_with(DENSE, policy == LLM_POLICY_PARK ? 2 : 3, policy);
    for (int i = 0; i < 4; i++) {
        check(n_pinned(d, names[i]) == 1);
    }
    return d;
}

static void test_a_pin_outlives_a_start_with_fewer_entries(void)
{
    for (llm_policy policy = LLM_POLICY_REFUSE; policy < LLM_POLICY_N; policy++) {
        driver *d = open_with_four_pinned(policy);
        driver_wait(d, driver_close_session(d, 0, "b"));
        driver_wait(d, driver_close_session(d, 0, "c"));
        say(d, "a", TITLE);
        say(d, "a", TITLE + 1);
        CHECK(say(d, "a", 1)->n_reused >= LONG - 1);
        CHECK_INT(n_pinned(d, "a"), 1);
        CHECK_INT(driver_close(d), 0);
        start_anew();
    }
}

/* Pinned sessions do not take all entries. But no further session can be pinned. */
static void test_pins_leave_entries_to_others(void)
{
    driver *d = open_with_four_pinned(LLM_POLICY_PARK);
    CHECK_INT(say(d, "new", 9)->status, LLM_OK);
    CHECK_INT(say(d, "newer", 10)->status, LLM_OK);
    CHECK_INT(d->n_forgotten, 1);
    CHECK_STR(d->forgotten, "new");
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "newer", true))->status, LLM_PINS);
    CHECK_INT(driver_close(d), 0);
}

static void test_a_session_is_pinned_with_all_of_it(void)
{
    leave_two_of_a(LLM_POLICY_PARK);
    driver *d = open_with(DENSE, 4, LLM_POLICY_PARK);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "a", true))->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
    d = open_with(DENSE, 1, LLM_POLICY_PARK);
    CHECK_INT(n_pinned(d, "a"), 2);
    CHECK_INT(driver_close(d), 0);
}

static void test_a_pinned_session_that_is_reset_stays_pinned(void)
{
    leave_three();
    driver *d = open_sim(4);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "a", true))->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
    d = open_sim(1);
    CHECK_INT(driver_wait(d, driver_reset(d, 0, "a"))->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
    d = open_sim(4);
    CHECK_INT(n_pinned(d, "a"), 1);
    CHECK_INT(say(d, "a", 1)->n_reused, 0);
    CHECK_INT(driver_close(d), 0);
}

/* A reset keeps the most recently used branch, which is not the pinned one. */
static void test_a_reset_keeps_the_pin_of_the_session(void)
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

/* ---- kills ---- */

/* The segment has only the tokens of the sessions. Their states are lost. */
static void test_what_a_kill_left_is_known_by_its_tokens(void)
{
    int32_t tokens[2][LONG];
    make_prompt(tokens[0], LONG, 1);
    make_prompt(tokens[1], LONG, 2);
    const dead_session dead[] = {{"a", tokens[0], LONG, 1000, false, 0}, {"b", tokens[1], LONG, 2000, false, 0}};
    driver *d = open_with(DENSE, 1, LLM_POLICY_PARK);
    dead_segment_leave(d, dead, 2);
    CHECK_INT(driver_close(d), 0);
    d = driver_open(&(llm_engine_options){.model = DENSE,
                                          .n_sessions = 1,
                                          .n_parked_max = 2,
                                          .capacity_policy = LLM_POLICY_PARK,
                                          .dead_table_names = dead_segment_name(),
                                          .state_dir = directory});
    CHECK_INT(say(d, "a", TITLE)->reason, LLM_REASON_NEW);
    CHECK_INT(say(d, "a", 1)->reason, LLM_REASON_TORN);
    CHECK_INT(say(d, "b", 2)->reason, LLM_REASON_TORN);
    CHECK_INT(driver_close(d), 0);
}

/* ---- those that have no entry ---- */

/* Opens an engine whose context is shorter than sessions a and p. Session p is pinned. */
static driver *open_with_two_waiting(uint32_t idle_s_max)
{
    driver *d = open_sim(4);
    check(say(d, "a", 1)->status == LLM_OK);
    check(say(d, "p", 2)->status == LLM_OK);
    check(driver_wait(d, driver_pin(d, 0, "p", true))->status == LLM_OK);
    check(driver_close(d) == 0);
    n_ms_later += 1000 * idle_s_max;
    d = driver_open(&(llm_engine_options){.model = HYBRID,
                                          .n_sessions = 2,
                                          .n_ctx = LONG / 2,
                                          .capacity_policy = LLM_POLICY_EVICT,
                                          .idle_s_max = idle_s_max,
                                          .state_dir = directory});
    return d;
}

static void test_what_waits_is_counted_and_comes_back(void)
{
    driver *d = open_with_two_waiting(0);
    CHECK_INT(driver_counter(d, LLM_COUNTER_SESSIONS_DORMANT), 2);
    CHECK_INT(driver_counter(d, LLM_COUNTER_SESSIONS_OPEN), 0);
    char text[512];
    CHECK_INT(llm_engine_complaint(d->engine, text, sizeof text), LLM_OK);
    CHECK(strstr(text, "\"p\", pinned, got no entry (it has more tokens than --ctx-size holds)") != NULL);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "a", true))->status, LLM_NOT_FOUND);
    CHECK_INT(driver_wait(d, driver_command(d, LLM_COMMAND_RENAME, 0, "a", "other"))->status, LLM_NOT_FOUND);
    int32_t tokens[LONG];
    make_prompt(tokens, LONG, 5);
    const generate_call call = {.session = "b", .prompt = tokens, .n_prompt = LONG / 4, .max_tokens = 5};
    CHECK_INT(driver_wait(d, driver_generate(d, &call))->status, LLM_OK);
    d->forks_beside = true; /* the names belong to sessions without an entry */
    CHECK_INT(driver_wait(d, driver_fork(d, 0, "b", "a", UINT32_MAX))->status, LLM_EXISTS);
    CHECK_INT(driver_wait(d, driver_command(d, LLM_COMMAND_RENAME, 0, "b", "p"))->status, LLM_EXISTS);
    CHECK_INT(driver_close(d), 0);
    d = open_sim(4);
    CHECK_INT(driver_counter(d, LLM_COUNTER_SESSIONS_DORMANT), 0);
    CHECK_INT(n_pinned(d, "p"), 1);
    CHECK_INT(say(d, "a", 1)->n_reused, LONG);
    CHECK_INT(say(d, "p", 2)->n_reused, LONG);
    CHECK_INT(driver_close(d), 0);
}

static void test_what_waits_can_be_closed_and_reset(void)
{
    driver *d = open_with_two_waiting(0);
    CHECK_INT(driver_wait(d, driver_close_session(d, 0, "a"))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_close_session(d, 0, "a"))->status, LLM_NOT_FOUND);
    CHECK_INT(driver_wait(d, driver_close_session(d, 7, "p"))->status, LLM_NOT_FOUND);
    CHECK_INT(driver_wait(d, driver_reset(d, 0, "p"))->status, LLM_OK);
    CHECK_INT(n_pinned(d, "p"), 1);
    CHECK_INT(count_files("llmd-session"), 1);
    CHECK_INT(driver_close(d), 0);
    d = open_sim(4);
    CHECK_INT(driver_counter(d, LLM_COUNTER_SESSIONS_OPEN), 1);
    CHECK_INT(n_pinned(d, "p"), 1);
    CHECK_INT(say(d, "p", 2)->n_reused, 0);
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(count_files("llmd-session"), 1);
}

static void test_what_waits_expires_unless_it_is_pinned(void)
{
    driver *d = open_with_two_waiting(1);
    while (driver_counter(d, LLM_COUNTER_SESSIONS_EXPIRED) == 0) {
        driver_drain(d);
    }
    driver_fence(d);
    CHECK_INT(d->n_forgotten, 1);
    CHECK_STR(d->forgotten, "a");
    CHECK_INT(driver_close(d), 0);
    d = open_sim(4);
    CHECK_INT(driver_counter(d, LLM_COUNTER_SESSIONS_OPEN), 1);
    CHECK_INT(n_pinned(d, "p"), 1);
    CHECK_INT(driver_close(d), 0);
}

/* The shared memory has room for all but one entry. The pinned session and the newest ones get entries. */
static void test_entries_that_memory_has_no_room_for(void)
{
    leave_three();
    driver *d = open_sim(4);
    CHECK_INT(driver_wait(d, driver_pin(d, 0, "a", true))->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
    char name[64];
    snprintf(name, sizeof name, "/llmd-test-many-%d", (int)getpid());
    const llm_engine_options options = {.model = HYBRID,
                                        .table_name = name,
                                        .n_sessions = 2,
                                        .capacity_policy = LLM_POLICY_EVICT,
                                        .state_dir = directory};
    llm_session_table_view view;
    d = driver_open(&options);
    llm_session_table_read(d->session_table, &view);
    CHECK_INT(view.n_entries, 2 + 2 + 1);
    CHECK_INT(driver_close(d), 0);
    struct rlimit before;
    signal(SIGXFSZ, SIG_IGN);
    CHECK_INT(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit small = {.rlim_cur = view.bytes - 1, .rlim_max = before.rlim_max};
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
    d = driver_open(&options);
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &before), 0);
    llm_session_table_read(d->session_table, &view);
    CHECK_INT(view.n_entries, 2 + 2);
    CHECK_INT(driver_counter(d, LLM_COUNTER_SESSIONS_DORMANT), 1);
    CHECK(driver_session(d, "b").entry == UINT32_MAX && n_pinned(d, "a") == 1);
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(n_reused(4, "b", 2), LONG);
}

/* ---- many at once ---- */

static _Atomic uint32_t n_directory_syncs;

/* Replaces the library's function, and counts the calls for directories. */
int fsync(int fd)
{
    struct stat facts;
    n_directory_syncs += fstat(fd, &facts) == 0 && S_ISDIR(facts.st_mode);
    return (int)syscall(SYS_fsync, fd);
}

static void test_many_expire_with_one_sync(void)
{
    enum { N = 40 };
    char name[8];
    driver *d = open_sim(N);
    for (uint64_t i = 0; i < N; i++) {
        snprintf(name, sizeof name, "s%d", (int)i);
        CHECK_INT(driver_wait(d, ask_for(d, name, i + 1, 5))->status, LLM_OK);
    }
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(count_files("llmd-session"), N);
    n_ms_later += 2000;
    n_directory_syncs = 0;
    d = driver_open(&(llm_engine_options){.model = HYBRID,
                                          .n_sessions = 2,
                                          .capacity_policy = LLM_POLICY_EVICT,
                                          .idle_s_max = 1,
                                          .state_dir = directory});
    while (d->n_forgotten < N) {
        driver_drain(d);
    }
    CHECK_INT(driver_close(d), 0);
    CHECK_INT(n_directory_syncs, 1);
    CHECK_INT(count_files("llmd-session") + count_files("llmd-state"), 0);
}

int main(void)
{
    RUN_FILES(test_all_of_them_are_told_from_the_start);
    RUN_FILES(test_each_comes_back_warm);
    RUN_FILES(test_a_new_session_takes_the_oldest_ones_entry);
    RUN_FILES(test_each_does_what_it_is_told);
    RUN_FILES(test_a_command_beside_a_request);
    RUN_FILES(test_a_fork_replaces_none_of_them);
    RUN_FILES(test_what_was_reset_does_not_come_back);
    RUN_FILES(test_what_is_read_is_not_taken_for_what_came_after_a_reset);
    RUN_FILES(test_where_nobody_makes_way_nobody_is_lost);
    RUN_FILES(test_a_history_makes_way_only_for_one_that_is_served);
    RUN_FILES(test_each_history_is_gone_on_with);
    RUN_FILES(test_the_limit_of_histories_holds);
    RUN_FILES(test_with_one_history_no_other_is_opened);
    RUN_FILES(test_a_head_continues_nobody);
    RUN_FILES(test_a_session_is_renamed_with_all_of_it);
    RUN_FILES(test_a_name_is_forgotten_with_the_last_of_it);
    RUN_FILES(test_a_pin_outlives_a_start_with_fewer_entries);
    RUN_FILES(test_pins_leave_entries_to_others);
    RUN_FILES(test_a_session_is_pinned_with_all_of_it);
    RUN_FILES(test_a_pinned_session_that_is_reset_stays_pinned);
    RUN_FILES(test_a_reset_keeps_the_pin_of_the_session);
    RUN_FILES(test_what_a_kill_left_is_known_by_its_tokens);
    RUN_FILES(test_what_waits_is_counted_and_comes_back);
    RUN_FILES(test_what_waits_can_be_closed_and_reset);
    RUN_FILES(test_what_waits_expires_unless_it_is_pinned);
    RUN_FILES(test_entries_that_memory_has_no_room_for);
    RUN_FILES(test_many_expire_with_one_sync);
    return CHECK_RESULT();
}
