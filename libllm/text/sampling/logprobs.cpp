#include "text/sampling/logprobs.h"

#include <cmath>
#include <limits>

#include "text/sampling/lanes.h"

namespace {

/* Returns the logarithm of the sum of exp(logit - best). `best` is the largest logit and finite. */
double log_sum(const float *logits, uint32_t n, float best)
{
    double sum = 0;
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        floats next;
        memcpy(&next, logits + i, sizeof next);
        sum += sum_of(exp_of(next - best));
    }
    for (; i < n; i++) {
        sum += static_cast<double>(exp_of(logits[i] - best));
    }
    return std::log(sum);
}

/* Returns the log probability to report. The largest logit is infinite if all tokens are excluded, or if one token is
 * certain. In both cases, the formula would give NaN. So tokens with this logit have probability 1, and all others
 * 0. */
float reportable(float logit, float best, double log_of_sum)
{
    if (std::isinf(best)) {
        return logit >= best ? 0.0f : LOGPROB_LEAST;
    }
    const double logprob = static_cast<double>(logit) - static_cast<double>(best) - log_of_sum;
    return logprob > static_cast<double>(LOGPROB_LEAST) ? static_cast<float>(logprob) : LOGPROB_LEAST;
}

/* Finds the n largest logits by insertion. Skips a block if its largest logit is not above the n-th largest so far.
 * Most blocks are skipped. */
void collect(const float *logits, uint32_t n_vocab, uint32_t n, token_logprob *out)
{
    uint32_t n_found = 0;
    for (uint32_t i = 0; i < n_vocab; i++) {
        while (n_found == n && i % BLOCK == 0 && i + BLOCK <= n_vocab &&
               !(largest_of_block(logits + i) > out[n - 1].logprob)) {
            i += BLOCK;
        }
        if (i == n_vocab) {
            return;
        }
        const float logit = std::isnan(logits[i]) ? RULED_OUT : logits[i];
        if (n_found == n && !(logit > out[n - 1].logprob)) {
            continue;
        }
        uint32_t at = n_found < n ? n_found++ : n - 1;
        for (; at > 0 && logit > out[at - 1].logprob; at--) {
            out[at] = out[at - 1];
        }
        out[at] = {static_cast<int32_t>(i), logit};
    }
}

} // namespace

float logprobs_read(const float *logits, uint32_t n_vocab, int32_t token, uint32_t n, token_logprob *likeliest)
{
    const float best = largest_of(logits, n_vocab);
    const double log_of_sum = std::isinf(best) ? 0.0 : log_sum(logits, n_vocab, best);
    if (n > 0) {
        collect(logits, n_vocab, n, likeliest);
    }
    for (uint32_t i = 0; i < n; i++) {
        likeliest[i].logprob = reportable(likeliest[i].logprob, best, log_of_sum);
    }
    return reportable(logits[token], best, log_of_sum);
}
