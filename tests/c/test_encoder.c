/* Tests embedding-only models. The model and the engine refuse everything except embeddings. A file that cannot embed
 * whole texts is refused at the start, with the reason. test_embed.c and tests/live/test_encoders.py test the
 * embeddings themselves. */
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine_driver.h"
#include "tiny_models.h"

static const char *const names[] = {"tiny-bert.gguf", "tiny-nomic-bert.gguf", "sim:none,embed=8"};

static void named(const char *name, char *out, size_t n)
{
    if (strncmp(name, "sim:", 4) == 0) {
        snprintf(out, n, "%s", name);
    } else {
        path_of(name, out, n);
    }
}

static model *model_named(const char *name)
{
    char path[512], error[512] = "";
    named(name, path, sizeof path);
    model *m = NULL;
    const model_options o = usual(path);
    if (model_open(path, &o, &m, error, sizeof error) != LLM_OK) {
        printf("%s: %s\n", path, error);
        abort();
    }
    return m;
}

static void facts_are_those_of_a_text(void)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        model *m = model_named(names[i]);
        CHECK_INT(m->info.memory, LLM_MEMORY_NONE);
        CHECK_INT(m->info.checkpoint, MODEL_CHECKPOINT_NONE);
        CHECK_INT(m->info.n_embedding_tokens, N_CTX);
        CHECK_INT(m->info.n_ctx, N_CTX);
        CHECK(m->info.n_embedding > 0);
        CHECK(m->ops->chat_template(m) == NULL);
        m->ops->close(m);
    }
}

static void no_sequence_can_be_used(void)
{
    const int32_t token = 5, position = 0;
    const uint16_t seq = 0;
    const uint8_t output = 1;
    const model_batch batch = {.n = 1, .tokens = &token, .positions = &position, .seqs = &seq, .outputs = &output};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        model *m = model_named(names[i]);
        uint8_t bytes[64] = "LST1";
        CHECK_INT(m->ops->decode(m, &batch), MODEL_INVALID);
        CHECK(m->ops->logits(m, 0) == NULL);
        CHECK_INT(m->ops->state_load(m, 0, MODEL_STATE_FULL, 1, bytes, sizeof bytes), MODEL_INVALID);
        m->ops->clear(m, 0);
        CHECK_INT(m->ops->position(m, 0), 0);
        CHECK_INT(m->ops->used_bytes(m), 0);
        m->ops->close(m);
    }
}

static void the_engine_refuses_to_generate(void)
{
    const int32_t prompt[] = {5, 6, 7};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[512];
        named(names[i], path, sizeof path);
        driver *d = driver_open(&(llm_engine_options){.model = path, .n_ctx = N_CTX, .n_threads = 1});
        const uint64_t scratch = driver_generate(d, &(generate_call){.prompt = prompt, .n_prompt = 3});
        const uint64_t open = driver_generate(d, &(generate_call){.session = "a", .prompt = prompt, .n_prompt = 3});
        CHECK_INT(driver_wait(d, scratch)->status, LLM_NO_GENERATION);
        CHECK_INT(driver_wait(d, open)->status, LLM_NO_GENERATION);
        CHECK_INT(driver_answer(d, open)->finished.outcome, LLM_OUTCOME_REFUSED);
        CHECK_INT(driver_wait(d, driver_reset(d, 0, "a"))->status, LLM_NOT_FOUND);
        CHECK_INT(driver_wait(d, driver_fork(d, 0, "a", "b", 1))->status, LLM_NOT_FOUND);
        CHECK_INT(driver_session(d, "a").entry, UINT32_MAX);
        float vector[N_CTX];
        size_t n_done = 0;
        CHECK_INT(llm_embed(d->engine, prompt, &(uint32_t){3}, 1, NULL, vector, &n_done), LLM_OK);
        CHECK(driver_is_idle(d));
        CHECK_INT(driver_close(d), 0);
    }
}

