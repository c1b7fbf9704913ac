/* Tests that guesses from the grammar, and quick picks without a sampling thread, do not change an answer. */
#include <stdlib.h>

#include "check.h"
#include "llm.h"
#include "model/model.h"
#include "random.h"
#include "text/sampling/sampler.h"

static model *sim;

enum { N = 512, N_GUESSED = 32, TEXT_BYTES = 1 << 12 };

static bool no_guesses;

static sampler *constrained(const char *document, uint64_t seed, float temperature)
{
    sampler *s = NULL;
    const sampler_options options = {
        .sampling = {.temperature = temperature, .top_p = 1, .repeat_penalty = 1, .typical_p = 1, .seed = seed},
        .constraint = document,
        .n_constraint_bytes = strlen(document),
        .no_guesses = no_guesses,
        /* the biases are applied only once, even if a quick pick fails and a thread picks the token */
        .biases = (const logit_bias[]){{'5', 1.5f}, {'a', -1}},
        .n_biases = 2,
    };
    return sampler_open(sim, &options, &s) == LLM_OK ? s : NULL;
}

/* Makes the sampler pick the tokens of this text. */
static void feed(sampler *s, const char *text)
{
    int32_t tokens[256];
    const int64_t n = sim->ops->tokenize(sim, text, strlen(text), false, true, tokens, 256);
    for (int64_t i = 0; i < n; i++) {
        float logits[N] = {0};
        int32_t token = -1;
        logits[tokens[i]] = 90;
        CHECK_INT(sampler_next(s, logits, &token), LLM_OK);
        CHECK_INT(token, tokens[i]);
    }
}

/* Writes the text of the guessed tokens. Returns their number. */
static uint32_t guessed(sampler *s, uint32_t n_max, char *out)
{
    int32_t tokens[N_GUESSED];
    size_t n_out = 0;
    const uint32_t n = sampler_guess(s, tokens, n_max);
    for (uint32_t i = 0; i < n; i++) {
        const int32_t n_bytes = sim->ops->piece(sim, tokens[i], sampler_shows(s, tokens[i]), out + n_out, 256);
        n_out += n_bytes > 0 ? (size_t)n_bytes : 0;
    }
    out[n_out] = '\0';
    return n;
}

#define BLANKS "ws ::= \\\"\\\" | \\\" \\\" | \\\"\\n\\\" \\\"\\n\\\"? [ \\t]{0,60}"
#define MEMBER(name) "\\\"\\\\\\\"" name "\\\\\\\"\\\" ws \\\":\\\" ws \\\"\\\\\\\"\\\" [a-z]* \\\"\\\\\\\"\\\" ws "
#define OBJECT                                                                                                         \
    "{\"grammar\":\"root ::= \\\"{\\\" ws " MEMBER("name") "\\\",\\\" ws " MEMBER(                                     \
        "the second") "\\\",\\\" ws " MEMBER("last") "\\\"}\\\"\\n" BLANKS "\"}"
#define LISTS                                                                                                          \
    "{\"grammar\":\"root ::= \\\"{\\\" ws \\\"\\\\\\\"a\\\\\\\"\\\" ws \\\":\\\" ws \\\"[\\\" ws \\\"{\\\" ws "        \
    "\\\"\\\\\\\"b\\\\\\\"\\\" ws "                                                                                    \
    "\\\":\\\" ws [0-9] ws \\\"}\\\" ws \\\"]\\\" ws \\\"}\\\"\\n" BLANKS "\"}"
#define CHOICE                                                                                                         \
    "{\"grammar\":\"root ::= \\\"call \\\" (\\\"read_file\\\" | \\\"read_files\\\" | \\\"write\\\") \\\"(\\\"\"}"
#define TAGGED "{\"grammar\":\"root ::= [a-z]+ \\\"<|im_start|>\\\" \\\"user\\\" \\\"\\n\\\"\",\"preserved\":[257]}"
#define WAITING                                                                                                        \
    "{\"grammar\":\"root ::= \\\"<call>\\\" [0-9] \\\"</call>\\\"\",\"lazy\":true,\"triggers\":[{\"type\":\"word\","   \
    "\"value\":\"<call>\"}]}"
#define SPLIT "{\"grammar\":\"root ::= \\\"é\\\" [a-z] \\\"中é\\\"\"}"

