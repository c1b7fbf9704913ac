/* test_attention.c: compares llmd's flash attention on the CPU with the definition, computed in double precision.
 * Varies the sizes of heads, shared KV heads, streams, masks with holes and windows, position biases, soft caps and
 * sinks. Also tests that results have the same bits with any number of threads. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "check.h"
#include "random.h"

#include <ggml-backend.h>
#include <ggml.h>

enum { MEMORY_BYTES = 64 << 20 };

/* Values are near 1. The kernel adds the f32 numbers in another order. */
static const double DIFF_MAX = 2e-5;
/* For the types that llmd's kernel leaves to llama.cpp's kernel, which also rounds the query to 8 bits. */
static const double DIFF_MAX_Q4 = 0.05;

typedef enum { SEES_ALL, SEES_HOLES, SEES_WINDOW, SEES_START, SEES_NOTHING, NO_MASK } sight;

typedef struct shape {
    int k_size, v_size, n_heads, n_kv_heads, n_queries, n_streams, n_positions;
    enum ggml_type type;
    sight sees;
    float max_bias, softcap;
    int has_sinks;
} shape;

static const shape SHAPES[] = {
    /* every head size in use: one query head per KV head, or 2, 4, 7 or 16 */
    {64, 64, 8, 2, 1, 1, 300, GGML_TYPE_F16, SEES_HOLES, 0, 0, 0},
    {80, 80, 4, 4, 1, 3, 256, GGML_TYPE_F16, SEES_HOLES, 0, 0, 0},
    {96, 96, 6, 2, 5, 1, 1000, GGML_TYPE_F32, SEES_HOLES, 0, 0, 0},
    {112, 112, 14, 2, 1, 1, 512, GGML_TYPE_F16, SEES_ALL, 0, 0, 0},
    {128, 128, 16, 8, 1, 4, 768, GGML_TYPE_F16, SEES_HOLES, 0, 0, 0},
    {192, 128, 16, 16, 2, 1, 512, GGML_TYPE_F16, SEES_HOLES, 0, 0, 0},
    {256, 256, 8, 2, 3, 2, 400, GGML_TYPE_F16, SEES_HOLES, 0, 0, 0},
    {576, 512, 16, 1, 1, 1, 333, GGML_TYPE_F16, SEES_ALL, 0, 0, 0},
    /* a head size that the kernel leaves to llama.cpp's kernel */
    {72, 72, 4, 2, 1, 1, 64, GGML_TYPE_F32, SEES_HOLES, 0, 0, 0},
    /* options of models: sinks, softcap, ALiBi */
    {96, 96, 6, 2, 5, 1, 300, GGML_TYPE_F32, SEES_HOLES, 8, 0, 0},
    {256, 256, 8, 2, 3, 2, 400, GGML_TYPE_F16, SEES_HOLES, 0, 50, 0},
    {64, 64, 8, 1, 2, 2, 520, GGML_TYPE_F16, SEES_WINDOW, 0, 0, 1},
    {64, 64, 12, 4, 7, 1, 512, GGML_TYPE_F16, SEES_HOLES, 4, 30, 1},
    {64, 64, 8, 2, 1, 1, 256, GGML_TYPE_F16, NO_MASK, 0, 0, 0},
    /* visible cells: the first ones, a window, none */
    {128, 128, 16, 8, 1, 2, 1024, GGML_TYPE_F16, SEES_START, 0, 0, 0},
    {128, 128, 4, 2, 4, 1, 1024, GGML_TYPE_F16, SEES_WINDOW, 0, 0, 0},
    {64, 64, 4, 2, 2, 1, 256, GGML_TYPE_F16, SEES_NOTHING, 0, 0, 0},
    {64, 64, 4, 2, 2, 1, 256, GGML_TYPE_F16, SEES_NOTHING, 0, 0, 1},
    /* many positions, so that segments are longer; enough queries for tiles, some of which see nothing; whole
     * prompts */
    {64, 64, 2, 1, 1, 1, 9001, GGML_TYPE_F16, SEES_HOLES, 0, 0, 0},
    {64, 64, 4, 2, 63, 1, 257, GGML_TYPE_F16, SEES_HOLES, 0, 0, 0},
    {64, 64, 8, 2, 20, 1, 512, GGML_TYPE_F16, SEES_WINDOW, 0, 0, 0},
    {64, 64, 16, 1, 3, 1, 512, GGML_TYPE_F16, SEES_NOTHING, 0, 0, 1},
    {128, 128, 16, 8, 100, 1, 300, GGML_TYPE_F16, SEES_HOLES, 0, 0, 0},
    {64, 64, 8, 1, 64, 2, 257, GGML_TYPE_F32, SEES_HOLES, 0, 20, 1},
    {64, 64, 8, 1, 64, 2, 257, GGML_TYPE_F16, SEES_HOLES, 0, 20, 1},
    {128, 128, 16, 8, 8, 1, 600, GGML_TYPE_F16, SEES_WINDOW, 0, 0, 0},
    {64, 64, 4, 4, 23, 1, 300, GGML_TYPE_F16, SEES_HOLES, 0, 0, 0},
    {80, 80, 12, 4, 65, 1, 300, GGML_TYPE_F16, SEES_HOLES, 8, 0, 0},
    /* quantized keys and values: few rows, computed 1, 2 and 4 at a time; tiles; all options of models */
    {64, 64, 8, 2, 1, 1, 300, GGML_TYPE_Q8_0, SEES_HOLES, 0, 0, 0},
    {128, 128, 4, 4, 1, 3, 256, GGML_TYPE_Q8_0, SEES_HOLES, 0, 0, 0},
    {128, 128, 16, 8, 1, 4, 768, GGML_TYPE_Q8_0, SEES_HOLES, 0, 0, 0},
    {96, 96, 6, 2, 5, 1, 1000, GGML_TYPE_Q8_0, SEES_HOLES, 8, 0, 0},
    {192, 128, 16, 16, 2, 1, 512, GGML_TYPE_Q8_0, SEES_HOLES, 0, 0, 0},
    {256, 256, 8, 2, 3, 2, 400, GGML_TYPE_Q8_0, SEES_HOLES, 0, 50, 0},
    {576, 512, 16, 1, 1, 1, 333, GGML_TYPE_Q8_0, SEES_ALL, 0, 0, 0},
    {32, 32, 6, 2, 3, 1, 130, GGML_TYPE_Q8_0, SEES_WINDOW, 0, 0, 1},
    {64, 64, 4, 2, 2, 1, 256, GGML_TYPE_Q8_0, SEES_NOTHING, 0, 0, 1},
    {64, 64, 2, 1, 1, 1, 9001, GGML_TYPE_Q8_0, SEES_HOLES, 0, 0, 0},
    {64, 64, 4, 2, 63, 1, 257, GGML_TYPE_Q8_0, SEES_HOLES, 0, 0, 0},
    {64, 64, 8, 1, 64, 2, 257, GGML_TYPE_Q8_0, SEES_HOLES, 0, 20, 1},
    {128, 128, 16, 8, 100, 1, 300, GGML_TYPE_Q8_0, SEES_HOLES, 0, 0, 0},
    {128, 128, 16, 8, 8, 1, 600, GGML_TYPE_Q8_0, SEES_WINDOW, 0, 0, 0},
};

