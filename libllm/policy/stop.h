/* stop.h: which bytes of a generation can be released to the client. Pure: bytes in, decision out; one per generation.
 *
 * Released text is whole UTF-8 characters only (a byte that can never become one is replaced by U+FFFD, one per
 * maximal invalid part: Unicode 15, section 3.9) and never contains a stop string or what may still become one.
 * Offsets count raw bytes fed since stop_open. */
#ifndef LLM_STOP_H
#define LLM_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llm.h"

enum {
    STOP_FEED_BYTES_MAX = 1024, /* bytes of one stop_feed, at most */
    STOP_HELD_BYTES_MAX = LLM_STOP_BYTES_MAX + 4,
    STOP_TEXT_BYTES_MAX = 3 * (STOP_HELD_BYTES_MAX + STOP_FEED_BYTES_MAX)
};

typedef struct stop {
    uint32_t n_stops;
    uint32_t stop_bytes[LLM_STOPS_MAX];
    char *stops[LLM_STOPS_MAX]; /* point into one allocation, stops[0] */
    uint32_t n_ignored;         /* the first n are ignored */
    uint64_t n_fed;
    uint32_t n_held;
    char held[STOP_HELD_BYTES_MAX + STOP_FEED_BYTES_MAX]; /* fed but not released */
} stop;

typedef struct stop_result {
    char text[STOP_TEXT_BYTES_MAX]; /* released */
    uint32_t n_text;
    int32_t stop_index; /* index of the stop string found, or -1 */
    /* raw bytes released by all feeds together; at a stop: offset at which the stop string begins */
    uint64_t n_released;
} stop_result;

/* Copies the strings. LLM_OK, LLM_INVALID (limits of llm.h), LLM_NO_MEMORY. */
int stop_open(stop *s, uint32_t n_stops, const char *const *stops, const size_t *stop_bytes);
void stop_close(stop *s);

/* Feeds up to STOP_FEED_BYTES_MAX bytes. After a stop string, no more bytes may be fed. */
void stop_feed(stop *s, const char *bytes, uint32_t n_bytes, stop_result *out);

/* The generation has ended without a stop string: bytes held back are released as text. */
void stop_flush(stop *s, stop_result *out);

#endif
