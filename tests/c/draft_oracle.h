/* draft_oracle.h: gives the engine drafts with a chosen share of right tokens, and makes each step verify a random
 * number of draft tokens. The real drafts are not suitable: the text of a simulated model hardly repeats, so they are
 * nearly always wrong, and the number of verified tokens depends on measured times. For test programs that are linked
 * with --wrap=lookup_find and --wrap=draft_plan.
 *
 * The oracle runs its own model on the sequence, and guesses the token with the largest logit. Only one engine of a
 * test may use drafts. The engine's decode thread uses the oracle. `oracle_open` must be called before the engine
 * starts. */
#ifndef DRAFT_ORACLE_H
#define DRAFT_ORACLE_H

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "policy/draft.h"
#include "policy/lookup.h"
#include "random.h"

enum { ORACLE_CTX = 1024, ORACLE_SEQUENCES = 8, ORACLE_GUESSES = 6 };

static struct {
    model *model;
    random_source random;
    uint32_t right_in_100; /* percentage of guesses that are right */
    /* tokens of each sequence. A guess begins in the sequence with the most tokens in common */
    int32_t tokens[ORACLE_SEQUENCES][ORACLE_CTX];
    uint32_t n[ORACLE_SEQUENCES];
    uint32_t turn; /* sequence that is reused next */
} oracle;

static void oracle_open(const char *name, bool is_exact, uint32_t right_in_100, uint64_t seed)
{
    char error[200];
    const model_options options = {.path = name,
                                   .n_ctx = ORACLE_CTX,
                                   .n_seq = ORACLE_SEQUENCES,
                                   .n_batch = ORACLE_CTX,
                                   .n_threads = 1,
                                   .exact = is_exact};
    const int status = model_open(name, &options, &oracle.model, error, sizeof error);
    assert(status == LLM_OK);
    (void)status;
    oracle.random.state = seed * 2 + 1;
    oracle.right_in_100 = right_in_100;
    memset(oracle.n, 0, sizeof oracle.n);
}

static void oracle_close(void)
{
    oracle.model->ops->close(oracle.model);
    oracle.model = NULL;
}

/* Returns the sequence with the longest common prefix with these tokens, truncated to this prefix. If its memory cannot
 * be truncated there, the sequence is emptied. */
static uint16_t oracle_sequence(const int32_t *tokens, uint32_t n)
{
    uint32_t best = oracle.turn, n_best = 0;
    for (uint32_t s = 0; s < ORACLE_SEQUENCES; s++) {
        const uint32_t n_most = oracle.n[s] < n ? oracle.n[s] : n;
        uint32_t n_common = 0;
        while (n_common < n_most && oracle.tokens[s][n_common] == tokens[n_common]) {
            n_common++;
        }
        if (n_common > n_best) {
            best = s;
            n_best = n_common;
        }
    }
    model *m = oracle.model;
    if (n_best == 0) {
        oracle.turn = (oracle.turn + 1) % ORACLE_SEQUENCES;
    }
    if (n_best == 0 || n_best < m->ops->truncate_floor(m, (uint16_t)best)) {
        m->ops->clear(m, (uint16_t)best);
        n_best = 0;
    } else if (n_best < oracle.n[best]) {
        const bool is_truncated = m->ops->truncate(m, (uint16_t)best, n_best);
        assert(is_truncated);
        (void)is_truncated;
    }
    oracle.n[best] = n_best;
    return (uint16_t)best;
}

