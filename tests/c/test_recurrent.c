/* test_recurrent.c: compares llmd's CPU kernels for recurrent layers with the definitions, computed in double
 * precision. These are gated delta nets, with states after the output or in cells, and short convolutions. Also tests
 * that results have the same bits with any number of threads, and with any number of tokens in a call. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "check.h"
#include "random.h"

#include <ggml-backend.h>
#include <ggml.h>

enum { MEMORY_BYTES = 64 << 20, N_THREADS_MOST = 5 };

/* Values are below 1. The kernel adds the f32 numbers in another order. */
static const double DIFF_MAX = 2e-6;

static random_source source = {.state = 88172645463325252ull};
static ggml_backend_t processor;

static struct ggml_context *context_new(void)
{
    return ggml_init((struct ggml_init_params){MEMORY_BYTES, NULL, false});
}

/* Returns a tensor with random values from `least` to `least` + `span`. */
static struct ggml_tensor *tensor(struct ggml_context *c, int64_t n0, int64_t n1, int64_t n2, int64_t n3, float least,
                                  float span)
{
    struct ggml_tensor *t = ggml_new_tensor_4d(c, GGML_TYPE_F32, n0, n1, n2, n3);
    for (int64_t i = 0; i < ggml_nelements(t); i++) {
        ((float *)t->data)[i] = least + span * (float)random_below(&source, 4001) / 4000.0f;
    }
    return t;
}

/* Returns some of the rows of a larger tensor, as models use them. */
static struct ggml_tensor *part_of(struct ggml_context *c, struct ggml_tensor *whole, int64_t n1, int64_t first)
{
    return ggml_view_4d(c, whole, whole->ne[0], n1, whole->ne[2], whole->ne[3], whole->nb[1], whole->nb[2],
                        whole->nb[3], (size_t)first * whole->nb[1]);
}

static const float *row_at(const struct ggml_tensor *t, int64_t i1, int64_t i2, int64_t i3)
{
    return (const float *)((const char *)t->data + (size_t)i1 * t->nb[1] + (size_t)i2 * t->nb[2] +
                           (size_t)i3 * t->nb[3]);
}

/* Computes the graph. All results are NaN before, so that a value that is not written is seen. */
static void compute(struct ggml_context *c, struct ggml_tensor *out, int n_threads)
{
    struct ggml_cgraph *graph = ggml_new_graph(c);
    ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(ggml_backend_get_device(processor));
    const ggml_backend_set_n_threads_t set_n_threads =
        (ggml_backend_set_n_threads_t)ggml_backend_reg_get_proc_address(registry, "ggml_backend_set_n_threads");
    set_n_threads(processor, n_threads);
    ggml_build_forward_expand(graph, out);
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        struct ggml_tensor *node = ggml_graph_node(graph, i);
        if (node->view_src == NULL && ggml_nbytes(node) > 0) {
            memset(node->data, 0xff, ggml_nbytes(node));
        }
    }
    if (ggml_backend_graph_compute(processor, graph) != GGML_STATUS_SUCCESS) {
        abort();
    }
}

/* Switches between llama.cpp's own operations and the new ones. */
static void use_reference(bool is_used)
{
    ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(ggml_backend_get_device(processor));
    void (*set)(ggml_backend_t, bool) =
        (void (*)(ggml_backend_t, bool))ggml_backend_reg_get_proc_address(registry, "ggml_backend_cpu_set_use_ref");
    set(processor, is_used);
}

static double worse(double worst, double expected, double found)
{
    const double diff = fabs(expected - found);
    return diff <= worst ? worst : diff; /* also if the difference is NaN */
}

/* ---- delta nets -------------------------------------------------------------------------------------------------- */

typedef struct net_shape {
    int size, n_heads, n_key_heads, n_tokens, n_seqs;
    bool in_place;  /* the states are changed where they are, in any order among other states */
    int n_key_seqs; /* if there are fewer than n_seqs, sequences share keys and queries */
} net_shape;

