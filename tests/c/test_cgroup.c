/* Limits of control groups, in a tree of files made for the test. */
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
    RUN(test_clean_up);
    return CHECK_RESULT();
}
