/* logprobs.h: computes log probabilities of tokens in a model's own distribution, before samplers change it. The
 * functions are pure. */
#ifndef LLM_LOGPROBS_H
#define LLM_LOGPROBS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct token_logprob {
    int32_t token;
    float logprob;
} token_logprob;

/* The log probability that is reported for probability 0, because JSON has no infinity. */
#define LOGPROB_LEAST (-9999.0f)

/* Returns the log probability of `token` under the softmax of n_vocab logits. Stores the n most likely tokens with
 * their log probabilities, the most likely first. If tokens are equally likely, the smaller id comes first. A token
 * with a logit of NaN is excluded. n must be at most LLM_LOGPROBS_MAX and at most the vocabulary's size. */
float logprobs_read(const float *logits, uint32_t n_vocab, int32_t token, uint32_t n, token_logprob *likeliest);

#ifdef __cplusplus
}
#endif
#endif
