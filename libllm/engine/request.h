/* request.h: one generation, from its command to its one terminal event. Owned by the decode thread.
 *
 *   WAITING --gets a slot---> RUNNING --any end--> ENDED --FINISHED delivered--> (freed)
 *      |                 prefill, decode              ^
 *      +------- cancel, reset, close, shutdown, ------+
 *               failure
 */
#ifndef LLM_REQUEST_H
#define LLM_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "boundary/wire.h"
#include "engine/drafting.h"
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
    bool is_cold;          /* the command has the flag LLM_GENERATE_COLD */
    bool reports_consumed; /* the command has the flag LLM_GENERATE_RETURN_CONSUMED */
    bool no_drafts;        /* the command has the flag LLM_GENERATE_NO_DRAFTS, or the engine uses no drafts */
    /* id of a live request that must consume its prompt before this request begins, or 0 */
    uint64_t after;
    /* id of a running request whose prefill must consume n_leader_tokens tokens before this request begins, or 0 */
    uint64_t leader;
    uint32_t n_leader_tokens;
    /* the request has asked for a slot and got none. A slot may become free later, or the request waits for the disk */
    bool waits_for_slot;
    bool has_fetched;       /* the states on disk have been considered for the prompt; they are considered only once */
    uint64_t fetching;      /* number of the disk read (resuming.h) for which the request waits, or 0 */
    uint64_t fetched_by_us; /* time at which the request stops waiting for the disk read `fetching` */
    /* for a RUNNING request that has lost its slot: how many other requests have begun since the loss */
    uint32_t n_overtaken;

    int32_t *prompt; /* owned; claim.prompt points to it */
    /* the branch that the request holds or waits for. NULL after the request's end, or while the request waits for any
     * scratch branch */
    branch *branch;
    checkpoint_points points; /* where the prompt's checkpoints are taken */
    resume_plan plan;         /* set by request_begin */
    bool is_decoding;         /* the whole prompt is consumed */
    drafting drafting;
    int32_t next_token;      /* token that is sampled and not yet consumed; -1 if there is no such token */
    uint32_t max_tokens;     /* maximum number of generated tokens; > 0, and at most what the context can hold */
    uint32_t min_tokens;     /* stop strings are not searched for in the first min_tokens tokens */
    uint32_t n_answer_stops; /* the first n_answer_stops stop strings are not searched for in reasoning */
    stop stop;               /* owned */
    sampler *sampler;        /* owned by `job` if there is a job, else by the request */
    sampling_job *job;       /* owned. NULL until a thread samples for the request (sampling.h) */
    bool is_sampling;        /* a thread is picking the next token, so the request takes part in no step */

    uint32_t n_generated; /* sampled tokens, including a token that ended the turn */
    uint64_t n_bytes;     /* bytes of the texts of all generated tokens */
    uint64_t *ends;       /* owned: the value of n_bytes after each generated token */
    uint32_t ends_capacity;
    uint64_t n_released; /* raw bytes of the answer released so far (stop.h) */

    uint64_t queued_us, started_us, decoding_us; /* times of CLOCK_MONOTONIC */
    outbox out;
} request;

/* Returns the request that contains this claim; NULL for NULL. A claim is the part of a request that a branch refers to
 * (branch.h). */
static inline request *request_of_claim(branch_claim *c)
{
    return (request *)c;
}

static inline bool request_has_slot(const request *r)
{
    return r->phase == REQUEST_RUNNING && branch_has_slot(r->branch);
}

/* Whether the request makes progress: it has begun and has a slot, and its client reads. */
static inline bool request_moves(const request *r)
{
    return request_has_slot(r) && !r->claim.is_paused;
}

/* Whether the request needs a slot for named branches. A request without a branch waits for a scratch branch. */
static inline bool request_is_for_named(const request *r)
{
    return r->branch != NULL && r->branch->name[0] != '\0';
}

/* Builds a request from a checked GENERATE. `has_drafts` says whether the engine uses drafts. Returns LLM_OK,
 * LLM_TOKEN, LLM_CONTEXT_LENGTH, LLM_INVALID, LLM_NO_GENERATION or LLM_NO_MEMORY. */
int request_open(const model *m, const wire_command *command, bool has_drafts, request **out);
void request_close(request *r); /* NULL is allowed */

/* Gives the branch to the request, and resumes the prompt in the branch (resuming.h). The branch must have a slot. The
 * reused state may include the logits after the whole prompt. Then returns these logits, and the caller samples from
 * them at once (request_sample), without a step. Otherwise returns NULL. */
const float *request_begin(request *r, branch_table *table, branch *b);

/* Called after a step has consumed more of the prompt. Reports progress if the client requested reports. */
void request_consumed(request *r);

/* Called when a step has produced the logits after the request's last token. Samples a token and moves its text to the
 * outbox. May end the request. A slow pick runs in a sampling thread, and sets is_sampling until request_take_sampled
 * takes the token. `has_time` is false if the picks of this step have already taken long. Then a pick under a
 * constraint also runs in a sampling thread. */
void request_sample(request *r, const model *m, sampling_threads *threads, float *logits, bool has_time);

/* Called when request_sample has returned. If the picked token is the next draft token that the model call has
 * verified, moves this token into the branch and returns true. Then the caller samples from the logits after the draft
 * token. Otherwise removes the other draft tokens from the branch's sequence, and returns false. */
bool request_accept_draft(request *r);

/* Called for a request that has a slot and whose is_sampling is set. If the sampling thread has picked the token,
 * continues the request and returns true. */
bool request_take_sampled(request *r, const model *m);

/* Writes the name, the owner and the size of the request's session. The request must have a branch. */
void request_describe(const request *r, char *out, size_t n_bytes);

/* Ends the request, in any phase, for a reason outside the generation. The request gives up its branch. */
void request_end(request *r, llm_outcome outcome, llm_status status);

#endif
