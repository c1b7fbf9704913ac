/* Tests that no wake-up and no data are lost. One thread is stopped between two steps of a handover, until the other
 * thread has done all its work and sleeps. The linker replaces functions by the functions __wrap_* in this file
 * (CMakeLists.txt). */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "command_writer.h"
#include "engine/engine.h"
#include "engine_driver.h"
#include "snapshot_files.h"
#include "states/store_files.h"

enum { TOKENS_MANY = 150000, RING_BYTES = 4 * LLM_OUTBOX_BYTES_MAX, DRAIN_BYTES = 4 * RING_BYTES, SECONDS_MAX = 120 };

static llm_engine *_Atomic engine; /* NULL while the engine is opened or closed; then no thread is stopped */
static uint8_t out[DRAIN_BYTES];
static uint64_t n_asked;
static char directory[FILES_PATH_BYTES];

/* Whether the decode thread has armed its notifier, looked once more, and found no work. */
static _Atomic bool is_asleep;
static _Atomic uint32_t n_sleeps;
/* How long the decode thread sleeps at most. -1 means until it is woken. */
static _Atomic int sleeps_ms;
static _Atomic enum { NOT_YET, SEEN, MISSED } last_look; /* result of the look after before_looking */

/* Functions that a test runs between two steps of a thread. Each runs once. Meanwhile, the other thread rests, or a
 * function lets it run. */
typedef void (*_Atomic between)(void);
/* in the decode thread: no work is left; next it arms its notifier and looks once more */
static between before_looking;
/* in the decode thread: its last attempt before it sleeps has found no room for events */
static between when_stuck;
/* in the thread that has woken the decode thread because of a command, room or a result */
static between after_ringing;
static between before_arming; /* in this thread, within a drain */
static between after_arming;  /* in this thread, within a drain, before it looks again */
static _Atomic bool store_may_work = true;
/* Number of jobs that the store has done without having woken the decode thread yet. */
static _Atomic int n_store_wakes_due;
static _Thread_local bool is_store_ring_due;
static _Atomic bool loop_is_fast; /* whether this thread drains immediately when the decode thread wakes it */

static bool run_once(between *what)
{
    void (*function)(void) = atomic_exchange(what, NULL);
    if (function != NULL) {
        function();
    }
    return function != NULL;
}

static void wait_until(bool (*holds)(void))
{
    while (!holds()) {    /* the alarm ends an endless loop */
        poll(NULL, 0, 1); /* gives the processor to the other thread */
    }
}

static bool is_woken(const notifier *consumer)
{
    struct pollfd looked = {.fd = notifier_fd(consumer), .events = POLLIN};
    return poll(&looked, 1, 0) == 1;
}

/* ---- the steps ---- */

static void drain_all(void);

typedef struct look {
    bool (*ready)(void *context);
    void *context;
    bool is_watched;
} look;

static bool look_and_tell(void *context)
{
    const look *l = context;
    const bool ready = l->ready(l->context);
    if (l->is_watched) {
        last_look = ready ? SEEN : MISSED;
    }
    if (!ready) {
        is_asleep = true;
        n_sleeps++;
    }
    return ready;
}

void __real_notifier_wait(notifier *d, bool (*ready)(void *context), void *context, int timeout_ms);
void __wrap_notifier_wait(notifier *d, bool (*ready)(void *context), void *context, int timeout_ms);
void __wrap_notifier_wait(notifier *d, bool (*ready)(void *context), void *context, int timeout_ms)
{
    const bool is_watched = run_once(&before_looking);
    sleeps_ms = timeout_ms;
    __real_notifier_wait(d, look_and_tell, &(look){ready, context, is_watched}, timeout_ms);
    is_asleep = false;
}

