/* Tests that no request waits forever, and that no branch is parked or dropped in vain for a request that must wait
 * anyway. The tests count what other requests got meanwhile, and measure no time. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "engine/engine.h"
#include "engine_driver.h"
#include "snapshot_files.h"

enum { LONG = 300, LONGER = 310, OWN = 1, OTHER = 2, PATIENCE = 200, TOKENS_MAX = 1000 };

static char directory[FILES_PATH_BYTES];

static generate_call call_of(uint32_t owner, const char *name, uint32_t n_prompt, uint64_t seed, uint32_t max_tokens)
{
    static int32_t tokens[TOKENS_MAX];
    make_prompt(tokens, n_prompt, seed);
    return (generate_call){
        .owner = owner, .session = name, .prompt = tokens, .n_prompt = n_prompt, .max_tokens = max_tokens};
}

static uint64_t begin(driver *d, uint32_t owner, const char *name, uint32_t n_prompt, uint64_t seed,
                      uint32_t max_tokens)
{
    const generate_call call = call_of(owner, name, n_prompt, seed, max_tokens);
    return driver_generate(d, &call);
}

static void say(driver *d, uint32_t owner, const char *name, uint64_t seed)
{
    CHECK_INT(driver_wait(d, begin(d, owner, name, LONG, seed, 5))->status, LLM_OK);
}

static void one_state_at_a_time(driver *d)
{
    d->engine->ledger.n_in_flight_max = 1;
}

/* Parks the session, and waits until its state is written. The store does its jobs in order. */
static void put_on_the_disk(driver *d, uint32_t owner, const char *name)
{
    CHECK_INT(driver_wait(d, driver_park(d, owner, name))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_unsave(d, owner, "nothing"))->status, LLM_NOT_FOUND);
}

/* Each of the n requests is sent again as soon as it is over. Returns how many requests were over before `awaited`
 * started, or PATIENCE. */
static uint32_t keep_busy(driver *d, uint64_t awaited, uint64_t *asked, uint32_t n,
                          uint64_t (*again)(driver *d, uint32_t k))
{
    uint32_t n_over = 0;
    while (!driver_answer(d, awaited)->is_started && n_over < PATIENCE) {
        (void)driver_drain(d);
        for (uint32_t i = 0; i < n; i++) {
            if (driver_answer(d, asked[i])->is_over) {
                n_over++;
                asked[i] = again(d, n_over);
            }
        }
    }
    return n_over;
}

static uint64_t newcomer(driver *d, uint32_t k)
{
    char name[16];
    snprintf(name, sizeof name, "n%u", k % 50);
    return begin(d, OWN, name, LONG, 100 + k, 40);
}

/* Each new session replaces the one before, whose state is written to the disk. Only one state at a time may be on its
 * way. */
static void newcomers_leave_a_turn_to_who_is_on_the_disk(void)
{
    files_make_directory(directory);
    driver *d = driver_open_then(&(llm_engine_options){.model = "sim:dense,length=0,state_kb=4096",
                                                       .n_sessions = 1,
                                                       .n_parked_max = 60,
                                                       .parked_bytes_max = 1,
                                                       .capacity_policy = LLM_POLICY_PARK,
                                                       .state_dir = directory},
                                 one_state_at_a_time);
    say(d, OWN, "far", 1);
    put_on_the_disk(d, OWN, "far");
    uint64_t asked[] = {newcomer(d, 51), newcomer(d, 52)};
    driver_wait_started(d, asked[0]);
    const uint64_t far = begin(d, OWN, "far", LONGER, 1, 5);
    CHECK(keep_busy(d, far, asked, 2, newcomer) < 20);
    driver_wait_all(d);
    CHECK_INT(driver_close(d), 0);
    files_remove_directory(directory);
}

static uint64_t reset_again(driver *d, uint32_t k)
{
    (void)k;
    return driver_reset(d, OTHER, "pinned");
}

