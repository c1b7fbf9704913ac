/* session.h: one isolated timeline of tokens with its own state in the model's memory. Owned by the decode thread, or
 * by the opener in direct mode.
 *
 *                 open                 prefill begins            last prompt token
 *      (closed) -------> EMPTY ----------------------> PREFILL -------------------> DECODE
 *                          ^  ^                          |  ^                         |
 *                          |  |        reset             |  |   prefill begins        | generation ends,
 *                          |  +--------------------------+--+---------+               | or is cancelled
 *                          |                                          |               v
 *                          +-------------- reset ------------------- IDLE <-----------+
 *                          |
 *                          +-------------- reset ------------------- TORN <--- a failed step, from any state
 *                                                                     |
 *                                                                     +--- prefill begins (refills) ---> PREFILL
 *
 * Invariant, whenever the session is not torn:  resident tokens == position == what the model's memory holds
 * for sequence `slot`. The resident tokens lie in the shared page; session.c is their only writer.
 */
#ifndef LLM_SESSION_H
#define LLM_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "llm.h"
#include "model.h"
#include "page.h"
#include "resume.h"

struct request;

typedef struct session {
    model *model;  /* the engine's */
    page *page;    /* the engine's */
    uint32_t slot; /* place: also the model's sequence and the page's slot */
    bool is_open;
    uint32_t owner;
    char name[LLM_SESSION_NAME_BYTES_MAX + 1]; /* "": scratch */
    uint64_t used; /* order of last use: larger is more recent */
    page_record record;

    struct request *running; /* the generation that holds the session, or NULL */
    struct request *waiting; /* first in the queue behind it */
} session;

void session_init(session *s, model *m, page *p, uint32_t slot);
void session_open(session *s, uint32_t owner, const char *name, size_t n_name_bytes);
void session_close(session *s);
void session_reset(session *s);

uint32_t session_n_tokens(const session *s);
const int32_t *session_tokens(const session *s);

/* What a prompt would reuse. */
resume_plan session_plan(const session *s, const int32_t *prompt, uint32_t n_prompt, bool cold);

/* Acts on the plan: afterwards the session holds exactly the first n_keep tokens of the prompt and is in PREFILL.
 * Returns the plan that really happened: should the model refuse a cut, the session starts over (torn). */
resume_plan session_begin(session *s, const int32_t *prompt, uint32_t n_prompt, bool cold);

void session_consumed(session *s, const int32_t *tokens, uint32_t n); /* after a model step succeeded */
void session_decoding(session *s);                                    /* the whole prompt is consumed */
void session_ended(session *s, uint32_t n_visible);                   /* the generation is over; state is valid */
void session_tear(session *s);                                        /* a step failed */

/* Cuts the newest tokens off if the memory allows it exactly; false leaves everything as it is. */
bool session_cut(session *s, uint32_t n_tokens);

/* Publishes what changed in `record`. */
void session_publish(session *s);

uint64_t session_clock_us(void);  /* CLOCK_MONOTONIC */
uint64_t session_clock_ms(void);  /* CLOCK_REALTIME */

#endif
