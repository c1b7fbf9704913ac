/* linear_fit.h: cost as a linear function of size, fitted to recent measurements with exponential forgetting. The fit
 * is corrected by the ratio of the latest measurements to the fitted costs. Pure functions. */
#ifndef LLM_LINEAR_FIT_H
#define LLM_LINEAR_FIT_H

/* Sums over the measurements, each of a size x and a cost y. Older measurements weigh less. All sums are zero before
 * the first measurement. */
typedef struct linear_fit {
    double weight, x, y, xx, xy;
    double drift; /* factor that corrects the fit: ratio of the latest measurements to the fit */
} linear_fit;

void linear_fit_learn(linear_fit *l, double x, double y);

/* Returns the expected cost at x, but at least a quarter of the average cost. Returns 0 before the first
 * measurement. */
double linear_fit_at(const linear_fit *l, double x);

#endif
