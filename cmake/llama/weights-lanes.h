/* weights-lanes.h: the vector instructions for weights-rows.h, weights-32.h and weights-k.h. With these functions, the
 * other files work with registers of 512 bits (AVX-512) or 256 bits (AVX2), with or without VNNI.
 *
 * A register of 512 bits holds the sixteen lanes of a group, and two groups are multiplied at a time. With 256 bits, a
 * group takes two registers (PIECES), and one group is multiplied at a time. In both cases, the sums of a row are in
 * two registers (COLUMNS). */
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
constexpr int LINE = LANES * 4;         /* bytes of a line: four of each lane */
constexpr int PIECE = sizeof(ints);     /* bytes of a line that fit into a register */
constexpr int PIECES = LINE / PIECE;    /* registers of a line */
constexpr int GROUPS_MOST = 2 / PIECES; /* number of groups that are multiplied at a time */
constexpr int STEPS_MOST = 2 / PIECES;  /* number of steps whose weights are loaded together */

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

/* Returns a register with the same four bytes in each lane. */
inline ints all_of(const void *four)
{
    return WEIGHTS_OP(set1_epi32)(static_cast<int32_t>(four_of(four)));
}

/* Returns a register with the same sixteen bytes in each quarter of a line. */
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

/* Shifts words to the left by n bits, or to the right by -n bits if n is negative. The caller must mask out bits that
 * move from one byte to another. */
inline ints shifted(ints words, int n)
{
    return n >= 0 ? WEIGHTS_OP(slli_epi16)(words, n) : WEIGHTS_OP(srli_epi16)(words, -n);
}

/* Returns `low` combined with those bits of `upper` that are in the mask. */
inline ints over(ints low, ints upper, char mask)
{
#ifdef WEIGHTS_BY_512
    return _mm512_ternarylogic_epi32(_mm512_set1_epi8(mask), upper, low, 0xea);
#else
    return (_mm256_set1_epi8(mask) & upper) | low;
#endif
}

/* Looks up quants of 4 bits in a table of sixteen values, and adds PLUS. PLUS makes the weights unsigned, as the
 * products require. The activations compensate for PLUS (with `offsets` or `sums`). */
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

/* Adds to each lane of `sum` the products of the lane's two words. */
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

/* Returns in each lane `a` if n <= most, otherwise `b`. */
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

/* Returns the number, and forces the compiler to keep it in a register here. Otherwise gcc makes one of two mistakes.
 * It can add up the products of all steps in another order, for which there are too few registers (Q8_0 with AVX2: 36
 * instead of 66 GMAC/s). Or it loads the same weights for each row (3 rows of Q8_0 with AVX-512 VNNI: 0.77 times the
 * speed). */
inline ints kept(ints number)
{
#ifdef __GNUC__
    asm("" : "+v"(number));
#endif
    return number;
}

/* Returns two sums. The lower 16 bits have the sum of inputs 0 and 1, 4 and 5, 8 and 9 and so on. The upper 16 bits
 * have the sum of all other inputs. n is 16 or 32. */
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

/* There are three ways to multiply unsigned weights of 8 bits with signed inputs of 8 bits, four of each lane in a
 * step:
 *   by_vnni   takes one instruction (VPDPBUSD) for a step
 *   by_sums   is for weights of up to 6 bits. The sums of several steps fit into 16 bits (VPMADDUBSW, VPADDW). VPMADDWD
 *             widens them to 32 bits, and multiplies them with a scale. This takes 2.3 to 2.5 instructions for a step
 *   by_words  is for weights of 8 bits, for which the sum of two products does not fit into 16 bits. Weights and inputs
 *             are converted to words (VPMADDWD, VPADDD twice). This takes 4 instructions for a step
 *
 * All three give the same integers. Each struct has
 *   INPUT_BYTES        bytes of an input in a row of activations; `arrange` stores the inputs
 *   weights, inputs    the weights and inputs of a step, in registers
 *   begin              begins the sums with an offset, which compensates for PLUS in the weights (weights-32.h)
 *   add                adds the products of a step
 *   whole              returns the sums as 32-bit integers
 *   add_scaled         multiplies the sums with each lane's scale, and adds them to other sums
 *   scales             unpacks scales, which have one byte for each lane */

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

    /* Returns each scale twice, as words. */
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

    /* Returns two offsets in one number, one for each of the two sums of a lane. */
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

    /* Stores the inputs as words. Inputs 0 and 2 of a step come before inputs 1 and 3. */
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

/* The fastest way to multiply weights of up to MOST. */
#ifdef WEIGHTS_BY_VNNI
template <int MOST> using products = by_vnni;
#else
template <int MOST> using products = std::conditional_t<(2 * MOST * 127 <= INT16_MAX), by_sums, by_words>;
#endif

/* Returns how many steps can be added up without overflow. With by_sums, a sum of 16 bits has two products per step,
 * each of an input and (weight - PLUS). */
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
