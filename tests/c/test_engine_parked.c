/* Tests states that were parked while their requests ran, and exceed the budget when the requests end: one by one, or
 * all at a stop. */
#include "check.h"
#include "engine/engine.h"
#include "engine_driver.h"
#include "snapshot_files.h"

enum { LONG = 300, N_PARKED = 3, BUDGET_BYTES = 1 << 20 };

static char directory[FILES_PATH_BYTES];
static const char *const names[N_PARKED] = {"a", "b", "c"};

static generate_call call_of(const char *name, uint64_t seed, uint32_t max_tokens)
{
    static int32_t tokens[LONG];
    make_prompt(tokens, LONG, seed);
    return (generate_call){.session = name, .prompt = tokens, .n_prompt = LONG, .max_tokens = max_tokens};
}

static const answer *say(driver *d, const char *name, uint64_t seed)
{
    const generate_call call = call_of(name, seed, 5);
    return driver_wait(d, driver_generate(d, &call));
}

static void one_state_at_a_time(driver *d)
{
    d->engine->ledger.n_in_flight_max = 1;
}

static driver *open_with(const char *state_dir)
{
    return driver_open_then(&(llm_engine_options){.model = "sim:dense,length=0,state_kb=4096,step_us=500",
                                                  .n_sessions = 1,
                                                  .n_parked_max = 2 * N_PARKED,
                                                  .parked_bytes_max = BUDGET_BYTES,
                                                  .capacity_policy = LLM_POLICY_PARK,
                                                  .state_dir = state_dir},
                            one_state_at_a_time);
}

static uint64_t in_memory(driver *d)
{
    driver_fence(d);
    return driver_counter(d, LLM_COUNTER_PARKED_MEMORY_BYTES);
}

/* Parks N_PARKED generations that nobody reads, so that their states exceed the budget. Each is parked for the next
 * one, and the last one for `another`. */
static void park_under_requests(driver *d, uint64_t *requests)
{
    for (uint32_t i = 0; i < N_PARKED; i++) {
        const generate_call endless = call_of(names[i], i + 1, 0);
        requests[i] = driver_generate(d, &endless);
        (void)driver_wait_text(d, requests[i]);
        driver_pause(d, requests[i], true);
    }
    CHECK_INT(say(d, "another", N_PARKED + 1)->status, LLM_OK);
    CHECK(in_memory(d) > N_PARKED * BUDGET_BYTES);
}

/* The requests end, and nothing else is parked. The memory is freed nevertheless: states go to the disk, or are dropped
 * if there is no disk. */
static void what_ends_is_within_the_budget(const char *state_dir)
{
    uint64_t requests[N_PARKED];
    driver *d = open_with(state_dir);
    park_under_requests(d, requests);
    for (uint32_t i = 0; i < N_PARKED; i++) {
        driver_cancel(d, requests[i]);
    }
    driver_wait_all(d);
    for (uint32_t i = 0; i < N_PARKED; i++) {
        /* waits until the store has done its earlier jobs; it gets one state at a time */
        driver_wait(d, driver_unsave(d, 0, "nothing"));
    }
    CHECK(in_memory(d) <= BUDGET_BYTES);
    CHECK_INT(driver_counter(d, LLM_COUNTER_PARKED_DROPPED), state_dir != NULL ? 0 : N_PARKED);
    CHECK_INT(say(d, "a", 1)->n_reused, state_dir != NULL ? LONG - 1 : 0);
    CHECK_INT(driver_close(d), 0);
}

static void test_what_ends_goes_to_the_disk(void)
{
    what_ends_is_within_the_budget(directory);
}

static void test_what_ends_without_a_disk_goes(void)
{
    what_ends_is_within_the_budget(NULL);
}

/* All sessions end together, and the store takes one state at a time. */
static void test_a_stop_drops_no_state(void)
{
    uint64_t requests[N_PARKED];
    driver *d = open_with(directory);
    park_under_requests(d, requests);
    CHECK_INT(driver_close(d), 0);
    d = open_with(directory);
    for (uint32_t i = 0; i < N_PARKED; i++) {
        CHECK_INT(say(d, names[i], i + 1)->n_reused, LONG - 1);
    }
    CHECK_INT(driver_close(d), 0);
}

int main(void)
{
    RUN_FILES(test_what_ends_goes_to_the_disk);
    RUN(test_what_ends_without_a_disk_goes);
    RUN_FILES(test_a_stop_drops_no_state);
    return CHECK_RESULT();
}
