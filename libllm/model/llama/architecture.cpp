/* architecture.cpp: decides by the architecture of a model whether the model is supported. The decision is made before
 * the weights are read, so a file of hundreds of gigabytes is refused at once, and not after minutes. */
#include <algorithm>
#include <cstring>
#include <iterator>

#include "model/llama/llama_model.h"

namespace {

struct special {
    const char *architecture; /* general.architecture of the file */
    const char *models;       /* the models' names, for error messages */
    const char *memory;       /* llama.cpp's class of the model's memory, from llama_model::create_memory */
    bool is_tested;           /* a test with a tiny model compares the answers with and without a reused state */
    bool needs_streams;       /* each sequence needs its own stream. The model was trained to attend to a selection of
                               * tokens. In a pool of cells that all sequences share, the model would attend to all
                               * tokens instead */
};

/* Architectures with an unusual class of memory in llama.cpp. All other architectures use one of five usual classes.
 * Each class, usual or not, has its own rules for truncating and copying a sequence, and for the contents of a saved
 * state. Each class must also implement llama_memory_i::seq_trim, which a patch of llmd adds. This function returns
 * unused pages of host memory to the system. An architecture is refused if no tiny model tests its class. A model of an
 * untested class would load and answer. But after a truncation the text could be wrong, or the process could exceed
 * --kv-memory. tests/test_memory_kinds.py compares this table with llama.cpp's source. The test fails if llama.cpp has
 * a new class, or a new architecture with one of the classes of this table. */
constexpr special SPECIAL[] = {
    {"deepseek32", "DeepSeek V3.2", "llama_kv_cache_dsa", true, false},
    {"glm-dsa", "GLM-5", "llama_kv_cache_dsa", true, false},
    {"hy_v4", "Hunyuan V4", "llama_kv_cache_dsa", true, false},
    {"dots3note", "dots3", "llama_kv_cache_dsa_iswa", false, false},
    {"minimax-m3", "MiniMax M3", "llama_kv_cache_msa", true, true},
    {"deepseek4", "DeepSeek V4", "llama_kv_cache_dsv4", false, false},
    {"qwen4exp", "Qwen4-exp", "llama_memory_hybrid_idx", false, false},
    {"glm5-next", "GLM-5 Next", "llama_memory_hybrid_idx", false, false},
};

const special *special_of(const char *architecture)
{
    const auto *found = std::find_if(std::begin(SPECIAL), std::end(SPECIAL),
                                     [&](const special &s) { return strcmp(s.architecture, architecture) == 0; });
    return found == std::end(SPECIAL) ? nullptr : found;
}

} // namespace

std::string model_llama_architecture_trouble(const char *architecture, bool is_on_gpu)
{
    if (strcmp(architecture, "clip") == 0) {
        return "it is the part of a model that sees or hears (mmproj); name the file with the language model";
    }
    const special *found = special_of(architecture);
    if (found == nullptr) {
        return "";
    }
    const std::string subject = std::string("its architecture ") + found->architecture + " (" + found->models + ")";
    if (found->is_tested) {
        return is_on_gpu && found->needs_streams
                   ? subject + " is not supported on a GPU: sessions share one pool of cells there, and the model "
                               "would attend to all tokens instead of those that it selects; set --gpu-layers 0"
                   : "";
    }
    return subject + " keeps conversations in a kind of KV cache (" + found->memory +
           ") for which llmd is not tested: it cannot promise exact answers after truncating, parking or forking them; "
           "choose a model of another architecture, or serve this one with llama.cpp's llama-server";
}

/* Returns how many sequences a call with drafts can have (model_info.n_drafting).
 *
 * Sliding windows: a step overwrites a cell only if no token of the step attends to this cell. The token that replaces
 * a removed draft comes after the step's first token. So this token does not attend to overwritten cells, either. In
 * Llama 4, a new window begins every 8,192 tokens. There op_truncate_floor is too cautious, and refuses to remove some
 * drafts. So Llama 4 gets no drafts.
 *
 * Recurrent states: op_remove_drafts computes tokens again, which overwrites the logits of the call. So such a call can
 * have only one sequence. */
uint32_t model_llama_n_drafting(llm_memory memory, const char *architecture, uint32_t n_seq)
{
    switch (memory) {
    case LLM_MEMORY_DENSE: return n_seq;
    case LLM_MEMORY_WINDOW: return strcmp(architecture, "llama4") == 0 ? 0 : n_seq;
    case LLM_MEMORY_RECURRENT:
    case LLM_MEMORY_HYBRID: return 1;
    default: return 0;
    }
}

bool model_llama_splits_calls(const char *architecture)
{
    return special_of(architecture) != nullptr;
}
