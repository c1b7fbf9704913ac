/* Tests copies and saved states of the simulated model. In every memory class, a loaded state equals the saved state.
 * If a wrong state was loaded, the text shows it. */
#include "model/sim/sim_model.h"

#include <stdlib.h>

#include "check.h"
#include "random.h"

enum { N_SEQ = 4, N_CTX = 512, COLD = N_SEQ - 1, N_CLASSES = 4, BLOB_BYTES_MAX = 64 * 1024 };

static const char *const classes[N_CLASSES] = {"dense", "window,window=32", "recurrent", "hybrid"};
static const model_state_kind kinds[] = {MODEL_STATE_FULL, MODEL_STATE_CHECKPOINT};

/* A saved state. */
typedef struct blob {
    size_t n;
    uint8_t bytes[BLOB_BYTES_MAX];
} blob;

static model *open_sim_with(const char *path, bool exact)
{
    model_options options = {.path = path, .n_ctx = N_CTX, .n_seq = N_SEQ, .n_batch = N_CTX, .exact = exact};
    model *m = NULL;
    char error[LLM_TEXT_BYTES_MAX] = "";
    if (model_sim_open(&options, &m, error, sizeof error) != LLM_OK) {
        printf("%s\n", error);
        abort();
    }
    return m;
}

static model *open_sim(const char *path)
{
    return open_sim_with(path, false);
}

/* Feeds n tokens in one call, and requests logits after the last one. */
static model_result feed(model *m, uint16_t seq, const int32_t *tokens, uint32_t n)
{
    int32_t positions[N_CTX];
    uint16_t seqs[N_CTX];
    uint8_t outputs[N_CTX] = {0};
    for (uint32_t i = 0; i < n; i++) {
        positions[i] = (int32_t)(m->ops->position(m, seq) + i);
        seqs[i] = seq;
    }
    outputs[n - 1] = 1;
    return m->ops->decode(
        m, &(model_batch){.n = n, .tokens = tokens, .positions = positions, .seqs = seqs, .outputs = outputs});
}

static void make_tokens(int32_t *tokens, uint32_t n, uint64_t seed)
{
    random_source random = {seed};
    for (uint32_t i = 0; i < n; i++) {
        tokens[i] = (int32_t)random_below(&random, SIM_VOCABULARY);
    }
}

static void save(model *m, uint16_t seq, model_state_kind kind, blob *out)
{
    size_t n = m->ops->state_bytes(m, seq, kind);
    out->n = n <= sizeof out->bytes ? m->ops->state_save(m, seq, kind, out->bytes, sizeof out->bytes) : 0;
    if (out->n != n || n == 0) {
        abort();
    }
}

static model_result load(model *m, uint16_t seq, model_state_kind kind, uint32_t k, const blob *b)
{
    return m->ops->state_load(m, seq, kind, k, b->bytes, b->n);
}

/* Consumes `next`, and returns whether the logits equal those of an empty sequence after `tokens` and `next`. */
static bool equals_cold(model *m, uint16_t seq, const int32_t *tokens, uint32_t n, int32_t next)
{
    float cold[SIM_VOCABULARY];
    m->ops->clear(m, COLD);
    if (m->ops->position(m, seq) != n || feed(m, COLD, tokens, n) != MODEL_OK || feed(m, COLD, &next, 1) != MODEL_OK) {
        return false;
    }
    memcpy(cold, m->ops->logits(m, 0), sizeof cold);
    m->ops->clear(m, COLD);
    return feed(m, seq, &next, 1) == MODEL_OK && memcmp(cold, m->ops->logits(m, 0), sizeof cold) == 0;
}

