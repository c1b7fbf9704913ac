/* line.h: what something costs by how much of something there is, by what was measured lately: a straight line, and how far the
 * latest measurements lie from all of it. Pure. */
#ifndef LLM_LINE_H
#define LLM_LINE_H

/* Sums in which older measurements weigh less. All zero: nothing is known. */
typedef struct line {
    double weight, x, y, xx, xy;
    double drift; /* the latest ones are so many times what the line says */
} line;

void line_learn(line *l, double x, double y);

/* What to expect at x; never less than a quarter of the average. 0: nothing is known. */
double line_at(const line *l, double x);

#endif
