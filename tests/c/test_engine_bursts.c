/* Tests bursts of commands while an answer is generated: their copies are spread over the steps. The test sets the time
 * that a copy takes, and counts copies between two steps. So the load of the machine does not matter. */
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "engine/engine.h"
#include "engine_driver.h"
#include "snapshot_files.h"

enum { LONG = 300, N_BURST = 40, N_BRANCHES = 8, GAP_MS = 100, COPY_MS = 30, STEP_MS = 2 };

static char directory[FILES_PATH_BYTES];
static _Atomic uint64_t n_ms_later;
static _Atomic uint32_t n_copies, n_copies_since_step, n_copies_most;
static const model_ops *ops;
static model_ops counted;

int clock_gettime(clockid_t clock, struct timespec *t)
{
    const int result = (int)syscall(SYS_clock_gettime, clock, t);
    if (clock == CLOCK_MONOTONIC) {
        const uint64_t n_ns = (uint64_t)t->tv_nsec + n_ms_later % 1000 * 1000000;
        t->tv_sec += (time_t)(n_ms_later / 1000 + n_ns / 1000000000);
        t->tv_nsec = (long)(n_ns % 1000000000);
    }
    return result;
}

/* Replaces the sleep of the simulated model. Each step sleeps for STEP_MS. */
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
    (void)until;
    const struct timespec each = {.tv_nsec = STEP_MS * 1000000};
    return (int)syscall(SYS_clock_nanosleep, clock, flags & ~TIMER_ABSTIME, &each, left);
}

static void count_copy(void)
{
    n_ms_later += COPY_MS;
    n_copies++;
    n_copies_since_step++;
    n_copies_most = n_copies_since_step > n_copies_most ? n_copies_since_step : n_copies_most;
}

static model_result step_counted(model *m, const model_batch *batch)
{
    n_ms_later += STEP_MS;
    n_copies_since_step = 0;
    return ops->decode(m, batch);
}

static bool copy_counted(model *m, uint16_t src, uint16_t dst)
{
    count_copy();
    return ops->copy(m, src, dst);
}

static size_t save_counted(model *m, uint16_t seq, model_state_kind kind, void *out, size_t n_bytes)
{
    count_copy();
    return ops->state_save(m, seq, kind, out, n_bytes);
}

static model_result load_counted(model *m, uint16_t seq, model_state_kind kind, uint32_t k, const void *bytes,
                                 size_t n_bytes)
{
    count_copy();
    return ops->state_load(m, seq, kind, k, bytes, n_bytes);
}

static void count_work(driver *d)
{
    model *m = d->engine->model;
    ops = m->ops;
    counted = *ops;
    counted.decode = step_counted;
    counted.copy = copy_counted;
    counted.state_save = save_counted;
    counted.state_load = load_counted;
    m->ops = &counted;
}

static uint64_t begin(driver *d, const char *name, uint64_t seed, uint32_t max_tokens)
{
    static int32_t tokens[LONG];
    make_prompt(tokens, LONG, seed);
    return driver_generate(
        d, &(generate_call){.session = name, .prompt = tokens, .n_prompt = LONG, .max_tokens = max_tokens});
}

static const char *numbered(char out[16], const char *name, int i)
{
    snprintf(out, 16, "%s%d", name, i);
    return out;
}

typedef uint64_t burst_command(driver *d, int i);

static uint64_t fork_one(driver *d, int i)
{
    char to[16];
    return driver_fork(d, 0, "copied", numbered(to, "fork", i), UINT32_MAX);
}

static uint64_t save_one(driver *d, int i)
{
    char label[16];
    return driver_command(d, LLM_COMMAND_SAVE, 0, "copied", numbered(label, "label", i));
}

static uint64_t rename_one(driver *d, int i)
{
    char from[16], to[16];
    return driver_command(d, LLM_COMMAND_RENAME, 0, numbered(from, "fork", i), numbered(to, "it", i));
}

static uint64_t park_one(driver *d, int i)
{
    char name[16];
    return driver_park(d, 0, numbered(name, "it", i));
}

static uint64_t close_one(driver *d, int i)
{
    char name[16];
    return driver_close_session(d, 0, numbered(name, "it", i));
}

