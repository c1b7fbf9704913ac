/* resume.h: plans how to get the state after a prompt with the least work. States whose tokens are known are reused,
 * and the rest of the prompt is prefilled. Pure functions: no clock, no allocation, no model. The caller (resuming.c)
 * carries the plan out.
 *
 * The state after tokens T[0..k) depends on these tokens alone. So any state after exactly the prompt's first k tokens
 * can be used, whichever branch it was saved from and whatever tokens followed there. */
#ifndef LLM_RESUME_H
#define LLM_RESUME_H

#include <stdbool.h>
#include <stdint.h>

#include "llm.h"

/* State of one branch. The state can be truncated to its first k tokens only if k == n_tokens or k >= truncate_floor
 * (model.h). */
typedef struct resume_source {
    const int32_t *tokens;
    uint32_t n_tokens;
    uint32_t truncate_floor;
    uint32_t n_cost; /* cost of copying the state: how many tokens could be prefilled in the same time; 0 for the
                      * request's own branch */
} resume_source;

/* A checkpoint whose k tokens are the prompt's first k tokens. The caller has compared these tokens. */
typedef struct resume_checkpoint {
    uint32_t k;
    /* true if the checkpoint holds the whole state. Any other checkpoint can only be restored into a branch that holds
     * the checkpoint's k tokens */
    bool is_whole;
    bool has_logits; /* the checkpoint includes the logits after its last token */
    uint32_t n_cost; /* cost of restoring the checkpoint: how many tokens could be prefilled in the same time */
} resume_checkpoint;

typedef struct resume_input {
    const int32_t *prompt;
    uint32_t n_prompt;           /* tokens of the prompt, more than 0 */
    resume_source own;           /* the branch that the request uses */
    uint32_t own_logits_at;      /* the branch `own` has kept the logits after this many tokens; 0 if no logits are
                                  * kept */
    bool torn;                   /* `own` is invalid */
    bool cold;                   /* no state is reused (LLM_GENERATE_COLD) */
    bool may_keep_all;           /* true for a fork, which needs the state of the whole prompt but no logits */
    bool was_parked;             /* the request's branch `own` was parked and loaded since its last use */
    const resume_source *donors; /* other branches that can be copied */
    uint32_t n_donors;
    const resume_checkpoint *checkpoints;
    uint32_t n_checkpoints;
} resume_input;

typedef struct resume_plan {
    llm_reason reason;
    /* number of prompt tokens whose state is reused. Equals n_prompt only with has_logits or may_keep_all */
    uint32_t n_keep;
    int32_t diverged_at; /* first index at which the prompt differs from the request's branch; -1 if there is none */
    int32_t donor;       /* index in `donors` of the branch to copy first; -1 if no branch is copied */
    int32_t checkpoint;  /* index of the checkpoint to restore after the copy, if any; -1 if no checkpoint is
                          * restored */
    bool has_logits;     /* the logits after the prompt were kept, so no token has to be consumed */
} resume_plan;

/* Chooses the plan with the largest n_keep minus cost. If several plans are equally good, chooses the first in this
 * order: `own`,
 * `own` with a checkpoint, a donor, a donor with a checkpoint, a whole checkpoint alone. */
resume_plan resume_decide(const resume_input *in);

/* Returns the length of the longest common prefix of the prompt and any source, or n_least if none is longer. If many
 * sources begin with the same tokens, only a few of them are compared in full. */
uint32_t resume_longest(const int32_t *prompt, uint32_t n_prompt, const resume_source *sources, uint32_t n_sources,
                        uint32_t n_least);

/* Returns the length of the common prefix of the token arrays a and b. */
uint32_t resume_common_prefix(const int32_t *a, uint32_t n_a, const int32_t *b, uint32_t n_b);

#endif
