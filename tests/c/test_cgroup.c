/* Tests the limits of control groups, with a tree of files that the test makes. */
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "machine/cgroup.h"
#include "check.h"

static char mount[] = "/tmp/llm-cgroup-XXXXXX";
static char self[64];

static void put(const char *group, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s%s", mount, group);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s%s/%s", mount, group, name);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0);
    fclose(file);
}

static void process_in(const char *line)
{
    snprintf(self, sizeof self, "%s/self", mount);
    put("", "self", line);
}

static void test_without_groups_nothing_is_limited(void)
{
    CHECK(cgroup_memory_free("/no/such", "/no/such") == UINT64_MAX);
    CHECK_INT(cgroup_cores("/no/such", "/no/such"), INT32_MAX);
}

static void test_the_tightest_group_counts(void)
{
    process_in("12:pids:/other\n0::/a.slice/b.service\n");
    put("", "cpu.max", "max 100000\n");
    put("/a.slice", "memory.max", "1000000\n");
    put("/a.slice", "memory.current", "900000\n");
    put("/a.slice", "cpu.max", "350000 100000\n");
    put("/a.slice/b.service", "memory.max", "max\n");
    put("/a.slice/b.service", "memory.current", "100000\n");
    CHECK_INT(cgroup_memory_free(mount, self), 100000);
    CHECK_INT(cgroup_cores(mount, self), 4);
    put("/a.slice/b.service", "memory.max", "150000\n");
    put("/a.slice/b.service", "cpu.max", "200000 100000\n");
    CHECK_INT(cgroup_memory_free(mount, self), 50000);
    CHECK_INT(cgroup_cores(mount, self), 2);
    put("/a.slice/b.service", "memory.high", "120000\n");
    CHECK_INT(cgroup_memory_free(mount, self), 20000);
    put("/a.slice/b.service", "memory.current", "130000\n");
    CHECK_INT(cgroup_memory_free(mount, self), 0);
    put("/a.slice/b.service", "memory.stat", "anon 5\ninactive_file 60000\n");
    CHECK_INT(cgroup_memory_free(mount, self), 50000);
}

static void test_a_container_is_limited_at_its_root(void)
{
    process_in("0::/\n");
    put("", "memory.max", "5000\n");
    put("", "memory.current", "2000\n");
    put("", "cpu.max", "50000 100000\n");
    CHECK_INT(cgroup_memory_free(mount, self), 3000);
    CHECK_INT(cgroup_cores(mount, self), 1);
    process_in("0::/../../elsewhere\n");
    CHECK_INT(cgroup_memory_free(mount, self), 3000);
}

/* Each controller has a tree of its own; the folder of "cpu,cpuacct" also has the name cpu. */
static void test_version_1(void)
{
    put("", "memory.max", "max\n");
    put("", "cpu.max", "max 100000\n");
    process_in("4:cpu,cpuacct:/docker/a\n3:memory:/docker/a\n2:cpuset:/docker/a\n0::/\n");
    put("/memory", "memory.limit_in_bytes", "9223372036854771712\n"); /* no limit */
    put("/memory", "memory.usage_in_bytes", "4000\n");
    put("/cpu", "cpu.cfs_quota_us", "-1\n");
    put("/cpu", "cpu.cfs_period_us", "100000\n");
    CHECK(cgroup_memory_free(mount, self) == UINT64_MAX);
    CHECK_INT(cgroup_cores(mount, self), INT32_MAX);
    /* in a container, whose root is the group itself */
    put("/memory", "memory.limit_in_bytes", "10000\n");
    put("/memory", "memory.stat", "inactive_file 1\ntotal_inactive_file 500\n");
    put("/cpu", "cpu.cfs_quota_us", "250000\n");
    CHECK_INT(cgroup_memory_free(mount, self), 6500);
    CHECK_INT(cgroup_cores(mount, self), 3);
    /* on the host */
    put("/memory/docker", "memory.limit_in_bytes", "9223372036854771712\n");
    put("/memory/docker/a", "memory.limit_in_bytes", "3000\n");
    put("/memory/docker/a", "memory.usage_in_bytes", "1000\n");
    put("/cpu/docker", "cpu.cfs_quota_us", "-1\n");
    put("/cpu/docker/a", "cpu.cfs_quota_us", "50000\n");
    put("/cpu/docker/a", "cpu.cfs_period_us", "100000\n");
    CHECK_INT(cgroup_memory_free(mount, self), 2000);
    CHECK_INT(cgroup_cores(mount, self), 1);
}

static void test_clean_up(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", mount);
    CHECK_INT(system(command), 0);
}

int main(void)
{
    if (mkdtemp(mount) == NULL) {
        return 1;
    }
    RUN(test_without_groups_nothing_is_limited);
    RUN(test_the_tightest_group_counts);
    RUN(test_a_container_is_limited_at_its_root);
    RUN(test_version_1);
    RUN(test_clean_up);
    return CHECK_RESULT();
}
