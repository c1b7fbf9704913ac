#include "machine/block.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
    /* The allocator keeps what is freed below this for what comes next. Larger ones are mapped, one by one: states and logits
     * of closed sessions, with small blocks of others between them, would stay with the process. */
    MAPPED_BYTES_MIN = 64 << 10,
    LARGE_PAGE_BYTES = 2 << 20,
    LARGE_PAGES_MIN = 2,
};

static void *mapped(size_t n_bytes)
{
    void *block = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return block == MAP_FAILED ? NULL : block;
}

/* If it fails, it would leave more mappings than a process may have. */
static void unmapped(void *block, size_t n_bytes)
{
    if (n_bytes > 0 && munmap(block, n_bytes) != 0) {
        madvise(block, n_bytes, MADV_DONTNEED);
    }
}

/* Begins where a large page does; its last ones are small, so that it takes no more than it has. */
static void *mapped_in_large_pages(size_t n_bytes)
{
    const size_t page = 4096, n_whole = (n_bytes + page - 1) / page * page;
    uint8_t *from = mapped(n_whole + LARGE_PAGE_BYTES);
    if (from == NULL) {
        return NULL;
    }
    const size_t n_before = (LARGE_PAGE_BYTES - (uintptr_t)from % LARGE_PAGE_BYTES) % LARGE_PAGE_BYTES;
    uint8_t *block = from + n_before;
    unmapped(from, n_before);
    unmapped(block + n_whole, LARGE_PAGE_BYTES - n_before);
    (void)madvise(block, n_bytes / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES, MADV_HUGEPAGE);
    return block;
}

void *block_new(size_t n_bytes)
{
    if (n_bytes < MAPPED_BYTES_MIN) {
        return malloc(n_bytes > 0 ? n_bytes : 1);
    }
    return n_bytes < LARGE_PAGES_MIN * LARGE_PAGE_BYTES ? mapped(n_bytes) : mapped_in_large_pages(n_bytes);
}

void block_free(void *block, size_t n_bytes)
{
    if (block == NULL) {
        return;
    }
    if (n_bytes < MAPPED_BYTES_MIN) {
        free(block);
    } else {
        unmapped(block, n_bytes);
    }
}
