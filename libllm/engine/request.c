#include "engine/request.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "machine/last_words.h"
#include "sessions/resuming.h"

_Static_assert((int)MODEL_PIECE_BYTES_MAX <= (int)STOP_FEED_BYTES_MAX, "a token's text goes into stop_feed whole");
_Static_assert(offsetof(request, claim) == 0, "request_of_claim casts");

static int copy_prompt(request *r, const model *m, const wire_command *command)
{
    const uint32_t n = (uint32_t)command->prompt.n;
    r->prompt = malloc(n * sizeof *r->prompt);
    if (r->prompt == NULL) {
        return LLM_NO_MEMORY;
    }
    r->claim.prompt = (branch_prompt){.tokens = r->prompt, .n_tokens = n, .n_head = command->n_head};
    for (uint32_t i = 0; i < n; i++) {
        r->prompt[i] = wire_number(&command->prompt, i);
    }
    return branch_are_tokens(&m->info, r->prompt, n) ? LLM_OK : LLM_TOKEN;
}

static int open_sampler(request *r, const model *m, const wire_command *command)
{
    logit_bias biases[LLM_LOGIT_BIASES_MAX];
    for (size_t i = 0; i < command->n_biases; i++) {
        biases[i] = wire_logit_bias(command, i);
    }
    int32_t stop_tokens[LLM_STOP_TOKENS_MAX];
    for (size_t i = 0; i < command->stop_tokens.n; i++) {
        stop_tokens[i] = wire_number(&command->stop_tokens, i);
    }
    const sampler_options options = {
        .sampling = command->sampling,
        .biases = biases,
        .n_biases = command->n_biases,
        .ignore_end = (command->flags & LLM_GENERATE_IGNORE_END) != 0,
        .stop_tokens = stop_tokens,
        .n_stop_tokens = command->stop_tokens.n,
        .min_tokens = r->min_tokens,
        .constraint = command->constraint,
        .n_constraint_bytes = command->n_constraint_bytes,
        .no_guesses = r->no_drafts,
        .has_breakers = command->has_breakers,
        .n_breakers = command->breakers.n,
        .breakers = command->breakers.at,
        .breaker_bytes = command->breakers.n_bytes,
    };
    return sampler_open(m, &options, &r->sampler);
}

/* Determines the token counts at which the prompt's checkpoints are saved (checkpoint_points.h). Uses only the last
 * LLM_BOUNDARIES_MAX message boundaries of the command. */
static void open_checkpoint_points(request *r, const model *m, const wire_command *command)
{
    uint32_t boundaries[LLM_BOUNDARIES_MAX];
    const size_t n = command->boundaries.n < LLM_BOUNDARIES_MAX ? command->boundaries.n : LLM_BOUNDARIES_MAX;
    for (size_t i = 0; i < n; i++) {
        boundaries[i] = (uint32_t)wire_number(&command->boundaries, command->boundaries.n - n + i);
    }
    checkpoint_points_open(&r->points, &(checkpoint_points_input){
                                           .n_prompt = (uint32_t)command->prompt.n,
                                           .n_head = command->n_head,
                                           .needs_boundaries = m->info.checkpoint != MODEL_CHECKPOINT_NONE,
                                           .boundaries = boundaries,
                                           .n_boundaries = (uint32_t)n,
                                       });
}

static int fill(request *r, const model *m, const wire_command *command)
{
    if (m->info.memory == LLM_MEMORY_NONE) {
        return LLM_NO_GENERATION;
    }
    if (command->prompt.n >= m->info.n_ctx) {
        return LLM_CONTEXT_LENGTH;
    }
    const uint32_t room = m->info.n_ctx - (uint32_t)command->prompt.n;
    r->max_tokens = command->max_tokens == 0 || command->max_tokens > room ? room : command->max_tokens;

    r->min_tokens = command->min_tokens;
    r->n_answer_stops = command->n_answer_stops < command->stops.n ? command->n_answer_stops : command->stops.n;

    open_checkpoint_points(r, m, command);
    int status = copy_prompt(r, m, command);
    if (status == LLM_OK) {
        status = stop_open(&r->stop, command->stops.n, command->stops.at, command->stops.n_bytes);
    }
    if (status == LLM_OK) {
        status = open_sampler(r, m, command);
    }
    if (status == LLM_OK) {
        status = outbox_open(&r->out, r->id);
    }
    token_details_open(&r->out.details, m, command);
    return status;
}