static void send_burst(driver *d, burst_command *command)
{
    uint64_t requests[N_BURST];
    n_copies_most = 0;
    for (int i = 0; i < N_BURST; i++) {
        requests[i] = command(d, i);
    }
    for (int i = 0; i < N_BURST; i++) {
        const uint32_t status = driver_wait(d, requests[i])->status;
        CHECK(status == LLM_OK || (command == save_one && status == LLM_NO_MEMORY));
    }
    CHECK(n_copies_most * COPY_MS <= 2 * GAP_MS);
}

static driver *open_counted(uint32_t n_sessions)
{
    return driver_open_then(&(llm_engine_options){.model = "sim:dense,length=0,state_kb=64,ctx=65536,step_us=1000",
                                                  .n_ctx = 65536,
                                                  .n_sessions = n_sessions,
                                                  .branches_max = N_BRANCHES,
                                                  .n_parked_max = 2 * N_BURST,
                                                  .capacity_policy = LLM_POLICY_PARK,
                                                  .gap_ms_target = GAP_MS,
                                                  .exact = 1, /* so that a copy copies bytes */
                                                  .state_dir = directory},
                            count_work);
}

static void test_bursts_are_spread_over_the_steps_of_an_answer(void)
{
    driver *d = open_counted(4);
    CHECK_INT(driver_wait(d, begin(d, "copied", 1, 5))->status, LLM_OK);
    const uint64_t stream = begin(d, "stream", 2, 0);
    driver_wait_text(d, stream);
    burst_command *const bursts[] = {fork_one, save_one, rename_one, park_one, close_one};
    for (size_t i = 0; i < sizeof bursts / sizeof *bursts; i++) {
        send_burst(d, bursts[i]);
        CHECK_STILL_GOOD();
    }
    CHECK(n_copies >= 2 * N_BURST);
    CHECK(!driver_answer(d, stream)->is_over);
    driver_cancel(d, stream);
    driver_wait_all(d);
    CHECK_INT(driver_close(d), 0);
}

static void test_a_session_with_many_branches_is_parked_over_several_steps(void)
{
    driver *d = open_counted(N_BRANCHES + 1);
    for (uint32_t i = 0; i < N_BRANCHES; i++) {
        CHECK_INT(driver_wait(d, begin(d, "many", 3 + i, 5))->status, LLM_OK);
    }
    const uint64_t stream = begin(d, "stream", 2, 0);
    driver_wait_text(d, stream);
    n_copies = n_copies_most = 0;
    CHECK_INT(driver_wait(d, driver_park(d, 0, "many"))->status, LLM_OK);
    CHECK_INT(n_copies, N_BRANCHES);
    CHECK(n_copies_most * COPY_MS <= 2 * GAP_MS);
    driver_cancel(d, stream);
    driver_wait_all(d);
    CHECK_INT(driver_close(d), 0);
}

/* A cancel takes effect at the next step, even if many copies were requested before it. */
static void test_a_cancel_overtakes_a_burst_of_copies(void)
{
    driver *d = open_counted(4);
    CHECK_INT(driver_wait(d, begin(d, "copied", 1, 5))->status, LLM_OK);
    const uint64_t stream = begin(d, "stream", 2, 0), cancelled = begin(d, "other", 3, 0);
    driver_wait_text(d, stream);
    driver_wait_text(d, cancelled);
    uint64_t forks[N_BURST];
    for (int i = 0; i < N_BURST; i++) {
        forks[i] = fork_one(d, i);
    }
    driver_cancel(d, cancelled);
    CHECK_INT(driver_wait(d, cancelled)->finished.outcome, LLM_OUTCOME_CANCELLED);
    uint32_t n_over = 0;
    for (int i = 0; i < N_BURST; i++) {
        n_over += driver_answer(d, forks[i])->is_over;
    }
    CHECK(n_over < N_BURST / 2);
    CHECK(!driver_answer(d, stream)->is_over);
    driver_cancel(d, stream);
    driver_wait_all(d);
    CHECK_INT(driver_close(d), 0);
}

int main(void)
{
    RUN_FILES(test_a_session_with_many_branches_is_parked_over_several_steps);
    RUN_FILES(test_a_cancel_overtakes_a_burst_of_copies);
    RUN_FILES(test_bursts_are_spread_over_the_steps_of_an_answer);
    return CHECK_RESULT();
}
