/* memory.c: the sequences of the simulated model, and its decode calls. This file decides which truncations are exact
 * and how many cells the tokens take. This file also makes calls fail if a test requests failures. Owner: the decode
 * thread. If a call breaks a rule of model.h, model_llama returns an error. The simulated model fails an assertion
 * instead, because the caller has a defect and the test must fail. */
#include <assert.h>
#include <errno.h>
#include <time.h>

#include "model/sim/sim_model.h"

/* ---- one sequence ---- */

static bool is_hybrid(const sim_model *m)
{
    return m->options.memory == LLM_MEMORY_HYBRID;
}

static bool is_stateful(const sim_model *m)
{
    return is_hybrid(m) || m->options.memory == LLM_MEMORY_RECURRENT;
}

static void sequence_clear(sim_model *m, sim_sequence *s)
{
    s->position = 0;
    s->oldest = 0;
    s->sound = 0;
    s->recurrent = sim_state_empty();
    *sim_kept_at(m, s, 0) = sim_state_empty();
    if (s->attention != NULL) {
        s->attention[0] = sim_state_empty().hash;
    }
}

static void sequence_consume(sim_model *m, sim_sequence *s, int32_t token)
{
    sim_state next = sim_state_next(m->script, sim_kept_at(m, s, s->position), token);
    s->position++;
    *sim_kept_at(m, s, s->position) = next;
    if (s->position - s->oldest >= m->n_kept) {
        s->oldest = s->position - m->n_kept + 1;
    }
    if (is_hybrid(m)) {
        s->recurrent = sim_state_next(m->script, &s->recurrent, token);
    }
    if (s->attention != NULL) {
        s->attention[s->position] = sim_state_after(s->attention[s->position - 1], token);
    }
}

void sim_sequence_spoil(sim_model *m, sim_sequence *s)
{
    *sim_kept_at(m, s, s->position) = sim_state_wrong(sim_kept_at(m, s, s->position));
    s->oldest = s->position;
    s->sound = s->position;
    s->recurrent = sim_state_wrong(&s->recurrent);
}

/* Returns the state on which the next logits depend. If the two parts of a sequence (see sim_sequence) have consumed
 * different tokens, returns a wrong state. */
static sim_state sequence_state(sim_model *m, sim_sequence *s)
{
    sim_state state = *sim_kept_at(m, s, s->position);
    bool agree = (!is_hybrid(m) || state.hash == s->recurrent.hash) &&
                 (s->attention == NULL || state.hash == s->attention[s->position]);
    return agree || state.is_wrong ? state : sim_state_wrong(&state);
}

static sim_sequence *sequence_at(sim_model *m, uint16_t seq)
{
    assert(seq < m->base.info.n_seq);
    return &m->sequences[seq];
}

/* ---- KV cells ---- A copy of a sequence shares cells with the source, namely those of the first tokens that both have
 * in common. A shared cell is counted once, for the sequence with the lowest number.
 */

uint64_t sim_cells_of(const sim_options *o, uint64_t n_tokens)
{
    return n_tokens + (n_tokens < o->window ? n_tokens : o->window) * o->window_cells;
}

/* Returns how many cells the tokens of this batch will take. */
static uint64_t cells_needed(const sim_model *m, const model_batch *b)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        const uint32_t position = (uint32_t)b->positions[i];
        n += sim_cells_of(&m->options, position + 1) - sim_cells_of(&m->options, position);
    }
    return n;
}

static uint64_t cells_used(const sim_model *m)
{
    uint32_t n_seq = m->base.info.n_seq;
    uint64_t used = 0;
    for (uint32_t seq = 0; seq < n_seq; seq++) {
        used += sim_cells_of(&m->options, m->sequences[seq].position) -
                shared_prefixes_counted_before(&m->shared, (uint16_t)seq);
    }
    return used;
}

bool sim_cells_suffice(const sim_model *m, uint64_t n_more)
{
    uint64_t used_most = n_more; /* upper bound, because a shared cell is counted once per sequence. Usually this
                                  * bound fits, and the exact number (cells_used) need not be computed */
    for (uint32_t i = 0; i < m->base.info.n_seq; i++) {
        used_most += sim_cells_of(&m->options, m->sequences[i].position);
    }
    return m->n_cells == UINT32_MAX || used_most <= m->n_cells || cells_used(m) + n_more <= m->n_cells;
}

uint64_t sim_used_bytes(const model *base)
{
    const sim_model *m = sim_of_const(base);
    return (m->options.memory == LLM_MEMORY_RECURRENT ? base->info.n_seq : cells_used(m)) * (uint64_t)SIM_TOKEN_BYTES;
}

uint64_t sim_sequence_bytes(const model *base, uint32_t n_tokens)
{
    const sim_model *m = sim_of_const(base);
    return (m->options.memory == LLM_MEMORY_RECURRENT ? 1 : sim_cells_of(&m->options, n_tokens)) *
           (uint64_t)SIM_TOKEN_BYTES;
}

