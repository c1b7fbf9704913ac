/* schedule.h: decides how many tokens of which requests go into the next step. Also decides whether the current model
 * call is stopped. Pure functions: no clock, no allocation, no model. In the code, a run is a request that takes part
 * in the step. */
#ifndef LLM_SCHEDULE_H
#define LLM_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/linear_fit.h"

/* Measured times in microseconds: three moving averages and a linear fit. They are 0 before the first measurement. Kept
 * by the decode thread. */
typedef struct schedule_pace {
    double decode_us;        /* time of a step that only decodes */
    double prefill_token_us; /* time that one more prompt token adds to a step, at any depth */
    double checkpoint_us;    /* time of a checkpoint of a decoding request */
    /* time of a prompt token as a function of the token's depth. The depth is the number of tokens that precede the
     * token */
    linear_fit prefill_at;
} schedule_pace;

typedef struct schedule_input {
    uint32_t n_runs;
    const uint32_t *prefill_left; /* prompt tokens left to consume for each request; 0 if the request decodes */
    const uint32_t *depth;        /* tokens that each request has consumed */
    uint32_t n_batch;             /* limit on the tokens of one model call; at least n_runs */
    bool mixed_calls;             /* decode and prefill share one model call; otherwise each has a call of its own */
    /* the model can stop a call that only prefills if at most this many requests take part. The scheduler is allowed to
     * make such a call long, because a new request stops it */
    uint32_t n_stoppable;
    bool takes_checkpoint; /* the step ends with a checkpoint of a decoding request */
    uint32_t turn;         /* number of the step, which decides whose turn it is to prefill */
    uint32_t gap_ms_target;
    schedule_pace pace;
} schedule_input;

/* Sets take[i], the number of tokens that request i consumes in this step, and returns the sum. Every decoding request
 * takes one token.
 *
 * The prefill in a step has a time limit. This limit keeps the gap between two tokens of a decoding request within
 * gap_ms_target. But a gap of twice the duration of a step without prefill is always allowed. The expected time of a
 * prompt token depends on its depth. At least 16 tokens are prefilled, or 32 in a call of their own.
 *
 * With mixed calls, a prompt is finished if its remaining tokens fit into an equal share of the step. What is left of
 * the step goes to the request whose turn it is, and then to others. In every other step, it is the turn of the request
 * with the fewest tokens left. In the steps between, it is the turn of the next request in rotation. With separate
 * calls, each request that takes part gets the same number of tokens. The next request in rotation always takes part.
 *
 * If no request decodes, a call is as large as possible, because every call reads all weights. A call that cannot be
 * stopped has a time limit. The limit is the longest of a quarter of a second, gap_ms_target, and four steps without
 * prefill. If the model can stop only calls with a single request, the call has a single request.
 *
 * With mixed calls, a step can finish some of the prompts while no request decodes. The rest of this step is as short
 * as if a request decoded. The requests with the finished prompts wait for the end of the step, because they decode in
 * the next step. */
uint32_t schedule_step(const schedule_input *in, uint32_t *take);

/* Returns the stall budget. That is how long decoding requests can wait for work outside the model's steps. The budget
 * equals the time limit on the prefill in a step. Returns HUGE_VAL if no request decodes. */
double schedule_stall_budget_us(const schedule_pace *pace, uint32_t gap_ms_target, uint32_t n_decoding);

/* The model call that is running. It has prefill tokens only. */
typedef struct schedule_call {
    double elapsed_us;
    double expected_us;  /* expected duration of the whole call; 0 if not known */
    double lost_us;      /* time of earlier calls that were stopped, since the last completed call */
    double share_needed; /* share of the call's tokens that belong to requests that are not cancelled */
    bool has_newcomer;   /* a request has arrived that is not part of the call */
} schedule_call;

/* Whether to stop the call. A call is stopped if all its requests are cancelled. It is also stopped if so many are
 * cancelled that a new call for the others would end sooner. Finally, a call is stopped if a new request would have to
 * wait longer for the end of the call than the call has taken so far. Thus requests that arrive together are prefilled
 * together. The time of earlier calls that were stopped counts as time that the call has taken. So prefill takes at
 * most twice as long, however many requests come and go. */
bool schedule_stops(const schedule_call *c);

/* Learns from a step that took `us`, with n_decode decoded tokens and n_prefill prompt tokens. `depth` is the mean
 * depth of the prompt tokens. */
void schedule_learn(schedule_pace *pace, uint32_t n_prefill, double depth, uint32_t n_decode, double us);

/* Learns from a checkpoint that took `us`. */
void schedule_learn_checkpoint(schedule_pace *pace, double us);

#endif
