/* shelf.h: states outside the model's memory, and the jobs for the store that writes and reads their files. Owned by
 * the decode thread, which never waits here for the disk.
 *
 *   NOWHERE    only the tokens are kept: the next request prefills them again (`torn`)
 *   IN_MEMORY  held as parked: with a store three quarters of --park-memory, the rest is for states on their way
 *   WRITING    in memory, and being written to its file
 *   ON_DISK    in its file only
 *   READING    being read from its file: for a request of its branch, or lent to a request of another branch
 *
 * Spill: while parked states take more than that, the least valuable idle one leaves memory:
 *
 *   the branch, the store                         its state
 *   a scratch branch                              NOWHERE: branches without a name are never written to the disk
 *   a branch whose file holds this state          ON_DISK
 *   the store has capacity                        WRITING, then ON_DISK
 *   the store is busy                             stays in memory, one at a time, until spill_until_us; then NOWHERE
 *   no store, or the disk is full or failed       NOWHERE
 *
 * Example: with --park-memory 1G, a third state of 400 MB is parked: the oldest one is written, and its memory is freed
 * when it is on the disk. The next request of its branch reads it, and reports `restored`.
 *
 * Lend: a prompt of one branch may share a prefix with another branch's state on the disk. That state is read if this
 * is faster than prefilling the prefix (sessions/resuming.c):
 *
 *   read for                                      after the read                      if the read fails
 *   a request of its branch                       IN_MEMORY, until it has a slot      NOWHERE
 *   a request of another branch, while its own    IN_MEMORY, lent until the waiting   ON_DISK, as before
 *   branch is idle                                requests have begun; then ON_DISK
 *
 * A request waits for its own branch's state as long as prefilling its tokens would take, and 10 s at least: losing a
 * state costs more than a disk that is busy for a moment. For another branch's state it waits as long as prefilling the
 * shared tokens would take, and 1 s at least.
 *
 * Example: an agent's system prompt of 10,000 tokens is in the parked session `a`. The first request of the new session
 * `b` waits for `a`'s state and copies its first 10,000 tokens (`shared`). Then the state of `a` is on the disk only,
 * as before. */
#ifndef LLM_SHELF_H
#define LLM_SHELF_H

#include "sessions/branch.h"
#include "states/store.h"

typedef struct branch_table branch_table; /* branch_table.h */

typedef struct table_shelf {
    uint64_t refused_until_us; /* writing a state failed: until then no state is written */
    bool spill_waits;          /* a parked state waits in memory, over the budget, until the store has capacity, */
    uint64_t spill_until_us;   /* or until then; 0: none waits */
    uint64_t slot_until_us; /* a request waits for a slot that a job of the store may free, until then; 0: none waits */
    bool is_store_slow;     /* a wait for the store has timed out: no state waits until the store finishes a job */
    uint64_t slow_logged_us;
    bool is_lending; /* a state is lent: until it is returned nothing is spilled */
    bool is_saving;  /* an orderly stop has begun */
    bool is_unsaved; /* during the stop, writing a branch file failed */
} table_shelf;

/* ---- what the store has finished: table_stored.c ---- */

/* Takes one result of the store (store_take), and calls `done` if a command waits for it. Returns false if there was
 * none. */
bool table_take_stored(branch_table *table, bool takes_waited_for, void (*done)(void *context, store_job *job),
                       void *context);

/* Waits for the store and takes all its results: before it is closed, when no command waits for them any more. */
void table_settle(branch_table *table);

/* ---- parked states: table_parked.c ---- */

/* Returns the branch whose parked state leaves memory next; NULL: none can. A state that a request waits for stays.
 * (branch_table.c) */
branch *table_parked_victim(branch_table *table);

/* Moves parked states from memory to the store until the budget holds. While the store is busy, one state waits in
 * memory (spill_waits), as long as prefilling its tokens again would take, and 10 s at least; other states over the
 * budget are dropped. */
void table_spill(branch_table *table);
bool table_is_refused(const branch_table *table); /* a state could not be written a short time ago */
void table_spill_on(branch_table *table); /* returns lent states, and spills again: the store may have capacity now */

bool table_spill_waits(const branch_table *table);
bool table_is_lending(const branch_table *table); /* states that were read for other branches are in memory */
bool table_is_unsaved(const branch_table *table); /* an orderly stop could not write a branch file */

/* Begins to read the branch's parked state. Returns false if too many bytes are in flight; then try again after the
 * next result. */
bool table_read_file(branch_table *table, branch *b);

/* Returns when the wait of a parked state or of a request for the store ends, whichever is earlier and later than now_us; 0: none
 * waits. */
uint64_t table_waits_until_us(const branch_table *table, uint64_t now_us);

