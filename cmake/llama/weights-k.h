/* weights-k.h: the layouts of Q4_K, Q5_K, Q6_K and IQ4_XS weights (weights-rows.h). A block has 256 inputs in 8 parts
 * (Q6_K: 16). Each part has a scale, a whole number; in Q4_K and Q5_K also a least value, which is subtracted. The sum
 * of a block is a whole number; the blocks are added up one after the other in single precision.
 *
 * A group stores one block after the other, each for all lanes:
 *   1. the blocks' scales in half precision; in Q4_K and Q5_K also the scales of the least values;
 *   2. the scales of the parts, as `struct scales` unpacks them;
 *   3. in Q5_K and Q6_K the upper bits of each part: a byte for the same input of all steps;
 *   4. the lower 4 bits: steps k and k + HALF of a part in one byte.
 * A step is four inputs of each lane. */
#ifndef WEIGHTS_K_H
#define WEIGHTS_K_H

#include "weights-rows.h"

namespace weights_rows {

/* A quantized row of activations: the quants, then N_SUMS sums for each block, times FACTOR, then the blocks' scales.
 * The sums of parts serve two ends: they take PLUS in the weights back (FACTOR is -PLUS then), and in Q4_K and Q5_K
 * they are multiplied with the parts' least values. */
template <class SUM, int N_SUMS, int FACTOR> struct k_activations {
    int8_t *quants;
    float *scales;
    SUM *sums;

    k_activations() = default;
    k_activations(void *row, int64_t n_blocks)
    {
        quants = static_cast<int8_t *>(row);
        sums = reinterpret_cast<SUM *>(quants + n_blocks * QK_K);
        scales = reinterpret_cast<float *>(sums + n_blocks * N_SUMS);
    }

    static size_t n_bytes(int64_t n_blocks)
    {
        const size_t n = n_blocks * (QK_K + N_SUMS * sizeof(SUM) + sizeof(float));
        return (n + 63) / 64 * 64;
    }

    void quantize(const float *from, int64_t n_blocks) const
    {
        for (int64_t b = 0; b < n_blocks; b++) {
            scales[b] = quantize_block(from + b * QK_K, quants + b * QK_K);
            sum_up(quants + b * QK_K, sums + b * N_SUMS);
        }
    }

    static float quantize_block(const float *from, int8_t *to)
    {
        __m512 most = _mm512_setzero_ps();
        for (int i = 0; i < QK_K; i += LANES) {
            most = _mm512_max_ps(most, _mm512_abs_ps(_mm512_loadu_ps(from + i)));
        }
        const float size = _mm512_reduce_max_ps(most);
        const __m512 by = _mm512_set1_ps(size > 0 ? 127.0f / size : 0.0f);
        for (int i = 0; i < QK_K; i += LANES) {
            const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(from + i), by));
            _mm_storeu_si128(reinterpret_cast<__m128i *>(to + i), _mm512_cvtsepi32_epi8(whole));
        }
        return size / 127.0f;
    }

    static void sum_up(const int8_t *quants, SUM *to)
    {
        constexpr int EACH = QK_K / N_SUMS;
        for (int i = 0; i < N_SUMS; i++) {
            __m128i sum = _mm_setzero_si128();
            for (int k = 0; k < EACH; k += 16) {
                const __m128i some = _mm_loadu_si128(reinterpret_cast<const __m128i *>(quants + i * EACH + k));
                sum = _mm_dpbusd_epi32(sum, _mm_set1_epi8(1), some);
            }
            sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
            sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
            to[i] = static_cast<SUM>(FACTOR * _mm_cvtsi128_si32(sum));
        }
    }
};

/* The parts of a format that differ: PLUS, which is added to the values of quants (weights-32.h), `pack`, `load`, which
 * unpacks steps k and k + HALF of a part, and `scales`, which unpacks the scales of the parts for all lanes. */

