/* metadata.cpp: reads the metadata of a loaded model: single values, the recommended sampling parameters, the
 * description. */
#include "model/llama/llama_model.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "model/llama/sampler_names.h"

namespace {

float metadata_float(const model_llama *m, llama_model_meta_key key)
{
    const std::string text = model_llama_metadata(m, llama_model_meta_key_str(key));
    return text.empty() ? NAN : strtof(text.c_str(), nullptr);
}

int32_t metadata_int(const model_llama *m, llama_model_meta_key key)
{
    const std::string text = model_llama_metadata(m, llama_model_meta_key_str(key));
    return text.empty() ? -1 : static_cast<int32_t>(strtol(text.c_str(), nullptr, 10));
}

} // namespace

std::string model_llama_metadata(const model_llama *m, const char *key)
{
    char text[512];
    const int32_t n = llama_model_meta_val_str(m->weights, key, text, sizeof text);
    return n < 0 ? std::string() : std::string(text);
}

llm_sampling model_llama_sampling_default(const model_llama *m)
{
    llm_sampling s = model_sampling_unstated();
    s.temperature = metadata_float(m, LLAMA_MODEL_META_KEY_SAMPLING_TEMP);
    s.top_p = metadata_float(m, LLAMA_MODEL_META_KEY_SAMPLING_TOP_P);
    s.min_p = metadata_float(m, LLAMA_MODEL_META_KEY_SAMPLING_MIN_P);
    s.repeat_penalty = metadata_float(m, LLAMA_MODEL_META_KEY_SAMPLING_PENALTY_REPEAT);
    s.top_k = metadata_int(m, LLAMA_MODEL_META_KEY_SAMPLING_TOP_K);
    s.penalty_last_n = metadata_int(m, LLAMA_MODEL_META_KEY_SAMPLING_PENALTY_LAST_N);
    s.xtc_probability = metadata_float(m, LLAMA_MODEL_META_KEY_SAMPLING_XTC_PROBABILITY);
    s.xtc_threshold = metadata_float(m, LLAMA_MODEL_META_KEY_SAMPLING_XTC_THRESHOLD);
    s.mirostat = metadata_int(m, LLAMA_MODEL_META_KEY_SAMPLING_MIROSTAT);
    s.mirostat_tau = metadata_float(m, LLAMA_MODEL_META_KEY_SAMPLING_MIROSTAT_TAU);
    s.mirostat_eta = metadata_float(m, LLAMA_MODEL_META_KEY_SAMPLING_MIROSTAT_ETA);
    s.samplers =
        sampler_order_of(model_llama_metadata(m, llama_model_meta_key_str(LLAMA_MODEL_META_KEY_SAMPLING_SEQUENCE)));
    return s;
}

std::string model_llama_description(const model_llama *m)
{
    char text[128] = "";
    llama_model_desc(m->weights, text, sizeof text);
    std::string out = text;
    const size_t unknown = out.find("?B");
    if (unknown != std::string::npos) {
        const double n = static_cast<double>(llama_model_n_params(m->weights));
        snprintf(text, sizeof text,
                 n < 1e6   ? "%.0fK"
                 : n < 1e9 ? "%.0fM"
                           : "%.1fB",
                 n < 1e6   ? n / 1e3
                 : n < 1e9 ? n / 1e6
                           : n / 1e9);
        out.replace(unknown, 2, text);
    }
    return out;
}
