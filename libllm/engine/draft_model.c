#include "engine/draft_model.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "boundary/clock.h"

static const char CRASH_NOTICE[] =
    "llama.cpp crashed while it read the draft model. The file is damaged or not a valid "
    "model, or llama.cpp has a defect";
static const double TIME_SHARE = 0.2;    /* weight of the last measurement in the average times */
static const double GUESS_STEPS_MAX = 2; /* a guess ends after the time of so many steps, because others may wait */
enum { MANY = 16 }; /* the time of a further token is learned from calls of at least so many tokens */

static void measure(draft_model *d);

int draft_model_open(draft_model *d, const char *name, const model_options *as, char *error, size_t error_bytes)
{
    char cause[512] = "";
    model_options options = *as;
    options.chat_template = NULL;
    options.crash_notice = as->crash_notice != NULL ? CRASH_NOTICE : NULL;
    options.n_ctx = DRAFT_MODEL_CTX;
    options.n_seq = 1;
    options.n_batch = DRAFT_MODEL_BATCH;
    options.kv_bytes_max = 0;
    options.kv_type = LLM_KV_F16;
    options.n_gpu_layers = as->n_gpu_layers == 0 ? 0 : -1;
    const size_t n_error = error != NULL ? error_bytes : 0;
    const int status = model_open(name, &options, &d->model, cause, sizeof cause);
    if (status != LLM_OK) {
        snprintf(error, n_error, "draft model: %s", cause);
        return status;
    }
    if (d->model->info.memory == LLM_MEMORY_NONE) {
        snprintf(error, n_error, "draft model: %s makes embeddings and generates no text", name);
        return LLM_INVALID;
    }
    d->tokens = malloc(DRAFT_MODEL_CTX * sizeof *d->tokens);
    if (d->tokens == NULL) {
        return LLM_NO_MEMORY;
    }
    draft_credit_open(&d->credit);
    measure(d);
    return LLM_OK;
}

void draft_model_close(draft_model *d)
{
    if (d->model != NULL) {
        d->model->ops->close(d->model);
        d->model = NULL;
    }
    free(d->tokens);
    free(d->saved);
    d->tokens = NULL;
    d->saved = NULL;
}

/* Whether the token has the same text in both models. Control tokens are not compared: their texts differ between the
 * models of a family, and a wrong guess does no harm. */
static bool is_same_token(const model *a, const model *b, int32_t token)
{
    char text_a[MODEL_PIECE_BYTES_MAX], text_b[MODEL_PIECE_BYTES_MAX];
    if (a->ops->is_control(a, token) || b->ops->is_control(b, token)) {
        return true;
    }
    const int32_t n_a = a->ops->piece(a, token, true, text_a, sizeof text_a);
    const int32_t n_b = b->ops->piece(b, token, true, text_b, sizeof text_b);
    return n_a == n_b && (n_a <= 0 || memcmp(text_a, text_b, (size_t)n_a) == 0);
}

int draft_model_match(draft_model *d, const model *target, char *error, size_t error_bytes)
{
    const size_t n_error = error != NULL ? error_bytes : 0;
    const uint32_t n_own = d->model->info.n_vocab, n_target = target->info.n_vocab;
    if (target->info.n_drafting == 0) {
        snprintf(error, n_error, "draft model: %s cannot verify drafts", target->info.name);
        return LLM_INVALID;
    }
    d->n_vocab = n_own < n_target ? n_own : n_target;
    for (uint32_t i = 0; i < d->n_vocab; i++) {
        if (!is_same_token(d->model, target, (int32_t)i)) {
            snprintf(error, n_error,
                     "draft model: the vocabularies of %s (%u tokens) and %s (%u tokens) differ, first at token %u; "
                     "choose a smaller model of the same family",
                     d->model->info.name, n_own, target->info.name, n_target, i);
            return LLM_INVALID;
        }
    }
    return LLM_OK;
}

/* ---- the sequence ---- */

static bool is_stateful(const draft_model *d)
{
    return d->model->info.memory == LLM_MEMORY_RECURRENT || d->model->info.memory == LLM_MEMORY_HYBRID;
}

static void forget(draft_model *d)
{
    d->model->ops->clear(d->model, 0);
    d->n_tokens = d->n_saved = 0;
}

/* The tokens that the sequence should hold: the tokens of a branch from index `from` on, and `next`. Many models need
 * their BOS token in front of a text that begins in the middle. */
typedef struct target_tokens {
    const int32_t *tokens; /* all tokens of the branch */
    uint32_t n;            /* number of these tokens */
    int32_t next;
    uint32_t from;
    int32_t bos;      /* -1: none */
    uint32_t n_vocab; /* tokens of the draft model */
} target_tokens;

