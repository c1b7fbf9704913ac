/* places_publish.c: what the shared segment says about all places together. */
#include "sessions/places.h"

void places_publish(places *p)
{
    uint32_t n_with_slot = 0;
    uint64_t cells = 0;
    for (uint32_t i = 0; i < p->options.n_named + p->options.n_scratch; i++) {
        const branch *b = p->slots.holders[i];
        n_with_slot += b != NULL;
        cells += b != NULL ? branch_n_tokens(b) : 0;
    }
    page *segment = p->shared.page;
    page_gauge(segment, LLM_COUNTER_SESSIONS_OPEN, p->totals.n_open);
    page_gauge(segment, LLM_COUNTER_SESSIONS_NAMED, p->totals.n_named);
    page_gauge(segment, LLM_COUNTER_SESSIONS_PARKED, p->totals.n_open - n_with_slot);
    page_gauge(segment, LLM_COUNTER_CELLS_USED, cells);
    page_gauge(segment, LLM_COUNTER_STATE_USED, p->shared.model->ops->used_bytes(p->shared.model));
    page_gauge(segment, LLM_COUNTER_PARKED_BYTES, p->totals.parked_bytes);
    page_gauge(segment, LLM_COUNTER_PARKED_MEMORY_BYTES, p->shared.ledger->n_bytes[LEDGER_PARKED]);
    page_gauge(segment, LLM_COUNTER_IN_FLIGHT_BYTES, p->shared.ledger->n_bytes[LEDGER_IN_FLIGHT]);
    page_gauge(segment, LLM_COUNTER_PARKED_DISK_BYTES, places_disk_bytes(p));
    page_gauge(segment, LLM_COUNTER_PARKED_DISK_REFUSES, places_is_refused(p));
    page_gauge(segment, LLM_COUNTER_SESSIONS_DORMANT, places_n_waiting(p));
    page_gauge(segment, LLM_COUNTER_CHECKPOINTS, p->shared.checkpoints->n_entries);
    page_gauge(segment, LLM_COUNTER_CHECKPOINT_BYTES, p->shared.checkpoints->n_bytes);
    page_gauge(segment, LLM_COUNTER_CHECKPOINTS_EVICTED, p->shared.checkpoints->n_evicted);
}
