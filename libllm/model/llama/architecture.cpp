/* What a model's architecture says before its weights are read: whether llmd can serve it at all. A file of hundreds of
 * gigabytes is refused at once, not after minutes of loading. */
#include <algorithm>
#include <cstring>
#include <iterator>

#include "model/llama/llama_model.h"

namespace {

struct unproven {
    const char *architecture; /* general.architecture of the file */
    const char *models;       /* as people call them */
    const char *memory;       /* the class that llama_model::create_memory makes for it */
};

/* Each class of memory in llama.cpp has its own rules for what a sequence may be cut to, copied to, and what its saved state
 * holds; and each must give pages back (llama_memory_i::seq_trim). A class whose rules no tiny model tests would serve wrong
 * text, or memory that grows without end, so its architectures are refused. tests/test_memory_kinds.py compares this table
 * with llama.cpp's source. */
constexpr unproven UNPROVEN[] = {
    {"deepseek32", "DeepSeek V3.2", "llama_kv_cache_dsa"}, {"glm-dsa", "GLM-5", "llama_kv_cache_dsa"},
    {"hy_v4", "Hunyuan V4", "llama_kv_cache_dsa"},         {"dots3note", "dots3", "llama_kv_cache_dsa_iswa"},
    {"minimax-m3", "MiniMax M3", "llama_kv_cache_msa"},    {"deepseek4", "DeepSeek V4", "llama_kv_cache_dsv4"},
    {"qwen4exp", "Qwen4-exp", "llama_memory_hybrid_idx"},  {"glm5-next", "GLM-5 Next", "llama_memory_hybrid_idx"},
};

} // namespace

std::string model_llama_architecture_trouble(const char *architecture)
{
    if (strcmp(architecture, "clip") == 0) {
        return "it is the part of a model that sees or hears (mmproj); name the file with the language model";
    }
    const auto *found = std::find_if(std::begin(UNPROVEN), std::end(UNPROVEN),
                                     [&](const unproven &u) { return strcmp(u.architecture, architecture) == 0; });
    if (found == std::end(UNPROVEN)) {
        return "";
    }
    return std::string("its architecture ") + found->architecture + " (" + found->models +
           ") keeps conversations in a kind of KV cache (" + found->memory +
           ") for which llmd is not tested: it cannot promise exact answers after truncating, parking or forking them; "
           "choose a model of another architecture, or serve this one with llama.cpp's llama-server";
}
