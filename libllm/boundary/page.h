/* page.h: the writer of the shared segment (layout and reader protocol: llm_page.h). Owned by the decode thread;
 * the readers are other threads and processes. All memory ordering of the segment lives in page.c. */
#ifndef LLM_PAGE_WRITER_H
#define LLM_PAGE_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llm.h"
#include "llm_page.h"

typedef struct page page;

/* Creates the segment (name NULL: private memory), which must not be there yet: names are drawn, so that nobody can be
 * there first. Segments of this user whose owner is dead and which nobody used for a week are removed. Memory is really
 * allocated (posix_fallocate), so that a full tmpfs is an error here and not a SIGBUS later. */
int page_open(const char *name, uint32_t n_places, uint32_t n_ctx, const char *model, const char *fingerprint,
              page **out, char *error, size_t error_bytes);
void page_close(page *p); /* unmaps and unlinks; NULL is allowed */

/* Until it is published, it has the name with PAGE_OPENING behind it: what a daemon that dies meanwhile leaves is nobody's
 * to take over. LLM_IO: the name is taken. */
#define PAGE_OPENING ".opening"
int page_publish(page *p);

/* As if the process were killed now: the segment stays as it is, and what is written from now on does not reach it. */
void page_leave(page *p);

/* Whether the process that made it is dead, in whatever pid namespace it ran. Then it is this reader's until it is closed:
 * nobody else finds it abandoned. */
bool page_is_abandoned(const llm_page *p);

const llm_page *page_reader(const page *p); /* valid until page_close */

/* ---- places ---- */

/* Opens a place with the record's identity; no tokens. `id`: of this branch, for good. */
void page_place_open(page *p, uint32_t place, uint32_t owner, const char *name, uint64_t id);
void page_place_close(page *p, uint32_t place);
void page_place_rename(page *p, uint32_t place, const char *name); /* its tokens stay; readers see either name */

/* The resident tokens themselves: the page is their only copy. Read-only view for the writer's thread. */
const int32_t *page_tokens(const page *p, uint32_t place);
uint32_t page_n_tokens(const page *p, uint32_t place);
void page_append(page *p, uint32_t place, const int32_t *tokens, uint32_t n); /* count + n <= n_ctx */
void page_truncate(page *p, uint32_t place, uint32_t n);                      /* n <= count */

/* The mutable part of a record. Each member is atomic by itself: a reader may see a mix of two moments, never a torn
 * value. */
typedef struct page_record {
    LLM_BRANCH_RECORD_TABLE(LLM_BRANCH_RECORD_MEMBER)
} page_record;
void page_record_store(page *p, uint32_t place, const page_record *record);

/* ---- counters ---- */

void page_count(page *p, llm_counter counter, uint64_t add);
void page_gauge(page *p, llm_counter counter, uint64_t value);
uint64_t page_counter(const page *p, llm_counter counter);

#endif
