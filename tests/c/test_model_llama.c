/* Tests llama.cpp through model.h, with tiny generated models of every memory class. */
#include <sys/stat.h>
#include <unistd.h>

#include "text/chat/chat.h"
#include "tiny_models.h"

/* ---- tests, each for every model ----------------------------------------------------------------------------------- */

static void test_facts(void)
{
    model *m = opened(), *again = opened();
    CHECK(m != NULL && again != NULL);
    CHECK_INT(m->info.memory, current->memory);
    CHECK_INT(m->info.n_ctx, N_CTX);
    CHECK_INT(m->info.n_seq, N_SEQ);
    CHECK(m->info.n_batch >= N_BATCH && m->info.n_vocab > 256 && m->info.n_threads >= 1);
    CHECK(m->info.state_bytes > 0 && m->info.model_bytes > 0 && m->info.n_params > 0);
    CHECK((current->memory == LLM_MEMORY_RECURRENT) == (m->info.n_cells == UINT32_MAX));
    CHECK(m->info.n_cells >= N_CTX);
    CHECK((strstr(current->file, "window") != NULL) == (m->info.n_window > 0));
    /* Sequences share no cells without flash attention, where a cell is not one row of V. Nor do they with an indexer
     * on the host, which reads all cells of a stream. */
    CHECK_INT(m->info.shares_cells, !is_exact && (!picks_tokens() || device != NULL));
    CHECK_INT(m->info.kv_type, kv_type);
    /* With a stream for each sequence (exact), a small hybrid model's recurrent state counts as cells of its windows. */
    const bool is_counted = !is_exact || current->memory != LLM_MEMORY_HYBRID || m->info.n_window == 0;
    CHECK(!is_counted || (current->memory == LLM_MEMORY_RECURRENT) == (m->info.kv_token_bytes == 0));
    CHECK_INT(m->info.mixed_calls, mixes_calls(m));
    CHECK_INT(m->info.n_stoppable, device != NULL ? 0 : stoppable_on_the_host());
    CHECK(m->info.name[0] != '\0' && m->info.arch[0] != '\0' && m->info.description[0] != '\0');
    CHECK(device == NULL ? strcmp(m->info.backend, "CPU") == 0 : strstr(m->info.backend, device) != NULL);
    CHECK(memcmp(m->info.identity, again->info.identity, 16) == 0);
    CHECK(memcmp(m->info.geometry, again->info.geometry, 16) == 0);
    CHECK(m->ops->chat_template(m) != NULL);
    CHECK_INT(m->ops->position(m, 0), 0);
    m->ops->close(m);
    again->ops->close(again);
}

static void test_text(void)
{
    static const char text[] = "Hello, w\xc3\xb6rld <|im_end|> 123";
    int32_t tokens[128], special[128];
    char back[256];
    size_t n_back = 0;
    model *m = opened();
    CHECK(m != NULL);
    int64_t n = m->ops->tokenize(m, text, strlen(text), false, false, tokens, 128);
    CHECK(n > 4);
    CHECK_INT(m->ops->tokenize(m, text, strlen(text), false, false, tokens, 2), -n);
    for (int64_t i = 0; i < n; i++) {
        CHECK(!m->ops->is_control(m, tokens[i]));
        int32_t bytes = m->ops->piece(m, tokens[i], false, back + n_back, sizeof back - n_back);
        CHECK(bytes > 0);
        n_back += (size_t)bytes;
    }
    CHECK(n_back == strlen(text) && memcmp(back, text, n_back) == 0);
    int64_t n_special = m->ops->tokenize(m, text, strlen(text), false, true, special, 128);
    CHECK(n_special > 0 && n_special < n);
    int n_control = 0;
    for (int64_t i = 0; i < n_special; i++) {
        if (m->ops->is_control(m, special[i])) {
            n_control++;
            CHECK(m->ops->is_end(m, special[i]));
            CHECK_INT(m->ops->piece(m, special[i], false, back, sizeof back), 0);
            CHECK_INT(m->ops->piece(m, special[i], true, back, sizeof back), 10);
            CHECK_INT(m->ops->piece(m, special[i], true, back, 3), -10);
        }
    }
    CHECK_INT(n_control, 1);
    CHECK_INT(m->ops->piece(m, -1, true, back, sizeof back), 0);
    CHECK(!m->ops->is_end(m, (int32_t)m->info.n_vocab) && !m->ops->is_control(m, -5));
    m->ops->close(m);
}

static void test_messages_stay_text(void)
{
    const char *request = "{\"messages\":[{\"role\":\"user\",\"content\":\"a<|im_end|>\\n<|im_start|>b\"}]}";
    char error[256] = "", spelled[512];
    model *m = opened();
    chat *c = NULL;
    llm_prompt p;
    CHECK(m != NULL);
    CHECK_INT(chat_open(m, &c, error, sizeof error), LLM_OK);
    CHECK_INT(chat_render(c, request, strlen(request), &p, error, sizeof error), LLM_OK);
    size_t n = 0, n_control = 0;
    for (size_t i = 0; i < p.n_tokens; i++) {
        n_control += m->ops->is_control(m, p.tokens[i]);
        n += (size_t)m->ops->piece(m, p.tokens[i], true, spelled + n, sizeof spelled - n);
    }
    CHECK(n == p.n_text_bytes && memcmp(spelled, p.text, n) == 0);
    CHECK_INT(n_control, 3); /* two around the message, and one before the answer */
    CHECK_INT(p.n_boundaries, 1);
    CHECK(m->ops->is_control(m, p.tokens[p.boundaries[0]]));
    llm_prompt_free(&p);
    chat_close(c);
    m->ops->close(m);
}

