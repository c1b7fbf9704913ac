/* Tests what other sessions lose when a session gets a slot: with a busy disk, a full KV cache, or an owner that has
 * its whole share. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "engine/engine.h"
#include "engine_driver.h"

enum { LONG = 300, LONGEST = 800, OWN = 1, OTHER = 2, N_NAMES = 12, AT_ONCE = 3 };

static const generate_call *call_with(const char *name, uint32_t n_prompt, uint64_t seed)
{
    static int32_t tokens[LONGEST];
    static generate_call call;
    make_prompt(tokens, n_prompt, seed);
    call = (generate_call){.owner = OWN, .session = name, .prompt = tokens, .n_prompt = n_prompt, .max_tokens = 5};
    return &call;
}

static const generate_call *call_of(const char *name, uint64_t seed)
{
    return call_with(name, LONG, seed);
}

static const answer *say(driver *d, const char *name, uint64_t seed)
{
    return driver_wait(d, driver_generate(d, call_of(name, seed)));
}

/* Starts generations in a, b and c, and pauses each in the middle of its answer. */
static void hold_slots(driver *d, uint64_t seed, uint64_t *busy)
{
    static const char *const names[AT_ONCE] = {"a", "b", "c"};
    for (uint32_t i = 0; i < AT_ONCE; i++) {
        generate_call endless = *call_of(names[i], seed);
        endless.max_tokens = 0;
        busy[i] = driver_generate(d, &endless);
        (void)driver_wait_text(d, busy[i]);
        driver_pause(d, busy[i], true);
    }
}

static void let_go(driver *d, const uint64_t *busy)
{
    for (uint32_t i = 0; i < AT_ONCE; i++) {
        CHECK(!driver_answer(d, busy[i])->is_over);
        driver_pause(d, busy[i], false);
        driver_cancel(d, busy[i]);
    }
    driver_wait_all(d);
}

static void remove_directory(const char *path)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", path);
    CHECK_INT(system(command), 0);
}

static void one_state_at_a_time(driver *d)
{
    d->engine->ledger.n_in_flight_max = 1;
}

/* The disk takes one state at a time, and all states must go there. Requests wait for a slot until the disk is ready,
 * and no state is lost. */
static void test_a_slot_waits_for_a_busy_disk(void)
{
    char directory[] = "/tmp/test_slots.XXXXXX";
    CHECK(mkdtemp(directory) != NULL);
    driver *d = driver_open_then(&(llm_engine_options){.model = "sim:dense,length=0,state_kb=4096",
                                                       .n_sessions = AT_ONCE,
                                                       .n_parked_max = N_NAMES,
                                                       .parked_bytes_max = 1,
                                                       .capacity_policy = LLM_POLICY_PARK,
                                                       .state_dir = directory},
                                 one_state_at_a_time);
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t first = 0; first < N_NAMES; first += AT_ONCE) {
            uint64_t asked[AT_ONCE];
            for (uint32_t i = 0; i < AT_ONCE; i++) {
                const char name[] = {(char)('a' + first + i), 0};
                asked[i] = driver_generate(d, call_of(name, first + i));
            }
            for (uint32_t i = 0; i < AT_ONCE; i++) {
                const answer *a = driver_wait(d, asked[i]);
                CHECK_INT(a->status, LLM_OK);
                CHECK(pass == 0 || a->reason == LLM_REASON_RESTORED);
            }
        }
    }
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_DROPPED), 0);
    CHECK_INT(driver_close(d), 0);
    remove_directory(directory);
}

/* One owner uses all slots that it may use, and another of its sessions waits in memory. The remaining slot goes to the
 * other owner, although the state of its session must first be read from the disk. */