typedef struct problem {
    struct ggml_context *context;
    struct ggml_tensor *q, *k, *v, *mask, *sinks, *out;
    float *k_values, *v_values; /* values as their type rounds them: [stream][position][head][value] */
} problem;

static random_source source = {88172645463325252ull};

static float random_value(void)
{
    return (float)(random_below(&source, 4001) - 2000.0) / 1000.0f;
}

static int is_seen(sight s, int query, int position, int n)
{
    switch (s) {
    case SEES_ALL: return 1;
    case SEES_START: return position < 17;
    case SEES_WINDOW: return position > n / 2 + query && position <= n / 2 + query + 70;
    case SEES_HOLES: return random_below(&source, 3) != 0 && (position / 97 + query) % 2 == 0;
    default: return 0;
    }
}

/* Makes a tensor with the rows of all heads, as in a KV cache. `values` receives the values as the type rounds them. */
static struct ggml_tensor *cache_of(problem *p, const shape *s, int size, float **values)
{
    const int64_t n = (int64_t)size * s->n_kv_heads * s->n_positions * s->n_streams;
    struct ggml_tensor *rows =
        ggml_new_tensor_4d(p->context, s->type, size, s->n_kv_heads, s->n_positions, s->n_streams);
    *values = malloc((size_t)n * sizeof(float));
    for (int64_t i = 0; i < n; i++) {
        (*values)[i] = random_value();
    }
    if (s->type == GGML_TYPE_F32) {
        memcpy(rows->data, *values, (size_t)n * sizeof(float));
    } else {
        ggml_quantize_chunk(s->type, *values, rows->data, 0, n / size, size, NULL);
        ggml_get_type_traits(s->type)->to_float(rows->data, *values, n);
    }
    return ggml_permute(p->context, rows, 0, 2, 1, 3);
}