void __real_notifier_wake(notifier *d);
void __wrap_notifier_wake(notifier *d);
void __wrap_notifier_wake(notifier *d)
{
    const llm_engine *e = engine;
    __real_notifier_wake(d);
    if (e != NULL && d == e->event_notifier && loop_is_fast) {
        drain_all();
    }
    if (e != NULL && d == e->command_notifier) {
        run_once(&after_ringing);
    }
    n_store_wakes_due -= is_store_ring_due;
    is_store_ring_due = false;
}

/* Returns whether this is the last attempt to reserve room before the decode thread sleeps. Each loop has two attempts,
 * and the thread sleeps after a loop that has generated nothing. */
static bool is_last_attempt(void)
{
    static uint32_t n_generated, n_attempts;
    const uint32_t n_now = engine->decode.n_requests > 0 ? engine->decode.requests[0]->n_generated : 0;
    n_attempts = n_now == n_generated ? n_attempts + 1 : 1;
    n_generated = n_now;
    return n_attempts == 4;
}

void *__real_ring_reserve(ring *r, size_t n_bytes);
void *__wrap_ring_reserve(ring *r, size_t n_bytes);
void *__wrap_ring_reserve(ring *r, size_t n_bytes)
{
    const llm_engine *e = engine;
    void *record = __real_ring_reserve(r, n_bytes);
    if (record == NULL && e != NULL && r == e->events && is_last_attempt()) {
        run_once(&when_stuck);
    }
    return record;
}

static bool is_armed; /* armed by the current drain */

void __real_notifier_arm(notifier *d);
void __wrap_notifier_arm(notifier *d);
void __wrap_notifier_arm(notifier *d)
{
    run_once(&before_arming);
    __real_notifier_arm(d);
    is_armed = true;
}

const void *__real_ring_peek(ring *r, size_t *n_bytes);
const void *__wrap_ring_peek(ring *r, size_t *n_bytes);
const void *__wrap_ring_peek(ring *r, size_t *n_bytes)
{
    const llm_engine *e = engine;
    if (e != NULL && r == e->events && is_armed) {
        run_once(&after_arming);
    }
    return __real_ring_peek(r, n_bytes);
}

static bool may_store_work(void)
{
    return store_may_work;
}

void __real_store_files_work(store_files *f, store_job *job);
void __wrap_store_files_work(store_files *f, store_job *job);
void __wrap_store_files_work(store_files *f, store_job *job)
{
    n_store_wakes_due++;
    is_store_ring_due = true;
    wait_until(may_store_work);
    __real_store_files_work(f, job);
}

/* ---- the engine ---- */

static int64_t drain(void)
{
    is_armed = false;
    return llm_events_drain(engine, out, sizeof out);
}

static void drain_all(void)
{
    while (drain() > 0) {
    }
}

/* Returns whether the decode thread sleeps, and no event comes that would wake it. It must be in the same sleep at the
 * beginning and at the end of the checks. */
static bool is_at_rest(void)
{
    const uint32_t n = n_sleeps;
    const bool is_idle =
        is_asleep && ring_is_empty(engine->commands) &&
        (engine->store == NULL || (store_n_jobs(engine->store) == 0 && !store_has_result(engine->store, true)));
    return is_idle && is_asleep && n == n_sleeps;
}

/* In each of these functions, the first condition becomes true only while the thread is awake. So the thread has fallen
 * asleep afterwards. */
static bool has_told_and_sleeps(void)
{
    return !ring_is_empty(engine->events) && is_asleep;
}

static bool has_taken_and_sleeps(void)
{
    return ring_is_empty(engine->commands) && is_asleep;
}

static bool is_blocked_and_sleeps(void)
{
    return engine->decode.events_blocked && is_asleep;
}

static bool has_been_stuck_and_sleeps(void)
{
    return when_stuck == NULL && is_asleep;
}

static bool has_looked(void)
{
    return last_look != NOT_YET;
}

static uint32_t n_sleeps_before;

static bool has_slept_again(void)
{
    return n_sleeps > n_sleeps_before;
}

static void let_it_sleep_again(void)
{
    wait_until(has_slept_again);
}

