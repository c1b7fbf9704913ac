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

bool places_is_changing(places *p, session_name name)
{
    session *s = NULL;
    while ((s = places_next(p, name, s)) != NULL) {
        if (s->is_changing) {
            return true;
        }
    }
    return false;
}

/* ---- begin ---- */

store_job *places_change_begin(places *p, session_name name)
{
    uint32_t n = 0;
    session *s = NULL;
    while ((s = places_next(p, name, s)) != NULL) {
        n++;
    }
    store_job *job = store_job_new(STORE_CHANGE, n);
    store_change *c = job != NULL ? job->changes : NULL;
    while (job != NULL && (s = places_next(p, name, s)) != NULL) {
        c->file.id = s->id;
        memcpy(c->was.name, s->name, sizeof c->was.name);
        c->was.is_pinned = s->record.is_pinned;
        c->was.has_file = s->has_file;
        c++;
    }
    return job;
}

void places_rename(places *p, session_name name, session_name to)
{
    session *s;
    while ((s = places_next(p, name, NULL)) != NULL) {
        session_rename(s, to);
    }
}

/* ---- end ---- */

/* What must last is written: what has a file already, and what is pinned. */
static bool describe_changed(places *p, store_job *job, bool *any)
{
    for (uint32_t i = 0; i < job->n_changes; i++) {
        store_change *c = &job->changes[i];
        session *s = places_find_id(p, c->file.id);
        assert(s != NULL);
        job->owner = s->owner;
        memcpy(job->name, s->name, sizeof job->name);
        if (!s->has_file && s->record.is_pinned != LLM_PIN_ANCHORED) {
            continue;
        }
        if (!places_describe(s, &c->file)) {
            return false;
        }
        c->verb = CHANGE_WRITE;
        s->has_file = true;
        *any = true;
    }
    return true;
}

static void mark(places *p, const store_job *job, bool is_changing)
{
    for (uint32_t i = 0; i < job->n_changes; i++) {
        session *s = places_find_id(p, job->changes[i].file.id);
        if (s != NULL) {
            s->is_changing = is_changing;
        }
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
static bool has_state_file(const session *s)
{
    return s->parked.where == PARKED_WRITING || s->parked.where == PARKED_ON_DISK || s->parked.where == PARKED_READING;
}

static void undo(places *p, const store_change *c)
{
    session *s = places_find_id(p, c->file.id);
    if (s == NULL || c->verb == CHANGE_REMOVE || c->verb == CHANGE_RESET) {
        return;
    }
    if (strcmp(s->name, c->was.name) != 0) {
        session_rename(s, session_name_from(s->owner, c->was.name));
    }
    s->record.is_pinned = c->was.is_pinned;
    session_publish(s);
    if (c->was.has_file || c->verb != CHANGE_NONE) { /* it may have been written after all */
        store_job *again = places_change_of(p, s, c->was.has_file || has_state_file(s) ? CHANGE_WRITE : CHANGE_REMOVE);
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
    if (job->is_label) { /* branches that came meanwhile */
        places_pin_follow(p, job->owner, job->changes[0].was.name);
        places_pin_follow(p, job->owner, job->name);
    }
}
