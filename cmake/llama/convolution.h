/* convolution.h: the short convolutions of recurrent layers. Each output is a weighted sum of the latest inputs (up to
 * 8) of its channel. Included by ggml/src/ggml-cpu/ops.cpp.
 *
 * llama.cpp's graph has two operations. The first (concat) appends the inputs of this step to earlier inputs; its
 * result has a row for each channel. The second (ssm_conv) computes the sums; its result has a row for each token. Both
 * operations transpose a matrix. This code transposes squares that fit into the registers, with all threads.
 * llama.cpp's concat uses one thread, and copies number by number. With 0012-unequal.patch, the graph leaves the
 * earlier inputs in their cells (src[2] of ssm_conv). Then consume() reads and updates them there, and nothing is
 * transposed. All functions add up the terms of a sum in the same order, whatever else is in the batch. So a session's
 * answer has the same bits in any batch. */
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "attention-turn.h"
#include "vectors.h"

namespace convolution {

using namespace vectors;

constexpr int WIDTH_MAX = 8;             /* maximum number of inputs of a sum */
constexpr int64_t PIECE = 4 * LANES_MAX; /* channels that a thread takes at once */

/* Transposes a square: to[j][i] = from[i][j]. Strides are in floats. */
inline void turn(const float *from, int64_t from_stride, float *to, int64_t to_stride)
{
#if defined(__AVX512F__)
    __m512i rows[LANES];
    for (int i = 0; i < LANES; ++i) {
        rows[i] = _mm512_loadu_si512(from + i * from_stride);
    }
    attention_turn::turn(rows);
    for (int i = 0; i < LANES; ++i) {
        _mm512_storeu_si512(to + i * to_stride, rows[i]);
    }
#else
    for (int i = 0; i < LANES; ++i) {
        for (int j = 0; j < LANES; ++j) {
            to[j * to_stride + i] = from[i * from_stride + j];
        }
    }
#endif
}

/* Transposes a part at the edge of a matrix that is smaller than a square. */
inline void turn(const float *from, int64_t from_stride, float *to, int64_t to_stride, int64_t n_from, int64_t n_to)
{
    for (int64_t i = 0; i < n_from; ++i) {
        for (int64_t j = 0; j < n_to; ++j) {
            to[j * to_stride + i] = from[i * from_stride + j];
        }
    }
}

/* Transposes any matrix. The n_from rows of `from` become the columns of `to`, which has n_to rows. */
inline void turn_all(const float *from, int64_t from_stride, float *to, int64_t to_stride, int64_t n_from, int64_t n_to)
{
    for (int64_t j = 0; j < n_to; j += LANES) {
        for (int64_t i = 0; i < n_from; i += LANES) {
            const float *in = from + i * from_stride + j;
            float *out = to + j * to_stride + i;
            if (i + LANES <= n_from && j + LANES <= n_to) {
                turn(in, from_stride, out, to_stride);
            } else {
                turn(in, from_stride, out, to_stride, std::min<int64_t>(n_from - i, LANES),
                     std::min<int64_t>(n_to - j, LANES));
            }
        }
    }
}

/* ---- concat: appending the inputs of this step to earlier inputs
 * --------------------------------------------------- */

/* Returns whether put_together can compute this concat operation. In memory, the inputs of this step must be transposed
 * (a row of the tensor is a column in memory), and the earlier inputs must not. */
inline bool is_turned(const ggml_tensor *op)
{
    const ggml_tensor *former = op->src[0], *these = op->src[1];
    return ggml_get_op_params_i32(op, 0) == 0 && op->type == GGML_TYPE_F32 && op->ne[3] == 1 &&
           these->nb[1] == sizeof(float) && these->nb[0] % sizeof(float) == 0 && former->nb[0] == sizeof(float) &&
           op->nb[0] == sizeof(float);
}

/* Appends the inputs of this step (`these`) to the earlier inputs (`former`), channel by channel. */
inline void put_together(const ggml_compute_params *params, ggml_tensor *op)
{
    const ggml_tensor *former = op->src[0], *these = op->src[1];
    const int64_t n_channels = op->ne[1], n_former = former->ne[0], n_these = these->ne[0];
    const int64_t n_parts = (n_channels + PIECE - 1) / PIECE;
    for (int64_t part = params->ith; part < n_parts * op->ne[2]; part += params->nth) {
        const int64_t seq = part / n_parts, first = part % n_parts * PIECE, n = std::min(PIECE, n_channels - first);
        char *out = static_cast<char *>(op->data) + seq * op->nb[2] + first * op->nb[1];
        for (int64_t i = 0; i < n; ++i) {
            memcpy(out + i * op->nb[1],
                   static_cast<const char *>(former->data) + seq * former->nb[2] + (first + i) * former->nb[1],
                   n_former * sizeof(float));
        }
        const char *in = static_cast<const char *>(these->data) + seq * these->nb[2] + first * these->nb[1];
        turn_all(reinterpret_cast<const float *>(in), these->nb[0] / sizeof(float),
                 reinterpret_cast<float *>(out) + n_former, op->nb[1] / sizeof(float), n_these, n);
    }
}

/* ---- ssm_conv: weighted sums ------------------------------------------------------------------------------------- */

/* Returns whether weigh_all can compute the operation. Otherwise llama.cpp's own kernel computes it. */
inline bool fits(const ggml_tensor *op)
{
    const ggml_tensor *inputs = op->src[0], *kernel = op->src[1];
    return kernel->type == GGML_TYPE_F32 && ggml_is_contiguous(kernel) && inputs->nb[0] == sizeof(float) &&
           kernel->ne[0] <= WIDTH_MAX && op->ne[0] % LANES_MAX == 0;
}

/* Computes the sums for all tokens of a sequence, for LANES channels. `turned` holds inputs as [token][channel]: first
 * the width - 1 inputs before the current tokens, then the inputs of up to LANES tokens. The latest width - 1 inputs
 * are moved to the front for the next tokens. */
inline void weigh(const ggml_tensor *op, int64_t seq, int64_t channel)
{
    const ggml_tensor *inputs = op->src[0], *kernel = op->src[1];
    const int width = static_cast<int>(kernel->ne[0]);
    const int64_t n_tokens = op->ne[1], stride = inputs->nb[1] / sizeof(float), out_stride = op->nb[1] / sizeof(float);
    const float *in = reinterpret_cast<const float *>(static_cast<const char *>(inputs->data) + seq * inputs->nb[2]) +
                      channel * stride;
    float *out = reinterpret_cast<float *>(static_cast<char *>(op->data) + seq * op->nb[2]) + channel;
    const float *of_channel = static_cast<const float *>(kernel->data) + channel * width;

    float weights[WIDTH_MAX * LANES], turned[(WIDTH_MAX + LANES) * LANES];
    turn_all(of_channel, width, weights, LANES, LANES, width);
    turn_all(in, stride, turned, LANES, LANES, width - 1);
    for (int64_t token = 0; token < n_tokens; token += LANES) {
        const int64_t n = std::min<int64_t>(LANES, n_tokens - token);
        turn_all(in + token + width - 1, stride, turned + (width - 1) * LANES, LANES, LANES, n);
        for (int64_t t = 0; t < n; ++t) {
            lanes sum = {};
            for (int i = 0; i < width; ++i) {
                sum += load(turned + (t + i) * LANES) * load(weights + i * LANES);
            }
            store(out + (token + t) * out_stride, sum);
        }
        memmove(turned, turned + n * LANES, (width - 1) * LANES * sizeof(float));
    }
}

inline void weigh_all(const ggml_compute_params *params, const ggml_tensor *op)
{
    const int64_t n_parts = (op->ne[0] + PIECE - 1) / PIECE;
    for (int64_t part = params->ith; part < n_parts * op->ne[2]; part += params->nth) {
        const int64_t seq = part / n_parts, first = part % n_parts * PIECE;
        for (int64_t channel = first; channel < std::min(first + PIECE, op->ne[0]); channel += LANES) {
            weigh(op, seq, channel);
        }
    }
}

/* ---- ssm_conv with earlier inputs in cells ----------------------------------------------------------------------- */

/* A convolution whose earlier inputs stay in the cells of the recurrent state. The inputs of this step have a row for
 * each token. */
struct step {
    const ggml_tensor *inputs, *kernel, *former, *cells;
    ggml_tensor *op;
    int64_t n_channels, n_tokens, n_seqs;

