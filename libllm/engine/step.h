/* step.h: one step of the model for some requests: decides how many tokens each consumes, builds the batch, calls
 * the model, and appends the consumed tokens to the branches, or marks them invalid. decode_step.c samples from the
 * logits, and decides which requests a failure ends. Owned by the decode thread. */
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

/* A checkpoint that is due after a call. */
typedef struct step_due {
    branch *branch;
    uint32_t n_tokens;
    checkpoint_due reached; /* which point of the prompt was reached; CHECKPOINT_NONE: the branch decodes */
} step_due;

typedef struct step {
    model *model;                 /* the engine's */
    session_table *session_table; /* the engine's */
    branch_table *table;          /* the engine's */
    uint32_t gap_ms_target;
    uint32_t checkpoint_every;

    /* whether to stop the current call, which only prefills: asked often while it runs */
    bool (*stop)(void *context);
    void *stop_context;

    uint32_t turn;
    schedule_pace pace;
    uint64_t call_began_us; /* of the current or last call */
    uint64_t call_us;       /* duration of the last call */
    uint32_t n_decoded;     /* decoded tokens in the current or last call */
    double depth;           /* mean number of tokens before its prompt tokens */

    /* the current step: one entry per request, then per batch token */
    uint32_t n_requests;
    request *requests[LLM_SEQUENCES_MAX];
    uint32_t take[LLM_SEQUENCES_MAX];
    uint32_t output_at[LLM_SEQUENCES_MAX]; /* batch index of the request's last token */
    bool is_called[LLM_SEQUENCES_MAX];     /* the request has tokens in the current call */
    request *checkpoint;                   /* a decoding request whose checkpoint is taken after this step; or NULL */
    uint32_t n_due;                        /* checkpoints due after the last call */
    step_due due[LLM_SEQUENCES_MAX];
    model_batch batch;
    int32_t *tokens; /* arrays of n_batch, owned */
    int32_t *positions;
    uint16_t *seqs;
    uint8_t *outputs;
} step;

/* The caller has filled the members above `turn`. LLM_OK, LLM_NO_MEMORY. */
int step_open(step *t);
void step_close(step *t);

/* Begins a step: adds requests that have begun and have a slot, at most LLM_SEQUENCES_MAX; then plans what each
 * consumes. */
void step_begin(step *t);
void step_add(step *t, request *r);
void step_plan(step *t);

/* Removes requests that have ended since, as they may be freed. */
void step_drop_ended(step *t);

/* Whether a request of this part has tokens in the planned step. */
bool step_has(const step *t, step_part part);

/* One model call for the requests of these parts whose sessions still have slots.
 *   MODEL_OK            the branches hold the consumed tokens, and step_logits has the logits; or no request was left.
 *                       The caller must call step_checkpoint before the next call
 *   MODEL_NO_CELLS      nothing changed; is_called says which requests took part: free cells and call again, or give up
 *   MODEL_STOPPED       nothing changed: `stop` said so
 *   anything else       the branches that the failure harmed are invalid */
model_result step_call(step *t, unsigned parts);

/* Takes the checkpoints that the last call has made due, of branches that have not changed since. They are copies: the
 * caller chooses the moment when they delay nobody. */
void step_checkpoint(step *t);

/* Learns from how long the last call took, for the size of the next ones, with `sampling_us` for the work between it
 * and the delivery of its tokens. */
void step_learn(step *t, uint64_t sampling_us);

/* Returns the expected duration of the current call, which only prefills; 0: nothing is known yet. */
double step_expected_us(const step *t);

/* Returns n_vocab logits after the request's last token, after a call that succeeded, valid until the next call; a
 * sampler may modify them. NULL: the request has none in this call. */
float *step_logits(step *t, uint32_t index);

#endif
