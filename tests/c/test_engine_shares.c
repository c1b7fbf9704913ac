/* Tests several owners, pins, and too little memory for all: which requests are served, which states are kept, and that
 * each request ends. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "engine_driver.h"

enum { LONG = 300, OWN = 1, OTHER = 2 };

static const generate_call *call_of(uint32_t owner, const char *session, uint64_t seed)
{
    static int32_t tokens[LONG];
    static generate_call call;
    make_prompt(tokens, LONG, seed);
    call = (generate_call){.owner = owner, .session = session, .prompt = tokens, .n_prompt = LONG, .max_tokens = 5};
    return &call;
}

static const answer *say(driver *d, uint32_t owner, const char *session, uint64_t seed)
{
    return driver_wait(d, driver_generate(d, call_of(owner, session, seed)));
}

static uint64_t endless(driver *d, uint32_t owner, const char *session, uint64_t seed)
{
    generate_call call = *call_of(owner, session, seed);
    call.max_tokens = 0;
    return driver_generate(d, &call);
}

static uint32_t pin(driver *d, uint32_t owner, const char *session, bool pinned)
{
    return driver_wait(d, driver_pin(d, owner, session, pinned))->status;
}

static bool is_open(const driver *d, uint32_t owner, const char *name)
{
    for (uint32_t entry = 0; entry < d->info.n_entries; entry++) {
        llm_branch_view view;
        if (llm_session_table_entry(d->session_table, entry, &view) == LLM_OK && view.owner == owner &&
            strcmp(view.name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- pins ---- */

/* Other prompts in the same session do not remove the pinned history, so a later prompt continues it. */
static void test_a_pinned_history_outlives_other_prompts(void)
{
    static const llm_policy policies[] = {LLM_POLICY_REFUSE, LLM_POLICY_EVICT, LLM_POLICY_PARK};
    for (size_t i = 0; i < 3; i++) {
        for (uint32_t branches_max = 1; branches_max <= 3; branches_max++) {
            driver *d = driver_open(&(llm_engine_options){.model = "sim:hybrid,length=0",
                                                          .n_sessions = 5,
                                                          .branches_max = branches_max,
                                                          .capacity_policy = policies[i]});
            generate_call first = *call_of(OWN, "a", 1);
            first.n_prompt = LONG - 50;
            CHECK_INT(driver_wait(d, driver_generate(d, &first))->status, LLM_OK);
            CHECK_INT(pin(d, OWN, "a", true), LLM_OK);
            for (uint64_t seed = 10; seed < 14; seed++) {
                CHECK_INT(say(d, OWN, "a", seed)->status, LLM_OK);
            }
            const answer *again = say(d, OWN, "a", 1);
            CHECK(again->n_reused >= LONG - 50);
            CHECK_INT(driver_close(d), 0);
        }
    }
}

/* A branch that is opened later is pinned with its session, but the next branch may replace it. After the unpin, all
 * branches can be removed. */
static void test_later_branches_are_pinned_with_their_session(void)
{
    driver *d = driver_open(&(llm_engine_options){
        .model = "sim:dense,length=0", .n_sessions = 5, .branches_max = 2, .capacity_policy = LLM_POLICY_EVICT});
    llm_branch_view view;
    CHECK_INT(say(d, OWN, "a", 1)->status, LLM_OK);
    CHECK_INT(pin(d, OWN, "a", true), LLM_OK);
    const uint32_t entry = say(d, OWN, "a", 2)->entry;
    CHECK_INT(llm_session_table_entry(d->session_table, entry, &view), LLM_OK);
    CHECK_INT(view.is_pinned, LLM_PIN_SESSION);
    CHECK_INT(say(d, OWN, "a", 3)->status, LLM_OK); /* replaces the second branch */
    CHECK(say(d, OWN, "a", 2)->n_reused == 0);
    CHECK(say(d, OWN, "a", 1)->n_reused > 0);
    CHECK_INT(pin(d, OWN, "a", false), LLM_OK);
    for (uint64_t i = 0; i < 5; i++) {
        const char name[] = {'n', (char)('0' + i), '\0'};
        CHECK_INT(say(d, OWN, name, 20 + i)->status, LLM_OK);
    }
    driver_fence(d);
    CHECK(!is_open(d, OWN, "a"));
    CHECK_INT(driver_close(d), 0);
}

