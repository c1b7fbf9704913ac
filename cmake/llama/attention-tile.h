/* attention-tile.h: computes one block of attention for a tile of up to 64 rows: the scores, the weights, and the
 * weighted values. Included by attention-rows.h, which divides the work into blocks. Products are computed with AMX if
 * the processor has AMX and K and V are f16. A prompt of 4,000 tokens then takes 9.9 instead of 15.3 s. Otherwise
 * products are computed with vector instructions.
 *
 * In a tile, the row is the innermost index: a register holds the scores of 16 rows at one position. So the maximum,
 * the exponential and the sum over positions are plain vector operations, without sums across a register. For this
 * layout, the queries are transposed (turn_rows). */
#pragma once

#include <optional>
#include <type_traits>

#include "attention-amx.h"
#include "attention-block.h"
#include "attention-turn.h"

namespace attention_rows {

/* ---- prefetching the next block ---------------------------------------------------------------------------------- */

/* Prefetches keys and values of the next block while the current block is computed, a few cache lines at a time. A core
 * allows only about 16 outstanding requests, and would stall at the next one. Before this class existed, the next block
 * was prefetched all at once while the current one was converted to f32. This class, and more sums in registers (SUMS),
 * reduced the time of 508 tokens after 1,500 tokens from 2,540 to 2,050 ms. */
class ahead {
    const char *k, *v;
    size_t k_stride, v_stride;
    int64_t k_bytes, v_bytes, at = 0; /* at: bytes of the current position that are already prefetched */
    int left;                         /* positions left to prefetch */

  public:
    template <class T>
    ahead(const call &c, const span<T> &s)
        : k(s.k), v(s.v), k_stride(s.k_stride), v_stride(s.v_stride), k_bytes(bytes_of<T>(c.k_size)),
          v_bytes(bytes_of<T>(c.v_size)), left(s.n)
    {}

    void fetch(int n_lines)
    {
        for (; n_lines > 0 && left > 0; --n_lines) {
            __builtin_prefetch(at < k_bytes ? k + at : v + at - k_bytes, 0, 2);
            at += CACHE_LINE;
            if (at >= k_bytes + v_bytes) {
                at = 0;
                k += k_stride;
                v += v_stride;
                --left;
            }
        }
    }
};

/* Number of cache lines to prefetch for each packed position, for each step of an AMX product, and for each vector
 * product. */
constexpr int WHILE_PACKING = 2, WHILE_MULTIPLYING = 8, WHILE_SUMMING = 16;

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* Returns whether the mask is zero, so that it need not be added. This is true for most blocks of a prompt. */
inline bool is_zero(const ggml_fp16_t *mask, int n)
{
    unsigned any = 0;
    for (int i = 0; i < n; ++i) {
        any |= mask[i];
    }
    return any == 0;
}

/* Like bias() in attention-block.h. But the queries are already scaled (turn_rows). */
inline void tile_bias(const call &c, const row *rows, int n_rows, int n, float *scores)
{
    for (int i = 0; i < n && c.softcap != 0.0f; ++i) {
        for (int r = 0; r < n_rows; ++r) {
            scores[i * TILE + r] = c.softcap * tanhf(scores[i * TILE + r]);
        }
    }
    for (int r = 0; r < n_rows; ++r) {
        if (rows[r].mask == nullptr || is_zero(rows[r].mask, n)) {
            continue;
        }
        for (int i = 0; i < n; ++i) {
            scores[i * TILE + r] += GGML_CPU_FP16_TO_FP32(rows[r].mask[i]) * rows[r].slope;
        }
    }
}

/* Like weigh() in attention-block.h, but for LANES rows at a time. For a row that has not seen any position yet, 0 is
 * subtracted from the scores instead of the largest score, which is minus infinity. The difference of two infinities
 * would be NaN, but exp(-inf - 0) is 0, the correct weight. Lanes without a row are computed, too, and ignored. */
inline void tile_weigh(const call &c, const row *rows, int n_rows, int n, float *scores)
{
    for (int r = 0; r < n_rows; r += LANES) {
        lanes max = load(scores + r);
        for (int i = 1; i < n; ++i) {
            const lanes one = load(scores + i * TILE + r);
            max = one > max ? one : max;
        }
        float base[LANES];
        store(base, max);
        for (int i = r; i < n_rows && i < r + LANES; ++i) {
            grow(c, rows[i].out, base[i - r]);
            base[i - r] = *rows[i].out.max == -INFINITY ? 0.0f : *rows[i].out.max;
        }
        lanes sum = {};
        for (int i = 0; i < n; ++i) {
            float *at = scores + i * TILE + r;
            const lanes weight = exp_of(load(at) - load(base));
            store(at, weight);
            sum += weight;
        }
        for (int i = r; i < n_rows && i < r + LANES; ++i) {
            *rows[i].out.sum += sum[i - r];
        }
    }
}

/* ---- by vectors -------------------------------------------------------------------------------------------------- */

/* Converts n values to f32, once for all tiles of the block. */
template <class T> void widen(const T *from, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i += LANES) {
        store(to + i, values_at(from, i));
    }
}

