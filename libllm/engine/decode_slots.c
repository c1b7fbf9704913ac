/* decode_slots.c: gives slots to waiting requests in turn, and starts or continues these requests. */
#include <string.h>

#include "engine/decode.h"
#include "sessions/resuming.h"

/* Whether the request's generation has begun and lost its slot, and would continue if it got a slot. */
static bool has_lost_slot(const request *r)
{
    return r->phase == REQUEST_RUNNING && !r->claim.is_paused && !branch_has_slot(r->branch);
}

static void count_overtaken(decode *d)
{
    for (uint32_t i = 0; i < d->n_requests; i++) {
        d->requests[i]->n_overtaken += has_lost_slot(d->requests[i]);
    }
}

static void begin(decode *d, request *r, branch *b)
{
    decode_leave_queue(d, r);
    count_overtaken(d);
    const float *kept = request_begin(r, d->table, b);
    table_used(d->table, b);
    session_table_count(d->session_table, (llm_counter)(LLM_COUNTER_STARTED_NEW + r->plan.reason), 1);
    session_table_count(d->session_table, LLM_COUNTER_REUSED_TOKENS, r->plan.n_keep);
    if (kept != NULL) {
        memcpy(d->logits, kept, d->model->info.n_vocab * sizeof *d->logits);
        request_sample(r, d->model, d->sampling, d->logits, true);
        /* the request needs no step to consume its prompt, so slots are assigned again at once. Other requests may wait
         * until this prompt is consumed (`after`). If this request has ended, others may wait for its slot */
        d->may_assign_slots = true;
    }
}

/* ---- the order in which requests get slots ---- */

/* Freed cells are often enough for a new request, but too few for a generation that lost its slot. So such a generation
 * could wait for ever. Therefore only OVERTAKEN_MAX requests may begin while the generation waits. After that, new
 * requests wait until it continues. */
enum { OVERTAKEN_MAX = 8 };

/* A request that needs a slot. n_with_slot is the number of slots that requests of the same owner already have. Only
 * slots of the kind that the request needs count: slots for named branches or slots for scratch branches. */
typedef struct turn {
    request *r;
    bool is_tried;
    bool named;
    uint32_t n_with_slot;
} turn;

/* Counts the slots that the owner's requests have. With `named`, counts slots for named branches, else slots for
 * scratch branches. With `read`, counts only the slots of requests that make progress. */
static uint32_t n_with_slot(const decode *d, uint32_t owner, bool named, bool read)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n_requests; i++) {
        const request *r = d->requests[i];
        n += r->owner == owner && request_is_for_named(r) == named && (read ? request_moves(r) : request_has_slot(r));
    }
    return n;
}

/* Whether the request must wait until an earlier request (`after`) has consumed its prompt. Both prompts share a
 * prefix, which is then prefilled only once. Exception: the request does not wait if it holds a slot and the earlier
 * request waits for a slot. Otherwise each would wait for the other. */
static bool is_too_early(const decode *d, const request *r)
{
    const request *first = r->after != 0 ? decode_find(d, r->after) : NULL;
    const bool holds_slot = r->branch != NULL && branch_has_slot(r->branch);
    const bool would_wait = holds_slot && first != NULL && first->phase == REQUEST_WAITING && first->waits_for_slot;
    return first != NULL && !first->is_decoding && !would_wait;
}

/* Whether the KV cache has room for the tokens of request `r`, for one more token, and for the tokens of other
 * requests. Of the other requests, counts only those that make progress and are among the first n to arrive. */
static bool fits_with_requests(const decode *d, const request *r, uint32_t n)
{
    const model *m = d->model;
    uint32_t n_counted = 1;
    uint64_t n_bytes = m->ops->sequence_bytes(m, branch_n_tokens(r->branch) + 1);
    for (uint32_t i = 0; i < n; i++) {
        if (request_moves(d->requests[i])) {
            n_bytes += m->ops->sequence_bytes(m, branch_n_tokens(d->requests[i]->branch));
            n_counted++;
        }
    }
    const uint32_t n_empty = n_counted < m->info.n_seq ? m->info.n_seq - n_counted : 0;
    return n_bytes + n_empty * m->ops->sequence_bytes(m, 0) <= m->info.state_bytes;
}

