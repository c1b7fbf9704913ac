#include "fitted_layers.h"

#include "model/llama/llama_model.h"

int32_t fitted_layers(const model_options *options, uint64_t n_bytes)
{
    model_llama_loading loading;
    loading.ask(options->n_gpu_layers, true);
    llama_context_params context = llama_context_default_params();
    context.n_ctx = options->n_ctx;
    context.n_batch = context.n_ubatch = options->n_batch;
    context.n_seq_max = options->n_seq;
    context.kv_unified = true;
    loading.fit(options->path, n_bytes, context);
    return loading.params.n_gpu_layers;
}
