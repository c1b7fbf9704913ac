/* table_removal.c: collects the files that a command removes, and removes them in one job of the store. Also manages
 * files of sessions that are not open. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sessions/branch_table.h"

void table_removing_begin(branch_table *table)
{
    assert(table->naming.removing == NULL);
    table->naming.removing = table->store != NULL ? store_job_new(STORE_CHANGE, 0) : NULL;
}

/* Ends the collection of removals. Returns the job that has collected them, or NULL if there are no files to remove. */
static store_job *take_removing(branch_table *table)
{
    store_job *job = table->naming.removing;
    table->naming.removing = NULL;
    if (job != NULL && job->n_changes == 0) {
        store_job_free(job);
        return NULL;
    }
    return job;
}

bool table_removing_end(branch_table *table, session_name name, uint64_t request)
{
    store_job *job = take_removing(table);
    if (job == NULL) {
        return false;
    }
    job->has_waiter = true;
    job->request = request;
    job->owner = name.owner;
    memset(job->name, 0, sizeof job->name);
    memcpy(job->name, name.bytes, name.n_bytes);
    store_push(table->store, job);
    return true;
}

void table_removing_end_unasked(branch_table *table)
{
    store_job *job = take_removing(table);
    if (job != NULL) {
        store_push(table->store, job);
    }
}

void table_attach(branch_table *table, store_job *job)
{
    store_job *to = table->naming.removing;
    store_change *larger = to != NULL ? realloc(to->changes, (to->n_changes + 1) * sizeof *larger) : NULL;
    if (larger == NULL) {
        store_push(table->store, job);
        return;
    }
    to->changes = larger;
    to->changes[to->n_changes++] = job->changes[0];
    job->changes[0] = (store_change){.verb = CHANGE_NONE};
    store_job_free(job);
}

void table_remove_id(branch_table *table, uint64_t id, uint32_t owner, const char *name)
{
    store_job *job = store_job_new(STORE_CHANGE, 1);
    if (job == NULL) {
        store_complain(table->store, "session file %016llx could not be removed: memory is short",
                       (unsigned long long)id);
        return;
    }
    store_change *c = &job->changes[0];
    c->verb = CHANGE_REMOVE;
    c->file.id = id;
    c->file.owner = owner;
    memcpy(c->file.name, name, strlen(name));
    table_attach(table, job);
}

/* ---- files of sessions that are not open ---- */

bool table_add_loose(branch_table *table, const loose_file *f)
{
    loose_file *larger = realloc(table->naming.loose_files, (table->naming.n_loose + 1) * sizeof *larger);
    if (larger == NULL) {
        return false;
    }
    table->naming.loose_files = larger;
    table->naming.loose_files[table->naming.n_loose++] = *f;
    table->naming.n_waiting += !f->is_closed;
    table->naming.loose_bytes += f->n_file_bytes;
    return true;
}

void table_removal_refused(branch_table *table, const store_job *job)
{
    for (uint32_t i = 0; i < job->n_changes; i++) {
        const store_change *c = &job->changes[i];
        branch *b = table_find_id(table, c->file.id);
        if (c->verb == CHANGE_REMOVE && b != NULL) {
            /* the session was reset, not closed: its next reset or close, or an orderly stop, tries to remove the file
             * again */
            b->has_file = true;
        } else if (c->verb == CHANGE_REMOVE && table->naming.n_loose - table_n_waiting(table) < REFUSED_REMOVALS_MAX) {
            loose_file f = {.id = c->file.id, .owner = c->file.owner, .is_closed = true};
            memcpy(f.name, c->file.name, sizeof f.name);
            (void)table_add_loose(table, &f);
        }
    }
}

static bool is_of(const loose_file *f, session_name name)
{
    return session_name_equal(session_name_from(f->owner, f->name), name);
}

const loose_file *table_next_loose(const branch_table *table, session_name name, const loose_file *after)
{
    for (uint32_t i = after != NULL ? (uint32_t)(after - table->naming.loose_files) + 1 : 0; i < table->naming.n_loose;
         i++) {
        if (is_of(&table->naming.loose_files[i], name)) {
            return &table->naming.loose_files[i];
        }
    }
    return NULL;
}

bool table_is_waiting(const branch_table *table, session_name name)
{
    const loose_file *f = NULL;
    while ((f = table_next_loose(table, name, f)) != NULL && f->is_closed) {
    }
    return f != NULL;
}

static void remove_loose(branch_table *table, uint32_t i)
{
    const loose_file f = table->naming.loose_files[i];
    table->naming.loose_files[i] = table->naming.loose_files[--table->naming.n_loose];
    table->naming.n_waiting -= !f.is_closed;
    table->naming.loose_bytes -= f.n_file_bytes;
    table_remove_id(table, f.id, f.owner, f.name);
}

void table_remove_loose(branch_table *table, session_name name)
{
    for (uint32_t i = table->naming.n_loose; i > 0; i--) {
        if (is_of(&table->naming.loose_files[i - 1], name)) {
            remove_loose(table, i - 1);
        }
    }
}

void table_remove_closed(branch_table *table)
{
    for (uint32_t i = table->naming.n_loose; i > 0; i--) {
        if (table->naming.loose_files[i - 1].is_closed) {
            remove_loose(table, i - 1);
        }
    }
}

uint64_t table_expire_loose(branch_table *table, uint64_t before_ms)
{
    uint64_t oldest = 0;
    uint32_t n_expired = 0;
    for (uint32_t i = table->naming.n_loose; i > 0; i--) {
        const loose_file f = table->naming.loose_files[i - 1];
        if (f.is_closed || f.is_pinned) {
            continue;
        }
        if (f.used_ms < before_ms && n_expired < LOOSE_EXPIRED_MAX) {
            n_expired++;
            remove_loose(table, i - 1);
            table_report_forgotten(table, f.owner, f.name, LLM_COUNTER_SESSIONS_EXPIRED);
        } else if (oldest == 0 || f.used_ms < oldest) {
            oldest = f.used_ms;
        }
    }
    return oldest;
}

uint32_t table_n_waiting(const branch_table *table)
{
    return table->naming.n_waiting;
}

size_t table_loose_bytes(const branch_table *table)
{
    return table->naming.loose_bytes;
}

void table_free_loose(branch_table *table)
{
    free(table->naming.loose_files);
    table->naming = (table_naming){.loose_files = NULL};
}
