/* table_parked.c: writes parked states to disk, and reads them back. */
#include <string.h>

#include "sessions/branch_table.h"

/* ---- write states to the disk ---- */

static void become_on_disk(branch *b, size_t n_disk_bytes, state_ends ends)
{
    const parked old = b->parked;
    branch_forget_parked(b);
    branch_forget_logits(b); /* a branch on disk takes no memory */
    branch_set_parked(b, &(parked){.where = PARKED_ON_DISK,
                                   .k = old.k,
                                   .n_bytes = old.n_bytes,
                                   .is_on_disk = true,
                                   .n_disk_bytes = n_disk_bytes,
                                   .ends = ends});
}

bool table_is_refused(const branch_table *table)
{
    return clock_us() < table->shelf.refused_until_us;
}

typedef enum spilling {
    SPILLED,
    SPILL_LATER, /* the store is busy, but will finish its jobs */
    SPILL_NEVER,
} spilling;

/* Starts to write the branch's state and checkpoints. Until the write is over, the branch can still be loaded from
 * memory. If the state file already holds the state, only removes the state from memory. */
static spilling spill(branch_table *table, branch *b)
{
    if (!branch_is_named(b)) { /* scratch branches do not outlive the process */
        return SPILL_NEVER;
    }
    if (b->parked.is_on_disk) {
        become_on_disk(b, b->parked.n_disk_bytes, b->parked.ends);
        return SPILLED;
    }
    blob *state = b->parked.state;
    if (table_is_refused(table)) {
        return SPILL_NEVER;
    }
    if (!table_may_write(table, state->n_bytes)) {
        const bool is_busy = table->store != NULL &&
                             (table->shared.ledger->n_bytes[LEDGER_IN_FLIGHT] > 0 || store_n_jobs(table->store) > 0);
        return is_busy ? SPILL_LATER : SPILL_NEVER;
    }
    store_job *job = store_job_new(STORE_WRITE, 0);
    if (job == NULL || !table_write_file(table, b) || !table_write_state(table, b, state, b->parked.k, job)) {
        store_job_free(job);
        return SPILL_NEVER;
    }
    ledger_hold(table->shared.ledger, LEDGER_IN_FLIGHT, state);
    ledger_drop(table->shared.ledger, LEDGER_PARKED, state);
    /* the branch's logits are not written, and would still count against the budget for parked states */
    branch_forget_logits(b);
    b->parked.where = PARKED_WRITING;
    return SPILLED;
}

/* Drops the state. The branch keeps its tokens, and the next request prefills them. */
static void drop_state(branch_table *table, branch *b)
{
    branch_forget_parked(b);
    branch_forget_logits(b);
    session_table_count(table->shared.session_table, LLM_COUNTER_PARKED_DROPPED, 1);
}

/* A wait for the store is not given up before WAIT_LEAST_US, because other programs may keep the disk busy for a
 * moment. After a wait that was given up, the tokens of the dropped state must be prefilled again, which delays all
 * requests. Exception: if the store is known to be slow, shorter waits are given up, too. */
enum { SLOW_LOGGED_EVERY_S = 600, WAIT_LEAST_US = 10 * 1000000 };

/* Called when a wait for the store is given up. */
static void report_slow_store(branch_table *table, uint64_t now_us)
{
    table->shelf.is_store_slow = true;
    if (table->shelf.slow_logged_us == 0 ||
        now_us - table->shelf.slow_logged_us > SLOW_LOGGED_EVERY_S * (uint64_t)1000000) {
        table->shelf.slow_logged_us = now_us;
        store_complain(
            table->store,
            "reading and writing session states on this disk takes longer than prefilling their tokens: states "
            "that do not fit in memory are dropped, their tokens are kept");
    }
}

static uint64_t wait_until_us(const branch_table *table, const branch *b, uint64_t now_us)
{
    const uint64_t wait_us = (uint64_t)copy_cost_wait_us_max(&table->pace, b->parked.k);
    return now_us + (wait_us > WAIT_LEAST_US || table->shelf.is_store_slow ? wait_us : WAIT_LEAST_US);
}

/* Whether the branch's state may wait in memory for the busy store. Only one state waits at a time. Thus at most one
 * state exceeds the budget. */
static bool may_wait(branch_table *table, const branch *b)
{
    const uint64_t now_us = clock_us();
    if (table->shelf.spill_waits || table->shelf.is_store_slow) {
        return false;
    }
    if (table->shelf.spill_until_us == 0) {
        table->shelf.spill_until_us = wait_until_us(table, b, now_us);
    }
    if (now_us >= table->shelf.spill_until_us) {
        report_slow_store(table, now_us);
    }
    return !table->shelf.is_store_slow;
}

bool table_spill_waits(const branch_table *table)
{
    return table->shelf.spill_waits;
}

bool table_is_lending(const branch_table *table)
{
    return table->shelf.is_lending;
}

/* Returns the limit on the bytes of states that stay in memory. The rest of parked_bytes_max is for states on their way
 * to or from disk. */
