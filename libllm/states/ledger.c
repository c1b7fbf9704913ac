#include "states/ledger.h"

#include <assert.h>
#include <stdlib.h>

void ledger_open(ledger *l, size_t n_in_flight_max)
{
    *l = (ledger){.n_in_flight_max = n_in_flight_max};
}

blob *blob_new(size_t n_bytes)
{
    blob *b = calloc(1, sizeof *b);
    void *bytes = malloc(n_bytes > 0 ? n_bytes : 1);
    if (b == NULL || bytes == NULL) {
        free(b);
        free(bytes);
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
        free(b->bytes);
        free(b);
    }
}

blob *ledger_new(ledger *l, ledger_use use, size_t n_bytes)
{
    blob *b = blob_new(n_bytes);
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
        blob_free(b);
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

void ledger_reserve(ledger *l, size_t n_bytes)
{
    l->n_bytes[LEDGER_IN_FLIGHT] += n_bytes;
}

void ledger_release(ledger *l, size_t n_bytes)
{
    assert(l->n_bytes[LEDGER_IN_FLIGHT] >= n_bytes);
    l->n_bytes[LEDGER_IN_FLIGHT] -= n_bytes;
}
