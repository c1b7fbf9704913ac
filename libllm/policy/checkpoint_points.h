/* checkpoint_points.h: when a checkpoint is taken: at which token counts prefill pauses for one, and how far apart they
 * are after the prompt. Pure: values in, token counts out; no allocation, no model. branch.h and checkpoint.h say what
 * a checkpoint holds.
 *
 * A checkpoint is most useful where later prompts are likely to diverge:
 *   - at the end of the head, with which many conversations begin: kept for all of them
 *   - at boundaries between messages, and at marks that clients set, also within the head
 *   - where this prompt diverged from the resident tokens: the next one may diverge there, too
 *   - at the prompt's end, where a call ends anyway: the same prompt again needs no prefill
 * Memory that can be truncated to any prefix needs only the one at the head. */
#ifndef LLM_CHECKPOINT_POINTS_H
#define LLM_CHECKPOINT_POINTS_H

#include <stdbool.h>
#include <stdint.h>

#include "llm.h"
#include "policy/resume.h"

enum {
    CHECKPOINT_HEAD_TOKENS_MIN = 32, /* a shorter head is prefilled faster than it is restored */
    CHECKPOINT_NEAR_TOKENS =
        8, /* closer to another checkpoint, one saves too few tokens: the pause costs a call that reads all weights */
    CHECKPOINT_POINTS_MAX = LLM_BOUNDARIES_MAX + 3, /* the head, the boundaries, a divergence, the end */
};

typedef struct checkpoint_points {
    uint32_t at[CHECKPOINT_POINTS_MAX]; /* ascending token counts; the last is the prompt's */
    uint32_t n;
    uint32_t next;         /* index of the first one not yet reached */
    uint32_t head_at;      /* the point that ends the head; 0: none */
    bool needs_boundaries; /* the memory cannot be truncated to every prefix */
} checkpoint_points;

typedef struct checkpoint_points_input {
    uint32_t n_prompt; /* > 0 */
    uint32_t n_head;   /* tokens of the prompt's head */
    bool needs_boundaries;
    const uint32_t *boundaries; /* ascending */
    uint32_t n_boundaries;      /* at most LLM_BOUNDARIES_MAX */
} checkpoint_points_input;

typedef enum checkpoint_due {
    CHECKPOINT_NONE,
    CHECKPOINT_OWN,  /* for later prompts of this session */
    CHECKPOINT_HEAD, /* for all prompts that begin with this head: whole and pinned */
} checkpoint_due;

void checkpoint_points_open(checkpoint_points *c, const checkpoint_points_input *in);

/* Begins the prompt after n_keep tokens of the plan were reused: earlier points are skipped. */
void checkpoint_points_begin(checkpoint_points *c, const resume_plan *plan);

/* Returns the token count of the next point; the last one is the prompt's end. */
uint32_t checkpoint_points_next(const checkpoint_points *c);

/* Returns the checkpoint that is due after n_tokens of the prompt, at most checkpoint_points_next. */
checkpoint_due checkpoint_points_reached(checkpoint_points *c, uint32_t n_tokens);

/* Whether a checkpoint is due after n_tokens, more than the prompt; the last one was taken at `last_at`. */
bool checkpoint_points_is_due(uint32_t n_tokens, uint32_t last_at, uint32_t every);

#endif
