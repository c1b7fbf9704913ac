/* Tests any text with any tokenizer: every pre-tokenizer and every kind of vocabulary that llama.cpp supports.
 *
 * The digests in tokenizer_digests.h were recorded with the original llama.cpp, which splits texts with std::regex.
 * Equal digests mean equal tokens. Long texts must be tokenized completely on a small stack.
 *
 * To record new digests after an update of llama.cpp, remove cmake/llama/0011-tokenizer.patch, run ./build.sh setup,
 * build this program, and run it with --record. Its output has the new rows of tokenizer_digests.h. A digest of 0 means
 * that the original llama.cpp crashed on the texts. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "random.h"
#include "tokenizer_digests.h"
#include "vocabulary_model.h"

enum {
    N_TEXTS = 400,
    N_ATOMS_MAX = 40,
    TEXT_BYTES_MAX = 2048,
    STACK_BYTES = 256 * 1024,
    RUN_BYTES = 9 * 1024,
    FLOOD_BYTES = 1 << 20,
    RECORD_SECONDS = 600,
};

static const char *models;

static model *opened(const tokenizer_case *c)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.gguf", models, c->file);
    return vocabulary_open(path, c->model, c->pre, c->name);
}

/* ---- the same tokens ------------------------------------------------------------------------------------------------ */

/* Parts of texts with which the published llama.cpp does not fail. "q" is not among them, because with it llama.cpp's
 * RWKV tokenizer never ends. */
static const char *const atoms[] = {"a",
                                    "b",
                                    "Z",
                                    "A",
                                    "\u00e9",
                                    "\u00df",
                                    "\u4e2d",
                                    "\u306e",
                                    "\ud55c",
                                    "0",
                                    "7",
                                    "12",
                                    "\u0663",
                                    " ",
                                    "  ",
                                    "\n",
                                    "\r",
                                    "\t",
                                    "\r\n",
                                    "\u00a0",
                                    "\u3000",
                                    "'",
                                    "'s",
                                    "'LL",
                                    "'re",
                                    "!",
                                    "?",
                                    "/",
                                    ".",
                                    "-",
                                    "(",
                                    "|",
                                    "$",
                                    "+",
                                    "=",
                                    "~",
                                    "`",
                                    "^",
                                    "_",
                                    "\u0301",
                                    "\u093f",
                                    "\U0001f600",
                                    "\u200b",
                                    "\x01",
                                    "\xff",
                                    "\xed\xa0\x80",
                                    "\xf0",
                                    "\xc3",
                                    "<",
                                    "<sentinel:1>",
                                    "IMGIMGABZ",
                                    "\u2026",
                                    "\uff0c",
                                    "\u2167",
                                    "\u01c5",
                                    "\u02b0",
                                    "\u1680",
                                    ",",
                                    "1234567",
                                    "aaaa",
                                    "AAAA",
                                    "      ",
                                    "{",
                                    "\\",
                                    "]",
                                    "[",
                                    "\"",
                                    "%",
                                    "the ",
                                    "zz",
                                    "zzz",
                                    "<th",
                                    "<think>",
                                    "<|im_end|>",
                                    "<|im_start|>",
                                    "<mask>",
                                    "<s>",
                                    "</s>",
                                    "<dna>ACGTACGG",
                                    "</dna>",
                                    "\u2581",
                                    "word",
                                    "<|end|>",
                                    "[MASK]",
                                    "\n\n",
                                    "\ufeff"};

static size_t random_text(random_source *r, char *out)
{
    const char *few[6];
    size_t n_bytes = 0, n_few = 1 + random_below(r, 6), n = 1 + random_below(r, N_ATOMS_MAX);
    for (size_t i = 0; i < n_few; i++) {
        few[i] = atoms[random_below(r, sizeof atoms / sizeof *atoms)];
    }
    bool is_narrow = random_below(r, 2) != 0;
    for (size_t i = 0; i < n; i++) {
        const char *atom =
            is_narrow ? few[random_below(r, (uint32_t)n_few)] : atoms[random_below(r, sizeof atoms / sizeof *atoms)];
        size_t length = random_below(r, 200) == 0 ? 1 : strlen(atom); /* sometimes only the first byte of a character */
        memcpy(out + n_bytes, atom, length);
        n_bytes += length;
    }
    return n_bytes;
}

