/* Tests the ledger of states: the bytes of a blob count once for each use, and the last holder frees the blob. */
#include <stdlib.h>

#include "check.h"
#include "own_memory.h"
#include "random.h"
#include "states/ledger.h"

enum { N_BLOBS = 12, N_ROUNDS = 20000, N_HOLDERS_MAX = 3 };

static void test_a_blob_counts_once_for_each_use(void)
{
    ledger l;
    ledger_open(&l, 100);
    blob *b = ledger_new(&l, LEDGER_PARKED, 40);
    ledger_hold(&l, LEDGER_PARKED, b);
    CHECK_INT(l.n_bytes[LEDGER_PARKED], 40);
    ledger_hold(&l, LEDGER_IN_FLIGHT, b);
    CHECK_INT(l.n_bytes[LEDGER_IN_FLIGHT], 40);
    ledger_drop(&l, LEDGER_PARKED, b);
    CHECK_INT(l.n_bytes[LEDGER_PARKED], 40);
    ledger_drop(&l, LEDGER_PARKED, b);
    CHECK_INT(l.n_bytes[LEDGER_PARKED], 0);
    ledger_drop(&l, LEDGER_IN_FLIGHT, b);
    CHECK_INT(l.n_bytes[LEDGER_IN_FLIGHT], 0);
    ledger_drop(&l, LEDGER_PARKED, NULL);
}

/* A large blob is dropped. The next large blob of the same size gets its memory. When the last blob is dropped, this
 * memory is freed, too. */
static void test_the_memory_of_a_large_one_is_used_again(void)
{
    enum { LARGE = 2 << 20 };
    ledger l;
    ledger_open(&l, 100);
    blob *kept = ledger_new(&l, LEDGER_PARKED, 40);
    blob *first = ledger_new(&l, LEDGER_CHECKPOINT, LARGE);
    const uint8_t *bytes = first->bytes;
    ledger_drop(&l, LEDGER_CHECKPOINT, first);
    CHECK_INT(l.n_bytes[LEDGER_CHECKPOINT], 0);
    blob *other = ledger_new(&l, LEDGER_CHECKPOINT, LARGE + 1);
    CHECK(other->bytes != bytes);
    blob *second = ledger_new(&l, LEDGER_CHECKPOINT, LARGE);
    CHECK(second->bytes == bytes);
    CHECK_INT(l.n_bytes[LEDGER_CHECKPOINT], 2 * LARGE + 1);
    ledger_drop(&l, LEDGER_CHECKPOINT, other);
    ledger_drop(&l, LEDGER_CHECKPOINT, second);
    CHECK(l.spare != NULL);
    blob *context = ledger_new(&l, LEDGER_PARKED, 200 << 20); /* so large that its memory is freed immediately */
    ledger_drop(&l, LEDGER_PARKED, context);
    CHECK(l.spare == second);
    ledger_drop(&l, LEDGER_PARKED, kept);
    CHECK(l.spare == NULL);
}

static size_t resident_bytes(void)
{
    return (size_t)own_memory_kib("Rss:") * 1024;
}

/* Checks that dropped blobs free their memory, although small blocks that stay were allocated between them. */
static void check_goes_back(size_t n_bytes)
{
    enum { N = 48, N_SMALL_BYTES = 100 };
    ledger l;
    ledger_open(&l, 100);
    blob *states[N];
    void *others[N];
    const size_t before = resident_bytes();
    for (int i = 0; i < N; i++) {
        states[i] = ledger_new(&l, LEDGER_PARKED, n_bytes);
        memset(states[i]->bytes, i + 1, n_bytes);
        others[i] = malloc(N_SMALL_BYTES);
    }
    CHECK(resident_bytes() >= before + N * n_bytes);
    for (int i = 0; i < N; i++) {
        ledger_drop(&l, LEDGER_PARKED, states[i]);
    }
    CHECK(resident_bytes() < before + 4 * n_bytes);
    for (int i = 0; i < N; i++) {
        free(others[i]);
    }
}

static void test_states_and_logits_that_are_dropped_go_back_to_the_system(void)
{
    /* glibc maps a block of this size only the first time. When the block is freed, glibc raises its threshold, and
     * allocates such blocks on the heap from then on */
    void *volatile once = malloc(8 << 20); /* `volatile`, so that the compiler does not remove both calls */
    free(once);
    check_goes_back(3 << 20);
    check_goes_back(600 << 10); /* logits for a vocabulary of 150,000 tokens */
    check_goes_back(128000);    /* logits for a vocabulary of 32,000 tokens */
}

