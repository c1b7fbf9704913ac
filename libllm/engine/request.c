#include "engine/request.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sessions/warm.h"

_Static_assert((int)MODEL_PIECE_BYTES_MAX <= (int)STOP_FEED_BYTES_MAX, "a token's text goes into stop_feed whole");

static int copy_prompt(request *r, const model *m, const wire_command *command)
{
    r->prompt = malloc(command->n_prompt * sizeof *r->prompt);
    if (r->prompt == NULL) {
        return LLM_NO_MEMORY;
    }
    for (uint32_t i = 0; i < r->n_prompt; i++) {
        r->prompt[i] = wire_prompt_token(command, i);
        if (r->prompt[i] < 0 || (uint32_t)r->prompt[i] >= m->info.n_vocab) {
            return LLM_TOKEN;
        }
    }
    return LLM_OK;
}

static int open_sampler(request *r, const model *m, const wire_command *command)
{
    logit_bias biases[LLM_LOGIT_BIASES_MAX];
    for (size_t i = 0; i < command->n_biases; i++) {
        biases[i] = wire_logit_bias(command, i);
    }
    const int ignore_end = (command->flags & LLM_GENERATE_IGNORE_END) != 0;
    return sampler_open(m, &command->sampling, biases, command->n_biases, ignore_end, &r->sampler);
}

/* Where prefill pauses: at the boundaries that the client's side knows, and at the prompt's end. Dense memory needs no
 * checkpoint to go back, only the shared prefix is worth one. */
static int set_cuts(request *r, const model *m, const wire_command *command)
{
    enum { PREFIX_TOKENS_MIN = 32 };
    const size_t n = command->n_boundaries;
    const size_t skip = n > LLM_BOUNDARIES_MAX ? n - LLM_BOUNDARIES_MAX : 0;
    /* the prefix, the boundaries, the end */
    r->cuts = malloc((n - skip + 2) * sizeof *r->cuts);
    if (r->cuts == NULL) {
        return LLM_NO_MEMORY;
    }
    if (r->n_head >= PREFIX_TOKENS_MIN && r->n_head < r->n_prompt) {
        r->prefix_at = r->n_head;
        r->cuts[r->n_cuts++] = r->prefix_at;
    }
    for (size_t i = skip; i < n && m->info.checkpoint != MODEL_CHECKPOINT_NONE; i++) {
        const uint32_t boundary = (uint32_t)wire_boundary(command, i);
        if (boundary > r->prefix_at && boundary < r->n_prompt) {
            r->cuts[r->n_cuts++] = boundary;
        }
    }
    r->cuts[r->n_cuts++] = r->n_prompt;
    return LLM_OK;
}

static int fill(request *r, const model *m, const wire_command *command)
{
    if (command->n_prompt >= m->info.n_ctx) {
        return LLM_CONTEXT_LENGTH;
    }
    r->n_prompt = (uint32_t)command->n_prompt;
    r->n_head = command->n_head;
    const uint32_t room = m->info.n_ctx - r->n_prompt;
    r->max_tokens = command->max_tokens == 0 || command->max_tokens > room ? room : command->max_tokens;

    int status = copy_prompt(r, m, command);
    if (status == LLM_OK) {
        status = set_cuts(r, m, command);
    }
    if (status == LLM_OK) {
        status = stop_open(&r->stop, command->n_stops, command->stops, command->stop_bytes);
    }
    if (status == LLM_OK) {
        status = open_sampler(r, m, command);
    }
    if (status == LLM_OK) {
        r->out.text = malloc(LLM_OUTBOX_BYTES_MAX + STOP_TEXT_BYTES_MAX);
        status = r->out.text == NULL ? LLM_NO_MEMORY : LLM_OK;
    }
    told_open(&r->out.told, m, command);
    return status;
}

int request_open(const model *m, const wire_command *command, request **out)
{
    request *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return LLM_NO_MEMORY;
    }
    r->id = command->request;
    r->owner = command->owner;
    r->flags = command->flags;
    r->next_token = -1;
    r->slot = UINT32_MAX;
    r->queued_us = session_clock_us();
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
    assert(r->session == NULL || r->session->running != r);
    free(r->prompt);
    free(r->cuts);
    free(r->ends);
    free(r->out.text);
    told_close(&r->out.told);
    sampler_close(r->sampler);
    stop_close(&r->stop);
    free(r);
}

uint32_t request_prefill_left(const request *r)
{
    return r->phase == REQUEST_PREFILL ? r->cuts[r->next_cut] - session_n_tokens(r->session) : 0;
}

/* Histories that part here once will again: where this prompt left what was resident, a checkpoint is taken. Just after
 * another, as in a message that is written anew, it would cost a call, which reads all weights, to save a few tokens. */
