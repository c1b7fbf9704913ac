/* attention-block.h: the parameters of an attention call, and the computation of one block for 1 to 4 rows. A block is
 * up to 64 positions of one KV head. A row is a query in one query head. Included by attention-tile.h, which computes
 * blocks for many rows.
 *
 * Plain softmax needs all scores before it can compute the first weight. So this code computes online softmax. Each row
 * keeps the largest score so far, the sum of its weights relative to this score, and the sum of the weighted values. If
 * a block contains a larger score, both sums are scaled down. For example, after the scores 1 and 3 the sum is exp(1-3)
 * + 1. After another score of 4, the sum is (exp(1-3) + 1) * exp(3-4) + 1. */
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#define GGML_COMMON_DECL_CPP
#include "ggml-common.h"

#include "attention-amx.h"
#include "kv-blocks.h"
#include "vectors.h"

namespace attention_rows {

using namespace vectors;

constexpr int BLOCK = 64; /* number of positions in a block; divides KV_BLOCK */
static_assert(KV_BLOCK % BLOCK == 0 && KV_HEAD_MULTIPLE % LANES_MAX == 0);
constexpr int64_t SEGMENT = 256; /* number of positions in a segment. Doubled until there are at most SEGMENTS
                                  * segments */
constexpr int64_t SEGMENTS = 32;
constexpr int64_t QUERIES = 64; /* most queries of a piece. With several heads per KV head, a piece has about ROWS
                                 * rows */
constexpr int64_t ROWS = 256;
constexpr int TILE = 64; /* rows whose scores are computed together */
constexpr int FEW = 16;  /* with fewer rows, no tiles are used, because preparing K and V for tiles would cost too
                          * much */
constexpr int64_t CACHE_LINE = 64;
constexpr int PIECES = 4;              /* least number of pieces per thread, if there are enough heads to divide */
constexpr ggml_fp16_t MASKED = 0xFC00; /* minus infinity */

/* Returns n rounded up to a multiple of `of`. */
constexpr int64_t whole(int64_t n, int64_t of)
{
    return (n + of - 1) / of * of;
}

/* ---- an attention call ------------------------------------------------------------------------------------------- */

/* One flash attention operation. A call with few queries is segmented: its positions are divided into segments, and the
 * threads' results for the segments are joined. A call with many queries has one segment. It is divided into groups of
 * n_together queries, which are enough pieces for all threads. */
struct call {
    const ggml_tensor *q, *k, *v, *mask, *sinks;
    ggml_tensor *dst;
    int64_t n_queries, n_heads, n_streams, n_kv_heads, n_shared; /* n_shared: number of query heads per KV head */
    int64_t n_positions, segment, n_segments, n_together; /* segment: positions of a segment; n_together: queries of a
                                                           * piece */
    int64_t k_size, v_size;                               /* values of a head */
    float scale, max_bias, softcap;
    bool by_amx;                       /* tiles are multiplied by AMX */
    const kv_blocks *blocks;           /* block table. NULL means that the rows of a stream are contiguous */
    int64_t first_stream, stream_step; /* which streams of the cache K and V contain */

    explicit call(const ggml_tensor *op)
        : q(op->src[0]), k(op->src[1]), v(op->src[2]), mask(op->src[3]), sinks(op->src[4]),
          dst(const_cast<ggml_tensor *>(op)), n_queries(q->ne[1]), n_heads(q->ne[2]), n_streams(q->ne[3]),
          n_kv_heads(k->ne[2]), n_shared(n_heads / n_kv_heads), n_positions(k->ne[1]), segment(SEGMENT),
          k_size(k->ne[0]), v_size(v->ne[0])
    {
        while (n_positions > segment * (is_segmented() ? SEGMENTS : 1)) {
            segment *= 2;
        }
        n_together = is_segmented() ? n_queries : std::min(QUERIES, std::max<int64_t>(1, ROWS / n_shared));
        n_segments = (n_positions + segment - 1) / segment;
        memcpy(&scale, op->op_params + 0, sizeof scale);
        memcpy(&max_bias, op->op_params + 1, sizeof max_bias);
        memcpy(&softcap, op->op_params + 2, sizeof softcap);
        scale = softcap != 0.0f ? scale / softcap : scale;
#ifdef ATTENTION_BY_AMX
        by_amx = is_tiled() && k->type == GGML_TYPE_F16 && attention_amx::is_allowed();
#else
        by_amx = false;
#endif
        const ggml_tensor *cache = k->view_src;
        blocks = cache == nullptr ? nullptr : static_cast<const kv_blocks *>(cache->extra);
        if (blocks != nullptr) {
            first_stream = (static_cast<const char *>(k->data) - static_cast<const char *>(cache->data)) / cache->nb[2];
            stream_step = k->nb[3] / cache->nb[2];
        }
    }