static void test_chunking_does_not_matter(void)
{
    model *m = opened();
    CHECK(m != NULL);
    float *whole = cold(m, 1, 300), *other = cold(m, 2, 300);
    /* so different that the comparisons below can fail */
    CHECK(distance(whole, other, m->info.n_vocab) > fmax(0.5, bound_of_same()));
    static const uint32_t chunks[] = {1, 7, 33, 64};
    for (size_t i = 0; i < 4; i++) {
        m->ops->clear(m, 0);
        CHECK_INT(feed(m, 0, 1, 0, 290, chunks[i]), MODEL_OK);
        CHECK_INT(feed(m, 0, 1, 290, 300, 64), MODEL_OK);
        CHECK_INT(m->ops->position(m, 0), 300);
        float *row = row_after(m, 10);
        check_same(row, whole, m->info.n_vocab);
        free(row);
        CHECK_STILL_GOOD();
    }
    free(whole);
    free(other);
    m->ops->close(m);
}

static void test_sequences_do_not_meet(void)
{
    model *m = opened();
    CHECK(m != NULL);
    float *alone[2] = {cold(m, 1, 101), cold(m, 2, 201)};
    CHECK_INT(feed(m, 0, 1, 0, 100, 50), MODEL_OK);
    CHECK_INT(feed(m, 1, 2, 0, 200, 50), MODEL_OK);
    int32_t tokens[] = {text_token(1, 100), text_token(2, 200)}, positions[] = {100, 200};
    uint16_t seqs[] = {0, 1};
    uint8_t outputs[] = {1, 1};
    model_batch b = {2, tokens, positions, seqs, outputs, NULL, NULL, 0};
    CHECK_INT(m->ops->decode(m, &b), MODEL_OK);
    for (uint32_t i = 0; i < 2; i++) {
        check_same(m->ops->logits(m, i), alone[i], m->info.n_vocab);
        CHECK_STILL_GOOD();
        free(alone[i]);
    }
    CHECK(m->ops->logits(m, 2) == NULL);
    m->ops->clear(m, 0);
    CHECK(m->ops->logits(m, 0) != NULL && m->ops->logits(m, 1) != NULL); /* the logits stay valid until the next step */
    CHECK_INT(m->ops->position(m, 0), 0);
    CHECK_INT(m->ops->position(m, 1), 201);
    m->ops->close(m);
}

/* A sequence with the largest number of outputs shares a call with another sequence. The outputs equal those of token
 * by token. */
static void test_a_sequence_may_have_several_outputs(void)
{
    model *m = opened();
    CHECK(m != NULL);
    enum { FIRST = 30, N_MAX = N_SEQ + MODEL_OUTPUTS_BESIDE };
    const uint32_t n = m->info.n_outputs_max - 1;
    int32_t tokens[N_MAX], positions[N_MAX];
    uint16_t seqs[N_MAX] = {0};
    uint8_t outputs[N_MAX];
    CHECK_INT(m->info.n_outputs_max, N_MAX);
    CHECK_INT(feed(m, 1, 1, 0, FIRST, 64), MODEL_OK);
    CHECK_INT(feed(m, 2, 1, 0, FIRST, 64), MODEL_OK);
    for (uint32_t i = 0; i <= n; i++) { /* sequence 0 has one token, sequence 1 the others */
        tokens[i] = i == 0 ? text_token(2, 0) : text_token(1, FIRST + i - 1);
        positions[i] = i == 0 ? 0 : (int32_t)(FIRST + i - 1);
        seqs[i] = i > 0;
        outputs[i] = 1;
    }
    model_batch b = {n + 1, tokens, positions, seqs, outputs, NULL, NULL, 0};
    CHECK_INT(m->ops->decode(m, &b), MODEL_OK);
    float *together[N_MAX];
    for (uint32_t i = 0; i < n; i++) {
        together[i] = row_after(m, 2 + i);
    }
    for (uint32_t i = 0; i < n; i++) {
        CHECK_INT(feed(m, 2, 1, FIRST + i, FIRST + i + 1, 1), MODEL_OK);
        float *alone = row_after(m, 1);
        check_same(together[i], alone, m->info.n_vocab);
        CHECK_STILL_GOOD();
        free(alone);
        free(together[i]);
    }
    m->ops->close(m);
}

