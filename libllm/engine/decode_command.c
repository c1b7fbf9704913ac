#include <assert.h>
#include <string.h>

#include "engine/decode.h"
#include "sessions/resuming.h"

/* ---- notices ---- */

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
                                .n_prompt = (uint32_t)c->n_prompt,
                                .stop_index = -1,
                            });
    notice_add(d, &w);
    page_count(d->page, LLM_COUNTER_FINISHED_REFUSED, 1);
}

void decode_reply(decode *d, uint64_t request_id, llm_status status, const session *s)
{
    wire_writer w = notice_writer(d);
    wire_write_reply(&w, request_id, status, s != NULL ? s->place : 0, s != NULL ? session_n_tokens(s) : 0);
    notice_add(d, &w);
}

void decode_reply_tokens(decode *d, uint64_t request_id, uint32_t place, uint32_t n_tokens)
{
    wire_writer w = notice_writer(d);
    wire_write_reply(&w, request_id, LLM_OK, place, n_tokens);
    notice_add(d, &w);
}

void decode_forgotten(void *context, uint32_t owner, const char *name)
{
    decode *d = context;
    wire_writer w = notice_writer(d);
    wire_write_forgotten(&w, owner, name, strlen(name));
    notice_add(d, &w);
}

/* ---- queues ---- */

static void queue_push(session_claim **first, session_claim *c)
{
    while (*first != NULL) {
        first = &(*first)->next;
    }
    *first = c;
}

static void queue_remove(session_claim **first, session_claim *c)
{
    while (*first != NULL && *first != c) {
        first = &(*first)->next;
    }
    if (*first != NULL) {
        *first = c->next;
    }
    c->next = NULL;
}

static request *find(const decode *d, uint64_t id)
{
    for (uint32_t i = 0; i < d->n_requests; i++) {
        if (d->requests[i]->id == id && d->requests[i]->phase != REQUEST_ENDED) {
            return d->requests[i];
        }
    }
    return NULL;
}

static void leave_queue(decode *d, request *r)
{
    if (r->phase != REQUEST_WAITING) {
        return;
    }
    if (r->session == NULL) {
        queue_remove(&d->scratch_queue, &r->run.claim);
        d->n_scratch_waiting--;
    } else {
        queue_remove(&r->session->waiting, &r->run.claim);
        r->session->record.n_waiting--;
        session_publish(r->session);
    }
}

static void end_request(decode *d, request *r, llm_outcome outcome, llm_status status)
{
    leave_queue(d, r);
    request_end(r, outcome, status);
    d->may_reseat = true;
}

/* What was parked under it may leave host memory now, and has to where that is over the budget: behind what waits for the
 * store already. */
void decode_end_request(decode *d, request *r, llm_outcome outcome, llm_status status)
{
    const bool is_parked = r->session != NULL && !session_is_seated(r->session);
    end_request(d, r, outcome, status);
    if (is_parked && !d->places->spill_waits) {
        places_spill(d->places);
    }
}

/* Whatever is parked of the session is the caller's. */
void decode_end_session_requests(decode *d, session *s, llm_outcome outcome, llm_status status)
{
    while (s->waiting != NULL) {
        end_request(d, request_of_claim(s->waiting), outcome, status);
    }
    if (s->running != NULL) {
        end_request(d, request_of_claim(s->running), outcome, status);
    }
}

/* ---- GENERATE ---- */

/* A session that does not exist yet begins as a fork of its parent, if it has one. */
static int fork_parent(decode *d, const wire_command *c)
{
    if (c->n_other_bytes == 0 || places_next(d->places, c->owner, c->session, c->n_session_bytes, NULL) != NULL ||
        places_dormant_find(d->places, c->owner, c->session, c->n_session_bytes) != NULL) {
        return LLM_OK;
    }
    session *parent = decode_latest(d, c->owner, c->other, c->n_other_bytes);
    const bool is_known = parent != NULL && !places_is_waking(parent); /* else only a warmth is lost */
    return is_known ? decode_fork(d, parent, c->session, c->n_session_bytes) : LLM_OK;
}

/* Whether the session may be made busy, or is: before anything is opened for it. */
static bool may_be_busy(const decode *d, const wire_command *c)
{
    bool may = places_may_be_busy(d->places, c->owner);
    session *s = NULL;
    while (!may && (s = places_next(d->places, c->owner, c->session, c->n_session_bytes, s)) != NULL) {
        may = !session_is_idle(s);
    }
    return may;
}

