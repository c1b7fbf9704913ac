/* weights-k.h: Q4_K, Q5_K and Q6_K weights in rows (weights-rows.h). A block has 256 inputs, and within it 8 parts (Q6_K: 16)
 * with a scale each, a whole number; the sums of a block go through whole numbers, and then through single precision, block
 * after block.
 *
 * Block after block of a group, LANES of everything at a time:
 *   Q4_K, Q5_K   the scales, the scales of the least values, both in half precision; the parts' scales and least values,
 *                6 bits each (struct sixes); Q5_K: of each part the fifth bits, a byte for the same input of all steps; the quants
 *   Q6_K         the scales in half precision; the parts' scales, 8 bits each; of each part the upper 2 bits, a byte for the
 *                same input of all steps; the lower 4
 * Of a part's quants, 4 bits of step k and of step k + STEPS / 2 lie in one byte; a step is four inputs of each lane. */
#ifndef WEIGHTS_K_H
#define WEIGHTS_K_H

#include "weights-rows.h"

namespace weights_rows {

constexpr int K_LINE = LANES * 4; /* bytes: a step of whole bytes */

inline uint32_t k_four(const uint8_t *from)
{
    uint32_t four;
    memcpy(&four, from, sizeof four);
    return four;
}

inline void k_put(uint8_t *line, int lane, uint32_t four)
{
    memcpy(line + lane * 4, &four, sizeof four);
}

inline __m512i k_low(__m512i bytes)
{
    return _mm512_and_si512(bytes, _mm512_set1_epi8(0x0f));
}

inline __m512i k_high(__m512i bytes)
{
    return k_low(_mm512_srli_epi16(bytes, 4));
}

/* Bits of `upper`, by the mask, over `low`. */
inline __m512i k_over(__m512i low, __m512i upper, char mask)
{
    return _mm512_ternarylogic_epi32(_mm512_set1_epi8(mask), upper, low, 0xea); /* (mask & upper) | low */
}

/* Of a row: quants, then of each block the scale, and the sums of its parts: N_SUMS numbers, each times FACTOR. */
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

/* Q4_K and Q5_K: 8 parts of 8 steps. */
template <class BLOCK_TYPE, ggml_type OF, bool HAS_FIFTH> struct q45_k {
    using block = BLOCK_TYPE;
    using activations = k_activations<int16_t, 8, 1>;
    static constexpr ggml_type TYPE = OF;
    static constexpr int BLOCK = QK_K, UNIT = QK_K;
    static constexpr int ROWS_MOST = 4;
    static constexpr int PARTS = 8, STEPS = 8;
    static constexpr int MINS_AT = LANES * 2, SIXES_AT = LANES * 4, FIFTHS_AT = SIXES_AT + LANES * K_SCALE_SIZE,
                         QUANTS_AT = FIFTHS_AT + (HAS_FIFTH ? PARTS * K_LINE : 0);

    /* One number of 6 bits of part i as it is in the file. */
    static uint8_t six_of(const uint8_t *packed, int i, bool is_least)
    {
        const uint8_t *from = packed + (is_least ? 4 : 0);
        if (i < 4) {
            return from[i] & 63;
        }
        return (packed[i + 4] >> (is_least ? 4 : 0) & 15) | (from[i - 4] >> 6) << 4;
    }

    /* Where those of part i, modulo 4, lie in a line: lane after lane; of two parts together. */
    static int scale_at(int i, int lane)
    {
        return i % 4 * LANES + lane;
    }
    static int least_at(int i, int lane)
    {
        return (i % 4 / 2 * LANES + lane) * 2 + i % 2;
    }

    /* The quants of a step, a byte each. */
    static uint32_t quants_of(const block &of, int part, int step)
    {
        const uint32_t low = k_four(of.qs + part / 2 * 32 + step * 4) >> part % 2 * 4 & 0x0f0f0f0f;
        if constexpr (HAS_FIFTH) {
            return low | (k_four(of.qh + step * 4) >> part & 0x01010101) << 4;
        }
        return low;
    }

    static void pack_sixes(uint8_t *to, const block &of, int lane)
    {
        for (int i = 0; i < PARTS; i++) {
            const uint8_t scale = six_of(of.scales, i, false), least = six_of(of.scales, i, true);
            to[scale_at(i, lane)] |= (scale & 15) << i / 4 * 4;
            to[K_LINE + least_at(i, lane)] |= (least & 15) << i / 4 * 4;
            to[2 * K_LINE + scale_at(i, lane)] |= scale >> 4 << i / 4 * 2;
            to[2 * K_LINE + least_at(i, lane)] |= least >> 4 << (4 + i / 4 * 2);
        }
    }

    static void pack_part(uint8_t *to, const block &of, int lane, int part)
    {
        uint32_t fifths = 0;
        for (int k = 0; k < STEPS / 2; k++) {
            const uint32_t first = quants_of(of, part, k), second = quants_of(of, part, k + STEPS / 2);
            k_put(to + QUANTS_AT + (part * STEPS / 2 + k) * K_LINE, lane,
                  (first & 0x0f0f0f0f) | (second & 0x0f0f0f0f) << 4);
            fifths |= (first >> 4 & 0x01010101) << k | (second >> 4 & 0x01010101) << (k + STEPS / 2);
        }
        if (HAS_FIFTH) {
            k_put(to + FIFTHS_AT + part * K_LINE, lane, fifths);
        }
    }

    static void pack(uint8_t *to, const block *from, int64_t n_blocks)
    {
        for (int64_t b = 0; b < n_blocks; b++) {
            memset(to + SIXES_AT, 0, LANES * K_SCALE_SIZE);
            for (int lane = 0; lane < LANES; lane++) {
                const block &of = from[lane * n_blocks + b];
                const uint8_t *both = reinterpret_cast<const uint8_t *>(&of); /* its first members */
                memcpy(to + lane * 2, both, 2);
                memcpy(to + MINS_AT + lane * 2, both + 2, 2);
                pack_sixes(to + SIXES_AT, of, lane);
                for (int part = 0; part < PARTS; part++) {
                    pack_part(to, of, lane, part);
                }
            }
            to += LANES * sizeof(block);
        }
    }

    /* Scales and least values of all parts, a byte each. */
    struct sixes {
        alignas(64) uint8_t scales[2][K_LINE];
        alignas(64) uint8_t least[2][K_LINE];

        void unpack(const uint8_t *from)
        {
            const __m512i s = _mm512_loadu_si512(from), l = _mm512_loadu_si512(from + K_LINE),
                          u = _mm512_loadu_si512(from + 2 * K_LINE);
            _mm512_store_si512(scales[0], k_over(k_low(s), _mm512_slli_epi16(u, 4), 0x30));
            _mm512_store_si512(scales[1], k_over(k_high(s), _mm512_slli_epi16(u, 2), 0x30));
            _mm512_store_si512(least[0], k_over(k_low(l), u, 0x30));
            _mm512_store_si512(least[1], k_over(k_high(l), _mm512_srli_epi16(u, 2), 0x30));
        }

        __m512i scale(int part) const
        {
            return _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i *>(scales[0] + part * LANES)));
        }

