/* told.h: the tokens of one answer on their way to a client that wants to hear of them (LLM_GENERATE_RETURN_TOKENS,
 * n_logprobs), beside the text of the outbox. For all others nothing is kept. Owned by the decode thread.
 *
 *   sampled --told_sampled--> held --its text leaves: told_released--> in the outbox --told_delivered--> (gone)
 *
 * What is held when the answer ends was cut off with a stop string, or nobody waits for it. */
#ifndef LLM_TOLD_H
#define LLM_TOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "boundary/wire.h"
#include "model/model.h"
#include "policy/stop.h"

typedef struct told {
    bool is_wanted;
    int32_t n_likeliest; /* for each token; -1: no log probabilities */
    uint32_t n_vocab;
    float *raw;        /* owned: the model's logits before the sampler changed them; NULL: none yet */
    uint32_t n_chars;  /* of the outbox's text */
    uint32_t n;        /* tokens kept */
    uint32_t n_left;   /* the first so many: their text is in the outbox */
    uint32_t capacity; /* of these, owned: */
    int32_t *tokens;
    uint64_t *raw_ends; /* stop.h's offsets */
    uint32_t *ends;     /* characters of the outbox's text; of the first n_left */
    float *logprobs;
    token_logprob *likeliest; /* capacity * n_likeliest */
} told;

void told_open(told *t, const model *m, const wire_command *command);
void told_close(told *t);

/* Before a token is sampled. False: memory is short. */
bool told_logits(told *t, const float *logits);
/* It was sampled, and its text ends there. False: memory is short. */
bool told_sampled(told *t, int32_t token, uint64_t raw_end);
/* This text, the raw bytes from `before` on, goes to the outbox. */
void told_released(told *t, const stop_result *released, uint64_t before);

/* Too much of it waits to be delivered. */
bool told_is_full(const told *t);
/* What goes into the next TEXT, as far as one may grow: NULL if tokens are not wanted, else `out`. */
const wire_tokens *told_next(const told *t, wire_tokens *out);
size_t told_bytes(const wire_tokens *next); /* NULL: 0 */
/* They are delivered, with all text of the outbox. */
void told_delivered(told *t, const wire_tokens *next);

#endif
