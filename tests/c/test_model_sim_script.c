/* Tests the simulated model with a script. It must generate the script's replies, in every memory class, and continue
 * them from any saved state. */
#include "model/sim/sim_model.h"

#include <stdlib.h>
#include <unistd.h>

#include "check.h"

enum { N_CTX = 512, TEXT_BYTES_MAX = 256, N_CLASSES = 4, SAVED_BYTES_MAX = 64 * 1024 };

static const char *const classes[N_CLASSES] = {"dense", "window", "recurrent", "hybrid"};
static const char script[] = "not read\n"
                             "? weather\n"
                             "<think>\nLook it up.</think>\n"
                             "<tool_call>\n{\"name\": \"look\"}\n</tool_call>\n"
                             "? 21 degrees\n"
                             "It is w\xc3\xa4rm.\n"
                             "? her\n"
                             "She.\n"
                             "? silence\n";

static model *open_with(const char *memory, const char *text, char *error, size_t error_bytes)
{
    char path[] = "/tmp/llmd-script-XXXXXX", name[TEXT_BYTES_MAX];
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || close(fd) != 0) {
        abort();
    }
    snprintf(name, sizeof name, "%s,script=%s", memory, path);
    model_options options = {.path = name, .n_ctx = N_CTX, .n_seq = 2, .n_batch = N_CTX};
    model *m = NULL;
    (void)model_sim_open(&options, &m, error, error_bytes);
    unlink(path);
    return m;
}

static model *open_sim(const char *memory)
{
    char error[LLM_TEXT_BYTES_MAX] = "";
    model *m = open_with(memory, script, error, sizeof error);
    if (m == NULL) {
        printf("%s\n", error);
        abort();
    }
    return m;
}