    explicit step(ggml_tensor *op)
        : inputs(op->src[0]), kernel(op->src[1]), former(op->src[2]), cells(op->src[3]), op(op), n_channels(op->ne[0]),
          n_tokens(op->ne[1]), n_seqs(op->ne[2])
    {}

    const float *input(int64_t seq, int64_t token) const
    {
        return reinterpret_cast<const float *>(static_cast<const char *>(inputs->data) + seq * inputs->nb[2] +
                                               token * inputs->nb[1]);
    }
    float *output(int64_t seq, int64_t token) const
    {
        return reinterpret_cast<float *>(static_cast<char *>(op->data) + seq * op->nb[2] + token * op->nb[1]);
    }
    /* Returns the earlier inputs of a sequence, which are in its cell: width - 1 inputs for each channel. */
    float *state(int64_t seq) const
    {
        const int64_t cell = static_cast<const int32_t *>(cells->data)[seq];
        return reinterpret_cast<float *>(static_cast<char *>(former->data) + cell * former->nb[1]);
    }
};

/* Loads and transposes N earlier inputs (or weights) of n_lanes channels. columns[i] receives input i of all
 * channels. */
template <int N> inline void load_columns(const float *from, int n_lanes, lanes *columns)
{
    float each[N + 1][LANES] = {};
    for (int lane = 0; lane < n_lanes; ++lane) {
        for (int i = 0; i < N; ++i) {
            each[i][lane] = from[lane * N + i];
        }
    }
    for (int i = 0; i < N; ++i) {
        columns[i] = load(each[i]);
    }
}

template <int N> inline void store_columns(float *to, int n_lanes, const lanes *columns)
{
    for (int lane = 0; lane < n_lanes; ++lane) {
        for (int i = 0; i < N; ++i) {
            to[lane * N + i] = columns[i][lane];
        }
    }
}

/* Computes the sums for all tokens, for n_lanes channels from channel `at` on. The latest inputs stay in registers, and
 * move by one position for each token. At the end they are the new state. If n_lanes is less than LANES, data are
 * copied through `part`. Loading a whole register would read beyond the row, and storing one would overwrite the next
 * row. */
template <int WIDTH> inline void consume(const step &s, int64_t seq, int64_t at, int n_lanes)
{
    lanes weights[WIDTH], last[WIDTH] = {}; /* last: the WIDTH latest inputs, the newest at the end */
    float *state = s.state(seq) + at * (WIDTH - 1);
    load_columns<WIDTH>(static_cast<const float *>(s.kernel->data) + at * WIDTH, n_lanes, weights);
    load_columns<WIDTH - 1>(state, n_lanes, last);
    for (int64_t token = 0; token < s.n_tokens; ++token) {
        const float *in = s.input(seq, token) + at;
        float *out = s.output(seq, token) + at, part[LANES] = {};
        if (n_lanes < LANES) {
            memcpy(part, in, n_lanes * sizeof(float));
            in = part;
        }
        last[WIDTH - 1] = load(in);
        lanes sum = {};
        for (int i = 0; i < WIDTH; ++i) {
            sum += last[i] * weights[i];
        }
        for (int i = 0; i + 1 < WIDTH; ++i) {
            last[i] = last[i + 1];
        }
        if (n_lanes < LANES) {
            store(part, sum);
            memcpy(out, part, n_lanes * sizeof(float));
        } else {
            store(out, sum);
        }
    }
    store_columns<WIDTH - 1>(state, n_lanes, last);
}

template <int WIDTH> inline void consume_all(const ggml_compute_params *params, const step &s)
{
    const int64_t n_parts = (s.n_channels + PIECE - 1) / PIECE;
    for (int64_t part = params->ith; part < n_parts * s.n_seqs; part += params->nth) {
        const int64_t seq = part / n_parts, first = part % n_parts * PIECE;
        for (int64_t at = first; at < std::min(first + PIECE, s.n_channels); at += LANES) {
            consume<WIDTH>(s, seq, at, static_cast<int>(std::min<int64_t>(LANES, s.n_channels - at)));
        }
    }
}

/* The width is a template parameter. So the loops over it are unrolled, and `last` stays in registers. */
inline void consume_all(const ggml_compute_params *params, const step &s)
{
    switch (s.kernel->ne[0]) {
    case 2: return consume_all<2>(params, s);
    case 3: return consume_all<3>(params, s);
    case 4: return consume_all<4>(params, s);
    default: GGML_ABORT("a convolution of %d", static_cast<int>(s.kernel->ne[0]));
    }
}

} // namespace convolution
