/* weights: products of quantized weights with rows of activations, by one thread.
 *
 *   weights N_IN N_OUT REPEATS [TYPE...]
 *
 * Prints one line per case: type,rows,layout,gb_s,gmac_s: the bytes of the weights, and the multiply-adds, by the time of a
 * product. The layouts are
 *   llmd    weights in groups of sixteen rows (cmake/llama/weights-rows.h), or that of AMX
 *   repack  llama.cpp's own layout. It takes weights with 8 rows more, which are no whole groups; types without one are left
 *           out
 *   file    as in the file, for llama.cpp's other kernels
 * They take turns, and each line has the median of all turns. A first line, memory,0,read, says how fast the thread reads
 * memory. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>

#include "../tests/c/buffer_types.h"

enum { CONTEXT_BYTES = 1 << 20, MORE_ROWS = 8, REPEATS_MAX = 99, N_LAYOUTS = 3 };

static const enum ggml_type TYPES[] = {GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_MXFP4,  GGML_TYPE_Q4_K,
                                       GGML_TYPE_Q5_K, GGML_TYPE_Q6_K, GGML_TYPE_IQ4_XS, GGML_TYPE_Q5_0};
static const int ROWS[] = {1, 4, 16, 512};
static const char *const LAYOUTS[N_LAYOUTS] = {"llmd", "repack", "file"};

typedef struct product {
    struct ggml_context *context;
    ggml_backend_buffer_t weights_buffer, buffer;
    struct ggml_cgraph *graph;
    double us[REPEATS_MAX];
} product;

static ggml_backend_t processor;

static void die(const char *what)
{
    fprintf(stderr, "weights: %s\n", what);
    exit(1);
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static ggml_backend_buffer_type_t buffer_type_in(int layout)
{
    ggml_backend_buffer_type_t repack = buffer_type_of(processor, "CPU_REPACK"), amx = buffer_type_of(processor, "AMX");
    return layout == 2 ? ggml_backend_cpu_buffer_type() : layout == 0 && amx != NULL ? amx : repack;
}

static struct ggml_context *context_new(void)
{
    return ggml_init((struct ggml_init_params){CONTEXT_BYTES, NULL, true});
}

/* Weights of one kind of block over and over: the speed does not depend on their values. */
static void fill(struct ggml_tensor *weights)
{
    const size_t n_bytes = ggml_nbytes(weights);
    const int64_t n_in = weights->ne[0];
    float *values = malloc((size_t)n_in * sizeof(float));
    char *packed = malloc(n_bytes);
    for (int64_t i = 0; i < n_in; i++) {
        values[i] = (float)((i * 7919) % 255 - 127) / 127;
    }
    const size_t row_bytes = ggml_quantize_chunk(weights->type, values, packed, 0, 1, n_in, NULL);
    for (size_t at = row_bytes; at < n_bytes; at += row_bytes) {
        memcpy(packed + at, packed, row_bytes);
    }
    ggml_backend_tensor_set(weights, packed, 0, n_bytes);
    free(packed);
    free(values);
}

/* False if the layout does not take these weights. */
static int weights_open(product *p, enum ggml_type type, int layout, int64_t n_in, int64_t n_out,
                        struct ggml_tensor **weights)
{
    ggml_backend_buffer_type_t buffer_type = buffer_type_in(layout);
    struct ggml_context *context = context_new();
    p->context = context;
    *weights = ggml_new_tensor_2d(context, type, n_in, layout == 1 ? n_out + MORE_ROWS : n_out);
    if (buffer_type == NULL) {
        return 0;
    }
    ggml_backend_buffer_t empty = ggml_backend_buft_alloc_buffer(buffer_type, 0);
    (*weights)->buffer = empty;
    struct ggml_tensor *row = ggml_new_tensor_2d(context, GGML_TYPE_F32, n_in, 1);
    const int takes = ggml_backend_supports_op(processor, ggml_mul_mat(context, *weights, row));
    (*weights)->buffer = NULL;
    ggml_backend_buffer_free(empty);
    if (!takes) {
        return 0;
    }
    ggml_free(context);
    p->context = context_new();
    *weights = ggml_new_tensor_2d(p->context, type, n_in, layout == 1 ? n_out + MORE_ROWS : n_out);
    p->weights_buffer = ggml_backend_alloc_ctx_tensors_from_buft(p->context, buffer_type);
    fill(*weights);
    return 1;
}