static void test_what_may_not_sit_keeps_nobody_on_the_disk(void)
{
    char directory[] = "/tmp/test_slots.XXXXXX";
    CHECK(mkdtemp(directory) != NULL);
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0,step_us=10000,state_kb=64",
                                                  .n_sessions = 4,
                                                  .n_owners = 2,
                                                  .n_parked_max = N_NAMES,
                                                  .parked_bytes_max = 100 << 10,
                                                  .capacity_policy = LLM_POLICY_PARK,
                                                  .state_dir = directory});
    generate_call others = *call_of("x", 1);
    others.owner = OTHER;
    CHECK_INT(driver_wait(d, driver_generate(d, &others))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_park(d, OTHER, "x"))->status, LLM_OK);
    CHECK_INT(say(d, "d", 2)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_park(d, OWN, "d"))->status, LLM_OK);
    driver_wait(d, driver_unsave(d, 0, "nothing")); /* the reply comes after all earlier disk jobs */
    uint64_t busy[AT_ONCE];
    hold_slots(d, 3, busy);
    for (uint32_t i = 0; i < AT_ONCE; i++) {
        driver_pause(d, busy[i], false); /* a generation that is not read would be parked */
    }
    const uint64_t waiting = driver_generate(d, call_of("d", 2));
    others = *call_of("x", 1);
    others.owner = OTHER;
    const answer *a = driver_wait(d, driver_generate(d, &others));
    CHECK_INT(a->status, LLM_OK);
    CHECK_INT(a->reason, LLM_REASON_RESTORED);
    CHECK(!driver_answer(d, waiting)->is_over);
    let_go(d, busy);
    CHECK_INT(driver_answer(d, waiting)->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
    remove_directory(directory);
}

/* The KV cache has no room for both sessions. The fork nevertheless gets the tokens and their state. */
static void test_a_fork_in_a_full_cache_has_the_tokens(void)
{
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0,cells=500",
                                                  .exact = 1, /* so that a copy needs cells of its own */
                                                  .n_sessions = 2,
                                                  .n_parked_max = 4,
                                                  .capacity_policy = LLM_POLICY_PARK});
    CHECK_INT(say(d, "a", 1)->status, LLM_OK);
    const answer *fork = driver_wait(d, driver_fork(d, OWN, "a", "b", UINT32_MAX));
    CHECK_INT(fork->status, LLM_OK);
    CHECK(fork->n_tokens >= LONG);
    CHECK(say(d, "b", 1)->n_reused >= LONG - 1);
    CHECK(say(d, "a", 1)->n_reused >= LONG - 1);
    CHECK_INT(driver_close(d), 0);
}

/* The copied state has more tokens than the fork needs, and there are no cells in which it can be truncated. No cells
 * are taken from the parent for this, because the parent would be forgotten. */
static void test_a_fork_in_a_full_cache_forgets_no_parent(void)
{
    enum { N_ASKED = 200 };
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0,cells=500",
                                                  .exact = 1, /* so that a copy needs cells of its own */
                                                  .n_sessions = 2,
                                                  .capacity_policy = LLM_POLICY_EVICT});
    CHECK_INT(say(d, "a", 1)->status, LLM_OK);
    const uint32_t n_tokens = driver_session(d, "a").n_tokens;
    const answer *fork = driver_wait(d, driver_fork(d, OWN, "a", "b", N_ASKED));
    CHECK_INT(fork->status, LLM_OK);
    CHECK_INT(fork->n_tokens, N_ASKED);
    CHECK_INT(d->n_forgotten, 0);
    CHECK_INT(driver_session(d, "a").n_tokens, n_tokens);
    CHECK_INT(driver_session(d, "b").n_tokens, N_ASKED);
    CHECK_INT(driver_close(d), 0);
}

/* Forks 0 tokens: with a slot for the fork, without cells, and without a slot. */
static void test_a_fork_of_nothing_is_empty(void)
{
    for (uint32_t n_sessions = 1; n_sessions <= 2; n_sessions++) {
        for (uint32_t i = 0; i < 2; i++) {
            driver *d =
                driver_open(&(llm_engine_options){.model = i == 0 ? "sim:dense,length=0" : "sim:hybrid,cells=500",
                                                  .exact = 1,
                                                  .n_sessions = n_sessions,
                                                  .n_parked_max = 4,
                                                  .capacity_policy = LLM_POLICY_PARK});
            CHECK_INT(say(d, "a", 1)->status, LLM_OK);
            const answer *fork = driver_wait(d, driver_fork(d, OWN, "a", "b", 0));
            CHECK_INT(fork->status, LLM_OK);
            CHECK_INT(fork->n_tokens, 0);
            CHECK_INT(say(d, "b", 2)->status, LLM_OK);
            CHECK_INT(driver_close(d), 0);
        }
    }
}

