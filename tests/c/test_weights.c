/* test_weights.c: compares products with repacked weights (AMX's layout and those of weights-rows.h) with the
 * definition, computed in double precision. Tests every type that has such a layout, few and many rows, several
 * sequences, rows that are not adjacent, rows for some of many experts, and any number of threads. Also tests which
 * products are left to other kernels, when there is memory for such a layout, and the layout of many rows and of
 * experts. The inputs are numbers that quantization does not change. So results must be exact, apart from the order of
 * summation.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "buffer_types.h"
#include "check.h"
#include "random.h"

#include "model/llama/file.h"

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>

enum { CONTEXT_BYTES = 1 << 20, SCALE_BLOCK = 32, EXACT_MAX = 127, N_IN = 512, N_OUT = 96, SEED = 20260 };

/* Largest difference, as a part of the sum of the products' absolute values. For Q4_1, the sum of each block's inputs
 * has half precision. */
static const double DIFF_MAX = 1e-5;
static const double DIFF_MAX_HALF = 1e-3;

static const enum ggml_type TYPES_AMX[] = {GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1,  GGML_TYPE_Q4_K,
                                           GGML_TYPE_Q5_K, GGML_TYPE_Q6_K, GGML_TYPE_IQ4_XS};
static const enum ggml_type TYPES_ROWS[] = {GGML_TYPE_Q8_0,   GGML_TYPE_Q5_0,  GGML_TYPE_Q4_0,
                                            GGML_TYPE_IQ4_NL, GGML_TYPE_MXFP4, GGML_TYPE_Q4_K,
                                            GGML_TYPE_Q5_K,   GGML_TYPE_Q6_K,  GGML_TYPE_IQ4_XS};
enum { N_TYPES_AMX = sizeof TYPES_AMX / sizeof *TYPES_AMX, N_TYPES_ROWS = sizeof TYPES_ROWS / sizeof *TYPES_ROWS };

typedef enum { TIGHT, SPACED, SWAPPED } layout;

typedef struct shape {
    int n_in, n_out, n_rows, n_seq, n_more;
    layout lies;
} shape;

static const shape SHAPES[] = {
    {N_IN, N_OUT, 1, 1, 1, TIGHT},
    {N_IN, N_OUT, 2, 1, 1, TIGHT},
    {N_IN, N_OUT, 3, 1, 1, TIGHT},
    {N_IN, N_OUT, 16, 1, 1, TIGHT},
    {N_IN, N_OUT, 17, 1, 1, TIGHT},
    {N_IN, N_OUT, 31, 1, 1, TIGHT},
    {N_IN, N_OUT, 32, 1, 1, TIGHT},
    {N_IN, N_OUT, 33, 1, 1, TIGHT},
    {N_IN, N_OUT, 512, 1, 1, TIGHT},
    /* one block of inputs, the smallest number of outputs, more of both than a tile has */
    {256, 32, 1, 1, 1, TIGHT},
    {256, 32, 40, 1, 1, TIGHT},
    {2048, 160, 5, 1, 1, TIGHT},
    {2048, 352, 1, 1, 1, TIGHT},
    /* one matrix of weights for several sequences */
    {N_IN, N_OUT, 1, 2, 1, TIGHT},
    {N_IN, N_OUT, 1, 16, 1, TIGHT},
    {N_IN, N_OUT, 3, 7, 1, TIGHT},
    {N_IN, N_OUT, 17, 2, 3, TIGHT},
    {N_IN, N_OUT, 1, 1, 5, TIGHT},
    /* rows of a wider tensor, and rows in which the sequences alternate */
    {N_IN, N_OUT, 5, 1, 1, SPACED},
    {N_IN, N_OUT, 4, 3, 2, SPACED},
    {N_IN, N_OUT, 4, 3, 1, SWAPPED},
};

static ggml_backend_t processor;
static ggml_backend_buffer_type_t layout_type; /* the layout that is tested */
static const enum ggml_type *types;            /* the types that this layout supports */
static int n_types;
static random_source source = {SEED};

typedef struct problem {
    struct ggml_context *context, *weights_context;
    ggml_backend_buffer_t weights_buffer, buffer;
    struct ggml_tensor *weights, *in, *rows, *ids, *out; /* `ids` has the chosen experts */
    float *values;                                       /* the weights, rounded as their type rounds them */
} problem;

static struct ggml_context *context_new(void)
{
    return ggml_init((struct ggml_init_params){CONTEXT_BYTES, NULL, true});
}

/* Gives the weights the packed values, as they are in a file. */
static void weights_take(const problem *p, const void *packed)
{
    ggml_get_type_traits(p->weights->type)->to_float(packed, p->values, ggml_nelements(p->weights));
    ggml_backend_tensor_set(p->weights, packed, 0, ggml_nbytes(p->weights));
}

