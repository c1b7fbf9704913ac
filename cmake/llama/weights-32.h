/* weights-32.h: the layouts of Q8_0, Q5_0, Q4_0, IQ4_NL and MXFP4 weights (weights-rows.h). Each block of 32 inputs has
 * a scale. The sum of a block is an integer, as in llama.cpp's own kernels. The scaled sums of the blocks are added in
 * order, in single precision.
 *
 * A group stores first the quants (quantized weights) of all blocks, then their scales. The instructions multiply
 * unsigned bytes with signed bytes. So a weight is stored, or unpacked, as value + PLUS, which is not negative, and
 * PLUS * (sum of the inputs) is subtracted from the result. For example, with PLUS 8 a weight of -3 is stored as 5, and
 * 5 * x - 8 * x = -3 * x. A step is four inputs of each lane. In formats of 4 bits, steps k and k + HALF_32 of a block
 * are in the same bytes. */
#ifndef WEIGHTS_32_H
#define WEIGHTS_32_H

#include "weights-rows.h"

namespace weights_rows {

constexpr int STEPS_32 = 32 / 4, HALF_32 = STEPS_32 / 2;
constexpr int ROWS_32 = PIECES == 1 ? 6 : 4; /* with 32 or 16 registers */

/* The structs below define what differs between the formats. PLUS is explained above. MOST is the largest weight after
 * adding PLUS. N_BYTES is the size of the quants of a block, for all lanes. `pack` stores the quants of a block.
 * `load_step` unpacks a step of a block, for the lanes of a register. `scale` is the type of a scale in the file.
 * scales() converts the scales of these lanes to floats. */

inline ints half_byte_of(const uint8_t *at, int step)
{
    const ints bytes = load(at + step % HALF_32 * LINE);
    return step < HALF_32 ? low_of(bytes) : high_of(bytes);
}

struct half_scales {
    using scale = ggml_half;

    template <class BLOCK> static ggml_half scale_of(const BLOCK &of)
    {
        return of.d;
    }

    static floats scales(const ggml_half *at)
    {
        return halves_of(at);
    }
};

struct q8_0_quants : half_scales {
    using block = block_q8_0;
    static constexpr ggml_type TYPE = GGML_TYPE_Q8_0;
    static constexpr int PLUS = 128, MOST = 255, N_BYTES = STEPS_32 * LINE;

    static void pack(uint8_t *to, const block &of, int lane)
    {
        for (int k = 0; k < STEPS_32; k++) {
            put_four(to + k * LINE, lane, four_of(of.qs + 4 * k) ^ 0x80808080); /* adds 128 to each byte */
        }
    }

    static ints load_step(const uint8_t *at, int step)
    {
        return load(at + step * LINE);
    }
};

/* A byte has 4 bits of step k and 4 bits of step k + HALF_32, as in the file. */
struct q4_0_quants : half_scales {
    using block = block_q4_0;
    static constexpr ggml_type TYPE = GGML_TYPE_Q4_0;
    static constexpr int PLUS = 8, MOST = 15, N_BYTES = HALF_32 * LINE;

    static void pack(uint8_t *to, const block &of, int lane)
    {
        for (int k = 0; k < HALF_32; k++) {
            put_four(to + k * LINE, lane, four_of(of.qs + 4 * k));
        }
    }

    static ints load_step(const uint8_t *at, int step)
    {
        return half_byte_of(at, step);
    }
};

/* Like Q4_0, but the 4 bits are an index into a table of sixteen values. */
template <class BLOCK> struct indices {
    using block = BLOCK;
    static constexpr int N_BYTES = HALF_32 * LINE;

    static void pack(uint8_t *to, const block &of, int lane)
    {
        for (int k = 0; k < HALF_32; k++) {
            put_four(to + k * LINE, lane, four_of(of.qs + 4 * k));
        }
    }
};

struct iq4_nl_quants : half_scales, indices<block_iq4_nl> {
    static constexpr ggml_type TYPE = GGML_TYPE_IQ4_NL;
    static constexpr int PLUS = 128, MOST = 128 + 113;

    static ints load_step(const uint8_t *at, int step)
    {
        return value_plus<PLUS>(kvalues_iq4nl, half_byte_of(at, step));
    }
};

/* A scale is an exponent e of 8 bits and stands for 2^(e - 128). The values in the table are doubled, so that all of
 * them are integers. If e <= 1, the scale is a denormal float, whose exponent bits are 0. */
struct mxfp4_quants : indices<block_mxfp4> {
    using scale = uint8_t;
    static constexpr ggml_type TYPE = GGML_TYPE_MXFP4;
    static constexpr int PLUS = 12, MOST = 12 + 12;

    static uint8_t scale_of(const block_mxfp4 &of)
    {
        return of.e;
    }

    static floats scales(const uint8_t *at)
    {
        const ints e = unsigned_ints_of(at), one = WEIGHTS_OP(set1_epi32)(1),
                   normal = WEIGHTS_OP(slli_epi32)(WEIGHTS_OP(sub_epi32)(e, one), 23),
                   denormal = WEIGHTS_OP(sllv_epi32)(WEIGHTS_OP(set1_epi32)(1 << 21), e);
        return (floats)where_at_most(e, 1, denormal, normal);
    }

