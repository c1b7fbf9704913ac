/* fuzz_wire.c: the command reader against arbitrary bytes, and against valid commands with arbitrary changes: raw bytes
 * alone would hardly ever pass the first few fields. The first byte of an input chooses. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "boundary/wire.h"

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

static void require_between(float value, double min, double max)
{
    require(isfinite(value) && value >= (float)min && value <= (float)max);
}

static void require_sampling(const llm_sampling *s)
{
    require_between(s->temperature, 0, WIRE_TEMPERATURE_MAX);
    require_between(s->top_p, 0, WIRE_TOP_P_MAX);
    require_between(s->min_p, 0, WIRE_MIN_P_MAX);
    require_between(s->repeat_penalty, WIRE_REPEAT_PENALTY_MIN, WIRE_REPEAT_PENALTY_MAX);
    require_between(s->presence_penalty, -WIRE_PENALTY_MAX, WIRE_PENALTY_MAX);
    require_between(s->frequency_penalty, -WIRE_PENALTY_MAX, WIRE_PENALTY_MAX);
    require(s->top_k >= 0);
    require(s->penalty_last_n >= 0 && s->penalty_last_n <= WIRE_PENALTY_LAST_N_MAX);
}

static void require_session(const wire_command *c, const uint8_t *message, size_t n)
{
    require_inside(c->session, c->n_session_bytes, message, n);
    require(c->n_session_bytes <= LLM_SESSION_NAME_BYTES_MAX);
    require(c->op == LLM_COMMAND_GENERATE || c->n_session_bytes > 0);
    for (size_t i = 0; i < c->n_session_bytes; i++) {
        require(c->session[i] >= 0x21 && c->session[i] <= 0x7e);
    }
}

static void require_generate(const wire_command *c, const uint8_t *message, size_t n)
{
    int64_t sum = 0;
    require_inside(c->prompt, 4 * c->n_prompt, message, n);
    require(c->n_prompt > 0);
    for (size_t i = 0; i < c->n_prompt; i++) {
        sum += wire_prompt_token(c, i);
    }
    require(sum <= (int64_t)c->n_prompt * INT32_MAX);
    require_sampling(&c->sampling);
    require_inside(c->biases, 8 * c->n_biases, message, n);
    require(c->n_biases <= LLM_LOGIT_BIASES_MAX);
    for (size_t i = 0; i < c->n_biases; i++) {
        require(isfinite(wire_logit_bias(c, i).bias));
    }
    require(c->n_stops <= LLM_STOPS_MAX);
    for (uint32_t i = 0; i < c->n_stops; i++) {
        require_inside(c->stops[i], c->stop_bytes[i], message, n);
        require(c->stop_bytes[i] > 0 && c->stop_bytes[i] <= LLM_STOP_BYTES_MAX);
    }
    require((c->flags & ~(uint32_t)(LLM_GENERATE_IGNORE_END | LLM_GENERATE_COLD)) == 0);
    require_inside(c->boundaries, 4 * c->n_boundaries, message, n);
    for (size_t i = 0; i < c->n_boundaries; i++) {
        require(wire_boundary(c, i) > (i > 0 ? wire_boundary(c, i - 1) : 0));
        require((size_t)wire_boundary(c, i) <= c->n_prompt);
    }
    require_inside(c->other, c->n_other_bytes, message, n);
    require(c->n_head <= c->n_prompt);
}

/* Reads from an allocation of exactly the message's size; true if it was accepted. */
static bool read_and_require(const uint8_t *bytes, size_t n)
{
    uint8_t *message = malloc(n > 0 ? n : 1);
    wire_command c;
    require(message != NULL);
    memcpy(message, bytes, n);
    int status = wire_command_read(message, n, &c);
    require(status == LLM_OK || status == LLM_INVALID);
    if (status == LLM_OK) {
        require(c.op >= LLM_COMMAND_GENERATE && c.op <= LLM_COMMAND_UNSAVE);
        if (c.op == LLM_COMMAND_GENERATE) {
            require_generate(&c, message, n);
        }
        if (c.op != LLM_COMMAND_CANCEL && c.op != LLM_COMMAND_PAUSE) {
            require_session(&c, message, n);
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

static void write_generate(wire_writer *w, recipe *r)
{
    static const double maxima[] = {WIRE_TEMPERATURE_MAX,    WIRE_TOP_P_MAX,   WIRE_MIN_P_MAX,
                                    WIRE_REPEAT_PENALTY_MAX, WIRE_PENALTY_MAX, WIRE_PENALTY_MAX};
    write_text(w, r, 0);
    write_tokens(w, r, 4, 1);
    wire_write_uint(w, next_number(r) & UINT32_MAX);
    wire_write_array(w, 9);
    for (size_t i = 0; i < 6; i++) {
        wire_write_float(w, maxima[i] * (1 + next_byte(r)) / 256);
    }
    wire_write_uint(w, next_number(r) & INT32_MAX);
    wire_write_uint(w, next_number(r) % (WIRE_PENALTY_LAST_N_MAX + 1));
    if (next_byte(r) % 2 == 0) {
        wire_write_nil(w);
    } else {
        wire_write_uint(w, next_number(r));
    }
    write_tokens(w, r, 8, 0);
    uint32_t n_stops = next_byte(r) % (LLM_STOPS_MAX + 1);
    wire_write_array(w, n_stops);
    for (uint32_t i = 0; i < n_stops; i++) {
        write_text(w, r, 1);
    }
    wire_write_uint(w, next_byte(r) % 4);
    const uint8_t boundary[4] = {1};
    wire_write_bin(w, boundary, next_byte(r) % 2 == 0 ? 4 : 0);
    write_text(w, r, 0);
    wire_write_uint(w, next_byte(r) % 2);
}

static size_t write_command(uint8_t *out, size_t n_out, recipe *r)
{
    static const uint32_t fields[] = {13, 2, 4, 4, 3, 7, 4, 5, 5, 5, 5, 4};
    uint32_t op = LLM_COMMAND_GENERATE + next_byte(r) % 12;
    wire_writer w = wire_writer_open(out, n_out);
    wire_write_array(&w, fields[op - LLM_COMMAND_GENERATE]);
    wire_write_uint(&w, op);
    wire_write_uint(&w, 1 + next_number(r) % UINT64_MAX);
    if (op == LLM_COMMAND_PAUSE) {
        wire_write_bool(&w, next_byte(r) % 2 == 0);
    } else if (op != LLM_COMMAND_CANCEL) {
        wire_write_uint(&w, next_number(r) & UINT32_MAX);
        if (op == LLM_COMMAND_GENERATE) {
            write_generate(&w, r);
        } else {
            write_text(&w, r, 1);
        }
        if (op == LLM_COMMAND_PIN) {
            wire_write_bool(&w, next_byte(r) % 2 == 0);
        } else if (op >= LLM_COMMAND_FORK && op != LLM_COMMAND_PARK && op != LLM_COMMAND_UNSAVE) {
            write_text(&w, r, 1);
        }
        if (op == LLM_COMMAND_FORK) {
            wire_write_uint(&w, next_number(r) & UINT32_MAX);
            wire_write_bool(&w, next_byte(r) % 2 == 0);
        }
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
