/* weights-rows.h: products of quantized weights with rows of activations, on x86 processors with AVX2 and without AMX.
 * Included by ggml-cpu's repack.cpp. The instructions are in weights-lanes.h.
 *
 * llama.cpp multiplies a block of 32 weights of one row with 32 inputs and then adds up across the register, for each
 * row anew. Here sixteen rows of the weights, a group, are stored side by side, four bytes of each in turn:
 *
 *   a line of 64 bytes:  row 0: inputs 0-3 | row 1: inputs 0-3 | ... | row 15: inputs 0-3
 *
 * An instruction multiplies four inputs with all sixteen rows, and lane i sums up row i: no sum across the register is
 * needed, and weights that were loaded serve up to ROWS_MOST rows of activations. On two cores of a Zen 4 with AVX-512
 * VNNI, prompts with Q8_0 went from 184 to 446 tokens/s; a single row is bounded by memory, as before.
 *
 * A group takes as many bytes as in the file; weights-32.h and weights-k.h say where each goes. The bits of a result
 * depend neither on the number of threads nor on the rows that are computed beside it: what another session does must
 * not change an answer.
 *
 * A format has
 *   TYPE, block      of the weights in the file
 *   BLOCK, UNIT      inputs of a block; the inputs of a row must be a multiple of UNIT
 *   ROWS_MOST        rows of activations at a time: their sums and the weights fill the registers
 *   pack             stores a group in this layout
 *   activations      a quantized row of them
 *   FETCHES          how often `multiply` calls upcoming::fetch in a block
 *   multiply         multiplies ROWS rows of activations with GROUPS groups of weights */
#ifndef WEIGHTS_ROWS_H
#define WEIGHTS_ROWS_H

#include "quants.h"
#include "weights-lanes.h"

#include <algorithm>
#include <cstring>

namespace weights_rows {

constexpr int TASK_PARTS = 16; /* a task has at most so many times ROWS_MOST rows of activations */
constexpr int READ_ROWS = 4;   /* multiplying so many rows takes about as long as reading the weights from memory */
constexpr size_t UPCOMING_BYTES_MAX = 256 << 10; /* with as many in use meanwhile, half of the second-level cache */

/* ---- packing: four bytes of one lane ---- */

inline void put_four(uint8_t *line, int lane, uint32_t four)
{
    memcpy(line + lane * 4, &four, sizeof four);
}

/* In each byte: the lower 4 bits of `second` above the lower 4 bits of `first`. */
inline uint32_t two_of(uint32_t first, uint32_t second)
{
    return (first & 0x0f0f0f0f) | (second & 0x0f0f0f0f) << 4;
}

/* ---- multiplying ---- */

/* The weights that are multiplied next. With more rows than ROWS_MOST only the first pass over some weights waits for
 * memory; in the later passes memory would have nothing to do. So every block of every pass fetches its share of the
 * next weights (16 rows of Q8_0: 30 -> 41 GB/s). */
struct upcoming {
    const uint8_t *at, *end;
    size_t n_bytes; /* for each call of fetch */

    void fetch()
    {
        for (const uint8_t *to = std::min(at + n_bytes, end); at < to; at += LINE) {
            _mm_prefetch(reinterpret_cast<const char *>(at), _MM_HINT_T1);
        }
    }
};

/* Where `multiply` reads and writes: the first of its groups, the quantized rows of activations, and the rows of the
 * outputs. The results of the first group begin at `column` of each of these. */
struct place {
    const uint8_t *weights;
    size_t group_bytes;
    char *const *rows;
    float *const *outs;
    int64_t column;

