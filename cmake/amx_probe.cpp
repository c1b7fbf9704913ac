/* Tests whether AMX code from this compiler works on this processor. Compiled as optimized C++, like llama.cpp.
 *
 * gcc 12 has two defects. It assumes that _tile_loadconfig reads only the first 8 bytes of the tile configuration. So
 * it drops the stores to the other bytes, and the first tile instruction faults. It also does not know that tiles are
 * loaded from memory. The inline assembler statements below work around both defects, as 0001-amx.patch does in
 * llama.cpp. Exit status: 0 if AMX works, 1 if a result is wrong, 2 if the kernel does not allow AMX in processes. A
 * signal kills the program if it was miscompiled.
 */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REQUEST_PERMISSION 0x1023 /* ARCH_REQ_XCOMP_PERM */
#define FEATURE_TILE_DATA 18      /* XFEATURE_XTILEDATA */
#define ROWS 16
#define ROW_BYTES 64

struct tile_config {
    uint8_t palette;
    uint8_t start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Not inlined, like its counterpart in llama.cpp. If the function were inlined, gcc would keep the stores, and the test
 * would miss the defect. */
__attribute__((noinline)) static void tiles_configure(void)
{
    __attribute__((aligned(64))) tile_config config = {};
    config.palette = 1;
    for (int tile = 0; tile < 3; tile++) {
        config.rows[tile] = ROWS;
        config.row_bytes[tile] = ROW_BYTES;
    }
#ifndef LLAMA_UNCHANGED
    __asm__ volatile("" : : "r"(&config) : "memory");
#endif
    _tile_loadconfig(&config);
}

int main(void)
{
    static int8_t left[ROWS][ROW_BYTES];
    static int8_t right[ROWS][ROW_BYTES];
    static int32_t product[ROWS][ROW_BYTES / 4];

    if (syscall(SYS_arch_prctl, REQUEST_PERMISSION, FEATURE_TILE_DATA) != 0) {
        return 2;
    }
    memset(left, 2, sizeof left);
    memset(right, 3, sizeof right);
    tiles_configure();
    _tile_zero(0);
#ifndef LLAMA_UNCHANGED
    __asm__ volatile("" : : : "memory");
#endif
    _tile_loadd(1, left, ROW_BYTES);
    _tile_loadd(2, right, ROW_BYTES);
    _tile_dpbssd(0, 1, 2);
    _tile_stored(0, product, ROW_BYTES);
    _tile_release();

    for (int row = 0; row < ROWS; row++) {
        for (int column = 0; column < ROW_BYTES / 4; column++) {
            if (product[row][column] != 2 * 3 * ROW_BYTES) {
                return 1;
            }
        }
    }
    return 0;
}
