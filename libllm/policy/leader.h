/* leader.h: decides whether a request waits for a prefill that is running and whose prompt begins with the same tokens.
 * Pure functions.
 *
 * Ten subagents of an agent may start at the same moment, with the same head. If each began at once, it could copy only
 * the tokens that the first one has prefilled so far, and would prefill the rest of the head itself. So a request waits
 * until the running prefill, its leader, has consumed the tokens that both prompts share. Then it copies their state. */
#ifndef LLM_LEADER_H
#define LLM_LEADER_H

#include <stdint.h>

#include "policy/checkpoint_points.h"

/* Returns how many tokens a request should wait for, if its prompt has n_common usable tokens in common with the leader's.
 * A memory that cannot be truncated to every prefix leaves a state only at the leader's checkpoint points that are not
 * reached yet. Any other memory leaves a state after every token. But prefill pauses at the end of the head. If only a
 * few common tokens follow there, such as the template's tokens before a message, they are not waited for, because the
 * leader's next call may be long. Returns 0 if there is no such state. */
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
 * Without the wait, the request prefills its own n_shared - n_known tokens while the leader goes on, and each gets half
 * of the model's time until one of them has these tokens. The wait must not take longer than that. It takes the time
 * of the leader's remaining tokens, of the copy, and of one more model call. So a short shared prefix is not waited
 * for, and neither is a leader that is farther behind. This estimate knows no other prefills: if more prompts are
 * prefilled at the same time, the leader can get less than half of the time, and the wait can take longer.
 *
 * Of several candidates, chooses the one that saves most tokens after the cost of the copy. If several save equally
 * many, chooses the one that is nearest to n_shared, and of these the first. */
int32_t leader_choose(const leader_candidate *candidates, uint32_t n, uint32_t n_known, uint32_t n_call);

#endif
