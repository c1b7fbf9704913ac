/* places_change.c: names and pins: a command that changes them waits until they are on the disk. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sessions/places.h"

session *places_find_id(places *p, uint64_t id)
{
    for (uint32_t i = 0; i < p->n_places; i++) {
        if (p->sessions[i].is_open && p->sessions[i].id == id) {
            return &p->sessions[i];
        }
    }
    return NULL;
}

/* A timeline, open or asleep: its name and pin, and whether they are on their way to the disk. */
typedef struct labelled {
    session *open; /* one of these two; neither: it is closed */
    dormant *asleep;
} labelled;

static labelled find(places *p, uint64_t id)
{
    labelled l = {.open = places_find_id(p, id)};
    for (uint32_t i = 0; l.open == NULL && i < p->n_dormant; i++) {
        if (p->dormant[i].id == id) {
            l.asleep = &p->dormant[i];
        }
    }
    return l;
}

static bool is_gone(const labelled *l)
{
    return l->open == NULL && l->asleep == NULL;
}

/* What it holds is known to the disk alone. */
static bool is_unread(const labelled *l)
{
    return l->open == NULL || places_is_waking(l->open);
}

static void set_changing(const labelled *l, bool is_changing)
{
    if (l->open != NULL) {
        l->open->is_changing = is_changing;
    } else if (l->asleep != NULL) {
        l->asleep->is_changing = is_changing;
    }
}

bool places_is_changing(places *p, uint32_t owner, const char *name, size_t n_name_bytes)
{
    session *s = NULL;
    while ((s = places_next(p, owner, name, n_name_bytes, s)) != NULL) {
        if (s->is_changing) {
            return true;
        }
    }
    dormant *d = NULL;
    while ((d = places_dormant_next(p, owner, name, n_name_bytes, d)) != NULL) {
        if (d->is_changing) {
            return true;
        }
    }
    return false;
}

/* ---- begin ---- */

static void remember(store_change *c, const session *s)
{
    c->file.id = s->id;
    memcpy(c->was.name, s->name, sizeof c->was.name);
    c->was.is_pinned = s->record.is_pinned;
    c->was.has_file = s->has_file;
}

static void remember_asleep(store_change *c, const dormant *d)
{
    c->file.id = d->id;
    memcpy(c->was.name, d->name, sizeof c->was.name);
    c->was.is_pinned = d->is_pinned ? LLM_PIN_ANCHORED : LLM_PIN_NONE;
    c->was.has_file = true;
}

store_job *places_change_begin(places *p, uint32_t owner, const char *name, size_t n_name_bytes)
{
    uint32_t n = 0;
    session *s = NULL;
    dormant *d = NULL;
    while ((s = places_next(p, owner, name, n_name_bytes, s)) != NULL) {
        n++;
    }
    while ((d = places_dormant_next(p, owner, name, n_name_bytes, d)) != NULL) {
        n++;
    }
    store_job *job = store_job_new(STORE_CHANGE, n);
    uint32_t i = 0;
    while (job != NULL && (s = places_next(p, owner, name, n_name_bytes, s)) != NULL) {
        remember(&job->changes[i++], s);
    }
    while (job != NULL && (d = places_dormant_next(p, owner, name, n_name_bytes, d)) != NULL) {
        remember_asleep(&job->changes[i++], d);
    }
    return job;
}

void places_rename(places *p, uint32_t owner, const char *name, size_t n_name_bytes, const char *to, size_t n_to_bytes)
{
    session *s;
    dormant *d;
    while ((s = places_next(p, owner, name, n_name_bytes, NULL)) != NULL) {
        session_rename(s, to, n_to_bytes);
    }
    while ((d = places_dormant_next(p, owner, name, n_name_bytes, NULL)) != NULL) {
        memset(d->name, 0, sizeof d->name);
        memcpy(d->name, to, n_to_bytes);
    }
}

/* ---- end ---- */

static void relabel(const labelled *l, store_change *c)
{
    c->verb = CHANGE_RELABEL;
    c->file.owner = l->open != NULL ? l->open->owner : l->asleep->owner;
    c->file.is_pinned = l->open != NULL ? l->open->record.is_pinned == LLM_PIN_ANCHORED : l->asleep->is_pinned;
    memcpy(c->file.name, l->open != NULL ? l->open->name : l->asleep->name, sizeof c->file.name);
}