    static ints load_step(const uint8_t *at, int step)
    {
        return value_plus<PLUS>(kvalues_mxfp4, half_byte_of(at, step));
    }
};

/* The first line has the fifth bits of all quants: byte i of a lane has one bit for input i of each of the eight steps.
 * The other 4 bits follow as in Q4_0. */
struct q5_0_quants : half_scales {
    using block = block_q5_0;
    static constexpr ggml_type TYPE = GGML_TYPE_Q5_0;
    static constexpr int PLUS = 16, MOST = 31, N_BYTES = (1 + HALF_32) * LINE;

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

    static ints load_step(const uint8_t *at, int step)
    {
        return over(half_byte_of(at + LINE, step), shifted(load(at), 4 - step), 0x10);
    }
};

template <class QUANTS> struct blocks_of_32 {
    using block = typename QUANTS::block;
    static constexpr ggml_type TYPE = QUANTS::TYPE;
    static constexpr int BLOCK = 32;
    static constexpr int UNIT = 2 * BLOCK; /* so that groups begin at whole cache lines, or at half cache lines for
                                            * MXFP4 */
    static constexpr int ROWS_MOST = ROWS_32, FETCHES = 1;

    using scale = typename QUANTS::scale;
    using product = products<QUANTS::MOST>;
    static_assert(steps_at_once<product>(QUANTS::MOST, QUANTS::PLUS) >= STEPS_32);

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

    /* A quantized row of activations: the quants, the scales of all blocks, and an offset for each block. The sums of a
     * block begin with this offset, which compensates for PLUS in the weights. */
    struct activations {
        int8_t *quants;
        float *scales;
        int32_t *offsets;

        activations() = default;
        activations(void *row, int64_t n_blocks)
        {
            quants = static_cast<int8_t *>(row);
            scales = reinterpret_cast<float *>(quants + n_blocks * BLOCK * product::INPUT_BYTES);
            offsets = reinterpret_cast<int32_t *>(scales + n_blocks);
        }

        static size_t n_bytes(int64_t n_blocks)
        {
            const size_t n = n_blocks * (BLOCK * product::INPUT_BYTES + sizeof(float) + sizeof(int32_t));
            return (n + 63) / 64 * 64;
        }

        void quantize(const float *from, int64_t n_blocks) const
        {
            for (int64_t b = 0; b < n_blocks; b++) {
                block_q8_0 to;
                quantize_row_q8_0(from + b * BLOCK, &to, BLOCK);
                product::arrange(quants + b * BLOCK * product::INPUT_BYTES, to.qs, BLOCK);
                scales[b] = GGML_CPU_FP16_TO_FP32(to.d);
                offsets[b] = product::offset(to.qs, BLOCK, QUANTS::PLUS);
            }
        }
    };

    /* The inner loops run over rows and columns. ROWS * COLUMNS sums and the weights of one step are in registers. */
    template <int ROWS, int GROUPS> static void multiply(const place &p, int64_t n_blocks, upcoming &next)
    {
        constexpr int COLUMNS = GROUPS * PIECES;
        activations rows[ROWS];
        totals<ROWS, GROUPS> total;
        for (int r = 0; r < ROWS; r++) {
            rows[r] = activations(p.rows[r], n_blocks);
            for (int c = 0; c < COLUMNS; c++) {
                total[r][c] = floats{};
            }
        }
        for (int64_t b = 0; b < n_blocks; b++) {
            for (int g = 0; g < GROUPS; g++) {
                fetch_ahead<GROUPS>(p, g, b * LANES * sizeof(block), LANES * sizeof(block));
            }
            next.fetch();
            const uint8_t *at[COLUMNS];
            for (int c = 0; c < COLUMNS; c++) {
                at[c] = p.piece(c) + b * QUANTS::N_BYTES;
            }
            ints sum[ROWS][COLUMNS];
            for (int r = 0; r < ROWS; r++) {
                for (int c = 0; c < COLUMNS; c++) {
                    sum[r][c] = all_of(rows[r].offsets + b);
                }
            }
#pragma GCC unroll 8
            for (int k = 0; k < STEPS_32 / STEPS_MOST; k++) {
                typename product::weights weights[STEPS_MOST][COLUMNS];
                for (int c = 0; c < COLUMNS; c++) {
                    for (int j = 0; j < STEPS_MOST; j++) {
                        weights[j][c] = kept(QUANTS::load_step(at[c], k + j * HALF_32));
                    }
                }
                for (int r = 0; r < ROWS; r++) {
                    typename product::inputs inputs[STEPS_MOST];
                    for (int j = 0; j < STEPS_MOST; j++) {
                        const int64_t input = b * BLOCK + (k + j * HALF_32) * 4;
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
                const scale *scales = reinterpret_cast<const scale *>(p.group(c) + scales_at(n_blocks)) + b * LANES;
                const floats by = QUANTS::scales(scales + p.lane(c));
                for (int r = 0; r < ROWS; r++) {
                    const floats whole = WEIGHTS_OP(cvtepi32_ps)(product::whole(sum[r][c]));
                    total[r][c] = WEIGHTS_OP(fmadd_ps)(
                        whole, WEIGHTS_OP(mul_ps)(by, WEIGHTS_OP(set1_ps)(rows[r].scales[b])), total[r][c]);
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
