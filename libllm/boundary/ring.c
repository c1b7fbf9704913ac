/* ring.c: see ring.h.
 *
 * A record is an 8-byte header, which holds the payload's length, and the payload, padded to a multiple of 8 bytes. So
 * headers and payloads are always aligned, and a header always fits before the end of the buffer. A record that does
 * not fit before the end is stored at the beginning of the buffer. Then a header with the value SKIP is written where
 * the record would have begun, and sends the consumer to the beginning. Positions count bytes and never wrap: 2^64
 * bytes are never written. `position & mask` is the offset in the buffer.
 *
 * Example: a buffer of 128 bytes at position 104. A payload of 30 bytes takes 8 + 32 bytes, but only 24 are left before
 * the end. So SKIP is written at offset 104 and the record at offset 0. The next position is 168.
 *
 * Memory ordering. There are two positions, each written by one thread only:
 *   published   stored with release by the producer in ring_commit, loaded with acquire by the consumer in ring_peek
 *               and ring_is_empty: a thread that sees the new position also sees the record.
 *   released    stored with release by the consumer in ring_release, loaded with acquire by the producer in
 *               ring_reserve: when the producer sees the free bytes, the consumer has finished reading them.
 * With relaxed stores, a processor such as Arm could make the position visible before the bytes. Then the consumer
 * would read half a record, or the producer would overwrite bytes during a read. x86 never reorders these accesses. So
 * on x86 only ThreadSanitizer would notice the error.
 *
 * Acquire and release do not order a store before a later load. The notifier needs such an order to lose no wake, and
 * ensures it by its own operations. A lock would be simpler, but the decode thread must never wait for a reader.
 *
 * Each thread keeps the last value that it loaded from the other thread's position. It loads the position again only if
 * the kept value shows too little room, or no record. Every load would take the position's cache line away from the
 * processor that keeps writing the position. An outdated value is safe because positions only grow. It shows less room,
 * or fewer records, than there are.
 *  */
#include "boundary/ring.h"

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "llm.h"

enum {
    CACHE_LINE_BYTES = 64,
    RECORD_HEADER_BYTES = 8,
    CAPACITY_BYTES_MIN = 64,
};
#define CAPACITY_BYTES_MAX ((uint64_t)1 << 32)
#define SKIP UINT64_MAX

struct ring {
    uint8_t *buffer; /* immutable after ring_open */
    uint64_t capacity;
    uint64_t mask;

    /* The producer's cache line. Only the producer writes its members; the consumer reads `published`. */
    alignas(CACHE_LINE_BYTES) _Atomic uint64_t published;
    uint64_t released_seen;  /* last value loaded from `released` */
    uint64_t reserved_at;    /* position at which the reserved record begins, after skipped bytes */
    uint64_t reserved_bytes; /* 0 if nothing is reserved */

    /* The consumer's cache line. Only the consumer writes its members; the producer reads `released`. */
    alignas(CACHE_LINE_BYTES) _Atomic uint64_t released;
    uint64_t published_seen; /* last value loaded from `published` */
    uint64_t peeked_end;     /* where the peeked record ends; 0 if no record is peeked */
};

static uint64_t record_size(size_t n_bytes)
{
    return RECORD_HEADER_BYTES + (((uint64_t)n_bytes + 7) & ~(uint64_t)7);
}

static uint64_t *header_at(const ring *r, uint64_t position)
{
    return (uint64_t *)(void *)(r->buffer + (position & r->mask));
}

static uint64_t bytes_to_end(const ring *r, uint64_t position)
{
    return r->capacity - (position & r->mask);
}

