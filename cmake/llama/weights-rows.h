/* weights-rows.h: products of Q8_0 weights with rows of activations, on x86 processors with AVX-512 VNNI. Included by
 * ggml-cpu's repack.cpp.
 *
 * Sixteen rows of the weights lie side by side: one instruction multiplies four inputs with all sixteen, and what was read
 * of the weights serves six rows of activations. The sums go through whole numbers within a block of 32 inputs, as where
 * llama.cpp computes them, and then through single precision, block after block: the bits of a row depend neither on the
 * number of threads nor on the rows beside it.
 *
 * A group of sixteen weight rows takes the bytes that it has in the file: first all quants, of each block four inputs of each
 * row in turn, plus 128, since the instruction multiplies unsigned with signed bytes; then the blocks' scales. */
#ifndef WEIGHTS_ROWS_H
#define WEIGHTS_ROWS_H

#include <immintrin.h>

#include "quants.h"

#include <algorithm>
#include <cstring>

namespace weights_rows {

constexpr int LANES = 16; /* weight rows of a group */
constexpr int BLOCK = QK8_0;
constexpr int STEPS = BLOCK / 4; /* instructions for a block */
constexpr int ROWS_MOST = 6;     /* with two groups: sums, their scaled sums and the weights fill the registers */
constexpr int ROWS_TASK = 16 * ROWS_MOST;

inline bool fits(const ggml_tensor *weights)
{
    return weights->type == GGML_TYPE_Q8_0 && ggml_n_dims(weights) == 2 && weights->ne[0] % (2 * BLOCK) == 0 &&
           weights->ne[1] % LANES == 0;
}

/* Of one group. */
struct group {
    const uint8_t *quants;
    const ggml_half *scales;

    group(const void *weights, int64_t n_blocks, int64_t i)
    {
        quants = static_cast<const uint8_t *>(weights) + i * n_blocks * LANES * sizeof(block_q8_0);
        scales = reinterpret_cast<const ggml_half *>(quants + n_blocks * LANES * BLOCK);
    }
};

inline void pack(void *to, const block_q8_0 *from, int64_t n_blocks, int64_t n_rows)
{
    for (int64_t i = 0; i < n_rows / LANES; i++) {
        const group g(to, n_blocks, i);
        uint8_t *quants = const_cast<uint8_t *>(g.quants);
        ggml_half *scales = const_cast<ggml_half *>(g.scales);
        for (int64_t b = 0; b < n_blocks; b++) {
            for (int lane = 0; lane < LANES; lane++) {
                const block_q8_0 &block = from[(i * LANES + lane) * n_blocks + b];
                for (int k = 0; k < STEPS; k++) {
                    uint32_t four;
                    memcpy(&four, block.qs + 4 * k, sizeof four);
                    four ^= 0x80808080; /* of each byte, plus 128 */
                    memcpy(quants + ((b * STEPS + k) * LANES + lane) * 4, &four, sizeof four);
                }
                scales[b * LANES + lane] = block.d;
            }
        }
    }
}

/* A row of activations: quants, then of each block the scale, and what the 128 in the weights must be made up for with. */
struct activations {
    int8_t *quants;
    float *scales;
    int32_t *offsets;

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
            block_q8_0 block;
            quantize_row_q8_0(from + b * BLOCK, &block, BLOCK);
            int32_t sum = 0;
            for (int k = 0; k < BLOCK; k++) {
                sum += block.qs[k];
            }
            memcpy(quants + b * BLOCK, block.qs, BLOCK);
            scales[b] = GGML_CPU_FP16_TO_FP32(block.d);
            offsets[b] = -128 * sum;
        }
    }
};

/* `out` of the first row and the first group; rows of activations and of `out` lie so far apart. */
struct place {
    const group *groups;
    char *row;
    size_t row_bytes;
    float *out;
    int64_t n_out;
};

template <int ROWS, int GROUPS> void multiply(const place &p, int64_t n_blocks)
{
    const int8_t *quants[ROWS];
    const float *scales[ROWS];
    const int32_t *offsets[ROWS];
    __m512 total[ROWS][GROUPS];
    for (int r = 0; r < ROWS; r++) {
        const activations a(p.row + r * p.row_bytes, n_blocks);
        quants[r] = a.quants;
        scales[r] = a.scales;
        offsets[r] = a.offsets;
        for (int g = 0; g < GROUPS; g++) {
            total[r][g] = _mm512_setzero_ps();
        }
    }
    for (int64_t b = 0; b < n_blocks; b++) {
        __m512i sum[ROWS][GROUPS];
        for (int r = 0; r < ROWS; r++) {
            for (int g = 0; g < GROUPS; g++) {
                sum[r][g] = _mm512_set1_epi32(offsets[r][b]);
            }
        }
        for (int k = 0; k < STEPS; k++) {
            __m512i weights[GROUPS];
            for (int g = 0; g < GROUPS; g++) {
                weights[g] = _mm512_loadu_si512(p.groups[g].quants + (b * STEPS + k) * LANES * 4);
            }
            for (int r = 0; r < ROWS; r++) {
                int32_t four;
                memcpy(&four, quants[r] + b * BLOCK + k * 4, sizeof four);
                const __m512i inputs = _mm512_set1_epi32(four);
                for (int g = 0; g < GROUPS; g++) {
                    sum[r][g] = _mm512_dpbusd_epi32(sum[r][g], weights[g], inputs);
                }
            }
        }
        for (int g = 0; g < GROUPS; g++) {
            const __m512 scale =
                _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p.groups[g].scales + b * LANES)));
            for (int r = 0; r < ROWS; r++) {
                total[r][g] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][g]),
                                              _mm512_mul_ps(scale, _mm512_set1_ps(scales[r][b])), total[r][g]);
            }
        }
    }
    for (int r = 0; r < ROWS; r++) {
        for (int g = 0; g < GROUPS; g++) {
            _mm512_storeu_ps(p.out + r * p.n_out + g * LANES, total[r][g]);
        }
    }
}

