/* wire_message.c: the commands and events of llm_wire.h in MessagePack. A command is a map, which is parsed strictly.
 * If an entry is unknown, repeated, of the wrong type or out of range, the command is refused with the entry's name. If
 * such an entry were ignored, a request with a misspelled parameter would seem to work. An event is an array without
 * names: a member is identified by its position. Arrays keep the many events short. They are safe because both sides
 * are built from the same table. */
#include <math.h>
#include <string.h>

#include "boundary/wire.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the arrays of an event are written as they lie in memory");

/* ---- commands: reading ---- */

enum { BIAS_BYTES = 8, TOKEN_BYTES = 4, OP = 1 /* the first entry of each map, which names the command */ };

static uint32_t little_endian(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static bool is_name(const char *text, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        if (text[i] < 0x21 || text[i] > 0x7e) {
            return false;
        }
    }
    return true;
}

static void refuse(wire_refusal *refused, const char *map, const char *name, size_t n_bytes)
{
    const size_t n_map = strlen(map);
    memcpy(refused->field, map, n_map);
    memcpy(refused->field + n_map, name, n_bytes);
    refused->field[n_map + n_bytes] = '\0';
}

/* Returns the name of the next entry, or NULL if it is not a valid name. An invalid name may contain anything, so no
 * error shows it. */
static const char *read_entry_name(wire_reader *r, size_t *n_bytes)
{
    const char *name = wire_read_str(r, WIRE_NAME_BYTES_MAX, n_bytes);
    if (r->failed || !is_name(name, *n_bytes)) {
        r->failed = true;
        return NULL;
    }
    return name;
}

/* ---- reading the value of one entry ---- */

static uint64_t read_uint(wire_reader *r, const wire_field *f)
{
    const uint64_t value = wire_read_uint(r, f->most);
    if (value < (uint64_t)f->least) {
        r->failed = true;
    }
    return value;
}

/* Reads the name of a session or label. An empty name means scratch. If the command requires the name, an empty name is
 * refused. This holds even if LLM_FIELD_TABLE has 0 as the least length. */
static void read_name(wire_reader *r, const wire_field *f, llm_command_op op, session_name *out)
{
    out->bytes = wire_read_str(r, (size_t)f->most, &out->n_bytes);
    const bool may_be_empty = f->least == 0 && (f->needed & 1u << op) == 0;
    if (r->failed || (out->n_bytes == 0 && !may_be_empty) || !is_name(out->bytes, out->n_bytes)) {
        r->failed = true;
    }
}

/* Returns an array of tokens. The tokens stay in the message. Thus a prompt of a hundred thousand tokens is not copied.
 * Each token has four bytes, little-endian like the processor. The message is not aligned, so single tokens are read
 * with wire_number. */
static wire_numbers read_tokens(wire_reader *r, const wire_field *f)
{
    size_t n_bytes;
    const uint8_t *bytes = wire_read_bin(r, SIZE_MAX, &n_bytes);
    const size_t n = n_bytes / TOKEN_BYTES;
    if (n_bytes % TOKEN_BYTES != 0 || n < (size_t)f->least || n > f->most) {
        r->failed = true;
    }
    return (wire_numbers){.bytes = bytes, .n = n};
}

