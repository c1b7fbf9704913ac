/* session_table.h: writes the session table. The table is shared memory with counters and with an entry for each open
 * branch. llm_session_table.h describes its layout, and how other threads and processes read it. The writer is owned by
 * the decode thread. Only session_table.c contains code that orders the writer's memory accesses. */
#ifndef LLM_SESSION_TABLE_WRITER_H
#define LLM_SESSION_TABLE_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llm.h"
#include "llm_session_table.h"

typedef struct session_table session_table;

/* Creates the table in a new shared-memory segment of this name, or in private memory if `name` is NULL. No segment of
 * the name may exist. The daemon uses random names. Thus no other process can create a segment of the name first. Also
 * removes segments that dead daemons of this user have left, if they are incomplete or were not used for a week.
 * posix_fallocate allocates all memory when the segment is created. Thus a full tmpfs is an error here and not a SIGBUS
 * later. */
int session_table_open(const char *name, uint32_t n_entries, uint32_t n_ctx, const char *model, const char *fingerprint,
                       session_table **out, char *error, size_t error_bytes);
void session_table_close(session_table *p); /* unmaps and unlinks the segment; NULL is allowed */

/* Gives the segment its final name. Until then the name ends with SESSION_TABLE_OPENING. A daemon that dies while it
 * starts leaves an incomplete segment, which no later daemon may adopt. Returns LLM_IO if a segment of the final name
 * exists. */
#define SESSION_TABLE_OPENING ".opening"
int session_table_publish(session_table *p);

/* Leaves the segment to a later daemon, as if the process were killed now. Later writes do not reach the segment. Used
 * by tests, and by a stop that could not save all sessions. */
void session_table_leave(session_table *p);

/* Whether the process that created the table's segment is dead. Works also if that process ran in another pid
 * namespace. If that process is dead, the reader `p` locks the segment until llm_session_table_close. Thus no other
 * reader sees the segment as abandoned. */
bool session_table_is_abandoned(const llm_session_table *p);

const llm_session_table *session_table_reader(const session_table *p); /* valid until session_table_close */

/* ---- entries ---- */

/* Opens an entry without tokens for the branch with number `id`, which never changes. */
void session_table_open_entry(session_table *p, uint32_t entry, uint32_t owner, const char *name, uint64_t id);
void session_table_close_entry(session_table *p, uint32_t entry);
/* Renames the branch, which keeps its tokens. Readers see either the old or the new name. */
void session_table_rename_entry(session_table *p, uint32_t entry, const char *name);

/* Returns the tokens of the entry's branch. The session table has the only copy of these tokens. Only the decode thread
 * may use the returned array, and must not change it. */
const int32_t *session_table_tokens(const session_table *p, uint32_t entry);
uint32_t session_table_n_tokens(const session_table *p, uint32_t entry);
void session_table_append(session_table *p, uint32_t entry, const int32_t *tokens, uint32_t n); /* requires that the
                                                                                                 * entry's tokens and
                                                                                                 * the n new ones are at
                                                                                                 * most n_ctx */
void session_table_truncate(session_table *p, uint32_t entry, uint32_t n);                      /* requires that the
                                                                                                 * entry has at least n
                                                                                                 * tokens */

/* The part of an entry's record that changes. Each member is written atomically by itself: a reader may see members
 * from two different moments, but never half a value. */
typedef struct session_table_record {
    LLM_BRANCH_RECORD_TABLE(LLM_BRANCH_RECORD_MEMBER)
} session_table_record;
void session_table_store_record(session_table *p, uint32_t entry, const session_table_record *record);

/* ---- counters ---- */

void session_table_count(session_table *p, llm_counter counter, uint64_t add);
void session_table_gauge(session_table *p, llm_counter counter, uint64_t value);
uint64_t session_table_counter(const session_table *p, llm_counter counter);

#endif