static bool says_wrong(model *m, uint16_t seq)
{
    int32_t next = 7;
    if (feed(m, seq, &next, 1) != MODEL_OK) {
        return false;
    }
    const float *logits = m->ops->logits(m, 0);
    int32_t best = 0;
    for (int32_t i = 1; i < SIM_VOCABULARY; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best == SIM_TOKEN_WRONG_STATE;
}

/* ---- facts ---- */

static void facts_follow_the_class(void)
{
    static const model_checkpoint_kind checkpoints[N_CLASSES] = {MODEL_CHECKPOINT_NONE, MODEL_CHECKPOINT_ATTACHED,
                                                                 MODEL_CHECKPOINT_WHOLE, MODEL_CHECKPOINT_ATTACHED};
    for (int i = 0; i < N_CLASSES; i++) {
        model *m = open_sim(classes[i]);
        CHECK_INT(m->info.checkpoint, checkpoints[i]);
        CHECK(m->info.shares_cells);
        m->ops->close(m);
        m = open_sim_with(classes[i], true);
        CHECK(!m->info.shares_cells);
        m->ops->close(m);
    }
}

static void a_checkpoint_is_small_where_it_attaches(void)
{
    for (int i = 0; i < N_CLASSES; i++) {
        model *m = open_sim(classes[i]);
        int32_t tokens[400];
        make_tokens(tokens, 400, 3);
        CHECK_INT(feed(m, 0, tokens, 400), MODEL_OK);
        size_t full = m->ops->state_bytes(m, 0, MODEL_STATE_FULL);
        size_t checkpoint = m->ops->state_bytes(m, 0, MODEL_STATE_CHECKPOINT);
        CHECK(m->info.checkpoint == MODEL_CHECKPOINT_ATTACHED ? checkpoint * 2 < full : checkpoint == full);
        m->ops->close(m);
    }
}

static void a_blob_is_as_large_as_asked(void)
{
    for (int i = 0; i < N_CLASSES; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s,state_kb=48", classes[i]);
        model *m = open_sim(path);
        int32_t tokens[40];
        make_tokens(tokens, 40, 3);
        for (int kind = 0; kind < 2; kind++) {
            m->ops->clear(m, 0);
            CHECK_INT(feed(m, 0, tokens, 40), MODEL_OK);
            static blob b;
            save(m, 0, kinds[kind], &b);
            CHECK_INT(b.n, 48 * 1024);
            CHECK_INT(load(m, 0, kinds[kind], 40, &b), MODEL_OK);
            CHECK(equals_cold(m, 0, tokens, 40, 1));
            b.n--;
            CHECK_INT(load(m, 0, kinds[kind], 40, &b), MODEL_INVALID);
        }
        m->ops->close(m);
    }
}

/* ---- what comes back ---- */

/* Consumes k tokens, saves the sequence, consumes `more` tokens, and loads the saved state. The sequence then continues
 * as after k tokens. */
static void check_goes_back(model *m, model_state_kind kind, uint32_t k, uint32_t more, uint64_t seed)
{
    int32_t tokens[N_CTX];
    static blob b;
    make_tokens(tokens, k + more, seed);
    m->ops->clear(m, 0);
    CHECK_INT(feed(m, 0, tokens, k), MODEL_OK);
    save(m, 0, kind, &b);
    CHECK_INT(feed(m, 0, tokens + k, more), MODEL_OK);
    CHECK_INT(load(m, 0, kind, k, &b), MODEL_OK);
    CHECK_INT(m->ops->position(m, 0), k);
    for (uint32_t i = 0; i < 5; i++) { /* other tokens than before, one at a time */
        int32_t next = (int32_t)(100 + i);
        CHECK(equals_cold(m, 0, tokens, k + i, next));
        tokens[k + i] = next;
    }
}

static void a_saved_state_comes_back(void)
{
    random_source random = {11};
    for (int i = 0; i < N_CLASSES; i++) {
        model *m = open_sim(classes[i]);
        for (int round = 0; round < 60; round++) {
            uint32_t k = 1 + random_below(&random, 300), more = 5 + random_below(&random, 200);
            check_goes_back(m, kinds[round % 2], k, more, (uint64_t)round + 1);
            CHECK_STILL_GOOD();
        }
        m->ops->close(m);
    }
}

static void a_full_state_stands_alone(void)
{
    int32_t tokens[200], other[300];
    make_tokens(tokens, 200, 5);
    make_tokens(other, 300, 6);
    for (int i = 0; i < N_CLASSES; i++) {
        model *m = open_sim(classes[i]), *n = open_sim(classes[i]);
        static blob b;
        CHECK_INT(feed(m, 0, tokens, 200), MODEL_OK);
        save(m, 0, MODEL_STATE_FULL, &b);
        CHECK_INT(load(m, 1, MODEL_STATE_FULL, 200, &b), MODEL_OK); /* into an empty sequence */
        CHECK(equals_cold(m, 1, tokens, 200, 9));
        CHECK_INT(feed(n, 2, other, 300), MODEL_OK);
        /* replaces another conversation in another model object */
        CHECK_INT(load(n, 2, MODEL_STATE_FULL, 200, &b), MODEL_OK);
        CHECK(equals_cold(n, 2, tokens, 200, 9));
        CHECK(equals_cold(m, 0, tokens, 200, 9)); /* the saved sequence is unchanged */
        m->ops->close(m);
        n->ops->close(n);
    }
}

static void a_loaded_window_rewinds_as_the_saved_one(void)
{
    int32_t tokens[200];
    make_tokens(tokens, 200, 5);
    for (int kind = 0; kind < 2; kind++) {
        model *m = open_sim("window,window=32");
        static blob b;
        CHECK_INT(feed(m, 0, tokens, 150), MODEL_OK);
        save(m, 0, kinds[kind], &b);
        CHECK_INT(feed(m, 0, tokens + 150, 50), MODEL_OK);
        CHECK_INT(load(m, 0, kinds[kind], 150, &b), MODEL_OK);
        CHECK_INT(m->ops->truncate_floor(m, 0), 150 - 32);
        CHECK(m->ops->truncate(m, 0, 150 - 32));
        CHECK(equals_cold(m, 0, tokens, 150 - 32, 9));
        m->ops->close(m);
    }
}

/* ---- forks ---- */

static void a_copy_is_its_own_sequence(void)
{
    int32_t tokens[201];
    make_tokens(tokens, 200, 5);
    for (int i = 0; i < 2 * N_CLASSES; i++) {
        model *m = open_sim_with(classes[i / 2], i % 2 == 1);
        CHECK_INT(feed(m, 0, tokens, 200), MODEL_OK);
        CHECK(m->ops->copy(m, 0, 1));
        CHECK_INT(m->ops->position(m, 1), 200);
        CHECK(equals_cold(m, 1, tokens, 200, 9));
        CHECK(equals_cold(m, 0, tokens, 200, 8));
        CHECK(!m->ops->copy(m, 0, 1)); /* fails because sequence 1 is not empty */
        CHECK(!m->ops->copy(m, 0, 0));
        m->ops->clear(m, 2);
        CHECK(m->ops->copy(m, 0, 2));
        m->ops->clear(m, 0); /* the copy stays when its source is cleared */
        tokens[200] = 8;
        CHECK(equals_cold(m, 2, tokens, 201, 7));
        m->ops->close(m);
    }
}

static void a_fork_at_a_checkpoint_leaves_the_source_alone(void)
{
    int32_t tokens[300];
    make_tokens(tokens, 300, 5);
    for (int i = 0; i < N_CLASSES; i++) {
        model *m = open_sim(classes[i]);
        static blob b;
        CHECK_INT(feed(m, 0, tokens, 120), MODEL_OK);
        save(m, 0, MODEL_STATE_CHECKPOINT, &b);
        CHECK_INT(feed(m, 0, tokens + 120, 100), MODEL_OK);
        CHECK(m->ops->copy(m, 0, 1));
        CHECK_INT(load(m, 1, MODEL_STATE_CHECKPOINT, 120, &b), MODEL_OK);
        CHECK_INT(feed(m, 0, tokens + 220, 30), MODEL_OK);
        CHECK(equals_cold(m, 1, tokens, 120, 9));
        CHECK(equals_cold(m, 0, tokens, 250, 9));
        m->ops->close(m);
    }
}

static void a_checkpoint_outlives_what_happened_since(void)
{
    int32_t tokens[300];
    make_tokens(tokens, 300, 5);
    for (int i = 0; i < N_CLASSES; i++) {
        model *m = open_sim(classes[i]);
        static blob early, late;
        CHECK_INT(feed(m, 0, tokens, 100), MODEL_OK);
        save(m, 0, MODEL_STATE_CHECKPOINT, &early);
        CHECK_INT(feed(m, 0, tokens + 100, 100), MODEL_OK);
        save(m, 0, MODEL_STATE_CHECKPOINT, &late);
        CHECK_INT(load(m, 0, MODEL_STATE_CHECKPOINT, 100, &early), MODEL_OK);
        CHECK_INT(feed(m, 0, tokens + 100, 150), MODEL_OK); /* the same tokens again, and further ones */
        CHECK_INT(load(m, 0, MODEL_STATE_CHECKPOINT, 200, &late), MODEL_OK);
        CHECK(equals_cold(m, 0, tokens, 200, 9));
        CHECK_INT(load(m, 0, MODEL_STATE_CHECKPOINT, 100, &early), MODEL_OK);
        CHECK(equals_cold(m, 0, tokens, 100, 9));
        m->ops->close(m);
    }
}

/* ---- what should not have been loaded ---- */

/* Returns whether the model notices that a checkpoint of `taken` was loaded into a sequence with the tokens `own`. */
static bool is_wrong_over(model *m, const int32_t *taken, uint32_t k, const int32_t *own, uint32_t n)
{
    static blob b;
    m->ops->clear(m, 0);
    m->ops->clear(m, 1);
    if (feed(m, 0, taken, k) != MODEL_OK || (n > 0 && feed(m, 1, own, n) != MODEL_OK)) {
        return false;
    }
    save(m, 0, MODEL_STATE_CHECKPOINT, &b);
    return load(m, 1, MODEL_STATE_CHECKPOINT, k, &b) == MODEL_OK && m->ops->position(m, 1) == k && says_wrong(m, 1) &&
           says_wrong(m, 1);
}

static void a_checkpoint_over_other_tokens_shows(void)
{
    int32_t tokens[200], other[200];
    make_tokens(tokens, 200, 5);
    for (int i = 1; i < N_CLASSES; i += 2) { /* window and hybrid */
        model *m = open_sim(classes[i]);
        for (uint32_t at = 0; at < 100; at += 33) { /* the place where the tokens differ */
            memcpy(other, tokens, sizeof other);
            other[at] = (other[at] + 1) % SIM_VOCABULARY;
            CHECK(is_wrong_over(m, tokens, 100, other, 200));
        }
        CHECK(is_wrong_over(m, tokens, 100, tokens, 99)); /* the same tokens, but too few */
        CHECK(is_wrong_over(m, tokens, 100, tokens, 0));
        CHECK(!is_wrong_over(m, tokens, 100, tokens, 100));
        m->ops->close(m);
    }
}

static void a_state_of_other_tokens_is_theirs(void)
{
    int32_t tokens[100], other[100];
    make_tokens(tokens, 100, 5);
    make_tokens(other, 100, 6);
    for (int i = 0; i < N_CLASSES; i++) {
        model *m = open_sim(classes[i]);
        static blob b;
        CHECK_INT(feed(m, 0, other, 100), MODEL_OK);
        save(m, 0, MODEL_STATE_FULL, &b);
        CHECK_INT(feed(m, 1, tokens, 100), MODEL_OK);
        CHECK_INT(load(m, 1, MODEL_STATE_FULL, 100, &b), MODEL_OK);
        CHECK(!equals_cold(m, 1, tokens, 100, 9));
        m->ops->close(m);
    }
}

static void a_spoiled_state_stays_wrong_when_saved(void)
{
    int32_t tokens[100];
    make_tokens(tokens, 100, 5);
    for (int i = 0; i < N_CLASSES; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s,fail_at=3", classes[i]);
        for (int kind = 0; kind < 2; kind++) {
            model *m = open_sim(path);
            static blob good, bad;
            CHECK_INT(feed(m, 0, tokens, 50), MODEL_OK);
            save(m, 0, kinds[kind], &good);
            CHECK_INT(feed(m, 0, tokens + 50, 10), MODEL_OK);
            CHECK_INT(feed(m, 0, tokens + 60, 10), MODEL_FAILED_BATCH);
            uint32_t position = m->ops->position(m, 0);
            save(m, 0, kinds[kind], &bad);
            CHECK_INT(load(m, 0, kinds[kind], position, &bad), MODEL_OK);
            CHECK(says_wrong(m, 0));
            CHECK_INT(load(m, 0, kinds[kind], 50, &good), MODEL_OK);
            bool attached = kind == 1 && m->info.checkpoint == MODEL_CHECKPOINT_ATTACHED;
            /* such a checkpoint needs the sequence's attention, which is wrong */
            CHECK(attached ? says_wrong(m, 0) : equals_cold(m, 0, tokens, 50, 9));
            m->ops->close(m);
        }
    }
}

static void what_is_no_state_is_refused(void)
{
    int32_t tokens[100];
    make_tokens(tokens, 100, 5);
    for (int i = 0; i < 2 * N_CLASSES; i++) {
        model *m = open_sim(classes[i / 2]);
        model_state_kind kind = kinds[i % 2];
        static blob good, bad;
        CHECK_INT(feed(m, 0, tokens, 100), MODEL_OK);
        save(m, 0, kind, &good);
        CHECK_INT(m->ops->state_save(m, 0, kind, bad.bytes, good.n - 1), 0);
        for (size_t n = 0; n < good.n; n += n < 40 ? 1 : 97) {
            CHECK_INT(feed(m, 1, tokens, 50), MODEL_OK);
            CHECK_INT(m->ops->state_load(m, 1, kind, 100, good.bytes, n), MODEL_INVALID);
            CHECK_INT(m->ops->position(m, 1), 0);
        }
        bad = good;
        bad.bytes[0] ^= 1;
        CHECK_INT(load(m, 1, kind, 100, &bad), MODEL_INVALID);
        CHECK_INT(load(m, 1, kind, 99, &good), MODEL_INVALID);              /* the state has another number of tokens */
        CHECK_INT(load(m, 1, kinds[1 - i % 2], 100, &good), MODEL_INVALID); /* the state is of another kind */
        model *n = open_sim(classes[(i / 2 + 1) % N_CLASSES]);
        CHECK_INT(load(n, 1, kind, 100, &good), MODEL_INVALID); /* the state is of another class of models */
        n->ops->close(n);
        CHECK_INT(feed(m, 1, tokens, 50), MODEL_OK); /* the sequence is empty and can be used */
        CHECK(equals_cold(m, 1, tokens, 50, 9));
        m->ops->close(m);
    }
}

/* Random bytes of a good state are changed. The state is loaded or refused, and the model continues in either case. */
static void hostile_bytes_do_no_harm(void)
{
    int32_t tokens[100];
    make_tokens(tokens, 100, 5);
    random_source random = {17};
    for (int i = 0; i < 2 * N_CLASSES; i++) {
        model *m = open_sim(classes[i / 2]);
        static blob good, bad;
        CHECK_INT(feed(m, 0, tokens, 100), MODEL_OK);
        save(m, 0, kinds[i % 2], &good);
        uint32_t n_refused = 0;
        for (int round = 0; round < 3000; round++) {
            bad = good;
            size_t area = round % 2 == 0 ? 64 : bad.n; /* half of the changes are in the header and the first state */
            bad.bytes[random_below(&random, (uint32_t)(area < bad.n ? area : bad.n))] = (uint8_t)random_next(&random);
            n_refused += load(m, 0, kinds[i % 2], 100, &bad) == MODEL_INVALID;
            m->ops->clear(m, 1);
            for (int step = 0; step < 3; step++) {
                CHECK_INT(feed(m, 0, tokens + step, 1), MODEL_OK);
            }
        }
        CHECK(n_refused > 0);
        CHECK_INT(load(m, 0, MODEL_STATE_FULL, 100, &good), i % 2 == 0 ? MODEL_OK : MODEL_INVALID);
        m->ops->close(m);
    }
}

/* ---- cells ---- */

static void a_copy_costs_no_cells_until_it_grows(void)
{
    int32_t tokens[300];
    make_tokens(tokens, 300, 5);
    for (int i = 0; i < N_CLASSES; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s,cells=300", classes[i]);
        model *m = open_sim(path);
        CHECK_INT(feed(m, 0, tokens, 200), MODEL_OK);
        CHECK(m->ops->copy(m, 0, 1));
        CHECK(m->ops->copy(m, 1, 2));
        CHECK_INT(feed(m, 2, tokens + 200, 60), MODEL_OK);
        CHECK_INT(feed(m, 1, tokens + 200, 41), MODEL_NO_CELLS); /* needs 200 shared cells, 60, and 41 */
        CHECK_INT(feed(m, 1, tokens + 200, 40), MODEL_OK);
        m->ops->clear(m, 0); /* the other sequences keep the shared cells */
        CHECK_INT(feed(m, 0, tokens, 1), MODEL_NO_CELLS);
        m->ops->clear(m, 2);
        CHECK_INT(feed(m, 0, tokens, 61), MODEL_NO_CELLS);
        CHECK_INT(feed(m, 0, tokens, 60), MODEL_OK);
        m->ops->close(m);
    }
}

static void without_sharing_a_copy_costs_all(void)
{
    int32_t tokens[200];
    make_tokens(tokens, 200, 5);
    model *m = open_sim_with("dense,cells=300", true);
    CHECK_INT(feed(m, 0, tokens, 100), MODEL_OK);
    CHECK(m->ops->copy(m, 0, 1));
    CHECK_INT(feed(m, 1, tokens + 100, 50), MODEL_OK);
    CHECK(!m->ops->copy(m, 0, 2)); /* 250 of 300 cells are used */
    CHECK_INT(m->ops->position(m, 2), 0);
    m->ops->clear(m, 0);
    CHECK(m->ops->copy(m, 1, 0));
    m->ops->close(m);
}

static void a_cut_copy_gives_nothing_back_that_is_shared(void)
{
    int32_t tokens[300];
    make_tokens(tokens, 300, 5);
    static const char *const attached[] = {"hybrid,cells=300", "window,window=32,cells=300"};
    for (int i = 0; i < 2; i++) {
        model *m = open_sim(attached[i]);
        static blob b;
        CHECK_INT(feed(m, 0, tokens, 100), MODEL_OK);
        save(m, 0, MODEL_STATE_CHECKPOINT, &b);
        CHECK_INT(feed(m, 0, tokens + 100, 100), MODEL_OK);
        CHECK(m->ops->copy(m, 0, 1));
        CHECK_INT(load(m, 1, MODEL_STATE_CHECKPOINT, 100, &b), MODEL_OK);
        /* needs 200 cells of the source, of which 100 are shared, and 101 */
        CHECK_INT(feed(m, 1, tokens + 100, 101), MODEL_NO_CELLS);
        CHECK_INT(feed(m, 1, tokens + 100, 100), MODEL_OK);
        CHECK_INT(load(m, 0, MODEL_STATE_CHECKPOINT, 100, &b), MODEL_OK); /* frees 100 cells of its own */
        CHECK_INT(feed(m, 2, tokens, 101), MODEL_NO_CELLS);
        CHECK_INT(feed(m, 2, tokens, 100), MODEL_OK);
        m->ops->close(m);
    }
}

static void a_load_without_cells_leaves_it_empty(void)
{
    int32_t tokens[200];
    make_tokens(tokens, 200, 5);
    for (int i = 0; i < N_CLASSES; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s,cells=300", classes[i]);
        model *m = open_sim(path);
        static blob b;
        CHECK_INT(feed(m, 0, tokens, 200), MODEL_OK);
        save(m, 0, MODEL_STATE_FULL, &b);
        CHECK_INT(feed(m, 1, tokens, 50), MODEL_OK);
        CHECK_INT(load(m, 1, MODEL_STATE_FULL, 200, &b), MODEL_NO_CELLS);
        CHECK_INT(m->ops->position(m, 1), 0);
        /* loading first frees the sequence's own 200 cells */
        CHECK_INT(load(m, 0, MODEL_STATE_FULL, 200, &b), MODEL_OK);
        CHECK(feed(m, 1, tokens, 101) == MODEL_NO_CELLS && feed(m, 1, tokens, 100) == MODEL_OK);
        m->ops->clear(m, 0);
        CHECK_INT(load(m, 0, MODEL_STATE_FULL, 200, &b), MODEL_OK);
        m->ops->close(m);
    }
}

/* Counts the used cells one by one. For each position of each sequence, `cells` has the number of its cell. */
static void cells_are_counted_as_if_one_by_one(void)
{
    enum { CELLS = 400 };
    random_source random = {23};
    model *m = open_sim("dense,cells=400");
    int32_t tokens[N_CTX];
    uint64_t cells[N_SEQ][N_CTX], n_cells = 0;
    make_tokens(tokens, N_CTX, 5);
    for (int round = 0; round < 4000; round++) {
        uint16_t seq = (uint16_t)random_below(&random, N_SEQ), other = (uint16_t)random_below(&random, N_SEQ);
        uint32_t position = m->ops->position(m, seq), n = 1 + random_below(&random, 110);
        uint64_t used = 0;
        for (uint16_t a = 0; a < N_SEQ; a++) {
            for (uint32_t i = 0; i < m->ops->position(m, a); i++) {
                bool counted = false;
                for (uint16_t b = 0; b < a; b++) {
                    counted |= i < m->ops->position(m, b) && cells[b][i] == cells[a][i];
                }
                used += !counted;
            }
        }
        switch (random_below(&random, 4)) {
        case 0: m->ops->clear(m, seq); break;
        case 1:
            if (position > 0) {
                CHECK(m->ops->truncate(m, seq, 1 + random_below(&random, position)));
            }
            break;
        case 2:
            if (m->ops->copy(m, other, seq)) {
                memcpy(cells[seq], cells[other], sizeof cells[seq]);
            }
            break;
        default:
            CHECK_INT(feed(m, seq, tokens + position, n), used + n <= CELLS ? MODEL_OK : MODEL_NO_CELLS);
            for (uint32_t i = position; i < m->ops->position(m, seq); i++) {
                cells[seq][i] = ++n_cells;
            }
        }
    }
    m->ops->close(m);
}

int main(void)
{
    RUN(facts_follow_the_class);
    RUN(a_checkpoint_is_small_where_it_attaches);
    RUN(a_blob_is_as_large_as_asked);
    RUN(a_saved_state_comes_back);
    RUN(a_full_state_stands_alone);
    RUN(a_loaded_window_rewinds_as_the_saved_one);
    RUN(a_copy_is_its_own_sequence);
    RUN(a_fork_at_a_checkpoint_leaves_the_source_alone);
    RUN(a_checkpoint_outlives_what_happened_since);
    RUN(a_checkpoint_over_other_tokens_shows);
    RUN(a_state_of_other_tokens_is_theirs);
    RUN(a_spoiled_state_stays_wrong_when_saved);
    RUN(what_is_no_state_is_refused);
    RUN(hostile_bytes_do_no_harm);
    RUN(a_copy_costs_no_cells_until_it_grows);
    RUN(without_sharing_a_copy_costs_all);
    RUN(a_cut_copy_gives_nothing_back_that_is_shared);
    RUN(a_load_without_cells_leaves_it_empty);
    RUN(cells_are_counted_as_if_one_by_one);
    return CHECK_RESULT();
}
