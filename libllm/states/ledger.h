/* ledger.h: states in host memory, and the one account of their bytes.
 *
 * A blob is a state that never changes once it is filled: so it may have several holders, none of whom copies it, and the
 * last one to drop it frees it. There is no other way for a state to be in host memory. Its users:
 *   LEDGER_PARKED       sessions without a slot (branch.h)
 *   LEDGER_CHECKPOINT   checkpoints (checkpoint.h)
 *   LEDGER_IN_FLIGHT    the store's jobs (store.h): on its way to a file, a session's or a label's (snapshot.h), or from one
 * A blob counts in each use it is held for, so that every budget holds whatever the others let go.
 *
 * Held and dropped by the decode thread only. The store thread reads the bytes of what its
 * jobs hold, and makes the blobs that it reads files into, which count as reserved until somebody holds them. */
#ifndef LLM_LEDGER_H
#define LLM_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ledger_use { LEDGER_PARKED, LEDGER_CHECKPOINT, LEDGER_IN_FLIGHT, LEDGER_USES } ledger_use;

typedef struct blob {
    uint8_t *bytes; /* filled by who made it, before anybody else knows it */
    size_t n_bytes;
    uint32_t n_holders[LEDGER_USES];
} blob;

typedef struct ledger {
    size_t n_bytes[LEDGER_USES];
    size_t n_in_flight_max;
    blob *spare; /* the last large one, up to 160 MiB, dropped while others are held: one of its size comes without page
                    faults */
} ledger;

void ledger_open(ledger *l, size_t n_in_flight_max);

/* Memory that goes back to the system when it is freed, if it is much; in no account. NULL: memory is short. Any thread. */
void *ledger_bytes_new(size_t n_bytes);
void ledger_bytes_free(void *bytes, size_t n_bytes); /* NULL is allowed */

/* A new blob that nobody holds yet; its bytes are to be filled at once. NULL: memory is short. Any thread. */
blob *blob_new(size_t n_bytes);
/* Frees a blob that nobody holds. NULL is allowed. Any thread. */
void blob_free(blob *b);

/* A new blob, held once as `use`. NULL: memory is short. */
blob *ledger_new(ledger *l, ledger_use use, size_t n_bytes);

void ledger_hold(ledger *l, ledger_use use, blob *b);
void ledger_drop(ledger *l, ledger_use use, blob *b); /* the last holder frees it; NULL is allowed */

/* Whether so many bytes may begin their way: they fit beside what is on its way, or nothing else is: one state may always
 * move. */
bool ledger_admits(const ledger *l, size_t n_bytes);
/* What may be free of n_in_flight_max. */
size_t ledger_room(const ledger *l);

/* Bytes of the blobs that the store will make while it reads: in flight until they are held, or freed. */
void ledger_reserve(ledger *l, size_t n_bytes);
void ledger_release(ledger *l, size_t n_bytes);

#endif
