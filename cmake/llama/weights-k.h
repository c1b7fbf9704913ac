/* weights-k.h: the layouts of Q4_K, Q5_K, Q6_K and IQ4_XS weights (weights-rows.h). A block has 256 inputs in 8 parts
 * (Q6_K: 16 parts). Each part has an integer scale. In Q4_K and Q5_K, each part also has a least value, which is
 * subtracted. The sum of a block is an integer. The scaled sums of the blocks are added in order, in single precision.
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

/* A quantized row of activations: the quants, a number for each part of each block, and the scales of the blocks. The
 * number of a part is an offset that compensates for PLUS in the weights. In Q4_K and Q5_K, PLUS is 0, and the number
 * is the sum of the part's inputs, which is multiplied with the part's least value. */
template <class QUANTS> struct k_activations {
    using product = products<QUANTS::MOST>;
    using number = std::conditional_t<(QUANTS::PLUS > 0), int32_t, int16_t>;
    static constexpr int PARTS = QUANTS::PARTS;

    int8_t *quants;
    float *scales;
    number *numbers;

    k_activations() = default;
    k_activations(void *row, int64_t n_blocks)
    {
        quants = static_cast<int8_t *>(row);
        numbers = reinterpret_cast<number *>(quants + n_blocks * QK_K * product::INPUT_BYTES);
        scales = reinterpret_cast<float *>(numbers + n_blocks * PARTS);
    }

    static size_t n_bytes(int64_t n_blocks)
    {
        const size_t n = n_blocks * (QK_K * product::INPUT_BYTES + PARTS * sizeof(number) + sizeof(float));
        return (n + 63) / 64 * 64;
    }

    void quantize(const float *from, int64_t n_blocks) const
    {
        for (int64_t b = 0; b < n_blocks; b++) {
            constexpr int EACH = QK_K / PARTS;
            int8_t block[QK_K];
            scales[b] = quantize_block(from + b * QK_K, block);
            product::arrange(quants + b * QK_K * product::INPUT_BYTES, block, QK_K);
            for (int i = 0; i < PARTS; i++) {
                numbers[b * PARTS + i] = QUANTS::PLUS > 0 ? product::offset(block + i * EACH, EACH, QUANTS::PLUS)
                                                          : sum_of(block + i * EACH, EACH);
            }
        }
    }

    static float quantize_block(const float *from, int8_t *to)
    {
        const float size = largest(from);
        const __m256 by = _mm256_set1_ps(size > 0 ? 127.0f / size : 0.0f);
        const auto whole = [by](const float *eight) {
            return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(eight), by));
        };
        for (int i = 0; i < QK_K; i += 32) {
            const __m256i words = _mm256_packs_epi32(whole(from + i), whole(from + i + 8)),
                          more = _mm256_packs_epi32(whole(from + i + 16), whole(from + i + 24));
            const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); /* undoes the mixture of the two halves
                                                                              * that packing makes */
            _mm256_storeu_si256(reinterpret_cast<__m256i *>(to + i),
                                _mm256_permutevar8x32_epi32(_mm256_packs_epi16(words, more), order));
        }
        return size / 127.0f;
    }

    /* Returns the largest absolute value of a block. */
    static float largest(const float *from)
    {
        const __m256 no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(INT32_MAX));
        __m256 most = _mm256_setzero_ps();
        for (int i = 0; i < QK_K; i += 8) {
            most = _mm256_max_ps(most, _mm256_and_ps(_mm256_loadu_ps(from + i), no_sign));
        }
        float each[8];
        _mm256_storeu_ps(each, most);
        return *std::max_element(each, each + 8);
    }
};

/* The structs below define what differs between the formats. PLUS is added to the weights (weights-32.h). MOST is the
 * largest weight after adding PLUS. `pack` stores a block. `load_step` unpacks a step of a part. `scales` unpacks the
 * scales of all parts for all lanes. scales::of returns the address of a part's scales, one byte for each lane. */