static void the_one_way_on_is_guessed(void)
{
    static const char *const rows[][3] = {
        {OBJECT, "{", "\"name\": \""},
        {OBJECT, "{\n  ", "\"name\": \""},
        {OBJECT, "{\"name", "\": \""},
        {OBJECT, "{\"name\": \"ab", ""},
        {OBJECT, "{\"name\": \"ab\"", ", \"the second\": \""},
        {OBJECT, "{\"name\":\"ab\",", " \"the second\":\""}, /* with blanks as in the answer so far */
        {OBJECT, "{\"name\": \"ab\",\n  \"the second\" : \"\"", ",\n  \"last\" : \""},
        {OBJECT, "{\"name\" : \"ab\",\n\n\"the second\" : \"\",\n", "\n\"last\" : \""},
        /* the answer did not follow the earlier style here */
        {OBJECT, "{\"name\" : \"ab\",\n\n\"the second\" : \"\",\n ", "\"last\" : \""},
        {OBJECT, "{\n  \"name\": \"ab\",", "\n  \"the second\": \""}, /* one member per line */
        {OBJECT, "{\n  \"name\": \"ab\",\n  \"the second\": \"\",\n  \"last\": \"\"", "\n}"},
        {LISTS, "{\n  \"a\": [\n    {", "\n      \"b\":"}, /* each bracket indents by the same amount */
        {LISTS, "{\n  \"a\": [\n    {\n      \"b\": 7", "\n    }\n  ]\n}"},
        {LISTS, "{\"a\":[", "{\"b\":"},
        {CHOICE, "c", "all "},
        {CHOICE, "call ", ""},
        {CHOICE, "call r", "ead_file"},
        {CHOICE, "call read_file", ""},
        {CHOICE, "call read_files", "("},
        {CHOICE, "call read_files(", ""}, /* the answer can also end here */
        {TAGGED, "a", ""},
        {TAGGED, "a<|im_start|>", "user\n"},
        {WAITING, "some ", ""},
        {WAITING, "some <call>1", "</call>"},
        {SPLIT, "é", ""},
        {SPLIT, "éa", "中é"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[TEXT_BYTES], again[TEXT_BYTES];
        sampler *s = constrained(rows[i][0], 1, 0);
        feed(s, rows[i][1]);
        (void)guessed(s, N_GUESSED, text);
        if (strcmp(text, rows[i][2]) != 0) {
            printf("after \"%s\": \"%s\"\n", rows[i][1], text);
        }
        CHECK(strcmp(text, rows[i][2]) == 0);
        (void)guessed(s, N_GUESSED, again);
        CHECK(strcmp(text, again) == 0);
        CHECK(guessed(s, 1, again) <= 1);
        CHECK(strncmp(text, again, strlen(again)) == 0 && (text[0] == '\0') == (again[0] == '\0'));
        feed(s, rows[i][2]); /* guessing has changed nothing, and the grammar allows the guess */
        sampler_close(s);
    }
}

/* The document is parsed with the first pick. Before that, nothing can be guessed. */
static void nothing_is_guessed_without_a_grammar(void)
{
    char text[TEXT_BYTES];
    sampler *s = constrained(OBJECT, 1, 0);
    CHECK_INT(guessed(s, N_GUESSED, text), 0);
    sampler_close(s);
    s = constrained("", 1, 0);
    CHECK_INT(guessed(s, N_GUESSED, text), 0);
    sampler_close(s);
    no_guesses = true;
    s = constrained(OBJECT, 1, 0);
    feed(s, "{\"name");
    CHECK_INT(guessed(s, N_GUESSED, text), 0);
    sampler_close(s);
    no_guesses = false;
}

static void make_logits(random_source *random, float *logits)
{
    for (int t = 0; t < N; t++) {
        logits[t] = (float)(random_below(random, 1000)) / 100.0f;
    }
}

#define LETTERS "{\"grammar\":\"root ::= [a-z ]*\"}"
/* This grammar can divide a number in thousands of ways. So a thread picks its tokens. */
#define SLOW "{\"grammar\":\"root ::= a{1,30}\\na ::= b{1,30}\\nb ::= [0-9]{1,30}\"}"
#define DEAD_END "{\"grammar\":\"root ::= \\\"12\\\" <[258]> \\\"3\\\"\"}"
#define BUDGET                                                                                                         \
    "{\"grammar\":\"root ::= [a-z]* \\\">\\\" [0-9]*\",\"thinking\":{\"start\":[60],\"ends\":[{\"tokens\":[62]}],"     \
    "\"forced\":[62],\"max\":9,\"is_open\":true}}"

/* Two samplers with one seed get the same logits. One of them first tries to pick without a thread. */
static void compare(const char *document, uint64_t seed, uint32_t *n_quick, uint32_t *n_left)
{
    random_source random = {seed};
    sampler *one = constrained(document, seed, (float)(seed % 3) / 2),
            *other = constrained(document, seed, (float)(seed % 3) / 2);
    int status = LLM_OK;
    for (uint32_t i = 0; i < 60 && status == LLM_OK; i++) {
        float logits[N], copy[N];
        int32_t token = -1, token_again = -1;
        int status_again = LLM_OK;
        make_logits(&random, logits);
        memcpy(copy, logits, sizeof logits);
        status = sampler_next(one, logits, &token);
        const bool is_slow = sampler_is_slow(other);
        const bool is_quick = sampler_next_quick(other, copy, &status_again, &token_again);
        CHECK(!is_slow || !is_quick);
        *n_quick += is_quick;
        *n_left += !is_quick && !is_slow;
        status_again = is_quick ? status_again : sampler_next(other, copy, &token_again);
        CHECK_INT(status_again, status);
        CHECK(status != LLM_OK || token_again == token);
        status = status == LLM_OK && sampler_ends(one, token) ? LLM_INVALID : status;
    }
    sampler_close(one);
    sampler_close(other);
}

static void a_quick_pick_is_the_same(void)
{
    static const char *const documents[] = {OBJECT, CHOICE, LETTERS, SLOW, DEAD_END, BUDGET, ""};
    uint32_t n_quick[sizeof documents / sizeof *documents] = {0}, n_left[sizeof documents / sizeof *documents] = {0};
    for (size_t i = 0; i < sizeof documents / sizeof *documents; i++) {
        for (uint64_t seed = 0; seed < 150; seed++) {
            compare(documents[i], seed, &n_quick[i], &n_left[i]);
        }
    }
    CHECK(n_quick[0] > 1000 && n_left[0] == 0);
    CHECK(n_quick[3] > 50 && n_left[3] > 50); /* a thread picks tokens if the grammar has too many ways to continue */
    CHECK_INT(n_quick[4], 0);                 /* the grammar refers to tokens by number */
}

/* After each attempt that takes too long, the next attempt comes later. */
static void slow_picks_are_seldom_tried(void)
{
    sampler *s = constrained(SLOW, 1, 0);
    uint32_t n_failed = 0, n_slow = 0;
    for (uint32_t i = 0; i < 600; i++) {
        float logits[N] = {['7'] = 90};
        int status = LLM_OK;
        int32_t token = -1;
        const bool is_slow = sampler_is_slow(s);
        if (!sampler_next_quick(s, logits, &status, &token)) {
            n_slow += is_slow;
            n_failed += !is_slow;
            status = sampler_next(s, logits, &token);
        }
        CHECK(status == LLM_OK && token == '7');
    }
    CHECK(n_slow > 300 && n_failed > 3 && n_failed < 20);
    sampler_close(s);
}

/* A thread frees a walk that has become large, so that no other request waits for this. */
static void a_thread_frees_a_large_walk(void)
{
    sampler *s = constrained("{\"grammar\":\"root ::= \\\"(\\\" root \\\")\\\" | \\\"x\\\"\"}", 1, 0);
    uint32_t n_slow = 0;
    for (uint32_t i = 0; i < 20000; i++) {
        float logits[N] = {['('] = 90};
        int status = LLM_OK;
        int32_t token = -1;
        if (!sampler_next_quick(s, logits, &status, &token)) {
            n_slow += i > 0;
            status = sampler_next(s, logits, &token);
            CHECK(!sampler_is_slow(s));
        }
        CHECK(status == LLM_OK && token == '(');
    }
    CHECK(n_slow > 0 && n_slow < 10);
    sampler_close(s);
}

int main(void)
{
    char error[200];
    if (model_open("sim:dense", &(model_options){.path = "sim:dense", .n_seq = 1, .n_ctx = 256}, &sim, error,
                   sizeof error) != LLM_OK) {
        return 1;
    }
    RUN(the_one_way_on_is_guessed);
    RUN(nothing_is_guessed_without_a_grammar);
    RUN(a_quick_pick_is_the_same);
    RUN(slow_picks_are_seldom_tried);
    RUN(a_thread_frees_a_large_walk);
    sim->ops->close(sim);
    return CHECK_RESULT();
}