static const net_shape NETS[] = {
    {128, 16, 16, 1, 1, true, 1},
    {128, 4, 2, 40, 1, true, 1},
    {128, 4, 2, 15, 1, false, 1},
    {128, 2, 1, 16, 3, true, 3},
    {128, 6, 2, 17, 2, false, 2},
    {64, 4, 2, 33, 2, true, 2},
    {64, 2, 2, 1, 5, false, 5},
    {128, 2, 1, 18, 4, true, 2},
    /* sizes that the kernel leaves to llama.cpp's kernel */
    {32, 4, 2, 20, 2, true, 2},
    {256, 2, 1, 3, 1, false, 1},
};

typedef struct net {
    struct ggml_context *context;
    struct ggml_tensor *q, *k, *v, *gate, *beta, *cells, *out;
    /* `states` has all states, `state` the states of the sequences; without cells, these are consecutive */
    struct ggml_tensor *states, *state;
} net;

/* `cells` has the place of each state, or is NULL. */
static struct ggml_tensor *operation(struct ggml_context *c, struct ggml_tensor *q, struct ggml_tensor *k,
                                     struct ggml_tensor *v, struct ggml_tensor *gate, struct ggml_tensor *beta,
                                     struct ggml_tensor *state, struct ggml_tensor *cells)
{
    struct ggml_tensor *out = ggml_gated_delta_net(c, q, k, v, gate, beta, state, 1);
    out->src[6] = cells;
    return out;
}

/* Puts the states in reverse order, between two other states. */
static struct ggml_tensor *cells_of(struct ggml_context *c, int n_seqs)
{
    struct ggml_tensor *cells = ggml_new_tensor_1d(c, GGML_TYPE_I32, n_seqs);
    for (int i = 0; i < n_seqs; i++) {
        ((int32_t *)cells->data)[i] = n_seqs - i;
    }
    return cells;
}

static void net_open(net *n, const net_shape *s)
{
    struct ggml_context *c = n->context = context_new();
    struct ggml_tensor *qk = tensor(c, s->size, 2 * s->n_key_heads + 1, s->n_tokens, s->n_key_seqs, -0.2f, 0.4f);
    n->q = part_of(c, qk, s->n_key_heads, 0);
    n->k = part_of(c, qk, s->n_key_heads, s->n_key_heads + 1);
    n->v = part_of(c, tensor(c, s->size, s->n_heads + 3, s->n_tokens, s->n_seqs, -1, 2), s->n_heads, 2);
    n->gate = tensor(c, 1, s->n_heads, s->n_tokens, s->n_seqs, -2, 2);
    n->beta = tensor(c, 1, s->n_heads, s->n_tokens, s->n_seqs, 0, 1);
    n->states = tensor(c, s->size, s->size, s->n_heads, s->n_seqs + 2, -0.2f, 0.4f);
    n->cells = s->in_place ? cells_of(c, s->n_seqs) : NULL;
    n->state = ggml_view_4d(c, n->states, s->size, s->size, s->n_heads, s->n_seqs, n->states->nb[1], n->states->nb[2],
                            n->states->nb[3], s->in_place ? 0 : n->states->nb[3]);
    n->out = operation(c, n->q, n->k, n->v, n->gate, n->beta, n->state, n->cells);
}

/* Computes one row of a head's state after all tokens, and the row's results for each token. */
static void row_of(const net *n, const net_shape *s, int seq, int head, int row, double *state, double *out)
{
    const int shared = head % s->n_key_heads, key_seq = seq / (s->n_seqs / s->n_key_seqs);
    for (int t = 0; t < s->n_tokens; t++) {
        const float *q = row_at(n->q, shared, t, key_seq), *k = row_at(n->k, shared, t, key_seq);
        const double decay = exp(*row_at(n->gate, head, t, seq));
        double by_key = 0, by_query = 0;
        for (int i = 0; i < s->size; i++) {
            by_key += decay * state[i] * k[i];
        }
        const double change = (row_at(n->v, head, t, seq)[row] - by_key) * *row_at(n->beta, head, t, seq);
        for (int i = 0; i < s->size; i++) {
            state[i] = decay * state[i] + change * k[i];
            by_query += state[i] * q[i];
        }
        out[t] = by_query / sqrt(s->size);
    }
}

