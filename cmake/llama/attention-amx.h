/* attention-amx.h: products of matrices by AMX. Included by attention-tile.h.
 *
 * AMX multiplies bf16, which has 8 significant bits: not enough for scores, whose exponential is taken. Every factor is
 * therefore two planes: x rounded to bf16 (high), and the rest x - high rounded to bf16 (low). A finite f16 (keys,
 * values) has 11 significant bits and is high + low exactly. Three products, high * high + low * high + high * low,
 * differ from the true product by less than 2^-15 of it, below the precision of f16; a fourth, low * low, would not be
 * seen.
 *
 * The left matrix of a product is stored by rows, the right one by rows of pairs: two values of a column, which are
 * multiplied with two neighbors of the left, share 32 bits (Intel's manual, TDPBF16PS).
 *
 * The instructions are inline assembler, not intrinsics. Where one program has variants for several processors, the
 * compiler is told of tiles but not of bf16; and gcc's intrinsics do not say that they read memory, so that gcc 12
 * drops the stores before them (0001-amx.patch). Every statement is volatile, which keeps their order: the compiler
 * knows nothing of tile registers. */
#pragma once

/* The compiler's macros say nothing of bf16 there: is_allowed() asks the processor. */
#if defined(__linux__) && defined(__AMX_TILE__) && defined(__AVX512BW__)
#define ATTENTION_BY_AMX 1

#include <cpuid.h>
#include <cstdint>
#include <sys/syscall.h>
#include <unistd.h>

#include "attention-turn.h"

namespace attention_amx {

constexpr int SIDE = 16;                /* rows of a tile, and its columns of 32 bits */
constexpr int DEPTH = 2 * SIDE;         /* values of a row that one multiplication sums up */
constexpr int PAIR = sizeof(uint32_t);  /* bytes */
constexpr int VALUE = sizeof(uint16_t); /* bytes */

/* CPUID leaf 7: bit 22 of EDX is AMX-BF16. */
inline bool has_bf16()
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 22 & 1) != 0;
}

/* The kernel lets a process use tiles after it has asked once; without that the first instruction is a SIGILL (Linux,
 * Documentation/arch/x86/xstate.rst). */
inline bool is_allowed()
{
    constexpr int ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18;
    static const bool allowed = has_bf16() && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
    return allowed;
}

/* As long as it lives, the calling thread's tiles are 16 rows of 64 bytes. The destructor restores the shapes from
 * before: the kernel of quantized weights configures them once for each thread, and would compute wrong products with
 * ours. */
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

/* Returns each value rounded to bf16, in the upper half of its 32 bits. Cutting the lower half off would be cheaper,
 * but leave a rest twice as large. */
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

/* Returns the planes of 32 neighbors of a row: the upper halves of `first`, then those of `second`. */
inline planes beside(__m512 first, __m512 second)
{
    alignas(64) static constexpr uint16_t UPPER[DEPTH] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                          23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                          45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    const __m512i order = _mm512_load_si512(UPPER), a = upper(first), b = upper(second);
    return {_mm512_permutex2var_epi16(a, order, b),
            _mm512_permutex2var_epi16(upper(rest(first, a)), order, upper(rest(second, b)))};
}

/* Returns the planes of 16 pairs: pair i is first[i] in the lower and second[i] in the upper half of 32 bits. */
inline planes above(__m512 first, __m512 second)
{
    const __m512i a = upper(first), b = upper(second);
    return {_mm512_or_si512(_mm512_srli_epi32(a, 16), b),
            _mm512_or_si512(_mm512_srli_epi32(upper(rest(first, a)), 16), upper(rest(second, b)))};
}

/* ---- a product --------------------------------------------------------------------------------------------------- */

/* The planes of one factor. stride: bytes from row to row (left), from pair of rows to pair of rows (right). */
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

/* ROWS times COLUMNS tiles of the product, all eight tile registers: sums in 0 to 3, the left factor in 4 and 5, the
 * right factor in 6 and 7. Every tile that is loaded serves two products. */
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

/* Three products for each step of the depth. The order (low * high, high * high, high * low) changes one factor at a
 * time: four loads instead of six. */
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

/* out[row][column] = left * right. Rows and columns are multiples of SIDE, depth of DEPTH; the stride of out counts
 * floats. meanwhile() is called every few hundred cycles, to fetch what comes next while the tiles compute. */
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
