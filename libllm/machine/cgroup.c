#include "machine/cgroup.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES_MAX = PATH_MAX };

/* Finds this process's group as a path below the mount: "" or "/system.slice/llmd.service". If a container sees its own
 * group as the root, the kernel reports "/". If the kernel reports "/../x", the group is not below the mount, and only
 * the root can be read. */
static void own_group(const char *self, char out[static PATH_MAX])
{
    char line[LINE_BYTES_MAX];
    FILE *file = fopen(self, "re");
    out[0] = '\0';
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "0::/", 4) == 0 && strstr(line, "/..") == NULL) {
            line[strcspn(line, "\n")] = '\0';
            strcpy(out, strcmp(line + 3, "/") == 0 ? "" : line + 3);
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

/* memory.high is a limit like memory.max, because the kernel throttles a process that exceeds it. */
static uint64_t free_in(const char *mount, const char *group)
{
    const uint64_t high = number_in(mount, group, "memory.high", "", UINT64_MAX);
    const uint64_t max = number_in(mount, group, "memory.max", "", UINT64_MAX);
    const uint64_t limit = high < max ? high : max;
    if (limit == UINT64_MAX) {
        return UINT64_MAX;
    }
    const uint64_t used = number_in(mount, group, "memory.current", "", 0);
    const uint64_t droppable = number_in(mount, group, "memory.stat", "inactive_file ", 0);
    const uint64_t needed = used > droppable ? used - droppable : 0;
    return limit > needed ? limit - needed : 0;
}

static uint64_t cores_in(const char *mount, const char *group)
{
    double quota = 0, period = 0;
    FILE *file = open_in(mount, group, "cpu.max");
    const bool has_quota = file != NULL && fscanf(file, "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0;
    if (file != NULL) {
        fclose(file);
    }
    if (!has_quota || quota / period >= INT32_MAX - 1) {
        return INT32_MAX;
    }
    const int32_t whole = (int32_t)(quota / period);
    return (uint64_t)whole + (quota > whole * period);
}

/* Returns the smallest value of this process's group and all groups above it. */
static uint64_t least(const char *mount, const char *self, uint64_t (*in)(const char *mount, const char *group))
{
    char group[PATH_MAX];
    uint64_t out = UINT64_MAX;
    own_group(self, group);
    do {
        const uint64_t here = in(mount, group);
        out = here < out ? here : out;
    } while (go_up(group));
    return out;
}

uint64_t cgroup_memory_free(const char *mount, const char *self)
{
    return least(mount, self, free_in);
}

int32_t cgroup_cores(const char *mount, const char *self)
{
    return (int32_t)least(mount, self, cores_in);
}
