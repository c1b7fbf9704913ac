#include "engine_driver.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command_writer.h"

enum { MESSAGE_BYTES = 1 << 18, ANSWER_MS_MAX = 60000, FIRST_WORD = 260, N_WORDS = 100 };

/* ---- open and close ---- */

driver *driver_open_then(const llm_engine_options *wanted, void (*before_start)(driver *d))
{
    llm_engine_options options = *wanted;
    options.n_sessions = options.n_sessions > 0 ? options.n_sessions : 4;
    options.n_scratch = options.n_scratch > 0 ? options.n_scratch : 2;
    options.n_ctx = options.n_ctx > 0 ? options.n_ctx : 1024;
    driver *d = calloc(1, sizeof *d);
    d->buffer = malloc(LLM_DRAIN_BYTES_MIN);
    d->answers = calloc(1, sizeof *d->answers);
    char error[LLM_TEXT_BYTES_MAX] = "";
    int status = llm_engine_open(&options, &d->engine, error, sizeof error);
    if (status == LLM_OK && before_start != NULL) {
        before_start(d);
    }
    status = status == LLM_OK ? llm_engine_start(d->engine) : status;
    if (status != LLM_OK) {
        printf("%s: %s\n", options.model, error);
        fflush(stdout);
        abort();
    }
    d->session_table = llm_engine_session_table(d->engine);
    llm_engine_info(d->engine, &d->info);
    return d;
}

driver *driver_open(const llm_engine_options *wanted)
{
    return driver_open_then(wanted, NULL);
}

driver *driver_open_model(const char *name)
{
    return driver_open(&(llm_engine_options){.model = name});
}

static void fault(driver *d, uint64_t request, const char *what)
{
    d->n_faults++;
    printf("request %llu: %s\n", (unsigned long long)request, what);
}

uint32_t driver_close(driver *d)
{
    llm_engine_stop(d->engine);
    while (driver_drain(d)) {
    }
    for (uint64_t i = 1; i <= d->n_requests; i++) {
        if (!d->answers[i]->is_over) {
            fault(d, i, "has no end");
        }
        free(d->answers[i]->text);
        free(d->answers[i]->token_ids);
        free(d->answers[i]->ends);
        free(d->answers[i]->logprobs);
        free(d->answers[i]->likeliest);
        free(d->answers[i]);
    }
    llm_engine_close(d->engine);
    uint32_t n_faults = d->n_faults;
    free(d->answers);
    free(d->buffer);
    free(d);
    return n_faults;
}

/* ---- commands ---- */

/* ---- a command, entry by entry ---- */

static void write_name(wire_writer *w, const char *name)
{
    wire_write_str(w, name, strlen(name));
}

static void write_uint(wire_writer *w, const char *name, uint64_t value)
{
    write_name(w, name);
    wire_write_uint(w, value);
}

static void write_text(wire_writer *w, const char *name, const char *value)
{
    write_name(w, name);
    write_name(w, value);
}

static void write_bool(wire_writer *w, const char *name, bool value)
{
    write_name(w, name);
    wire_write_bool(w, value);
}

static void write_counts(wire_writer *w, const char *name, const int32_t *values, uint32_t n)
{
    write_name(w, name);
    wire_write_bin(w, values, n * sizeof *values);
}

static void begin_command(wire_writer *w, uint32_t n_entries, llm_command_op op, uint64_t request)
{
    wire_write_map(w, 2 + n_entries);
    write_uint(w, "op", op);
    write_uint(w, "request", request);
}