/* The owner's busy sessions use all entries that they may use. Its next request is refused, and no history of the owner
 * is forgotten. */
static void test_a_refused_request_forgets_no_branch(void)
{
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0,step_us=10000",
                                                  .n_sessions = 4,
                                                  .n_owners = 2,
                                                  .capacity_policy = LLM_POLICY_EVICT});
    CHECK_INT(say(d, "a", 1)->status, LLM_OK);
    CHECK_INT(say(d, "a", 2)->status, LLM_OK);
    uint64_t busy[AT_ONCE];
    hold_slots(d, 1, busy);
    CHECK_INT(say(d, "a", 3)->status, LLM_CAPACITY);
    let_go(d, busy);
    CHECK(say(d, "a", 2)->n_reused >= LONG - 1);
    CHECK_INT(driver_close(d), 0);
}

/* ---- a full KV cache ---- */

enum { N_CELLS = 1000 };

static driver *open_full(const char *of)
{
    return driver_open(
        &(llm_engine_options){.model = of, .n_sessions = 4, .n_parked_max = 60, .capacity_policy = LLM_POLICY_PARK});
}

static void wait_for_preemption(driver *d)
{
    while (driver_counter(d, LLM_COUNTER_PREEMPTIONS) == 0) {
        (void)driver_drain(d);
    }
}

/* A parked generation needs most cells. Newcomers that take turns in the free cells must not keep it out forever. */
static void test_who_lost_its_slot_is_not_overtaken_for_ever(void)
{
    enum { N_NEWCOMERS = 40, OVERTAKING_MAX = 8 + 4, N_NEWCOMER = 250 };
    driver *d = open_full("sim:dense,length=0,cells=1000,step_us=1000");
    generate_call c = *call_with("oldest", N_CELLS - LONGEST, 1);
    c.max_tokens = 0;
    const uint64_t oldest = driver_generate(d, &c);
    c = *call_with("parked", LONGEST - 50, 2);
    c.max_tokens = 100;
    const uint64_t displaced = driver_generate(d, &c);
    wait_for_preemption(d);
    uint64_t newcomers[N_NEWCOMERS];
    for (uint32_t i = 0; i < N_NEWCOMERS; i++) {
        const char name[] = {(char)('A' + i), 0};
        c = *call_with(name, N_NEWCOMER, 3 + i);
        c.max_tokens = 10 + 7 * (i % 3);
        newcomers[i] = driver_generate(d, &c);
    }
    (void)driver_wait_started(d, newcomers[2]);
    driver_cancel(d, oldest);
    CHECK_INT(driver_wait(d, displaced)->status, LLM_OK);
    uint32_t n_overtaking = 0;
    for (uint32_t i = 0; i < N_NEWCOMERS; i++) {
        n_overtaking += driver_answer(d, newcomers[i])->is_started;
    }
    CHECK(n_overtaking <= OVERTAKING_MAX);
    driver_wait_all(d);
    for (uint32_t i = 0; i < N_NEWCOMERS; i++) {
        CHECK_INT(driver_answer(d, newcomers[i])->status, LLM_OK);
    }
    CHECK_INT(driver_close(d), 0);
}

/* A window needs more cells than its sequence has tokens. So the newcomers need not wait for a parked generation that
 * would not fit without them either. */
