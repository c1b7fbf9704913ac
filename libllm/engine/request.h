/* request.h: one generation, from its command to its one terminal event. Owned by the decode thread.
 *
 *   WAITING --session free--> RUNNING --any end--> ENDED --FINISHED delivered--> (freed)
 *      |                 prefill, decode              ^
 *      +------- cancel, reset, close, shutdown, ------+
 *               failure
 */
#ifndef LLM_REQUEST_H
#define LLM_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "boundary/wire.h"
#include "engine/outbox.h"
#include "engine/sampling.h"
#include "llm.h"
#include "policy/checkpoint_points.h"
#include "policy/stop.h"
#include "sessions/branch.h"
#include "sessions/branch_table.h"
#include "text/sampling/sampler.h"

typedef enum request_phase { REQUEST_WAITING, REQUEST_RUNNING, REQUEST_ENDED } request_phase;

typedef struct request {
    branch_claim claim; /* first member */
    uint64_t id;
    uint32_t owner;
    request_phase phase;
    bool is_cold;           /* LLM_GENERATE_COLD */
    bool tells_consumed;    /* LLM_GENERATE_RETURN_CONSUMED */
    uint64_t after;         /* the live request whose prompt is to be consumed before; 0: none */
    bool waits_for_slot;    /* it has asked for one in vain; or it waits for one that has begun, or for the disk */
    bool has_fetched;       /* what others have on the disk has been looked at, once */
    uint64_t fetching;      /* and this is read (resuming.h); 0: nothing, or no longer waited for */
    uint64_t fetched_by_us; /* it is waited for until then */
    uint32_t n_overtaken;   /* RUNNING without a slot: requests that have begun meanwhile */

    int32_t *prompt;          /* the claim's; owned */
    branch *branch;           /* that it holds or waits for; NULL: any scratch session, or it has ended */
    checkpoint_points points; /* where the prompt's checkpoints are taken */
    resume_plan plan;         /* from request_begin on */
    bool is_decoding;         /* the prompt is consumed */
    int32_t next_token;       /* sampled and not yet consumed; -1: none */
    uint32_t max_tokens;      /* > 0, clamped to the context */
    uint32_t min_tokens;      /* stop strings are not looked for before */
    uint32_t n_answer_stops;  /* so many at the beginning are not looked for in thoughts */
    stop stop;                /* owned */
    sampler *sampler;         /* owned by the job, if there is one, else here */
    sampling_job *job;        /* owned; NULL: never yet picked for by a thread (sampling.h) */
    bool is_sampling;         /* a thread is at it: it is in no step */

    uint32_t n_generated; /* sampled tokens, the one that ended the turn included */
    uint64_t n_bytes;     /* of all pieces so far */
    uint64_t *ends;       /* owned: n_bytes after each generated token; capacity max_tokens grows by doubling */
    uint32_t ends_capacity;
    uint64_t n_released; /* raw bytes that left, see stop.h */

    uint64_t queued_us, started_us, decoding_us; /* moments, CLOCK_MONOTONIC */
    outbox out;
} request;

/* Whose claim it is; NULL for NULL. */
static inline request *request_of_claim(branch_claim *c)
{
    return (request *)c;
}

static inline bool request_has_slot(const request *r)
{
    return r->phase == REQUEST_RUNNING && branch_has_slot(r->branch);
}

/* It has a slot and is read: it goes on, or ends. */
static inline bool request_moves(const request *r)
{
    return request_has_slot(r) && !r->claim.is_paused;
}

/* Of a request that has a session: slots of its kind are what it takes. */
static inline bool request_is_for_named(const request *r)
{
    return r->branch != NULL && r->branch->name[0] != '\0';
}

/* Builds a request from a checked GENERATE. LLM_OK; LLM_TOKEN, LLM_CONTEXT_LENGTH, LLM_INVALID, LLM_NO_MEMORY. */
int request_open(const model *m, const wire_command *command, request **out);
void request_close(request *r); /* NULL is allowed */

/* The session, which has a slot, is this request's now, at the longest provable prefix of its prompt. Returns the logits after the
 * prompt if they were kept: they are sampled at once (request_sample), without a step. */
const float *request_begin(request *r, branch_table *table, branch *b);

/* A step has consumed more of the prompt: tells who asked for it. */
void request_consumed(request *r);

/* A step has consumed everything up to here and produced logits: samples a token and moves its text to the outbox.
 * May end the request. What takes long is left to the threads: is_sampling. */
void request_sample(request *r, const model *m, sampling_threads *threads, float *logits);

/* One with a slot that is_sampling: goes on with the token, if it is there. True: it was. */
bool request_take_sampled(request *r, const model *m);

/* Ends the request for a reason outside the generation; the session is given up. In WAITING, too. */
void request_end(request *r, llm_outcome outcome, llm_status status);

#endif
