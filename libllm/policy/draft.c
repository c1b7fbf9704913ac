#include "policy/draft.h"

/* Lengths of matches from which the classes begin, and the assumed rates before the first try. The assumption weighs as
 * much as ASSUMED tries. The first rate is so low that a text without repetitions is not slowed down by tries. */
static const uint32_t CLASS_BEGIN[DRAFT_CLASSES] = {0, 5, 10, 20};
static const double RATE_FIRST[DRAFT_CLASSES] = {0.15, 0.35, 0.6, 0.8};
static const float LEAD_BEGIN[DRAFT_CLASSES] = {0, 0.7f, 1.5f, 3}; /* the same for leads */
static const double ASSUMED = 2, KEPT = 0.95;

static const uint32_t SIZE[DRAFT_SIZES] = {1, 2, 4, 8, 16};
/* assumed cost of a draft token before the first measurement, as a share of a step */
static const double COST_FIRST = 0.1;
static const double COST_SHARE = 0.3, RATIO_MAX = 40; /* a larger ratio is an outlier */
/* how much of a measured ratio above the assumed one is replaced by the assumed one in each step without drafts */
static const double FORGOTTEN = 1 / 512.0;
enum { PLAIN_EVERY = 32 };
/* Drafts must promise this much more speed, because the promise is only an estimate. */
static const double GAIN_MIN = 1.03, SPEED_MIN = 0.98;

/* What the first call of a guess must leave of the credit, for the other calls. What a step without a guess adds. */
static const double CREDIT_KEPT = 0.5, CREDIT_REST = 0.01;

uint8_t draft_class_of_match(uint32_t n_matched)
{
    uint8_t c = DRAFT_CLASSES - 1;
    while (n_matched < CLASS_BEGIN[c]) {
        c--;
    }
    return c;
}

uint8_t draft_class_of_lead(float lead)
{
    uint8_t c = DRAFT_CLASSES - 1;
    while (c > 0 && !(lead >= LEAD_BEGIN[c])) {
        c--;
    }
    return c;
}

void draft_learn_rate(draft_rates *rates, uint8_t class, bool is_right)
{
    rates->n_right[class] = KEPT * rates->n_right[class] + (is_right ? 1 : 0);
    rates->n_tried[class] = KEPT * rates->n_tried[class] + 1;
}

double draft_rate(const draft_rates *rates, uint8_t class)
{
    return (rates->n_right[class] + ASSUMED * RATE_FIRST[class]) / (rates->n_tried[class] + ASSUMED);
}

double draft_expected(const draft_rates *rates, const uint8_t *classes, uint32_t n)
{
    double sum = 0, are_right = 1;
    for (uint32_t i = 0; i < n; i++) {
        are_right *= draft_rate(rates, classes[i]);
        sum += are_right;
    }
    return sum;
}

/* Returns the index of the draft size in SIZE that is nearest to n_drafts tokens. */
static uint32_t size_of(uint32_t n_drafts)
{
    uint32_t s = 0;
    while (s + 1 < DRAFT_SIZES && 2 * n_drafts >= SIZE[s] + SIZE[s + 1]) {
        s++;
    }
    return s;
}

static double assumed_ratio(uint32_t s)
{
    return 1 + COST_FIRST * SIZE[s];
}

/* If another program delays a step with drafts, drafts look expensive. No drafts are verified then, so their cost is
 * not measured again. Therefore a ratio above the assumed ratio slowly returns to the assumed ratio. A ratio below it
 * does not need that: drafts that look cheap are verified, which measures their cost again. If drafts really are
 * expensive, the repeated tries make decoding 1 percent slower. */
static void forget_costs(draft_costs *costs)
{
    for (uint32_t s = 0; s < DRAFT_SIZES; s++) {
        costs->ratio[s] += costs->ratio[s] > assumed_ratio(s) ? FORGOTTEN * (assumed_ratio(s) - costs->ratio[s]) : 0;
    }
}

void draft_learn_cost(draft_costs *costs, uint32_t n_decoding, uint32_t n_drafts, double us)
{
    if (costs->n_decoding != n_decoding) {
        if (n_drafts > 0) {
            return; /* cannot be compared */
        }
        costs->n_decoding = n_decoding;
        costs->plain_us = us;
    }
    costs->n_since = n_drafts > 0 ? costs->n_since + 1 : 0;
    if (n_drafts == 0) {
        costs->plain_us += COST_SHARE * (us - costs->plain_us);
        forget_costs(costs);
        return;
    }
    const uint32_t s = size_of(n_drafts);
    const double ratio = 1 + (us / costs->plain_us - 1) * SIZE[s] / n_drafts;
    const double bounded = ratio < 1 ? 1 : ratio > RATIO_MAX ? RATIO_MAX : ratio;
    costs->ratio[s] = costs->ratio[s] == 0 ? bounded : costs->ratio[s] + COST_SHARE * (bounded - costs->ratio[s]);
}

bool draft_has_costs(const draft_costs *costs, uint32_t n_decoding)
{
    return costs->plain_us > 0 && costs->n_decoding == n_decoding && costs->n_since < PLAIN_EVERY;
}

static double ratio_of(const draft_costs *costs, uint32_t s)
{
    return costs->ratio[s] > 0 ? costs->ratio[s] : assumed_ratio(s);
}

double draft_cost(const draft_costs *costs, uint32_t n_drafts)
{
    uint32_t below = 0, most = 0;
    double least = 1, largest = 1;
    for (uint32_t s = 0; s < DRAFT_SIZES; s++) {
        below = most;
        least = largest;
        most = SIZE[s];
        largest = ratio_of(costs, s);
        if (n_drafts <= most) {
            break;
        }
    }
    return least + (largest - least) * (n_drafts - below) / (most - below);
}

