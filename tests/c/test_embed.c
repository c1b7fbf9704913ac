/* Tests embeddings: a text has the same embedding in any batch, each vector has length 1, and sessions are not
 * delayed. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include <ggml-backend.h>

#include "check.h"
#include "llm.h"

enum { N_CTX = 1024, N_TEXTS = 40, N_MAX = 4096 };

static const char *models;
static const char *const files[] = {"tiny-embed-last.gguf", "tiny-embed-mean.gguf",  "tiny-bert.gguf",
                                    "tiny-nomic-bert.gguf", "tiny-modern-bert.gguf", "sim:dense,embed=24",
                                    "sim:none,embed=24"};

static llm_engine *opened(const char *file)
{
    char path[512], error[512] = "";
    snprintf(path, sizeof path, strncmp(file, "sim:", 4) == 0 ? "%s%s" : "%s/%s",
             strncmp(file, "sim:", 4) == 0 ? "" : models, file);
    const uint32_t n_ctx = strstr(file, "bert") != NULL ? 0 : N_CTX;
    llm_engine_options options = {.model = path, .n_sessions = 2, .n_scratch = 1, .n_ctx = n_ctx, .n_threads = 1};
    llm_engine *engine = NULL;
    if (llm_engine_open(&options, &engine, error, sizeof error) != LLM_OK) {
        printf("%s\n", error);
        abort();
    }
    return engine;
}

static llm_info info_of(const llm_engine *engine)
{
    llm_info info;
    llm_engine_info(engine, &info);
    return info;
}

/* Writes the tokens of text number i. The lengths differ, and some texts are longer than the batch of the model. */
static uint32_t text_fill(uint32_t i, uint32_t most, int32_t *out)
{
    const uint32_t n = i % 10 == 9 ? most - i : 1 + i * 7 % 60;
    for (uint32_t k = 0; k < n; k++) {
        out[k] = (int32_t)((k * 2654435761u + i * 40503u) >> 8) % 200 + 40;
        out[k] = out[k] < 0 ? -out[k] : out[k];
    }
    return n;
}

static float distance(const float *a, const float *b, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    }
    return (float)sqrt(sum);
}

/* Embeds all texts, in as many calls as llm_embed needs. Returns the number of calls, or 0 if one failed. */
static uint32_t embed_all(const llm_engine *engine, const int32_t *tokens, const uint32_t *n_tokens, float *out)
{
    const uint32_t n_embedding = info_of(engine).n_embedding;
    uint32_t n_calls = 0;
    for (size_t n = 0, n_done = 0; n < N_TEXTS; n += n_done, n_calls++) {
        if (llm_embed(engine, tokens, n_tokens + n, N_TEXTS - n, NULL, out, &n_done) != LLM_OK || n_done == 0) {
            return 0;
        }
        for (size_t i = n; i < n + n_done; i++) {
            tokens += n_tokens[i];
        }
        out += n_done * n_embedding;
    }
    return n_calls;
}

typedef struct texts {
    int32_t tokens[N_TEXTS * N_CTX];
    uint32_t n_tokens[N_TEXTS];
    float together[N_TEXTS * N_MAX];
    float alone[N_MAX];
} texts;

static texts *texts_made(uint32_t most)
{
    texts *t = calloc(1, sizeof *t);
    uint32_t at = 0;
    for (uint32_t i = 0; t != NULL && i < N_TEXTS; i++) {
        t->n_tokens[i] = text_fill(i, most, t->tokens + at);
        at += t->n_tokens[i];
    }
    return t;
}

static void beside_others_as_alone(void)
{
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        llm_engine *engine = opened(files[f]);
        const llm_info info = info_of(engine);
        CHECK(info.n_embedding > 0 && info.n_embedding <= N_MAX && info.n_embedding_tokens >= 512);
        texts *t = texts_made(info.n_embedding_tokens);
        CHECK(t != NULL);
        const uint32_t n_calls = embed_all(engine, t->tokens, t->n_tokens, t->together);
        CHECK(n_calls > 1 && n_calls < N_TEXTS);
        const int32_t *tokens = t->tokens;
        for (uint32_t i = 0; i < N_TEXTS; tokens += t->n_tokens[i++]) {
            size_t n_done = 0;
            CHECK_INT(llm_embed(engine, tokens, &t->n_tokens[i], 1, NULL, t->alone, &n_done), LLM_OK);
            CHECK_INT(n_done, 1);
            const float *beside = t->together + (size_t)i * info.n_embedding;
            CHECK(distance(t->alone, beside, info.n_embedding) < 0.005f);
            CHECK(fabsf(distance(beside, (float[N_MAX]){0}, info.n_embedding) - 1) < 1e-4f);
            CHECK(i == 0 || distance(beside, beside - info.n_embedding, info.n_embedding) > 0.05f);
        }
        free(t);
        llm_engine_close(engine);
    }
}

