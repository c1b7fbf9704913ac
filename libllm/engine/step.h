/* step.h: one step of the model for some requests. Decides how many tokens each request consumes, builds the batch, and
 * calls the model. Then appends the consumed tokens to the branches. If the call failed, marks the branches invalid.
 * decode_step.c samples from the logits, and decides which requests a failure ends. Owned by the decode thread. */
#ifndef LLM_STEP_H
#define LLM_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "boundary/session_table.h"
#include "engine/draft_model.h"
#include "engine/request.h"
#include "model/model.h"
#include "policy/draft.h"
#include "policy/schedule.h"
#include "sessions/branch_table.h"

/* Which requests take part in a model call: decoding ones, prefilling ones, or all. */
typedef enum step_part { STEP_DECODE = 1, STEP_PREFILL = 2, STEP_ALL = 3 } step_part;

/* A checkpoint that is due after a model call. */
typedef struct step_due {
    branch *branch;
    uint32_t n_tokens;
    checkpoint_due reached; /* kind of the prompt's checkpoint that is due, or CHECKPOINT_NONE while decoding */
} step_due;

typedef struct step {
    model *model;                 /* the engine's */
    session_table *session_table; /* the engine's */
    branch_table *table;          /* the engine's */
    uint32_t gap_ms_target;
    uint32_t checkpoint_every;
    bool has_drafts;
    draft_model *draft_model; /* the engine's; NULL if it has none */

    /* returns whether to stop the current call. Called often during a call that only prefills */
    bool (*stop)(void *context);
    void *stop_context;

    uint32_t turn;
    schedule_pace pace;
    draft_costs draft_costs;
    uint32_t n_accepted_before; /* accepted tokens of the draft model before this step, in its request */
    uint64_t call_began_us;     /* start of the current or last call */
    uint64_t call_us;           /* duration of the last call */
    uint32_t n_decoded;         /* decoded tokens in the current or last call, drafts not counted */
    uint32_t n_drafts;          /* draft tokens in the current or last call */
    double depth;               /* mean depth of the call's prompt tokens (schedule.h) */

    /* the current step; the first arrays have an element per request, the last four an element per token of the
     * batch */
    uint32_t n_requests;
    uint32_t
        n_sampling; /* running requests that are not in the step, because sampling threads pick their tokens. Counted
                          * by the caller of step_add */
    request *requests[LLM_SEQUENCES_MAX];
    uint32_t take[LLM_SEQUENCES_MAX];
    uint32_t output_at[LLM_SEQUENCES_MAX]; /* batch index of the request's last token, drafts not counted */
    bool is_called[LLM_SEQUENCES_MAX];     /* the request has tokens in the current call */
    request *checkpoint;                   /* a decoding request whose checkpoint is taken after this step; or NULL */
    uint32_t n_due;                        /* number of checkpoints that are due after the last call */
    step_due due[LLM_SEQUENCES_MAX];
    model_batch batch;
    int32_t *tokens; /* arrays of n_batch, owned */
    int32_t *positions;
    uint16_t *seqs;
    uint8_t *outputs;
} step;

/* The caller must have filled the members above `turn`. Returns LLM_OK or LLM_NO_MEMORY. */
int step_open(step *t);
void step_close(step *t);

/* Whether steps can verify drafts. */
bool step_has_drafts(const step *t);

/* step_begin begins a step. step_add adds a request that has begun and has a slot. A step has at most LLM_SEQUENCES_MAX
 * requests. After that, step_plan decides how many tokens each request consumes. */
void step_begin(step *t);
void step_add(step *t, request *r);
void step_plan(step *t);

/* step_drafts.c, called by step_plan and step_learn. step_learn_removals returns how long it took to remove drafts
 * after the last call. */
void step_plan_drafts(step *t);
uint64_t step_learn_removals(step *t);
void step_learn_credit(step *t, double us); /* `us`: time of the last call, with picks and removals */

/* Removes all draft tokens from the planned step. Returns false if the step has none. */
bool step_drop_drafts(step *t);

/* Removes requests from the step that have ended since they were added. An ended request may be freed. */
void step_drop_ended(step *t);

/* Whether the planned step has tokens for requests of this part (decoding or prefilling requests). */
bool step_has(const step *t, step_part part);

/* Makes one model call for the requests in `parts`, which is one or more step_part values. Skips requests whose
 * branches have lost their slots. Returns
 *   MODEL_OK            The branches hold the consumed tokens, and step_logits has the logits. Or no request was left.
 *                       The caller must call step_checkpoint before the next call.
 *   MODEL_NO_CELLS      Nothing changed. is_called says which requests took part. The caller frees cells and calls
 *                       again, or gives up.
 *   MODEL_STOPPED       `stop` returned true. Nothing changed.
 *   Any other result    The branches that the failure harmed are invalid. */
model_result step_call(step *t, unsigned parts);

/* Invalidates the branches that a failure of the model has harmed. step_call does so if its call fails. The caller does
 * so if the model fails afterwards, when it removes drafts. */
void step_invalidate_harmed(step *t, model_result result);

/* Saves each checkpoint that became due in the last model call. Skips branches that have changed since. Saving copies
 * the branch's state, so the caller chooses a moment when the copy delays nobody. */
void step_checkpoint(step *t);

/* Learns from the duration of the last call how long a token takes. The size of later calls depends on this time.
 * `sampling_us` is the time of the work between the call and the delivery of its tokens. */
void step_learn(step *t, uint64_t sampling_us);

/* Returns the expected duration of the running model call, if the call has prefill tokens only. Returns 0 if nothing
 * is known yet. */
double step_expected_us(const step *t);

/* Returns the n_vocab logits that the last call produced after the last token of request number `index`. Returns NULL
 * if the call produced no logits for this request. The last call must have succeeded. A sampler may modify the logits.
 * The logits are valid until the next call. */
float *step_logits(step *t, uint32_t index);
/* The same, after draft token number `draft` of the request. */
float *step_draft_logits(step *t, uint32_t index, uint32_t draft);

#endif
