#include <assert.h>
#include <string.h>

#include "engine/decode.h"

/* ---- notices: events of no live request ---- */

bool decode_has_room(const decode *d)
{
    return d->n_notices + d->n_deferred < LLM_REQUESTS_MAX;
}

static wire_writer notice_writer(decode *d)
{
    assert(d->n_notices < d->n_notices_max);
    return wire_writer_open(d->notices[d->n_notices].bytes, WIRE_EVENT_BYTES_MAX);
}

static void notice_add(decode *d, const wire_writer *w)
{
    assert(!w->failed);
    d->notices[d->n_notices++].n_bytes = (uint32_t)wire_size(w);
}

static void refuse(decode *d, const wire_command *c, llm_status status)
{
    wire_writer w = notice_writer(d);
    wire_write_finished(&w, &(wire_finished){
                                .request = c->request,
                                .outcome = LLM_OUTCOME_REFUSED,
                                .status = status,
                                .n_prompt = (uint32_t)c->prompt.n,
                                .stop_index = -1,
                            });
    notice_add(d, &w);
    session_table_count(d->session_table, LLM_COUNTER_FINISHED_REFUSED, 1);
}

static void reply(decode *d, uint64_t request_id, llm_status status, const branch *b, uint32_t n_tokens,
                  uint32_t os_error)
{
    wire_writer w = notice_writer(d);
    wire_write_reply(&w, request_id, status, b != NULL ? b->entry : 0, n_tokens, os_error);
    notice_add(d, &w);
}

void decode_reply(decode *d, uint64_t request_id, llm_status status, const branch *b)
{
    reply(d, request_id, status, b, b != NULL ? branch_n_tokens(b) : 0, 0);
}

void decode_reply_stored(decode *d, const store_job *job, llm_status status, const branch *b)
{
    /* the reply to SAVE has the number of tokens saved; the session may hold more by now */
    const bool is_saved = job->verb == STORE_SAVE && status == LLM_OK;
    const uint32_t n_tokens = is_saved ? job->file.n_tokens : b != NULL ? branch_n_tokens(b) : 0;
    reply(d, job->request, status, b, n_tokens, status == LLM_IO ? (uint32_t)job->os_error : 0);
}

void decode_forgotten(void *context, uint32_t owner, const char *name)
{
    decode *d = context;
    wire_writer w = notice_writer(d);
    wire_write_forgotten(&w, session_name_from(owner, name));
    notice_add(d, &w);
}

/* ---- queues of waiting requests ---- */

static void queue_push(branch_claim **first, branch_claim *c)
{
    while (*first != NULL) {
        first = &(*first)->next;
    }
    *first = c;
}

static void queue_remove(branch_claim **first, branch_claim *c)
{
    while (*first != NULL && *first != c) {
        first = &(*first)->next;
    }
    if (*first != NULL) {
        *first = c->next;
    }
    c->next = NULL;
}

request *decode_find(const decode *d, uint64_t id)
{
    for (uint32_t i = 0; i < d->n_requests; i++) {
        if (d->requests[i]->id == id && d->requests[i]->phase != REQUEST_ENDED) {
            return d->requests[i];
        }
    }
    return NULL;
}

void decode_leave_queue(decode *d, request *r)
{
    if (r->phase != REQUEST_WAITING) {
        return;
    }
    if (r->branch == NULL) {
        queue_remove(&d->scratch_queue, &r->claim);
        d->n_scratch_waiting--;
    } else {
        queue_remove(&r->branch->waiting, &r->claim);
        r->branch->record.n_waiting--;
        branch_publish(r->branch);
    }
}

/* Whether the request uses the branch or, if no request uses it, is the first in the branch's queue. */
static bool is_first_of(const request *r, const branch *b)
{
    return b->running != NULL ? b->running == &r->claim : b->waiting == &r->claim;
}

static void end_request(decode *d, request *r, llm_outcome outcome, llm_status status)
{
    if (r->branch != NULL && is_first_of(r, r->branch)) {
        r->branch->parked.wait_until_us = 0; /* the time limit of the next request's wait for the disk begins when that
                                              * request begins to wait */
    }
    decode_leave_queue(d, r);
    request_end(r, outcome, status);
    d->may_assign_slots = true;
}

/* Ends a request. If the request's branch is parked, the branch's state had to stay in host memory for the request. Now
 * this state can go to disk. So states are spilled if the parked states exceed their limit (table_spill). But if
 * another state already waits for the busy store, nothing is spilled now. */