    /* Returns by how many rows the block table moves a position's row, compared with a cache without a block table. */
    int64_t moved(int64_t stream, int64_t position) const
    {
        if (blocks == nullptr) {
            return 0;
        }
        const int64_t of_cache = first_stream + stream * stream_step;
        return blocks->row(of_cache, position) - (of_cache * blocks->n_cells() + position);
    }

    /* Returns whether these kernels support the call. Otherwise llama.cpp's own kernels compute it. Not supported are
     * other types of K or V, head sizes that are not multiples of LANES_MAX, and a separate mask for each head. */
    bool fits() const
    {
        return q->type == GGML_TYPE_F32 && k->type == v->type &&
               (k->type == GGML_TYPE_F16 || k->type == GGML_TYPE_F32 || k->type == GGML_TYPE_Q8_0) && n_positions > 0 &&
               k->ne[2] == v->ne[2] && k->ne[3] == n_streams && v->ne[3] == n_streams && k_size % LANES_MAX == 0 &&
               v_size % LANES_MAX == 0 && (mask == nullptr || mask->ne[2] == 1);
    }

    int64_t n_rows() const
    {
        return n_queries * n_heads;
    }
    int64_t partial_size() const
    {
        return LANES_MAX + v_size; /* max and sum take a whole cache line, so that the values begin at a cache line */
    }
    bool is_segmented() const
    {
        return n_queries <= QUERIES && n_queries * n_shared <= ROWS;
    }
    bool is_tiled() const
    {
        return n_queries * n_shared >= FEW;
    }
    int64_t n_partials() const
    {
        return is_segmented() ? n_streams * n_segments * n_rows() : 0;
    }
    /* Returns the number of tiles in a piece. */
    int64_t n_tiles() const
    {
        return is_tiled() ? whole(n_together * n_shared, TILE) / TILE : 0;
    }
    int64_t k_padded() const
    {
        return whole(k_size, 2 * LANES_MAX);
    }

    /* Returns the factor of the mask in this head (ALiBi). The formula is the same as in ggml's own kernel. */
    float slope_of(int64_t head) const
    {
        if (max_bias <= 0.0f) {
            return 1.0f;
        }
        const int64_t n_log2 = int64_t{1} << static_cast<int>(floor(log2(static_cast<double>(n_heads))));
        return head < n_log2 ? powf(powf(2.0f, -max_bias / n_log2), head + 1)
                             : powf(powf(2.0f, -max_bias / 2.0f / n_log2), 2 * (head - n_log2) + 1);
    }

    const float *query(int64_t stream, int64_t head, int64_t i) const
    {
        return reinterpret_cast<const float *>(static_cast<const char *>(q->data) + i * q->nb[1] + head * q->nb[2] +
                                               stream * q->nb[3]);
    }

    const ggml_fp16_t *mask_of(int64_t stream, int64_t i) const
    {
        return mask == nullptr
                   ? nullptr
                   : reinterpret_cast<const ggml_fp16_t *>(static_cast<const char *>(mask->data) + i * mask->nb[1] +
                                                           (mask->ne[3] == 1 ? 0 : stream % mask->ne[3]) * mask->nb[3]);
    }
};

/* The result of one row for the positions of a segment so far: the largest score, the sum of the weights, and the sum
 * of the weighted values. */
struct partial {
    float *max, *sum, *values;
};

inline partial partial_at(float *at)
{
    return {at, at + 1, at + LANES_MAX};
}

/* The work memory of one thread, in floats. The indices of the arrays are: queries [tile][value][row], keys and values
 * [position][value], scores [position][row]. `partials` has the partial results of a piece if the call has only one
 * segment. They are stored here, so that they stay in this core's cache. With AMX, queries, keys, values and weights
 * have two planes each (attention-amx.h): queries [tile][pair of values][row], keys [position][value], values [pair of
 * positions][value], weights [row][position]. `added`, [row][value], is the product that is added to the partial
 * results. A call without tiles is segmented and needs no work memory. */
struct scratch {
    float *queries, *keys, *values, *scores, *weights, *added, *partials;

