/* character.h: decodes one UTF-8 character byte by byte. A token can end in the middle of a character. */
#ifndef LLM_CHARACTER_H
#define LLM_CHARACTER_H

#include <cstdint>

struct character {
    uint32_t value = 0;
    uint8_t n_missing = 0; /* number of missing bytes. 0 if the character is complete */

    /* Adds the next byte. Returns false if UTF-8 does not allow this byte after the bytes so far. Overlong forms,
     * surrogates and values above U+10FFFF are not UTF-8 (Unicode, table 3-7). */
    bool take(uint8_t byte)
    {
        if (n_missing > 0) {
            if (!goes_on(byte)) {
                return false;
            }
            value = value << 6 | (byte & 0x3fu);
            n_missing--;
        } else if (byte < 0x80) {
            value = byte;
        } else if (byte < 0xc2 || byte > 0xf4) {
            return false;
        } else {
            n_missing = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
            value = byte & (0x3fu >> n_missing);
        }
        return true;
    }

    /* The smallest and the largest character that this incomplete character can become. The first bytes 0xe0 and 0xf0
     * contribute no bits to the value. An encoding that begins with 0xe0 stands for at least U+0800. An encoding that
     * begins with 0xf0 stands for at least U+10000. Smaller characters have shorter encodings. */
    uint32_t least() const
    {
        const uint32_t shortest = n_missing == 2 ? 0x800 : 0x10000;
        return value == 0 && n_missing > 1 ? shortest : value << 6 * n_missing;
    }
    uint32_t most() const
    {
        return value << 6 * n_missing | ((1u << 6 * n_missing) - 1);
    }

  private:
    bool goes_on(uint8_t byte) const
    {
        if (byte >> 6 != 2) {
            return false;
        }
        if (n_missing == 2) {
            return value == 0 ? byte >= 0xa0 : value != 0xd || byte < 0xa0;
        }
        return n_missing < 2 || (value == 0 ? byte >= 0x90 : value != 4 || byte < 0x90);
    }
};

#endif
