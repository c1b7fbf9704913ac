/* weights-32.h: the layouts of Q8_0, Q5_0, Q4_0, IQ4_NL and MXFP4 weights (weights-rows.h): blocks of 32 inputs with a
 * scale. Within a block the sum is a whole number, as in llama.cpp's own kernels; the blocks are added up one after the
 * other in single precision.
 *
 * A group stores first the quants of all blocks, then their scales. VPDPBUSD multiplies unsigned with signed bytes.
 * Weights are therefore stored, or unpacked, as value + PLUS >= 0, and PLUS * (sum of the inputs) is subtracted again:
 * with PLUS 8, a weight of -3 is stored as 5, and 5 * x - 8 * x = -3 * x. A step is four inputs of each lane. Steps k
 * and k + HALF_32 of a block are loaded together, since formats of 4 bits hold both in the same bytes. */
#ifndef WEIGHTS_32_H
#define WEIGHTS_32_H

#include "weights-rows.h"

namespace weights_rows {

constexpr int STEPS_32 = 32 / 4, HALF_32 = STEPS_32 / 2;

/* The parts of a format that differ: PLUS, N_BYTES (quants of a block, all lanes), `pack`, and `load`, which unpacks
 * steps k and k + HALF_32 of a block. `scale` is the type of a scale in the file; scales() converts those of all
 * lanes. */

struct half_scales {
    using scale = ggml_half;

    template <class BLOCK> static ggml_half scale_of(const BLOCK &of)
    {
        return of.d;
    }

    static __m512 scales(const ggml_half *at)
    {
        return halves(at);
    }
};

struct q8_0_quants : half_scales {
    using block = block_q8_0;
    static constexpr ggml_type TYPE = GGML_TYPE_Q8_0;
    static constexpr int PLUS = 128, N_BYTES = STEPS_32 * LINE;

    static void pack(uint8_t *to, const block &of, int lane)
    {
        for (int k = 0; k < STEPS_32; k++) {
            put_four(to + k * LINE, lane, four_of(of.qs + 4 * k) ^ 0x80808080); /* adds 128 to each byte */
        }
    }

    static void load(const uint8_t *at, int k, __m512i &first, __m512i &second)
    {
        first = _mm512_loadu_si512(at + k * LINE);
        second = _mm512_loadu_si512(at + (k + HALF_32) * LINE);
    }
};

/* A byte holds the 4 bits of both steps, as in the file. */
struct q4_0_quants : half_scales {
    using block = block_q4_0;
    static constexpr ggml_type TYPE = GGML_TYPE_Q4_0;
    static constexpr int PLUS = 8, N_BYTES = HALF_32 * LINE;

    static void pack(uint8_t *to, const block &of, int lane)
    {
        for (int k = 0; k < HALF_32; k++) {
            put_four(to + k * LINE, lane, four_of(of.qs + 4 * k));
        }
    }

    static void load(const uint8_t *at, int k, __m512i &first, __m512i &second)
    {
        const __m512i bytes = _mm512_loadu_si512(at + k * LINE);
        first = low_of(bytes);
        second = high_of(bytes);
    }
};

/* As Q4_0, but the 4 bits are an index into sixteen values. */
template <class BLOCK> struct indices {
    using block = BLOCK;
    static constexpr int PLUS = 128, N_BYTES = HALF_32 * LINE;

    static void pack(uint8_t *to, const block &of, int lane)
    {
        for (int k = 0; k < HALF_32; k++) {
            put_four(to + k * LINE, lane, four_of(of.qs + 4 * k));
        }
    }

    static void load_of(const int8_t *values, const uint8_t *at, int k, __m512i &first, __m512i &second)
    {
        const __m512i bytes = _mm512_loadu_si512(at + k * LINE);
        first = value_plus_128(values, low_of(bytes));
        second = value_plus_128(values, high_of(bytes));
    }
};

struct iq4_nl_quants : half_scales, indices<block_iq4_nl> {
    static constexpr ggml_type TYPE = GGML_TYPE_IQ4_NL;

    static void load(const uint8_t *at, int k, __m512i &first, __m512i &second)
    {
        load_of(kvalues_iq4nl, at, k, first, second);
    }
};

/* A scale is an exponent e of 8 bits and means 2^(e - 128): the table of values is doubled, so that all of them are
 * whole. e <= 1 gives a denormal float, whose exponent bits are 0. */
struct mxfp4_quants : indices<block_mxfp4> {
    using scale = uint8_t;
    static constexpr ggml_type TYPE = GGML_TYPE_MXFP4;

    static uint8_t scale_of(const block_mxfp4 &of)
    {
        return of.e;
    }

    static __m512 scales(const uint8_t *at)
    {
        const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(at)));
        const __m512i one = _mm512_set1_epi32(1), normal = _mm512_slli_epi32(_mm512_sub_epi32(e, one), 23),
                      denormal = _mm512_sllv_epi32(_mm512_set1_epi32(1 << 21), e);
        return _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, _mm512_cmple_epu32_mask(e, one), denormal));
    }

    static void load(const uint8_t *at, int k, __m512i &first, __m512i &second)
    {
        load_of(kvalues_mxfp4, at, k, first, second);
    }
};

/* A line of fifth bits (byte i of a lane has those of input i of all eight steps, one bit each), then the other 4 bits
 * as in Q4_0. */
struct q5_0_quants : half_scales {
    using block = block_q5_0;
    static constexpr ggml_type TYPE = GGML_TYPE_Q5_0;
    static constexpr int PLUS = 16, N_BYTES = (1 + HALF_32) * LINE;