int ring_open(size_t capacity_bytes, ring **out)
{
    uint64_t capacity = CAPACITY_BYTES_MIN;
    while (capacity < capacity_bytes && capacity < CAPACITY_BYTES_MAX) {
        capacity *= 2;
    }
    if (capacity < capacity_bytes) {
        return LLM_NO_MEMORY;
    }
    ring *r = aligned_alloc(CACHE_LINE_BYTES, sizeof *r);
    uint8_t *buffer = aligned_alloc(CACHE_LINE_BYTES, capacity);
    if (r == NULL || buffer == NULL) {
        free(r);
        free(buffer);
        return LLM_NO_MEMORY;
    }
    *r = (ring){.buffer = buffer, .capacity = capacity, .mask = capacity - 1};
    *out = r;
    return LLM_OK;
}

void ring_close(ring *r)
{
    if (r != NULL) {
        free(r->buffer);
        free(r);
    }
}

/* Returns half the capacity, less a header. An empty ring has room for such a record at any position. If the record
 * does not fit before the end of the buffer, more than half of the buffer is before the position. So the record fits at
 * the beginning. A larger record could be refused for ever, even by an empty ring. */
size_t ring_record_max(const ring *r)
{
    return (size_t)(r->capacity / 2 - RECORD_HEADER_BYTES);
}

void *ring_reserve(ring *r, size_t n_bytes)
{
    r->reserved_bytes = 0;
    if (n_bytes == 0 || n_bytes > ring_record_max(r)) {
        return NULL;
    }
    uint64_t at = atomic_load_explicit(&r->published, memory_order_relaxed); /* written only by this thread */
    uint64_t skipped = record_size(n_bytes) > bytes_to_end(r, at) ? bytes_to_end(r, at) : 0;
    uint64_t needed = skipped + record_size(n_bytes);
    if (at + needed - r->released_seen > r->capacity) {
        /* Pairs with the release in ring_release. */
        r->released_seen = atomic_load_explicit(&r->released, memory_order_acquire);
        if (at + needed - r->released_seen > r->capacity) {
            return NULL;
        }
    }
    if (skipped > 0) {
        /* if another reservation replaces this one, the header of the other may overwrite the SKIP */
        *header_at(r, at) = SKIP;
    }
    r->reserved_at = at + skipped;
    r->reserved_bytes = n_bytes;
    return header_at(r, r->reserved_at) + 1;
}

void ring_commit(ring *r, size_t n_bytes)
{
    assert(n_bytes > 0 && n_bytes <= r->reserved_bytes);
    *header_at(r, r->reserved_at) = n_bytes;
    r->reserved_bytes = 0;
    /* Pairs with the acquire in ring_peek and ring_is_empty. */
    atomic_store_explicit(&r->published, r->reserved_at + record_size(n_bytes), memory_order_release);
}

uint64_t ring_committed(const ring *r)
{
    return atomic_load_explicit(&r->published, memory_order_relaxed); /* written only by this thread */
}

const void *ring_peek(ring *r, size_t *n_bytes)
{
    uint64_t at = atomic_load_explicit(&r->released, memory_order_relaxed); /* written only by this thread */
    if (at == r->published_seen) {
        /* Pairs with the release in ring_commit. */
        r->published_seen = atomic_load_explicit(&r->published, memory_order_acquire);
        if (at == r->published_seen) {
            return NULL;
        }
    }
    if (*header_at(r, at) == SKIP) { /* a SKIP is published together with the record after it */
        at += bytes_to_end(r, at);
    }
    const uint64_t *header = header_at(r, at);
    *n_bytes = (size_t)*header;
    r->peeked_end = at + record_size(*n_bytes);
    return header + 1;
}

void ring_release(ring *r)
{
    assert(r->peeked_end != 0);
    /* Pairs with the acquire in ring_reserve. */
    atomic_store_explicit(&r->released, r->peeked_end, memory_order_release);
    r->peeked_end = 0;
}

bool ring_is_empty(const ring *r)
{
    uint64_t released = atomic_load_explicit(&r->released, memory_order_relaxed);
    /* Pairs with the release in ring_commit. */
    return atomic_load_explicit(&r->published, memory_order_acquire) == released;
}
