#include <assert.h>
#include <stdio.h>

#include "engine/decode.h"
#include "machine/last_words.h"

/* Which part of the step a model call covers. */
typedef enum call_part { CALL_DECODE = 1, CALL_PREFILL = 2 } call_part;

static bool can_run(const request *r)
{
    return (r->phase == REQUEST_PREFILL || r->phase == REQUEST_DECODE) && r->session->seat != SESSION_NO_SEAT &&
           !r->paused && !request_is_stalled(r);
}

/* In the order of their seats: where sequences have cells of their own, neighbours go through the model in one pass. */
static void collect_runs(decode *d)
{
    d->n_runs = 0;
    for (uint32_t i = 0; i < d->n_requests; i++) {
        request *r = d->requests[i];
        if (!can_run(r)) {
            continue;
        }
        uint32_t at = d->n_runs++;
        while (at > 0 && d->runs[at - 1]->session->seat > r->session->seat) {
            d->runs[at] = d->runs[at - 1];
            at--;
        }
        d->runs[at] = r;
    }
}

static void schedule_runs(decode *d)
{
    uint32_t prefill_left[LLM_SEQUENCES_MAX];
    for (uint32_t i = 0; i < d->n_runs; i++) {
        prefill_left[i] = request_prefill_left(d->runs[i]);
    }
    schedule_step(
        &(schedule_input){
            .n_runs = d->n_runs,
            .prefill_left = prefill_left,
            .n_batch = d->model->info.n_batch,
            .mixed_calls = d->model->info.mixed_calls,
            .turn = d->turn++,
            .gap_ms_target = d->gap_ms_target,
            .pace = d->pace,
        },
        d->take);
}

static void add_tokens(decode *d, uint32_t run)
{
    request *r = d->runs[run];
    const uint32_t at = session_n_tokens(r->session);
    const bool decoding = r->phase == REQUEST_DECODE;
    uint32_t n = d->batch.n;
    for (uint32_t i = 0; i < d->take[run]; i++, n++) {
        d->tokens[n] = decoding ? r->next_token : r->prompt[at + i];
        d->positions[n] = (int32_t)(at + i);
        d->seqs[n] = (uint16_t)r->session->seat;
        d->outputs[n] = 0;
    }
    d->output_at[run] = n - 1;
    d->outputs[n - 1] = decoding || at + d->take[run] == r->n_prompt;
    d->batch.n = n;
}

/* Collects the tokens of the runs that are still alive and belong to this part. */
static void build_call(decode *d, unsigned parts)
{
    d->batch.n = 0;
    for (uint32_t i = 0; i < d->n_runs; i++) {
        const request *r = d->runs[i];
        const call_part part = r->phase == REQUEST_DECODE ? CALL_DECODE : CALL_PREFILL;
        d->is_called[i] = d->take[i] > 0 && can_run(r) && (parts & part) != 0;
        if (d->is_called[i]) {
            add_tokens(d, i);
        }
    }
}

/* For the log, should the call end the process. */
static void name_sessions(const void *work, char *out, size_t n_bytes)
{
    const decode *d = work;
    size_t at = 0;
    for (uint32_t i = 0; i < d->n_runs && at < n_bytes; i++) {
        if (d->is_called[i]) {
            const session *s = d->runs[i]->session;
            const int n =
                snprintf(out + at, n_bytes - at, "%ssession %s (owner %u, %u tokens)", at > 0 ? ", " : "",
                         s->name[0] != '\0' ? s->name : "scratch", (unsigned)s->owner, (unsigned)session_n_tokens(s));
            at += (size_t)n;
        }
    }
}

static model_result call_model(decode *d)
{
    uint32_t n_decode = 0;
    for (uint32_t i = 0; i < d->n_runs; i++) {
        n_decode += d->is_called[i] && d->runs[i]->phase == REQUEST_DECODE;
    }
    page_gauge(d->page, LLM_COUNTER_IN_STEP, 1);
    last_words_working(name_sessions, d);
    const uint64_t begin_us = session_clock_us();
    const model_result result = d->model->ops->decode(d->model, &d->batch);
    const uint64_t us = session_clock_us() - begin_us;
    last_words_working(NULL, NULL);
    page_gauge(d->page, LLM_COUNTER_IN_STEP, 0);

    page_count(d->page, LLM_COUNTER_STEPS, 1);
    page_count(d->page, LLM_COUNTER_STEP_US, us);
    if (result == MODEL_OK) {
        schedule_learn(&d->pace, d->batch.n - n_decode, n_decode, (double)us);
        page_count(d->page, LLM_COUNTER_PREFILL_TOKENS, d->batch.n - n_decode);
    }
    return result;
}