static void weights_make(problem *p, enum ggml_type type, int n_in, int n_out, int n_matrices)
{
    const int64_t n = (int64_t)n_in * n_out * n_matrices;
    p->values = malloc((size_t)n * sizeof(float));
    for (int64_t i = 0; i < n; i++) {
        p->values[i] = (float)(random_below(&source, 4001) - 2000.0) / 1000.0f;
    }
    p->weights_context = context_new();
    p->weights = ggml_new_tensor_3d(p->weights_context, type, n_in, n_out, n_matrices);
    p->weights_buffer = ggml_backend_alloc_ctx_tensors_from_buft(p->weights_context, layout_type);
    void *packed = malloc(ggml_nbytes(p->weights));
    ggml_quantize_chunk(type, p->values, packed, 0, (int64_t)n_out * n_matrices, n_in, NULL);
    weights_take(p, packed);
    free(packed);
}

/* Makes a tensor of rows, and the view of it that is multiplied. */
static void rows_make(problem *p, const shape *s)
{
    struct ggml_context *c = p->context;
    const int n_wide = s->lies == SPACED ? 2 * s->n_in : s->n_in;
    if (s->lies == SWAPPED) {
        p->in = ggml_new_tensor_4d(c, GGML_TYPE_F32, n_wide, s->n_seq, s->n_rows, s->n_more);
        p->rows = ggml_permute(c, p->in, 0, 2, 1, 3);
    } else {
        p->in = ggml_new_tensor_4d(c, GGML_TYPE_F32, n_wide, s->n_rows, s->n_seq, s->n_more);
        p->rows = ggml_view_4d(c, p->in, s->n_in, s->n_rows, s->n_seq, s->n_more, p->in->nb[1], p->in->nb[2],
                               p->in->nb[3], 0);
    }
}

/* Fills the rows with integers times a power of two. The largest value in each block is the largest that 8 bits can
 * represent. So rounding to 8 bits changes nothing. */
static void rows_fill(const struct ggml_tensor *in)
{
    float *values = in->data;
    for (int64_t row = 0; row < ggml_nrows(in); row++) {
        const float unit = ldexpf(1.0f, (int)random_below(&source, 9) - 8);
        for (int64_t i = 0; i < in->ne[0]; i++) {
            const int n = i % SCALE_BLOCK == 3 ? EXACT_MAX : (int)random_below(&source, 2 * EXACT_MAX + 1) - EXACT_MAX;
            *values++ = unit * (float)n;
        }
    }
}

static void problem_open(problem *p, enum ggml_type type, const shape *s)
{
    weights_make(p, type, s->n_in, s->n_out, 1);
    p->context = context_new();
    rows_make(p, s);
    p->out = ggml_mul_mat(p->context, p->weights, p->rows);
    p->buffer = ggml_backend_alloc_ctx_tensors_from_buft(p->context, ggml_backend_cpu_buffer_type());
    rows_fill(p->in);
}

static void problem_close(problem *p)
{
    ggml_backend_buffer_free(p->buffer);
    ggml_backend_buffer_free(p->weights_buffer);
    ggml_free(p->context);
    ggml_free(p->weights_context);
    free(p->values);
}

static void compute_tensor(struct ggml_tensor *out, int n_threads)
{
    struct ggml_context *context =
        ggml_init((struct ggml_init_params){ggml_graph_overhead() + CONTEXT_BYTES, NULL, false});
    struct ggml_cgraph *graph = ggml_new_graph(context);
    ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(ggml_backend_get_device(processor));
    const ggml_backend_set_n_threads_t set_n_threads =
        (ggml_backend_set_n_threads_t)ggml_backend_reg_get_proc_address(registry, "ggml_backend_set_n_threads");
    set_n_threads(processor, n_threads);
    ggml_build_forward_expand(graph, out);
    memset(out->data, 0xff, ggml_nbytes(out)); /* NaN, so that a value that is not written is seen */
    ggml_backend_graph_compute(processor, graph);
    ggml_free(context);
}

static void compute(const problem *p, int n_threads)
{
    compute_tensor(p->out, n_threads);
}

/* Returns the largest difference in a row of the result, as a part of the sum of the products' absolute values. NaN
 * counts as the largest. */
static double row_difference(const problem *p, int64_t matrix, const float *in, const float *out)
{
    const float *values = p->values + matrix * p->weights->ne[0] * p->weights->ne[1];
    const int64_t n_in = p->weights->ne[0];
    double worst = 0;
    for (int64_t i = 0; i < p->weights->ne[1]; i++) {
        double sum = 0, size = 0;
        for (int64_t j = 0; j < n_in; j++) {
            const double product = (double)in[j] * values[i * n_in + j];
            sum += product;
            size += fabs(product);
        }
        const double diff = fabs(sum - out[i]) / (size > 0 ? size : 1);
        worst = diff <= worst ? worst : diff;
    }
    return worst;
}

