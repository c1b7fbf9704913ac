/* places_file.c: sessions and the store: spilling parked states to disk, saving, loading. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "places.h"

enum {
    WRITING_BYTES_MIN = 1 << 28,
    SPILL_PARTS_BYTES_MIN = 1 << 26, /* copied in some ten milliseconds */
};

static store_job *new_job(store_verb verb, const session *s, uint64_t request)
{
    store_job *job = calloc(1, sizeof *job);
    if (job != NULL) {
        *job = (store_job){.verb = verb, .slot = s->slot, .request = request};
        job->snapshot.id = s->id;
    }
    return job;
}

/* Everything of the session but its state. False: memory is short. */
static bool describe(const places *p, const session *s, snapshot *out)
{
    const uint32_t n_tokens = session_n_tokens(s);
    *out = (snapshot){.id = s->id,
                      .owner = s->owner,
                      .is_pinned = s->record.is_pinned == LLM_PIN_ANCHORED,
                      .used_ms = s->record.used_ms};
    memcpy(out->name, s->name, sizeof out->name);
    memcpy(out->fingerprint, p->ground.model->info.fingerprint, sizeof out->fingerprint);
    out->tokens = malloc(n_tokens * sizeof *out->tokens);
    if (out->tokens == NULL) {
        return false;
    }
    memcpy(out->tokens, session_tokens(s), n_tokens * sizeof *out->tokens);
    out->n_tokens = n_tokens;
    return true;
}

static bool copy_part(const checkpoint *c, snapshot_part *out, uint32_t n_vocab)
{
    *out = (snapshot_part){.k = c->k, .is_whole = c->is_whole, .n_state_bytes = c->n_state_bytes};
    out->state = malloc(c->n_state_bytes);
    out->logits = c->logits != NULL ? malloc(n_vocab * sizeof(float)) : NULL;
    if (out->state == NULL || (c->logits != NULL && out->logits == NULL)) {
        free(out->state);
        free(out->logits);
        return false;
    }
    memcpy(out->state, c->state, c->n_state_bytes);
    if (c->logits != NULL) {
        out->n_logits = n_vocab;
        memcpy(out->logits, c->logits, n_vocab * sizeof(float));
    }
    return true;
}

/* The checkpoints of its tokens, the longest first, as far as there is room for them. */
static void copy_parts(const places *p, snapshot *out, size_t n_bytes_max)
{
    const uint32_t n_vocab = p->ground.model->info.n_vocab;
    size_t n_bytes = 0;
    checkpoint *matching[SNAPSHOT_PARTS_MAX];
    const uint32_t n = checkpoint_match(p->ground.checkpoints, out->owner, out->tokens, out->n_tokens, out->n_tokens,
                                        matching, SNAPSHOT_PARTS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        const checkpoint *c = matching[i];
        const size_t n_more = c->n_state_bytes + (c->logits != NULL ? n_vocab * sizeof(float) : 0);
        if (n_more <= n_bytes_max - n_bytes && copy_part(c, &out->parts[out->n_parts], n_vocab)) {
            out->n_parts++;
            n_bytes += n_more;
        }
    }
}

/* ---- spilling ---- */

static size_t parked_bytes(const places *p)
{
    size_t n = 0;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        const session *s = &p->sessions[i];
        n += s->is_open && s->parked.where == PARKED_IN_MEMORY ? s->parked.n_bytes : 0;
    }
    return n;
}

static size_t bytes_of(const snapshot *s)
{
    size_t n = s->n_state_bytes;
    for (uint32_t i = 0; i < s->n_parts; i++) {
        n += s->parts[i].n_state_bytes + s->parts[i].n_logits * sizeof(float);
    }
    return n;
}

static void push_write(places *p, store_job *job)
{
    p->writing_bytes += bytes_of(&job->snapshot);
    store_push(p->store, job);
}

