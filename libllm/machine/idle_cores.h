/* idle_cores.h: how many of the processors that this process may use were idle lately. team.h asks before it tries one
 * more thread: without a free core, such a trial makes a step several times as long. One thread. */
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
    uint32_t n_cores; /* processors that were counted */
    double n;         /* idle processors, the last result */
} idle_cores;

/* Idle processors, on average since they were counted last. They are counted again after a tenth of a second; until then
 * the last result is returned. 0 at the first call, or after a pause of more than 5 s; below 0 if the kernel does not
 * count. `stat`: IDLE_CORES_STAT. */
double idle_cores_lately(idle_cores *c, const char *stat, uint64_t now_us);

#ifdef __cplusplus
}
#endif
#endif