static void test_nobody_waits_for_what_would_not_fit_then_either(void)
{
    enum { N_WINDOW = 400, N_NEWCOMERS = 16, N_NEWCOMER = 30 };
    driver *d = open_full("sim:window,length=0,window=400,window_cells=3,cells=3220,step_us=1000");
    generate_call c = *call_with("oldest", N_WINDOW, 1);
    c.max_tokens = 0;
    const uint64_t oldest = driver_generate(d, &c);
    c = *call_with("parked", N_WINDOW, 2);
    c.max_tokens = 30;
    const uint64_t displaced = driver_generate(d, &c);
    wait_for_preemption(d);
    for (uint32_t i = 0; i < N_NEWCOMERS; i++) {
        const char name[] = {(char)('A' + i), 0};
        c = *call_with(name, N_NEWCOMER, 3 + i);
        CHECK_INT(driver_wait(d, driver_generate(d, &c))->status, LLM_OK);
    }
    CHECK(!driver_answer(d, oldest)->is_over && !driver_answer(d, displaced)->is_over);
    driver_cancel(d, oldest);
    CHECK_INT(driver_wait(d, displaced)->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
}

/* These policies take no cells from idle or pinned sessions. So an answer without cells fails, but its session stays,
 * also after a restart. */
static void test_a_full_cache_costs_nobody_its_history(void)
{
    static const llm_policy policies[] = {LLM_POLICY_REFUSE, LLM_POLICY_EVICT};
    for (uint32_t i = 0; i < 2; i++) {
        char directory[] = "/tmp/test_slots.XXXXXX";
        CHECK(mkdtemp(directory) != NULL);
        const llm_engine_options options = {.model = "sim:dense,length=0,step_us=1000,cells=1000",
                                            .n_ctx = 1000,
                                            .n_sessions = 4,
                                            .capacity_policy = policies[i],
                                            .state_dir = directory};
        driver *d = driver_open(&options);
        CHECK_INT(driver_wait(d, driver_generate(d, call_with("others", 500, 1)))->status, LLM_OK);
        CHECK_INT(driver_wait(d, driver_pin(d, OWN, "others", true))->status, LLM_OK);
        CHECK_INT(say(d, "full", 2)->status, LLM_OK);
        CHECK_INT(driver_wait(d, driver_pin(d, OWN, "full", true))->status, LLM_OK);
        generate_call endless = *call_of("full", 2);
        endless.max_tokens = 0;
        CHECK_INT(driver_wait(d, driver_generate(d, &endless))->status, LLM_NO_CELLS);
        CHECK(driver_session(d, "full").n_tokens >= LONG);
        CHECK_INT(say(d, "full", 2)->status, LLM_OK);
        CHECK_INT(driver_close(d), 0);
        d = driver_open(&options);
        CHECK(driver_session(d, "full").n_tokens >= LONG);
        CHECK_INT(driver_close(d), 0);
        remove_directory(directory);
    }
}

/* A loaded session does not fit into the cache next to a generation. It gets no slot, and no idle session is forgotten
 * for it. */
static void test_nothing_is_forgotten_for_what_does_not_fit(void)
{
    char directory[] = "/tmp/test_slots.XXXXXX";
    CHECK(mkdtemp(directory) != NULL);
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0,step_us=1000,cells=1000",
                                                  .n_ctx = 1000,
                                                  .n_sessions = 4,
                                                  .capacity_policy = LLM_POLICY_EVICT,
                                                  .state_dir = directory});
    CHECK_INT(driver_wait(d, driver_generate(d, call_with("saved", 600, 1)))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_command(d, LLM_COMMAND_SAVE, OWN, "saved", "label"))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_close_session(d, OWN, "saved"))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_generate(d, call_with("i", 50, 2)))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_generate(d, call_with("j", 50, 3)))->status, LLM_OK);
    generate_call endless = *call_with("busy", 500, 4);
    endless.max_tokens = 0;
    const uint64_t busy = driver_generate(d, &endless);
    driver_wait_text(d, busy);
    driver_pause(d, busy, true);
    CHECK_INT(driver_wait(d, driver_command(d, LLM_COMMAND_LOAD, OWN, "saved", "label"))->status, LLM_OK);
    const uint64_t waiting = driver_generate(d, call_with("saved", 600, 1));
    driver_fence(d);
    CHECK(!driver_answer(d, waiting)->is_over);
    CHECK_INT(d->n_forgotten, 0);
    driver_cancel(d, busy);
    CHECK(driver_wait(d, waiting)->n_reused >= 599);
    CHECK_INT(driver_close(d), 0);
    remove_directory(directory);
}

static uint64_t begin_and_pause(driver *d, const char *name)
{
    generate_call c = *call_of(name, 1);
    c.max_tokens = 0;
    const uint64_t r = driver_generate(d, &c);
    (void)driver_wait_text(d, r);
    driver_pause(d, r, true);
    driver_fence(d);
    return r;
}

static void go_on_to_the_end(driver *d, uint64_t paused)
{
    CHECK(!driver_answer(d, paused)->is_over);
    const size_t n_text = driver_answer(d, paused)->n_text;
    driver_pause(d, paused, false);
    while (driver_answer(d, paused)->n_text == n_text) {
        (void)driver_drain(d);
    }
    driver_cancel(d, paused);
    driver_wait_all(d);
    CHECK_INT(driver_close(d), 0);
}

