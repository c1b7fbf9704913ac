/* last_words.h: writes the last line of the log when a failed assertion of llama.cpp ends the process in the middle of
 * a step. The line names the sessions of the step, because llama.cpp's own text names only a line of its source. */
#ifndef LLM_LAST_WORDS_H
#define LLM_LAST_WORDS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LAST_WORDS_BYTES_MAX = 2048 };

/* A function that writes a description of the current work to `out`, with a NUL at the end, and changes nothing else.
 * It needs no lock, because the decode thread either waits for the thread whose assertion failed, or is that thread. */
typedef void last_words_work(const void *work, char *out, size_t n_bytes);

/* The decode thread calls this function before each call of llama.cpp that may fail an assertion, and again after that
 * call, with NULL for both arguments. */
void last_words_working(last_words_work *describe, const void *work);

/* Writes the last line to stderr, which goes to the log. Called by any thread. */
void last_words_say(const char *assertion);

#ifdef __cplusplus
}
#endif
#endif
