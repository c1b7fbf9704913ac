/* decode_step.c: one step for all requests that can run, and the work after the model call. If the call succeeded,
 * samples tokens. If KV cells were short, frees cells and repeats the call. If the call failed, ends the requests whose
 * branches became invalid. */
#include <assert.h>

#include "engine/decode.h"

/* How long a step waits for tokens that sampling threads are still picking: a sixteenth of a decode step, but at most 2
 * ms. Most tokens are picked in less time. A request whose token is picked later misses a whole step. */
enum { SAMPLING_WAIT_SHARE = 16, SAMPLING_WAIT_US_MAX = 2000 };
/* For this long, the decode thread itself picks the tokens of a step that are under constraints. After that, sampling
 * threads pick them. */
enum { PICKING_US_MAX = 2000 };

static uint32_t sampling_wait_us(const decode *d)
{
    const double us = d->step.pace.decode_us / SAMPLING_WAIT_SHARE;
    return us < SAMPLING_WAIT_US_MAX ? (uint32_t)us : SAMPLING_WAIT_US_MAX;
}

static bool can_run(const request *r)
{
    return request_moves(r) && !r->is_sampling && !outbox_is_full(&r->out);
}

static void collect_requests(decode *d)
{
    step_begin(&d->step);
    for (uint32_t i = 0; i < d->n_requests; i++) {
        request *r = d->requests[i];
        if (can_run(r)) {
            step_add(&d->step, r);
        }
        d->step.n_sampling += request_moves(r) && r->is_sampling;
    }
}

/* A sampling thread may have picked a token for a request that has lost its slot. The token stays in the sampling job
 * until the request has a slot again. */
void decode_take_sampled(decode *d)
{
    bool is_any = false;
    for (uint32_t i = 0; i < d->n_requests; i++) {
        is_any = is_any || (d->requests[i]->phase == REQUEST_RUNNING && d->requests[i]->is_sampling);
    }
    if (!is_any && !sampling_has_result(d->sampling)) {
        return;
    }
    sampling_settle(d->sampling, sampling_wait_us(d));
    for (uint32_t i = 0; i < d->n_requests; i++) {
        request *r = d->requests[i];
        if (request_has_slot(r) && r->is_sampling && request_take_sampled(r, d->model)) {
            d->may_assign_slots = d->may_assign_slots || r->phase == REQUEST_ENDED;
        }
    }
}

/* Samples for a request. Adds the time of a pick under a constraint to *us: one such pick takes a fraction of a
 * millisecond, but a step can have many. */
static void sample_one(decode *d, request *r, float *logits, uint64_t *us)
{
    const bool is_counted = sampler_is_constrained(r->sampler);
    const uint64_t began_us = is_counted ? clock_us() : 0;
    request_sample(r, d->model, d->sampling, logits, *us < PICKING_US_MAX);
    *us += is_counted ? clock_us() - began_us : 0;
}

/* Ends the requests whose branches became invalid in the failed call. */
static void end_invalid(decode *d)
{
    for (uint32_t i = 0; i < d->n_requests; i++) {
        request *r = d->requests[i];
        if (r->phase == REQUEST_RUNNING && r->branch->record.state == LLM_STATE_TORN) {
            decode_end_request(d, r, LLM_OUTCOME_FAILED, LLM_STEP_FAILED);
        }
    }
}

static void sample(decode *d)
{
    uint64_t us = 0;
    for (uint32_t i = 0; i < d->step.n_requests; i++) {
        if (d->step.is_called[i]) {
            request_consumed(d->step.requests[i]);
        }
        float *logits = step_logits(&d->step, i);
        if (logits != NULL) {
            request *r = d->step.requests[i];
            sample_one(d, r, logits, &us);
            /* Each accepted draft token is one more token of this step, picked from the logits after the token before
             * it. */
            for (uint32_t n_right = 0; request_accept_draft(r); n_right++) {
                sample_one(d, r, step_draft_logits(&d->step, i, n_right), &us);
            }
            d->may_assign_slots = d->may_assign_slots || r->phase == REQUEST_ENDED;
            if (r->drafting.removal == MODEL_FAILED_ALL) {
                step_invalidate_harmed(&d->step, MODEL_FAILED_ALL);
                end_invalid(d);
                return;
            }
        }
    }
}

