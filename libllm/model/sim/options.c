/* options.c: parses "CLASS[,option=value...]" into sim_options. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/sim/sim_model.h"

typedef struct option_row {
    const char *name;
    size_t offset;
    uint64_t min, max;
} option_row;

#define ROW(name, min, max) {#name, offsetof(sim_options, name), min, max}

static const option_row option_rows[] = {
    ROW(ctx, 1, 1048576),
    ROW(cells, 1, UINT32_MAX - 1),
    ROW(window, 1, 1048576),
    ROW(window_cells, 0, 64),
    ROW(batch, 1, 65536),
    ROW(state_kb, 0, 1048576),
    ROW(layout, 0, 255),
    ROW(length, 0, 1000000),
    ROW(step_us, 0, 60000000),
    ROW(token_us, 0, 1000000),
    ROW(fail_at, 1, UINT32_MAX),
    ROW(fail_every, 1, UINT32_MAX),
    ROW(fail_seq, 0, LLM_SEQUENCES_MAX - 1),
    ROW(fim, 0, 1),
    ROW(embed, 0, 4096),
};
enum { N_OPTION_ROWS = sizeof option_rows / sizeof option_rows[0] };

static const char *const fail_kinds[] = {"batch", "all", "cells", "half"};
enum { N_FAIL_KINDS = sizeof fail_kinds / sizeof fail_kinds[0] };

/* A part of the text of the options, not terminated by a NUL. */
typedef struct part {
    const char *at;
    size_t n;
} part;

static bool part_is(part p, const char *word)
{
    return strlen(word) == p.n && memcmp(p.at, word, p.n) == 0;
}

/* Returns the text before the first delimiter (`mark`) in *rest, and removes this text and the delimiter from *rest. If
 * there is no delimiter, returns all of *rest and sets *rest to NULL. */
static part part_take(const char **rest, char mark)
{
    const char *end = strchrnul(*rest, mark);
    part p = {.at = *rest, .n = (size_t)(end - *rest)};
    *rest = *end == '\0' ? NULL : end + 1;
    return p;
}

/* Parses a decimal number. Returns false if the text is not a number or the number is larger than max. */
static bool number_read(part p, uint64_t max, uint64_t *out)
{
    uint64_t number = 0;
    for (size_t i = 0; i < p.n; i++) {
        if (p.at[i] < '0' || p.at[i] > '9') {
            return false;
        }
        number = number * 10 + (uint64_t)(p.at[i] - '0');
        if (number > max) { /* checked after each digit: max is far below 2^60, so `number` cannot overflow */
            return false;
        }
    }
    *out = number;
    return p.n > 0;
}

static int fail_kind_read(part value, sim_options *out, char *error, size_t error_bytes)
{
    for (size_t i = 0; i < N_FAIL_KINDS; i++) {
        if (part_is(value, fail_kinds[i])) {
            out->fail_kind = (sim_fail_kind)i;
            return LLM_OK;
        }
    }
    snprintf(error, error_bytes, "sim: fail_kind=%.*s: use batch, all, cells or half", (int)value.n, value.at);
    return LLM_INVALID;
}

static int unknown_option(part name, char *error, size_t error_bytes)
{
    int n = snprintf(error, error_bytes, "sim: unknown option \"%.*s\": use", (int)name.n, name.at);
    for (size_t i = 0; i < N_OPTION_ROWS && n > 0 && (size_t)n < error_bytes; i++) {
        n += snprintf(error + n, error_bytes - (size_t)n, " %s,", option_rows[i].name);
    }
    if (n > 0 && (size_t)n < error_bytes) {
        snprintf(error + n, error_bytes - (size_t)n, " fail_kind, script");
    }
    return LLM_INVALID;
}

static int script_read(part value, sim_options *out, char *error, size_t error_bytes)
{
    if (value.n == 0 || value.n >= sizeof out->script) {
        snprintf(error, error_bytes, "sim: script=%.*s: use a path of 1 to %zu bytes", (int)value.n, value.at,
                 sizeof out->script - 1);
        return LLM_INVALID;
    }
    memcpy(out->script, value.at, value.n);
    out->script[value.n] = '\0';
    return LLM_OK;
}

