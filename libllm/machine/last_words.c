#include "machine/last_words.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

/* Written by the decode thread. Read by the thread whose assertion failed. That is the decode thread itself, or a
 * thread for which the decode thread waits. */
static _Atomic(last_words_work *) describes;
static _Atomic(const void *) works_on;

void last_words_working(last_words_work *describe, const void *work)
{
    atomic_store(&works_on, work);
    atomic_store(&describes, describe);
}

void last_words_say(const char *assertion)
{
    char work[LAST_WORDS_BYTES_MAX] = "no session", line[2 * LAST_WORDS_BYTES_MAX];
    last_words_work *describe = atomic_load(&describes);
    if (describe != NULL) {
        describe(atomic_load(&works_on), work, sizeof work);
    }
    const int n = snprintf(line, sizeof line,
                           "llmd: an assertion of llama.cpp failed and ends the process: %.1024s; in the step: %s\n",
                           assertion, work);
    /* unbuffered, because abort() follows */
    const ssize_t ignored = write(STDERR_FILENO, line, n < (int)sizeof line ? (size_t)n : sizeof line - 1);
    (void)ignored;
}