        /* Of parts 2 * pair and the next. */
        __m512i least_pair(int pair) const
        {
            return _mm512_cvtepu8_epi16(
                _mm256_load_si256(reinterpret_cast<const __m256i *>(least[0] + pair * 2 * LANES)));
        }
    };

    template <int ROWS, int GROUPS> static void multiply(const place &p, int64_t n_blocks)
    {
        activations rows[ROWS];
        __m512 total[ROWS][GROUPS];
        for (int r = 0; r < ROWS; r++) {
            rows[r] = activations(p.row + r * p.row_bytes, n_blocks);
            for (int g = 0; g < GROUPS; g++) {
                total[r][g] = _mm512_setzero_ps();
            }
        }
        for (int64_t b = 0; b < n_blocks; b++) {
            const uint8_t *at[GROUPS];
            sixes six[GROUPS];
            for (int g = 0; g < GROUPS; g++) {
                at[g] = p.weights + g * p.group_bytes + b * LANES * sizeof(block);
                six[g].unpack(at[g] + SIXES_AT);
                for (int line = 0; line < QUANTS_AT; line += 64) {
                    fetch_ahead(at[g] + line);
                }
            }
            __m512i scaled[ROWS][GROUPS];
            for (int part = 0; part < PARTS; part++) {
                __m512i sum[ROWS][GROUPS];
                for (int r = 0; r < ROWS; r++) {
                    for (int g = 0; g < GROUPS; g++) {
                        sum[r][g] = _mm512_setzero_si512();
                    }
                }
                for (int k = 0; k < STEPS / 2; k++) {
                    __m512i low[GROUPS], high[GROUPS];
                    for (int g = 0; g < GROUPS; g++) {
                        const uint8_t *line = at[g] + QUANTS_AT + (part * STEPS / 2 + k) * K_LINE;
                        const __m512i bytes = _mm512_loadu_si512(line);
                        fetch_ahead(line);
                        low[g] = k_low(bytes);
                        high[g] = k_high(bytes);
                        if constexpr (HAS_FIFTH) {
                            const __m512i fifths = _mm512_loadu_si512(at[g] + FIFTHS_AT + part * K_LINE);
                            low[g] = k_over(low[g], _mm512_slli_epi16(fifths, 4 - k), 0x10);
                            high[g] = k_over(high[g], _mm512_srli_epi16(fifths, k), 0x10);
                        }
                    }
                    for (int r = 0; r < ROWS; r++) {
                        const int8_t *four = rows[r].quants + b * QK_K + part * 4 * STEPS + k * 4;
                        const __m512i first = four_inputs(four), second = four_inputs(four + STEPS / 2 * 4);
                        for (int g = 0; g < GROUPS; g++) {
                            sum[r][g] = _mm512_dpbusd_epi32(sum[r][g], low[g], first);
                            sum[r][g] = _mm512_dpbusd_epi32(sum[r][g], high[g], second);
                        }
                    }
                }
                for (int g = 0; g < GROUPS; g++) {
                    const __m512i scale = six[g].scale(part);
                    for (int r = 0; r < ROWS; r++) {
                        const __m512i product = _mm512_mullo_epi32(sum[r][g], scale);
                        scaled[r][g] = part == 0 ? product : _mm512_add_epi32(scaled[r][g], product);
                    }
                }
            }
            for (int g = 0; g < GROUPS; g++) {
                const __m512 scale = halves(at[g]), least_scale = halves(at[g] + MINS_AT);
                for (int r = 0; r < ROWS; r++) {
                    __m512i least = _mm512_setzero_si512();
                    for (int pair = 0; pair < PARTS / 2; pair++) {
                        int32_t two;
                        memcpy(&two, rows[r].sums + b * PARTS + pair * 2, sizeof two);
                        least = _mm512_dpwssd_epi32(least, six[g].least_pair(pair), _mm512_set1_epi32(two));
                    }
                    const __m512 by = _mm512_set1_ps(rows[r].scales[b]);
                    total[r][g] =
                        _mm512_fmadd_ps(_mm512_cvtepi32_ps(scaled[r][g]), _mm512_mul_ps(scale, by), total[r][g]);
                    total[r][g] =
                        _mm512_fnmadd_ps(_mm512_cvtepi32_ps(least), _mm512_mul_ps(least_scale, by), total[r][g]);
                }
            }
        }
        put_out(p, total);
    }
};

