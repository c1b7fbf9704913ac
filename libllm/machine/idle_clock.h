/* idle_clock.h: the clock by which idle sessions expire. The idle clock shows the time of the wall clock, like the time
 * stamps of sessions. But it never advances faster than time elapses. This protects a machine that starts with a wrong
 * clock and corrects it a minute later. With the plain wall clock, the correction would expire every session that is
 * not pinned. The disadvantage: sessions that are used after such a jump expire later, by the length of the jump. The
 * delay ends at the next start of the daemon, or when the wall clock is set back. Pure functions. */
#ifndef LLM_IDLE_CLOCK_H
#define LLM_IDLE_CLOCK_H

#include <stdint.h>

typedef struct idle_clock {
    uint64_t now_ms;
    uint64_t elapsed_ms; /* the elapsed time at the call that set now_ms; 0 before the first call */
} idle_clock;

/* Returns the clock's time. `wall_ms` is CLOCK_REALTIME. `elapsed_ms` is CLOCK_BOOTTIME, which also advances while the
 * machine is suspended. `elapsed_ms` must not be 0. */
uint64_t idle_clock_now(idle_clock *c, uint64_t wall_ms, uint64_t elapsed_ms);

#endif