static void read_biases(wire_reader *r, const wire_field *f, wire_command *c)
{
    size_t n_bytes;
    c->biases = wire_read_bin(r, (size_t)f->most * BIAS_BYTES, &n_bytes);
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

static void read_texts(wire_reader *r, const wire_field *f, wire_texts *out)
{
    out->n = wire_read_array(r, (uint32_t)f->most);
    for (uint32_t i = 0; i < out->n; i++) {
        out->at[i] = wire_read_str(r, LLM_STOP_BYTES_MAX, &out->n_bytes[i]);
        if (out->n_bytes[i] == 0) {
            r->failed = true;
        }
    }
}

/* READ_PARAMETER makes a `case` of each row of LLM_SAMPLING_TABLE, and reads the parameter by the row's type. A
 * parameter that is added to the table needs no further line here. */
#define READ_float(least, most) (float)wire_read_float(r, least, most)
#define READ_int32_t(least, most) (int32_t)wire_read_int(r, least, most)
#define READ_uint64_t(least, most) wire_read_uint(r, most)
#define READ_PARAMETER(type, name, least, most, otherwise, text)                                                       \
    case WIRE_PARAMETER_##name: s->name = READ_##type(least, most); break;
#define DEFAULT_PARAMETER(type, name, least, most, otherwise, text) .name = otherwise,

static void read_parameter(wire_reader *r, wire_parameter_id id, llm_sampling *s)
{
    switch (id) {
        LLM_SAMPLING_TABLE(READ_PARAMETER)
    case WIRE_PARAMETERS: break;
    }
}

static void read_sampling(wire_reader *r, llm_sampling *s, wire_refusal *refused)
{
    uint32_t seen = 0;
    const uint32_t n = wire_read_map(r, WIRE_PARAMETERS);
    for (uint32_t i = 0; i < n && !r->failed; i++) {
        size_t n_name;
        const char *name = read_entry_name(r, &n_name);
        if (name == NULL) {
            return;
        }
        const int id = wire_parameter_find(name, n_name);
        if (id < 0 || (seen & 1u << id) != 0) {
            r->failed = true;
        } else {
            seen |= 1u << id;
            read_parameter(r, (wire_parameter_id)id, s);
        }
        if (r->failed) {
            refuse(refused, "sampling.", name, n_name);
        }
    }
}

static void read_value(wire_reader *r, wire_field_id id, wire_command *c, wire_refusal *refused)
{
    const wire_field *f = wire_field_of(id);
    switch (id) {
    case WIRE_FIELD_request: c->request = read_uint(r, f); break;
    case WIRE_FIELD_owner: c->session.owner = c->other.owner = (uint32_t)read_uint(r, f); break;
    case WIRE_FIELD_session: read_name(r, f, c->op, &c->session); break;
    case WIRE_FIELD_prompt: c->prompt = read_tokens(r, f); break;
    case WIRE_FIELD_max_tokens: c->max_tokens = (uint32_t)read_uint(r, f); break;
    case WIRE_FIELD_sampling: read_sampling(r, &c->sampling, refused); break;
    case WIRE_FIELD_logit_bias: read_biases(r, f, c); break;
    case WIRE_FIELD_stop: read_texts(r, f, &c->stops); break;
    case WIRE_FIELD_dry_sequence_breakers:
        c->has_breakers = true;
        read_texts(r, f, &c->breakers);
        break;
    case WIRE_FIELD_stop_tokens: c->stop_tokens = read_tokens(r, f); break;
    case WIRE_FIELD_min_tokens: c->min_tokens = (uint32_t)read_uint(r, f); break;
    case WIRE_FIELD_n_answer_stops: c->n_answer_stops = (uint32_t)read_uint(r, f); break;
    case WIRE_FIELD_constraint: c->constraint = wire_read_bin(r, (size_t)f->most, &c->n_constraint_bytes); break;
    case WIRE_FIELD_flags: c->flags = (uint32_t)read_uint(r, f); break;
    case WIRE_FIELD_boundaries: c->boundaries = read_tokens(r, f); break;
    case WIRE_FIELD_n_head: c->n_head = (uint32_t)read_uint(r, f); break;
    case WIRE_FIELD_n_logprobs: c->n_logprobs = (int32_t)wire_read_int(r, f->least, (int64_t)f->most); break;
    case WIRE_FIELD_after: c->after = read_uint(r, f); break;
    case WIRE_FIELD_at: c->at = (uint32_t)read_uint(r, f); break;
    case WIRE_FIELD_paused:
    case WIRE_FIELD_replace:
    case WIRE_FIELD_pinned: c->is_on = wire_read_bool(r); break;
    case WIRE_FIELD_parent:
    case WIRE_FIELD_new_session:
    case WIRE_FIELD_label: read_name(r, f, c->op, &c->other); break;
    case WIRE_FIELDS: break;
    }
}

/* ---- reading a whole command ---- */

/* Returns whether the boundaries ascend, and are within the prompt. */
static bool are_counts_within(const wire_command *c)
{
    int32_t before = 0;
    for (size_t i = 0; i < c->boundaries.n; i++) {
        const int32_t boundary = wire_number(&c->boundaries, i);
        if (boundary <= before || (size_t)boundary > c->prompt.n) {
            return false;
        }
        before = boundary;
    }
    return true;
}

/* Returns an entry that is missing, or that contradicts other entries. Returns WIRE_FIELDS if there is none. `seen` is
 * the set of entries that the command has. `after` must not be the request's own id. Otherwise the request would wait
 * for itself for ever. */
static wire_field_id misfit(const wire_command *c, uint32_t seen)
{
    for (int id = 0; id < WIRE_FIELDS; id++) {
        if ((wire_field_of((wire_field_id)id)->needed & 1u << c->op) != 0 && (seen & 1u << id) == 0) {
            return (wire_field_id)id;
        }
    }
    if (!are_counts_within(c)) {
        return WIRE_FIELD_boundaries;
    }
    if (c->n_head > c->prompt.n) {
        return WIRE_FIELD_n_head;
    }
    return c->after == c->request ? WIRE_FIELD_after : WIRE_FIELDS;
}

static void read_op(wire_reader *r, wire_command *c, wire_refusal *refused)
{
    size_t n_name;
    const char *name = read_entry_name(r, &n_name);
    if (name == NULL) {
        return;
    }
    if (n_name != 2 || memcmp(name, "op", 2) != 0) {
        r->failed = true;
    } else {
        c->op = (llm_command_op)wire_read_uint(r, LLM_COMMAND_END - 1);
        r->failed = r->failed || c->op == 0;
    }
    if (r->failed) {
        refuse(refused, "", name, n_name);
    }
}

/* Reads one entry of the command, other than the first (`op`). */
static void read_entry(wire_reader *r, wire_command *c, uint32_t *seen, wire_refusal *refused)
{
    size_t n_name;
    const char *name = read_entry_name(r, &n_name);
    if (name == NULL) {
        return;
    }
    const int id = wire_field_find(name, n_name);
    if (id < 0 || (wire_field_of((wire_field_id)id)->allowed & 1u << c->op) == 0 || (*seen & 1u << id) != 0) {
        r->failed = true;
    } else {
        *seen |= 1u << id;
        read_value(r, (wire_field_id)id, c, refused);
    }
    if (r->failed && refused->field[0] == '\0') {
        refuse(refused, "", name, n_name);
    }
}

static int read_command(wire_reader *r, wire_command *c, wire_refusal *refused)
{
    uint32_t seen = 0;
    const uint32_t n = wire_read_map(r, OP + WIRE_FIELDS);
    read_op(r, c, refused);
    for (uint32_t i = OP; i < n && !r->failed; i++) {
        read_entry(r, c, &seen, refused);
    }
    if (n == 0 || !wire_is_done(r)) {
        return LLM_INVALID;
    }
    const wire_field_id id = misfit(c, seen);
    if (id != WIRE_FIELDS) {
        const char *name = wire_field_of(id)->name;
        refuse(refused, "", name, strlen(name));
        return LLM_INVALID;
    }
    return LLM_OK;
}

int wire_command_read(const void *message, size_t n_bytes, wire_command *out, wire_refusal *refused)
{
    wire_reader r = wire_reader_open(message, n_bytes);
    *out = (wire_command){
        .session.bytes = "",
        .other.bytes = "",
        .constraint = "",
        .sampling = {LLM_SAMPLING_TABLE(DEFAULT_PARAMETER)},
        .n_logprobs = (int32_t)wire_field_of(WIRE_FIELD_n_logprobs)->otherwise,
        .at = (uint32_t)wire_field_of(WIRE_FIELD_at)->otherwise,
    };
    refused->field[0] = '\0';
    return read_command(&r, out, refused);
}

int32_t wire_number(const wire_numbers *numbers, size_t i)
{
    return (int32_t)little_endian(numbers->bytes + i * TOKEN_BYTES);
}

logit_bias wire_logit_bias(const wire_command *c, size_t i)
{
    const uint8_t *at = c->biases + i * BIAS_BYTES;
    uint32_t bits = little_endian(at + TOKEN_BYTES);
    logit_bias bias = {.token = (int32_t)little_endian(at)};
    memcpy(&bias.bias, &bits, sizeof bits);
    return bias;
}

/* ---- events: writing ---- */

#define COUNT_MEMBER(event, member) +(op == LLM_EVENT_##event ? 1u : 0u)

/* Begins an event: writes the array's length and the event's number. The length counts all members in LLM_EVENT_TABLE
 * except the last n_omitted. Returns where the event begins. */
static uint8_t *begin_event(wire_writer *w, llm_event_op op, uint32_t n_omitted)
{
    uint8_t *begin = w->at;
    wire_write_array(w, 1u LLM_EVENT_TABLE(COUNT_MEMBER) - n_omitted);
    wire_write_uint(w, op);
    return begin;
}

/* Ends an event. Removes the event if it did not fit. */
static void end_event(wire_writer *w, uint8_t *begin)
{
    if (w->failed) {
        w->at = begin;
    }
}

static void write_numbers(wire_writer *w, const uint64_t *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        wire_write_uint(w, numbers[i]);
    }
}