/* Behind the timeline it goes to, or a status that says why not. */
static llm_status admit_named(decode *d, request *r, const wire_command *c)
{
    session *s = NULL;
    int status = may_be_busy(d, c) ? fork_parent(d, c) : LLM_CAPACITY;
    if (status == LLM_OK) {
        status = places_admit(d->places, c->owner, c->session, c->n_session_bytes, &r->run.claim.prompt, &s);
    }
    if (status != LLM_OK) {
        return (llm_status)status;
    }
    if (s->record.n_waiting >= LLM_SESSION_QUEUE_MAX) {
        return LLM_QUEUE_FULL;
    }
    if (session_is_idle(s) && !places_may_be_busy(d->places, c->owner)) {
        return LLM_CAPACITY;
    }
    r->session = s;
    queue_push(&s->waiting, &r->run.claim);
    s->record.n_waiting++;
    session_publish(s);
    return LLM_OK;
}

static llm_status admit_scratch(decode *d, request *r)
{
    const uint32_t n_max = share_of(LLM_SCRATCH_QUEUE_MAX, atomic_load(&d->places->n_owners));
    uint32_t n_own = 0;
    for (session_claim *other = d->scratch_queue; other != NULL; other = other->next) {
        n_own += request_of_claim(other)->owner == r->owner;
    }
    if (d->n_scratch_waiting >= LLM_SCRATCH_QUEUE_MAX || n_own >= n_max) {
        return LLM_QUEUE_FULL;
    }
    queue_push(&d->scratch_queue, &r->run.claim);
    d->n_scratch_waiting++;
    return LLM_OK;
}

/* Who is not live when this one arrives is never waited for: whoever comes later may stand behind it in a queue. */
static uint64_t first_of(const decode *d, const wire_command *c)
{
    const request *first = c->after != 0 ? find(d, c->after) : NULL;
    return first != NULL && first->owner == c->owner ? first->id : 0;
}

static bool has_room_for(const decode *d, uint32_t owner)
{
    uint32_t n_own = 0;
    for (uint32_t i = 0; i < d->n_requests; i++) {
        n_own += d->requests[i]->owner == owner;
    }
    return d->n_requests < LLM_REQUESTS_MAX && n_own < share_of(LLM_REQUESTS_MAX, atomic_load(&d->places->n_owners));
}

static void generate(decode *d, const wire_command *c)
{
    if (atomic_load_explicit(&d->stop_asked, memory_order_relaxed)) {
        refuse(d, c, LLM_SHUTDOWN);
        return;
    }
    if (!has_room_for(d, c->owner)) {
        refuse(d, c, LLM_OVERLOADED);
        return;
    }
    request *r = NULL;
    llm_status status = find(d, c->request) != NULL ? LLM_INVALID : request_open(d->model, c, &r);
    if (status == LLM_OK) {
        status = c->n_session_bytes > 0 ? admit_named(d, r, c) : admit_scratch(d, r);
    }
    if (status != LLM_OK) {
        request_close(r);
        refuse(d, c, status);
        return;
    }
    r->after = first_of(d, c);
    outbox_admit(&r->out, r->session != NULL ? r->session->place : UINT32_MAX);
    d->requests[d->n_requests++] = r;
}

/* A generation that was parked where it is, and could go on. */
static bool has_lost_seat(const request *r)
{
    return r->phase == REQUEST_RUNNING && !r->run.claim.is_paused && !session_is_seated(r->session);
}

static void count_overtaken(decode *d)
{
    for (uint32_t i = 0; i < d->n_requests; i++) {
        d->requests[i]->n_overtaken += has_lost_seat(d->requests[i]);
    }
}

static void begin(decode *d, request *r, session *s)
{
    leave_queue(d, r);
    count_overtaken(d);
    const float *kept = request_begin(r, d->places, s);
    places_used(d->places, s);
    page_count(d->page, (llm_counter)(LLM_COUNTER_STARTED_NEW + r->run.plan.reason), 1);
    page_count(d->page, LLM_COUNTER_REUSED_TOKENS, r->run.plan.n_keep);
    if (kept != NULL) {
        memcpy(d->logits, kept, d->model->info.n_vocab * sizeof *d->logits);
        request_sample(r, d->model, d->sampling, d->logits);
        d->may_reseat = true; /* without a step: who comes after it may begin, or, if it ended, have its seat */
    }
}

