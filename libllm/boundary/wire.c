/* wire.c: the MessagePack reader and writer of wire.h. MessagePack has several encodings for one value. For example, 5
 * can be one byte or a number of eight bytes. The reader accepts all encodings, and the writer writes the shortest.
 * Integers are read as 64 bits and a sign. Thus one function serves all widths, and no value of the wire is truncated
 * before its range is checked. */
#include "boundary/wire.h"

#include <math.h>
#include <string.h>

#include "policy/utf8.h"

/* First bytes of the encodings that are used here (MessagePack specification, "Formats"). */
enum {
    FIXMAP = 0x80,
    FIXARRAY = 0x90,
    FIXSTR = 0xa0,
    NIL = 0xc0,
    FALSE = 0xc2,
    TRUE = 0xc3,
    BIN8 = 0xc4,
    BIN16 = 0xc5,
    BIN32 = 0xc6,
    FLOAT32 = 0xca,
    FLOAT64 = 0xcb,
    UINT8 = 0xcc,
    UINT16 = 0xcd,
    UINT32 = 0xce,
    UINT64 = 0xcf,
    INT8 = 0xd0,
    INT16 = 0xd1,
    INT32 = 0xd2,
    INT64 = 0xd3,
    STR8 = 0xd9,
    STR16 = 0xda,
    STR32 = 0xdb,
    ARRAY16 = 0xdc,
    ARRAY32 = 0xdd,
    MAP16 = 0xde,
    MAP32 = 0xdf,
    NEGATIVE_FIXINT = 0xe0,
};

/* ---- reader ---- */

wire_reader wire_reader_open(const void *bytes, size_t n_bytes)
{
    const uint8_t *begin = bytes;
    return (wire_reader){.at = begin, .end = begin + n_bytes};
}

bool wire_is_done(const wire_reader *r)
{
    return !r->failed && r->at == r->end;
}

static size_t bytes_left(const wire_reader *r)
{
    return (size_t)(r->end - r->at);
}

/* Fails the reader for good, because after a value of an unexpected type or range no byte can be trusted. */
static void fail(wire_reader *r)
{
    r->failed = true;
    r->at = r->end;
}

static bool take(wire_reader *r, size_t n, const uint8_t **out)
{
    if (r->failed || bytes_left(r) < n) {
        fail(r);
        return false;
    }
    *out = r->at;
    r->at += n;
    return true;
}

/* Returns a big-endian number of 1, 2, 4 or 8 bytes; 0 after a failure. The number is composed byte by byte, because
 * nothing on the wire is aligned. */
static uint64_t take_number(wire_reader *r, size_t n)
{
    const uint8_t *bytes;
    if (!take(r, n, &bytes)) {
        return 0;
    }
    uint64_t number = 0;
    for (size_t i = 0; i < n; i++) {
        number = number << 8 | bytes[i];
    }
    return number;
}

/* Returns the first byte of the next value. After a failure, returns NIL, which no caller accepts. */
static uint8_t take_head(wire_reader *r)
{
    const uint8_t *head;
    return take(r, 1, &head) ? *head : NIL;
}

bool wire_read_bool(wire_reader *r)
{
    uint8_t head = take_head(r);
    if (head != TRUE && head != FALSE) {
        fail(r);
    }
    return head == TRUE;
}

/* Any integer as its 64 bits and its sign. */
typedef struct integer {
    uint64_t bits;
    bool is_negative;
} integer;

static integer integer_signed(int64_t value)
{
    return (integer){.bits = (uint64_t)value, .is_negative = value < 0};
}

/* Reads the rest of an integer whose first byte is `head`. Returns false if no integer begins with `head`. The caller
 * decides whether that is a failure. For example, wire_read_float accepts integers and floats. */
static bool take_integer(wire_reader *r, uint8_t head, integer *out)
{
    if (head < 0x80) {
        *out = (integer){.bits = head};
        return true;
    }
    if (head >= NEGATIVE_FIXINT) {
        *out = integer_signed((int8_t)head);
        return true;
    }
    switch (head) {
    case UINT8: *out = (integer){.bits = take_number(r, 1)}; break;
    case UINT16: *out = (integer){.bits = take_number(r, 2)}; break;
    case UINT32: *out = (integer){.bits = take_number(r, 4)}; break;
    case UINT64: *out = (integer){.bits = take_number(r, 8)}; break;
    case INT8: *out = integer_signed((int8_t)take_number(r, 1)); break;
    case INT16: *out = integer_signed((int16_t)take_number(r, 2)); break;
    case INT32: *out = integer_signed((int32_t)take_number(r, 4)); break;
    case INT64: *out = integer_signed((int64_t)take_number(r, 8)); break;
    default: return false;
    }
    return !r->failed;
}

