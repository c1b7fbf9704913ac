#include "llama_reference.h"

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "model/llama/llama_model.h"

namespace {

std::vector<llama_token_data> candidates_of(const model *m, const float *logits)
{
    std::vector<llama_token_data> all;
    for (uint32_t i = 0; i < m->info.n_vocab; i++) {
        all.push_back({static_cast<llama_token>(i), logits != nullptr ? logits[i] : 0.0f, 0.0f});
    }
    return all;
}

const llama_vocab *vocabulary(const model *m)
{
    return static_cast<const model_llama *>(m)->vocab;
}

llama_sampler *named(const model *m, const llm_sampling *s, const std::string &name, uint32_t seed)
{
    static const char *breakers[] = {"\n", ":", "\"", "*"};
    const size_t keep = static_cast<size_t>(s->min_keep);
    if (name == "penalties") {
        return llama_sampler_init_penalties(static_cast<int32_t>(m->info.n_vocab), s->penalty_last_n, s->repeat_penalty,
                                            s->frequency_penalty, s->presence_penalty);
    }
    if (name == "dry") {
        return llama_sampler_init_dry(vocabulary(m), s->dry_multiplier, s->dry_base, s->dry_allowed_length,
                                      s->dry_penalty_last_n, breakers, 4);
    }
    return name == "top_k"         ? llama_sampler_init_top_k(s->top_k)
           : name == "top_p"       ? llama_sampler_init_top_p(s->top_p, keep)
           : name == "min_p"       ? llama_sampler_init_min_p(s->min_p, keep)
           : name == "typ_p"       ? llama_sampler_init_typical(s->typical_p, keep)
           : name == "top_n_sigma" ? llama_sampler_init_top_n_sigma(s->top_n_sigma)
           : name == "infill"      ? llama_sampler_init_infill(vocabulary(m))
           : name == "xtc" ? llama_sampler_init_xtc(s->xtc_probability, s->xtc_threshold, keep, seed)
                           : llama_sampler_init_temp_ext(s->temperature, s->dynatemp_range, s->dynatemp_exponent);
}

} // namespace

void reference_distribution(const model *m, const llm_sampling *s, const char *const *order, const int32_t *history,
                            uint32_t n_history, const float *logits, double *out)
{
    std::vector<llama_token_data> data = candidates_of(m, logits);
    llama_token_data_array all = {data.data(), data.size(), -1, false};
    for (; *order != nullptr; order++) {
        llama_sampler *one = named(m, s, *order, 1);
        for (uint32_t i = 0; i < n_history; i++) {
            llama_sampler_accept(one, history[i]);
        }
        llama_sampler_apply(one, &all);
        llama_sampler_free(one);
    }
    double sum = 0;
    float best = -INFINITY;
    std::fill(out, out + m->info.n_vocab, 0.0);
    for (size_t i = 0; i < all.size; i++) {
        best = std::max(best, all.data[i].logit);
    }
    for (size_t i = 0; i < all.size; i++) {
        out[all.data[i].id] = std::exp(static_cast<double>(all.data[i].logit - best));
        sum += out[all.data[i].id];
    }
    for (uint32_t i = 0; i < m->info.n_vocab; i++) {
        out[i] /= sum;
    }
}

void reference_draws(const model *m, const llm_sampling *s, const char *const *order, uint32_t seed,
                     const float *logits, int32_t *out, uint32_t n)
{
    llama_sampler *chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    if (s->mirostat == 0) {
        bool is_adaptive = false;
        for (; *order != nullptr; order++) {
            if (std::string(*order) == "adaptive_p") {
                is_adaptive = true;
            } else {
                llama_sampler_chain_add(chain, named(m, s, *order, seed));
            }
        }
        llama_sampler_chain_add(chain, is_adaptive
                                           ? llama_sampler_init_adaptive_p(s->adaptive_target, s->adaptive_decay, seed)
                                           : llama_sampler_init_dist(seed));
    } else {
        llama_sampler_chain_add(chain, llama_sampler_init_temp(s->temperature));
        llama_sampler_chain_add(chain, s->mirostat == 1
                                           ? llama_sampler_init_mirostat(static_cast<int32_t>(m->info.n_vocab), seed,
                                                                         s->mirostat_tau, s->mirostat_eta, 100)
                                           : llama_sampler_init_mirostat_v2(seed, s->mirostat_tau, s->mirostat_eta));
    }
    for (uint32_t i = 0; i < n; i++) {
        std::vector<llama_token_data> data = candidates_of(m, logits);
        llama_token_data_array all = {data.data(), data.size(), -1, false};
        llama_sampler_apply(chain, &all);
        out[i] = all.data[all.selected].id;
        llama_sampler_accept(chain, out[i]);
    }
    llama_sampler_free(chain);
}

bool reference_allowed(const model *m, const char *grammar, const int32_t *tokens, uint32_t n_tokens, bool *out)
{
    llama_sampler *g = llama_sampler_init_grammar(vocabulary(m), grammar, "root");
    if (g == nullptr) {
        return false;
    }
    for (uint32_t i = 0; i < n_tokens; i++) {
        llama_sampler_accept(g, tokens[i]);
    }
    std::vector<llama_token_data> data = candidates_of(m, nullptr);
    llama_token_data_array all = {data.data(), data.size(), -1, false};
    llama_sampler_apply(g, &all);
    for (size_t i = 0; i < all.size; i++) {
        out[all.data[i].id] = !std::isinf(all.data[i].logit);
    }
    llama_sampler_free(g);
    return true;
}