/* ---- seats ---- */

/* Cells that come free are often enough for one that begins and too few for one that goes on: so many may begin before it.
 * Then whoever has not begun waits for it. */
enum { OVERTAKEN_MAX = 8 };

/* Who asks for a seat, and how many of that kind its owner's generations have. */
typedef struct turn {
    request *r;
    bool is_asked;
    bool named;
    uint32_t n_seated;
} turn;

/* Of that owner and kind. `read`: only those that are. */
static uint32_t n_seated(const decode *d, uint32_t owner, bool named, bool read)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n_requests; i++) {
        const request *r = d->requests[i];
        n += r->owner == owner && request_is_for_named(r) == named && (read ? request_moves(r) : request_is_seated(r));
    }
    return n;
}

/* The one whose prompt it shares has not consumed it yet, but will: it does not wait for a seat that this one may have. */
static bool is_too_early(const decode *d, const request *r)
{
    const request *first = r->after != 0 ? find(d, r->after) : NULL;
    const bool holds_seat = r->session != NULL && session_is_seated(r->session);
    const bool would_wait = holds_seat && first != NULL && first->phase == REQUEST_WAITING && first->waits_for_seat;
    return first != NULL && !first->run.is_decoding && !would_wait;
}

/* The KV cache has room for it and its next token beside those that go on, of the first n in order of arrival. */
static bool fits_beside(const decode *d, const request *r, uint32_t n)
{
    const model *m = d->model;
    uint32_t n_counted = 1;
    uint64_t n_bytes = m->ops->sequence_bytes(m, session_n_tokens(r->session) + 1);
    for (uint32_t i = 0; i < n; i++) {
        if (request_moves(d->requests[i])) {
            n_bytes += m->ops->sequence_bytes(m, session_n_tokens(d->requests[i]->session));
            n_counted++;
        }
    }
    const uint32_t n_empty = n_counted < m->info.n_seq ? m->info.n_seq - n_counted : 0;
    return n_bytes + n_empty * m->ops->sequence_bytes(m, 0) <= m->info.state_bytes;
}

static uint32_t seats_max(const decode *d, bool named)
{
    const places_options *o = &d->places->options;
    return share_of(named ? o->n_named : o->n_scratch, atomic_load(&d->places->n_owners));
}

/* Its owner has all the seats it may have; `read`: with generations that are. */
static bool is_at_share(const decode *d, const request *r, bool read)
{
    const bool named = request_is_for_named(r);
    return n_seated(d, r->owner, named, read) >= seats_max(d, named);
}

/* For one that has been overtaken often enough, and that lacks what those took who came after it. */
static bool do_newcomers_wait(const decode *d)
{
    for (uint32_t i = 0; i < d->n_requests; i++) {
        const request *r = d->requests[i];
        if (has_lost_seat(r) && r->n_overtaken >= OVERTAKEN_MAX && fits_beside(d, r, i) && !is_at_share(d, r, true)) {
            return true;
        }
    }
    return false;
}

/* What may go on once it has a seat: it waits for any scratch session, is the first that waits for its own, or was parked
 * under its request (decode_step.c) and is read. */
static bool wants_seat(const request *r, bool may_reseat, bool has_scratch)
{
    switch (r->phase) {
    case REQUEST_WAITING:
        if (r->run.claim.is_early || (r->waits_for_seat && !may_reseat)) {
            return false;
        }
        return r->session == NULL ? has_scratch : r->session->running == NULL && r->session->waiting == &r->run.claim;
    case REQUEST_RUNNING: return may_reseat && has_lost_seat(r);
    case REQUEST_ENDED: break;
    }
    return false;
}

static uint32_t collect_turns(decode *d, turn *out)
{
    const bool may_reseat = d->may_reseat;
    const bool has_scratch = d->n_scratch_waiting > 0 && places_has_scratch(d->places);
    const bool newcomers_wait = do_newcomers_wait(d);
    uint32_t n = 0;
    d->may_reseat = false;
    for (uint32_t i = 0; i < d->n_requests; i++) {
        request *r = d->requests[i];
        r->run.claim.is_early = is_too_early(d, r);
        if (!wants_seat(r, may_reseat, has_scratch)) {
            continue;
        }
        if (newcomers_wait && r->phase == REQUEST_WAITING) {
            r->waits_for_seat = true;
        } else {
            const bool named = request_is_for_named(r);
            out[n++] = (turn){.r = r, .named = named, .n_seated = n_seated(d, r->owner, named, false)};
        }
    }
    return n;
}

