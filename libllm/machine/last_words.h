/* last_words.h: what is said when an assertion that failed ends the process in the middle of a step. */
#ifndef LLM_LAST_WORDS_H
#define LLM_LAST_WORDS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LAST_WORDS_BYTES_MAX = 2048 };

/* Writes what is being worked on into `out`, ended by a NUL. Changes nothing; whoever works on it stands still meanwhile. */
typedef void last_words_work(const void *work, char *out, size_t n_bytes);

/* The decode thread: around a call that may fail an assertion. NULL, NULL: nothing is being worked on. */
void last_words_working(last_words_work *describe, const void *work);

/* Any thread: one line on stderr, for whoever reads the log. */
void last_words_say(const char *assertion);

#ifdef __cplusplus
}
#endif
#endif