size_t driver_write_generate(uint64_t request, const generate_call *c, void *out, size_t n_bytes)
{
    wire_writer w = wire_writer_open(out, n_bytes);
    const bool has_bias = c->bias.bias != 0.0f;
    begin_command(
        &w, 12 + (c->parent != NULL) + (c->stop != NULL) + has_bias + (c->constraint != NULL) + (c->stop_token != 0),
        LLM_COMMAND_GENERATE, request);
    write_uint(&w, "owner", c->owner);
    write_text(&w, "session", c->session != NULL ? c->session : "");
    write_counts(&w, "prompt", c->prompt, c->n_prompt);
    write_uint(&w, "max_tokens", c->max_tokens);
    write_name(&w, "sampling");
    wire_write_map(&w, 2);
    write_name(&w, "temperature");
    wire_write_float(&w, (double)c->temperature);
    write_uint(&w, "seed", c->seed);
    if (c->stop != NULL) {
        write_name(&w, "stop");
        wire_write_array(&w, 1);
        write_name(&w, c->stop);
    }
    write_uint(&w, "flags", c->flags);
    write_counts(&w, "boundaries", c->boundaries, c->n_boundaries);
    if (c->parent != NULL) {
        write_text(&w, "parent", c->parent);
    }
    write_uint(&w, "n_head", c->n_head);
    write_name(&w, "n_logprobs");
    wire_write_int(&w, (int64_t)c->n_logprobs_and_1 - 1);
    write_uint(&w, "after", c->after);
    write_uint(&w, "min_tokens", c->min_tokens);
    write_uint(&w, "n_answer_stops", c->n_answer_stops);
    if (c->constraint != NULL) {
        write_name(&w, "constraint");
        wire_write_bin(&w, c->constraint, strlen(c->constraint));
    }
    if (c->stop_token != 0) {
        write_counts(&w, "stop_tokens", &c->stop_token, 1);
    }
    if (has_bias) {
        write_name(&w, "logit_bias");
        wire_write_bin(&w, &c->bias, sizeof c->bias);
    }
    return w.failed ? 0 : wire_size(&w);
}

static void push(driver *d, const void *message, size_t n_bytes)
{
    int status = llm_command_push(d->engine, message, n_bytes);
    while (status == LLM_FULL) { /* commands are taken only while there is room for their answers */
        if (d->drains_late && driver_counter(d, LLM_COUNTER_OUTBOX_STALLS) == 0) {
            poll(NULL, 0, 1); /* gives the processor to the decode thread */
        } else {
            driver_drain(d);
            sched_yield();
        }
        status = llm_command_push(d->engine, message, n_bytes);
    }
    if (status != LLM_OK) {
        printf("push: %s\n", llm_word(LLM_STATUSES, status));
        fflush(stdout);
        abort();
    }
}

static uint64_t expect(driver *d, ask asked)
{
    uint64_t request = ++d->n_requests;
    d->answers = realloc(d->answers, (request + 1) * sizeof *d->answers);
    d->answers[request] = calloc(1, sizeof(answer));
    d->answers[request]->asked = asked;
    d->answers[request]->text = calloc(1, 1);
    d->n_open++;
    return request;
}

uint64_t driver_generate(driver *d, const generate_call *call)
{
    uint64_t request = expect(d, ASK_GENERATE);
    size_t room = MESSAGE_BYTES + call->n_prompt * sizeof *call->prompt;
    uint8_t *message = malloc(room);
    push(d, message, driver_write_generate(request, call, message, room));
    free(message);
    return request;
}

/* Writes the first entries of a command about a session. n_more entries follow. */
static uint64_t begin_for_session(driver *d, wire_writer *w, uint32_t n_more, llm_command_op op, uint32_t owner,
                                  const char *session)
{
    const uint64_t request = expect(d, ASK_REPLY);
    begin_command(w, 1 + (session != NULL) + n_more, op, request);
    write_uint(w, "owner", owner);
    if (session != NULL) {
        write_text(w, "session", session);
    }
    return request;
}

static uint64_t push_for_session(driver *d, llm_command_op op, uint32_t owner, const char *session)
{
    uint8_t message[512];
    wire_writer w = wire_writer_open(message, sizeof message);
    const uint64_t request = begin_for_session(d, &w, 0, op, owner, session);
    push(d, message, wire_size(&w));
    return request;
}

uint64_t driver_reset(driver *d, uint32_t owner, const char *session)
{
    return push_for_session(d, LLM_COMMAND_RESET, owner, session);
}

uint64_t driver_close_session(driver *d, uint32_t owner, const char *session)
{
    return push_for_session(d, LLM_COMMAND_CLOSE, owner, session);
}

uint64_t driver_park(driver *d, uint32_t owner, const char *session)
{
    return push_for_session(d, LLM_COMMAND_PARK, owner, session);
}

uint64_t driver_fork(driver *d, uint32_t owner, const char *session, const char *to, uint32_t at)
{
    uint8_t message[512];
    wire_writer w = wire_writer_open(message, sizeof message);
    const uint64_t request = begin_for_session(d, &w, 3, LLM_COMMAND_FORK, owner, session);
    write_text(&w, "new_session", to);
    write_uint(&w, "at", at);
    write_bool(&w, "replace", !d->forks_beside);
    push(d, message, wire_size(&w));
    return request;
}

