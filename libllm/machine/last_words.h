/* last_words.h: writes the last line of the log after a failed assertion of llama.cpp. Such an assertion ends the
 * process. The line names the sessions of the current step. llama.cpp's own text names only a line of its source. */
#ifndef LLM_LAST_WORDS_H
#define LLM_LAST_WORDS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LAST_WORDS_BYTES_MAX = 2048 };

/* A function that writes a description of the current work to `out`, with a NUL at the end, and changes nothing else.
 * It needs no lock, because the decode thread is the caller or waits for the caller. */
typedef void last_words_work(const void *work, char *out, size_t n_bytes);

/* Called by the decode thread before each call of llama.cpp that may fail an assertion. Called again after that call,
 * with NULL for both arguments. */
void last_words_working(last_words_work *describe, const void *work);

/* Writes the last line to stderr, which goes to the log. Called by any thread. */
void last_words_say(const char *assertion);

#ifdef __cplusplus
}
#endif
#endif
