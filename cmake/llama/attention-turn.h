/* attention-turn.h: transposes a square of 16 rows with 16 numbers (or pairs of bf16) of 32 bits. Each row is a
 * register. The transposition takes 64 shuffles and no memory access. */
#pragma once

#if defined(__AVX512F__)

#include <immintrin.h>

namespace attention_turn {

/* Works in four rounds of 16 shuffles. The first round exchanges single numbers, the second pairs, and the last two
 * quarters of a register. */
inline void turn(__m512i *rows)
{
    __m512i by_2[16], by_4[16];
    for (int i = 0; i < 16; i += 2) {
        by_2[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        by_2[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        by_4[i] = _mm512_unpacklo_epi64(by_2[i], by_2[i + 2]);
        by_4[i + 1] = _mm512_unpackhi_epi64(by_2[i], by_2[i + 2]);
        by_4[i + 2] = _mm512_unpacklo_epi64(by_2[i + 1], by_2[i + 3]);
        by_4[i + 3] = _mm512_unpackhi_epi64(by_2[i + 1], by_2[i + 3]);
    }
    for (int i = 0; i < 4; ++i) {
        const __m512i even_upper = _mm512_shuffle_i32x4(by_4[i], by_4[4 + i], 0x88);
        const __m512i odd_upper = _mm512_shuffle_i32x4(by_4[i], by_4[4 + i], 0xdd);
        const __m512i even_lower = _mm512_shuffle_i32x4(by_4[8 + i], by_4[12 + i], 0x88);
        const __m512i odd_lower = _mm512_shuffle_i32x4(by_4[8 + i], by_4[12 + i], 0xdd);
        rows[i] = _mm512_shuffle_i32x4(even_upper, even_lower, 0x88);
        rows[4 + i] = _mm512_shuffle_i32x4(odd_upper, odd_lower, 0x88);
        rows[8 + i] = _mm512_shuffle_i32x4(even_upper, even_lower, 0xdd);
        rows[12 + i] = _mm512_shuffle_i32x4(odd_upper, odd_lower, 0xdd);
    }
}

} // namespace attention_turn

#endif