    /* Of column c: its group, its first lane in this group, its bytes in the group's first line. */
    const uint8_t *group(int c) const
    {
        return weights + c / PIECES * group_bytes;
    }
    static int lane(int c)
    {
        return c % PIECES * (PIECE / 4);
    }
    const uint8_t *piece(int c) const
    {
        return group(c) + c % PIECES * PIECE;
    }
};

/* Fetches n_bytes of one of GROUPS groups, AHEAD_BYTES ahead of `from`, so that the product does not wait for memory. The
 * groups are read side by side, and behind the end of one is its neighbor, which is being read already: what comes next
 * there is in the next GROUPS groups. Without that jump, and into the first-level cache, which has room for fewer
 * requests, weights came at 0.6 to 0.75 times the speed of llama.cpp's own loop over the same bytes; so it is 0.9 to
 * 1.0 (one row to six). AVX2 reads one group at a time: 16 KiB ahead, a token of 600 MB of Q8_0 takes 33 ms, 4 KiB
 * ahead 38. */
template <int GROUPS> void fetch_ahead(const place &p, int group, size_t from, size_t n_bytes)
{
    constexpr size_t AHEAD_BYTES = GROUPS_MOST == 1 ? 16384 : 4096;
    const size_t at = from + AHEAD_BYTES;
    const uint8_t *to =
        p.weights + group * p.group_bytes + at + (at < p.group_bytes ? 0 : (GROUPS - 1) * p.group_bytes);
    for (size_t k = 0; k < n_bytes; k += LINE) {
        _mm_prefetch(reinterpret_cast<const char *>(to + k), _MM_HINT_T1);
    }
}

/* The registers with the sums of ROWS rows. Column c is piece c % PIECES of group c / PIECES. */
template <int ROWS, int GROUPS> using totals = floats[ROWS][GROUPS * PIECES];

template <int ROWS, int COLUMNS> void put_out(const place &p, const floats (&total)[ROWS][COLUMNS])
{
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLUMNS; c++) {
            WEIGHTS_OP(storeu_ps)(p.outs[r] + p.column + c * (PIECE / 4), total[r][c]);
        }
    }
}

/* Finds the `multiply` that was compiled for n_rows rows: the sums stay in registers only if their number is a
 * constant. */
template <class FORMAT, int ROWS, int GROUPS>
void multiply_few(const place &p, int64_t n_blocks, int64_t n_rows, upcoming &next)
{
    if (n_rows == ROWS) {
        FORMAT::template multiply<ROWS, GROUPS>(p, n_blocks, next);
    } else if constexpr (ROWS > 1) {
        multiply_few<FORMAT, ROWS - 1, GROUPS>(p, n_blocks, n_rows, next);
    }
}

/* Multiplies all rows with GROUPS groups, ROWS_MOST at a time. `next_group`: the GROUPS groups that are multiplied
 * next; or NULL. They are fetched only if they fit the cache beside the present ones: two groups of a wide matrix would
 * push each other out. */
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

/* Which rows of activations meet which matrix of weights; in the work memory, filled by one thread and read by all
 * after the barrier. MUL_MAT has one matrix for all rows. MUL_MAT_ID (a mixture of experts) has one for each expert and
 * chooses some of them for each token. The table puts the rows of an expert together, so that the expert's weights are
 * read once for all of them; llama.cpp reads them anew for each row (first token of a mixture after 870 tokens: 2,260
 * -> 680 ms).
 *
 * Example: tokens 0 and 1, token 0 goes to experts 2 and 0, token 1 to experts 2 and 1. Rows are then, by expert, 0:
 * [token 0], 1: [token 1], 2: [token 0, token 1]; ends = {1, 2, 4}. */
struct row_table {
    int64_t n_experts, n_rows;
    int64_t *ends; /* [expert]: the end of its rows */
    float **outs;
    char **rows; /* quantized; several experts may share one, if the operation gives each of them the same input */
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
        const int64_t n_inputs = op->src[1]->ne[1]; /* rows of inputs of a token: one, or one for each of its experts */
        std::fill_n(ends, n_experts, 0);
        for (int64_t i = 0; i < n_rows; i++) {
            ends[expert_of(ids, i)]++;
        }
        for (int64_t expert = 1; expert < n_experts; expert++) {
            ends[expert] += ends[expert - 1];
        }
        /* Counting sort, from the last row on: each end moves down to the begin of its expert, which is the end of the
         * one before. The rows of an expert keep their order. */
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

/* The operations of weights in one format, as ggml calls them: `repack` when a tensor is loaded, the others in every
 * step. */
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

    /* All threads quantize the rows, meet, then multiply. Thread 0 fills the table meanwhile: quantizing does not need
     * it. */
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

    /* Returns the number of sets of groups that are multiplied together, GROUPS_MOST but for the last. */
    static int64_t n_sets_of(const ggml_tensor *weights)
    {
        return (weights->ne[1] / LANES + GROUPS_MOST - 1) / GROUPS_MOST;
    }

