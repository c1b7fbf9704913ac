/* cgroup.h: the memory and processors that the control groups (version 2) of this process leave it. In a container the
 * system's own figures are those of the whole machine: a model sized by them would be killed. A service's limit is at
 * its own group, a container's at an ancestor: the tightest one counts. Any thread. */
#ifndef LLM_CGROUP_H
#define LLM_CGROUP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CGROUP_MOUNT "/sys/fs/cgroup"
#define CGROUP_SELF "/proc/self/cgroup"

/* Bytes of memory until a limit is reached; UINT64_MAX: there is no limit. Pages of files that can be dropped count as
 * free. */
uint64_t cgroup_memory_free(const char *mount, const char *self);

/* Returns the number of processors that the tightest quota allows, rounded up; INT32_MAX: there is no quota. */
int32_t cgroup_cores(const char *mount, const char *self);

#ifdef __cplusplus
}
#endif
#endif
