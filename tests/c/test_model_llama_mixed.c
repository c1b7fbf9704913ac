/* Tests calls with any numbers of tokens of several sequences. They must take one pass over the weights, and give each
 * sequence the logits that it would have alone. Also tests calls that are stopped. */
#include "random.h"
#include "tiny_models.h"

enum { LONG_CTX = 2048, LONG_SEQ = 6 };

static model *opened_long(void)
{
    return opened_with(LONG_CTX, LONG_SEQ);
}

/* A call that is being filled. */
typedef struct mixed {
    int32_t tokens[N_BATCH], positions[N_BATCH];
    uint16_t seqs[N_BATCH];
    uint8_t outputs[N_BATCH];
    /* by sequence: one more than the index of its last token in the call, or 0 if it has none */
    uint32_t ends[LONG_SEQ];
    model_batch batch;
} mixed;

static void mixed_begin(mixed *c)
{
    *c = (mixed){.batch = {.n = 0}};
    c->batch.tokens = c->tokens;
    c->batch.positions = c->positions;
    c->batch.seqs = c->seqs;
    c->batch.outputs = c->outputs;
}

/* Adds the next n tokens of the sequence. The number of the sequence is the seed of its text. */
static void mixed_add(mixed *c, const model *m, uint16_t seq, uint32_t n)
{
    const uint32_t at = m->ops->position(m, seq);
    for (uint32_t i = 0; i < n; i++, c->batch.n++) {
        c->tokens[c->batch.n] = text_token(seq, at + i);
        c->positions[c->batch.n] = (int32_t)(at + i);
        c->seqs[c->batch.n] = seq;
    }
    c->ends[seq] = c->batch.n;
    c->outputs[c->batch.n - 1] = 1;
}

/* Adds tokens of random sequences in random order: one token of most, several of some. */
static void add_some(mixed *c, const model *m, random_source *random)
{
    uint16_t order[LONG_SEQ];
    for (uint16_t i = 0; i < LONG_SEQ; i++) {
        const uint32_t other = random_below(random, i + 1u);
        order[i] = order[other];
        order[other] = i;
    }
    const uint32_t n_seqs = 1 + random_below(random, LONG_SEQ);
    for (uint32_t i = 0; i < n_seqs; i++) {
        mixed_add(c, m, order[i], random_below(random, 3) > 0 ? 1 : 1 + random_below(random, N_BATCH / LONG_SEQ));
    }
}

static void test_any_mix_is_as_each_alone(void)
{
    random_source random = {.state = 5};
    model *m = opened_long(), *alone = opened_long();
    CHECK(m != NULL && alone != NULL);
    const uint32_t n_vocab = m->info.n_vocab;
    CHECK_INT(feed(m, 1, 1, 0, 1100, N_BATCH), MODEL_OK); /* much longer than the other sequences */
    CHECK_INT(feed(alone, 1, 1, 0, 1100, N_BATCH), MODEL_OK);
    for (int round = 0; round < 40; round++) {
        mixed c;
        mixed_begin(&c);
        add_some(&c, m, &random);
        CHECK_INT(m->ops->decode(m, &c.batch), MODEL_OK);
        for (uint16_t seq = 0; seq < LONG_SEQ; seq++) {
            const uint32_t from = alone->ops->position(alone, seq), to = m->ops->position(m, seq);
            CHECK_INT(to > from, c.ends[seq] > 0);
            if (to > from) {
                CHECK_INT(feed(alone, seq, seq, from, to, N_BATCH), MODEL_OK);
                float *row = row_after(alone, to - from);
                check_same(m->ops->logits(m, c.ends[seq] - 1), row, n_vocab);
                CHECK_STILL_GOOD();
                free(row);
            }
        }
    }
    m->ops->close(m);
    alone->ops->close(alone);
}

static bool count_up(void *count)
{
    ++*(uint32_t *)count;
    return false;
}