static void test_an_older_one_that_is_not_read_makes_way(void)
{
    driver *d = open_full("sim:dense,length=0,cells=1000,step_us=1000");
    const uint64_t unread = begin_and_pause(d, "unread");
    generate_call c = *call_of("read", 2);
    c.max_tokens = 600;
    CHECK_INT(driver_wait(d, driver_generate(d, &c))->status, LLM_OK);
    go_on_to_the_end(d, unread);
}

/* First the newer generation is parked. Then the older generation is no longer read, and is parked for the newer
 * one. */
static void test_who_stops_reading_makes_way_to_who_was_parked(void)
{
    driver *d = open_full("sim:dense,length=0,cells=1000,step_us=1000");
    generate_call c = *call_of("older", 1);
    c.max_tokens = 0;
    const uint64_t older = driver_generate(d, &c);
    c = *call_of("newer", 2);
    c.max_tokens = 600;
    const uint64_t newer = driver_generate(d, &c);
    wait_for_preemption(d);
    driver_pause(d, older, true);
    CHECK_INT(driver_wait(d, newer)->status, LLM_OK);
    go_on_to_the_end(d, older);
}

/* A generation that was parked because nobody reads it waits for no slot. So the free slot goes to a session on the
 * disk. */
static void test_an_unread_one_keeps_nobody_on_the_disk(void)
{
    char directory[] = "/tmp/test_slots.XXXXXX";
    CHECK(mkdtemp(directory) != NULL);
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0,step_us=1000,state_kb=64",
                                                  .n_sessions = 1,
                                                  .n_parked_max = N_NAMES,
                                                  .parked_bytes_max = 1,
                                                  .capacity_policy = LLM_POLICY_PARK,
                                                  .state_dir = directory});
    CHECK_INT(say(d, "far", 1)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_park(d, OWN, "far"))->status, LLM_OK);
    const uint64_t unread = begin_and_pause(d, "unread");
    CHECK_INT(say(d, "far", 1)->reason, LLM_REASON_RESTORED);
    go_on_to_the_end(d, unread);
    remove_directory(directory);
}

/* A request that waits for another request's prompt delays no read from disk: it wants a slot only after the other
 * request has had one. */
static void test_who_comes_after_keeps_nobody_on_the_disk(void)
{
    char directory[] = "/tmp/test_slots.XXXXXX";
    CHECK(mkdtemp(directory) != NULL);
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0,step_us=1000,state_kb=64",
                                                  .n_sessions = 1,
                                                  .n_parked_max = N_NAMES,
                                                  .parked_bytes_max = 100 << 10,
                                                  .capacity_policy = LLM_POLICY_PARK,
                                                  .state_dir = directory});
    CHECK_INT(say(d, "far", 1)->status, LLM_OK);
    CHECK_INT(say(d, "near", 1)->status, LLM_OK);
    const uint64_t moving = begin_and_pause(d, "moving");
    CHECK_INT(driver_wait(d, driver_unsave(d, OWN, "nothing"))->status, LLM_NOT_FOUND); /* now "far" is on the disk */
    driver_pause(d, moving, false);
    const uint64_t far = driver_generate(d, call_of("far", 1));
    generate_call c = *call_of("near", 1);
    c.after = far;
    const uint64_t after = driver_generate(d, &c);
    driver_fence(d);
    CHECK(!driver_answer(d, far)->is_started);
    driver_cancel(d, moving);
    CHECK_INT(driver_wait(d, after)->status, LLM_OK);
    CHECK_INT(driver_answer(d, far)->reason, LLM_REASON_RESTORED);
    driver_wait_all(d);
    CHECK_INT(driver_close(d), 0);
    remove_directory(directory);
}

/* A session needs a slot, and a scratch request that is read has one of its own. The unread session is parked
 * nevertheless. */