static uint32_t slots_max(const decode *d, bool named)
{
    const branch_table_options *o = &d->table->options;
    return share_of(named ? o->n_named : o->n_scratch, atomic_load(&d->table->n_owners));
}

/* Whether the owner of `r` has its whole share of slots. With `read`, only the slots of requests that make progress
 * count. */
static bool is_at_share(const decode *d, const request *r, bool read)
{
    const bool named = request_is_for_named(r);
    return n_with_slot(d, r->owner, named, read) >= slots_max(d, named);
}

/* Whether new requests must wait for a generation that lost its slot. They wait if OVERTAKEN_MAX requests have begun
 * since the generation lost its slot, and if the generation could now continue. To continue, the generation needs room
 * in the KV cache next to the requests that arrived before it. Its owner must also have slots left in its share. */
static bool do_newcomers_wait(const decode *d)
{
    for (uint32_t i = 0; i < d->n_requests; i++) {
        const request *r = d->requests[i];
        if (has_lost_slot(r) && r->n_overtaken >= OVERTAKEN_MAX && fits_with_requests(d, r, i) &&
            !is_at_share(d, r, true)) {
            return true;
        }
    }
    return false;
}

/* Whether the request could begin or continue if it got a slot. True for three kinds of requests:
 * - A request that waits for any scratch branch.
 * - The first request in the queue of a branch that no request uses.
 * - A request that has lost its slot (decode_step.c) and whose client reads. */
static bool needs_slot(const request *r, bool may_assign_slots, bool has_scratch)
{
    switch (r->phase) {
    case REQUEST_WAITING:
        if (r->claim.is_early || (r->waits_for_slot && !may_assign_slots)) {
            return false;
        }
        return r->branch == NULL ? has_scratch : r->branch->running == NULL && r->branch->waiting == &r->claim;
    case REQUEST_RUNNING: return may_assign_slots && has_lost_slot(r);
    case REQUEST_ENDED: break;
    }
    return false;
}

static uint32_t collect_turns(decode *d, turn *out)
{
    const bool may_assign_slots = d->may_assign_slots;
    const bool has_scratch = d->n_scratch_waiting > 0 && table_has_scratch(d->table);
    const bool newcomers_wait = do_newcomers_wait(d);
    uint32_t n = 0;
    d->may_assign_slots = false;
    for (uint32_t i = 0; i < d->n_requests; i++) {
        request *r = d->requests[i];
        r->claim.is_early = is_too_early(d, r) || decode_waits_for_leader(d, r);
        if (!needs_slot(r, may_assign_slots, has_scratch)) {
            continue;
        }
        if (newcomers_wait && r->phase == REQUEST_WAITING) {
            r->waits_for_slot = true;
        } else {
            const bool named = request_is_for_named(r);
            out[n++] = (turn){.r = r, .named = named, .n_with_slot = n_with_slot(d, r->owner, named, false)};
        }
    }
    return n;
}

/* Returns the request to try next, or NULL if none is left to try. Owners who have their whole share of slots are left
 * out. Of the other owners, the one with the fewest slots is next. Of this owner's requests, the first to arrive is
 * next. */
static request *next_turn(const decode *d, turn *turns, uint32_t n)
{
    turn *best = NULL;
    for (uint32_t i = 0; i < n; i++) {
        turn *t = &turns[i];
        if (!t->is_tried && t->n_with_slot < slots_max(d, t->named) &&
            (best == NULL || t->n_with_slot < best->n_with_slot)) {
            best = t;
        }
    }
    if (best == NULL) {
        return NULL;
    }
    best->is_tried = true;
    return best->r;
}