static size_t resting_bytes_max(const branch_table *table)
{
    const size_t n_max = table->options.parked_bytes_max;
    return table->store != NULL ? n_max - n_max / TABLE_MOVING_SHARE : n_max;
}

/* Spills one state after the other, until the states left in memory fit the budget. Nothing is spilled while a state is
 * lent. The branch of a lent state is idle, so the lent state itself could be chosen. But it must stay in memory until
 * the requests that wait for it have begun. If the store is busy, one state waits in memory beyond the budget. Further
 * states beyond the budget are dropped. */
void table_spill(branch_table *table)
{
    while (!table->shelf.is_lending && table->shared.ledger->n_bytes[LEDGER_PARKED] > resting_bytes_max(table)) {
        branch *b = table_parked_victim(table);
        if (b == NULL) {
            return;
        }
        const spilling result = spill(table, b);
        if (result == SPILL_LATER && may_wait(table, b)) {
            table->shelf.spill_waits = true;
            return;
        }
        table->shelf.spill_until_us = 0; /* the next state that waits gets its own time limit */
        if (result != SPILLED) {
            drop_state(table, b);
        }
    }
    table->shelf.spill_until_us = 0;
}

bool table_gives_up_reading(branch_table *table, branch *b)
{
    const uint64_t now_us = clock_us();
    parked *at = &b->parked;
    if (at->wait_until_us == 0) {
        at->wait_until_us = wait_until_us(table, b, now_us);
    }
    if (now_us < at->wait_until_us) {
        return false;
    }
    report_slow_store(table, now_us);
    drop_state(table, b);
    return true;
}

bool table_gives_up_jobs(branch_table *table, const branch *b)
{
    const uint64_t now_us = clock_us();
    table_shelf *shelf = &table->shelf;
    if (shelf->slot_until_us == 0) {
        shelf->slot_until_us = wait_until_us(table, b, now_us);
    }
    if (!shelf->is_store_slow && now_us >= shelf->slot_until_us) {
        report_slow_store(table, now_us);
    }
    return shelf->is_store_slow;
}

uint64_t table_waits_until_us(const branch_table *table, uint64_t now_us)
{
    const uint64_t ends_us[] = {table->shelf.spill_waits ? table->shelf.spill_until_us : 0, table->shelf.slot_until_us};
    uint64_t first_us = 0;
    for (size_t i = 0; i < sizeof ends_us / sizeof ends_us[0]; i++) {
        if (ends_us[i] > now_us && (first_us == 0 || ends_us[i] < first_us)) {
            first_us = ends_us[i];
        }
    }
    return first_us;
}

/* Removes lent states from memory; they stay on disk. Called when the requests for which the states were read have
 * begun. */
static void end_lending(branch_table *table)
{
    for (uint32_t i = 0; i < table->n_entries; i++) {
        branch *b = &table->branches[i];
        if (b->is_open && b->parked.is_lent && b->parked.where == PARKED_IN_MEMORY && branch_is_idle(b)) {
            become_on_disk(b, b->parked.n_disk_bytes, b->parked.ends);
        }
        b->parked.is_lent = false;
    }
    table->shelf.is_lending = false;
}

void table_spill_on(branch_table *table)
{
    if (table->shelf.spill_waits || table->shelf.is_lending) {
        table->shelf.spill_waits = false;
        end_lending(table);
        table_spill(table);
    }
}

bool table_read_file(branch_table *table, branch *b)
{
    const size_t n_bytes = b->parked.n_disk_bytes;
    store_job *job = ledger_admits(table->shared.ledger, n_bytes) ? store_job_new(STORE_READ, 0) : NULL;
    if (job == NULL) {
        return false;
    }
    job->entry = b->entry;
    job->id = b->id;
    job->request = table_new_number(table);
    job->n_bytes_max = n_bytes;
    ledger_reserve(table->shared.ledger, LEDGER_IN_FLIGHT, n_bytes);
    b->parked.where = PARKED_READING;
    b->parked.n_lend_tokens = 0;
    b->parked.reading = job->request;
    store_push(table->store, job);
    return true;
}

/* ---- read states back ---- */

static branch *branch_of(branch_table *table, const store_job *job)
{
    branch *b = &table->branches[job->entry];
    return b->is_open && b->id == job->id ? b : NULL;
}

/* Keeps a state in memory after its write failed. */
static void stay_in_memory(branch_table *table, branch *b)
{
    ledger_hold(table->shared.ledger, LEDGER_PARKED, b->parked.state);
    ledger_drop(table->shared.ledger, LEDGER_IN_FLIGHT, b->parked.state);
    b->parked.where = PARKED_IN_MEMORY;
    table_spill(table);
}

/* Pauses the writing of states after a state could not be written. An orderly stop still tries to write each state,
 * because there is no later chance, and a smaller state may fit. */
static void pause_writing(branch_table *table)
{
    if (!table->shelf.is_saving) {
        table->shelf.refused_until_us = clock_us() + STORE_PAUSE_S * (uint64_t)1000000;
    }
}