template <class BLOCK_TYPE, ggml_type OF, bool HAS_FIFTH> struct q45_k_quants {
    using block = BLOCK_TYPE;
    using activations = k_activations<int16_t, 8, 1>;
    static constexpr ggml_type TYPE = OF;
    static constexpr int PARTS = 8, HALF = 4, PLUS = 0;
    static constexpr bool HAS_LEAST = true;
    static constexpr int SIXES_AT = LANES * 4, FIFTHS_AT = SIXES_AT + LANES * K_SCALE_SIZE,
                         QUANTS_AT = FIFTHS_AT + (HAS_FIFTH ? PARTS * LINE : 0);

    /* Returns the scale (or least value) of part i, 6 bits, from its place in the file. */
    static uint8_t six_of(const uint8_t *packed, int i, bool is_least)
    {
        const uint8_t *from = packed + (is_least ? 4 : 0);
        if (i < 4) {
            return from[i] & 63;
        }
        return (packed[i + 4] >> (is_least ? 4 : 0) & 15) | (from[i - 4] >> 6) << 4;
    }

    /* Where the number of part i, modulo 4, is in a line. Scales: lane after lane. Least values: those of two parts
     * together, since least_of multiplies two parts with one instruction (VPDPWSSD). */
    static int scale_at(int i, int lane)
    {
        return i % 4 * LANES + lane;
    }
    static int least_at(int i, int lane)
    {
        return (i % 4 / 2 * LANES + lane) * 2 + i % 2;
    }

    static void pack_sixes(uint8_t *to, const block &of, int lane)
    {
        for (int i = 0; i < PARTS; i++) {
            const uint8_t scale = six_of(of.scales, i, false), least = six_of(of.scales, i, true);
            to[scale_at(i, lane)] |= (scale & 15) << i / 4 * 4;
            to[LINE + least_at(i, lane)] |= (least & 15) << i / 4 * 4;
            to[2 * LINE + scale_at(i, lane)] |= scale >> 4 << i / 4 * 2;
            to[2 * LINE + least_at(i, lane)] |= least >> 4 << (4 + i / 4 * 2);
        }
    }

    /* Returns the quants of a step, a byte each. */
    static uint32_t quants_of(const block &of, int part, int step)
    {
        const uint32_t low = four_of(of.qs + part / 2 * 32 + step * 4) >> part % 2 * 4 & 0x0f0f0f0f;
        if constexpr (HAS_FIFTH) {
            return low | (four_of(of.qh + step * 4) >> part & 0x01010101) << 4;
        }
        return low;
    }

    static void pack(uint8_t *to, const block &of, int lane)
    {
        const uint8_t *both = reinterpret_cast<const uint8_t *>(&of); /* d and dmin are its first members */
        memcpy(to + lane * 2, both, 2);
        memcpy(to + (LANES + lane) * 2, both + 2, 2);
        pack_sixes(to + SIXES_AT, of, lane);
        for (int part = 0; part < PARTS; part++) {
            uint32_t fifths = 0;
            for (int k = 0; k < HALF; k++) {
                const uint32_t first = quants_of(of, part, k), second = quants_of(of, part, k + HALF);
                put_four(to + QUANTS_AT + (part * HALF + k) * LINE, lane, two_of(first, second));
                fifths |= (first >> 4 & 0x01010101) << k | (second >> 4 & 0x01010101) << (k + HALF);
            }
            if (HAS_FIFTH) {
                put_four(to + FIFTHS_AT + part * LINE, lane, fifths);
            }
        }
    }

    static void load(const uint8_t *at, int part, int k, __m512i &first, __m512i &second)
    {
        const __m512i bytes = _mm512_loadu_si512(at + QUANTS_AT + (part * HALF + k) * LINE);
        first = low_of(bytes);
        second = high_of(bytes);
        if constexpr (HAS_FIFTH) {
            const __m512i fifths = _mm512_loadu_si512(at + FIFTHS_AT + part * LINE);
            first = over(first, _mm512_slli_epi16(fifths, 4 - k), 0x10);
            second = over(second, _mm512_srli_epi16(fifths, k), 0x10);
        }
    }

    struct scales {
        alignas(64) uint8_t of_parts[PARTS * LANES];
        alignas(64) uint8_t least[PARTS * LANES];

        void unpack(const uint8_t *at)
        {
            const uint8_t *from = at + SIXES_AT;
            const __m512i s = _mm512_loadu_si512(from), l = _mm512_loadu_si512(from + LINE),
                          u = _mm512_loadu_si512(from + 2 * LINE);
            _mm512_store_si512(of_parts, over(low_of(s), _mm512_slli_epi16(u, 4), 0x30));
            _mm512_store_si512(of_parts + LINE, over(high_of(s), _mm512_slli_epi16(u, 2), 0x30));
            _mm512_store_si512(least, over(low_of(l), u, 0x30));
            _mm512_store_si512(least + LINE, over(high_of(l), _mm512_srli_epi16(u, 2), 0x30));
        }

        __m512i of(int part) const
        {
            return _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i *>(of_parts + part * LANES)));
        }

        /* Returns the least values of parts 2 * pair and 2 * pair + 1. */
        __m512i least_pair(int pair) const
        {
            return _mm512_cvtepu8_epi16(_mm256_load_si256(reinterpret_cast<const __m256i *>(least + pair * 2 * LANES)));
        }
    };
};