/* Returns how many operations a call with one token of each sequence takes. The last sequence has n_of_last tokens. */
static uint32_t n_operations(model *m, const uint16_t *seqs, uint32_t n_seqs, uint32_t n_of_last)
{
    mixed c;
    mixed_begin(&c);
    for (uint32_t i = 0; i < n_seqs; i++) {
        mixed_add(&c, m, seqs[i], i + 1 == n_seqs ? n_of_last : 1);
    }
    uint32_t n = 0;
    c.batch.stop = count_up;
    c.batch.stop_context = &n;
    return m->ops->decode(m, &c.batch) == MODEL_OK ? n : 0;
}

/* One more pass through the weights would double the number of operations. */
static void test_any_sequences_go_through_the_weights_together(void)
{
    model *m = opened_long();
    CHECK(m != NULL);
    if (m->info.n_stoppable >= LONG_SEQ && mixes_calls(m)) {
        const uint32_t one = n_operations(m, (const uint16_t[]){3}, 1, 1);
        const uint32_t neighbours = n_operations(m, (const uint16_t[]){1, 2, 3}, 3, 1);
        const uint32_t every_other = n_operations(m, (const uint16_t[]){0, 2, 4}, 3, 1);
        const uint32_t apart = n_operations(m, (const uint16_t[]){0, 1, 3, 5}, 4, 1);
        const uint32_t with_prompt = n_operations(m, (const uint16_t[]){0, 2, 1}, 3, 20);
        CHECK(one > 20);
        CHECK(neighbours >= one && neighbours < one + one / 4);
        CHECK(every_other >= one && every_other < one + one / 4);
        CHECK(apart >= one && apart < 2 * one);
        CHECK(with_prompt >= one && with_prompt < 2 * one);
    } else {
        CHECK(device != NULL || stoppable_on_the_host() < N_SEQ || !mixes_calls(m));
    }
    m->ops->close(m);
}

/* Counts the graphs that llama.cpp computes. If llama.cpp is a shared library, its own calls do not come here, and the
 * count is 0. */
static uint32_t n_graphs;
static bool next_fails; /* the next graph fails after it was computed */

int __real_ggml_backend_sched_graph_compute_async(void *sched, void *graph);

int __wrap_ggml_backend_sched_graph_compute_async(void *sched, void *graph)
{
    n_graphs++;
    const int status = __real_ggml_backend_sched_graph_compute_async(sched, graph);
    const bool fails = next_fails;
    next_fails = false;
    return fails ? -1 : status;
}

static uint32_t n_passes(model *m, const uint16_t *seqs, uint32_t n_seqs, const uint32_t *n_tokens)
{
    mixed c;
    mixed_begin(&c);
    for (uint32_t i = 0; i < n_seqs; i++) {
        mixed_add(&c, m, seqs[i], n_tokens[i]);
    }
    n_graphs = 0;
    return m->ops->decode(m, &c.batch) == MODEL_OK ? n_graphs : UINT32_MAX;
}

/* Qwen's hybrid models also take one pass, although they have recurrent states. */
static void test_a_call_is_one_pass_or_says_that_it_is_not(void)
{
    model *m = opened_long();
    CHECK(m != NULL);
    CHECK_INT(m->info.mixed_calls, mixes_calls(m));
    for (int i = 0; i < 3; i++) { /* new sequences, then known ones, then ones with known cells */
        const uint32_t n = n_passes(m, (const uint16_t[]){0, 4, 2, 5, 1}, 5, (const uint32_t[]){1, 1, 20, 1, 9});
        CHECK(n <= 5 && (n == 0 || (n == 1) == m->info.mixed_calls));
    }
    CHECK(n_passes(m, (const uint16_t[]){1, 2, 3}, 3, (const uint32_t[]){1, 1, 1}) <= 1);
    m->ops->close(m);
}

/* Decodes n tokens of one sequence and one token of another, and lets the call fail. If failures cannot be simulated,
 * the call succeeds. */
static void call_that_fails(model *m, uint16_t seq, uint32_t n, uint16_t other, model_result *result)
{
    mixed c;
    mixed_begin(&c);
    mixed_add(&c, m, seq, n);
    mixed_add(&c, m, other, 1);
    next_fails = true;
    *result = m->ops->decode(m, &c.batch);
    const bool is_made = !next_fails;
    next_fails = false;
    CHECK_INT(*result, !is_made ? MODEL_OK : attends_only() || mixes_calls(m) ? MODEL_FAILED_BATCH : MODEL_FAILED_ALL);
}