static void resets_leave_a_turn_to_states(void)
{
    enum { N = 16 };
    files_make_directory(directory);
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0,state_kb=64",
                                                  .n_sessions = 4,
                                                  .n_parked_max = 60,
                                                  .parked_bytes_max = 1,
                                                  .capacity_policy = LLM_POLICY_PARK,
                                                  .state_dir = directory});
    uint64_t asked[N];
    say(d, OWN, "far", 1);
    put_on_the_disk(d, OWN, "far");
    say(d, OTHER, "pinned", 7);
    CHECK_INT(driver_wait(d, driver_pin(d, OTHER, "pinned", true))->status, LLM_OK);
    for (uint32_t i = 0; i < N; i++) {
        asked[i] = reset_again(d, i);
    }
    const uint64_t far = begin(d, OWN, "far", LONGER, 1, 5);
    CHECK(keep_busy(d, far, asked, N, reset_again) < PATIENCE);
    CHECK(store_n_jobs(d->engine->store) <= 3 * N);
    driver_wait_all(d);
    CHECK_INT(driver_close(d), 0);
    files_remove_directory(directory);
}

static uint64_t own_again(driver *d, uint32_t k)
{
    const char name[] = {(char)('a' + (k + 4) % 8), 0};
    return begin(d, OWN, name, LONGER + 7 * ((k + 4) / 8), 10 + (k + 4) % 8, 60);
}

/* An owner's sessions in memory may use only this owner's share of the slots, however many they are. */
static void one_owners_sessions_leave_a_slot_to_anothers_on_the_disk(void)
{
    files_make_directory(directory);
    const llm_engine_options options = {.model = "sim:dense,length=0,step_us=5000,state_kb=64",
                                        .n_sessions = 4,
                                        .n_owners = 2,
                                        .n_parked_max = 20,
                                        .parked_bytes_max = 64 << 20,
                                        .capacity_policy = LLM_POLICY_PARK,
                                        .state_dir = directory};
    driver *d = driver_open(&options);
    say(d, OTHER, "far", 1);
    CHECK_INT(driver_close(d), 0);
    d = driver_open(&options);
    uint64_t asked[5];
    for (uint32_t i = 0; i < 8; i++) {
        const char name[] = {(char)('a' + i), 0};
        say(d, OWN, name, 10 + i);
        CHECK_INT(driver_wait(d, driver_park(d, OWN, name))->status, LLM_OK);
    }
    /* so that all of the following commands arrive between two steps */
    const uint64_t stepping = begin(d, 3, NULL, 20, 9, 0);
    driver_wait_text(d, stepping);
    for (uint32_t i = 0; i < 5; i++) {
        const char name[] = {(char)('a' + i), 0};
        asked[i] = begin(d, OWN, name, LONGER, 10 + i, 40 + 17 * i);
    }
    const uint64_t far = begin(d, OTHER, "far", LONGER, 1, 5);
    CHECK(keep_busy(d, far, asked, 5, own_again) < 20);
    driver_cancel(d, stepping);
    driver_wait_all(d);
    CHECK_INT(driver_close(d), 0);
    files_remove_directory(directory);
}

/* The first request needs cells of a session whose own request is to begin after the first one. */
static void who_holds_the_cells_does_not_wait_for_who_needs_them(void)
{
    static const llm_policy policies[] = {LLM_POLICY_EVICT, LLM_POLICY_REFUSE, LLM_POLICY_PARK};
    for (uint32_t i = 0; i < 3; i++) {
        files_make_directory(directory);
        driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0,cells=1000",
                                                      .n_sessions = 4,
                                                      .capacity_policy = policies[i],
                                                      .state_dir = directory});
        CHECK_INT(driver_wait(d, begin(d, OWN, "loaded", 500, 1, 5))->status, LLM_OK);
        CHECK_INT(driver_wait(d, driver_command(d, LLM_COMMAND_SAVE, OWN, "loaded", "label"))->status, LLM_OK);
        CHECK_INT(driver_wait(d, driver_command(d, LLM_COMMAND_LOAD, OWN, "loaded", "label"))->status, LLM_OK);
        CHECK_INT(driver_wait(d, begin(d, OWN, "holder", 600, 2, 5))->status, LLM_OK);
        (void)begin(d, OWN, NULL, 20, 3, 30); /* so that the following two requests arrive together */
        generate_call call = call_of(OWN, "loaded", 510, 1, 5);
        const uint64_t first = driver_generate(d, &call);
        call = call_of(OWN, "holder", 610, 2, 5);
        call.after = first;
        CHECK_INT(driver_wait(d, driver_generate(d, &call))->status, LLM_OK);
        driver_wait_all(d);
        CHECK(policies[i] == LLM_POLICY_REFUSE || driver_answer(d, first)->status == LLM_OK);
        CHECK_INT(driver_close(d), 0);
        files_remove_directory(directory);
    }
}