static void test_an_unread_one_makes_way_whatever_scratch_does(void)
{
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0,step_us=1000,ctx=100000",
                                                  .n_sessions = 1,
                                                  .n_parked_max = N_NAMES,
                                                  .capacity_policy = LLM_POLICY_PARK});
    const uint64_t unread = begin_and_pause(d, "unread");
    generate_call c = *call_of(NULL, 2);
    c.max_tokens = 0;
    const uint64_t moving = driver_generate(d, &c);
    (void)driver_wait_text(d, moving);
    CHECK_INT(say(d, "asks", 3)->status, LLM_OK);
    CHECK(!driver_answer(d, moving)->is_over);
    driver_cancel(d, moving);
    go_on_to_the_end(d, unread);
}

/* If another session's generation will end and free its slot, the unread one stays. */
static void test_an_unread_one_stays_where_a_slot_comes_free(void)
{
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0,step_us=1000",
                                                  .n_sessions = 2,
                                                  .n_parked_max = N_NAMES,
                                                  .capacity_policy = LLM_POLICY_PARK});
    const uint64_t unread = begin_and_pause(d, "unread");
    generate_call c = *call_of("moving", 2);
    c.max_tokens = 100;
    const uint64_t moving = driver_generate(d, &c);
    (void)driver_wait_text(d, moving);
    CHECK_INT(say(d, "asks", 3)->status, LLM_OK);
    CHECK(driver_answer(d, moving)->is_over);
    CHECK_INT(driver_counter(d, LLM_COUNTER_PREEMPTIONS), 0);
    go_on_to_the_end(d, unread);
}

/* A scratch session that nobody reads is parked, and then removed. The next park exceeds the memory budget, and must
 * not write the removed state. */
static void test_nothing_of_scratch_reaches_the_disk(void)
{
    char directory[] = "/tmp/test_slots.XXXXXX";
    CHECK(mkdtemp(directory) != NULL);
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0,cells=1000,step_us=1000",
                                                  .n_sessions = 4,
                                                  .n_parked_max = N_NAMES,
                                                  .parked_bytes_max = 1,
                                                  .capacity_policy = LLM_POLICY_PARK,
                                                  .state_dir = directory});
    const uint64_t unread = begin_and_pause(d, NULL);
    generate_call c = *call_of("read", 2);
    c.max_tokens = 600;
    CHECK_INT(driver_wait(d, driver_generate(d, &c))->status, LLM_OK);
    CHECK_INT(driver_counter(d, LLM_COUNTER_PREEMPTIONS), 1);
    driver_cancel(d, unread);
    driver_wait_all(d);
    CHECK_INT(driver_wait(d, driver_park(d, OWN, "read"))->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
    char command[128];
    snprintf(command, sizeof command, "test $(find %s -type f -name '*-session' | wc -l) = 1", directory);
    CHECK_INT(system(command), 0);
    remove_directory(directory);
}

/* The first request has no slot. It needs cells of the session that the second request uses, and the second waits for
 * the first. */
static void test_who_waits_for_one_without_a_slot_makes_way(void)
{
    driver *d = open_full("sim:dense,length=0,cells=1000,step_us=20000");
    CHECK_INT(driver_wait(d, driver_generate(d, call_with("first", LONGEST, 1)))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_park(d, OWN, "first"))->status, LLM_OK);
    CHECK_INT(say(d, "held", 2)->status, LLM_OK);
    const uint64_t running = driver_generate(d, call_with("running", N_CELLS - LONGEST, 3));
    const uint64_t first = driver_generate(d, call_with("first", LONGEST, 1));
    generate_call c = *call_of("held", 2);
    c.after = first;
    const uint64_t waiting = driver_generate(d, &c);
    CHECK_INT(driver_wait(d, first)->status, LLM_OK);
    CHECK_INT(driver_wait(d, waiting)->status, LLM_OK);
    CHECK_INT(driver_wait(d, running)->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
}

/* Newcomers wait for a generation that lost its slot. A second request with `after` waits for a first one. That
 * generation gets its slot again before the first request decodes, so the second request waits for both. */