    scratch(const call &c, float *at)
        : queries(at), keys(queries + c.n_tiles() * TILE * c.k_padded()),
          values(keys + c.is_tiled() * BLOCK * c.k_padded()), scores(values + c.is_tiled() * BLOCK * c.v_size),
          weights(scores + c.is_tiled() * BLOCK * TILE), added(weights + c.by_amx * TILE * BLOCK),
          partials(added + c.by_amx * TILE * c.v_size)
    {}

    static int64_t size(const call &c)
    {
        const scratch all(c, nullptr);
        return whole(all.partials - all.queries + (c.is_segmented() ? 0 : c.n_together * c.n_shared * c.partial_size()),
                     LANES_MAX);
    }
};

/* ---- values of a head -------------------------------------------------------------------------------------------- */

/* Returns LANES values of a head as f32, beginning with value d. A quantized head is a row of blocks with QK8_0 values
 * each. */
template <class T> inline lanes values_at(const T *head, int64_t d)
{
    return load(head + d);
}

inline lanes values_at(const block_q8_0 *head, int64_t d)
{
    const block_q8_0 &block = head[d / QK8_0];
    return load(block.qs + d % QK8_0) * GGML_CPU_FP16_TO_FP32(block.d);
}

template <class T> constexpr int64_t bytes_of(int64_t n_values)
{
    return n_values * static_cast<int64_t>(sizeof(T));
}

template <> constexpr int64_t bytes_of<block_q8_0>(int64_t n_values)
{
    return n_values / QK8_0 * static_cast<int64_t>(sizeof(block_q8_0));
}

static_assert(QK8_0 % LANES_MAX == 0);

/* ---- one block --------------------------------------------------------------------------------------------------- */

/* n positions of one KV head. Between two neighboring positions of a head, the cache has the values of all other heads.
 * This distance is too large for the processor's own prefetching. So this code prefetches the values while it reads the
 * keys, and the next keys while it reads the values. It prefetches into the second-level cache, because the first-level
 * cache allows fewer requests, and a block of 64 positions would take half of it. With prefetching, decoding a token
 * after 4,096 positions reads the KV cache at 24 instead of 16 GB/s (two cores of a Zen 4). */
template <class T> struct span {
    const char *k, *v, *k_next;
    size_t k_stride, v_stride;
    int n;

    const T *key(int i) const
    {
        return reinterpret_cast<const T *>(k + i * k_stride);
    }
    const T *value(int i) const
    {
        return reinterpret_cast<const T *>(v + i * v_stride);
    }
};

inline void fetch(const char *from, int64_t n_bytes)
{
    for (int64_t i = 0; i < n_bytes; i += CACHE_LINE) {
        __builtin_prefetch(from + i, 0, 2);
    }
}

struct row {
    const float *query;
    const ggml_fp16_t *mask; /* mask from the span's first position on. NULL means that the query sees every position */
    float slope;
    partial out;
};

/* Computes the products of ROWS queries with AT_ONCE keys. Each loaded key (converted to f32) is used for all queries,
 * and each loaded query for all keys. */
template <class T, int ROWS, int AT_ONCE>
inline void dots(const row *rows, const span<T> &s, int first, int size, float (*scores)[BLOCK])
{
    lanes sums[ROWS][AT_ONCE] = {};
    for (int d = 0; d < size; d += LANES) {
        lanes keys[AT_ONCE];
        for (int i = 0; i < AT_ONCE; ++i) {
            keys[i] = values_at(s.key(first + i), d);
        }
        for (int r = 0; r < ROWS; ++r) {
            const lanes query = load(rows[r].query + d);
            for (int i = 0; i < AT_ONCE; ++i) {
                sums[r][i] += query * keys[i];
            }
        }
    }
    for (int r = 0; r < ROWS; ++r) {
        for (int i = 0; i < AT_ONCE; ++i) {
            scores[r][first + i] = sum_of(sums[r][i]);
        }
    }
}

/* Computes the scores of a block. Meanwhile prefetches the values of the same positions. */
template <class T, int ROWS> inline void score(const call &c, const row *rows, const span<T> &s, float (*scores)[BLOCK])
{
    constexpr int AT_ONCE = ROWS * 4 * LANES > 8 * LANES_MAX ? 2 : ROWS == 1 ? 8 : 4;
    int i = 0;
    for (; i + AT_ONCE <= s.n; i += AT_ONCE) {
        for (int ahead = i; ahead < i + AT_ONCE; ++ahead) {
            fetch(s.v + ahead * s.v_stride, bytes_of<T>(c.v_size));
        }
        dots<T, ROWS, AT_ONCE>(rows, s, i, static_cast<int>(c.k_size), scores);
    }
    for (; i < s.n; ++i) {
        dots<T, ROWS, 1>(rows, s, i, static_cast<int>(c.k_size), scores);
    }
}

/* Scales the scores, caps them (`softcap`) and adds the mask. The mask is minus infinity at positions that the row must
 * not see. */
inline void bias(const call &c, const row &r, int n, float *scores)
{
    for (int i = 0; i < n; ++i) {
        scores[i] *= c.scale;
    }
    if (c.softcap != 0.0f) {
        for (int i = 0; i < n; ++i) {
            scores[i] = c.softcap * tanhf(scores[i]);
        }
    }
    if (r.mask == nullptr) {
        return;
    }
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        store(scores + i, load(scores + i) + load(r.mask + i) * r.slope);
    }
    for (; i < n; ++i) {
        scores[i] += GGML_CPU_FP16_TO_FP32(r.mask[i]) * r.slope;
    }
}

