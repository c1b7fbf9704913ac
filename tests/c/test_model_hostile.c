/* Tests malformed model files. The fields of a tiny model's header are changed one by one. Each variant is opened in a
 * child process, which must soon end with a status and a sentence, and not with a signal. LLMD_HOSTILE_RUNS and
 * LLMD_HOSTILE_SEED set the number of variants and the seed. */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "random.h"
#include "tiny_models.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED
#endif

enum {
    RUNS_DEFAULT = 20,
    FIELDS_MAX = 8192,
    OPEN_SECONDS_MAX = 60,
    EDITS_MAX = 3,
    STRINGS_LOOKED_AT = 8,
    LETTERS_MAX = 4
};

_Noreturn void ggml_abort(const char *file, int line, const char *format, ...); /* declared as in ggml.h */

typedef struct image {
    uint8_t *bytes;
    size_t n;
} image;

/* The place of a number in the header. The most useful changes are those that a reader accepts, because they reach
 * llama.cpp. */
typedef struct field {
    size_t at;
    size_t n;
    bool is_content; /* a value or a byte of a text, but not a length, a type or an offset */
} field;

static image original;
static field fields[FIELDS_MAX];
static size_t n_fields;
static size_t at; /* the place of the walk through the header */
static random_source source;

static void read_whole(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return;
    }
    fseek(file, 0, SEEK_END);
    original.n = (size_t)ftell(file);
    rewind(file);
    original.bytes = malloc(original.n);
    if (fread(original.bytes, 1, original.n, file) != original.n) {
        original.n = 0;
    }
    fclose(file);
}

/* ---- the fields ---------------------------------------------------------------------------------------------------- */

static uint64_t number_of(size_t n, bool is_content)
{
    uint64_t value = 0;
    memcpy(&value, original.bytes + at, n);
    if (n_fields < FIELDS_MAX) {
        fields[n_fields++] = (field){at, n, is_content};
    }
    at += n;
    return value;
}

static uint64_t number(size_t n)
{
    return number_of(n, false);
}

static void string(void)
{
    const size_t n = number(8), begin = at;
    for (size_t i = 0; i < n && i < LETTERS_MAX; i++) {
        at = begin + i;
        number_of(1, true);
    }
    at = begin + n;
}

static size_t bytes_of(uint64_t type)
{
    static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < 13 ? sizes[type] : 0;
}

static void value(uint64_t type);

static void array(void)
{
    const uint64_t type = number(4), n = number(8);
    const size_t kept = n_fields;
    for (uint64_t i = 0; i < n; i++) {
        value(type);
        if (i >= STRINGS_LOOKED_AT && n_fields > kept + STRINGS_LOOKED_AT * (1 + LETTERS_MAX)) {
            /* keeps few fields of a long array, so that the vocabulary does not have nearly all fields */
            n_fields = kept + STRINGS_LOOKED_AT * (1 + LETTERS_MAX);
        }
    }
}

static void value(uint64_t type)
{
    if (type == 8) {
        string();
    } else if (type == 9) {
        array();
    } else {
        number_of(bytes_of(type), true);
    }
}

static void walk(void)
{
    at = 4;
    n_fields = 0;
    number(4);
    const uint64_t n_tensors = number(8), n_keys = number(8);
    for (uint64_t i = 0; i < n_keys; i++) {
        string();
        value(number(4));
    }
    for (uint64_t i = 0; i < n_tensors; i++) {
        string();
        const uint64_t n_dimensions = number(4);
        for (uint64_t d = 0; d < n_dimensions; d++) {
            number(8);
        }
        number(4);
        number(8);
    }
}

/* ---- changes ------------------------------------------------------------------------------------------------------- */

static uint64_t strange(uint64_t old)
{
    static const uint64_t known[] = {0,         1,          2,          3,          7,          8,          9,
                                     13,        32,         255,        256,        1000,       4096,       65535,
                                     65536,     1u << 20,   1u << 31,   0x7fffffff, 0xffffffff, 1ull << 32, 1ull << 40,
                                     INT64_MAX, UINT64_MAX, 0x3f800000, 0x7fc00000};
    switch (random_below(&source, 4)) {
    case 0: return old + 1;
    case 1: return old - 1;
    case 2: return old * 2;
    default: return known[random_below(&source, sizeof known / sizeof *known)];
    }
}

static void edit(uint8_t *bytes, bool only_content)
{
    field f;
    do {
        f = fields[random_below(&source, (uint32_t)n_fields)];
    } while (only_content && !f.is_content);
    uint64_t old = 0;
    memcpy(&old, bytes + f.at, f.n);
    const uint64_t lie = strange(old);
    memcpy(bytes + f.at, &lie, f.n);
}

static size_t make_variant(uint8_t *bytes)
{
    memcpy(bytes, original.bytes, original.n);
    switch (random_below(&source, 16)) {
    case 0: return random_below(&source, (uint32_t)original.n); /* the file is truncated */
    case 1:
        bytes[random_below(&source, (uint32_t)at)] ^= (uint8_t)(1u << random_below(&source, 8));
        break; /* one bit of the header is changed */
    case 2:
    case 3: edit(bytes, false); break;
    default:
        for (uint32_t i = 1 + random_below(&source, EDITS_MAX); i > 0; i--) {
            edit(bytes, true);
        }
    }
    return original.n;
}