static void test_pins_leave_room(void)
{
    driver *d = driver_open(&(llm_engine_options){
        .model = "sim:dense", .n_sessions = 8, .n_owners = 2, .capacity_policy = LLM_POLICY_EVICT});
    CHECK_INT(d->info.n_pins_max, 6);
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    for (uint32_t i = 0; i < 6; i++) { /* 6 pins in total, of which one owner may have 5 */
        CHECK_INT(say(d, OWN, names[i], i)->status, LLM_OK);
        CHECK_INT(pin(d, OWN, names[i], true), i < 5 ? LLM_OK : LLM_PINS);
    }
    CHECK_INT(say(d, OTHER, "a", 1)->status, LLM_OK);
    CHECK_INT(pin(d, OTHER, "a", true), LLM_OK);
    CHECK_INT(say(d, OTHER, "b", 1)->status, LLM_OK);
    CHECK_INT(pin(d, OTHER, "b", true), LLM_PINS);
    CHECK_INT(pin(d, OWN, "a", true), LLM_OK); /* the session is already pinned, so this needs no further pin */
    CHECK_INT(pin(d, OWN, "a", false), LLM_OK);
    CHECK_INT(pin(d, OTHER, "b", true), LLM_OK);
    CHECK_INT(pin(d, OTHER, "nobody", true), LLM_NOT_FOUND);
    CHECK_INT(say(d, OWN, "new", 9)->status, LLM_OK); /* pins always leave an entry for another session */
    CHECK_INT(driver_close(d), 0);
}

/* ---- what cannot come is not waited for ---- */

static void test_a_parked_session_that_can_never_come_back_fails(void)
{
    /* first with policy refuse, then with policy evict and the other session pinned */
    for (uint32_t pins = 0; pins < 2; pins++) {
        driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0,cells=500",
                                                      .n_sessions = 3,
                                                      .capacity_policy = pins ? LLM_POLICY_EVICT : LLM_POLICY_REFUSE});
        CHECK_INT(say(d, OWN, "parked", 1)->status, LLM_OK);
        CHECK_INT(driver_wait(d, driver_park(d, OWN, "parked"))->status, LLM_OK);
        CHECK_INT(say(d, OWN, "other", 2)->status, LLM_OK);
        CHECK_INT(pin(d, OWN, "other", pins == 1), LLM_OK);
        const answer *a = say(d, OWN, "parked", 1);
        CHECK_INT(a->finished.outcome, LLM_OUTCOME_FAILED);
        CHECK_STR(llm_word(LLM_STATUSES, (int)a->status), "kv_cache_full");
        CHECK_INT(driver_wait(d, driver_close_session(d, OWN, "other"))->status, LLM_OK);
        CHECK(say(d, OWN, "parked", 1)->n_reused > 0); /* the failed request has lost nothing */
        CHECK_INT(driver_close(d), 0);
    }
}

/* A parked session waits while another session generates. That one generates at most 60 tokens, so that there are cells
 * for the third session, however late the pause comes. */
static void test_a_parked_session_waits_for_who_runs(void)
{
    driver *d = driver_open(&(llm_engine_options){
        .model = "sim:dense,length=0,cells=700,step_us=1000", .n_sessions = 3, .capacity_policy = LLM_POLICY_EVICT});
    CHECK_INT(say(d, OWN, "parked", 1)->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_park(d, OWN, "parked"))->status, LLM_OK);
    generate_call other = *call_of(OWN, "other", 2);
    other.max_tokens = 60;
    const uint64_t running = driver_generate(d, &other);
    driver_wait_text(d, running);
    driver_pause(d, running, true);
    CHECK_INT(say(d, OWN, "third", 3)->status, LLM_OK);
    const uint64_t waiting = driver_generate(d, call_of(OWN, "parked", 1));
    driver_loop(d);
    driver_cancel(d, running);
    CHECK_INT(driver_wait(d, waiting)->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
}

/* ---- one owner beside another ---- */

static driver *open_for_two(llm_policy policy, uint32_t n_sessions)
{
    return driver_open(&(llm_engine_options){.model = "sim:dense,length=0,step_us=200,ctx=100000",
                                             .n_ctx = 100000,
                                             .n_sessions = n_sessions,
                                             .n_owners = 2,
                                             .capacity_policy = policy});
}

static void test_endless_generations_leave_a_slot_to_others(void)
{
    driver *d = open_for_two(LLM_POLICY_PARK, 2);
    uint64_t greedy[6];
    for (uint32_t i = 0; i < 6; i++) {
        const char name[] = {'a', (char)('0' + i), '\0'};
        greedy[i] = endless(d, OWN, i < 3 ? name : NULL, i);
    }
    driver_wait_text(d, greedy[0]);
    CHECK_INT(say(d, OTHER, "hi", 9)->status, LLM_OK);
    CHECK_INT(say(d, OTHER, NULL, 9)->status, LLM_OK);
    for (uint32_t i = 0; i < 6; i++) {
        CHECK(!driver_answer(d, greedy[i])->is_over);
        driver_cancel(d, greedy[i]);
    }
    driver_wait_all(d);
    CHECK_INT(driver_close(d), 0);
}