/* After MODEL_FAILED_BATCH, the sequences outside of the call are still valid. */
static void test_a_call_that_fails_harms_nobody_else(void)
{
    model *m = opened_long(), *alone = opened_long();
    CHECK(m != NULL && alone != NULL);
    for (uint16_t seq = 0; seq < LONG_SEQ; seq++) {
        CHECK_INT(feed(m, seq, seq, 0, 60, N_BATCH), MODEL_OK);
        CHECK_INT(feed(alone, seq, seq, 0, 60, N_BATCH), MODEL_OK);
    }
    model_result result;
    call_that_fails(m, 1, 20, 4, &result);
    for (uint16_t seq = 0; seq < LONG_SEQ && result == MODEL_FAILED_BATCH; seq++) {
        if (seq != 1 && seq != 4) {
            CHECK_INT(feed(m, seq, seq, 60, 75, N_BATCH), MODEL_OK);
            CHECK_INT(feed(alone, seq, seq, 60, 75, N_BATCH), MODEL_OK);
            float *row = row_after(alone, 15);
            check_same(m->ops->logits(m, 14), row, m->info.n_vocab);
            CHECK_STILL_GOOD();
            free(row);
        }
    }
    m->ops->close(m);
    alone->ops->close(alone);
}

/* With recurrent states, removing drafts computes a graph, which can fail. For some models, the failure makes all
 * sequences invalid. */
static void test_a_removal_of_drafts_that_fails_is_reported(void)
{
    model *m = opened_long();
    CHECK(m != NULL);
    CHECK_INT(feed(m, 0, 1, 0, 60, N_BATCH), MODEL_OK);
    CHECK_INT(feed(m, 1, 1, 0, 60, N_BATCH), MODEL_OK);
    mixed c;
    mixed_begin(&c);
    mixed_add(&c, m, 0, 4);
    c.batch.n_drafts = 3;
    CHECK_INT(m->ops->decode(m, &c.batch), MODEL_OK);
    next_fails = true;
    const model_result result = m->ops->remove_drafts(m, 0, 62);
    const bool is_made = !next_fails;
    next_fails = false;
    CHECK_INT(result, !is_made ? MODEL_OK : mixes_calls(m) ? MODEL_FAILED_BATCH : MODEL_FAILED_ALL);
    if (result == MODEL_FAILED_ALL) {
        m->ops->clear(m, 1);
        CHECK_INT(feed(m, 1, 1, 0, 60, N_BATCH), MODEL_OK);
    }
    CHECK_INT(feed(m, 1, 1, 60, 70, N_BATCH), MODEL_OK);
    m->ops->close(m);
}

static bool count_down(void *left)
{
    uint32_t *n = left;
    return (*n)-- == 0;
}

/* Fills a call that can be aborted. */
static void add_stoppable(mixed *c, const model *m, random_source *random)
{
    if (m->info.n_stoppable >= LONG_SEQ) {
        add_some(c, m, random);
    } else {
        mixed_add(c, m, (uint16_t)random_below(random, LONG_SEQ), N_BATCH / 2 + random_below(random, N_BATCH / 2));
    }
}

static void test_a_call_that_is_given_up_changes_nothing(void)
{
    random_source random = {.state = 11};
    model *m = opened_long(), *alone = opened_long();
    CHECK(m != NULL && alone != NULL);
    for (int round = 0; round < 20 && m->info.n_stoppable > 0; round++) {
        mixed c;
        mixed_begin(&c);
        add_stoppable(&c, m, &random);
        uint32_t n_left = random_below(&random, 60);
        c.batch.stop = count_down;
        c.batch.stop_context = &n_left;
        CHECK_INT(m->ops->decode(m, &c.batch), MODEL_STOPPED);
        for (uint16_t seq = 0; seq < LONG_SEQ; seq++) {
            CHECK_INT(m->ops->position(m, seq), alone->ops->position(alone, seq));
        }
        CHECK(m->ops->logits(m, c.batch.n - 1) == NULL);
        const uint16_t seq = (uint16_t)random_below(&random, LONG_SEQ);
        const uint32_t from = m->ops->position(m, seq), to = from + 1 + random_below(&random, N_BATCH);
        CHECK_INT(feed(m, seq, seq, from, to, N_BATCH), MODEL_OK);
        CHECK_INT(feed(alone, seq, seq, from, to, N_BATCH), MODEL_OK);
        float *row = row_after(alone, to - from);
        check_same(m->ops->logits(m, to - from - 1), row, m->info.n_vocab);
        CHECK_STILL_GOOD();
        free(row);
    }
    m->ops->close(m);
    alone->ops->close(alone);
}

