/* weights-rows.h: products of quantized weights with rows of activations, on x86 processors with AVX-512 VNNI. Included by
 * ggml-cpu's repack.cpp.
 *
 * Sixteen rows of the weights, a group, lie side by side: one instruction multiplies four inputs with all sixteen, and what
 * was read of the weights serves several rows of activations. A group takes the bytes that it has in the file. How they lie
 * is the format's: weights-32.h, weights-k.h. The bits of a row depend neither on the number of threads nor on the rows
 * beside it.
 *
 * A format has
 *   TYPE, block      of the weights in the file
 *   BLOCK, UNIT      inputs of a block, and what their number must be a multiple of
 *   ROWS_MOST        rows of activations at a time: their sums and the weights fill the registers
 *   pack             lays a group out
 *   activations      a row of them, quantized
 *   multiply         ROWS rows of activations with GROUPS groups of weights */
#ifndef WEIGHTS_ROWS_H
#define WEIGHTS_ROWS_H

#include <immintrin.h>

#include "quants.h"

#include <algorithm>
#include <cstring>

namespace weights_rows {

constexpr int LANES = 16;       /* weight rows of a group */
constexpr int LINE = LANES * 4; /* bytes: four of each lane */
constexpr int TASK_PARTS = 16;  /* of ROWS_MOST rows each */

/* ---- laying out: four bytes, of one lane ---- */

inline uint32_t four_of(const void *from)
{
    uint32_t four;
    memcpy(&four, from, sizeof four);
    return four;
}

inline void put_four(uint8_t *line, int lane, uint32_t four)
{
    memcpy(line + lane * 4, &four, sizeof four);
}

/* Of each byte the lower 4 bits of the second one over those of the first. */
inline uint32_t two_of(uint32_t first, uint32_t second)
{
    return (first & 0x0f0f0f0f) | (second & 0x0f0f0f0f) << 4;
}

/* ---- multiplying ---- */

/* What memory should bring meanwhile: so far ahead, reading is no longer what is waited for. The i-th part of so many bytes. */
inline void fetch_ahead(const uint8_t *at, size_t n_bytes, int i)
{
    constexpr size_t AHEAD_BYTES = 4096;
    for (size_t k = 0; k < n_bytes; k += LINE) {
        _mm_prefetch(reinterpret_cast<const char *>(at + i * n_bytes + k + AHEAD_BYTES), _MM_HINT_T0);
    }
}

/* Of each byte the lower 4 bits; the upper ones. */
inline __m512i low_of(__m512i bytes)
{
    return _mm512_and_si512(bytes, _mm512_set1_epi8(0x0f));
}

inline __m512i high_of(__m512i bytes)
{
    return low_of(_mm512_srli_epi16(bytes, 4));
}

/* What the quants of IQ4_NL and IQ4_XS stand for. */
inline __m512i value_plus_128(__m512i quants)
{
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i *>(kvalues_iq4nl));
    const __m128i plus_128 = _mm_xor_si128(values, _mm_set1_epi8(static_cast<char>(0x80)));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(plus_128), quants);
}

/* Bits of `upper`, by the mask, over `low`. */
inline __m512i over(__m512i low, __m512i upper, char mask)
{
    return _mm512_ternarylogic_epi32(_mm512_set1_epi8(mask), upper, low, 0xea); /* (mask & upper) | low */
}

/* Four inputs of a row, for all lanes. */
inline __m512i four_inputs(const int8_t *quants)
{
    return _mm512_set1_epi32(static_cast<int32_t>(four_of(quants)));
}

/* Sixteen numbers in half precision. */
inline __m512 halves(const void *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i *>(from)));
}

/* The first group, the first row of activations and its first output; others lie so far apart. */
struct place {
    const uint8_t *weights;
    size_t group_bytes;
    char *row;
    size_t row_bytes;
    float *out;
    int64_t n_out;
};

template <int ROWS, int GROUPS> void put_out(const place &p, const __m512 (&total)[ROWS][GROUPS])
{
    for (int r = 0; r < ROWS; r++) {
        for (int g = 0; g < GROUPS; g++) {
            _mm512_storeu_ps(p.out + r * p.n_out + g * LANES, total[r][g]);
        }
    }
}

