/* request.h: one generation, from its command to its one terminal event. Owned by the decode thread.
 *
 *   WAITING --session free--> PREFILL --prompt consumed--> DECODE --any end--> ENDED --FINISHED delivered--> (freed)
 *      |                         |                                                ^
 *      +-------------------------+---- cancel, reset, close, shutdown, failure ---+
 *
 * What leaves is kept in the outbox until the event ring has room, so that a stalled reader costs bounded memory and
 * stops only its own generation. */
#ifndef LLM_REQUEST_H
#define LLM_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "llm.h"
#include "engine/told.h"
#include "sessions/places.h"
#include "boundary/ring.h"
#include "text/sampler.h"
#include "sessions/session.h"
#include "policy/stop.h"
#include "boundary/wire.h"

typedef enum request_phase { REQUEST_WAITING, REQUEST_PREFILL, REQUEST_DECODE, REQUEST_ENDED } request_phase;

typedef struct outbox {
    char *text; /* LLM_OUTBOX_BYTES_MAX + STOP_TEXT_BYTES_MAX */
    uint32_t n_text;
    told told;     /* tokens beside the text */
    bool admitted; /* to be delivered */
    bool started;
    bool finished;
} outbox;

typedef struct request {
    uint64_t id;
    uint32_t owner;
    request_phase phase;
    uint32_t flags;
    uint64_t after; /* the live request whose prompt is to be consumed before; 0: none */
    bool paused;

    session *session;     /* that it holds or waits for; NULL while waiting for any scratch session */
    uint32_t slot;        /* of that session; UINT32_MAX while not known */
    struct request *next; /* behind it in the same queue */

    int32_t *prompt; /* owned */
    uint32_t n_prompt;
    uint32_t n_head;     /* of the prompt: what many conversations begin with */
    uint32_t max_tokens; /* > 0, clamped to the context */
    sampler *sampler;    /* owned */
    stop stop;           /* owned */

    uint32_t *cuts; /* owned: ascending token counts at which prefill pauses for a checkpoint; the last is n_prompt */
    uint32_t n_cuts;
    uint32_t next_cut;
    uint32_t prefix_at; /* the cut that ends the head, if it is worth keeping; 0: none */

    resume_plan plan;     /* valid from PREFILL on */
    uint32_t n_generated; /* sampled tokens, the one that ended the turn included */
    int32_t next_token;   /* sampled and not yet consumed; -1: none */
    uint64_t n_bytes;     /* of all pieces so far */
    uint64_t *ends;       /* owned: n_bytes after each generated token; capacity max_tokens grows by doubling */
    uint32_t ends_capacity;
    uint64_t n_released; /* raw bytes that left, see stop.h */

    uint64_t queued_us, started_us, decoding_us; /* moments, CLOCK_MONOTONIC */
    wire_finished finished;                      /* valid in ENDED */
    outbox out;
} request;

/* Builds a request from a checked GENERATE. LLM_OK; LLM_TOKEN, LLM_CONTEXT_LENGTH, LLM_INVALID, LLM_NO_MEMORY. */
int request_open(const model *m, const wire_command *command, request **out);
void request_close(request *r); /* NULL is allowed */

/* Prompt tokens still to consume in PREFILL before the next cut; 0 in DECODE. */
uint32_t request_prefill_left(const request *r);

/* The seated session is this request's: resume is decided and done. Where the logits after the prompt were kept, they
 * are returned, to be sampled at once (request_advance) instead of a step; otherwise NULL. */
const float *request_begin(request *r, places *p, session *s);

/* The session has consumed what its last step took. `logits`: those after the last token, where there are any. Takes the
 * checkpoints that are due. */
void request_consumed(request *r, const float *logits, uint32_t checkpoint_every);

/* A step has consumed everything up to here and produced logits: samples a token and moves its text to the outbox.
 * May end the request. */
void request_advance(request *r, const model *m, float *logits);

/* Ends the request for a reason outside the generation; the session is given up. In WAITING, too. */
void request_end(request *r, llm_outcome outcome, llm_status status);

/* Its undelivered text is at the limit: not to be stepped. */
bool request_is_stalled(const request *r);

/* Delivers as much of the outbox as the ring takes. True when nothing is left. */
bool request_deliver(request *r, ring *events);

#endif
