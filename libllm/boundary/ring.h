/* ring.h: a byte ring for one producer thread and one consumer thread. Neither ever waits for the other: "full" is a
 * normal outcome that the producer must handle. Each record is contiguous, so that it is written and read in place.
 * All memory ordering of the two rings (commands and events) is in ring.c. */
#ifndef LLM_RING_H
#define LLM_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ring ring;

/* Capacity is rounded up to a power of two; the largest record is a little under half of it (ring_record_max). */
int ring_open(size_t capacity_bytes, ring **out); /* LLM_OK, LLM_NO_MEMORY */
void ring_close(ring *r);                         /* NULL is allowed; both threads are done with it */
size_t ring_record_max(const ring *r);

/* Producer: room for a record of up to n_bytes, or NULL if it does not fit. Reserving again replaces the reservation;
 * nothing is visible to the consumer before ring_commit, which may shrink the record (n_bytes <= reserved, > 0). */
void *ring_reserve(ring *r, size_t n_bytes);
void ring_commit(ring *r, size_t n_bytes);

uint64_t ring_committed(const ring *r); /* producer: bytes so far; grows with every record */

/* Consumer: the oldest record, or NULL if the ring is empty. It stays valid until ring_release. */
const void *ring_peek(ring *r, size_t *n_bytes);
void ring_release(ring *r);
bool ring_is_empty(const ring *r); /* either side; for the producer the answer may be out of date at once */

#endif