/* The scratch session's tokens are parked. A generation that nobody reads holds the cells that they need. The request
 * begins without those tokens. */
static void a_scratch_session_needs_no_more_than_a_new_one(void)
{
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0,cells=1000,step_us=500",
                                                  .n_sessions = 4,
                                                  .n_scratch = 1,
                                                  .n_parked_max = 8,
                                                  .capacity_policy = LLM_POLICY_PARK});
    const uint64_t unread = begin(d, OWN, "unread", 500, 1, 0);
    driver_wait_text(d, unread);
    const uint64_t scratch = begin(d, OWN, NULL, LONG, 2, 0);
    driver_wait_text(d, scratch);
    while (driver_counter(d, LLM_COUNTER_PREEMPTIONS) == 0) {
        (void)driver_drain(d);
    }
    driver_cancel(d, scratch);
    (void)driver_wait(d, scratch);
    while (driver_answer(d, unread)->n_text < 400) {
        (void)driver_drain(d);
    }
    driver_pause(d, unread, true);
    driver_fence(d);
    CHECK_INT(driver_wait(d, begin(d, OWN, NULL, LONGER, 2, 5))->status, LLM_OK);
    driver_cancel(d, unread);
    driver_wait_all(d);
    CHECK_INT(driver_close(d), 0);
}

static void a_share_that_grows_wakes_who_waits_for_it(void)
{
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0",
                                                  .n_sessions = 2,
                                                  .n_scratch = 2,
                                                  .n_owners = 2,
                                                  .capacity_policy = LLM_POLICY_PARK});
    const uint64_t paused = begin(d, OWN, NULL, 20, 1, 0);
    driver_wait_text(d, paused);
    driver_pause(d, paused, true);
    const uint64_t waiting = begin(d, OWN, NULL, 20, 2, 5);
    driver_fence(d);
    llm_engine_set_owners(d->engine, 1);
    CHECK_INT(driver_wait(d, waiting)->status, LLM_OK);
    driver_cancel(d, paused);
    driver_wait_all(d);
    CHECK_INT(driver_close(d), 0);
}

static uint32_t n_branches(driver *d, const char *name)
{
    uint32_t n = 0;
    for (branch *b = NULL; (b = table_next(&d->engine->table, session_name_from(OWN, name), b)) != NULL;) {
        n++;
    }
    return n;
}

static void who_is_refused_has_cost_nobody_a_branch(void)
{
    driver *d = driver_open(
        &(llm_engine_options){.model = "sim:dense,length=0", .n_sessions = 8, .capacity_policy = LLM_POLICY_REFUSE});
    for (uint64_t seed = 1; seed <= 3; seed++) {
        say(d, OWN, "several", seed);
    }
    for (uint64_t seed = 4; seed <= 8; seed++) {
        const char name[] = {(char)('a' + seed), 0};
        say(d, OWN, name, seed);
    }
    const uint32_t n = n_branches(d, "several");
    CHECK(n > 1);
    llm_engine_set_owners(d->engine, 4);
    CHECK_INT(driver_wait(d, begin(d, OWN, "several", LONG, 20, 5))->status, LLM_CAPACITY);
    CHECK_INT(n_branches(d, "several"), n);
    CHECK_INT(driver_close(d), 0);
}

static const char *const left[] = {"a", "b", "c", "e", "f", "g"};
enum { N_PARKED = 6 };

/* Leaves N_PARKED sessions in files, the first one the oldest. Then opens an engine with two slots. */
static void open_parked(const char *simulated, void (*before_start)(driver *d), driver **out)
{
    llm_engine_options options = {
        .model = simulated, .n_sessions = N_PARKED, .capacity_policy = LLM_POLICY_PARK, .state_dir = directory};
    driver *d = driver_open(&options);
    for (uint32_t i = 0; i < N_PARKED; i++) {
        say(d, OWN, left[i], 1 + i);
        usleep(2000); /* so that the next time stamp differs */
    }
    CHECK_INT(driver_close(d), 0);
    options.n_sessions = 2;
    options.n_parked_max = 1;
    *out = driver_open_then(&options, before_start);
}

