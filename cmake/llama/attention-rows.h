/* attention-rows.h: flash attention on the CPU, over a KV cache in which each position is a row with the values of all
 * heads. Included by ggml/src/ggml-cpu/ops.cpp. K and V have the same type: f16, f32 or q8_0.
 *
 * In decoding, there are few queries, and reading K and V takes most of the time. In prefill, there are many queries,
 * and arithmetic takes most of the time. So this code works as follows:
 *   - Each row of K and V is read once for all query heads that share it. llama.cpp's own kernel reads them once per
 *     query head, and adds up in f16.
 *   - With few rows, the queries are multiplied with K and V directly in the cache. With many rows, the queries are
 *     transposed once, and then multiplied in tiles. If K were transposed instead, this would be necessary for each
 *     tile.
 *   - A block of BLOCK positions is processed completely before the next one, for all heads of a piece. So its memory
 *     pages are used together. Only positions that some query may see are read.
 *   - The positions are divided into segments. The length of a segment depends only on the number of positions. Each
 *     thread takes the next segment when it is free, but the results are joined in the order of the segments. So the
 *     result has the same bits with any number of threads. This is needed because the number of threads changes from
 *     step to step (libllm/machine/team.h), which must not change an answer. Sums are in f32, with an error of at most
 *     2e-6. Sums in f16 had errors of up to 1e-3. */
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "attention-tile.h"

namespace attention_rows {

/* ---- one piece: some queries of a stream, some KV heads, one segment --------------------------------------------- */

/* The unit of work that a thread takes. */
struct piece {
    int64_t stream, segment, first_query, n_queries, first_head, end_head; /* the KV heads are [first_head, end_head) */
    float *partials;                                                       /* partial results, [query head][query] */

