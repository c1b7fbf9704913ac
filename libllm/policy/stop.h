/* stop.h: decides which bytes of a generation can be released to the client. Each generation has a filter of its own.
 * Pure functions: they change only the filter and the result.
 *
 * Released text consists of complete UTF-8 characters. Each maximal invalid sequence of bytes is replaced by one U+FFFD
 * (Unicode 15, section 3.9). The text never contains a stop string. While more bytes may come, it does not end with
 * bytes that may be the beginning of a stop string. Offsets count the raw bytes fed since stop_open, before any
 * replacement. */
#ifndef LLM_STOP_H
#define LLM_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llm.h"

enum {
    STOP_FEED_BYTES_MAX = 1024, /* limit on the bytes of one stop_feed */
    STOP_HELD_BYTES_MAX = LLM_STOP_BYTES_MAX + 4,
    STOP_TEXT_BYTES_MAX = 3 * (STOP_HELD_BYTES_MAX + STOP_FEED_BYTES_MAX)
};

typedef struct stop {
    uint32_t n_stops;
    uint32_t stop_bytes[LLM_STOPS_MAX];
    char *stops[LLM_STOPS_MAX]; /* point into one block of memory, which begins at stops[0] */
    uint32_t n_ignored;         /* the first n_ignored stop strings are not searched for */
    uint64_t n_fed;
    uint32_t n_held;
    char held[STOP_HELD_BYTES_MAX + STOP_FEED_BYTES_MAX]; /* bytes that were fed but not released yet */
} stop;

typedef struct stop_result {
    char text[STOP_TEXT_BYTES_MAX]; /* the released text */
    uint32_t n_text;
    int32_t stop_index; /* index of the stop string that was found, or -1 */
    /* raw bytes released by all feeds together. If a stop string was found, this is the offset at which the stop string
     * begins */
    uint64_t n_released;
} stop_result;

/* Copies the stop strings. Returns LLM_OK, LLM_INVALID (limits of llm.h) or LLM_NO_MEMORY. */
int stop_open(stop *s, uint32_t n_stops, const char *const *stops, const size_t *stop_bytes);
void stop_close(stop *s);

/* Takes the next bytes of the generation, at most STOP_FEED_BYTES_MAX. After a stop string was found, no more bytes may
 * be fed. */
void stop_feed(stop *s, const char *bytes, uint32_t n_bytes, stop_result *out);

/* Called when the generation has ended without a stop string. Releases the bytes that were held back. */
void stop_flush(stop *s, stop_result *out);

#endif