/* A removal computes at most the tokens of the step again. So a ratio above the cost of the longest draft is an
 * outlier. If outliers counted, no draft would be verified any more, and no removal be measured. */
static double bounded_removal(const draft_costs *costs, double ratio)
{
    const double most = draft_cost(costs, DRAFT_TOKENS_MAX);
    return ratio < most ? ratio : most;
}

void draft_learn_removal(draft_costs *costs, double us)
{
    const double ratio = bounded_removal(costs, costs->plain_us > 0 ? us / costs->plain_us : 0);
    costs->removal = costs->removal == 0 ? ratio : costs->removal + COST_SHARE * (ratio - costs->removal);
}

/* The draft tokens in the order in which they are worth verifying. */
typedef struct draft_order {
    uint32_t n;
    uint8_t request[DRAFT_TOKENS_MAX];
    double gain[DRAFT_TOKENS_MAX]; /* probability that the token is right, and all tokens of the draft before it */
    double loss[DRAFT_TOKENS_MAX]; /* probability that the token is the first wrong one of its draft */
} draft_order;

/* Repeatedly adds the token that is right with the highest probability among the next tokens of all drafts. */
static void order_tokens(const draft_candidate *candidates, uint32_t n, uint32_t n_max, draft_order *order,
                         uint32_t *n_drafts)
{
    double gain[DRAFT_REQUESTS_MAX], before[DRAFT_REQUESTS_MAX];
    for (uint32_t i = 0; i < n; i++) {
        n_drafts[i] = 0;
        before[i] = 1;
        gain[i] = candidates[i].n_max > 0 ? draft_rate(candidates[i].rates, candidates[i].classes[0]) : 0;
    }
    for (order->n = 0; order->n < n_max; order->n++) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < n; i++) {
            best = gain[i] > gain[best] ? i : best;
        }
        if (gain[best] <= 0) {
            return;
        }
        order->request[order->n] = (uint8_t)best;
        order->gain[order->n] = gain[best];
        order->loss[order->n] = before[best] - gain[best];
        before[best] = gain[best];
        const draft_candidate *c = &candidates[best];
        const uint32_t k = ++n_drafts[best];
        gain[best] = k < c->n_max ? gain[best] * draft_rate(c->rates, c->classes[k]) : 0;
    }
}

/* Returns the expected time of verifying the first k tokens in `order`, divided by the time of a step without drafts.
 */
static double cost_of(const draft_order *order, uint32_t k, const draft_costs *costs)
{
    double n_removals = 0;
    for (uint32_t j = 0; j < k; j++) {
        n_removals += order->loss[j];
    }
    return draft_cost(costs, k) + bounded_removal(costs, costs->removal) * n_removals;
}

/* Returns how many of the first tokens in `order` give the most tokens per time. */
static uint32_t best_number(const draft_order *order, uint32_t n, const draft_costs *costs)
{
    uint32_t best = 0;
    double best_speed = n * GAIN_MIN, n_tokens = n;
    for (uint32_t k = 1; k <= order->n; k++) {
        n_tokens += order->gain[k - 1];
        const double speed = n_tokens / cost_of(order, k, costs);
        if (speed > best_speed) {
            best = k;
            best_speed = speed;
        }
    }
    return best;
}

/* Whether each request is about as fast as without drafts, if the first k tokens in `order` are verified. */
static bool harms_nobody(const draft_order *order, uint32_t k, uint32_t n, const draft_costs *costs)
{
    double n_tokens[DRAFT_REQUESTS_MAX];
    for (uint32_t i = 0; i < n; i++) {
        n_tokens[i] = 1;
    }
    for (uint32_t j = 0; j < k; j++) {
        n_tokens[order->request[j]] += order->gain[j];
    }
    const double cost = cost_of(order, k, costs);
    for (uint32_t i = 0; i < n; i++) {
        if (n_tokens[i] < SPEED_MIN * cost) {
            return false;
        }
    }
    return true;
}

void draft_plan(const draft_candidate *candidates, uint32_t n, uint32_t n_max, const draft_costs *costs,
                uint32_t *n_drafts)
{
    draft_order order = {.n = 0};
    if (draft_has_costs(costs, n) && n <= DRAFT_REQUESTS_MAX) {
        order_tokens(candidates, n, n_max < DRAFT_TOKENS_MAX ? n_max : DRAFT_TOKENS_MAX, &order, n_drafts);
    }
    uint32_t k = best_number(&order, n, costs);
    while (k > 0 && !harms_nobody(&order, k, n, costs)) {
        k--;
    }
    for (uint32_t i = 0; i < n; i++) {
        n_drafts[i] = 0;
    }
    for (uint32_t j = 0; j < k; j++) {
        n_drafts[order.request[j]]++;
    }
}

void draft_credit_open(draft_credit *credit)
{
    credit->steps = DRAFT_CREDIT_MAX;
}

bool draft_credit_allows(const draft_credit *credit, double cost_steps)
{
    const double most = DRAFT_CREDIT_MAX - CREDIT_KEPT; /* or a wrong estimate would forbid the call that corrects it */
    return credit->steps >= (cost_steps < most ? cost_steps : most) + CREDIT_KEPT;
}

void draft_credit_add(draft_credit *credit, double n_steps)
{
    const double sum = credit->steps + n_steps;
    credit->steps = sum > DRAFT_CREDIT_MAX ? DRAFT_CREDIT_MAX : sum < -DRAFT_CREDIT_MAX ? -DRAFT_CREDIT_MAX : sum;
}

void draft_credit_rest(draft_credit *credit)
{
    draft_credit_add(credit, CREDIT_REST);
}

bool draft_goes_on(double p_right, double cost_steps)
{
    return p_right > cost_steps;
}
