/* Tests sequences that share one pool of cells (on a GPU, or in hybrid models). Idle sequences must not slow down
 * others. Each sequence attends only to the range of its own cells. The cells of a sequence stay together, whatever
 * happens to other sequences: growth, truncation, copies, saving and clearing. */
#include "random.h"
#include "tiny_models.h"

#include <ggml.h>

enum { POOL_CTX = 4096, POOL_SEQ = 6, N_IDLE = 3000, N_MOST = 400 };

/* The largest number of cells in an attention of a new graph, and the number of such attentions. If llama.cpp is a
 * shared library, its own calls do not come here. */
static int64_t n_attended;
static uint32_t n_attentions;

struct ggml_tensor *__real_ggml_flash_attn_ext(struct ggml_context *context, struct ggml_tensor *q,
                                               struct ggml_tensor *k, struct ggml_tensor *v, struct ggml_tensor *mask,
                                               float scale, float max_bias, float softcap);

struct ggml_tensor *__wrap_ggml_flash_attn_ext(struct ggml_context *context, struct ggml_tensor *q,
                                               struct ggml_tensor *k, struct ggml_tensor *v, struct ggml_tensor *mask,
                                               float scale, float max_bias, float softcap)
{
    n_attended = k->ne[1] > n_attended ? k->ne[1] : n_attended;
    n_attentions++;
    return __real_ggml_flash_attn_ext(context, q, k, v, mask, scale, max_bias, softcap);
}

/* The number of copies from tensors, and the number of tensors that were copied one after the other. */
static uint32_t n_copies, n_copied;

static void count_copy(const struct ggml_tensor *tensor)
{
    static const struct ggml_tensor *last;
    n_copied += tensor != last;
    last = tensor;
    n_copies++;
}

void __real_ggml_backend_tensor_get(const struct ggml_tensor *tensor, void *data, size_t offset, size_t size);

void __wrap_ggml_backend_tensor_get(const struct ggml_tensor *tensor, void *data, size_t offset, size_t size)
{
    count_copy(tensor);
    __real_ggml_backend_tensor_get(tensor, data, offset, size);
}

void __real_ggml_backend_tensor_get_2d(const struct ggml_tensor *tensor, void *data, size_t offset, size_t size,
                                       size_t n, size_t stride_tensor, size_t stride_data);

void __wrap_ggml_backend_tensor_get_2d(const struct ggml_tensor *tensor, void *data, size_t offset, size_t size,
                                       size_t n, size_t stride_tensor, size_t stride_data)
{
    count_copy(tensor);
    __real_ggml_backend_tensor_get_2d(tensor, data, offset, size, n, stride_tensor, stride_data);
}

static model *opened_pool(void)
{
    return opened_with(POOL_CTX, POOL_SEQ);
}

/* Models with only attention use a pool only on devices. */
static bool has_pool(void)
{
    model *m = opened_pool();
    if (m == NULL) {
        return true; /* the tests report what is wrong */
    }
    const bool has_streams = attends_only() && device == NULL;
    const bool has = m->info.shares_cells && m->info.memory != LLM_MEMORY_RECURRENT && !has_streams;
    m->ops->close(m);
    return has;
}

/* Fills sequences 1 and 4 with N_IDLE tokens each, in turn. Then they stay idle. */
static void fill(model *m)
{
    for (uint32_t at = 0; at < N_IDLE; at += N_BATCH) {
        const uint32_t to = at + N_BATCH < N_IDLE ? at + N_BATCH : N_IDLE;
        CHECK_INT(feed(m, 1, 1, at, to, N_BATCH), MODEL_OK);
        CHECK_INT(feed(m, 4, 4, at, to, N_BATCH), MODEL_OK);
    }
}

/* The tokens of the sequences. */
typedef struct texts {
    int32_t tokens[POOL_SEQ][N_MOST];
    uint32_t n[POOL_SEQ];
} texts;

/* Feeds n_tokens[i] more tokens to each sequence, in one call. */
static model_result read_more(model *m, texts *t, const uint16_t *seqs, uint32_t n_seqs, const uint32_t *n_tokens,
                              uint32_t *ends)
{
    static uint32_t seed;
    int32_t tokens[N_BATCH], positions[N_BATCH];
    uint16_t of[N_BATCH];
    uint8_t outputs[N_BATCH] = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_seqs; i++) {
        const uint16_t seq = seqs[i];
        seed++;
        for (uint32_t j = 0; j < n_tokens[i]; j++, n++, t->n[seq]++) {
            tokens[n] = t->tokens[seq][t->n[seq]] = text_token(seed, j);
            positions[n] = (int32_t)t->n[seq];
            of[n] = seq;
        }
        outputs[n - 1] = 1;
        ends[i] = n;
    }
    const model_batch batch = {n, tokens, positions, of, outputs, NULL, NULL, 0};
    return m->ops->decode(m, &batch);
}

