/* resume.h: the cheapest provable way to the state of a prompt. Pure: values in, a plan out; no clock, no allocation, no
 * model. The caller acts on the plan (branch.c).
 *
 * The state after T[0..k) is a function of these tokens alone. So whatever holds the state after exactly the prompt's
 * first k tokens may be used, and nothing else matters: not where it was taken, not what came after it. */
#ifndef LLM_RESUME_H
#define LLM_RESUME_H

#include <stdbool.h>
#include <stdint.h>

#include "llm.h"

/* Live state of one branch: it can become the state after its first k tokens iff k == n_tokens or
 * k >= truncate_floor (model.h). */
typedef struct resume_source {
    const int32_t *tokens;
    uint32_t n_tokens;
    uint32_t truncate_floor;
    uint32_t n_cost; /* of copying it, in tokens that are read in the same time; 0 for own */
} resume_source;

/* A checkpoint whose k tokens are the prompt's first k; the caller has compared them. */
typedef struct resume_checkpoint {
    uint32_t k;
    bool is_whole;   /* stands alone; otherwise it needs a source that agrees with the prompt for k tokens */
    bool has_logits; /* of its last token */
    uint32_t n_cost; /* of restoring it, idem */
} resume_checkpoint;

typedef struct resume_input {
    const int32_t *prompt;
    uint32_t n_prompt;           /* > 0 */
    resume_source own;           /* the branch the request goes to */
    uint32_t own_logits_at;      /* the logits after that many of its tokens are kept; 0: none */
    bool torn;                   /* own is not trusted */
    bool cold;                   /* reuse nothing */
    bool may_keep_all;           /* a state of the whole prompt will do: no logits are wanted (fork) */
    bool was_parked;             /* own came back from a snapshot since it was last used */
    const resume_source *donors; /* other branches that may be copied */
    uint32_t n_donors;
    const resume_checkpoint *checkpoints;
    uint32_t n_checkpoints;
} resume_input;

typedef struct resume_plan {
    llm_reason reason;
    uint32_t n_keep;     /* prompt tokens that need not be consumed; < n_prompt unless has_logits or may_keep_all */
    int32_t diverged_at; /* first index at which prompt and own tokens differ; -1: one extends the other */
    int32_t donor;       /* copied first; -1: own stays the base */
    int32_t checkpoint;  /* restored then; -1: none */
    bool has_logits;     /* nothing to consume: the kept logits are those after the prompt */
} resume_plan;

/* Chooses the largest n_keep that the tokens prove, less what the way there costs; of equals the first of: own in place, own
 * with a checkpoint, a donor, a donor with a checkpoint, a whole checkpoint alone. */
resume_plan resume_decide(const resume_input *in);

/* How many of the prompt's first tokens the source with the most of them holds; n_least if none holds more. Takes time for few
 * of many sources that share a beginning. */
uint32_t resume_longest(const int32_t *prompt, uint32_t n_prompt, const resume_source *sources, uint32_t n_sources,
                        uint32_t n_least);

/* Length of the longest common prefix. */
uint32_t resume_common_prefix(const int32_t *a, uint32_t n_a, const int32_t *b, uint32_t n_b);

#endif
