/* Which of the histories that sleep under a name a request wakes: the one that it continues, or none. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "dead_segment.h"
#include "snapshot_files.h"

enum { LONG = 400, TITLE = 90 /* a seed: nobody else's prompt */ };

static char directory[FILES_PATH_BYTES];

static driver *open_with(const char *simulated, uint32_t n_sessions, llm_policy policy)
{
    return driver_open(&(llm_engine_options){.model = simulated,
                                             .n_sessions = n_sessions,
                                             .n_parked_max = 1,
                                             .timelines_max = 3,
                                             .capacity_policy = policy,
                                             .state_dir = directory});
}

static driver *open_sim(uint32_t n_sessions, llm_policy policy)
{
    return open_with("sim:dense,length=0", n_sessions, policy);
}

static void check(bool holds)
{
    if (!holds) {
        abort();
    }
}

static uint64_t ask_for(driver *d, const char *name, uint64_t seed)
{
    int32_t tokens[LONG];
    make_prompt(tokens, LONG, seed);
    return driver_generate(d, &(generate_call){.session = name, .prompt = tokens, .n_prompt = LONG, .max_tokens = 5});
}

static const answer *say(driver *d, const char *name, uint64_t seed)
{
    const answer *a = driver_wait(d, ask_for(d, name, seed));
    check(a->status == LLM_OK);
    usleep(2000); /* the next stamp is another one */
    return a;
}

static uint32_t n_asleep(driver *d)
{
    driver_loop(d);
    return (uint32_t)driver_counter(d, LLM_COUNTER_SESSIONS_DORMANT);
}

/* Four pinned sessions, and places for three: a, the oldest, sleeps. */
static driver *open_with_a_pinned_asleep(const char *simulated, llm_policy policy)
{
    const char *names[] = {"a", "b", "c", "e"};
    driver *d = open_sim(8, policy);
    for (uint64_t i = 0; i < 4; i++) {
        say(d, names[i], i + 1);
        check(driver_wait(d, driver_pin(d, 0, names[i], true))->status == LLM_OK);
    }
    check(driver_close(d) == 0);
    d = open_with(simulated, policy == LLM_POLICY_PARK ? 2 : 3, policy);
    check(n_asleep(d) == 1);
    driver_wait(d, driver_close_session(d, 0, "b"));
    driver_wait(d, driver_close_session(d, 0, "c"));
    return d;
}

static void test_a_pin_keeps_what_sleeps(void)
{
    const llm_policy policies[] = {LLM_POLICY_EVICT, LLM_POLICY_REFUSE, LLM_POLICY_PARK};
    for (int i = 0; i < 3; i++) {
        driver *d = open_with_a_pinned_asleep("sim:dense,length=0", policies[i]);
        say(d, "a", TITLE);
        say(d, "a", TITLE + 1);
        CHECK_INT(n_asleep(d), 1);
        CHECK(say(d, "a", 1)->n_reused >= LONG - 1);
        CHECK_INT(n_asleep(d), 0);
        CHECK_INT(driver_close(d), 0);
        files_remove_directory(directory);
        files_make_directory(directory);
    }
}

/* Its own request is gone before its tokens have come. The step of another one lets all three arrive together. */
static void test_a_pin_keeps_what_is_waking(void)
{
    driver *d = open_with_a_pinned_asleep("sim:dense,length=0,step_us=100000", LLM_POLICY_EVICT);
    const uint64_t scratch = ask_for(d, NULL, 9);
    driver_wait_started(d, scratch);
    const uint64_t own = ask_for(d, "a", 1);
    driver_cancel(d, own);
    const uint64_t title = ask_for(d, "a", TITLE);
    CHECK_INT(driver_wait(d, title)->status, LLM_OK);
    driver_wait_all(d);
    CHECK(say(d, "a", 1)->n_reused >= LONG - 1);
    CHECK_INT(driver_close(d), 0);
}

/* A conversation, then its title, both older than all that gets a place. */
static void leave_two_of_a(llm_policy policy)
{
    driver *d = open_sim(8, policy);
    say(d, "a", 1);
    say(d, "a", TITLE);
    say(d, "b", 2);
    say(d, "c", 3);
    CHECK_INT(driver_close(d), 0);
}

static void test_the_one_that_is_meant_wakes(void)
{
    leave_two_of_a(LLM_POLICY_PARK);
    driver *d = open_sim(1, LLM_POLICY_PARK);
    CHECK_INT(n_asleep(d), 2);
    CHECK(say(d, "a", 1)->n_reused >= LONG - 1);
    CHECK_INT(n_asleep(d), 1);
    CHECK(say(d, "a", 1)->n_reused >= LONG - 1);
    CHECK_INT(n_asleep(d), 1);
    CHECK(say(d, "a", TITLE)->n_reused >= LONG - 1); /* the other one, beside it */
    CHECK_INT(n_asleep(d), 0);
    CHECK(say(d, "a", 1)->n_reused >= LONG - 1);
    CHECK_INT(driver_close(d), 0);
}

