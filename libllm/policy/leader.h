/* leader.h: decides whether a request waits for a running prefill of a prompt that begins with the same tokens. Pure
 * functions.
 *
 * Ten subagents of an agent may start at the same moment, with the same head. If each began at once, it could copy only
 * the tokens that the first one has prefilled so far, and would prefill the rest of the head itself. So a request waits
 * until the running prefill, its leader, has consumed the tokens that both prompts share. Then it copies their
 * state. */
#ifndef LLM_LEADER_H
#define LLM_LEADER_H

#include <stdint.h>

#include "policy/checkpoint_points.h"

/* Returns how many tokens the leader should consume before the request begins. The request's prompt has n_common usable
 * tokens in common with the leader's. If the memory cannot be truncated to every prefix, the request can copy a state
 * only at a checkpoint point that the leader has not reached yet. Otherwise it can copy a state after any token. But
 * prefill pauses at the end of the head. If only a few common tokens follow the head, such as the template's tokens
 * before a message, the request does not wait for them, because the leader's next call may be long. Returns 0 if the
 * request can copy no state. */
uint32_t leader_shared(const checkpoint_points *points, uint32_t n_common);

/* A running prefill for which a request could wait. */
typedef struct leader_candidate {
    uint32_t n_shared;   /* tokens of the waiting prompt whose state the request can copy after the wait */
    uint32_t n_consumed; /* tokens that the running prefill has consumed so far */
    uint32_t n_cost;     /* cost of that copy: how many tokens could be prefilled in the same time */
} leader_candidate;

/* Returns the index of the candidate to wait for, or -1 if the request should begin at once. `n_known` is the number of
 * prompt tokens whose state the request can reuse if it begins at once. `n_call` is the fixed cost of a model call: how
 * many tokens could be prefilled in the same time.
 *
 * Without the wait, the request prefills its own n_shared - n_known tokens while the leader continues, and each gets
 * half of the model's time until one of them has consumed these tokens. The wait must not take longer than this
 * prefill. The wait takes the time of the leader's remaining tokens, of the copy, and of one more model call. So a
 * request does not wait for a short shared prefix, nor for a leader with too many tokens left. This estimate knows no
 * other prefills: if more prompts are prefilled at the same time, the leader can get less than half of the time, and
 * the wait can take longer.
 *
 * Of several candidates, chooses the one that saves the most tokens, minus the cost of the copy. If several save
 * equally many, chooses the one with the fewest tokens left until n_shared. If several have equally few left, chooses
 * the first. */
int32_t leader_choose(const leader_candidate *candidates, uint32_t n, uint32_t n_known, uint32_t n_call);

#endif
