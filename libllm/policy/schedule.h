/* schedule.h: which tokens of which generations go into the next step. Pure: no clock, no allocation, no model. */
#ifndef LLM_SCHEDULE_H
#define LLM_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

/* How long things have been taking: moving averages, kept by the decode thread. 0: not known yet. */
typedef struct schedule_pace {
    double decode_us;        /* one step that only decodes */
    double prefill_token_us; /* one prompt token beside it */
} schedule_pace;

typedef struct schedule_input {
    uint32_t n_runs;
    const uint32_t *prefill_left; /* per run: prompt tokens still to consume; 0: it decodes */
    uint32_t n_batch;             /* most tokens of one model call, >= n_runs */
    bool mixed_calls;             /* decode and prefill share one call; otherwise each has a call of its own */
    uint32_t turn;                /* counts steps: whose prefill goes first rotates with it */
    uint32_t gap_ms_target;
    schedule_pace pace;
} schedule_input;

/* Sets take[i], the tokens run i consumes in this step, and returns their sum.
 *   - every decoding run takes one
 *   - prefill shares what the chunk allows: with mixed calls evenly among all that wait (a short prompt is done
 *     early, a long one does not starve); without, to one run at a time, in rotation
 *   - the chunk is sized in time, so that the gap it causes to decoding runs stays at the larger of twice the plain
 *     step and gap_ms_target. Where nobody decodes it takes half a second (or gap_ms_target, if that is longer), as
 *     large calls cost less per token; a cancel is seen, and a newcomer gets its share, within as much */
uint32_t schedule_step(const schedule_input *in, uint32_t *take);

/* The prefill tokens one step may hold. */
uint32_t schedule_chunk(const schedule_input *in, uint32_t n_decoding);

/* Updates the averages with a step of n_prefill and n_decode tokens that took `us`. */
void schedule_learn(schedule_pace *pace, uint32_t n_prefill, uint32_t n_decode, double us);

#endif