struct q6_k_quants {
    using block = block_q6_K;
    using activations = k_activations<int32_t, 16, -32>;
    static constexpr ggml_type TYPE = GGML_TYPE_Q6_K;
    static constexpr int PARTS = 16, HALF = 2, PLUS = 32;
    static constexpr bool HAS_LEAST = false;
    static constexpr int SCALES_AT = LANES * 2, UPPER_AT = SCALES_AT + PARTS * LANES,
                         QUANTS_AT = UPPER_AT + PARTS * LINE;

    /* Returns the quants of a step, a byte each. */
    static uint32_t quants_of(const block &of, int part, int step)
    {
        const int half = part / 8, quarter = part % 8 / 2, at = part % 2 * 16 + step * 4;
        const uint32_t lower = four_of(of.ql + half * 64 + quarter % 2 * 32 + at) >> quarter / 2 * 4 & 0x0f0f0f0f;
        return lower | (four_of(of.qh + half * 32 + at) >> 2 * quarter & 0x03030303) << 4;
    }

    static void pack(uint8_t *to, const block &of, int lane)
    {
        memcpy(to + lane * 2, &of.d, 2);
        for (int part = 0; part < PARTS; part++) {
            uint32_t upper = 0;
            for (int k = 0; k < HALF; k++) {
                const uint32_t first = quants_of(of, part, k), second = quants_of(of, part, k + HALF);
                put_four(to + QUANTS_AT + (part * HALF + k) * LINE, lane, two_of(first, second));
                upper |= (first >> 4 & 0x03030303) << 2 * k | (second >> 4 & 0x03030303) << 2 * (k + HALF);
            }
            put_four(to + UPPER_AT + part * LINE, lane, upper);
            to[SCALES_AT + part * LANES + lane] = static_cast<uint8_t>(of.scales[part]);
        }
    }

    static void load(const uint8_t *at, int part, int k, __m512i &first, __m512i &second)
    {
        const __m512i bytes = _mm512_loadu_si512(at + QUANTS_AT + (part * HALF + k) * LINE),
                      upper = _mm512_loadu_si512(at + UPPER_AT + part * LINE);
        first = over(low_of(bytes), _mm512_slli_epi16(upper, 4 - 2 * k), 0x30);
        second = over(high_of(bytes), _mm512_srli_epi16(upper, 2 * k), 0x30);
    }

    struct scales {
        const uint8_t *from;

        void unpack(const uint8_t *at)
        {
            from = at + SCALES_AT;
        }

        __m512i of(int part) const
        {
            return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from + part * LANES)));
        }
    };
};