/* Whether requests have waited long enough for a slot that a job of the store may free: as long as prefilling the tokens of `b`
 * would take, and 10 s at least. Returns false while the wait goes on. */
bool table_gives_up_jobs(branch_table *table, const branch *b);

/* Drops the state on disk if the branch's request has waited for it as long as prefilling its tokens would take, and 10
 * s at least; the tokens are then prefilled. Returns false while the wait goes on. */
bool table_gives_up_reading(branch_table *table, branch *b);

/* Whether some branch's state is being read under this number (branch.h). */
bool table_is_reading(const branch_table *table, uint64_t reading);

/* Gives the branch the state that was read, and adds the checkpoints read with it. Returns false if the state is not of
 * these tokens. */
bool table_take_state(branch_table *table, branch *b, state_file *from);

/* Drops the blobs of a job whose write is over. */
void table_drop_parts(branch_table *table, state_file *f);

void table_written(branch_table *table, const store_job *job); /* a state was written, or the write failed */
void table_read_back(branch_table *table, store_job *job);     /* a state was read, or the read failed */

/* ---- bytes of states on the disk: table_disk.c ---- */

size_t table_disk_bytes(const branch_table *table);

/* A state file is counted from the moment its write is pushed, so that the limit always holds. Until the result arrives, an
 * older file may be all that exists, and is all that a drop of the later state, an orderly stop or a kill leaves. Several
 * writes may be queued, as a branch can leave a slot again before its last state is written. */
void table_expect_file(branch_table *table, branch *b, store_job *job, size_t n_bytes); /* fills in the job's branch */
void table_learn_file(branch *b, const store_job *job);                                 /* a result of the store */
void table_file_is_gone(branch_table *table, branch *b); /* removed, or removed before any later write */

/* Removes the state file, and the state if it is nowhere else. Returns false if memory is short. */
bool table_remove_state(branch_table *table, branch *b);

/* Removes the least valuable states until one of n_bytes of `b` fits. Returns false, and removes none, if it would not
 * fit even then, or is itself the least valuable. */
bool table_make_disk_room(branch_table *table, const branch *b, size_t n_bytes);

/* At a start: decides the limit if the options have none, and removes states beyond it. */
void table_limit_disk(branch_table *table);

/* Sort key of branches by the value of their tokens, least valuable first. Below 2^63. (branch_table.c) */
uint64_t table_order(const branch *b);

/* ---- branch files: table_files.c ---- */

/* Fills `out` with the tokens, name, pin and stamps. Returns false if memory is short. */
bool table_describe(const branch *b, branch_file *out);

/* Fills `out` with the state of the branch's first k tokens and with its checkpoints, as far as the limit on bytes in
 * flight allows; all are held as in flight. */
void table_describe_state(branch_table *table, const branch *b, blob *state, uint32_t k, state_file *out);

/* Fills the job and pushes it. The branch file must be written, or its write pushed, before. Returns false if the
 * states on disk are more valuable; then the caller keeps the job. */
bool table_write_state(branch_table *table, branch *b, blob *state, uint32_t k, store_job *job);

/* Whether the store has capacity for a state of that size now. */
bool table_may_write(const branch_table *table, size_t n_bytes);

/* Makes a job that changes one branch file, and fills in the branch if the verb writes it. NULL: memory is short. */
store_job *table_change_of(branch_table *table, branch *b, change_verb verb);

bool table_write_file(branch_table *table, branch *b); /* false: memory is short */

/* Removes the branch's files; a pinned branch that is reset keeps an empty one. */
void table_remove_file(branch_table *table, branch *b);
void table_reset_file(branch_table *table, branch *b);

/* ---- an orderly stop: table_stop.c ---- */

/* Writes every named branch as it is now, and waits until it is written. `take_stored` takes the store's results. */
void table_save_all(branch_table *table, void (*take_stored)(void *context), void *context);

/* ---- branches saved under labels: table_saved.c ---- */

/* Begin a job whose result comes through table_take_stored: LLM_OK. Else LLM_IO (no state directory), LLM_NO_MEMORY
 * (also: the limit on bytes in flight is reached), LLM_NOT_FOUND (the branch has no tokens; nothing is saved under that
 * label). Checkpoints are saved as well, without a copy. */
int table_save(branch_table *table, branch *b, session_name label, uint64_t request);
int table_load(branch_table *table, session_name name, session_name label, uint64_t request);
int table_unsave(branch_table *table, session_name label, uint64_t request);

/* Gives a branch that is open, idle and empty the loaded tokens, parked; then, in a second step, the loaded state, if
 * there is one. Between the two its file may be written. */
void table_become(branch_table *table, branch *b, const store_job *from);
void table_become_warm(branch_table *table, branch *b, store_job *from);

#endif