uint32_t sim_shared_tokens(const model *base, uint16_t seq)
{
    return shared_prefixes_counted_before(&sim_of_const(base)->shared, seq);
}

/* ---- sequence operations ---- */

void sim_clear(model *base, uint16_t seq)
{
    sim_model *m = sim_of(base);
    sequence_clear(m, sequence_at(m, seq));
    shared_prefixes_truncate(&m->shared, seq, 0);
    m->n_after_call = 0;
}

uint32_t sim_position(const model *base, uint16_t seq)
{
    assert(seq < base->info.n_seq);
    return sim_of_const(base)->sequences[seq].position;
}

uint32_t sim_truncate_floor(const model *base, uint16_t seq)
{
    assert(seq < base->info.n_seq);
    const sim_model *m = sim_of_const(base);
    const sim_sequence *s = &m->sequences[seq];
    uint32_t floor = is_hybrid(m) ? s->position : s->oldest;
    return floor > 0 ? floor : 1;
}

static void forget_logits(sim_model *m)
{
    m->n_rows = 0;
    for (uint32_t i = 0; i < m->base.info.n_batch; i++) {
        m->row_of[i] = -1;
    }
}

bool sim_truncate(model *base, uint16_t seq, uint32_t k)
{
    sim_model *m = sim_of(base);
    sim_sequence *s = sequence_at(m, seq);
    assert(k > 0 && k <= s->position);
    bool is_exact = k >= sim_truncate_floor(base, seq);
    shared_prefixes_truncate(&m->shared, seq, k);
    s->position = k; /* a hybrid's recurrent part is unchanged, so sequence_state returns a wrong state */
    if (!is_exact && !is_hybrid(m)) {
        sim_sequence_spoil(m, s); /* the ring `kept` no longer contains the state after k tokens */
    }
    return is_exact;
}

model_result sim_remove_drafts(model *base, uint16_t seq, uint32_t k)
{
    sim_model *m = sim_of(base);
    sim_sequence *s = sequence_at(m, seq);
    if (!is_stateful(m)) {
        return sim_truncate(base, seq, k) ? MODEL_OK : MODEL_FAILED_BATCH;
    }
    assert(m->drafted_seq == seq && k < s->position && s->position - k < m->n_after_call);
    const sim_state state = m->after_call[m->n_after_call - 1 - (s->position - k)];
    shared_prefixes_truncate(&m->shared, seq, k);
    s->position = k;
    if (is_hybrid(m)) {
        s->recurrent = state;
    } else {
        *sim_kept_at(m, s, k) = state;
        s->oldest = k;
    }
    m->n_after_call = 0;
    forget_logits(m);
    return MODEL_OK;
}

float *sim_logits(model *base, uint32_t i)
{
    sim_model *m = sim_of(base);
    if (i >= base->info.n_batch || m->row_of[i] < 0) {
        return NULL;
    }
    return m->logits + (size_t)m->row_of[i] * base->info.n_vocab;
}

/* ---- decode: check the batch ---- */

static bool token_is_valid(sim_model *m, const model_batch *b, uint32_t i)
{
    if (b->seqs[i] >= m->base.info.n_seq || b->tokens[i] < 0 || (uint32_t)b->tokens[i] >= m->base.info.n_vocab) {
        return false;
    }
    sim_sequence *s = &m->sequences[b->seqs[i]];
    if (s->seen_call != m->n_calls) {
        s->seen_call = m->n_calls;
        s->next_position = s->position;
    } else if (b->seqs[i - 1] != b->seqs[i]) {
        return false; /* the tokens of a sequence must be consecutive */
    }
    if (b->positions[i] < 0 || (uint32_t)b->positions[i] != s->next_position ||
        s->next_position >= m->base.info.n_ctx) {
        return false;
    }
    s->next_position++;
    return true;
}

/* Checks the rules of model_batch. */
static bool batch_is_valid(sim_model *m, const model_batch *b)
{
    if (m->options.memory == LLM_MEMORY_NONE || b->n == 0 || b->n > m->base.info.n_batch) {
        return false;
    }
    uint32_t n_outputs = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        n_outputs += b->outputs[i] != 0;
        if (!token_is_valid(m, b, i)) {
            return false;
        }
    }
    return n_outputs <= m->base.info.n_outputs_max;
}

/* ---- decode: the faults that tests request ---- */

/* Returns whether this call must fail. Increments n_counted if this is a call that fail_at and fail_every count. */
static bool fault_is_due(sim_model *m)
{
    const sim_options *o = &m->options;
    if (o->fail_seq != SIM_UNSET) {
        if (o->fail_seq >= m->base.info.n_seq || m->sequences[o->fail_seq].seen_call != m->n_calls) {
            return false;
        }
    }
    m->n_counted++;
    return m->n_counted == o->fail_at || (o->fail_every != SIM_UNSET && m->n_counted % o->fail_every == 0);
}

