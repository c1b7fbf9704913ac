#include "engine/step.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "machine/last_words.h"

int step_open(step *t)
{
    const uint32_t n = t->model->info.n_batch;
    t->tokens = malloc(n * sizeof *t->tokens);
    t->positions = malloc(n * sizeof *t->positions);
    t->seqs = malloc(n * sizeof *t->seqs);
    t->outputs = malloc(n * sizeof *t->outputs);
    if (t->tokens == NULL || t->positions == NULL || t->seqs == NULL || t->outputs == NULL) {
        step_close(t);
        return LLM_NO_MEMORY;
    }
    t->batch = (model_batch){.tokens = t->tokens, .positions = t->positions, .seqs = t->seqs, .outputs = t->outputs};
    return LLM_OK;
}

void step_close(step *t)
{
    free(t->tokens);
    free(t->positions);
    free(t->seqs);
    free(t->outputs);
    t->tokens = t->positions = NULL;
    t->seqs = NULL;
    t->outputs = NULL;
}

/* ---- the plan: how many tokens each request consumes ---- */

void step_begin(step *t)
{
    t->n_requests = t->n_sampling = 0;
}

/* Keeps requests in the order of their slots. Each slot can have its own part of the KV cache, a stream. Sequences with
 * adjacent streams then go through attention together. */
void step_add(step *t, request *r)
{
    assert(t->n_requests < LLM_SEQUENCES_MAX);
    uint32_t at = t->n_requests++;
    while (at > 0 && t->requests[at - 1]->branch->slot > r->branch->slot) {
        t->requests[at] = t->requests[at - 1];
        at--;
    }
    t->requests[at] = r;
}

/* Returns how many prompt tokens are left up to the next checkpoint. Returns 0 if the request decodes. */
static uint32_t prefill_left(const request *r)
{
    return r->is_decoding ? 0 : checkpoint_points_next(&r->points) - branch_n_tokens(r->branch);
}

/* Returns how overdue the checkpoint of a decoding request will be after the next token. Returns 0 if no checkpoint is
 * due after that token. Returns 1 if a checkpoint is due exactly then, and one more for each token by which the
 * checkpoint is late. */
static uint32_t checkpoint_overdue(const request *r, uint32_t checkpoint_every)
{
    const branch *b = r->branch;
    const uint32_t n_tokens = branch_n_tokens(b) + 1;
    return r->is_decoding && branch_takes_checkpoints(b) &&
                   checkpoint_points_is_due(n_tokens, b->checkpoint_at, checkpoint_every)
               ? n_tokens - b->checkpoint_at - checkpoint_every + 1
               : 0;
}

/* Chooses at most one decoding request per step for a checkpoint: the request whose checkpoint is most overdue.
 * Requests that began together are due for checkpoints together. Without the limit, all their copies would fall into
 * the same gap between two tokens. */
static void choose_checkpoint(step *t)
{
    uint32_t most = 0;
    t->checkpoint = NULL;
    for (uint32_t i = 0; i < t->n_requests; i++) {
        const uint32_t overdue = checkpoint_overdue(t->requests[i], t->checkpoint_every);
        if (overdue > most) {
            most = overdue;
            t->checkpoint = t->requests[i];
        }
    }
}

void step_plan(step *t)
{
    uint32_t left[LLM_SEQUENCES_MAX], depth[LLM_SEQUENCES_MAX];
    for (uint32_t i = 0; i < t->n_requests; i++) {
        left[i] = prefill_left(t->requests[i]);
        depth[i] = branch_n_tokens(t->requests[i]->branch);
    }
    choose_checkpoint(t);
    schedule_step(
        &(schedule_input){
            .n_runs = t->n_requests,
            .prefill_left = left,
            .depth = depth,
            .n_batch = t->model->info.n_batch,
            .mixed_calls = t->model->info.mixed_calls,
            .n_stoppable = t->model->info.n_stoppable,
            .takes_checkpoint = t->checkpoint != NULL,
            .turn = t->turn++,
            .gap_ms_target = t->gap_ms_target,
            .pace = t->pace,
        },
        t->take);
    step_plan_drafts(t);
}

/* ---- the model call ---- */

static void add_tokens(step *t, uint32_t i)
{
    const request *r = t->requests[i];
    const branch_prompt *prompt = &r->claim.prompt;
    const uint32_t at = branch_n_tokens(r->branch);
    uint32_t n = t->batch.n;
    for (uint32_t k = 0; k < t->take[i]; k++, n++) {
        t->tokens[n] = r->is_decoding ? r->next_token : prompt->tokens[at + k];
        t->positions[n] = (int32_t)(at + k);
        t->seqs[n] = (uint16_t)r->branch->slot;
        t->outputs[n] = 0;
    }
    t->output_at[i] = n - 1;
    t->outputs[n - 1] = r->is_decoding || at + t->take[i] == prompt->n_tokens;
    for (uint32_t k = 0; k < r->drafting.n_taken; k++, n++) {
        t->tokens[n] = r->drafting.tokens[k];
        t->positions[n] = (int32_t)(at + 1 + k);
        t->seqs[n] = (uint16_t)r->branch->slot;
        t->outputs[n] = 1;
        t->n_drafts++;
    }
    t->batch.n = n;
}

