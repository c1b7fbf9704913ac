/* wire_message.c: the commands and events of llm.h ("serving") in MessagePack. */
#include <math.h>
#include <string.h>

#include "boundary/wire.h"

/* ---- commands: read ---- */

enum {
    GENERATE_FIELDS = 13,
    CANCEL_FIELDS = 2,
    SESSION_FIELDS = 4, /* RESET, CLOSE, PARK */
    PAUSE_FIELDS = 3,
    FORK_FIELDS = 7,
    PIN_FIELDS = 5,
    TWO_NAME_FIELDS = 5, /* RENAME, SAVE, LOAD */
    SAMPLING_FIELDS = 9,
    BIAS_BYTES = 8,
    TOKEN_BYTES = 4,
    GENERATE_FLAGS = LLM_GENERATE_IGNORE_END | LLM_GENERATE_COLD,
};

static uint32_t little_endian(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static const char *read_name(wire_reader *r, size_t bytes_min, size_t *n_bytes)
{
    const char *name = wire_read_str(r, LLM_SESSION_NAME_BYTES_MAX, n_bytes);
    if (*n_bytes < bytes_min) {
        r->failed = true;
        return name;
    }
    for (size_t i = 0; i < *n_bytes; i++) {
        if (name[i] < 0x21 || name[i] > 0x7e) {
            r->failed = true;
        }
    }
    return name;
}

static void read_boundaries(wire_reader *r, wire_command *c)
{
    size_t n_bytes;
    c->boundaries = wire_read_bin(r, SIZE_MAX, &n_bytes);
    c->n_boundaries = n_bytes / TOKEN_BYTES;
    if (n_bytes % TOKEN_BYTES != 0) {
        r->failed = true;
        return;
    }
    int32_t before = 0;
    for (size_t i = 0; i < c->n_boundaries; i++) {
        const int32_t boundary = wire_boundary(c, i);
        if (boundary <= before || (size_t)boundary > c->n_prompt) {
            r->failed = true;
        }
        before = boundary;
    }
}

static void read_prompt(wire_reader *r, wire_command *c)
{
    size_t n_bytes;
    c->prompt = wire_read_bin(r, SIZE_MAX, &n_bytes);
    c->n_prompt = n_bytes / TOKEN_BYTES;
    if (n_bytes == 0 || n_bytes % TOKEN_BYTES != 0) {
        r->failed = true;
    }
}

static void read_sampling(wire_reader *r, llm_sampling *s)
{
    if (wire_read_array(r, SAMPLING_FIELDS) != SAMPLING_FIELDS) {
        r->failed = true;
        return;
    }
    s->temperature = (float)wire_read_float(r, 0, WIRE_TEMPERATURE_MAX);
    s->top_p = (float)wire_read_float(r, 0, WIRE_TOP_P_MAX);
    s->min_p = (float)wire_read_float(r, 0, WIRE_MIN_P_MAX);
    s->repeat_penalty = (float)wire_read_float(r, WIRE_REPEAT_PENALTY_MIN, WIRE_REPEAT_PENALTY_MAX);
    s->presence_penalty = (float)wire_read_float(r, -WIRE_PENALTY_MAX, WIRE_PENALTY_MAX);
    s->frequency_penalty = (float)wire_read_float(r, -WIRE_PENALTY_MAX, WIRE_PENALTY_MAX);
    s->top_k = (int32_t)wire_read_int(r, 0, WIRE_TOP_K_MAX);
    s->penalty_last_n = (int32_t)wire_read_int(r, 0, WIRE_PENALTY_LAST_N_MAX);
    if (wire_is_nil(r)) {
        wire_read_nil(r);
        s->seed = UINT64_MAX;
    } else {
        s->seed = wire_read_uint(r, UINT64_MAX);
    }
}

static void read_biases(wire_reader *r, wire_command *c)
{
    size_t n_bytes;
    c->biases = wire_read_bin(r, (size_t)LLM_LOGIT_BIASES_MAX * BIAS_BYTES, &n_bytes);
    c->n_biases = n_bytes / BIAS_BYTES;
    if (n_bytes % BIAS_BYTES != 0) {
        r->failed = true;
        return;
    }
    for (size_t i = 0; i < c->n_biases; i++) {
        if (!isfinite(wire_logit_bias(c, i).bias)) {
            r->failed = true;
        }
    }
}

static void read_stops(wire_reader *r, wire_command *c)
{
    c->n_stops = wire_read_array(r, LLM_STOPS_MAX);
    for (uint32_t i = 0; i < c->n_stops; i++) {
        c->stops[i] = wire_read_str(r, LLM_STOP_BYTES_MAX, &c->stop_bytes[i]);
        if (c->stop_bytes[i] == 0) {
            r->failed = true;
        }
    }
}

/* 0 stands for no request: what nobody asked for gets no answer. */
static uint64_t read_request(wire_reader *r)
{
    const uint64_t request = wire_read_uint(r, UINT64_MAX);
    if (request == 0) {
        r->failed = true;
    }
    return request;
}

static void read_generate(wire_reader *r, wire_command *c)
{
    c->request = read_request(r);
    c->owner = (uint32_t)wire_read_uint(r, UINT32_MAX);
    c->session = read_name(r, 0, &c->n_session_bytes);
    read_prompt(r, c);
    c->max_tokens = (uint32_t)wire_read_uint(r, UINT32_MAX);
    read_sampling(r, &c->sampling);
    read_biases(r, c);
    read_stops(r, c);
    c->flags = (uint32_t)wire_read_uint(r, UINT32_MAX);
    if ((c->flags & ~(uint32_t)GENERATE_FLAGS) != 0) {
        r->failed = true;
    }
    read_boundaries(r, c);
    c->other = read_name(r, 0, &c->n_other_bytes);
    c->n_head = (uint32_t)wire_read_uint(r, c->n_prompt < UINT32_MAX ? c->n_prompt : UINT32_MAX);
}

/* What all commands about a named session begin with. */
static void read_session(wire_reader *r, wire_command *c)
{
    c->request = read_request(r);
    c->owner = (uint32_t)wire_read_uint(r, UINT32_MAX);
    c->session = read_name(r, 1, &c->n_session_bytes);
}

/* Elements of a command, its op included; 0 for an op that does not exist. */
static uint32_t fields_of(llm_command_op op)
{
    switch (op) {
    case LLM_COMMAND_GENERATE: return GENERATE_FIELDS;
    case LLM_COMMAND_CANCEL: return CANCEL_FIELDS;
    case LLM_COMMAND_RESET:
    case LLM_COMMAND_CLOSE:
    case LLM_COMMAND_PARK:
    case LLM_COMMAND_UNSAVE: return SESSION_FIELDS;
    case LLM_COMMAND_PAUSE: return PAUSE_FIELDS;
    case LLM_COMMAND_FORK: return FORK_FIELDS;
    case LLM_COMMAND_PIN: return PIN_FIELDS;
    case LLM_COMMAND_RENAME:
    case LLM_COMMAND_SAVE:
    case LLM_COMMAND_LOAD: return TWO_NAME_FIELDS;
    }
    return 0;
}

static void read_fields(wire_reader *r, wire_command *c)
{
    switch (c->op) {
    case LLM_COMMAND_GENERATE: read_generate(r, c); return;
    case LLM_COMMAND_CANCEL: c->request = read_request(r); return;
    case LLM_COMMAND_PAUSE:
        c->request = read_request(r);
        c->is_on = wire_read_bool(r);
        return;
    default: read_session(r, c); break;
    }
    switch (c->op) {
    case LLM_COMMAND_PIN: c->is_on = wire_read_bool(r); break;
    case LLM_COMMAND_FORK:
        c->other = read_name(r, 1, &c->n_other_bytes);
        c->at = (uint32_t)wire_read_uint(r, UINT32_MAX);
        c->is_on = wire_read_bool(r);
        break;
    case LLM_COMMAND_RENAME:
    case LLM_COMMAND_SAVE:
    case LLM_COMMAND_LOAD: c->other = read_name(r, 1, &c->n_other_bytes); break;
    case LLM_COMMAND_UNSAVE: /* what it names is a label */
        c->other = c->session;
        c->n_other_bytes = c->n_session_bytes;
        break;
    default: break;
    }
}

int wire_command_read(const void *message, size_t n_bytes, wire_command *out)
{
    wire_reader r = wire_reader_open(message, n_bytes);
    uint32_t n_fields = wire_read_array(&r, GENERATE_FIELDS);
    wire_command c = {.op = (llm_command_op)wire_read_uint(&r, LLM_COMMAND_UNSAVE)};
    if (r.failed || n_fields == 0 || n_fields != fields_of(c.op)) {
        return LLM_INVALID;
    }
    read_fields(&r, &c);
    if (!wire_is_done(&r)) {
        return LLM_INVALID;
    }
    *out = c;
    return LLM_OK;
}

int32_t wire_prompt_token(const wire_command *c, size_t i)
{
    return (int32_t)little_endian(c->prompt + i * TOKEN_BYTES);
}

int32_t wire_boundary(const wire_command *c, size_t i)
{
    return (int32_t)little_endian(c->boundaries + i * TOKEN_BYTES);
}

logit_bias wire_logit_bias(const wire_command *c, size_t i)
{
    const uint8_t *at = c->biases + i * BIAS_BYTES;
    uint32_t bits = little_endian(at + TOKEN_BYTES);
    logit_bias bias = {.token = (int32_t)little_endian(at)};
    memcpy(&bias.bias, &bits, sizeof bits);
    return bias;
}

/* ---- events: written ---- */

static void begin_event(wire_writer *w, uint32_t fields, llm_event_op op, uint64_t request)
{
    wire_write_array(w, fields);
    wire_write_uint(w, op);
    wire_write_uint(w, request);
}

/* Takes a cut event back. */
static void end_event(wire_writer *w, uint8_t *begin)
{
    if (w->failed) {
        w->at = begin;
    }
}

void wire_write_admitted(wire_writer *w, uint64_t request, uint32_t place)
{
    uint8_t *begin = w->at;
    begin_event(w, 3, LLM_EVENT_ADMITTED, request);
    wire_write_uint(w, place);
    end_event(w, begin);
}

void wire_write_started(wire_writer *w, uint64_t request, llm_reason reason, uint32_t n_prompt, uint32_t n_reused,
                        int32_t diverged_at)
{
    uint8_t *begin = w->at;
    begin_event(w, 6, LLM_EVENT_STARTED, request);
    wire_write_uint(w, reason);
    wire_write_uint(w, n_prompt);
    wire_write_uint(w, n_reused);
    wire_write_int(w, diverged_at);
    end_event(w, begin);
}

void wire_write_text(wire_writer *w, uint64_t request, const char *text, size_t n_bytes, uint32_t n_tokens)
{
    uint8_t *begin = w->at;
    begin_event(w, 4, LLM_EVENT_TEXT, request);
    wire_write_str(w, text, n_bytes);
    wire_write_uint(w, n_tokens);
    end_event(w, begin);
}

void wire_write_finished(wire_writer *w, const wire_finished *f)
{
    uint8_t *begin = w->at;
    begin_event(w, 15, LLM_EVENT_FINISHED, f->request);
    wire_write_uint(w, f->outcome);
    wire_write_uint(w, f->status);
    wire_write_uint(w, f->n_prompt);
    wire_write_uint(w, f->n_reused);
    wire_write_uint(w, f->n_prefilled);
    wire_write_uint(w, f->n_generated);
    wire_write_uint(w, f->n_resident);
    wire_write_uint(w, f->n_visible);
    wire_write_int(w, f->stop_index);
    wire_write_uint(w, f->queue_us);
    wire_write_uint(w, f->prefill_us);
    wire_write_uint(w, f->decode_us);
    wire_write_uint(w, f->seed);
    end_event(w, begin);
}

void wire_write_forgotten(wire_writer *w, uint32_t owner, const char *session, size_t n_session_bytes)
{
    uint8_t *begin = w->at;
    wire_write_array(w, 3);
    wire_write_uint(w, LLM_EVENT_FORGOTTEN);
    wire_write_uint(w, owner);
    wire_write_str(w, session, n_session_bytes);
    end_event(w, begin);
}

void wire_write_reply(wire_writer *w, uint64_t request, llm_status status, uint32_t place, uint32_t n_tokens)
{
    uint8_t *begin = w->at;
    begin_event(w, 5, LLM_EVENT_REPLY, request);
    wire_write_uint(w, status);
    wire_write_uint(w, place);
    wire_write_uint(w, n_tokens);
    end_event(w, begin);
}