    partial out(const call &c, int64_t head, int64_t query) const
    {
        const int64_t row = (head - first_head * c.n_shared) * n_queries + query - first_query;
        return partial_at(partials + row * c.partial_size());
    }
};

/* The queries that may see some position of a block, as indices in the piece. [begin, end) are the positions of the
 * block that at least one of these queries sees. If another query does not see such a position, its weight there is
 * 0. */
struct seen {
    int n = 0, begin = BLOCK, end = 0;
    uint8_t queries[QUERIES];
};

/* Returns whether some position is not masked. The loop has no branch, so that the compiler can vectorize it. */
inline bool sees(const ggml_fp16_t *mask, int n)
{
    unsigned any = 0;
    for (int i = 0; i < n; ++i) {
        any |= mask[i] ^ MASKED;
    }
    return any != 0;
}

/* Finds out which of the n positions from `first` on are seen, and by which queries. The bounds are rounded to
 * multiples of LANES_MAX, so that they are the same on every processor. The two inner loops always end, because sees()
 * has found a position that is not masked. In a pool of cells, a block can belong to other sequences. Such a block
 * costs a query only this examination of its mask. */
inline seen look(const call &c, const piece &p, int64_t first, int n)
{
    seen all;
    for (int64_t query = 0; query < p.n_queries; ++query) {
        int begin = 0, end = n;
        if (c.mask != nullptr) {
            const ggml_fp16_t *mask = c.mask_of(p.stream, p.first_query + query) + first;
            if (!sees(mask, n)) {
                continue;
            }
            for (; mask[begin] == MASKED; ++begin) {
            }
            for (; mask[end - 1] == MASKED; --end) {
            }
        }
        all.queries[all.n++] = static_cast<uint8_t>(query);
        all.begin = std::min(all.begin, begin / LANES_MAX * LANES_MAX);
        all.end = std::max(all.end, std::min(static_cast<int>(whole(end, LANES_MAX)), n));
    }
    return all;
}

/* Returns the span of n positions of one KV head. For the last head of the piece, the next keys to prefetch are those
 * of the first head, n positions later. */
template <class T> span<T> span_of(const call &c, const piece &p, int64_t head, int64_t first, int n)
{
    const int64_t row = first + c.moved(p.stream, first);
    const char *k =
        static_cast<const char *>(c.k->data) + row * static_cast<int64_t>(c.k->nb[1]) + p.stream * c.k->nb[3];
    const char *v =
        static_cast<const char *>(c.v->data) + row * static_cast<int64_t>(c.v->nb[1]) + p.stream * c.v->nb[3];
    const char *k_next =
        head + 1 < p.end_head ? k + (head + 1) * c.k->nb[2] : k + n * c.k->nb[1] + p.first_head * c.k->nb[2];
    return {k + head * c.k->nb[2], v + head * c.v->nb[2], k_next, c.k->nb[1], c.v->nb[1], n};
}

/* Returns the row for one query of the piece, in one of the query heads that share the KV head. */
inline row row_of(const call &c, const piece &p, int64_t kv_head, int64_t query, int64_t shared, int64_t first)
{
    const int64_t head = kv_head * c.n_shared + shared;
    const ggml_fp16_t *mask = c.mask_of(p.stream, p.first_query + query);
    return {c.query(p.stream, head, p.first_query + query), mask == nullptr ? nullptr : mask + first, c.slope_of(head),
            p.out(c, head, p.first_query + query)};
}

/* Fills `rows` with the rows number `at` to at + n - 1 of a KV head. The number of a row is query * n_shared + the
 * index of the head among the heads that share the KV head. So the rows of one query, which see the same positions, are
 * neighbors in a tile. */
inline void rows_of(const call &c, const piece &p, int64_t kv_head, int64_t at, int n, int64_t first, row *rows)
{
    int64_t query = at / c.n_shared, shared = at % c.n_shared;
    for (int i = 0; i < n; ++i) {
        rows[i] = row_of(c, p, kv_head, query, shared, first);
        if (++shared == c.n_shared) {
            shared = 0;
            ++query;
        }
    }
}

/* Computes one block for few rows, 4, 2 or 1 at a time. Reads K and V directly from the cache. */
template <class T> void attend_few(const call &c, const piece &p, int64_t kv_head, const seen &by, int64_t first)
{
    const span<T> s = span_of<T>(c, p, kv_head, first, by.end - by.begin);
    const int64_t n = by.n * c.n_shared;
    for (int64_t done = 0, step; done < n; done += step) {
        row rows[4];
        step = n - done >= 4 ? 4 : n - done >= 2 ? 2 : 1;
        for (int64_t i = 0; i < step; ++i) {
            const int64_t query = by.queries[(done + i) / c.n_shared];
            rows[i] = row_of(c, p, kv_head, query, (done + i) % c.n_shared, first);
        }
        step == 4 ? attend<T, 4>(c, rows, s) : step == 2 ? attend<T, 2>(c, rows, s) : attend<T, 1>(c, rows, s);
    }
}

/* Computes one block for many rows. K and V are prepared once. Then the tiles from the first query that sees the block
 * to the last such query use them. A row between these queries that sees nothing is computed, too, with weights of
 * 0. */
template <class T>
void attend_many(const call &c, const scratch &t, const piece &p, int64_t kv_head, const seen &by, int64_t first)
{
    const span<T> s = span_of<T>(c, p, kv_head, first, by.end - by.begin);
    ahead next(c, span_of<T>(c, p, kv_head, first + BLOCK, BLOCK));
    prepare(c, t, s, next);
    const int64_t first_row = by.queries[0] * c.n_shared, end_row = (by.queries[by.n - 1] + 1) * c.n_shared;
    for (int64_t at = first_row / TILE * TILE; at < end_row; at += TILE) {
        row rows[TILE];
        const int n = static_cast<int>(std::min<int64_t>(TILE, p.n_queries * c.n_shared - at));
        rows_of(c, p, kv_head, at, n, first, rows);
        attend_tile(c, t, at / TILE, rows, n, s.n, next);
    }
}

/* Transposes and scales the queries of a KV head, once for all blocks. Missing rows of the last tile are zero. */
inline void turn(const call &c, const scratch &t, const piece &p, int64_t kv_head)
{
    const int64_t n = p.n_queries * c.n_shared;
    for (int64_t at = 0; at < whole(n, TILE); at += LANES_MAX) {
        row rows[LANES_MAX] = {};
        rows_of(c, p, kv_head, at, static_cast<int>(std::clamp<int64_t>(n - at, 0, LANES_MAX)), 0, rows);
        turn_rows(c, t, at, rows);
    }
}

/* Computes a piece. With tiles, a piece has only one KV head (see `cut`), so its queries are transposed only once. */
template <class T> void attend_piece(const call &c, const scratch &t, const piece &p)
{
    for (int64_t i = 0; i < (p.end_head - p.first_head) * c.n_shared * p.n_queries; ++i) {
        memset(p.partials + i * c.partial_size(), 0, c.partial_size() * sizeof(float));
        p.partials[i * c.partial_size()] = -INFINITY;
    }
    if (c.is_tiled()) {
        turn(c, t, p, p.first_head);
    }
    const int64_t end = std::min((p.segment + 1) * c.segment, c.n_positions);
    for (int64_t at = p.segment * c.segment; at < end; at += BLOCK) {
        const seen by = look(c, p, at, static_cast<int>(std::min<int64_t>(BLOCK, end - at)));
        for (int64_t head = p.first_head; head < p.end_head && by.n > 0; ++head) {
            by.n *c.n_shared >= FEW ? attend_many<T>(c, t, p, head, by, at + by.begin)
                                    : attend_few<T>(c, p, head, by, at + by.begin);
        }
    }
}

/* ---- the whole call ---------------------------------------------------------------------------------------------- */

/* Joins the segments of one row, in their order. An attention sink is a score that takes part in the softmax, but has
 * no value. If the row has seen no position and there is no sink, the result is zero. This case is handled separately,
 * because exp(-inf - -inf) would be NaN. */
inline void join(const call &c, const float *partials, int64_t stride, int64_t stream, int64_t head, int64_t query)
{
    const int size = static_cast<int>(c.v_size);
    const float sink = c.sinks != nullptr ? static_cast<const float *>(c.sinks->data)[head] : -INFINITY;
    float max = sink;
    for (int64_t i = 0; i < c.n_segments; ++i) {
        max = std::max(max, partials[i * stride]);
    }
    float sum = sink > -INFINITY ? expf(sink - max) : 0.0f;
    float *out = reinterpret_cast<float *>(static_cast<char *>(c.dst->data) +
                                           ((stream * c.n_queries + query) * c.n_heads + head) * c.dst->nb[1]);
    memset(out, 0, size * sizeof(float));
    for (int64_t i = 0; i < c.n_segments; ++i) {
        const float *in = partials + i * stride;
        if (in[0] > -INFINITY) {
            const float share = expf(in[0] - max);
            ggml_vec_mad_f32(size, out, in + LANES_MAX, share);
            sum += in[1] * share;
        }
    }
    ggml_vec_scale_f32(size, out, sum == 0.0f ? 0.0f : 1.0f / sum);
}

/* For a call with one segment: the piece already has the whole result of its rows. */
inline void join_piece(const call &c, const piece &p)
{
    for (int64_t head = p.first_head * c.n_shared; head < p.end_head * c.n_shared; ++head) {
        for (int64_t query = p.first_query; query < p.first_query + p.n_queries; ++query) {
            join(c, p.out(c, head, query).max, 0, p.stream, head, query);
        }
    }
}

/* How a call is divided into pieces: by streams, segments, groups of queries, and heads. With several heads per piece,
 * the memory pages of a block are used together. But with too few pieces, threads are idle at the end. So the number of
 * heads per piece depends on the number of threads. This does not change results, because each head is computed
 * separately. */
struct cut {
    int64_t heads, n_groups, per_part, n_pieces;

