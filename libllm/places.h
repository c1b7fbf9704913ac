/* places.h: who holds which place: the named sessions up to their capacity, the scratch ones beside them. Policy lives
 * here; a session's own state is session.h's. Owned by the decode thread, or by the opener in direct mode. */
#ifndef LLM_PLACES_H
#define LLM_PLACES_H

#include <stdbool.h>
#include <stdint.h>

#include "llm.h"
#include "session.h"

typedef struct places {
    model *model;
    page *page;
    llm_policy policy;
    uint32_t n_named;
    uint32_t n_scratch;
    uint64_t clock;     /* counts uses; orders sessions by recency */
    session *sessions;  /* slots 0..n_named-1 are named, the rest scratch */
} places;

int places_open(places *p, model *m, page *segment, uint32_t n_named, uint32_t n_scratch, llm_policy policy);
void places_close(places *p);
uint32_t places_n(const places *p);

/* The open named session, or NULL. */
session *places_find(places *p, uint32_t owner, const char *name, size_t n_name_bytes);

/* The named session, opened now if need be: in a free place, else, if the policy allows, in that of the least recently
 * used idle one. NULL: capacity exhausted. */
session *places_admit(places *p, uint32_t owner, const char *name, size_t n_name_bytes);

/* A scratch session for this prompt that no request holds: the one of the same owner that the prompt continues, else a
 * free one, else the least recently used. NULL: all are busy. */
session *places_scratch(places *p, uint32_t owner, const int32_t *prompt, uint32_t n_prompt);

void places_used(places *p, session *s); /* s is the most recent now */

/* Frees KV cells by forgetting one idle session other than those running: scratch first, then, if the policy allows,
 * the least recently used named one. False: there is none. */
bool places_free_cells(places *p);

void places_forget(places *p, session *s); /* closes an idle session and counts the eviction */
void places_publish(places *p);            /* gauges */

#endif