#define NUMBERS(...) (const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)

void wire_write_admitted(wire_writer *w, uint64_t request, uint32_t entry)
{
    uint8_t *begin = begin_event(w, LLM_EVENT_ADMITTED, 0);
    write_numbers(w, NUMBERS(request, entry));
    end_event(w, begin);
}

void wire_write_started(wire_writer *w, uint64_t request, llm_reason reason, uint32_t n_prompt, uint32_t n_reused,
                        int32_t diverged_at)
{
    uint8_t *begin = begin_event(w, LLM_EVENT_STARTED, 0);
    write_numbers(w, NUMBERS(request, reason, n_prompt, n_reused));
    wire_write_int(w, diverged_at);
    end_event(w, begin);
}

/* Without log probabilities, the members logprobs and likeliest are empty, but present, because a member is known by
 * its position. */
static void write_tokens(wire_writer *w, const wire_tokens *t)
{
    const bool has_logprobs = t->n_likeliest >= 0;
    const size_t n_likeliest = has_logprobs ? t->n * (size_t)t->n_likeliest : 0;
    wire_write_bin(w, t->tokens, t->n * sizeof *t->tokens);
    wire_write_bin(w, t->ends, t->n * sizeof *t->ends);
    wire_write_bin(w, t->logprobs, has_logprobs ? t->n * sizeof *t->logprobs : 0);
    wire_write_bin(w, t->likeliest, n_likeliest * sizeof *t->likeliest);
}