/* The call succeeded: the sessions hold its tokens, and whoever has logits gets its next token. */
static void advance_runs(decode *d)
{
    for (uint32_t i = 0; i < d->n_runs; i++) {
        if (d->is_called[i]) {
            const uint32_t first = d->output_at[i] + 1 - d->take[i];
            session_consumed(d->runs[i]->session, d->tokens + first, d->take[i]);
        }
    }
    for (uint32_t i = 0; i < d->n_runs; i++) {
        if (!d->is_called[i]) {
            continue;
        }
        const bool output = d->outputs[d->output_at[i]];
        float *logits = output ? d->model->ops->logits(d->model, d->output_at[i]) : NULL;
        request_consumed(d->runs[i], logits, d->checkpoint_every);
        if (output) {
            request_advance(d->runs[i], d->model, logits);
            d->may_reseat = d->may_reseat || d->runs[i]->phase == REQUEST_ENDED;
        }
    }
}

/* The KV cache is full and nobody idle can go: with others running, the newest generation is parked where it is and goes
 * on when cells are free again. The oldest one always stays, so that there is progress. */
static bool preempt_newest(decode *d)
{
    request *newest = NULL;
    uint32_t n_running = 0;
    for (uint32_t i = 0; i < d->n_requests; i++) {
        request *r = d->requests[i];
        if ((r->phase == REQUEST_PREFILL || r->phase == REQUEST_DECODE) && r->session->seat != SESSION_NO_SEAT) {
            newest = r;
            n_running++;
        }
    }
    if (d->places->options.policy != LLM_POLICY_PARK || n_running < 2 || !places_park(d->places, newest->session)) {
        return false;
    }
    page_count(d->page, LLM_COUNTER_PREEMPTIONS, 1);
    return true;
}

static bool is_hungrier(const decode *d, uint32_t a, uint32_t b)
{
    return d->take[a] != d->take[b] ? d->take[a] > d->take[b] : d->runs[a]->queued_us > d->runs[b]->queued_us;
}

/* The run of the call in hand that wants most, the newest of equals. */
static request *hungriest(const decode *d)
{
    uint32_t worst = d->n_runs;
    for (uint32_t i = 0; i < d->n_runs; i++) {
        if (d->is_called[i] && (worst == d->n_runs || is_hungrier(d, i, worst))) {
            worst = i;
        }
    }
    assert(worst < d->n_runs);
    return d->runs[worst];
}

/* The KV cache is full: who is idle makes way, or else the newest generation waits, or else the hungriest run fails and
 * gives its cells back, so that the others go on. */
static void make_room(decode *d)
{
    request *r = hungriest(d);
    session *s = r->session;
    if (!places_free_cells(d->places, s) && !preempt_newest(d)) {
        decode_end_request(d, r, LLM_OUTCOME_FAILED, LLM_NO_CELLS);
        places_reset_session(d->places, s);
    }
}

static void tear(decode *d, session *s)
{
    session_tear(s);
    if (s->running != NULL) {
        decode_end_request(d, s->running, LLM_OUTCOME_FAILED, LLM_STEP_FAILED);
    }
}

static void fail_call(decode *d, model_result result)
{
    page_count(d->page, LLM_COUNTER_STEPS_FAILED, 1);
    for (uint32_t i = 0; i < d->n_runs; i++) {
        if (d->is_called[i]) {
            tear(d, d->runs[i]->session);
        }
    }
    if (result != MODEL_FAILED_ALL) {
        return;
    }
    for (uint32_t i = 0; i < d->places->n_slots; i++) {
        session *s = &d->places->sessions[i];
        if (s->is_open && s->seat != SESSION_NO_SEAT && session_n_tokens(s) > 0) {
            tear(d, s);
        }
    }
}

static void run_call(decode *d, unsigned parts)
{
    for (;;) {
        build_call(d, parts);
        if (d->batch.n == 0) {
            return;
        }
        const model_result result = call_model(d);
        switch (result) {
        case MODEL_OK: advance_runs(d); return;
        case MODEL_NO_CELLS: make_room(d); break;
        case MODEL_INVALID:
        case MODEL_FAILED_BATCH:
        case MODEL_FAILED_ALL: fail_call(d, result); return;
        }
    }
}

bool decode_step(decode *d)
{
    collect_runs(d);
    if (d->n_runs == 0) {
        return false;
    }
    schedule_runs(d);
    if (d->model->info.mixed_calls) {
        run_call(d, CALL_DECODE | CALL_PREFILL);
    } else {
        run_call(d, CALL_DECODE);
        run_call(d, CALL_PREFILL);
    }
    return true;
}
