/* Tests the checkpoint store: which checkpoints it finds and evicts, and that each checkpoint has the right parent. */
#include "states/checkpoint.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "random.h"

static ledger account;

enum { N_TOKENS_MAX = 24, N_ROUNDS = 4000, STATE_BYTES = 100 };

/* There are only two different tokens, so that histories share prefixes. */
static uint32_t make_tokens(random_source *r, int32_t *out)
{
    const uint32_t n = 1 + random_below(r, N_TOKENS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        out[i] = (int32_t)(random_below(r, 8) == 0);
    }
    return n;
}

static bool is_prefix(const checkpoint *a, const checkpoint *b)
{
    return a->owner == b->owner && a->k <= b->k && memcmp(a->tokens, b->tokens, a->k * sizeof *a->tokens) == 0;
}

static void check_relatives(const checkpoint_store *store)
{
    for (uint32_t i = 0; i < store->n_entries; i++) {
        const checkpoint *c = store->entries[i];
        uint32_t shorter = 0;
        uint32_t longest = c->k;
        for (uint32_t j = 0; j < store->n_entries; j++) {
            const checkpoint *other = store->entries[j];
            if (other->k < c->k && other->k > shorter && is_prefix(other, c)) {
                shorter = other->k;
            }
            if (other->k > longest && is_prefix(c, other)) {
                longest = other->k;
            }
        }
        CHECK_INT(c->parent != NULL ? c->parent->k : 0, shorter);
        CHECK_INT(c->longest, longest);
        CHECK(i == 0 || store->entries[i - 1]->k <= c->k);
    }
}

/* Checks that other threads find exactly the checkpoints that are prefixes of the tokens. */
static void check_marks(const checkpoint_store *store, uint32_t owner, const int32_t *tokens, uint32_t n)
{
    uint32_t found[N_TOKENS_MAX];
    const size_t n_found = checkpoint_marks_match(&store->marks, owner, tokens, n, found, N_TOKENS_MAX);
    size_t n_expected = 0;
    for (uint32_t i = 0; i < store->n_entries; i++) {
        const checkpoint *c = store->entries[i];
        if (c->owner == owner && c->k <= n && memcmp(c->tokens, tokens, c->k * sizeof *tokens) == 0) {
            CHECK(n_expected < n_found);
            CHECK_INT(found[n_expected], c->k);
            n_expected++;
        }
    }
    CHECK_INT(n_found, n_expected);
}

static void entries_know_their_relatives(void)
{
    random_source r = {.state = 7};
    checkpoint_store store;
    checkpoint_store_open(&store, &account, 60 * (sizeof(checkpoint) + STATE_BYTES));
    for (uint32_t round = 0; round < N_ROUNDS; round++) {
        int32_t tokens[N_TOKENS_MAX];
        const uint32_t n = make_tokens(&r, tokens);
        const uint32_t owner = random_below(&r, 2);
        checkpoint *c = checkpoint_find(&store, owner, tokens, n);
        if (c == NULL) {
            CHECK(checkpoint_add(&store, owner, tokens, n, STATE_BYTES, 0, true) != NULL);
        } else if (random_below(&r, 3) == 0) {
            checkpoint_remove(&store, c);
        } else if (random_below(&r, 2) == 0) {
            checkpoint_detach(&store, c);
            CHECK(checkpoint_find(&store, owner, tokens, n) == NULL);
            check_relatives(&store);
            CHECK(checkpoint_replace(&store, c, NULL) == c);
        } else {
            checkpoint_use(&store, c, 0, 0);
        }
        CHECK(store.n_bytes <= store.n_bytes_max);
        check_relatives(&store);
        check_marks(&store, owner, tokens, n);
        CHECK_STILL_GOOD();
    }
    CHECK(store.n_evicted > N_ROUNDS / 10);
    checkpoint_store_close(&store);
}

static void a_match_is_a_prefix_and_the_longest_come_first(void)
{
    random_source r = {.state = 11};
    checkpoint_store store;
    checkpoint_store_open(&store, &account, 1 << 20);
    for (uint32_t round = 0; round < N_ROUNDS; round++) {
        int32_t tokens[N_TOKENS_MAX];
        const uint32_t n = make_tokens(&r, tokens);
        checkpoint *found[4];
        const uint32_t n_found = checkpoint_match(&store, 0, tokens, n, n, found, 4);
        for (uint32_t i = 0; i < n_found; i++) {
            CHECK(found[i]->owner == 0 && found[i]->k <= n);
            CHECK(memcmp(found[i]->tokens, tokens, found[i]->k * sizeof *tokens) == 0);
            CHECK(i == 0 || found[i]->k < found[i - 1]->k);
        }
        if (checkpoint_find(&store, 0, tokens, n) == NULL) {
            CHECK(n_found == 0 || found[0]->k < n);
            checkpoint_add(&store, 0, tokens, n, STATE_BYTES, 0, true);
        } else {
            CHECK(n_found > 0 && found[0]->k == n);
        }
    }
    checkpoint_store_close(&store);
}

/* Checkpoints that need resident attention do not crowd out a checkpoint that needs none. If the attention is missing,
 * they take no place in the result. */