/* Computes the scores of POSITIONS keys with VECTORS * LANES rows. Each value of a key is broadcast, and multiplied
 * with a register of rows. */
template <int POSITIONS, int VECTORS>
inline void tile_dots(const float *keys, const float *queries, int64_t size, float *scores)
{
    lanes sums[POSITIONS][VECTORS] = {};
    for (int64_t d = 0; d < size; ++d) {
        lanes query[VECTORS];
        for (int i = 0; i < VECTORS; ++i) {
            query[i] = load(queries + d * TILE + i * LANES);
        }
        for (int position = 0; position < POSITIONS; ++position) {
            for (int i = 0; i < VECTORS; ++i) {
                sums[position][i] += query[i] * keys[position * size + d];
            }
        }
    }
    for (int position = 0; position < POSITIONS; ++position) {
        for (int i = 0; i < VECTORS; ++i) {
            store(scores + position * TILE + i * LANES, sums[position][i]);
        }
    }
}

constexpr int TILE_VECTORS = LANES == 16 ? 4 : 2;
constexpr int SUMS = LANES == 16 ? 24 : 12; /* number of sums that are kept in registers: 24 of 32 registers, or 12 of
                                             * 16. Fewer sums were slower */

/* Computes the scores of rows r to r + VECTORS * LANES - 1 with all n positions, as many positions at once as SUMS
 * allows. The order of additions in a sum does not depend on how many sums are computed at once. So the bits of a score
 * do not depend on n. */
template <int VECTORS>
inline void tile_columns_score(const call &c, const scratch &t, const float *queries, int r, int n, ahead &next)
{
    constexpr int AT_ONCE = SUMS / VECTORS;
    const auto score = [&](auto n_positions, int i) {
        next.fetch(WHILE_SUMMING);
        tile_dots<n_positions(), VECTORS>(t.keys + i * c.k_size, queries + r, c.k_size, t.scores + i * TILE + r);
    };
    int i = 0;
    for (; i + AT_ONCE <= n; i += AT_ONCE) {
        score(std::integral_constant<int, AT_ONCE>(), i);
    }
    for (; i + 4 <= n; i += 4) {
        score(std::integral_constant<int, 4>(), i);
    }
    for (; i < n; ++i) {
        score(std::integral_constant<int, 1>(), i);
    }
}

/* Computes only as many vectors as there are rows. While other streams decode, a step has only about ten tokens of a
 * prompt. With full tiles of 64 rows, a prompt of 2,000 tokens next to four decoding streams took 3.0 times as long as
 * alone. Now it takes 1.8 times as long. */
inline void tile_score(const call &c, const scratch &t, const float *queries, int n_rows, int n, ahead &next)
{
    for (int r = 0; r < n_rows; r += TILE_VECTORS * LANES) {
        switch (std::min((n_rows - r + LANES - 1) / LANES, TILE_VECTORS)) {
        case 1: tile_columns_score<1>(c, t, queries, r, n, next); break;
        case 2: tile_columns_score<2>(c, t, queries, r, n, next); break;
        case 3: tile_columns_score<3>(c, t, queries, r, n, next); break;
        default: tile_columns_score<TILE_VECTORS>(c, t, queries, r, n, next); break;
        }
    }
}

