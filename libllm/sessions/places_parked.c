/* places_parked.c: parked states on their way to the disk, there, and on their way back. */
#include <string.h>

#include "sessions/places.h"

/* ---- to the disk ---- */

static void become_on_disk(session *s, size_t n_disk_bytes, state_ends ends)
{
    const parked old = s->parked;
    session_forget_parked(s);
    session_forget_logits(s); /* what lies on the disk takes no memory */
    session_set_parked(s, &(parked){.where = PARKED_ON_DISK,
                                    .k = old.k,
                                    .n_bytes = old.n_bytes,
                                    .is_on_disk = true,
                                    .n_disk_bytes = n_disk_bytes,
                                    .ends = ends});
}

bool places_is_refused(const places *p)
{
    return session_clock_us() < p->shelf.refused_until_us;
}

typedef enum spilling {
    SPILLED,
    SPILL_LATER, /* the store has too much in hand now, and will come to an end with it */
    SPILL_NEVER,
} spilling;

/* The state goes to the store with its checkpoints; until it is written the session may still load it from where it
 * lies. */
static spilling spill(places *p, session *s)
{
    if (!session_is_named(s)) { /* of whoever did not name a session, nothing outlasts the process */
        return SPILL_NEVER;
    }
    if (s->parked.is_on_disk) {
        become_on_disk(s, s->parked.n_disk_bytes, s->parked.ends);
        return SPILLED;
    }
    blob *state = s->parked.state;
    if (places_is_refused(p)) {
        return SPILL_NEVER;
    }
    if (!places_may_write(p, state->n_bytes)) {
        const bool is_busy =
            p->store != NULL && (p->ground.ledger->n_bytes[LEDGER_IN_FLIGHT] > 0 || store_n_jobs(p->store) > 0);
        return is_busy ? SPILL_LATER : SPILL_NEVER;
    }
    store_job *job = store_job_new(STORE_WRITE, 0);
    if (job == NULL || !places_write_file(p, s) || !places_write_state(p, s, state, s->parked.k, job)) {
        store_job_free(job);
        return SPILL_NEVER;
    }
    ledger_hold(p->ground.ledger, LEDGER_IN_FLIGHT, state);
    ledger_drop(p->ground.ledger, LEDGER_PARKED, state);
    s->parked.where = PARKED_WRITING;
    return SPILLED;
}

/* Its tokens stay known: the next request refills it. */
static void drop_state(places *p, session *s)
{
    session_forget_parked(s);
    session_forget_logits(s);
    page_count(p->ground.page, LLM_COUNTER_PARKED_DROPPED, 1);
}

/* A disk that is only slow, because others use it, is waited for so long at least: a dropped state costs everybody's time. */
enum { STALL_SAID_EVERY_S = 600, WAIT_LEAST_US = 10 * 1000000 };

/* Somebody has waited for the store in vain. */
static void stall(places *p, uint64_t now_us)
{
    p->shelf.is_stalled = true;
    if (p->shelf.stall_said_us == 0 || now_us - p->shelf.stall_said_us > STALL_SAID_EVERY_S * (uint64_t)1000000) {
        p->shelf.stall_said_us = now_us;
        store_complain(p->store,
                       "the disk takes longer for the states of sessions than reading their tokens again: states "
                       "for which there is no memory are dropped, their tokens are kept");
    }
}

static uint64_t wait_until_us(const places *p, const session *s, uint64_t now_us)
{
    const uint64_t wait_us = (uint64_t)copy_cost_wait_us_max(&p->pace, s->parked.k);
    return now_us + (wait_us > WAIT_LEAST_US || p->shelf.is_stalled ? wait_us : WAIT_LEAST_US);
}

/* For the store, which has too much in hand. One state at a time does. */
static bool may_wait(places *p, const session *s)
{
    const uint64_t now_us = session_clock_us();
    if (p->shelf.spill_waits || p->shelf.is_stalled) {
        return false;
    }
    if (p->shelf.spill_until_us == 0) {
        p->shelf.spill_until_us = wait_until_us(p, s, now_us);
    }
    if (now_us >= p->shelf.spill_until_us) {
        stall(p, now_us);
    }
    return !p->shelf.is_stalled;
}

bool places_spill_waits(const places *p)
{
    return p->shelf.spill_waits;
}

bool places_is_lending(const places *p)
{
    return p->shelf.is_lending;
}

