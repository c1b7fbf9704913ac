/* Tests copied, checkpointed and saved sequences of llama.cpp, with tiny generated models of every memory class. A
 * sequence that continues from a copied or restored state must have the same logits as after a full prefill of its
 * tokens. */
#include "tiny_models.h"

/* Continues `seq`, which has k tokens of text 1, and compares the logits with those without reuse. */
static void check_goes_on(model *m, uint16_t seq, uint32_t k)
{
    CHECK_INT(m->ops->position(m, seq), k);
    CHECK_INT(feed(m, seq, 9, k, k + 10, 64), MODEL_OK);
    float *row = row_after(m, 10);
    m->ops->clear(m, 3);
    CHECK_INT(feed(m, 3, 1, 0, k, 64), MODEL_OK);
    CHECK_INT(feed(m, 3, 9, k, k + 10, 64), MODEL_OK);
    float *reference = row_after(m, 10);
    m->ops->clear(m, 3);
    check_same(row, reference, m->info.n_vocab);
    free(row);
    free(reference);
}

static void *saved(model *m, uint16_t seq, model_state_kind kind, size_t *n)
{
    *n = m->ops->state_bytes(m, seq, kind);
    void *bytes = malloc(*n + 1);
    return bytes != NULL && *n > 0 && m->ops->state_save(m, seq, kind, bytes, *n) == *n ? bytes : NULL;
}

static void test_a_copy_is_its_own(void)
{
    model *m = opened();
    CHECK(m != NULL);
    CHECK_INT(feed(m, 0, 1, 0, 200, 64), MODEL_OK);
    CHECK(copy_sequence(m, 0, 1));
    CHECK(!m->ops->copy(m, 0, 1)); /* fails because sequence 1 is not empty */
    CHECK(!m->ops->copy(m, 0, 0));
    CHECK(!m->ops->copy(m, 0, N_SEQ));
    CHECK_INT(feed(m, 0, 5, 200, 260, 60), MODEL_OK); /* the source continues, and is cleared later */
    check_goes_on(m, 1, 200);
    CHECK_STILL_GOOD();
    CHECK_INT(m->ops->position(m, 0), 260);
    m->ops->clear(m, 1);
    CHECK(copy_sequence(m, 0, 1));
    m->ops->clear(m, 0);
    CHECK_INT(m->ops->position(m, 1), 260);
    CHECK_INT(feed(m, 1, 5, 260, 270, 10), MODEL_OK);
    m->ops->close(m);
}

static void test_a_full_state_comes_back_anywhere(void)
{
    size_t n;
    model *m = opened(), *other = opened();
    CHECK(m != NULL && other != NULL);
    CHECK_INT(feed(m, 0, 1, 0, 200, 64), MODEL_OK);
    uint8_t *bytes = saved(m, 0, MODEL_STATE_FULL, &n);
    CHECK(bytes != NULL);
    CHECK_INT(m->ops->state_save(m, 0, MODEL_STATE_FULL, bytes, n - 1), 0);
    CHECK_INT(feed(m, 2, 3, 0, 50, 64), MODEL_OK); /* the load replaces these tokens */
    CHECK_INT(m->ops->state_load(m, 2, MODEL_STATE_FULL, 200, bytes, n), MODEL_OK);
    check_goes_on(m, 2, 200);
    CHECK_STILL_GOOD();
    check_goes_on(m, 0, 200);
    CHECK_STILL_GOOD();
    CHECK_INT(other->ops->state_load(other, 1, MODEL_STATE_FULL, 200, bytes, n), MODEL_OK);
    check_goes_on(other, 1, 200);
    CHECK_STILL_GOOD();
    free(bytes);
    m->ops->close(m);
    other->ops->close(other);
}

static void test_a_checkpoint_brings_back_what_a_cut_cannot(void)
{
    size_t n, n_full;
    model *m = opened();
    CHECK(m != NULL);
    if (m->info.checkpoint == MODEL_CHECKPOINT_NONE) {
        CHECK(m->info.memory == LLM_MEMORY_DENSE);
        m->ops->close(m);
        return;
    }
    CHECK_INT(feed(m, 0, 1, 0, 150, 64), MODEL_OK);
    uint8_t *bytes = saved(m, 0, MODEL_STATE_CHECKPOINT, &n), *full = saved(m, 0, MODEL_STATE_FULL, &n_full);
    CHECK(bytes != NULL && full != NULL);
    CHECK(m->info.checkpoint == MODEL_CHECKPOINT_WHOLE ? n == n_full : n < n_full);
    CHECK_INT(feed(m, 0, 1, 150, 450, 64), MODEL_OK); /* so far that the window has lost the cells */
    for (int i = 0; i < 2; i++) {
        CHECK_INT(m->ops->state_load(m, 0, MODEL_STATE_CHECKPOINT, 150, bytes, n), MODEL_OK);
        check_goes_on(m, 0, 150);
        CHECK_STILL_GOOD();
    }
    free(bytes);
    free(full);
    m->ops->close(m);
}

