/* places_stop.c: an orderly stop: every named branch is saved as it is. */
#include <string.h>

#include "sessions/places.h"

static void save_one(places *p, branch *b)
{
    uint32_t k = 0;
    if (!places_write_file(p, b)) {
        store_complain(p->store, "session \"%s\" could not be saved: memory is short", b->name);
        p->shelf.is_unsaved = true;
        return;
    }
    blob *state = !b->parked.is_on_disk ? branch_hold_state(b, LEDGER_IN_FLIGHT, &k) : NULL;
    store_job *job = state != NULL ? store_job_new(STORE_WRITE, 0) : NULL;
    if (job != NULL && !places_write_state(p, b, state, k, job)) {
        store_job_free(job);
    }
    ledger_drop(p->shared.ledger, LEDGER_IN_FLIGHT, state);
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
        branch *b = &p->branches[i];
        if (b->is_open && branch_is_named(b) && (branch_n_tokens(b) > 0 || b->record.is_pinned)) {
            save_one(p, b);
            page_count(p->shared.page, LLM_COUNTER_SESSIONS_SAVED, 1);
        } else if (b->is_open && branch_is_named(b)) {
            places_remove_file(p, b); /* it was reset, and the disk refused that */
        }
        store_wait(p->store); /* one at a time: a copy of each is in memory until its result is taken */
        take_stored(context);
    }
}
