/* ledger.h: keeps states in host memory, and counts their bytes.
 *
 * Every state in host memory is a blob. A blob is a block of bytes that never changes after it has been filled. So
 * several holders can share a blob without a copy, and the last holder to drop the blob frees it. The uses for which a
 * blob can be held:
 *   LEDGER_PARKED       branches without a slot (branch.h), and the logits that they keep
 *   LEDGER_CHECKPOINT   checkpoints (checkpoint.h)
 *   LEDGER_IN_FLIGHT    jobs of the store (store.h): states on their way to or from a file (snapshot.h)
 * The bytes of a blob count in each use for which it is held. So no budget depends on when another use drops the blob.
 *
 * Only the decode thread holds and drops blobs. The store thread reads the bytes of blobs that its jobs hold. The store
 * thread also makes blobs for the files that it reads. Before each such read, the decode thread reserves the bytes of
 * the new blobs (ledger_reserve). The decode thread releases the reserved bytes when it holds the blobs. */
#ifndef LLM_LEDGER_H
#define LLM_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ledger_use { LEDGER_PARKED, LEDGER_CHECKPOINT, LEDGER_IN_FLIGHT, LEDGER_USES } ledger_use;

typedef struct blob {
    uint8_t *bytes; /* filled before the blob is shared */
    size_t n_bytes;
    uint32_t n_holders[LEDGER_USES];
} blob;

typedef struct ledger {
    size_t n_bytes[LEDGER_USES];
    size_t n_in_flight_max;
    /* the large blob, of at most 160 MiB, that was most recently dropped while other blobs were held. A new blob of the
     * same size reuses the memory of this blob, without page faults */
    blob *spare;
} ledger;

void ledger_open(ledger *l, size_t n_in_flight_max);

/* Allocates memory that counts for no use. A large block returns to the operating system as soon as it is freed.
 * Returns NULL if memory is short. Called by any thread. */
void *ledger_bytes_new(size_t n_bytes);
void ledger_bytes_free(void *bytes, size_t n_bytes); /* NULL is allowed */

/* Makes a blob without a holder, whose bytes must be filled before any other use. Returns NULL if memory is short.
 * Called by any thread. */
blob *blob_new(size_t n_bytes);
/* Frees a blob that has no holder. NULL is allowed. Called by any thread. */
void blob_free(blob *b);

/* Makes a blob that is held once for `use`. Returns NULL if memory is short. */
blob *ledger_new(ledger *l, ledger_use use, size_t n_bytes);

void ledger_hold(ledger *l, ledger_use use, blob *b);
void ledger_drop(ledger *l, ledger_use use, blob *b); /* frees the blob if it has no other holder; NULL is allowed */

/* Whether n_bytes may be added to the bytes in flight. The sum must be within the limit, or nothing else may be in
 * flight. So a single state larger than the limit can be moved, too. */
bool ledger_admits(const ledger *l, size_t n_bytes);
/* Returns the unused part of n_in_flight_max. */
size_t ledger_room(const ledger *l);

/* ledger_reserve adds bytes to a use without a blob, and ledger_release subtracts them. For example, before the store
 * reads a file, the bytes of its future blobs are reserved as in flight. The reserved bytes are released when these
 * blobs are held or freed. */
void ledger_reserve(ledger *l, ledger_use use, size_t n_bytes);
void ledger_release(ledger *l, ledger_use use, size_t n_bytes);

#endif