/* As for another session with the same beginning: copies the sequence, then loads a checkpoint into the copy. */
static void test_a_fork_at_a_checkpoint_leaves_the_source_alone(void)
{
    size_t n;
    model *m = opened();
    CHECK(m != NULL);
    if (m->info.checkpoint != MODEL_CHECKPOINT_NONE) {
        CHECK_INT(feed(m, 0, 1, 0, 150, 64), MODEL_OK);
        uint8_t *bytes = saved(m, 0, MODEL_STATE_CHECKPOINT, &n);
        CHECK(bytes != NULL);
        CHECK_INT(feed(m, 0, 1, 150, 300, 64), MODEL_OK);
        CHECK(copy_sequence(m, 0, 1));
        CHECK_INT(m->ops->state_load(m, 1, MODEL_STATE_CHECKPOINT, 150, bytes, n), MODEL_OK);
        check_goes_on(m, 1, 150);
        CHECK_STILL_GOOD();
        check_goes_on(m, 0, 300);
        CHECK_STILL_GOOD();
        free(bytes);
    }
    m->ops->close(m);
}

static void test_damaged_states_leave_the_sequence_empty(void)
{
    size_t n;
    model *m = opened();
    CHECK(m != NULL);
    CHECK_INT(feed(m, 0, 1, 0, 100, 64), MODEL_OK);
    uint8_t *bytes = saved(m, 0, MODEL_STATE_FULL, &n);
    CHECK(bytes != NULL);
    CHECK_INT(feed(m, 1, 2, 0, 50, 64), MODEL_OK);
    CHECK_INT(m->ops->state_load(m, 1, MODEL_STATE_FULL, 100, bytes, n / 2), MODEL_INVALID);
    CHECK_INT(m->ops->position(m, 1), 0);
    /* the state has another number of tokens */
    CHECK_INT(m->ops->state_load(m, 1, MODEL_STATE_FULL, 99, bytes, n), MODEL_INVALID);
    CHECK_INT(m->ops->position(m, 1), 0);
    CHECK_INT(m->ops->state_load(m, 1, MODEL_STATE_FULL, 100, bytes, 0), MODEL_INVALID);
    memset(bytes, 0x5a, n);
    CHECK_INT(m->ops->state_load(m, 1, MODEL_STATE_FULL, 100, bytes, n), MODEL_INVALID);
    CHECK_INT(m->ops->state_load(m, N_SEQ, MODEL_STATE_FULL, 100, bytes, n), MODEL_INVALID);
    check_goes_on(m, 0, 100); /* sequence 0 is unchanged */
    CHECK_STILL_GOOD();
    CHECK_INT(feed(m, 1, 1, 0, 20, 64), MODEL_OK);
    free(bytes);
    m->ops->close(m);
}

/* A copy may have its cells at other places. Tests shifts by even and odd numbers, before and after the window's ring
 * is full. */
static void test_a_copied_window_goes_on_alike_at_every_length(void)
{
    if (current->memory != LLM_MEMORY_WINDOW) {
        return;
    }
    model *m = opened();
    CHECK(m != NULL);
    for (uint32_t k = 70; k < N_CTX - 20; k += is_exact ? (N_CTX - 90) / 60 | 1 : 100) {
        m->ops->clear(m, 0);
        m->ops->clear(m, 1);
        CHECK_INT(feed(m, 0, 1, 0, k, 64), MODEL_OK);
        CHECK(copy_sequence(m, 0, 1));
        check_goes_on(m, 1, k);
        CHECK_STILL_GOOD();
    }
    m->ops->close(m);
}

/* Finds the last pair of cells with positions `position` and the next one in a state. Returns where the pair begins, or
 * 0. *distance_between is the distance of the two cells. */
static size_t find_cells(const uint8_t *bytes, size_t n, int32_t position, size_t *distance_between)
{
    for (size_t at = n - 64; at > 0; at--) {
        for (size_t next = 12; next <= 32; next += 4) {
            int32_t first[2], second[2];
            memcpy(first, bytes + at, sizeof first);
            memcpy(second, bytes + at + next, sizeof second);
            if (first[0] == position && first[1] == 1 && second[0] == position + 1 && second[1] == 1) {
                *distance_between = next;
                return at;
            }
        }
    }
    return 0;
}

