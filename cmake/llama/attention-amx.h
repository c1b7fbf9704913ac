/* attention-amx.h: multiplies matrices with AMX. Included by attention-tile.h.
 *
 * AMX multiplies bf16 numbers, which have 8 significant bits. These are too few for attention scores, because softmax
 * takes their exponential. So each factor x is split into two bf16 planes: x rounded to bf16 (high), and the difference
 * x - high rounded to bf16 (low). A finite f16 number (keys and values) has 11 significant bits, so it equals high +
 * low exactly. The code adds three products: high * high, low * high and high * low. The relative error of the sum is
 * less than 2^-15, which is below the precision of f16. The fourth product, low * low, would not change the result
 * noticeably.
 *
 * The left matrix of a product is stored row by row. The right matrix is stored as rows of pairs. A pair is two
 * neighboring values of one column, in 32 bits. The instruction multiplies them with two neighboring values of a row of
 * the left matrix (Intel's manual, TDPBF16PS).
 *
 * The instructions are inline assembler and not intrinsics, for two reasons. In a portable build, the compiler flags of
 * the AMX variant allow tiles, but not bf16. And gcc 12 does not know that its intrinsics read memory, so it drops the
 * stores before them (0001-amx.patch). All statements are volatile to keep their order, because the compiler knows
 * nothing about tile registers. */
#pragma once

/* The condition does not include a macro for bf16, which portable builds do not define. is_allowed() checks at run time
 * whether the processor supports bf16. */
#if defined(__linux__) && defined(__AMX_TILE__) && defined(__AVX512BW__)
#define ATTENTION_BY_AMX 1

#include <cpuid.h>
#include <cstdint>
#include <sys/syscall.h>
#include <unistd.h>

#include "attention-turn.h"

namespace attention_amx {

constexpr int SIDE = 16;                /* rows of a tile, and its columns of 32 bits */
constexpr int DEPTH = 2 * SIDE;         /* number of values of a row in one multiplication of tiles */
constexpr int PAIR = sizeof(uint32_t);  /* bytes of a pair of values */
constexpr int VALUE = sizeof(uint16_t); /* bytes of a value */

/* CPUID leaf 7: bit 22 of EDX is AMX-BF16. */
inline bool has_bf16()
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 22 & 1) != 0;
}

/* A process must ask the Linux kernel once for permission to use tiles. Without the permission, the first tile
 * instruction raises SIGILL (Linux, Documentation/arch/x86/xstate.rst). */
inline bool is_allowed()
{
    constexpr int ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18;
    static const bool allowed = has_bf16() && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
    return allowed;
}

/* While an object of this class exists, the calling thread's tiles have 16 rows of 64 bytes. The destructor restores
 * the earlier shapes. llama.cpp's AMX code for quantized weights sets its shapes once per thread, and would compute
 * wrong products with other shapes. */
class tiles {
    struct alignas(64) shape {
        uint8_t palette = 0, start_row = 0, unused[14] = {};
        uint16_t row_bytes[16] = {};
        uint8_t rows[16] = {};
    };
    shape before;

    static void load(const shape &s)
    {
        __asm__ volatile("ldtilecfg %0" : : "m"(s) : "memory");
    }

  public:
    tiles()
    {
        __asm__ volatile("sttilecfg %0" : "=m"(before) : : "memory");
        shape all;
        all.palette = 1;
        for (int i = 0; i < 8; ++i) {
            all.row_bytes[i] = SIDE * PAIR;
            all.rows[i] = SIDE;
        }
        load(all);
    }
    ~tiles()
    {
        load(before);
    }
    tiles(const tiles &) = delete;
    tiles &operator=(const tiles &) = delete;
};

/* ---- two planes -------------------------------------------------------------------------------------------------- */

/* Returns each value rounded to bf16, in the upper half of its 32 bits. Truncation would be cheaper, but its error can
 * be twice as large. */
inline __m512i upper(__m512 x)
{
    const __m512i half = _mm512_set1_epi32(0x8000), mask = _mm512_set1_epi32(static_cast<int>(0xffff0000));
    return _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(x), half), mask);
}

inline __m512 rest(__m512 x, __m512i upper_half)
{
    return _mm512_sub_ps(x, _mm512_castsi512_ps(upper_half));
}

struct planes {
    __m512i high, low;
};

/* Splits 32 neighboring values of a row into two planes. The first 16 values are `first`, the others are `second`. */
inline planes beside(__m512 first, __m512 second)
{
    alignas(64) static constexpr uint16_t UPPER[DEPTH] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                          23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                          45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    const __m512i order = _mm512_load_si512(UPPER), a = upper(first), b = upper(second);
    return {_mm512_permutex2var_epi16(a, order, b),
            _mm512_permutex2var_epi16(upper(rest(first, a)), order, upper(rest(second, b)))};
}

/* Splits 16 pairs into two planes. Pair i has first[i] in the lower half of its 32 bits, and second[i] in the upper
 * half. */
