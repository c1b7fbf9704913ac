#include "policy/schedule.h"

#include <math.h>

enum {
    CHUNK_FIRST = 128, /* maximum number of prompt tokens in a step before the first measurement */
    CHUNK_MIN = 32,    /* minimum number of tokens of a call that only prefills: fixed costs dominate a smaller call */
    /* minimum number of prompt tokens in a call with decoding requests. Fewer tokens are not worth reading a long
     * prompt's KV cache */
    CHUNK_MIXED_MIN = 16,
    CHUNK_GRAIN = 64, /* kernels work on blocks of this size */
    SHARE_MIN = 16,   /* minimum number of tokens of each request, if several prefill in one call */
    ALONE_MS = 250,   /* limit on a call that cannot be stopped, if no request decodes */
    /* limit like ALONE_MS, but in durations of a step without prefill. Longer calls consume no more tokens per
     * second */
    ALONE_STEPS = 4,
    FIT_TRIES = 4
};

double schedule_stall_budget_us(const schedule_pace *pace, uint32_t gap_ms_target, uint32_t n_decoding)
{
    const double target_us = 1000.0 * gap_ms_target;
    const double step_us = pace->decode_us;
    return n_decoding == 0 ? HUGE_VAL : (target_us > 2 * step_us ? target_us - step_us : step_us);
}

/* Returns the time limit on the prefill in a step with decoding requests. If the step takes a checkpoint, the limit is
 * shorter by the time of the checkpoint. */
static double gap_left_us(const schedule_input *in)
{
    return schedule_stall_budget_us(&in->pace, in->gap_ms_target, 1) -
           (in->takes_checkpoint ? in->pace.checkpoint_us : 0);
}

static double alone_us(const schedule_input *in)
{
    const double us = 1000.0 * (in->gap_ms_target > ALONE_MS ? in->gap_ms_target : ALONE_MS);
    return us > ALONE_STEPS * in->pace.decode_us ? us : ALONE_STEPS * in->pace.decode_us;
}

static bool is_stoppable(const schedule_input *in, uint32_t n_decoding)
{
    return n_decoding == 0 && in->n_runs <= in->n_stoppable;
}

/* Returns the time limit on the step's prefill, in microseconds. */
static double allowed_us(const schedule_input *in, uint32_t n_decoding)
{
    return n_decoding > 0 ? gap_left_us(in) : is_stoppable(in, n_decoding) ? HUGE_VAL : alone_us(in);
}

static const double ROUNDED = 1e-6; /* a result this close below a whole number counts as that number */

/* Returns how many tokens of a prompt can be prefilled in `us`, but at most n_max. `depth` tokens of the prompt are
 * already consumed. The cost of a token depends on its depth. The mean depth of the tokens depends on the result. So
 * the result is found by iteration. */
static uint32_t n_fitting(const schedule_input *in, double depth, double us, uint32_t n_max)
{
    double n = 0;
    for (int i = 0; i < FIT_TRIES; i++) {
        const double fits = us / linear_fit_at(&in->pace.prefill_at, depth + n / 2);
        n = fits < 0 ? 0 : fits < n_max ? fits : n_max;
    }
    return (uint32_t)(n + ROUNDED);
}

static bool is_known(const schedule_input *in)
{
    return linear_fit_at(&in->pace.prefill_at, 0) > 0;
}

static uint32_t in_blocks(uint32_t n)
{
    return n > CHUNK_GRAIN ? n - n % CHUNK_GRAIN : n;
}

/* ---- mixed calls: prefill in the same model call as decoding requests ---- */

/* What is left of a step's prefill: the time `us` and `n` tokens. spent_us is the time that is already given to
 * requests. */
typedef struct budget {
    double us;
    uint32_t n;
    double spent_us;
} budget;

static void spend(const schedule_input *in, uint32_t i, uint32_t n, budget *left, uint32_t *take)
{
    const double us = n * linear_fit_at(&in->pace.prefill_at, in->depth[i] + n / 2.0);
    take[i] = n;
    left->n -= n;
    left->us -= us;
    left->spent_us += us;
}

/* Whether the remaining prompt tokens of request `i` fit into `even`, an equal share of the step. */
static bool is_short(const schedule_input *in, uint32_t i, const budget *even)
{
    const uint32_t left = in->prefill_left[i];
    return left > 0 && left <= even->n && n_fitting(in, in->depth[i], even->us, left) == left;
}

