/* table_copy.c: copies tokens and saved state from one branch to another, without the model. */
#include "sessions/branch_table.h"

/* Gives the state file of `from` a second name, which contains the id of `to` (a hard link). The store does its jobs in
 * order, so the link exists before the state of `to` can be read. */
static void share_file(branch_table *table, const branch *from, branch *to)
{
    store_job *job = table_may_write(table, 0) ? store_job_new(STORE_WRITE, 0) : NULL;
    if (job == NULL || !table_write_file(table, to)) {
        store_job_free(job);
        return;
    }
    job->linked_id = from->id;
    parked on_disk = from->parked;
    on_disk.where = PARKED_ON_DISK;
    branch_set_parked(to, &on_disk);
    /* counted for both branches, because either can outlive the other */
    table_expect_file(table, to, job, from->n_file_bytes);
    store_push(table->store, job);
}

void table_copy(branch_table *table, branch *from, branch *to, uint32_t n, bool may_truncate)
{
    uint32_t k = 0;
    blob *state = branch_hold_state(from, LEDGER_PARKED, &k);
    const bool is_of_use = k <= n || (may_truncate && state != NULL);
    session_table_append(table->shared.session_table, to->entry, branch_tokens(from), is_of_use && k > n ? k : n);
    if (state != NULL && is_of_use) {
        branch_hold_parked(to, state, k);
        table_spill(table);
        return;
    }
    ledger_drop(table->shared.ledger, LEDGER_PARKED, state);
    if (is_of_use && k > 0 && !branch_has_slot(from) && from->parked.is_on_disk) {
        share_file(table, from, to);
    }
}
