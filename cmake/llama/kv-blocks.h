// kv-blocks.h: the block table of a KV cache in host memory whose sequences have streams of their own. A block is the
// memory of KV_BLOCK neighboring cells, in all layers. The table says which block holds the cells of a stream, so that
// sequences with the same beginning refer to the same memory. A stream gets a block of its own before it writes into a
// shared one. vLLM's PagedAttention has such tables, too (https://arxiv.org/abs/2309.06180).
//
// The table changes only between two steps, by the thread that owns the context. Attention (attention-rows.h) reads it
// during a step: it finds the table in `extra` of the tensors of K and V.
//
// A block to which no stream refers holds zeros. Attention gives weight 0 to the cells beside those that it wants, and
// 0 times an infinity that a stranger left there would be NaN.
#pragma once

#include <cstdint>
#include <vector>

constexpr uint32_t KV_BLOCK = 64;        // cells. Attention reads at most as many at once (BLOCK in attention-block.h)
constexpr int64_t KV_HEAD_MULTIPLE = 16; // the values of a head that uses a block table are a multiple (LANES_MAX)

class kv_blocks {
  public:
    // The block that a stream may write into. If copy_from is not `block`, the cells of copy_from must be copied there.
    struct target {
        uint32_t block, copy_from;
    };

    kv_blocks(uint32_t n_streams, uint32_t n_cells)
        : n(n_cells / KV_BLOCK), blocks(n_streams * n, NONE), n_refs(blocks.size(), 0)
    {}

    uint32_t n_per_stream() const
    {
        return n;
    }
    // Cells of a stream.
    uint32_t n_cells() const
    {
        return n * KV_BLOCK;
    }
    uint32_t n_total() const
    {
        return blocks.size();
    }

    bool has(uint32_t stream, uint32_t i) const
    {
        return blocks[stream * n + i] != NONE;
    }

    // Returns the block of the i-th KV_BLOCK cells of a stream. Cells that were never written to have the block that
    // they would have without a table. What is read there has no weight.
    uint32_t at(uint32_t stream, uint32_t i) const
    {
        const uint32_t own = stream * n + i;
        return i < n && blocks[own] != NONE ? blocks[own] : own;
    }

    // Returns the row of the tensors of K and V that holds a cell.
    int64_t row(uint32_t stream, uint32_t cell) const
    {
        return (int64_t)at(stream, cell / KV_BLOCK) * KV_BLOCK + cell % KV_BLOCK;
    }

    // Returns whether other streams refer to this block, too.
    bool is_shared(uint32_t stream, uint32_t i) const
    {
        const uint32_t block = blocks[stream * n + i];
        return block != NONE && n_refs[block] > 1;
    }

    // Makes block i of `to`, which has none, the one of `from`.
    void share(uint32_t from, uint32_t to, uint32_t i)
    {
        if (blocks[from * n + i] != NONE) {
            refer(to * n + i, blocks[from * n + i]);
        }
    }

    // Gives the stream a block that no other stream refers to. There is always one: there are as many blocks as
    // references, and this reference counts only once.
    target own(uint32_t stream, uint32_t i)
    {
        const uint32_t index = stream * n + i;
        const uint32_t before = blocks[index];
        if (before != NONE && n_refs[before] == 1) {
            return {before, before};
        }
        refer(index, free_block(index));
        if (before == NONE) {
            return {blocks[index], blocks[index]};
        }
        n_refs[before]--;
        return {blocks[index], before};
    }

    // Takes block i from the stream. Returns whether it had one to which no stream refers any more: the caller must
    // fill `*block` with zeros.
    bool take(uint32_t stream, uint32_t i, uint32_t *block)
    {
        const uint32_t index = stream * n + i;
        *block = blocks[index];
        blocks[index] = NONE;
        return *block != NONE && --n_refs[*block] == 0;
    }

  private:
    static constexpr uint32_t NONE = UINT32_MAX;

    void refer(uint32_t index, uint32_t block)
    {
        blocks[index] = block;
        n_refs[block]++;
    }

    // The block that the stream would have without a table, if it is free: neighboring cells are neighbors in memory.
    uint32_t free_block(uint32_t index)
    {
        if (n_refs[index] == 0) {
            return index;
        }
        while (n_refs[next] != 0) {
            next = (next + 1) % n_refs.size();
        }
        return next;
    }

    uint32_t n;                   // blocks of a stream
    uint32_t next = 0;            // where the search for a free block begins
    std::vector<uint32_t> blocks; // [stream][i]
    std::vector<uint16_t> n_refs; // of each block
};