/* Returns where the sequence's state begins in `states`, counted in floats. */
static int64_t state_at(const net *n, const net_shape *s, int seq)
{
    const int32_t cell = s->in_place ? ((const int32_t *)n->cells->data)[seq] : seq + 1;
    return (int64_t)cell * s->n_heads * s->size * s->size;
}

/* `before` has all states before the operation. */
static double net_difference(const net *n, const net_shape *s, const float *before)
{
    const float *found = n->out->data, *behind = found + (int64_t)s->n_seqs * s->n_tokens * s->n_heads * s->size;
    double worst = 0, state[256], out[64];
    for (int seq = 0; seq < s->n_seqs; seq++) {
        for (int row = 0; row < s->n_heads * s->size; row++) {
            const int head = row / s->size;
            const int64_t at = state_at(n, s, seq) + (int64_t)row * s->size;
            const float *after = s->in_place ? (const float *)n->states->data + at
                                             : behind + ((int64_t)seq * s->n_heads * s->size + row) * s->size;
            for (int i = 0; i < s->size; i++) {
                state[i] = before[at + i];
            }
            row_of(n, s, seq, head, row % s->size, state, out);
            for (int i = 0; i < s->size; i++) {
                worst = worse(worst, state[i], after[i]);
            }
            for (int t = 0; t < s->n_tokens; t++) {
                worst = worse(worst, out[t], found[((int64_t)seq * s->n_tokens + t) * s->n_heads * s->size + row]);
            }
        }
    }
    return worst;
}

static void *copy_of(const void *bytes, size_t n_bytes)
{
    void *copy = malloc(n_bytes);
    memcpy(copy, bytes, n_bytes);
    return copy;
}

static void test_delta_nets_by_the_definition(void)
{
    for (size_t i = 0; i < sizeof NETS / sizeof *NETS; i++) {
        net n;
        net_open(&n, &NETS[i]);
        float *before = copy_of(n.states->data, ggml_nbytes(n.states));
        compute(n.context, n.out, 2);
        const double diff = net_difference(&n, &NETS[i], before);
        free(before);
        ggml_free(n.context);
        if (!(diff <= DIFF_MAX)) {
            printf("delta net %zu differs by %g\n", i, diff);
        }
        CHECK(diff <= DIFF_MAX);
    }
}

/* A different value, at any token or in any row of the state, changes the result. */
static void test_each_value_of_a_delta_net_counts(void)
{
    const net_shape s = {128, 4, 2, 20, 1, false, 1};
    net n;
    net_open(&n, &s);
    float *before = copy_of(n.states->data, ggml_nbytes(n.states));
    compute(n.context, n.out, 2);
    CHECK(net_difference(&n, &s, before) <= DIFF_MAX);
    float *const places[] = {(float *)row_at(n.v, 0, 0, 0) + 5, (float *)row_at(n.v, 3, 19, 0) + 127,
                             before + 5 * 128 * 128 - 1, (float *)n.gate->data + 16 * 4 + 3, (float *)n.beta->data + 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const float was = *places[i];
        *places[i] = was + 0.25f;
        CHECK(net_difference(&n, &s, before) > 10 * DIFF_MAX);
        *places[i] = was;
    }
    free(before);
    ggml_free(n.context);
}

/* The results differ in rounding from those of llama.cpp's kernel, so this kernel was used. The states of other
 * sessions do not change. */
static void test_delta_nets_go_through_their_kernel(void)
{
    for (size_t i = 0; i < sizeof NETS / sizeof *NETS; i++) {
        net n;
        net_open(&n, &NETS[i]);
        const size_t n_out = ggml_nbytes(n.out), n_states = ggml_nbytes(n.states), n_one = n.states->nb[3];
        char *before = copy_of(n.states->data, n_states);
        compute(n.context, n.out, 2);
        char *out = copy_of(n.out->data, n_out);
        const char *states = n.states->data;
        CHECK(memcmp(before, states, n_one) == 0);
        CHECK(memcmp(before + n_states - n_one, states + n_states - n_one, n_one) == 0);
        memcpy(n.states->data, before, n_states);
        use_reference(true);
        compute(n.context, n.out, 2);
        use_reference(false);
        const bool is_ours = NETS[i].size == 64 || NETS[i].size == 128;
        CHECK((memcmp(out, n.out->data, n_out) != 0) == is_ours);
        free(before);
        free(out);
        ggml_free(n.context);
    }
}

