/* team.c: tries other numbers of threads for some steps (a trial). A trial with a clear result ends after one or two
 * steps, a trial with a small difference after four. Longer trials with a bad number could make half of an answer of 24
 * tokens take twice the time. */
#include "machine/team.h"

enum {
    STEPS_ALIKE = 4, /* number of steps of equal size before a trial begins or is judged */
    STEPS_CLEAR = 2, /* number of steps before a trial with a clear result is judged */
    TRIAL_US = 10000,
    TRIAL_GAP_US = 250000,
    TRIAL_GAP_US_MAX = 30000000,
    GUESS_US = 10000000 /* pause between guesses. A guess is a trial without an idle core */
};

/* if threads wait for cores for more than this share of a step's time, other processes need the cores */
static const double SHARE_WAITED = 0.15;
/* if threads wait for cores for more than this share of a step's time, other processes clearly need the cores */
static const double SHARE_CLEAR = 0.3;
static const double GAIN = 0.95; /* steps of a successful trial are shorter than this times the usual step */
static const double GAIN_CLEAR = 0.8;
static const double LOSS_CLEAR = 1.2; /* a single step longer than this times the usual step ends the trial */
static const double WEIGHT = 0.25;    /* weight of the latest step in the moving averages */
static const double ROOM = 0.5; /* an additional thread is tried only if at least this many cores are idle on average */

void team_open(team *t, int32_t n_most, int32_t n_first)
{
    *t = (team){.n_most = n_most, .n_settled = n_first, .trial_gap_us = TRIAL_GAP_US};
}

int32_t team_size(const team *t)
{
    return t->n_tried > 0 ? t->n_tried : t->n_settled;
}

bool team_is_short(const team *t)
{
    return t->n_settled < t->n_most;
}

/* Begins a trial with n threads at the next step. With n = 0, ends the trial. */
static void start_trial(team *t, int32_t n)
{
    t->n_tried = n;
    t->n_steps = 0;
    t->sum_us = 0;
}

static void wait_for_next(team *t, uint64_t us, uint64_t now_us)
{
    t->trial_gap_us = us < TRIAL_GAP_US_MAX ? us : TRIAL_GAP_US_MAX;
    t->retry_us = now_us + t->trial_gap_us;
}

/* Ends the trial, and keeps its number of threads if its steps were shorter than usual. If the number is kept, the
 * pause between trials becomes the shortest again. Otherwise the pause is doubled. Exception: a guess does not double
 * the pause. Guesses have a pause of their own, GUESS_US. */
static void judge_trial(team *t, uint64_t now_us)
{
    const double us = t->sum_us / t->n_steps;
    const int is_better = us < GAIN * t->usual_us;
    if (is_better) {
        t->n_settled = t->n_tried;
        t->usual_us = us;
        t->usual_share = 0;
    }
    wait_for_next(t, is_better ? TRIAL_GAP_US : t->is_guess ? t->trial_gap_us : 2 * t->trial_gap_us, now_us);
    t->tried_us = now_us;
    start_trial(t, 0);
}

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Returns how many additional threads to try. This is a quarter of the present number, but not more than there are idle
 * cores, and at least one. A large team would never grow by one thread at a time. With twenty threads, the gain from
 * one more is too small to be measured. */
static int32_t n_more(const team *t, double n_idle_cores)
{
    const int32_t n = smaller(t->n_settled / 4, smaller((int32_t)n_idle_cores, t->n_most - t->n_settled));
    return n > 1 ? n : 1;
}

/* Called after a step that is not part of a trial. Updates the moving averages, and begins a trial if one is due. If
 * other processes need cores, tries one thread fewer. If a core is idle, tries more threads. Without an idle core, more
 * threads are tried only rarely, as a guess, because a step with one thread too many takes several times as long. */
static void watch(team *t, double us, double share, double n_idle_cores, uint64_t now_us)
{
    t->usual_us += WEIGHT * (us - t->usual_us);
    t->usual_share += WEIGHT * (share - t->usual_share);
    const uint32_t enough = t->usual_share > SHARE_CLEAR ? STEPS_CLEAR : STEPS_ALIKE;
    if (++t->n_steps < enough || now_us < t->retry_us) {
        return;
    }
    const bool has_room = n_idle_cores < 0 || n_idle_cores >= ROOM;
    if (t->usual_share > SHARE_WAITED && t->n_settled > 1) {
        t->is_guess = false;
        start_trial(t, t->n_settled - 1);
    } else if (team_is_short(t) && (has_room || now_us - t->tried_us > GUESS_US)) {
        t->is_guess = !has_room;
        start_trial(t, t->n_settled + n_more(t, n_idle_cores));
    }
}

/* Returns whether the trial can end. It ends after enough steps, or earlier with a clear result. */
static int is_judged(const team *t, double last_us)
{
    const double us = t->sum_us / t->n_steps;
    const int is_clear = t->n_steps >= STEPS_CLEAR && us < GAIN_CLEAR * t->usual_us;
    const int is_enough = t->n_steps >= STEPS_ALIKE || is_clear;
    return last_us > LOSS_CLEAR * t->usual_us || (is_enough && t->sum_us >= TRIAL_US);
}

void team_learn(team *t, uint32_t n_tokens, double us, double waited_us, double n_idle_cores, uint64_t now_us)
{
    const double share = us > 0 ? waited_us / us : 0;
    if (t->tried_us == 0) {
        t->tried_us = now_us; /* so that the first guess is due after GUESS_US, and not at once */
    }
    if (n_tokens != t->work) {
        t->work = n_tokens;
        t->usual_us = us;
        t->usual_share = share;
        /* a step of another size ends a trial without a result. The pause before the next trial is the same as after a
         * trial with a result */
        t->tried_us = t->n_tried > 0 ? now_us : t->tried_us;
        start_trial(t, 0);
    } else if (t->n_tried == 0) {
        watch(t, us, share, n_idle_cores, now_us);
    } else {
        t->sum_us += us;
        t->n_steps++;
        if (is_judged(t, us)) {
            judge_trial(t, now_us);
        }
    }
}
