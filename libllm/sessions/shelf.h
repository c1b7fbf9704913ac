/* shelf.h: states outside the model's memory, and the jobs with which the store thread writes and reads the files of
 * these states. Owned by the decode thread, which waits for the disk only at a stop (table_save_all, table_settle).
 *
 * Where the state of a branch without a slot can be (parked_where, branch.h):
 *
 *   NOWHERE    only the tokens are kept: the next request prefills them again, and reports `torn`
 *   IN_MEMORY  in host memory. With a store, all such states together get 3/4 of --park-memory. The rest is for
 *              states that are being written or read (in flight)
 *   WRITING    in memory, and being written to its file
 *   ON_DISK    in its file only
 *   READING    being read from its file: for a request of its branch, or lent to a request of another branch
 *
 * Spill: while parked states take more than three quarters of --park-memory, the least valuable state of an idle branch
 * leaves memory:
 *
 *   the branch, the store                         its state
 *   a scratch branch                              NOWHERE: branches without a name are never written to the disk
 *   a branch whose file holds this state          ON_DISK
 *   the store has capacity                        WRITING, then ON_DISK
 *   the store is busy                             waits in memory until spill_until_us (only one may); then NOWHERE
 *   no store, or the disk is full or failed       NOWHERE
 *
 * Example: with --park-memory 1G, a third state of 400 MB is parked. The least recently used of the three is written,
 * and its memory is freed when the write is over. The next request of that state's branch reads the state back, and
 * reports `restored`.
 *
 * Lend: a prompt of one branch may share a prefix with another branch's state on the disk. The state is read if reading
 * it is faster than prefilling the prefix (sessions/resuming.c):
 *
 *   read for                                      after the read                      if the read fails
 *   a request of its branch                       IN_MEMORY, until it has a slot      NOWHERE
 *   a request of another branch, while the        IN_MEMORY, lent until the waiting   ON_DISK, as before
 *   branch of the state is idle                   requests have begun; then ON_DISK
 *
 * A request waits for the state of its own branch as long as prefilling the state's tokens would take, but at least 10
 * s. The disk may be busy for a moment, and dropping the state would cost more than such a wait. A request waits for
 * the state of another branch as long as prefilling the shared tokens would take, but at least 1 s.
 *
 * Example: an agent's system prompt of 10,000 tokens is in the parked session `a`. The first request of the new session
 * `b` waits for the state of `a`. This request copies the state of the first 10,000 tokens, and reports `shared`. Then
 * the state of `a` is on the disk only, as before. */
#ifndef LLM_SHELF_H
#define LLM_SHELF_H

#include "sessions/branch.h"
#include "states/store.h"

typedef struct branch_table branch_table; /* branch_table.h */

typedef struct table_shelf {
    uint64_t refused_until_us; /* no state is written before this time, because a write failed */
    /* a parked state beyond the budget waits in memory until the store has capacity or spill_until_us is reached */
    bool spill_waits;
    uint64_t spill_until_us; /* time until which a parked state beyond the budget waits in memory; 0 if no state
                              * waits */
    /* time at which requests stop waiting for a slot that a job of the store may free; 0 if none waits */
    uint64_t slot_until_us;
    /* a wait for the store has timed out. Nothing else waits for the store until the store has read or written a
     * state */
    bool is_store_slow;
    uint64_t slow_logged_us;
    bool is_lending; /* a state is lent; nothing is spilled until the state is on disk again */
    bool is_saving;  /* an orderly stop has begun */
    bool is_unsaved; /* during an orderly stop, writing a branch file failed */
} table_shelf;

/* ---- what the store has finished: table_stored.c ---- */

/* Takes one result of the store, updates the branch concerned, and calls `done` if a command waits for the result.
 * Without takes_waited_for, skips results for which a command waits. These results stay in the store (store_take).
 * Returns false if there was no result to take. */
bool table_take_stored(branch_table *table, bool takes_waited_for, void (*done)(void *context, store_job *job),
                       void *context);

/* Waits until the store has finished its jobs, and takes all results. Called before the store is closed, when no
 * command waits for a result any more. */
void table_settle(branch_table *table);

/* ---- parked states: table_parked.c ---- */

/* Returns the branch whose parked state leaves memory next, or NULL if no state can leave. A state for which a request
 * waits cannot leave. (branch_table.c) */
branch *table_parked_victim(branch_table *table);

/* Moves parked states from memory to the disk. Stops when the states that are left in memory fit the budget, 3/4 of
 * --park-memory. While the store is busy, one state beyond the budget waits in memory (spill_waits). It waits as long
 * as prefilling its tokens again would take, but at least 10 s. Other states beyond the budget are dropped. */
void table_spill(branch_table *table);
bool table_is_refused(const branch_table *table); /* no state is written now, because a write failed a short time ago */
/* removes lent states from memory. Then continues a spill that had to wait for the store or for a lent state */
void table_spill_on(branch_table *table);

bool table_spill_waits(const branch_table *table);
bool table_is_lending(const branch_table *table); /* states that were read for other branches are in memory */
bool table_is_unsaved(const branch_table *table); /* returns whether an orderly stop could not write a branch file */

/* Begins to read the branch's parked state from the disk. Returns false if too many bytes are in flight. The caller
 * then tries again after the next result of the store. */
bool table_read_file(branch_table *table, branch *b);

/* Returns the first time after now_us at which a parked state or a request stops waiting for the store. Returns 0 if
 * neither waits. */
uint64_t table_waits_until_us(const branch_table *table, uint64_t now_us);

