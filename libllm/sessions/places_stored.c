/* places_stored.c: what the store has finished is taken, and everybody concerned learns of it. */
#include "sessions/places.h"

void places_drop_parts(places *p, state_file *f)
{
    for (uint32_t i = 0; i < f->n_parts; i++) {
        ledger_drop(p->shared.ledger, LEDGER_IN_FLIGHT, f->parts[i].held);
    }
    f->n_parts = 0;
}

static void changed(places *p, const store_job *job)
{
    places_change_settled(p, job);
    if (job->status != LLM_OK) {
        p->shelf.is_unsaved = p->shelf.is_unsaved || p->shelf.is_saving;
        places_removal_refused(p, job);
    }
}

static void take_one(places *p, store_job *job)
{
    p->shelf.is_stalled = p->shelf.is_stalled && job->verb == STORE_CHANGE; /* these are small */
    switch (job->verb) {
    case STORE_WRITE:
        places_written(p, job);
        places_drop_parts(p, &job->state);
        break;
    case STORE_SAVE: places_drop_parts(p, &job->state); break;
    case STORE_READ: places_read_back(p, job); break;
    case STORE_LOAD: ledger_release(p->shared.ledger, job->n_bytes_max); break;
    case STORE_CHANGE: changed(p, job); break;
    case STORE_UNSAVE:
    case STORE_SWEEP: break;
    }
}

bool places_take_stored(places *p, bool takes_asked, void (*done)(void *context, store_job *job), void *context)
{
    store_job *job = p->store != NULL ? store_take(p->store, takes_asked) : NULL;
    if (job == NULL) {
        return false;
    }
    take_one(p, job);
    if (job->is_asked) {
        done(context, job);
    }
    store_job_free(job);
    return true;
}

static void nobody_waits(void *context, store_job *job)
{
    (void)context;
    (void)job;
}

void places_settle(places *p)
{
    if (p->store != NULL) {
        store_wait(p->store);
        while (places_take_stored(p, true, nobody_waits, NULL)) {
        }
    }
}