/* Sends a SAVE for each session, while a generation runs. All of them succeed, and no session is replaced. */
static void commands_for_all_that_are_parked_cost_nobody_anything(void)
{
    uint64_t saved[N_PARKED];
    files_make_directory(directory);
    driver *d = NULL;
    open_parked("sim:dense,length=0", NULL, &d);
    const uint64_t busy = begin(d, OWN, NULL, 20, 9, 0);
    driver_wait_text(d, busy);
    for (uint32_t i = 0; i < N_PARKED; i++) {
        saved[i] = driver_command(d, LLM_COMMAND_SAVE, OWN, left[i], left[i]);
    }
    for (uint32_t i = 0; i < N_PARKED; i++) {
        CHECK_INT(driver_wait(d, saved[i])->status, LLM_OK);
    }
    CHECK_INT(d->n_forgotten, 0);
    driver_cancel(d, busy);
    driver_wait_all(d);
    CHECK_INT(driver_close(d), 0);
    files_remove_directory(directory);
}

/* Only one state may be in flight. The other session's state stays on the disk until then. */
static void two_that_come_back_together_both_have_their_states(void)
{
    files_make_directory(directory);
    driver *d = NULL;
    open_parked("sim:dense,length=0,state_kb=4096", one_state_at_a_time, &d);
    const uint64_t asked[] = {begin(d, OWN, left[0], LONGER, 1, 5), begin(d, OWN, left[1], LONGER, 2, 5)};
    driver_wait_all(d);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_INT(driver_answer(d, asked[i])->status, LLM_OK);
        CHECK(driver_answer(d, asked[i])->n_reused >= LONG);
    }
    CHECK_INT(driver_close(d), 0);
    files_remove_directory(directory);
}

/* Each FORK copies 64 MiB and parks another session. This takes longer than gap_ms_target. */
static void a_burst_of_forks_leaves_steps_to_who_decodes(void)
{
    enum { N_FORKS = 10 };
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0,state_kb=65536,step_us=2000",
                                                  .n_parked_max = 20,
                                                  .parked_bytes_max = 128 << 20,
                                                  .capacity_policy = LLM_POLICY_PARK,
                                                  .gap_ms_target = 1});
    say(d, OWN, "copied", 1);
    const uint64_t stream = begin(d, OWN, "stream", LONG, 2, 0);
    (void)driver_wait_text(d, stream);
    const uint64_t n_loops = driver_counter(d, LLM_COUNTER_HEARTBEAT);
    uint64_t forks[N_FORKS];
    for (int i = 0; i < N_FORKS; i++) {
        char name[16];
        snprintf(name, sizeof name, "fork%d", i);
        forks[i] = driver_fork(d, OWN, "copied", name, UINT32_MAX);
    }
    for (int i = 0; i < N_FORKS; i++) {
        CHECK_INT(driver_wait(d, forks[i])->status, LLM_OK);
    }
    CHECK(driver_counter(d, LLM_COUNTER_HEARTBEAT) - n_loops >= N_FORKS / 2);
    driver_cancel(d, stream);
    driver_wait_all(d);
    CHECK_INT(driver_close(d), 0);
}

int main(void)
{
    RUN(a_burst_of_forks_leaves_steps_to_who_decodes);
    RUN(newcomers_leave_a_turn_to_who_is_on_the_disk);
    RUN(resets_leave_a_turn_to_states);
    RUN(one_owners_sessions_leave_a_slot_to_anothers_on_the_disk);
    RUN(who_holds_the_cells_does_not_wait_for_who_needs_them);
    RUN(a_scratch_session_needs_no_more_than_a_new_one);
    RUN(a_share_that_grows_wakes_who_waits_for_it);
    RUN(who_is_refused_has_cost_nobody_a_branch);
    RUN(commands_for_all_that_are_parked_cost_nobody_anything);
    RUN(two_that_come_back_together_both_have_their_states);
    return CHECK_RESULT();
}
