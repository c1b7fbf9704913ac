/* places_stop.c: an orderly stop: every named session is saved as it is. */
#include <string.h>

#include "sessions/places.h"

static void save_one(places *p, session *s)
{
    uint32_t k = 0;
    if (!places_write_file(p, s)) {
        store_complain(p->store, "session \"%s\" could not be saved: memory is short", s->name);
        p->shelf.is_unsaved = true;
        return;
    }
    blob *state = !s->parked.is_on_disk ? session_hold_state(s, LEDGER_IN_FLIGHT, &k) : NULL;
    store_job *job = state != NULL ? store_job_new(STORE_WRITE, 0) : NULL;
    if (job != NULL && !places_write_state(p, s, state, k, job)) {
        store_job_free(job);
    }
    ledger_drop(p->ground.ledger, LEDGER_IN_FLIGHT, state);
}

bool places_is_unsaved(const places *p)
{
    return p->shelf.is_unsaved;
}

void places_save_all(places *p, void (*take_stored)(void *context), void *context)
{
    if (p->store == NULL) {
        return;
    }
    places_remove_closed(p);
    store_wait(p->store); /* what is still being read is to be saved, what is being written is not */
    take_stored(context);
    p->shelf.is_saving = true;
    for (uint32_t i = 0; i < p->n_places; i++) {
        session *s = &p->sessions[i];
        if (s->is_open && session_is_named(s) && (session_n_tokens(s) > 0 || s->record.is_pinned)) {
            save_one(p, s);
            page_count(p->ground.page, LLM_COUNTER_SESSIONS_SAVED, 1);
        } else if (s->is_open && session_is_named(s)) {
            places_remove_file(p, s); /* it was reset, and the disk refused that */
        }
        store_wait(p->store); /* one at a time: a copy of each is in memory until its result is taken */
        take_stored(context);
    }
}
