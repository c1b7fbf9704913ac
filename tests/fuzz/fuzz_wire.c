/* fuzz_wire.c: the command reader against arbitrary bytes, and against valid commands with arbitrary changes: raw bytes
 * alone would hardly ever pass the first few fields. The first byte of an input chooses. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "boundary/wire.h"
#include "../c/command_writer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

/* ---- what holds for every accepted command ---- */

static void require_inside(const void *at, size_t n, const uint8_t *message, size_t n_message)
{
    uintptr_t begin = (uintptr_t)message;
    require((uintptr_t)at >= begin && (uintptr_t)at <= begin + n_message && n <= begin + n_message - (uintptr_t)at);
}

static void require_between(double value, double least, double most)
{
    require(isfinite(value) && value >= least && value <= most);
}

#define REQUIRE_PARAMETER(type, name, least, most, otherwise, text)                                                    \
    require_between((double)s->name, (double)(type)(least), (double)(type)(most));

static void require_sampling(const llm_sampling *s)
{
    LLM_SAMPLING_TABLE(REQUIRE_PARAMETER)
}

static void require_name(const char *name, size_t n_name, bool may_be_empty, const uint8_t *message, size_t n)
{
    require(n_name <= LLM_SESSION_NAME_BYTES_MAX && (n_name > 0 || may_be_empty));
    if (n_name > 0) {
        require_inside(name, n_name, message, n);
    }
    for (size_t i = 0; i < n_name; i++) {
        require(name[i] >= 0x21 && name[i] <= 0x7e);
    }
}

static void require_names(const wire_command *c, const uint8_t *message, size_t n)
{
    const bool is_generate = c->op == LLM_COMMAND_GENERATE;
    const bool has_other = c->op == LLM_COMMAND_FORK || c->op >= LLM_COMMAND_RENAME;
    require_name(c->session.bytes, c->session.n_bytes, is_generate || c->op == LLM_COMMAND_UNSAVE, message, n);
    require_name(c->other.bytes, c->other.n_bytes, !has_other, message, n);
}

static void require_texts(const wire_texts *texts, const uint8_t *message, size_t n)
{
    require(texts->n <= LLM_STOPS_MAX);
    for (uint32_t i = 0; i < texts->n; i++) {
        require_inside(texts->at[i], texts->n_bytes[i], message, n);
        require(texts->n_bytes[i] > 0 && texts->n_bytes[i] <= LLM_STOP_BYTES_MAX);
    }
}

static void require_generate(const wire_command *c, const uint8_t *message, size_t n)
{
    int64_t sum = 0;
    require_inside(c->prompt.bytes, 4 * c->prompt.n, message, n);
    require(c->prompt.n > 0);
    for (size_t i = 0; i < c->prompt.n; i++) {
        sum += wire_number(&c->prompt, i);
    }
    require(sum <= (int64_t)c->prompt.n * INT32_MAX);
    require_sampling(&c->sampling);
    require(c->n_biases == 0 || c->biases != NULL);
    if (c->n_biases > 0) {
        require_inside(c->biases, 8 * c->n_biases, message, n);
    }
    require(c->n_biases <= LLM_LOGIT_BIASES_MAX);
    for (size_t i = 0; i < c->n_biases; i++) {
        require(isfinite(wire_logit_bias(c, i).bias));
    }
    require_texts(&c->stops, message, n);
    require_texts(&c->breakers, message, n);
    require(c->stop_tokens.n <= LLM_STOP_TOKENS_MAX && c->n_constraint_bytes <= LLM_CONSTRAINT_BYTES_MAX);
    if (c->n_constraint_bytes > 0) {
        require_inside(c->constraint, c->n_constraint_bytes, message, n);
    }
    require((c->flags & ~(uint32_t)LLM_GENERATE_FLAGS) == 0);
    require(c->n_logprobs >= -1 && c->n_logprobs <= LLM_LOGPROBS_MAX && c->after != c->request);
    if (c->boundaries.n > 0) {
        require_inside(c->boundaries.bytes, 4 * c->boundaries.n, message, n);
    }
    for (size_t i = 0; i < c->boundaries.n; i++) {
        require(wire_number(&c->boundaries, i) > (i > 0 ? wire_number(&c->boundaries, i - 1) : 0));
        require((size_t)wire_number(&c->boundaries, i) <= c->prompt.n);
    }
    require(c->n_head <= c->prompt.n);
}