using q4_k = q45_k<block_q4_K, GGML_TYPE_Q4_K, false>;
using q5_k = q45_k<block_q5_K, GGML_TYPE_Q5_K, true>;

/* 16 parts of 4 steps. The quants are the value plus 32: the sums of the inputs make up for it. */
struct q6_k {
    using block = block_q6_K;
    using activations = k_activations<int32_t, 16, -32>;
    static constexpr ggml_type TYPE = GGML_TYPE_Q6_K;
    static constexpr int BLOCK = QK_K, UNIT = QK_K;
    static constexpr int ROWS_MOST = 4;
    static constexpr int PARTS = 16, STEPS = 4;
    static constexpr int EIGHTS_AT = LANES * 2, UPPER_AT = EIGHTS_AT + PARTS * LANES,
                         LOWER_AT = UPPER_AT + PARTS * K_LINE;

    /* The quants of a step, a byte each. */
    static uint32_t quants_of(const block &of, int part, int step)
    {
        const int half = part / 8, quarter = part % 8 / 2, at = part % 2 * 16 + step * 4;
        const uint32_t lower = k_four(of.ql + half * 64 + quarter % 2 * 32 + at) >> quarter / 2 * 4 & 0x0f0f0f0f;
        return lower | (k_four(of.qh + half * 32 + at) >> 2 * quarter & 0x03030303) << 4;
    }

    static void pack_part(uint8_t *to, const block &of, int lane, int part)
    {
        uint32_t upper = 0;
        for (int k = 0; k < STEPS / 2; k++) {
            const uint32_t first = quants_of(of, part, k), second = quants_of(of, part, k + STEPS / 2);
            k_put(to + LOWER_AT + (part * STEPS / 2 + k) * K_LINE, lane,
                  (first & 0x0f0f0f0f) | (second & 0x0f0f0f0f) << 4);
            upper |= (first >> 4 & 0x03030303) << 2 * k | (second >> 4 & 0x03030303) << (2 * k + STEPS);
        }
        k_put(to + UPPER_AT + part * K_LINE, lane, upper);
        to[EIGHTS_AT + part * LANES + lane] = static_cast<uint8_t>(of.scales[part]);
    }