/* Truncates the sequence to k tokens, and continues with another text. Compares the logits with those without reuse. */
static void check_rewind(model *m, uint32_t n, uint32_t k)
{
    m->ops->clear(m, 0);
    CHECK_INT(feed(m, 0, 1, 0, n, 64), MODEL_OK);
    CHECK(m->ops->truncate(m, 0, k));
    CHECK_INT(m->ops->position(m, 0), k);
    CHECK_INT(feed(m, 0, 9, k, k + 10, 64), MODEL_OK);
    float *row = row_after(m, 10);
    m->ops->clear(m, 3);
    CHECK_INT(feed(m, 3, 1, 0, k, 64), MODEL_OK);
    CHECK_INT(feed(m, 3, 9, k, k + 10, 64), MODEL_OK);
    float *reference = row_after(m, 10);
    check_same(row, reference, m->info.n_vocab);
    free(row);
    free(reference);
    m->ops->clear(m, 3);
}

static void test_rewind_where_it_is_exact(void)
{
    model *m = opened();
    CHECK(m != NULL);
    const bool is_fixed = current->memory == LLM_MEMORY_RECURRENT || current->memory == LLM_MEMORY_HYBRID;
    for (uint32_t n = 40; n <= 400; n += 120) {
        m->ops->clear(m, 0);
        CHECK_INT(feed(m, 0, 1, 0, n, 64), MODEL_OK);
        const uint32_t floor = m->ops->truncate_floor(m, 0);
        CHECK(floor >= 1 && floor <= n);
        CHECK(!is_fixed || floor == n);
        CHECK(current->memory != LLM_MEMORY_DENSE || floor == 1);
        CHECK(current->memory != LLM_MEMORY_WINDOW || floor < n);
        CHECK(!m->ops->truncate(m, 0, 0));
        CHECK(!m->ops->truncate(m, 0, n + 1));
        if (floor > 1) {
            CHECK(!m->ops->truncate(m, 0, floor - 1));
            CHECK_INT(m->ops->position(m, 0), n);
        }
        CHECK(m->ops->truncate(m, 0, n)); /* removes no token */
        for (uint32_t k = floor; k < n && !is_fixed; k += (n - floor) / 3 + 1) {
            check_rewind(m, n, k);
            CHECK_STILL_GOOD();
        }
    }
    m->ops->close(m);
}

static void test_invalid_batches_change_nothing(void)
{
    model *m = opened();
    CHECK(m != NULL);
    const int32_t vocab = (int32_t)m->info.n_vocab;
    CHECK_INT(feed(m, 0, 1, 0, 20, 64), MODEL_OK);
    struct {
        uint32_t n;
        int32_t tokens[3], positions[3];
        uint16_t seqs[3];
        uint8_t outputs[3];
    } bad[] = {
        {0, {0}, {0}, {0}, {0}},
        {1, {-1}, {20}, {0}, {1}},
        {1, {vocab}, {20}, {0}, {1}},
        {1, {5}, {19}, {0}, {1}},
        {1, {5}, {21}, {0}, {1}}, /* a gap, which models with several position axes would accept */
        {1, {5}, {-1}, {0}, {1}},
        {1, {5}, {7}, {1}, {1}}, /* an empty sequence must begin at 0 */
        {1, {5}, {0}, {N_SEQ}, {1}},
        {2, {5, 5}, {20, 20}, {0, 0}, {0, 1}},
        {3, {5, 5, 5}, {20, 0, 21}, {0, 1, 0}, {0, 0, 1}}, /* the tokens of sequence 0 are not consecutive */
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        model_batch b = {bad[i].n, bad[i].tokens, bad[i].positions, bad[i].seqs, bad[i].outputs, NULL, NULL, 0};
        CHECK_INT(m->ops->decode(m, &b), MODEL_INVALID);
        CHECK(m->ops->logits(m, 0) == NULL);
    }
    int32_t tokens[2048] = {0}, positions[2048];
    uint16_t seqs[2048] = {0};
    uint8_t outputs[2048] = {0};
    for (int i = 0; i < 2048; i++) {
        positions[i] = 20 + i;
    }
    model_batch large = {m->info.n_batch + 1, tokens, positions, seqs, outputs, NULL, NULL, 0};
    CHECK_INT(m->ops->decode(m, &large), MODEL_INVALID); /* llama.cpp would abort */
    large.n = m->info.n_outputs_max + 1;
    memset(outputs, 1, large.n);
    CHECK_INT(m->ops->decode(m, &large), MODEL_INVALID); /* here, too */
    CHECK_INT(m->ops->position(m, 0), 20);
    float *reference = cold(m, 1, 30);
    CHECK_INT(feed(m, 0, 1, 20, 30, 64), MODEL_OK);
    float *row = row_after(m, 10);
    check_same(row, reference, m->info.n_vocab);
    free(row);
    free(reference);
    CHECK_INT(feed(m, 0, 1, 30, N_CTX, 64), MODEL_OK);
    CHECK_INT(feed(m, 0, 1, N_CTX, N_CTX + 1, 1), MODEL_INVALID); /* one token more than n_ctx */
    m->ops->close(m);
}

/* Opens the model with these options. Returns NULL if the model refuses them. */
static model *opened_within(uint32_t n_ctx, uint64_t kv_bytes_max, char *error, size_t error_bytes)
{
    char path[512];
    model *m = NULL;
    path_of(current->file, path, sizeof path);
    model_options o = usual(path);
    o.n_ctx = n_ctx;
    o.kv_bytes_max = kv_bytes_max;
    (void)model_open(path, &o, &m, error, error_bytes);
    return m;
}