void wire_write_text(wire_writer *w, uint64_t request, const char *text, size_t n_bytes, uint32_t n_tokens,
                     const wire_tokens *tokens)
{
    enum { ASKED_FOR = 4 };
    uint8_t *begin = begin_event(w, LLM_EVENT_TEXT, tokens == NULL ? ASKED_FOR : 0);
    wire_write_uint(w, request);
    wire_write_str(w, text, n_bytes);
    wire_write_uint(w, n_tokens);
    if (tokens != NULL) {
        write_tokens(w, tokens);
    }
    end_event(w, begin);
}

void wire_write_finished(wire_writer *w, const wire_finished *f)
{
    uint8_t *begin = begin_event(w, LLM_EVENT_FINISHED, 0);
    write_numbers(w, NUMBERS(f->request, f->outcome, f->status, f->n_prompt, f->n_reused, f->n_prefilled,
                             f->n_generated, f->n_resident, f->n_visible));
    wire_write_int(w, f->stop_index);
    write_numbers(w, NUMBERS(f->queue_us, f->prefill_us, f->decode_us, f->seed, f->n_drafted, f->n_accepted,
                             f->n_grammar_drafted, f->n_grammar_accepted, f->n_model_drafted, f->n_model_accepted));
    end_event(w, begin);
}

void wire_write_forgotten(wire_writer *w, session_name session)
{
    uint8_t *begin = begin_event(w, LLM_EVENT_FORGOTTEN, 0);
    wire_write_uint(w, session.owner);
    wire_write_str(w, session.bytes, session.n_bytes);
    end_event(w, begin);
}

void wire_write_consumed(wire_writer *w, uint64_t request, uint32_t n_tokens, uint64_t prefill_us)
{
    uint8_t *begin = begin_event(w, LLM_EVENT_CONSUMED, 0);
    write_numbers(w, NUMBERS(request, n_tokens, prefill_us));
    end_event(w, begin);
}

void wire_write_reply(wire_writer *w, uint64_t request, llm_status status, uint32_t entry, uint32_t n_tokens,
                      uint32_t os_error)
{
    uint8_t *begin = begin_event(w, LLM_EVENT_REPLY, 0);
    write_numbers(w, NUMBERS(request, status, entry, n_tokens, os_error));
    end_event(w, begin);
}
