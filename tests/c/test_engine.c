/* Tests the engine's interface: malformed commands, a client that does not drain events, start and stop. */
#include <dirent.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "engine_driver.h"

static const char *const classes[] = {"dense", "window", "recurrent", "hybrid"};

/* ---- malformed commands ---- */

/* Sends every prefix of a valid command, the command with one more byte, and the command with one byte changed. Each is
 * refused, or is another valid command. No refused command reaches the decode thread. */
static void malformed_commands_are_refused(void)
{
    driver *d = driver_open_model("sim:dense");
    int32_t prompt[12];
    make_prompt(prompt, 12, 1);
    const int32_t boundaries[] = {4, 8};
    generate_call call = {.session = "it",
                          .prompt = prompt,
                          .n_prompt = 12,
                          .max_tokens = 2,
                          .stop = "stop",
                          .boundaries = boundaries,
                          .n_boundaries = 2,
                          .parent = "other"};
    uint8_t good[512], bad[512];
    size_t n = driver_write_generate(1, &call, good, sizeof good);
    CHECK(n > 0);
    for (size_t k = 0; k < n; k++) {
        CHECK_INT(llm_command_push(d->engine, good, k), LLM_INVALID);
    }
    memcpy(bad, good, n);
    bad[n] = 0xc0;
    CHECK_INT(llm_command_push(d->engine, bad, n + 1), LLM_INVALID);
    CHECK_INT(llm_command_push(d->engine, good, 1 << 30), LLM_INVALID);
    uint32_t n_refused = 0;
    random_source random = {5};
    for (int i = 0; i < 20000; i++) {
        size_t at = random_below(&random, (uint32_t)n);
        /* another MessagePack type, at a place that may be a type byte */
        uint8_t type = (uint8_t)(0xc1 + random_below(&random, 0x1f));
        wire_command command;
        wire_refusal refused;
        memcpy(bad, good, n);
        bad[at] = type;
        if (wire_command_read(bad, n, &command, &refused) != LLM_OK) {
            CHECK_INT(llm_command_push(d->engine, bad, n), LLM_INVALID);
            n_refused++;
        }
    }
    CHECK(n_refused > 1000);
    driver_fence(d);
    CHECK_INT(driver_counter(d, LLM_COUNTER_SESSIONS_OPENED), 0);
    CHECK_INT(driver_counter(d, LLM_COUNTER_STEPS), 0);
    call.parent = NULL;
    CHECK_INT(driver_wait(d, driver_generate(d, &call))->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
}

static void options_out_of_range_are_refused(void)
{
    const llm_engine_options bad[] = {
        {.model = NULL, .n_sessions = 1, .n_scratch = 1},
        {.model = "", .n_sessions = 1, .n_scratch = 1},
        {.model = "sim:dense", .n_sessions = 0, .n_scratch = 1},
        {.model = "sim:dense", .n_sessions = 1, .n_scratch = 0},
        {.model = "sim:dense", .n_sessions = 200, .n_scratch = 100},
        {.model = "sim:dense", .n_sessions = 1, .n_scratch = 1, .capacity_policy = LLM_POLICY_N},
        {.model = "sim:dense", .n_sessions = 1, .n_scratch = 1, .n_batch = 1},
        {.model = "sim:sparse", .n_sessions = 1, .n_scratch = 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        llm_engine *engine = NULL;
        char error[LLM_TEXT_BYTES_MAX] = "";
        CHECK_INT(llm_engine_open(&bad[i], &engine, error, sizeof error), LLM_INVALID);
        CHECK(engine == NULL && error[0] != '\0');
        CHECK_INT(llm_engine_open(&bad[i], &engine, NULL, 0), LLM_INVALID);
    }
}

/* ---- a reader that does not read ---- */

enum { N_SLOW = 2, SLOW_TOKENS = 30000, RING_BYTES = 4 * LLM_OUTBOX_BYTES_MAX };

/* Returns the number of tokens that all sessions have according to the session table. */
static uint64_t tokens_held(const driver *d)
{
    uint64_t n = 0;
    for (uint32_t entry = 0; entry < d->info.n_entries; entry++) {
        llm_branch_view view;
        n += llm_session_table_entry(d->session_table, entry, &view) == LLM_OK ? view.n_tokens : 0;
    }
    return n;
}

/* The session table shows how many tokens of a prompt are prefilled, while the prefill runs. */
static void a_prompt_counts_while_it_is_read(void)
{
    enum { N_PROMPT = 900, CALL = 16 };
    driver *d = driver_open_model("sim:dense,batch=16,step_us=50000"); /* the whole prefill would take seconds */
    int32_t prompt[N_PROMPT];
    make_prompt(prompt, N_PROMPT, 1);
    generate_call call = {.session = "a", .prompt = prompt, .n_prompt = N_PROMPT, .max_tokens = 1};
    uint64_t request = driver_generate(d, &call);
    uint32_t entry = driver_wait_started(d, request)->entry;
    llm_branch_view view;
    do {
        driver_loop(d);
        CHECK_INT(llm_session_table_entry(d->session_table, entry, &view), LLM_OK);
    } while (view.n_tokens < 3 * CALL);
    CHECK_STR(llm_word(LLM_STATES, (int)view.state), "prefill");
    CHECK(view.n_prefilled_total > CALL && view.n_prefilled_total <= view.n_tokens);
    driver_cancel(d, request);
    driver_wait(d, request);
    CHECK_INT(driver_close(d), 0);
}

/* Nobody drains the ring. First the ring fills, then the outboxes, then the generations stop. After draining, all text
 * arrives. */
static void a_slow_reader_loses_nothing(void)
{
    driver *d = driver_open(&(llm_engine_options){
        .model = "sim:dense,length=0", .n_ctx = 40000, .n_sessions = N_SLOW + 1, .event_ring_bytes = RING_BYTES});
    driver *cold = driver_open(&(llm_engine_options){.model = "sim:dense,length=0", .n_ctx = 40000});
    int32_t prompts[N_SLOW][20];
    char names[N_SLOW][8];
    generate_call calls[N_SLOW];
    uint64_t requests[N_SLOW];
    for (uint32_t i = 0; i < N_SLOW; i++) {
        make_prompt(prompts[i], 20, i);
        snprintf(names[i], sizeof names[i], "s%u", i % 10);
        calls[i] =
            (generate_call){.session = names[i], .prompt = prompts[i], .n_prompt = 20, .max_tokens = SLOW_TOKENS};
        requests[i] = driver_generate(d, &calls[i]);
    }
    uint64_t before, now = tokens_held(d);
    do { /* until a whole loop of the decode thread has added no token */
        before = now;
        driver_loop(d);
        now = tokens_held(d);
    } while (now != before || driver_counter(d, LLM_COUNTER_OUTBOX_STALLS) == 0);
    CHECK_INT(driver_counter(d, LLM_COUNTER_REQUESTS_RUNNING), N_SLOW);
    /* the generations are far from their end */
    CHECK(now > 20 * N_SLOW && now < (uint64_t)N_SLOW * SLOW_TOKENS);
    CHECK(now <= RING_BYTES + (uint64_t)N_SLOW * (LLM_OUTBOX_BYTES_MAX + 2048)); /* each token has at least one byte */
    for (uint32_t i = 0; i < N_SLOW; i++) {
        const answer *a = driver_wait(d, requests[i]);
        CHECK_INT(a->finished.outcome, LLM_OUTCOME_LENGTH);
        CHECK_INT(a->finished.n_generated, SLOW_TOKENS);
        CHECK(driver_equals_cold(cold, &calls[i], a));
    }
    CHECK(driver_is_idle(d));
    CHECK_INT(driver_close(d) + driver_close(cold), 0);
}

/* There are more replies than the ring and the engine can hold. Further commands wait in their ring, and each gets a
 * reply. */
static void more_answers_than_room_wait(void)
{
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense", .event_ring_bytes = RING_BYTES});
    d->drains_late = true;
    for (int i = 0; i < 60000; i++) {
        driver_reset(d, 0, "nobody");
    }
    driver_wait_all(d);
    CHECK(driver_counter(d, LLM_COUNTER_OUTBOX_STALLS) > 0);
    CHECK(driver_is_idle(d));
    CHECK_INT(driver_close(d), 0);
}

/* There are more generations than the engine can hold. The engine refuses the excess, and each generation ends once. */
static void more_requests_than_the_engine_holds_are_refused(void)
{
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,step_us=1000", .n_sessions = 40});
    int32_t prompt[4];
    char names[40][8];
    uint64_t requests[400];
    make_prompt(prompt, 4, 1);
    for (uint32_t i = 0; i < 400; i++) {
        snprintf(names[i % 40], sizeof names[0], "s%u", i % 40);
        generate_call call = {.session = names[i % 40], .prompt = prompt, .n_prompt = 4, .max_tokens = 20};
        requests[i] = driver_generate(d, &call);
    }
    driver_wait_all(d);
    uint32_t n_overloaded = 0;
    for (uint32_t i = 0; i < 400; i++) {
        n_overloaded += driver_answer(d, requests[i])->status == LLM_OVERLOADED;
    }
    CHECK(n_overloaded > 0 && n_overloaded <= 400 - LLM_REQUESTS_MAX);
    CHECK_INT(driver_close(d), 0);
}

/* ---- start and stop ---- */

static uint32_t count_entries(const char *directory)
{
    uint32_t n = 0;
    DIR *dir = opendir(directory);
    while (dir != NULL && readdir(dir) != NULL) {
        n++;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return n;
}

/* A stop ends every request, whatever the engine is doing. Requests that run or wait end with `shutdown`. */
static void a_stop_ends_everything(void)
{
    for (int i = 0; i < 4; i++) {
        char name[96], names[6][8];
        snprintf(name, sizeof name, "sim:%s,length=0,step_us=200,token_us=200", classes[i]);
        driver *d = driver_open(&(llm_engine_options){.model = name, .n_ctx = 8192, .n_sessions = 6});
        static int32_t prompt[4000];
        make_prompt(prompt, 4000, 1);
        uint64_t requests[12];
        /* each of six sessions gets one prompt; the other six requests wait for the first six */
        for (uint32_t k = 0; k < 12; k++) {
            snprintf(names[k % 6], sizeof names[0], "s%u", k % 6);
            generate_call call = {
                .session = names[k % 6], .prompt = prompt, .n_prompt = k % 2 == 0 ? 4000 : 10, .max_tokens = 0};
            requests[k] = driver_generate(d, &call);
        }
        driver_wait_text(d, requests[1]);
        uint64_t unread = driver_reset(d, 0, "nobody");
        CHECK_INT(llm_engine_start(d->engine), LLM_MISUSE);
        CHECK_INT(llm_engine_stop(d->engine), LLM_OK);
        CHECK_INT(llm_engine_stop(d->engine), LLM_OK);
        uint8_t message[256];
        generate_call call = {.prompt = prompt, .n_prompt = 1, .max_tokens = 1};
        size_t n = driver_write_generate(1000, &call, message, sizeof message);
        CHECK_INT(llm_command_push(d->engine, message, n), LLM_SHUTDOWN);
        CHECK_INT(llm_engine_start(d->engine), LLM_MISUSE);
        while (driver_drain(d)) {
        }
        for (uint32_t k = 0; k < 12; k++) {
            const answer *a = driver_answer(d, requests[k]);
            CHECK(a->is_over);
            CHECK_STR(llm_word(LLM_OUTCOMES, (int)a->finished.outcome), a->is_admitted ? "shutdown" : "refused");
            CHECK_STR(llm_word(LLM_STATUSES, (int)a->status), "shutting_down");
        }
        CHECK(driver_answer(d, unread)->is_over);
        CHECK_INT(driver_close(d), 0);
    }
}

/* There is more than one ring of replies, and the engine stops immediately. Each command nevertheless gets a reply. */
static void a_stop_answers_what_was_pushed(void)
{
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense"});
    for (int i = 0; i < 20000; i++) {
        driver_reset(d, 0, "nobody");
    }
    llm_engine_stop(d->engine);
    while (driver_drain(d)) {
    }
    uint64_t n_unanswered = 0;
    for (uint64_t i = 1; i <= d->n_requests; i++) {
        n_unanswered += !d->answers[i]->is_over;
    }
    CHECK_INT(n_unanswered, 0);
    CHECK_INT(driver_close(d), 0);
}

static void push_resets(driver *d, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        driver_reset(d, 0, "nobody");
    }
}

/* More replies wait than there is room for. When FORK and LOAD are looked at, all sessions are already written, so both
 * are refused. */
static void a_stop_makes_no_session(void)
{
    int32_t prompt[30];
    make_prompt(prompt, 30, 1);
    /* is rounded up to 256 KiB */
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense", .event_ring_bytes = 1});
    const generate_call call = {.session = "it", .prompt = prompt, .n_prompt = 30, .max_tokens = 1};
    CHECK_INT(driver_wait(d, driver_generate(d, &call))->status, LLM_OK);
    while (driver_counter(d, LLM_COUNTER_OUTBOX_STALLS) == 0) {
        push_resets(d, 64);
        driver_loop(d);
    }
    push_resets(d, 2 * LLM_REQUESTS_MAX); /* as many requests as may wait for room, and some more in the command ring */
    const uint64_t fork = driver_fork(d, 0, "it", "other", UINT32_MAX);
    const uint64_t load = driver_command(d, LLM_COMMAND_LOAD, 0, "it", "label");
    const uint64_t reset = driver_reset(d, 0, "it");
    llm_engine_stop(d->engine);
    while (driver_drain(d)) {
    }
    CHECK_STR(llm_word(LLM_STATUSES, (int)driver_answer(d, fork)->status), "shutting_down");
    CHECK_STR(llm_word(LLM_STATUSES, (int)driver_answer(d, load)->status), "shutting_down");
    CHECK_INT(driver_answer(d, reset)->status, LLM_OK);
    CHECK_INT(driver_close(d), 0);
}

/* Returns the number of threads. Waits until there are at most `most`, but not forever, because a thread that was
 * joined may still be ending. */
static uint32_t threads_left(uint32_t most)
{
    uint32_t n = count_entries("/proc/self/task");
    for (int i = 0; n > most && i < 10000; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        n = count_entries("/proc/self/task");
    }
    return n;
}

static void fifty_rounds_leak_nothing(void)
{
    int32_t prompt[30];
    make_prompt(prompt, 30, 1);
    uint32_t n_files = 0, n_threads = 0;
    for (int i = 0; i < 51; i++) {
        char name[96];
        snprintf(name, sizeof name, "sim:%s,step_us=100", classes[i % 4]);
        driver *d = driver_open_model(name);
        generate_call call = {.session = "it", .prompt = prompt, .n_prompt = 30, .max_tokens = 500};
        uint64_t request = driver_generate(d, &call);
        if (i % 3 == 0) {
            driver_wait(d, request);
        } else if (i % 3 == 1) {
            driver_wait_text(d, request);
        }
        CHECK_INT(driver_close(d), 0);
        const uint32_t files = count_entries("/proc/self/fd");
        if (i == 0) { /* the first round opens what the process keeps open */
            n_files = files;
            n_threads = count_entries("/proc/self/task");
        }
        CHECK_INT(files, n_files);
        CHECK(threads_left(n_threads) <= n_threads);
    }
}

/* Opens an engine that is closed without a start. Also closes NULL. */
static void what_never_ran_closes(void)
{
    llm_engine *engine = NULL;
    llm_engine_options options = {.model = "sim:hybrid", .n_sessions = 2, .n_scratch = 1};
    CHECK_INT(llm_engine_open(&options, &engine, NULL, 0), LLM_OK);
    uint8_t message[] = {0x92, 2, 1};
    CHECK_INT(llm_command_push(engine, message, sizeof message), LLM_SHUTDOWN);
    CHECK_INT(llm_engine_stop(engine), LLM_OK);
    llm_engine_close(engine);
    llm_engine_close(NULL);
}

int main(void)
{
    RUN(malformed_commands_are_refused);
    RUN(options_out_of_range_are_refused);
    RUN(a_prompt_counts_while_it_is_read);
    RUN(a_slow_reader_loses_nothing);
    RUN(more_answers_than_room_wait);
    RUN(more_requests_than_the_engine_holds_are_refused);
    RUN(a_stop_ends_everything);
    RUN(a_stop_answers_what_was_pushed);
    RUN(a_stop_makes_no_session);
    RUN(fifty_rounds_leak_nothing);
    RUN(what_never_ran_closes);
    return CHECK_RESULT();
}