    cut(const call &c, int n_threads) : heads(c.is_tiled() ? 1 : c.n_kv_heads)
    {
        n_groups = (c.n_queries + c.n_together - 1) / c.n_together;
        const int64_t n_parts = c.n_streams * c.n_segments * n_groups;
        while (heads > 1 && n_parts * ((c.n_kv_heads + heads - 1) / heads) < int64_t{PIECES} * n_threads) {
            heads = (heads + 1) / 2;
        }
        per_part = (c.n_kv_heads + heads - 1) / heads;
        n_pieces = n_parts * per_part;
    }

    piece at(const call &c, const scratch &t, float *work, int64_t i) const
    {
        const int64_t part = i / per_part, first_head = i % per_part * heads;
        const int64_t first_query = part % n_groups * c.n_together, segment = part / n_groups % c.n_segments;
        const int64_t stream = part / n_groups / c.n_segments;
        float *own = work + ((stream * c.n_segments + segment) * c.n_rows() + first_head * c.n_shared * c.n_queries) *
                                c.partial_size();
        return {stream,
                segment,
                first_query,
                std::min(c.n_together, c.n_queries - first_query),
                first_head,
                std::min(first_head + heads, c.n_kv_heads),
                c.is_segmented() ? own : t.partials};
    }
};

/* Returns the bytes of work memory: the partial results of all segments, and the scratch of each thread. Returns 0 if
 * llama.cpp's own kernel must compute this call. */
inline size_t work_size(const ggml_tensor *op, int n_threads)
{
    const call c(op);
    return c.fits() ? sizeof(float) * (c.n_partials() * c.partial_size() + n_threads * scratch::size(c)) + CACHE_LINE
                    : 0;
}

inline void attend(const call &c, const scratch &t, const piece &p)
{
    switch (c.k->type) {
    case GGML_TYPE_F16: attend_piece<ggml_fp16_t>(c, t, p); break;
    case GGML_TYPE_Q8_0: attend_piece<block_q8_0>(c, t, p); break;
    default: attend_piece<float>(c, t, p);
    }
}

/* Called by all threads. Each thread begins with the piece whose number is that of the thread. Further numbers come
 * from a shared counter, so a thread that has lost its core for a while computes fewer pieces. The counter is set
 * before the barrier. Otherwise a fast thread could still use the counter of the previous operation. */
inline void compute(const ggml_compute_params *params, const call &c)
{
    float *work = reinterpret_cast<float *>(whole(reinterpret_cast<intptr_t>(params->wdata), CACHE_LINE));
    float *partials = work + params->nth * scratch::size(c);
    const scratch own(c, work + params->ith * scratch::size(c));
    const cut all(c, params->nth);
    if (params->ith == 0) {
        ggml_threadpool_chunk_set(params->threadpool, params->nth);
    }
    ggml_barrier(params->threadpool);
    {
        const tile_state state(c);
        for (int64_t i = params->ith; i < all.n_pieces; i = ggml_threadpool_chunk_add(params->threadpool, 1)) {
            const piece p = all.at(c, own, partials, i);
            attend(c, own, p);
            if (!c.is_segmented()) {
                join_piece(c, p);
            }
        }
    }
    if (!c.is_segmented()) {
        return;
    }
    ggml_barrier(params->threadpool);
    const int64_t n_rows = c.n_rows(), stride = n_rows * c.partial_size();
    for (int64_t i = params->ith; i < n_rows * c.n_streams; i += params->nth) {
        const int64_t stream = i / n_rows, query = i % n_rows / c.n_heads, head = i % c.n_heads;
        const int64_t row = stream * c.n_segments * n_rows + head * c.n_queries + query;
        join(c, partials + row * c.partial_size(), stride, stream, head, query);
    }
}

} // namespace attention_rows
