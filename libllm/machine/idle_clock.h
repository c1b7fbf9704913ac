/* idle_clock.h: the time by which idle sessions expire. It is the wall clock, as their stamps are, but it never goes on faster
 * than time does: a clock that is set forward must not expire everything at once. Until the next start, or until the clock
 * is set back, what is used after such a jump expires later by as much. Pure. */
#ifndef LLM_IDLE_CLOCK_H
#define LLM_IDLE_CLOCK_H

#include <stdint.h>

typedef struct idle_clock {
    uint64_t now_ms;
    uint64_t elapsed_ms; /* when it was now_ms; 0: not begun */
} idle_clock;

/* wall_ms: CLOCK_REALTIME; elapsed_ms, not 0: CLOCK_BOOTTIME, which goes on while the machine is suspended. */
uint64_t idle_clock_now(idle_clock *c, uint64_t wall_ms, uint64_t elapsed_ms);

#endif
