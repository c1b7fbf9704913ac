/* weights-lanes.h: the instructions of weights-rows.h, weights-32.h and weights-k.h, which are written once: for registers
 * of 512 bits (AVX-512) or 256 bits (AVX2), with VNNI or without it.
 *
 * A register of 512 bits holds the sixteen lanes of a group, and two groups are multiplied at a time. Of 256 bits, a group
 * takes two registers, its PIECES, and one group is multiplied at a time. Both have two COLUMNS of sums for a row. */
#ifndef WEIGHTS_LANES_H
#define WEIGHTS_LANES_H

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace weights_rows {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define WEIGHTS_BY_512
#define WEIGHTS_OP(name) _mm512_##name
using ints = __m512i;
using floats = __m512;
#else
#define WEIGHTS_OP(name) _mm256_##name
using ints = __m256i;
using floats = __m256;
#endif

constexpr int LANES = 16;               /* weight rows of a group */
constexpr int LINE = LANES * 4;         /* bytes: four of each lane */
constexpr int PIECE = sizeof(ints);     /* bytes of a line in a register */
constexpr int PIECES = LINE / PIECE;    /* registers of a line */
constexpr int GROUPS_MOST = 2 / PIECES; /* multiplied at a time */
constexpr int STEPS_MOST = 2 / PIECES;  /* whose weights are loaded together */

inline uint32_t four_of(const void *from)
{
    uint32_t four;
    memcpy(&four, from, sizeof four);
    return four;
}

/* ---- bytes ---- */

inline ints load(const uint8_t *from)
{
    ints all;
    memcpy(&all, from, sizeof all);
    return all;
}

inline void store(uint8_t *to, ints all)
{
    memcpy(to, &all, sizeof all);
}

/* The same four bytes in each lane. */
inline ints all_of(const void *four)
{
    return WEIGHTS_OP(set1_epi32)(static_cast<int32_t>(four_of(four)));
}

/* The same sixteen bytes in each quarter of a line. */
inline ints repeated(__m128i bytes)
{
#ifdef WEIGHTS_BY_512
    return _mm512_broadcast_i32x4(bytes);
#else
    return _mm256_broadcastsi128_si256(bytes);
#endif
}

/* Returns the lower (upper) 4 bits of each byte. */
inline ints low_of(ints bytes)
{
    return bytes & WEIGHTS_OP(set1_epi8)(0x0f);
}

inline ints high_of(ints bytes)
{
    return low_of(WEIGHTS_OP(srli_epi16)(bytes, 4));
}

/* Words shifted to the left by n bits; n < 0: to the right. Bits that pass from one byte to the other are for a mask to
 * remove. */
inline ints shifted(ints words, int n)
{
    return n >= 0 ? WEIGHTS_OP(slli_epi16)(words, n) : WEIGHTS_OP(srli_epi16)(words, -n);
}

/* low, with the bits of `upper` that are in the mask. */
inline ints over(ints low, ints upper, char mask)
{
#ifdef WEIGHTS_BY_512
    return _mm512_ternarylogic_epi32(_mm512_set1_epi8(mask), upper, low, 0xea);
#else
    return (_mm256_set1_epi8(mask) & upper) | low;
#endif
}

/* Looks quants of 4 bits up in a table of sixteen values. PLUS is added because products take the weights as unsigned
 * bytes; the activations make up for it (their `offsets` or `sums`). */
template <int PLUS> ints value_plus(const int8_t *of, ints quants)
{
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i *>(of));
    return WEIGHTS_OP(shuffle_epi8)(repeated(_mm_add_epi8(values, _mm_set1_epi8(static_cast<char>(PLUS)))), quants);
}

/* ---- numbers, one or two in each lane ---- */

inline ints ints_of(const void *bytes)
{
#ifdef WEIGHTS_BY_512
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i *>(bytes)));
#else
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i *>(bytes)));
#endif
}

inline ints unsigned_ints_of(const void *bytes)
{
#ifdef WEIGHTS_BY_512
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i *>(bytes)));
#else
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i *>(bytes)));
#endif
}

inline ints unsigned_words_of(const void *bytes)
{
#ifdef WEIGHTS_BY_512
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256(static_cast<const __m256i *>(bytes)));
#else
    return _mm256_cvtepu8_epi16(_mm_loadu_si128(static_cast<const __m128i *>(bytes)));