static const float *row_of(const struct ggml_tensor *t, int64_t row, int64_t seq, int64_t more)
{
    return (const float *)(const void *)((const char *)t->data + (size_t)row * t->nb[1] + (size_t)seq * t->nb[2] +
                                         (size_t)more * t->nb[3]);
}

static double difference(const problem *p)
{
    double worst = 0;
    for (int64_t more = 0; more < p->out->ne[3]; more++) {
        for (int64_t seq = 0; seq < p->out->ne[2]; seq++) {
            for (int64_t row = 0; row < p->out->ne[1]; row++) {
                const double diff =
                    row_difference(p, 0, row_of(p->rows, row, seq, more), row_of(p->out, row, seq, more));
                worst = diff <= worst ? worst : diff;
            }
        }
    }
    return worst;
}

static int is_taken(const struct ggml_tensor *out)
{
    return ggml_backend_supports_op(processor, out);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void test_by_the_definition(void)
{
    for (int type = 0; type < n_types; type++) {
        const double most = types[type] == GGML_TYPE_Q4_1 ? DIFF_MAX_HALF : DIFF_MAX;
        for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++) {
            problem p;
            problem_open(&p, types[type], &SHAPES[i]);
            const int is_ours = is_taken(p.out);
            compute(&p, 2);
            const double diff = difference(&p);
            problem_close(&p);
            if (!is_ours || !(diff <= most)) {
                printf("%s, shape %zu: taken %d, differs by %g\n", ggml_type_name(types[type]), i, is_ours, diff);
            }
            CHECK(is_ours && diff <= most);
        }
    }
}

/* A change of any input changes the result. */
static void test_one_input(void)
{
    const shape s = {N_IN, 32, 18, 2, 1, TIGHT};
    for (int type = 0; type < n_types; type++) {
        problem p;
        problem_open(&p, types[type], &s);
        compute(&p, 2);
        for (int i = 0; i < s.n_in; i += 31) {
            float *row = (float *)p.in->data + (size_t)(i % (s.n_rows * s.n_seq)) * s.n_in, *in = row + i;
            const float kept = *in;
            *in += 40.0f * fabsf(row[3]);
            CHECK(difference(&p) > 2 * DIFF_MAX_HALF);
            *in = kept;
        }
        problem_close(&p);
    }
}

static void check_bits_with_any_number_of_threads(const problem *p)
{
    const size_t n_bytes = ggml_nbytes(p->out);
    void *first = malloc(n_bytes);
    compute(p, 1);
    memcpy(first, p->out->data, n_bytes);
    for (int n_threads = 2; n_threads <= 9; n_threads++) {
        compute(p, n_threads);
        CHECK(memcmp(first, p->out->data, n_bytes) == 0);
    }
    free(first);
}

static void test_the_same_bits_with_any_number_of_threads(void)
{
    const shape shapes[] = {
        {N_IN, N_OUT, 1, 1, 1, TIGHT}, {N_IN, N_OUT, 70, 1, 1, TIGHT}, {N_IN, N_OUT, 1, 9, 1, TIGHT}};
    for (int i = 0; i < n_types * 3; i++) {
        problem p;
        problem_open(&p, types[i / 3], &shapes[i % 3]);
        check_bits_with_any_number_of_threads(&p);
        problem_close(&p);
    }
}

/* Attention uses AMX tiles of another shape in the same thread. This kernel must then set the shape again. */
static void test_after_attention_by_the_same_thread(void)
{
    enum { SIZE = 64, N_HEADS = 4, N_KV_HEADS = 2, N_QUERIES = 32, N_POSITIONS = 64 };
    const shape s = {N_IN, N_OUT, 70, 1, 1, TIGHT};
    struct ggml_context *c = ggml_init((struct ggml_init_params){CONTEXT_BYTES, NULL, false});
    struct ggml_tensor *q = ggml_new_tensor_3d(c, GGML_TYPE_F32, SIZE, N_QUERIES, N_HEADS);
    struct ggml_tensor *kv = ggml_new_tensor_3d(c, GGML_TYPE_F16, SIZE, N_POSITIONS, N_KV_HEADS);
    memset(q->data, 0, ggml_nbytes(q));
    memset(kv->data, 0, ggml_nbytes(kv));
    struct ggml_tensor *attended = ggml_flash_attn_ext(c, q, kv, kv, NULL, 1, 0, 0);
    problem p;
    problem_open(&p, GGML_TYPE_Q8_0, &s);
    for (int i = 0; i < 2; i++) {
        compute(&p, 1);
        CHECK(difference(&p) <= DIFF_MAX);
        compute_tensor(attended, 1);
        CHECK(*(const float *)attended->data == 0);
    }
    problem_close(&p);
    ggml_free(c);
}

