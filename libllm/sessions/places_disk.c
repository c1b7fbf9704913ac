/* places_disk.c: what the state files of sessions may take on the disk. The session files, which are small, always stay. */
#include "sessions/places.h"

size_t places_disk_bytes(const places *p)
{
    size_t n = 0;
    for (uint32_t i = 0; i < p->n_places; i++) {
        n += p->sessions[i].is_open ? p->sessions[i].n_file_bytes : 0;
    }
    return n + places_loose_bytes(p);
}

bool places_remove_state(places *p, session *s)
{
    store_job *job = store_job_new(STORE_SWEEP, 1);
    if (job == NULL) {
        return false;
    }
    job->changes[0].verb = CHANGE_RESET;
    job->changes[0].file.id = s->id;
    store_push(p->store, job);
    s->n_file_bytes = 0;
    if (s->parked.where == PARKED_ON_DISK) { /* its tokens stay known */
        session_forget_parked(s);
        page_count(p->ground.page, LLM_COUNTER_PARKED_DROPPED, 1);
    }
    s->parked.is_on_disk = false;
    return true;
}

/* A file that is being written or read stays, and one that a request waits for. */
static bool may_lose_state(const session *s)
{
    const parked *at = &s->parked;
    const bool is_needed = at->where == PARKED_ON_DISK && !session_is_idle(s);
    return !is_needed && !at->is_lent && at->where != PARKED_WRITING && at->where != PARKED_READING;
}

/* Whose file goes first: of a session that does not need it, then the least recently used. `s` wants n_bytes. NULL: none. */
static session *victim(places *p, const session *s, size_t n_bytes)
{
    enum { UNIT_BYTES = 4096 };
    const uint64_t needed = (uint64_t)1 << 63; /* places_order is below */
    for (uint32_t i = 0; i < p->n_places; i++) {
        const session *other = &p->sessions[i];
        const size_t n = other == s ? n_bytes : other->is_open ? other->n_file_bytes : 0;
        p->holdings[i] = (share_holding){
            .owner = other->owner,
            .amount = n > 0 ? (uint32_t)(n / UNIT_BYTES) + 1 : 0,
            .may_go = n > 0 && (other == s || may_lose_state(other)),
            .order = places_order(other) | (other == s || other->parked.where == PARKED_ON_DISK ? needed : 0),
        };
    }
    const size_t limit = p->options.parked_disk_bytes_max / UNIT_BYTES;
    const share_claim claim = {.limit = limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX,
                               .n_owners = atomic_load(&p->n_owners)};
    const uint32_t place = share_victim(p->holdings, p->n_places, &claim);
    return place < p->n_places ? &p->sessions[place] : NULL;
}

bool places_make_disk_room(places *p, const session *s, size_t n_bytes)
{
    const size_t n_max = p->options.parked_disk_bytes_max, n_replaced = s != NULL ? s->n_file_bytes : 0;
    while (n_bytes > n_max || places_disk_bytes(p) - n_replaced > n_max - n_bytes) {
        session *other = n_bytes <= n_max ? victim(p, s, n_bytes) : NULL;
        if (other == NULL || other == s || !places_remove_state(p, other)) {
            return false;
        }
    }
    return true;
}

void places_limit_disk(places *p)
{
    size_t *n_max = &p->options.parked_disk_bytes_max;
    if (p->store == NULL) {
        *n_max = 0;
        return;
    }
    if (*n_max == 0) {
        *n_max = (size_t)((store_free_bytes(p->store) + places_disk_bytes(p)) / PLACES_DISK_SHARE);
    }
    (void)places_make_disk_room(p, NULL, 0);
}
