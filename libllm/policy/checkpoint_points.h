/* checkpoint_points.h: decides at which token counts prefill pauses to save a checkpoint. Also decides how far apart
 * checkpoints are after the prompt. Pure functions: no allocation, no model. branch.h and checkpoint.h say what a
 * checkpoint contains.
 *
 * A checkpoint is most useful where later prompts are likely to diverge. Prefill pauses at these points:
 *   - the end of the head (system prompt and tools), with which many conversations begin. All these conversations can
 *     use this checkpoint
 *   - boundaries between messages, and points that clients mark with cache_control, also within the head
 *   - the point where this prompt diverged from the branch's tokens. The next prompt may diverge there, too
 *   - the prompt's end, where a model call ends anyway. The same prompt may come again, and then needs no prefill
 *
 * A model whose memory can be truncated to any prefix needs only the checkpoint at the end of the head. */
#ifndef LLM_CHECKPOINT_POINTS_H
#define LLM_CHECKPOINT_POINTS_H

#include <stdbool.h>
#include <stdint.h>

#include "llm.h"
#include "policy/resume.h"

enum {
    CHECKPOINT_HEAD_TOKENS_MIN = 32, /* a shorter head gets no checkpoint, because prefilling such a head is faster than
                                      * restoring its state */
    /* a checkpoint that is at most this many tokens longer than another one saves too little. A pause of the prefill
     * costs one more model call, and every call reads all weights */
    CHECKPOINT_NEAR_TOKENS = 8,
    /* one point for each boundary, and one each for the head, a divergence and the end */
    CHECKPOINT_POINTS_MAX = LLM_BOUNDARIES_MAX + 3,
};

typedef struct checkpoint_points {
    uint32_t at[CHECKPOINT_POINTS_MAX]; /* ascending token counts; the last is the length of the prompt */
    uint32_t n;
    uint32_t next;         /* index of the first point that is not yet reached */
    uint32_t head_at;      /* the point at the end of the head; 0 if there is none */
    bool needs_boundaries; /* the model's memory cannot be truncated to every prefix */
} checkpoint_points;

typedef struct checkpoint_points_input {
    uint32_t n_prompt; /* tokens of the prompt, more than 0 */
    uint32_t n_head;   /* tokens of the prompt's head */
    bool needs_boundaries;
    const uint32_t *boundaries; /* ascending token counts */
    uint32_t n_boundaries;      /* at most LLM_BOUNDARIES_MAX */
} checkpoint_points_input;

typedef enum checkpoint_due {
    CHECKPOINT_NONE,
    CHECKPOINT_OWN,  /* a checkpoint for later prompts of this session */
    CHECKPOINT_HEAD, /* a checkpoint for all prompts that begin with this head; saved with the whole state, and
                      * pinned */
} checkpoint_due;

void checkpoint_points_open(checkpoint_points *c, const checkpoint_points_input *in);

/* Called when plan->n_keep tokens of the prompt were reused. Skips the points up to there. Adds the point at which the
 * prompt diverged from the branch's tokens. */
void checkpoint_points_begin(checkpoint_points *c, const resume_plan *plan);

/* Returns the token count of the next point. The last point is the prompt's end. */
uint32_t checkpoint_points_next(const checkpoint_points *c);

/* Returns the last point that is not yet reached and has at most n_max tokens. Returns 0 if all points
 * up to n_max tokens are reached. */
uint32_t checkpoint_points_last(const checkpoint_points *c, uint32_t n_max);

/* Returns which checkpoint is due after n_tokens of the prompt. n_tokens must not exceed checkpoint_points_next. */
checkpoint_due checkpoint_points_reached(checkpoint_points *c, uint32_t n_tokens);

/* Whether a checkpoint is due while an answer is generated. The branch has n_tokens, its last checkpoint was saved at
 * `last_at` tokens, and `every` is the distance between checkpoints. */
bool checkpoint_points_is_due(uint32_t n_tokens, uint32_t last_at, uint32_t every);

#endif