/* What must last is written: what has a file already, and what is pinned. */
static bool describe_changed(places *p, store_job *job, bool *any)
{
    for (uint32_t i = 0; i < job->n_changes; i++) {
        store_change *c = &job->changes[i];
        const labelled l = find(p, c->file.id);
        assert(!is_gone(&l));
        job->owner = l.open != NULL ? l.open->owner : l.asleep->owner;
        memcpy(job->name, l.open != NULL ? l.open->name : l.asleep->name, sizeof job->name);
        if (is_unread(&l)) {
            relabel(&l, c);
        } else if (!l.open->has_file && l.open->record.is_pinned != LLM_PIN_ANCHORED) {
            continue;
        } else if (!places_describe(l.open, &c->file)) {
            return false;
        } else {
            c->verb = CHANGE_WRITE;
            l.open->has_file = true;
        }
        *any = true;
    }
    return true;
}

static void mark(places *p, const store_job *job, bool is_changing)
{
    for (uint32_t i = 0; i < job->n_changes; i++) {
        const labelled l = find(p, job->changes[i].file.id);
        set_changing(&l, is_changing);
    }
}

bool places_change_end(places *p, store_job *job, uint64_t request, llm_status *status)
{
    bool any = false;
    *status = LLM_OK;
    if (p->store != NULL && !describe_changed(p, job, &any)) {
        places_change_undo(p, job);
        *status = LLM_NO_MEMORY;
        any = false;
    }
    if (!any) {
        store_job_free(job);
        return false;
    }
    mark(p, job, true);
    job->is_label = true;
    job->is_asked = true;
    job->request = request;
    store_push(p->store, job);
    return true;
}

void places_change_settled(places *p, const store_job *job)
{
    if (job->is_label) {
        mark(p, job, false);
    }
}

/* ---- undo ---- */

/* Its state has a file, or is getting one, which is nothing without the session's. */
static bool lies_on_disk(const session *s)
{
    return s->parked.where == PARKED_WRITING || s->parked.where == PARKED_ON_DISK || s->parked.where == PARKED_READING;
}

static store_job *relabelled(const labelled *l, uint64_t id)
{
    store_job *job = store_job_new(STORE_CHANGE, 1);
    if (job != NULL) {
        job->changes[0].file.id = id;
        relabel(l, &job->changes[0]);
    }
    return job;
}

static void restore(const labelled *l, const store_change *c)
{
    if (l->asleep != NULL) {
        memcpy(l->asleep->name, c->was.name, sizeof l->asleep->name);
        l->asleep->is_pinned = c->was.is_pinned == LLM_PIN_ANCHORED;
        return;
    }
    if (strcmp(l->open->name, c->was.name) != 0) {
        session_rename(l->open, c->was.name, strlen(c->was.name));
    }
    l->open->record.is_pinned = c->was.is_pinned;
    session_publish(l->open);
}

static void undo(places *p, const store_change *c)
{
    const labelled l = find(p, c->file.id);
    if (is_gone(&l) || c->verb == CHANGE_REMOVE || c->verb == CHANGE_RESET) {
        return;
    }
    restore(&l, c);
    if (c->was.has_file || c->verb != CHANGE_NONE) { /* it may have been written after all */
        const bool keeps = c->was.has_file || (l.open != NULL && lies_on_disk(l.open));
        store_job *again = is_unread(&l) ? relabelled(&l, c->file.id)
                                         : places_change_of(p, l.open, keeps ? CHANGE_WRITE : CHANGE_REMOVE);
        if (again != NULL) {
            store_push(p->store, again);
        }
    }
}

void places_change_undo(places *p, const store_job *job)
{
    for (uint32_t i = 0; i < job->n_changes; i++) {
        undo(p, &job->changes[i]);
    }
    if (job->is_label) { /* timelines that came meanwhile */
        places_pin_follow(p, job->owner, job->changes[0].was.name);
        places_pin_follow(p, job->owner, job->name);
    }
}
