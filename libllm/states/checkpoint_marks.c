#include "states/checkpoint_marks.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

uint32_t checkpoint_marks_add(checkpoint_marks *marks, uint32_t owner, uint32_t k, token_hash hash)
{
    uint32_t i = 0;
    while (atomic_load_explicit(&marks->marks[i].owner_and_k, memory_order_relaxed) != 0) {
        i++;
        assert(i < CHECKPOINT_MARKS_MAX);
    }
    checkpoint_mark *m = &marks->marks[i];
    for (int lane = 0; lane < 2; lane++) { /* with release: a reader of a new lane sees that the old mark is gone */
        atomic_store_explicit(&m->lane[lane], hash.lane[lane], memory_order_release);
    }
    atomic_store_explicit(&m->owner_and_k, (uint64_t)owner << 32 | k, memory_order_release);
    return i;
}

void checkpoint_marks_remove(checkpoint_marks *marks, uint32_t index)
{
    atomic_store_explicit(&marks->marks[index].owner_and_k, 0, memory_order_release);
}

typedef struct mark_copy {
    uint32_t k;
    token_hash hash;
} mark_copy;

/* Copies a mark of this owner. Returns false if the mark has another owner or too many tokens, or if it changes during
 * the copy. */
static bool copy_mark(const checkpoint_mark *m, uint32_t owner, size_t n_tokens, mark_copy *out)
{
    const uint64_t word = atomic_load_explicit(&m->owner_and_k, memory_order_acquire);
    *out = (mark_copy){.k = (uint32_t)word};
    if (word == 0 || word >> 32 != owner || out->k > n_tokens) {
        return false;
    }
    for (int lane = 0; lane < 2; lane++) {
        out->hash.lane[lane] = atomic_load_explicit(&m->lane[lane], memory_order_acquire);
    }
    return atomic_load_explicit(&m->owner_and_k, memory_order_relaxed) == word;
}

static int compare_k(const void *a, const void *b)
{
    const uint32_t x = ((const mark_copy *)a)->k, y = ((const mark_copy *)b)->k;
    return (x > y) - (x < y);
}

size_t checkpoint_marks_match(const checkpoint_marks *marks, uint32_t owner, const int32_t *tokens, size_t n_tokens,
                              uint32_t *out, size_t n_out)
{
    mark_copy copies[CHECKPOINT_MARKS_MAX]; /* takes 96 KiB of the stack */
    size_t n_copies = 0;
    for (uint32_t i = 0; i < CHECKPOINT_MARKS_MAX; i++) {
        n_copies += copy_mark(&marks->marks[i], owner, n_tokens, &copies[n_copies]);
    }
    qsort(copies, n_copies, sizeof copies[0], compare_k);
    token_hash h = token_hash_begin(owner);
    uint32_t hashed = 0;
    size_t n = 0;
    for (size_t i = 0; i < n_copies && n < n_out; i++) {
        while (hashed < copies[i].k) {
            token_hash_add(&h, tokens[hashed++]);
        }
        if (token_hash_equal(h, copies[i].hash) && (n == 0 || out[n - 1] != copies[i].k)) {
            out[n++] = copies[i].k;
        }
    }
    return n;
}
