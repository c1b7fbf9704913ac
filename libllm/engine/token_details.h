/* token_details.h: the tokens of one answer on their way to a client that wants to hear of them (LLM_GENERATE_RETURN_TOKENS,
 * n_logprobs), beside the text of the outbox. For all others nothing is kept. Owned by the decode thread.
 *
 *   sampled --token_details_sampled--> held --its text leaves: token_details_released--> in the outbox --token_details_delivered--> (gone)
 *
 * What is held when the answer ends was cut off with a stop string, or nobody waits for it. */
#ifndef LLM_TOKEN_DETAILS_H
#define LLM_TOKEN_DETAILS_H

#include <stdbool.h>
#include <stdint.h>

#include "boundary/wire.h"
#include "model/model.h"
#include "policy/stop.h"

typedef struct token_details {
    bool is_enabled;
    int32_t n_likeliest; /* for each token; -1: no log probabilities */
    uint32_t n_vocab;
    float *raw;          /* owned: the model's logits before the sampler changed them; NULL: none yet */
    uint32_t n_chars;    /* of the outbox's text */
    uint32_t n;          /* tokens kept */
    uint32_t n_released; /* the first so many: their text is in the outbox */
    uint32_t capacity;   /* of these, owned: */
    int32_t *tokens;
    uint64_t *raw_ends; /* stop.h's offsets */
    uint32_t *ends;     /* characters of the outbox's text; of the first n_left */
    float *logprobs;
    token_logprob *likeliest; /* capacity * n_likeliest */
} token_details;

void token_details_open(token_details *t, const model *m, const wire_command *command);
void token_details_close(token_details *t);

/* Before a token is sampled. False: memory is short. */
bool token_details_logits(token_details *t, const float *logits);
/* It was sampled, and its text ends there. False: memory is short. */
bool token_details_sampled(token_details *t, int32_t token, uint64_t raw_end);
/* This text, the raw bytes from `before` on, goes to the outbox. */
void token_details_released(token_details *t, const stop_result *released, uint64_t before);

/* Too much of it waits to be delivered. */
bool token_details_is_full(const token_details *t);
/* What goes into the next TEXT, as far as one may grow: NULL if tokens are not wanted, else `out`. */
const wire_tokens *token_details_next(const token_details *t, wire_tokens *out);
size_t token_details_bytes(const wire_tokens *next); /* NULL: 0 */
/* They are delivered, with all text of the outbox. */
void token_details_delivered(token_details *t, const wire_tokens *next);

#endif