static void test_delta_nets_have_the_same_bits_with_any_number_of_threads(void)
{
    for (size_t i = 0; i < sizeof NETS / sizeof *NETS; i++) {
        net n;
        net_open(&n, &NETS[i]);
        const size_t n_out = ggml_nbytes(n.out), n_state = ggml_nbytes(n.states);
        void *before = copy_of(n.states->data, n_state), *out = NULL, *after = NULL;
        for (int n_threads = 1; n_threads <= N_THREADS_MOST; n_threads++) {
            memcpy(n.states->data, before, n_state);
            compute(n.context, n.out, n_threads);
            if (n_threads == 1) {
                out = copy_of(n.out->data, n_out);
                after = copy_of(n.states->data, n_state);
            }
            /* if states are changed in place, the space for states after the output is not written */
            const size_t n_compared = NETS[i].in_place ? n_out - ggml_nbytes(n.state) : n_out;
            CHECK(memcmp(out, n.out->data, n_compared) == 0 && memcmp(after, n.states->data, n_state) == 0);
        }
        free(before);
        free(out);
        free(after);
        ggml_free(n.context);
    }
}

static struct ggml_tensor *tokens_of(struct ggml_context *c, struct ggml_tensor *t, int first, int n)
{
    return ggml_view_4d(c, t, t->ne[0], t->ne[1], n, 1, t->nb[1], t->nb[2], (size_t)n * t->nb[2],
                        (size_t)first * t->nb[2]);
}

/* The result does not depend on how many tokens are consumed in one call. */
static void test_delta_nets_have_the_same_bits_in_steps_of_any_size(void)
{
    const net_shape s = {128, 4, 2, 50, 1, true, 1};
    const int steps[] = {1, 3, 16, 20, 10};
    net n;
    net_open(&n, &s);
    const size_t n_out = ggml_nbytes(n.out), n_state = ggml_nbytes(n.states), n_token = 4 * 128 * sizeof(float);
    void *before = copy_of(n.states->data, n_state);
    compute(n.context, n.out, 1);
    char *out = copy_of(n.out->data, n_out);
    void *after = copy_of(n.states->data, n_state);
    memcpy(n.states->data, before, n_state);
    for (int i = 0, first = 0; i < 5; first += steps[i++]) {
        struct ggml_context *c = n.context;
        struct ggml_tensor *some = operation(c, tokens_of(c, n.q, first, steps[i]), tokens_of(c, n.k, first, steps[i]),
                                             tokens_of(c, n.v, first, steps[i]), tokens_of(c, n.gate, first, steps[i]),
                                             tokens_of(c, n.beta, first, steps[i]), n.state, n.cells);
        compute(c, some, 2);
        CHECK(memcmp(out + (size_t)first * n_token, some->data, (size_t)steps[i] * n_token) == 0);
    }
    CHECK(memcmp(after, n.states->data, n_state) == 0);
    free(before);
    free(out);
    free(after);
    ggml_free(n.context);
}

/* ---- convolutions ------------------------------------------------------------------------------------------------ */

typedef struct convolution_shape {
    int width, n_channels, n_tokens, n_seqs;
} convolution_shape;

static const convolution_shape CONVOLUTIONS[] = {
    {4, 256, 1, 1},
    {4, 256, 1, 3},
    {4, 96, 50, 1},
    {4, 144, 16, 2},
    {3, 64, 17, 3},
    {2, 16, 5, 1},
    {4, 6144, 33, 1},
    {1, 32, 9, 2},
    {8, 48, 21, 2},
    /* shapes that one or both kernels leave to llama.cpp's */
    {4, 100, 20, 2},
    {9, 64, 12, 1},
};

typedef struct convolution {
    struct ggml_context *context;
    struct ggml_tensor *former, *these, *kernel, *inputs, *out;
} convolution;