static void what_cannot_be_embedded_is_refused(void)
{
    float out[N_MAX];
    size_t n_done = 7;
    int32_t tokens[N_CTX + 1] = {0};
    llm_engine *engine = opened("sim:dense,embed=8");
    const uint32_t n_vocab = info_of(engine).n_vocab;
    CHECK_INT(llm_embed(engine, tokens, &(uint32_t){1}, 0, NULL, out, &n_done), LLM_INVALID);
    CHECK_INT(llm_embed(engine, tokens, &(uint32_t){0}, 1, NULL, out, &n_done), LLM_CONTEXT_LENGTH);
    CHECK_INT(llm_embed(engine, tokens, &(uint32_t){N_CTX + 1}, 1, NULL, out, &n_done), LLM_CONTEXT_LENGTH);
    CHECK_INT(llm_embed(engine, tokens, (uint32_t[]){1, N_CTX + 1}, 2, NULL, out, &n_done), LLM_CONTEXT_LENGTH);
    tokens[3] = (int32_t)n_vocab;
    CHECK_INT(llm_embed(engine, tokens, &(uint32_t){4}, 1, NULL, out, &n_done), LLM_TOKEN);
    tokens[3] = -1;
    CHECK_INT(llm_embed(engine, tokens, &(uint32_t){4}, 1, NULL, out, &n_done), LLM_TOKEN);
    CHECK_INT(llm_embed(engine, tokens, &(uint32_t){3}, 1, NULL, out, &n_done), LLM_OK);
    llm_engine_close(engine);
    static const char *const without[] = {"sim:dense", "tiny-dense.gguf", "tiny-hybrid.gguf"};
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        engine = opened(without[i]);
        CHECK(info_of(engine).n_embedding == 0 && info_of(engine).n_embedding_tokens == 0);
        n_done = 7;
        CHECK_INT(llm_embed(engine, tokens, &(uint32_t){1}, 1, NULL, out, &n_done), LLM_INVALID);
        CHECK_INT(n_done, 7);
        llm_engine_close(engine);
    }
}

static void what_is_given_up_leaves_nothing_behind(void)
{
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        llm_engine *engine = opened(files[f]);
        const llm_info info = info_of(engine);
        texts *t = texts_made(info.n_embedding_tokens);
        CHECK(t != NULL);
        const int32_t no = 0, yes = 1;
        size_t n_done = 0, n_after = 7;
        CHECK_INT(llm_embed(engine, t->tokens, t->n_tokens, N_TEXTS, &no, t->together, &n_done), LLM_OK);
        CHECK_INT(llm_embed(engine, t->tokens, t->n_tokens, N_TEXTS, &yes, t->alone, &n_after), LLM_CANCELLED);
        CHECK_INT(n_after, 7);
        CHECK_INT(llm_embed(engine, t->tokens, t->n_tokens, 1, &no, t->alone, &n_after), LLM_OK);
        CHECK(distance(t->alone, t->together, info.n_embedding) < 0.005f);
        free(t);
        llm_engine_close(engine);
    }
}

/* The size of the largest buffer that llama.cpp has cleared. In a context without memory, only the output buffer is
 * cleared. */
static size_t n_cleared;

void __real_ggml_backend_buffer_clear(ggml_backend_buffer_t buffer, uint8_t value);

void __wrap_ggml_backend_buffer_clear(ggml_backend_buffer_t buffer, uint8_t value)
{
    const size_t n = ggml_backend_buffer_get_size(buffer);
    n_cleared = n > n_cleared ? n : n_cleared;
    __real_ggml_backend_buffer_clear(buffer, value);
}

static void an_encoder_keeps_no_logits(void)
{
    static const char *const encoders[] = {"tiny-bert.gguf", "tiny-nomic-bert.gguf", "tiny-modern-bert.gguf"};
    for (size_t f = 0; f < sizeof encoders / sizeof *encoders; f++) {
        n_cleared = 0;
        llm_engine *engine = opened(encoders[f]);
        const llm_info info = info_of(engine);
        texts *t = texts_made(info.n_embedding_tokens);
        CHECK(t != NULL);
        CHECK(embed_all(engine, t->tokens, t->n_tokens, t->together) > 0);
        printf("  %zu bytes of output, %u tokens of %u in the vocabulary\n", n_cleared, info.n_embedding_tokens,
               info.n_vocab);
        CHECK(n_cleared > 0 && n_cleared <= sizeof(float) * info.n_embedding * info.n_embedding_tokens);
        free(t);
        llm_engine_close(engine);
    }
}

typedef struct caller {
    const llm_engine *engine;
    const texts *t;
    float *out;
    uint32_t n_calls;
} caller;

static void *call(void *argument)
{
    caller *c = argument;
    c->n_calls = embed_all(c->engine, c->t->tokens, c->t->n_tokens, c->out);
    return NULL;
}

/* Several threads embed at the same time, while the decode thread runs. */
static void callers_wait_for_each_other(void)
{
    enum { N_CALLERS = 3 };
    llm_engine *engine = opened("tiny-embed-last.gguf");
    const size_t n_floats = (size_t)N_TEXTS * info_of(engine).n_embedding;
    texts *t = texts_made(info_of(engine).n_embedding_tokens);
    CHECK(t != NULL);
    CHECK_INT(llm_engine_start(engine), LLM_OK);
    pthread_t threads[N_CALLERS];
    caller callers[N_CALLERS];
    for (int i = 0; i < N_CALLERS; i++) {
        callers[i] = (caller){.engine = engine, .t = t, .out = calloc(n_floats, sizeof(float))};
        CHECK_INT(pthread_create(&threads[i], NULL, call, &callers[i]), 0);
    }
    for (int i = 0; i < N_CALLERS; i++) {
        pthread_join(threads[i], NULL);
        CHECK(callers[i].n_calls > 0);
        CHECK(memcmp(callers[0].out, callers[i].out, n_floats * sizeof(float)) == 0);
    }
    for (int i = 0; i < N_CALLERS; i++) {
        free(callers[i].out);
    }
    free(t);
    llm_engine_close(engine);
}

int main(void)
{
    models = getenv("LLMD_TEST_MODELS");
    if (models == NULL) {
        printf("LLMD_TEST_MODELS is not set\n");
        return 77;
    }
    RUN(beside_others_as_alone);
    RUN(what_cannot_be_embedded_is_refused);
    RUN(what_is_given_up_leaves_nothing_behind);
    RUN(an_encoder_keeps_no_logits);
    RUN(callers_wait_for_each_other);
    return CHECK_RESULT();
}
