/* child.h: runs a function in a child process and returns what the child writes to stderr, for tests of how a process
 * ends. */
#ifndef CHILD_H
#define CHILD_H

#include <stddef.h>

/* Runs `act` in a fork of this process, in which only the calling thread exists. The child exits with 0 if `act`
 * returns. Writes the beginning of the child's stderr to `log`, at most n_log - 1 bytes. Returns the child's status
 * from waitpid. Returns -1, which is neither an exit nor a signal, if the pipe or the child cannot be made. */
int child_run(void (*act)(void), char *log, size_t n_log);

#endif