/* Consumes a token. Returns the most likely next token. */
static int32_t consume(model *m, uint16_t seq, int32_t token)
{
    const int32_t position = (int32_t)m->ops->position(m, seq);
    const uint8_t output = 1;
    if (m->ops->decode(
            m, &(model_batch){.n = 1, .tokens = &token, .positions = &position, .seqs = &seq, .outputs = &output}) !=
        MODEL_OK) {
        abort();
    }
    const float *logits = m->ops->logits(m, 0);
    int32_t best = 0;
    for (int32_t i = 1; i < SIM_VOCABULARY; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

static int32_t consume_text(model *m, uint16_t seq, const char *text)
{
    int32_t tokens[TEXT_BYTES_MAX], next = 0;
    const int64_t n = m->ops->tokenize(m, text, strlen(text), false, true, tokens, TEXT_BYTES_MAX);
    for (int64_t i = 0; i < n; i++) {
        next = consume(m, seq, tokens[i]);
    }
    return next;
}

/* Returns the text from token `next` to the end of the turn, at most n_max tokens. */
static const char *said(model *m, uint16_t seq, int32_t next, size_t n_max)
{
    static char out[TEXT_BYTES_MAX];
    size_t n = 0;
    for (; n_max > 0 && next != SIM_TOKEN_TURN_END; n_max--) {
        n += (size_t)m->ops->piece(m, next, true, out + n, sizeof out - n - 1);
        next = consume(m, seq, next);
    }
    out[n] = '\0';
    return out;
}

static const char call[] = "<think>\nLook it up.</think>\n<tool_call>\n{\"name\": \"look\"}\n</tool_call>";

static void test_it_says_what_it_is_told_to(void)
{
    for (int i = 0; i < N_CLASSES; i++) {
        model *m = open_sim(classes[i]);
        int32_t next = consume_text(m, 0, "<|im_start|>user\nHow is the weather?<|im_end|>\n<|im_start|>assistant\n");
        CHECK_STR(said(m, 0, next, N_CTX), call);
        next = consume_text(m, 0, "<|im_end|>\n<|im_start|>tool\n21 degrees<|im_end|>\n<|im_start|>assistant\n");
        CHECK_STR(said(m, 0, next, N_CTX), "It is w\xc3\xa4rm.");
        next = consume_text(m, 0, "<|im_end|>\n<|im_start|>user\nAnd her?<|im_end|>\n<|im_start|>assistant\n");
        CHECK_STR(said(m, 0, next, N_CTX), "She.");
        next = consume_text(m, 0, "<|im_end|>\n<|im_start|>user\nsilence<|im_end|>\n<|im_start|>assistant\n");
        CHECK_INT(next, SIM_TOKEN_TURN_END);
        m->ops->close(m);
    }
}

static void test_a_reply_that_was_begun_is_continued(void)
{
    model *m = open_sim("dense");
    int32_t next = consume_text(m, 0, "the weather<|im_start|>assistant\n<think>\nLook");
    CHECK_STR(said(m, 0, next, N_CTX), call + strlen("<think>\nLook"));
    next = consume_text(m, 1, "the weather<|im_start|>assistant\n<think>\nSome text. ");
    CHECK_STR(said(m, 1, next, N_CTX), call);
    m->ops->close(m);
}

static void test_a_saved_state_knows_how_far_it_is(void)
{
    static uint8_t bytes[SAVED_BYTES_MAX];
    for (int i = 0; i < N_CLASSES; i++) {
        model *m = open_sim(classes[i]);
        int32_t next = consume_text(m, 0, "the weather<|im_start|>assistant\n");
        char half[TEXT_BYTES_MAX];
        snprintf(half, sizeof half, "%s", said(m, 0, next, 5));
        const uint32_t k = m->ops->position(m, 0);
        const size_t n = m->ops->state_save(m, 0, MODEL_STATE_FULL, bytes, sizeof bytes);
        CHECK(n > 0 && m->ops->state_load(m, 1, MODEL_STATE_FULL, k, bytes, n) == MODEL_OK);
        CHECK_STR(said(m, 1, consume(m, 1, (uint8_t)call[strlen(half)]), N_CTX), call + strlen(half) + 1);
        memset(bytes + n - sizeof(uint64_t), 0xff, sizeof(uint64_t)); /* the place in the reply of the last state */
        CHECK_INT(m->ops->state_load(m, 1, MODEL_STATE_FULL, k, bytes, n), MODEL_INVALID);
        m->ops->close(m);
    }
}

static void test_without_a_trigger_it_writes_as_ever(void)
{
    model *m = open_sim("dense");
    model_options options = {.path = "dense", .n_ctx = N_CTX, .n_seq = 2, .n_batch = N_CTX};
    model *plain = NULL;
    char error[LLM_TEXT_BYTES_MAX];
    CHECK_INT(model_sim_open(&options, &plain, error, sizeof error), LLM_OK);
    CHECK_INT(consume_text(m, 0, "hello"), consume_text(plain, 0, "hello"));
    CHECK(memcmp(m->info.identity, plain->info.identity, sizeof m->info.identity) != 0);
    plain->ops->close(plain);
    m->ops->close(m);
}

static void test_what_is_no_script_is_refused(void)
{
    char error[LLM_TEXT_BYTES_MAX] = "";
    CHECK(open_with("dense", "nothing\n", error, sizeof error) == NULL && strstr(error, "has no line") != NULL);
    static char long_one[SIM_TRIGGER_NODES_MAX + 8];
    memset(long_one, 'a', sizeof long_one - 1);
    memcpy(long_one, "? ", 2);
    CHECK(open_with("dense", long_one, error, sizeof error) == NULL && strstr(error, "too long") != NULL);
    model_options options = {.path = "dense,script=/no/such", .n_ctx = N_CTX, .n_seq = 2, .n_batch = N_CTX};
    model *m = NULL;
    CHECK_INT(model_sim_open(&options, &m, error, sizeof error), LLM_INVALID);
    CHECK(strstr(error, "/no/such") != NULL);
    options.path = "dense,script=";
    CHECK_INT(model_sim_open(&options, &m, error, sizeof error), LLM_INVALID);
}

int main(void)
{
    RUN(test_it_says_what_it_is_told_to);
    RUN(test_a_reply_that_was_begun_is_continued);
    RUN(test_a_saved_state_knows_how_far_it_is);
    RUN(test_without_a_trigger_it_writes_as_ever);
    RUN(test_what_is_no_script_is_refused);
    return CHECK_RESULT();
}