static void test_one_state_may_always_move(void)
{
    ledger l;
    ledger_open(&l, 100);
    CHECK(ledger_admits(&l, 1000));
    ledger_reserve(&l, LEDGER_IN_FLIGHT, 60);
    CHECK(ledger_admits(&l, 40) && !ledger_admits(&l, 41));
    ledger_reserve(&l, LEDGER_IN_FLIGHT, 60);
    CHECK_INT(ledger_room(&l), 0);
    CHECK(!ledger_admits(&l, 1));
    ledger_release(&l, LEDGER_IN_FLIGHT, 120);
    CHECK(ledger_admits(&l, 101));
}

static size_t expected(blob *const *blobs, ledger_use use)
{
    size_t n = 0;
    for (uint32_t i = 0; i < N_BLOBS; i++) {
        n += blobs[i] != NULL && blobs[i]->n_holders[use] > 0 ? blobs[i]->n_bytes : 0;
    }
    return n;
}

static uint32_t holders(const blob *b)
{
    return b->n_holders[LEDGER_PARKED] + b->n_holders[LEDGER_CHECKPOINT] + b->n_holders[LEDGER_IN_FLIGHT];
}

static void test_random_holders(void)
{
    random_source r = {.state = 3};
    ledger l;
    blob *blobs[N_BLOBS] = {0};
    ledger_open(&l, 100);
    for (uint32_t round = 0; round < N_ROUNDS; round++) {
        const uint32_t i = random_below(&r, N_BLOBS);
        const ledger_use use = (ledger_use)random_below(&r, LEDGER_USES);
        if (blobs[i] == NULL) {
            blobs[i] = ledger_new(&l, use, random_below(&r, 50));
        } else if (random_below(&r, 2) == 0 && holders(blobs[i]) < N_HOLDERS_MAX) {
            ledger_hold(&l, use, blobs[i]);
        } else if (blobs[i]->n_holders[use] > 0) {
            const bool is_last = holders(blobs[i]) == 1;
            ledger_drop(&l, use, blobs[i]);
            blobs[i] = is_last ? NULL : blobs[i];
        }
        for (int each = 0; each < LEDGER_USES; each++) {
            CHECK_INT(l.n_bytes[each], expected(blobs, (ledger_use)each));
        }
        CHECK_STILL_GOOD();
    }
    for (uint32_t i = 0; i < N_BLOBS; i++) {
        for (int use = 0; use < LEDGER_USES; use++) {
            for (uint32_t n = blobs[i] != NULL ? blobs[i]->n_holders[use] : 0; n > 0; n--) {
                const bool is_last = holders(blobs[i]) == 1;
                ledger_drop(&l, (ledger_use)use, blobs[i]);
                blobs[i] = is_last ? NULL : blobs[i];
            }
        }
    }
    CHECK_INT(l.n_bytes[0] + l.n_bytes[1] + l.n_bytes[2], 0);
}

/* A blob that the store reads does not count until it has a holder. */
static void test_a_blob_that_nobody_holds_counts_nowhere(void)
{
    ledger l;
    ledger_open(&l, 100);
    blob *b = blob_new(30);
    CHECK(b != NULL);
    CHECK_INT(l.n_bytes[0] + l.n_bytes[1] + l.n_bytes[2], 0);
    ledger_hold(&l, LEDGER_PARKED, b);
    CHECK_INT(l.n_bytes[LEDGER_PARKED], 30);
    ledger_drop(&l, LEDGER_PARKED, b);
    CHECK_INT(l.n_bytes[LEDGER_PARKED], 0);
    blob_free(blob_new(0));
    blob_free(NULL);
}

int main(void)
{
    RUN(test_a_blob_counts_once_for_each_use);
    RUN(test_a_blob_that_nobody_holds_counts_nowhere);
    RUN(test_the_memory_of_a_large_one_is_used_again);
    RUN(test_states_and_logits_that_are_dropped_go_back_to_the_system);
    RUN(test_one_state_may_always_move);
    RUN(test_random_holders);
    return CHECK_RESULT();
}
