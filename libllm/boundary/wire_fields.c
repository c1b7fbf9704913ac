/* wire_fields.c: the tables of llm_wire.h, and of sampling parameters, as data. The daemon's types are made from these
 * tables or compared with them. Thus a new entry cannot be forgotten in C or in Python. The data is immutable, so any
 * thread may read it. */
#include <string.h>

#include "boundary/wire.h"

#define FIELD_ROW(type, name, needed, allowed, least, most, otherwise)                                                 \
    {#name, LLM_FIELD_##type, needed, (needed) | (allowed), least, most, otherwise},
#define PARAMETER_ROW(type, name, least, most, otherwise, text)                                                        \
    {#name, PARAMETER_##type, 0, (double)(least), (double)(most), (double)(otherwise)},
#define PARAMETER_float LLM_FIELD_FLOAT
#define PARAMETER_int32_t LLM_FIELD_INT
#define PARAMETER_uint64_t LLM_FIELD_UINT
#define MEMBER_ROW(event, member) {LLM_EVENT_##event, #member},

static const wire_field fields[WIRE_FIELDS] = {LLM_FIELD_TABLE(FIELD_ROW)};
static const llm_field parameters[WIRE_PARAMETERS] = {LLM_SAMPLING_TABLE(PARAMETER_ROW)};
static const struct {
    llm_event_op event;
    const char *name;
} members[] = {LLM_EVENT_TABLE(MEMBER_ROW)};

_Static_assert(WIRE_FIELDS <= 32, "the reader keeps the names it has seen in 32 bits");

const wire_field *wire_field_of(wire_field_id id)
{
    return &fields[id];
}

static bool is_name(const char *row, const char *name, size_t n_bytes)
{
    return strlen(row) == n_bytes && memcmp(row, name, n_bytes) == 0;
}

int wire_field_find(const char *name, size_t n_bytes)
{
    for (int i = 0; i < WIRE_FIELDS; i++) {
        if (is_name(fields[i].name, name, n_bytes)) {
            return i;
        }
    }
    return -1;
}

int wire_parameter_find(const char *name, size_t n_bytes)
{
    for (int i = 0; i < WIRE_PARAMETERS; i++) {
        if (is_name(parameters[i].name, name, n_bytes)) {
            return i;
        }
    }
    return -1;
}

int llm_command_field(int command, int i, llm_field *out)
{
    if (command <= 0 || command >= LLM_COMMAND_END || i < 0) {
        return LLM_NOT_FOUND;
    }
    const uint32_t bit = 1u << command;
    for (int k = 0; k < WIRE_FIELDS; k++) {
        const wire_field *f = &fields[k];
        if ((f->allowed & bit) != 0 && i-- == 0) {
            *out = (llm_field){f->name,          f->type,         (f->needed & bit) != 0,
                               (double)f->least, (double)f->most, (double)f->otherwise};
            return LLM_OK;
        }
    }
    return LLM_NOT_FOUND;
}

int llm_sampling_field(int i, llm_field *out)
{
    if (i < 0 || i >= WIRE_PARAMETERS) {
        return LLM_NOT_FOUND;
    }
    *out = parameters[i];
    return LLM_OK;
}

const char *llm_event_member(int event, int i)
{
    for (size_t k = 0; i >= 0 && k < sizeof members / sizeof members[0]; k++) {
        if ((int)members[k].event == event && i-- == 0) {
            return members[k].name;
        }
    }
    return NULL;
}