uint64_t driver_unsave(driver *d, uint32_t owner, const char *label)
{
    uint8_t message[512];
    wire_writer w = wire_writer_open(message, sizeof message);
    const uint64_t request = begin_for_session(d, &w, 1, LLM_COMMAND_UNSAVE, owner, NULL);
    write_text(&w, "label", label);
    push(d, message, wire_size(&w));
    return request;
}

uint64_t driver_command(driver *d, llm_command_op op, uint32_t owner, const char *session, const char *other)
{
    uint8_t message[512];
    wire_writer w = wire_writer_open(message, sizeof message);
    const uint64_t request = begin_for_session(d, &w, 1, op, owner, session);
    write_text(&w, op == LLM_COMMAND_RENAME ? "new_session" : "label", other);
    push(d, message, wire_size(&w));
    return request;
}

uint64_t driver_pin(driver *d, uint32_t owner, const char *session, bool pinned)
{
    uint8_t message[512];
    wire_writer w = wire_writer_open(message, sizeof message);
    const uint64_t request = begin_for_session(d, &w, 1, LLM_COMMAND_PIN, owner, session);
    write_bool(&w, "pinned", pinned);
    push(d, message, wire_size(&w));
    return request;
}

void driver_cancel(driver *d, uint64_t request)
{
    uint8_t message[64];
    wire_writer w = wire_writer_open(message, sizeof message);
    begin_command(&w, 0, LLM_COMMAND_CANCEL, request);
    push(d, message, wire_size(&w));
}

void driver_pause(driver *d, uint64_t request, bool paused)
{
    uint8_t message[64];
    wire_writer w = wire_writer_open(message, sizeof message);
    begin_command(&w, 1, LLM_COMMAND_PAUSE, request);
    write_bool(&w, "paused", paused);
    push(d, message, wire_size(&w));
}

/* ---- events ---- */

/* Appends an array of 4-byte numbers to the array *to, which has n numbers. Returns how many numbers it has then. */
static size_t take_array(wire_reader *r, void **to, size_t n)
{
    size_t n_bytes = 0;
    const void *bytes = wire_read_bin(r, UINT32_MAX, &n_bytes);
    if (r->failed || n_bytes == 0) {
        return n;
    }
    *to = realloc(*to, 4 * n + n_bytes);
    memcpy((char *)*to + 4 * n, bytes, n_bytes);
    return n + n_bytes / 4;
}

static void take_tokens(driver *d, uint64_t request, answer *a, uint32_t n_chars, wire_reader *r)
{
    const size_t n_before = a->n_token_ids;
    a->n_token_ids = take_array(r, (void **)&a->token_ids, n_before);
    if (take_array(r, (void **)&a->ends, n_before) != a->n_token_ids) {
        fault(d, request, "TEXT with more or fewer ends than tokens");
    }
    for (size_t i = n_before; i < a->n_token_ids; i++) {
        if (a->ends[i] > n_chars || (i > n_before && a->ends[i] < a->ends[i - 1])) {
            fault(d, request, "TEXT with ends outside it, or in disorder");
        }
    }
    for (size_t i = n_before; i < a->n_token_ids; i++) {
        a->ends[i] += a->n_chars;
    }
    a->n_logprobs = take_array(r, (void **)&a->logprobs, a->n_logprobs);
    a->n_likeliest = take_array(r, (void **)&a->likeliest, 2 * a->n_likeliest) / 2;
}

static uint32_t count_characters(const char *text, size_t n)
{
    uint32_t count = 0;
    for (size_t i = 0; i < n; i++) {
        count += ((uint8_t)text[i] & 0xc0) != 0x80;
    }
    return count;
}

static void take_text(driver *d, uint64_t request, answer *a, uint32_t n_members, wire_reader *r)
{
    size_t n = 0;
    const char *text = wire_read_str(r, UINT32_MAX, &n);
    uint32_t n_tokens = (uint32_t)wire_read_uint(r, UINT32_MAX);
    const size_t n_before = a->n_token_ids;
    const uint32_t n_chars = r->failed ? 0 : count_characters(text, n);
    if (n_members > 3) {
        take_tokens(d, request, a, n_chars, r);
    }
    if (r->failed) {
        return;
    }
    if (!a->is_started) {
        fault(d, request, "TEXT before STARTED");
    }
    if ((n == 0 && a->n_token_ids == n_before) || n_tokens < a->n_tokens) {
        fault(d, request, "an empty TEXT, or one that counts back");
    }
    a->n_chars += n_chars;
    a->n_tokens = n_tokens;
    a->text = realloc(a->text, a->n_text + n + 1);
    memcpy(a->text + a->n_text, text, n);
    a->n_text += n;
    a->text[a->n_text] = '\0';
}

