/* clock.h: reads the clocks of the system, in whole nanoseconds, microseconds or milliseconds. Called by any thread. */
#ifndef LLM_CLOCK_H
#define LLM_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t clock_us(void)
{
    return clock_ns(CLOCK_MONOTONIC) / 1000u;
}

static inline uint64_t clock_ms(void)
{
    return clock_ns(CLOCK_REALTIME) / 1000000u;
}

static inline uint64_t clock_elapsed_ms(void)
{
    return clock_ns(CLOCK_BOOTTIME) / 1000000u;
}

#endif
