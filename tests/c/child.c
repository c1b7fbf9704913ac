#include "child.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Reads to the end: a child that writes more than `log` holds would die of SIGPIPE if the pipe closed before. */
static void read_log(int from, char *log, size_t n_log)
{
    char piece[512];
    size_t n_kept = 0;
    for (ssize_t n; (n = read(from, piece, sizeof piece)) > 0;) {
        const size_t n_free = n_log - 1 - n_kept, n_more = (size_t)n < n_free ? (size_t)n : n_free;
        memcpy(log + n_kept, piece, n_more);
        n_kept += n_more;
    }
    log[n_kept] = '\0';
}

int child_run(void (*act)(void), char *log, size_t n_log)
{
    int ends[2], status = -1;
    log[0] = '\0';
    if (pipe(ends) != 0) {
        return -1;
    }
    fflush(stdout); /* or the child would write the buffered text, too */
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        act();
        _exit(0);
    }
    close(ends[1]);
    if (child > 0) {
        read_log(ends[0], log, n_log);
        if (waitpid(child, &status, 0) != child) {
            status = -1;
        }
    }
    close(ends[0]);
    return status;
}