template <class FORMAT, int ROWS, int GROUPS> void multiply_few(const place &p, int64_t n_blocks, int64_t n_rows)
{
    if (n_rows == ROWS) {
        FORMAT::template multiply<ROWS, GROUPS>(p, n_blocks);
    } else if constexpr (ROWS > 1) {
        multiply_few<FORMAT, ROWS - 1, GROUPS>(p, n_blocks, n_rows);
    }
}

template <class FORMAT, int GROUPS> void multiply_rows(place p, int64_t n_blocks, int64_t n_rows)
{
    while (n_rows > 0) {
        const int64_t n = std::min<int64_t>(n_rows, FORMAT::ROWS_MOST);
        multiply_few<FORMAT, FORMAT::ROWS_MOST, GROUPS>(p, n_blocks, n);
        p.row += n * p.row_bytes;
        p.out += n * p.n_out;
        n_rows -= n;
    }
}

template <class FORMAT> class tensor_traits : public ggml::cpu::repack::tensor_traits_base {
    using block = typename FORMAT::block;
    using activations = typename FORMAT::activations;
    static constexpr int64_t TASK_ROWS = TASK_PARTS * FORMAT::ROWS_MOST;

    int repack(ggml_tensor *t, const void *data, size_t data_size) override
    {
        GGML_ASSERT(data_size == ggml_nbytes(t));
        const int64_t n_blocks = t->ne[0] / FORMAT::BLOCK;
        uint8_t *to = static_cast<uint8_t *>(t->data);
        const block *from = static_cast<const block *>(data);
        for (int64_t i = 0; i < t->ne[1] / LANES; i++) {
            FORMAT::pack(to, from, n_blocks);
            to += n_blocks * LANES * sizeof(block);
            from += n_blocks * LANES;
        }
        return 0;
    }

    bool work_size(int /* n_threads */, const ggml_tensor *op, size_t &size) override
    {
        size = ggml_nrows(op->src[1]) * activations::n_bytes(op->src[1]->ne[0] / FORMAT::BLOCK) + 64;
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

        const int64_t n_blocks = weights->ne[0] / FORMAT::BLOCK;
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
        const int64_t n_parts = (n_rows + TASK_ROWS - 1) / TASK_ROWS;
        const int64_t n_tasks = n_pairs * n_parts;
        for (int64_t i = n_tasks * params->ith / params->nth; i < n_tasks * (params->ith + 1) / params->nth; i++) {
            const int64_t pair = i / n_parts, first = i % n_parts * TASK_ROWS,
                          last = std::min(first + TASK_ROWS, n_rows);
            const size_t group_bytes = n_blocks * LANES * sizeof(block);
            const place at = {static_cast<const uint8_t *>(weights->data) + 2 * pair * group_bytes,
                              group_bytes,
                              rows + first * row_bytes,
                              row_bytes,
                              static_cast<float *>(op->data) + first * op->ne[0] + pair * 2 * LANES,
                              op->ne[0]};
            if (2 * pair + 1 < n_groups) {
                multiply_rows<FORMAT, 2>(at, n_blocks, last - first);
            } else {
                multiply_rows<FORMAT, 1>(at, n_blocks, last - first);
            }
        }
        return true;
    }
};

/* NULL: they are not of this format, or not of whole groups and units. Static: of several builds of this file in one process
 * each has its own. */
template <class FORMAT> static const ggml::cpu::tensor_traits *layout_as(const ggml_tensor *weights)
{
    static const tensor_traits<FORMAT> layout;
    const bool fits = weights->type == FORMAT::TYPE && ggml_n_dims(weights) == 2 &&
                      weights->ne[0] % FORMAT::UNIT == 0 && weights->ne[1] % LANES == 0;
    return fits ? &layout : nullptr;
}

/* NULL: they are of none of these formats. */
template <class... FORMATS> static const ggml::cpu::tensor_traits *layout_of(const ggml_tensor *weights)
{
    const ggml::cpu::tensor_traits *layout = nullptr;
    ((layout = layout != nullptr ? layout : layout_as<FORMATS>(weights)), ...);
    return layout;
}

} // namespace weights_rows

#endif