    static void pack(uint8_t *to, const block &of, int lane)
    {
        const uint32_t bits = four_of(of.qh);
        uint32_t fifths = 0;
        for (int i = 0; i < 32; i++) {
            fifths |= (bits >> i & 1) << (i % 4 * 8 + i / 4);
        }
        put_four(to, lane, fifths);
        for (int k = 0; k < HALF_32; k++) {
            put_four(to + (1 + k) * LINE, lane, four_of(of.qs + 4 * k));
        }
    }

    static void load(const uint8_t *at, int k, __m512i &first, __m512i &second)
    {
        const __m512i fifths = _mm512_loadu_si512(at), bytes = _mm512_loadu_si512(at + (1 + k) * LINE);
        first = over(low_of(bytes), _mm512_slli_epi16(fifths, 4 - k), 0x10);
        second = over(high_of(bytes), _mm512_srli_epi16(fifths, k), 0x10);
    }
};

template <class QUANTS> struct blocks_of_32 {
    using block = typename QUANTS::block;
    static constexpr ggml_type TYPE = QUANTS::TYPE;
    static constexpr int BLOCK = 32;
    static constexpr int UNIT = 2 * BLOCK; /* keeps the groups at whole cache lines; those of MXFP4 at halves */
    static constexpr int ROWS_MOST = 6, FETCHES = 1;

    using scale = typename QUANTS::scale;

    static size_t scales_at(int64_t n_blocks)
    {
        return n_blocks * QUANTS::N_BYTES;
    }

    static void pack(uint8_t *to, const block *from, int64_t n_blocks)
    {
        scale *scales = reinterpret_cast<scale *>(to + scales_at(n_blocks));
        for (int64_t b = 0; b < n_blocks; b++) {
            for (int lane = 0; lane < LANES; lane++) {
                const block &of = from[lane * n_blocks + b];
                QUANTS::pack(to + b * QUANTS::N_BYTES, of, lane);
                scales[b * LANES + lane] = QUANTS::scale_of(of);
            }
        }
    }

    /* A quantized row: quants, then the scales of all blocks, then for each block the number that its sums begin with,
     * which takes PLUS in the weights back. */
    struct activations {
        int8_t *quants;
        float *scales;
        int32_t *offsets;

        activations() = default;
        activations(void *row, int64_t n_blocks)
        {
            quants = static_cast<int8_t *>(row);
            scales = reinterpret_cast<float *>(quants + n_blocks * BLOCK);
            offsets = reinterpret_cast<int32_t *>(scales + n_blocks);
        }

        static size_t n_bytes(int64_t n_blocks)
        {
            const size_t n = n_blocks * (BLOCK + sizeof(float) + sizeof(int32_t));
            return (n + 63) / 64 * 64;
        }

        void quantize(const float *from, int64_t n_blocks) const
        {
            for (int64_t b = 0; b < n_blocks; b++) {
                block_q8_0 to;
                quantize_row_q8_0(from + b * BLOCK, &to, BLOCK);
                int32_t sum = 0;
                for (int k = 0; k < BLOCK; k++) {
                    sum += to.qs[k];
                }
                memcpy(quants + b * BLOCK, to.qs, BLOCK);
                scales[b] = GGML_CPU_FP16_TO_FP32(to.d);
                offsets[b] = -QUANTS::PLUS * sum;
            }
        }
    };

    /* The inner loops run over rows and groups in registers: ROWS * GROUPS sums and totals, and the weights of one
     * step. */
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
            for (int g = 0; g < GROUPS; g++) {
                at[g] = p.weights + g * p.group_bytes + b * QUANTS::N_BYTES;
                fetch_ahead<GROUPS>(p, g, b * LANES * sizeof(block), LANES * sizeof(block));
            }
            next.fetch();
            __m512i sum[ROWS][GROUPS];
            for (int r = 0; r < ROWS; r++) {
                for (int g = 0; g < GROUPS; g++) {
                    sum[r][g] = _mm512_set1_epi32(rows[r].offsets[b]);
                }
            }
            for (int k = 0; k < HALF_32; k++) {
                __m512i first[GROUPS], second[GROUPS];
                for (int g = 0; g < GROUPS; g++) {
                    QUANTS::load(at[g], k, first[g], second[g]);
                }
                for (int r = 0; r < ROWS; r++) {
                    const int8_t *four = rows[r].quants + b * BLOCK + k * 4;
                    const __m512i inputs = four_inputs(four), later = four_inputs(four + HALF_32 * 4);
                    for (int g = 0; g < GROUPS; g++) {
                        sum[r][g] = _mm512_dpbusd_epi32(sum[r][g], first[g], inputs);
                        sum[r][g] = _mm512_dpbusd_epi32(sum[r][g], second[g], later);
                    }
                }
            }
            for (int g = 0; g < GROUPS; g++) {
                const uint8_t *group = p.weights + g * p.group_bytes;
                const __m512 by =
                    QUANTS::scales(reinterpret_cast<const scale *>(group + scales_at(n_blocks)) + b * LANES);
                for (int r = 0; r < ROWS; r++) {
                    total[r][g] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][g]),
                                                  _mm512_mul_ps(by, _mm512_set1_ps(rows[r].scales[b])), total[r][g]);
                }
            }
        }
        put_out(p, total);
    }
};

using q8_0 = blocks_of_32<q8_0_quants>;
using q5_0 = blocks_of_32<q5_0_quants>;
using q4_0 = blocks_of_32<q4_0_quants>;
using iq4_nl = blocks_of_32<iq4_nl_quants>;
using mxfp4 = blocks_of_32<mxfp4_quants>;

} // namespace weights_rows

#endif
