/* table_publish.c: writes the gauges of the session table: how many branches, slots, states and checkpoints there are,
 * and their bytes. */
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
    session_table *segment = table->shared.session_table;
    session_table_gauge(segment, LLM_COUNTER_SESSIONS_OPEN, table->totals.n_open);
    session_table_gauge(segment, LLM_COUNTER_SESSIONS_NAMED, table->totals.n_named);
    session_table_gauge(segment, LLM_COUNTER_SESSIONS_PARKED, table->totals.n_open - n_with_slot);
    session_table_gauge(segment, LLM_COUNTER_CELLS_USED, cells);
    session_table_gauge(segment, LLM_COUNTER_STATE_USED, table->shared.model->ops->used_bytes(table->shared.model));
    session_table_gauge(segment, LLM_COUNTER_PARKED_BYTES, table->totals.parked_bytes);
    session_table_gauge(segment, LLM_COUNTER_PARKED_MEMORY_BYTES, table->shared.ledger->n_bytes[LEDGER_PARKED]);
    session_table_gauge(segment, LLM_COUNTER_IN_FLIGHT_BYTES, table->shared.ledger->n_bytes[LEDGER_IN_FLIGHT]);
    session_table_gauge(segment, LLM_COUNTER_PARKED_DISK_BYTES, table_disk_bytes(table));
    session_table_gauge(segment, LLM_COUNTER_PARKED_DISK_REFUSES, table_is_refused(table));
    session_table_gauge(segment, LLM_COUNTER_SESSIONS_DORMANT, table_n_waiting(table));
    session_table_gauge(segment, LLM_COUNTER_CHECKPOINTS, table->shared.checkpoints->n_entries);
    session_table_gauge(segment, LLM_COUNTER_CHECKPOINT_BYTES, table->shared.checkpoints->n_bytes);
    session_table_gauge(segment, LLM_COUNTER_CHECKPOINTS_EVICTED, table->shared.checkpoints->n_evicted);
    table_account(table);
}
