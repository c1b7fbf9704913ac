/* session_table.h: the writer of the session table (layout and reader protocol: llm_session_table.h). Owned by the decode thread;
 * the readers are other threads and processes. All memory ordering of the segment lives in session_table.c. */
#ifndef LLM_SESSION_TABLE_WRITER_H
#define LLM_SESSION_TABLE_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llm.h"
#include "llm_session_table.h"

typedef struct session_table session_table;

/* Creates the segment (name NULL: private memory), which must not be there yet: names are drawn, so that nobody can be
 * there first. Segments of this user whose owner is dead and which nobody used for a week are removed. Memory is really
 * allocated (posix_fallocate), so that a full tmpfs is an error here and not a SIGBUS later. */
int session_table_open(const char *name, uint32_t n_entries, uint32_t n_ctx, const char *model, const char *fingerprint,
                       session_table **out, char *error, size_t error_bytes);
void session_table_close(session_table *p); /* unmaps and unlinks; NULL is allowed */

/* Until it is published, it has the name with SESSION_TABLE_OPENING behind it: what a daemon that dies meanwhile leaves is nobody's
 * to take over. LLM_IO: the name is taken. */
#define SESSION_TABLE_OPENING ".opening"
int session_table_publish(session_table *p);

/* As if the process were killed now: the segment stays as it is, and what is written from now on does not reach it. */
void session_table_leave(session_table *p);

/* Whether the process that made it is dead, in whatever pid namespace it ran. Then it is this reader's until it is closed:
 * nobody else finds it abandoned. */
bool session_table_is_abandoned(const llm_session_table *p);

const llm_session_table *session_table_reader(const session_table *p); /* valid until session_table_close */

/* ---- entries ---- */

/* Opens an entry with the record's identity; no tokens. `id`: of this branch, for good. */
void session_table_open_entry(session_table *p, uint32_t entry, uint32_t owner, const char *name, uint64_t id);
void session_table_close_entry(session_table *p, uint32_t entry);
void session_table_rename_entry(session_table *p, uint32_t entry,
                                const char *name); /* its tokens stay; readers see either name */

/* The resident tokens themselves: the session table is their only copy. Read-only view for the writer's thread. */
const int32_t *session_table_tokens(const session_table *p, uint32_t entry);
uint32_t session_table_n_tokens(const session_table *p, uint32_t entry);
void session_table_append(session_table *p, uint32_t entry, const int32_t *tokens, uint32_t n); /* count + n <= n_ctx */
void session_table_truncate(session_table *p, uint32_t entry, uint32_t n);                      /* n <= count */

/* The mutable part of a record. Each member is atomic by itself: a reader may see a mix of two moments, never a torn
 * value. */
typedef struct session_table_record {
    LLM_BRANCH_RECORD_TABLE(LLM_BRANCH_RECORD_MEMBER)
} session_table_record;
void session_table_store_record(session_table *p, uint32_t entry, const session_table_record *record);

/* ---- counters ---- */

void session_table_count(session_table *p, llm_counter counter, uint64_t add);
void session_table_gauge(session_table *p, llm_counter counter, uint64_t value);
uint64_t session_table_counter(const session_table *p, llm_counter counter);

#endif