/* Adds the weighted values of n positions to N rows, for VECTORS registers of columns from column d on. */
template <int N, int VECTORS>
inline void tile_columns(const row *rows, const float *weights, const float *values, int64_t size, int n, int64_t d)
{
    lanes sums[N][VECTORS];
    for (int r = 0; r < N; ++r) {
        for (int i = 0; i < VECTORS; ++i) {
            sums[r][i] = load(rows[r].out.values + d + i * LANES);
        }
    }
    for (int position = 0; position < n; ++position) {
        lanes value[VECTORS];
        for (int i = 0; i < VECTORS; ++i) {
            value[i] = load(values + position * size + d + i * LANES);
        }
        for (int r = 0; r < N; ++r) {
            for (int i = 0; i < VECTORS; ++i) {
                sums[r][i] += value[i] * weights[position * TILE + r];
            }
        }
    }
    for (int r = 0; r < N; ++r) {
        for (int i = 0; i < VECTORS; ++i) {
            store(rows[r].out.values + d + i * LANES, sums[r][i]);
        }
    }
}

template <int N>
inline void tile_add(const call &c, const scratch &t, const row *rows, int n, const float *weights, ahead &next)
{
    int64_t d = 0;
    for (; d + TILE_VECTORS * LANES <= c.v_size; d += TILE_VECTORS * LANES) {
        next.fetch(WHILE_SUMMING);
        tile_columns<N, TILE_VECTORS>(rows, weights, t.values, c.v_size, n, d);
    }
    for (; d < c.v_size; d += LANES) {
        tile_columns<N, 1>(rows, weights, t.values, c.v_size, n, d);
    }
}

inline void attend_tile_by_vectors(const call &c, const scratch &t, int64_t tile, const row *rows, int n_rows, int n,
                                   ahead &next)
{
    constexpr int AT_ONCE = SUMS / TILE_VECTORS;
    const float *queries = t.queries + tile * TILE * c.k_padded();
    tile_score(c, t, queries, n_rows, n, next);
    tile_bias(c, rows, n_rows, n, t.scores);
    tile_weigh(c, rows, n_rows, n, t.scores);
    int r = 0;
    for (; r + AT_ONCE <= n_rows; r += AT_ONCE) {
        tile_add<AT_ONCE>(c, t, rows + r, n, t.scores + r, next);
    }
    for (; r + 4 <= n_rows; r += 4) {
        tile_add<4>(c, t, rows + r, n, t.scores + r, next);
    }
    for (; r < n_rows; ++r) {
        tile_add<1>(c, t, rows + r, n, t.scores + r, next);
    }
}

/* ---- by AMX ------------------------------------------------------------------------------------------------------ */

#ifdef ATTENTION_BY_AMX

/* Returns a matrix in memory for floats. Its two bf16 planes take the same number of bytes as one plane of floats. The
 * high plane comes first. */
inline attention_amx::matrix planes_at(float *at, int64_t n_values, int64_t stride)
{
    char *high = reinterpret_cast<char *>(at);
    return {high, high + n_values * attention_amx::VALUE, stride};
}

inline attention_amx::matrix keys_of(const call &c, const scratch &t)
{
    return planes_at(t.keys, BLOCK * c.k_padded(), c.k_padded() * attention_amx::VALUE);
}

inline attention_amx::matrix values_of(const call &c, const scratch &t)
{
    return planes_at(t.values, BLOCK * c.v_size, c.v_size * attention_amx::PAIR);
}

inline attention_amx::matrix queries_of(const call &c, const scratch &t, int64_t tile)
{
    return planes_at(t.queries + tile * TILE * c.k_padded(), TILE * c.k_padded(), TILE * attention_amx::PAIR);
}