/* Opens an idle engine: all events are taken, and the decode thread sleeps. */
static void open_idle(const char *state_dir)
{
    char error[512];
    llm_engine *opened = NULL;
    const llm_engine_options options = {.model = "sim:dense,length=0",
                                        .n_ctx = 200000,
                                        .n_sessions = 4, /* with only one session, no session could be pinned */
                                        .n_scratch = 1,
                                        .event_ring_bytes = RING_BYTES,
                                        .idle_s_max = 3600,
                                        .state_dir = state_dir};
    if (llm_engine_open(&options, &opened, error, sizeof error) != LLM_OK) {
        fprintf(stderr, "%s\n", error);
        abort();
    }
    engine = opened;
    is_asleep = false;
    if (llm_engine_start(engine) != LLM_OK) {
        abort();
    }
    wait_until(is_at_rest);
    drain_all();
    n_sleeps_before = n_sleeps;
    last_look = NOT_YET;
}

static void close_engine(void)
{
    llm_engine *closed = engine;
    llm_engine_stop(engine);
    drain_all();
    engine = NULL;
    llm_engine_close(closed);
}

static void push(const void *message, size_t n_bytes)
{
    if (llm_command_push(engine, message, n_bytes) != LLM_OK) {
        abort();
    }
}

static void talk_for(uint32_t max_tokens)
{
    uint8_t message[4096];
    const int32_t prompt[] = {300, 301, 302};
    const generate_call call = {.session = "it", .prompt = prompt, .n_prompt = 3, .max_tokens = max_tokens};
    push(message, driver_write_generate(++n_asked, &call, message, sizeof message));
}

static void talk(void)
{
    talk_for(2);
}

static void pin(void)
{
    uint8_t message[64];
    wire_writer w = wire_writer_open(message, sizeof message);
    wire_write_map(&w, 5);
    wire_write_str(&w, "op", 2);
    wire_write_uint(&w, LLM_COMMAND_PIN);
    wire_write_str(&w, "request", 7);
    wire_write_uint(&w, ++n_asked);
    wire_write_str(&w, "owner", 5);
    wire_write_uint(&w, 0);
    wire_write_str(&w, "session", 7);
    wire_write_str(&w, "it", 2);
    wire_write_str(&w, "pinned", 6);
    wire_write_bool(&w, true);
    push(message, wire_size(&w));
}

/* ---- what the loop sleeps through ---- */

static void talk_and_let_it_be_told(void)
{
    talk();
    wait_until(has_told_and_sleeps);
}

static void test_an_event_that_comes_while_the_loop_drains(void)
{
    open_idle(NULL);
    before_arming = talk_and_let_it_be_told;
    CHECK(drain() > 0 || is_woken(engine->event_notifier));
    CHECK(before_arming == NULL);
    close_engine();
}

static void test_a_loop_that_drains_as_soon_as_it_is_woken(void)
{
    open_idle(NULL);
    loop_is_fast = true;
    pin(); /* there is no such session, so the reply comes in the same loop */
    wait_until(is_at_rest);
    loop_is_fast = false;
    CHECK(ring_is_empty(engine->events) || is_woken(engine->event_notifier));
    close_engine();
}

/* ---- what the decode thread sleeps through ---- */

static void test_a_decode_thread_that_looks_as_soon_as_it_is_woken(void)
{
    open_idle(NULL);
    after_ringing = let_it_sleep_again;
    talk();
    CHECK(after_ringing == NULL);
    CHECK(ring_is_empty(engine->commands));
    close_engine();
}

static void test_a_command_that_comes_before_the_sleep(void)
{
    open_idle(NULL);
    before_looking = talk;
    talk();
    wait_until(has_looked);
    CHECK_INT(last_look, SEEN);
    close_engine();
}

static _Atomic bool is_stopping;
static bool is_stopped(void)
{
    return engine->decode.stop_requested;
}

