/* cgroup.h: the memory and processors that the control groups (version 2) allow this process. In a container the
 * system's own figures are for the whole machine, and a process that uses the whole machine's memory would be killed. A
 * service has its limit at its own group, a container at a group above, so the tightest limit of all groups counts. Any
 * thread. */
#ifndef LLM_CGROUP_H
#define LLM_CGROUP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CGROUP_MOUNT "/sys/fs/cgroup"
#define CGROUP_SELF "/proc/self/cgroup"

/* Returns the bytes of memory until a limit is reached, or UINT64_MAX if there is no limit. Pages of files that the
 * kernel can drop count as free. */
uint64_t cgroup_memory_free(const char *mount, const char *self);

/* Returns the number of processors that the tightest quota allows, rounded up, or INT32_MAX if there is no quota. */
int32_t cgroup_cores(const char *mount, const char *self);

#ifdef __cplusplus
}
#endif
#endif
