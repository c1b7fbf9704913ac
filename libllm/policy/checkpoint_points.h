/* checkpoint_points.h: when a checkpoint is taken: where prefill pauses for one, and how far apart they are behind the prompt. Pure:
 * values in, token counts out; no allocation, no model. What a checkpoint holds is branch.h's and checkpoint.h's.
 *
 * A checkpoint is worth most where histories will part again:
 *   - the head, with which many conversations begin: kept for all of them
 *   - the boundaries between messages, as the client's side knows them, and where clients say so, in the head too
 *   - where this prompt left what was resident: what parted here once will again
 *   - the prompt's end, where a call ends anyway: what is asked again reads nothing
 * Memory that can be truncated to any prefix needs none of these but the head. */
#ifndef LLM_CHECKPOINT_POINTS_H
#define LLM_CHECKPOINT_POINTS_H

#include <stdbool.h>
#include <stdint.h>

#include "llm.h"
#include "policy/resume.h"

enum {
    CHECKPOINT_HEAD_TOKENS_MIN = 32, /* a shorter head is read again sooner than it is restored */
    CHECKPOINT_NEAR_TOKENS =
        8, /* just after another, a checkpoint costs a call that reads all weights, to save as few */
    CHECKPOINT_POINTS_MAX = LLM_BOUNDARIES_MAX + 3, /* the head, the boundaries, a divergence, the end */
};

typedef struct checkpoint_points {
    uint32_t at[CHECKPOINT_POINTS_MAX]; /* ascending token counts; the last is the prompt's */
    uint32_t n;
    uint32_t next;         /* the first one not yet reached */
    uint32_t head_at;      /* the point that ends the head; 0: none */
    bool needs_boundaries; /* some prefixes cannot be truncated to */
} checkpoint_points;

typedef struct checkpoint_points_input {
    uint32_t n_prompt; /* > 0 */
    uint32_t n_head;   /* of them */
    bool needs_boundaries;
    const uint32_t *boundaries; /* ascending */
    uint32_t n_boundaries;      /* at most LLM_BOUNDARIES_MAX */
} checkpoint_points_input;

typedef enum checkpoint_due {
    CHECKPOINT_NONE,
    CHECKPOINT_OWN,  /* for what this session's prompts will be */
    CHECKPOINT_HEAD, /* for whoever begins with this head, whole and pinned */
} checkpoint_due;

void checkpoint_points_open(checkpoint_points *c, const checkpoint_points_input *in);

/* The session holds the plan's n_keep tokens of the prompt: points there or before are behind it. */
void checkpoint_points_begin(checkpoint_points *c, const resume_plan *plan);

/* How many tokens of the prompt the next pause comes at: the last one is its end. */
uint32_t checkpoint_points_next(const checkpoint_points *c);

/* The prompt is consumed up to n_tokens, and no further than checkpoint_points_next: what is taken here. */
checkpoint_due checkpoint_points_reached(checkpoint_points *c, uint32_t n_tokens);

/* Behind the prompt: whether one is taken at n_tokens, the last one having been taken at `last_at`. */
bool checkpoint_points_is_due(uint32_t n_tokens, uint32_t last_at, uint32_t every);

#endif
