/* tiny_models.h: opens and runs the tiny generated models through model.h. LLMD_TEST_MODELS is the folder of the
 * models. In the exact build (LLMD_TEST_EXACT=1), logits must have equal bits, otherwise their difference must be
 * within a bound. LLMD_TEST_KV_TYPE is the type of keys and values. Models that do not support it are skipped. If
 * LLMD_TEST_DEVICE is set, all layers are put on the device whose name contains this text. */
#ifndef TINY_MODELS_H
#define TINY_MODELS_H

#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "model/model.h"

enum { N_CTX = 512, N_SEQ = 4, N_BATCH = 64 };

static const char *models;
static bool is_exact;
static const char *device; /* NULL for the CPU */
static llm_kv_type kv_type;

typedef struct subject {
    const char *file;
    llm_memory memory;
    bool is_quantized;
} subject;

static const subject subjects[] = {
    {"tiny-dense.gguf", LLM_MEMORY_DENSE, false},          {"tiny-window.gguf", LLM_MEMORY_WINDOW, false},
    {"tiny-recurrent.gguf", LLM_MEMORY_RECURRENT, false},  {"tiny-hybrid.gguf", LLM_MEMORY_HYBRID, false},
    {"tiny-granite.gguf", LLM_MEMORY_HYBRID, false},       {"tiny-hybrid-window.gguf", LLM_MEMORY_HYBRID, false},
    {"tiny-dense-q8.gguf", LLM_MEMORY_DENSE, true},        {"tiny-hybrid-q8.gguf", LLM_MEMORY_HYBRID, true},
    {"tiny-experts.gguf", LLM_MEMORY_DENSE, false},        {"tiny-experts-q8.gguf", LLM_MEMORY_DENSE, true},
    {"tiny-latent.gguf", LLM_MEMORY_DENSE, false},         {"tiny-indexed.gguf", LLM_MEMORY_DENSE, false},
    {"tiny-indexed-shared.gguf", LLM_MEMORY_DENSE, false}, {"tiny-sparse.gguf", LLM_MEMORY_DENSE, false},
};
static const subject *current;

static inline void path_of(const char *file, char *out, size_t n)
{
    snprintf(out, n, "%s/%s", models, file);
}

static inline model_options usual(const char *path)
{
    model_options o = {
        .path = path, .n_ctx = N_CTX, .n_seq = N_SEQ, .n_batch = N_BATCH, .n_threads = 1, .exact = is_exact};
    o.n_gpu_layers = device != NULL ? -1 : 0;
    o.kv_type = kv_type;
    return o;
}

static inline model *opened_with(uint32_t n_ctx, uint32_t n_seq)
{
    char path[512], error[512] = "";
    model *m = NULL;
    path_of(current->file, path, sizeof path);
    model_options o = usual(path);
    o.n_ctx = n_ctx;
    o.n_seq = n_seq;
    if (model_open(path, &o, &m, error, sizeof error) != LLM_OK) {
        printf("%s\n", error);
    }
    return m;
}

static inline model *opened(void)
{
    return opened_with(N_CTX, N_SEQ);
}

/* Copies a sequence like branch.c. If sequences share no cells, copies through a saved state. */
static inline bool copy_sequence(model *m, uint16_t src, uint16_t dst)
{
    if (m->info.shares_cells) {
        return m->ops->copy(m, src, dst);
    }
    const size_t n = m->ops->state_bytes(m, src, MODEL_STATE_FULL);
    void *bytes = malloc(n);
    const bool is_copied = bytes != NULL && m->ops->state_save(m, src, MODEL_STATE_FULL, bytes, n) == n &&
                           m->ops->state_load(m, dst, MODEL_STATE_FULL, m->ops->position(m, src), bytes, n) == MODEL_OK;
    free(bytes);
    return is_copied;
}

/* The next functions make a pseudo-random text, which depends on `seed`, and feed its tokens [from, to) in chunks.
 * Logits are requested after the last token. */
static inline int32_t text_token(uint32_t seed, uint32_t i)
{
    uint32_t x = (i + 1) * 2654435761u ^ seed * 40503u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (int32_t)(x % 200) + 40;
}

static inline model_result feed_tokens(model *m, uint16_t seq, const int32_t *tokens, uint32_t n, uint32_t first)
{
    int32_t positions[N_BATCH];
    uint16_t seqs[N_BATCH];
    uint8_t outputs[N_BATCH] = {0};
    for (uint32_t i = 0; i < n; i++) {
        positions[i] = (int32_t)(first + i);
        seqs[i] = seq;
    }
    outputs[n - 1] = 1;
    model_batch b = {n, tokens, positions, seqs, outputs, NULL, NULL, 0};
    return m->ops->decode(m, &b);
}

static inline model_result feed(model *m, uint16_t seq, uint32_t seed, uint32_t from, uint32_t to, uint32_t chunk)
{
    model_result result = MODEL_OK;
    for (uint32_t at = from; at < to && result == MODEL_OK;) {
        int32_t tokens[N_BATCH];
        uint32_t n = to - at < chunk ? to - at : chunk;
        for (uint32_t i = 0; i < n; i++) {
            tokens[i] = text_token(seed, at + i);
        }
        result = feed_tokens(m, seq, tokens, n, at);
        at += n;
    }
    return result;
}

