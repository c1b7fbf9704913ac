/* utf8.h: checks whether bytes begin with a UTF-8 character, by Unicode 15, table 3-7. Overlong forms, surrogates and
 * values above U+10FFFF are not UTF-8. Pure function. */
#ifndef LLM_UTF8_H
#define LLM_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct utf8_part {
    uint32_t n_bytes; /* bytes of the character, or of the invalid part that is replaced */
    bool is_valid;
    bool is_cut; /* the available bytes are valid, but the character is incomplete */
} utf8_part;

/* Classifies the character that begins at `p`, which has n > 0 bytes. The first byte alone determines which second
 * bytes are valid. */
static inline utf8_part utf8_part_of(const uint8_t *p, size_t n)
{
    utf8_part part = {1, p[0] < 0x80, false};
    if (p[0] < 0xc2 || p[0] > 0xf4) {
        return part;
    }
    const uint32_t need = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    uint8_t low = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    uint8_t high = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    while (part.n_bytes < need && part.n_bytes < n && p[part.n_bytes] >= low && p[part.n_bytes] <= high) {
        part.n_bytes++;
        low = 0x80;
        high = 0xbf;
    }
    part.is_valid = part.n_bytes == need;
    part.is_cut = !part.is_valid && part.n_bytes == n;
    return part;
}

#endif
