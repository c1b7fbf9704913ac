/* cgroup.h: what the control groups (version 2) of this process leave it. A service's limit stands at its own group, a
 * container's at an ancestor: the tightest one counts. Any thread. */
#ifndef LLM_CGROUP_H
#define LLM_CGROUP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CGROUP_MOUNT "/sys/fs/cgroup"
#define CGROUP_SELF "/proc/self/cgroup"

/* Bytes of memory until a limit is reached; UINT64_MAX: there is none. Pages that can be dropped count as free. */
uint64_t cgroup_memory_free(const char *mount, const char *self);

/* Processors that the tightest quota is worth, rounded up; INT32_MAX: there is none. */
int32_t cgroup_cores(const char *mount, const char *self);

#ifdef __cplusplus
}
#endif
#endif
