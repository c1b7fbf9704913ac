#include "machine/idle_clock.h"

uint64_t idle_clock_now(idle_clock *c, uint64_t wall_ms, uint64_t elapsed_ms)
{
    const uint64_t at_most = c->now_ms + (elapsed_ms - c->elapsed_ms);
    c->now_ms = c->elapsed_ms == 0 || wall_ms < at_most ? wall_ms : at_most;
    c->elapsed_ms = elapsed_ms;
    return c->now_ms;
}