/* Returns the logits after a sequence's text, from a model that has only this sequence. */
static float *read_alone(model *alone, const texts *t, uint16_t seq)
{
    alone->ops->clear(alone, 0);
    uint32_t n = 0;
    for (uint32_t at = 0; at < t->n[seq]; at += n) {
        n = t->n[seq] - at < N_BATCH ? t->n[seq] - at : N_BATCH;
        /* a failure leads to other logits or none, which the caller notices */
        (void)feed_tokens(alone, 0, t->tokens[seq] + at, n, at);
    }
    return row_after(alone, n);
}

static void check_read(model *m, model *alone, texts *t, const uint16_t *seqs, uint32_t n_seqs,
                       const uint32_t *n_tokens)
{
    uint32_t ends[POOL_SEQ];
    CHECK_INT(read_more(m, t, seqs, n_seqs, n_tokens, ends), MODEL_OK);
    for (uint32_t i = 0; i < n_seqs; i++) {
        CHECK_INT(m->ops->position(m, seqs[i]), t->n[seqs[i]]);
        float *row = read_alone(alone, t, seqs[i]);
        check_same(m->ops->logits(m, ends[i] - 1), row, m->info.n_vocab);
        free(row);
    }
}

static void test_who_goes_on_attends_to_its_own_cells(void)
{
    model *m = opened_pool(), *alone = opened_pool();
    CHECK(m != NULL && alone != NULL);
    texts t = {.n = {0}};
    fill(m);
    n_attended = 0;
    check_read(m, alone, &t, (const uint16_t[]){0}, 1, (const uint32_t[]){50});
    check_read(m, alone, &t, (const uint16_t[]){5, 2}, 2, (const uint32_t[]){20, 30});
    check_read(m, alone, &t, (const uint16_t[]){2, 5}, 2, (const uint32_t[]){1, 1});
    check_read(m, alone, &t, (const uint16_t[]){0, 2, 5}, 3, (const uint32_t[]){1, 1, 1});
    printf("  at most %d cells\n", (int)n_attended);
    /* Two new sequences have cells next to each other. A sliding window uses old cells again, at any place. */
    CHECK(m->info.memory == LLM_MEMORY_WINDOW || n_attended <= 1024);
    CHECK_INT(feed(m, 1, 1, N_IDLE, N_IDLE + 5, N_BATCH), MODEL_OK);
    float *idle = row_after(m, 5);
    CHECK_INT(feed(alone, 3, 1, 0, N_IDLE + 5, N_BATCH), MODEL_OK);
    float *row = row_after(alone, (N_IDLE + 5) % N_BATCH);
    check_same(idle, row, m->info.n_vocab);
    free(row);
    free(idle);
    m->ops->close(m);
    alone->ops->close(alone);
}

/* Making a graph takes as long as some layers of a step, and a device then prepares the graph. An idle sequence follows
 * each of two active ones. Their ranges reach a multiple of 256 cells at different steps. */
static void test_sequences_that_go_on_together_keep_their_graph(void)
{
    enum { N_READ = 190, N_STEPS = 150 }; /* the first sequence has room for as many tokens again */
    const uint16_t seqs[] = {0, 2};
    const uint32_t one_each[] = {1, 1};
    model *m = opened_pool();
    CHECK(m != NULL);
    texts t = {.n = {0}};
    uint32_t ends[POOL_SEQ];
    for (uint32_t i = 0; i < 2; i++) {
        while (t.n[seqs[i]] < N_READ) {
            CHECK_INT(read_more(m, &t, &seqs[i], 1, (const uint32_t[]){N_READ / 5}, ends), MODEL_OK);
        }
        CHECK_INT(feed(m, i == 0 ? 1 : 4, 1, 0, N_IDLE, N_BATCH), MODEL_OK);
    }
    for (uint32_t i = 0; i < 2 + N_STEPS; i++) {
        n_attentions = i == 2 ? 0 : n_attentions; /* recurrent states may be moved once */
        CHECK_INT(read_more(m, &t, seqs, 2, one_each, ends), MODEL_OK);
    }
    printf("  %d attentions of new graphs in %d steps\n", (int)n_attentions, N_STEPS);
    CHECK_INT(n_attentions, 0);
    m->ops->close(m);
}

