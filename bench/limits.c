/* limits: how fast this machine reads memory and multiplies, and how much of both a token of a model needs.
 *
 *   limits MODEL N_THREADS FEATURES REPEATS
 *
 * FEATURES is avx2, avxvnni, avx512 or vnni, as in LLMD_CPU_FEATURES; "all" takes the best instructions of the processor.
 * Prints lines of two columns:
 *   memory_gb_s      bytes that N_THREADS threads together read from memory, in 10^9 bytes/s
 *   word_gmac_s      multiply-adds of 16-bit integers, in 10^9/s. Weights of 8 bits without VNNI need these, because two
 *                    products of bytes do not fit into 16 bits.
 *   byte_gmac_s      multiply-adds of bytes. With AVX2 alone, 16-bit sums are widened only once for several products, as for
 *                    weights of 4 bits.
 *   weight_bytes     bytes of the weights that a token is multiplied with
 *   macs             multiply-adds of a token with the weights, without the output matrix
 *   output_macs      multiply-adds with the output matrix, which only tokens with logits need
 *   position_bytes   bytes of keys and values (f16) of one position
 *   position_macs    multiply-adds of a token with the keys and values of one position
 * The loops of the multiply-adds have no loads and no scales, so no kernel reaches them. AMX is not measured. On processors
 * other than x86-64, the multiply-adds are left out. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <ggml.h>
#include <gguf.h>

enum { THREADS_MAX = 256, BUFFER_BYTES = 256 << 20, MULTIPLY_TURNS = 4000000, N_SUMS = 6 };

static volatile uint64_t sink; /* keeps the compiler from leaving out the loops */