static void consume(sim_model *m, const model_batch *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        sequence_consume(m, &m->sequences[b->seqs[i]], b->tokens[i]);
    }
}

/* Makes the states of the sequences in the current call wrong. If `all`, makes the state of every sequence that holds
 * tokens wrong. */
static void spoil(sim_model *m, bool all)
{
    for (uint32_t i = 0; i < m->base.info.n_seq; i++) {
        sim_sequence *s = &m->sequences[i];
        if (s->seen_call == m->n_calls || (all && s->position > 0)) {
            sim_sequence_spoil(m, s);
        }
    }
}

/* Makes the call fail, and makes states wrong as the option fail_kind says (sim_model.h). If the engine ignores the
 * error code, it continues a wrong state, so the test fails. */
static model_result fault(sim_model *m, const model_batch *b)
{
    switch (m->options.fail_kind) {
    case SIM_FAIL_CELLS: return MODEL_NO_CELLS;
    case SIM_FAIL_BATCH: spoil(m, false); return MODEL_FAILED_BATCH;
    case SIM_FAIL_ALL: spoil(m, true); return MODEL_FAILED_ALL;
    case SIM_FAIL_HALF: break;
    }
    if (m->options.memory == LLM_MEMORY_DENSE || m->options.memory == LLM_MEMORY_WINDOW) {
        consume(m, b, b->n / 2);
        return MODEL_FAILED_BATCH;
    }
    consume(m, b, b->n);
    spoil(m, true);
    return MODEL_FAILED_ALL;
}

/* ---- decode ---- */

/* Returns the earliest time at which the call may return. */
static struct timespec deadline_of(const sim_model *m, const model_batch *b)
{
    uint64_t n_without_output = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        n_without_output += b->outputs[i] == 0;
    }
    uint64_t us = m->options.step_us + m->options.token_us * n_without_output;
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    uint64_t ns = (uint64_t)at.tv_nsec + us % 1000000 * 1000;
    at.tv_sec += (time_t)(us / 1000000 + ns / 1000000000);
    at.tv_nsec = (long)(ns % 1000000000);
    return at;
}

static void sleep_until(const struct timespec *at)
{
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, at, NULL) == EINTR) {
    }
}

static bool is_before(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

/* Sleeps until the deadline, and calls stop() every millisecond meanwhile. Returns false if the call was stopped. */
static bool take_time(const sim_model *m, const model_batch *b, const struct timespec *deadline)
{
    enum { SLICE_NS = 1000000, SECOND_NS = 1000000000 };
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    while (b->stop != NULL && is_before(&at, deadline)) {
        if (b->stop(b->stop_context)) {
            return false;
        }
        at.tv_nsec += SLICE_NS;
        at.tv_sec += at.tv_nsec / SECOND_NS;
        at.tv_nsec %= SECOND_NS;
        sleep_until(is_before(&at, deadline) ? &at : deadline);
    }
    if (m->options.step_us > 0 || m->options.token_us > 0) {
        sleep_until(deadline);
    }
    return true;
}

static void step(sim_model *m, const model_batch *b)
{
    for (uint32_t i = 0; i < b->n; i++) {
        sim_sequence *s = &m->sequences[b->seqs[i]];
        sequence_consume(m, s, b->tokens[i]);
        if (b->n_drafts > 0 && is_stateful(m)) {
            assert(m->n_after_call <= MODEL_OUTPUTS_BESIDE);
            m->drafted_seq = b->seqs[i];
            m->after_call[m->n_after_call++] = is_hybrid(m) ? s->recurrent : *sim_kept_at(m, s, s->position);
        }
        if (b->outputs[i] != 0) {
            sim_state state = sequence_state(m, s);
            m->row_of[i] = (int32_t)m->n_rows;
            sim_state_logits(m->script, &state, m->options.length,
                             m->logits + (size_t)m->n_rows * m->base.info.n_vocab);
            m->n_rows++;
        }
    }
}

static uint32_t n_sequences(const model_batch *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        n += i == 0 || b->seqs[i] != b->seqs[i - 1];
    }
    return n;
}

model_result sim_decode(model *base, const model_batch *b)
{
    sim_model *m = sim_of(base);
    struct timespec deadline = deadline_of(m, b);
    m->n_calls++;
    m->n_after_call = 0;
    forget_logits(m);
    if (!batch_is_valid(m, b)) {
        return MODEL_INVALID;
    }
    assert(b->stop == NULL || n_sequences(b) <= base->info.n_stoppable);
    assert(b->n_drafts == 0 || n_sequences(b) <= base->info.n_drafting);
    bool fails = fault_is_due(m);
    model_result result = MODEL_OK;
    if (!take_time(m, b, &deadline)) {
        result = MODEL_STOPPED;
    } else if (!sim_cells_suffice(m, cells_needed(m, b))) {
        result = MODEL_NO_CELLS;
    } else if (fails) {
        result = fault(m, b);
    } else {
        step(m, b);
    }
    return result;
}