static void it_has_no_sessions(void)
{
    llm_engine *engine = NULL;
    llm_engine_options options = {.model = names[2], .n_sessions = 1, .n_scratch = 1};
    llm_info info;
    CHECK_INT(llm_engine_open(&options, &engine, NULL, 0), LLM_OK);
    llm_engine_info(engine, &info);
    CHECK_INT(info.n_sessions + info.n_scratch + info.n_entries + info.n_pins_max, 0);
    llm_engine_close(engine);
    options.model = "sim:none";
    char error[256] = "";
    CHECK_INT(llm_engine_open(&options, &engine, error, sizeof error), LLM_INVALID);
    CHECK(strstr(error, "sim:none,embed=") != NULL);
}

/* Writes a copy of the model file. In the copy, the first occurrence of `old` is replaced with `new`. */
static void put_changed(const char *path, const char *name, const void *old, const void *new, size_t n)
{
    char good[512];
    struct stat facts;
    path_of(name, good, sizeof good);
    CHECK(stat(good, &facts) == 0);
    char *bytes = malloc((size_t)facts.st_size), *found;
    FILE *file = fopen(good, "rb");
    CHECK(file != NULL && fread(bytes, 1, (size_t)facts.st_size, file) == (size_t)facts.st_size);
    fclose(file);
    found = memmem(bytes, (size_t)facts.st_size, old, n);
    CHECK(found != NULL);
    memcpy(found, new, n);
    file = fopen(path, "wb");
    CHECK(file != NULL && fwrite(bytes, 1, (size_t)facts.st_size, file) == (size_t)facts.st_size);
    fclose(file);
    free(bytes);
}

static void check_refused(const char *path, uint32_t n_ctx, int status, const char *part)
{
    char error[512] = "";
    model *m = NULL;
    model_options o = usual(path);
    o.n_ctx = n_ctx;
    CHECK_INT(model_open(path, &o, &m, error, sizeof error), status);
    if (strstr(error, part) == NULL) {
        printf("\"%s\"\n", error);
    }
    CHECK(m == NULL && strstr(error, part) != NULL);
}

static void what_makes_no_embedding_of_a_text_is_refused(void)
{
#define POOLING(type) "pooling_type\4\0\0\0" type "\0\0\0"
    enum { POOLING_BYTES = sizeof POOLING("\2") - 1 };
    char folder[] = "/tmp/llm-test-XXXXXX", path[64], good[512];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    put_changed(path, names[0], POOLING("\2"), POOLING("\4"), POOLING_BYTES);
    check_refused(path, 0, LLM_MODEL_LOAD, "it ranks pairs of texts and makes no embeddings");
    put_changed(path, names[0], POOLING("\2"), POOLING("\0"), POOLING_BYTES);
    check_refused(path, 0, LLM_MODEL_LOAD, "it makes a vector for each token and none for a text (pooling_type 0)");
    put_changed(path, names[0], POOLING("\2"), POOLING("\x63"), POOLING_BYTES);
    check_refused(path, 0, LLM_MODEL_LOAD, "pooling_type");
    put_changed(path, names[0], "bert.pooling_type", "bert.pooling_typx", strlen("bert.pooling_type"));
    check_refused(path, 0, LLM_MODEL_LOAD, "the file does not say how the states of its tokens become");
    put_changed(path, names[0], "[SEP]", "[CLS]", 5);
    check_refused(path, 0, LLM_MODEL_LOAD, "contradicts itself");
    path_of(names[0], good, sizeof good);
    check_refused(good, N_CTX + 1, LLM_INVALID, "this model can hold at most 512 tokens");
    unlink(path);
    rmdir(folder);
#undef POOLING
}

typedef struct giving_up {
    clockid_t clock; /* the CPU time of the thread that embeds */
    double at_s;
    int32_t cancel_flag;
} giving_up;

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void *give_up(void *argument)
{
    giving_up *g = argument;
    while (seconds_of(g->clock) < g->at_s) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    __atomic_store_n(&g->cancel_flag, 1, __ATOMIC_RELAXED);
    return NULL;
}