void table_written(branch_table *table, const store_job *job)
{
    if (job->status == LLM_IO && job->linked_id == 0) {
        pause_writing(table);
    }
    branch *b = branch_of(table, job);
    if (b == NULL) {
        return;
    }
    const bool is_writing = b->parked.where == PARKED_WRITING;
    const bool is_held = is_writing && job->linked_id == 0 && b->parked.state == job->state.parts[0].held;
    table_learn_file(b, job);
    if (job->status == LLM_OK) {
        if (is_held) {
            become_on_disk(b, state_file_bytes(&job->state), state_file_ends(&job->state));
        }
        return;
    }
    if (job->linked_id != 0 && !is_writing) {
        /* the job should have linked the state file of another branch (table_copy). The job failed, so this branch has
         * no state file, and its parked state is forgotten */
        (void)table_remove_state(table, b);
    }
    if (is_held) {
        /* also called if the state was not written because its branch file is missing. Without a pause, the write would
         * be tried again at once */
        pause_writing(table);
        stay_in_memory(table, b);
    }
}

/* Takes the blob of a state or checkpoint out of a job that has read a file. Holds the blob for `use` (ledger.h). */
static blob *take_part(branch_table *table, state_part *part, ledger_use use)
{
    blob *b = part->held;
    part->held = NULL;
    ledger_hold(table->shared.ledger, use, b);
    return b;
}

static void adopt_part(branch_table *table, const branch *b, state_part *part)
{
    checkpoint_store *checkpoints = table->shared.checkpoints;
    const uint32_t n_vocab = table->shared.model->info.n_vocab;
    const int32_t *tokens = branch_tokens(b);
    if (part->k > branch_n_tokens(b) || checkpoint_find(checkpoints, b->owner, tokens, part->k) != NULL) {
        return;
    }
    const checkpoint_parts parts = {.n_state_bytes = part->n_state_bytes,
                                    .n_logits = part->n_logits == n_vocab ? n_vocab : 0,
                                    .is_whole = part->is_whole};
    blob *held = take_part(table, part, LEDGER_IN_FLIGHT);
    checkpoint *c = checkpoint_adopt(checkpoints, b->owner, tokens, part->k, &parts, held);
    if (c != NULL) {
        c->user_entry = b->entry;
        c->user_id = b->id;
    }
    /* frees the blob unless the checkpoint store holds it */
    ledger_drop(table->shared.ledger, LEDGER_IN_FLIGHT, held);
}

bool table_take_state(branch_table *table, branch *b, state_file *from)
{
    const uint32_t k = from->k, n_lend_tokens = branch_is_idle(b) ? b->parked.n_lend_tokens : 0;
    if (from->n_parts == 0 || !state_matches(k, from->hash, branch_tokens(b), branch_n_tokens(b))) {
        return false;
    }
    blob *state = take_part(table, &from->parts[0], LEDGER_PARKED);
    branch_forget_parked(b);
    branch_hold_parked(b, state, k);
    for (uint32_t i = 1; i < from->n_parts; i++) {
        if (n_lend_tokens == 0 || from->parts[i].k <= n_lend_tokens) {
            adopt_part(table, b, &from->parts[i]);
        }
    }
    return true;
}

bool table_is_reading(const branch_table *table, uint64_t reading)
{
    for (uint32_t i = 0; i < table->n_entries; i++) {
        const branch *b = &table->branches[i];
        if (b->is_open && b->parked.where == PARKED_READING && b->parked.reading == reading) {
            return true;
        }
    }
    return false;
}

void table_read_back(branch_table *table, store_job *job)
{
    ledger_release(table->shared.ledger, LEDGER_IN_FLIGHT, job->n_bytes_max);
    if (job->status == LLM_OK && job->state.n_parts > 0) {
        copy_cost_learn_disk(&table->pace, state_file_bytes(&job->state), job->took_us);
    }
    branch *b = branch_of(table, job);
    if (b == NULL || b->parked.where != PARKED_READING || b->parked.reading != job->request) {
        return;
    }
    const parked before = b->parked;
    const bool is_for_lending = before.n_lend_tokens > 0 && branch_is_idle(b);
    const state_ends ends = job->state.n_parts > 0 ? state_file_ends(&job->state) : before.ends;
    if (is_for_lending && (job->status == LLM_NO_MEMORY || job->status == LLM_IO)) {
        b->parked.where = PARKED_ON_DISK; /* the failed read was for another branch, so this branch keeps its state */
        return;
    }
    branch_set_parked(b, &(parked){.where = PARKED_NOWHERE, .n_lend_tokens = before.n_lend_tokens});
    if (job->status == LLM_OK && table_take_state(table, b, &job->state)) {
        b->parked.is_on_disk = true;
        b->parked.n_disk_bytes = before.n_disk_bytes;
        b->parked.ends = ends;
        b->parked.is_lent = is_for_lending;
        table->shelf.is_lending = table->shelf.is_lending || is_for_lending;
        table_spill(table);
    } else {
        if (job->status == LLM_VERSION) { /* the store has renamed the unusable file */
            table_file_is_gone(table, b);
        }
        session_table_count(table->shared.session_table, LLM_COUNTER_PARKED_DROPPED, 1);
    }
}