int request_open(const model *m, const wire_command *command, bool has_drafts, request **out)
{
    request *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return LLM_NO_MEMORY;
    }
    r->id = command->request;
    r->owner = command->session.owner;
    r->is_cold = (command->flags & LLM_GENERATE_COLD) != 0;
    r->reports_consumed = (command->flags & LLM_GENERATE_RETURN_CONSUMED) != 0;
    r->no_drafts = !has_drafts || (command->flags & LLM_GENERATE_NO_DRAFTS) != 0;
    r->next_token = -1;
    r->queued_us = clock_us();
    const int status = fill(r, m, command);
    if (status != LLM_OK) {
        request_close(r);
        return status;
    }
    *out = r;
    return LLM_OK;
}

void request_close(request *r)
{
    if (r == NULL) {
        return;
    }
    assert(r->branch == NULL || r->branch->running != &r->claim);
    free(r->prompt);
    free(r->ends);
    drafting_close(&r->drafting);
    outbox_close(&r->out);
    if (r->job != NULL) {
        sampling_abandon(r->job);
    } else {
        sampler_close(r->sampler);
    }
    stop_close(&r->stop);
    free(r);
}

const float *request_begin(request *r, branch_table *table, branch *b)
{
    assert(r->phase == REQUEST_WAITING && b->running == NULL);
    b->running = &r->claim;
    r->branch = b;
    r->started_us = clock_us();
    const float *logits = NULL;
    r->plan = resuming_begin(table, b, &r->claim.prompt, r->is_cold, &logits);
    checkpoint_points_begin(&r->points, &r->plan);
    sampler_accept(r->sampler, r->prompt, r->claim.prompt.n_tokens);
    r->phase = REQUEST_RUNNING;
    outbox_start(&r->out, b->entry, r->claim.prompt.n_tokens, &r->plan);
    return logits;
}

static void release(request *r, const stop_result *released)
{
    outbox_add_text(&r->out, released, r->n_released, r->n_generated);
    r->n_released = released->n_released;
}

/* Returns how many tokens of the branch the client knows or has seen. These are the prompt, and the generated tokens
 * whose whole text was released. */
static uint32_t count_visible(const request *r)
{
    uint32_t n = r->n_generated;
    while (n > 0 && r->ends[n - 1] > r->n_released) {
        n--;
    }
    return r->claim.prompt.n_tokens + n;
}

/* Called after a stop string: removes the tokens that the client did not see. If the model's memory cannot be truncated
 * there, these tokens stay, and n_visible in FINISHED reports how many tokens the client saw. */
static void truncate_invisible(request *r, uint32_t n_visible)
{
    if (n_visible < branch_n_tokens(r->branch)) {
        (void)branch_truncate(r->branch, n_visible);
    }
}

static uint64_t between_us(uint64_t from, uint64_t to)
{
    return from != 0 && to > from ? to - from : 0;
}

static wire_finished finished(const request *r, llm_outcome outcome, llm_status status, int32_t stop_index)
{
    const uint64_t now = clock_us();
    const bool began = r->started_us != 0;
    const uint64_t prefill_end = r->decoding_us != 0 ? r->decoding_us : now;
    const uint32_t n_prompt = r->claim.prompt.n_tokens;
    const uint32_t n_tokens = began ? branch_n_tokens(r->branch) : 0;
    const uint32_t n_prompt_done = n_tokens < n_prompt ? n_tokens : n_prompt;
    const uint32_t n_kept = r->plan.n_keep;
    const drafting *d = &r->drafting;
    return (wire_finished){
        .request = r->id,
        .outcome = outcome,
        .status = status,
        .n_prompt = n_prompt,
        .n_reused = n_kept,
        .n_prefilled = n_prompt_done > n_kept ? n_prompt_done - n_kept : 0,
        .n_generated = r->n_generated,
        .n_resident = n_tokens,
        .n_visible = began ? r->branch->record.n_visible : 0,
        .stop_index = stop_index,
        .queue_us = between_us(r->queued_us, began ? r->started_us : now),
        .prefill_us = between_us(r->started_us, prefill_end),
        .decode_us = between_us(r->decoding_us, now),
        .seed = sampler_seed(r->sampler),
        .n_drafted = d->n_drafted[DRAFT_LOOKUP] + d->n_drafted[DRAFT_GRAMMAR] + d->n_drafted[DRAFT_MODEL],
        .n_accepted = d->n_accepted[DRAFT_LOOKUP] + d->n_accepted[DRAFT_GRAMMAR] + d->n_accepted[DRAFT_MODEL],
        .n_grammar_drafted = d->n_drafted[DRAFT_GRAMMAR],
        .n_grammar_accepted = d->n_accepted[DRAFT_GRAMMAR],
        .n_model_drafted = d->n_drafted[DRAFT_MODEL],
        .n_model_accepted = d->n_accepted[DRAFT_MODEL],
    };
}

