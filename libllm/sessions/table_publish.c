/* table_publish.c: what the shared segment says about all places together. */
#include "sessions/branch_table.h"

void table_publish(branch_table *table)
{
    uint32_t n_with_slot = 0;
    uint64_t cells = 0;
    for (uint32_t i = 0; i < table->options.n_named + table->options.n_scratch; i++) {
        const branch *b = table->slots.holders[i];
        n_with_slot += b != NULL;
        cells += b != NULL ? branch_n_tokens(b) : 0;
    }
    page *segment = table->shared.page;
    page_gauge(segment, LLM_COUNTER_SESSIONS_OPEN, table->totals.n_open);
    page_gauge(segment, LLM_COUNTER_SESSIONS_NAMED, table->totals.n_named);
    page_gauge(segment, LLM_COUNTER_SESSIONS_PARKED, table->totals.n_open - n_with_slot);
    page_gauge(segment, LLM_COUNTER_CELLS_USED, cells);
    page_gauge(segment, LLM_COUNTER_STATE_USED, table->shared.model->ops->used_bytes(table->shared.model));
    page_gauge(segment, LLM_COUNTER_PARKED_BYTES, table->totals.parked_bytes);
    page_gauge(segment, LLM_COUNTER_PARKED_MEMORY_BYTES, table->shared.ledger->n_bytes[LEDGER_PARKED]);
    page_gauge(segment, LLM_COUNTER_IN_FLIGHT_BYTES, table->shared.ledger->n_bytes[LEDGER_IN_FLIGHT]);
    page_gauge(segment, LLM_COUNTER_PARKED_DISK_BYTES, table_disk_bytes(table));
    page_gauge(segment, LLM_COUNTER_PARKED_DISK_REFUSES, table_is_refused(table));
    page_gauge(segment, LLM_COUNTER_SESSIONS_DORMANT, table_n_waiting(table));
    page_gauge(segment, LLM_COUNTER_CHECKPOINTS, table->shared.checkpoints->n_entries);
    page_gauge(segment, LLM_COUNTER_CHECKPOINT_BYTES, table->shared.checkpoints->n_bytes);
    page_gauge(segment, LLM_COUNTER_CHECKPOINTS_EVICTED, table->shared.checkpoints->n_evicted);
}