/* The owner with fewer slots is served first, even if another owner's request has waited longer. */
static void test_the_owner_with_the_fewest_slots_is_next(void)
{
    driver *d = open_for_two(LLM_POLICY_PARK, 4);
    const uint64_t first = endless(d, OWN, "a0", 0);
    const uint64_t second = endless(d, OWN, "a1", 1);
    const uint64_t last = endless(d, OWN, "a2", 2);
    const uint64_t others = endless(d, OTHER, "b0", 3);
    driver_wait_text(d, others);
    driver_wait_text(d, last);
    const uint64_t third = endless(d, OWN, "a3", 5);
    const uint64_t next = endless(d, OTHER, "b1", 4);
    driver_loop(d);
    CHECK(!driver_answer(d, third)->is_started && !driver_answer(d, next)->is_started);
    driver_cancel(d, first);
    CHECK(driver_wait_started(d, next)->is_started);
    CHECK(!driver_answer(d, third)->is_started);
    driver_cancel(d, second);
    CHECK(driver_wait_started(d, third)->is_started);
    driver_cancel(d, third);
    driver_cancel(d, last);
    driver_cancel(d, next);
    driver_cancel(d, others);
    driver_wait_all(d);
    CHECK_INT(driver_close(d), 0);
}

static void test_queues_have_room_for_others(void)
{
    enum { N = LLM_SCRATCH_QUEUE_MAX + 10 };
    driver *d = open_for_two(LLM_POLICY_PARK, 2);
    uint64_t requests[N];
    uint32_t n_refused = 0;
    for (uint32_t i = 0; i < N; i++) {
        requests[i] = endless(d, OWN, NULL, i);
        if (i == 0) { /* the first request has begun; the others wait */
            driver_wait_text(d, requests[i]);
        }
    }
    const uint64_t other = driver_generate(d, call_of(OTHER, NULL, 99));
    CHECK_INT(driver_wait(d, other)->status, LLM_OK);
    for (uint32_t i = 0; i < N; i++) {
        n_refused += driver_answer(d, requests[i])->status == LLM_QUEUE_FULL;
        driver_cancel(d, requests[i]);
    }
    driver_wait_all(d);
    CHECK_INT(n_refused,
              /* those that exceed three quarters of the queue and the running request */
              N - 3 * LLM_SCRATCH_QUEUE_MAX / 4 - 1);
    llm_engine_set_owners(d->engine, 1);
    CHECK_INT(driver_close(d), 0);
}

/* Busy sessions cannot be replaced, so an owner with busy sessions cannot use all entries. */
static void test_busy_sessions_leave_entries_to_others(void)
{
    driver *d = open_for_two(LLM_POLICY_EVICT, 4);
    const uint64_t busy[] = {endless(d, OWN, "a", 0), endless(d, OWN, "b", 1), endless(d, OWN, "c", 2)};
    const answer *more = say(d, OWN, "d", 3);
    CHECK_INT(more->finished.outcome, LLM_OUTCOME_REFUSED);
    CHECK_STR(llm_word(LLM_STATUSES, (int)more->status), "capacity_exhausted");
    driver_fence(d);
    CHECK(!is_open(d, OWN, "d"));
    /* waits for the request that runs in this session */
    const uint64_t behind = driver_generate(d, call_of(OWN, "a", 0));
    CHECK_INT(say(d, OTHER, "d", 3)->status, LLM_OK);
    driver_cancel(d, busy[0]);
    CHECK_INT(driver_wait(d, behind)->status, LLM_OK);
    driver_cancel(d, busy[1]);
    driver_cancel(d, busy[2]);
    driver_wait_all(d);
    CHECK_INT(driver_close(d), 0);
}