static void convolution_open(convolution *n, const convolution_shape *s)
{
    struct ggml_context *c = n->context = context_new();
    n->former = part_of(c, tensor(c, s->width - 1, s->n_channels + 5, s->n_seqs, 1, -1, 2), s->n_channels, 3);
    struct ggml_tensor *wider = tensor(c, s->n_channels + 7, s->n_tokens, s->n_seqs, 1, -1, 2);
    n->these =
        ggml_view_3d(c, wider, s->n_channels, s->n_tokens, s->n_seqs, wider->nb[1], wider->nb[2], 5 * sizeof(float));
    n->kernel = tensor(c, s->width, s->n_channels, 1, 1, -0.5f, 1);
    n->inputs = ggml_concat(c, n->former, ggml_transpose(c, n->these), 0);
    n->out = ggml_ssm_conv(c, n->inputs, n->kernel);
}

/* Returns one input of a sequence's channel. The former inputs come first. */
static float input_of(const convolution *n, const convolution_shape *s, int seq, int channel, int at)
{
    return at < s->width - 1 ? row_at(n->former, channel, seq, 0)[at]
                             : row_at(n->these, at - (s->width - 1), seq, 0)[channel];
}

static double convolution_difference(const convolution *n, const convolution_shape *s)
{
    double worst = 0;
    for (int seq = 0; seq < s->n_seqs; seq++) {
        for (int channel = 0; channel < s->n_channels; channel++) {
            const float *kernel = row_at(n->kernel, channel, 0, 0);
            for (int t = 0; t < s->n_tokens; t++) {
                double sum = 0;
                for (int i = 0; i < s->width; i++) {
                    sum += (double)input_of(n, s, seq, channel, t + i) * kernel[i];
                }
                worst = worse(worst, sum, row_at(n->out, t, seq, 0)[channel]);
            }
        }
    }
    return worst;
}

static void test_convolutions_by_the_definition(void)
{
    for (size_t i = 0; i < sizeof CONVOLUTIONS / sizeof *CONVOLUTIONS; i++) {
        const convolution_shape *s = &CONVOLUTIONS[i];
        convolution n;
        convolution_open(&n, s);
        compute(n.context, n.out, 2);
        for (int seq = 0; seq < s->n_seqs; seq++) {
            for (int channel = 0; channel < s->n_channels; channel++) {
                const float *inputs = row_at(n.inputs, channel, seq, 0);
                for (int at = 0; at < s->n_tokens + s->width - 1; at++) {
                    CHECK(inputs[at] == input_of(&n, s, seq, channel, at));
                }
            }
        }
        const double diff = convolution_difference(&n, s);
        if (!(diff <= DIFF_MAX)) {
            printf("convolution %zu differs by %g\n", i, diff);
        }
        CHECK(diff <= DIFF_MAX);
        ((float *)row_at(n.these, s->n_tokens - 1, s->n_seqs - 1, 0))[s->n_channels - 1] += 0.25f;
        ((float *)n.kernel->data)[ggml_nelements(n.kernel) - 1] = 1;
        CHECK(convolution_difference(&n, s) > 10 * DIFF_MAX);
        ggml_free(n.context);
    }
}

static void test_convolutions_have_the_same_bits_with_any_number_of_threads(void)
{
    for (size_t i = 0; i < sizeof CONVOLUTIONS / sizeof *CONVOLUTIONS; i++) {
        convolution n;
        convolution_open(&n, &CONVOLUTIONS[i]);
        compute(n.context, n.out, 1);
        void *first = copy_of(n.out->data, ggml_nbytes(n.out));
        for (int n_threads = 2; n_threads <= N_THREADS_MOST; n_threads++) {
            compute(n.context, n.out, n_threads);
            CHECK(memcmp(first, n.out->data, ggml_nbytes(n.out)) == 0);
        }
        free(first);
        ggml_free(n.context);
    }
}