static void what_stands_alone_is_not_crowded_out(void)
{
    checkpoint_store store;
    checkpoint_store_open(&store, &account, 1 << 20);
    int32_t tokens[N_TOKENS_MAX] = {0};
    for (uint32_t k = 1; k <= N_TOKENS_MAX; k++) {
        CHECK(checkpoint_add(&store, 0, tokens, k, STATE_BYTES, 0, k == 3) != NULL);
    }
    checkpoint *found[4];
    CHECK_INT(checkpoint_match(&store, 0, tokens, N_TOKENS_MAX, 0, found, 4), 1);
    CHECK_INT(found[0]->k, 3);
    CHECK_INT(checkpoint_match(&store, 0, tokens, N_TOKENS_MAX, 2, found, 4), 3);
    CHECK_INT(checkpoint_match(&store, 0, tokens, N_TOKENS_MAX, 9, found, 4), 4);
    CHECK_INT(found[0]->k, 9);
    checkpoint_store_close(&store);
}

static void what_is_pinned_stays(void)
{
    checkpoint_store store;
    checkpoint_store_open(&store, &account, 8 * (sizeof(checkpoint) + STATE_BYTES));
    const int32_t system[2] = {1, 2};
    checkpoint *pinned = checkpoint_add(&store, 0, system, 2, STATE_BYTES, 0, true);
    CHECK(pinned != NULL);
    CHECK(checkpoint_pin(&store, pinned));
    for (int32_t i = 0; i < 100; i++) {
        const int32_t tokens[3] = {1, 2, i};
        CHECK(checkpoint_add(&store, 0, tokens, 3, STATE_BYTES, 0, true) != NULL);
        CHECK(checkpoint_find(&store, 0, system, 2) == pinned);
    }
    checkpoint_store_close(&store);
}

static void pins_leave_half_of_the_room(void)
{
    checkpoint_store store;
    checkpoint_store_open(&store, &account, 10 * (sizeof(checkpoint) + STATE_BYTES + sizeof(int32_t)));
    checkpoint *entries[10];
    uint32_t n_pinned = 0;
    for (int32_t i = 0; i < 10; i++) {
        entries[i] = checkpoint_add(&store, 0, &i, 1, STATE_BYTES, 0, true);
        CHECK(entries[i] != NULL);
        n_pinned += checkpoint_pin(&store, entries[i]);
    }
    CHECK_INT(n_pinned, 5);
    CHECK(checkpoint_pin(&store, entries[0]));
    checkpoint_unpin(&store, entries[0]);
    CHECK(!checkpoint_pin(&store, entries[9]));
    checkpoint_unpin(&store, entries[0]);
    CHECK(checkpoint_pin(&store, entries[9]));
    checkpoint_store_close(&store);
}

static void owners_never_share(void)
{
    checkpoint_store store;
    checkpoint_store_open(&store, &account, 1 << 16);
    const int32_t tokens[3] = {1, 2, 3};
    checkpoint *found[4];
    checkpoint *mine = checkpoint_add(&store, 1, tokens, 3, STATE_BYTES, 0, true);
    CHECK(mine != NULL && checkpoint_find(&store, 1, tokens, 3) == mine);
    CHECK(checkpoint_find(&store, 2, tokens, 3) == NULL);
    CHECK_INT(checkpoint_match(&store, 2, tokens, 3, 3, found, 4), 0);
    checkpoint_store_close(&store);
}

/* One long history, and a budget for few checkpoints: they are close together at its end, and far apart before. */
static void anchors_of_a_long_history_thin_out_backwards(void)
{
    enum { EVERY = 256, N = 64 * EVERY, N_KEPT = 12 };
    static int32_t tokens[N];
    checkpoint_store store;
    const size_t n_bytes_mean = sizeof(checkpoint) + N / 2 * sizeof(int32_t) + (1 << 20);
    checkpoint_store_open(&store, &account, N_KEPT * n_bytes_mean);
    for (uint32_t k = EVERY; k <= N; k += EVERY) {
        CHECK(checkpoint_add(&store, 0, tokens, k, 1 << 20, 0, false) != NULL);
    }
    CHECK(store.n_entries >= N_KEPT / 2 && store.n_entries <= N_KEPT + 1);
    CHECK(store.entries[0]->k <= N / 2);
    CHECK_INT(store.entries[store.n_entries - 1]->k, N);
    const uint32_t last = store.n_entries - 1;
    CHECK(store.entries[last]->k - store.entries[last - 1]->k < store.entries[1]->k - store.entries[0]->k ||
          store.entries[last]->k - store.entries[last - 1]->k == EVERY);
    checkpoint_store_close(&store);
}

static void what_is_too_large_is_not_kept(void)
{
    checkpoint_store store;
    checkpoint_store_open(&store, &account, 1000);
    const int32_t token = 1;
    CHECK(checkpoint_add(&store, 0, &token, 1, 600, 0, true) == NULL);
    CHECK_INT(store.n_entries, 0);
    checkpoint_store_close(&store);
}