static void rows_open(product *p, struct ggml_tensor *weights, int n_rows)
{
    struct ggml_context *context =
        ggml_init((struct ggml_init_params){ggml_graph_overhead() + CONTEXT_BYTES, NULL, true});
    struct ggml_tensor *rows = ggml_new_tensor_2d(context, GGML_TYPE_F32, weights->ne[0], n_rows);
    struct ggml_tensor *out = ggml_mul_mat(context, weights, rows);
    p->graph = ggml_new_graph(context);
    ggml_build_forward_expand(p->graph, out);
    p->buffer = ggml_backend_alloc_ctx_tensors_from_buft(context, ggml_backend_cpu_buffer_type());
    for (int64_t i = 0; i < ggml_nelements(rows); i++) {
        ((float *)rows->data)[i] = (float)((i * 104729) % 255 - 127) / 127;
    }
}

static int in_order(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(enum ggml_type type, int64_t n_in, int64_t n_out, int repeats)
{
    static product products[N_LAYOUTS];
    struct ggml_tensor *weights[N_LAYOUTS];
    int has[N_LAYOUTS];
    for (int i = 0; i < N_LAYOUTS; i++) {
        has[i] = weights_open(&products[i], type, i, n_in, n_out, &weights[i]);
    }
    for (size_t k = 0; k < sizeof ROWS / sizeof *ROWS; k++) {
        for (int i = 0; i < N_LAYOUTS; i++) {
            if (has[i]) {
                rows_open(&products[i], weights[i], ROWS[k]);
            }
        }
        for (int turn = -1; turn < repeats; turn++) { /* the first one only warms up */
            for (int i = 0; i < N_LAYOUTS; i++) {
                const double begin_us = now_us();
                if (has[i]) {
                    ggml_backend_graph_compute(processor, products[i].graph);
                }
                products[i].us[turn < 0 ? 0 : turn] = now_us() - begin_us;
            }
        }
        for (int i = 0; i < N_LAYOUTS; i++) {
            if (has[i]) {
                qsort(products[i].us, (size_t)repeats, sizeof(double), in_order);
                const double us = products[i].us[repeats / 2];
                printf("%s,%d,%s,%.2f,%.2f\n", ggml_type_name(type), ROWS[k], LAYOUTS[i],
                       (double)ggml_nbytes(weights[i]) / us / 1e3,
                       (double)weights[i]->ne[0] * (double)weights[i]->ne[1] * ROWS[k] / us / 1e3);
                ggml_backend_buffer_free(products[i].buffer);
            }
        }
        fflush(stdout);
    }
    for (int i = 0; i < N_LAYOUTS; i++) {
        if (has[i]) {
            ggml_backend_buffer_free(products[i].weights_buffer);
        }
        ggml_free(products[i].context);
    }
}

/* Sums of eight numbers at a time, so that the loop waits for memory alone. */
static void measure_memory(int repeats)
{
    enum { BYTES = 256 << 20, N = BYTES / sizeof(uint64_t) };
    uint64_t *all = malloc(BYTES), sums[8] = {0};
    static double us[REPEATS_MAX];
    memset(all, 1, BYTES);
    for (int turn = 0; turn < repeats; turn++) {
        const double begin_us = now_us();
        for (size_t i = 0; i < N; i += 8) {
            for (int k = 0; k < 8; k++) {
                sums[k] += all[i + (size_t)k];
            }
        }
        us[turn] = now_us() - begin_us;
    }
    if (sums[0] + sums[7] == 0) {
        die("the memory was not read");
    }
    qsort(us, (size_t)repeats, sizeof(double), in_order);
    printf("memory,0,read,%.2f,0\n", BYTES / us[repeats / 2] / 1e3);
    free(all);
}

static void say_nothing(enum ggml_log_level level, const char *text, void *data)
{
    (void)level, (void)text, (void)data;
}

int main(int argc, char **argv)
{
    if (argc < 4 || atoi(argv[1]) % 256 != 0 || atoi(argv[2]) % 16 != 0 || atoi(argv[3]) < 1 ||
        atoi(argv[3]) > REPEATS_MAX) {
        die("usage: weights N_IN N_OUT REPEATS [TYPE...]; N_IN is a multiple of 256, N_OUT of 16, REPEATS at most 99");
    }
    ggml_log_set(say_nothing, NULL);
    ggml_backend_load_all();
    processor = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(ggml_backend_get_device(processor));
    const ggml_backend_set_n_threads_t set_n_threads =
        (ggml_backend_set_n_threads_t)ggml_backend_reg_get_proc_address(registry, "ggml_backend_set_n_threads");
    set_n_threads(processor, 1);
    measure_memory(atoi(argv[3]));
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
        int is_asked = argc == 4;
        for (int k = 4; k < argc; k++) {
            is_asked |= strcmp(argv[k], ggml_type_name(TYPES[i])) == 0;
        }
        if (is_asked) {
            measure(TYPES[i], atoi(argv[1]), atoi(argv[2]), atoi(argv[3]));
        }
    }
    ggml_backend_free(processor);
    return 0;
}