void request_describe(const request *r, char *out, size_t n_bytes)
{
    const branch *b = r->branch;
    snprintf(out, n_bytes, "session %s (owner %u, %u tokens)", b->name[0] != '\0' ? b->name : "scratch",
             (unsigned)b->owner, (unsigned)branch_n_tokens(b));
}

static void describe(const void *work, char *out, size_t n_bytes)
{
    request_describe(work, out, n_bytes);
}

/* Removes the rest of the draft from the model's sequence. To do this, the model may have to compute tokens again, as
 * in a step. */
static void remove_drafts(request *r)
{
    session_table *table = r->branch->shared->session_table;
    session_table_gauge(table, LLM_COUNTER_IN_STEP, 1);
    last_words_working(describe, r);
    const uint64_t began_us = clock_us();
    r->drafting.removal = branch_reject_drafts(r->branch);
    r->drafting.removal_us = clock_us() - began_us;
    last_words_working(NULL, NULL);
    session_table_gauge(table, LLM_COUNTER_IN_STEP, 0);
}

static void reject_drafts(request *r)
{
    session_table *counters = r->branch->shared->session_table;
    const drafting *d = &r->drafting;
    session_table_count(counters, LLM_COUNTER_DRAFTED_TOKENS, d->n_taken);
    session_table_count(counters, LLM_COUNTER_ACCEPTED_TOKENS, d->n_right);
    if (d->source == DRAFT_GRAMMAR) {
        session_table_count(counters, LLM_COUNTER_GRAMMAR_DRAFTED_TOKENS, d->n_taken);
        session_table_count(counters, LLM_COUNTER_GRAMMAR_ACCEPTED_TOKENS, d->n_right);
    } else if (d->source == DRAFT_MODEL) {
        session_table_count(counters, LLM_COUNTER_MODEL_DRAFTED_TOKENS, d->n_taken);
        session_table_count(counters, LLM_COUNTER_MODEL_ACCEPTED_TOKENS, d->n_right);
    }
    drafting_learn(&r->drafting, r->is_sampling ? -1 : r->next_token);
    if (r->branch->n_drafts > 0) {
        remove_drafts(r);
    }
}

static void finish(request *r, llm_outcome outcome, llm_status status, int32_t stop_index)
{
    branch *b = r->branch;
    if (r->phase == REQUEST_RUNNING) {
        reject_drafts(r);
        const uint32_t n_visible = count_visible(r);
        if (outcome == LLM_OUTCOME_STOP) {
            truncate_invisible(r, n_visible);
        }
        b->record.n_generated_total += r->n_generated;
        branch_ended(b, n_visible);
        b->running = NULL;
    }
    const wire_finished how = finished(r, outcome, status, stop_index);
    outbox_finish(&r->out, &how);
    r->branch = NULL;
    r->phase = REQUEST_ENDED;
}

void request_end(request *r, llm_outcome outcome, llm_status status)
{
    if (r->phase != REQUEST_ENDED) {
        finish(r, outcome, status, -1);
    }
}

/* Ends a generation that no stop string ended. Text that was held back because it could begin a stop string is
 * released. */
static void finish_flushed(request *r, llm_outcome outcome)
{
    stop_result released;
    stop_flush(&r->stop, &released);
    release(r, &released);
    finish(r, outcome, LLM_OK, -1);
}

static bool remember_end(request *r)
{
    if (r->n_generated > r->ends_capacity) {
        const uint32_t capacity = r->ends_capacity == 0 ? 64 : 2 * r->ends_capacity;
        uint64_t *ends = realloc(r->ends, capacity * sizeof *ends);
        if (ends == NULL) {
            return false;
        }
        r->ends = ends;
        r->ends_capacity = capacity;
    }
    r->ends[r->n_generated - 1] = r->n_bytes;
    return true;
}

/* Returns how many stop strings, counted from the first, the stop filter ignores in the text of the last token. Within
 * the first min_tokens tokens, the filter ignores all stop strings. During the reasoning, it ignores the first
 * n_answer_stops, which apply only to the answer. Otherwise it ignores none. */