static struct ggml_tensor *mask_of(problem *p, const shape *s)
{
    struct ggml_tensor *mask =
        ggml_new_tensor_4d(p->context, GGML_TYPE_F16, s->n_positions, s->n_queries, 1, s->n_streams);
    ggml_fp16_t *all = mask->data;
    for (int i = 0; i < s->n_queries * s->n_streams; i++) {
        for (int j = 0; j < s->n_positions; j++) {
            const float distance = s->max_bias > 0 ? -(float)(j % 50) / 8 : 0;
            *all++ = ggml_fp32_to_fp16(is_seen(s->sees, i, j, s->n_positions) ? distance : -INFINITY);
        }
    }
    return mask;
}

static void problem_open(problem *p, const shape *s)
{
    p->context = ggml_init((struct ggml_init_params){MEMORY_BYTES, NULL, false});
    p->q = ggml_new_tensor_4d(p->context, GGML_TYPE_F32, s->k_size, s->n_queries, s->n_heads, s->n_streams);
    for (int64_t i = 0; i < ggml_nelements(p->q); i++) {
        ((float *)p->q->data)[i] = random_value();
    }
    p->k = cache_of(p, s, s->k_size, &p->k_values);
    p->v = cache_of(p, s, s->v_size, &p->v_values);
    p->mask = s->sees == NO_MASK ? NULL : mask_of(p, s);
    p->sinks = ggml_new_tensor_1d(p->context, GGML_TYPE_F32, s->n_heads);
    for (int i = 0; i < s->n_heads; i++) {
        ((float *)p->sinks->data)[i] = random_value();
    }
    p->out = ggml_flash_attn_ext(p->context, p->q, p->k, p->v, p->mask, 1.0f / sqrtf((float)s->k_size), s->max_bias,
                                 s->softcap);
    ggml_flash_attn_ext_add_sinks(p->out, s->has_sinks ? p->sinks : NULL);
}

static void problem_close(problem *p)
{
    free(p->k_values);
    free(p->v_values);
    ggml_free(p->context);
}

/* ---- by the definition ------------------------------------------------------------------------------------------- */

static double slope_of(const shape *s, int head)
{
    const int n = 1 << (int)floor(log2(s->n_heads));
    const double bias = s->max_bias;
    return bias <= 0 ? 1 : head < n ? pow(2, -bias / n * (head + 1)) : pow(2, -bias / 2 / n * (2 * (head - n) + 1));
}

static const float *cached(const shape *s, const float *values, int size, int stream, int position, int head)
{
    const int kv_head = head / (s->n_heads / s->n_kv_heads);
    return values + (((int64_t)stream * s->n_positions + position) * s->n_kv_heads + kv_head) * size;
}

static double score_of(const problem *p, const shape *s, int stream, int head, int query, int position)
{
    const float *q =
        (const float *)p->q->data + (((int64_t)stream * s->n_heads + head) * s->n_queries + query) * s->k_size;
    const float *k = cached(s, p->k_values, s->k_size, stream, position, head);
    const ggml_fp16_t *mask = p->mask == NULL ? NULL : p->mask->data;
    double dot = 0;
    for (int i = 0; i < s->k_size; i++) {
        dot += (double)q[i] * k[i];
    }
    dot /= sqrt(s->k_size);
    dot = s->softcap != 0 ? s->softcap * tanh(dot / s->softcap) : dot;
    return mask == NULL
               ? dot
               : dot +
                     slope_of(s, head) *
                         ggml_fp16_to_fp32(mask[((int64_t)stream * s->n_queries + query) * s->n_positions + position]);
}

/* Computes one row of the result in double precision. */
static void row_of(const problem *p, const shape *s, int stream, int head, int query, double *out)
{
    double *weights = malloc((size_t)s->n_positions * sizeof(double));
    const double sink = s->has_sinks ? ((const float *)p->sinks->data)[head] : -INFINITY;
    double max = sink, sum = 0;
    for (int j = 0; j < s->n_positions; j++) {
        weights[j] = score_of(p, s, stream, head, query, j);
        max = fmax(max, weights[j]);
    }
    memset(out, 0, (size_t)s->v_size * sizeof(double));
    for (int j = 0; j < s->n_positions && max > -INFINITY; j++) {
        const double weight = exp(weights[j] - max);
        const float *v = cached(s, p->v_values, s->v_size, stream, j, head);
        sum += weight;
        for (int i = 0; i < s->v_size; i++) {
            out[i] += weight * v[i];
        }
    }
    sum += s->has_sinks ? exp(sink - max) : 0;
    for (int i = 0; i < s->v_size && sum > 0; i++) {
        out[i] /= sum;
    }
    free(weights);
}