uint64_t wire_read_uint(wire_reader *r, uint64_t max)
{
    integer value;
    if (!take_integer(r, take_head(r), &value) || value.is_negative || value.bits > max) {
        fail(r);
        return 0;
    }
    return value.bits;
}

int64_t wire_read_int(wire_reader *r, int64_t min, int64_t max)
{
    integer value;
    if (!take_integer(r, take_head(r), &value) || (!value.is_negative && value.bits > INT64_MAX) ||
        (int64_t)value.bits < min || (int64_t)value.bits > max) {
        fail(r);
        return 0;
    }
    return (int64_t)value.bits;
}

static double take_float(wire_reader *r, uint8_t head)
{
    if (head == FLOAT32) {
        uint32_t bits = (uint32_t)take_number(r, 4);
        float value;
        memcpy(&value, &bits, sizeof value);
        return (double)value;
    }
    if (head == FLOAT64) {
        uint64_t bits = take_number(r, 8);
        double value;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    integer value;
    if (!take_integer(r, head, &value)) {
        fail(r);
        return 0;
    }
    return value.is_negative ? (double)(int64_t)value.bits : (double)value.bits;
}

double wire_read_float(wire_reader *r, double min, double max)
{
    double value = take_float(r, take_head(r));
    if (!isfinite(value) || value < min || value > max) {
        fail(r);
    }
    return r->failed ? 0 : value;
}

/* Returns the number of elements of an array or entries of a map. If the high bits of the first byte are `fixed`, the
 * number is in its low bits. If the first byte is head16 or head32, the number is in the next 2 or 4 bytes. At least
 * n_bytes_min bytes must be left for each element. Thus a message of 5 bytes cannot claim to have four billion
 * elements. */
static uint32_t take_count(wire_reader *r, uint8_t fixed, uint8_t head16, uint8_t head32, uint32_t max,
                           uint64_t n_bytes_min)
{
    uint8_t head = take_head(r);
    uint64_t count = 0;
    if ((head & 0xf0) == fixed) {
        count = head & 0x0f;
    } else if (head == head16) {
        count = take_number(r, 2);
    } else if (head == head32) {
        count = take_number(r, 4);
    } else {
        fail(r);
    }
    if (r->failed || count > max || count * n_bytes_min > bytes_left(r)) {
        fail(r);
        return 0;
    }
    return (uint32_t)count;
}

uint32_t wire_read_array(wire_reader *r, uint32_t max)
{
    return take_count(r, FIXARRAY, ARRAY16, ARRAY32, max, 1);
}

uint32_t wire_read_map(wire_reader *r, uint32_t max)
{
    return take_count(r, FIXMAP, MAP16, MAP32, max, 2);
}

static const uint8_t *take_bytes(wire_reader *r, uint64_t count, size_t max, size_t *n_bytes)
{
    const uint8_t *bytes;
    if (r->failed || count > max || !take(r, (size_t)count, &bytes)) {
        fail(r);
        return NULL;
    }
    *n_bytes = (size_t)count;
    return bytes;
}

static bool utf8_is_valid(const uint8_t *text, size_t n)
{
    for (size_t at = 0; at < n;) {
        const utf8_part c = utf8_part_of(text + at, n - at);
        if (!c.is_valid) {
            return false;
        }
        at += c.n_bytes;
    }
    return true;
}

/* Reads the length of a string or of binary data. The length is a number of 1, 2 or 4 bytes if the first byte `head` is
 * head8, head8 + 1 or head8 + 2. */
static uint64_t take_length(wire_reader *r, uint8_t head, uint8_t head8)
{
    if (head < head8 || head > head8 + 2) {
        fail(r);
        return 0;
    }
    return take_number(r, (size_t)1 << (head - head8));
}

const char *wire_read_str(wire_reader *r, size_t max, size_t *n_bytes)
{
    *n_bytes = 0;
    const uint8_t head = take_head(r);
    const uint64_t count = (head & 0xe0) == FIXSTR ? head & 0x1f : take_length(r, head, STR8);
    const uint8_t *text = take_bytes(r, count, max, n_bytes);
    if (text != NULL && !utf8_is_valid(text, *n_bytes)) {
        *n_bytes = 0;
        fail(r);
        return NULL;
    }
    return (const char *)text;
}

const void *wire_read_bin(wire_reader *r, size_t max, size_t *n_bytes)
{
    *n_bytes = 0;
    return take_bytes(r, take_length(r, take_head(r), BIN8), max, n_bytes);
}

/* ---- writer ---- */

wire_writer wire_writer_open(void *bytes, size_t n_bytes)
{
    uint8_t *begin = bytes;
    return (wire_writer){.at = begin, .end = begin + n_bytes, .begin = begin};
}

size_t wire_size(const wire_writer *w)
{
    return (size_t)(w->at - w->begin);
}

/* Returns space for n bytes. If there is none, fails the writer and returns NULL. */
static uint8_t *room(wire_writer *w, size_t n)
{
    if (w->failed || (size_t)(w->end - w->at) < n) {
        w->failed = true;
        return NULL;
    }
    uint8_t *at = w->at;
    w->at += n;
    return at;
}

static void put_byte(wire_writer *w, uint8_t byte)
{
    uint8_t *at = room(w, 1);
    if (at != NULL) {
        *at = byte;
    }
}

/* Writes the first byte of an encoding, and then a big-endian number of n bytes. */
static void put_number(wire_writer *w, uint8_t head, uint64_t number, size_t n)
{
    uint8_t *at = room(w, 1 + n);
    if (at == NULL) {
        return;
    }
    at[0] = head;
    for (size_t i = 0; i < n; i++) {
        at[1 + i] = (uint8_t)(number >> (8 * (n - 1 - i)));
    }
}

void wire_write_uint(wire_writer *w, uint64_t value)
{
    if (value < 0x80) {
        put_byte(w, (uint8_t)value);
    } else if (value <= UINT8_MAX) {
        put_number(w, UINT8, value, 1);
    } else if (value <= UINT16_MAX) {
        put_number(w, UINT16, value, 2);
    } else if (value <= UINT32_MAX) {
        put_number(w, UINT32, value, 4);
    } else {
        put_number(w, UINT64, value, 8);
    }
}

void wire_write_int(wire_writer *w, int64_t value)
{
    uint64_t bits = (uint64_t)value;
    if (value >= 0) {
        wire_write_uint(w, bits);
    } else if (value >= -32) {
        put_byte(w, (uint8_t)bits);
    } else if (value >= INT8_MIN) {
        put_number(w, INT8, bits, 1);
    } else if (value >= INT16_MIN) {
        put_number(w, INT16, bits, 2);
    } else if (value >= INT32_MIN) {
        put_number(w, INT32, bits, 4);
    } else {
        put_number(w, INT64, bits, 8);
    }
}

void wire_write_array(wire_writer *w, uint32_t count)
{
    if (count < 16) {
        put_byte(w, (uint8_t)(FIXARRAY | count));
    } else if (count <= UINT16_MAX) {
        put_number(w, ARRAY16, count, 2);
    } else {
        put_number(w, ARRAY32, count, 4);
    }
}

/* Writes the first byte `head`, the length and the bytes, or nothing if the whole value does not fit. */
static void put_bytes(wire_writer *w, uint8_t head, size_t n_length, const void *bytes, size_t n_bytes)
{
    if ((size_t)(w->end - w->at) < 1 + n_length + n_bytes) {
        w->failed = true;
    }
    if (w->failed) {
        return;
    }
    put_number(w, head, n_bytes, n_length);
    if (n_bytes > 0) {
        memcpy(room(w, n_bytes), bytes, n_bytes);
    }
}

/* Writes a string or binary data with its length. The length is a number of 1, 2 or 4 bytes. To say which, the first
 * byte is head8, head8 + 1 or head8 + 2, as in take_length. */
static void put_long_bytes(wire_writer *w, uint8_t head8, const void *bytes, size_t n_bytes)
{
    const uint8_t larger = n_bytes <= UINT8_MAX ? 0 : n_bytes <= UINT16_MAX ? 1 : 2;
    w->failed = w->failed || n_bytes > UINT32_MAX;
    put_bytes(w, (uint8_t)(head8 + larger), (size_t)1 << larger, bytes, n_bytes);
}

void wire_write_str(wire_writer *w, const char *text, size_t n_bytes)
{
    if (n_bytes < 32) {
        put_bytes(w, (uint8_t)(FIXSTR | n_bytes), 0, text, n_bytes);
    } else {
        put_long_bytes(w, STR8, text, n_bytes);
    }
}

void wire_write_bin(wire_writer *w, const void *bytes, size_t n_bytes)
{
    put_long_bytes(w, BIN8, bytes, n_bytes);
}
