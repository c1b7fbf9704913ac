/* ring.h: a byte ring for one producer thread and one consumer thread. Neither thread ever waits for the other. A full
 * ring is a normal outcome that the producer must handle. Each record is contiguous, so both threads can use the record
 * in place. libllm has two rings, one for commands and one for events. Only ring.c contains code that orders memory
 * accesses to the rings. */
#ifndef LLM_RING_H
#define LLM_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ring ring;

/* The capacity is rounded up to a power of two. The largest record is a little under half the capacity
 * (ring_record_max). */
int ring_open(size_t capacity_bytes, ring **out); /* returns LLM_OK or LLM_NO_MEMORY */
void ring_close(ring *r);                         /* NULL is allowed; both threads must have finished */
size_t ring_record_max(const ring *r);

/* Called by the producer. ring_reserve returns space for a record of up to n_bytes, or NULL if such a record does not
 * fit. A second ring_reserve before ring_commit replaces the first reservation. The consumer sees nothing before
 * ring_commit. ring_commit may shrink the record: 0 < n_bytes <= reserved. */
void *ring_reserve(ring *r, size_t n_bytes);
void ring_commit(ring *r, size_t n_bytes);

/* called by the producer. Returns the number of bytes committed so far, which grows with every record */
uint64_t ring_committed(const ring *r);

/* Called by the consumer. ring_peek returns the oldest record, which stays valid until ring_release. ring_peek returns
 * NULL if the ring is empty. */
const void *ring_peek(ring *r, size_t *n_bytes);
void ring_release(ring *r);
/* called by either thread. If the producer gets false, the consumer may still empty the ring at any later moment */
bool ring_is_empty(const ring *r);

#endif