/* Adds the tokens to the sequence, and returns the most likely next token. */
static int32_t oracle_next(uint16_t seq, const int32_t *tokens, uint32_t n)
{
    model *m = oracle.model;
    int32_t positions[ORACLE_CTX];
    uint16_t seqs[ORACLE_CTX];
    uint8_t outputs[ORACLE_CTX] = {0};
    if (oracle.n[seq] + n > ORACLE_CTX) {
        return 0; /* a wrong guess does no harm */
    }
    for (uint32_t i = 0; i < n; i++) {
        positions[i] = (int32_t)(oracle.n[seq] + i);
        seqs[i] = seq;
        oracle.tokens[seq][oracle.n[seq] + i] = tokens[i];
    }
    outputs[n - 1] = 1;
    const model_batch batch = {.n = n, .tokens = tokens, .positions = positions, .seqs = seqs, .outputs = outputs};
    const model_result result = m->ops->decode(m, &batch);
    assert(result == MODEL_OK);
    (void)result;
    oracle.n[seq] += n;
    const float *logits = m->ops->logits(m, n - 1);
    int32_t best = 0;
    for (uint32_t i = 1; i < m->info.n_vocab; i++) {
        best = logits[i] > logits[best] ? (int32_t)i : best;
    }
    return best;
}

uint32_t __wrap_lookup_find(lookup *l, const int32_t *tokens, uint32_t n, int32_t next, int32_t *draft, uint32_t n_max,
                            uint32_t *n_matched);
void __wrap_draft_plan(const draft_candidate *candidates, uint32_t n, uint32_t n_max, const draft_costs *costs,
                       uint32_t *n_drafts);

/* Removes the guesses: truncates the sequence to its first n tokens, or loads its state after them. */
static void oracle_forget(uint16_t seq, uint32_t n, const void *state, size_t n_bytes)
{
    model *m = oracle.model;
    const bool is_done = n_bytes == 0
                             ? m->ops->truncate(m, seq, n)
                             : m->ops->state_load(m, seq, MODEL_STATE_CHECKPOINT, n, state, n_bytes) == MODEL_OK;
    assert(is_done);
    (void)is_done;
    oracle.n[seq] = n;
}

uint32_t __wrap_lookup_find(lookup *l, const int32_t *tokens, uint32_t n, int32_t next, int32_t *draft, uint32_t n_max,
                            uint32_t *n_matched)
{
    (void)l;
    model *m = oracle.model;
    const uint16_t seq = oracle_sequence(tokens, n);
    if (n > oracle.n[seq]) {
        (void)oracle_next(seq, tokens + oracle.n[seq], n - oracle.n[seq]);
    }
    const uint32_t n_known = oracle.n[seq];
    const bool has_checkpoints = m->info.checkpoint != MODEL_CHECKPOINT_NONE;
    const size_t n_bytes = has_checkpoints ? m->ops->state_bytes(m, seq, MODEL_STATE_CHECKPOINT) : 0;
    void *state = malloc(n_bytes + 1);
    if (has_checkpoints) {
        (void)m->ops->state_save(m, seq, MODEL_STATE_CHECKPOINT, state, n_bytes);
    }
    const uint32_t n_guesses = n_max < ORACLE_GUESSES ? n_max : ORACLE_GUESSES;
    int32_t last = next;
    for (uint32_t i = 0; i < n_guesses; i++) {
        last = draft[i] = oracle_next(seq, &last, 1);
        if (random_below(&oracle.random, 100) >= oracle.right_in_100) {
            draft[i] = (int32_t)random_below(&oracle.random, oracle.model->info.n_vocab);
        }
    }
    oracle_forget(seq, n_known, state, n_bytes);
    free(state);
    *n_matched = LOOKUP_MATCH_MIN;
    return n_guesses;
}

void __wrap_draft_plan(const draft_candidate *candidates, uint32_t n, uint32_t n_max, const draft_costs *costs,
                       uint32_t *n_drafts)
{
    (void)costs;
    uint32_t n_left = n_max < DRAFT_TOKENS_MAX ? n_max : DRAFT_TOKENS_MAX;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t n_most = candidates[i].n_max < n_left ? candidates[i].n_max : n_left;
        n_drafts[i] = random_below(&oracle.random, n_most + 1);
        n_left -= n_drafts[i];
    }
}

#endif
