/* Does this compiler's AMX code work on this processor? Compiled as C++ and optimized, as llama.cpp's is.
 *
 * gcc 12 declares only 8 bytes of the tile configuration as an input of _tile_loadconfig, drops the stores to the rest,
 * and the first tile instruction then faults; nor does it know that tiles are loaded from memory. Both are said here as
 * in llama.cpp as we change it (0001-amx.patch). Exit status: 0 works, 1 wrong result, killed by a signal when miscompiled, 2 when
 * the kernel does not grant AMX to processes (nothing may then use it either).
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

/* A function of its own, like the one in llama.cpp: inlined, later instructions keep the stores alive. */
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