/* The result for a token depends only on its inputs, not on how many tokens are consumed in one call. */
static void test_convolutions_have_the_same_bits_in_steps_of_any_size(void)
{
    const convolution_shape whole = {4, 96, 40, 1};
    convolution n;
    convolution_open(&n, &whole);
    compute(n.context, n.out, 1);
    for (int first = 0; first < whole.n_tokens; first += 1 + first) {
        const convolution_shape s = {4, 96, whole.n_tokens - first, 1};
        convolution some;
        convolution_open(&some, &s);
        for (int channel = 0; channel < s.n_channels; channel++) {
            memcpy((float *)row_at(some.former, channel, 0, 0), row_at(n.inputs, channel, 0, 0) + first,
                   3 * sizeof(float));
        }
        for (int t = 0; t < s.n_tokens; t++) {
            memcpy((float *)row_at(some.these, t, 0, 0), row_at(n.these, first + t, 0, 0), 96 * sizeof(float));
        }
        memcpy(some.kernel->data, n.kernel->data, ggml_nbytes(n.kernel));
        compute(some.context, some.out, 2);
        CHECK(memcmp(row_at(n.out, first, 0, 0), some.out->data, ggml_nbytes(some.out)) == 0);
        ggml_free(some.context);
    }
    ggml_free(n.context);
}

/* ---- convolutions whose former inputs stay where they are ---------------------------------------------------------- */

/* A convolution of n sequences. The states are in reverse order, between two other states. */
typedef struct staying {
    struct ggml_context *context;
    struct ggml_tensor *these, *kernel, *states, *cells, *out;
} staying;

static struct ggml_tensor *staying_operation(struct ggml_context *c, struct ggml_tensor *these,
                                             struct ggml_tensor *kernel, struct ggml_tensor *states,
                                             struct ggml_tensor *cells)
{
    struct ggml_tensor *out = ggml_new_tensor_3d(c, GGML_TYPE_F32, these->ne[0], these->ne[1], these->ne[2]);
    out->op = GGML_OP_SSM_CONV;
    out->src[0] = these;
    out->src[1] = kernel;
    out->src[2] = states;
    out->src[3] = cells;
    return out;
}

static void staying_open(staying *n, const convolution_shape *s)
{
    struct ggml_context *c = n->context = context_new();
    struct ggml_tensor *wider = tensor(c, s->n_channels + 7, s->n_tokens, s->n_seqs, 1, -1, 2);
    n->these =
        ggml_view_3d(c, wider, s->n_channels, s->n_tokens, s->n_seqs, wider->nb[1], wider->nb[2], 5 * sizeof(float));
    n->kernel = tensor(c, s->width, s->n_channels, 1, 1, -0.5f, 1);
    n->states = tensor(c, (s->width - 1) * s->n_channels, s->n_seqs + 2, 1, 1, -1, 2);
    n->cells = cells_of(c, s->n_seqs);
    n->out = staying_operation(c, n->these, n->kernel, n->states, n->cells);
}

/* Compares with the usual way, which first puts the inputs together. `states` has the states before the operation. */
static double staying_difference(const staying *n, const convolution_shape *s, const float *states)
{
    double worst = 0;
    for (int seq = 0; seq < s->n_seqs; seq++) {
        const int64_t at = ((const int32_t *)n->cells->data)[seq] * n->states->ne[0];
        for (int channel = 0; channel < s->n_channels; channel++) {
            float inputs[64];
            memcpy(inputs, states + at + channel * (s->width - 1), (size_t)(s->width - 1) * sizeof(float));
            for (int t = 0; t < s->n_tokens; t++) {
                inputs[s->width - 1 + t] = row_at(n->these, t, seq, 0)[channel];
            }
            for (int t = 0; t < s->n_tokens; t++) {
                double sum = 0;
                for (int i = 0; i < s->width; i++) {
                    sum += (double)inputs[t + i] * row_at(n->kernel, channel, 0, 0)[i];
                }
                worst = worse(worst, sum, row_at(n->out, t, seq, 0)[channel]);
            }
            for (int i = 0; i < s->width - 1; i++) {
                const float after = ((const float *)n->states->data)[at + channel * (s->width - 1) + i];
                worst = worse(worst, inputs[s->n_tokens + i], after);
            }
        }
    }
    return worst;
}

