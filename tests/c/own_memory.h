/* own_memory.h: returns how much memory this process uses, in all its mappings together. A test that cannot read this
 * must fail. */
#ifndef OWN_MEMORY_H
#define OWN_MEMORY_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* `field` is a field of /proc/self/smaps_rollup (proc(5)) with its colon, for example "Rss:". */
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
