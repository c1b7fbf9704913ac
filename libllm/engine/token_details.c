#include "engine/token_details.h"

#include <stdlib.h>
#include <string.h>

/* An event holds the outbox's text and the token details, and must fit the smallest event ring. The ring's largest
 * record is a little under half the ring. So undelivered details are limited to half the limit of the text. An event
 * may have somewhat more details than that. Text that was held back for a possible stop string is released all at once,
 * with the details of all its tokens. */
enum { WAITING_BYTES_MAX = LLM_OUTBOX_BYTES_MAX / 2, EVENT_BYTES_MAX = LLM_OUTBOX_BYTES_MAX / 4 * 3 };

void token_details_open(token_details *t, const model *m, const wire_command *command)
{
    t->n_likeliest = command->n_logprobs;
    t->is_enabled = t->n_likeliest >= 0 || (command->flags & LLM_GENERATE_RETURN_TOKENS) != 0;
    t->n_vocab = m->info.n_vocab;
    if (t->n_likeliest > 0 && (uint32_t)t->n_likeliest > t->n_vocab) {
        t->n_likeliest = (int32_t)t->n_vocab;
    }
}

void token_details_close(token_details *t)
{
    free(t->raw);
    free(t->tokens);
    free(t->raw_ends);
    free(t->ends);
    free(t->logprobs);
    free(t->likeliest);
    *t = (token_details){0};
}

static bool wants_logprobs(const token_details *t)
{
    return t->is_enabled && t->n_likeliest >= 0;
}

bool token_details_logits(token_details *t, const float *logits)
{
    if (!wants_logprobs(t)) {
        return true;
    }
    if (t->raw == NULL) {
        t->raw = malloc(t->n_vocab * sizeof *logits);
    }
    if (t->raw == NULL) {
        return false;
    }
    memcpy(t->raw, logits, t->n_vocab * sizeof *logits);
    return true;
}

static size_t n_likeliest(const token_details *t)
{
    return t->n_likeliest > 0 ? (size_t)t->n_likeliest : 0;
}

/* Returns how many bytes the details of one token take in an event. n_likeliest_of_each is
 * token_details.n_likeliest. */
static size_t token_bytes(int32_t n_likeliest_of_each)
{
    const size_t plain = sizeof(int32_t) + sizeof(uint32_t);
    return n_likeliest_of_each < 0 ? plain
                                   : plain + sizeof(float) + (size_t)n_likeliest_of_each * sizeof(token_logprob);
}

static bool enlarge(void **array, size_t n_bytes)
{
    void *larger = realloc(*array, n_bytes);
    if (larger == NULL) {
        return false;
    }
    *array = larger;
    return true;
}

/* Enlarges the arrays if there is no room for one more token. Returns false if memory is short. Arrays that were
 * enlarged before the failure stay enlarged. */
static bool has_room(token_details *t)
{
    if (t->n < t->capacity) {
        return true;
    }
    const uint32_t capacity = t->capacity == 0 ? 16 : 2 * t->capacity;
    if (!enlarge((void **)&t->tokens, capacity * sizeof *t->tokens) ||
        !enlarge((void **)&t->raw_ends, capacity * sizeof *t->raw_ends) ||
        !enlarge((void **)&t->ends, capacity * sizeof *t->ends) ||
        (wants_logprobs(t) && !enlarge((void **)&t->logprobs, capacity * sizeof *t->logprobs)) ||
        (n_likeliest(t) > 0 && !enlarge((void **)&t->likeliest, capacity * n_likeliest(t) * sizeof *t->likeliest))) {
        return false;
    }
    t->capacity = capacity;
    return true;
}

bool token_details_sampled(token_details *t, int32_t token, uint64_t raw_end)
{
    if (!t->is_enabled) {
        return true;
    }
    if (!has_room(t)) {
        return false;
    }
    t->tokens[t->n] = token;
    t->raw_ends[t->n] = raw_end;
    if (wants_logprobs(t)) {
        token_logprob *likeliest = n_likeliest(t) > 0 ? t->likeliest + t->n * n_likeliest(t) : NULL;
        t->logprobs[t->n] = logprobs_read(t->raw, t->n_vocab, token, (uint32_t)n_likeliest(t), likeliest);
    }
    t->n++;
    return true;
}

static bool begins_character(char byte)
{
    return ((uint8_t)byte & 0xc0) != 0x80;
}

/* Returns the number of whole characters in the first n bytes of the text. */
static uint32_t count_characters(const char *text, uint32_t n_text, uint32_t n)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        count += begins_character(text[i]);
    }
    return n < n_text && !begins_character(text[n]) ? count - 1 : count;
}

void token_details_released(token_details *t, const stop_result *released, uint64_t before)
{
    if (!t->is_enabled) {
        return;
    }
    for (; t->n_released < t->n && t->raw_ends[t->n_released] <= released->n_released; t->n_released++) {
        /* n is where the token ends in the text. Invalid bytes may have been replaced by U+FFFD, which is longer. Then
         * n is exact only for the token at the end of the text. */
        const uint64_t end = t->raw_ends[t->n_released];
        uint32_t n = end > before ? (uint32_t)(end - before) : 0;
        n = end == released->n_released || n > released->n_text ? released->n_text : n;
        t->ends[t->n_released] = t->n_chars + count_characters(released->text, released->n_text, n);
    }
    t->n_chars += count_characters(released->text, released->n_text, released->n_text);
}

bool token_details_is_full(const token_details *t)
{
    return t->n_released * token_bytes(t->n_likeliest) >= WAITING_BYTES_MAX;
}

const wire_tokens *token_details_next(const token_details *t, wire_tokens *out)
{
    if (!t->is_enabled) {
        return NULL;
    }
    const uint32_t n_max = (uint32_t)(EVENT_BYTES_MAX / token_bytes(t->n_likeliest));
    *out = (wire_tokens){
        .n = t->n_released < n_max ? t->n_released : n_max,
        .n_likeliest = t->n_likeliest,
        .tokens = t->tokens,
        .ends = t->ends,
        .logprobs = t->logprobs,
        .likeliest = t->likeliest,
    };
    return out;
}

size_t token_details_bytes(const wire_tokens *next)
{
    return next != NULL ? next->n * token_bytes(next->n_likeliest) : 0;
}

void token_details_delivered(token_details *t, const wire_tokens *next)
{
    if (next == NULL) {
        return;
    }
    const uint32_t n = next->n;
    const size_t n_rest = t->n - n;
    t->n -= n;
    t->n_released -= n;
    t->n_chars = 0;
    if (n_rest > 0) {
        memmove(t->tokens, t->tokens + n, n_rest * sizeof *t->tokens);
        memmove(t->raw_ends, t->raw_ends + n, n_rest * sizeof *t->raw_ends);
        /* the details of these tokens did not fit into the event, but their text was delivered in it. So these tokens
         * end at character 0 of the next text */
        memset(t->ends, 0, t->n_released * sizeof *t->ends);
    }
    if (n_rest > 0 && wants_logprobs(t)) {
        memmove(t->logprobs, t->logprobs + n, n_rest * sizeof *t->logprobs);
    }
    if (n_rest > 0 && n_likeliest(t) > 0) {
        memmove(t->likeliest, t->likeliest + n * n_likeliest(t), n_rest * n_likeliest(t) * sizeof *t->likeliest);
    }
}