/* Whether the request still has a slot. It may have ended or lost its slot since the step was planned. */
static bool is_alive(const request *r)
{
    return r->branch != NULL && r->branch->slot != BRANCH_NO_SLOT;
}

static step_part part_of(const request *r)
{
    return r->is_decoding ? STEP_DECODE : STEP_PREFILL;
}

static void build_batch(step *t, unsigned parts)
{
    t->batch.n = t->n_drafts = 0;
    for (uint32_t i = 0; i < t->n_requests; i++) {
        const request *r = t->requests[i];
        t->is_called[i] = t->take[i] > 0 && is_alive(r) && (parts & (unsigned)part_of(r)) != 0;
        if (t->is_called[i]) {
            add_tokens(t, i);
        }
    }
    t->batch.n_drafts = t->n_drafts;
}

/* Writes the names of the sessions in the current call. They are logged if the process dies in the call. */
static void name_sessions(const void *work, char *out, size_t n_bytes)
{
    const step *t = work;
    size_t at = 0;
    for (uint32_t i = 0; i < t->n_requests && at < n_bytes; i++) {
        if (t->is_called[i]) {
            char session[LAST_WORDS_BYTES_MAX];
            request_describe(t->requests[i], session, sizeof session);
            at += (size_t)snprintf(out + at, n_bytes - at, "%s%s", at > 0 ? ", " : "", session);
        }
    }
}

/* Returns the mean depth of the batch's prompt tokens. The depth of a token is the number of tokens before it in its
 * sequence. */
static double depth_called(const step *t)
{
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_requests; i++) {
        if (t->is_called[i] && !t->requests[i]->is_decoding) {
            sum += t->take[i] * (branch_n_tokens(t->requests[i]->branch) + t->take[i] / 2.0);
            n += t->take[i];
        }
    }
    return n > 0 ? sum / n : 0;
}

/* Before a call that can be stopped, the model copies some state (model.h). Returns how many bytes it copies. The model
 * frees these copies after the call. */
static size_t undo_bytes(const step *t)
{
    size_t n_bytes = 0;
    for (uint32_t i = 0; i < t->n_requests; i++) {
        const branch *b = t->requests[i]->branch;
        if (t->is_called[i] && branch_takes_checkpoints(b) && branch_n_tokens(b) > 0) {
            n_bytes += t->model->ops->state_bytes(t->model, (uint16_t)b->slot, MODEL_STATE_CHECKPOINT);
        }
    }
    return n_bytes;
}

static model_result call_model(step *t)
{
    uint32_t n_decode = 0, n_called = 0;
    for (uint32_t i = 0; i < t->n_requests; i++) {
        n_called += t->is_called[i];
        n_decode += t->is_called[i] && t->requests[i]->is_decoding;
    }
    session_table_gauge(t->session_table, LLM_COUNTER_IN_STEP, 1);
    last_words_working(name_sessions, t);
    /* a step with decoding requests is short anyway, and a call that can be stopped may cost a copy of states */
    bool may_stop = !step_has(t, STEP_DECODE) && n_called <= t->model->info.n_stoppable;
    ledger *account = t->table->shared.ledger;
    const size_t n_undo_bytes = may_stop ? undo_bytes(t) : 0;
    may_stop = may_stop && ledger_admits(account, n_undo_bytes);
    ledger_reserve(account, LEDGER_IN_FLIGHT, may_stop ? n_undo_bytes : 0);
    t->batch.stop = may_stop ? t->stop : NULL;
    t->batch.stop_context = t->stop_context;
    t->depth = depth_called(t);
    t->call_began_us = clock_us();
    const model_result result = t->model->ops->decode(t->model, &t->batch);
    t->call_us = clock_us() - t->call_began_us;
    ledger_release(account, LEDGER_IN_FLIGHT, may_stop ? n_undo_bytes : 0);
    last_words_working(NULL, NULL);
    session_table_gauge(t->session_table, LLM_COUNTER_IN_STEP, 0);

    session_table_count(t->session_table, LLM_COUNTER_STEPS, 1);
    session_table_count(t->session_table, LLM_COUNTER_STEP_US, t->call_us);
    t->n_decoded = n_decode;
    if (result == MODEL_OK) {
        session_table_count(t->session_table, LLM_COUNTER_PREFILL_TOKENS, t->batch.n - n_decode - t->n_drafts);
    }
    return result;
}