static int option_read(part name, part value, sim_options *out, char *error, size_t error_bytes)
{
    if (part_is(name, "script")) {
        return script_read(value, out, error, error_bytes);
    }
    if (part_is(name, "fail_kind")) {
        return fail_kind_read(value, out, error, error_bytes);
    }
    for (size_t i = 0; i < N_OPTION_ROWS; i++) {
        const option_row *row = &option_rows[i];
        if (!part_is(name, row->name)) {
            continue;
        }
        uint64_t number;
        if (!number_read(value, row->max, &number) || number < row->min) {
            snprintf(error, error_bytes, "sim: %s=%.*s: use an integer from %llu to %llu", row->name, (int)value.n,
                     value.at, (unsigned long long)row->min, (unsigned long long)row->max);
            return LLM_INVALID;
        }
        memcpy((char *)out + row->offset, &number, sizeof number);
        return LLM_OK;
    }
    return unknown_option(name, error, error_bytes);
}

static int class_read(part name, llm_memory *out, char *error, size_t error_bytes)
{
    for (int i = 0; i < LLM_MEMORY_N; i++) {
        if (part_is(name, llm_word(LLM_MEMORIES, i))) {
            *out = (llm_memory)i;
            return LLM_OK;
        }
    }
    snprintf(error, error_bytes, "sim:%.*s: unknown memory class; use dense, window, recurrent, hybrid or none",
             (int)name.n, name.at);
    return LLM_INVALID;
}

/* Checks options that depend on each other, and sets defaults that depend on other options. */
static int combination_check(sim_options *o, char *error, size_t error_bytes)
{
    if (o->window != SIM_UNSET && o->memory != LLM_MEMORY_WINDOW) {
        snprintf(error, error_bytes, "sim: window=%llu: only sim:window has a window", (unsigned long long)o->window);
        return LLM_INVALID;
    }
    if (o->window_cells != 0 && o->memory != LLM_MEMORY_WINDOW) {
        snprintf(error, error_bytes, "sim: window_cells=%llu: only sim:window has a window",
                 (unsigned long long)o->window_cells);
        return LLM_INVALID;
    }
    if (o->memory == LLM_MEMORY_NONE && o->embed == 0) {
        snprintf(error, error_bytes,
                 "sim:none: the model only computes embeddings; set their length from 1 to 4096: sim:none,embed=64");
        return LLM_INVALID;
    }
    if (o->window == SIM_UNSET) {
        o->window = 64;
    }
    if (o->fail_seq != SIM_UNSET && o->fail_at == SIM_UNSET && o->fail_every == SIM_UNSET) {
        o->fail_every = 1;
    }
    return LLM_OK;
}

int sim_options_read(const char *text, sim_options *out, char *error, size_t error_bytes)
{
    sim_options o = {.ctx = 4096,
                     .cells = SIM_UNSET,
                     .window = SIM_UNSET,
                     .batch = SIM_UNSET,
                     .length = 48,
                     .fail_at = SIM_UNSET,
                     .fail_every = SIM_UNSET,
                     .fail_seq = SIM_UNSET,
                     .fail_kind = SIM_FAIL_BATCH};
    const char *rest = text;
    int status = class_read(part_take(&rest, ','), &o.memory, error, error_bytes);
    while (status == LLM_OK && rest != NULL) {
        part option = part_take(&rest, ',');
        const char *equals = memchr(option.at, '=', option.n);
        part name = {.at = option.at, .n = equals != NULL ? (size_t)(equals - option.at) : option.n};
        part value = {.at = option.at + name.n, .n = 0};
        if (equals != NULL) {
            value = (part){.at = equals + 1, .n = option.n - name.n - 1};
        }
        status = option_read(name, value, &o, error, error_bytes);
    }
    if (status == LLM_OK) {
        status = combination_check(&o, error, error_bytes);
    }
    if (status == LLM_OK) {
        *out = o;
    }
    return status;
}