static void test_who_waits_for_another_begins_when_that_decodes(void)
{
    enum { N_NEWCOMERS = 8, LONGER = 700 };
    driver *d = open_full("sim:dense,length=0,cells=1000,step_us=20000");
    generate_call c = *call_with("oldest", N_CELLS - LONGER - 50, 1);
    c.max_tokens = 0;
    const uint64_t oldest = driver_generate(d, &c);
    c = *call_with("displaced", LONGER, 2);
    c.max_tokens = 0;
    const uint64_t displaced = driver_generate(d, &c);
    wait_for_preemption(d);
    for (uint32_t i = 0; i < N_NEWCOMERS; i++) {
        CHECK_INT(driver_wait(d, driver_generate(d, call_with("newcomer", 10, i)))->status, LLM_OK);
    }
    driver_cancel(d, oldest);
    c = *call_with(NULL, 50, 99);
    c.max_tokens = 0;
    const uint64_t first = driver_generate(d, &c);
    c.max_tokens = 1;
    c.after = first;
    const uint64_t sibling = driver_generate(d, &c);
    CHECK_INT(driver_wait(d, sibling)->status, LLM_OK);
    CHECK(!driver_answer(d, first)->is_over && !driver_answer(d, displaced)->is_over);
    driver_cancel(d, first);
    driver_cancel(d, displaced);
    driver_wait_all(d);
    CHECK_INT(driver_close(d), 0);
}

/* The two slots of this owner belong to generations that nobody reads. The generation that lost its slot gets one of
 * them. */
static void test_who_lost_its_slot_has_that_of_an_unread_one(void)
{
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0,cells=1000,step_us=1000",
                                                  .n_sessions = 2,
                                                  .n_parked_max = N_NAMES,
                                                  .capacity_policy = LLM_POLICY_PARK});
    generate_call c = *call_of("oldest", 1);
    c.max_tokens = 0;
    const uint64_t oldest = driver_generate(d, &c);
    c = *call_of("displaced", 2);
    c.max_tokens = 600;
    const uint64_t displaced = driver_generate(d, &c);
    wait_for_preemption(d);
    c = *call_with("newcomer", 10, 3);
    c.max_tokens = 0;
    const uint64_t newcomer = driver_generate(d, &c);
    (void)driver_wait_started(d, newcomer);
    driver_pause(d, newcomer, true);
    driver_pause(d, oldest, true);
    CHECK_INT(driver_wait(d, displaced)->status, LLM_OK);
    driver_cancel(d, newcomer);
    driver_cancel(d, oldest);
    driver_wait_all(d);
    CHECK_INT(driver_close(d), 0);
}

/* A request waits in session "held", so it is not idle, but nothing runs in it. Another request takes its cells. */
static void test_a_session_that_is_waited_for_makes_way(void)
{
    driver *d = open_full("sim:dense,length=0,cells=1000,step_us=20000");
    CHECK_INT(say(d, "held", 1)->status, LLM_OK);
    const uint64_t first = driver_generate(d, call_with("first", LONGEST, 2));
    generate_call c = *call_of("held", 1);
    c.after = first;
    const uint64_t waiting = driver_generate(d, &c);
    CHECK_INT(driver_wait(d, first)->status, LLM_OK);
    const answer *a = driver_wait(d, waiting);
    CHECK_INT(a->status, LLM_OK);
    CHECK(a->n_reused >= LONG - 1);
    CHECK_INT(driver_close(d), 0);
}

/* ---- loads beside a stream ---- */

static const model_ops *real_ops;
static model_ops hooked_ops;
static _Atomic uint32_t n_loads, n_loads_in_a_row;
static bool has_loaded; /* whether a state was loaded since the last step; used only by the decode thread */

static model_result slow_load(model *m, uint16_t seq, model_state_kind kind, uint32_t k, const void *bytes,
                              size_t n_bytes)
{
    const struct timespec longer_than_a_gap = {.tv_nsec = 20000000};
    nanosleep(&longer_than_a_gap, NULL);
    n_loads++;
    n_loads_in_a_row += has_loaded;
    has_loaded = true;
    return real_ops->state_load(m, seq, kind, k, bytes, n_bytes);
}

static model_result noted_decode(model *m, const model_batch *batch)
{
    has_loaded = false;
    return real_ops->decode(m, batch);
}

static void load_slowly(driver *d)
{
    real_ops = d->engine->model->ops;
    hooked_ops = *real_ops;
    hooked_ops.state_load = slow_load;
    hooked_ops.decode = noted_decode;
    d->engine->model->ops = &hooked_ops;
}

/* Several sessions return together, and loading each takes longer than gap_ms_target. The stream gets a token between
 * two loads. */