/* Returns the logits after the last token of a batch of n tokens. */
static inline float *row_after(model *m, uint32_t n)
{
    float *row = m->ops->logits(m, n - 1);
    float *copy = malloc(m->info.n_vocab * sizeof *copy);
    if (row != NULL) {
        memcpy(copy, row, m->info.n_vocab * sizeof *copy);
    } else {
        memset(copy, 0, m->info.n_vocab * sizeof *copy);
    }
    return copy;
}

static inline double distance(const float *a, const float *b, uint32_t n)
{
    double most = 0;
    for (uint32_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        most = d > most || isnan(d) ? d : most;
    }
    return most;
}

/* Returns the logits after n tokens of a text, without reuse: feeds the text to sequence 3, in chunks of 64 tokens. */
static inline float *cold(model *m, uint32_t seed, uint32_t n)
{
    m->ops->clear(m, 3);
    if (feed(m, 3, seed, 0, n, 64) != MODEL_OK) {
        return calloc(m->info.n_vocab, sizeof(float));
    }
    float *row = row_after(m, n % 64 == 0 ? 64 : n % 64);
    m->ops->clear(m, 3);
    return row;
}

/* Returns the largest allowed difference between logits that should be equal. Logits are about 9. Measured differences
 * are 0.03 for F32, 0.3 for quantized weights, and 0.11 for quantized keys and values. Quantization can round nearly
 * equal numbers to different numbers of 8 bits. A device rounds more coarsely than a CPU when it multiplies many rows
 * at once. If two experts are about equally good, this can change which expert is chosen. Then the difference is up to
 * 1.4, or 3.2 after several such choices. The logits of two different texts differ by at least 11. */
static inline double bound_of_same(void)
{
    const bool may_choose = device != NULL && strstr(current->file, "experts") != NULL;
    return is_exact ? 0 : may_choose ? 5 : current->is_quantized || kv_type != LLM_KV_F16 ? 0.6 : 0.1;
}

static inline void check_same(const float *a, const float *b, uint32_t n)
{
    double d = distance(a, b, n), bound = bound_of_same();
    if (!(d <= bound)) {
        printf("%s: logits differ by %g, allowed %g\n", current->file, d, bound);
    }
    CHECK(d <= bound);
}

bool llama_supports_gpu_offload(void); /* from llama.h: whether there is a device, even if it is not used */

static inline bool attends_only(void)
{
    return current->memory == LLM_MEMORY_DENSE || current->memory == LLM_MEMORY_WINDOW;
}

/* Returns the info.n_stoppable that is expected without a device. */
static inline uint32_t stoppable_on_the_host(void)
{
    return attends_only() ? N_SEQ : 1;
}

/* Whether the model has an indexer, which picks the tokens to attend to, for whole streams. */
static inline bool picks_tokens(void)
{
    return strstr(current->file, "indexed") != NULL || strstr(current->file, "sparse") != NULL;
}

/* Whether a call with any tokens of any sequences should take one pass. */
static inline bool mixes_calls(const model *m)
{
    return (attends_only() && !picks_tokens()) ||
           (strcmp(m->info.arch, "qwen35") == 0 && !llama_supports_gpu_offload());
}

/* Whether the model can have quantized keys and values. A model cannot if it stores no keys and values, if it stores
 * them compressed, or if it has an indexer. */
static inline bool can_be_quantized(void)
{
    return current->memory != LLM_MEMORY_RECURRENT && strstr(current->file, "latent") == NULL && !picks_tokens();
}

/* Sets kv_type to the type in LLMD_TEST_KV_TYPE, or to f16. */
static inline void read_kv_type(void)
{
    const char *word = getenv("LLMD_TEST_KV_TYPE");
    kv_type = LLM_KV_F16;
    while (word != NULL && kv_type < LLM_KV_TYPE_N && strcmp(word, llm_word(LLM_KV_TYPES, (int)kv_type)) != 0) {
        kv_type++;
    }
    CHECK(kv_type < LLM_KV_TYPE_N);
}

/* Runs `tests` for each model, or reports that there are no models. */
static inline void for_each_model(void (*tests)(void))
{
    models = getenv("LLMD_TEST_MODELS");
    is_exact = getenv("LLMD_TEST_EXACT") != NULL;
    device = getenv("LLMD_TEST_DEVICE");
    read_kv_type();
    if (models == NULL) {
        printf("SKIPPED: LLMD_TEST_MODELS does not name a folder with the tiny models (python -m tools.tiny_models "
               "makes it)\n");
        return;
    }
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++) {
        current = &subjects[i];
        if (device != NULL && strcmp(current->file, "tiny-sparse.gguf") == 0) {
            continue; /* this model does not support the requested type */
        }
        if (kv_type != LLM_KV_F16 && !can_be_quantized()) {
            continue;
        }
        printf("%s\n", current->file);
        tests();
    }
}

#endif