#endif
}

/* Adds the products of two words in each lane to a sum. */
inline ints add_words(ints sum, ints a, ints b)
{
#if defined(WEIGHTS_BY_512) && defined(__AVX512VNNI__)
    return _mm512_dpwssd_epi32(sum, a, b);
#elif defined(__AVXVNNI__) && !defined(WEIGHTS_BY_512)
    return _mm256_dpwssd_avx_epi32(sum, a, b);
#else
    return WEIGHTS_OP(add_epi32)(sum, WEIGHTS_OP(madd_epi16)(a, b));
#endif
}

/* In each lane, a where n <= most, otherwise b. */
inline ints where_at_most(ints n, int most, ints a, ints b)
{
#ifdef WEIGHTS_BY_512
    return _mm512_mask_mov_epi32(b, _mm512_cmple_epi32_mask(n, _mm512_set1_epi32(most)), a);
#else
    return _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi32(n, _mm256_set1_epi32(most)));
#endif
}

inline floats halves_of(const void *from)
{
#ifdef WEIGHTS_BY_512
    return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i *>(from)));
#else
    return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i *>(from)));
#endif
}

/* ---- products ---- */

/* Returns a number that the compiler must have in a register here. Otherwise gcc adds the products of all steps up in
 * another order, for which it has too few registers (Q8_0 with AVX2: 36 instead of 66 GMAC/s), or loads the same weights
 * again for each row (3 rows of Q8_0 with AVX-512 VNNI: 0.77 of the speed). */
inline ints kept(ints number)
{
#ifdef __GNUC__
    asm("" : "+v"(number));
#endif
    return number;
}

/* Sums of bytes at even (odd) places of n / 2 pairs: of inputs 0 and 1, 4 and 5 ... in the lower 16 bits, of the others in
 * the upper ones. n is 16 or 32. */