static void test_a_stream_goes_on_between_loads(void)
{
    driver *d = driver_open_then(&(llm_engine_options){.model = "sim:dense,length=0,step_us=2000",
                                                       .n_sessions = AT_ONCE + 1,
                                                       .n_parked_max = N_NAMES,
                                                       .n_ctx = 8192,
                                                       .gap_ms_target = 5,
                                                       .capacity_policy = LLM_POLICY_PARK},
                                 load_slowly);
    static const char *const names[AT_ONCE] = {"a", "b", "c"};
    for (uint32_t i = 0; i < AT_ONCE; i++) {
        CHECK_INT(say(d, names[i], i)->status, LLM_OK);
        CHECK_INT(driver_wait(d, driver_park(d, OWN, names[i]))->status, LLM_OK);
    }
    generate_call endless = *call_of("stream", N_NAMES);
    endless.max_tokens = 0;
    const uint64_t stream = driver_generate(d, &endless);
    (void)driver_wait_text(d, stream);
    for (uint32_t i = 0; i < AT_ONCE; i++) {
        (void)driver_generate(d, call_of(names[i], i));
    }
    while (n_loads < AT_ONCE) {
        (void)driver_drain(d);
    }
    driver_cancel(d, stream);
    driver_wait_all(d);
    CHECK_INT(n_loads_in_a_row, 0);
    CHECK_INT(driver_close(d), 0);
}

/* Each sequence has its own stream, so the model copies cells. If this takes longer than prefilling the tokens, the
 * fork gets the saved state instead. */
static void test_a_fork_holds_what_would_cost_too_much_to_copy(void)
{
    enum { N_LONG = 40000 };
    static int32_t tokens[N_LONG];
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0",
                                                  .exact = 1,
                                                  .n_ctx = 65536,
                                                  .n_parked_max = 4,
                                                  .capacity_policy = LLM_POLICY_PARK});
    make_prompt(tokens, N_LONG, 1);
    const generate_call call = {.session = "long", .prompt = tokens, .n_prompt = N_LONG, .max_tokens = 5};
    CHECK_INT(driver_wait(d, driver_generate(d, &call))->status, LLM_OK);
    d->engine->table.pace = (copy_cost_pace){.token_us = 1, .mib_us = 1e6};
    const answer *forked = driver_wait(d, driver_fork(d, 0, "long", "fork", UINT32_MAX));
    CHECK_INT(forked->status, LLM_OK);
    CHECK_INT(forked->n_tokens, driver_session(d, "long").n_tokens);
    CHECK_INT(driver_close(d), 0);
}

int main(void)
{
    RUN(test_a_slot_waits_for_a_busy_disk);
    RUN(test_what_may_not_sit_keeps_nobody_on_the_disk);
    RUN(test_a_fork_in_a_full_cache_has_the_tokens);
    RUN(test_a_fork_in_a_full_cache_forgets_no_parent);
    RUN(test_a_fork_of_nothing_is_empty);
    RUN(test_a_refused_request_forgets_no_branch);
    RUN(test_who_lost_its_slot_is_not_overtaken_for_ever);
    RUN(test_nobody_waits_for_what_would_not_fit_then_either);
    RUN(test_a_full_cache_costs_nobody_its_history);
    RUN(test_nothing_is_forgotten_for_what_does_not_fit);
    RUN(test_an_older_one_that_is_not_read_makes_way);
    RUN(test_who_stops_reading_makes_way_to_who_was_parked);
    RUN(test_a_session_that_is_waited_for_makes_way);
    RUN(test_who_lost_its_slot_has_that_of_an_unread_one);
    RUN(test_an_unread_one_keeps_nobody_on_the_disk);
    RUN(test_who_comes_after_keeps_nobody_on_the_disk);
    RUN(test_an_unread_one_makes_way_whatever_scratch_does);
    RUN(test_an_unread_one_stays_where_a_slot_comes_free);
    RUN(test_nothing_of_scratch_reaches_the_disk);
    RUN(test_who_waits_for_one_without_a_slot_makes_way);
    RUN(test_who_waits_for_another_begins_when_that_decodes);
    RUN(test_a_stream_goes_on_between_loads);
    RUN(test_a_fork_holds_what_would_cost_too_much_to_copy);
    return CHECK_RESULT();
}
