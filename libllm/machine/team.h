/* team.h: decides how many threads compute the next step. If other processes want the cores, a step waits for the
 * thread that has no core. One thread fewer is then faster, as long as the other processes are busy. While one other
 * process is busy, a token takes 110 ms with two threads, and 97 ms with the number that is chosen here (a model of
 * 0.6B, two cores).
 *
 * The measured times of steps decide. In a trial, some steps run with another number of threads, and if they are
 * clearly shorter, the new number is kept. But trials cost time, because with one thread too many a step takes several
 * times as long (52 ms with one thread, 219 with two). So an additional thread is only tried if the kernel counts an
 * idle core, or as a rare guess, and after each unsuccessful trial the pause before the next trial is longer.
 *
 *   settled --(threads wait for cores: one fewer)-------> trial --(shorter)------> settled, with the new number
 *      |  `---(a core is idle, or a guess is due: more)-----^  `---(not shorter)--> settled, next trial later
 *      '----- other work (n_tokens changed): a trial is stopped, since only like steps can be compared
 *
 * Pure. */
#ifndef LLM_TEAM_H
#define LLM_TEAM_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct team {
    int32_t n_most;        /* never more threads than this */
    int32_t n_settled;     /* the best number of threads so far */
    int32_t n_tried;       /* threads of the present trial; 0 if no trial is running */
    uint32_t work;         /* tokens of a step; only steps with equally many tokens are compared */
    uint32_t n_steps;      /* steps of the trial; without a trial, steps with `work` tokens since the last trial */
    double sum_us;         /* time of the trial's steps */
    double usual_us;       /* time of a step of `work` tokens with n_settled threads, a moving average */
    double usual_share;    /* share of usual_us during which the step's threads waited for a core */
    uint64_t trial_gap_us; /* pause between trials, which is doubled after each unsuccessful trial */
    uint64_t retry_us;     /* no trial begins before this time */
    uint64_t tried_us;     /* the end of the last trial, whether it was judged or not finished */
    bool is_guess;         /* the trial began although no core seemed to be idle */
} team;

/* Begins with n_first threads: n_most, or the number that was fastest in a measurement during which other processes may
 * have wanted the cores. */
void team_open(team *t, int32_t n_most, int32_t n_first);

/* Returns the number of threads for the next step. */
int32_t team_size(const team *t);

/* Returns whether there are fewer threads than n_most. */
bool team_is_short(const team *t);

/* Reports that a step of `n_tokens` by team_size threads took `us`. `waited_us` is the time, summed over the threads,
 * during which threads were ready to run but had no core. `n_idle_cores` is used only if team_is_short, and is negative
 * if it is not known. */
void team_learn(team *t, uint32_t n_tokens, double us, double waited_us, double n_idle_cores, uint64_t now_us);

#ifdef __cplusplus
}
#endif
#endif
