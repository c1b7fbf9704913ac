#include "states/ledger.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
    /* Smaller blocks come from malloc, which keeps freed blocks for later. Larger blocks are mapped one by one.
     * Otherwise freed states and logits would be surrounded by small blocks, and their memory would never return to the
     * system. */
    MAPPED_BYTES_MIN = 64 << 10,
    /* A smaller block can be allocated again at little cost, so it is not kept as the spare. */
    SPARE_BYTES_MIN = 1 << 20,
    /* The ledger does not count the spare block, so the block's size is limited. A recurrent state is smaller than this
     * limit. Larger states, of long contexts, rarely have the same size twice. */
    SPARE_BYTES_MAX = 160 << 20,
};

void ledger_open(ledger *l, size_t n_in_flight_max)
{
    *l = (ledger){.n_in_flight_max = n_in_flight_max};
}

void *ledger_bytes_new(size_t n_bytes)
{
    if (n_bytes < MAPPED_BYTES_MIN) {
        return malloc(n_bytes > 0 ? n_bytes : 1);
    }
    void *bytes = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return bytes == MAP_FAILED ? NULL : bytes;
}

void ledger_bytes_free(void *bytes, size_t n_bytes)
{
    if (bytes == NULL) {
        return;
    }
    if (n_bytes < MAPPED_BYTES_MIN) {
        free(bytes);
        /* munmap fails if it would split a mapping and the process has reached its limit on mappings. Then the pages
         * are given back, but not the addresses */
    } else if (munmap(bytes, n_bytes) != 0) {
        madvise(bytes, n_bytes, MADV_DONTNEED);
    }
}

blob *blob_new(size_t n_bytes)
{
    blob *b = calloc(1, sizeof *b);
    uint8_t *bytes = b != NULL ? ledger_bytes_new(n_bytes) : NULL;
    if (bytes == NULL) {
        free(b);
        return NULL;
    }
    b->bytes = bytes;
    b->n_bytes = n_bytes;
    return b;
}

static bool is_held(const blob *b)
{
    for (int use = 0; use < LEDGER_USES; use++) {
        if (b->n_holders[use] > 0) {
            return true;
        }
    }
    return false;
}

void blob_free(blob *b)
{
    if (b != NULL) {
        assert(!is_held(b));
        ledger_bytes_free(b->bytes, b->n_bytes);
        free(b);
    }
}

/* Returns the spare blob if it has the requested size, else NULL. The states of a recurrent model mostly have the same
 * size. A new state is often made after an old one was dropped. */
static blob *take_spare(ledger *l, size_t n_bytes)
{
    blob *b = l->spare;
    if (b == NULL || b->n_bytes != n_bytes) {
        return NULL;
    }
    l->spare = NULL;
    return b;
}

static bool is_empty(const ledger *l)
{
    return l->n_bytes[LEDGER_PARKED] + l->n_bytes[LEDGER_CHECKPOINT] + l->n_bytes[LEDGER_IN_FLIGHT] == 0;
}

static void free_spare_of_empty(ledger *l)
{
    if (is_empty(l)) {
        blob_free(l->spare);
        l->spare = NULL;
    }
}

static void put_by(ledger *l, blob *b)
{
    if (b->n_bytes >= SPARE_BYTES_MIN && b->n_bytes <= SPARE_BYTES_MAX) {
        blob *former = l->spare;
        l->spare = b;
        b = former;
    }
    blob_free(b);
    free_spare_of_empty(l);
}

blob *ledger_new(ledger *l, ledger_use use, size_t n_bytes)
{
    blob *b = take_spare(l, n_bytes);
    if (b == NULL) {
        b = blob_new(n_bytes);
    }
    if (b != NULL) {
        ledger_hold(l, use, b);
    }
    return b;
}

void ledger_hold(ledger *l, ledger_use use, blob *b)
{
    if (b->n_holders[use]++ == 0) {
        l->n_bytes[use] += b->n_bytes;
    }
}

void ledger_drop(ledger *l, ledger_use use, blob *b)
{
    if (b == NULL) {
        return;
    }
    assert(b->n_holders[use] > 0);
    if (--b->n_holders[use] == 0) {
        assert(l->n_bytes[use] >= b->n_bytes);
        l->n_bytes[use] -= b->n_bytes;
    }
    if (!is_held(b)) {
        put_by(l, b);
    }
}

bool ledger_admits(const ledger *l, size_t n_bytes)
{
    return l->n_bytes[LEDGER_IN_FLIGHT] == 0 || n_bytes <= ledger_room(l);
}

size_t ledger_room(const ledger *l)
{
    const size_t n = l->n_bytes[LEDGER_IN_FLIGHT];
    return n < l->n_in_flight_max ? l->n_in_flight_max - n : 0;
}

void ledger_reserve(ledger *l, ledger_use use, size_t n_bytes)
{
    l->n_bytes[use] += n_bytes;
}

void ledger_release(ledger *l, ledger_use use, size_t n_bytes)
{
    assert(l->n_bytes[use] >= n_bytes);
    l->n_bytes[use] -= n_bytes;
    free_spare_of_empty(l);
}
