/* team.h: decides how many threads compute the next step. If other processes use the cores, each step has to wait for a
 * thread that has no core. As long as the other processes are busy, steps are then faster with one thread fewer. For
 * example, a token of a 0.6B model takes 110 ms with two threads on two cores while one other process is busy. With the
 * number of threads that is chosen here, a token takes 97 ms.
 *
 * The measured times of steps decide. In a trial, some steps run with another number of threads. If these steps are
 * clearly shorter, the new number is kept. But trials cost time. With one thread too many, a step takes several times
 * as long. An example is 219 ms with two threads instead of 52 ms with one. So an additional thread is tried only if
 * the kernel reports an idle core, or rarely as a guess. After each unsuccessful trial that is not a guess, the pause
 * before the next trial is longer.
 *
 *   settled --(threads wait for cores: one fewer)-------> trial --(shorter)------> settled, with the new number
 *      |  `---(a core is idle, or a guess is due: more)-----^  `---(not shorter)--> settled, next trial later
 *      '----- other work (n_tokens changed): a trial is stopped, because only steps of equal size can be compared
 * Pure functions. */
#ifndef LLM_TEAM_H
#define LLM_TEAM_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct team {
    int32_t n_most;    /* limit on the number of threads */
    int32_t n_settled; /* the best number of threads so far */
    int32_t n_tried;   /* threads of the present trial; 0 if no trial is running */
    uint32_t work;     /* tokens of a step; only steps with equally many tokens are compared */
    uint32_t n_steps;  /* number of steps of the trial. Without a trial, number of steps with `work` tokens since the
                        * last trial */
    double sum_us;     /* time of the trial's steps */
    double usual_us;   /* time of a step of `work` tokens with n_settled threads, a moving average */
    /* share of a step's time for which its threads wait for cores, a moving average */
    double usual_share;
    uint64_t trial_gap_us; /* pause between trials, which is doubled after each unsuccessful trial that is not a
                            * guess */
    uint64_t retry_us;     /* no trial begins before this time */
    uint64_t tried_us;     /* when the last trial ended, with or without a result */
    bool is_guess;         /* the trial began although no core seemed to be idle */
} team;

/* Begins with n_first threads: n_most, or the number that was fastest in an earlier measurement. Other processes may
 * have used the cores during that measurement. */
void team_open(team *t, int32_t n_most, int32_t n_first);

/* Returns the number of threads for the next step. */
int32_t team_size(const team *t);

/* Returns whether there are fewer threads than n_most. */
bool team_is_short(const team *t);

/* Reports that a step of `n_tokens` by team_size threads took `us`. `waited_us` is the time for which the threads were
 * ready to run but had no core, added up over all threads. `n_idle_cores` is used only if team_is_short, and is
 * negative if it is not known. */
void team_learn(team *t, uint32_t n_tokens, double us, double waited_us, double n_idle_cores, uint64_t now_us);

#ifdef __cplusplus
}
#endif
#endif
