/* schedule.h: which tokens of which generations go into the next step, and whether a step under way is given up. Pure: no
 * clock, no allocation, no model. */
#ifndef LLM_SCHEDULE_H
#define LLM_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/linear_fit.h"

/* How long things have been taking, kept by the decode thread: moving averages, and a linear fit. 0: not known yet. */
typedef struct schedule_pace {
    double decode_us;        /* one step that only decodes */
    double prefill_token_us; /* one prompt token beside it, whatever is before it */
    double checkpoint_us;    /* a checkpoint of a session that decodes */
    linear_fit prefill_at;   /* one prompt token, by how many are before it */
} schedule_pace;

typedef struct schedule_input {
    uint32_t n_runs;
    const uint32_t *prefill_left; /* per run: prompt tokens still to consume; 0: it decodes */
    const uint32_t *depth;        /* per run: tokens before those */
    uint32_t n_batch;             /* most tokens of one model call, >= n_runs */
    bool mixed_calls;             /* decode and prefill share one call; otherwise each has a call of its own */
    uint32_t n_stoppable;  /* a call that prefills at most so many runs can be given up: its length makes nobody wait */
    bool takes_checkpoint; /* this step, of a session that decodes */
    uint32_t turn;         /* counts steps: whose prefill goes first rotates with it */
    uint32_t gap_ms_target;
    schedule_pace pace;
} schedule_input;

/* Sets take[i], the tokens run i consumes in this step, and returns their sum.
 *   - every decoding run takes one
 *   - with mixed calls prefills whose rest fits into an even share are finished, and one takes what is left of the step: by
 *     turns the one with the least left, and one in rotation. Without, as many tokens go in of each that takes part, one in
 *     rotation always
 *   - it is sized in time, by how much is before each, so that the gap it causes to decoding runs stays at the larger of
 *     twice the plain step and gap_ms_target, if 16 tokens (in a call of their own 32) do not take longer
 *   - where nobody decodes it is as large as a call may be, as every call reads all weights; unless it cannot be given up:
 *     then it takes a quarter of a second, gap_ms_target, or four plain steps, whichever is longest. Where only a call of
 *     one can be given up, it is of one
 *   - where prompts are finished beside one that is not, those are answered next: it is sized as a step beside them */
uint32_t schedule_step(const schedule_input *in, uint32_t *take);

/* How long runs that decode can wait for something beside the model's steps: as for prefill. HUGE_VAL: there are none. */
double schedule_stall_budget_us(const schedule_pace *pace, uint32_t gap_ms_target, uint32_t n_decoding);

/* A call that only prefills, under way. */
typedef struct schedule_call {
    double elapsed_us;
    double expected_us;  /* in all; 0: not known */
    double lost_us;      /* with those before it that were given up, since one was finished */
    double share_needed; /* the share of its tokens that are still asked for */
    bool has_newcomer;   /* somebody has come who is not in it */
} schedule_call;

/* Whether to give it up: nothing of it is wanted any more, or so little that it is read sooner in a call of its own; or
 * somebody has come who would wait longer for its end than what is lost took. Those who come
 * together are then served together. What was lost before counts, too: however many come and go, a call that somebody wants
 * takes at most twice as long. */
bool schedule_stops(const schedule_call *c);

/* Updates them with a step that took `us`, of n_decode tokens and n_prefill, before which were `depth` on average. */
void schedule_learn(schedule_pace *pace, uint32_t n_prefill, double depth, uint32_t n_decode, double us);

/* ... and with a checkpoint. */
void schedule_learn_checkpoint(schedule_pace *pace, double us);

#endif