static const convolution_shape STAYING[] = {
    {4, 256, 1, 1}, {4, 256, 2, 3}, {4, 96, 50, 1}, {4, 100, 16, 2}, {3, 70, 17, 3}, {2, 16, 5, 1}, {4, 6144, 33, 1},
};

static void test_convolutions_that_keep_their_inputs(void)
{
    for (size_t i = 0; i < sizeof STAYING / sizeof *STAYING; i++) {
        const convolution_shape *s = &STAYING[i];
        staying n;
        staying_open(&n, s);
        const size_t n_states = ggml_nbytes(n.states), n_out = ggml_nbytes(n.out), n_one = n.states->nb[1];
        float *before = copy_of(n.states->data, n_states);
        void *out = NULL, *after = NULL;
        for (int n_threads = 1; n_threads <= N_THREADS_MOST; n_threads++) {
            memcpy(n.states->data, before, n_states);
            compute(n.context, n.out, n_threads);
            CHECK(staying_difference(&n, s, before) <= DIFF_MAX);
            out = out != NULL ? out : copy_of(n.out->data, n_out);
            after = after != NULL ? after : copy_of(n.states->data, n_states);
            CHECK(memcmp(out, n.out->data, n_out) == 0 && memcmp(after, n.states->data, n_states) == 0);
        }
        const char *states = n.states->data, *was = (const char *)before;
        CHECK(memcmp(was, states, n_one) == 0);
        CHECK(memcmp(was + n_states - n_one, states + n_states - n_one, n_one) == 0);
        before[n.states->ne[0] * (s->n_seqs + 1) - 1] += 0.25f; /* the last former input of the first sequence */
        ((float *)n.kernel->data)[ggml_nelements(n.kernel) - 2] = 1;
        CHECK(staying_difference(&n, s, before) > 10 * DIFF_MAX);
        free(before);
        free(out);
        free(after);
        ggml_free(n.context);
    }
}

static void test_convolutions_that_keep_their_inputs_in_steps_of_any_size(void)
{
    const convolution_shape s = {4, 96, 40, 1};
    const int steps[] = {1, 2, 17, 19, 1};
    staying n;
    staying_open(&n, &s);
    const size_t n_states = ggml_nbytes(n.states);
    void *before = copy_of(n.states->data, n_states);
    compute(n.context, n.out, 2);
    const char *out = copy_of(n.out->data, ggml_nbytes(n.out));
    void *after = copy_of(n.states->data, n_states);
    memcpy(n.states->data, before, n_states);
    for (int i = 0, first = 0; i < 5; first += steps[i++]) {
        struct ggml_tensor *these = ggml_view_3d(n.context, n.these, s.n_channels, steps[i], 1, n.these->nb[1],
                                                 n.these->nb[2], (size_t)first * n.these->nb[1]);
        struct ggml_tensor *some = staying_operation(n.context, these, n.kernel, n.states, n.cells);
        compute(n.context, some, 2);
        CHECK(memcmp(out + (size_t)first * n.out->nb[1], some->data, ggml_nbytes(some)) == 0);
    }
    CHECK(memcmp(after, n.states->data, n_states) == 0);
    free(before);
    free((void *)out);
    free(after);
    ggml_free(n.context);
}

int main(void)
{
    ggml_backend_load_all();
    processor = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    RUN(test_delta_nets_by_the_definition);
    RUN(test_each_value_of_a_delta_net_counts);
    RUN(test_delta_nets_go_through_their_kernel);
    RUN(test_delta_nets_have_the_same_bits_with_any_number_of_threads);
    RUN(test_delta_nets_have_the_same_bits_in_steps_of_any_size);
    RUN(test_convolutions_by_the_definition);
    RUN(test_convolutions_have_the_same_bits_with_any_number_of_threads);
    RUN(test_convolutions_have_the_same_bits_in_steps_of_any_size);
    RUN(test_convolutions_that_keep_their_inputs);
    RUN(test_convolutions_that_keep_their_inputs_in_steps_of_any_size);
    ggml_backend_free(processor);
    return CHECK_RESULT();
}