/* A text is one step of the model, which this thread computes alone. A cancel ends the step before its end. */
static void check_given_up(const llm_engine *engine, const int32_t *tokens, uint32_t n_tokens, double whole_s)
{
    float before[N_CTX], after[N_CTX], none[N_CTX];
    giving_up g = {.at_s = seconds_of(CLOCK_THREAD_CPUTIME_ID) + whole_s / 8};
    size_t n_done = 0;
    pthread_t thread;
    llm_info info;
    llm_engine_info(engine, &info);
    CHECK_INT(llm_embed(engine, tokens, &(uint32_t){64}, 1, &g.cancel_flag, before, &n_done), LLM_OK);
    CHECK_INT(pthread_getcpuclockid(pthread_self(), &g.clock), 0);
    CHECK_INT(pthread_create(&thread, NULL, give_up, &g), 0);
    CHECK_INT(llm_embed(engine, tokens, &n_tokens, 1, &g.cancel_flag, none, &n_done), LLM_CANCELLED);
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK_INT(llm_embed(engine, tokens, &(uint32_t){64}, 1, NULL, after, &n_done), LLM_OK);
    CHECK(memcmp(before, after, info.n_embedding * sizeof *before) == 0);
}

/* A text is computed in one piece, because each of its tokens attends to all others. So its memory grows with the
 * square of its length. */
static void a_text_has_the_tokens_that_there_is_memory_for(void)
{
#define CONTEXT(n) "context_length\4\0\0\0" n
    char folder[] = "/tmp/llm-test-XXXXXX", path[64], error[512] = "";
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    put_changed(path, names[1], CONTEXT("\0\2\0\0"), CONTEXT("\0\0\x40\0"), sizeof CONTEXT("\0\2\0\0") - 1);
    check_refused(path, 1 << 22, LLM_NO_MEMORY, "a text of 4194304 tokens (--ctx-size) needs");
    llm_engine *engine = NULL;
    const llm_engine_options options = {.model = path, .n_sessions = 1, .n_scratch = 1, .n_threads = 1};
    CHECK_INT(llm_engine_open(&options, &engine, error, sizeof error), LLM_OK);
    llm_info info;
    llm_engine_info(engine, &info);
    CHECK(info.n_embedding_tokens >= 512 && info.n_embedding_tokens <= 8192);
    CHECK_INT(info.n_ctx, info.n_embedding_tokens);
    int32_t *tokens = calloc(info.n_embedding_tokens + 1, sizeof *tokens);
    float vector[N_CTX];
    size_t n_done = 0;
    CHECK_INT(llm_embed(engine, tokens, &(uint32_t){info.n_embedding_tokens + 1}, 1, NULL, vector, &n_done),
              LLM_CONTEXT_LENGTH);
    const double begun_s = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    CHECK_INT(llm_embed(engine, tokens, &info.n_embedding_tokens, 1, NULL, vector, &n_done), LLM_OK);
    check_given_up(engine, tokens, info.n_embedding_tokens, seconds_of(CLOCK_THREAD_CPUTIME_ID) - begun_s);
    free(tokens);
    llm_engine_close(engine);
    unlink(path);
    rmdir(folder);
#undef CONTEXT
}

int main(void)
{
    models = getenv("LLMD_TEST_MODELS");
    is_exact = getenv("LLMD_TEST_EXACT") != NULL;
    if (models == NULL) {
        printf("LLMD_TEST_MODELS is not set\n");
        return 77;
    }
    RUN(facts_are_those_of_a_text);
    RUN(no_sequence_can_be_used);
    RUN(the_engine_refuses_to_generate);
    RUN(it_has_no_sessions);
    RUN(what_makes_no_embedding_of_a_text_is_refused);
    RUN(a_text_has_the_tokens_that_there_is_memory_for);
    return CHECK_RESULT();
}
