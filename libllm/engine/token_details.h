/* token_details.h: ids and log probabilities of one answer's tokens. They are kept until they are delivered with the
 * outbox's text. They are kept only if the client requested them with LLM_GENERATE_RETURN_TOKENS or n_logprobs. Owned
 * by the decode thread.
 *
 *   sampled --token_details_sampled--> held
 *           --its text is released: token_details_released--> in the outbox --token_details_delivered--> (gone)
 *
 * Tokens whose text was not released when the answer ended are not delivered. Their text belonged to a stop string, or
 * the client has left. */
#ifndef LLM_TOKEN_DETAILS_H
#define LLM_TOKEN_DETAILS_H

#include <stdbool.h>
#include <stdint.h>

#include "boundary/wire.h"
#include "model/model.h"
#include "policy/stop.h"

typedef struct token_details {
    bool is_enabled;
    int32_t n_likeliest; /* how many of the most likely tokens are reported with each token; -1 for no log
                          * probabilities */
    uint32_t n_vocab;
    float *raw;          /* owned: the model's logits before the sampler changed them. NULL at the beginning */
    uint32_t n_chars;    /* characters of the outbox's text */
    uint32_t n;          /* number of tokens that are kept */
    uint32_t n_released; /* the text of the first n_released tokens is in the outbox */
    uint32_t capacity;   /* number of elements for which the arrays below have room. The arrays are owned */
    int32_t *tokens;
    uint64_t *raw_ends; /* offset of each token's end in the raw bytes of the answer (stop.h) */
    uint32_t *ends;     /* for each token, the characters of the outbox's text up to the token's end; set for the first
                         * n_released tokens */
    float *logprobs;
    token_logprob *likeliest; /* capacity * n_likeliest elements */
} token_details;

void token_details_open(token_details *t, const model *m, const wire_command *command);
void token_details_close(token_details *t);

/* Called before a token is sampled. Copies the logits, from which the token's log probabilities are computed later.
 * Returns false if memory is short. */
bool token_details_logits(token_details *t, const float *logits);
/* Called when a token was sampled: adds the token and its log probabilities. The token's text ends at offset raw_end of
 * the raw bytes. Returns false if memory is short. */
bool token_details_sampled(token_details *t, int32_t token, uint64_t raw_end);
/* Called when the text in `released` goes to the outbox. Marks the tokens of this text as released. The raw bytes of
 * the text begin at offset `before`. */
void token_details_released(token_details *t, const stop_result *released, uint64_t before);

/* Whether too many details wait for delivery. */
bool token_details_is_full(const token_details *t);
/* Stores in *out the details of the next TEXT event, as many as fit one event, and returns `out`. Returns NULL if the
 * client did not request tokens. */
const wire_tokens *token_details_next(const token_details *t, wire_tokens *out);
size_t token_details_bytes(const wire_tokens *next); /* returns 0 for NULL */
/* Removes the details in `next`, which were delivered with all text of the outbox. */
void token_details_delivered(token_details *t, const wire_tokens *next);

#endif