static void take_started(driver *d, uint64_t request, answer *a, wire_reader *r)
{
    a->reason = (uint32_t)wire_read_uint(r, LLM_REASON_N - 1);
    uint32_t n_prompt = (uint32_t)wire_read_uint(r, UINT32_MAX);
    a->n_reused = (uint32_t)wire_read_uint(r, UINT32_MAX);
    a->diverged_at = (int32_t)wire_read_int(r, -1, INT32_MAX);
    if (!a->is_admitted || a->is_started) {
        fault(d, request, "STARTED twice or before ADMITTED");
    }
    if (a->n_reused > n_prompt || a->diverged_at >= (int32_t)n_prompt) {
        fault(d, request, "STARTED with more than the prompt has");
    }
    a->is_started = true;
}

static void take_consumed(driver *d, uint64_t request, answer *a, wire_reader *r)
{
    const uint32_t n_tokens = (uint32_t)wire_read_uint(r, UINT32_MAX);
    (void)wire_read_uint(r, UINT64_MAX);
    if (!a->is_started || a->n_text > 0 || n_tokens <= a->n_reused || n_tokens <= a->n_consumed) {
        fault(d, request, "CONSUMED before STARTED, after TEXT, or without anything new");
    }
    a->n_consumed_events++;
    a->n_consumed = n_tokens;
}

/* Returns whether the numbers of a FINISHED event agree with each other and with earlier events. */
static bool counts_agree(const answer *a)
{
    const wire_finished *f = &a->finished;
    if (f->outcome == LLM_OUTCOME_REFUSED) {
        return !a->is_admitted && !a->is_started && f->status != LLM_OK && f->n_generated == 0 && a->n_text == 0;
    }
    bool well = f->outcome == LLM_OUTCOME_END || f->outcome == LLM_OUTCOME_STOP || f->outcome == LLM_OUTCOME_LENGTH;
    return a->is_admitted && (f->status == LLM_OK) == well && f->n_visible <= f->n_resident &&
           f->n_reused + f->n_prefilled <= f->n_prompt && (a->is_started || f->n_generated == 0) &&
           (!a->is_started || f->n_reused == a->n_reused) && f->n_generated >= a->n_tokens &&
           f->n_accepted <= f->n_drafted && f->n_accepted <= f->n_generated &&
           f->n_grammar_accepted <= f->n_grammar_drafted && f->n_grammar_drafted <= f->n_drafted &&
           f->n_grammar_accepted <= f->n_accepted && f->n_model_accepted <= f->n_model_drafted &&
           f->n_model_drafted + f->n_grammar_drafted <= f->n_drafted &&
           f->n_model_accepted + f->n_grammar_accepted <= f->n_accepted &&
           (!well || (f->n_generated > 0 && f->n_reused + f->n_prefilled == f->n_prompt)) &&
           (f->stop_index >= 0) == (f->outcome == LLM_OUTCOME_STOP);
}

static void take_finished(driver *d, uint64_t request, answer *a, wire_reader *r)
{
    wire_finished *f = &a->finished;
    f->outcome = (llm_outcome)wire_read_uint(r, LLM_OUTCOME_N - 1);
    f->status = (llm_status)wire_read_uint(r, LLM_STATUS_N - 1);
    uint32_t *counts[] = {&f->n_prompt, &f->n_reused, &f->n_prefilled, &f->n_generated, &f->n_resident, &f->n_visible};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        *counts[i] = (uint32_t)wire_read_uint(r, UINT32_MAX);
    }
    f->stop_index = (int32_t)wire_read_int(r, -1, INT32_MAX);
    f->queue_us = wire_read_uint(r, UINT64_MAX);
    f->prefill_us = wire_read_uint(r, UINT64_MAX);
    f->decode_us = wire_read_uint(r, UINT64_MAX);
    f->seed = wire_read_uint(r, UINT64_MAX);
    f->n_drafted = (uint32_t)wire_read_uint(r, UINT32_MAX);
    f->n_accepted = (uint32_t)wire_read_uint(r, UINT32_MAX);
    f->n_grammar_drafted = (uint32_t)wire_read_uint(r, UINT32_MAX);
    f->n_grammar_accepted = (uint32_t)wire_read_uint(r, UINT32_MAX);
    f->n_model_drafted = (uint32_t)wire_read_uint(r, UINT32_MAX);
    f->n_model_accepted = (uint32_t)wire_read_uint(r, UINT32_MAX);
    if (a->asked != ASK_GENERATE) {
        fault(d, request, "FINISHED, but a REPLY was asked for");
    }
    if (!counts_agree(a)) {
        fault(d, request, "FINISHED with numbers that do not agree");
    }
    if (!d->expects_nonsense && strstr(a->text, "WRONG-STATE") != NULL) {
        fault(d, request, "the state was wrong");
    }
    a->status = f->status;
}