/* In this state, two tokens of a window have the same position. The load fails instead of replacing one of them. */
static void test_a_position_that_is_taken_is_refused(void)
{
    if (current->memory != LLM_MEMORY_WINDOW || !is_exact) {
        return;
    }
    size_t n, next;
    model *m = opened();
    CHECK(m != NULL);
    CHECK_INT(feed(m, 0, 1, 0, 200, 64), MODEL_OK);
    uint8_t *bytes = saved(m, 0, MODEL_STATE_FULL, &n);
    CHECK(bytes != NULL);
    CHECK_INT(m->ops->state_load(m, 1, MODEL_STATE_FULL, 200, bytes, n), MODEL_OK);
    const size_t at = find_cells(bytes, n, 180, &next);
    CHECK(at > 0);
    memcpy(bytes + at + next, bytes + at, sizeof(int32_t));
    CHECK_INT(m->ops->state_load(m, 1, MODEL_STATE_FULL, 200, bytes, n), MODEL_INVALID);
    CHECK_INT(m->ops->position(m, 1), 0);
    check_goes_on(m, 0, 200);
    CHECK_STILL_GOOD();
    free(bytes);
    m->ops->close(m);
}

/* Adds a token of text 1 to each of the first n_seq sequences, all at k tokens, and 15 drafts, of which n_right are right.
 * Then removes the wrong ones. */
static void draft(model *m, uint32_t n_seq, uint32_t k, uint32_t n_right)
{
    enum { N = MODEL_OUTPUTS_BESIDE };
    int32_t tokens[N_SEQ * N], positions[N_SEQ * N];
    uint16_t seqs[N_SEQ * N];
    uint8_t outputs[N_SEQ * N] = {0};
    for (uint32_t i = 0; i < n_seq * N; i++) {
        tokens[i] = text_token(i % N <= n_right ? 1 : 7, k + i % N);
        positions[i] = (int32_t)(k + i % N);
        seqs[i] = (uint16_t)(i / N);
    }
    outputs[0] = 1;
    const model_batch b = {.n = n_seq * N,
                           .tokens = tokens,
                           .positions = positions,
                           .seqs = seqs,
                           .outputs = outputs,
                           .n_drafts = n_seq * (N - 1)};
    CHECK_INT(m->ops->decode(m, &b), MODEL_OK);
    for (uint32_t s = 0; s < n_seq; s++) {
        CHECK(m->ops->remove_drafts(m, (uint16_t)s, k + 1 + n_right) == MODEL_OK);
    }
}

/* Removes drafts at many lengths of a sequence, and also directly after its state was loaded, when a window has no more
 * tokens than it needs. */
static void test_drafts_can_be_removed(void)
{
    model *m = opened();
    CHECK(m != NULL);
    const uint32_t n_seq = m->info.n_drafting < 3 ? m->info.n_drafting : 3;
    uint32_t k = 20;
    for (uint32_t s = 0; s < n_seq; s++) {
        CHECK_INT(feed(m, (uint16_t)s, 1, 0, k, 64), MODEL_OK);
    }
    for (uint32_t round = 0; n_seq > 0 && k < 400; round++) {
        if (round % 5 == 0) {
            size_t n;
            void *bytes = saved(m, 0, MODEL_STATE_FULL, &n);
            CHECK_INT(m->ops->state_load(m, 0, MODEL_STATE_FULL, k, bytes, n), MODEL_OK);
            free(bytes);
        }
        draft(m, n_seq, k, round % 4);
        k += 1 + round % 4;
        if (round % 40 == 39) {
            for (uint32_t s = 0; s < n_seq; s++) {
                const size_t n = m->ops->state_bytes(m, (uint16_t)s, MODEL_STATE_FULL);
                void *bytes = malloc(n);
                CHECK_INT(m->ops->state_save(m, (uint16_t)s, MODEL_STATE_FULL, bytes, n), n);
                check_goes_on(m, (uint16_t)s, k);
                CHECK_INT(m->ops->state_load(m, (uint16_t)s, MODEL_STATE_FULL, k, bytes, n), MODEL_OK);
                free(bytes);
            }
        }
    }
    m->ops->close(m);
}

static void test_state(void)
{
    RUN(test_a_copied_window_goes_on_alike_at_every_length);
    RUN(test_a_position_that_is_taken_is_refused);
    RUN(test_a_copy_is_its_own);
    RUN(test_a_full_state_comes_back_anywhere);
    RUN(test_a_checkpoint_brings_back_what_a_cut_cannot);
    RUN(test_a_fork_at_a_checkpoint_leaves_the_source_alone);
    RUN(test_damaged_states_leave_the_sequence_empty);
    RUN(test_drafts_can_be_removed);
}

int main(void)
{
    for_each_model(test_state);
    return CHECK_RESULT();
}
