/* places_publish.c: what the shared segment says about all places together. */
#include "sessions/places.h"

void places_publish(places *p)
{
    uint64_t n_open = 0;
    uint64_t n_named = 0;
    uint64_t n_parked = 0;
    uint64_t cells = 0;
    uint64_t parked_bytes = 0;
    for (uint32_t i = 0; i < p->n_places; i++) {
        const session *s = &p->sessions[i];
        if (s->is_open) {
            n_open++;
            n_named += (s->name[0] != '\0');
            n_parked += (s->seat == SESSION_NO_SEAT);
            cells += (s->seat != SESSION_NO_SEAT) ? session_n_tokens(s) : 0;
            parked_bytes += s->parked.n_bytes;
        }
    }
    page *segment = p->ground.page;
    page_gauge(segment, LLM_COUNTER_SESSIONS_OPEN, n_open);
    page_gauge(segment, LLM_COUNTER_SESSIONS_NAMED, n_named);
    page_gauge(segment, LLM_COUNTER_SESSIONS_PARKED, n_parked);
    page_gauge(segment, LLM_COUNTER_CELLS_USED, cells);
    page_gauge(segment, LLM_COUNTER_STATE_USED, p->ground.model->ops->used_bytes(p->ground.model));
    page_gauge(segment, LLM_COUNTER_PARKED_BYTES, parked_bytes);
    page_gauge(segment, LLM_COUNTER_PARKED_MEMORY_BYTES, p->ground.ledger->n_bytes[LEDGER_PARKED]);
    page_gauge(segment, LLM_COUNTER_IN_FLIGHT_BYTES, p->ground.ledger->n_bytes[LEDGER_IN_FLIGHT]);
    page_gauge(segment, LLM_COUNTER_PARKED_DISK_BYTES, places_disk_bytes(p));
    page_gauge(segment, LLM_COUNTER_PARKED_DISK_REFUSES, places_is_refused(p));
    page_gauge(segment, LLM_COUNTER_SESSIONS_DORMANT, places_n_waiting(p));
    page_gauge(segment, LLM_COUNTER_CHECKPOINTS, p->ground.checkpoints->n_entries);
    page_gauge(segment, LLM_COUNTER_CHECKPOINT_BYTES, p->ground.checkpoints->n_bytes);
    page_gauge(segment, LLM_COUNTER_CHECKPOINTS_EVICTED, p->ground.checkpoints->n_evicted);
}
