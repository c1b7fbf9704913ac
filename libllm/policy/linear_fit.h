/* linear_fit.h: cost as a linear function of size, fitted to recent measurements with exponential forgetting, and how far the
 * latest measurements lie from the fit. Pure. */
#ifndef LLM_LINEAR_FIT_H
#define LLM_LINEAR_FIT_H

/* Sums in which older measurements weigh less. All zero: nothing is known. */
typedef struct linear_fit {
    double weight, x, y, xx, xy;
    double drift; /* the latest measurements are so many times what the fit says */
} linear_fit;

void linear_fit_learn(linear_fit *l, double x, double y);

/* What to expect at x; never less than a quarter of the average. 0: nothing is known. */
double linear_fit_at(const linear_fit *l, double x);

#endif