static void count_slot(turn *turns, uint32_t n, const request *served)
{
    for (uint32_t i = 0; i < n; i++) {
        turns[i].n_with_slot += turns[i].r->owner == served->owner && turns[i].named == request_is_for_named(served);
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

/* Returns which requests hold the resource that `r` lacks. The resource is a slot of its owner's share, a slot of the
 * kind that `r` needs (named or scratch), or KV cells. */
static decode_among holders_of(const decode *d, const request *r)
{
    return is_at_share(d, r, false)                   ? AMONG_OWNER_AND_KIND
           : table_has_free_slot(d->table, r->branch) ? AMONG_ALL
                                                      : AMONG_KIND;
}

/* Parks the branch of a request that holds a slot without progress. Does so only if parking helps `r`. If `r` has
 * begun, parking helps if the freed KV cells are enough for `r`. If `r` is new, other requests may hold the resource
 * that `r` lacks (holders_of). As long as one of these requests makes progress, nothing is parked: it will free the
 * resource. If none of them makes progress, all could wait for each other, so the branch of one of them is parked. Only
 * one branch is parked before the next step. Thus decoding sessions wait for one copy at most. */
static bool make_way(decode *d, const request *r)
{
    const branch *b = r->branch;
    if (b == NULL || b->parked.where == PARKED_READING ||
        (table_has_in_flight(d->table) && !table_gives_up_jobs(d->table, b))) {
        return false;
    }
    const decode_among among = holders_of(d, r);
    const bool is_of_use =
        r->phase == REQUEST_RUNNING ? fits_with_requests(d, r, d->n_requests) : !does_any_move(d, r, among);
    return is_of_use && decode_park_unmoving(d, r, among);
}

static void go_on(decode *d, request *r)
{
    r->n_overtaken = 0;
    d->may_assign_slots = true;                      /* new requests that waited because `r` had no slot may begin */
    if (r->branch->record.state == LLM_STATE_TORN) { /* a step with this branch would fail other requests, too */
        decode_end_request(d, r, LLM_OUTCOME_FAILED, LLM_STEP_FAILED);
    }
}

/* Whether the request waits for a state that is being read from disk for its prompt. The first call for a request
 * begins to read such a state if that saves time (resuming_fetch). The request has a slot. */
static bool is_fetching(decode *d, request *r, const branch *b)
{
    if (!r->has_fetched && !r->is_cold) {
        const fetch f = resuming_fetch(d->table, b, &r->claim.prompt);
        r->has_fetched = true;
        r->fetching = f.reading;
        r->fetched_by_us = clock_us() + (uint64_t)f.wait_us_max;
    }
    if (r->fetching != 0 && (!table_is_reading(d->table, r->fetching) || clock_us() >= r->fetched_by_us)) {
        r->fetching = 0;
    }
    return r->fetching != 0;
}

/* Asks for a slot, and starts, continues, delays or ends the request. The request ends if nothing in progress can ever
 * free a slot. A request that waits for the prefill of another request asks for no slot yet. */
static void ask_for_slot(decode *d, request *r)
{
    if (decode_finds_leader(d, r)) {
        return;
    }
    branch *b = r->branch;
    if (b == NULL) {
        b = table_scratch(d->table, r->owner, &r->claim.prompt);
    }
    const bool begins = r->phase == REQUEST_WAITING;
    slot_result result = b != NULL ? table_take_slot(d->table, b) : SLOT_LATER;
    if (result != SLOT_READY && b != NULL && !branch_is_named(b) && begins && b->parked.state != NULL) {
        /* empty the scratch branch. An empty branch gets a slot sooner than a branch that needs cells. Clients do not
         * rely on scratch state */
        branch_reset(b);
        result = table_take_slot(d->table, b);
    }
    if (result == SLOT_READY && begins && is_fetching(d, r, b)) {
        result = SLOT_LATER;
    }
    switch (result) {
    case SLOT_READY:
        if (begins) {
            begin(d, r, b);
        } else {
            go_on(d, r);
        }
        break;
    case SLOT_LATER:
        /* A new request that gets no slot at its first attempt tries once more in the next loop. At the first attempt,
         * a slot may have been kept free for another branch (table_may_take_slot). This branch may have a slot by
         * then. */
        d->may_assign_slots = d->may_assign_slots || (begins && !r->waits_for_slot);
        r->waits_for_slot = begins;
        break;
    case SLOT_NEVER: decode_end_request(d, r, LLM_OUTCOME_FAILED, LLM_CAPACITY); break;
    case SLOT_NO_CELLS: decode_end_request(d, r, LLM_OUTCOME_FAILED, LLM_NO_CELLS); break;
    }
}

/* Frees a slot for the first request that still has none, but at most one slot per loop of the decode thread. Also
 * considers requests whose owners have their whole share, because another request of the same owner may hold a slot
 * without progress. */
static void make_way_for_one(decode *d, const turn *turns, uint32_t n)
{
    bool is_made = false;
    for (uint32_t i = 0; i < n && !is_made; i++) {
        const request *r = turns[i].r;
        const bool is_new = r->phase == REQUEST_WAITING && !r->claim.is_early;
        is_made = (has_lost_slot(r) || is_new) && make_way(d, r);
    }
    d->may_assign_slots = d->may_assign_slots || is_made;
}

static uint32_t n_decoding(const decode *d)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n_requests; i++) {
        const request *r = d->requests[i];
        n += r->phase == REQUEST_RUNNING && r->is_decoding && !r->claim.is_paused;
    }
    return n;
}