static bool has_feature(const char *name)
{
    ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(ggml_backend_get_device(processor));
    const ggml_backend_get_features_t features =
        (ggml_backend_get_features_t)ggml_backend_reg_get_proc_address(registry, "ggml_backend_get_features");
    const struct ggml_backend_feature *f = features(registry);
    while (f->name != NULL && strcmp(f->name, name) != 0) {
        f++;
    }
    return f->name != NULL;
}

/* Returns whether the layout would multiply these weights with rows of this type. */
static int would_take(enum ggml_type type, int64_t n_in, int64_t n_out, int64_t n_matrices, enum ggml_type rows_type)
{
    struct ggml_context *context = context_new();
    ggml_backend_buffer_t empty = ggml_backend_buft_alloc_buffer(layout_type, 0);
    struct ggml_tensor *weights = ggml_new_tensor_3d(context, type, n_in, n_out, n_matrices);
    struct ggml_tensor *rows = ggml_new_tensor_3d(context, rows_type, n_in, 4, n_matrices);
    weights->buffer = empty;
    const int answer = is_taken(ggml_mul_mat(context, weights, rows));
    ggml_backend_buffer_free(empty);
    ggml_free(context);
    return answer;
}

/* As would_take, for the weights of experts. */
static int would_take_experts(enum ggml_type type, int64_t n_in, int64_t n_out, int64_t n_experts)
{
    struct ggml_context *context = context_new();
    ggml_backend_buffer_t empty = ggml_backend_buft_alloc_buffer(layout_type, 0);
    struct ggml_tensor *weights = ggml_new_tensor_3d(context, type, n_in, n_out, n_experts);
    struct ggml_tensor *rows = ggml_new_tensor_3d(context, GGML_TYPE_F32, n_in, 1, 4);
    struct ggml_tensor *ids = ggml_new_tensor_2d(context, GGML_TYPE_I32, 1, 4);
    weights->buffer = empty;
    const int answer = is_taken(ggml_mul_mat_id(context, weights, rows, ids));
    ggml_backend_buffer_free(empty);
    ggml_free(context);
    return answer;
}

static void test_what_others_than_amx_must_do(void)
{
    CHECK(would_take(GGML_TYPE_Q8_0, N_IN, 64, 1, GGML_TYPE_F32));
    CHECK(!would_take(GGML_TYPE_Q8_0, N_IN, 33, 1, GGML_TYPE_F32));
    CHECK(!would_take(GGML_TYPE_Q8_0, N_IN, 48, 1, GGML_TYPE_F32));
    CHECK(!would_take(GGML_TYPE_Q4_K, N_IN, 1, 1, GGML_TYPE_F32));
    CHECK(!would_take(GGML_TYPE_Q8_0, N_IN, 64, 2, GGML_TYPE_F32)); /* several matrices */
    CHECK(!would_take(GGML_TYPE_Q8_0, N_IN, 64, 1, GGML_TYPE_F16));
    /* the layout has no format of its own for this type, so a copy would be useless */
    CHECK(!would_take(GGML_TYPE_F16, N_IN, 64, 1, GGML_TYPE_F32));
    CHECK(!would_take(GGML_TYPE_Q5_0, N_IN, 64, 1, GGML_TYPE_F32));
    CHECK(would_take(GGML_TYPE_Q8_0, 8192, 151936, 1, GGML_TYPE_F32));
    CHECK(!would_take(GGML_TYPE_Q8_0, 8192, 262144, 1, GGML_TYPE_F32)); /* more than 2 GiB */
}

/* The kernel computes two groups of 16 rows of weights at a time. Tests an odd number of groups. */
static void test_an_odd_group(void)
{
    const shape shapes[] = {{N_IN, 80, 7, 1, 1, TIGHT}, {N_IN, 16, 1, 1, 1, TIGHT}, {256, 48, 200, 1, 1, TIGHT}};
    for (int i = 0; i < n_types * 3; i++) {
        problem p;
        problem_open(&p, types[i / 3], &shapes[i % 3]);
        compute(&p, 2);
        CHECK(difference(&p) <= DIFF_MAX);
        problem_close(&p);
    }
}

