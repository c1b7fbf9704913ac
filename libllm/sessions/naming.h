/* naming.h: names and pins, how a change of them is written to the disk, and how files are removed. Owned by the decode
 * thread.
 *
 *   command         in memory, at once           on the disk before the reply         if the disk fails
 *   PIN, RENAME     changed                      branch files of branches that        the change is undone; LLM_IO
 *                                                have one or are pinned are written
 *   RESET           empty                        the files are removed; a pinned      LLM_IO; the next reset, close or stop
 *                                                session keeps an empty one           tries again
 *   CLOSE           closed                       the files are removed                LLM_IO; the file is loose, and the
 *                                                                                     next close or stop tries again
 *
 * Example: PIN `a` marks its branches as anchored and changing, and pushes one job that writes their files. A second
 * PIN or RENAME of `a` waits for the result. If the write fails, the branches get their former pins, and their files
 * are written once more, as some of them may have been written with the new ones.
 *
 * A loose file belongs to a session that is not open: the session was closed and the disk failed to remove its file, or
 * the session waits for a start that has an entry for it (adoption.h). */
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
    /* the disk failed to remove it, so that the next start would open the session again. false: it waits for an entry,
     * and: */
    bool is_closed;
    bool is_pinned;
    uint64_t used_ms;
    size_t n_file_bytes; /* bytes of its state file */
} loose_file;

enum {
    LOOSE_EXPIRED_MAX = LLM_REQUESTS_MAX
}; /* removed at a time: each may be reported, and there is limited room for reports */

typedef struct table_naming {
    store_job *removing; /* collects the removals of one command; NULL: each removal is a job of its own */
    uint32_t n_loose;
    loose_file *loose_files; /* n_loose */
    uint32_t n_waiting;      /* loose files that are not is_closed */
    size_t loose_bytes;      /* bytes of their state files */
} table_naming;

/* ---- pins ---- */

/* Pins or unpins all branches of a name. LLM_OK, LLM_NOT_FOUND (none is open), LLM_PINS (nothing is changed). */
int table_pin(branch_table *table, session_name name, bool pinned);

/* Some branch of that name, open or waiting, existed when it was pinned. */
bool table_is_pinned(branch_table *table, session_name name);

/* Pins a new branch of a pinned session, if the limit on pins allows it. */
void table_pin_with_others(branch_table *table, branch *b);

/* Pins or unpins the later branches of a session whose pin was undone. */
void table_pin_follow(branch_table *table, uint32_t owner, const char *name);

/* Pins the later branches of pinned sessions after an adoption, which restores anchored pins only. */
void table_pin_later_branches(branch_table *table);

/* Limit on pinned branches of all owners together. */
uint32_t table_pins_max(const branch_table *table);
uint32_t table_pins_max_of(uint32_t n_names); /* if n_names branches may be open */

/* ---- changes that a command waits for: table_change.c ---- */

/* A change of name or pin. Between begin and end the caller changes the name's branches; `end` makes the store write
 * their files. True: the result comes through table_take_stored; after a failure table_change_undo restores the former
 * names and pins. Until then the branches are changing, and a second change waits: its undo could not know which names
 * and pins are on the disk. False: *status is the reply, and a failure has been undone. */
store_job *table_change_begin(branch_table *table, session_name name); /* NULL: no memory */
bool table_change_end(branch_table *table, store_job *job, uint64_t request, llm_status *status);
void table_change_undo(branch_table *table, const store_job *job);
void table_change_settled(branch_table *table, const store_job *job); /* the store has finished it */
bool table_is_changing(branch_table *table, session_name name);
void table_rename(branch_table *table, session_name name, session_name to);

/* ---- removals that a command waits for: table_removal.c ---- */

/* All files removed between begin and end are removed by one job, which syncs their directory once. True: there are
 * some, and a result will come. */
void table_removing_begin(branch_table *table);
bool table_removing_end(branch_table *table, session_name name, uint64_t request);
void table_removing_end_unasked(branch_table *table); /* no command waits for the result */
void table_remove_id(branch_table *table, uint64_t id, uint32_t owner, const char *name);
void table_attach(branch_table *table,
                  store_job *job); /* adds its one change to the job between begin and end, or pushes it */

/* Remembers the files that this job failed to remove: closing the session again, or an orderly stop, tries again. */
void table_removal_refused(branch_table *table, const store_job *job);

/* ---- files of sessions that are not open: table_removal.c ---- */

bool table_add_loose(branch_table *table, const loose_file *f); /* false: memory is short */
/* The next loose file of a name after `after` (NULL: the first). NULL: no more. */
const loose_file *table_next_loose(const branch_table *table, session_name name, const loose_file *after);
bool table_is_waiting(const branch_table *table, session_name name); /* a loose file of that name waits for an entry */
uint32_t table_n_waiting(const branch_table *table);
void table_remove_loose(branch_table *table, session_name name);
void table_remove_closed(branch_table *table); /* all that are left of closed sessions */
/* Removes files that wait for an entry and were not used since before_ms, at most LOOSE_EXPIRED_MAX of them and none
 * that is pinned. Returns the oldest stamp of those left that may expire, or 0. */
uint64_t table_expire_loose(branch_table *table, uint64_t before_ms);
size_t table_loose_bytes(const branch_table *table); /* of the state files beside loose files */
void table_free_loose(branch_table *table);

#endif
