/* Tests a device with too little memory for all layers. It gets as many layers as fit, and the model generates the same
 * text. The test replaces ggml_backend_dev_memory, which reports the free memory. Without a device (LLMD_TEST_DEVICE),
 * all layers are on the CPU. */
#include <ggml-backend.h>
#include <sys/stat.h>

#include "fitted_layers.h"
#include "tiny_models.h"

static size_t room; /* simulated free memory of the device, or 0 for the real one */

void __real_ggml_backend_dev_memory(ggml_backend_dev_t dev, size_t *free_bytes, size_t *total);
void __wrap_ggml_backend_dev_memory(ggml_backend_dev_t dev, size_t *free_bytes, size_t *total);

void __wrap_ggml_backend_dev_memory(ggml_backend_dev_t dev, size_t *free_bytes, size_t *total)
{
    __real_ggml_backend_dev_memory(dev, free_bytes, total);
    if (room > 0 && ggml_backend_dev_type(dev) != GGML_BACKEND_DEVICE_TYPE_CPU) {
        *free_bytes = room;
    }
}

static char path[512];

static model_options fitting(void)
{
    path_of(current->file, path, sizeof path);
    return usual(path);
}

static uint64_t file_bytes(void)
{
    struct stat of;
    return stat(path, &of) == 0 ? (uint64_t)of.st_size : 0;
}

static int32_t layers_in(size_t n_bytes)
{
    const model_options o = fitting();
    room = n_bytes;
    const int32_t n = fitted_layers(&o, file_bytes());
    room = 0;
    return n;
}

/* Returns the smallest amount of free memory with which a layer is put on the device. */
static size_t room_for_one(void)
{
    size_t least = 1, most = (size_t)1 << 30;
    while (least < most) {
        const size_t half = least + (most - least) / 2;
        if (layers_in(half) != 0) { /* -1 means all layers */
            most = half;
        } else {
            least = half + 1;
        }
    }
    return least;
}

static model *opened_in(size_t n_bytes)
{
    char error[512] = "";
    model *m = NULL;
    const model_options o = fitting();
    room = n_bytes;
    if (model_open(path, &o, &m, error, sizeof error) != LLM_OK) {
        printf("%s\n", error);
    }
    room = 0;
    return m;
}

static void test_all_layers_where_there_is_room(void)
{
    model *m = opened_in(0);
    CHECK(m != NULL && m->info.host_bytes == 0);
    m->ops->close(m);
}

static void test_some_layers_where_there_is_less(void)
{
    if (device == NULL) {
        return;
    }
    const size_t one = room_for_one();
    CHECK_INT(layers_in(one - 1), 0);
    model *m = opened_in(one), *whole = opened_in(0);
    CHECK(m != NULL && whole != NULL);
    CHECK(strcmp(m->info.backend, whole->info.backend) == 0);
    CHECK(m->info.host_bytes > 0 && m->info.host_bytes < m->info.model_bytes);
    float *split = cold(m, 1, 100), *together = cold(whole, 1, 100);
    check_same(split, together, m->info.n_vocab);
    CHECK_INT(feed(m, 0, 1, 0, 100, 16), MODEL_OK);
    float *stepwise = row_after(m, 4);
    check_same(stepwise, together, m->info.n_vocab);
    free(stepwise);
    free(split);
    free(together);
    m->ops->close(m);
    whole->ops->close(whole);
}

static void test_the_cpu_alone_where_there_is_no_room(void)
{
    if (device == NULL) {
        return;
    }
    model *m = opened_in(1);
    CHECK(m != NULL);
    CHECK(strcmp(m->info.backend, "CPU") == 0 && m->info.host_bytes == m->info.model_bytes);
    m->ops->close(m);
}

static void test_model(void)
{
    RUN(test_all_layers_where_there_is_room);
    RUN(test_some_layers_where_there_is_less);
    RUN(test_the_cpu_alone_where_there_is_no_room);
}

int main(void)
{
    for_each_model(test_model);
    return CHECK_RESULT();
}
