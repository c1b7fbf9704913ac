/* A clear result is accepted after one or two steps, a small one after four: an answer of 24 tokens was half over
 * before a trial with steps of twice the time had ended. */
#include "machine/team.h"

enum {
    STEPS_ALIKE = 4, /* like steps before a trial begins, or is judged */
    STEPS_CLEAR = 2, /* if the result is clear */
    TRIAL_US = 10000,
    TRIAL_GAP_US = 250000,
    TRIAL_GAP_US_MAX = 30000000,
    GUESS_US = 10000000 /* between trials for which no core seems to be idle */
};

static const double SHARE_WAITED = 0.15; /* of a step: if threads wait longer for cores, others want them */
static const double SHARE_CLEAR = 0.3;   /* ... and that clearly */
static const double GAIN = 0.95;         /* times the usual step: a trial must be shorter than this */
static const double GAIN_CLEAR = 0.8;
static const double LOSS_CLEAR = 1.2; /* times the usual step: a single longer one ends the trial */
static const double WEIGHT = 0.25;    /* of the last step in the moving averages */
static const double ROOM = 0.5;       /* idle cores: so much may make one more thread useful */

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

/* n threads from the next step on; 0: no trial. */
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

/* After a change the pause begins anew at its shortest; a guess in vain does not make it longer, as GUESS_US bounds
 * guesses. */
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

/* How many threads more to try: a quarter, up to the number of idle cores. One more of twenty threads is a gain too
 * small to be measured, so that a large team would never grow. */
static int32_t n_more(const team *t, double n_idle_cores)
{
    const int32_t n = smaller(t->n_settled / 4, smaller((int32_t)n_idle_cores, t->n_most - t->n_settled));
    return n > 1 ? n : 1;
}

/* Between trials: begins one with a thread fewer if others want its core, or with more if a core is idle. A step with a
 * thread too many takes several times as long, so that without an idle core only a guess is made now and then. */
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

/* Returns whether the trial can end: it has lost clearly, won clearly, or had enough steps. */
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
        t->tried_us = now_us; /* the first guess is due after GUESS_US, not at once */
    }
    if (n_tokens != t->work) {
        t->work = n_tokens;
        t->usual_us = us;
        t->usual_share = share;
        t->tried_us = t->n_tried > 0 ? now_us : t->tried_us; /* a trial that is given up has cost a step, too */
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
