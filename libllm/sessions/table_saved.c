/* table_saved.c: saves sessions under labels, and loads and removes saved sessions. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sessions/branch_table.h"

/* Sets *state to the state to be saved, which then counts as in flight (ledger.h). Sets *state to NULL if there is no
 * state, or if the state is only on disk. Returns false if memory is short. */
static bool hold_state(branch_table *table, branch *b, blob **state, uint32_t *k)
{
    const bool has_slot = branch_has_slot(b);
    const bool has_state = has_slot ? b->record.state != LLM_STATE_TORN : b->parked.state != NULL;
    const size_t n_bytes = has_slot ? branch_state_bytes(b, branch_n_tokens(b)) : b->parked.n_bytes;
    if (has_state && !table_may_write(table, n_bytes)) {
        return false;
    }
    *state = branch_hold_state(b, LEDGER_IN_FLIGHT, k);
    return *state != NULL || !has_state;
}

int table_save(branch_table *table, branch *b, session_name label, uint64_t request)
{
    blob *state = NULL;
    uint32_t k = 0;
    if (table->store == NULL) {
        return LLM_IO;
    }
    if (branch_n_tokens(b) == 0) {
        return LLM_NOT_FOUND;
    }
    store_job *job = table_may_write(table, 0) ? store_job_new(STORE_SAVE, 0) : NULL;
    if (job == NULL || !table_describe(b, &job->file) || !hold_state(table, b, &state, &k)) {
        store_job_free(job);
        return LLM_NO_MEMORY;
    }
    job->has_waiter = true;
    job->request = request;
    job->owner = b->owner;
    memcpy(job->name, b->name, sizeof job->name);
    memcpy(job->label, label.bytes, label.n_bytes);
    memcpy(job->file.name, job->label, sizeof job->label);
    job->file.is_pinned = false;
    if (state != NULL) {
        table_describe_state(table, b, state, k, &job->state);
        ledger_drop(table->shared.ledger, LEDGER_IN_FLIGHT, state);
    } else {
        job->linked_id = b->parked.is_on_disk ? b->id : 0;
    }
    store_push(table->store, job);
    return LLM_OK;
}

static store_job *job_about(store_verb verb, session_name label, uint64_t request)
{
    store_job *job = store_job_new(verb, 0);
    if (job != NULL) {
        job->has_waiter = true;
        job->request = request;
        job->owner = label.owner;
        memcpy(job->label, label.bytes, label.n_bytes);
    }
    return job;
}

int table_load(branch_table *table, session_name name, session_name label, uint64_t request)
{
    if (table->store == NULL) {
        return LLM_IO;
    }
    store_job *job = job_about(STORE_LOAD, label, request);
    if (job == NULL) {
        return LLM_NO_MEMORY;
    }
    memcpy(job->name, name.bytes, name.n_bytes);
    uint64_t n_bytes = 0;
    int status = store_find_saved(table->store, job->owner, job->label, &n_bytes) ? LLM_OK : LLM_NOT_FOUND;
    if (status == LLM_OK && !ledger_admits(table->shared.ledger, n_bytes)) {
        status = LLM_NO_MEMORY;
    }
    if (status != LLM_OK) {
        store_job_free(job);
        return status;
    }
    job->n_bytes_max = n_bytes;
    ledger_reserve(table->shared.ledger, LEDGER_IN_FLIGHT, n_bytes);
    store_push(table->store, job);
    return LLM_OK;
}

int table_unsave(branch_table *table, session_name label, uint64_t request)
{
    if (table->store == NULL) {
        return LLM_IO;
    }
    store_job *job = job_about(STORE_UNSAVE, label, request);
    if (job == NULL) {
        return LLM_NO_MEMORY;
    }
    store_push(table->store, job);
    return LLM_OK;
}

void table_become(branch_table *table, branch *b, const store_job *from)
{
    assert(branch_is_idle(b) && branch_n_tokens(b) == 0);
    if (b->slot != BRANCH_NO_SLOT) {
        (void)table_park(table, b); /* cannot fail, because the branch is empty */
    }
    session_table_append(table->shared.session_table, b->entry, from->file.tokens, from->file.n_tokens);
    b->record.state = LLM_STATE_PARKED;
    b->record.n_visible = from->file.n_tokens;
    b->record.n_last_prompt = 0;
    branch_publish(b);
}

void table_become_warm(branch_table *table, branch *b, store_job *from)
{
    (void)table_take_state(table, b, &from->state); /* if no state was loaded, the next request prefills the tokens */
    table_spill(table);
}
