/* lanes.h: numbers of a whole vocabulary in passes that compilers turn into vector instructions. For sampler.cpp and
 * logprobs.cpp. */
#ifndef LLM_LANES_H
#define LLM_LANES_H

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

namespace {

constexpr float RULED_OUT = -std::numeric_limits<float>::infinity();

/* Four words at a time, which every processor has. */
constexpr uint32_t LANES = 4;
typedef float floats __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t masks __attribute__((vector_size(LANES * sizeof(int32_t))));
typedef uint32_t words __attribute__((vector_size(LANES * sizeof(uint32_t))));

/* e to the x for x <= 0, to 2e-7: a power of two put into the exponent's bits, times a polynomial for the rest. 0 for NaN
 * and for what is too small to be a normal number. */
inline floats exp_of(floats x)
{
    constexpr float SMALLEST = -87.0f;
    constexpr float ROUND = 12582912.0f; /* adding it leaves an integer in the low bits */
    const masks is_normal = x > SMALLEST;
    const floats scaled = (is_normal ? x : floats{}) * 1.44269504f;
    const floats shifted = scaled + ROUND;
    const floats rest = (scaled - (shifted - ROUND)) * 0.69314718f;
    floats power = rest * 0.0013888889f + 0.0083333340f;
    power = power * rest + 0.041666668f;
    power = power * rest + 0.16666667f;
    power = power * rest + 0.5f;
    power = power * rest + 1.0f;
    power = power * rest + 1.0f;
    words bits, exponent;
    memcpy(&bits, &power, sizeof bits);
    memcpy(&exponent, &shifted, sizeof exponent);
    bits = (bits + (exponent << 23)) & (words)is_normal;
    memcpy(&power, &bits, sizeof power);
    return power;
}

inline float exp_of(float x)
{
    return exp_of(floats{} + x)[0];
}

inline double sum_of(floats x)
{
    return static_cast<double>((x[0] + x[1]) + (x[2] + x[3]));
}

/* The largest number; NaN is no number. RULED_OUT: there is none larger. */
inline float largest_of(const float *logits, uint32_t n)
{
    floats lanes = floats{} + RULED_OUT;
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        floats next;
        memcpy(&next, logits + i, sizeof next);
        lanes = next > lanes ? next : lanes;
    }
    float best = RULED_OUT;
    for (uint32_t j = 0; j < LANES; j++) {
        best = std::max(best, lanes[j]);
    }
    for (; i < n; i++) {
        best = logits[i] > best ? logits[i] : best;
    }
    return best;
}

} // namespace

#endif