static void die(const char *text)
{
    fprintf(stderr, "limits: %s\n", text);
    exit(1);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* --- loops of one thread ----------------------------------------------------------------------------------------- */

/* Each loop returns how many bytes or multiply-adds it did. */
typedef double loop(const uint64_t *memory);

static double read_memory(const uint64_t *memory)
{
    uint64_t sums[8] = {0};
    for (size_t i = 0; i < BUFFER_BYTES / sizeof *memory; i += 8) {
        for (size_t k = 0; k < 8; k++) {
            sums[k] += memory[i + k];
        }
    }
    for (size_t k = 0; k < 8; k++) {
        sink += sums[k];
    }
    return BUFFER_BYTES;
}

#ifdef __x86_64__

/* The empty assembly hides the operands from the compiler, so that it repeats each product. The sums are independent of
 * each other, so the loop does not wait for results. */
#define REPEAT_MULTIPLY(vector, zero, one_step)                                                                        \
    vector a = zero, b = zero, sums[N_SUMS], all = zero;                                                               \
    for (int k = 0; k < N_SUMS; k++) {                                                                                 \
        sums[k] = zero;                                                                                                \
    }                                                                                                                  \
    for (int turn = 0; turn < MULTIPLY_TURNS; turn++) {                                                                \
        _Pragma("GCC unroll 6") for (int k = 0; k < N_SUMS; k++)                                                       \
        {                                                                                                              \
            __asm__ volatile("" : "+x"(a), "+x"(b));                                                                   \
            one_step;                                                                                                  \
        }                                                                                                              \
    }                                                                                                                  \
    _Pragma("GCC unroll 6") for (int k = 0; k < N_SUMS; k++)                                                           \
    {                                                                                                                  \
        all |= sums[k];                                                                                                \
    }                                                                                                                  \
    sink += (uint64_t)all[0];                                                                                          \
    return (double)MULTIPLY_TURNS * N_SUMS * sizeof(vector)

__attribute__((target("avx2"))) static double words_avx2(const uint64_t *memory)
{
    (void)memory;
    REPEAT_MULTIPLY(__m256i, _mm256_setzero_si256(), sums[k] = _mm256_add_epi32(sums[k], _mm256_madd_epi16(a, b))) / 2;
}

__attribute__((target("avx2"))) static double bytes_avx2(const uint64_t *memory)
{
    (void)memory;
    REPEAT_MULTIPLY(__m256i, _mm256_setzero_si256(), sums[k] = _mm256_add_epi16(sums[k], _mm256_maddubs_epi16(a, b)));
}

__attribute__((target("avx512f,avx512bw"))) static double words_avx512(const uint64_t *memory)
{
    (void)memory;
    REPEAT_MULTIPLY(__m512i, _mm512_setzero_si512(), sums[k] = _mm512_add_epi32(sums[k], _mm512_madd_epi16(a, b))) / 2;
}

__attribute__((target("avx512f,avx512bw"))) static double bytes_avx512(const uint64_t *memory)
{
    (void)memory;
    REPEAT_MULTIPLY(__m512i, _mm512_setzero_si512(), sums[k] = _mm512_add_epi16(sums[k], _mm512_maddubs_epi16(a, b)));
}

__attribute__((target("avxvnni"))) static double bytes_avxvnni(const uint64_t *memory)
{
    (void)memory;
    REPEAT_MULTIPLY(__m256i, _mm256_setzero_si256(), sums[k] = _mm256_dpbusd_avx_epi32(sums[k], a, b));
}

__attribute__((target("avx512f,avx512vnni"))) static double bytes_vnni(const uint64_t *memory)
{
    (void)memory;
    REPEAT_MULTIPLY(__m512i, _mm512_setzero_si512(), sums[k] = _mm512_dpbusd_epi32(sums[k], a, b));
}

/* Sets the loops for the instructions. Without VNNI, words are multiplied as words. With VNNI, bytes have 32-bit sums. */
static void choose(const char *features, loop **words, loop **bytes)
{
    const bool any = strcmp(features, "all") == 0;
    __builtin_cpu_init();
    if (strcmp(features, "vnni") == 0 || (any && __builtin_cpu_supports("avx512vnni"))) {
        *words = *bytes = bytes_vnni;
    } else if (strcmp(features, "avxvnni") == 0) {
        *words = *bytes = bytes_avxvnni;
    } else if (strcmp(features, "avx512") == 0 || (any && __builtin_cpu_supports("avx512bw"))) {
        *words = words_avx512;
        *bytes = bytes_avx512;
    } else if (strcmp(features, "avx2") == 0 || (any && __builtin_cpu_supports("avx2"))) {
        *words = words_avx2;
        *bytes = bytes_avx2;
    }
}

#else

static void choose(const char *features, loop **words, loop **bytes)
{
    (void)features, (void)words, (void)bytes;
}

#endif

/* --- all threads ------------------------------------------------------------------------------------------------- */

typedef struct worker {
    pthread_t thread;
    uint64_t *memory; /* owned */
    loop *run;
    double n_done, begin_s, end_s;
} worker;

static pthread_barrier_t start;

static void *work(void *data)
{
    worker *w = data;
    pthread_barrier_wait(&start);
    w->begin_s = now_s();
    w->n_done = w->run(w->memory);
    w->end_s = now_s();
    return NULL;
}

static double rate_once(worker *workers, int n, loop *run)
{
    pthread_barrier_init(&start, NULL, (unsigned)n);
    for (int i = 0; i < n; i++) {
        workers[i].run = run;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
            die("cannot start a thread");
        }
    }
    double n_done = 0, begin_s = 0, end_s = 0;
    for (int i = 0; i < n; i++) {
        const worker *w = &workers[i];
        pthread_join(w->thread, NULL);
        n_done += w->n_done;
        begin_s = i == 0 || w->begin_s < begin_s ? w->begin_s : begin_s;
        end_s = w->end_s > end_s ? w->end_s : end_s;
    }
    pthread_barrier_destroy(&start);
    return n_done / (end_s - begin_s);
}

/* Prints the highest rate, because it is the limit. */
static void print_rate(const char *name, worker *workers, int n, loop *run, int repeats)
{
    double most = 0;
    for (int i = 0; run != NULL && i < repeats; i++) {
        const double rate = rate_once(workers, n, run);
        most = rate > most ? rate : most;
    }
    if (run != NULL) {
        printf("%s,%.2f\n", name, most / 1e9);
    }
}