/* Reads from an allocation of exactly the message's size; true if it was accepted. */
static bool read_and_require(const uint8_t *bytes, size_t n)
{
    uint8_t *message = malloc(n > 0 ? n : 1);
    wire_command c;
    wire_refusal refused;
    require(message != NULL);
    memcpy(message, bytes, n);
    int status = wire_command_read(message, n, &c, &refused);
    require(status == LLM_OK || status == LLM_INVALID);
    require(memchr(refused.field, '\0', sizeof refused.field) != NULL);
    require(status == LLM_INVALID || refused.field[0] == '\0');
    if (status == LLM_OK) {
        require(c.op >= LLM_COMMAND_GENERATE && c.op < LLM_COMMAND_END && c.request > 0);
        if (c.op == LLM_COMMAND_GENERATE) {
            require_generate(&c, message, n);
        }
        if (c.op != LLM_COMMAND_CANCEL && c.op != LLM_COMMAND_PAUSE) {
            require_names(&c, message, n);
        }
    }
    free(message);
    return status == LLM_OK;
}

/* ---- valid commands, made from the input ---- */

typedef struct recipe {
    const uint8_t *at;
    size_t n;
} recipe;

static uint8_t next_byte(recipe *r)
{
    if (r->n == 0) {
        return 0;
    }
    r->n--;
    return *r->at++;
}

static uint64_t next_number(recipe *r)
{
    uint64_t number = 0;
    for (uint8_t n = next_byte(r) % 9; n > 0; n--) {
        number = number << 8 | next_byte(r);
    }
    return number;
}

static void write_text(wire_writer *w, recipe *r, size_t min)
{
    char text[40];
    size_t n = min + next_byte(r) % (sizeof text - min);
    for (size_t i = 0; i < n; i++) {
        text[i] = (char)(0x21 + next_byte(r) % 94);
    }
    wire_write_str(w, text, n);
}

static void write_tokens(wire_writer *w, recipe *r, size_t unit, size_t min)
{
    uint8_t raw[8 * 16] = {0};
    size_t n = min + next_byte(r) % 15;
    for (size_t i = 0; i < n * unit; i++) { /* the last byte stays 0, so that a float among them is finite */
        raw[i] = i % 4 == 3 ? 0 : next_byte(r);
    }
    wire_write_bin(w, raw, n * unit);
}

/* A value of the parameter's range. */
static void write_parameter(wire_writer *w, recipe *r, const llm_field *f)
{
    const uint64_t number = next_number(r);
    wire_write_str(w, f->name, strlen(f->name));
    if (f->type == LLM_FIELD_FLOAT) {
        wire_write_float(w, f->least + (f->most - f->least) * (double)(number % 256) / 256);
    } else if (f->type == LLM_FIELD_INT) {
        wire_write_int(w, (int64_t)f->least + (int64_t)(number % (uint64_t)(f->most - f->least + 1)));
    } else {
        wire_write_uint(w, number);
    }
}

/* Some of the parameters. */
static void write_sampling(wire_writer *w, recipe *r)
{
    llm_field f;
    const uint32_t n = next_byte(r) % (WIRE_PARAMETERS + 1);
    wire_write_map(w, n);
    for (uint32_t i = 0; i < n; i++) {
        require(llm_sampling_field((int)i, &f) == LLM_OK);
        write_parameter(w, r, &f);
    }
}

static void write_texts(wire_writer *w, recipe *r, const llm_field *f)
{
    const uint32_t n = next_byte(r) % ((uint32_t)f->most + 1);
    wire_write_array(w, n);
    for (uint32_t i = 0; i < n; i++) {
        write_text(w, r, 1);
    }
}

