/* attention-rows.h: flash attention of few queries over many positions: decoding, where one token of each stream asks all
 * that was said. Included by ggml/src/ggml-cpu/ops.cpp; K and V are of one type, f16 or f32.
 *
 * The time goes into reading K and V, in which a position is a row of all heads. So
 *   - every row is read once for all the query heads that share it, in vectors of float and nothing in between;
 *   - BLOCK positions are scored, normalized and added together, all heads of a piece before the next block, while the
 *     pages are at hand; of a block nothing is read but what a query may see;
 *   - the positions are cut into segments of a length that depends on their number alone. Which thread takes which piece
 *     is open until it does; the segments' results are joined in their order. The same input has the same bits with any
 *     number of threads. */
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace attention_rows {

constexpr int BLOCK = 64;        /* positions */
constexpr int64_t SEGMENT = 256; /* positions; twice as many where these would be more than */
constexpr int64_t SEGMENTS = 32;
constexpr int64_t QUERIES = 63; /* of a stream; the tiled kernel is for more */
constexpr int64_t CACHE_LINE = 64;
constexpr int PIECES = 4;              /* per thread, at least, where there are so many */
constexpr ggml_fp16_t MASKED = 0xFC00; /* minus infinity */

/* ---- vectors ----------------------------------------------------------------------------------------------------- */

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif
constexpr int LANES_MAX = 16; /* a head is a multiple of it, for every processor the same */

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef float unaligned __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

inline lanes load(const float *x)
{
    return *reinterpret_cast<const unaligned *>(x);
}

inline lanes load(const ggml_fp16_t *x)
{
#if defined(__AVX512F__)
    return reinterpret_cast<lanes>(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(x))));
#elif defined(__AVX__) && defined(__F16C__)
    return reinterpret_cast<lanes>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(x))));
#elif defined(__aarch64__)
    return (lanes)vcvt_f32_f16(vld1_f16(reinterpret_cast<const __fp16 *>(x)));
#else
    lanes all;
    for (int i = 0; i < LANES; ++i) {
        all[i] = GGML_CPU_FP16_TO_FP32(x[i]);
    }
    return all;
#endif
}

inline void store(float *x, lanes all)
{
    *reinterpret_cast<unaligned *>(x) = all;
}

inline float sum_of(lanes all)
{
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps(reinterpret_cast<__m512>(all));
#else
    float half[LANES];
    store(half, all);
    for (int n = LANES / 2; n > 0; n /= 2) {
        for (int i = 0; i < n; ++i) {
            half[i] += half[i + n];
        }
    }
    return half[0];
#endif
}

/* ---- what is asked ----------------------------------------------------------------------------------------------- */

struct call {
    const ggml_tensor *q, *k, *v, *mask, *sinks;
    ggml_tensor *dst;
    int64_t n_queries, n_heads, n_streams, n_kv_heads, n_shared; /* heads that share a KV head */
    int64_t n_positions, segment, n_segments;
    int64_t k_size, v_size; /* of a head */
    float scale, max_bias, softcap;

    explicit call(const ggml_tensor *op)
        : q(op->src[0]), k(op->src[1]), v(op->src[2]), mask(op->src[3]), sinks(op->src[4]),
          dst(const_cast<ggml_tensor *>(op)), n_queries(q->ne[1]), n_heads(q->ne[2]), n_streams(q->ne[3]),
          n_kv_heads(k->ne[2]), n_shared(n_heads / n_kv_heads), n_positions(k->ne[1]), segment(SEGMENT),
          k_size(k->ne[0]), v_size(v->ne[0])
    {
        while (n_positions > segment * SEGMENTS) {
            segment *= 2;
        }
        n_segments = (n_positions + segment - 1) / segment;
        memcpy(&scale, op->op_params + 0, sizeof scale);
        memcpy(&max_bias, op->op_params + 1, sizeof max_bias);
        memcpy(&softcap, op->op_params + 2, sizeof softcap);
        scale = softcap != 0.0f ? scale / softcap : scale;
    }

    bool fits() const
    {
        return q->type == GGML_TYPE_F32 && k->type == v->type &&
               (k->type == GGML_TYPE_F16 || k->type == GGML_TYPE_F32) && n_queries <= QUERIES && n_positions > 0 &&
               k->ne[2] == v->ne[2] && k->ne[3] == n_streams && v->ne[3] == n_streams && k_size % LANES_MAX == 0 &&
               v_size % LANES_MAX == 0 && (mask == nullptr || mask->ne[2] == 1);
    }

    int64_t n_rows() const
    {
        return n_queries * n_heads;
    }
    int64_t partial_size() const
    {
        return 2 + v_size;
    }

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
                                                           stream % mask->ne[3] * mask->nb[3]);
    }
};

/* What one row (a query of a head) has of one segment: the greatest score, the sum of the weights, the weighted values. */
struct partial {
    float *max, *sum, *values;
};

