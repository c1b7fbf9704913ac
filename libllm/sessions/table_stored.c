/* table_stored.c: takes results of the store. Passes each to the function for its kind of job. */
#include "sessions/branch_table.h"

void table_drop_parts(branch_table *table, state_file *f)
{
    for (uint32_t i = 0; i < f->n_parts; i++) {
        ledger_drop(table->shared.ledger, LEDGER_IN_FLIGHT, f->parts[i].held);
    }
    f->n_parts = 0;
}

static void changed(branch_table *table, const store_job *job)
{
    table_change_settled(table, job);
    if (job->status != LLM_OK) {
        table->shelf.is_unsaved = table->shelf.is_unsaved || table->shelf.is_saving;
        table_removal_refused(table, job);
    }
}

static void take_one(branch_table *table, store_job *job)
{
    table->shelf.slot_until_us = 0;
    /* a branch file is small. So the result of its change does not show that the store is fast enough for states
     * again */
    table->shelf.is_store_slow = table->shelf.is_store_slow && job->verb == STORE_CHANGE;
    switch (job->verb) {
    case STORE_WRITE:
        table_written(table, job);
        table_drop_parts(table, &job->state);
        break;
    case STORE_SAVE: table_drop_parts(table, &job->state); break;
    case STORE_READ: table_read_back(table, job); break;
    case STORE_LOAD: ledger_release(table->shared.ledger, LEDGER_IN_FLIGHT, job->n_bytes_max); break;
    case STORE_CHANGE: changed(table, job); break;
    case STORE_UNSAVE:
    case STORE_SWEEP: break;
    }
}

bool table_take_stored(branch_table *table, bool takes_waited_for, void (*done)(void *context, store_job *job),
                       void *context)
{
    store_job *job = table->store != NULL ? store_take(table->store, takes_waited_for) : NULL;
    if (job == NULL) {
        return false;
    }
    take_one(table, job);
    if (job->has_waiter) {
        done(context, job);
    }
    store_job_free(job);
    return true;
}

static void ignore_result(void *context, store_job *job)
{
    (void)context;
    (void)job;
}

void table_settle(branch_table *table)
{
    if (table->store != NULL) {
        store_wait(table->store);
        while (table_take_stored(table, true, ignore_result, NULL)) {
        }
    }
}
