/* Blocks of memory: whole, where large pages can be had, and gone when they are freed. */
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "machine/block.h"
#include "own_memory.h"

enum { KIB = 1024, MIB = 1024 * KIB, LARGE_PAGE = 2 * MIB };

static const size_t SIZES[] = {0,       1,           64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 4 * MIB - 1,
                               4 * MIB, 4 * MIB + 1, 6 * MIB - 1,  6 * MIB,  19 * MIB,     19 * MIB + 5};
enum { N_SIZES = sizeof SIZES / sizeof SIZES[0] };

static void test_blocks_of_all_sizes_are_there_side_by_side(void)
{
    uint8_t *blocks[N_SIZES];
    for (size_t i = 0; i < N_SIZES; i++) {
        blocks[i] = block_new(SIZES[i]);
        CHECK(blocks[i] != NULL);
        memset(blocks[i], (int)i + 1, SIZES[i]);
        CHECK(SIZES[i] < 4 * MIB || (uintptr_t)blocks[i] % LARGE_PAGE == 0);
    }
    for (size_t i = 0; i < N_SIZES; i++) {
        for (size_t k = 0; k < SIZES[i]; k++) {
            if (blocks[i][k] != i + 1) {
                CHECK_INT(blocks[i][k], i + 1);
                break;
            }
        }
        block_free(blocks[i], SIZES[i]);
    }
    block_free(NULL, 0);
}

static long address_pages(void)
{
    long n = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f == NULL || fscanf(f, "%ld", &n) != 1) {
        abort();
    }
    fclose(f);
    return n;
}

/* Addresses, too: what is cut off before and behind a block is not kept. */
static void test_what_is_freed_goes_back(void)
{
    const long before_kib = own_memory_kib("Rss:"), before_pages = address_pages();
    for (int i = 0; i < 10000; i++) {
        void *block = block_new(4 * MIB + 5 * KIB);
        CHECK(block != NULL);
        if (i % 100 == 0) {
            memset(block, 1, 4 * MIB + 5 * KIB);
        }
        block_free(block, 4 * MIB + 5 * KIB);
    }
    CHECK(own_memory_kib("Rss:") < before_kib + 8 * KIB);
    CHECK(address_pages() < before_pages + 8 * MIB / 4096);
}

int main(void)
{
    RUN(test_blocks_of_all_sizes_are_there_side_by_side);
    RUN(test_what_is_freed_goes_back);
    return CHECK_RESULT();
}
