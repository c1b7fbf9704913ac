/* offload.cpp: decides which weights are put on devices, that is on GPUs. */
#include <common/fit.h>

#include "model/llama/llama_model.h"

namespace {

/* Share of a device's free memory into which no weights are put. The sessions after the first need this memory for
 * their state. The memory for the first session's state is computed exactly and reserved in addition. */
constexpr double SPARE_SHARE = 0.1;
/* If the devices' free memory is larger than the file times this number, all layers surely fit. In this case nothing is
 * measured, because measuring reads the vocabulary, which takes time. Exception: a context longer than
 * MODEL_LLAMA_N_CTX_USUAL is measured. */
constexpr uint64_t AMPLE = 2;

ggml_backend_dev_t no_devices[] = {nullptr};

bool is_device(ggml_backend_dev_t device)
{
    const auto type = ggml_backend_dev_type(device);
    return type == GGML_BACKEND_DEVICE_TYPE_GPU || type == GGML_BACKEND_DEVICE_TYPE_IGPU;
}

/* Hides the devices. Otherwise llama.cpp would multiply the large matrices of long prompts on a device even if no layer
 * is there. No budget includes the device memory for these multiplications. */
void without_layers(llama_model_params *params)
{
    params->devices = no_devices;
}

} // namespace

std::vector<ggml_backend_dev_t> model_llama_devices()
{
    std::vector<ggml_backend_dev_t> apart, integrated;
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        if (is_device(device)) {
            (model_llama_is_integrated(device) ? integrated : apart).push_back(device);
        }
    }
    return apart.empty() ? integrated : apart; /* like llama.cpp, which ignores integrated GPUs if there are discrete
                                                * GPUs */
}

bool model_llama_is_integrated(ggml_backend_dev_t device)
{
    return ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_IGPU;
}

model_llama_loading::model_llama_loading()
    : params(llama_model_default_params()), split(llama_max_devices()), overrides(llama_max_tensor_buft_overrides())
{}

void model_llama_loading::ask(int32_t n_gpu_layers, bool copies_weights)
{
    params.n_gpu_layers = n_gpu_layers;
    params.use_extra_bufts = copies_weights;
    if (n_gpu_layers == 0) {
        without_layers(&params);
    }
    params.progress_callback = [](float, void *) { return true; }; /* without a callback, llama.cpp prints dots */
}

void model_llama_loading::fit(const char *path, uint64_t n_bytes, llama_context_params context)
{
    if (params.n_gpu_layers >= 0) {
        return;
    }
    const std::vector<ggml_backend_dev_t> devices = model_llama_devices();
    std::vector<size_t> spare(llama_max_devices());
    uint64_t n_free = 0;
    for (size_t i = 0; i < devices.size(); i++) {
        size_t free = 0, total = 0;
        ggml_backend_dev_memory(devices[i], &free, &total);
        spare[i] = static_cast<size_t>(static_cast<double>(free) * SPARE_SHARE);
        n_free += free;
    }
    const bool is_ample = n_bytes < n_free / AMPLE && context.n_ctx <= MODEL_LLAMA_N_CTX_USUAL;
    if (n_free == 0 || is_ample) { /* n_free is 0 if no driver reports free memory */
        return;
    }
    const llama_model_params all = params;
    if (common_fit_params(path, &params, &context, split.data(), overrides.data(), spare.data(), context.n_ctx, nullptr,
                          GGML_LOG_LEVEL_ERROR) != COMMON_PARAMS_FIT_STATUS_SUCCESS) {
        params = all; /* loading all layers will fail, too, and will report why */
    }
    if (params.n_gpu_layers == 0 && params.tensor_buft_overrides == nullptr) {
        without_layers(&params);
    }
    model_llama_log_clear(); /* errors of these attempts must not be reported as the cause of a later failure */
}

uint64_t model_llama_host_bytes(const llama_model *weights, const model_llama_loading &loading,
                                const llama_context *context)
{
    const int32_t n_layers = loading.params.n_gpu_layers;
    const bool has_layers = n_layers >= 0 && n_layers <= llama_model_n_layer(weights);
    const bool has_experts = loading.is_fitted() && loading.overrides[0].pattern != nullptr;
    if (model_llama_devices().empty() || !(has_layers || has_experts)) {
        return 0;
    }
    uint64_t n_there = 0;
    for (const auto &[type, bytes] : llama_get_memory_breakdown(context)) {
        ggml_backend_dev_t device = ggml_backend_buft_get_device(type);
        n_there += device != nullptr && is_device(device) && !ggml_backend_buft_is_host(type) ? bytes.model : 0;
    }
    const uint64_t n_all = llama_model_size(weights);
    return n_all - std::min(n_all, n_there);
}
