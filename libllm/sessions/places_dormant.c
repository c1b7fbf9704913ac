/* places_dormant.c: sessions that lie in the store and found no place at the start. Nothing of them is in memory but who
 * they are; a request that names one wakes it. */
#include <stdlib.h>
#include <string.h>

#include "sessions/places.h"

static bool is_of(const dormant *d, uint32_t owner, const char *name, size_t n_name_bytes)
{
    return d->owner == owner && n_name_bytes < sizeof d->name && memcmp(d->name, name, n_name_bytes) == 0 &&
           d->name[n_name_bytes] == '\0';
}

void places_dormant_add(places *p, const dormant *d)
{
    if (p->n_dormant == p->dormant_capacity) {
        const uint32_t capacity = p->dormant_capacity == 0 ? 64 : 2 * p->dormant_capacity;
        dormant *larger = realloc(p->dormant, capacity * sizeof *larger);
        if (larger == NULL) {
            return; /* its files stay: the next start finds them */
        }
        p->dormant = larger;
        p->dormant_capacity = capacity;
    }
    p->dormant[p->n_dormant++] = *d;
}

dormant *places_dormant_next(places *p, uint32_t owner, const char *name, size_t n_name_bytes, const dormant *after)
{
    for (uint32_t i = after != NULL ? (uint32_t)(after - p->dormant) + 1 : 0; i < p->n_dormant; i++) {
        if (is_of(&p->dormant[i], owner, name, n_name_bytes)) {
            return &p->dormant[i];
        }
    }
    return NULL;
}

static void take_out(places *p, uint32_t i)
{
    p->dormant[i] = p->dormant[--p->n_dormant];
}

const dormant *places_dormant_find(const places *p, uint32_t owner, const char *name, size_t n_name_bytes)
{
    const dormant *newest = NULL;
    for (uint32_t i = 0; i < p->n_dormant; i++) {
        const dormant *d = &p->dormant[i];
        if (is_of(d, owner, name, n_name_bytes) && (newest == NULL || d->used_ms > newest->used_ms)) {
            newest = d;
        }
    }
    return newest;
}

bool places_knows(places *p, uint32_t owner, const char *name, size_t n_name_bytes)
{
    return places_next(p, owner, name, n_name_bytes, NULL) != NULL ||
           places_dormant_find(p, owner, name, n_name_bytes) != NULL;
}

uint64_t places_new_id(places *p)
{
    return session_clock_us() ^ ((uint64_t)++p->clock << 48) ^ ((uint64_t)session_clock_ms() << 12);
}

bool places_is_waking(const session *s)
{
    return s->parked.where == PARKED_READING && session_n_tokens(s) == 0;
}

void places_wake_failed(places *p, session *s)
{
    s->id = places_new_id(p);
    s->has_file = false;
    s->is_changing = false;
    s->is_unread = true;
}

int places_wake(places *p, const dormant *found, session **out)
{
    const dormant d = *found;
    store_job *job = store_job_new(STORE_READ, 0);
    if (job == NULL) {
        return LLM_NO_MEMORY;
    }
    const int status = places_open_known(p, d.owner, d.name, strlen(d.name), d.id, out);
    if (status != LLM_OK) {
        store_job_free(job);
        return status;
    }
    session *s = *out;
    /* Its tokens are needed whatever else is on its way; its state is read with them only if there is room for it. */
    const size_t n_bytes = ledger_admits(p->ground.ledger, d.n_disk_bytes) ? d.n_disk_bytes : 0;
    s->has_file = true;
    s->is_changing = d.is_changing;
    s->record.is_pinned = d.is_pinned ? LLM_PIN_ANCHORED : s->record.is_pinned;
    s->record.state = LLM_STATE_PARKED;
    s->parked = (parked){
        .where = PARKED_READING, .k = d.k, .n_disk_bytes = d.n_disk_bytes, .reading = ++p->clock, .slept = d.tokens};
    session_publish(s);
    job->place = s->place;
    job->id = s->id;
    job->request = s->parked.reading;
    job->wants_session = true;
    job->n_bytes_max = n_bytes;
    ledger_reserve(p->ground.ledger, n_bytes);
    store_push(p->store, job);
    take_out(p, (uint32_t)(found - p->dormant));
    return LLM_OK;
}

void places_dormant_forget(places *p, const dormant *d)
{
    places_remove_id(p, d->id, d->owner, d->name);
    page_count(p->ground.page, LLM_COUNTER_SESSIONS_EVICTED, 1);
    take_out(p, (uint32_t)(d - p->dormant));
}

uint32_t places_dormant_remove(places *p, uint32_t owner, const char *name, size_t n_name_bytes)
{
    uint32_t n = 0;
    for (uint32_t i = p->n_dormant; i > 0; i--) {
        if (is_of(&p->dormant[i - 1], owner, name, n_name_bytes)) {
            places_remove_id(p, p->dormant[i - 1].id, owner, p->dormant[i - 1].name);
            take_out(p, i - 1);
            n++;
        }
    }
    return n;
}

static void expire_one(places *p, uint32_t i)
{
    const dormant d = p->dormant[i];
    places_remove_id(p, d.id, d.owner, d.name);
    page_count(p->ground.page, LLM_COUNTER_SESSIONS_EXPIRED, 1);
    take_out(p, i);
    if (p->forgotten != NULL && !places_knows(p, d.owner, d.name, strlen(d.name))) {
        p->forgotten(p->forgotten_context, d.owner, d.name);
    }
}

uint64_t places_dormant_expire(places *p, uint64_t before_ms)
{
    uint64_t oldest = 0;
    uint32_t n_gone = 0;
    for (uint32_t i = p->n_dormant; i > 0; i--) {
        const dormant *d = &p->dormant[i - 1];
        if (d->is_pinned) {
            continue;
        }
        if (d->used_ms < before_ms && n_gone < DORMANT_EXPIRED_MAX) {
            n_gone++;
            expire_one(p, i - 1);
        } else if (oldest == 0 || d->used_ms < oldest) {
            oldest = d->used_ms;
        }
    }
    return oldest;
}