/* If `max` is larger than the row's largest score, makes it the largest score, and scales down the row's sums. For the
 * first block, *out.max is minus infinity, so the factor is 0. This is correct, because the sums are still 0. */
inline void grow(const call &c, const partial &out, float max)
{
    if (max > *out.max) {
        const float down = expf(*out.max - max);
        ggml_vec_scale_f32(static_cast<int>(c.v_size), out.values, down);
        *out.sum *= down;
        *out.max = max;
    }
}

/* Converts scores to weights relative to the row's largest score so far. If the row sees no position of the block, the
 * weights are 0, and the row's result stays unchanged. This case is handled separately, because exp(-inf - -inf) would
 * be NaN if the row has not seen any position yet. */
inline void weigh(const call &c, const row &r, int n, float *scores)
{
    float max = -INFINITY;
    ggml_vec_max_f32(n, &max, scores);
    if (max == -INFINITY) {
        memset(scores, 0, n * sizeof(float));
        return;
    }
    grow(c, r.out, max);
    *r.out.sum += static_cast<float>(ggml_vec_soft_max_f32(n, scores, scores, *r.out.max));
}

/* Adds VECTORS registers of the weighted values. The sums stay in registers for the whole block. The next keys are
 * prefetched only with the first columns (k_bytes). */
template <class T, int ROWS, int VECTORS>
inline void add_columns(const row *rows, const span<T> &s, int64_t d, int64_t k_bytes, const float (*weights)[BLOCK])
{
    lanes sums[ROWS][VECTORS];
    for (int r = 0; r < ROWS; ++r) {
        for (int i = 0; i < VECTORS; ++i) {
            sums[r][i] = load(rows[r].out.values + d + i * LANES);
        }
    }
    for (int position = 0; position < s.n; ++position) {
        fetch(s.k_next + position * s.k_stride, k_bytes);
        for (int i = 0; i < VECTORS; ++i) {
            const lanes value = values_at(s.value(position), d + i * LANES);
            for (int r = 0; r < ROWS; ++r) {
                sums[r][i] += value * weights[r][position];
            }
        }
    }
    for (int r = 0; r < ROWS; ++r) {
        for (int i = 0; i < VECTORS; ++i) {
            store(rows[r].out.values + d + i * LANES, sums[r][i]);
        }
    }
}

template <class T, int ROWS>
inline void add(const call &c, const row *rows, const span<T> &s, const float (*weights)[BLOCK])
{
    constexpr int REGISTERS = LANES == 16 ? 16 : 8; /* registers for the sums: half of the registers of AVX-512 or
                                                     * AVX2 */
    constexpr int VECTORS = ROWS == 1 ? 8 : REGISTERS / ROWS;
    int64_t d = 0;
    for (; d + VECTORS * LANES <= c.v_size; d += VECTORS * LANES) {
        add_columns<T, ROWS, VECTORS>(rows, s, d, d == 0 ? bytes_of<T>(c.k_size) : 0, weights);
    }
    for (; d < c.v_size; d += LANES) {
        add_columns<T, ROWS, 1>(rows, s, d, 0, weights);
    }
}

template <class T, int ROWS> void attend(const call &c, const row *rows, const span<T> &s)
{
    float scores[ROWS][BLOCK];
    score<T, ROWS>(c, rows, s, scores);
    for (int r = 0; r < ROWS; ++r) {
        bias(c, rows[r], s.n, scores[r]);
        weigh(c, rows[r], s.n, scores[r]);
    }
    add<T, ROWS>(c, rows, s, scores);
}

} // namespace attention_rows
