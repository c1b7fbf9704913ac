/* idle_cores.h: how many of the processors that this process may use had nothing to do lately. One thread. */
#ifndef LLM_IDLE_CORES_H
#define LLM_IDLE_CORES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define IDLE_CORES_STAT "/proc/stat"

typedef struct idle_cores {
    uint64_t since_us; /* when ticks were counted last; 0: never */
    uint64_t idle_ticks, all_ticks;
    uint32_t n_cores; /* that were counted */
    double n;
} idle_cores;

/* `stat`: IDLE_CORES_STAT. Of a tenth of a second that has just ended; 0 before one has, below 0 where nobody counts. */
double idle_cores_lately(idle_cores *c, const char *stat, uint64_t now_us);

#ifdef __cplusplus
}
#endif
#endif