/* Returns the limit on states that stay in memory. The rest of parked_bytes_max is for states on their way to the disk. */
static size_t resting_bytes_max(const places *p)
{
    const size_t n_max = p->options.parked_bytes_max;
    return p->store != NULL ? n_max - n_max / PLACES_MOVING_SHARE : n_max;
}

void places_spill(places *p)
{
    while (!p->shelf.is_lending && p->ground.ledger->n_bytes[LEDGER_PARKED] > resting_bytes_max(p)) {
        session *s = places_parked_victim(p);
        if (s == NULL) {
            return;
        }
        const spilling found = spill(p, s);
        if (found == SPILL_LATER && may_wait(p, s)) {
            p->shelf.spill_waits = true;
            return;
        }
        p->shelf.spill_until_us = 0; /* the next one's wait is its own */
        if (found != SPILLED) {
            drop_state(p, s);
        }
    }
    p->shelf.spill_until_us = 0;
}

bool places_gives_up_reading(places *p, session *s)
{
    const uint64_t now_us = session_clock_us();
    parked *at = &s->parked;
    if (at->wanted_until_us == 0) {
        at->wanted_until_us = wait_until_us(p, s, now_us);
    }
    if (now_us < at->wanted_until_us) {
        return false;
    }
    stall(p, now_us);
    drop_state(p, s);
    return true;
}

uint64_t places_spill_waits_until_us(const places *p)
{
    return p->shelf.spill_waits ? p->shelf.spill_until_us : 0;
}

/* What was read for others has been had. */
static void end_lending(places *p)
{
    for (uint32_t i = 0; i < p->n_places; i++) {
        session *s = &p->sessions[i];
        if (s->is_open && s->parked.is_lent && s->parked.where == PARKED_IN_MEMORY && session_is_idle(s)) {
            become_on_disk(s, s->parked.n_disk_bytes, s->parked.ends);
        }
        s->parked.is_lent = false;
    }
    p->shelf.is_lending = false;
}

void places_spill_on(places *p)
{
    if (p->shelf.spill_waits || p->shelf.is_lending) {
        p->shelf.spill_waits = false;
        end_lending(p);
        places_spill(p);
    }
}

bool places_read_file(places *p, session *s)
{
    const size_t n_bytes = s->parked.n_disk_bytes;
    store_job *job = ledger_admits(p->ground.ledger, n_bytes) ? store_job_new(STORE_READ, 0) : NULL;
    if (job == NULL) {
        return false;
    }
    job->place = s->place;
    job->id = s->id;
    job->request = places_new_number(p);
    job->n_bytes_max = n_bytes;
    ledger_reserve(p->ground.ledger, n_bytes);
    s->parked.where = PARKED_READING;
    s->parked.n_wanted = 0;
    s->parked.reading = job->request;
    store_push(p->store, job);
    return true;
}

/* ---- and back ---- */

static session *session_of(places *p, const store_job *job)
{
    session *s = &p->sessions[job->place];
    return s->is_open && s->id == job->id ? s : NULL;
}

/* A request may wait for it, or memory have room again. */
static void stay_in_memory(places *p, session *s)
{
    ledger_hold(p->ground.ledger, LEDGER_PARKED, s->parked.state);
    ledger_drop(p->ground.ledger, LEDGER_IN_FLIGHT, s->parked.state);
    s->parked.where = PARKED_IN_MEMORY;
    places_spill(p);
}

/* The disk refused a state: no other is written for a while. An orderly stop tries each state, as nothing is left of those that
 * it does not write: a smaller one may fit where a larger one did not. */
static void pause_writing(places *p)
{
    if (!p->shelf.is_saving) {
        p->shelf.refused_until_us = session_clock_us() + STORE_PAUSE_S * (uint64_t)1000000;
    }
}

void places_written(places *p, const store_job *job)
{
    if (job->status == LLM_IO && job->linked_id == 0) {
        pause_writing(p);
    }
    session *s = session_of(p, job);
    if (s == NULL) {
        return;
    }
    const bool is_writing = s->parked.where == PARKED_WRITING;
    const bool is_held = is_writing && job->linked_id == 0 && s->parked.state == job->state.parts[0].held;
    if (job->status == LLM_OK) {
        if (is_held) {
            become_on_disk(s, state_file_bytes(&job->state), state_file_ends(&job->state));
        }
        return;
    }
    if (job->linked_id != 0 && !is_writing) {
        (void)places_remove_state(p, s); /* there is no file to remove: the name that was to be linked is forgotten */
    } else if (is_held || (!is_writing && s->n_file_bytes == (size_t)state_file_bytes(&job->state))) {
        /* The older file is still there. A drop of the later state, an orderly stop or a kill may leave nothing else. */
        session_set_file_bytes(s, job->status == LLM_NOT_FOUND ? 0 : job->n_bytes_before);
    }
    if (is_held) {
        pause_writing(p); /* or a session file that could not be written would be tried again at once */
        stay_in_memory(p, s);
    }
}