/* Policy refuse replaces no session, so an owner cannot use all entries. */
static void test_entries_that_nobody_gives_up_are_not_all_for_one(void)
{
    driver *d = driver_open(&(llm_engine_options){
        .model = "sim:dense", .n_sessions = 4, .n_owners = 2, .capacity_policy = LLM_POLICY_REFUSE});
    static const char *const names[] = {"a", "b", "c", "d"};
    for (uint32_t i = 0; i < 4; i++) {
        CHECK_INT(say(d, OWN, names[i], i)->status, i < 3 ? LLM_OK : LLM_CAPACITY);
    }
    CHECK_INT(say(d, OWN, "a", 9)->status, LLM_OK); /* continues the session's only branch */
    CHECK_INT(say(d, OTHER, "a", 1)->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
}

static void test_the_greedy_owner_gives_first(void)
{
    driver *d = driver_open(&(llm_engine_options){
        .model = "sim:dense", .n_sessions = 4, .n_owners = 2, .capacity_policy = LLM_POLICY_EVICT});
    CHECK_INT(say(d, OTHER, "oldest", 0)->status, LLM_OK);
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    for (uint32_t i = 0; i < 5; i++) {
        CHECK_INT(say(d, OWN, names[i], 1 + i)->status, LLM_OK);
    }
    driver_fence(d);
    CHECK(is_open(d, OTHER, "oldest"));
    CHECK(!is_open(d, OWN, "a") && !is_open(d, OWN, "b") && is_open(d, OWN, "c"));
    /* the other owner replaces sessions of the first one until both have the same number */
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_INT(say(d, OTHER, names[i], 1 + i)->status, LLM_OK);
    }
    driver_fence(d);
    CHECK(is_open(d, OTHER, "b") && is_open(d, OWN, "e"));
    CHECK_INT(driver_close(d), 0);
}

/* If one owner has more parked states, that owner's states are dropped first. The other owner's only state stays,
 * although it is the oldest. */
static void test_the_budget_of_parked_states_is_shared(void)
{
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0,state_kb=64",
                                                  .n_sessions = 1,
                                                  .n_owners = 2,
                                                  .parked_bytes_max = 300 << 10,
                                                  .capacity_policy = LLM_POLICY_PARK});
    CHECK_INT(say(d, OTHER, "oldest", 0)->status, LLM_OK);
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    for (uint32_t i = 0; i < 6; i++) {
        CHECK_INT(say(d, OWN, names[i], 1 + i)->status, LLM_OK);
    }
    CHECK(driver_counter(d, LLM_COUNTER_PARKED_DROPPED) > 0);
    CHECK(say(d, OTHER, "oldest", 0)->n_reused > 0);
    CHECK_STR(llm_word(LLM_REASONS, (int)say(d, OWN, "a", 1)->reason), "torn");
    CHECK_INT(driver_close(d), 0);
}

/* ---- what is given up is told ---- */

static void test_a_session_that_is_evicted_is_told(void)
{
    driver *d =
        driver_open(&(llm_engine_options){.model = "sim:dense", .n_sessions = 3, .capacity_policy = LLM_POLICY_EVICT});
    CHECK_INT(say(d, OWN, "a", 1)->status, LLM_OK);
    CHECK_INT(say(d, OWN, "a", 2)->status, LLM_OK); /* a second branch */
    CHECK_INT(say(d, OTHER, "b", 3)->status, LLM_OK);
    CHECK_INT(say(d, OTHER, "c", 4)->status, LLM_OK);
    CHECK_INT(d->n_forgotten, 0); /* only a branch was replaced, not the session */
    CHECK_INT(say(d, OTHER, "d", 5)->status, LLM_OK);
    CHECK_INT(d->n_forgotten, 1);
    CHECK(d->forgotten_owner == OWN && strcmp(d->forgotten, "a") == 0);
    /* a CLOSE causes no FORGOTTEN event */
    CHECK_INT(driver_wait(d, driver_close_session(d, OTHER, "d"))->status, LLM_OK);
    CHECK_INT(say(d, OTHER, NULL, 6)->status, LLM_OK);
    driver_fence(d);
    CHECK_INT(d->n_forgotten, 1);
    CHECK_INT(driver_close(d), 0);
}

/* Each new session replaces the one before, which causes a FORGOTTEN event. Nobody drains the ring, so there are more
 * events than it can hold. */
static void test_names_given_up_wait_for_room(void)
{
    enum { N = 3000 };
    driver *d = driver_open(&(llm_engine_options){
        .model = "sim:dense", .n_sessions = 1, .event_ring_bytes = 1, .capacity_policy = LLM_POLICY_EVICT});
    d->drains_late = true;
    uint64_t last = 0;
    for (uint32_t i = 0; i < N; i++) {
        char name[LLM_SESSION_NAME_BYTES_MAX + 1];
        snprintf(name, sizeof name, "%0128u", i);
        generate_call call = *call_of(OWN, name, i % 7);
        call.n_prompt = 1;
        call.max_tokens = 1;
        last = driver_generate(d, &call);
        while (!driver_answer(d, last)->is_over && i % 8 == 7) {
            driver_drain(d);
        }
    }
    driver_wait_all(d);
    driver_fence(d);
    uint64_t n_answered = 0;
    for (uint64_t i = 1; i <= last; i++) {
        n_answered += driver_answer(d, i)->status == LLM_OK;
    }
    CHECK(n_answered > 0);
    CHECK_INT(d->n_forgotten, n_answered - 1); /* all sessions except the open one */
    CHECK_INT(driver_close(d), 0);
}

