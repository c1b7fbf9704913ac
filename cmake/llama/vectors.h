/* vectors.h: vectors (`lanes`) with as many single-precision numbers as a register of this processor holds. The code
 * uses the compiler's vector types, so that the same source works with AVX-512, AVX2, SSE and Arm. Included by llmd's
 * kernels, which ggml/src/ggml-cpu/ops.cpp includes. */
#pragma once

namespace vectors {

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif
constexpr int LANES_MAX = 16; /* sizes that must not depend on the processor are rounded to a multiple of this number */

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef float unaligned __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

inline lanes load(const float *x)
{
    return *reinterpret_cast<const unaligned *>(x);
}

inline lanes load(const ggml_fp16_t *x)
{
#if defined(__AVX512F__)
    return reinterpret_cast<lanes>(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(x))));
#elif defined(__AVX__) && defined(__F16C__)
    return reinterpret_cast<lanes>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(x))));
#elif defined(__aarch64__)
    return (lanes)vcvt_f32_f16(vld1_f16(reinterpret_cast<const __fp16 *>(x)));
#else
    lanes all;
    for (int i = 0; i < LANES; ++i) {
        all[i] = GGML_CPU_FP16_TO_FP32(x[i]);
    }
    return all;
#endif
}

inline lanes load(const int8_t *x)
{
#if defined(__AVX512F__)
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(x));
    return reinterpret_cast<lanes>(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)));
#elif defined(__AVX2__)
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(x));
    return reinterpret_cast<lanes>(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
#else
    lanes all;
    for (int i = 0; i < LANES; ++i) {
        all[i] = x[i];
    }
    return all;
#endif
}

inline void store(float *x, lanes all)
{
    *reinterpret_cast<unaligned *>(x) = all;
}

/* Returns the exponential of each number, computed with ggml's own vector function. ggml has such a function only for
 * AVX2 and AVX-512. For other processors, ggml's softmax with a maximum of 0 computes the same. */
inline lanes exp_of(lanes all)
{
#if defined(__AVX512F__) && defined(__AVX512DQ__)
    return reinterpret_cast<lanes>(ggml_v_expf(reinterpret_cast<__m512>(all)));
#elif defined(__AVX2__) && defined(__FMA__) && !defined(__AVX512F__)
    return reinterpret_cast<lanes>(ggml_v_expf(reinterpret_cast<__m256>(all)));
#else
    float each[LANES];
    *reinterpret_cast<unaligned *>(each) = all;
    ggml_vec_soft_max_f32(LANES, each, each, 0.0f);
    return load(each);
#endif
}

inline float sum_of(lanes all)
{
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps(reinterpret_cast<__m512>(all));
#else
    float half[LANES];
    store(half, all);
    for (int n = LANES / 2; n > 0; n /= 2) {
        for (int i = 0; i < n; ++i) {
            half[i] += half[i + n];
        }
    }
    return half[0];
#endif
}

struct four {
    float of[4];
};

/* Returns the sums of a, b, c and d across their lanes, in this order. With AVX-512, the four sums share shuffles. */
inline four sums_of(lanes a, lanes b, lanes c, lanes d)
{
    four all;
#if defined(__AVX512F__) && defined(__AVX512DQ__)
    const __m512 x = reinterpret_cast<__m512>(a), y = reinterpret_cast<__m512>(b), z = reinterpret_cast<__m512>(c),
                 w = reinterpret_cast<__m512>(d);
    const __m512 xy = _mm512_unpacklo_ps(x, y) + _mm512_unpackhi_ps(x, y);
    const __m512 zw = _mm512_unpacklo_ps(z, w) + _mm512_unpackhi_ps(z, w);
    const __m512 quads = _mm512_shuffle_ps(xy, zw, 0x44) + _mm512_shuffle_ps(xy, zw, 0xee);
    const __m256 half = _mm512_castps512_ps256(quads) + _mm512_extractf32x8_ps(quads, 1);
    _mm_storeu_ps(all.of, _mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1));
#else
    all = {{sum_of(a), sum_of(b), sum_of(c), sum_of(d)}};
#endif
    return all;
}

} // namespace vectors
