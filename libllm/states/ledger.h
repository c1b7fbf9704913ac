/* ledger.h: saved states in host memory, as blobs that never change and may have several holders, and one account of
 * their bytes. Held and dropped by the decode thread only, or by the opener in direct mode; the store thread reads the
 * bytes of what its jobs hold.
 *
 * Every byte of host memory that holds a saved state is held as
 *   LEDGER_PARKED       the state of a session without a seat
 *   LEDGER_CHECKPOINT   a checkpoint
 *   LEDGER_IN_FLIGHT    on its way to the disk or from it
 * or as several of them: then it counts in each, so that every budget holds whatever the others let go. */
#ifndef LLM_LEDGER_H
#define LLM_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ledger_use { LEDGER_PARKED, LEDGER_CHECKPOINT, LEDGER_IN_FLIGHT, LEDGER_USES } ledger_use;

typedef struct blob {
    uint8_t *bytes; /* written by who made it, before anybody else knows it */
    size_t n_bytes;
    uint32_t n_holders[LEDGER_USES];
} blob;

typedef struct ledger {
    size_t n_bytes[LEDGER_USES];
    size_t n_in_flight_max;
} ledger;

void ledger_open(ledger *l, size_t n_in_flight_max);

/* A new blob, held once as `use`; its bytes are to be filled at once. NULL: memory is short. */
blob *ledger_new(ledger *l, ledger_use use, size_t n_bytes);
/* Idem, of bytes from malloc, which it takes over (and frees if it fails). */
blob *ledger_take(ledger *l, ledger_use use, void *bytes, size_t n_bytes);

void ledger_hold(ledger *l, ledger_use use, blob *b);
void ledger_drop(ledger *l, ledger_use use, blob *b); /* the last holder frees it; NULL is allowed */

/* Whether so many bytes may begin their way: they fit beside what is on its way, or nothing else is: one state may always
 * move. */
bool ledger_admits(const ledger *l, size_t n_bytes);
/* What may be free of n_in_flight_max. */
size_t ledger_room(const ledger *l);

/* Bytes that the store will allocate while it reads. */
void ledger_reserve(ledger *l, size_t n_bytes);
void ledger_release(ledger *l, size_t n_bytes);

#endif