/* Rows of lengths that K-quants cannot have. In such cases, a Q4_K_M file has Q5_0 weights. */
static void test_few_blocks_of_32(void)
{
    const shape shapes[] = {{2 * SCALE_BLOCK, 48, 200, 1, 1, TIGHT}, {6 * SCALE_BLOCK, 48, 200, 1, 1, TIGHT}};
    for (int i = 0; i < n_types * 2 && ggml_blck_size(types[i / 2]) == SCALE_BLOCK; i++) {
        problem p;
        problem_open(&p, types[i / 2], &shapes[i % 2]);
        compute(&p, 2);
        CHECK(difference(&p) <= DIFF_MAX);
        problem_close(&p);
    }
}

/* A row of zeros has no scale. */
static void test_zeros(void)
{
    const shape s = {N_IN, 48, 3, 1, 1, TIGHT};
    for (int type = 0; type < n_types; type++) {
        problem p;
        problem_open(&p, types[type], &s);
        memset(p.in->data, 0, ggml_nbytes(p.in));
        compute(&p, 2);
        for (int64_t i = 0; i < ggml_nelements(p.out); i++) {
            CHECK(((const float *)p.out->data)[i] == 0);
        }
        problem_close(&p);
    }
}

/* The layout needs groups of 16 rows of weights, and pairs of blocks of 32. */
static void test_what_others_than_rows_must_do(void)
{
    CHECK(would_take(GGML_TYPE_Q8_0, N_IN, 48, 1, GGML_TYPE_F32));
    CHECK(!would_take(GGML_TYPE_Q8_0, N_IN, 40, 1, GGML_TYPE_F32));
    CHECK(!would_take(GGML_TYPE_Q8_0, N_IN + SCALE_BLOCK, 48, 1, GGML_TYPE_F32));
    CHECK(!would_take(GGML_TYPE_Q4_K, N_IN, 12, 1, GGML_TYPE_F32));
    for (int type = 0; type < n_types; type++) {
        CHECK(would_take(types[type], N_IN, 16, 1, GGML_TYPE_F32));
        CHECK(!would_take(types[type], N_IN, 48, 2, GGML_TYPE_F32));
        CHECK(!would_take(types[type], N_IN, 48, 1, GGML_TYPE_F16));
        CHECK(would_take(types[type], 8192, 262144, 1, GGML_TYPE_F32));
        CHECK(would_take_experts(types[type], N_IN, 48, 2));
        CHECK(!would_take_experts(types[type], N_IN, 42, 2));
        CHECK(!would_take_experts(types[type], N_IN, 48, 1)); /* one matrix is not a set of experts */
    }
    CHECK(!would_take_experts(GGML_TYPE_Q8_0, N_IN + SCALE_BLOCK, 48, 2));
    CHECK(!would_take_experts(GGML_TYPE_F16, N_IN, 48, 2));
}

/* A row's result does not depend on whether it is the last of a task, one of a few, or alone. */
static void test_a_row_has_the_same_bits_among_any(void)
{
    enum { MANY = 101 };
    const shape s = {N_IN, 80, MANY, 1, 1, TIGHT};
    for (int type = 0; type < n_types; type++) {
        problem all;
        problem_open(&all, types[type], &s);
        compute(&all, 2);
        for (int n_rows = 1; n_rows < MANY; n_rows += 1 + n_rows / 3) {
            struct ggml_tensor *rows = ggml_view_2d(all.context, all.in, N_IN, n_rows, all.in->nb[1], 0);
            struct ggml_tensor *few = ggml_mul_mat(all.context, all.weights, rows);
            ggml_backend_buffer_t buffer =
                ggml_backend_alloc_ctx_tensors_from_buft(all.context, ggml_backend_cpu_buffer_type());
            compute_tensor(few, 2);
            CHECK(memcmp(few->data, all.out->data, ggml_nbytes(few)) == 0);
            ggml_backend_buffer_free(buffer);
        }
        problem_close(&all);
    }
}

/* Returns packed rows with random bytes. */
static uint8_t *packed_rows(enum ggml_type type, int64_t n_rows)
{
    const size_t n_bytes = ggml_row_size(type, N_IN) * (size_t)n_rows;
    uint8_t *packed = malloc(n_bytes);
    for (size_t i = 0; i < n_bytes; i++) {
        packed[i] = (uint8_t)random_below(&source, 256);
    }
    return packed;
}

/* Writes a half-precision scale with random sign, between 1/256 and 1/128. */
static void put_scale(uint8_t *at)
{
    const uint16_t half = (uint16_t)(0x1c00 | (random_below(&source, 0x400) + 0x8000 * random_below(&source, 2)));
    memcpy(at, &half, sizeof half);
}