inline ints half_byte_of(const uint8_t *quants, int part, int step, int half)
{
    const ints bytes = load(quants + (part * half + step % half) * LINE);
    return step < half ? low_of(bytes) : high_of(bytes);
}

template <class BLOCK_TYPE, ggml_type OF, bool HAS_FIFTH> struct q45_k_quants {
    using block = BLOCK_TYPE;
    static constexpr ggml_type TYPE = OF;
    static constexpr int PARTS = 8, HALF = 4, PLUS = 0, MOST = HAS_FIFTH ? 31 : 15;
    static constexpr bool HAS_LEAST = true;
    static constexpr int SIXES_AT = LANES * 4, FIFTHS_AT = SIXES_AT + LANES * K_SCALE_SIZE,
                         QUANTS_AT = FIFTHS_AT + (HAS_FIFTH ? PARTS * LINE : 0);

    /* Returns the scale (or least value) of part i, which has 6 bits, from the block in the file. */
    static uint8_t six_of(const uint8_t *packed, int i, bool is_least)
    {
        const uint8_t *from = packed + (is_least ? 4 : 0);
        if (i < 4) {
            return from[i] & 63;
        }
        return (packed[i + 4] >> (is_least ? 4 : 0) & 15) | (from[i - 4] >> 6) << 4;
    }

    /* Return the index of a part's scale or least value in a line. A line has four parts (i modulo 4). The scales of a
     * part are stored lane after lane. The least values of two parts are stored together, because least_of multiplies
     * two parts with one instruction (VPDPWSSD). */
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
        const uint8_t *both = reinterpret_cast<const uint8_t *>(&of); /* d and dmin are the first members of the
                                                                       * block */
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

    static ints load_step(const uint8_t *at, int part, int step)
    {
        const ints four = half_byte_of(at + QUANTS_AT, part, step, HALF);
        if constexpr (HAS_FIFTH) {
            return over(four, shifted(load(at + FIFTHS_AT + part * LINE), 4 - step), 0x10);
        }
        return four;
    }

    struct scales {
        alignas(64) uint8_t parts[PARTS * LANES];
        alignas(64) uint8_t least[PARTS * LANES];

        void unpack(const uint8_t *at)
        {
            for (int i = 0; i < LINE; i += PIECE) {
                const uint8_t *from = at + SIXES_AT + i;
                const ints s = load(from), l = load(from + LINE), u = load(from + 2 * LINE);
                store(parts + i, over(low_of(s), shifted(u, 4), 0x30));
                store(parts + i + LINE, over(high_of(s), shifted(u, 2), 0x30));
                store(least + i, over(low_of(l), u, 0x30));
                store(least + i + LINE, over(high_of(l), shifted(u, -2), 0x30));
            }
        }

        const uint8_t *of(int part) const
        {
            return parts + part * LANES;
        }

        /* Returns the address of the least values of parts 2 * pair and 2 * pair + 1, two bytes for each lane. */
        const uint8_t *least_of(int pair) const
        {
            return least + pair * 2 * LANES;
        }
    };
};

struct q6_k_quants {
    using block = block_q6_K;
    static constexpr ggml_type TYPE = GGML_TYPE_Q6_K;
    static constexpr int PARTS = 16, HALF = 2, PLUS = 32, MOST = 63;
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

    static ints load_step(const uint8_t *at, int part, int step)
    {
        const ints upper = load(at + UPPER_AT + part * LINE);
        return over(half_byte_of(at + QUANTS_AT, part, step, HALF), shifted(upper, 4 - 2 * step), 0x30);
    }

    struct scales {
        const uint8_t *from;

        void unpack(const uint8_t *at)
        {
            from = at + SCALES_AT;
        }

        const uint8_t *of(int part) const
        {
            return from + part * LANES;
        }
    };
};

/* The quants are indices into a table of sixteen values. The scales of the parts are stored in 6 bits, as scale +
 * 32. */
struct iq4_xs_quants {
    using block = block_iq4_xs;
    static constexpr ggml_type TYPE = GGML_TYPE_IQ4_XS;
    static constexpr int PARTS = 8, HALF = 4, PLUS = 128, MOST = 128 + 113;
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