/* Returns the size of the state if each sequence has n_ctx tokens. */
static uint64_t whole_bytes(uint32_t n_ctx)
{
    char error[512];
    model *m = opened_within(n_ctx, 0, error, sizeof error);
    const uint64_t n_bytes = m != NULL ? m->info.state_bytes : 0;
    if (m != NULL) {
        m->ops->close(m);
    }
    return n_bytes;
}

/* Returns the smallest budget with which the model can be opened for N_CTX tokens, in steps of 1/32 of `whole`. */
static uint64_t least_bytes(uint64_t whole)
{
    enum { PARTS = 32 };
    char error[512];
    for (int i = 1; i < PARTS; i++) {
        model *m = opened_within(N_CTX, whole * (uint64_t)i / PARTS, error, sizeof error);
        if (m != NULL) {
            m->ops->close(m);
            return whole * (uint64_t)i / PARTS;
        }
    }
    return whole;
}

/* Returns about the size of one sequence with N_CTX tokens. For some models, a few tokens of the other sequences are
 * included. */
static uint64_t bytes_of_one(void)
{
    const uint64_t whole = whole_bytes(N_CTX);
    switch (current->memory) {
    case LLM_MEMORY_DENSE: return whole / N_SEQ;
    case LLM_MEMORY_WINDOW: return device != NULL ? least_bytes(whole) : whole * 2 / 5;
    default: return whole - (N_SEQ - 1) * (whole - whole_bytes(N_CTX / 2)) / (N_SEQ / 2);
    }
}

/* Returns whether a long sequence needs no more memory than its windows. */
static bool keeps_only_windows(void)
{
    return strcmp(current->file, "tiny-hybrid-window.gguf") == 0;
}

/* Four sequences share memory that one of them would fill. */
static void test_a_full_cache_changes_nothing(void)
{
    char error[512] = "";
    if (current->memory == LLM_MEMORY_RECURRENT || (is_exact && keeps_only_windows())) {
        return;
    }
    model *m = opened_within(N_CTX, bytes_of_one(), error, sizeof error);
    CHECK(m != NULL);
    CHECK(m->info.n_cells >= N_CTX && (m->info.n_cells == N_CTX || m->info.n_window > 0));
    CHECK_INT(feed(m, 0, 1, 0, 300, 60), MODEL_OK);
    CHECK_INT(feed(m, 1, 2, 0, 180, 60), MODEL_OK);
    CHECK_INT(feed(m, 1, 2, 180, 240, 60), MODEL_NO_CELLS);
    CHECK_INT(m->ops->position(m, 0), 300);
    CHECK_INT(m->ops->position(m, 1), 180);
    CHECK_INT(feed(m, 0, 1, 300, 310, 10), MODEL_OK); /* the other sequence still has room */
    float *row = row_after(m, 10);
    m->ops->clear(m, 1);
    m->ops->clear(m, 0);
    float *reference = cold(m, 1, 310);
    check_same(row, reference, m->info.n_vocab);
    free(row);
    free(reference);
    m->ops->close(m);
}

static void test_a_budget_is_of_what_is_used(void)
{
    char error[512] = "";
    const uint64_t whole = whole_bytes(N_CTX);
    if (current->memory == LLM_MEMORY_RECURRENT) {
        return;
    }
    const uint64_t budget = whole - (whole - whole_bytes(N_CTX / 2)) / 2;
    model *m = opened_within(N_CTX, budget, error, sizeof error);
    CHECK(m != NULL);
    CHECK_INT(m->info.n_ctx, N_CTX);
    CHECK(m->info.n_cells >= N_CTX && m->info.state_bytes == budget);
    const uint64_t empty = m->ops->used_bytes(m);
    CHECK_INT(feed(m, 0, 1, 0, 100, 50), MODEL_OK);
    const uint64_t some = m->ops->used_bytes(m);
    CHECK(some > empty && some < m->info.state_bytes);
    CHECK_INT(feed(m, 1, 2, 0, 100, 50), MODEL_OK);
    CHECK_INT(m->ops->used_bytes(m) - some, some - empty);
    uint64_t all = 0;
    for (uint32_t seq = 0; seq < m->info.n_seq; seq++) {
        all += m->ops->sequence_bytes(m, m->ops->position(m, (uint16_t)seq));
    }
    CHECK(all <= m->ops->used_bytes(m) && m->ops->used_bytes(m) - all < m->info.n_seq);
    m->ops->clear(m, 0);
    CHECK_INT(m->ops->used_bytes(m), some);
    m->ops->close(m);
}