/* Gives the blocks random scales. No quantization makes such blocks, but a file may have them. */
static void put_blocks(enum ggml_type type, uint8_t *packed, int64_t n_rows)
{
    const size_t block_bytes = ggml_type_size(type), n_bytes = ggml_row_size(type, N_IN) * (size_t)n_rows;
    for (uint8_t *block = packed; block < packed + n_bytes; block += block_bytes) {
        if (type == GGML_TYPE_MXFP4) {
            *block = (uint8_t)random_below(&source, 9); /* small exponents, so that scales are denormal numbers */
            continue;
        }
        put_scale(type == GGML_TYPE_Q6_K ? block + block_bytes - 2 : block);
        if (type == GGML_TYPE_Q4_K || type == GGML_TYPE_Q5_K) {
            put_scale(block + 2);
        }
    }
}

/* Enlarges the inputs for MXFP4, so that the products are not as tiny as the scales. */
static void rows_enlarge(const problem *p, enum ggml_type type)
{
    for (int64_t i = 0; type == GGML_TYPE_MXFP4 && i < ggml_nelements(p->in); i++) {
        ((float *)p->in->data)[i] *= 0x1p15f;
    }
}

static void test_whatever_bits_the_blocks_have(void)
{
    const shape s = {N_IN, N_OUT, 9, 1, 1, TIGHT};
    for (int t = 0; t < n_types; t++) {
        uint8_t *packed = packed_rows(types[t], N_OUT);
        put_blocks(types[t], packed, N_OUT);
        problem p;
        problem_open(&p, types[t], &s);
        weights_take(&p, packed);
        rows_enlarge(&p, types[t]);
        compute(&p, 2);
        CHECK(difference(&p) <= DIFF_MAX);
        problem_close(&p);
        free(packed);
    }
}

/* Finds the bytes [begin, end) of a block that have its quants. */
static void quants_of(enum ggml_type type, size_t *begin, size_t *end)
{
    *end = type == GGML_TYPE_Q6_K ? 128 + 64 : ggml_type_size(type);
    switch (type) {
    case GGML_TYPE_Q6_K: *begin = 0; break;
    case GGML_TYPE_MXFP4: *begin = 1; break;
    case GGML_TYPE_IQ4_XS: *begin = 2 + 2 + 4; break;
    case GGML_TYPE_Q4_K:
    case GGML_TYPE_Q5_K: *begin = 2 + 2 + 12; break;
    default: *begin = 2; break;
    }
}

/* Each quant is the smallest or the largest one, and each input is 127 or -127. The sums must fit into the 16 bits that
 * a kernel uses. */
static void test_the_largest_sums(void)
{
    static const uint8_t fills[] = {0x00, 0xff, 0x80, 0x7f};
    const shape s = {N_IN, 48, 5, 1, 1, TIGHT};
    for (int i = 0; i < n_types * 4; i++) {
        const enum ggml_type type = types[i / 4];
        const size_t block_bytes = ggml_type_size(type), n_bytes = ggml_row_size(type, N_IN) * 48;
        uint8_t *packed = packed_rows(type, 48);
        put_blocks(type, packed, 48);
        size_t begin, end;
        quants_of(type, &begin, &end);
        for (uint8_t *block = packed; block < packed + n_bytes; block += block_bytes) {
            memset(block + begin, fills[i % 4], end - begin);
        }
        problem p;
        problem_open(&p, type, &s);
        weights_take(&p, packed);
        for (int64_t k = 0; k < ggml_nelements(p.in); k++) {
            ((float *)p.in->data)[k] = k < ggml_nelements(p.in) / 2 ? (float)EXACT_MAX : (float)-EXACT_MAX;
        }
        rows_enlarge(&p, type);
        compute(&p, 2);
        CHECK(difference(&p) <= DIFF_MAX);
        problem_close(&p);
        free(packed);
    }
}

/* ---- experts ------------------------------------------------------------------------------------------------------ */

typedef struct expert_shape {
    int n_in, n_out, n_experts, n_used, n_tokens;
    bool has_one_input; /* each token has one input for all its experts */
    int n_crowded;      /* the tokens choose only among the first n_crowded experts */
} expert_shape;

static const expert_shape EXPERT_SHAPES[] = {
    {N_IN, N_OUT, 8, 2, 1, true, 8}, {N_IN, N_OUT, 8, 2, 1, false, 8}, {N_IN, N_OUT, 8, 8, 3, false, 8},
    {N_IN, 80, 5, 3, 37, true, 5},   {N_IN, 80, 5, 3, 37, false, 3},   {256, 16, 64, 4, 2, true, 64},
    {256, 48, 3, 1, 300, true, 3},   {256, 48, 3, 2, 300, false, 2},   {256, 32, 40, 1, 1, true, 1},
};
enum { N_EXPERT_SHAPES = sizeof EXPERT_SHAPES / sizeof *EXPERT_SHAPES };