/* A disk that is slower than the parking must not fill the memory: as much again as may be parked waits for it. */
static size_t room_to_write(const places *p)
{
    const size_t n_max =
        p->options.parked_bytes_max > WRITING_BYTES_MIN ? p->options.parked_bytes_max : WRITING_BYTES_MIN;
    return p->writing_bytes < n_max ? n_max - p->writing_bytes : 0;
}

/* Checkpoints that may go with a state: the state counts more where room is short, and others decode meanwhile, so that
 * copying them should take no longer than parking did. */
static size_t spill_parts_max(size_t n_state_bytes, size_t room)
{
    const size_t n_max = n_state_bytes > SPILL_PARTS_BYTES_MIN ? n_state_bytes : SPILL_PARTS_BYTES_MIN;
    const size_t n_left = n_state_bytes < room ? room - n_state_bytes : 0;
    return n_left < n_max ? n_left : n_max;
}

/* The state goes to the store with its last checkpoints; until it is written the session may still load it from where it
 * lies. */
static bool spill(places *p, session *s)
{
    const size_t n_state_bytes = s->parked.n_bytes;
    const size_t room = room_to_write(p);
    store_job *job = p->writing_bytes == 0 || n_state_bytes <= room ? new_job(STORE_WRITE, s, 0) : NULL;
    if (job == NULL || !describe(p, s, &job->snapshot)) {
        store_job_free(job);
        return false;
    }
    copy_parts(p, &job->snapshot, spill_parts_max(n_state_bytes, room));
    job->snapshot.state = s->parked.state;
    job->snapshot.n_state_bytes = n_state_bytes;
    s->parked.where = PARKED_WRITING;
    push_write(p, job);
    return true;
}

/* Its tokens stay known: the next request refills it. */
static void drop_state(places *p, session *s)
{
    free(s->parked.state);
    s->parked = (parked){.where = PARKED_NOWHERE};
    page_count(p->ground.page, LLM_COUNTER_PARKED_DROPPED, 1);
}

void places_spill(places *p)
{
    while (parked_bytes(p) > p->options.parked_bytes_max) {
        session *s = places_parked_victim(p);
        if (s == NULL) {
            return;
        }
        if (p->store == NULL || !spill(p, s)) {
            drop_state(p, s);
        }
    }
}

void places_read_file(places *p, session *s)
{
    store_job *job = new_job(STORE_READ, s, 0);
    if (job != NULL) {
        s->parked.where = PARKED_READING;
        store_push(p->store, job);
    }
}

void places_relabel_file(places *p, const session *s)
{
    store_job *job = p->store != NULL ? new_job(STORE_RELABEL, s, 0) : NULL;
    if (job != NULL) {
        memcpy(job->snapshot.name, s->name, sizeof job->snapshot.name);
        job->snapshot.is_pinned = s->record.is_pinned == LLM_PIN_ANCHORED;
        store_push(p->store, job);
    }
}

void places_remove_file(places *p, const session *s)
{
    store_job *job = new_job(STORE_REMOVE, s, 0);
    if (job != NULL) {
        store_push(p->store, job);
    }
}

/* ---- what the store has finished ---- */

static session *session_of(places *p, const store_job *job)
{
    session *s = &p->sessions[job->slot];
    return s->is_open && s->id == job->snapshot.id ? s : NULL;
}

static void written(places *p, store_job *job)
{
    session *s = session_of(p, job);
    if (s == NULL) {
        return;
    }
    if (s->parked.where != PARKED_WRITING || s->parked.state != job->snapshot.state) {
        return;
    }
    if (job->status == LLM_OK) {
        s->parked.where = PARKED_ON_DISK; /* the job frees the state */
        s->parked.state = NULL;
        return;
    }
    job->snapshot.state = NULL;
    s->parked.where = PARKED_IN_MEMORY;
    drop_state(p, s); /* over the budget, and the disk refuses it */
}

