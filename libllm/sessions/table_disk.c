/* table_disk.c: keeps the state files within their limit. There is no limit on branch files, which are small. */
#include <string.h>

#include "sessions/branch_table.h"

size_t table_disk_bytes(const branch_table *table)
{
    return table->totals.file_bytes + table_loose_bytes(table);
}

void table_file_is_gone(branch_table *table, branch *b)
{
    b->file_since = table_new_number(table);
    b->n_stored_bytes = 0;
    branch_set_file_bytes(b, 0);
}

void table_expect_file(branch_table *table, branch *b, store_job *job, size_t n_bytes)
{
    job->entry = b->entry;
    job->id = b->id;
    memcpy(job->name, b->name, sizeof job->name);
    job->n_bytes = n_bytes;
    job->request = b->last_write = table_new_number(table);
    branch_set_file_bytes(b, n_bytes);
}

void table_learn_file(branch *b, const store_job *job)
{
    if (job->request < b->file_since) {
        return;
    }
    if (job->status == LLM_OK || job->status == LLM_NOT_FOUND) {
        b->n_stored_bytes = job->status == LLM_OK ? job->n_bytes : 0;
    }
    if (job->request == b->last_write) { /* if a later write is queued, the result of that write will set the bytes */
        branch_set_file_bytes(b, b->n_stored_bytes);
    }
}

bool table_remove_state(branch_table *table, branch *b)
{
    store_job *job = store_job_new(STORE_SWEEP, 1);
    if (job == NULL) {
        return false;
    }
    job->changes[0].verb = CHANGE_RESET;
    job->changes[0].file.id = b->id;
    store_push(table->store, job);
    table_file_is_gone(table, b);
    if (b->parked.where == PARKED_ON_DISK) { /* the state is lost, but the branch keeps its tokens */
        branch_forget_parked(b);
        session_table_count(table->shared.session_table, LLM_COUNTER_PARKED_DROPPED, 1);
    }
    b->parked.is_on_disk = false;
    return true;
}

/* Whether the state file can be removed. It cannot be removed while a job writes or reads it, while the state is lent,
 * or while a request waits for the state. */
static bool may_lose_state(const branch *b)
{
    const parked *at = &b->parked;
    const bool is_needed = at->where == PARKED_ON_DISK && !branch_is_idle(b);
    return !is_needed && !at->is_lent && at->where != PARKED_WRITING && at->where != PARKED_READING;
}

/* Fills table->holdings (share.h) with the state files. Includes the file of n_bytes that will be written for `b`. The
 * first files to be removed are those whose states are also in memory or in a slot. Then follow the files of the least
 * recently used branches. */
static void weigh_files(branch_table *table, const branch *b, size_t n_bytes)
{
    const uint64_t needed = (uint64_t)1 << 63; /* larger than any table_order */
    for (uint32_t i = 0; i < table->n_entries; i++) {
        const branch *other = &table->branches[i];
        const size_t n = other == b ? n_bytes : other->is_open ? other->n_file_bytes : 0;
        table->holdings[i] = (share_holding){
            .owner = other->owner,
            .amount = share_units(n),
            .may_go = n > 0 && (other == b || may_lose_state(other)),
            .order = table_order(other) | (other == b || other->parked.where == PARKED_ON_DISK ? needed : 0),
        };
    }
    share_add_up(table->holdings, table->n_entries);
}

/* Marks in table->holdings files to be removed, until the marked files have n_over bytes in total. Returns false if all
 * removable files together are smaller. Also returns false if the file of `b` would be chosen. */
static bool choose_victims(branch_table *table, const branch *b, size_t n_bytes, size_t n_over)
{
    const share_claim claim = table_bytes_claim(table, table->options.parked_disk_bytes_max);
    size_t n_freed = 0;
    weigh_files(table, b, n_bytes);
    while (n_freed < n_over) {
        const uint32_t entry = share_next_victim(table->holdings, table->n_entries, &claim);
        if (entry == table->n_entries || &table->branches[entry] == b) {
            return false;
        }
        n_freed += table->branches[entry].n_file_bytes;
    }
    return true;
}

static bool remove_victims(branch_table *table)
{
    bool are_removed = true;
    for (uint32_t i = 0; i < table->n_entries; i++) {
        are_removed = are_removed && (!table->holdings[i].is_going || table_remove_state(table, &table->branches[i]));
    }
    return are_removed;
}

/* Returns the number of bytes beyond the limit on state files if the file of `b` had n_bytes. */
static size_t bytes_over(const branch_table *table, const branch *b, size_t n_bytes)
{
    const size_t n = table_disk_bytes(table) - (b != NULL ? b->n_file_bytes : 0) + n_bytes;
    return n > table->options.parked_disk_bytes_max ? n - table->options.parked_disk_bytes_max : 0;
}

/* Removes files before the state is written, because the limit must hold at every moment. For example, if the limit
 * were the whole disk, the new file would not fit before the others are removed. If the write then fails, the files
 * were removed in vain. This happens only once, because the next write finds the space free. */
bool table_make_disk_room(branch_table *table, const branch *b, size_t n_bytes)
{
    if (n_bytes > table->options.parked_disk_bytes_max) {
        return false;
    }
    const size_t n_over = bytes_over(table, b, n_bytes);
    return n_over == 0 || (choose_victims(table, b, n_bytes, n_over) && remove_victims(table));
}

void table_limit_disk(branch_table *table)
{
    size_t *n_max = &table->options.parked_disk_bytes_max;
    if (table->store == NULL) {
        *n_max = 0;
        return;
    }
    if (*n_max == 0) {
        *n_max = (size_t)((store_free_bytes(table->store) + table_disk_bytes(table)) / TABLE_DISK_SHARE);
    }
    (void)choose_victims(table, NULL, 0, bytes_over(table, NULL, 0));
    /* files of branches without an entry are never removed here, even if the limit is exceeded */
    (void)remove_victims(table);
}