void decode_end_request(decode *d, request *r, llm_outcome outcome, llm_status status)
{
    const bool is_parked = r->branch != NULL && !branch_has_slot(r->branch);
    end_request(d, r, outcome, status);
    if (is_parked && !table_spill_waits(d->table)) {
        table_spill(d->table);
    }
}

/* Ends all requests of a branch. The caller decides what happens to the branch's parked state. */
void decode_end_session_requests(decode *d, branch *b, llm_outcome outcome, llm_status status)
{
    while (b->waiting != NULL) {
        end_request(d, request_of_claim(b->waiting), outcome, status);
    }
    if (b->running != NULL) {
        end_request(d, request_of_claim(b->running), outcome, status);
    }
}

/* ---- GENERATE ---- */

/* If the command names a parent, and the command's own session does not exist yet, opens this session as a fork of the
 * parent. */
static int fork_parent(decode *d, const wire_command *c)
{
    if (c->other.n_bytes == 0 || table_knows(d->table, c->session)) {
        return LLM_OK;
    }
    branch *parent = decode_latest(d, c->other);
    return parent != NULL ? decode_fork(d, parent, c->session) : LLM_OK;
}

/* Whether the owner may have one more busy branch. A branch is busy if a request uses it or waits for it. Also true if
 * the session already has a busy branch, because this request may wait for that branch. Checked before a branch is
 * opened for the request. */
static bool may_be_busy(const decode *d, const wire_command *c)
{
    bool may = table_may_be_busy(d->table, c->session.owner);
    branch *b = NULL;
    while (!may && (b = table_next(d->table, c->session, b)) != NULL) {
        may = !branch_is_idle(b);
    }
    return may;
}

/* Adds the request to the queue of the branch that table_admit chooses or opens for its prompt, and returns LLM_OK.
 * Otherwise returns the status with which the request is refused. */
static llm_status admit_named(decode *d, request *r, const wire_command *c)
{
    branch *b = NULL;
    int status = may_be_busy(d, c) ? fork_parent(d, c) : LLM_CAPACITY;
    if (status == LLM_OK) {
        status = table_admit(d->table, c->session, &r->claim.prompt, &b);
    }
    if (status != LLM_OK) {
        return (llm_status)status;
    }
    if (b->record.n_waiting >= LLM_SESSION_QUEUE_MAX) {
        return LLM_QUEUE_FULL;
    }
    if (branch_is_idle(b) && !table_may_be_busy(d->table, c->session.owner)) {
        return LLM_CAPACITY;
    }
    r->branch = b;
    queue_push(&b->waiting, &r->claim);
    b->record.n_waiting++;
    branch_publish(b);
    return LLM_OK;
}

static llm_status admit_scratch(decode *d, request *r)
{
    const uint32_t n_max = share_of(LLM_SCRATCH_QUEUE_MAX, atomic_load(&d->table->n_owners));
    uint32_t n_own = 0;
    for (branch_claim *other = d->scratch_queue; other != NULL; other = other->next) {
        n_own += request_of_claim(other)->owner == r->owner;
    }
    if (d->n_scratch_waiting >= LLM_SCRATCH_QUEUE_MAX || n_own >= n_max) {
        return LLM_QUEUE_FULL;
    }
    queue_push(&d->scratch_queue, &r->claim);
    d->n_scratch_waiting++;
    return LLM_OK;
}

/* Returns the id of the live request that the command's member `after` names, or 0 if the owner has no such request.
 * Only a request that arrived earlier can be found. A later request could be in the queue behind this one, and then
 * each would wait for the other. */
static uint64_t first_of(const decode *d, const wire_command *c)
{
    const request *first = c->after != 0 ? decode_find(d, c->after) : NULL;
    return first != NULL && first->owner == c->session.owner ? first->id : 0;
}

static bool has_room_for(const decode *d, uint32_t owner)
{
    uint32_t n_own = 0;
    for (uint32_t i = 0; i < d->n_requests; i++) {
        n_own += d->requests[i]->owner == owner;
    }
    return d->n_requests < LLM_REQUESTS_MAX && n_own < share_of(LLM_REQUESTS_MAX, atomic_load(&d->table->n_owners));
}