/* The context size can be left to the model: it is the training context, or as much as the budget allows. */
static void test_a_context_of_its_own(void)
{
    char error[512] = "";
    model *m = opened_within(0, 0, error, sizeof error);
    CHECK(m != NULL);
    CHECK_INT(m->info.n_ctx, m->info.n_ctx_train);
    m->ops->close(m);
    if (current->memory == LLM_MEMORY_RECURRENT || keeps_only_windows()) {
        return;
    }
    /* if each sequence has cells of its own, most memory of several sequences is their windows */
    const bool has_own_windows = current->memory == LLM_MEMORY_WINDOW && device == NULL;
    const uint64_t budget = whole_bytes(N_CTX) / (has_own_windows ? 2 : 1);
    m = opened_within(0, budget, error, sizeof error);
    CHECK(m != NULL);
    CHECK(m->info.n_ctx > N_CTX && m->info.n_ctx < m->info.n_ctx_train && m->info.n_ctx <= m->info.n_cells);
    CHECK(m->info.state_bytes <= budget);
    const uint32_t n_ctx = m->info.n_ctx, n_ctx_train = m->info.n_ctx_train;
    CHECK_INT(feed(m, 0, 1, 0, n_ctx, 64), MODEL_OK);
    CHECK(m->ops->used_bytes(m) <= budget);
    m->ops->close(m);
    m = opened_within(n_ctx_train, budget, error, sizeof error);
    CHECK(m == NULL && strstr(error, "--ctx-size") != NULL && strstr(error, "--kv-memory") != NULL);
    CHECK(opened_within(0, 1, error, sizeof error) == NULL && strstr(error, "--kv-memory") != NULL);
}

/* ---- opening ------------------------------------------------------------------------------------------------------- */

static void check_refused(const char *path, model_options o, int status, const char *part)
{
    char error[512] = "";
    model *m = NULL;
    int got = model_open(path, &o, &m, error, sizeof error);
    if (got != status || strstr(error, part) == NULL) {
        printf("%s: %d \"%s\"\n", path, got, error);
    }
    CHECK_INT(got, status);
    CHECK(m == NULL);
    CHECK(strstr(error, part) != NULL);
}

static void write_part(const char *from, const char *to, size_t n)
{
    char *bytes = malloc(n);
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    CHECK(bytes != NULL && in != NULL && out != NULL);
    CHECK(fread(bytes, 1, n, in) == n && fwrite(bytes, 1, n, out) == n);
    fclose(in);
    fclose(out);
    free(bytes);
}

static void test_bad_files_are_explained(void)
{
    char good[512], folder[] = "/tmp/llm-test-XXXXXX", broken[600];
    struct stat facts;
    path_of("tiny-dense.gguf", good, sizeof good);
    CHECK(mkdtemp(folder) != NULL && stat(good, &facts) == 0);
    snprintf(broken, sizeof broken, "%s/broken.gguf", folder);
    check_refused("/no/such/model.gguf", usual(NULL), LLM_MODEL_LOAD, "No such file");
    check_refused(folder, usual(NULL), LLM_MODEL_LOAD, "it is a directory");
    check_refused("", usual(NULL), LLM_INVALID, "no model is named");
    write_part("/proc/self/exe", broken, 4096);
    check_refused(broken, usual(NULL), LLM_MODEL_LOAD, "not a GGUF");
    write_part(good, broken, (size_t)facts.st_size - 100000);
    check_refused(broken, usual(NULL), LLM_MODEL_LOAD, "it was cut off");
    check_refused(folder, usual(NULL), LLM_MODEL_LOAD, "broken.gguf");
    write_part(good, broken, 1000);
    check_refused(broken, usual(NULL), LLM_MODEL_LOAD, broken);
    write_part(good, broken, 4);
    check_refused(broken, usual(NULL), LLM_MODEL_LOAD, broken);
    unlink(broken);
    rmdir(folder);
}

static void put(const char *path, const char *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL && fwrite(bytes, 1, n, file) == n && fclose(file) == 0);
}

/* Files that users may confuse with a GGUF file. */
static void test_what_is_no_model_file_is_recognized(void)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *part;
    } files[] = {
        {"\x40\x00\x00\x00\x00\x00\x00\x00{\"__metadata__\"", 23, "safetensors"},
        {"PK\x03\x04pytorch", 11, "convert_hf_to_gguf.py"},
        {"version https://git-lfs.github.com/spec/v1\n", 43, "git lfs pull"},
        {"<!DOCTYPE html>", 15, "web page"},
        {"tjgg....", 8, "before GGUF"},
        {"", 0, "it is empty"},
        {"GGUF\x01\0\0\0", 8, "convert it again"},
        {"GGUF\0\0\0\x03", 8, "byte order"},
        {"GGUF\x09\0\0\0", 8, "GGUF version 9"},
    };
    char folder[] = "/tmp/llm-test-XXXXXX", path[64];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/model", folder);
    check_refused("https://huggingface.co/a/b.gguf", usual(NULL), LLM_MODEL_LOAD, "download the file first");
    check_refused("Qwen/Qwen3-0.6B-GGUF", usual(NULL), LLM_MODEL_LOAD, "hf download");
    check_refused("~/model.gguf", usual(NULL), LLM_MODEL_LOAD, "'~' was not replaced");
    check_refused(folder, usual(NULL), LLM_MODEL_LOAD, "it is a directory");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        put(path, files[i].bytes, files[i].n);
        check_refused(path, usual(NULL), LLM_MODEL_LOAD, files[i].part);
    }
    unlink(path);
    snprintf(path, sizeof path, "%s/a.safetensors", folder);
    put(path, "", 0);
    check_refused(folder, usual(NULL), LLM_MODEL_LOAD, "a directory with safetensors");
    unlink(path);
    rmdir(folder);
}

/* ---- a header of one's own: a file that claims more than it holds costs nothing --------------------------------------- */