    static ints load_step(const uint8_t *at, int part, int step)
    {
        return value_plus<PLUS>(kvalues_iq4nl, half_byte_of(at + QUANTS_AT, part, step, HALF));
    }

    struct scales {
        alignas(64) uint8_t parts[PARTS * LANES];

        /* Unpacks two parts at a time. Their upper bits are in half a line. */
        void unpack(const uint8_t *at)
        {
            const auto load_two = [](const uint8_t *from) {
                return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from));
            };
            const __m256i upper = load_two(at + SIXES_AT + LINE), mask = _mm256_set1_epi8(0x0f);
            for (int i = 0; i < 2; i++) {
                const __m256i lower = load_two(at + SIXES_AT + i * LINE / 2), u = _mm256_srli_epi16(upper, 2 * i);
                store_two(parts + i * LINE / 2, lower & mask, _mm256_slli_epi16(u, 4));
                store_two(parts + i * LINE / 2 + LINE, _mm256_srli_epi16(lower, 4) & mask, u);
            }
        }

        static void store_two(uint8_t *to, __m256i lower, __m256i upper)
        {
            const __m256i six = lower | (upper & _mm256_set1_epi8(0x30));
            _mm256_storeu_si256(reinterpret_cast<__m256i *>(to), _mm256_sub_epi8(six, _mm256_set1_epi8(32)));
        }

        const uint8_t *of(int part) const
        {
            return parts + part * LANES;
        }
    };
};

