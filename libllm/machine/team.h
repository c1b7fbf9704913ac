/* team.h: how many threads make the next step. When others want the cores, a step waits for the thread that has none: a
 * thread less is then faster, until the others are gone. What steps take decides; a thread more is tried where a core has
 * nothing to do. Pure. */
#ifndef LLM_TEAM_H
#define LLM_TEAM_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct team {
    int32_t n_most;       /* never more */
    int32_t n_settled;    /* known to be best */
    int32_t n_tried;      /* on trial instead; 0: none */
    uint32_t work;        /* tokens of a step: only steps alike are compared */
    uint32_t n_steps;     /* of the trial, or alike since the last */
    double sum_us;        /* of the trial's */
    double usual_us;      /* what such a step takes with n_settled; */
    double usual_share;   /* of it, its threads waited for a core */
    uint64_t patience_us; /* between trials: the longer, the more of them were in vain */
    uint64_t retry_us;    /* none before */
    uint64_t tried_us;    /* the end of the last trial, judged or given up */
    bool is_guess;        /* the trial: no core seems to be free for it */
} team;

/* It begins with n_first: n_most, or what was the fastest of them while others may have wanted the cores. */
void team_open(team *t, int32_t n_most, int32_t n_first);

/* Threads of the next step. */
int32_t team_size(const team *t);

/* Whether it could be more threads than it is. */
bool team_is_short(const team *t);

/* A step of `n_tokens` by team_size threads took `us`; they could run and had no core for `waited_us`, in all.
 * `n_idle_cores`, of a team that is short: below 0, nobody knows. */
void team_learn(team *t, uint32_t n_tokens, double us, double waited_us, double n_idle_cores, uint64_t now_us);

#ifdef __cplusplus
}
#endif
#endif