static uint32_t n_before(const target_tokens *target)
{
    return target->from > 0 && target->bos >= 0 ? 1 : 0;
}

static uint32_t n_target(const target_tokens *target)
{
    return n_before(target) + target->n - target->from + 1;
}

static int32_t target_at(const target_tokens *target, uint32_t i)
{
    if (i < n_before(target)) {
        return target->bos;
    }
    const uint32_t at = target->from + i - n_before(target);
    const int32_t token = at < target->n ? target->tokens[at] : target->next;
    return (uint32_t)token < target->n_vocab ? token : 0; /* the draft model may lack some control tokens */
}

/* Returns how many of the first tokens of the sequence are those of the target. The last token of the target does not
 * count, since the logits after it are needed, and only a call makes them. */
static uint32_t n_common(const draft_model *d, const target_tokens *target)
{
    const uint32_t n_most = target->from <= target->n ? n_target(target) - 1 : 0;
    uint32_t n = 0;
    while (n < n_most && n < d->n_tokens && d->tokens[n] == target_at(target, n)) {
        n++;
    }
    return n;
}

/* Truncates the sequence to its first k tokens, or to fewer. Returns false if it cannot. */
static bool go_back(draft_model *d, uint32_t k)
{
    const model_ops *ops = d->model->ops;
    if (k == d->n_tokens) {
        return k > 0;
    }
    if (is_stateful(d)) {
        const bool is_back =
            d->n_saved > 0 && d->n_saved <= k &&
            ops->state_load(d->model, 0, MODEL_STATE_CHECKPOINT, d->n_saved, d->saved, d->n_saved_bytes) == MODEL_OK;
        d->n_tokens = is_back ? d->n_saved : d->n_tokens;
        return is_back;
    }
    if (k == 0 || k < ops->truncate_floor(d->model, 0) || !ops->truncate(d->model, 0, k)) {
        return false;
    }
    d->n_tokens = k;
    return true;
}

/* Saves the state to which a wrong guess goes back. Returns false if memory is short. */
static bool save(draft_model *d)
{
    if (!is_stateful(d)) {
        return true;
    }
    const model_ops *ops = d->model->ops;
    const size_t n_bytes = ops->state_bytes(d->model, 0, MODEL_STATE_CHECKPOINT);
    if (n_bytes > d->saved_capacity) {
        void *larger = realloc(d->saved, n_bytes);
        if (larger == NULL) {
            return false;
        }
        d->saved = larger;
        d->saved_capacity = n_bytes;
    }
    d->n_saved_bytes = ops->state_save(d->model, 0, MODEL_STATE_CHECKPOINT, d->saved, n_bytes);
    d->n_saved = d->n_saved_bytes > 0 ? d->n_tokens : 0;
    return d->n_saved > 0;
}

static void learn_time(double *average, double us)
{
    *average += *average == 0 ? us : TIME_SHARE * (us - *average);
}

/* Learns that a call with n tokens took `us`. A further token costs less than the first one. */
static void learn_call(draft_model *d, uint32_t n, double us)
{
    if (n == 1) {
        learn_time(&d->call_us, us);
    } else if (n >= MANY) {
        learn_time(&d->token_us, us > d->call_us ? (us - d->call_us) / (n - 1) : 0);
    }
}

/* Returns the expected time of a call with n tokens. */
static double expected_us(const draft_model *d, uint32_t n)
{
    return d->call_us + d->token_us * (n - 1);
}

/* Appends n tokens to the sequence. Returns the logits after the last one, or NULL if the call failed. */
static const float *append(draft_model *d, const int32_t *tokens, uint32_t n)
{
    int32_t positions[DRAFT_MODEL_BATCH];
    uint16_t seqs[DRAFT_MODEL_BATCH] = {0};
    uint8_t outputs[DRAFT_MODEL_BATCH] = {0};
    assert(n >= 1 && n <= DRAFT_MODEL_BATCH && d->n_tokens + n <= DRAFT_MODEL_CTX);
    for (uint32_t i = 0; i < n; i++) {
        positions[i] = (int32_t)(d->n_tokens + i);
    }
    outputs[n - 1] = 1;
    const model_batch batch = {.n = n, .tokens = tokens, .positions = positions, .seqs = seqs, .outputs = outputs};
    const uint64_t began_us = clock_us();
    if (d->model->ops->decode(d->model, &batch) != MODEL_OK) {
        return NULL;
    }
    memcpy(d->tokens + d->n_tokens, tokens, n * sizeof *tokens);
    d->n_tokens += n;
    const float *logits = d->model->ops->logits(d->model, n - 1);
    learn_call(d, n, (double)(clock_us() - began_us));
    return logits;
}