inline attention_amx::matrix weights_of(const scratch &t)
{
    return planes_at(t.weights, TILE * BLOCK, BLOCK * attention_amx::VALUE);
}

inline void put(const attention_amx::matrix &to, int64_t row, int64_t n_bytes, __m512i high, __m512i low)
{
    _mm512_storeu_si512(to.high + row * to.stride + n_bytes, high);
    _mm512_storeu_si512(to.low + row * to.stride + n_bytes, low);
}

/* Splits the keys and values of a block into planes. If n is not a multiple of DEPTH, the values of the missing
 * positions are set to zero. Otherwise old contents of the scratch would be multiplied with a weight of 0, and NaN * 0
 * is NaN. Keys need no such padding, because the scores of missing positions are never read. */
inline void pack(const call &c, const scratch &t, const span<ggml_fp16_t> &s, ahead &next)
{
    using namespace attention_amx;
    const matrix keys = keys_of(c, t), values = values_of(c, t);
    const auto column = [](const ggml_fp16_t *from, bool is_there) {
        return reinterpret_cast<__m512>(is_there ? load(from) : lanes{});
    };
    for (int i = 0; i < s.n; ++i) {
        next.fetch(WHILE_PACKING);
        for (int64_t d = 0; d < c.k_size; d += DEPTH) {
            const planes p = beside(column(s.key(i) + d, true), column(s.key(i) + d + LANES, d + LANES < c.k_size));
            put(keys, i, d * VALUE, p.high, p.low);
        }
    }
    for (int i = 0; i < whole(s.n, DEPTH); i += 2) {
        next.fetch(2 * WHILE_PACKING);
        for (int64_t d = 0; d < c.v_size; d += LANES) {
            const planes p = above(column(s.value(i) + d, i < s.n), column(s.value(i + 1) + d, i + 1 < s.n));
            put(values, i / 2, d * PAIR, p.high, p.low);
        }
    }
}

/* Transposes 16 rows of 16 pairs. planes_of(i) returns row i, which becomes column i of `to`. */
template <class F>
inline void turn_pairs(const attention_amx::matrix &to, int64_t first_row, int64_t n_bytes, const F &planes_of)
{
    __m512i high[attention_amx::SIDE], low[attention_amx::SIDE];
    for (int i = 0; i < attention_amx::SIDE; ++i) {
        const attention_amx::planes p = planes_of(i);
        high[i] = p.high;
        low[i] = p.low;
    }
    attention_turn::turn(high);
    attention_turn::turn(low);
    for (int i = 0; i < attention_amx::SIDE; ++i) {
        put(to, first_row + i, n_bytes, high[i], low[i]);
    }
}

/* Stores 16 queries as the right factor of the product keys * queries. Each query is a column of pairs of neighboring
 * values. */
inline void pack_queries(const call &c, const scratch &t, int64_t first, const row *rows)
{
    using namespace attention_amx;
    const auto column = [&](int i, int64_t d) {
        return reinterpret_cast<__m512>(rows[i].query != nullptr && d < c.k_size ? load(rows[i].query + d) * c.scale
                                                                                 : lanes{});
    };
    for (int64_t d = 0; d < c.k_size; d += DEPTH) {
        turn_pairs(queries_of(c, t, first / TILE), d / 2, first % TILE * PAIR,
                   [&](int i) { return beside(column(i, d), column(i, d + LANES)); });
    }
}

/* Stores the weights as the left factor of the product weights * values. The weights are computed position by position,
 * but the left factor is stored row by row. */
inline void pack_weights(const scratch &t, int n_rows, int n)
{
    using namespace attention_amx;
    const auto weights = [&](int position, int row) {
        return reinterpret_cast<__m512>(position < n ? load(t.scores + position * TILE + row) : lanes{});
    };
    for (int row = 0; row < n_rows; row += SIDE) {
        for (int first = 0; first < n; first += DEPTH) {
            turn_pairs(weights_of(t), row, first * VALUE,
                       [&](int i) { return above(weights(first + 2 * i, row), weights(first + 2 * i + 1, row)); });
        }
    }
}