/* Both models continue the text of this sequence, with the same logits. */
static void go_on_alike(model *m, model *alone, uint16_t seq, uint32_t n)
{
    const uint32_t n_step = N_BATCH / 2, from = m->ops->position(m, seq);
    for (uint32_t at = from; at < from + n; at += n_step) {
        CHECK_INT(feed(m, seq, seq, at, at + n_step, N_BATCH), MODEL_OK);
        CHECK_INT(feed(alone, seq, seq, at, at + n_step, N_BATCH), MODEL_OK);
        float *row = row_after(alone, n_step);
        check_same(m->ops->logits(m, n_step - 1), row, m->info.n_vocab);
        CHECK_STILL_GOOD();
        free(row);
    }
}

/* A sliding window uses its cells again. An aborted call may have moved the place where new cells begin. Each sequence
 * is aborted at another distance from the end of its cells. */
static void test_a_call_that_is_given_up_at_the_end_of_a_window(void)
{
    enum { SHORTEST = 140, N_BETWEEN = 40, N_AFTER = 320 };
    model *m = opened_long(), *alone = opened_long();
    CHECK(m != NULL && alone != NULL);
    for (uint16_t seq = 0; seq < LONG_SEQ && m->info.n_stoppable > 0; seq++) {
        const uint32_t n = SHORTEST + seq * N_BETWEEN;
        CHECK_INT(feed(m, seq, seq, 0, n, N_BATCH), MODEL_OK);
        CHECK_INT(feed(alone, seq, seq, 0, n, N_BATCH), MODEL_OK);
        mixed c;
        mixed_begin(&c);
        mixed_add(&c, m, seq, N_BATCH);
        uint32_t n_left = 30;
        c.batch.stop = count_down;
        c.batch.stop_context = &n_left;
        CHECK_INT(m->ops->decode(m, &c.batch), MODEL_STOPPED);
        go_on_alike(m, alone, seq, N_AFTER);
    }
    m->ops->close(m);
    alone->ops->close(alone);
}

/* If copies share cells, an aborted call does not change them. */
static void test_a_call_that_is_given_up_harms_no_copy(void)
{
    model *m = opened_long();
    CHECK(m != NULL);
    static const uint16_t copies[] = {1, 2, 4}; /* sequence 3 is used by `cold` */
    const uint32_t n_left[] = {0, 20, 50};
    CHECK_INT(feed(m, 0, 0, 0, 100, N_BATCH), MODEL_OK);
    for (int i = 0; i < 3 && m->info.n_stoppable > 0; i++) {
        CHECK(copy_sequence(m, 0, copies[i]));
        mixed c;
        mixed_begin(&c);
        mixed_add(&c, m, 0, N_BATCH);
        uint32_t left = n_left[i];
        c.batch.stop = count_down;
        c.batch.stop_context = &left;
        CHECK_INT(m->ops->decode(m, &c.batch), MODEL_STOPPED);
    }
    float *reference = cold(m, 0, 110);
    for (int i = 0; i < 3 && m->info.n_stoppable > 0; i++) {
        CHECK_INT(feed(m, copies[i], 0, 100, 110, N_BATCH), MODEL_OK);
        float *row = row_after(m, 10);
        check_same(row, reference, m->info.n_vocab);
        free(row);
    }
    free(reference);
    m->ops->close(m);
}

