#define _GNU_SOURCE /* sched_getaffinity */
#include "machine/idle_cores.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { WINDOW_US = 100000, STALE_US = 5000000 };

typedef struct ticks {
    uint64_t idle, all;
    uint32_t n_cores;
} ticks;

/* Adds a line of /proc/stat, whose numbers are user, nice, system, idle, iowait, irq, softirq and steal. */
static void add_line(const char *line, const cpu_set_t *allowed, ticks *t)
{
    unsigned cpu = 0;
    unsigned long long of[8] = {0};
    if (line[3] == ' ' || /* the line with the sum of all processors */
        sscanf(line, "cpu%u %llu %llu %llu %llu %llu %llu %llu %llu", &cpu, &of[0], &of[1], &of[2], &of[3], &of[4],
               &of[5], &of[6], &of[7]) != 9 ||
        cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, allowed)) {
        return;
    }
    t->n_cores++;
    t->idle += of[3] + of[4];
    for (int i = 0; i < 8; i++) {
        t->all += of[i];
    }
}

/* Sums up the ticks of the processors that this process may use. The lines of the processors come first in the file. */
static bool count(const char *stat, ticks *t)
{
    cpu_set_t allowed;
    char line[256];
    FILE *file = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? fopen(stat, "re") : NULL;
    if (file == NULL) {
        return false;
    }
    while (fgets(line, sizeof line, file) != NULL && strncmp(line, "cpu", 3) == 0) {
        add_line(line, &allowed, t);
    }
    fclose(file);
    return t->n_cores > 0;
}

double idle_cores_lately(idle_cores *c, const char *stat, uint64_t now_us)
{
    const uint64_t us = now_us - c->since_us;
    if (c->since_us != 0 && us < WINDOW_US) {
        return c->n;
    }
    ticks t = {0};
    const bool is_counted = count(stat, &t);
    const bool is_same = t.n_cores == c->n_cores && t.idle >= c->idle_ticks && t.all >= c->all_ticks;
    /* Counts that have decreased are not compared. The kernel's documentation says that iowait can decrease. The
     * difference would wrap, and every core would seem idle. */
    const bool is_first = c->since_us == 0 || us > STALE_US || !is_same;
    const uint64_t n_all = t.all - c->all_ticks;
    c->n = !is_counted  ? -1
           : is_first   ? 0
           : n_all == 0 ? -1
                        : (double)(t.idle - c->idle_ticks) * t.n_cores / (double)n_all;
    *c = (idle_cores){.since_us = now_us, .idle_ticks = t.idle, .all_ticks = t.all, .n_cores = t.n_cores, .n = c->n};
    return c->n;
}