inline void attend_tile_by_amx(const call &c, const scratch &t, int64_t tile, const row *rows, int n_rows, int n,
                               ahead &next)
{
    using namespace attention_amx;
    const int64_t n_whole = whole(n_rows, SIDE);
    const auto meanwhile = [&] { next.fetch(WHILE_MULTIPLYING); };
    multiply(keys_of(c, t), queries_of(c, t, tile), whole(n, SIDE), n_whole, c.k_padded(), t.scores, TILE, meanwhile);
    tile_bias(c, rows, n_rows, n, t.scores);
    tile_weigh(c, rows, n_rows, n, t.scores);
    pack_weights(t, n_rows, n);
    multiply(weights_of(t), values_of(c, t), n_whole, c.v_size, whole(n, DEPTH), t.added, c.v_size, meanwhile);
    for (int r = 0; r < n_rows; ++r) {
        float *values = rows[r].out.values;
        for (int64_t d = 0; d < c.v_size; d += LANES) {
            store(values + d, load(values + d) + load(t.added + r * c.v_size + d));
        }
    }
}

#endif

/* ---- by either --------------------------------------------------------------------------------------------------- */

/* Stores keys and values of a block in the layout that the tiles use: planes for AMX, otherwise floats. */
template <class T> void prepare(const call &c, const scratch &t, const span<T> &s, ahead &next)
{
#ifdef ATTENTION_BY_AMX
    if constexpr (std::is_same_v<T, ggml_fp16_t>) {
        if (c.by_amx) {
            pack(c, t, s, next);
            return;
        }
    }
#endif
    for (int i = 0; i < s.n; ++i) {
        next.fetch(WHILE_PACKING);
        widen(s.key(i), c.k_size, t.keys + i * c.k_size);
        widen(s.value(i), c.v_size, t.values + i * c.v_size);
    }
}

/* Transposes and scales LANES_MAX rows from row `first` on. A row whose query is NULL does not exist, and becomes
 * zero. */
inline void turn_rows(const call &c, const scratch &t, int64_t first, const row *rows)
{
#ifdef ATTENTION_BY_AMX
    if (c.by_amx) {
        pack_queries(c, t, first, rows);
        return;
    }
#endif
    float *to = t.queries + first / TILE * TILE * c.k_padded() + first % TILE;
#ifdef __AVX512F__
    for (int64_t d = 0; d < c.k_size; d += LANES) {
        __m512i square[LANES];
        for (int r = 0; r < LANES; ++r) {
            const lanes values = rows[r].query != nullptr ? load(rows[r].query + d) * c.scale : lanes{};
            square[r] = reinterpret_cast<__m512i>(values);
        }
        attention_turn::turn(square);
        for (int i = 0; i < LANES; ++i) {
            _mm512_storeu_si512(to + (d + i) * TILE, square[i]);
        }
    }
#else
    for (int64_t r = 0; r < LANES_MAX; ++r) {
        for (int64_t d = 0; d < c.k_size; ++d) {
            to[d * TILE + r] = rows[r].query != nullptr ? rows[r].query[d] * c.scale : 0.0f;
        }
    }
#endif
}

inline void attend_tile(const call &c, const scratch &t, int64_t tile, const row *rows, int n_rows, int n, ahead &next)
{
#ifdef ATTENTION_BY_AMX
    if (c.by_amx) {
        attend_tile_by_amx(c, t, tile, rows, n_rows, n, next);
        return;
    }
#endif
    attend_tile_by_vectors(c, t, tile, rows, n_rows, n, next);
}

/* Sets the shapes of AMX tiles for this thread while it computes attention in tiles. The destructor restores the
 * earlier shapes. */
struct tile_state {
#ifdef ATTENTION_BY_AMX
    std::optional<attention_amx::tiles> tiles;
#endif

    explicit tile_state(const call &c)
    {
#ifdef ATTENTION_BY_AMX
        if (c.by_amx) {
            tiles.emplace();
        }
#else
        (void)c;
#endif
    }
};

} // namespace attention_rows
