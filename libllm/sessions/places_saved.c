/* places_saved.c: sessions saved under labels. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sessions/places.h"

/* The state to be saved, held as in flight; NULL: it is on the disk, or there is none. False: memory is short. */
static bool hold_state(places *p, session *s, blob **state, uint32_t *k)
{
    const bool has_slot = session_has_slot(s);
    const bool has_state = has_slot ? s->record.state != LLM_STATE_TORN : s->parked.state != NULL;
    const size_t n_bytes = has_slot ? session_state_bytes(s, session_n_tokens(s)) : s->parked.n_bytes;
    if (has_state && !places_may_write(p, n_bytes)) {
        return false;
    }
    *state = session_hold_state(s, LEDGER_IN_FLIGHT, k);
    return *state != NULL || !has_state;
}

int places_save(places *p, session *s, session_name label, uint64_t request)
{
    blob *state = NULL;
    uint32_t k = 0;
    if (p->store == NULL) {
        return LLM_IO;
    }
    if (session_n_tokens(s) == 0) {
        return LLM_NOT_FOUND;
    }
    store_job *job = places_may_write(p, 0) ? store_job_new(STORE_SAVE, 0) : NULL;
    if (job == NULL || !places_describe(s, &job->file) || !hold_state(p, s, &state, &k)) {
        store_job_free(job);
        return LLM_NO_MEMORY;
    }
    job->is_asked = true;
    job->request = request;
    job->owner = s->owner;
    memcpy(job->name, s->name, sizeof job->name);
    memcpy(job->label, label.bytes, label.n_bytes);
    memcpy(job->file.name, job->label, sizeof job->label);
    job->file.is_pinned = false;
    if (state != NULL) {
        places_describe_state(p, s, state, k, &job->state);
        ledger_drop(p->ground.ledger, LEDGER_IN_FLIGHT, state);
    } else {
        job->linked_id = s->parked.is_on_disk ? s->id : 0;
    }
    store_push(p->store, job);
    return LLM_OK;
}

static store_job *job_about(store_verb verb, session_name label, uint64_t request)
{
    store_job *job = store_job_new(verb, 0);
    if (job != NULL) {
        job->is_asked = true;
        job->request = request;
        job->owner = label.owner;
        memcpy(job->label, label.bytes, label.n_bytes);
    }
    return job;
}

int places_load(places *p, session_name name, session_name label, uint64_t request)
{
    if (p->store == NULL) {
        return LLM_IO;
    }
    store_job *job = job_about(STORE_LOAD, label, request);
    if (job == NULL) {
        return LLM_NO_MEMORY;
    }
    memcpy(job->name, name.bytes, name.n_bytes);
    uint64_t n_bytes = 0;
    int status = store_find_saved(p->store, job->owner, job->label, &n_bytes) ? LLM_OK : LLM_NOT_FOUND;
    if (status == LLM_OK && !ledger_admits(p->ground.ledger, n_bytes)) {
        status = LLM_NO_MEMORY;
    }
    if (status != LLM_OK) {
        store_job_free(job);
        return status;
    }
    job->n_bytes_max = n_bytes;
    ledger_reserve(p->ground.ledger, n_bytes);
    store_push(p->store, job);
    return LLM_OK;
}

int places_unsave(places *p, session_name label, uint64_t request)
{
    if (p->store == NULL) {
        return LLM_IO;
    }
    store_job *job = job_about(STORE_UNSAVE, label, request);
    if (job == NULL) {
        return LLM_NO_MEMORY;
    }
    store_push(p->store, job);
    return LLM_OK;
}

void places_become(places *p, session *s, const store_job *from)
{
    assert(session_is_idle(s) && session_n_tokens(s) == 0);
    if (s->slot != SESSION_NO_SLOT) {
        (void)places_park(p, s); /* empty: cannot fail */
    }
    page_append(p->ground.page, s->place, from->file.tokens, from->file.n_tokens);
    s->record.state = LLM_STATE_PARKED;
    s->record.n_visible = from->file.n_tokens;
    s->record.n_last_prompt = 0;
    session_publish(s);
}

void places_become_warm(places *p, session *s, store_job *from)
{
    (void)places_take_state(p, s, &from->state); /* without one it is read again */
    places_spill(p);
}
