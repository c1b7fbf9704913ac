/* processor.cpp: describes which features of this processor are used (llm_processor). Any thread. */
#include "machine/processor.h"

#include <cstdio>
#include <string>

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
