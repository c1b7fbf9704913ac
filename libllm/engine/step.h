/* step.h: one step of the model for some requests: decides what each consumes, builds the batch, calls the model, and makes
 * the sessions hold what was consumed, or tears them. decode_step.c samples what comes out, and decides what a failure
 * means for which request. Owned by the decode thread. */
#ifndef LLM_STEP_H
#define LLM_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "boundary/session_table.h"
#include "engine/request.h"
#include "model/model.h"
#include "policy/schedule.h"
#include "sessions/branch_table.h"

/* Which requests a model call covers. */
typedef enum step_part { STEP_DECODE = 1, STEP_PREFILL = 2, STEP_ALL = 3 } step_part;

/* A checkpoint that a call has made due. */
typedef struct step_due {
    branch *branch;
    uint32_t n_tokens;
    checkpoint_due reached; /* by a prompt; CHECKPOINT_NONE: the session decodes */
} step_due;

typedef struct step {
    model *model;                 /* the engine's */
    session_table *session_table; /* idem */
    branch_table *table;          /* idem */
    uint32_t gap_ms_target;
    uint32_t checkpoint_every;

    /* whether the call in hand, which only prefills, is to be given up: asked often while it runs */
    bool (*stop)(void *context);
    void *stop_context;

    uint32_t turn;
    schedule_pace pace;
    uint64_t call_began_us; /* the call in hand, or the last one */
    uint64_t call_us;       /* the last one */
    uint32_t n_decoded;     /* of its tokens */
    double depth;           /* tokens before those that prefill in it, on average */

    /* the step in hand: one entry per request, then per batch token */
    uint32_t n_requests;
    request *requests[LLM_SEQUENCES_MAX];
    uint32_t take[LLM_SEQUENCES_MAX];
    uint32_t output_at[LLM_SEQUENCES_MAX]; /* batch index of the request's last token */
    bool is_called[LLM_SEQUENCES_MAX];     /* the request has tokens in the call in hand */
    request *checkpoint;                   /* that decodes, and whose checkpoint is taken after it; or NULL */
    uint32_t n_due;                        /* of the last call */
    step_due due[LLM_SEQUENCES_MAX];
    model_batch batch;
    int32_t *tokens; /* n_batch each, owned */
    int32_t *positions;
    uint16_t *seqs;
    uint8_t *outputs;
} step;

/* The caller has filled the members above `turn`. LLM_OK, LLM_NO_MEMORY. */
int step_open(step *t);
void step_close(step *t);

/* Begins a step: adds requests that have begun and have a slot, at most LLM_SEQUENCES_MAX; then plans what each consumes. */
void step_begin(step *t);
void step_add(step *t, request *r);
void step_plan(step *t);

/* Removes requests that have ended since, and may be freed. */
void step_drop_ended(step *t);

/* The step is planned: some of these parts have tokens in it. */
bool step_has(const step *t, step_part part);

/* One model call for the requests of these parts whose sessions still have slots.
 *   MODEL_OK            nobody was left to call for, or: the sessions hold what was consumed, and step_logits has what is to
 *                       be sampled. step_checkpoint is to follow, before the next call
 *   MODEL_NO_CELLS      nothing changed, and is_called says who asked: make room and call again, or give up
 *   MODEL_STOPPED       nothing changed: it was to be given up
 *   anything else       the sessions that the failure harmed are torn */
model_result step_call(step *t, unsigned parts);

/* Takes the checkpoints that the last call has made due, of sessions that still hold what they held then. They are copies: best
 * where they make nobody wait. */
void step_checkpoint(step *t);

/* How long the last call took, for the next ones' size: with `sampling_us` of what follows before its tokens are told. */
void step_learn(step *t, uint64_t sampling_us);

/* What the call in hand should take by what is known; 0: nothing is. It only prefills. */
double step_expected_us(const step *t);

/* After a call that succeeded: n_vocab logits after the request's last token, valid until the next call, which a sampler may
 * modify. NULL: none were asked for. */
float *step_logits(step *t, uint32_t index);

#endif