inline partial partial_of(const call &c, float *work, int64_t stream, int64_t segment, int64_t head, int64_t query)
{
    float *at = work + ((stream * c.n_segments + segment) * c.n_rows() + head * c.n_queries + query) * c.partial_size();
    return {at, at + 1, at + 2};
}

/* ---- one block --------------------------------------------------------------------------------------------------- */

/* Some positions of one KV head. Rows are far apart, so that the processor does not see what comes next: while keys are
 * read, the values are fetched, and while values are read, the keys after them. */
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
        __builtin_prefetch(from + i);
    }
}

struct row {
    const float *query;
    const ggml_fp16_t *mask; /* of the span's first position; or null */
    float slope;
    partial out;
};

template <class T, int ROWS, int AT_ONCE>
inline void dots(const row *rows, const span<T> &s, int first, int size, float (*scores)[BLOCK])
{
    lanes sums[ROWS][AT_ONCE] = {};
    for (int d = 0; d < size; d += LANES) {
        lanes keys[AT_ONCE];
        for (int i = 0; i < AT_ONCE; ++i) {
            keys[i] = load(s.key(first + i) + d);
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

template <class T, int ROWS> inline void score(const call &c, const row *rows, const span<T> &s, float (*scores)[BLOCK])
{
    constexpr int AT_ONCE = ROWS * 4 * LANES > 8 * LANES_MAX ? 2 : ROWS == 1 ? 8 : 4;
    int i = 0;
    for (; i + AT_ONCE <= s.n; i += AT_ONCE) {
        for (int ahead = i; ahead < i + AT_ONCE; ++ahead) {
            fetch(s.v + ahead * s.v_stride, c.v_size * sizeof(T));
        }
        dots<T, ROWS, AT_ONCE>(rows, s, i, static_cast<int>(c.k_size), scores);
    }
    for (; i < s.n; ++i) {
        dots<T, ROWS, 1>(rows, s, i, static_cast<int>(c.k_size), scores);
    }
}

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

/* Scores become weights relative to the row's greatest score so far; what is older is scaled down when that grows. */
inline void weigh(const call &c, const row &r, int n, float *scores)
{
    float max = -INFINITY;
    ggml_vec_max_f32(n, &max, scores);
    if (max == -INFINITY) {
        memset(scores, 0, n * sizeof(float));
        return;
    }
    if (max > *r.out.max) {
        const float down = expf(*r.out.max - max);
        ggml_vec_scale_f32(static_cast<int>(c.v_size), r.out.values, down);
        *r.out.sum *= down;
        *r.out.max = max;
    }
    *r.out.sum += static_cast<float>(ggml_vec_soft_max_f32(n, scores, scores, *r.out.max));
}

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
            const lanes value = load(s.value(position) + d + i * LANES);
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
    constexpr int REGISTERS = LANES == 16 ? 16 : 8;
    constexpr int VECTORS = ROWS == 1 ? 8 : REGISTERS / ROWS;
    int64_t d = 0;
    for (; d + VECTORS * LANES <= c.v_size; d += VECTORS * LANES) {
        add_columns<T, ROWS, VECTORS>(rows, s, d, d == 0 ? c.k_size * sizeof(T) : 0, weights);
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

/* ---- one piece: a segment of a stream, some KV heads ------------------------------------------------------------- */

/* The queries that may see any of a block, and from where to where they do. */
struct seen {
    int n = 0, begin = BLOCK, end = 0;
    uint8_t queries[QUERIES];
};

inline bool sees(const ggml_fp16_t *mask, int n)
{
    unsigned any = 0;
    for (int i = 0; i < n; ++i) {
        any |= mask[i] ^ MASKED;
    }
    return any != 0;
}

inline seen look(const call &c, int64_t stream, int64_t first, int n)
{
    seen all;
    for (int64_t query = 0; query < c.n_queries; ++query) {
        int begin = 0, end = n;
        if (c.mask != nullptr) {
            const ggml_fp16_t *mask = c.mask_of(stream, query) + first;
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
        all.end = std::max(all.end, std::min((end + LANES_MAX - 1) / LANES_MAX * LANES_MAX, n));
    }
    return all;
}

struct piece {
    int64_t stream, segment, first_head, end_head; /* KV heads */
};

template <class T> span<T> span_of(const call &c, const piece &p, int64_t head, int64_t first, int n)
{
    const char *k = static_cast<const char *>(c.k->data) + first * c.k->nb[1] + p.stream * c.k->nb[3];
    const char *v = static_cast<const char *>(c.v->data) + first * c.v->nb[1] + p.stream * c.v->nb[3];
    const char *k_next =
        head + 1 < p.end_head ? k + (head + 1) * c.k->nb[2] : k + n * c.k->nb[1] + p.first_head * c.k->nb[2];
    return {k + head * c.k->nb[2], v + head * c.v->nb[2], k_next, c.k->nb[1], c.v->nb[1], n};
}

template <class T>
void attend_head(const call &c, float *work, const piece &p, int64_t kv_head, const seen &by, int64_t at)
{
    const span<T> s = span_of<T>(c, p, kv_head, at + by.begin, by.end - by.begin);
    const int64_t n = by.n * c.n_shared;
    for (int64_t done = 0, step; done < n; done += step) {
        row rows[4];
        step = n - done >= 4 ? 4 : n - done >= 2 ? 2 : 1;
        for (int64_t i = 0; i < step; ++i) {
            const int64_t query = by.queries[(done + i) / c.n_shared];
            const int64_t head = kv_head * c.n_shared + (done + i) % c.n_shared;
            const ggml_fp16_t *mask = c.mask_of(p.stream, query);
            rows[i] = {c.query(p.stream, head, query), mask == nullptr ? nullptr : mask + at + by.begin,
                       c.slope_of(head), partial_of(c, work, p.stream, p.segment, head, query)};
        }
        step == 4 ? attend<T, 4>(c, rows, s) : step == 2 ? attend<T, 2>(c, rows, s) : attend<T, 1>(c, rows, s);
    }
}

template <class T> void attend_piece(const call &c, float *work, const piece &p)
{
    for (int64_t head = p.first_head * c.n_shared; head < p.end_head * c.n_shared; ++head) {
        for (int64_t query = 0; query < c.n_queries; ++query) {
            const partial out = partial_of(c, work, p.stream, p.segment, head, query);
            memset(out.max, 0, c.partial_size() * sizeof(float));
            *out.max = -INFINITY;
        }
    }
    const int64_t end = std::min((p.segment + 1) * c.segment, c.n_positions);
    for (int64_t at = p.segment * c.segment; at < end; at += BLOCK) {
        const seen by = look(c, p.stream, at, static_cast<int>(std::min<int64_t>(BLOCK, end - at)));
        for (int64_t head = p.first_head; head < p.end_head && by.n > 0; ++head) {
            attend_head<T>(c, work, p, head, by, at);
        }
    }
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* The segments of one row together, and the sink, which takes weight and has no value. */
inline void join(const call &c, float *work, int64_t stream, int64_t head, int64_t query)
{
    const int size = static_cast<int>(c.v_size);
    float max = c.sinks != nullptr ? static_cast<const float *>(c.sinks->data)[head] : -INFINITY;
    for (int64_t i = 0; i < c.n_segments; ++i) {
        max = std::max(max, *partial_of(c, work, stream, i, head, query).max);
    }
    float sum = c.sinks != nullptr ? expf(static_cast<const float *>(c.sinks->data)[head] - max) : 0.0f;
    float *out = reinterpret_cast<float *>(static_cast<char *>(c.dst->data) +
                                           ((stream * c.n_queries + query) * c.n_heads + head) * c.dst->nb[1]);
    memset(out, 0, size * sizeof(float));
    for (int64_t i = 0; i < c.n_segments; ++i) {
        const partial in = partial_of(c, work, stream, i, head, query);
        if (*in.max == -INFINITY) {
            continue;
        }
        const float share = expf(*in.max - max);
        ggml_vec_mad_f32(size, out, in.values, share);
        sum += *in.sum * share;
    }
    ggml_vec_scale_f32(size, out, sum == 0.0f ? 0.0f : 1.0f / sum);
}

inline size_t work_size(const ggml_tensor *op)
{
    const call c(op);
    return c.fits() ? sizeof(float) * c.n_streams * c.n_segments * c.n_rows() * c.partial_size() : 0;
}

inline void compute(const ggml_compute_params *params, const call &c)
{
    float *work = static_cast<float *>(params->wdata);
    const int64_t n_parts = c.n_streams * c.n_segments;
    int64_t heads = c.n_kv_heads; /* of a piece */
    while (heads > 1 && n_parts * ((c.n_kv_heads + heads - 1) / heads) < int64_t{PIECES} * params->nth) {
        heads = (heads + 1) / 2;
    }
    const int64_t per_part = (c.n_kv_heads + heads - 1) / heads;
    if (params->ith == 0) {
        ggml_threadpool_chunk_set(params->threadpool, params->nth);
    }
    ggml_barrier(params->threadpool);
    for (int64_t i = params->ith; i < n_parts * per_part; i = ggml_threadpool_chunk_add(params->threadpool, 1)) {
        const int64_t part = i / per_part, first = i % per_part * heads;
        const piece p = {part / c.n_segments, part % c.n_segments, first, std::min(first + heads, c.n_kv_heads)};
        c.k->type == GGML_TYPE_F16 ? attend_piece<ggml_fp16_t>(c, work, p) : attend_piece<float>(c, work, p);
    }
    ggml_barrier(params->threadpool);
    const int64_t n_rows = c.n_rows() * c.n_streams;
    for (int64_t i = params->ith; i < n_rows; i += params->nth) {
        join(c, work, i / c.n_rows(), i % c.n_heads, i % c.n_rows() / c.n_heads);
    }
}

} // namespace attention_rows