/* The next to be asked: of the owner with the fewest seats, within its share of them, who has waited longest. NULL: no
 * more. */
static request *next_turn(const decode *d, turn *turns, uint32_t n)
{
    turn *best = NULL;
    for (uint32_t i = 0; i < n; i++) {
        turn *t = &turns[i];
        if (!t->is_asked && t->n_seated < seats_max(d, t->named) && (best == NULL || t->n_seated < best->n_seated)) {
            best = t;
        }
    }
    if (best == NULL) {
        return NULL;
    }
    best->is_asked = true;
    return best->r;
}

static void count_seat(turn *turns, uint32_t n, const request *seated)
{
    for (uint32_t i = 0; i < n; i++) {
        turns[i].n_seated += turns[i].r->owner == seated->owner && turns[i].named == request_is_for_named(seated);
    }
}

static bool does_any_move(const decode *d, const request *asker, decode_among among)
{
    for (uint32_t i = 0; i < d->n_requests; i++) {
        if (request_moves(d->requests[i]) && decode_is_among(d->requests[i], asker, among)) {
            return true;
        }
    }
    return false;
}

/* Who may have what it lacks: a seat of its owner's share, one of its kind, or cells. */
static decode_among holders_of(const decode *d, const request *r)
{
    return is_at_share(d, r, false)                      ? AMONG_OWNER_AND_KIND
           : places_has_free_seat(d->places, r->session) ? AMONG_ALL
                                                         : AMONG_KIND;
}

/* One that does not move is parked where that can be of use: for who has begun; for others if nobody moves who will give up
 * what they lack, or all would wait for each other. Whatever the copy takes, the others have a step before the next. */
static bool make_way(decode *d, const request *r)
{
    const session *s = r->session;
    if (s == NULL || s->parked.where == PARKED_READING || places_has_in_flight(d->places)) {
        return false;
    }
    const decode_among among = holders_of(d, r);
    const bool is_of_use = r->phase == REQUEST_RUNNING ? fits_beside(d, r, d->n_requests) : !does_any_move(d, r, among);
    return is_of_use && decode_park_unmoving(d, r, among);
}

static void go_on(decode *d, request *r)
{
    r->n_overtaken = 0;
    d->may_reseat = true;                             /* whoever has waited for it may begin */
    if (r->session->record.state == LLM_STATE_TORN) { /* before it could spoil a step of others */
        decode_end_request(d, r, LLM_OUTCOME_FAILED, LLM_STEP_FAILED);
    }
}

/* It has a seat, and what it can begin with is on its way from the disk. */
static bool is_fetching(decode *d, request *r, const session *s)
{
    if (!r->has_fetched && !r->is_cold) {
        r->has_fetched = true;
        r->fetching = resuming_fetch(d->places, s, &r->run.claim.prompt);
    }
    return r->fetching != 0 && places_is_reading(d->places, r->fetching);
}

/* Begins, goes on, waits, or ends: what nothing in progress can ever seat is not left to wait. */
static void ask_for_seat(decode *d, request *r)
{
    session *s = r->session;
    if (s == NULL) {
        s = places_scratch(d->places, r->owner, &r->run.claim.prompt);
    }
    const bool begins = r->phase == REQUEST_WAITING;
    seating found = s != NULL ? places_seat(d->places, s) : SEAT_LATER;
    if (found != SEATED && s != NULL && !session_is_named(s) && begins && s->parked.state != NULL) {
        session_reset(s); /* a seat without cells is sooner had, and nobody counts on what it held */
        found = places_seat(d->places, s);
    }
    if (found == SEATED && begins && is_fetching(d, r, s)) {
        found = SEAT_LATER;
    }
    switch (found) {
    case SEATED:
        if (begins) {
            begin(d, r, s);
        } else {
            go_on(d, r);
        }
        break;
    case SEAT_LATER:
        /* Once more at once: who was counted on may have its seat by now. */
        d->may_reseat = d->may_reseat || (begins && !r->waits_for_seat);
        r->waits_for_seat = begins;
        break;
    case SEAT_NEVER: decode_end_request(d, r, LLM_OUTCOME_FAILED, LLM_CAPACITY); break;
    case SEAT_NO_CELLS: decode_end_request(d, r, LLM_OUTCOME_FAILED, LLM_NO_CELLS); break;
    }
}

