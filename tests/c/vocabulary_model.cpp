#include "vocabulary_model.h"

#include <cstdio>
#include <vector>

#include "model/llama/llama_model.h"

namespace {

void override_with(std::vector<llama_model_kv_override> *all, const char *key, const char *value)
{
    if (value[0] != '\0') {
        llama_model_kv_override one = {};
        one.tag = LLAMA_KV_OVERRIDE_TYPE_STR;
        snprintf(one.key, sizeof one.key, "%s", key);
        snprintf(one.val_str, sizeof one.val_str, "%s", value);
        all->push_back(one);
    }
}

} // namespace

model *vocabulary_open(const char *path, const char *tokenizer_model, const char *pre, const char *name)
{
    model_llama_backend_open();
    std::vector<llama_model_kv_override> overrides;
    override_with(&overrides, "tokenizer.ggml.model", tokenizer_model);
    override_with(&overrides, "tokenizer.ggml.pre", pre);
    override_with(&overrides, "general.name", name);
    overrides.push_back({});
    llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    params.kv_overrides = overrides.data();
    llama_model *weights = llama_model_load_from_file(path, params);
    if (weights == nullptr) {
        return nullptr;
    }
    auto *m = new model_llama();
    m->ops = &model_llama_ops;
    m->weights = weights;
    m->vocab = llama_model_get_vocab(weights);
    m->info.n_vocab = static_cast<uint32_t>(llama_vocab_n_tokens(m->vocab));
    return m;
}
