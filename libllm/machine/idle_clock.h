/* idle_clock.h: the time by which idle sessions expire. It is the wall clock, as their time stamps are, but it never
 * advances faster than time elapses. A machine that starts with a wrong clock and gets the right one a minute later
 * would otherwise forget every session that is not pinned. The price: until the next start, or until the clock is set
 * back, sessions that are used after such a jump expire later by its length. Pure. */
#ifndef LLM_IDLE_CLOCK_H
#define LLM_IDLE_CLOCK_H

#include <stdint.h>

typedef struct idle_clock {
    uint64_t now_ms;
    uint64_t elapsed_ms; /* the elapsed time when now_ms was set; 0: never */
} idle_clock;

/* wall_ms: CLOCK_REALTIME; elapsed_ms, not 0: CLOCK_BOOTTIME, which also counts while the machine is suspended. */
uint64_t idle_clock_now(idle_clock *c, uint64_t wall_ms, uint64_t elapsed_ms);

#endif