static void take_forgotten(driver *d, wire_reader *r)
{
    size_t n = 0;
    d->forgotten_owner = (uint32_t)wire_read_uint(r, UINT32_MAX);
    const char *name = wire_read_str(r, LLM_SESSION_NAME_BYTES_MAX, &n);
    if (r->failed || n == 0) {
        fault(d, 0, "FORGOTTEN without a name");
        return;
    }
    memcpy(d->forgotten, name, n);
    d->forgotten[n] = '\0';
    d->n_forgotten++;
}

static void take_event(driver *d, wire_reader *r)
{
    static const uint32_t counts[] = {0, 3, 6, 8, 21, 6, 3, 4};
    uint32_t count = wire_read_array(r, 21);
    uint32_t op = (uint32_t)wire_read_uint(r, LLM_EVENT_CONSUMED);
    if (op == LLM_EVENT_FORGOTTEN && count == counts[op]) {
        take_forgotten(d, r);
        return;
    }
    uint64_t request = wire_read_uint(r, UINT64_MAX);
    const bool has_its_members = op != 0 && (count == counts[op] || (op == LLM_EVENT_TEXT && count == 4));
    if (r->failed || !has_its_members || request == 0 || request > d->n_requests) {
        fault(d, request, "an event that is none, or of a request that was never made");
        r->failed = true;
        return;
    }
    answer *a = d->answers[request];
    if (a->is_over) {
        fault(d, request, "an event after the last one");
    }
    switch (op) {
    case LLM_EVENT_ADMITTED:
        a->entry = (uint32_t)wire_read_uint(r, UINT32_MAX);
        if (a->is_admitted) {
            fault(d, request, "ADMITTED twice");
        }
        a->is_admitted = true;
        return;
    case LLM_EVENT_STARTED: take_started(d, request, a, r); return;
    case LLM_EVENT_CONSUMED: take_consumed(d, request, a, r); return;
    case LLM_EVENT_TEXT: take_text(d, request, a, count - 1, r); return;
    case LLM_EVENT_FINISHED: take_finished(d, request, a, r); break;
    default:
        if (a->asked == ASK_GENERATE) {
            fault(d, request, "a REPLY to a GENERATE");
        }
        a->status = (uint32_t)wire_read_uint(r, LLM_STATUS_N - 1);
        a->entry = (uint32_t)wire_read_uint(r, UINT32_MAX);
        a->n_tokens = (uint32_t)wire_read_uint(r, UINT32_MAX);
        a->os_error = (uint32_t)wire_read_uint(r, UINT32_MAX);
    }
    a->is_over = true;
    d->n_open--;
}

bool driver_drain(driver *d)
{
    int64_t n = llm_events_drain(d->engine, d->buffer, LLM_DRAIN_BYTES_MIN);
    if (n <= 0) {
        return false;
    }
    wire_reader r = wire_reader_open(d->buffer, (size_t)n);
    uint32_t count = wire_read_array(&r, UINT32_MAX);
    for (uint32_t i = 0; i < count && !r.failed; i++) {
        take_event(d, &r);
    }
    if (!wire_is_done(&r)) {
        fault(d, 0, "a batch of events that cannot be read");
    }
    return true;
}

/* Waits for events, then takes them. The time limit turns a hang into a failure. */
static void pump(driver *d)
{
    struct pollfd fd = {.fd = llm_events_fd(d->engine), .events = POLLIN};
    if (poll(&fd, 1, ANSWER_MS_MAX) == 0) {
        printf("no event for %d s, %llu requests open\n", ANSWER_MS_MAX / 1000, (unsigned long long)d->n_open);
        fflush(stdout);
        abort();
    }
    driver_drain(d);
}

