/* session_table.h: the writer of the session table (layout and reader protocol: llm_session_table.h). Owned by the
 * decode thread; the readers are other threads and processes. All memory ordering of the writer is in
 * session_table.c. */
#ifndef LLM_SESSION_TABLE_WRITER_H
#define LLM_SESSION_TABLE_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llm.h"
#include "llm_session_table.h"

typedef struct session_table session_table;

/* Creates the segment, or private memory if `name` is NULL. A segment of that name must not exist. Names are random, so
 * that no other process can create a segment of the name first. Also removes segments of this user that were not used
 * for a week and whose owner is dead. The memory is allocated at once (posix_fallocate), so that a full tmpfs is an
 * error here and not a SIGBUS later. */
int session_table_open(const char *name, uint32_t n_entries, uint32_t n_ctx, const char *model, const char *fingerprint,
                       session_table **out, char *error, size_t error_bytes);
void session_table_close(session_table *p); /* unmaps and unlinks; NULL is allowed */

/* Gives the segment its final name. Until then the name ends with SESSION_TABLE_OPENING, because an incomplete segment
 * that a dying daemon leaves must not be adopted. Returns LLM_IO if the final name exists. */
#define SESSION_TABLE_OPENING ".opening"
int session_table_publish(session_table *p);

/* Leaves the segment to a later daemon, as if the process were killed now: later writes do not reach the segment. Used
 * if a stop could not save all sessions, and by tests. */
void session_table_leave(session_table *p);

/* Whether the process that created the segment is dead, in whatever pid namespace that process ran. If so, this reader
 * locks the segment until llm_session_table_close, so that for all other readers the segment is not abandoned. */
bool session_table_is_abandoned(const llm_session_table *p);

const llm_session_table *session_table_reader(const session_table *p); /* valid until session_table_close */

/* ---- entries ---- */

/* Opens an entry without tokens. `id` never changes for this branch. */
void session_table_open_entry(session_table *p, uint32_t entry, uint32_t owner, const char *name, uint64_t id);
void session_table_close_entry(session_table *p, uint32_t entry);
void session_table_rename_entry(session_table *p, uint32_t entry,
                                const char *name); /* the tokens stay; readers see the old or the new name */

/* Returns the resident tokens, of which the session table has the only copy. The array is read-only, for the writer's
 * thread. */
const int32_t *session_table_tokens(const session_table *p, uint32_t entry);
uint32_t session_table_n_tokens(const session_table *p, uint32_t entry);
void session_table_append(session_table *p, uint32_t entry, const int32_t *tokens, uint32_t n); /* count + n <= n_ctx */
void session_table_truncate(session_table *p, uint32_t entry, uint32_t n);                      /* n <= count */

/* The mutable part of a record. Each member is atomic by itself: a reader may see members of two moments, but never
 * half a value. */
typedef struct session_table_record {
    LLM_BRANCH_RECORD_TABLE(LLM_BRANCH_RECORD_MEMBER)
} session_table_record;
void session_table_store_record(session_table *p, uint32_t entry, const session_table_record *record);

/* ---- counters ---- */

void session_table_count(session_table *p, llm_counter counter, uint64_t add);
void session_table_gauge(session_table *p, llm_counter counter, uint64_t value);
uint64_t session_table_counter(const session_table *p, llm_counter counter);

#endif