template <int GROUPS> void multiply_rows(place p, int64_t n_blocks, int64_t n_rows)
{
    for (; n_rows >= ROWS_MOST; n_rows -= ROWS_MOST) {
        multiply<ROWS_MOST, GROUPS>(p, n_blocks);
        p.row += ROWS_MOST * p.row_bytes;
        p.out += ROWS_MOST * p.n_out;
    }
    switch (n_rows) {
    case 5: multiply<5, GROUPS>(p, n_blocks); break;
    case 4: multiply<4, GROUPS>(p, n_blocks); break;
    case 3: multiply<3, GROUPS>(p, n_blocks); break;
    case 2: multiply<2, GROUPS>(p, n_blocks); break;
    case 1: multiply<1, GROUPS>(p, n_blocks); break;
    default: break;
    }
}

class tensor_traits : public ggml::cpu::repack::tensor_traits_base {
    int repack(ggml_tensor *t, const void *data, size_t data_size) override
    {
        GGML_ASSERT(data_size == ggml_nbytes(t));
        pack(t->data, static_cast<const block_q8_0 *>(data), t->ne[0] / BLOCK, t->ne[1]);
        return 0;
    }

    bool work_size(int /* n_threads */, const ggml_tensor *op, size_t &size) override
    {
        size = ggml_nrows(op->src[1]) * activations::n_bytes(op->src[1]->ne[0] / BLOCK) + 64;
        return true;
    }

    bool compute_forward(ggml_compute_params *params, ggml_tensor *op) override
    {
        if (op->op != GGML_OP_MUL_MAT) {
            return false;
        }
        const ggml_tensor *weights = op->src[0];
        const ggml_tensor *inputs = op->src[1];
        GGML_ASSERT(inputs->nb[0] == sizeof(float) && ggml_is_contiguous(op));

        const int64_t n_blocks = weights->ne[0] / BLOCK;
        const int64_t n_rows = ggml_nrows(inputs);
        const size_t row_bytes = activations::n_bytes(n_blocks);
        char *rows = reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(params->wdata) + 63) / 64 * 64);

        for (int64_t i = params->ith; i < n_rows; i += params->nth) {
            const int64_t i1 = i % inputs->ne[1], i2 = i / inputs->ne[1] % inputs->ne[2],
                          i3 = i / inputs->ne[1] / inputs->ne[2];
            const char *from =
                static_cast<const char *>(inputs->data) + i1 * inputs->nb[1] + i2 * inputs->nb[2] + i3 * inputs->nb[3];
            activations(rows + i * row_bytes, n_blocks).quantize(reinterpret_cast<const float *>(from), n_blocks);
        }
        ggml_barrier(params->threadpool);

        /* Weights are read from memory once, for all rows. */
        const int64_t n_groups = weights->ne[1] / LANES;
        const int64_t n_pairs = (n_groups + 1) / 2;
        const int64_t n_parts = (n_rows + ROWS_TASK - 1) / ROWS_TASK;
        const int64_t n_tasks = n_pairs * n_parts;
        for (int64_t i = n_tasks * params->ith / params->nth; i < n_tasks * (params->ith + 1) / params->nth; i++) {
            const int64_t pair = i / n_parts, first = i % n_parts * ROWS_TASK,
                          last = std::min(first + ROWS_TASK, n_rows);
            const bool is_whole = 2 * pair + 1 < n_groups;
            const group groups[] = {group(weights->data, n_blocks, 2 * pair),
                                    group(weights->data, n_blocks, 2 * pair + is_whole)};
            const place at = {groups, rows + first * row_bytes, row_bytes,
                              static_cast<float *>(op->data) + first * op->ne[0] + pair * 2 * LANES, op->ne[0]};
            if (is_whole) {
                multiply_rows<2>(at, n_blocks, last - first);
            } else {
                multiply_rows<1>(at, n_blocks, last - first);
            }
        }
        return true;
    }
};

} // namespace weights_rows

#endif