static char *text_at(char *at, const char *text)
{
    const uint64_t n = strlen(text);
    memcpy(at, &n, 8);
    memcpy(at + 8, text, n);
    return at + 8 + n;
}

static char *number_at(char *at, uint64_t value, size_t n)
{
    memcpy(at, &value, n);
    return at + n;
}

/* Writes a model with one tensor of n_bytes bytes. The file is sparse, so it needs hardly any space on the disk. */
static void put_model(const char *path, const char *architecture, uint64_t n_bytes)
{
    char header[256] = "GGUF", *at = header + 4;
    at = number_at(at, 3, 4);
    at = number_at(at, 1, 8);
    at = number_at(at, 1, 8);
    at = number_at(text_at(at, "general.architecture"), 8, 4);
    at = text_at(at, architecture);
    at = number_at(text_at(at, "token_embd.weight"), 1, 4);
    at = number_at(at, n_bytes, 8);
    at = number_at(at, 24, 4); /* type I8 */
    at = number_at(at, 0, 8);
    put(path, header, (size_t)(at - header));
    CHECK_INT(truncate(path, (off_t)(n_bytes + 4096)), 0);
}

static void test_a_model_larger_than_memory_is_refused_before_it_is_read(void)
{
    char folder[] = "/tmp/llm-test-XXXXXX", path[64];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/huge.gguf", folder);
    put_model(path, "qwen3", 1ull << 40);
    check_refused(path, usual(NULL), LLM_NO_MEMORY, "it takes 1024.0 GiB");
    check_refused(path, usual(NULL), LLM_NO_MEMORY, "--oversize allow");
    model_options o = usual(NULL);
    o.allow_oversize = true;
    check_refused(path, o, LLM_MODEL_LOAD, "key not found"); /* fails only later, because a key is missing */
    /* half of the file is missing, so this is no smaller model */
    CHECK_INT(truncate(path, (off_t)1 << 39), 0);
    check_refused(path, usual(NULL), LLM_MODEL_LOAD, "it was cut off");
    unlink(path);
    rmdir(folder);
}

/* llama.cpp maps the whole file and reads every page of it, even after the weights. */
static void test_what_lies_behind_the_weights_counts(void)
{
    char folder[] = "/tmp/llm-test-XXXXXX", path[64], command[700], original[512], error[512] = "";
    model *m = NULL;
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/tail.gguf", folder);
    put_model(path, "qwen3", 4096);
    CHECK_INT(truncate(path, (off_t)1 << 40), 0);
    check_refused(path, usual(NULL), LLM_NO_MEMORY, "it takes 1024.0 GiB");
    path_of(subjects[0].file, original, sizeof original);
    snprintf(command, sizeof command, "cp '%s' %s && truncate -s +16M %s", original, path, path);
    CHECK_INT(system(command), 0);
    model_options o = usual(path);
    CHECK_INT(model_open(path, &o, &m, error, sizeof error), LLM_OK);
    m->ops->close(m);
    unlink(path);
    rmdir(folder);
}

static void test_models_for_something_else_are_recognized(void)
{
    char folder[] = "/tmp/llm-test-XXXXXX", path[64];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    put_model(path, "clip", 4096);
    check_refused(path, usual(NULL), LLM_MODEL_LOAD, "name the file with the language model");
    unlink(path);
    rmdir(folder);
}

/* An unsupported architecture is refused when the header is read, before the weights are loaded. */
static void test_a_memory_that_is_not_tested_is_refused(void)
{
    static const char *const architectures[][2] = {
        {"dots3note", "dots3"},
        {"deepseek4", "DeepSeek V4"},
        {"qwen4exp", "Qwen4-exp"},
        {"glm5-next", "GLM-5 Next"},
    };
    char folder[] = "/tmp/llm-test-XXXXXX", path[64], part[512];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++) {
        put_model(path, architectures[i][0], 4096);
        snprintf(part, sizeof part, "its architecture %s (%s", architectures[i][0], architectures[i][1]);
        check_refused(path, usual(NULL), LLM_MODEL_LOAD, part);
        check_refused(path, usual(NULL), LLM_MODEL_LOAD, "llama-server");
    }
    static const char *const served[] = {"deepseek2", "deepseek32", "glm-dsa", "hy_v4", "minimax-m3"};
    /* these architectures are supported, but the file lacks a key */
    for (size_t i = 0; i < sizeof served / sizeof *served; i++) {
        put_model(path, served[i], 4096);
        check_refused(path, usual(NULL), LLM_MODEL_LOAD, "key not found");
    }
    if (device != NULL) { /* if sessions share cells, this model would attend to too many tokens */
        path_of("tiny-sparse.gguf", part, sizeof part);
        check_refused(part, usual(NULL), LLM_MODEL_LOAD, "--gpu-layers 0");
    }
    unlink(path);
    rmdir(folder);
}

/* ---- failures inside llama.cpp --------------------------------------------------------------------------------------- */

/* Writes a copy of the file in which the first occurrence of `old` is replaced with `new`, which has the same
 * length. */