/* Where every place costs somebody his, the session gives one of its own. */
static void test_what_wakes_takes_no_other_sessions_place(void)
{
    leave_two_of_a(LLM_POLICY_EVICT);
    driver *d = open_sim(2, LLM_POLICY_EVICT);
    CHECK_INT(n_asleep(d), 2);
    CHECK(say(d, "a", TITLE)->n_reused >= LONG - 1); /* b, the oldest, made way */
    CHECK_INT(d->n_forgotten, 1);
    CHECK(say(d, "a", 1)->n_reused >= LONG - 1);
    CHECK_INT(d->n_forgotten, 1);
    CHECK_INT(n_asleep(d), 0);
    CHECK(say(d, "c", 3)->n_reused >= LONG - 1);
    CHECK_INT(driver_close(d), 0);
}

/* What sleeps counts as one of the session's histories, and may be the one that makes way. */
static void test_what_sleeps_counts(void)
{
    driver *d = open_sim(8, LLM_POLICY_PARK);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        say(d, "a", seed);
    }
    say(d, "b", 4);
    say(d, "c", 5);
    CHECK_INT(driver_close(d), 0);
    d = open_sim(1, LLM_POLICY_PARK);
    CHECK_INT(n_asleep(d), 3);
    CHECK_INT(say(d, "a", TITLE)->n_reused, 0); /* the fourth: the oldest goes */
    CHECK_INT(n_asleep(d), 2);
    CHECK(say(d, "a", 2)->n_reused >= LONG - 1);
    CHECK(say(d, "a", 3)->n_reused >= LONG - 1);
    CHECK_INT(driver_close(d), 0);
    d = open_sim(8, LLM_POLICY_PARK);
    CHECK_INT(say(d, "a", 1)->n_reused, 0);
    CHECK_INT(driver_close(d), 0);
}

/* Where a session is one history, everything goes on in that. */
static void test_an_only_history_wakes_for_everything(void)
{
    leave_two_of_a(LLM_POLICY_EVICT);
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0",
                                                  .n_sessions = 3,
                                                  .timelines_max = 1,
                                                  .capacity_policy = LLM_POLICY_EVICT,
                                                  .state_dir = directory});
    driver_wait(d, driver_close_session(d, 0, "b"));
    driver_wait(d, driver_close_session(d, 0, "c"));
    CHECK_INT(n_asleep(d), 1); /* of a: the conversation */
    say(d, "a", 7);
    say(d, "a", 8);
    CHECK_INT(driver_counter(d, LLM_COUNTER_SESSIONS_OPENED), 3);
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
    usleep(2000);
    return a;
}

/* The same system prompt is no reason to wake, however long it is. */
static void test_a_head_wakes_nobody(void)
{
    const uint32_t heads[] = {100, 300, 390};
    for (int i = 0; i < 3; i++) {
        driver *d = open_sim(8, LLM_POLICY_PARK);
        say_behind(d, "a", heads[i], 1);
        say(d, "b", 2);
        say(d, "c", 3);
        CHECK_INT(driver_close(d), 0);
        d = open_sim(1, LLM_POLICY_PARK);
        CHECK_INT(n_asleep(d), 1);
        say_behind(d, "a", heads[i], TITLE);
        CHECK_INT(n_asleep(d), 1);
        CHECK(say_behind(d, "a", heads[i], 1)->n_reused >= LONG - 1);
        CHECK_INT(n_asleep(d), 0);
        CHECK_INT(driver_close(d), 0);
        files_remove_directory(directory);
        files_make_directory(directory);
    }
}

/* Its tokens are known from the segment alone, and its state is gone. */
static void test_what_a_kill_left_is_known_by_its_tokens(void)
{
    int32_t tokens[2][LONG];
    make_prompt(tokens[0], LONG, 1);
    make_prompt(tokens[1], LONG, 2);
    const dead_session dead[] = {{"a", tokens[0], LONG, 1000, false, 0}, {"b", tokens[1], LONG, 2000, false, 0}};
    driver *d = open_sim(1, LLM_POLICY_EVICT);
    dead_segment_leave(d, dead, 2);
    CHECK_INT(driver_close(d), 0);
    d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0",
                                          .n_sessions = 1,
                                          .capacity_policy = LLM_POLICY_EVICT,
                                          .dead_page_names = dead_segment_name(),
                                          .state_dir = directory});
    CHECK_INT(n_asleep(d), 1);
    CHECK_INT(say(d, "a", TITLE)->reason, LLM_REASON_NEW);
    CHECK_INT(n_asleep(d), 1);
    CHECK_INT(say(d, "a", 1)->reason, LLM_REASON_TORN);
    CHECK_INT(n_asleep(d), 0);
    CHECK_INT(driver_close(d), 0);
}

int main(void)
{
    RUN_FILES(test_a_pin_keeps_what_sleeps);
    RUN_FILES(test_a_pin_keeps_what_is_waking);
    RUN_FILES(test_the_one_that_is_meant_wakes);
    RUN_FILES(test_what_wakes_takes_no_other_sessions_place);
    RUN_FILES(test_what_sleeps_counts);
    RUN_FILES(test_an_only_history_wakes_for_everything);
    RUN_FILES(test_a_head_wakes_nobody);
    RUN_FILES(test_what_a_kill_left_is_known_by_its_tokens);
    return CHECK_RESULT();
}