static void cut_at_divergence(request *r, const model *m)
{
    enum { NEAR = 8 };
    const uint32_t at = r->plan.diverged_at > 0 ? (uint32_t)r->plan.diverged_at : 0;
    const uint32_t served = r->plan.n_keep + (r->plan.checkpoint >= 0 ? NEAR : 0);
    if (m->info.checkpoint == MODEL_CHECKPOINT_NONE || at <= served) {
        return;
    }
    uint32_t i = 0;
    while (r->cuts[i] < at) {
        i++;
    }
    uint32_t *cuts = r->cuts[i] == at ? NULL : realloc(r->cuts, (r->n_cuts + 1) * sizeof *cuts);
    if (cuts == NULL) { /* there already; or no memory, and then no cut */
        return;
    }
    memmove(cuts + i + 1, cuts + i, (r->n_cuts - i) * sizeof *cuts);
    cuts[i] = at;
    r->cuts = cuts;
    r->n_cuts++;
}

static void skip_cuts(request *r)
{
    while (r->next_cut + 1 < r->n_cuts && r->cuts[r->next_cut] <= session_n_tokens(r->session)) {
        r->next_cut++;
    }
}

void request_consumed(request *r, const float *logits, uint32_t checkpoint_every)
{
    session *s = r->session;
    const uint32_t n_tokens = session_n_tokens(s);
    if (r->phase == REQUEST_DECODE) {
        if (n_tokens - s->checkpoint_at >= checkpoint_every) {
            session_checkpoint(s, NULL, false);
        }
        return;
    }
    if (n_tokens != r->cuts[r->next_cut]) {
        return;
    }
    if (logits != NULL) {
        session_keep_logits(s, logits);
    }
    session_checkpoint(s, logits, n_tokens == r->prefix_at);
    skip_cuts(r);
}

const float *request_begin(request *r, places *p, session *s)
{
    assert(r->phase == REQUEST_WAITING && s->running == NULL);
    s->running = r;
    r->session = s;
    r->slot = s->slot;
    r->started_us = session_clock_us();
    const float *logits = NULL;
    r->plan = warm_begin(p, s, r->prompt, r->n_prompt, (r->flags & LLM_GENERATE_COLD) != 0, &logits);
    cut_at_divergence(r, p->ground.model);
    skip_cuts(r);
    r->phase = REQUEST_PREFILL;
    r->out.started = true;
    for (uint32_t i = 0; i < r->n_prompt; i++) {
        sampler_accept(r->sampler, r->prompt[i]);
    }
    return logits;
}

static void release(request *r, const stop_result *released)
{
    memcpy(r->out.text + r->out.n_text, released->text, released->n_text);
    r->out.n_text += released->n_text;
    told_released(&r->out.told, released, r->n_released);
    r->n_released = released->n_released;
}

/* How many of the session's tokens the client has seen whole. */
static uint32_t count_visible(const request *r)
{
    uint32_t n = r->n_generated;
    while (n > 0 && r->ends[n - 1] > r->n_released) {
        n--;
    }
    return r->n_prompt + n;
}

/* After a stop string: the session should hold what the client saw. What cannot be cut out stays, and is known. */
static void cut_invisible(request *r, uint32_t n_visible)
{
    if (n_visible < session_n_tokens(r->session)) {
        (void)session_cut(r->session, n_visible);
    }
}

static uint64_t between_us(uint64_t from, uint64_t to)
{
    return from != 0 && to > from ? to - from : 0;
}

static void fill_finished(request *r, llm_outcome outcome, llm_status status, int32_t stop_index)
{
    const uint64_t now = session_clock_us();
    const bool began = r->started_us != 0;
    const uint64_t prefill_end = r->decoding_us != 0 ? r->decoding_us : now;
    const uint32_t n_tokens = began ? session_n_tokens(r->session) : 0;
    const uint32_t n_prompt_done = n_tokens < r->n_prompt ? n_tokens : r->n_prompt;
    const uint32_t n_kept = r->plan.n_keep;
    r->finished = (wire_finished){
        .request = r->id,
        .outcome = outcome,
        .status = status,
        .n_prompt = r->n_prompt,
        .n_reused = n_kept,
        .n_prefilled = n_prompt_done > n_kept ? n_prompt_done - n_kept : 0,
        .n_generated = r->n_generated,
        .n_resident = n_tokens,
        .n_visible = began ? r->session->record.n_visible : 0,
        .stop_index = stop_index,
        .queue_us = between_us(r->queued_us, began ? r->started_us : now),
        .prefill_us = between_us(r->started_us, prefill_end),
        .decode_us = between_us(r->decoding_us, now),
        .seed = sampler_seed(r->sampler),
    };
    r->out.finished = true;
}