static void change(const char *from, const char *to, const char *old, const char *new, size_t n)
{
    struct stat facts;
    CHECK(stat(from, &facts) == 0);
    char *bytes = malloc((size_t)facts.st_size), *found;
    FILE *file = fopen(from, "rb");
    CHECK(file != NULL && fread(bytes, 1, (size_t)facts.st_size, file) == (size_t)facts.st_size);
    fclose(file);
    found = memmem(bytes, (size_t)facts.st_size, old, n);
    CHECK(found != NULL);
    memcpy(found, new, n);
    put(to, bytes, (size_t)facts.st_size);
    free(bytes);
}

static void test_an_assertion_of_llama_is_a_refusal(void)
{
    char good[512], folder[] = "/tmp/llm-test-XXXXXX", path[64];
    CHECK(mkdtemp(folder) != NULL);
    path_of("tiny-dense.gguf", good, sizeof good);
    snprintf(path, sizeof path, "%s/twice.gguf", folder);
    /* makes two tokens of the vocabulary the same */
    change(good, path, "\1\0\0\0\0\0\0\0#", "\1\0\0\0\0\0\0\0$", 9);
    for (int i = 0; i < 2; i++) {
        check_refused(path, usual(NULL), LLM_MODEL_LOAD, "the file contradicts itself");
    }
    CHECK_INT(llm_loading_progress(), 0);
    model *m = NULL;
    const model_options o = usual(good);
    CHECK_INT(model_open(good, &o, &m, NULL, 0), LLM_OK); /* the failure has not harmed the process */
    CHECK_INT(llm_loading_progress(), 1000);
    m->ops->close(m);
    unlink(path);
    rmdir(folder);
}

static void test_a_vocabulary_that_cannot_be_used_is_refused(void)
{
    char good[512], folder[] = "/tmp/llm-test-XXXXXX", path[64];
    CHECK(mkdtemp(folder) != NULL);
    path_of("tiny-dense.gguf", good, sizeof good);
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    change(good, path, "gpt2", "none", 4);
    check_refused(path, usual(NULL), LLM_MODEL_LOAD, "it has no vocabulary");
    unlink(path);
    rmdir(folder);
}

static void test_the_size_of_an_unknown_model_is_counted(void)
{
    char path[512];
    model *m = NULL;
    path_of("tiny-dense-q8.gguf", path, sizeof path);
    const model_options o = usual(path);
    CHECK_INT(model_open(path, &o, &m, NULL, 0), LLM_OK);
    CHECK(strchr(m->info.description, '?') == NULL);
    CHECK(strstr(m->info.description, "M Q8_0") != NULL);
    m->ops->close(m);
}

static void test_bad_options_are_explained(void)
{
    char path[512];
    path_of("tiny-dense.gguf", path, sizeof path);
    model_options o = usual(NULL);
    o.n_ctx = 1u << 29;
    check_refused(path, o, LLM_INVALID, "536870912");
    o = usual(NULL);
    o.n_seq = 0;
    check_refused(path, o, LLM_INVALID, "n_seq");
    o.n_seq = 100000;
    check_refused(path, o, LLM_INVALID, "n_seq");
}

static void test_a_type_of_keys_that_a_model_cannot_have_is_refused(void)
{
    static const char *const refused[][2] = {
        {"tiny-recurrent.gguf", "no KV cache"},   {"tiny-bert.gguf", "no KV cache"},
        {"tiny-latent.gguf", "latent attention"}, {"tiny-indexed.gguf", "latent attention"},
        {"tiny-sparse.gguf", "an indexer"},       {"tiny-odd-heads.gguf", "have 48 values"},
    };
    char path[512];
    model_options o = usual(NULL);
    o.exact = false;
    o.kv_type = LLM_KV_Q8_0;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        path_of(refused[i][0], path, sizeof path);
        o.n_gpu_layers = 0;
        check_refused(path, o, LLM_INVALID, refused[i][1]);
        check_refused(path, o, LLM_INVALID, "kv_type is q8_0, but ");
        check_refused(path, o, LLM_INVALID, "set --kv-type f16");
    }
    o.exact = true;
    path_of("tiny-dense.gguf", path, sizeof path);
    check_refused(path, o, LLM_INVALID, "exact configuration");
}

/* 32 values take 34 bytes instead of 64: half the bytes, and 2 bytes for the scale. */
static void test_quantized_keys_take_half_the_memory(void)
{
    static const char *const files[] = {"tiny-dense.gguf", "tiny-window.gguf", "tiny-hybrid.gguf", "tiny-granite.gguf"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[512];
        model *plain = NULL, *quantized = NULL;
        path_of(files[i], path, sizeof path);
        model_options o = usual(NULL);
        o.exact = false;
        o.kv_type = LLM_KV_F16;
        CHECK_INT(model_open(path, &o, &plain, NULL, 0), LLM_OK);
        o.kv_type = LLM_KV_Q8_0;
        CHECK_INT(model_open(path, &o, &quantized, NULL, 0), LLM_OK);
        CHECK_INT(64 * quantized->info.kv_token_bytes, 34 * plain->info.kv_token_bytes);
        CHECK(memcmp(plain->info.identity, quantized->info.identity, 16) == 0);
        CHECK(memcmp(plain->info.geometry, quantized->info.geometry, 16) != 0);
        CHECK_INT(feed(plain, 0, 1, 0, 128, 64), MODEL_OK);
        CHECK_INT(feed(quantized, 0, 1, 0, 128, 64), MODEL_OK);
        const uint64_t grown =
            quantized->ops->sequence_bytes(quantized, 128) - quantized->ops->sequence_bytes(quantized, 64);
        CHECK_INT(grown % quantized->info.kv_token_bytes, 0);
        CHECK(quantized->ops->used_bytes(quantized) < plain->ops->used_bytes(plain));
        CHECK(quantized->ops->state_bytes(quantized, 0, MODEL_STATE_FULL) <
              plain->ops->state_bytes(plain, 0, MODEL_STATE_FULL));
        plain->ops->close(plain);
        quantized->ops->close(quantized);
    }
}