/* Returns the next request that gets prompt tokens. Every other step chooses the request with the fewest tokens left.
 * Thus some prompts finish early. The steps between choose the next request in rotation. Thus no request waits for
 * ever. */
static uint32_t whose_turn(const schedule_input *in, const uint32_t *take, uint32_t n_waiting)
{
    uint32_t next = in->n_runs, n_before = in->turn / 2 % n_waiting;
    for (uint32_t i = 0; i < in->n_runs; i++) {
        if (in->prefill_left[i] == 0 || take[i] > 0) {
            continue;
        }
        if (in->turn % 2 == 0 ? next == in->n_runs || in->prefill_left[i] < in->prefill_left[next] : n_before-- == 0) {
            next = i;
        }
    }
    return next;
}

/* Finishes short prompts. A prompt is short if its remaining tokens fit into an equal share (is_short). The request
 * then gets all of them. n_waiting is the number of requests that prefill. Returns how many of these requests got no
 * tokens. */
static uint32_t finish_short_ones(const schedule_input *in, uint32_t n_waiting, budget *left, uint32_t *take)
{
    const budget even = {.us = left->us / n_waiting, .n = left->n / n_waiting};
    for (uint32_t i = 0; i < in->n_runs; i++) {
        if (is_short(in, i, &even)) {
            spend(in, i, in->prefill_left[i], left, take);
            n_waiting--;
        }
    }
    return n_waiting;
}

/* Distributes a step's prompt tokens. First, each request whose remaining tokens fit into an equal share (is_short)
 * gets all of them. Then the request whose turn it is gets what fits into the rest of the step. If there is still time,
 * further requests get tokens. Each of them gets at least CHUNK_MIXED_MIN tokens, or the rest of its prompt. Fewer
 * tokens would not be worth the cost, because the call reads the KV cache of every request that takes part. */
static uint32_t share_in_turn(const schedule_input *in, uint32_t n_decoding, uint32_t *take)
{
    budget left = {.us = allowed_us(in, n_decoding), .n = in->n_batch - n_decoding};
    if (!is_known(in)) {
        left = (budget){.us = HUGE_VAL, .n = CHUNK_FIRST < left.n ? CHUNK_FIRST : left.n};
    }
    const uint32_t n_all = left.n;
    uint32_t n_waiting = finish_short_ones(in, in->n_runs - n_decoding, &left, take), n_most = n_waiting;
    if (n_decoding == 0 && left.n == n_all && 0 < in->n_stoppable && in->n_stoppable < n_waiting) {
        n_most = 1; /* only a call with a single request can be stopped */
        left.us = HUGE_VAL;
    } else if (n_decoding == 0 && left.n < n_all) {
        /* the requests of the finished prompts decode in the next step, so this step must be short */
        left.us = fmin(left.us, fmax(0, gap_left_us(in) - left.spent_us));
    }
    for (uint32_t n_served = 0; n_waiting > 0 && n_served < n_most; n_served++, n_waiting--) {
        const uint32_t i = whose_turn(in, take, n_waiting), rest = in->prefill_left[i];
        const uint32_t least = rest < CHUNK_MIXED_MIN ? rest : CHUNK_MIXED_MIN;
        uint32_t n = n_fitting(in, in->depth[i], left.us, rest < left.n ? rest : left.n);
        n = n_decoding == 0 && n < rest ? in_blocks(n) : n;
        if (n_served == 0) {
            n = n > least ? n : least < left.n ? least : left.n;
        } else if (n < least) {
            break;
        }
        spend(in, i, n, &left, take);
    }
    return n_all - left.n;
}

/* ---- separate model calls for prefill ---- */

static double depth_of_waiting(const schedule_input *in, uint32_t n_prefilling)
{
    double sum = 0;
    for (uint32_t i = 0; i < in->n_runs; i++) {
        sum += in->prefill_left[i] > 0 ? in->depth[i] : 0;
    }
    return sum / n_prefilling;
}

static uint32_t chunk_of(const schedule_input *in, uint32_t n_decoding)
{
    const double us = allowed_us(in, n_decoding), depth = depth_of_waiting(in, in->n_runs - n_decoding);
    if (us == HUGE_VAL) {
        return in->n_batch;
    }
    if (!is_known(in)) {
        return CHUNK_FIRST < in->n_batch ? CHUNK_FIRST : in->n_batch;
    }
    const uint32_t fits = n_fitting(in, depth, us, in->n_batch), least = fits < CHUNK_MIN ? CHUNK_MIN : fits;
    const uint32_t chunk = n_decoding == 0 ? in_blocks(least) : least;
    return chunk < in->n_batch ? chunk : in->n_batch;
}

