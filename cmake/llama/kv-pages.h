// kv-pages.h: the memory pages behind the cells of a KV cache in host memory. Its buffer is reserved addresses, which
// take memory only when they are written to (ggml-backend.cpp), so that opening a context of 8 GiB writes nothing. The
// pages of cells that hold no token any more are given back to the system here; until they are written again they read
// as zeros. Called by the thread that owns the context, between two steps.
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

// Forbids large pages. The first token of a sequence would otherwise take a whole large page in each layer, for K and
// for V.
inline void kv_pages_small(void *from, size_t n_bytes)
{
#ifdef __linux__
    madvise(from, n_bytes, MADV_NOHUGEPAGE);
#else
    (void)from;
    (void)n_bytes;
#endif
}

// Gives back the whole pages within these bytes. A page that is only partly within them also holds cells of others: it
// stays.
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

// Fills these bytes with zeros. Whole pages are given back to the system. Zeros are written only into the parts of
// pages at both ends.
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

// Gives back cells [i0, i1) of the n_cells of a stream. A cell is a row of the tensor, or a column of V where that is
// transposed (without flash attention): then each row gives back its own pages. Memory of a device cannot be given back
// in parts.
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