const answer *driver_answer(const driver *d, uint64_t request)
{
    return d->answers[request];
}

const answer *driver_wait(driver *d, uint64_t request)
{
    while (!d->answers[request]->is_over) {
        pump(d);
    }
    return d->answers[request];
}

const answer *driver_wait_started(driver *d, uint64_t request)
{
    while (!d->answers[request]->is_started && !d->answers[request]->is_over) {
        pump(d);
    }
    return d->answers[request];
}

const answer *driver_wait_text(driver *d, uint64_t request)
{
    while (d->answers[request]->n_text == 0 && !d->answers[request]->is_over) {
        pump(d);
    }
    return d->answers[request];
}

void driver_wait_all(driver *d)
{
    while (d->n_open > 0) {
        pump(d);
    }
}

void driver_fence(driver *d)
{
    /* the gauges are updated after the events of a loop, so the second reply comes after the update */
    for (int i = 0; i < 2; i++) {
        driver_wait(d, driver_reset(d, UINT32_MAX, "never-opened"));
    }
}

void driver_loop(driver *d)
{
    for (int i = 0; i < 2; i++) {
        uint64_t before = llm_engine_heartbeat(d->engine, NULL);
        driver_cancel(d, UINT64_MAX); /* wakes the decode thread; no request has this number */
        while (llm_engine_heartbeat(d->engine, NULL) == before) {
            poll(NULL, 0, 1); /* not a wait: gives the processor to the decode thread */
        }
    }
}

/* ---- looking ---- */

uint64_t driver_counter(const driver *d, int counter)
{
    return llm_session_table_counter(d->session_table, counter);
}

int driver_state(const driver *d, uint32_t entry)
{
    llm_branch_view view;
    return llm_session_table_entry(d->session_table, entry, &view) == LLM_OK ? (int)view.state : -1;
}

llm_branch_view driver_session(const driver *d, const char *name)
{
    llm_session_table_view table_view;
    llm_session_table_read(d->session_table, &table_view);
    for (uint32_t entry = 0; entry < table_view.n_entries; entry++) {
        llm_branch_view view;
        if (llm_session_table_entry(d->session_table, entry, &view) == LLM_OK && strcmp(view.name, name) == 0) {
            return view;
        }
    }
    return (llm_branch_view){.entry = UINT32_MAX};
}

uint32_t driver_tokens(const driver *d, uint32_t entry, int32_t *out, uint32_t n_out)
{
    int64_t n = llm_session_table_tokens(d->session_table, entry, out, n_out, NULL);
    return n > 0 ? (uint32_t)n : 0;
}

bool driver_is_idle(driver *d)
{
    driver_fence(d);
    bool idle = d->n_open == 0 && driver_counter(d, LLM_COUNTER_REQUESTS_RUNNING) == 0 &&
                driver_counter(d, LLM_COUNTER_REQUESTS_WAITING) == 0;
    for (uint32_t entry = 0; entry < d->info.n_entries; entry++) {
        llm_branch_view view;
        if (llm_session_table_entry(d->session_table, entry, &view) == LLM_OK) {
            idle = idle && view.n_waiting == 0 && view.state != LLM_STATE_PREFILL && view.state != LLM_STATE_DECODE;
        }
    }
    return idle;
}

/* ---- prompts and references ---- */

void make_prompt(int32_t *out, uint32_t n, uint64_t seed)
{
    random_source random = {seed * 2654435761u + 1};
    for (uint32_t i = 0; i < n; i++) {
        out[i] = FIRST_WORD + (int32_t)random_below(&random, N_WORDS);
    }
}

bool driver_equals_cold(driver *reference, const generate_call *call, const answer *a)
{
    generate_call cold = *call;
    cold.owner = 0;
    cold.session = NULL;
    cold.parent = NULL;
    cold.after = 0;
    cold.flags |= LLM_GENERATE_COLD;
    const answer *b = driver_wait(reference, driver_generate(reference, &cold));
    return a->n_text == b->n_text && memcmp(a->text, b->text, a->n_text) == 0 &&
           a->finished.outcome == b->finished.outcome && a->finished.n_generated == b->finished.n_generated &&
           a->finished.stop_index == b->finished.stop_index;
}
