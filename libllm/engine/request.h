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
    branch_claim claim; /* first member, so that a claim can be cast to its request */
    uint64_t id;
    uint32_t owner;
    request_phase phase;
    bool is_cold;          /* LLM_GENERATE_COLD */
    bool reports_consumed; /* LLM_GENERATE_RETURN_CONSUMED */
    uint64_t after;        /* wait until this live request has consumed its prompt; 0: none */
    bool waits_for_slot; /* could not get a slot, because one may become free later or because it waits for the disk */
    bool has_fetched;    /* whether states on disk were considered for the prompt, which is done once */
    uint64_t fetching;   /* number of the read that it waits for (resuming.h); 0: none */
    uint64_t fetched_by_us; /* end of that wait */
    uint32_t n_overtaken;   /* RUNNING without a slot: number of requests that have begun since */

    int32_t *prompt; /* owned; claim.prompt points to it */
    branch *branch;  /* the branch that it holds or waits for; NULL: any scratch branch, or the request has ended */
    checkpoint_points points; /* where the prompt's checkpoints are taken */
    resume_plan plan;         /* set by request_begin */
    bool is_decoding;         /* the whole prompt is consumed */
    int32_t next_token;       /* sampled and not yet consumed; -1: none */
    uint32_t max_tokens;      /* > 0, clamped to the context */
    uint32_t min_tokens;      /* no stop string is searched for before */
    uint32_t n_answer_stops;  /* so many of the first stop strings apply only outside reasoning */
    stop stop;                /* owned */
    sampler *sampler;         /* owned by `job` if there is one, else by the request */
    sampling_job *job;        /* owned; NULL: no thread has sampled for it yet (sampling.h) */
    bool is_sampling;         /* a thread is picking its token: it takes part in no step */

    uint32_t n_generated; /* sampled tokens, including one that ended the turn */
    uint64_t n_bytes;     /* bytes of all pieces so far */
    uint64_t *ends;       /* owned: n_bytes after each generated token; capacity max_tokens grows by doubling */
    uint32_t ends_capacity;
    uint64_t n_released; /* raw bytes released so far, see stop.h */

    uint64_t queued_us, started_us, decoding_us; /* moments, CLOCK_MONOTONIC */
    outbox out;
} request;

/* Returns the request of a claim; NULL for NULL. */
static inline request *request_of_claim(branch_claim *c)
{
    return (request *)c;
}

static inline bool request_has_slot(const request *r)
{
    return r->phase == REQUEST_RUNNING && branch_has_slot(r->branch);
}

/* Whether the request has begun, has a slot, and its client reads: it will go on or end. */
static inline bool request_moves(const request *r)
{
    return request_has_slot(r) && !r->claim.is_paused;
}

/* Whether the request takes slots for named branches; one without a branch waits for a scratch branch. */
static inline bool request_is_for_named(const request *r)
{
    return r->branch != NULL && r->branch->name[0] != '\0';
}

/* Builds a request from a checked GENERATE. LLM_OK; LLM_TOKEN, LLM_CONTEXT_LENGTH, LLM_INVALID, LLM_NO_MEMORY. */
int request_open(const model *m, const wire_command *command, request **out);
void request_close(request *r); /* NULL is allowed */

/* Gives the branch, which has a slot, to the request, and brings it to the longest provable prefix of the prompt.
 * Returns the logits after the prompt if they were kept: the caller samples them at once (request_sample), without a
 * step. */
const float *request_begin(request *r, branch_table *table, branch *b);

/* After a step has consumed more of the prompt: reports progress if requested. */
void request_consumed(request *r);

/* After a step has consumed all tokens and produced logits: samples a token and moves its text to the outbox. May end
 * the request. Slow samplers run in the sampling threads: is_sampling. */
void request_sample(request *r, const model *m, sampling_threads *threads, float *logits);

/* Continues a request that has a slot and is_sampling, if its token is picked. Returns whether it was. */
bool request_take_sampled(request *r, const model *m);

/* Ends the request, in any phase, for a reason outside the generation; it gives its branch up. */
void request_end(request *r, llm_outcome outcome, llm_status status);

#endif
