/* idle_cores.h: measures how many of this process's processors were idle lately. team.h uses this number before it
 * tries an additional thread. Without a free core, such a trial makes a step several times as long. Used by one
 * thread. */
#ifndef LLM_IDLE_CORES_H
#define LLM_IDLE_CORES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define IDLE_CORES_STAT "/proc/stat"

typedef struct idle_cores {
    uint64_t since_us; /* when the kernel's counts of ticks were last read; 0 before the first read */
    uint64_t idle_ticks, all_ticks;
    uint32_t n_cores; /* number of processors that were counted */
    double n;         /* number of idle processors: the last result of idle_cores_lately */
} idle_cores;

/* Returns the average number of idle processors since the kernel's counts were last read. Before a tenth of a second
 * has passed, returns the last result without another read. Returns 0 at the first call and after a pause of more than
 * 5 s. Returns a negative number if the kernel has no such counts. `stat` is IDLE_CORES_STAT. */
double idle_cores_lately(idle_cores *c, const char *stat, uint64_t now_us);

#ifdef __cplusplus
}
#endif
#endif