void step_learn(step *t, uint64_t sampling_us)
{
    if (t->batch.n == 0) {
        return;
    }
    const uint32_t n_prefill = t->batch.n - t->n_decoded - t->n_drafts;
    step_learn_credit(t, (double)(t->call_us + sampling_us));
    const double us = (double)(t->call_us + sampling_us - step_learn_removals(t));
    if (t->n_drafts == 0) {
        schedule_learn(&t->pace, n_prefill, t->depth, t->n_decoded, us);
    }
    if (n_prefill == 0) {
        draft_learn_cost(&t->draft_costs, t->n_decoded, t->n_drafts, us);
    }
    t->table->pace.token_us = t->pace.prefill_token_us;
}

double step_expected_us(const step *t)
{
    return linear_fit_at(&t->pace.prefill_at, t->depth) * t->batch.n;
}

float *step_logits(step *t, uint32_t index)
{
    const uint32_t at = t->output_at[index];
    return t->is_called[index] && t->outputs[at] ? t->model->ops->logits(t->model, at) : NULL;
}

float *step_draft_logits(step *t, uint32_t index, uint32_t draft)
{
    return t->model->ops->logits(t->model, t->output_at[index] + 1 + draft);
}

static void add_due(step *t, const request *r, checkpoint_due reached)
{
    t->due[t->n_due++] = (step_due){.branch = r->branch, .n_tokens = branch_n_tokens(r->branch), .reached = reached};
}

/* Returns which checkpoint of the prompt is due now. Keeps the logits after the last token for this checkpoint, before
 * a sampler modifies them. */
static checkpoint_due reach_point(request *r, const float *logits)
{
    const checkpoint_due reached = checkpoint_points_reached(&r->points, branch_n_tokens(r->branch));
    if (reached != CHECKPOINT_NONE && logits != NULL) {
        branch_keep_logits(r->branch, logits);
    }
    return reached;
}

static void consume(step *t)
{
    for (uint32_t i = 0; i < t->n_requests; i++) {
        request *r = t->requests[i];
        if (!t->is_called[i]) {
            continue;
        }
        branch_drafted(r->branch, r->drafting.n_taken);
        branch_consumed(r->branch, t->tokens + t->output_at[i] + 1 - t->take[i], t->take[i]);
        const checkpoint_due reached = r->is_decoding ? CHECKPOINT_NONE : reach_point(r, step_logits(t, i));
        if (reached != CHECKPOINT_NONE || r == t->checkpoint) {
            add_due(t, r, reached);
        }
    }
}

static bool is_unchanged(const step_due *due)
{
    const branch *b = due->branch;
    return branch_has_slot(b) && b->record.state != LLM_STATE_TORN && branch_n_tokens(b) == due->n_tokens;
}

static void take_checkpoint(const step_due *due)
{
    branch *b = due->branch;
    if (is_unchanged(due)) {
        assert(b->n_drafts == 0);
        branch_checkpoint(b, b->logits_at == due->n_tokens ? b->logits : NULL, due->reached == CHECKPOINT_HEAD);
    }
}

void step_checkpoint(step *t)
{
    for (uint32_t i = 0; i < t->n_due; i++) {
        const uint64_t began_us = clock_us();
        take_checkpoint(&t->due[i]);
        if (t->due[i].reached == CHECKPOINT_NONE) {
            schedule_learn_checkpoint(&t->pace, (double)(clock_us() - began_us));
        }
    }
    t->n_due = 0;
}

void step_invalidate_harmed(step *t, model_result result)
{
    session_table_count(t->session_table, LLM_COUNTER_STEPS_FAILED, 1);
    for (uint32_t i = 0; i < t->n_requests; i++) {
        drafting_drop(&t->requests[i]->drafting);
        if (t->is_called[i] && t->requests[i]->branch != NULL) {
            branch_invalidate(t->requests[i]->branch);
        }
    }
    for (uint32_t i = 0; result == MODEL_FAILED_ALL && i < t->table->n_entries; i++) {
        branch *b = &t->table->branches[i];
        if (b->is_open && b->slot != BRANCH_NO_SLOT && branch_n_tokens(b) > 0) {
            branch_invalidate(b);
        }
    }
}

bool step_has(const step *t, step_part part)
{
    bool has = false;
    for (uint32_t i = 0; i < t->n_requests; i++) {
        has = has || (t->take[i] > 0 && part_of(t->requests[i]) == part);
    }
    return has;
}

void step_drop_ended(step *t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_requests; i++) {
        if (t->requests[i]->branch != NULL) {
            t->requests[n] = t->requests[i];
            t->take[n++] = t->take[i];
        }
    }
    t->n_requests = n;
}

model_result step_call(step *t, unsigned parts)
{
    assert(t->n_due == 0);
    build_batch(t, parts);
    if (t->batch.n == 0) {
        return MODEL_OK;
    }
    const model_result result = call_model(t);
    switch (result) {
    case MODEL_OK: consume(t); break;
    case MODEL_NO_CELLS:
    case MODEL_STOPPED: break;
    case MODEL_INVALID:
    case MODEL_FAILED_BATCH:
    case MODEL_FAILED_ALL: step_invalidate_harmed(t, result); break;
    }
    return result;
}