/* The quants are indices into sixteen values. The scales of the parts are stored as 6 bits, plus 32. */
struct iq4_xs_quants {
    using block = block_iq4_xs;
    using activations = k_activations<int32_t, 8, -128>;
    static constexpr ggml_type TYPE = GGML_TYPE_IQ4_XS;
    static constexpr int PARTS = 8, HALF = 4, PLUS = 128;
    static constexpr bool HAS_LEAST = false;
    static constexpr int SIXES_AT = LANES * 2, QUANTS_AT = SIXES_AT + LANES * 6;

    static void pack(uint8_t *to, const block &of, int lane)
    {
        memcpy(to + lane * 2, &of.d, 2);
        for (int part = 0; part < PARTS; part++) {
            const int lower = of.scales_l[part / 2] >> part % 2 * 4 & 15, upper = of.scales_h >> 2 * part & 3;
            to[SIXES_AT + part % 4 * LANES + lane] |= lower << part / 4 * 4;
            to[SIXES_AT + LINE + part % 2 * LANES + lane] |= upper << part / 2 * 2;
            for (int k = 0; k < HALF; k++) {
                put_four(to + QUANTS_AT + (part * HALF + k) * LINE, lane, four_of(of.qs + (part * HALF + k) * 4));
            }
        }
    }

    static void load(const uint8_t *at, int part, int k, __m512i &first, __m512i &second)
    {
        const __m512i bytes = _mm512_loadu_si512(at + QUANTS_AT + (part * HALF + k) * LINE);
        first = value_plus_128(kvalues_iq4nl, low_of(bytes));
        second = value_plus_128(kvalues_iq4nl, high_of(bytes));
    }

    struct scales {
        alignas(64) uint8_t of_parts[PARTS * LANES];

        void unpack(const uint8_t *at)
        {
            const __m512i lower = _mm512_loadu_si512(at + SIXES_AT);
            const __m256i u = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(at + SIXES_AT + LINE));
            const __m512i upper = _mm512_inserti64x4(_mm512_castsi256_si512(u), _mm256_srli_epi16(u, 2), 1);
            const __m512i plus = _mm512_set1_epi8(32);
            _mm512_store_si512(of_parts, _mm512_sub_epi8(over(low_of(lower), _mm512_slli_epi16(upper, 4), 0x30), plus));
            _mm512_store_si512(of_parts + LINE, _mm512_sub_epi8(over(high_of(lower), upper, 0x30), plus));
        }

        __m512i of(int part) const
        {
            return _mm512_cvtepi8_epi32(_mm_load_si128(reinterpret_cast<const __m128i *>(of_parts + part * LANES)));
        }
    };
};

