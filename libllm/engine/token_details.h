/* token_details.h: the tokens of one answer on their way to a client that requested them (LLM_GENERATE_RETURN_TOKENS,
 * n_logprobs), in addition to the outbox's text. Other requests keep no details. Owned by the decode thread.
 *
 *   sampled --token_details_sampled--> held
 *           --its text is released: token_details_released--> in the outbox --token_details_delivered--> (gone)
 *
 * Tokens that are still held when the answer ends are not delivered: a stop string cut them off, or the client has
 * left. */
#ifndef LLM_TOKEN_DETAILS_H
#define LLM_TOKEN_DETAILS_H

#include <stdbool.h>
#include <stdint.h>

#include "boundary/wire.h"
#include "model/model.h"
#include "policy/stop.h"

typedef struct token_details {
    bool is_enabled;
    int32_t n_likeliest; /* how many likeliest tokens are reported for each token; -1 if no log probabilities are */
    uint32_t n_vocab;
    float *raw;          /* owned: the model's logits before the sampler changed them; NULL if there are none yet */
    uint32_t n_chars;    /* characters of the outbox's text */
    uint32_t n;          /* tokens kept */
    uint32_t n_released; /* of these, tokens whose text is in the outbox */
    uint32_t capacity;   /* capacity of the arrays, owned: */
    int32_t *tokens;
    uint64_t *raw_ends; /* offsets as in stop.h */
    uint32_t *ends;     /* characters of the outbox's text, for the first n_released tokens */
    float *logprobs;
    token_logprob *likeliest; /* capacity * n_likeliest */
} token_details;

void token_details_open(token_details *t, const model *m, const wire_command *command);
void token_details_close(token_details *t);

/* Called before a token is sampled. Returns false if memory is short. */
bool token_details_logits(token_details *t, const float *logits);
/* Called when a token was sampled. The token's text ends at raw_end. Returns false if memory is short. */
bool token_details_sampled(token_details *t, int32_t token, uint64_t raw_end);
/* Called when this text, whose raw bytes begin at offset `before`, goes to the outbox. */
void token_details_released(token_details *t, const stop_result *released, uint64_t before);

/* Whether too many details wait for delivery. */
bool token_details_is_full(const token_details *t);
/* Stores in *out the details of the next TEXT event, as many as fit one event, and returns `out`. Returns NULL if the
 * client did not request tokens. */
const wire_tokens *token_details_next(const token_details *t, wire_tokens *out);
size_t token_details_bytes(const wire_tokens *next); /* 0 for NULL */
/* Removes the details in `next`, which were delivered with all text of the outbox. */
void token_details_delivered(token_details *t, const wire_tokens *next);

#endif