/* Returns the request whose turn it is. Only prefilling requests have turns. If decoding requests had turns, too, the
 * prefilling request after a decoding one would get both turns. */
static uint32_t first_in_turn(const schedule_input *in, uint32_t n_prefilling)
{
    uint32_t before = in->turn % n_prefilling;
    uint32_t i = 0;
    while (in->prefill_left[i] == 0 || before > 0) {
        before -= in->prefill_left[i] > 0;
        i++;
    }
    return i;
}

static uint32_t n_with(const schedule_input *in, uint32_t least)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < in->n_runs; i++) {
        n += in->prefill_left[i] >= least;
    }
    return n;
}

/* Gives all requests that take part the same number of tokens. The model computes requests together only if they have
 * equally many tokens. Chooses the number for which the call consumes the most tokens in total. If several numbers give
 * the same total, chooses the one with the most requests. The request whose turn it is always takes part. */
static uint32_t share_alike(const schedule_input *in, uint32_t chunk, uint32_t n_prefilling, uint32_t *take)
{
    const uint32_t first = first_in_turn(in, n_prefilling);
    const uint32_t most = in->prefill_left[first] < chunk ? in->prefill_left[first] : chunk;
    uint32_t each = 0, total = 0;
    for (uint32_t n = 1; n <= n_prefilling && (n == 1 || chunk / n >= SHARE_MIN); n++) {
        const uint32_t share = chunk / n < most ? chunk / n : most;
        const uint32_t n_fit = chunk / share, n_have = n_with(in, share);
        const uint32_t sum = share * (n_fit < n_have ? n_fit : n_have);
        each = sum >= total ? share : each;
        total = sum >= total ? sum : total;
    }
    for (uint32_t k = 0, left = total; left > 0; k++) {
        const uint32_t i = (first + k) % in->n_runs;
        if (in->prefill_left[i] >= each) {
            take[i] = each;
            left -= each;
        }
    }
    return total;
}

uint32_t schedule_step(const schedule_input *in, uint32_t *take)
{
    uint32_t n_decoding = 0;
    for (uint32_t i = 0; i < in->n_runs; i++) {
        const uint32_t decodes = in->prefill_left[i] == 0;
        take[i] = decodes;
        n_decoding += decodes;
    }
    if (n_decoding == in->n_runs) {
        return n_decoding;
    }
    return n_decoding + (in->mixed_calls ? share_in_turn(in, n_decoding, take)
                                         : share_alike(in, chunk_of(in, n_decoding), in->n_runs - n_decoding, take));
}

static void average(double *value, double sample)
{
    const double weight = 0.2;
    *value = *value <= 0 ? sample : *value + weight * (sample - *value);
}

bool schedule_stops(const schedule_call *c)
{
    if (c->share_needed <= 0) {
        return true;
    }
    const double gone_us = c->lost_us + c->elapsed_us;
    /* twice, because the new call reads all weights again */
    const double rerun_us = 2 * c->share_needed * c->expected_us;
    return (c->share_needed < 1 && c->expected_us - gone_us > rerun_us) ||
           (c->has_newcomer && 2 * gone_us < c->expected_us);
}

void schedule_learn(schedule_pace *pace, uint32_t n_prefill, double depth, uint32_t n_decode, double us)
{
    if (n_prefill == 0) {
        if (n_decode > 0) {
            average(&pace->decode_us, us);
        }
        return;
    }
    const double rest_us = n_decode > 0 ? us - pace->decode_us : us;
    /* A step with few prompt tokens has mostly fixed costs, from which the cost of a token cannot be learned. */
    if (rest_us > 0 && n_prefill >= (n_decode > 0 ? CHUNK_MIXED_MIN : CHUNK_MIN)) {
        average(&pace->prefill_token_us, rest_us / n_prefill);
        linear_fit_learn(&pace->prefill_at, depth, rest_us / n_prefill);
    }
}

void schedule_learn_checkpoint(schedule_pace *pace, double us)
{
    average(&pace->checkpoint_us, us);
}