inline uint32_t sums_by_pairs(const int8_t *quants, int n)
{
    __m128i sum = _mm_setzero_si128();
    for (int k = 0; k < n; k += 16) {
        const __m128i some = _mm_loadu_si128(reinterpret_cast<const __m128i *>(quants + k));
        sum = _mm_add_epi16(sum, _mm_maddubs_epi16(_mm_set1_epi8(1), some));
    }
    sum = _mm_add_epi16(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi16(sum, _mm_shuffle_epi32(sum, 0xb1));
    return static_cast<uint32_t>(_mm_cvtsi128_si32(sum));
}

inline int32_t sum_of(const int8_t *quants, int n)
{
    const uint32_t pair = sums_by_pairs(quants, n);
    return static_cast<int16_t>(pair & 0xffff) + static_cast<int16_t>(pair >> 16);
}

/* How unsigned weights of 8 bits are multiplied with signed inputs of 8 bits, four of each lane in a step:
 *   by_vnni   one instruction (VPDPBUSD) for a step
 *   by_sums   weights of up to 6 bits: the sums of several steps fit 16 bits (VPMADDUBSW, VPADDW). VPMADDWD makes them
 *             whole, and multiplies them with a scale on the way: 2.3 to 2.5 instructions for a step
 *   by_words  weights of 8 bits: two products do not fit 16 bits. Weights and inputs become words (VPMADDWD, VPADDD twice):
 *             4 instructions for a step
 *
 * The whole numbers that come out are the same. Each has
 *   INPUT_BYTES        of an input of a row of activations; `arrange` stores them
 *   weights, inputs    of a step, in registers
 *   begin              sums that begin with an offset, which takes PLUS in the weights back (weights-32.h)
 *   add                adds a step
 *   whole, add_scaled  the sums as whole numbers; times a scale of each lane, added to others
 *   scales             unpacks these scales from a byte for each lane */

struct whole_scales {
    static ints scales(const uint8_t *bytes)
    {
        return ints_of(bytes);
    }

    static ints add_scaled(ints to, ints sums, ints scale)
    {
        return WEIGHTS_OP(add_epi32)(to, WEIGHTS_OP(mullo_epi32)(sums, scale));
    }

    static ints whole(ints sums)
    {
        return sums;
    }

    static int32_t offset(const int8_t *quants, int n, int plus)
    {
        return -plus * sum_of(quants, n);
    }
};

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#define WEIGHTS_BY_VNNI
struct by_vnni : whole_scales {
    static constexpr int INPUT_BYTES = 1;
    using weights = ints;
    using inputs = ints;

    static void arrange(int8_t *to, const int8_t *quants, int n)
    {
        memcpy(to, quants, n);
    }

    static ints add(ints sums, weights w, inputs x)
    {
#ifdef WEIGHTS_BY_512
        return _mm512_dpbusd_epi32(sums, w, x);
#elif defined(__AVXVNNI__)
        return _mm256_dpbusd_avx_epi32(sums, w, x);
#endif
    }
};
#endif

struct by_sums {
    static constexpr int INPUT_BYTES = 1;
    using weights = ints;
    using inputs = ints;

    static void arrange(int8_t *to, const int8_t *quants, int n)
    {
        memcpy(to, quants, n);
    }

    static ints add(ints sums, weights w, inputs x)
    {
        return kept(WEIGHTS_OP(add_epi16)(sums, WEIGHTS_OP(maddubs_epi16)(w, x)));
    }

    /* Each scale twice, as words. */
    static ints scales(const uint8_t *bytes)
    {
        const __m128i twice = _mm_set_epi8(13, 12, 13, 12, 9, 8, 9, 8, 5, 4, 5, 4, 1, 0, 1, 0);
        return WEIGHTS_OP(shuffle_epi8)(ints_of(bytes), repeated(twice));
    }

    static ints add_scaled(ints to, ints sums, ints scale)
    {
        return add_words(to, sums, scale);
    }

    static ints whole(ints sums)
    {
        return WEIGHTS_OP(madd_epi16)(sums, WEIGHTS_OP(set1_epi16)(1));
    }

    /* For each of the two sums of a lane. */
    static int32_t offset(const int8_t *quants, int n, int plus)
    {
        const uint32_t pair = sums_by_pairs(quants, n);
        const uint32_t low = static_cast<uint32_t>(-plus * static_cast<int16_t>(pair & 0xffff)) & 0xffff;
        const uint32_t high = static_cast<uint32_t>(-plus * static_cast<int16_t>(pair >> 16));
        return static_cast<int32_t>(low | high << 16);
    }
};

struct by_words : whole_scales {
    static constexpr int INPUT_BYTES = 2;

    struct weights {
        ints even, odd;

        weights() = default;
        weights(ints bytes) : even(bytes & WEIGHTS_OP(set1_epi16)(0xff)), odd(WEIGHTS_OP(srli_epi16)(bytes, 8)) {}
    };

    /* As words, inputs 0 and 2 of a step before 1 and 3. */
    static void arrange(int8_t *to, const int8_t *quants, int n)
    {
        for (int k = 0; k < n; k += 4) {
            const int16_t words[] = {quants[k], quants[k + 2], quants[k + 1], quants[k + 3]};
            memcpy(to + k * INPUT_BYTES, words, sizeof words);
        }
    }

    struct inputs {
        ints even, odd;
    };

    static ints add(ints sums, const weights &w, const inputs &x)
    {
        return kept(add_words(kept(add_words(sums, w.even, x.even)), w.odd, x.odd));
    }
};

/* Products of weights of up to MOST. */
#ifdef WEIGHTS_BY_VNNI
template <int MOST> using products = by_vnni;
#else
template <int MOST> using products = std::conditional_t<(2 * MOST * 127 <= INT16_MAX), by_sums, by_words>;
#endif

/* Returns the number of steps whose sums fit: with by_sums, 16 bits hold two inputs of each step, times a weight - PLUS. */
template <class PRODUCTS> constexpr int steps_at_once(int most, int plus)
{
    constexpr bool IS_SHORT = std::is_same_v<PRODUCTS, by_sums>;
    return IS_SHORT ? INT16_MAX / (2 * 127 * std::max(plus, most - plus)) : INT16_MAX;
}

template <class PRODUCTS> typename PRODUCTS::inputs inputs_of(const int8_t *at)
{
    if constexpr (PRODUCTS::INPUT_BYTES == 1) {
        return all_of(at);
    } else {
        return {all_of(at), all_of(at + 4)};
    }
}

} // namespace weights_rows

#endif
