/* places_file.c: sessions and their files: what is written, parked states that go to the disk and come back. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sessions/places.h"

static bool is_named(const session *s)
{
    return s->name[0] != '\0';
}

static bool is_seated(const session *s)
{
    return s->seat != SESSION_NO_SEAT;
}

/* ---- describing ---- */

bool places_describe(const session *s, session_file *out)
{
    const uint32_t n_tokens = session_n_tokens(s);
    *out = (session_file){.id = s->id,
                          .owner = s->owner,
                          .is_pinned = s->record.is_pinned == LLM_PIN_ANCHORED,
                          .used_ms = s->record.used_ms};
    memcpy(out->name, s->name, sizeof out->name);
    out->tokens = malloc(n_tokens > 0 ? n_tokens * sizeof *out->tokens : 1);
    if (out->tokens == NULL) {
        return false;
    }
    memcpy(out->tokens, session_tokens(s), n_tokens * sizeof *out->tokens);
    out->n_tokens = n_tokens;
    return true;
}

static void add_part(places *p, state_file *out, const state_part *part)
{
    ledger_hold(p->ground.ledger, LEDGER_IN_FLIGHT, part->held);
    out->parts[out->n_parts++] = *part;
}

static state_part part_of(const checkpoint *c)
{
    return (state_part){.k = c->k,
                        .is_whole = c->is_whole,
                        .n_state_bytes = c->n_state_bytes,
                        .n_logits = c->n_logits,
                        .held = c->held};
}

void places_describe_state(places *p, const session *s, blob *state, uint32_t k, state_file *out)
{
    const int32_t *tokens = session_tokens(s);
    *out = (state_file){.k = k, .hash = token_hash_of(0, tokens, k)};
    add_part(p, out, &(state_part){.k = k, .is_whole = true, .n_state_bytes = state->n_bytes, .held = state});
    checkpoint *matching[SNAPSHOT_PARTS_MAX - 1];
    const uint32_t n =
        checkpoint_match(p->ground.checkpoints, s->owner, tokens, k, k, matching, SNAPSHOT_PARTS_MAX - 1);
    for (uint32_t i = 0; i < n; i++) { /* the longest first */
        const state_part part = part_of(matching[i]);
        if (part.held->n_bytes <= ledger_room(p->ground.ledger)) {
            add_part(p, out, &part);
        }
    }
}

/* What was written, or could not be. */
static void drop_parts(places *p, state_file *f)
{
    for (uint32_t i = 0; i < f->n_parts; i++) {
        ledger_drop(p->ground.ledger, LEDGER_IN_FLIGHT, f->parts[i].held);
    }
    f->n_parts = 0;
}

bool places_may_write(const places *p, size_t n_bytes)
{
    return p->store != NULL && store_n_jobs(p->store) < STORE_JOBS_MAX && ledger_admits(p->ground.ledger, n_bytes);
}

/* ---- session files ---- */

store_job *places_change_of(places *p, session *s, change_verb verb)
{
    store_job *job = p->store != NULL ? store_job_new(STORE_CHANGE, 1) : NULL;
    if (job == NULL) {
        return NULL;
    }
    store_change *c = &job->changes[0];
    c->verb = verb;
    c->slot = s->slot;
    c->file.id = s->id;
    if ((verb == CHANGE_WRITE || verb == CHANGE_RESET) && !places_describe(s, &c->file)) {
        store_job_free(job);
        return NULL;
    }
    memcpy(job->name, s->name, sizeof job->name);
    s->has_file = verb != CHANGE_REMOVE;
    return job;
}

static bool write_session_file(places *p, session *s)
{
    store_job *job = places_change_of(p, s, CHANGE_WRITE);
    if (job != NULL) {
        store_push(p->store, job);
    }
    return job != NULL;
}

void places_remove_file(places *p, session *s)
{
    if (s->has_file && p->store != NULL) {
        places_remove_id(p, s->id);
        s->has_file = false;
    }
}

void places_reset_file(places *p, session *s)
{
    if (s->record.is_pinned != LLM_PIN_ANCHORED || p->store == NULL) {
        places_remove_file(p, s);
        return;
    }
    store_job *job = places_change_of(p, s, CHANGE_RESET);
    if (job != NULL) {
        places_attach(p, job);
    } else {
        places_remove_file(p, s);
    }
}

/* ---- spilling ---- */

