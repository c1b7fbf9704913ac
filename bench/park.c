/* park: what it costs to bring a session's state out of the model's memory and back, against copying as many bytes.
 *
 *   park MODEL N_TOKENS REPEATS          MODEL is a GGUF file or sim:CLASS
 *
 * Prints one line per repeat: bytes,memcpy_us,save_us,load_us. "load" is what a parked session waits for before its next
 * turn. The buffers have been touched before, as those of a daemon that parks often have. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model/model.h"

enum { FIRST_TOKEN = 300, N_PLAIN_TOKENS = 2000 };

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void die(const char *what)
{
    fprintf(stderr, "park: %s\n", what);
    exit(1);
}

/* A buffer whose pages are there. */
static void *touched(size_t n_bytes)
{
    void *bytes = malloc(n_bytes);
    if (bytes == NULL) {
        die("no memory");
    }
    memset(bytes, 1, n_bytes);
    return bytes;
}

static void consume(model *m, uint32_t n_tokens)
{
    const uint32_t n_batch = m->info.n_batch;
    int32_t *tokens = touched(n_batch * sizeof *tokens), *positions = touched(n_batch * sizeof *positions);
    uint16_t *seqs = calloc(n_batch, sizeof *seqs);
    uint8_t *outputs = calloc(n_batch, sizeof *outputs);
    if (seqs == NULL || outputs == NULL) {
        die("no memory");
    }
    for (uint32_t at = 0; at < n_tokens;) {
        const uint32_t n = n_tokens - at < n_batch ? n_tokens - at : n_batch;
        for (uint32_t i = 0; i < n; i++) {
            positions[i] = (int32_t)(at + i);
            tokens[i] = (int32_t)((FIRST_TOKEN + (at + i) * 7 % N_PLAIN_TOKENS) % m->info.n_vocab);
        }
        const model_batch batch = {.n = n, .tokens = tokens, .positions = positions, .seqs = seqs, .outputs = outputs};
        if (m->ops->decode(m, &batch) != MODEL_OK) {
            die("the model failed a step");
        }
        at += n;
    }
    free(tokens);
    free(positions);
    free(seqs);
    free(outputs);
}

static void measure(model *m, uint32_t n_tokens, void *state, void *copy, size_t n_bytes)
{
    const int64_t start_us = now_us();
    memcpy(copy, state, n_bytes);
    const int64_t copied_us = now_us();
    if (m->ops->state_save(m, 0, MODEL_STATE_FULL, state, n_bytes) != n_bytes) {
        die("the state was not saved");
    }
    const int64_t saved_us = now_us();
    m->ops->clear(m, 0);
    const int64_t cleared_us = now_us();
    if (m->ops->state_load(m, 0, MODEL_STATE_FULL, n_tokens, state, n_bytes) != MODEL_OK) {
        die("the state was not loaded");
    }
    const int64_t loaded_us = now_us();
    printf("%zu,%lld,%lld,%lld\n", n_bytes, (long long)(copied_us - start_us), (long long)(saved_us - copied_us),
           (long long)(loaded_us - cleared_us));
}

int main(int argc, char **argv)
{
    if (argc != 4 || atoi(argv[2]) <= 0 || atoi(argv[3]) <= 0) {
        fprintf(stderr, "usage: park MODEL N_TOKENS REPEATS\n");
        return 2;
    }
    const uint32_t n_tokens = (uint32_t)atoi(argv[2]);
    const model_options options = {.n_ctx = n_tokens, .n_seq = 2, .n_gpu_layers = -1};
    model *m = NULL;
    char error[256] = "";
    if (model_open(argv[1], &options, &m, error, sizeof error) != LLM_OK) {
        die(error);
    }
    consume(m, n_tokens);
    const size_t n_bytes = m->ops->state_bytes(m, 0, MODEL_STATE_FULL);
    void *state = touched(n_bytes), *copy = touched(n_bytes);
    for (int i = 0; i < atoi(argv[3]); i++) {
        measure(m, n_tokens, state, copy, n_bytes);
    }
    free(state);
    free(copy);
    m->ops->close(m);
    return 0;
}