inline planes above(__m512 first, __m512 second)
{
    const __m512i a = upper(first), b = upper(second);
    return {_mm512_or_si512(_mm512_srli_epi32(a, 16), b),
            _mm512_or_si512(_mm512_srli_epi32(upper(rest(first, a)), 16), upper(rest(second, b)))};
}

/* ---- a product --------------------------------------------------------------------------------------------------- */

/* The planes of one factor. `stride` is the number of bytes between two rows of the left factor, or between two rows of
 * pairs of the right factor. */
struct matrix {
    char *high, *low;
    int64_t stride;
};

#define TILE_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile : : :)
#define TILE_LOAD(tile, from, stride)                                                                                  \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(from), "r"(stride) : "memory")
#define TILE_STORE(tile, to, stride)                                                                                   \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(to), "r"(stride) : "memory")
#define TILE_MULTIPLY(sum, left, right) __asm__ volatile("tdpbf16ps %%tmm" #right ", %%tmm" #left ", %%tmm" #sum : : :)

/* Adds to ROWS times COLUMNS tiles of the product. This uses all eight tile registers: 0 to 3 for the sums, 4 and 5 for
 * the left factor, 6 and 7 for the right factor. With two rows and two columns, each loaded tile is used twice. */
template <int ROWS, int COLUMNS> inline void add_product()
{
    TILE_MULTIPLY(0, 4, 6);
    if constexpr (COLUMNS == 2) {
        TILE_MULTIPLY(1, 4, 7);
    }
    if constexpr (ROWS == 2) {
        TILE_MULTIPLY(2, 5, 6);
    }
    if constexpr (ROWS == 2 && COLUMNS == 2) {
        TILE_MULTIPLY(3, 5, 7);
    }
}

template <int ROWS> inline void load_left(const char *from, int64_t stride)
{
    TILE_LOAD(4, from, stride);
    if constexpr (ROWS == 2) {
        TILE_LOAD(5, from + SIDE * stride, stride);
    }
}

template <int COLUMNS> inline void load_right(const char *from, int64_t stride)
{
    TILE_LOAD(6, from, stride);
    if constexpr (COLUMNS == 2) {
        TILE_LOAD(7, from + SIDE * PAIR, stride);
    }
}

/* Adds three products for each DEPTH values. Their order is low * high, high * high, high * low. So only one factor
 * changes from product to product, which saves two of six loads. */
template <int ROWS, int COLUMNS, class F>
inline void multiply_planes(const matrix &left, const matrix &right, int64_t depth, float *out, int64_t out_stride,
                            const F &meanwhile)
{
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    for (int64_t k = 0; k < depth; k += DEPTH) {
        const int64_t in_left = k * VALUE, in_right = k / 2 * right.stride;
        load_right<COLUMNS>(right.high + in_right, right.stride);
        load_left<ROWS>(left.low + in_left, left.stride);
        add_product<ROWS, COLUMNS>();
        load_left<ROWS>(left.high + in_left, left.stride);
        add_product<ROWS, COLUMNS>();
        load_right<COLUMNS>(right.low + in_right, right.stride);
        add_product<ROWS, COLUMNS>();
        meanwhile();
    }
    const int64_t stride = out_stride * sizeof(float);
    TILE_STORE(0, out, stride);
    if constexpr (COLUMNS == 2) {
        TILE_STORE(1, out + SIDE, stride);
    }
    if constexpr (ROWS == 2) {
        TILE_STORE(2, out + SIDE * out_stride, stride);
    }
    if constexpr (ROWS == 2 && COLUMNS == 2) {
        TILE_STORE(3, out + SIDE * out_stride + SIDE, stride);
    }
}

#undef TILE_ZERO
#undef TILE_LOAD
#undef TILE_STORE
#undef TILE_MULTIPLY

/* Computes out = left * right. n_rows and n_columns are multiples of SIDE, and depth is a multiple of DEPTH. out_stride
 * counts floats. meanwhile() is called every few hundred cycles, so that the caller can prefetch memory while the tiles
 * compute. */
template <class F>
inline void multiply(const matrix &left, const matrix &right, int64_t n_rows, int64_t n_columns, int64_t depth,
                     float *out, int64_t out_stride, const F &meanwhile)
{
    for (int64_t i = 0; i < n_rows; i += 2 * SIDE) {
        for (int64_t j = 0; j < n_columns; j += 2 * SIDE) {
            const matrix a = {left.high + i * left.stride, left.low + i * left.stride, left.stride};
            const matrix b = {right.high + j * PAIR, right.low + j * PAIR, right.stride};
            float *to = out + i * out_stride + j;
            if (i + SIDE < n_rows) {
                j + SIDE < n_columns ? multiply_planes<2, 2>(a, b, depth, to, out_stride, meanwhile)
                                     : multiply_planes<2, 1>(a, b, depth, to, out_stride, meanwhile);
            } else {
                j + SIDE < n_columns ? multiply_planes<1, 2>(a, b, depth, to, out_stride, meanwhile)
                                     : multiply_planes<1, 1>(a, b, depth, to, out_stride, meanwhile);
            }
        }
    }
}

} // namespace attention_amx

#endif
