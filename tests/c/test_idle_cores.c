#define _GNU_SOURCE /* sched_getaffinity */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "machine/idle_cores.h"

enum { MS = 1000, BUSY_TICKS = 30, IDLE_TICKS = 60, WAITING_TICKS = 10 };

static char path[] = "/tmp/llmd-test-stat-XXXXXX";

/* Writes a /proc/stat in which each processor was busy, idle, and waiting for a disk for `n` times the numbers of ticks
 * above. */
static void write_stat(int n)
{
    FILE *file = fopen(path, "w");
    fprintf(file, "cpu  1 2 3 4 5 6 7 8 9 10\n");
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        fprintf(file, "cpu%d %d 0 0 %d %d 0 0 0 0 0\n", cpu, n * BUSY_TICKS, n * IDLE_TICKS, n * WAITING_TICKS);
    }
    fprintf(file, "intr 1 2 3\n");
    fclose(file);
}

static int n_allowed(void)
{
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 0;
}

static void test_a_window_counts(void)
{
    idle_cores c = {0};
    write_stat(5);
    CHECK(idle_cores_lately(&c, path, 1000 * MS) == 0);
    write_stat(6);
    CHECK(idle_cores_lately(&c, path, 1050 * MS) == 0);
    const int tenths = (int)(idle_cores_lately(&c, path, 1100 * MS) * 10 + 0.5);
    CHECK_INT(tenths, 7 * n_allowed());
    write_stat(7);
    CHECK_INT((int)(idle_cores_lately(&c, path, 1150 * MS) * 10 + 0.5), tenths);
}

/* A measurement over a long time without calls says nothing about the present. */
static void test_what_is_old_does_not_count(void)
{
    idle_cores c = {0};
    write_stat(1);
    idle_cores_lately(&c, path, 1000 * MS);
    write_stat(100);
    CHECK(idle_cores_lately(&c, path, 9000 * MS) == 0);
}

/* The kernel's counter of waiting for a disk can decrease. Then the measurement starts again. */
static void test_a_counter_that_goes_down_does_not_count(void)
{
    idle_cores c = {0};
    write_stat(8);
    idle_cores_lately(&c, path, 1000 * MS);
    write_stat(7);
    CHECK(idle_cores_lately(&c, path, 1200 * MS) == 0);
    write_stat(8);
    CHECK_INT((int)(idle_cores_lately(&c, path, 1400 * MS) * 10 + 0.5), 7 * n_allowed());
}

static void test_where_nobody_counts(void)
{
    idle_cores c = {0}, still = {0};
    CHECK(idle_cores_lately(&c, "/nonexistent", 1000 * MS) < 0);
    write_stat(0);
    idle_cores_lately(&still, path, 1000 * MS);
    CHECK(idle_cores_lately(&still, path, 1200 * MS) < 0);
}

int main(void)
{
    close(mkstemp(path));
    RUN(test_a_window_counts);
    RUN(test_what_is_old_does_not_count);
    RUN(test_a_counter_that_goes_down_does_not_count);
    RUN(test_where_nobody_counts);
    unlink(path);
    return CHECK_RESULT();
}
