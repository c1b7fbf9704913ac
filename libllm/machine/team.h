/* team.h: how many threads compute the next step. If other processes want the cores, a step waits for the thread that
 * has no core: one thread fewer is then faster, until the others are gone. Beside one busy process a token takes 110 ms
 * with two threads and 97 with the choice made here (a model of 0.6B, two cores).
 *
 * The measured times of steps decide, by trials: some steps run with another number of threads, and if they are clearly
 * shorter, the new number stays. Trials cost, too: with one thread too many a step takes several times as long (52 ms
 * with one thread, 219 with two). So a thread more is only tried if the kernel counts an idle core, or as a rare guess;
 * and after each trial in vain the next one comes later.
 *
 *   settled --(threads wait for cores: one fewer)-------> trial --(shorter)------> settled, with the new number
 *      |  `---(a core is idle, or a guess is due: more)-----^  `---(not shorter)--> settled, next trial later
 *      '----- other work (n_tokens changed): a trial is given up, since only like steps can be compared
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
    int32_t n_settled;     /* threads that are best as far as is known */
    int32_t n_tried;       /* threads of the present trial; 0: there is none */
    uint32_t work;         /* tokens of a step: only steps with equally many are compared */
    uint32_t n_steps;      /* steps of the trial, or like steps since the last one */
    double sum_us;         /* time of the trial's steps */
    double usual_us;       /* time of such a step with n_settled threads, a moving average */
    double usual_share;    /* share of that time that its threads waited for a core */
    uint64_t trial_gap_us; /* pause between trials; doubled after each one in vain */
    uint64_t retry_us;     /* no trial begins before this time */
    uint64_t tried_us;     /* the end of the last trial, judged or given up */
    bool is_guess;         /* the trial began although no core seemed to be idle */
} team;

/* Begins with n_first threads: n_most, or the number that was fastest while other processes may have wanted the
 * cores. */
void team_open(team *t, int32_t n_most, int32_t n_first);

/* Returns the number of threads for the next step. */
int32_t team_size(const team *t);

/* Returns whether there are fewer threads than n_most. */
bool team_is_short(const team *t);

/* Learns that a step of `n_tokens` by team_size threads took `us`, of which its threads, added up, were ready and had
 * no core for `waited_us`. `n_idle_cores` is used only if the team is short; below 0: unknown. */
void team_learn(team *t, uint32_t n_tokens, double us, double waited_us, double n_idle_cores, uint64_t now_us);

#ifdef __cplusplus
}
#endif
#endif
