/* places_removal.c: files that are gone when the answer comes, and those that the disk refused to let go. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sessions/places.h"

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

/* ---- what the disk refused ---- */

static void remember(places *p, const session_file *file)
{
    refused_removal *larger =
        p->n_refused < REFUSED_REMOVALS_MAX ? realloc(p->refused, (p->n_refused + 1) * sizeof *larger) : NULL;
    if (larger == NULL) {
        return; /* the store has complained of it */
    }
    p->refused = larger;
    refused_removal *r = &p->refused[p->n_refused++];
    r->id = file->id;
    r->owner = file->owner;
    memcpy(r->name, file->name, sizeof r->name);
}

void places_removal_refused(places *p, const store_job *job)
{
    for (uint32_t i = 0; i < job->n_changes; i++) {
        const store_change *c = &job->changes[i];
        session *s = places_find_id(p, c->file.id);
        if (c->verb == CHANGE_REMOVE && s != NULL) {
            s->has_file = true; /* of a session that was reset: the next reset, close or stop sees to it */
        } else if (c->verb == CHANGE_REMOVE) {
            remember(p, &c->file);
        }
    }
}

static bool is_of(const refused_removal *r, uint32_t owner, const char *name, size_t n_name_bytes)
{
    return r->owner == owner && strlen(r->name) == n_name_bytes && memcmp(r->name, name, n_name_bytes) == 0;
}

bool places_has_refused(const places *p, uint32_t owner, const char *name, size_t n_name_bytes)
{
    for (uint32_t i = 0; i < p->n_refused; i++) {
        if (is_of(&p->refused[i], owner, name, n_name_bytes)) {
            return true;
        }
    }
    return false;
}

static void try_again(places *p, uint32_t i)
{
    const refused_removal r = p->refused[i];
    p->refused[i] = p->refused[--p->n_refused];
    places_remove_id(p, r.id, r.owner, r.name);
}

void places_remove_refused(places *p, uint32_t owner, const char *name, size_t n_name_bytes)
{
    for (uint32_t i = p->n_refused; i > 0; i--) {
        if (is_of(&p->refused[i - 1], owner, name, n_name_bytes)) {
            try_again(p, i - 1);
        }
    }
}

void places_remove_all_refused(places *p)
{
    while (p->n_refused > 0) {
        try_again(p, p->n_refused - 1);
    }
}
