/* draft_model.h: drafts from a small model (--draft-model), which guesses what the engine's model will generate. Both
 * models must have the same vocabulary. Leviathan et al., "Fast Inference from Transformers via Speculative Decoding"
 * (2023), describe the method. Here a guess counts only if the sampler of the engine's model picks the same token.
 * Owned by the decode thread.
 *
 * The draft model has one sequence. It holds only the last tokens of one branch. Before a guess for another branch, it
 * is emptied and filled again. So its state belongs to no session: it is neither parked nor saved nor forked. A wrong
 * or missing token in the sequence only makes guesses worse.
 *
 * The draft model takes time even if its guesses are wrong. A credit limits this time (draft.h). */
#ifndef LLM_DRAFT_MODEL_H
#define LLM_DRAFT_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/model.h"
#include "policy/draft.h"

enum {
    DRAFT_MODEL_CTX = 1024,                   /* tokens of the sequence */
    DRAFT_MODEL_BATCH = 128,                  /* most tokens of one call, for which a decoding request waits */
    DRAFT_MODEL_TAIL = DRAFT_MODEL_BATCH - 2, /* a new sequence has so many of the branch's last tokens. With the next
                                               * token and BOS, they fit into one call */
};

typedef struct draft_model {
    model *model;     /* owned; NULL: the engine has no draft model */
    uint32_t n_vocab; /* tokens that both models have */
    int32_t *tokens;  /* tokens of the sequence; owned; DRAFT_MODEL_CTX elements */
    uint32_t n_tokens;
    uint32_t from;  /* index of the first of them in the branch, BOS not counted */
    uint32_t owner; /* whose tokens these are. No owner may notice by the time that another one had the same */
    /* Recurrent states cannot be truncated. So the state before the last guess is saved, after the first n_saved
     * tokens. 0: nothing is saved */
    uint32_t n_saved;
    size_t n_saved_bytes, saved_capacity;
    void *saved; /* owned */
    draft_credit credit;
    double call_us;    /* time of a call with one token */
    double token_us;   /* time of each further token in a call */
    uint64_t spent_us; /* time of the last draft_model_guess; 0 if the credit did not suffice */
} draft_model;

/* Opens the draft model `name` (model.h), with those options of the engine's model that apply to both. `error` begins
 * with "draft model: ". It is opened before the engine's model, whose limits on memory then count what the draft model
 * has allocated. */
int draft_model_open(draft_model *d, const char *name, const model_options *as, char *error, size_t error_bytes);

/* Compares the vocabularies. Returns LLM_INVALID if a token of the draft model stands for another text than in
 * `target`, the engine's model, or if `target` cannot verify drafts. */
int draft_model_match(draft_model *d, const model *target, char *error, size_t error_bytes);
void draft_model_close(draft_model *d);

/* What the draft model guesses from. */
typedef struct draft_model_task {
    uint32_t owner;
    const int32_t *tokens; /* all tokens of a branch */
    uint32_t n_tokens;
    int32_t next;    /* the token after them */
    uint32_t n_max;  /* most tokens to guess */
    double plain_us; /* time of a step of the engine's model without drafts */
} draft_model_task;

/* Guesses which tokens follow task->next. Writes them to `out`, and how sure the model was (draft.h) to `classes`. Both
 * have DRAFT_TOKENS_MAX elements. Returns the number of tokens, or 0 if the credit does not suffice or a call failed.
 * `rates` says how often earlier guesses were right. */
uint32_t draft_model_guess(draft_model *d, const draft_model_task *task, const draft_rates *rates, int32_t *out,
                           uint8_t *classes);

#endif