/* Chooses different experts for each token. A row has room for all experts, as in the result of a sort. */
static void experts_choose(const struct ggml_tensor *ids, const expert_shape *s)
{
    for (int token = 0; token < s->n_tokens; token++) {
        int32_t *row = (int32_t *)(void *)((char *)ids->data + (size_t)token * ids->nb[1]);
        for (int i = 0; i < s->n_experts; i++) {
            const int other = i < s->n_crowded ? (int)random_below(&source, (uint32_t)i + 1) : i;
            row[i] = row[other];
            row[other] = i;
        }
    }
}

static void experts_open(problem *p, enum ggml_type type, const expert_shape *s)
{
    weights_make(p, type, s->n_in, s->n_out, s->n_experts);
    p->context = context_new();
    p->in = p->rows =
        ggml_new_tensor_3d(p->context, GGML_TYPE_F32, s->n_in, s->has_one_input ? 1 : s->n_used, s->n_tokens);
    struct ggml_tensor *all = ggml_new_tensor_2d(p->context, GGML_TYPE_I32, s->n_experts, s->n_tokens);
    p->ids = ggml_view_2d(p->context, all, s->n_used, s->n_tokens, all->nb[1], 0);
    p->out = ggml_mul_mat_id(p->context, p->weights, p->rows, p->ids);
    p->buffer = ggml_backend_alloc_ctx_tensors_from_buft(p->context, ggml_backend_cpu_buffer_type());
    rows_fill(p->in);
    experts_choose(all, s);
}

static double experts_difference(const problem *p)
{
    double worst = 0;
    for (int64_t token = 0; token < p->out->ne[2]; token++) {
        const int32_t *ids = (const int32_t *)(const void *)((char *)p->ids->data + (size_t)token * p->ids->nb[1]);
        for (int64_t k = 0; k < p->out->ne[1]; k++) {
            const double diff =
                row_difference(p, ids[k], row_of(p->rows, k % p->rows->ne[1], token, 0), row_of(p->out, k, token, 0));
            worst = diff <= worst ? worst : diff;
        }
    }
    return worst;
}

static void test_experts_by_the_definition(void)
{
    for (int i = 0; i < n_types * N_EXPERT_SHAPES; i++) {
        problem p;
        experts_open(&p, types[i / N_EXPERT_SHAPES], &EXPERT_SHAPES[i % N_EXPERT_SHAPES]);
        CHECK(is_taken(p.out));
        compute(&p, 2);
        CHECK(experts_difference(&p) <= DIFF_MAX);
        problem_close(&p);
    }
}

static void test_experts_have_the_same_bits_with_any_number_of_threads(void)
{
    for (int i = 0; i < n_types * N_EXPERT_SHAPES; i++) {
        problem p;
        experts_open(&p, types[i / N_EXPERT_SHAPES], &EXPERT_SHAPES[i % N_EXPERT_SHAPES]);
        check_bits_with_any_number_of_threads(&p);
        problem_close(&p);
    }
}

/* The result for a token does not depend on the other tokens that use its experts. */
static void test_a_token_has_the_same_bits_among_any(void)
{
    for (int i = 0; i < n_types * N_EXPERT_SHAPES; i++) {
        problem p;
        experts_open(&p, types[i / N_EXPERT_SHAPES], &EXPERT_SHAPES[i % N_EXPERT_SHAPES]);
        compute(&p, 2);
        for (int64_t token = 0; token < p.out->ne[2]; token += 1 + token / 2) {
            struct ggml_tensor *row = ggml_view_3d(p.context, p.rows, p.rows->ne[0], p.rows->ne[1], 1, p.rows->nb[1],
                                                   p.rows->nb[2], (size_t)token * p.rows->nb[2]);
            struct ggml_tensor *ids =
                ggml_view_2d(p.context, p.ids, p.ids->ne[0], 1, p.ids->nb[1], (size_t)token * p.ids->nb[1]);
            struct ggml_tensor *alone = ggml_mul_mat_id(p.context, p.weights, row, ids);
            ggml_backend_buffer_t buffer =
                ggml_backend_alloc_ctx_tensors_from_buft(p.context, ggml_backend_cpu_buffer_type());
            compute_tensor(alone, 2);
            CHECK(memcmp(alone->data, row_of(p.out, 0, token, 0), ggml_nbytes(alone)) == 0);
            ggml_backend_buffer_free(buffer);
        }
        problem_close(&p);
    }
}

/* ---- how weights lie ---------------------------------------------------------------------------------------------- */

