/* table_stop.c: saves every named branch at an orderly stop. */
#include <string.h>

#include "sessions/branch_table.h"

static void save_one(branch_table *table, branch *b)
{
    uint32_t k = 0;
    if (!table_write_file(table, b)) {
        store_complain(table->store, "session \"%s\" could not be saved: memory is short", b->name);
        table->shelf.is_unsaved = true;
        return;
    }
    blob *state = !b->parked.is_on_disk ? branch_hold_state(b, LEDGER_IN_FLIGHT, &k) : NULL;
    store_job *job = state != NULL ? store_job_new(STORE_WRITE, 0) : NULL;
    if (job != NULL && !table_write_state(table, b, state, k, job)) {
        store_job_free(job);
    }
    ledger_drop(table->shared.ledger, LEDGER_IN_FLIGHT, state);
}

bool table_is_unsaved(const branch_table *table)
{
    return table->shelf.is_unsaved;
}

void table_save_all(branch_table *table, void (*take_stored)(void *context), void *context)
{
    if (table->store == NULL) {
        return;
    }
    table_remove_closed(table);
    /* first waits for the queued jobs. States that are being read must be saved, too. States that are being written
     * need not be written again */
    store_wait(table->store);
    take_stored(context);
    table->shelf.is_saving = true;
    for (uint32_t i = 0; i < table->n_entries; i++) {
        branch *b = &table->branches[i];
        if (b->is_open && branch_is_named(b) && (branch_n_tokens(b) > 0 || b->record.is_pinned)) {
            save_one(table, b);
            session_table_count(table->shared.session_table, LLM_COUNTER_SESSIONS_SAVED, 1);
        } else if (b->is_open && branch_is_named(b)) {
            table_remove_file(table, b); /* the branch was reset, but the disk failed to remove its file at that time */
        }
        /* branches are saved one at a time. A copy of the state stays in memory until the result of its write is
         * taken */
        store_wait(table->store);
        take_stored(context);
    }
}
