/* resume.h: what a session's resident tokens are worth to a new prompt. Pure: values in, a plan out; no clock, no
 * allocation, no model. The caller acts on the plan (session.c). */
#ifndef LLM_RESUME_H
#define LLM_RESUME_H

#include <stdbool.h>
#include <stdint.h>

#include "llm.h"

typedef struct resume_input {
    const int32_t *resident;
    uint32_t n_resident;
    const int32_t *prompt;
    uint32_t n_prompt;     /* > 0 */
    uint32_t rewind_floor; /* the session can be cut back to k tokens iff k >= rewind_floor (model.h) */
    bool torn;
    bool cold; /* reuse nothing */
} resume_input;

typedef struct resume_plan {
    llm_reason reason;
    uint32_t n_keep;     /* resident tokens to keep: == n_resident, or >= rewind_floor, or 0; always < n_prompt */
    int32_t diverged_at; /* first index at which prompt and resident tokens differ; -1: one extends the other */
} resume_plan;

/* Chooses the largest n_keep that the tokens prove, leaving at least one token to consume: logits come only from
 * consuming. */
resume_plan resume_decide(const resume_input *in);

/* Length of the longest common prefix. */
uint32_t resume_common_prefix(const int32_t *a, uint32_t n_a, const int32_t *b, uint32_t n_b);

#endif