/* Of those that still have no seat. One whose owner has its share may be kept by others of it. */
static void make_way_for_one(decode *d, const turn *turns, uint32_t n)
{
    bool is_made = false;
    for (uint32_t i = 0; i < n && !is_made; i++) {
        const request *r = turns[i].r;
        is_made = (has_lost_seat(r) || r->phase == REQUEST_WAITING) && make_way(d, r);
    }
    d->may_reseat = d->may_reseat || is_made;
}

static uint32_t n_decoding(const decode *d)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n_requests; i++) {
        const request *r = d->requests[i];
        n += r->phase == REQUEST_RUNNING && r->run.is_decoding && !r->run.claim.is_paused;
    }
    return n;
}

static void start_waiting(decode *d)
{
    const uint64_t began_us = session_clock_us();
    const double patience_us = schedule_patience_us(&d->step.pace, d->step.gap_ms_target, n_decoding(d));
    d->places->patience_us = patience_us;
    turn turns[LLM_REQUESTS_MAX];
    const uint32_t n = collect_turns(d, turns);
    request *r;
    while ((r = next_turn(d, turns, n)) != NULL) {
        ask_for_seat(d, r);
        if (r->phase != REQUEST_ENDED && r->session != NULL && r->session->seat != SESSION_NO_SEAT) {
            count_seat(turns, n, r);
        }
        if ((double)(session_clock_us() - began_us) > patience_us) { /* by copying states: the others after a step */
            d->may_reseat = true;
            return;
        }
    }
    make_way_for_one(d, turns, n);
}

void decode_start_waiting(decode *d)
{
    start_waiting(d);
    const bool waited = d->places->spill_waits;
    places_spill_on(d->places);
    d->may_reseat = d->may_reseat || (waited && !d->places->spill_waits);
}

/* ---- the other commands ---- */

static void cancel(decode *d, const wire_command *c)
{
    request *r = find(d, c->request);
    if (r != NULL) {
        decode_end_request(d, r, LLM_OUTCOME_CANCELLED, LLM_CANCELLED);
    }
}

static void pause_request(decode *d, const wire_command *c)
{
    request *r = find(d, c->request);
    if (r != NULL) {
        r->run.claim.is_paused = c->is_on;
        d->may_reseat = true; /* it need not be waited for, may make way, or wants a seat again */
    }
}

/* Of the notices that there is room for, so many may wait for the disk: requests and their ends never do. */
enum { REPLIES_DUE_MAX = 3 * LLM_REQUESTS_MAX / 4 };

static void apply_to_session(decode *d, const wire_command *c)
{
    if (d->n_replies_due >= REPLIES_DUE_MAX) {
        decode_reply(d, c->request, LLM_OVERLOADED, NULL);
        return;
    }
    decode_session_command(d, c);
    d->may_reseat = true; /* it may have freed a seat, or cells */
}

static void apply(decode *d, const wire_command *c)
{
    switch (c->op) {
    case LLM_COMMAND_GENERATE: generate(d, c); break;
    case LLM_COMMAND_CANCEL: cancel(d, c); break;
    case LLM_COMMAND_PAUSE: pause_request(d, c); break;
    default: apply_to_session(d, c); break;
    }
}

void decode_take_commands(decode *d)
{
    d->taken_generate = atomic_load(&d->pushed.n_generate);
    d->taken_cancel = atomic_load(&d->pushed.n_cancel);
    /* Each command needs room for at most one notice, now or when the store is done: when there is none, it waits in
     * the ring. */
    while (d->n_notices + d->n_replies_due < LLM_REQUESTS_MAX) {
        size_t n_bytes = 0;
        const void *message = ring_peek(d->commands, &n_bytes);
        if (message == NULL) {
            return;
        }
        wire_command c;
        if (wire_command_read(message, n_bytes, &c, NULL) == LLM_OK) {
            apply(d, &c);
        } else {
            page_count(d->page, LLM_COUNTER_COMMANDS_REFUSED, 1);
        }
        ring_release(d->commands);
    }
}