static uint64_t number_of(const llm_field *f, recipe *r)
{
    const uint64_t number = next_number(r);
    if (strcmp(f->name, "n_head") == 0) {
        return number % 2; /* no prompt has fewer tokens */
    }
    if (strcmp(f->name, "request") == 0) {
        return 2 * (number >> 1) + 1;
    }
    if (strcmp(f->name, "after") == 0) {
        return 2 * (number >> 1); /* never the request */
    }
    return f->most < 1e19 ? number % ((uint64_t)f->most + 1) : number;
}

static void write_value(wire_writer *w, recipe *r, const llm_field *f)
{
    static const uint8_t boundary[4] = {1};
    switch ((llm_field_type)f->type) {
    case LLM_FIELD_UINT: wire_write_uint(w, number_of(f, r)); break;
    case LLM_FIELD_INT: wire_write_int(w, (int64_t)f->least + next_byte(r) % (int64_t)(f->most - f->least + 1)); break;
    case LLM_FIELD_FLOAT: break; /* sampling only */
    case LLM_FIELD_BOOL: wire_write_bool(w, next_byte(r) % 2 == 0); break;
    case LLM_FIELD_NAME: write_text(w, r, f->least > 0 || f->is_needed); break;
    case LLM_FIELD_TOKENS:
        if (f->is_needed) {
            write_tokens(w, r, 4, 1);
        } else {
            wire_write_bin(w, boundary, next_byte(r) % 2 == 0 ? 4 : 0);
        }
        break;
    case LLM_FIELD_BIASES: write_tokens(w, r, 8, 0); break;
    case LLM_FIELD_BYTES: write_tokens(w, r, 1, 0); break;
    case LLM_FIELD_TEXTS: write_texts(w, r, f); break;
    case LLM_FIELD_SAMPLING: write_sampling(w, r); break;
    }
}

/* What a command needs, and some of what it may have. */
static size_t write_command(uint8_t *out, size_t n_out, recipe *r)
{
    const int op = LLM_COMMAND_GENERATE + next_byte(r) % (LLM_COMMAND_END - 1);
    const uint64_t left_out = next_number(r);
    llm_field f, chosen[WIRE_FIELDS];
    uint32_t n = 0;
    for (int i = 0; llm_command_field(op, i, &f) == LLM_OK; i++) {
        if (f.is_needed || (left_out >> i & 1) == 0) {
            chosen[n++] = f;
        }
    }
    wire_writer w = wire_writer_open(out, n_out);
    wire_write_map(&w, 1 + n);
    wire_write_str(&w, "op", 2);
    wire_write_uint(&w, (uint64_t)op);
    for (uint32_t i = 0; i < n; i++) {
        wire_write_str(&w, chosen[i].name, strlen(chosen[i].name));
        write_value(&w, r, &chosen[i]);
    }
    require(!w.failed);
    return wire_size(&w);
}

/* Overwrites a few bytes, and cuts or prolongs. */
static size_t change(uint8_t *message, size_t n, size_t n_max, recipe *r)
{
    for (uint8_t changes = next_byte(r) % 4; changes > 0; changes--) {
        size_t at = (size_t)(next_byte(r) | next_byte(r) << 8) % n;
        message[at] = next_byte(r);
    }
    uint8_t cut = next_byte(r);
    if (cut % 4 == 1) {
        return n * cut / 256;
    }
    if (cut % 4 == 2 && n < n_max) {
        message[n] = next_byte(r);
        return n + 1;
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    recipe r = {data, n_bytes};
    if (next_byte(&r) % 2 == 0) {
        read_and_require(r.at, r.n);
        return 0;
    }
    uint8_t message[4096];
    size_t n = write_command(message, sizeof message, &r);
    require(read_and_require(message, n));
    n = change(message, n, sizeof message, &r);
    read_and_require(message, n);
    return 0;
}
