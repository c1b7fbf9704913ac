/* naming.h: the names and pins of sessions. Also how a change of a name or pin gets to the disk, and how files are
 * removed. Owned by the decode thread.
 *
 *   command         in memory, at once           on the disk before the reply         if the disk fails
 *   PIN, RENAME     changed                      the existing branch files, and       the change is undone; LLM_IO
 *                                                those of pinned branches, are
 *                                                written
 *   RESET           empty                        the files are removed; a pinned      LLM_IO; the next reset, close or
 *                                                session keeps an empty one           stop tries again
 *   CLOSE           closed                       the files are removed                LLM_IO; the file is loose (see
 *                                                                                     below), and the next close or
 *                                                                                     stop tries again
 *
 * Example: PIN `a` marks the branches of session `a` as anchored (pinned by a command). It also marks them as changing:
 * the disk may not have the change yet. One job is pushed that writes their branch files. A second PIN or RENAME of `a`
 * waits for the result of that job. If the write fails, the branches get their former pins back. Some files may already
 * contain the new pins, so the files are written once more.
 *
 * A loose file is a branch file of a session that is not open. Either the session was closed, and the disk failed to
 * remove the file. Or the session got no entry when the daemon started, and waits for a later start (adoption.h). */
#ifndef LLM_NAMING_H
#define LLM_NAMING_H

#include "sessions/branch.h"
#include "states/store.h"

typedef struct branch_table branch_table; /* branch_table.h */

/* A branch file whose session is not open. */
typedef struct loose_file {
    uint64_t id;
    uint32_t owner;
    char name[LLM_SESSION_NAME_BYTES_MAX + 1];
    /* True: the session was closed, but the disk failed to remove the file. The next start would open the session
     * again. False: the session waits for an entry, and the members below are set. */
    bool is_closed;
    bool is_pinned;
    uint64_t used_ms;
    size_t n_file_bytes; /* bytes of the state file with the same id */
} loose_file;

/* Limit on the files that one call of table_expire_loose removes. Each removal may add an event that reports a
 * forgotten session. decode.c limits the number of events that wait for delivery. */
enum { LOOSE_EXPIRED_MAX = LLM_REQUESTS_MAX };

typedef struct table_naming {
    store_job *removing; /* collects the removals of one command; NULL if each removal is a job of its own */
    uint32_t n_loose;
    loose_file *loose_files; /* an array of n_loose files */
    uint32_t n_waiting;      /* number of loose files of sessions that wait for an entry */
    size_t loose_bytes;      /* bytes of the state files of loose files */
} table_naming;

/* ---- pins ---- */

/* Pins or unpins all branches of a session. Returns LLM_OK, or LLM_NOT_FOUND if no branch of the session is open.
 * Returns LLM_PINS if the limit on pins is reached. Then nothing was changed. */
int table_pin(branch_table *table, session_name name, bool pinned);

/* Whether the session is pinned. A session is pinned if one of its branches is anchored. A branch is anchored if it
 * existed when a command pinned the session. Branches that wait for an entry count, too. */
bool table_is_pinned(branch_table *table, session_name name);

/* Pins a new branch of a pinned session, if the limit on pins allows it. */
void table_pin_with_others(branch_table *table, branch *b);

/* Called after a failed PIN or RENAME was undone. Considers the branches that were opened after their session was
 * pinned. Pins or unpins these branches to match the restored pin of the session. */
void table_pin_follow(branch_table *table, uint32_t owner, const char *name);

/* Pins the branches that pinned sessions opened after these sessions had been pinned. Called after an adoption. Files
 * contain only the pins of anchored branches. */
void table_pin_later_branches(branch_table *table);

/* Limit on pinned branches of all owners together. */
uint32_t table_pins_max(const branch_table *table);
/* limit on pinned branches if at most n_names named branches can be open */
uint32_t table_pins_max_of(uint32_t n_names);

/* ---- changes that a command waits for: table_change.c ---- */

/* Carry out a PIN or RENAME. The caller first calls table_change_begin. Then the caller changes the names or pins of
 * the session's branches in memory. Finally the caller calls table_change_end, which pushes a job that writes the
 * branch files.
 *
 * If table_change_end returns true, the result of the job comes through table_take_stored. If the job failed, the
 * caller calls table_change_undo, which restores the former names and pins. Until the result has come, the branches are
 * changing, and a second PIN or RENAME waits. Otherwise the undo of the second command could not know which names and
 * pins are on the disk.
 *
 * If table_change_end returns false, *status is the reply to the command. If *status is an error, the change has been
 * undone. */
store_job *table_change_begin(branch_table *table, session_name name); /* returns NULL if memory is short */
bool table_change_end(branch_table *table, store_job *job, uint64_t request, llm_status *status);
void table_change_undo(branch_table *table, const store_job *job);
void table_change_settled(branch_table *table, const store_job *job); /* called when the store has finished the job */
bool table_is_changing(branch_table *table, session_name name);
void table_rename(branch_table *table, session_name name, session_name to);

/* ---- removals that a command waits for: table_removal.c ---- */

/* All files whose removal is requested between table_removing_begin and table_removing_end are removed by one job. So
 * the directory is synced only once. table_removing_end pushes the job and returns true, and a result will come.
 * If there are no such files, table_removing_end returns false. */
void table_removing_begin(branch_table *table);
bool table_removing_end(branch_table *table, session_name name, uint64_t request);
void table_removing_end_unasked(branch_table *table); /* like table_removing_end, but no command waits for the result */
void table_remove_id(branch_table *table, uint64_t id, uint32_t owner, const char *name);
/* `job` has a single change. Between table_removing_begin and table_removing_end, moves this change into the job that
 * collects removals. At any other time, pushes `job`. */
void table_attach(branch_table *table, store_job *job);

/* Remembers which files this job failed to remove. The next close of the session, or an orderly stop, tries again. */
void table_removal_refused(branch_table *table, const store_job *job);

/* ---- files of sessions that are not open: table_removal.c ---- */

bool table_add_loose(branch_table *table, const loose_file *f); /* returns false if memory is short */
/* Returns the session's next loose file after `after`, or its first if `after` is NULL. Returns NULL if there are no
 * more. */
const loose_file *table_next_loose(const branch_table *table, session_name name, const loose_file *after);
/* whether a session of this name waits on disk for an entry in the session table */
bool table_is_waiting(const branch_table *table, session_name name);
uint32_t table_n_waiting(const branch_table *table);
void table_remove_loose(branch_table *table, session_name name);
void table_remove_closed(branch_table *table); /* removes the files that could not be removed when their sessions were
                                                * closed */
/* Removes files of unpinned sessions that wait for an entry. Removes those last used before before_ms, at most
 * LOOSE_EXPIRED_MAX files. Of the remaining sessions that may expire, returns the earliest last use. Returns 0 if no
 * such session remains. */
uint64_t table_expire_loose(branch_table *table, uint64_t before_ms);
size_t table_loose_bytes(const branch_table *table); /* returns the bytes of the state files of loose files */
void table_free_loose(branch_table *table);

#endif
