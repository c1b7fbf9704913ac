/* logprobs.h: log probabilities of tokens under a model's own distribution. Pure: logits in, numbers out. */
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

/* The log probability of a token with probability 0: JSON has no infinity. */
#define LOGPROB_LEAST (-9999.0f)

/* Returns the log probability of `token` under the softmax of n_vocab logits, and stores those of the n most likely
 * tokens in order, the smaller id first among equals. n is at most LLM_LOGPROBS_MAX and at most the vocabulary's
 * size. NaN counts as excluded. */
float logprobs_read(const float *logits, uint32_t n_vocab, int32_t token, uint32_t n, token_logprob *likeliest);

#ifdef __cplusplus
}
#endif
#endif