static uint64_t digest_of(const model *m)
{
    static int32_t tokens[2 * TEXT_BYTES_MAX];
    random_source r = {88172645463325252ull};
    uint64_t digest = 14695981039346656037ull;
    for (int i = 0; i < N_TEXTS; i++) {
        char text[TEXT_BYTES_MAX];
        size_t n_bytes = random_text(&r, text);
        int64_t n = m->ops->tokenize(m, text, n_bytes, i % 2 == 0, i % 3 == 0, tokens, 2 * TEXT_BYTES_MAX);
        for (int64_t k = -1; k < n; k++) {
            digest = (digest ^ (uint64_t)(k < 0 ? n : tokens[k])) * 1099511628211ull;
        }
    }
    return digest | 1;
}

static void test_every_tokenizer_finds_the_tokens_of_the_published_one(void)
{
    for (const tokenizer_case *c = tokenizer_cases; c->file != NULL; c++) {
        model *m = opened(c);
        if (m == NULL) {
            printf("%s model \"%s\" pre \"%s\"\n", c->file, c->model, c->pre);
        }
        CHECK(m != NULL);
        uint64_t digest = digest_of(m);
        if (c->digest != 0 && digest != c->digest) {
            printf("%s model \"%s\" pre \"%s\" name \"%s\": other tokens\n", c->file, c->model, c->pre, c->name);
        }
        CHECK(c->digest == 0 || digest == c->digest);
        m->ops->close(m);
    }
}

/* ---- long texts ----------------------------------------------------------------------------------------------------- */

static const char *const runs[] = {"a",
                                   "Z",
                                   "aZ",
                                   "\u00e9",
                                   "\u4e2d",
                                   "7",
                                   "\u0663",
                                   " ",
                                   "\n",
                                   "\r\n",
                                   " \n",
                                   "!",
                                   "'",
                                   "'s",
                                   "\u0301",
                                   "a\u0301",
                                   "a ",
                                   "\U0001f600",
                                   "\xff",
                                   "\xc3",
                                   "\xed\xa0\x80",
                                   "\xf7\xbf\xbf\xbf",
                                   "\x01",
                                   "q",
                                   "<sentinel:1",
                                   "\u3000"};
enum { N_RUNS = sizeof runs / sizeof *runs, LONG_BYTES = N_RUNS * (RUN_BYTES + 16) };

typedef struct long_call {
    const model *m;
    const char *text;
    size_t n_bytes;
    int32_t *tokens; /* has room for 2 * n_bytes tokens */
    int64_t n;
} long_call;

static void *call_tokenize(void *argument)
{
    long_call *c = argument;
    c->n = c->m->ops->tokenize(c->m, c->text, c->n_bytes, true, true, c->tokens, 2 * c->n_bytes);
    return NULL;
}

/* Returns the number of tokens, or the error of op_tokenize. */
static int64_t tokenized_on_a_small_stack(const model *m, const char *text, size_t n_bytes)
{
    long_call c = {m, text, n_bytes, malloc(2 * n_bytes * sizeof(int32_t)), -1};
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    if (pthread_create(&thread, &attributes, call_tokenize, &c) == 0) {
        pthread_join(thread, NULL);
    }
    pthread_attr_destroy(&attributes);
    free(c.tokens);
    return c.n;
}

static size_t repeated(const char *atom, size_t n_bytes, char *out)
{
    size_t length = strlen(atom), n = 0;
    while (n + length <= n_bytes) {
        memcpy(out + n, atom, length);
        n += length;
    }
    return n;
}

static bool is_first_of_its_digest(const tokenizer_case *c)
{
    const tokenizer_case *first = tokenizer_cases;
    while (first->digest != c->digest) {
        first++;
    }
    return first == c || c->digest == 0;
}