static void generate(decode *d, const wire_command *c)
{
    if (atomic_load_explicit(&d->stop_requested, memory_order_relaxed)) {
        refuse(d, c, LLM_SHUTDOWN);
        return;
    }
    if (!has_room_for(d, c->session.owner)) {
        refuse(d, c, LLM_OVERLOADED);
        return;
    }
    request *r = NULL;
    llm_status status =
        decode_find(d, c->request) != NULL ? LLM_INVALID : request_open(d->model, c, step_has_drafts(&d->step), &r);
    if (status == LLM_OK) {
        status = c->session.n_bytes > 0 ? admit_named(d, r, c) : admit_scratch(d, r);
    }
    if (status != LLM_OK) {
        request_close(r);
        refuse(d, c, status);
        return;
    }
    r->after = first_of(d, c);
    outbox_admit(&r->out, r->branch != NULL ? r->branch->entry : UINT32_MAX);
    d->requests[d->n_requests++] = r;
}

/* ---- all commands except GENERATE ---- */

static void cancel(decode *d, uint64_t id)
{
    request *r = decode_find(d, id);
    if (r != NULL) {
        decode_end_request(d, r, LLM_OUTCOME_CANCELLED, LLM_CANCELLED);
    }
}

/* Ends generations whose CANCEL is in the ring but cannot be taken yet. The time for commands (budget_us) may end
 * before the CANCEL is reached. CANCELs that were already taken are skipped, because another request may have the same
 * id by now. If the GENERATE of a request is still in the ring, too, the request ends when its CANCEL is taken. The
 * same holds if there are more CANCELs than `pushed` holds. */
static void cancel_ahead(decode *d)
{
    const int32_t n_more =
        (int32_t)(d->n_cancel_taken - d->n_cancelled); /* < 0 if CANCELs were taken before they were counted */
    const uint32_t n_ahead = n_more < 0 ? 0 : n_more < CANCELS_SEEN_MAX ? (uint32_t)n_more : CANCELS_SEEN_MAX;
    for (uint32_t i = d->n_cancel_taken - n_ahead; i != d->n_cancel_taken; i++) {
        cancel(d, atomic_load(&d->pushed.cancelled[i % CANCELS_SEEN_MAX]));
    }
}

static void pause_request(decode *d, const wire_command *c)
{
    request *r = decode_find(d, c->request);
    if (r != NULL) {
        r->claim.is_paused = c->is_on;
        /* the branch of a paused request can be parked; a resumed request may need a slot again */
        d->may_assign_slots = true;
    }
}

/* Limits on the number of commands that wait for the disk. The higher limit, REMOVALS_DUE_MAX, is for RESET and CLOSE.
 * These two commands end generations, so they are accepted even if the disk is too slow for other commands. */
enum { REPLIES_DUE_MAX = 3 * LLM_REQUESTS_MAX / 4, REMOVALS_DUE_MAX = STORE_JOBS_MAX };

static void apply_to_session(decode *d, const wire_command *c)
{
    const bool ends_requests = c->op == LLM_COMMAND_RESET || c->op == LLM_COMMAND_CLOSE;
    if (d->n_replies_due >= (ends_requests ? REMOVALS_DUE_MAX : REPLIES_DUE_MAX)) {
        decode_reply(d, c->request, LLM_OVERLOADED, NULL);
        return;
    }
    decode_session_command(d, c);
    d->may_assign_slots = true; /* the command may have freed a slot or KV cells */
}

static void apply(decode *d, const wire_command *c)
{
    switch (c->op) {
    case LLM_COMMAND_GENERATE: generate(d, c); break;
    case LLM_COMMAND_CANCEL:
        cancel(d, c->request);
        d->n_cancelled++;
        break;
    case LLM_COMMAND_PAUSE: pause_request(d, c); break;
    default: apply_to_session(d, c); break;
    }
}

void decode_take_commands(decode *d, double budget_us)
{
    uint64_t began_us = 0;
    d->n_generate_taken = atomic_load(&d->pushed.n_generate);
    d->n_cancel_taken = atomic_load(&d->pushed.n_cancel);
    cancel_ahead(d);
    while (decode_has_room(d)) {
        size_t n_bytes = 0;
        const wire_command *c = ring_peek(d->commands, &n_bytes);
        if (c == NULL) {
            return;
        }
        began_us = began_us == 0 ? clock_us() : began_us;
        d->is_unfinished = false;
        apply(d, c);
        if (!d->is_unfinished) {
            ring_release(d->commands);
        }
        if ((double)(clock_us() - began_us) > budget_us) {
            return;
        }
    }
}
