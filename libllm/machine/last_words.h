/* last_words.h: the last line in the log when a failed assertion of llama.cpp ends the process in the middle of a step.
 * The line names the step's sessions, because llama.cpp's own text names only a line of its source. */
#ifndef LLM_LAST_WORDS_H
#define LLM_LAST_WORDS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LAST_WORDS_BYTES_MAX = 2048 };

/* Writes a description of the current work to `out`, with a NUL at the end. The function changes nothing else. No lock
 * is needed, because the decode thread waits for the thread of the assertion, or is that thread. */
typedef void last_words_work(const void *work, char *out, size_t n_bytes);

/* The decode thread calls this before and after a call that may fail an assertion. After the call, both arguments are
 * NULL. */
void last_words_working(last_words_work *describe, const void *work);

/* Writes one line to stderr, for the log. Any thread. */
void last_words_say(const char *assertion);

#ifdef __cplusplus
}
#endif
#endif