static void test_long_runs_need_no_deep_stack(void)
{
    char *text = malloc(LONG_BYTES);
    size_t n_bytes = 0;
    for (size_t i = 0; i < N_RUNS; i++) {
        n_bytes += repeated(runs[i], RUN_BYTES, text + n_bytes);
        /* a run followed by another character is the worst case for `\s+$` and others */
        text[n_bytes++] = i % 2 == 0 ? 'x' : '.';
    }
    text[n_bytes / 2] = '\0';
    for (const tokenizer_case *c = tokenizer_cases; c->file != NULL; c++) {
        if (is_first_of_its_digest(c)) {
            model *m = opened(c);
            CHECK(m != NULL);
            int64_t n = tokenized_on_a_small_stack(m, text, n_bytes);
            if (n <= 0) {
                printf("%s model \"%s\" pre \"%s\": %lld\n", c->file, c->model, c->pre, (long long)n);
            }
            CHECK(n > 0);
            m->ops->close(m);
        }
    }
    free(text);
}

/* Each of these words is a token. For each of them, the published llama.cpp searches from the beginning of the text. */
static void test_a_flood_of_special_words_is_not_quadratic(void)
{
    static const char *const words[] = {"\t", "<think>", "<|im_end|>", "<th"};
    char *text = malloc(FLOOD_BYTES);
    tokenizer_case c = {"vocab-byte-bpe", "gpt2", "gpt-4o", "", 0};
    model *m = opened(&c);
    CHECK(m != NULL);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n_bytes = repeated(words[i], FLOOD_BYTES, text);
        CHECK_INT(tokenized_on_a_small_stack(m, text, n_bytes), (int64_t)(n_bytes / strlen(words[i])));
    }
    m->ops->close(m);
    free(text);
}

static void test_a_model_without_a_vocabulary_cannot_tokenize(void)
{
    int32_t tokens[8];
    tokenizer_case c = {"vocab-spm", "none", "", "", 0};
    model *m = opened(&c);
    CHECK(m != NULL);
    CHECK_INT(m->ops->tokenize(m, "a", 1, false, false, tokens, 8), INT64_MIN);
    m->ops->close(m);
}

/* No token is this byte alone, but longer tokens begin with it. */
static void test_the_beginning_of_a_word_is_unknown_and_not_for_ever(void)
{
    int32_t tokens[8];
    tokenizer_case c = {"vocab-rwkv", "", "", "", 0};
    model *m = opened(&c);
    CHECK(m != NULL);
    CHECK_INT(m->ops->tokenize(m, "q", 1, false, false, tokens, 8), 1);
    CHECK_INT(m->ops->tokenize(m, "aqq", 3, false, false, tokens, 8), 3);
    CHECK_INT(m->ops->tokenize(m, "quux", 4, false, false, tokens, 8), 2);
    m->ops->close(m);
}

/* ---- recording ------------------------------------------------------------------------------------------------------ */

static void record(const tokenizer_case *c)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(RECORD_SECONDS);
        model *m = opened(c);
        uint64_t digest = m == NULL ? 0 : digest_of(m);
        printf("    {\"%s\", \"%s\", \"%s\", \"%s\", 0x%016llxull},\n", c->file, c->model, c->pre, c->name,
               (unsigned long long)digest);
        fflush(stdout);
        _exit(0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    if (status != 0) {
        printf("    {\"%s\", \"%s\", \"%s\", \"%s\", 0},\n", c->file, c->model, c->pre, c->name);
    }
}

static void record_all(void)
{
    for (const tokenizer_case *c = tokenizer_cases; c->file != NULL; c++) {
        record(c);
    }
}

int main(int argc, char **argv)
{
    models = getenv("LLMD_TEST_MODELS");
    if (models == NULL) {
        printf(
            "SKIPPED: LLMD_TEST_MODELS does not name a folder with the vocabularies (python -m tools.tiny_models makes "
            "them)\n");
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "--record") == 0) {
        record_all();
        return 0;
    }
    RUN(test_every_tokenizer_finds_the_tokens_of_the_published_one);
    RUN(test_long_runs_need_no_deep_stack);
    RUN(test_a_flood_of_special_words_is_not_quadratic);
    RUN(test_a_model_without_a_vocabulary_cannot_tokenize);
    RUN(test_the_beginning_of_a_word_is_unknown_and_not_for_ever);
    return CHECK_RESULT();
}
