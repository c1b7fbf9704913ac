/* processor.cpp: describes the machine for people. model_llama_processor says in words which features of the processor
 * are used. model_llama_machine counts free memory and cores. model_llama_devices lists the devices. Any thread can
 * call these functions. */
#include "machine/processor.h"

#include <cstdio>
#include <string>

#include "machine/cgroup.h"
#include "model/llama/llama_model.h"

#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

size_t model_llama_processor(char *out, size_t n_out)
{
    model_llama_backend_open();
    std::string used = " ";
    const auto features = model_llama_of_cpu<ggml_backend_feature *(ggml_backend_reg_t)>("ggml_backend_get_features");
    if (features != nullptr) {
        ggml_backend_reg_t backend =
            ggml_backend_dev_backend_reg(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU));
        for (const ggml_backend_feature *f = features(backend); f->name != nullptr; f++) {
            used += std::string(f->name) + " ";
        }
    }
    char text[1024];
    const processor_build build = {used.c_str(), LLM_AMX, COMPILER};
    processor_describe(PROCESSOR_INFO, &build, text, sizeof text);
    const int n = snprintf(out, n_out, "%s; flash attention %s", text, model_llama_log_has_flash() ? "on" : "off");
    return n < 0 ? 0 : static_cast<size_t>(n);
}

void model_llama_machine(llm_machine *out)
{
    *out = llm_machine{model_llama_memory_free(), cgroup_memory_free(CGROUP_MOUNT, CGROUP_SELF), model_llama_cores(),
                       cgroup_cores(CGROUP_MOUNT, CGROUP_SELF)};
}

size_t model_llama_devices(llm_device *out, size_t n_out)
{
    model_llama_backend_open();
    const size_t n = ggml_backend_dev_count();
    for (size_t i = 0; i < n && i < n_out; i++) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        size_t n_free = 0, n_total = 0;
        ggml_backend_dev_memory(device, &n_free, &n_total);
        snprintf(out[i].name, sizeof out[i].name, "%s", ggml_backend_dev_name(device));
        snprintf(out[i].description, sizeof out[i].description, "%s", ggml_backend_dev_description(device));
        out[i].free_bytes = n_free;
        out[i].total_bytes = n_total;
        const auto type = ggml_backend_dev_type(device);
        out[i].is_gpu = type == GGML_BACKEND_DEVICE_TYPE_GPU || type == GGML_BACKEND_DEVICE_TYPE_IGPU;
    }
    return n;
}
