/* ledger.h: states in host memory, and the account of their bytes.
 *
 * A blob is a state that never changes once it is filled: so it may have several holders, none of whom copies it, and
 * the last one to drop it frees it. There is no other way for a state to be in host memory. Its users:
 *   LEDGER_PARKED       sessions without a slot (branch.h), and the logits that they keep
 *   LEDGER_CHECKPOINT   checkpoints (checkpoint.h)
 *   LEDGER_IN_FLIGHT    jobs of the store (store.h): states on their way to or from a file (snapshot.h)
 * A blob counts in each use for which it is held, so that no budget depends on when another use drops it.
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
    uint8_t *bytes; /* filled by its maker before it is shared */
    size_t n_bytes;
    uint32_t n_holders[LEDGER_USES];
} blob;

typedef struct ledger {
    size_t n_bytes[LEDGER_USES];
    size_t n_in_flight_max;
    /* the last large blob, up to 160 MiB, dropped while others are held: it is reused for one of its size, without page
     * faults */
    blob *spare;
} ledger;

void ledger_open(ledger *l, size_t n_in_flight_max);

/* Allocates memory that returns to the system when it is freed, if it is large; in no account. NULL: memory is short.
 * Any thread. */
void *ledger_bytes_new(size_t n_bytes);
void ledger_bytes_free(void *bytes, size_t n_bytes); /* NULL is allowed */

/* Makes a blob that nothing holds yet; its bytes must be filled at once. NULL: memory is short. Any thread. */
blob *blob_new(size_t n_bytes);
/* Frees a blob that nothing holds. NULL is allowed. Any thread. */
void blob_free(blob *b);

/* Makes a blob that is held once as `use`. NULL: memory is short. */
blob *ledger_new(ledger *l, ledger_use use, size_t n_bytes);

void ledger_hold(ledger *l, ledger_use use, blob *b);
void ledger_drop(ledger *l, ledger_use use, blob *b); /* the last holder frees it; NULL is allowed */

/* Whether so many bytes may become in flight: they fit the limit, or nothing is in flight, so that a state larger than
 * the limit can be moved, too. */
bool ledger_admits(const ledger *l, size_t n_bytes);
/* Returns the unused part of n_in_flight_max. */
size_t ledger_room(const ledger *l);

/* Counts bytes that are in no blob, or not yet: those of the blobs that the store will make while it reads are in flight until
 * they are held or freed. */
void ledger_reserve(ledger *l, ledger_use use, size_t n_bytes);
void ledger_release(ledger *l, ledger_use use, size_t n_bytes);

#endif
