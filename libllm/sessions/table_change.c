/* table_change.c: changes of names and pins. A command that changes names or pins waits until the changes are on
 * disk. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sessions/branch_table.h"

branch *table_find_id(branch_table *table, uint64_t id)
{
    for (uint32_t i = 0; i < table->n_entries; i++) {
        if (table->branches[i].is_open && table->branches[i].id == id) {
            return &table->branches[i];
        }
    }
    return NULL;
}

bool table_is_changing(branch_table *table, session_name name)
{
    branch *b = NULL;
    while ((b = table_next(table, name, b)) != NULL) {
        if (b->is_changing) {
            return true;
        }
    }
    return false;
}

/* ---- begin ---- */

store_job *table_change_begin(branch_table *table, session_name name)
{
    uint32_t n = 0;
    branch *b = NULL;
    while ((b = table_next(table, name, b)) != NULL) {
        n++;
    }
    store_job *job = store_job_new(STORE_CHANGE, n);
    store_change *c = job != NULL ? job->changes : NULL;
    while (job != NULL && (b = table_next(table, name, b)) != NULL) {
        c->file.id = b->id;
        memcpy(c->was.name, b->name, sizeof c->was.name);
        c->was.is_pinned = b->record.is_pinned;
        c->was.has_file = b->has_file;
        c++;
    }
    return job;
}

void table_rename(branch_table *table, session_name name, session_name to)
{
    branch *b;
    while ((b = table_next(table, name, NULL)) != NULL) {
        branch_rename(b, to);
    }
}

/* ---- end ---- */

/* Adds to the job all branch files that must be written: those that already exist, and those of pinned branches. Sets
 * *any if there are such files. Returns false if memory is short. */
static bool describe_changed(branch_table *table, store_job *job, bool *any)
{
    for (uint32_t i = 0; i < job->n_changes; i++) {
        store_change *c = &job->changes[i];
        branch *b = table_find_id(table, c->file.id);
        assert(b != NULL);
        job->owner = b->owner;
        memcpy(job->name, b->name, sizeof job->name);
        if (!b->has_file && b->record.is_pinned != LLM_PIN_ANCHORED) {
            continue;
        }
        if (!table_describe(b, &c->file)) {
            return false;
        }
        c->verb = CHANGE_WRITE;
        b->has_file = true;
        *any = true;
    }
    return true;
}

static void mark(branch_table *table, const store_job *job, bool is_changing)
{
    for (uint32_t i = 0; i < job->n_changes; i++) {
        branch *b = table_find_id(table, job->changes[i].file.id);
        if (b != NULL) {
            b->is_changing = is_changing;
        }
    }
}

bool table_change_end(branch_table *table, store_job *job, uint64_t request, llm_status *status)
{
    bool any = false;
    *status = LLM_OK;
    if (table->store != NULL && !describe_changed(table, job, &any)) {
        table_change_undo(table, job);
        *status = LLM_NO_MEMORY;
        any = false;
    }
    if (!any) {
        store_job_free(job);
        return false;
    }
    mark(table, job, true);
    job->is_label = true;
    job->has_waiter = true;
    job->request = request;
    store_push(table->store, job);
    return true;
}

void table_change_settled(branch_table *table, const store_job *job)
{
    if (job->is_label) {
        mark(table, job, false);
    }
}

/* ---- undo ---- */

/* Whether the branch has a state file, or will have one. If so, the branch file must stay, because a state file is
 * useless without the branch file. */
static bool has_state_file(const branch *b)
{
    return b->parked.where == PARKED_WRITING || b->parked.where == PARKED_ON_DISK || b->parked.where == PARKED_READING;
}

static void undo(branch_table *table, const store_change *c)
{
    branch *b = table_find_id(table, c->file.id);
    if (b == NULL || c->verb == CHANGE_REMOVE || c->verb == CHANGE_RESET) {
        return;
    }
    if (strcmp(b->name, c->was.name) != 0) {
        branch_rename(b, session_name_from(b->owner, c->was.name));
    }
    b->record.is_pinned = c->was.is_pinned;
    branch_publish(b);
    if (c->was.has_file || c->verb != CHANGE_NONE) { /* the failed job may have written the file */
        store_job *undo_job =
            table_change_of(table, b, c->was.has_file || has_state_file(b) ? CHANGE_WRITE : CHANGE_REMOVE);
        if (undo_job != NULL) {
            store_push(table->store, undo_job);
        }
    }
}

void table_change_undo(branch_table *table, const store_job *job)
{
    for (uint32_t i = 0; i < job->n_changes; i++) {
        undo(table, &job->changes[i]);
    }
    /* branches that were opened after their session was pinned get the restored pin of the session */
    if (job->is_label) {
        table_pin_follow(table, job->owner, job->changes[0].was.name);
        table_pin_follow(table, job->owner, job->name);
    }
}
