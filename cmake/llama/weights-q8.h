/* weights-q8.h: Q8_0 weights in rows (weights-rows.h). The sums go through whole numbers within a block of 32 inputs, as where
 * llama.cpp computes them, and then through single precision, block after block.
 *
 * First all quants of a group, of each block four inputs of each row in turn, plus 128, since the instruction multiplies
 * unsigned with signed bytes; then the blocks' scales. */
#ifndef WEIGHTS_Q8_H
#define WEIGHTS_Q8_H

#include "weights-rows.h"

namespace weights_rows {

struct q8_0 {
    using block = block_q8_0;
    static constexpr ggml_type TYPE = GGML_TYPE_Q8_0;
    static constexpr int BLOCK = QK8_0;
    static constexpr int UNIT = 2 * BLOCK; /* groups begin where lines do */
    static constexpr int ROWS_MOST = 6;
    static constexpr int STEPS = BLOCK / 4; /* instructions for a block */

    static size_t scales_at(int64_t n_blocks)
    {
        return n_blocks * LANES * BLOCK;
    }

    static void pack(uint8_t *to, const block *from, int64_t n_blocks)
    {
        ggml_half *scales = reinterpret_cast<ggml_half *>(to + scales_at(n_blocks));
        for (int64_t b = 0; b < n_blocks; b++) {
            for (int lane = 0; lane < LANES; lane++) {
                const block &of = from[lane * n_blocks + b];
                for (int k = 0; k < STEPS; k++) {
                    uint32_t four;
                    memcpy(&four, of.qs + 4 * k, sizeof four);
                    four ^= 0x80808080; /* of each byte, plus 128 */
                    memcpy(to + ((b * STEPS + k) * LANES + lane) * 4, &four, sizeof four);
                }
                scales[b * LANES + lane] = of.d;
            }
        }
    }

    /* Quants, then of each block the scale, and what the 128 in the weights must be made up for with. */
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
                offsets[b] = -128 * sum;
            }
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
            __m512i sum[ROWS][GROUPS];
            for (int r = 0; r < ROWS; r++) {
                for (int g = 0; g < GROUPS; g++) {
                    sum[r][g] = _mm512_set1_epi32(rows[r].offsets[b]);
                }
            }
            for (int k = 0; k < STEPS; k++) {
                __m512i weights[GROUPS];
                for (int g = 0; g < GROUPS; g++) {
                    const uint8_t *line = p.weights + g * p.group_bytes + (b * STEPS + k) * LANES * 4;
                    weights[g] = _mm512_loadu_si512(line);
                    fetch_ahead(line);
                }
                for (int r = 0; r < ROWS; r++) {
                    const __m512i inputs = four_inputs(rows[r].quants + b * BLOCK + k * 4);
                    for (int g = 0; g < GROUPS; g++) {
                        sum[r][g] = _mm512_dpbusd_epi32(sum[r][g], weights[g], inputs);
                    }
                }
            }
            for (int g = 0; g < GROUPS; g++) {
                const uint8_t *group = p.weights + g * p.group_bytes;
                const __m512 scale = halves(group + scales_at(n_blocks) + b * LANES * sizeof(ggml_half));
                for (int r = 0; r < ROWS; r++) {
                    total[r][g] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][g]),
                                                  _mm512_mul_ps(scale, _mm512_set1_ps(rows[r].scales[b])), total[r][g]);
                }
            }
        }
        put_out(p, total);
    }
};

} // namespace weights_rows

#endif