static void print_machine(const char *features, int n, int repeats)
{
    static worker workers[THREADS_MAX];
    for (int i = 0; i < n; i++) {
        workers[i].memory = malloc(BUFFER_BYTES);
        if (workers[i].memory == NULL) {
            die("memory is short");
        }
        memset(workers[i].memory, 1, BUFFER_BYTES);
    }
    loop *words = NULL, *bytes = NULL;
    choose(features, &words, &bytes);
    print_rate("memory_gb_s", workers, n, read_memory, repeats);
    print_rate("word_gmac_s", workers, n, words, repeats);
    print_rate("byte_gmac_s", workers, n, bytes, repeats);
    for (int i = 0; i < n; i++) {
        free(workers[i].memory);
    }
}

/* --- the model --------------------------------------------------------------------------------------------------- */

static double number_of(const struct gguf_context *file, const char *suffix)
{
    char key[256];
    const int64_t name = gguf_find_key(file, "general.architecture");
    snprintf(key, sizeof key, "%s.%s", name < 0 ? "" : gguf_get_val_str(file, name), suffix);
    const int64_t found = gguf_find_key(file, key);
    return found >= 0 && gguf_get_kv_type(file, found) == GGUF_TYPE_UINT32 ? gguf_get_val_u32(file, found) : 0;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Returns true if the tensor is the output of a layer's attention, and the layer has keys. A recurrent layer has none. */
static bool has_keys(struct ggml_context *tensors, const char *name)
{
    static const char end[] = "attn_output.weight";
    char key[GGML_MAX_NAME + sizeof end];
    if (!ends_with(name, end)) {
        return false;
    }
    snprintf(key, sizeof key, "%.*sattn_k.weight", (int)(strlen(name) - strlen(end)), name);
    return ggml_get_tensor(tensors, key) != NULL;
}

static void print_model(const char *path)
{
    struct ggml_context *tensors = NULL;
    struct gguf_context *file = gguf_init_from_file(path, (struct gguf_init_params){.no_alloc = true, .ctx = &tensors});
    if (file == NULL) {
        die("cannot read the model");
    }
    const double n_experts = number_of(file, "expert_count"), n_used = number_of(file, "expert_used_count");
    const bool has_output = ggml_get_tensor(tensors, "output.weight") != NULL;
    double weight_bytes = 0, macs = 0, output_macs = 0, position_bytes = 0, position_macs = 0;
    for (struct ggml_tensor *t = ggml_get_first_tensor(tensors); t != NULL; t = ggml_get_next_tensor(tensors, t)) {
        const char *name = ggml_get_name(t);
        const bool is_embedding = strcmp(name, "token_embd.weight") == 0;
        if (ggml_n_dims(t) < 2 || (is_embedding && has_output)) {
            continue; /* the row of one token is looked up */
        }
        const double share = strstr(name, "_exps") != NULL && n_experts > 0 ? n_used / n_experts : 1;
        const bool is_output = is_embedding || strcmp(name, "output.weight") == 0;
        weight_bytes += share * (double)ggml_nbytes(t);
        *(is_output ? &output_macs : &macs) += share * (double)ggml_nelements(t);
        if (ends_with(name, ".attn_k.weight") || ends_with(name, ".attn_v.weight")) {
            position_bytes += 2 * (double)t->ne[1];
        }
        if (has_keys(tensors, name)) {
            position_macs += 2 * (double)t->ne[0]; /* a query with a key, and a weight with a value */
        }
    }
    printf("weight_bytes,%.0f\nmacs,%.0f\noutput_macs,%.0f\nposition_bytes,%.0f\nposition_macs,%.0f\n", weight_bytes,
           macs, output_macs, position_bytes, position_macs);
    gguf_free(file);
    ggml_free(tensors);
}

int main(int argc, char **argv)
{
    const int n_threads = argc == 5 ? atoi(argv[2]) : 0, repeats = argc == 5 ? atoi(argv[4]) : 0;
    if (n_threads < 1 || n_threads > THREADS_MAX || repeats < 1) {
        die("usage: limits MODEL N_THREADS FEATURES REPEATS; at most 256 threads");
    }
    print_machine(argv[3], n_threads, repeats);
    print_model(argv[1]);
    return 0;
}