    static void pack(uint8_t *to, const block *from, int64_t n_blocks)
    {
        for (int64_t b = 0; b < n_blocks; b++) {
            for (int lane = 0; lane < LANES; lane++) {
                const block &of = from[lane * n_blocks + b];
                memcpy(to + lane * 2, &of.d, 2);
                for (int part = 0; part < PARTS; part++) {
                    pack_part(to, of, lane, part);
                }
            }
            to += LANES * sizeof(block);
        }
    }

    template <int ROWS, int GROUPS> static void multiply(const place &p, int64_t n_blocks)
    {
        activations rows[ROWS];
        __m512 total[ROWS][GROUPS];
        for (int r = 0; r < ROWS; r++) {
            rows[r] = activations(p.row + r * p.row_bytes, n_blocks);
            for (int g = 0; g < GROUPS; g++) {
                total[r][g] = _mm512_setzero_ps();
            }
        }
        for (int64_t b = 0; b < n_blocks; b++) {
            const uint8_t *at[GROUPS];
            for (int g = 0; g < GROUPS; g++) {
                at[g] = p.weights + g * p.group_bytes + b * LANES * sizeof(block);
                for (int line = 0; line < UPPER_AT; line += 64) {
                    fetch_ahead(at[g] + line);
                }
            }
            __m512i scaled[ROWS][GROUPS];
            for (int part = 0; part < PARTS; part++) {
                __m512i sum[ROWS][GROUPS], upper[GROUPS];
                for (int g = 0; g < GROUPS; g++) {
                    const uint8_t *line = at[g] + UPPER_AT + part * K_LINE;
                    upper[g] = _mm512_loadu_si512(line);
                    fetch_ahead(line);
                }
                for (int r = 0; r < ROWS; r++) {
                    for (int g = 0; g < GROUPS; g++) {
                        sum[r][g] = _mm512_set1_epi32(rows[r].sums[b * PARTS + part]);
                    }
                }
                for (int k = 0; k < STEPS / 2; k++) {
                    __m512i low[GROUPS], high[GROUPS];
                    for (int g = 0; g < GROUPS; g++) {
                        const uint8_t *line = at[g] + LOWER_AT + (part * STEPS / 2 + k) * K_LINE;
                        const __m512i bytes = _mm512_loadu_si512(line);
                        fetch_ahead(line);
                        low[g] = k_over(k_low(bytes), _mm512_slli_epi16(upper[g], 4 - 2 * k), 0x30);
                        high[g] = k_over(k_high(bytes), _mm512_srli_epi16(upper[g], 2 * k), 0x30);
                    }
                    for (int r = 0; r < ROWS; r++) {
                        const int8_t *four = rows[r].quants + b * QK_K + part * 4 * STEPS + k * 4;
                        const __m512i first = four_inputs(four), second = four_inputs(four + STEPS / 2 * 4);
                        for (int g = 0; g < GROUPS; g++) {
                            sum[r][g] = _mm512_dpbusd_epi32(sum[r][g], low[g], first);
                            sum[r][g] = _mm512_dpbusd_epi32(sum[r][g], high[g], second);
                        }
                    }
                }
                for (int g = 0; g < GROUPS; g++) {
                    const __m512i scale = _mm512_cvtepi8_epi32(
                        _mm_loadu_si128(reinterpret_cast<const __m128i *>(at[g] + EIGHTS_AT + part * LANES)));
                    for (int r = 0; r < ROWS; r++) {
                        const __m512i product = _mm512_mullo_epi32(sum[r][g], scale);
                        scaled[r][g] = part == 0 ? product : _mm512_add_epi32(scaled[r][g], product);
                    }
                }
            }
            for (int g = 0; g < GROUPS; g++) {
                const __m512 scale = halves(at[g]);
                for (int r = 0; r < ROWS; r++) {
                    total[r][g] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(scaled[r][g]),
                                                  _mm512_mul_ps(scale, _mm512_set1_ps(rows[r].scales[b])), total[r][g]);
                }
            }
        }
        put_out(p, total);
    }
};

} // namespace weights_rows

#endif