/* Delivers events. Before that, removes ended requests from the step, because delivery may free them. */
static void deliver_step(decode *d)
{
    step_drop_ended(&d->step);
    decode_deliver(d);
}

static void sample_and_learn(decode *d)
{
    const uint64_t began_us = clock_us();
    sample(d);
    step_learn(&d->step, clock_us() - began_us);
}

/* Whether the request holds a slot without progress. Either its client does not read, or the request has not begun yet
 * and its branch has a slot but no running generation. */
static bool is_unmoving(const request *r)
{
    return request_has_slot(r) ? r->claim.is_paused
                               : r->phase == REQUEST_WAITING && r->branch != NULL && r->branch->running == NULL &&
                                     branch_has_slot(r->branch);
}

bool decode_is_among(const request *r, const request *asker, decode_among among)
{
    const bool is_of_kind = request_is_for_named(r) == request_is_for_named(asker);
    return among == AMONG_ALL || (is_of_kind && (among == AMONG_KIND || r->owner == asker->owner));
}

bool decode_park_unmoving(decode *d, const request *asker, decode_among among)
{
    for (uint32_t i = d->n_requests; d->table->options.policy == LLM_POLICY_PARK && i-- > 0;) {
        const request *r = d->requests[i];
        if (is_unmoving(r) && r->branch != asker->branch && decode_is_among(r, asker, among) &&
            table_park(d->table, r->branch)) {
            if (r->phase == REQUEST_RUNNING) {
                session_table_count(d->session_table, LLM_COUNTER_PREEMPTIONS, 1);
            }
            return true;
        }
    }
    return false;
}

/* Parks the newest generation. Called if the KV cache is full, and if no idle branch and no branch of a request without
 * progress is left to park. The generation continues when cells are free. The oldest generation always stays. If
 * generations evicted each other in turn, none would finish. */
static bool preempt_newest(decode *d)
{
    request *newest = NULL;
    uint32_t n_running = 0;
    for (uint32_t i = 0; i < d->n_requests; i++) {
        if (request_has_slot(d->requests[i])) {
            newest = d->requests[i];
            n_running++;
        }
    }
    if (d->table->options.policy != LLM_POLICY_PARK || n_running < 2 || !table_park(d->table, newest->branch)) {
        return false;
    }
    session_table_count(d->session_table, LLM_COUNTER_PREEMPTIONS, 1);
    return true;
}

static bool takes_more(const step *t, uint32_t a, uint32_t b)
{
    return t->take[a] != t->take[b] ? t->take[a] > t->take[b] : t->requests[a]->queued_us > t->requests[b]->queued_us;
}

/* Returns the request with the most tokens in the batch of the current call. If several have the most, returns the
 * newest of them. */
static request *largest_in_call(const step *t)
{
    uint32_t worst = t->n_requests;
    for (uint32_t i = 0; i < t->n_requests; i++) {
        if (t->is_called[i] && (worst == t->n_requests || takes_more(t, i, worst))) {
            worst = i;
        }
    }
    assert(worst < t->n_requests);
    return t->requests[worst];
}

/* Frees the KV cells of a branch. A named branch keeps its tokens, and its next request prefills them again. A scratch
 * branch is emptied. */
static void give_cells_back(decode *d, branch *b)
{
    if (branch_is_named(b)) {
        branch_invalidate(b);
        (void)table_park(d->table, b); /* cannot fail, because an invalid branch has no state to save */
    } else {
        table_reset_branch(d->table, b);
    }
}

/* Frees KV cells for the request with the most tokens in the batch. Parks an idle branch, else a branch whose request
 * makes no progress, else the newest generation. If no branch can be parked, the request fails and gives its cells
 * back. Thus the other requests continue. */
static void make_room(decode *d)
{
    request *r = largest_in_call(&d->step);
    branch *b = r->branch;
    if (!table_free_cells(d->table, b) && !decode_park_unmoving(d, r, AMONG_ALL) && !preempt_newest(d)) {
        drafting_drop(&r->drafting);
        decode_end_request(d, r, LLM_OUTCOME_FAILED, LLM_NO_CELLS);
        give_cells_back(d, b);
    }
}