    /* Returns the cost of a set of groups in rows of activations. Below READ_ROWS rows it is the cost of reading the
     * weights. */
    static int64_t price(int64_t n_rows)
    {
        return n_rows == 0 ? 0 : std::max<int64_t>(n_rows, READ_ROWS);
    }

    /* Computes thread ith's part of the product. The cost of all experts is one line from 0 to `all`, and a thread
     * takes an equal stretch of it: dividing the groups of each expert would leave most threads idle, where many
     * experts have a row or two. */
    static void multiply_share(const ggml_tensor *weights, const row_table &table, int ith, int nth)
    {
        const int64_t n_sets = n_sets_of(weights);
        int64_t all = 0;
        for (int64_t expert = 0; expert < table.n_experts; expert++) {
            all += n_sets * price(table.n_rows_of(expert));
        }
        const int64_t begin = all * ith / nth, end = all * (ith + 1) / nth;
        int64_t at = 0;
        for (int64_t expert = 0; expert < table.n_experts && at < end; expert++) {
            const int64_t next = at + n_sets * price(table.n_rows_of(expert));
            if (next > at && next > begin) {
                multiply_expert(weights, table, expert, begin - at, end - at);
            }
            at = next;
        }
    }

    /* Computes the tasks of one expert that begin at a cost in [begin, end). A task is a set of groups with up to
     * TASK_ROWS rows: the weights of a set are read from memory once for all of them. */
    static void multiply_expert(const ggml_tensor *weights, const row_table &table, int64_t expert, int64_t begin,
                                int64_t end)
    {
        const int64_t n_rows = table.n_rows_of(expert), each = price(n_rows);
        const int64_t n_sets = n_sets_of(weights);
        for (int64_t set = std::max<int64_t>(0, begin / each); set < n_sets && set * each < end; set++) {
            for (int64_t first = 0; first < n_rows; first += TASK_ROWS) {
                const int64_t at = set * each + first;
                if (at >= begin && at < end) {
                    multiply_set(weights, table, expert, set, first, std::min(TASK_ROWS, n_rows - first));
                }
            }
        }
    }

    static void multiply_set(const ggml_tensor *weights, const row_table &table, int64_t expert, int64_t set,
                             int64_t first, int64_t n_rows)
    {
        const int64_t n_blocks = weights->ne[0] / FORMAT::BLOCK, n_groups = weights->ne[1] / LANES;
        const size_t group_bytes = n_blocks * LANES * sizeof(block);
        const int64_t row = table.begin(expert) + first, group = set * GROUPS_MOST;
        const place at = {static_cast<const uint8_t *>(weights->data) + (expert * n_groups + group) * group_bytes,
                          group_bytes, table.rows + row, table.outs + row, group * LANES};
        if (group + GROUPS_MOST <= n_groups) {
            const bool has_next = first == 0 && group + 2 * GROUPS_MOST <= n_groups;
            multiply_rows<FORMAT, GROUPS_MOST>(at, n_blocks, n_rows,
                                               has_next ? at.weights + GROUPS_MOST * group_bytes : nullptr);
        } else {
            multiply_rows<FORMAT, 1>(at, n_blocks, n_rows, nullptr);
        }
    }
};

/* Returns the operations for `weights`; NULL if these are of another format, or do not consist of whole groups and
 * units. Static, since a process may hold several builds of this file, for several processors: each must find its
 * own. */
template <class FORMAT> static const ggml::cpu::tensor_traits *layout_as(const ggml_tensor *weights)
{
    static const tensor_traits<FORMAT> layout;
    const bool fits = weights->type == FORMAT::TYPE && weights->ne[3] == 1 && weights->ne[0] % FORMAT::UNIT == 0 &&
                      weights->ne[1] % LANES == 0;
    return fits ? &layout : nullptr;
}

/* The operations for `weights` in the first of these formats that fits; NULL if none does. */
template <class... FORMATS> static const ggml::cpu::tensor_traits *layout_of(const ggml_tensor *weights)
{
    const ggml::cpu::tensor_traits *layout = nullptr;
    ((layout = layout != nullptr ? layout : layout_as<FORMATS>(weights)), ...);
    return layout;
}

} // namespace weights_rows

#endif
