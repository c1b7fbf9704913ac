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
 *   FETCHES          times that `multiply` fetches what comes next, in a block
 *   multiply         ROWS rows of activations with GROUPS groups of weights */
#ifndef WEIGHTS_ROWS_H
#define WEIGHTS_ROWS_H

#include <immintrin.h>

#include "quants.h"

#include <algorithm>
#include <cstring>

namespace weights_rows {

constexpr int LANES = 16;                        /* weight rows of a group */
constexpr int LINE = LANES * 4;                  /* bytes: four of each lane */
constexpr int TASK_PARTS = 16;                   /* of ROWS_MOST rows each */
constexpr int READ_ROWS = 4;                     /* so many take about as long as reading the weights */
constexpr size_t UPCOMING_BYTES_MAX = 256 << 10; /* with as many that are used meanwhile, half of the second cache */

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

/* The weights that come next: where more rows are multiplied with some than fill the registers, memory would have nothing to
 * do meanwhile. */
struct upcoming {
    const uint8_t *at, *end;
    size_t n_bytes; /* at a time */

    void fetch()
    {
        for (const uint8_t *to = std::min(at + n_bytes, end); at < to; at += LINE) {
            _mm_prefetch(reinterpret_cast<const char *>(at), _MM_HINT_T1);
        }
    }
};

/* Of each byte the lower 4 bits; the upper ones. */
inline __m512i low_of(__m512i bytes)
{
    return _mm512_and_si512(bytes, _mm512_set1_epi8(0x0f));
}

inline __m512i high_of(__m512i bytes)
{
    return low_of(_mm512_srli_epi16(bytes, 4));
}

/* What quants stand for, of sixteen values. */
inline __m512i value_plus_128(const int8_t *of, __m512i quants)
{
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i *>(of));
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

/* The first group, whose outputs are the column's; rows of activations, and where the outputs of each begin. */
struct place {
    const uint8_t *weights;
    size_t group_bytes;
    char *const *rows;
    float *const *outs;
    int64_t column;
};

/* What memory should bring meanwhile, of one of GROUPS groups: so many bytes, from so many on, but far ahead, so that reading
 * is no longer what is waited for. Behind a group's end lies its neighbour, which is being read: what comes next is that of
 * the next groups. The second cache has room for more requests at a time than the first. */
template <int GROUPS> void fetch_ahead(const place &p, int group, size_t from, size_t n_bytes)
{
    constexpr size_t AHEAD_BYTES = 4096;
    const size_t at = from + AHEAD_BYTES;
    const uint8_t *to =
        p.weights + group * p.group_bytes + at + (at < p.group_bytes ? 0 : (GROUPS - 1) * p.group_bytes);
    for (size_t k = 0; k < n_bytes; k += LINE) {
        _mm_prefetch(reinterpret_cast<const char *>(to + k), _MM_HINT_T1);
    }
}

template <int ROWS, int GROUPS> void put_out(const place &p, const __m512 (&total)[ROWS][GROUPS])
{
    for (int r = 0; r < ROWS; r++) {
        for (int g = 0; g < GROUPS; g++) {
            _mm512_storeu_ps(p.outs[r] + p.column + g * LANES, total[r][g]);
        }
    }
}

template <class FORMAT, int ROWS, int GROUPS>
void multiply_few(const place &p, int64_t n_blocks, int64_t n_rows, upcoming &next)
{
    if (n_rows == ROWS) {
        FORMAT::template multiply<ROWS, GROUPS>(p, n_blocks, next);
    } else if constexpr (ROWS > 1) {
        multiply_few<FORMAT, ROWS - 1, GROUPS>(p, n_blocks, n_rows, next);
    }
}

/* `next_group`: the GROUPS groups that are multiplied next; or NULL. */
template <class FORMAT, int GROUPS>
void multiply_rows(place p, int64_t n_blocks, int64_t n_rows, const uint8_t *next_group)
{
    const int64_t n_times = (n_rows + FORMAT::ROWS_MOST - 1) / FORMAT::ROWS_MOST;
    upcoming next = {};
    const size_t n_bytes = GROUPS * p.group_bytes;
    if (next_group != nullptr && n_times > 1 && n_bytes <= UPCOMING_BYTES_MAX) {
        next = {next_group, next_group + n_bytes, n_bytes / (n_times * n_blocks * FORMAT::FETCHES) + 1};
    }
    while (n_rows > 0) {
        const int64_t n = std::min<int64_t>(n_rows, FORMAT::ROWS_MOST);
        multiply_few<FORMAT, FORMAT::ROWS_MOST, GROUPS>(p, n_blocks, n, next);
        p.rows += n;
        p.outs += n;
        n_rows -= n;
    }
}

/* ---- which rows are multiplied with which weights ---- */

/* In the work memory, for all threads: MUL_MAT has one matrix of weights, for all rows; MUL_MAT_ID has one for each expert,
 * and says which experts a token's rows go to, those of an expert being together here. */
struct row_table {
    int64_t n_experts, n_rows;
    int64_t *ends; /* of an expert's rows */
    float **outs;
    char **rows; /* quantized, the same one for several experts where they all get the same */
    char *quantized;

