/* delta-net.h: computes gated delta nets with one decay per head, which are the recurrent layers of Qwen's hybrid
 * models. Included by ggml/src/ggml-cpu/ops.cpp. llama.cpp's own kernel computes all other shapes.
 *
 * A head's state is a square matrix. It is stored transposed, so that each row belongs to one value of the output, and
 * rows are independent of each other. For each token (https://arxiv.org/abs/2412.06464, equation 10):
 *   change = beta * (value - decay * (row * key))
 *   row = decay * row + change * key
 *   output = row * query / sqrt(size) = (decay * (row before * query) + change * (key * query)) / sqrt(size)
 * The second formula for the output uses the row before its update. So one pass over the row computes its products with
 * key and query, and a second pass updates the row. llama.cpp's kernel makes four passes over the whole state for each
 * token. This code keeps two rows in registers while it consumes up to TOGETHER tokens (with the 32 registers of
 * AVX-512). Each row is updated token by token. The order does not depend on the number of tokens in the batch, nor on
 * the number of threads. So the same tokens give the same bits. */
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "vectors.h"

namespace delta_net {

using namespace vectors;

constexpr int TOGETHER = 16; /* tokens that two rows consume before the rows are stored to memory */
constexpr int PIECE = 32;    /* rows of a state that a thread takes at once */

/* One operation. There are two layouts of states. If `cells` is NULL, the layout is llama.cpp's own: the states of the
 * step are adjacent, and the new states are stored after the output. With `cells` (0012-unequal.patch), each state
 * stays in its cell and is updated there. So no states are moved, even if the sequences have different numbers of
 * tokens. */
struct call {
    const ggml_tensor *q, *k, *v, *gate, *beta, *state;
    ggml_tensor *dst;
    int64_t size, n_heads, n_tokens, n_seqs;
    const int32_t *cells; /* the cell of each sequence's state; or NULL */

    explicit call(ggml_tensor *op)
        : q(op->src[0]), k(op->src[1]), v(op->src[2]), gate(op->src[3]), beta(op->src[4]), state(op->src[5]), dst(op),
          size(v->ne[0]), n_heads(v->ne[1]), n_tokens(v->ne[2]), n_seqs(v->ne[3]),
          cells(op->src[6] != nullptr ? static_cast<const int32_t *>(op->src[6]->data) : nullptr)
    {}

    /* Returns whether this code can compute the operation. llama.cpp's own kernel computes operations with other sizes,
     * with a decay for each value, or with states after every token. */
    bool fits() const
    {
        const bool newest_only = ggml_get_op_params_i32(dst, 0) == 1;
        return newest_only && n_tokens > 0 && gate->ne[0] == 1 && (size == 64 || size == 128) && q->ne[0] == size &&
               k->ne[0] == size;
    }

    int64_t n_pieces() const
    {
        return n_seqs * n_heads * (size / PIECE);
    }
};

/* Inputs, state and outputs of one head of one sequence. */
struct head {
    const float *q, *k, *v, *gate, *beta;                /* inputs of the first token */
    size_t q_next, k_next, v_next, gate_next, beta_next; /* distance in floats between two tokens */
    const float *before;
    float *after, *out; /* `after` equals `before` if states stay in their cells */
    size_t out_next;

