// kv-pages.h: the memory behind cells of a KV cache in host memory. Its buffer is addresses that take memory as they are
// written to (ggml-backend.cpp); what no token needs any more goes back, and reads as zeros.
#pragma once

#include "ggml-backend.h"
#include "ggml.h"

#include <cstdint>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

// A large page would be taken for the first token in it, in each layer.
inline void kv_pages_small(void *from, size_t n_bytes)
{
#ifdef __linux__
    madvise(from, n_bytes, MADV_NOHUGEPAGE);
#else
    (void)from;
    (void)n_bytes;
#endif
}

// The whole pages within these bytes.
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

// Cells [i0, i1) of the n_cells of a stream: a cell is a row of the tensor, or, transposed, a column.
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
