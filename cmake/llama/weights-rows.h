/* weights-rows.h: multiplies quantized weights with rows of activations, on x86 processors with AVX2 and without AMX.
 * Included by ggml-cpu's repack.cpp. The instructions are in weights-lanes.h.
 *
 * llama.cpp multiplies a block of 32 weights of one row with 32 inputs, and then adds up the products across the
 * register. This is repeated for each row. The code here stores the weights in groups. A group is sixteen rows, of
 * which four bytes each are stored in turn:
 *
 *   a line of 64 bytes:  row 0: inputs 0-3 | row 1: inputs 0-3 | ... | row 15: inputs 0-3
 *
 * One instruction multiplies four inputs with all sixteen rows, and lane i adds up the products of row i. So no sum
 * across the register is needed, and loaded weights are used for up to ROWS_MOST rows of activations. On two cores of a
 * Zen 4 with AVX-512 VNNI, prefill with Q8_0 went from 184 to 446 tokens/s. With a single row of activations, memory
 * limits the speed, as before.
 *
 * A group has the same number of bytes as its rows have in the file. weights-32.h and weights-k.h describe the order of
 * the bytes. The bits of a result depend neither on the number of threads nor on other rows in the batch. So other
 * sessions cannot change an answer.
 *
 * A format has
 *   TYPE, block      ggml's type, and its struct of a block in the file
 *   BLOCK, UNIT      number of inputs of a block; the number of inputs of a row must be a multiple of UNIT
 *   ROWS_MOST        most rows of activations at a time: their sums and the weights fill the registers
 *   pack             stores a group in this layout
 *   activations      a quantized row of activations
 *   FETCHES          how often `multiply` calls upcoming::fetch in a block
 *   multiply         multiplies ROWS rows of activations with GROUPS groups of weights */
#ifndef WEIGHTS_ROWS_H
#define WEIGHTS_ROWS_H

#include "quants.h"
#include "weights-lanes.h"

#include <algorithm>
#include <cstring>

namespace weights_rows {

constexpr int TASK_PARTS = 16; /* a task has at most TASK_PARTS * ROWS_MOST rows of activations */
constexpr int READ_ROWS = 4;   /* multiplying this many rows takes about as long as reading the weights from memory */
constexpr size_t UPCOMING_BYTES_MAX = 256 << 10; /* together with the weights in use, this takes half of the
                                                  * second-level cache */

/* ---- packing: four bytes of one lane ---- */

inline void put_four(uint8_t *line, int lane, uint32_t four)
{
    memcpy(line + lane * 4, &four, sizeof four);
}

/* Packs two sets of four quants into four bytes. Each byte has the lower 4 bits of `first` in its lower half, and those
 * of `second` in its upper half. */
inline uint32_t two_of(uint32_t first, uint32_t second)
{
    return (first & 0x0f0f0f0f) | (second & 0x0f0f0f0f) << 4;
}

/* ---- multiplying ---- */

/* The weights that are multiplied next, for prefetching. With more than ROWS_MOST rows, there are several passes over
 * the same weights, and only the first pass waits for memory. To use the memory in the other passes, too, each block of
 * each pass prefetches its share of the next weights. With 16 rows of Q8_0, this raised the speed from 30 to 41
 * GB/s. */
struct upcoming {
    const uint8_t *at, *end;
    size_t n_bytes; /* number of bytes to prefetch in each call of fetch */

    void fetch()
    {
        for (const uint8_t *to = std::min(at + n_bytes, end); at < to; at += LINE) {
            _mm_prefetch(reinterpret_cast<const char *>(at), _MM_HINT_T1);
        }
    }
};

/* Where `multiply` reads and writes: the first group of weights, the quantized rows of activations, and the rows of the
 * output. The results of the first group begin at `column` of each output row. */
struct place {
    const uint8_t *weights;
    size_t group_bytes;
    char *const *rows;
    float *const *outs;
    int64_t column;

    /* For column c of the sums in registers, these functions return its group, its first lane in this group, and its
     * bytes in the group's first line. */
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

/* Prefetches n_bytes of one of GROUPS groups, AHEAD_BYTES after `from`, so that the product does not wait for memory.
 * If GROUPS is 2, both groups are read at the same time. After the end of the first group comes the second group, which
 * is being read already. So the prefetch at the end of a group continues in the next GROUPS groups. The data go to the
 * second-level cache, because the first-level cache allows fewer requests. Without these two measures, weights were
 * read at 0.6 to 0.75 times the speed of llama.cpp's own loop over the same bytes. Now it is 0.9 to 1.0 times that
 * speed (one to six rows). With AVX2, one group is read at a time. With 600 MB of Q8_0 weights, a token takes 33 ms if
 * AHEAD_BYTES is 16 KiB, and 38 ms if it is 4 KiB. */
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

/* The registers with the sums of ROWS rows. Column c belongs to piece c % PIECES of group c / PIECES. */
template <int ROWS, int GROUPS> using totals = floats[ROWS][GROUPS * PIECES];

template <int ROWS, int COLUMNS> void put_out(const place &p, const floats (&total)[ROWS][COLUMNS])
{
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLUMNS; c++) {
            WEIGHTS_OP(storeu_ps)(p.outs[r] + p.column + c * (PIECE / 4), total[r][c]);
        }
    }
}