    row_table(const ggml_tensor *op, void *work)
        : n_experts(op->src[0]->ne[2]), n_rows(ggml_nrows(op)), ends(static_cast<int64_t *>(work)),
          outs(reinterpret_cast<float **>(ends + n_experts)), rows(reinterpret_cast<char **>(outs + n_rows)),
          quantized(reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(rows + n_rows) + 63) / 64 * 64))
    {}

    static size_t n_bytes(const ggml_tensor *op, size_t row_bytes)
    {
        return op->src[0]->ne[2] * sizeof *ends + ggml_nrows(op) * (sizeof *outs + sizeof *rows) + 64 +
               ggml_nrows(op->src[1]) * row_bytes;
    }

    int64_t begin(int64_t expert) const
    {
        return expert == 0 ? 0 : ends[expert - 1];
    }

    int64_t n_rows_of(int64_t expert) const
    {
        return ends[expert] - begin(expert);
    }

    void fill(const ggml_tensor *op, size_t row_bytes) const
    {
        if (op->op == GGML_OP_MUL_MAT) {
            GGML_ASSERT(n_experts == 1);
            ends[0] = n_rows;
            for (int64_t i = 0; i < n_rows; i++) {
                put(i, op, i, i, row_bytes);
            }
        } else {
            sort_by_experts(op, row_bytes);
        }
    }

  private:
    void put(int64_t at, const ggml_tensor *op, int64_t out_row, int64_t in_row, size_t row_bytes) const
    {
        outs[at] = static_cast<float *>(op->data) + out_row * op->ne[0];
        rows[at] = quantized + in_row * row_bytes;
    }

    void sort_by_experts(const ggml_tensor *op, size_t row_bytes) const
    {
        const ggml_tensor *ids = op->src[2];
        const int64_t n_inputs = op->src[1]->ne[1]; /* of a token: one, or one for each of its experts */
        std::fill_n(ends, n_experts, 0);
        for (int64_t i = 0; i < n_rows; i++) {
            ends[expert_of(ids, i)]++;
        }
        for (int64_t expert = 1; expert < n_experts; expert++) {
            ends[expert] += ends[expert - 1];
        }
        /* from the last one on, each end becoming a begin, which is the end of the expert before */
        for (int64_t i = n_rows; i-- > 0;) {
            const int64_t token = i / ids->ne[0], k = i % ids->ne[0];
            put(--ends[expert_of(ids, i)], op, i, token * n_inputs + k % n_inputs, row_bytes);
        }
        std::copy(ends + 1, ends + n_experts, ends);
        ends[n_experts - 1] = n_rows;
    }

    int64_t expert_of(const ggml_tensor *ids, int64_t i) const
    {
        const char *at =
            static_cast<const char *>(ids->data) + i / ids->ne[0] * ids->nb[1] + i % ids->ne[0] * ids->nb[0];
        int32_t expert;
        memcpy(&expert, at, sizeof expert);
        GGML_ASSERT(expert >= 0 && expert < n_experts);
        return expert;
    }
};

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
        for (int64_t i = 0; i < ggml_nrows(t) / LANES; i++) {
            FORMAT::pack(to, from, n_blocks);
            to += n_blocks * LANES * sizeof(block);
            from += n_blocks * LANES;
        }
        return 0;
    }

    bool work_size(int /* n_threads */, const ggml_tensor *op, size_t &size) override
    {
        size = row_table::n_bytes(op, activations::n_bytes(op->src[1]->ne[0] / FORMAT::BLOCK));
        return true;
    }

    bool compute_forward(ggml_compute_params *params, ggml_tensor *op) override
    {
        if (op->op != GGML_OP_MUL_MAT && op->op != GGML_OP_MUL_MAT_ID) {
            return false;
        }
        const ggml_tensor *inputs = op->src[1];
        GGML_ASSERT(inputs->nb[0] == sizeof(float) && ggml_is_contiguous(op));

        const int64_t n_blocks = inputs->ne[0] / FORMAT::BLOCK;
        const size_t row_bytes = activations::n_bytes(n_blocks);
        GGML_ASSERT(params->wsize >= row_table::n_bytes(op, row_bytes));
        const row_table table(op, params->wdata);
        if (params->ith == 0) {
            table.fill(op, row_bytes);
        }
        for (int64_t i = params->ith; i < ggml_nrows(inputs); i += params->nth) {
            const int64_t i1 = i % inputs->ne[1], i2 = i / inputs->ne[1] % inputs->ne[2],
                          i3 = i / inputs->ne[1] / inputs->ne[2];
            const char *from =
                static_cast<const char *>(inputs->data) + i1 * inputs->nb[1] + i2 * inputs->nb[2] + i3 * inputs->nb[3];
            activations(table.quantized + i * row_bytes, n_blocks)
                .quantize(reinterpret_cast<const float *>(from), n_blocks);
        }
        ggml_barrier(params->threadpool);
        multiply_share(op->src[0], table, params->ith, params->nth);
        return true;
    }

    /* What a pair of groups costs, in rows: below some it is what reading it from memory costs. */
    static int64_t price(int64_t n_rows)
    {
        return n_rows == 0 ? 0 : std::max<int64_t>(n_rows, READ_ROWS);
    }

    /* A thread's part of the whole price. */
    static void multiply_share(const ggml_tensor *weights, const row_table &table, int ith, int nth)
    {
        const int64_t n_pairs = (weights->ne[1] / LANES + 1) / 2;
        int64_t all = 0;
        for (int64_t expert = 0; expert < table.n_experts; expert++) {
            all += n_pairs * price(table.n_rows_of(expert));
        }
        const int64_t begin = all * ith / nth, end = all * (ith + 1) / nth;
        int64_t at = 0;
        for (int64_t expert = 0; expert < table.n_experts && at < end; expert++) {
            const int64_t next = at + n_pairs * price(table.n_rows_of(expert));
            if (next > at && next > begin) {
                multiply_expert(weights, table, expert, begin - at, end - at);
            }
            at = next;
        }
    }

    /* What begins between two prices. Weights are read from memory once, for all their rows. */
    static void multiply_expert(const ggml_tensor *weights, const row_table &table, int64_t expert, int64_t begin,
                                int64_t end)
    {
        const int64_t n_rows = table.n_rows_of(expert), each = price(n_rows);
        const int64_t n_pairs = (weights->ne[1] / LANES + 1) / 2;
        for (int64_t pair = std::max<int64_t>(0, begin / each); pair < n_pairs && pair * each < end; pair++) {
            for (int64_t first = 0; first < n_rows; first += TASK_ROWS) {
                const int64_t at = pair * each + first;
                if (at >= begin && at < end) {
                    multiply_pair(weights, table, expert, pair, first, std::min(TASK_ROWS, n_rows - first));
                }
            }
        }
    }

    static void multiply_pair(const ggml_tensor *weights, const row_table &table, int64_t expert, int64_t pair,
                              int64_t first, int64_t n_rows)
    {
        const int64_t n_blocks = weights->ne[0] / FORMAT::BLOCK, n_groups = weights->ne[1] / LANES;
        const size_t group_bytes = n_blocks * LANES * sizeof(block);
        const int64_t row = table.begin(expert) + first;
        const place at = {static_cast<const uint8_t *>(weights->data) + (expert * n_groups + 2 * pair) * group_bytes,
                          group_bytes, table.rows + row, table.outs + row, pair * 2 * LANES};
        if (2 * pair + 1 < n_groups) {
            const bool has_next = first == 0 && 2 * pair + 3 < n_groups;
            multiply_rows<FORMAT, 2>(at, n_blocks, n_rows, has_next ? at.weights + 2 * group_bytes : nullptr);
        } else {
            multiply_rows<FORMAT, 1>(at, n_blocks, n_rows, nullptr);
        }
    }
};

/* NULL: they are not of this format, or not of whole groups and units. Static: of several builds of this file in one process
 * each has its own. */
template <class FORMAT> static const ggml::cpu::tensor_traits *layout_as(const ggml_tensor *weights)
{
    static const tensor_traits<FORMAT> layout;
    const bool fits = weights->type == FORMAT::TYPE && weights->ne[3] == 1 && weights->ne[0] % FORMAT::UNIT == 0 &&
                      weights->ne[1] % LANES == 0;
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
