/* Tests a device without free memory, for example because another program uses it. The memory for steps is allocated
 * when the model is opened, or opening fails. If a step still gets no memory, only this step fails. The test makes
 * Vulkan's allocations fail, and imitates the behavior of CUDA's backend. Without a Vulkan device (LLMD_TEST_DEVICE),
 * no allocation fails. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "child.h"
#include "tiny_models.h"

typedef void (*procedure)(void);
typedef int32_t (*allocation)(void *on, const void *info, const void *allocator, void *out);

static const int32_t OUT_OF_DEVICE_MEMORY = -2; /* from VkResult */
static const uint32_t ALL = UINT32_MAX;

static allocation real_allocation;
static uint32_t n_granted = UINT32_MAX; /* number of allocations that still succeed */
static uint32_t n_made, n_refused;

procedure __real_vkGetInstanceProcAddr(void *instance, const char *name)
    __attribute__((weak)); /* only builds with Vulkan have it */
procedure __wrap_vkGetInstanceProcAddr(void *instance, const char *name);

static int32_t allocate(void *on, const void *info, const void *allocator, void *out)
{
    if (n_granted == 0) {
        n_refused++;
        return OUT_OF_DEVICE_MEMORY;
    }
    n_granted -= n_granted == ALL ? 0 : 1;
    n_made++;
    return real_allocation(on, info, allocator, out);
}

procedure __wrap_vkGetInstanceProcAddr(void *instance, const char *name)
{
    const procedure found = __real_vkGetInstanceProcAddr(instance, name);
    if (strcmp(name, "vkAllocateMemory") != 0) {
        return found;
    }
    real_allocation = (allocation)found;
    return (procedure)allocate;
}

/* If not NULL, the next step fails with this text, as ggml-cuda.cu in llama.cpp fails if a call of the driver fails. */
static const char *driver_says;

void ggml_log_internal(int level, const char *format, ...);
void ggml_abort(const char *file, int line, const char *format, ...);
int __real_ggml_backend_sched_graph_compute_async(void *sched, void *graph);
int __wrap_ggml_backend_sched_graph_compute_async(void *sched, void *graph);

int __wrap_ggml_backend_sched_graph_compute_async(void *sched, void *graph)
{
    enum { LEVEL_ERROR = 4 };
    if (driver_says != NULL) {
        ggml_log_internal(LEVEL_ERROR, "CUDA error: %s\n", driver_says);
        ggml_log_internal(LEVEL_ERROR, "  current device: 0, in function alloc at ggml-cuda.cu:1\n");
        ggml_abort("ggml-cuda.cu", 1, "CUDA error");
    }
    return __real_ggml_backend_sched_graph_compute_async(sched, graph);
}

/* Continues a sequence that has the first 64 tokens of text 1 up to token 100, and compares the logits after it with
 * `expected`. */
static void check_goes_on(model *m, uint16_t seq, const float *expected)
{
    CHECK_INT(feed(m, seq, 1, 64, 100, 36), MODEL_OK);
    float *found = row_after(m, 36);
    check_same(found, expected, m->info.n_vocab);
    free(found);
}

static void test_a_full_device_is_refused_at_the_start(void)
{
    n_made = 0;
    model *whole = opened();
    CHECK(whole != NULL);
    const uint32_t n = n_made;
    CHECK((n > 0) == (strstr(whole->info.backend, "Vulkan") != NULL));
    whole->ops->close(whole);
    for (uint32_t i = 0; i < n; i++) {
        char path[512], error[512] = "";
        path_of(current->file, path, sizeof path);
        const model_options o = usual(path);
        model *m = NULL;
        n_granted = i;
        const int status = model_open(path, &o, &m, error, sizeof error);
        n_granted = ALL;
        CHECK(m == NULL && (status == LLM_NO_MEMORY || status == LLM_MODEL_LOAD));
        CHECK(strstr(error, "failed to allocate") != NULL || strstr(error, "has too little free memory") != NULL);
    }
}

static void test_steps_take_no_memory_later(void)
{
    model *m = opened();
    CHECK(m != NULL);
    float *expected = cold(m, 1, 100);
    m->ops->close(m);
    m = opened();
    CHECK(m != NULL);
    n_granted = 0;
    n_refused = 0;
    CHECK_INT(feed(m, 0, 2, 0, 1, 1), MODEL_OK);
    CHECK_INT(feed(m, 1, 1, 0, 64, 64), MODEL_OK);
    CHECK_INT(n_refused, 0);
    n_granted = ALL;
    check_goes_on(m, 1, expected);
    free(expected);
    m->ops->close(m);
}

static bool is_stateful(void)
{
    return current->memory == LLM_MEMORY_HYBRID || current->memory == LLM_MEMORY_RECURRENT;
}

/* A step of sequence 1 has failed. Checks that sequence 0 continues. If recurrent states may have changed, sequence 0
 * has failed too, and is prefilled again. */
static void check_failed_alone(model *m, model_result result, const float *expected)
{
    m->ops->clear(m, 1);
    if (result == MODEL_FAILED_ALL) {
        m->ops->clear(m, 0);
        CHECK_INT(feed(m, 0, 1, 0, 64, 64), MODEL_OK);
    }
    check_goes_on(m, 0, expected);
}

static void test_a_step_without_memory_fails_alone(void)
{
    model *m = opened();
    CHECK(m != NULL);
    float *expected = cold(m, 1, 100);
    CHECK_INT(feed(m, 0, 1, 0, 64, 64), MODEL_OK);
    n_granted = 0;
    n_refused = 0;
    /* after so many tokens, attention needs memory for its partial results */
    const model_result result = feed(m, 1, 2, 0, 400, 16);
    n_granted = ALL;
    CHECK_INT(result, n_refused == 0 ? MODEL_OK : is_stateful() ? MODEL_FAILED_ALL : MODEL_FAILED_BATCH);
    check_failed_alone(m, result, expected);
    free(expected);
    m->ops->close(m);
}

static void test_cuda_without_memory_fails_alone(void)
{
    model *m = opened();
    CHECK(m != NULL);
    float *expected = cold(m, 1, 100);
    CHECK_INT(feed(m, 0, 1, 0, 64, 64), MODEL_OK);
    driver_says = "out of memory";
    const model_result result = feed(m, 1, 2, 0, 16, 16);
    driver_says = NULL;
    CHECK(result == MODEL_FAILED_BATCH || (is_stateful() && result == MODEL_FAILED_ALL));
    check_failed_alone(m, result, expected);
    free(expected);
    m->ops->close(m);
}

static void compute_with_a_broken_driver(void)
{
    model *m = opened();
    driver_says = "an illegal memory access was encountered";
    (void)feed(m, 0, 1, 0, 16, 16);
}

/* Nothing that the device holds can be trusted; a new process starts from what is on the disk. */
static void test_what_else_a_driver_says_ends_the_process(void)
{
    char log[4096];
    if (getenv("LLMD_TEST_DEVICE") != NULL) { /* its driver has threads, which a child of this process has not */
        return;
    }
    const int status = child_run(compute_with_a_broken_driver, log, sizeof log);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK(strstr(log, "CUDA error: an illegal memory access was encountered") != NULL);
}

static void test_model(void)
{
    RUN(test_a_full_device_is_refused_at_the_start);
    RUN(test_steps_take_no_memory_later);
    RUN(test_a_step_without_memory_fails_alone);
    RUN(test_cuda_without_memory_fails_alone);
    RUN(test_what_else_a_driver_says_ends_the_process);
}

int main(void)
{
    for_each_model(test_model);
    return CHECK_RESULT();
}