static void finish(request *r, llm_outcome outcome, llm_status status, int32_t stop_index)
{
    session *s = r->session;
    if (r->phase == REQUEST_PREFILL || r->phase == REQUEST_DECODE) {
        const uint32_t n_visible = count_visible(r);
        if (outcome == LLM_OUTCOME_STOP) {
            cut_invisible(r, n_visible);
        }
        s->record.n_generated_total += r->n_generated;
        session_ended(s, n_visible);
        fill_finished(r, outcome, status, stop_index);
        s->running = NULL;
    } else {
        fill_finished(r, outcome, status, stop_index);
    }
    r->session = NULL;
    r->phase = REQUEST_ENDED;
}

void request_end(request *r, llm_outcome outcome, llm_status status)
{
    if (r->phase != REQUEST_ENDED) {
        finish(r, outcome, status, -1);
    }
}

/* The generation came to its natural end: text held back for a stop string that never came leaves now. */
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

/* Feeds the token's text through the stop filter. True if that ended the request. */
static bool release_piece(request *r, const model *m, int32_t token)
{
    char piece[STOP_FEED_BYTES_MAX];
    const int32_t n = m->ops->piece(m, token, false, piece, sizeof piece);
    stop_result released;
    stop_feed(&r->stop, piece, n > 0 ? (uint32_t)n : 0, &released);
    r->n_bytes += n > 0 ? (uint64_t)n : 0;
    r->ends[r->n_generated - 1] = r->n_bytes;
    if (!told_sampled(&r->out.told, token, r->n_bytes)) {
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

void request_advance(request *r, const model *m, float *logits)
{
    if (r->phase == REQUEST_PREFILL) {
        r->phase = REQUEST_DECODE;
        r->decoding_us = session_clock_us();
        session_decoding(r->session);
    }
    if (!told_logits(&r->out.told, logits)) {
        request_end(r, LLM_OUTCOME_FAILED, LLM_NO_MEMORY);
        return;
    }
    const int32_t token = sampler_sample(r->sampler, logits);
    sampler_accept(r->sampler, token);
    r->n_generated++;
    page_count(r->session->ground->page, LLM_COUNTER_DECODE_TOKENS, 1);
    r->next_token = -1;
    if (!remember_end(r)) {
        r->n_generated--;
        request_end(r, LLM_OUTCOME_FAILED, LLM_NO_MEMORY);
    } else if (m->ops->is_end(m, token)) {
        finish_flushed(r, LLM_OUTCOME_END);
    } else if (release_piece(r, m, token)) {
        return;
    } else if (r->n_generated >= r->max_tokens) {
        finish_flushed(r, LLM_OUTCOME_LENGTH);
    } else {
        r->next_token = token;
    }
}

bool request_is_stalled(const request *r)
{
    return r->out.n_text >= LLM_OUTBOX_BYTES_MAX || told_is_full(&r->out.told);
}

/* Writes one event into the ring; false if it has no room. */
static bool deliver_event(request *r, ring *events, llm_event_op op)
{
    wire_tokens next;
    const wire_tokens *tokens = op == LLM_EVENT_TEXT ? told_next(&r->out.told, &next) : NULL;
    const size_t room = WIRE_EVENT_BYTES_MAX + (op == LLM_EVENT_TEXT ? r->out.n_text + told_bytes(tokens) : 0);
    void *record = ring_reserve(events, room);
    if (record == NULL) {
        return false;
    }
    wire_writer w = wire_writer_open(record, room);
    switch (op) {
    case LLM_EVENT_ADMITTED: wire_write_admitted(&w, r->id, r->slot); break;
    case LLM_EVENT_STARTED:
        wire_write_started(&w, r->id, r->plan.reason, r->n_prompt, r->plan.n_keep, r->plan.diverged_at);
        break;
    case LLM_EVENT_TEXT: wire_write_text(&w, r->id, r->out.text, r->out.n_text, r->n_generated, tokens); break;
    case LLM_EVENT_FINISHED: wire_write_finished(&w, &r->finished); break;
    case LLM_EVENT_REPLY:
    case LLM_EVENT_FORGOTTEN: break;
    }
    assert(!w.failed);
    ring_commit(events, wire_size(&w));
    told_delivered(&r->out.told, tokens);
    return true;
}

bool request_deliver(request *r, ring *events)
{
    outbox *out = &r->out;
    if (out->admitted) {
        if (!deliver_event(r, events, LLM_EVENT_ADMITTED)) {
            return false;
        }
        out->admitted = false;
    }
    if (out->started) {
        if (!deliver_event(r, events, LLM_EVENT_STARTED)) {
            return false;
        }
        out->started = false;
    }
    while (out->n_text > 0 || out->told.n_left > 0) {
        if (!deliver_event(r, events, LLM_EVENT_TEXT)) {
            return false;
        }
        out->n_text = 0;
    }
    if (out->finished) {
        if (!deliver_event(r, events, LLM_EVENT_FINISHED)) {
            return false;
        }
        out->finished = false;
    }
    return true;
}