    head(const call &c, int64_t seq, int64_t at)
    {
        const auto of = [&](const ggml_tensor *t, size_t *next) {
            *next = t->nb[2] / sizeof(float);
            const int64_t n_share = c.n_seqs / t->ne[3]; /* number of sequences that share this input */
            return reinterpret_cast<const float *>(static_cast<const char *>(t->data) + seq / n_share * t->nb[3] +
                                                   at % t->ne[1] * t->nb[1]);
        };
        q = of(c.q, &q_next);
        k = of(c.k, &k_next);
        v = of(c.v, &v_next);
        gate = of(c.gate, &gate_next);
        beta = of(c.beta, &beta_next);
        const int64_t square = c.size * c.size;
        const int64_t cell = c.cells != nullptr ? c.cells[seq] : seq;
        before = static_cast<const float *>(c.state->data) + cell * (c.state->nb[3] / sizeof(float)) + at * square;
        float *results = static_cast<float *>(c.dst->data);
        out_next = c.size * c.n_heads;
        out = results + seq * c.n_tokens * out_next + at * c.size;
        after = c.cells != nullptr ? const_cast<float *>(before)
                                   : results + c.n_seqs * c.n_tokens * out_next + (seq * c.n_heads + at) * square;
    }
};

/* Up to TOGETHER tokens that are consumed together, with the numbers that are the same for all rows of the state. */
struct tokens {
    int64_t first, n;
    float decay[TOGETHER], beta[TOGETHER], key_query[TOGETHER];
};

template <int VECTORS> inline tokens tokens_of(const head &h, int64_t first, int64_t n)
{
    tokens all;
    all.first = first;
    all.n = n;
    for (int64_t t = 0; t < n; ++t) {
        const float *k = h.k + (first + t) * h.k_next, *q = h.q + (first + t) * h.q_next;
        lanes sum = {};
        for (int i = 0; i < VECTORS; ++i) {
            sum += load(k + i * LANES) * load(q + i * LANES);
        }
        all.key_query[t] = sum_of(sum);
        all.decay[t] = expf(h.gate[(first + t) * h.gate_next]);
        all.beta[t] = h.beta[(first + t) * h.beta_next];
    }
    return all;
}

/* Updates the rows `at` and at + 1 with the tokens, and writes the output values of these rows. The first tokens of a
 * call read the state from `before`. Later tokens read it from `after`, where the earlier tokens have stored it. */
template <int VECTORS> inline void consume(const head &h, const tokens &all, int64_t at, float scale)
{
    constexpr int SIZE = VECTORS * LANES;
    const float *before = (all.first == 0 ? h.before : h.after) + at * SIZE;
    lanes rows[2][VECTORS];
    for (int i = 0; i < VECTORS; ++i) {
        rows[0][i] = load(before + i * LANES);
        rows[1][i] = load(before + SIZE + i * LANES);
    }
    for (int64_t t = 0; t < all.n; ++t) {
        const float *k = h.k + (all.first + t) * h.k_next, *q = h.q + (all.first + t) * h.q_next;
        lanes by_key[2] = {}, by_query[2] = {};
        for (int i = 0; i < VECTORS; ++i) {
            const lanes key = load(k + i * LANES), query = load(q + i * LANES);
            for (int r = 0; r < 2; ++r) {
                by_key[r] += rows[r][i] * key;
                by_query[r] += rows[r][i] * query;
            }
        }
        const four sums = sums_of(by_key[0], by_key[1], by_query[0], by_query[1]);
        const float *v = h.v + (all.first + t) * h.v_next + at;
        float *out = h.out + (all.first + t) * h.out_next + at;
        const float decay = all.decay[t];
        for (int r = 0; r < 2; ++r) {
            const float change = (v[r] - decay * sums.of[r]) * all.beta[t];
            out[r] = (decay * sums.of[2 + r] + change * all.key_query[t]) * scale;
            for (int i = 0; i < VECTORS; ++i) {
                rows[r][i] = rows[r][i] * decay + load(k + i * LANES) * change;
            }
        }
    }
    float *after = h.after + at * SIZE;
    for (int i = 0; i < VECTORS; ++i) {
        store(after + i * LANES, rows[0][i]);
        store(after + SIZE + i * LANES, rows[1][i]);
    }
}

template <int VECTORS> inline void compute_piece(const call &c, int64_t piece)
{
    const int64_t n_parts = c.size / PIECE, row = piece % n_parts * PIECE, of_all = piece / n_parts;
    const head h(c, of_all / c.n_heads, of_all % c.n_heads);
    const float scale = 1.0f / sqrtf(static_cast<float>(c.size));
    for (int64_t first = 0; first < c.n_tokens; first += TOGETHER) {
        const tokens all = tokens_of<VECTORS>(h, first, std::min<int64_t>(c.n_tokens - first, TOGETHER));
        for (int64_t at = row; at < row + PIECE; at += 2) {
            consume<VECTORS>(h, all, at, scale);
        }
    }
}

/* Called by all threads. The threads take pieces with a shared counter, as in attention-rows.h. */
inline void compute(const ggml_compute_params *params, const call &c)
{
    if (params->ith == 0) {
        ggml_threadpool_chunk_set(params->threadpool, params->nth);
    }
    ggml_barrier(params->threadpool);
    for (int64_t piece = params->ith; piece < c.n_pieces(); piece = ggml_threadpool_chunk_add(params->threadpool, 1)) {
        if (c.size == 64) {
            compute_piece<64 / LANES>(c, piece);
        } else {
            compute_piece<128 / LANES>(c, piece);
        }
    }
}

} // namespace delta_net
