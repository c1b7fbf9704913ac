#include "policy/stop.h"

#include <stdlib.h>
#include <string.h>

#include "policy/utf8.h"

int stop_open(stop *s, uint32_t n_stops, const char *const *stops, const size_t *stop_bytes)
{
    memset(s, 0, sizeof *s);
    size_t total = 0;
    for (uint32_t i = 0; i < n_stops; i++) {
        if (i >= LLM_STOPS_MAX || stop_bytes[i] == 0 || stop_bytes[i] > LLM_STOP_BYTES_MAX) {
            return LLM_INVALID;
        }
        total += stop_bytes[i];
    }
    if (n_stops == 0) {
        return LLM_OK;
    }
    char *at = malloc(total);
    if (at == NULL) {
        return LLM_NO_MEMORY;
    }
    for (uint32_t i = 0; i < n_stops; i++) {
        memcpy(at, stops[i], stop_bytes[i]);
        s->stops[i] = at;
        s->stop_bytes[i] = (uint32_t)stop_bytes[i];
        at += stop_bytes[i];
    }
    s->n_stops = n_stops;
    return LLM_OK;
}

void stop_close(stop *s)
{
    free(s->stops[0]);
    memset(s, 0, sizeof *s);
}

/* Returns the index of the stop string that begins first in the held bytes. Returns -1 if there is none. If several
 * stop strings begin at that byte, returns the longest. */
static int32_t find(const stop *s, uint32_t *offset)
{
    for (uint32_t at = 0; at < s->n_held; at++) {
        int32_t best = -1;
        for (uint32_t i = s->n_ignored; i < s->n_stops; i++) {
            const uint32_t n = s->stop_bytes[i];
            if (n <= s->n_held - at && memcmp(s->held + at, s->stops[i], n) == 0 &&
                (best < 0 || n > s->stop_bytes[best])) {
                best = (int32_t)i;
            }
        }
        if (best >= 0) {
            *offset = at;
            return best;
        }
    }
    return -1;
}

/* Returns the number of held bytes before the first position where a stop string may have begun. */
static uint32_t clear_of_stops(const stop *s)
{
    for (uint32_t at = 0; at < s->n_held; at++) {
        const uint32_t rest = s->n_held - at;
        for (uint32_t i = s->n_ignored; i < s->n_stops; i++) {
            if (rest < s->stop_bytes[i] && memcmp(s->held + at, s->stops[i], rest) == 0) {
                return at;
            }
        }
    }
    return s->n_held;
}

/* Moves the first n held bytes to the result, as complete characters. An incomplete character at the end stays held.
 * But with `last`, it is replaced by U+FFFD, as invalid bytes always are. */
static void release(stop *s, uint32_t n, bool last, stop_result *out)
{
    static const char replacement[] = "\xef\xbf\xbd";
    uint32_t at = 0;
    while (at < n) {
        const utf8_part c = utf8_part_of((const uint8_t *)s->held + at, n - at);
        if (c.is_cut && !last) {
            break;
        }
        const char *from = c.is_valid ? s->held + at : replacement;
        const uint32_t size = c.is_valid ? c.n_bytes : sizeof replacement - 1;
        memcpy(out->text + out->n_text, from, size);
        out->n_text += size;
        at += c.n_bytes;
    }
    s->n_held -= at;
    memmove(s->held, s->held + at, s->n_held);
}

void stop_feed(stop *s, const char *bytes, uint32_t n_bytes, stop_result *out)
{
    out->n_text = 0;
    out->stop_index = -1;
    memcpy(s->held + s->n_held, bytes, n_bytes);
    s->n_held += n_bytes;
    s->n_fed += n_bytes;

    uint32_t offset = 0;
    const int32_t found = s->n_ignored < s->n_stops ? find(s, &offset) : -1;
    if (found >= 0) {
        const uint64_t begins = s->n_fed - s->n_held + offset;
        release(s, offset, true, out);
        s->n_held = 0;
        out->stop_index = found;
        out->n_released = begins;
        return;
    }
    release(s, clear_of_stops(s), false, out);
    out->n_released = s->n_fed - s->n_held;
}

void stop_flush(stop *s, stop_result *out)
{
    out->n_text = 0;
    out->stop_index = -1;
    release(s, s->n_held, true, out);
    out->n_released = s->n_fed;
}