/* The identity depends only on the file, the geometry on the memory's layout. If each sequence has its own stream, the
 * geometry also depends on the number of sequences. */
static void test_identity_and_geometry(void)
{
    char path[512];
    model *a = NULL, *b = NULL, *c = NULL, *d = NULL;
    path_of("tiny-dense.gguf", path, sizeof path);
    model_options o = usual(NULL);
    o.exact = true;
    o.kv_type = LLM_KV_F16;
    CHECK_INT(model_open(path, &o, &a, NULL, 0), LLM_OK);
    o.n_ctx = 256;
    CHECK_INT(model_open(path, &o, &b, NULL, 0), LLM_OK);
    o.n_seq++;
    CHECK_INT(model_open(path, &o, &c, NULL, 0), LLM_OK);
    path_of("tiny-dense-q8.gguf", path, sizeof path);
    CHECK_INT(model_open(path, &o, &d, NULL, 0), LLM_OK);
    CHECK(memcmp(a->info.identity, b->info.identity, 16) == 0 && memcmp(a->info.identity, c->info.identity, 16) == 0);
    CHECK(memcmp(a->info.identity, d->info.identity, 16) != 0);
    CHECK(memcmp(a->info.geometry, b->info.geometry, 16) == 0);
    CHECK(memcmp(a->info.geometry, c->info.geometry, 16) != 0);
    a->ops->close(a);
    b->ops->close(b);
    c->ops->close(c);
    d->ops->close(d);
}

/* A state with rotated keys gives wrong text where keys are not rotated. llama.cpp rotates quantized keys only. */
static void test_rotation_is_part_of_the_geometry(void)
{
    char path[512];
    path_of("tiny-dense.gguf", path, sizeof path);
    model_options o = usual(NULL);
    o.exact = false;
    static const llm_kv_type types[] = {LLM_KV_F16, LLM_KV_Q8_0};
    for (size_t i = 0; i < 2; i++) {
        model *rotated = NULL, *zero = NULL, *plain = NULL;
        o.kv_type = types[i];
        CHECK_INT(model_open(path, &o, &rotated, NULL, 0), LLM_OK);
        setenv("LLAMA_ATTN_ROT_DISABLE", "0", 1);
        CHECK_INT(model_open(path, &o, &zero, NULL, 0), LLM_OK);
        setenv("LLAMA_ATTN_ROT_DISABLE", "1", 1);
        CHECK_INT(model_open(path, &o, &plain, NULL, 0), LLM_OK);
        unsetenv("LLAMA_ATTN_ROT_DISABLE");
        CHECK(memcmp(rotated->info.geometry, zero->info.geometry, 16) == 0);
        CHECK_INT(memcmp(rotated->info.geometry, plain->info.geometry, 16) != 0, types[i] == LLM_KV_Q8_0);
        rotated->ops->close(rotated);
        zero->ops->close(zero);
        plain->ops->close(plain);
    }
}

static void test_model(void)
{
    RUN(test_facts);
    RUN(test_text);
    RUN(test_messages_stay_text);
    RUN(test_chunking_does_not_matter);
    RUN(test_sequences_do_not_meet);
    RUN(test_a_sequence_may_have_several_outputs);
    RUN(test_rewind_where_it_is_exact);
    RUN(test_invalid_batches_change_nothing);
    RUN(test_a_full_cache_changes_nothing);
    RUN(test_a_budget_is_of_what_is_used);
    RUN(test_a_context_of_its_own);
}

int main(void)
{
    for_each_model(test_model);
    if (models != NULL) {
        RUN(test_bad_files_are_explained);
        RUN(test_what_is_no_model_file_is_recognized);
        RUN(test_a_model_larger_than_memory_is_refused_before_it_is_read);
        RUN(test_what_lies_behind_the_weights_counts);
        RUN(test_models_for_something_else_are_recognized);
        RUN(test_a_memory_that_is_not_tested_is_refused);
        RUN(test_an_assertion_of_llama_is_a_refusal);
        RUN(test_a_vocabulary_that_cannot_be_used_is_refused);
        RUN(test_the_size_of_an_unknown_model_is_counted);
        RUN(test_bad_options_are_explained);
        RUN(test_identity_and_geometry);
        RUN(test_rotation_is_part_of_the_geometry);
        RUN(test_a_type_of_keys_that_a_model_cannot_have_is_refused);
        RUN(test_quantized_keys_take_half_the_memory);
    }
    return CHECK_RESULT();
}