static void write_file(const char *path, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(bytes, 1, n, file) != n || fclose(file) != 0) {
        exit(2);
    }
}

/* ---- opening ------------------------------------------------------------------------------------------------------- */

static void open_in_child(const char *path)
{
    char error[1024] = "";
    model *m = NULL;
    model_options o = usual(path);
    alarm(OPEN_SECONDS_MAX);
#ifndef IS_SANITIZED /* a sanitizer's shadow memory reserves more addresses than the limit */
    setrlimit(RLIMIT_AS, &(struct rlimit){6ull << 30, 6ull << 30});
#endif
    const int status = model_open(path, &o, &m, error, sizeof error);
    if (getenv("LLMD_HOSTILE_SHOW") != NULL) {
        printf("    %d %s\n", status, error);
        fflush(stdout);
    }
    _exit((status == LLM_OK) != (m != NULL) || (status != LLM_OK && error[0] == '\0'));
}

static bool ends_well(const char *path)
{
    int how = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        open_in_child(path);
    }
    waitpid(child, &how, 0);
    if (WIFSIGNALED(how)) {
        printf("signal %d\n", WTERMSIG(how));
    }
    return WIFEXITED(how) && WEXITSTATUS(how) == 0;
}

static uint32_t setting(const char *name, uint32_t otherwise)
{
    const char *text = getenv(name);
    return text == NULL ? otherwise : (uint32_t)strtoul(text, NULL, 10);
}

static void test_lies_end_with_a_sentence(void)
{
    char path[512], folder[] = "/tmp/llm-hostile-XXXXXX", file[64];
    const uint32_t seed = setting("LLMD_HOSTILE_SEED", 1), n = setting("LLMD_HOSTILE_RUNS", RUNS_DEFAULT);
    path_of(current->file, path, sizeof path);
    read_whole(path);
    CHECK(original.n > 0 && mkdtemp(folder) != NULL);
    walk();
    CHECK(n_fields > 100);
    snprintf(file, sizeof file, "%s/model.gguf", folder);
    uint8_t *bytes = malloc(original.n);
    for (uint32_t i = 0; i < n; i++) {
        source = (random_source){seed + i + 0x9e3779b97f4a7c15ull};
        random_next(&source);
        write_file(file, bytes, make_variant(bytes));
        const bool is_well = ends_well(file);
        if (!is_well) {
            printf("LLMD_HOSTILE_SEED=%u LLMD_HOSTILE_RUNS=1, %s\n", seed + i, current->file);
        }
        CHECK(is_well);
    }
    free(bytes);
    free(original.bytes);
    unlink(file);
    rmdir(folder);
}

/* ---- crashes --------------------------------------------------------------------------------------------------------- */

/* Writes llama.cpp's log to a pipe, which is soon full. So the process stops while it opens the model. */
static void open_slowly(int log, const char *path)
{
    model *m = NULL;
    model_options o = usual(path);
    o.crash_notice = "it crashed, says the notice";
    dup2(log, STDERR_FILENO);
    fcntl(STDERR_FILENO, F_SETPIPE_SZ, 4096);
    setenv("LLMD_LLAMA_LOG", "1", 1);
    model_open(path, &o, &m, NULL, 0);
    _exit(0);
}

static void test_a_crash_while_opening_ends_with_the_notice(void)
{
    char path[512], log[4096 * 32], *end = log;
    int ends[2], how = 0;
    path_of(subjects[0].file, path, sizeof path);
    CHECK_INT(pipe(ends), 0);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        open_slowly(ends[1], path);
    }
    close(ends[1]);
    ssize_t n = 0;
    do {
        end += n;
        *end = '\0';
        n = read(ends[0], end, 64);
    } while (n > 0 && strstr(log, "llama_model_loader") == NULL);
    CHECK(n > 0);
    CHECK_INT(kill(child, SIGSEGV), 0);
    while ((n = read(ends[0], end, (size_t)(log + sizeof log - 1 - end))) > 0) {
        end += n;
    }
    *end = '\0';
    waitpid(child, &how, 0);
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 1);
    CHECK(strstr(log, "it crashed, says the notice\n") != NULL);
    close(ends[0]);
}

/* llama.cpp's own way to fail an assertion, once a model is open. */
static void fail_an_assertion(void)
{
    char path[512];
    path_of(subjects[0].file, path, sizeof path);
    model *m = NULL;
    model_options o = usual(path);
    if (model_open(path, &o, &m, NULL, 0) == LLM_OK) {
        ggml_abort("ggml.c", 1, "GGML_ASSERT(%s) failed", "a == b");
    }
}

static void test_a_failed_assertion_has_last_words(void)
{
    char log[4096];
    const int status = child_run(fail_an_assertion, log, sizeof log);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK(strstr(log,
                 "llmd: an assertion of llama.cpp failed and ends the process: ggml.c:1: GGML_ASSERT(a == b) failed; "
                 "in the step: no session\n") != NULL);
}

static void test_model(void)
{
    RUN(test_lies_end_with_a_sentence);
}

int main(void)
{
    for_each_model(test_model);
    if (models != NULL) {
        RUN(test_a_crash_while_opening_ends_with_the_notice);
        RUN(test_a_failed_assertion_has_last_words);
    }
    return CHECK_RESULT();
}
