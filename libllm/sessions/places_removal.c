/* places_removal.c: files that are gone when the answer comes, and files of sessions that are not open. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sessions/places.h"

void places_removing_begin(places *p)
{
    assert(p->naming.removing == NULL);
    p->naming.removing = p->store != NULL ? store_job_new(STORE_CHANGE, 0) : NULL;
}

/* NULL: nothing was removed. */
static store_job *take_removing(places *p)
{
    store_job *job = p->naming.removing;
    p->naming.removing = NULL;
    if (job != NULL && job->n_changes == 0) {
        store_job_free(job);
        return NULL;
    }
    return job;
}

bool places_removing_end(places *p, session_name name, uint64_t request)
{
    store_job *job = take_removing(p);
    if (job == NULL) {
        return false;
    }
    job->is_asked = true;
    job->request = request;
    job->owner = name.owner;
    memset(job->name, 0, sizeof job->name);
    memcpy(job->name, name.bytes, name.n_bytes);
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
    store_job *to = p->naming.removing;
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

void places_remove_id(places *p, uint64_t id, uint32_t owner, const char *name)
{
    store_job *job = store_job_new(STORE_CHANGE, 1);
    if (job == NULL) {
        store_complain(p->store, "session file %016llx could not be removed: memory is short", (unsigned long long)id);
        return;
    }
    store_change *c = &job->changes[0];
    c->verb = CHANGE_REMOVE;
    c->file.id = id;
    c->file.owner = owner;
    memcpy(c->file.name, name, strlen(name));
    places_attach(p, job);
}

/* ---- files of sessions that are not open ---- */

bool places_add_loose(places *p, const loose_file *f)
{
    loose_file *larger = realloc(p->naming.loose_files, (p->naming.n_loose + 1) * sizeof *larger);
    if (larger == NULL) {
        return false;
    }
    p->naming.loose_files = larger;
    p->naming.loose_files[p->naming.n_loose++] = *f;
    p->naming.n_waiting += !f->is_closed;
    p->naming.loose_bytes += f->n_file_bytes;
    return true;
}

void places_removal_refused(places *p, const store_job *job)
{
    for (uint32_t i = 0; i < job->n_changes; i++) {
        const store_change *c = &job->changes[i];
        branch *b = places_find_id(p, c->file.id);
        if (c->verb == CHANGE_REMOVE && b != NULL) {
            b->has_file = true; /* of a session that was reset: the next reset, close or stop sees to it */
        } else if (c->verb == CHANGE_REMOVE && p->naming.n_loose - places_n_waiting(p) < REFUSED_REMOVALS_MAX) {
            loose_file f = {.id = c->file.id, .owner = c->file.owner, .is_closed = true};
            memcpy(f.name, c->file.name, sizeof f.name);
            (void)places_add_loose(p, &f);
        }
    }
}

static bool is_of(const loose_file *f, session_name name)
{
    return session_name_equal(session_name_from(f->owner, f->name), name);
}

const loose_file *places_next_loose(const places *p, session_name name, const loose_file *after)
{
    for (uint32_t i = after != NULL ? (uint32_t)(after - p->naming.loose_files) + 1 : 0; i < p->naming.n_loose; i++) {
        if (is_of(&p->naming.loose_files[i], name)) {
            return &p->naming.loose_files[i];
        }
    }
    return NULL;
}

bool places_is_waiting(const places *p, session_name name)
{
    const loose_file *f = NULL;
    while ((f = places_next_loose(p, name, f)) != NULL && f->is_closed) {
    }
    return f != NULL;
}

static void remove_loose(places *p, uint32_t i)
{
    const loose_file f = p->naming.loose_files[i];
    p->naming.loose_files[i] = p->naming.loose_files[--p->naming.n_loose];
    p->naming.n_waiting -= !f.is_closed;
    p->naming.loose_bytes -= f.n_file_bytes;
    places_remove_id(p, f.id, f.owner, f.name);
}

void places_remove_loose(places *p, session_name name)
{
    for (uint32_t i = p->naming.n_loose; i > 0; i--) {
        if (is_of(&p->naming.loose_files[i - 1], name)) {
            remove_loose(p, i - 1);
        }
    }
}

void places_remove_closed(places *p)
{
    for (uint32_t i = p->naming.n_loose; i > 0; i--) {
        if (p->naming.loose_files[i - 1].is_closed) {
            remove_loose(p, i - 1);
        }
    }
}

uint64_t places_expire_loose(places *p, uint64_t before_ms)
{
    uint64_t oldest = 0;
    uint32_t n_expired = 0;
    for (uint32_t i = p->naming.n_loose; i > 0; i--) {
        const loose_file f = p->naming.loose_files[i - 1];
        if (f.is_closed || f.is_pinned) {
            continue;
        }
        if (f.used_ms < before_ms && n_expired < LOOSE_EXPIRED_MAX) {
            n_expired++;
            remove_loose(p, i - 1);
            places_report_forgotten(p, f.owner, f.name, LLM_COUNTER_SESSIONS_EXPIRED);
        } else if (oldest == 0 || f.used_ms < oldest) {
            oldest = f.used_ms;
        }
    }
    return oldest;
}

uint32_t places_n_waiting(const places *p)
{
    return p->naming.n_waiting;
}

size_t places_loose_bytes(const places *p)
{
    return p->naming.loose_bytes;
}

void places_free_loose(places *p)
{
    free(p->naming.loose_files);
    p->naming = (places_naming){.loose_files = NULL};
}