double decode_stall_budget_us(const decode *d)
{
    return schedule_stall_budget_us(&d->step.pace, d->step.gap_ms_target, n_decoding(d));
}

/* Lets waiting requests ask for slots, in turn, until the stall budget is used up. Returns false if some requests had
 * no turn yet. */
static bool start_waiting(decode *d)
{
    turn turns[LLM_REQUESTS_MAX];
    const uint32_t n = collect_turns(d, turns);
    if (n == 0) {
        return true;
    }
    const uint64_t began_us = clock_us();
    const double stall_budget_us = decode_stall_budget_us(d);
    table_allow_copies(d->table, stall_budget_us);
    request *r;
    while ((r = next_turn(d, turns, n)) != NULL) {
        ask_for_slot(d, r);
        const bool waits = r->phase == REQUEST_WAITING && r->claim.is_early;
        if (r->phase != REQUEST_ENDED && !waits && r->branch != NULL && r->branch->slot != BRANCH_NO_SLOT) {
            count_slot(turns, n, r);
        }
        /* copying states took the time; the remaining requests follow after a step */
        if ((double)(clock_us() - began_us) > stall_budget_us) {
            d->may_assign_slots = true;
            return false;
        }
    }
    make_way_for_one(d, turns, n);
    return true;
}

static uint64_t earlier(uint64_t a_us, uint64_t b_us)
{
    return b_us != 0 && (a_us == 0 || b_us < a_us) ? b_us : a_us;
}

/* Returns the time, later than now_us, at which the request stops waiting for the disk. Returns 0 if the request does
 * not wait for the disk. */
static uint64_t wait_end_us(const request *r, uint64_t now_us)
{
    const uint64_t fetch_us = r->phase == REQUEST_WAITING && r->fetching != 0 ? r->fetched_by_us : 0;
    const uint64_t state_us = r->branch != NULL ? r->branch->parked.wait_until_us : 0;
    return earlier(fetch_us, state_us > now_us ? state_us : 0);
}

/* Returns the earliest time at which a request, or a parked state to be written, stops waiting for the disk. Returns 0
 * if neither waits. */
static uint64_t first_wait_end_us(const decode *d)
{
    const uint64_t now_us = clock_us();
    uint64_t first_us = table_waits_until_us(d->table, now_us);
    for (uint32_t i = 0; i < d->n_requests; i++) {
        first_us = earlier(first_us, wait_end_us(d->requests[i], now_us));
    }
    return first_us;
}

void decode_start_waiting(decode *d)
{
    d->may_assign_slots = d->may_assign_slots || (d->fetched_by_us != 0 && clock_us() >= d->fetched_by_us);
    if (start_waiting(d) || !table_is_lending(d->table)) {
        const bool waited = table_spill_waits(d->table);
        table_spill_on(d->table);
        d->may_assign_slots = d->may_assign_slots || (waited && !table_spill_waits(d->table));
    }
    d->fetched_by_us = first_wait_end_us(d);
}
