/* last_words.h: the last line in the log when a failed assertion of llama.cpp ends the process in the middle of a step.
 * It names the step's sessions: llama.cpp's own text names only a place in its source. */
#ifndef LLM_LAST_WORDS_H
#define LLM_LAST_WORDS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LAST_WORDS_BYTES_MAX = 2048 };

/* Describes the present work in `out`, ended by a NUL. It changes nothing and may read without a lock: the thread that
 * works waits for the assertion's thread, or is that thread. */
typedef void last_words_work(const void *work, char *out, size_t n_bytes);

/* The decode thread calls it before and after a call that may fail an assertion. NULL, NULL: there is no work. */
void last_words_working(last_words_work *describe, const void *work);

/* Writes one line to stderr, for the log. Any thread. */
void last_words_say(const char *assertion);

#ifdef __cplusplus
}
#endif
#endif