/* Writes the weights to `out` as they are stored in the layout. */
static void lay_out(enum ggml_type type, const uint8_t *packed, int64_t n_rows, int64_t n_experts, uint8_t *out)
{
    struct ggml_context *context = context_new();
    struct ggml_tensor *weights = ggml_new_tensor_3d(context, type, N_IN, n_rows / n_experts, n_experts);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(context, layout_type);
    ggml_backend_tensor_set(weights, packed, 0, ggml_nbytes(weights));
    memcpy(out, weights->data, ggml_nbytes(weights));
    ggml_backend_buffer_free(buffer);
    ggml_free(context);
}

/* Several threads convert many rows, each thread a part. The result must equal that of a few rows at a time. */
static void test_many_rows_are_laid_out_as_few_are(void)
{
    enum { FEW = 64, MANY = 140 * FEW + 16 };
    int n_tried = 0;
    for (int t = 0; t < n_types; t++) {
        if (!would_take(types[t], N_IN, MANY, 1, GGML_TYPE_F32)) {
            continue;
        }
        uint8_t *packed = packed_rows(types[t], MANY);
        const size_t row_bytes = ggml_row_size(types[t], N_IN);
        uint8_t *many = malloc(row_bytes * MANY), *few = malloc(row_bytes * FEW);
        lay_out(types[t], packed, MANY, 1, many);
        for (int64_t i = 0; i < MANY; i += FEW) {
            const int64_t n = i + FEW <= MANY ? FEW : MANY - i;
            lay_out(types[t], packed + (size_t)i * row_bytes, n, 1, few);
            CHECK(memcmp(many + (size_t)i * row_bytes, few, (size_t)n * row_bytes) == 0);
        }
        uint8_t *experts = malloc(row_bytes * MANY);
        lay_out(types[t], packed, MANY, 3, experts);
        CHECK(memcmp(many, experts, row_bytes * MANY) == 0);
        free(experts);
        free(few);
        free(many);
        free(packed);
        n_tried++;
    }
    CHECK(n_tried > 0 || !has_feature("AVX2"));
}

/* The copy may take an eighth more than the file, and the state as much again. */
static void test_a_copy_needs_room(void)
{
    const uint64_t gib = 1u << 30;
    CHECK(model_file_may_be_copied(8 * gib, 10 * gib));
    CHECK(!model_file_may_be_copied(8 * gib, 10 * gib - 1));
    CHECK(!model_file_may_be_copied(8 * gib, 7 * gib));
    CHECK(!model_file_may_be_copied(UINT64_MAX, UINT64_MAX));
    CHECK(model_file_may_be_copied(0, 0));
}

static void test_amx_is_used_where_it_works(void)
{
    CHECK_INT(buffer_type_of(processor, "AMX") != NULL, LLM_AMX_WORKS);
}

static void test_products(void)
{
    RUN(test_by_the_definition);
    RUN(test_one_input);
    RUN(test_the_same_bits_with_any_number_of_threads);
}

/* Without this, ggml logs that it repacks each tensor. */
static void say_nothing(enum ggml_log_level level, const char *text, void *data)
{
    (void)level, (void)text, (void)data;
}

int main(void)
{
    ggml_log_set(say_nothing, NULL);
    ggml_backend_load_all();
    processor = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    RUN(test_a_copy_needs_room);
    RUN(test_amx_is_used_where_it_works);
    layout_type = buffer_type_of(processor, "AMX");
    types = TYPES_AMX;
    n_types = N_TYPES_AMX;
    if (layout_type == NULL) {
        printf("SKIPPED: this processor has no AMX, or the compiler's does not work on it (cmake/amx_probe.cpp)\n");
    } else {
        test_products();
        RUN(test_after_attention_by_the_same_thread);
        RUN(test_what_others_than_amx_must_do);
    }
    layout_type = buffer_type_of(processor, "CPU_REPACK");
    types = TYPES_ROWS;
    n_types = N_TYPES_ROWS;
    if (layout_type != NULL) {
        RUN(test_many_rows_are_laid_out_as_few_are);
    }
    if (layout_type == NULL || !has_feature("AVX2")) {
        printf("SKIPPED: weights-rows.h is for AVX2, and not in the exact build\n");
    } else {
        test_products();
        RUN(test_an_odd_group);
        RUN(test_few_blocks_of_32);
        RUN(test_zeros);
        RUN(test_whatever_bits_the_blocks_have);
        RUN(test_the_largest_sums);
        RUN(test_a_row_has_the_same_bits_among_any);
        RUN(test_experts_by_the_definition);
        RUN(test_experts_have_the_same_bits_with_any_number_of_threads);
        RUN(test_a_token_has_the_same_bits_among_any);
        RUN(test_what_others_than_rows_must_do);
    }
    ggml_backend_free(processor);
    return CHECK_RESULT();
}
