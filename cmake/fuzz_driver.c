/* A small coverage-guided fuzzer for compilers without libFuzzer. It has libFuzzer's entry point, and its most
 * important options.
 *
 *   fuzz_NAME [-max_total_time=SECONDS] [-runs=N] [-seed=N] [corpus directory]
 *
 * Inputs that reach new code are kept in memory and mutated further. The corpus directory only provides the first
 * inputs, and nothing is written to it. The result depends only on the seed and the number of runs. If a sanitizer
 * stops the process, the input is written to crash-PID in the working directory.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define INPUT_BYTES_MAX 4096
#define CORPUS_MAX 4096
#define EDGES (1u << 16)
#define MUTATIONS_MAX 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);
int LLVMFuzzerInitialize(int *argc, char ***argv) __attribute__((weak));
void __sanitizer_set_death_callback(void (*callback)(void));
void __sanitizer_cov_trace_pc(void);

struct input {
    uint8_t *data;
    size_t n_bytes;
};

static struct input corpus[CORPUS_MAX];
static size_t n_corpus;
static uint8_t current[INPUT_BYTES_MAX];
static size_t n_current;
static uint8_t edge_hit[EDGES]; /* nonzero for each edge that the current run has reached */
static uint8_t edge_seen[EDGES];
static uint32_t touched[EDGES]; /* list of the edges that the current run has reached. Only these are cleared after the
                                 * run */
static uint32_t n_touched;
static uint64_t random_state;

/* Called by the compiler's instrumentation at every basic block. */
void __sanitizer_cov_trace_pc(void)
{
    uintptr_t place = (uintptr_t)__builtin_return_address(0);
    uint32_t edge = (uint32_t)((place * UINT64_C(0x9E3779B97F4A7C15)) >> 48);
    if (!edge_hit[edge]) {
        edge_hit[edge] = 1;
        touched[n_touched++] = edge;
    }
}

static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static size_t random_below(size_t limit)
{
    return limit ? (size_t)(random_next() % limit) : 0;
}

static void crash_save(void)
{
    char name[64];
    snprintf(name, sizeof name, "crash-%ld", (long)getpid());
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, current, n_current) != (ssize_t)n_current) {
        return;
    }
    close(fd);
    fprintf(stderr, "the input that caused the error: %s (%zu bytes)\n", name, n_current);
}

/* Makes the sanitizer handle abort() like other errors, because fuzzers call abort() if a check fails. The sanitizer
 * calls this function when the process starts. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "handle_abort=1";
}

static void corpus_add(const uint8_t *data, size_t n_bytes)
{
    size_t at = n_corpus < CORPUS_MAX ? n_corpus++ : random_below(CORPUS_MAX);
    free(corpus[at].data);
    corpus[at].data = malloc(n_bytes ? n_bytes : 1);
    if (!corpus[at].data) {
        abort();
    }
    memcpy(corpus[at].data, data, n_bytes);
    corpus[at].n_bytes = n_bytes;
}

/* Runs the input `current`. Returns the number of edges that no earlier run has reached. */
static uint32_t run_current(void)
{
    n_touched = 0;
    /* The copy has exactly the size of the input. So the address sanitizer detects a read of the first byte after the
     * end. */
    uint8_t *copy = malloc(n_current ? n_current : 1);
    if (!copy) {
        abort();
    }
    memcpy(copy, current, n_current);
    LLVMFuzzerTestOneInput(copy, n_current);
    free(copy);

    uint32_t n_new = 0;
    for (uint32_t i = 0; i < n_touched; i++) {
        uint32_t edge = touched[i];
        edge_hit[edge] = 0;
        n_new += !edge_seen[edge];
        edge_seen[edge] = 1;
    }
    return n_new;
}

static void seed_file(const char *directory, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "rb");
    if (!file) {
        return;
    }
    n_current = fread(current, 1, sizeof current, file);
    fclose(file);
    run_current();
    corpus_add(current, n_current);
}