/* What was read, and nobody has held yet. */
static blob *take_part(places *p, state_part *part, ledger_use use)
{
    blob *b = part->held;
    part->held = NULL;
    ledger_hold(p->ground.ledger, use, b);
    return b;
}

static void adopt_part(places *p, const session *s, state_part *part)
{
    checkpoint_store *checkpoints = p->ground.checkpoints;
    const uint32_t n_vocab = p->ground.model->info.n_vocab;
    const int32_t *tokens = session_tokens(s);
    if (part->k > session_n_tokens(s) || checkpoint_find(checkpoints, s->owner, tokens, part->k) != NULL) {
        return;
    }
    const checkpoint_parts parts = {.n_state_bytes = part->n_state_bytes,
                                    .n_logits = part->n_logits == n_vocab ? n_vocab : 0,
                                    .is_whole = part->is_whole};
    blob *held = take_part(p, part, LEDGER_IN_FLIGHT);
    (void)checkpoint_adopt(checkpoints, s->owner, tokens, part->k, &parts, held);
    ledger_drop(p->ground.ledger, LEDGER_IN_FLIGHT, held); /* the entry holds it, or nobody */
}

bool places_take_state(places *p, session *s, state_file *from)
{
    const uint32_t k = from->k, n_wanted = session_is_idle(s) ? s->parked.n_wanted : 0;
    if (from->n_parts == 0 || !state_matches(k, from->hash, session_tokens(s), session_n_tokens(s))) {
        return false;
    }
    blob *state = take_part(p, &from->parts[0], LEDGER_PARKED);
    session_forget_parked(s);
    session_hold_parked(s, state, k);
    for (uint32_t i = 1; i < from->n_parts; i++) {
        if (n_wanted == 0 || from->parts[i].k <= n_wanted) {
            adopt_part(p, s, &from->parts[i]);
        }
    }
    return true;
}

bool places_is_reading(const places *p, uint64_t reading)
{
    for (uint32_t i = 0; i < p->n_places; i++) {
        const session *s = &p->sessions[i];
        if (s->is_open && s->parked.where == PARKED_READING && s->parked.reading == reading) {
            return true;
        }
    }
    return false;
}

void places_read_back(places *p, store_job *job)
{
    ledger_release(p->ground.ledger, job->n_bytes_max);
    if (job->status == LLM_OK && job->state.n_parts > 0) {
        copy_cost_learn_disk(&p->pace, state_file_bytes(&job->state), job->took_us);
    }
    session *s = session_of(p, job);
    if (s == NULL || s->parked.where != PARKED_READING || s->parked.reading != job->request) {
        return;
    }
    const parked before = s->parked;
    const bool is_for_others = before.n_wanted > 0 && session_is_idle(s);
    const state_ends ends = job->state.n_parts > 0 ? state_file_ends(&job->state) : before.ends;
    if (is_for_others && (job->status == LLM_NO_MEMORY || job->status == LLM_IO)) {
        s->parked.where = PARKED_ON_DISK; /* nobody's but its own request costs it what is there */
        return;
    }
    session_set_parked(s, &(parked){.where = PARKED_NOWHERE, .n_wanted = before.n_wanted});
    if (job->status == LLM_OK && places_take_state(p, s, &job->state)) {
        s->parked.is_on_disk = true;
        s->parked.n_disk_bytes = before.n_disk_bytes;
        s->parked.ends = ends;
        s->parked.is_lent = is_for_others;
        p->shelf.is_lending = p->shelf.is_lending || is_for_others;
        places_spill(p);
    } else {
        session_set_file_bytes(s, job->status == LLM_VERSION ? 0 : s->n_file_bytes); /* set aside */
        page_count(p->ground.page, LLM_COUNTER_PARKED_DROPPED, 1);
    }
}
