#include "machine/cgroup.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES_MAX = PATH_MAX };

/* If there is no limit, version 1 of control groups reports 2^63 bytes, rounded down to a page. Every value from
 * NO_LIMIT_1 on counts as no limit. */
static const uint64_t NO_LIMIT_1 = (uint64_t)1 << 62;

/* Where version 2 or 1 of control groups keeps one kind of limit, and the function that reads the limit. In version 1,
 * each controller has a tree of its own below the mount. */
typedef struct tree {
    const char *controller; /* NULL for version 2, whose tree is the mount itself */
    uint64_t (*in)(const char *folder, const char *group);
} tree;

/* Returns the path in a line of /proc/self/cgroup, or NULL if the line is not about this controller. An example of a
 * line is "4:cpu,cpuacct:/a.slice". The line of version 2 names no controller, for example "0::/a.slice". */
static const char *path_for(const char *line, const char *controller)
{
    const char *names = strchr(line, ':');
    const char *path = names == NULL ? NULL : strchr(names + 1, ':');
    if (path == NULL) {
        return NULL;
    }
    if (controller == NULL) {
        return strncmp(line, "0::", 3) == 0 ? path + 1 : NULL;
    }
    const size_t n = strlen(controller);
    for (const char *name = names + 1; name < path; name += strcspn(name, ",:") + 1) {
        if (strcspn(name, ",:") == n && strncmp(name, controller, n) == 0) {
            return path + 1;
        }
    }
    return NULL;
}

/* Finds this process's group as a path below the tree: "" or "/system.slice/llmd.service". If a container sees its own
 * group as the root, the kernel reports "/". If the kernel reports "/../x", the group is not below the tree, and only
 * the root can be read. In version 1, the kernel reports the group's path on the host, even in a container. The
 * container's mount shows that group as its root. So the folders of the host's path do not exist there, and count as
 * groups without a limit. */
static void own_group(const char *self, const char *controller, char out[static PATH_MAX])
{
    char line[LINE_BYTES_MAX];
    FILE *file = fopen(self, "re");
    out[0] = '\0';
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        const char *path = path_for(line, controller);
        if (path != NULL && path[0] == '/' && strstr(path, "/..") == NULL) {
            strcpy(out, strcmp(path, "/") == 0 ? "" : path);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

/* Removes the last part of the path. Returns false if the path is the root. */
static bool go_up(char *group)
{
    char *slash = strrchr(group, '/');
    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    return true;
}

static FILE *open_in(const char *mount, const char *group, const char *name)
{
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s%s/%s", mount, group, name);
    return fopen(path, "re");
}

/* Returns the number after `key` at the beginning of a line of the file. If `key` is empty, returns the first number at
 * the beginning of a line. Returns `otherwise` if there is no number, for example if the file says "max". */
static uint64_t number_in(const char *mount, const char *group, const char *name, const char *key, uint64_t otherwise)
{
    char line[256];
    unsigned long long value;
    const size_t n_key = strlen(key);
    FILE *file = open_in(mount, group, name);
    uint64_t out = otherwise;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, n_key) == 0 && sscanf(line + n_key, "%llu", &value) == 1) {
            out = value;
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return out;
}

static uint64_t left_of(uint64_t limit, uint64_t used, uint64_t droppable)
{
    const uint64_t needed = used > droppable ? used - droppable : 0;
    return limit > needed ? limit - needed : 0;
}

/* memory.high is a limit like memory.max, because the kernel throttles a process that exceeds it. */
static uint64_t free_in(const char *mount, const char *group)
{
    const uint64_t high = number_in(mount, group, "memory.high", "", UINT64_MAX);
    const uint64_t max = number_in(mount, group, "memory.max", "", UINT64_MAX);
    const uint64_t limit = high < max ? high : max;
    return limit == UINT64_MAX ? UINT64_MAX
                               : left_of(limit, number_in(mount, group, "memory.current", "", 0),
                                         number_in(mount, group, "memory.stat", "inactive_file ", 0));
}

static uint64_t free_in_1(const char *folder, const char *group)
{
    const uint64_t limit = number_in(folder, group, "memory.limit_in_bytes", "", UINT64_MAX);
    return limit >= NO_LIMIT_1 ? UINT64_MAX
                               : left_of(limit, number_in(folder, group, "memory.usage_in_bytes", "", 0),
                                         number_in(folder, group, "memory.stat", "total_inactive_file ", 0));
}

/* Returns quota / period, rounded up, or INT32_MAX if there is no quota. */
static uint64_t cores_of(double quota, double period)
{
    if (quota <= 0 || period <= 0 || quota / period >= INT32_MAX - 1) {
        return INT32_MAX;
    }
    const int32_t whole = (int32_t)(quota / period);
    return (uint64_t)whole + (quota > whole * period);
}

static uint64_t cores_in(const char *mount, const char *group)
{
    double quota = 0, period = 0;
    FILE *file = open_in(mount, group, "cpu.max");
    const bool has_quota = file != NULL && fscanf(file, "%lf %lf", &quota, &period) == 2;
    if (file != NULL) {
        fclose(file);
    }
    return has_quota ? cores_of(quota, period) : INT32_MAX;
}

/* cpu.cfs_quota_us is -1 without a quota. number_in reads -1 as a huge number. */
static uint64_t cores_in_1(const char *folder, const char *group)
{
    const uint64_t quota = number_in(folder, group, "cpu.cfs_quota_us", "", UINT64_MAX);
    const uint64_t period = number_in(folder, group, "cpu.cfs_period_us", "", 0);
    return quota >= NO_LIMIT_1 ? INT32_MAX : cores_of((double)quota, (double)period);
}

static const tree MEMORY[] = {{NULL, free_in}, {"memory", free_in_1}};
static const tree CORES[] = {{NULL, cores_in}, {"cpu", cores_in_1}};

/* Returns the smallest value that version 1 or version 2 reports for this process's group or a group above it. A
 * machine can use version 1 for some controllers and version 2 for others. */
static uint64_t least(const char *mount, const char *self, const tree trees[static 2])
{
    uint64_t out = UINT64_MAX;
    for (size_t i = 0; i < 2; i++) {
        char folder[PATH_MAX], group[PATH_MAX];
        const char *controller = trees[i].controller;
        snprintf(folder, sizeof folder, "%s%s%s", mount, controller == NULL ? "" : "/",
                 controller == NULL ? "" : controller);
        own_group(self, controller, group);
        do {
            const uint64_t here = trees[i].in(folder, group);
            out = here < out ? here : out;
        } while (go_up(group));
    }
    return out;
}

uint64_t cgroup_memory_free(const char *mount, const char *self)
{
    return least(mount, self, MEMORY);
}

int32_t cgroup_cores(const char *mount, const char *self)
{
    return (int32_t)least(mount, self, CORES);
}
