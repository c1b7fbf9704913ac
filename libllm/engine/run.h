/* run.h: one prompt on its way through a session, and the tokens sampled behind it: what a step works on (step.h). A
 * request has one, and so has a session of the direct mode. Owned by the decode thread, or by the opener in direct mode.
 *
 *   (idle) --run_begin--> prompt, from cut to cut --run_decoding--> one sampled token after another */
#ifndef LLM_RUN_H
#define LLM_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/cuts.h"
#include "sessions/places.h"
#include "sessions/session.h"
#include "text/sampler.h"

typedef struct run {
    session_claim claim; /* first member; the prompt's tokens are kept by who owns the run, as long as it prefills */
    session *session;    /* that consumes; NULL: none yet, or no longer */
    sampler *sampler;    /* of who owns the run */
    cuts cuts;
    resume_plan plan;   /* valid from run_begin on */
    bool is_decoding;   /* the prompt is consumed */
    int32_t next_token; /* sampled and not yet consumed; -1: none */
} run;

/* The seated session goes on with this run's prompt: resume is decided and done. Where the logits after the prompt were
 * kept, they are returned, to be sampled at once instead of a step; otherwise NULL. */
const float *run_begin(run *r, places *p, session *s, bool cold);

/* Prompt tokens still to consume before the next cut; 0 when it decodes. */
uint32_t run_prefill_left(const run *r);

/* The session holds more of the prompt: which checkpoint is due. The logits after the last token, which are not yet modified,
 * are kept for it where there are any. */
cut run_reach_cut(run *r, const float *logits);

/* How many tokens longer than it should a run that decodes will have gone without a checkpoint after one more; 0: none is
 * due. */
uint32_t run_checkpoint_overdue(const run *r, uint32_t checkpoint_every);

/* The whole prompt is consumed. */
void run_decoding(run *r);

#endif