/* Samples, and saves the checkpoints that are due. If no other request decodes, the first token after a prompt is
 * delivered before the prompt's checkpoint is copied. Otherwise the copy comes first. The step that ends a prompt is
 * usually short. So a copy in this step delays the decoding requests less than a copy in the next one. */
static void sample_and_checkpoint(decode *d, bool is_answering)
{
    if (is_answering) {
        step_checkpoint(&d->step);
    }
    sample_and_learn(d);
    if (d->step.n_due > 0) {
        deliver_step(d);
        step_checkpoint(&d->step);
    }
}

static double elapsed_us(const decode *d)
{
    return (double)(clock_us() - d->step.call_began_us);
}

/* Makes one model call, and repeats the call if cells had to be freed. `is_answering` is true if some requests of the
 * step decode. */
static void call(decode *d, unsigned parts, bool is_answering)
{
    for (;;) {
        switch (step_call(&d->step, parts)) {
        case MODEL_OK:
            d->lost_us = 0;
            sample_and_checkpoint(d, is_answering);
            return;
        case MODEL_NO_CELLS:
            if (!step_drop_drafts(&d->step)) {
                make_room(d);
            }
            break;
        case MODEL_STOPPED: d->lost_us += elapsed_us(d); return;
        case MODEL_INVALID:
        case MODEL_FAILED_BATCH:
        case MODEL_FAILED_ALL: end_invalid(d); return;
        }
    }
}

/* ---- when a model call is stopped ---- */

/* Whether a CANCEL for the request arrived since commands were last taken. Returns false if more CANCELs arrived than
 * `pushed` (decode.h) can hold. */
static bool is_cancelled(const decode *d, uint64_t id)
{
    const uint32_t n = atomic_load(&d->pushed.n_cancel);
    for (uint32_t i = d->n_cancel_taken; n - d->n_cancel_taken <= CANCELS_SEEN_MAX && i != n; i++) {
        if (atomic_load(&d->pushed.cancelled[i % CANCELS_SEEN_MAX]) == id) {
            return true;
        }
    }
    return false;
}

static double share_needed(const decode *d)
{
    uint32_t n_needed = 0;
    for (uint32_t i = 0; i < d->step.n_requests; i++) {
        n_needed += d->step.is_called[i] && !is_cancelled(d, d->step.requests[i]->id) ? d->step.take[i] : 0;
    }
    return (double)n_needed / d->step.batch.n;
}

/* Whether a request or a state waits for the disk (fetched_by_us), and the store has a result. A waiting request may
 * then be able to begin. */
static bool may_go_on_fetched(const decode *d)
{
    return d->fetched_by_us != 0 && store_has_result(d->table->store, decode_has_room(d));
}

static schedule_call call_in_hand(const decode *d)
{
    return (schedule_call){
        .elapsed_us = elapsed_us(d),
        .expected_us = step_expected_us(&d->step),
        .share_needed = share_needed(d),
        .has_newcomer = atomic_load(&d->pushed.n_generate) != d->n_generate_taken || may_go_on_fetched(d),
        .lost_us = d->lost_us,
    };
}

/* Called by the model during a call that only prefills. */
bool decode_stops(void *context)
{
    const decode *d = context;
    const schedule_call c = call_in_hand(d);
    return schedule_stops(&c);
}

/* ---- one step ---- */

/* Delivers the tokens of the decode call before the prefill call begins. Also takes commands. Thus a CANCEL applies to
 * the prefill call. */
static void deliver_between_calls(decode *d)
{
    deliver_step(d);
    decode_take_commands(d, decode_stall_budget_us(d));
}

bool decode_step(decode *d)
{
    collect_requests(d);
    if (d->step.n_requests == 0) {
        return false;
    }
    step_plan(&d->step);
    const bool decodes = step_has(&d->step, STEP_DECODE), prefills = step_has(&d->step, STEP_PREFILL);
    if (prefills) {
        decode_deliver(d); /* prompts take long, so STARTED is delivered before prefill */
    }
    if (d->model->info.mixed_calls) {
        call(d, STEP_ALL, decodes);
        return true;
    }
    if (decodes) {
        call(d, STEP_DECODE, true);
    }
    if (decodes && prefills) {
        deliver_between_calls(d);
    }
    if (prefills) {
        call(d, STEP_PREFILL, decodes);
    }
    return true;
}