static void lies_on_disk(session *s, size_t n_disk_bytes)
{
    const parked old = s->parked;
    session_forget_parked(s);
    s->parked = (parked){
        .where = PARKED_ON_DISK, .k = old.k, .n_bytes = old.n_bytes, .is_on_disk = true, .n_disk_bytes = n_disk_bytes};
}

/* The state goes to the store with its checkpoints; until it is written the session may still load it from where it
 * lies. */
static bool spill(places *p, session *s)
{
    if (s->parked.is_on_disk) {
        lies_on_disk(s, s->parked.n_disk_bytes);
        return true;
    }
    blob *state = s->parked.state;
    store_job *job = places_may_write(p, state->n_bytes) ? store_job_new(STORE_WRITE, 0) : NULL;
    if (job == NULL || !write_session_file(p, s)) {
        store_job_free(job);
        return false;
    }
    job->slot = s->slot;
    job->id = s->id;
    memcpy(job->name, s->name, sizeof job->name);
    ledger_hold(p->ground.ledger, LEDGER_IN_FLIGHT, state);
    ledger_drop(p->ground.ledger, LEDGER_PARKED, state);
    s->parked.where = PARKED_WRITING;
    places_describe_state(p, s, state, s->parked.k, &job->state);
    store_push(p->store, job);
    return true;
}

/* Its tokens stay known: the next request refills it. */
static void drop_state(places *p, session *s)
{
    session_forget_parked(s);
    page_count(p->ground.page, LLM_COUNTER_PARKED_DROPPED, 1);
}

void places_spill(places *p)
{
    while (p->ground.ledger->n_bytes[LEDGER_PARKED] > p->options.parked_bytes_max) {
        session *s = places_parked_victim(p);
        if (s == NULL) {
            return;
        }
        if (!spill(p, s)) {
            drop_state(p, s);
        }
    }
}

bool places_read_file(places *p, session *s)
{
    const size_t n_bytes = s->parked.n_disk_bytes;
    store_job *job = ledger_admits(p->ground.ledger, n_bytes) ? store_job_new(STORE_READ, 0) : NULL;
    if (job == NULL) {
        return false;
    }
    job->slot = s->slot;
    job->id = s->id;
    job->n_bytes_max = n_bytes;
    ledger_reserve(p->ground.ledger, n_bytes);
    s->parked.where = PARKED_READING;
    store_push(p->store, job);
    return true;
}

/* ---- what the store has finished ---- */

static session *session_of(places *p, const store_job *job)
{
    session *s = &p->sessions[job->slot];
    return s->is_open && s->id == job->id ? s : NULL;
}