/* For a device, a copy of one cell takes as long as a copy of many cells. */
static void test_a_state_is_copied_in_few_pieces(void)
{
    enum { N_STEPS = 60, PIECES_MAX = 6 };
    const uint16_t seqs[] = {0, 2, 3};
    model *m = opened_pool();
    CHECK(m != NULL);
    texts t = {.n = {0}};
    uint32_t ends[POOL_SEQ];
    for (uint32_t i = 0; i < N_STEPS; i++) {
        CHECK_INT(read_more(m, &t, seqs, 3, (const uint32_t[]){1, 1, 1}, ends), MODEL_OK);
    }
    const size_t n_bytes = m->ops->state_bytes(m, 2, MODEL_STATE_FULL);
    uint8_t *bytes = malloc(n_bytes);
    n_copies = n_copied = 0;
    CHECK(m->ops->state_save(m, 2, MODEL_STATE_FULL, bytes, n_bytes) > 0);
    printf("  %d copies from %d tensors\n", (int)n_copies, (int)n_copied);
    CHECK(n_copied > 0 && n_copies <= PIECES_MAX * n_copied);
    free(bytes);
    m->ops->close(m);
}

static uint16_t any_idle(const texts *t, random_source *random, bool is_empty)
{
    for (int i = 0; i < 20; i++) {
        const uint16_t seq = (const uint16_t[]){0, 2, 3, 5}[random_below(random, 4)];
        if ((t->n[seq] == 0) == is_empty) {
            return seq;
        }
    }
    return POOL_SEQ;
}

static void change(model *m, texts *t, random_source *random)
{
    const uint16_t seq = any_idle(t, random, false), other = any_idle(t, random, true);
    if (seq == POOL_SEQ) {
        return;
    }
    const uint32_t n = t->n[seq], floor = m->ops->truncate_floor(m, seq);
    const uint32_t what = random_below(random, 4);
    if (what == 0) {
        const uint32_t k = floor + random_below(random, n - floor + 1);
        CHECK(m->ops->truncate(m, seq, k));
        t->n[seq] = k;
    } else if (what == 1) {
        m->ops->clear(m, seq);
        t->n[seq] = 0;
    } else if (other != POOL_SEQ) {
        if (what == 2) {
            CHECK(copy_sequence(m, seq, other));
        } else {
            const size_t n_bytes = m->ops->state_bytes(m, seq, MODEL_STATE_FULL);
            uint8_t *bytes = malloc(n_bytes);
            const size_t n_saved = m->ops->state_save(m, seq, MODEL_STATE_FULL, bytes, n_bytes);
            CHECK_INT(m->ops->state_load(m, other, MODEL_STATE_FULL, n, bytes, n_saved), MODEL_OK);
            free(bytes);
        }
        memcpy(t->tokens[other], t->tokens[seq], n * sizeof *t->tokens[seq]);
        t->n[other] = n;
    }
}

static void test_whatever_happens_in_a_pool_all_read_as_if_alone(void)
{
    random_source random = {.state = 17};
    model *m = opened_pool(), *alone = opened_pool();
    CHECK(m != NULL && alone != NULL);
    texts t = {.n = {0}};
    fill(m);
    for (int round = 0; round < 24; round++) {
        uint16_t seqs[POOL_SEQ];
        uint32_t n_tokens[POOL_SEQ], n_seqs = 0;
        for (uint16_t i = 0; i < 4; i++) {
            const uint16_t seq = (const uint16_t[]){3, 0, 5, 2}[i];
            if (random_below(&random, 2) == 0 && t.n[seq] < N_MOST - N_BATCH) {
                seqs[n_seqs] = seq;
                n_tokens[n_seqs++] = random_below(&random, 3) > 0 ? 1 : 1 + random_below(&random, N_BATCH / 4);
            }
        }
        if (n_seqs > 0) {
            check_read(m, alone, &t, seqs, n_seqs, n_tokens);
            CHECK_STILL_GOOD();
        }
        change(m, &t, &random);
        CHECK_STILL_GOOD();
    }
    m->ops->close(m);
    alone->ops->close(alone);
}

static void test_pool(void)
{
    if (!has_pool()) {
        printf("  no pool\n");
        return;
    }
    RUN(test_who_goes_on_attends_to_its_own_cells);
    RUN(test_sequences_that_go_on_together_keep_their_graph);
    RUN(test_a_state_is_copied_in_few_pieces);
    RUN(test_whatever_happens_in_a_pool_all_read_as_if_alone);
}

int main(void)
{
    for_each_model(test_pool);
    return CHECK_RESULT();
}