/* Calls the version of `multiply` that was compiled for n_rows rows. The number of rows must be a constant there,
 * because otherwise the sums would not stay in registers. */
template <class FORMAT, int ROWS, int GROUPS>
void multiply_few(const place &p, int64_t n_blocks, int64_t n_rows, upcoming &next)
{
    if (n_rows == ROWS) {
        FORMAT::template multiply<ROWS, GROUPS>(p, n_blocks, next);
    } else if constexpr (ROWS > 1) {
        multiply_few<FORMAT, ROWS - 1, GROUPS>(p, n_blocks, n_rows, next);
    }
}

/* Multiplies all rows with GROUPS groups, ROWS_MOST rows at a time. `next_group` points to the groups that are
 * multiplied next, or is NULL. The next groups are prefetched only if they fit into the cache together with the current
 * groups. The groups of a wide matrix would evict each other. */
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

/* Says which rows of activations are multiplied with which matrix of weights. The table is in the work memory. One
 * thread fills it, and all threads read it after the barrier. MUL_MAT has one matrix for all rows. MUL_MAT_ID (a
 * mixture of experts) has a matrix for each expert, and chooses some experts for each token. The table groups the rows
 * by expert, so that an expert's weights are read once for all its rows. llama.cpp reads them for each row. With the
 * table, the first token of a mixture after 870 tokens takes 680 instead of 2,260 ms.
 *
 * Example: token 0 goes to experts 2 and 0, and token 1 to experts 2 and 1. Then expert 0 has the row of token 0,
 * expert 1 that of token 1, and expert 2 both rows. `ends` is {1, 2, 4}. */
struct row_table {
    int64_t n_experts, n_rows;
    int64_t *ends; /* for each expert, the end of its rows */
    float **outs;
    char **rows; /* quantized rows. Several experts share a row if they have the same input */
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
        const int64_t n_inputs = op->src[1]->ne[1]; /* input rows of a token: one, or one for each of its experts */
        std::fill_n(ends, n_experts, 0);
        for (int64_t i = 0; i < n_rows; i++) {
            ends[expert_of(ids, i)]++;
        }
        for (int64_t expert = 1; expert < n_experts; expert++) {
            ends[expert] += ends[expert - 1];
        }
        /* Counting sort, beginning with the last row. Each entry of `ends` is decremented until it is the begin of its
         * expert's rows, which is the end of the previous expert's rows. The rows of an expert keep their order. */
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

/* The operations on weights in one format. ggml calls `repack` when a tensor is loaded, and the other functions in
 * every step. */
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

    /* All threads quantize rows, wait for each other, and then multiply. Thread 0 fills the table before the barrier,
     * because quantizing does not need the table. */
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

    /* Returns the number of sets of groups. The groups of a set are multiplied together. A set has GROUPS_MOST groups,
     * but the last set can have fewer. */
    static int64_t n_sets_of(const ggml_tensor *weights)
    {
        return (weights->ne[1] / LANES + GROUPS_MOST - 1) / GROUPS_MOST;
    }

    /* Returns the cost of multiplying a set of groups with n_rows rows, in units of one row. With fewer than READ_ROWS
     * rows, this is the cost of reading the weights. */
    static int64_t price(int64_t n_rows)
    {
        return n_rows == 0 ? 0 : std::max<int64_t>(n_rows, READ_ROWS);
    }

    /* Computes the part of thread `ith` in the product. The costs of all experts are added up to `all`, and each thread
     * gets an equal part of the range from 0 to `all`. If the groups of each expert were divided instead, most threads
     * would be idle when many experts have only one or two rows. */
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

    /* Computes the tasks of one expert that begin at a cost in [begin, end). A task multiplies a set of groups with up
     * to TASK_ROWS rows. The weights of the set are read from memory once for all these rows. */
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

/* Returns the operations for `weights`, or NULL if the weights have another format or do not consist of whole groups
 * and units. The function is static, because a process can load several builds of this file, for several processors.
 * Each build must use its own function. */
template <class FORMAT> static const ggml::cpu::tensor_traits *layout_as(const ggml_tensor *weights)
{
    static const tensor_traits<FORMAT> layout;
    const bool fits = weights->type == FORMAT::TYPE && weights->ne[3] == 1 && weights->ne[0] % FORMAT::UNIT == 0 &&
                      weights->ne[1] % LANES == 0;
    return fits ? &layout : nullptr;
}

/* Returns the operations for `weights` in the first of these formats that fits, or NULL if none fits. */
template <class... FORMATS> static const ggml::cpu::tensor_traits *layout_of(const ggml_tensor *weights)
{
    const ggml::cpu::tensor_traits *layout = nullptr;
    ((layout = layout != nullptr ? layout : layout_as<FORMATS>(weights)), ...);
    return layout;
}

} // namespace weights_rows

#endif