/* Whether requests should stop waiting for a slot that a job of the store may free. Requests wait as long as prefilling
 * the tokens of the state of `b` would take, but at least 10 s. */
bool table_gives_up_jobs(branch_table *table, const branch *b);

/* Called for a branch whose request waits for the branch's state on disk. The request waits as long as prefilling the
 * tokens would take, but at least 10 s. After that time, drops the state and returns true. The request then prefills
 * the tokens. Otherwise returns false, and the request continues to wait. */
bool table_gives_up_reading(branch_table *table, branch *b);

/* Whether the state of any branch is being read under this number (parked.reading, branch.h). */
bool table_is_reading(const branch_table *table, uint64_t reading);

/* Gives the branch the state that was read from the branch's file, as its parked state. Adds the checkpoints of the
 * same file to the checkpoint store. Returns false if the state does not belong to the branch's tokens. */
bool table_take_state(branch_table *table, branch *b, state_file *from);

/* Drops the blobs of a job whose write is over. */
void table_drop_parts(branch_table *table, state_file *f);

void table_written(branch_table *table, const store_job *job); /* handles the result of writing a state */
void table_read_back(branch_table *table, store_job *job);     /* handles the result of reading a state */

/* ---- bytes of states on the disk: table_disk.c ---- */

size_t table_disk_bytes(const branch_table *table);

/* Called before a write of the branch's state is pushed. Sets the members of the job that name the branch and the
 * write. A state file counts against the limit on state files as soon as its write is pushed. Thus the limit is never
 * exceeded. Until the result of the write arrives, the disk may have an older state file of the branch. This file stays
 * if the write fails, or if the daemon ends before the write. Several writes for a branch may be queued, because the
 * branch can leave its slot again before its previous state is written. */
void table_expect_file(branch_table *table, branch *b, store_job *job, size_t n_bytes);
/* updates the bytes of the branch's state file from the result of a write */
void table_learn_file(branch *b, const store_job *job);
/* called when the branch's state file is removed. Also called if a queued job will remove the file before any later
 * write */
void table_file_is_gone(branch_table *table, branch *b);

/* Removes the state file. A state that was only on the disk is lost. Returns false if memory is short. */
bool table_remove_state(branch_table *table, branch *b);

/* Removes the least valuable state files until a state file of n_bytes for `b` fits the limit. Returns false and
 * removes nothing in two cases: the file would not fit even after all possible removals, or the file itself would be
 * the least valuable. */
bool table_make_disk_room(branch_table *table, const branch *b, size_t n_bytes);

/* Called when the daemon starts. Sets the limit on state files if the options have none. Removes state files beyond the
 * limit. */
void table_limit_disk(branch_table *table);

/* Returns a sort key, which is smaller for branches with less valuable tokens. Always below 2^63. (branch_table.c) */
uint64_t table_order(const branch *b);

/* ---- branch files: table_files.c ---- */

/* Fills `out` with the branch's tokens, name, pin and time stamps. Returns false if memory is short. */
bool table_describe(const branch *b, branch_file *out);

/* Fills `out` with `state`, which covers the branch's first k tokens. Adds as many checkpoints of these tokens as the
 * limit on bytes in flight allows. The state and the checkpoints then count as in flight (ledger.h). */
void table_describe_state(branch_table *table, const branch *b, blob *state, uint32_t k, state_file *out);

/* Fills the job with the state and pushes the job. The branch file must exist, or its write must have been pushed
 * before. Returns false if the state does not fit the limit on state files, and the files that could be removed are
 * more valuable. Then the caller still owns the job. */
bool table_write_state(branch_table *table, branch *b, blob *state, uint32_t k, store_job *job);

/* Whether the store has capacity for a state of that size now. */
bool table_may_write(const branch_table *table, size_t n_bytes);

/* Creates a job that changes one branch file. If the verb writes the file, the job contains the branch's tokens.
 * Returns NULL if memory is short or there is no store. */
store_job *table_change_of(branch_table *table, branch *b, change_verb verb);

bool table_write_file(branch_table *table, branch *b); /* returns false if no job could be created */

/* Remove the branch's files. After table_reset_file, a pinned branch has an empty branch file. */
void table_remove_file(branch_table *table, branch *b);
void table_reset_file(branch_table *table, branch *b);

/* ---- an orderly stop: table_stop.c ---- */

/* Writes every named branch as it is now, and waits until all are written. `take_stored` takes the store's results. */
void table_save_all(branch_table *table, void (*take_stored)(void *context), void *context);

/* ---- branches saved under labels: table_saved.c ---- */

/* Push a job whose result comes through table_take_stored, and return LLM_OK. Return LLM_IO without a state directory.
 * Return LLM_NO_MEMORY if memory is short, or the limit on bytes in flight is reached. Return LLM_NOT_FOUND if the
 * branch to save has no tokens, or if nothing is saved under the label to load. table_save also saves the checkpoints,
 * without copying them. */
int table_save(branch_table *table, branch *b, session_name label, uint64_t request);
int table_load(branch_table *table, session_name name, session_name label, uint64_t request);
int table_unsave(branch_table *table, session_name label, uint64_t request);

/* Fill a branch from the result of table_load. table_become gives the branch the loaded tokens and parks it.
 * table_become_warm then gives the branch the loaded state, if any. The branch must be open, idle and empty. The caller
 * can write the branch file between the two calls. */
void table_become(branch_table *table, branch *b, const store_job *from);
void table_become_warm(branch_table *table, branch *b, store_job *from);

#endif