/* Returns the largest difference from the expected result, or NaN if a value is not a number. */
static double difference(const problem *p, const shape *s)
{
    double worst = 0, *expected = malloc((size_t)s->v_size * sizeof(double));
    const float *found = p->out->data;
    for (int stream = 0; stream < s->n_streams; stream++) {
        for (int query = 0; query < s->n_queries; query++) {
            for (int head = 0; head < s->n_heads; head++, found += s->v_size) {
                row_of(p, s, stream, head, query, expected);
                for (int i = 0; i < s->v_size; i++) {
                    const double diff = fabs(expected[i] - found[i]);
                    worst = diff <= worst ? worst : diff;
                }
            }
        }
    }
    free(expected);
    return worst;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static ggml_backend_t processor;

static void compute(const problem *p, int n_threads)
{
    struct ggml_cgraph *graph = ggml_new_graph(p->context);
    ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(ggml_backend_get_device(processor));
    const ggml_backend_set_n_threads_t set_n_threads =
        (ggml_backend_set_n_threads_t)ggml_backend_reg_get_proc_address(registry, "ggml_backend_set_n_threads");
    set_n_threads(processor, n_threads);
    ggml_build_forward_expand(graph, p->out);
    memset(p->out->data, 0xff, ggml_nbytes(p->out)); /* NaN, so that a value that is not written is seen */
    ggml_backend_graph_compute(processor, graph);
}

static void test_by_the_definition(void)
{
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++) {
        problem p;
        problem_open(&p, &SHAPES[i]);
        compute(&p, 2);
        const double diff = difference(&p, &SHAPES[i]);
        problem_close(&p);
        if (!(diff <= DIFF_MAX)) {
            printf("shape %zu differs by %g\n", i, diff);
        }
        CHECK(diff <= DIFF_MAX);
    }
}

/* Each position counts: a mask that differs at one position changes the result. */
static void test_one_position(void)
{
    const shape s = {64, 64, 8, 2, 1, 2, 600, GGML_TYPE_F16, SEES_ALL, 0, 0, 0};
    const int places[] = {0, 15, 16, 63, 64, 255, 256, 511, 599};
    problem p;
    problem_open(&p, &s);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        ggml_fp16_t *cell = (ggml_fp16_t *)p.mask->data + s.n_positions + places[i];
        *cell = ggml_fp32_to_fp16(-INFINITY);
        compute(&p, 2);
        CHECK(difference(&p, &s) <= DIFF_MAX);
        *cell = ggml_fp32_to_fp16(0);
        CHECK(difference(&p, &s) > 10 * DIFF_MAX);
    }
    problem_close(&p);
}

static void test_the_same_bits_with_any_number_of_threads(void)
{
    const shape shapes[] = {{128, 128, 16, 8, 1, 1, 900, GGML_TYPE_F16, SEES_HOLES, 0, 0, 0},
                            {64, 64, 8, 2, 3, 5, 9001, GGML_TYPE_F16, SEES_HOLES, 0, 0, 0},
                            {64, 64, 8, 2, 130, 1, 600, GGML_TYPE_F16, SEES_HOLES, 0, 0, 0},
                            {64, 64, 8, 2, 1, 1, 900, GGML_TYPE_Q8_0, SEES_HOLES, 0, 0, 0},
                            {64, 64, 8, 2, 130, 1, 600, GGML_TYPE_Q8_0, SEES_HOLES, 0, 0, 0},
                            {128, 128, 16, 8, 20, 2, 900, GGML_TYPE_F16, SEES_HOLES, 0, 0, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        problem p;
        problem_open(&p, &shapes[i]);
        const size_t n_bytes = ggml_nbytes(p.out);
        void *first = malloc(n_bytes);
        compute(&p, 1);
        memcpy(first, p.out->data, n_bytes);
        for (int n_threads = 2; n_threads <= 5; n_threads++) {
            compute(&p, n_threads);
            CHECK(memcmp(first, p.out->data, n_bytes) == 0);
        }
        free(first);
        problem_close(&p);
    }
}

static void test_a_type_of_llama(void)
{
    const shape s = {64, 64, 8, 2, 1, 1, 256, GGML_TYPE_Q4_0, SEES_HOLES, 0, 0, 0};
    problem p;
    problem_open(&p, &s);
    compute(&p, 2);
    CHECK(difference(&p, &s) <= DIFF_MAX_Q4);
    problem_close(&p);
}

int main(void)
{
    ggml_backend_load_all();
    processor = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    RUN(test_by_the_definition);
    RUN(test_one_position);
    RUN(test_the_same_bits_with_any_number_of_threads);
    RUN(test_a_type_of_llama);
    ggml_backend_free(processor);
    return CHECK_RESULT();
}
