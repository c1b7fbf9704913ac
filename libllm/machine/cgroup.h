/* cgroup.h: how much memory and how many processors the control groups (versions 1 and 2) allow this process. In a
 * container, the system's own figures describe the whole machine. The kernel would kill a process that uses as much
 * memory as these figures allow. The limit of a service is set in the group of the process. The limit of a container is
 * set in a group above the group of the process. So the tightest limit of the process's group and of all groups above
 * it counts. Called by any thread. */
#ifndef LLM_CGROUP_H
#define LLM_CGROUP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CGROUP_MOUNT "/sys/fs/cgroup"
#define CGROUP_SELF "/proc/self/cgroup"

/* Returns how many more bytes of memory the process can use before it reaches a limit. Returns UINT64_MAX if there is
 * no limit. Cached pages of files, which the kernel can drop, count as free. */
uint64_t cgroup_memory_free(const char *mount, const char *self);

/* Returns the number of processors that the tightest quota allows, rounded up. Returns INT32_MAX if there is no
 * quota. */
int32_t cgroup_cores(const char *mount, const char *self);

#ifdef __cplusplus
}
#endif
#endif