/* The checkpoint needs more memory than a process can have. No other checkpoint is evicted for it. */
static void nothing_is_evicted_for_a_checkpoint_that_gets_no_memory(void)
{
    enum { N_MORE_THAN_FIT = 5000 };
    checkpoint_store store;
    checkpoint_store_open(&store, &account, SIZE_MAX / 2);
    for (int32_t i = 0; i < N_MORE_THAN_FIT; i++) {
        CHECK(checkpoint_add(&store, 0, &i, 1, STATE_BYTES, 0, true) != NULL);
    }
    CHECK(store.n_evicted > 0);
    const uint64_t n_evicted = store.n_evicted;
    const int32_t token = N_MORE_THAN_FIT;
    CHECK(checkpoint_add(&store, 0, &token, 1, SIZE_MAX / 8, 0, true) == NULL);
    CHECK_INT(store.n_evicted, n_evicted);
    checkpoint_store_close(&store);
}

static size_t n_compared; /* number of bytes */

int __real_memcmp(const void *a, const void *b, size_t n);
int __wrap_memcmp(const void *a, const void *b, size_t n);

int __wrap_memcmp(const void *a, const void *b, size_t n)
{
    n_compared += n;
    return __real_memcmp(a, b, n);
}

/* Agents share a system prompt and its tools. Adding a checkpoint must not compare those tokens with each other
 * checkpoint's. */
static void a_long_shared_head_costs_nothing_for_each_entry(void)
{
    enum { HEAD = 20000, N_ENTRIES = 300, END = 100 };
    static int32_t tokens[HEAD + END];
    checkpoint_store store;
    checkpoint_store_open(&store, &account, (size_t)4 * N_ENTRIES * sizeof tokens);
    n_compared = 0;
    checkpoint *c = NULL;
    for (int32_t i = 0; i < N_ENTRIES; i++) {
        for (uint32_t j = HEAD; j < HEAD + END; j++) {
            tokens[j] = i;
        }
        c = checkpoint_add(&store, 1, tokens, HEAD + END - (uint32_t)(i % 7), STATE_BYTES, 0, true);
        CHECK(c != NULL);
        checkpoint_use(&store, c, 0, 0);
    }
    checkpoint_remove(&store, c);
    CHECK(n_compared > 0 && n_compared < sizeof tokens * N_ENTRIES);
    check_relatives(&store);
    checkpoint_store_close(&store);
}

enum { N_MARK_ROUNDS = 2000, N_MARKS = 40 };

typedef struct mark_reader {
    const checkpoint_marks *marks;
    const int32_t *tokens;
    _Atomic int is_over;
    uint32_t n_wrong;
} mark_reader;

/* A reader may miss a mark while it changes. But the reader finds only token counts that the writer used, in ascending
 * order. */
static void *read_marks(void *argument)
{
    mark_reader *r = argument;
    do {
        uint32_t found[N_MARKS];
        const size_t n = checkpoint_marks_match(r->marks, 1, r->tokens, N_MARKS, found, N_MARKS);
        for (size_t i = 0; i < n; i++) {
            r->n_wrong += found[i] <= (i > 0 ? found[i - 1] : 0) || found[i] > N_MARKS || found[i] % 2 != 0;
        }
    } while (atomic_load(&r->is_over) == 0);
    return NULL;
}

static void marks_are_read_while_they_change(void)
{
    checkpoint_marks *marks = calloc(1, sizeof *marks);
    int32_t tokens[N_MARKS];
    uint32_t indices[N_MARKS];
    for (int32_t i = 0; i < N_MARKS; i++) {
        tokens[i] = 7 * i;
    }
    mark_reader r = {.marks = marks, .tokens = tokens};
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, read_marks, &r), 0);
    for (uint32_t round = 0; round < N_MARK_ROUNDS; round++) {
        for (uint32_t i = 0; i < N_MARKS; i++) { /* marks with an odd number of tokens belong to other tokens */
            const uint32_t k = 1 + (i + round) % N_MARKS;
            token_hash hash = token_hash_of(1, tokens, k);
            hash.lane[0] += k % 2;
            indices[i] = checkpoint_marks_add(marks, 1, k, hash);
        }
        for (uint32_t i = 0; i < N_MARKS; i++) {
            checkpoint_marks_remove(marks, indices[i]);
        }
    }
    atomic_store(&r.is_over, 1);
    pthread_join(thread, NULL);
    CHECK_INT(r.n_wrong, 0);
    free(marks);
}

int main(void)
{
    RUN(entries_know_their_relatives);
    RUN(a_long_shared_head_costs_nothing_for_each_entry);
    RUN(a_match_is_a_prefix_and_the_longest_come_first);
    RUN(what_stands_alone_is_not_crowded_out);
    RUN(what_is_pinned_stays);
    RUN(pins_leave_half_of_the_room);
    RUN(owners_never_share);
    RUN(anchors_of_a_long_history_thin_out_backwards);
    RUN(what_is_too_large_is_not_kept);
    RUN(nothing_is_evicted_for_a_checkpoint_that_gets_no_memory);
    RUN(marks_are_read_while_they_change);
    return CHECK_RESULT();
}