static void seed_directory(const char *directory)
{
    DIR *entries = opendir(directory);
    if (!entries) {
        return;
    }
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (entry->d_name[0] != '.') {
            seed_file(directory, entry->d_name);
        }
    }
    closedir(entries);
}

static void bytes_remove(void)
{
    size_t at = random_below(n_current);
    size_t n = 1 + random_below(n_current - at < 32 ? n_current - at : 32);
    n = n > n_current - at ? n_current - at : n;
    memmove(current + at, current + at + n, n_current - at - n);
    n_current -= n;
}

static void bytes_insert(const uint8_t *from, size_t n)
{
    size_t at = random_below(n_current + 1);
    n = n > INPUT_BYTES_MAX - n_current ? INPUT_BYTES_MAX - n_current : n;
    memmove(current + at + n, current + at, n_current - at);
    memcpy(current + at, from, n);
    n_current += n;
}

static void splice_inputs(void)
{
    const struct input *other = &corpus[random_below(n_corpus)];
    size_t from = random_below(other->n_bytes);
    bytes_insert(other->data + from, random_below(other->n_bytes - from + 1));
}

static void mutate(void)
{
    /* Compact binary formats such as MessagePack use these bytes for types and lengths. */
    static const uint8_t interesting[] = {0x00, 0x01, 0x0f, 0x10, 0x1f, 0x20, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf,
                                          0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xca, 0xcb, 0xcc, 0xcd, 0xce, 0xcf,
                                          0xd0, 0xd3, 0xd9, 0xda, 0xdb, 0xdc, 0xdd, 0xde, 0xdf, 0xe0, 0xfe, 0xff};
    uint8_t noise[8];
    for (size_t i = 0; i < sizeof noise; i++) {
        noise[i] = (uint8_t)random_next();
    }
    size_t kind = n_current ? random_below(6) : 4;
    switch (kind) {
    case 0: current[random_below(n_current)] ^= (uint8_t)(1u << random_below(8)); break;
    case 1: current[random_below(n_current)] = noise[0]; break;
    case 2: current[random_below(n_current)] = interesting[random_below(sizeof interesting)]; break;
    case 3: bytes_remove(); break;
    case 4: bytes_insert(noise, 1 + random_below(sizeof noise)); break;
    default: splice_inputs(); break;
    }
}

static uint64_t option(int argc, char **argv, const char *name, uint64_t otherwise)
{
    size_t n = strlen(name);
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], name, n) == 0 && argv[i][n] == '=') {
            return strtoull(argv[i] + n + 1, NULL, 10);
        }
    }
    return otherwise;
}

static uint64_t fuzz(uint64_t runs_max, time_t seconds_max)
{
    uint64_t runs = 0;
    time_t start = time(NULL);
    while (runs < runs_max && ((runs & 255) != 0 || time(NULL) - start < seconds_max)) {
        const struct input *parent = &corpus[random_below(n_corpus)];
        n_current = parent->n_bytes;
        memcpy(current, parent->data, n_current);
        for (size_t i = 1 + random_below(MUTATIONS_MAX); i > 0; i--) {
            mutate();
        }
        if (run_current() > 0) {
            corpus_add(current, n_current);
        }
        runs++;
    }
    return runs;
}

int main(int argc, char **argv)
{
    random_state = option(argc, argv, "-seed", 1) | UINT64_C(0x100000000);
    __sanitizer_set_death_callback(crash_save);
    if (LLVMFuzzerInitialize) {
        LLVMFuzzerInitialize(&argc, &argv);
    }
    run_current();
    corpus_add(current, 0);
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-') {
            seed_directory(argv[i]);
        }
    }
    uint64_t runs = fuzz(option(argc, argv, "-runs", UINT64_MAX), (time_t)option(argc, argv, "-max_total_time", 20));
    uint32_t n_edges = 0;
    for (uint32_t i = 0; i < EDGES; i++) {
        n_edges += edge_seen[i];
    }
    printf("%" PRIu64 " inputs, %" PRIu32 " edges, %zu kept, no fault\n", runs, n_edges, n_corpus);
    return n_edges > 0 ? 0 : 1;
}
