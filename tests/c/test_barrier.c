/* test_barrier.c: tests that a thread of the CPU backend sleeps while it waits for a slower thread, so that the slower
 * thread can use its core. Also tests that the sleeping thread continues when the slower one arrives. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "check.h"

#include <ggml-backend.h>
#include <ggml.h>

enum { N_THREADS = 3, N_ROUNDS = 5, LOOKS_MAX = 2000, LOOK_US = 5000 };

static atomic_int waiting[N_THREADS]; /* ids of the threads that have done their part, by number; 0 if not yet */
static atomic_int n_seen_asleep;

static bool is_asleep(int thread)
{
    char path[64], state = '\0';
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    FILE *file = fopen(path, "r");
    const bool is_read = file != NULL && fscanf(file, "%*d (%*[^)]) %c", &state) == 1;
    if (file != NULL) {
        fclose(file);
    }
    return is_read && state == 'S';
}

/* The first thread reaches the next barrier last: when the other threads sleep there, or after LOOKS_MAX looks. */
static void part_of_work(struct ggml_tensor *to, const struct ggml_tensor *from, int i_thread, int n_threads,
                         void *data)
{
    (void)to, (void)from, (void)data;
    if (i_thread > 0) {
        atomic_store(&waiting[i_thread], (int)gettid());
        return;
    }
    int n_asleep = 0;
    for (int look = 0; look < LOOKS_MAX && n_asleep < n_threads - 1; look++) {
        usleep(LOOK_US);
        n_asleep = 0;
        for (int i = 1; i < n_threads; i++) {
            const int thread = atomic_load(&waiting[i]);
            n_asleep += thread != 0 && is_asleep(thread);
        }
    }
    atomic_fetch_add(&n_seen_asleep, n_asleep);
}

static void next_work(struct ggml_tensor *to, const struct ggml_tensor *from, int i_thread, int n_threads, void *data)
{
    (void)to, (void)from, (void)n_threads, (void)data;
    atomic_store(&waiting[i_thread], 0);
}

static void test_who_waits_at_a_barrier_sleeps(void)
{
    struct ggml_context *context = ggml_init((struct ggml_init_params){.mem_size = 1 << 20});
    ggml_backend_t processor = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(ggml_backend_get_device(processor));
    ((ggml_backend_set_n_threads_t)ggml_backend_reg_get_proc_address(registry, "ggml_backend_set_n_threads"))(
        processor, N_THREADS);
    struct ggml_tensor *at = ggml_new_tensor_1d(context, GGML_TYPE_F32, 1);
    for (int i = 0; i < N_ROUNDS; i++) {
        at = ggml_map_custom1(context, at, part_of_work, N_THREADS, NULL);
        at = ggml_map_custom1(context, at, next_work, N_THREADS, NULL);
    }
    struct ggml_cgraph *graph = ggml_new_graph(context);
    ggml_build_forward_expand(graph, at);
    CHECK_INT(ggml_backend_graph_compute(processor, graph), GGML_STATUS_SUCCESS);
    CHECK_INT(n_seen_asleep, N_ROUNDS * (N_THREADS - 1));
    ggml_backend_free(processor);
    ggml_free(context);
}

int main(void)
{
    ggml_backend_load_all();
    RUN(test_who_waits_at_a_barrier_sleeps);
    return CHECK_RESULT();
}
