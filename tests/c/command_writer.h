/* command_writer.h: writes the MessagePack values that occur only in commands, for tests that act as a client. libllm
 * itself writes only events (wire.h). */
#ifndef COMMAND_WRITER_H
#define COMMAND_WRITER_H

#include <string.h>

#include "boundary/wire.h"

/* Writes the first byte of an encoding, and then a big-endian number of n bytes. */
static inline void write_number(wire_writer *w, uint8_t head, uint64_t number, size_t n)
{
    if (w->failed || (size_t)(w->end - w->at) < 1 + n) {
        w->failed = true;
        return;
    }
    *w->at++ = head;
    while (n-- > 0) {
        *w->at++ = (uint8_t)(number >> (8 * n));
    }
}

static inline void wire_write_bool(wire_writer *w, bool value)
{
    write_number(w, value ? 0xc3 : 0xc2, 0, 0);
}

static inline void wire_write_float(wire_writer *w, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    write_number(w, 0xcb, bits, sizeof bits);
}

static inline void wire_write_map(wire_writer *w, uint32_t count)
{
    if (count < 16) {
        write_number(w, (uint8_t)(0x80 | count), 0, 0);
    } else if (count <= UINT16_MAX) {
        write_number(w, 0xde, count, 2);
    } else {
        write_number(w, 0xdf, count, 4);
    }
}

#endif