static void adopt_parts(places *p, const snapshot *from)
{
    checkpoint_store *checkpoints = p->ground.checkpoints;
    const uint32_t n_vocab = p->ground.model->info.n_vocab;
    for (uint32_t i = 0; i < from->n_parts; i++) {
        const snapshot_part *part = &from->parts[i];
        const uint32_t n_logits = part->n_logits == n_vocab ? n_vocab : 0;
        if (checkpoint_find(checkpoints, from->owner, from->tokens, part->k) != NULL) {
            continue;
        }
        checkpoint *c = checkpoint_add(checkpoints, from->owner, from->tokens, part->k, part->n_state_bytes, n_logits,
                                       part->is_whole);
        if (c != NULL) {
            if (part->n_state_bytes > 0) {
                memcpy(c->state, part->state, part->n_state_bytes);
            }
            if (n_logits > 0) {
                memcpy(c->logits, part->logits, n_logits * sizeof(float));
            }
        }
    }
}

static bool same_tokens(const session *s, const snapshot *from)
{
    return session_n_tokens(s) == from->n_tokens &&
           memcmp(session_tokens(s), from->tokens, from->n_tokens * sizeof *from->tokens) == 0;
}

static void read_back(places *p, store_job *job)
{
    session *s = session_of(p, job);
    if (s == NULL || s->parked.where != PARKED_READING) {
        return;
    }
    s->parked = (parked){.where = PARKED_NOWHERE};
    if (job->status != LLM_OK || !same_tokens(s, &job->snapshot)) {
        page_count(p->ground.page, LLM_COUNTER_PARKED_DROPPED, 1);
        return;
    }
    s->parked =
        (parked){.where = PARKED_IN_MEMORY, .state = job->snapshot.state, .n_bytes = job->snapshot.n_state_bytes};
    job->snapshot.state = NULL;
    adopt_parts(p, &job->snapshot);
}

bool places_take_stored(places *p, void (*done)(void *context, store_job *job), void *context)
{
    store_job *job;
    bool any = false;
    while (p->store != NULL && (job = store_take(p->store)) != NULL) {
        p->writing_bytes -= job->verb == STORE_WRITE ? bytes_of(&job->snapshot) : 0;
        if (job->verb == STORE_WRITE && !job->is_saved) {
            written(p, job);
        } else if (job->verb == STORE_READ && !job->is_saved) {
            read_back(p, job);
        }
        if (job->request != 0) {
            done(context, job);
        }
        store_job_free(job);
        any = true;
    }
    return any;
}

/* ---- saving ---- */

static bool copy_state(const places *p, const session *s, snapshot *out)
{
    model *m = p->ground.model;
    const uint16_t seat = (uint16_t)s->seat;
    const bool seated = s->seat != SESSION_NO_SEAT;
    const size_t n_bytes = seated ? m->ops->state_bytes(m, seat, MODEL_STATE_FULL) : s->parked.n_bytes;
    out->state = n_bytes > 0 ? malloc(n_bytes) : NULL;
    out->n_state_bytes = n_bytes;
    if (out->state == NULL) {
        return false;
    }
    if (!seated) {
        memcpy(out->state, s->parked.state, n_bytes);
        return true;
    }
    return m->ops->state_save(m, seat, MODEL_STATE_FULL, out->state, n_bytes) == n_bytes;
}

static bool has_state(const session *s)
{
    const bool lies_in_memory = s->seat != SESSION_NO_SEAT || s->parked.state != NULL;
    return s->is_open && s->name[0] != '\0' && s->record.state != LLM_STATE_TORN && session_n_tokens(s) > 0 &&
           lies_in_memory;
}

void places_copy_state(places *p, const session *from, session *to)
{
    snapshot copy = {0};
    if (!has_state(from) || !copy_state(p, from, &copy)) {
        snapshot_clear(&copy);
        return;
    }
    page_append(p->ground.page, to->slot, session_tokens(from), session_n_tokens(from));
    to->parked = (parked){.where = PARKED_IN_MEMORY, .state = copy.state, .n_bytes = copy.n_state_bytes};
    places_spill(p);
}

