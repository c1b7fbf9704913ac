/* places_change.c: what a command waits for until it is on the disk: names, pins, and that files are gone. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sessions/places.h"

/* ---- names and pins ---- */

static session *session_of(places *p, const store_change *c)
{
    session *s = &p->sessions[c->place];
    return s->is_open && s->id == c->file.id ? s : NULL;
}

static void remember(store_change *c, const session *s)
{
    c->place = s->place;
    c->file.id = s->id;
    memcpy(c->was.name, s->name, sizeof c->was.name);
    c->was.is_pinned = s->record.is_pinned;
    c->was.has_file = s->has_file;
}

store_job *places_change_begin(places *p, uint32_t owner, const char *name, size_t n_name_bytes)
{
    uint32_t n = 0;
    session *s = NULL;
    while ((s = places_next(p, owner, name, n_name_bytes, s)) != NULL) {
        n++;
    }
    store_job *job = store_job_new(STORE_CHANGE, n);
    for (uint32_t i = 0; job != NULL && i < n; i++) {
        s = places_next(p, owner, name, n_name_bytes, s);
        remember(&job->changes[i], s);
    }
    return job;
}

/* What must last is written: what has a file already, and what is pinned. */
static bool describe_changed(places *p, store_job *job, bool *any)
{
    for (uint32_t i = 0; i < job->n_changes; i++) {
        store_change *c = &job->changes[i];
        session *s = session_of(p, c);
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
    job->is_asked = true;
    job->request = request;
    store_push(p->store, job);
    return true;
}

/* Its state has a file, or is getting one, which is nothing without the session's. */
static bool lies_on_disk(const session *s)
{
    return s->parked.where == PARKED_WRITING || s->parked.where == PARKED_ON_DISK || s->parked.where == PARKED_READING;
}

void places_change_undo(places *p, const store_job *job)
{
    for (uint32_t i = 0; i < job->n_changes; i++) {
        const store_change *c = &job->changes[i];
        session *s = session_of(p, c);
        if (s == NULL || (c->verb != CHANGE_WRITE && c->verb != CHANGE_NONE)) {
            continue;
        }
        if (strcmp(s->name, c->was.name) != 0) {
            session_rename(s, c->was.name, strlen(c->was.name));
        }
        s->record.is_pinned = c->was.is_pinned;
        session_publish(s);
        if (c->was.has_file || c->verb == CHANGE_WRITE) { /* it may have been written after all */
            store_job *again =
                places_change_of(p, s, c->was.has_file || lies_on_disk(s) ? CHANGE_WRITE : CHANGE_REMOVE);
            if (again != NULL) {
                store_push(p->store, again);
            }
        }
    }
}

/* ---- files that are gone ---- */

void places_removing_begin(places *p)
{
    assert(p->removing == NULL);
    p->removing = p->store != NULL ? store_job_new(STORE_CHANGE, 0) : NULL;
}

/* NULL: nothing was removed. */
static store_job *take_removing(places *p)
{
    store_job *job = p->removing;
    p->removing = NULL;
    if (job != NULL && job->n_changes == 0) {
        store_job_free(job);
        return NULL;
    }
    return job;
}

bool places_removing_end(places *p, uint32_t owner, const char *name, size_t n_name_bytes, uint64_t request)
{
    store_job *job = take_removing(p);
    if (job == NULL) {
        return false;
    }
    job->is_asked = true;
    job->request = request;
    job->owner = owner;
    memset(job->name, 0, sizeof job->name);
    memcpy(job->name, name, n_name_bytes);
    store_push(p->store, job);
    return true;
}

void places_removing_end_unasked(places *p)
{
    store_job *job = take_removing(p);
    if (job != NULL) {
        store_push(p->store, job);
    }
}

void places_attach(places *p, store_job *job)
{
    store_job *to = p->removing;
    store_change *larger = to != NULL ? realloc(to->changes, (to->n_changes + 1) * sizeof *larger) : NULL;
    if (larger == NULL) {
        store_push(p->store, job);
        return;
    }
    to->changes = larger;
    to->changes[to->n_changes++] = job->changes[0];
    job->changes[0] = (store_change){.verb = CHANGE_NONE};
    store_job_free(job);
}

void places_remove_id(places *p, uint64_t id)
{
    store_job *job = store_job_new(STORE_CHANGE, 1);
    if (job == NULL) {
        store_complain(p->store, "session file %016llx could not be removed: memory is short", (unsigned long long)id);
        return;
    }
    job->changes[0].verb = CHANGE_REMOVE;
    job->changes[0].file.id = id;
    places_attach(p, job);
}
