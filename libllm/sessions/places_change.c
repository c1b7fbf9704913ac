/* places_change.c: names and pins: a command that changes them waits until they are on the disk. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sessions/places.h"

branch *places_find_id(places *p, uint64_t id)
{
    for (uint32_t i = 0; i < p->n_places; i++) {
        if (p->branches[i].is_open && p->branches[i].id == id) {
            return &p->branches[i];
        }
    }
    return NULL;
}

bool places_is_changing(places *p, session_name name)
{
    branch *b = NULL;
    while ((b = places_next(p, name, b)) != NULL) {
        if (b->is_changing) {
            return true;
        }
    }
    return false;
}

/* ---- begin ---- */

store_job *places_change_begin(places *p, session_name name)
{
    uint32_t n = 0;
    branch *b = NULL;
    while ((b = places_next(p, name, b)) != NULL) {
        n++;
    }
    store_job *job = store_job_new(STORE_CHANGE, n);
    store_change *c = job != NULL ? job->changes : NULL;
    while (job != NULL && (b = places_next(p, name, b)) != NULL) {
        c->file.id = b->id;
        memcpy(c->was.name, b->name, sizeof c->was.name);
        c->was.is_pinned = b->record.is_pinned;
        c->was.has_file = b->has_file;
        c++;
    }
    return job;
}

void places_rename(places *p, session_name name, session_name to)
{
    branch *b;
    while ((b = places_next(p, name, NULL)) != NULL) {
        branch_rename(b, to);
    }
}

/* ---- end ---- */

/* What must last is written: what has a file already, and what is pinned. */
static bool describe_changed(places *p, store_job *job, bool *any)
{
    for (uint32_t i = 0; i < job->n_changes; i++) {
        store_change *c = &job->changes[i];
        branch *b = places_find_id(p, c->file.id);
        assert(b != NULL);
        job->owner = b->owner;
        memcpy(job->name, b->name, sizeof job->name);
        if (!b->has_file && b->record.is_pinned != LLM_PIN_ANCHORED) {
            continue;
        }
        if (!places_describe(b, &c->file)) {
            return false;
        }
        c->verb = CHANGE_WRITE;
        b->has_file = true;
        *any = true;
    }
    return true;
}

static void mark(places *p, const store_job *job, bool is_changing)
{
    for (uint32_t i = 0; i < job->n_changes; i++) {
        branch *b = places_find_id(p, job->changes[i].file.id);
        if (b != NULL) {
            b->is_changing = is_changing;
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
static bool has_state_file(const branch *b)
{
    return b->parked.where == PARKED_WRITING || b->parked.where == PARKED_ON_DISK || b->parked.where == PARKED_READING;
}

static void undo(places *p, const store_change *c)
{
    branch *b = places_find_id(p, c->file.id);
    if (b == NULL || c->verb == CHANGE_REMOVE || c->verb == CHANGE_RESET) {
        return;
    }
    if (strcmp(b->name, c->was.name) != 0) {
        branch_rename(b, session_name_from(b->owner, c->was.name));
    }
    b->record.is_pinned = c->was.is_pinned;
    branch_publish(b);
    if (c->was.has_file || c->verb != CHANGE_NONE) { /* it may have been written after all */
        store_job *again = places_change_of(p, b, c->was.has_file || has_state_file(b) ? CHANGE_WRITE : CHANGE_REMOVE);
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