/* Measures the shortest and the longest call, so that the first guess is already worth its time. */
static void measure(draft_model *d)
{
    const int32_t tokens[DRAFT_MODEL_BATCH] = {0};
    if (append(d, tokens, 1) != NULL) {
        (void)append(d, tokens, DRAFT_MODEL_BATCH);
    }
    forget(d);
}

/* ---- the guess ---- */

/* Returns the token with the largest logit. Sets *class by the distance to the second largest one. */
static int32_t likeliest(const draft_model *d, const float *logits, uint8_t *class)
{
    uint32_t best = 0;
    float second = -1e30f;
    for (uint32_t i = 1; i < d->n_vocab; i++) {
        if (logits[i] > logits[best]) {
            second = logits[best];
            best = i;
        } else if (logits[i] > second) {
            second = logits[i];
        }
    }
    *class = draft_class_of_lead(logits[best] - second);
    return (int32_t)best;
}

/* Appends the tokens of the target that the sequence lacks. They fit into one call. */
static const float *catch_up(draft_model *d, const target_tokens *target)
{
    int32_t missing[DRAFT_MODEL_BATCH];
    const uint32_t n = n_target(target) - d->n_tokens;
    for (uint32_t i = 0; i < n; i++) {
        missing[i] = target_at(target, d->n_tokens + i);
    }
    return append(d, missing, n);
}

static uint32_t continue_guess(draft_model *d, const float *logits, uint32_t n_max, double plain_us,
                               const draft_rates *rates, int32_t *out, uint8_t *classes)
{
    const uint64_t began_us = clock_us();
    double p_right = 1;
    uint32_t n = 0;
    while (logits != NULL) {
        out[n] = likeliest(d, logits, &classes[n]);
        p_right *= draft_rate(rates, classes[n]);
        n++;
        const bool has_time = (double)(clock_us() - began_us) < GUESS_STEPS_MAX * plain_us;
        if (n == n_max || !has_time || !draft_goes_on(p_right, d->call_us / plain_us)) {
            return n;
        }
        logits = append(d, &out[n - 1], 1);
    }
    return 0;
}

/* Makes the sequence equal to the target, apart from what is missing at its end: its first k tokens remain, or the
 * sequence begins anew with the last tokens of the branch. Returns false, and changes nothing, if the credit does not
 * suffice for the missing tokens. */
static bool align(draft_model *d, target_tokens *target, uint32_t n_max, double plain_us)
{
    const uint32_t k = n_common(d, target);
    const bool goes_on =
        k > 0 && n_target(target) - k <= DRAFT_MODEL_BATCH && n_target(target) + n_max <= DRAFT_MODEL_CTX;
    const uint32_t n_missing = goes_on ? n_target(target) - k : DRAFT_MODEL_BATCH;
    if (!draft_credit_allows(&d->credit, expected_us(d, n_missing) / plain_us)) {
        return false;
    }
    if (!goes_on || !go_back(d, k) || n_target(target) - d->n_tokens > DRAFT_MODEL_BATCH) {
        forget(d);
        d->from = target->from = target->n > DRAFT_MODEL_TAIL ? target->n - DRAFT_MODEL_TAIL : 0;
    }
    return true;
}

uint32_t draft_model_guess(draft_model *d, const draft_model_task *task, const draft_rates *rates, int32_t *out,
                           uint8_t *classes)
{
    const uint32_t n_max = task->n_max < DRAFT_TOKENS_MAX ? task->n_max : DRAFT_TOKENS_MAX;
    target_tokens target = {.tokens = task->tokens,
                            .n = task->n_tokens,
                            .next = task->next,
                            .from = d->from,
                            .bos = d->model->ops->bos(d->model),
                            .n_vocab = d->model->info.n_vocab};
    const uint64_t began_us = clock_us();
    d->spent_us = 0;
    if (d->owner != task->owner) {
        forget(d);
        d->owner = task->owner;
    }
    if (!align(d, &target, n_max, task->plain_us)) {
        return 0;
    }
    const float *logits = catch_up(d, &target);
    const uint32_t n =
        logits != NULL && save(d) ? continue_guess(d, logits, n_max, task->plain_us, rates, out, classes) : 0;
    if (n == 0) {
        forget(d);
        draft_credit_add(&d->credit, -2 * DRAFT_CREDIT_MAX); /* the next try comes after hundreds of steps */
    }
    d->spent_us = clock_us() - began_us;
    return n;
}