template <class QUANTS> struct blocks_of_256 {
    using block = typename QUANTS::block;
    using activations = typename QUANTS::activations;
    static constexpr ggml_type TYPE = QUANTS::TYPE;
    static constexpr int BLOCK = QK_K, UNIT = QK_K;
    static constexpr int ROWS_MOST = 4, FETCHES = QUANTS::PARTS;
    static constexpr int PARTS = QUANTS::PARTS, HALF = QUANTS::HALF;

    static void pack(uint8_t *to, const block *from, int64_t n_blocks)
    {
        for (int64_t b = 0; b < n_blocks; b++) {
            memset(to, 0, LANES * sizeof(block));
            for (int lane = 0; lane < LANES; lane++) {
                QUANTS::pack(to, from[lane * n_blocks + b], lane);
            }
            to += LANES * sizeof(block);
        }
    }

    /* Returns the sum of (least value) * (sum of the inputs) over the parts of block b, in units of the least values'
     * scale. */
    static __m512i least_of(const typename QUANTS::scales &scales, const activations &row, int64_t b)
    {
        __m512i sum = _mm512_setzero_si512();
        for (int pair = 0; pair < PARTS / 2; pair++) {
            const __m512i two = _mm512_set1_epi32(static_cast<int32_t>(four_of(row.sums + b * PARTS + pair * 2)));
            sum = _mm512_dpwssd_epi32(sum, scales.least_pair(pair), two);
        }
        return sum;
    }

    /* As blocks_of_32::multiply, with one more level: `sum` of a part, times its scale, is added to `scaled` of the
     * block, both whole numbers; only the block's result becomes a float. */
    template <int ROWS, int GROUPS> static void multiply(const place &p, int64_t n_blocks, upcoming &next)
    {
        activations rows[ROWS];
        __m512 total[ROWS][GROUPS];
        for (int r = 0; r < ROWS; r++) {
            rows[r] = activations(p.rows[r], n_blocks);
            for (int g = 0; g < GROUPS; g++) {
                total[r][g] = _mm512_setzero_ps();
            }
        }
        for (int64_t b = 0; b < n_blocks; b++) {
            const uint8_t *at[GROUPS];
            typename QUANTS::scales scales[GROUPS];
            for (int g = 0; g < GROUPS; g++) {
                at[g] = p.weights + g * p.group_bytes + b * LANES * sizeof(block);
                scales[g].unpack(at[g]);
            }
            __m512i scaled[ROWS][GROUPS];
            for (int part = 0; part < PARTS; part++) {
                __m512i sum[ROWS][GROUPS];
                for (int r = 0; r < ROWS; r++) {
                    for (int g = 0; g < GROUPS; g++) {
                        sum[r][g] = QUANTS::PLUS > 0 ? _mm512_set1_epi32(rows[r].sums[b * PARTS + part])
                                                     : _mm512_setzero_si512();
                    }
                }
                for (int g = 0; g < GROUPS; g++) {
                    constexpr size_t PART_BYTES = LANES * sizeof(block) / PARTS;
                    fetch_ahead<GROUPS>(p, g, (b * PARTS + part) * PART_BYTES, PART_BYTES);
                }
                next.fetch();
                for (int k = 0; k < HALF; k++) {
                    __m512i first[GROUPS], second[GROUPS];
                    for (int g = 0; g < GROUPS; g++) {
                        QUANTS::load(at[g], part, k, first[g], second[g]);
                    }
                    for (int r = 0; r < ROWS; r++) {
                        const int8_t *four = rows[r].quants + b * QK_K + (part * HALF * 2 + k) * 4;
                        const __m512i inputs = four_inputs(four), later = four_inputs(four + HALF * 4);
                        for (int g = 0; g < GROUPS; g++) {
                            sum[r][g] = _mm512_dpbusd_epi32(sum[r][g], first[g], inputs);
                            sum[r][g] = _mm512_dpbusd_epi32(sum[r][g], second[g], later);
                        }
                    }
                }
                for (int g = 0; g < GROUPS; g++) {
                    const __m512i scale = scales[g].of(part);
                    for (int r = 0; r < ROWS; r++) {
                        const __m512i product = _mm512_mullo_epi32(sum[r][g], scale);
                        scaled[r][g] = part == 0 ? product : _mm512_add_epi32(scaled[r][g], product);
                    }
                }
            }
            for (int g = 0; g < GROUPS; g++) {
                const __m512 scale = halves(at[g]);
                for (int r = 0; r < ROWS; r++) {
                    const __m512 by = _mm512_set1_ps(rows[r].scales[b]);
                    total[r][g] =
                        _mm512_fmadd_ps(_mm512_cvtepi32_ps(scaled[r][g]), _mm512_mul_ps(scale, by), total[r][g]);
                    if constexpr (QUANTS::HAS_LEAST) {
                        const __m512 unit = _mm512_mul_ps(halves(at[g] + LANES * 2), by);
                        total[r][g] =
                            _mm512_fnmadd_ps(_mm512_cvtepi32_ps(least_of(scales[g], rows[r], b)), unit, total[r][g]);
                    }
                }
            }
        }
        put_out(p, total);
    }
};

using q4_k = blocks_of_256<q45_k_quants<block_q4_K, GGML_TYPE_Q4_K, false>>;
using q5_k = blocks_of_256<q45_k_quants<block_q5_K, GGML_TYPE_Q5_K, true>>;
using q6_k = blocks_of_256<q6_k_quants>;
using iq4_xs = blocks_of_256<iq4_xs_quants>;

} // namespace weights_rows

#endif
