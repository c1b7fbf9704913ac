/* Tests copies of sequences that share memory with their source, with tiny generated models. A copy takes no memory
 * until the copy or the source grows. Changes of one sequence must not affect another. */
#include "own_memory.h"
#include "random.h"
#include "tiny_models.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED
#endif

enum { LONG_CTX = 4096, HEAD = 3072, SLACK_KIB = 512, ROUNDS = 300, TEXT_MAX = 700 };

/* Copies share the cells of a head. Checks the bytes that the model counts, and the memory of the process, unless a
 * sanitizer keeps freed memory. */
static void test_copies_hold_their_head_once(void)
{
    model *m = opened_with(LONG_CTX, N_SEQ);
    CHECK(m != NULL);
    /* In one pool, cells that have left the window of all their sequences stay taken until one of them is cleared. */
    const bool keeps_cells = strstr(current->file, "hybrid-window") != NULL;
    if (!m->info.shares_cells || current->memory == LLM_MEMORY_RECURRENT || keeps_cells) {
        m->ops->close(m);
        return;
    }
    CHECK_INT(feed(m, 0, 1, 0, HEAD, 64), MODEL_OK);
    const uint64_t one = m->ops->used_bytes(m);
    const long before = own_memory_kib("Anonymous:");
    CHECK(m->ops->copy(m, 0, 1));
    CHECK(m->ops->copy(m, 1, 2));
    CHECK_INT(feed(m, 1, 2, HEAD, HEAD + 10, 10), MODEL_OK);
    CHECK_INT(m->ops->shared_tokens(m, 0), 0);
    CHECK_INT(m->ops->shared_tokens(m, 1), HEAD);
    CHECK_INT(m->ops->shared_tokens(m, 2), HEAD);
    const uint64_t head = m->ops->sequence_bytes(m, HEAD) - m->ops->sequence_bytes(m, 0);
    const bool has_attention = head > 0;
    CHECK(!has_attention || m->ops->used_bytes(m) - one < head / 10);
#ifndef IS_SANITIZED
    CHECK(own_memory_kib("Anonymous:") - before < (long)(head / 10 / 1024) + SLACK_KIB);
#else
    (void)before;
#endif
    m->ops->clear(m, 0); /* the source is cleared, and the copies keep the shared cells */
    CHECK_INT(m->ops->shared_tokens(m, 1), 0);
    CHECK_INT(m->ops->shared_tokens(m, 2), HEAD);
    CHECK(!has_attention || m->ops->used_bytes(m) >= head);
    m->ops->clear(m, 1);
    CHECK_INT(feed(m, 2, 9, HEAD, HEAD + 10, 10), MODEL_OK);
    float *row = row_after(m, 10);
    m->ops->clear(m, 3);
    CHECK_INT(feed(m, 3, 1, 0, HEAD, 64), MODEL_OK);
    CHECK_INT(feed(m, 3, 9, HEAD, HEAD + 10, 10), MODEL_OK);
    float *reference = row_after(m, 10);
    check_same(row, reference, m->info.n_vocab);
    free(row);
    free(reference);
    m->ops->close(m);
}

/* A model and its twin. What happens to a sequence of one happens to the same sequence of the other, but the twin copies
 * through a saved state. */
typedef struct twins {
    model *shared, *apart;
    uint32_t seed; /* seed of the next tokens */
} twins;

static bool copy_through_state(model *m, uint16_t from, uint16_t to)
{
    const size_t n = m->ops->state_bytes(m, from, MODEL_STATE_FULL);
    void *bytes = malloc(n);
    const bool is_copied = bytes != NULL && m->ops->state_save(m, from, MODEL_STATE_FULL, bytes, n) == n &&
                           m->ops->state_load(m, to, MODEL_STATE_FULL, m->ops->position(m, from), bytes, n) == MODEL_OK;
    free(bytes);
    return is_copied;
}

static void check_grows_alike(twins *t, uint16_t seq, uint32_t n)
{
    const uint32_t at = t->shared->ops->position(t->shared, seq);
    t->seed++;
    CHECK_INT(feed(t->shared, seq, t->seed, at, at + n, 64), MODEL_OK);
    CHECK_INT(feed(t->apart, seq, t->seed, at, at + n, 64), MODEL_OK);
    const uint32_t last = n % 64 == 0 ? 64 : n % 64;
    float *a = row_after(t->shared, last), *b = row_after(t->apart, last);
    if (current->memory == LLM_MEMORY_DENSE) { /* the same cells in the same order give the same bits */
        CHECK(memcmp(a, b, t->shared->info.n_vocab * sizeof *a) == 0);
    } else {
        check_same(a, b, t->shared->info.n_vocab);
    }
    free(a);
    free(b);
}

/* Does one random operation on two random sequences. */
static void change(twins *t, random_source *r)
{
    const model_ops *ops = t->shared->ops;
    const uint16_t seq = (uint16_t)random_below(r, N_SEQ), other = (uint16_t)random_below(r, N_SEQ);
    const uint32_t n = ops->position(t->shared, seq);
    switch (random_below(r, 5)) {
    case 0:
        if (seq != other && n > 0) {
            ops->clear(t->shared, other);
            ops->clear(t->apart, other);
            CHECK(ops->copy(t->shared, seq, other));
            CHECK(copy_through_state(t->apart, seq, other));
        }
        break;
    case 1:
        if (n > 1 && current->memory == LLM_MEMORY_DENSE) {
            const uint32_t k = 1 + random_below(r, n - 1);
            CHECK(ops->truncate(t->shared, seq, k));
            CHECK(ops->truncate(t->apart, seq, k));
        }
        break;
    case 2:
        if (random_below(r, 4) == 0) {
            ops->clear(t->shared, seq);
            ops->clear(t->apart, seq);
        }
        break;
    default:
        if (n < TEXT_MAX - 150) {
            check_grows_alike(t, seq, 1 + random_below(r, random_below(r, 2) == 0 ? 5 : 150));
        }
    }
}

static void test_nothing_shows_in_another_sequence(void)
{
    twins t = {opened_with(1024, N_SEQ), opened_with(1024, N_SEQ), 100};
    CHECK(t.shared != NULL && t.apart != NULL);
    random_source r = {.state = 20261128};
    for (int i = 0; i < ROUNDS && t.shared->info.shares_cells; i++) {
        change(&t, &r);
    }
    CHECK_INT(t.shared->ops->used_bytes(t.shared) <= t.apart->ops->used_bytes(t.apart), 1);
    for (uint16_t seq = 0; seq < N_SEQ && t.shared->info.shares_cells; seq++) {
        check_grows_alike(&t, seq, 1);
    }
    t.shared->ops->close(t.shared);
    t.apart->ops->close(t.apart);
}

static void test_shared(void)
{
    RUN(test_copies_hold_their_head_once);
    RUN(test_nothing_shows_in_another_sequence);
}

int main(void)
{
    for_each_model(test_shared);
    return CHECK_RESULT();
}
