// kv-pages.h: returns memory pages of a KV cache in host memory to the system. The cache's buffer consists of reserved
// addresses, which take memory only when they are written (ggml-backend.cpp). So opening a context of 8 GiB writes
// nothing. When cells no longer hold tokens, these functions return their pages. Such pages contain zeros until they
// are written again. Called by the thread that owns the context, between two steps.
#pragma once

#include "ggml-backend.h"
#include "ggml.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

// Forbids large pages for this memory. Otherwise the first token of a sequence would take a whole large page for K and
// another for V, in each layer.
inline void kv_pages_small(void *from, size_t n_bytes)
{
#ifdef __linux__
    madvise(from, n_bytes, MADV_NOHUGEPAGE);
#else
    (void)from;
    (void)n_bytes;
#endif
}

// Returns the whole pages within these bytes to the system. A page that is only partly within these bytes stays,
// because it also holds other cells.
inline void kv_pages_give_back_bytes(char *from, size_t n_bytes)
{
#ifdef __linux__
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = ((uintptr_t)from + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)from + n_bytes) / page * page;
    if (end > begin) {
        madvise((void *)begin, end - begin, MADV_DONTNEED);
    }
#else
    (void)from;
    (void)n_bytes;
#endif
}

// Fills these bytes with zeros. Returns whole pages to the system, and writes zeros only into the incomplete pages at
// both ends.
inline void kv_pages_clear(char *from, size_t n_bytes)
{
#ifdef __linux__
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t before = std::min(n_bytes, (page - (uintptr_t)from % page) % page);
    const size_t n_whole = (n_bytes - before) / page * page;
    kv_pages_give_back_bytes(from + before, n_whole);
    memset(from, 0, before);
    memset(from + before + n_whole, 0, n_bytes - before - n_whole);
#else
    memset(from, 0, n_bytes);
#endif
}

// Returns the pages of cells [i0, i1) to the system. A stream has n_cells cells. A cell is a row of the tensor. Without
// flash attention, V is transposed, and a cell is a column of V. Then each row returns its own pages. Memory of a
// device cannot be returned in parts.
inline void kv_pages_give_back(ggml_tensor *t, uint32_t i0, uint32_t i1, uint32_t n_cells, bool is_transposed)
{
    if (t == nullptr ||
        ggml_backend_buffer_get_type(t->view_src ? t->view_src->buffer : t->buffer) != ggml_backend_cpu_buffer_type()) {
        return;
    }
    char *base = (char *)t->data;
    if (!is_transposed || i1 - i0 == n_cells) {
        const size_t n_cell_bytes = ggml_nbytes(t) / n_cells;
        kv_pages_give_back_bytes(base + i0 * n_cell_bytes, (i1 - i0) * n_cell_bytes);
        return;
    }
    const size_t n_element_bytes = ggml_element_size(t);
    const size_t n_rows = ggml_nelements(t) / n_cells;
    for (size_t row = 0; row < n_rows; row++) {
        kv_pages_give_back_bytes(base + (row * n_cells + i0) * n_element_bytes, (i1 - i0) * n_element_bytes);
    }
}