static void written(places *p, const store_job *job)
{
    session *s = session_of(p, job);
    if (s == NULL || s->parked.where != PARKED_WRITING || s->parked.state != job->state.parts[0].held) {
        return;
    }
    if (job->status == LLM_OK) {
        lies_on_disk(s, state_file_bytes(&job->state));
    } else {
        drop_state(p, s); /* over the budget, and the disk refuses it */
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
    const uint32_t k = from->k;
    if (from->n_parts == 0 || !state_matches(k, from->hash, session_tokens(s), session_n_tokens(s))) {
        return false;
    }
    blob *state = take_part(p, &from->parts[0], LEDGER_PARKED);
    session_forget_parked(s);
    s->parked = (parked){.where = PARKED_IN_MEMORY, .state = state, .k = k, .n_bytes = state->n_bytes};
    for (uint32_t i = 1; i < from->n_parts; i++) {
        adopt_part(p, s, &from->parts[i]);
    }
    return true;
}

/* One that slept has got its place: what it says of itself is known only now. Of more tokens than the context holds the
 * first ones stay. */
static void wake(places *p, session *s, const session_file *file)
{
    const uint32_t n_ctx = p->ground.model->info.n_ctx;
    const uint32_t n = file->n_tokens < n_ctx ? file->n_tokens : n_ctx;
    if (places_are_tokens(p, file->tokens, n)) {
        page_append(p->ground.page, s->slot, file->tokens, n);
        s->record.n_visible = n;
        session_publish(s);
    }
}

static void read_back(places *p, store_job *job)
{
    ledger_release(p->ground.ledger, job->n_bytes_max);
    session *s = session_of(p, job);
    if (s == NULL || s->parked.where != PARKED_READING) {
        return;
    }
    const size_t n_disk_bytes = s->parked.n_disk_bytes;
    s->parked = (parked){.where = PARKED_NOWHERE};
    if (job->wants_session && job->status == LLM_OK) {
        wake(p, s, &job->file);
    } else if (job->wants_session) {
        places_wake_failed(p, s);
    }
    if (job->status == LLM_OK && places_take_state(p, s, &job->state)) {
        s->parked.is_on_disk = true;
        s->parked.n_disk_bytes = n_disk_bytes;
        places_spill(p);
    } else if (n_disk_bytes > 0) {
        page_count(p->ground.page, LLM_COUNTER_PARKED_DROPPED, 1);
    }
}

static void take_one(places *p, store_job *job)
{
    switch (job->verb) {
    case STORE_WRITE:
        written(p, job);
        drop_parts(p, &job->state);
        break;
    case STORE_SAVE: drop_parts(p, &job->state); break;
    case STORE_READ: read_back(p, job); break;
    case STORE_LOAD: ledger_release(p->ground.ledger, job->n_bytes_max); break;
    case STORE_CHANGE: p->is_unsaved = p->is_unsaved || (p->is_saving && job->status != LLM_OK); break;
    case STORE_UNSAVE:
    case STORE_SWEEP: break;
    }
}

bool places_take_stored(places *p, void (*done)(void *context, store_job *job), void *context)
{
    store_job *job;
    bool any = false;
    while (p->store != NULL && (job = store_take(p->store)) != NULL) {
        take_one(p, job);
        if (job->is_asked) {
            done(context, job);
        }
        store_job_free(job);
        any = true;
    }
    return any;
}

static void nobody_waits(void *context, store_job *job)
{
    (void)context;
    (void)job;
}

void places_settle(places *p)
{
    if (p->store != NULL) {
        store_wait(p->store);
        (void)places_take_stored(p, nobody_waits, NULL);
    }
}

/* ---- a fork ---- */

void places_copy_state(places *p, session *from, session *to)
{
    blob *state = from->parked.state;
    if (from->record.state == LLM_STATE_TORN || session_n_tokens(from) == 0) {
        return;
    }
    if (is_seated(from)) {
        state = session_save_state(from, LEDGER_PARKED);
    } else if (state != NULL) {
        ledger_hold(p->ground.ledger, LEDGER_PARKED, state);
    }
    if (state == NULL) {
        return;
    }
    page_append(p->ground.page, to->slot, session_tokens(from), session_n_tokens(from));
    to->parked = (parked){.where = PARKED_IN_MEMORY,
                          .state = state,
                          .k = is_seated(from) ? session_n_tokens(from) : from->parked.k,
                          .n_bytes = state->n_bytes};
    places_spill(p);
}

/* ---- an orderly stop ---- */

/* The state that a restart would want, held as in flight; NULL: it lies on the disk, or there is none. */
static blob *state_to_save(places *p, session *s, uint32_t *k)
{
    if (is_seated(s)) {
        *k = session_n_tokens(s);
        return s->record.state != LLM_STATE_TORN && *k > 0 ? session_save_state(s, LEDGER_IN_FLIGHT) : NULL;
    }
    *k = s->parked.k;
    if (s->parked.state == NULL || s->parked.is_on_disk) {
        return NULL;
    }
    ledger_hold(p->ground.ledger, LEDGER_IN_FLIGHT, s->parked.state);
    return s->parked.state;
}

static void save_one(places *p, session *s)
{
    uint32_t k = 0;
    if (!write_session_file(p, s)) {
        store_complain(p->store, "session \"%s\" could not be saved: memory is short", s->name);
        p->is_unsaved = true;
        return;
    }
    blob *state = state_to_save(p, s, &k);
    store_job *job = state != NULL ? store_job_new(STORE_WRITE, 0) : NULL;
    if (job != NULL) {
        job->slot = s->slot;
        job->id = s->id;
        memcpy(job->name, s->name, sizeof job->name);
        places_describe_state(p, s, state, k, &job->state);
        store_push(p->store, job);
    }
    ledger_drop(p->ground.ledger, LEDGER_IN_FLIGHT, state);
}

void places_save_all(places *p, void (*done)(void *context, store_job *job), void *context)
{
    if (p->store == NULL) {
        return;
    }
    store_wait(p->store); /* what is still being read is to be saved, what is being written is not */
    (void)places_take_stored(p, done, context);
    p->is_saving = true;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        session *s = &p->sessions[i];
        if (s->is_open && is_named(s) && (session_n_tokens(s) > 0 || s->record.is_pinned)) {
            save_one(p, s);
            page_count(p->ground.page, LLM_COUNTER_SESSIONS_SAVED, 1);
        }
        store_wait(p->store); /* one at a time: a copy of each is in memory until its result is taken */
        (void)places_take_stored(p, done, context);
    }
}
