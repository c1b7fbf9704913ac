// kv-blocks.h: the block table of a KV cache in host memory in which each sequence has its own stream. A block is the
// memory of KV_BLOCK neighboring cells, in all layers. The table says which blocks hold the cells of a stream. So
// sequences with the same beginning can share memory. Before a stream writes into a shared block, it gets its own copy
// of the block. vLLM's PagedAttention has such tables, too (https://arxiv.org/abs/2309.06180).
//
// The table changes only between two steps, by the thread that owns the context. Attention (attention-rows.h) reads the
// table during a step. It finds the table in the member `extra` of the tensors of K and V.
//
// A block to which no stream refers contains zeros. Reason: attention also reads cells that it does not need, with
// weight 0. If another sequence had left an infinity there, 0 times infinity would be NaN.
#pragma once

#include <cstdint>
#include <vector>

constexpr uint32_t KV_BLOCK = 64;        // cells of a block. Attention reads at most this many cells at once (BLOCK in
                                         // attention-block.h)
constexpr int64_t KV_HEAD_MULTIPLE = 16; // with a block table, head sizes must be multiples of this number (LANES_MAX)

class kv_blocks {
  public:
    // The block into which a stream can write. If copy_from is not equal to `block`, the caller must first copy the
    // cells of copy_from into `block`.
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
    // Returns the number of cells of a stream.
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

    // Returns the i-th block of a stream. A block that was never written is at its position without a table. It may be
    // read, because its cells have weight 0.
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

    // Returns whether other streams also refer to this block.
    bool is_shared(uint32_t stream, uint32_t i) const
    {
        const uint32_t block = blocks[stream * n + i];
        return block != NONE && n_refs[block] > 1;
    }

    // Makes block i of `to` refer to block i of `from`. `to` must not have a block i yet.
    void share(uint32_t from, uint32_t to, uint32_t i)
    {
        if (blocks[from * n + i] != NONE) {
            refer(to * n + i, blocks[from * n + i]);
        }
    }

    // Gives the stream a block to which no other stream refers. There is always such a block, because there are as many
    // blocks as possible references.
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

    // Takes block i from the stream. Returns true if no stream refers to this block any more. Then the caller must fill
    // the block number *block with zeros.
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

    // Returns a free block. Prefers the block at the position without a table, because then neighboring cells are
    // neighbors in memory.
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

    uint32_t n;                   // number of blocks of a stream
    uint32_t next = 0;            // where the search for a free block begins
    std::vector<uint32_t> blocks; // [stream][i]
    std::vector<uint16_t> n_refs; // number of references to each block
};