static uint32_t n_ignored_stops(const request *r)
{
    if (r->n_generated <= r->min_tokens && r->min_tokens > 0) {
        return r->stop.n_stops;
    }
    return sampler_is_before_answer(r->sampler) ? r->n_answer_stops : 0;
}

/* Passes the token's text to the stop filter. Returns true if the request has ended. */
static bool release_piece(request *r, const model *m, int32_t token)
{
    char piece[STOP_FEED_BYTES_MAX];
    const int32_t n = m->ops->piece(m, token, sampler_shows(r->sampler, token), piece, sizeof piece);
    stop_result released;
    r->stop.n_ignored = n_ignored_stops(r);
    stop_feed(&r->stop, piece, n > 0 ? (uint32_t)n : 0, &released);
    r->n_bytes += n > 0 ? (uint64_t)n : 0;
    r->ends[r->n_generated - 1] = r->n_bytes;
    if (!token_details_sampled(&r->out.details, token, r->n_bytes)) {
        request_end(r, LLM_OUTCOME_FAILED, LLM_NO_MEMORY);
        return true;
    }
    release(r, &released);
    if (released.stop_index < 0) {
        return false;
    }
    finish(r, LLM_OUTCOME_STOP, LLM_OK, released.stop_index);
    return true;
}

void request_consumed(request *r)
{
    if (r->reports_consumed && !r->is_decoding) {
        outbox_consumed(&r->out, branch_n_tokens(r->branch), between_us(r->started_us, clock_us()));
    }
}

static void continue_with(request *r, const model *m, int status, int32_t token)
{
    if (status != LLM_OK) {
        request_end(r, LLM_OUTCOME_FAILED, (llm_status)status);
        return;
    }
    r->n_generated++;
    session_table_count(r->branch->shared->session_table, LLM_COUNTER_DECODE_TOKENS, 1);
    if (!remember_end(r)) {
        r->n_generated--;
        request_end(r, LLM_OUTCOME_FAILED, LLM_NO_MEMORY);
    } else if (sampler_ends(r->sampler, token)) {
        finish_flushed(r, LLM_OUTCOME_END);
    } else if (release_piece(r, m, token)) {
        return;
    } else if (r->n_generated >= r->max_tokens) {
        finish_flushed(r, LLM_OUTCOME_LENGTH);
    } else {
        r->next_token = token;
    }
}

/* Queues a copy of the logits for a sampling thread. Returns false if memory is short. */
static bool begin_sampling(request *r, sampling_threads *threads, const float *logits)
{
    if (r->job == NULL) {
        r->job = sampling_job_open(threads, r->sampler);
    }
    if (r->job == NULL) {
        return false;
    }
    r->is_sampling = true;
    sampling_begin(r->job, logits);
    return true;
}

void request_sample(request *r, const model *m, sampling_threads *threads, float *logits, bool has_time)
{
    if (!r->is_decoding) {
        r->decoding_us = clock_us();
        r->is_decoding = true;
        branch_decoding(r->branch);
    }
    r->next_token = -1;
    const bool may_be_quick = has_time || !sampler_is_constrained(r->sampler);
    int status = LLM_OK;
    int32_t token = -1;
    if (!token_details_logits(&r->out.details, logits)) {
        request_end(r, LLM_OUTCOME_FAILED, LLM_NO_MEMORY);
    } else if (may_be_quick && sampler_next_quick(r->sampler, logits, &status, &token)) {
        continue_with(r, m, status, token);
    } else if (!begin_sampling(r, threads, logits)) {
        request_end(r, LLM_OUTCOME_FAILED, LLM_NO_MEMORY);
    }
}

bool request_accept_draft(request *r)
{
    if (r->phase != REQUEST_RUNNING) {
        return false; /* the end of the request has already removed its drafts */
    }
    if (!r->is_sampling && !outbox_is_full(&r->out) && drafting_accept(&r->drafting, r->next_token)) {
        branch_accept_draft(r->branch, r->next_token);
        return true;
    }
    reject_drafts(r);
    if (r->branch->record.state == LLM_STATE_TORN) {
        request_end(r, LLM_OUTCOME_FAILED, LLM_STEP_FAILED);
    }
    return false;
}

bool request_take_sampled(request *r, const model *m)
{
    int status = LLM_OK;
    int32_t token = -1;
    if (!sampling_take(r->job, &status, &token)) {
        return false;
    }
    r->is_sampling = false;
    continue_with(r, m, status, token);
    return true;
}