template <class QUANTS> struct blocks_of_256 {
    using block = typename QUANTS::block;
    using activations = k_activations<QUANTS>;
    using product = products<QUANTS::MOST>;
    static constexpr ggml_type TYPE = QUANTS::TYPE;
    static constexpr int BLOCK = QK_K, UNIT = QK_K;
    static constexpr int ROWS_MOST = 4, FETCHES = QUANTS::PARTS;
    static constexpr int PARTS = QUANTS::PARTS, STEPS = 2 * QUANTS::HALF;
    static constexpr int SPAN =
        std::min(STEPS, steps_at_once<product>(QUANTS::MOST, QUANTS::PLUS)); /* number of steps in a sum */
    static_assert(STEPS % SPAN == 0 && (SPAN == STEPS || QUANTS::PLUS == 0));

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
     * scale, for the lanes from `lane` on. */
    static ints least_of(const typename QUANTS::scales &scales, int lane, const activations &row, int64_t b)
    {
        ints sum = {};
        for (int pair = 0; pair < PARTS / 2; pair++) {
            sum = add_words(sum, unsigned_words_of(scales.least_of(pair) + 2 * lane),
                            all_of(row.numbers + b * PARTS + pair * 2));
        }
        return sum;
    }

    /* Like blocks_of_32::multiply, with one more level. The sums of a part are multiplied with the part's scale and
     * added to the block's sum `scaled`. Both are integers. Only the result of the block is converted to a float. */
    template <int ROWS, int GROUPS> static void multiply(const place &p, int64_t n_blocks, upcoming &next)
    {
        constexpr int COLUMNS = GROUPS * PIECES;
        constexpr size_t PART_BYTES = LANES * sizeof(block) / PARTS;
        activations rows[ROWS];
        totals<ROWS, GROUPS> total;
        for (int r = 0; r < ROWS; r++) {
            rows[r] = activations(p.rows[r], n_blocks);
            for (int c = 0; c < COLUMNS; c++) {
                total[r][c] = floats{};
            }
        }
        for (int64_t b = 0; b < n_blocks; b++) {
            typename QUANTS::scales scales[GROUPS];
            for (int g = 0; g < GROUPS; g++) {
                scales[g].unpack(p.group(g * PIECES) + b * LANES * sizeof(block));
            }
            ints scaled[ROWS][COLUMNS] = {};
            const uint8_t *at[COLUMNS];
            for (int c = 0; c < COLUMNS; c++) {
                at[c] = p.piece(c) + b * LANES * sizeof(block);
            }
            for (int part = 0; part < PARTS; part++) {
                for (int g = 0; g < GROUPS; g++) {
                    fetch_ahead<GROUPS>(p, g, (b * PARTS + part) * PART_BYTES, PART_BYTES);
                }
                next.fetch();
                add_part(p, at, b, part, rows, scales, scaled);
            }
            for (int c = 0; c < COLUMNS; c++) {
                const uint8_t *halves = p.group(c) + b * LANES * sizeof(block) + 2 * p.lane(c);
                const floats scale = halves_of(halves);
                for (int r = 0; r < ROWS; r++) {
                    const floats by = WEIGHTS_OP(set1_ps)(rows[r].scales[b]);
                    total[r][c] = WEIGHTS_OP(fmadd_ps)(WEIGHTS_OP(cvtepi32_ps)(scaled[r][c]),
                                                       WEIGHTS_OP(mul_ps)(scale, by), total[r][c]);
                    if constexpr (QUANTS::HAS_LEAST) {
                        const floats unit = WEIGHTS_OP(mul_ps)(halves_of(halves + LANES * 2), by);
                        const ints least = least_of(scales[c / PIECES], p.lane(c), rows[r], b);
                        total[r][c] = WEIGHTS_OP(fnmadd_ps)(WEIGHTS_OP(cvtepi32_ps)(least), unit, total[r][c]);
                    }
                }
            }
        }
        put_out(p, total);
    }

    template <int ROWS, int COLUMNS, int GROUPS>
    static void add_part(const place &p, const uint8_t *const (&at)[COLUMNS], int64_t b, int part,
                         const activations (&rows)[ROWS], const typename QUANTS::scales (&scales)[GROUPS],
                         ints (&scaled)[ROWS][COLUMNS])
    {
#pragma GCC unroll 2
        for (int begin = 0; begin < STEPS; begin += SPAN) {
            ints sum[ROWS][COLUMNS];
            for (int r = 0; r < ROWS; r++) {
                for (int c = 0; c < COLUMNS; c++) {
                    sum[r][c] = QUANTS::PLUS > 0 ? all_of(rows[r].numbers + b * PARTS + part) : ints{};
                }
            }
#pragma GCC unroll 8
            for (int k = begin / STEPS_MOST; k < (begin + SPAN) / STEPS_MOST; k++) {
                typename product::weights weights[STEPS_MOST][COLUMNS];
                for (int c = 0; c < COLUMNS; c++) {
                    for (int j = 0; j < STEPS_MOST; j++) {
                        weights[j][c] = kept(QUANTS::load_step(at[c], part, k + j * QUANTS::HALF));
                    }
                }
                for (int r = 0; r < ROWS; r++) {
                    typename product::inputs inputs[STEPS_MOST];
                    for (int j = 0; j < STEPS_MOST; j++) {
                        const int64_t input = b * QK_K + (part * STEPS + k + j * QUANTS::HALF) * 4;
                        inputs[j] = inputs_of<product>(rows[r].quants + input * product::INPUT_BYTES);
                    }
                    for (int c = 0; c < COLUMNS; c++) {
                        for (int j = 0; j < STEPS_MOST; j++) {
                            sum[r][c] = product::add(sum[r][c], weights[j][c], inputs[j]);
                        }
                    }
                }
            }
            for (int c = 0; c < COLUMNS; c++) {
                const ints scale = product::scales(scales[c / PIECES].of(part) + p.lane(c));
                for (int r = 0; r < ROWS; r++) {
                    scaled[r][c] = product::add_scaled(scaled[r][c], sum[r][c], scale);
                }
            }
        }
    }
};

using q4_k = blocks_of_256<q45_k_quants<block_q4_K, GGML_TYPE_Q4_K, false>>;
using q5_k = blocks_of_256<q45_k_quants<block_q5_K, GGML_TYPE_Q5_K, true>>;
using q6_k = blocks_of_256<q6_k_quants>;
using iq4_xs = blocks_of_256<iq4_xs_quants>;

} // namespace weights_rows

#endif