static void let_it_be_stopped(void)
{
    is_stopping = true;
    wait_until(is_stopped);
}

static bool may_stop(void)
{
    return is_stopping;
}

static void test_a_stop_that_comes_before_the_sleep(void)
{
    open_idle(NULL);
    before_looking = let_it_be_stopped;
    talk();
    wait_until(may_stop);
    close_engine();
    CHECK_INT(last_look, SEEN);
}

static void let_it_be_written(void)
{
    store_may_work = true;
    store_wait(engine->store);
}

static void test_a_result_of_the_store_that_comes_before_the_sleep(void)
{
    open_idle(directory);
    talk();
    wait_until(is_at_rest);
    store_may_work = false;
    before_looking = let_it_be_written;
    pin();
    wait_until(has_looked);
    CHECK_INT(last_look, SEEN);
    close_engine();
}

static void test_a_decode_thread_that_looks_as_soon_as_the_store_rings(void)
{
    open_idle(directory);
    talk();
    wait_until(is_at_rest);
    store_may_work = false;
    pin();
    wait_until(has_taken_and_sleeps);
    n_sleeps_before = n_sleeps;
    after_ringing = let_it_sleep_again;
    store_may_work = true;
    let_it_sleep_again();
    store_wait(engine->store);
    CHECK(!store_has_result(engine->store, true));
    close_engine();
}

/* ---- what either sleeps through: room for events ---- */

static void test_room_that_comes_before_the_sleep(void)
{
    open_idle(NULL);
    when_stuck = drain_all;
    talk_for(TOKENS_MANY);
    wait_until(has_been_stuck_and_sleeps);
    CHECK(!ring_is_empty(engine->events)); /* otherwise no thread would ever continue */
    close_engine();
}

static void let_it_fill_the_ring(void)
{
    wait_until(is_blocked_and_sleeps);
}

static void test_room_that_is_announced_within_a_drain(void)
{
    open_idle(NULL);
    talk_for(TOKENS_MANY);
    wait_until(is_blocked_and_sleeps);
    after_arming = let_it_fill_the_ring;
    CHECK(drain() > 0);
    CHECK(after_arming == NULL);
    /* read first: while it is true, no other thread takes from the ring */
    const bool is_blocked = engine->decode.events_blocked;
    CHECK(!is_blocked || !ring_is_empty(engine->events));
    close_engine();
}

/* While a reply waits for the reader, an idle session that expires would have to wait, too. So the thread does not wake
 * for it. */
static void test_a_slow_reader_wakes_nobody(void)
{
    open_idle(NULL);
    CHECK(sleeps_ms > 0);
    talk_for(TOKENS_MANY);
    wait_until(is_blocked_and_sleeps);
    CHECK(sleeps_ms > 0);
    while (engine->decode.n_notices == 0) { /* until replies fill the room that the text has left in the ring */
        for (int i = 0; i < 100; i++) {
            pin();
        }
        wait_until(has_taken_and_sleeps);
    }
    CHECK_INT(sleeps_ms, -1);
    close_engine();
}

int main(void)
{
    alarm(SECONDS_MAX); /* a lost wake-up may be a hang, which the alarm ends */
    RUN(test_an_event_that_comes_while_the_loop_drains);
    RUN(test_a_loop_that_drains_as_soon_as_it_is_woken);
    RUN(test_a_decode_thread_that_looks_as_soon_as_it_is_woken);
    RUN(test_a_command_that_comes_before_the_sleep);
    RUN(test_a_stop_that_comes_before_the_sleep);
    RUN_FILES(test_a_result_of_the_store_that_comes_before_the_sleep);
    RUN_FILES(test_a_decode_thread_that_looks_as_soon_as_the_store_rings);
    RUN(test_room_that_comes_before_the_sleep);
    RUN(test_room_that_is_announced_within_a_drain);
    RUN(test_a_slow_reader_wakes_nobody);
    return CHECK_RESULT();
}