/* Makes sequence 0 with `n` tokens, and copies of it: sequences 1, 2 and 4. */
static void with_copies(model *m, uint32_t n)
{
    for (uint16_t seq = 0; seq < LONG_SEQ; seq++) {
        m->ops->clear(m, seq);
    }
    CHECK_INT(feed(m, 0, 0, 0, n, N_BATCH), MODEL_OK);
    CHECK(copy_sequence(m, 0, 1) && copy_sequence(m, 0, 2) && copy_sequence(m, 0, 4));
}

/* Returns the logits after n tokens of sequence 0, and tokens [n, to) of another sequence's text. Uses sequence 3. */
static float *alone_behind(model *m, uint16_t seq, uint32_t n, uint32_t to)
{
    m->ops->clear(m, 3);
    (void)feed(m, 3, 0, 0, n, N_BATCH); /* a failure leads to other logits or none, which the caller notices */
    (void)feed(m, 3, seq, n, to, N_BATCH);
    return row_after(m, to - n);
}

static void test_copies_go_on_beside_what_they_were_copied_from(void)
{
    enum { N = 100 };
    static const uint32_t n_tokens[][3] = {{1, 1, 1}, {2, 2, 2}, {1, 20, 3}, {20, 1, 1}};
    model *m = opened_long();
    CHECK(m != NULL);
    for (size_t i = 0; i < sizeof n_tokens / sizeof *n_tokens; i++) {
        with_copies(m, N);
        mixed c;
        mixed_begin(&c);
        for (uint16_t seq = 0; seq < 3; seq++) {
            mixed_add(&c, m, seq, n_tokens[i][seq]);
        }
        CHECK_INT(m->ops->decode(m, &c.batch), MODEL_OK);
        float *rows[LONG_SEQ] = {NULL};
        for (uint16_t seq = 0; seq < 3; seq++) {
            rows[seq] = malloc(m->info.n_vocab * sizeof *rows[seq]);
            memcpy(rows[seq], m->ops->logits(m, c.ends[seq] - 1), m->info.n_vocab * sizeof *rows[seq]);
        }
        CHECK_INT(feed(m, 4, 4, N, N + 2, N_BATCH), MODEL_OK); /* this copy was not in the call */
        rows[4] = row_after(m, 2);
        for (uint16_t seq = 0; seq < LONG_SEQ; seq++) {
            if (rows[seq] != NULL) {
                float *row = alone_behind(m, seq, N, N + (seq < 3 ? n_tokens[i][seq] : 2));
                check_same(rows[seq], row, m->info.n_vocab);
                CHECK_STILL_GOOD();
                free(row);
                free(rows[seq]);
            }
        }
    }
    m->ops->close(m);
}

static void test_a_call_that_fails_harms_no_copy(void)
{
    model *m = opened_long();
    CHECK(m != NULL);
    with_copies(m, 100);
    model_result result;
    call_that_fails(m, 0, 3, 1, &result);
    if (result == MODEL_FAILED_BATCH) {
        mixed c;
        mixed_begin(&c);
        mixed_add(&c, m, 2, 5);
        mixed_add(&c, m, 4, 1);
        CHECK_INT(m->ops->decode(m, &c.batch), MODEL_OK);
        float *rows[] = {row_after(m, 5), row_after(m, 6)};
        for (int i = 0; i < 2; i++) {
            float *row = i == 0 ? alone_behind(m, 2, 100, 105) : alone_behind(m, 4, 100, 101);
            check_same(rows[i], row, m->info.n_vocab);
            free(row);
            free(rows[i]);
        }
    }
    m->ops->close(m);
}

static void test_model(void)
{
    RUN(test_any_mix_is_as_each_alone);
    RUN(test_any_sequences_go_through_the_weights_together);
    RUN(test_a_call_is_one_pass_or_says_that_it_is_not);
    RUN(test_a_call_that_fails_harms_nobody_else);
    RUN(test_a_call_that_fails_harms_no_copy);
    RUN(test_a_removal_of_drafts_that_fails_is_reported);
    RUN(test_copies_go_on_beside_what_they_were_copied_from);
    RUN(test_a_call_that_is_given_up_changes_nothing);
    RUN(test_a_call_that_is_given_up_at_the_end_of_a_window);
    RUN(test_a_call_that_is_given_up_harms_no_copy);
}

int main(void)
{
    for_each_model(test_model);
    return CHECK_RESULT();
}