/* A labelled snapshot is found again by its owner and label alone (FNV-1a, 64 bits); both stand in the file, to be
 * compared when it is read. */
static uint64_t label_id(uint32_t owner, const char *label, size_t n_label_bytes)
{
    uint64_t h = 0xcbf29ce484222325ull ^ owner;
    for (size_t i = 0; i < n_label_bytes; i++) {
        h = (h ^ (uint8_t)label[i]) * 0x100000001b3ull;
    }
    return h;
}

int places_save(places *p, session *s, const char *label, size_t n_label_bytes, uint64_t request)
{
    if (p->store == NULL) {
        return LLM_IO;
    }
    if (!has_state(s)) {
        return LLM_NOT_FOUND;
    }
    store_job *job = new_job(STORE_WRITE, s, request);
    if (job == NULL || !describe(p, s, &job->snapshot) || !copy_state(p, s, &job->snapshot)) {
        store_job_free(job);
        return LLM_NO_MEMORY;
    }
    if (n_label_bytes > 0) {
        job->is_saved = true;
        job->owner = s->owner;
        memcpy(job->name, s->name, sizeof job->name);
        memset(job->snapshot.name, 0, sizeof job->snapshot.name);
        memcpy(job->snapshot.name, label, n_label_bytes);
        job->snapshot.id = label_id(s->owner, label, n_label_bytes);
    }
    copy_parts(p, &job->snapshot, SIZE_MAX);
    push_write(p, job);
    return LLM_OK;
}

int places_load(places *p, const places_label *from, uint64_t request)
{
    if (p->store == NULL) {
        return LLM_IO;
    }
    store_job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        return LLM_NO_MEMORY;
    }
    *job = (store_job){.verb = STORE_READ, .request = request, .is_saved = true, .owner = from->owner};
    memcpy(job->name, from->session, from->n_session_bytes);
    memcpy(job->label, from->label, from->n_label_bytes);
    job->snapshot.id = label_id(from->owner, from->label, from->n_label_bytes);
    store_push(p->store, job);
    return LLM_OK;
}

bool places_are_tokens(const places *p, const int32_t *tokens, uint32_t n_tokens)
{
    for (uint32_t i = 0; i < n_tokens; i++) {
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= p->ground.model->info.n_vocab) {
            return false;
        }
    }
    return n_tokens > 0 && n_tokens <= p->ground.model->info.n_ctx;
}

bool places_can_become(const places *p, const store_job *job)
{
    const snapshot *from = &job->snapshot;
    return from->owner == job->owner && strcmp(from->name, job->label) == 0 &&
           places_are_tokens(p, from->tokens, from->n_tokens);
}

void places_become(places *p, session *s, snapshot *from)
{
    assert(session_is_idle(s) && session_n_tokens(s) == 0);
    if (s->seat != SESSION_NO_SEAT) {
        (void)places_park(p, s); /* empty: cannot fail */
    }
    page_append(p->ground.page, s->slot, from->tokens, from->n_tokens);
    s->parked = (parked){.where = PARKED_IN_MEMORY, .state = from->state, .n_bytes = from->n_state_bytes};
    from->state = NULL;
    adopt_parts(p, from);
    s->record.state = LLM_STATE_PARKED;
    s->record.n_visible = from->n_tokens;
    session_publish(s);
    places_spill(p);
}

void places_save_all(places *p, void (*done)(void *context, store_job *job), void *context)
{
    if (p->store == NULL) {
        return;
    }
    store_wait(p->store); /* what is still being read is to be saved, what is being written is not */
    (void)places_take_stored(p, done, context);
    for (uint32_t i = 0; i < p->n_slots; i++) {
        if (has_state(&p->sessions[i]) && places_save(p, &p->sessions[i], NULL, 0, 0) != LLM_OK) {
            store_complain(p->store, "session \"%s\" could not be saved: memory is short", p->sessions[i].name);
        }
        store_wait(p->store); /* one at a time: a copy of each is in memory until its result is taken */
        (void)places_take_stored(p, done, context);
    }
}
