/* random.h: a seeded generator for property tests (xorshift64*, Vigna 2016). */
#ifndef RANDOM_H
#define RANDOM_H

#include <stdint.h>

typedef struct random_source {
    uint64_t state; /* not 0 */
} random_source;

static inline uint64_t random_next(random_source *r)
{
    r->state ^= r->state >> 12;
    r->state ^= r->state << 25;
    r->state ^= r->state >> 27;
    return r->state * 0x2545f4914f6cdd1dull;
}

/* Returns a random number from 0 to n - 1. */
static inline uint32_t random_below(random_source *r, uint32_t n)
{
    return (uint32_t)((random_next(r) >> 33) % n);
}

#endif
