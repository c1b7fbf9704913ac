/* kv_type.cpp: decides whether a model can store its keys and values in the type that the options ask for. */
#include "model/llama/llama_model.h"

#include <cstdlib>

namespace {

bool is_number(const std::string &text)
{
    return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

uint32_t number_of(const model_llama *m, const char *key)
{
    const std::string text = model_llama_metadata(m, (std::string(m->info.arch) + ".attention." + key).c_str());
    return is_number(text) ? static_cast<uint32_t>(strtoul(text.c_str(), nullptr, 10)) : 0;
}

/* Returns a head size that is not a multiple of n_block, or 0 if all head sizes are multiples. */
uint32_t odd_head_size(const model_llama *m, uint32_t n_block)
{
    for (const char *key : {"key_length", "value_length", "key_length_swa", "value_length_swa"}) {
        const uint32_t n = number_of(m, key);
        if (n % n_block != 0) {
            return n;
        }
    }
    const int32_t n_heads = llama_model_n_head(m->weights);
    const uint32_t usual = n_heads > 0 ? static_cast<uint32_t>(llama_model_n_embd(m->weights) / n_heads) : 0;
    return number_of(m, "key_length") == 0 && usual % n_block != 0 ? usual : 0;
}

/* Returns why the model cannot store keys and values in this type, or "". Attention with an indexer or with compressed
 * keys and values (MLA) is refused, because no test covers its caches with quantized keys. */
std::string trouble_of(const model_llama *m, ggml_type type, bool is_exact)
{
    if (m->info.memory == LLM_MEMORY_NONE || m->info.memory == LLM_MEMORY_RECURRENT) {
        return "this model has no KV cache";
    }
    if (is_exact) {
        return "the exact configuration computes without flash attention, which quantized values need";
    }
    if (number_of(m, "key_length_mla") != 0 || number_of(m, "kv_lora_rank") != 0) {
        return "this model compresses keys and values already (latent attention, MLA)";
    }
    if (model_llama_splits_calls(m->info.arch)) {
        return "an indexer of this model picks the tokens to attend to, by keys of its own";
    }
    const uint32_t n_block = static_cast<uint32_t>(ggml_blck_size(type));
    const uint32_t n_odd = odd_head_size(m, n_block);
    return n_odd == 0 ? ""
                      : "the attention heads of this model have " + std::to_string(n_odd) +
                            " values, which is not a multiple of " + std::to_string(n_block);
}

} // namespace

ggml_type model_llama_kv_type(llm_kv_type type)
{
    return type == LLM_KV_Q8_0 ? GGML_TYPE_Q8_0 : GGML_TYPE_F16;
}

/* llama.cpp rotates quantized keys and values before it stores them, unless the environment variable
 * LLAMA_ATTN_ROT_DISABLE is a number other than 0. The variable does not affect keys and values in f16. A process that
 * does not rotate would read a rotated state without an error, and generate wrong text. */
std::string model_llama_kv_meaning(llm_kv_type type)
{
    const char *off = getenv("LLAMA_ATTN_ROT_DISABLE");
    const bool is_rotated = off == nullptr || atoi(off) == 0; /* as in llama.cpp's llama-kv-cache.cpp */
    const bool is_quantized = ggml_is_quantized(model_llama_kv_type(type));
    return std::string(llm_word(LLM_KV_TYPES, type)) + (is_quantized && !is_rotated ? " not rotated" : "");
}

std::string model_llama_kv_type_trouble(const model_llama *m, bool is_exact)
{
    const ggml_type type = model_llama_kv_type(m->info.kv_type);
    const std::string trouble = ggml_is_quantized(type) ? trouble_of(m, type, is_exact) : "";
    return trouble.empty() ? ""
                           : std::string("kv_type is ") + llm_word(LLM_KV_TYPES, m->info.kv_type) + ", but " + trouble +
                                 "; set --kv-type f16";
}