static void test_a_session_whose_time_is_over_is_told(void)
{
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense", .idle_s_max = 1});
    CHECK_INT(say(d, OWN, "a", 1)->status, LLM_OK);
    while (d->n_forgotten == 0) {
        driver_wait(d, driver_reset(d, UINT32_MAX, "never-opened"));
    }
    CHECK(d->forgotten_owner == OWN && strcmp(d->forgotten, "a") == 0);
    CHECK_INT(driver_close(d), 0);
}

/* ---- storm ---- */

/* Sends random commands of three owners to an engine that is too small. Every request ends under every policy. */
static void rage(const char *class, llm_policy policy, uint64_t seed, const char *directory)
{
    enum { N_COMMANDS = 500 };
    static const char *const names[] = {"a", "b", "c", "d"};
    driver *d = driver_open(&(llm_engine_options){.model = class,
                                                  .n_sessions = 3,
                                                  .n_scratch = 1,
                                                  .n_owners = 3,
                                                  .n_parked_max = 3,
                                                  .branches_max = 2,
                                                  .parked_bytes_max = 1 << 13,
                                                  .capacity_policy = policy,
                                                  .state_dir = directory});
    random_source r = {.state = seed};
    for (uint32_t i = 0; i < N_COMMANDS; i++) {
        const uint32_t owner = random_below(&r, 3);
        const char *name = names[random_below(&r, 4)];
        const uint32_t kind = random_below(&r, 20);
        if (kind < 10) {
            generate_call call = *call_of(owner, kind == 0 ? NULL : name, random_below(&r, 5));
            call.n_prompt = 1 + random_below(&r, LONG);
            call.max_tokens = 1 + random_below(&r, 200);
            driver_generate(d, &call);
        } else if (kind < 13) {
            driver_park(d, owner, name);
        } else if (kind < 15) {
            driver_pin(d, owner, name, kind == 13);
        } else if (kind < 17) {
            driver_command(d, kind == 15 ? LLM_COMMAND_SAVE : LLM_COMMAND_LOAD, owner, name, "label");
        } else if (kind == 17) {
            driver_fork(d, owner, name, names[random_below(&r, 4)], UINT32_MAX);
        } else if (kind == 18) {
            driver_close_session(d, owner, name);
        } else {
            driver_wait_all(d);
        }
    }
    driver_wait_all(d);
    const bool is_idle = driver_is_idle(d);
    CHECK_INT(driver_close(d), 0);
    CHECK(is_idle);
}

static void test_everything_ends(void)
{
    static const char *const models[] = {"sim:dense,cells=400", "sim:hybrid,cells=700", "sim:window,window=50"};
    for (uint64_t i = 0; i < 3; i++) {
        for (llm_policy policy = LLM_POLICY_REFUSE; policy < LLM_POLICY_N; policy++) {
            char directory[] = "/tmp/test_shares.XXXXXX";
            char removal[64];
            CHECK(mkdtemp(directory) != NULL);
            rage(models[i], policy, 1 + 3 * i + (uint64_t)policy, directory);
            snprintf(removal, sizeof removal, "rm -rf %s", directory);
            CHECK_INT(system(removal), 0);
            CHECK_STILL_GOOD();
        }
    }
}

int main(void)
{
    RUN(test_a_pinned_history_outlives_other_prompts);
    RUN(test_later_branches_are_pinned_with_their_session);
    RUN(test_pins_leave_room);
    RUN(test_a_parked_session_that_can_never_come_back_fails);
    RUN(test_a_parked_session_waits_for_who_runs);
    RUN(test_endless_generations_leave_a_slot_to_others);
    RUN(test_the_owner_with_the_fewest_slots_is_next);
    RUN(test_queues_have_room_for_others);
    RUN(test_busy_sessions_leave_entries_to_others);
    RUN(test_entries_that_nobody_gives_up_are_not_all_for_one);
    RUN(test_the_greedy_owner_gives_first);
    RUN(test_the_budget_of_parked_states_is_shared);
    RUN(test_a_session_that_is_evicted_is_told);
    RUN(test_names_given_up_wait_for_room);
    RUN(test_a_session_whose_time_is_over_is_told);
    RUN(test_everything_ends);
    return CHECK_RESULT();
}
