#include "policy/linear_fit.h"

/* Each new measurement multiplies the weights of all earlier ones by KEPT. Thus about thirty measurements count. */
static const double KEPT = 0.97;
static const double DRIFT_SHARE = 0.3, DRIFT_MIN = 0.25, DRIFT_MAX = 4;
/* limits on the ratio of measured to expected cost: a ratio beyond a limit is an outlier and counts as the limit */
static const double SURPRISE_MIN = 0.5, SURPRISE_MAX = 2;
static const double VARIANCE_MIN = 64 * 64; /* if the variance of x is less, the slope cannot be measured */

static double within(double value, double least, double most)
{
    return value < least ? least : value > most ? most : value;
}

double linear_fit_at(const linear_fit *l, double x)
{
    if (l->weight <= 0) {
        return 0;
    }
    const double mean_x = l->x / l->weight, mean_y = l->y / l->weight;
    const double variance = l->xx / l->weight - mean_x * mean_x, covariance = l->xy / l->weight - mean_x * mean_y;
    const double steep = variance > VARIANCE_MIN && covariance > 0 ? covariance / variance : 0;
    const double at = mean_y + steep * (x - mean_x);
    return l->drift * (at > mean_y / 4 ? at : mean_y / 4);
}

void linear_fit_learn(linear_fit *l, double x, double y)
{
    const double expected = linear_fit_at(l, x);
    const double surprise = expected > 0 ? within(y / expected, SURPRISE_MIN, SURPRISE_MAX) : 1;
    l->drift = expected > 0 ? within(l->drift * (1 + DRIFT_SHARE * (surprise - 1)), DRIFT_MIN, DRIFT_MAX) : 1;
    l->weight = KEPT * l->weight + 1;
    l->x = KEPT * l->x + x;
    l->y = KEPT * l->y + y;
    l->xx = KEPT * l->xx + x * x;
    l->xy = KEPT * l->xy + x * y;
}
