/* own_memory.h: what this process has in memory, of all its mappings. A test that cannot read it must not pass. */
#ifndef OWN_MEMORY_H
#define OWN_MEMORY_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* `field` is one of /proc/self/smaps_rollup (proc(5)), its colon included: "Rss:". */
static inline long own_memory_kib(const char *field)
{
    const size_t n = strlen(field);
    long kib = -1;
    char line[256];
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    while (f != NULL && kib < 0 && fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, field, n) == 0) {
            kib = strtol(line + n, NULL, 10);
        }
    }
    if (kib < 0) {
        abort();
    }
    fclose(f);
    return kib;
}

#endif
