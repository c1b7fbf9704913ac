/* sampler_chain.cpp: with the same logits, parameters and seed, a chain picks the same tokens as llama.cpp. Tests
 * compare the tokens. Two parts are llmd's own. The sequence breakers of the sampler DRY are tokenized through model.h,
 * because the simulated model has no llama.cpp vocabulary. The sampler `infill` is llmd's own implementation
 * (sampler_infill.h). */
#include "text/sampling/sampler_chain.h"

#include "text/sampling/sampler_infill.h"

#include <llama.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

/* llama.cpp has this function for its own tests. The function takes the breakers as tokens, so it needs no
 * vocabulary. */
struct llama_sampler *llama_sampler_init_dry_testing(float multiplier, float base, int32_t allowed_length,
                                                     int32_t penalty_last_n,
                                                     const std::vector<std::vector<llama_token>> &breakers);

namespace {

/* at or below this temperature, the most likely token is picked (sampler.cpp) */
constexpr float TEMPERATURE_MIN = 1e-5f;
constexpr float XTC_THRESHOLD_MAX = 0.5f;
constexpr size_t BREAKER_BYTES_MAX = 40, BREAKER_TOKENS_MAX = 20; /* llama.cpp truncates breakers to these lengths */
/* number of most likely tokens from which mirostat 1 estimates the shape of the distribution, as in llama.cpp */
constexpr int32_t MIROSTAT_ESTIMATES = 100;
constexpr int ORDER_MAX = 16;

using breaker_tokens = std::vector<std::vector<llama_token>>;

/* Returns the order of the samplers as a list. `samplers` has four bits per sampler, the first sampler in the lowest
 * bits; 0 stands for the default order. */
std::vector<llm_sampler> order_of(uint64_t samplers)
{
    std::vector<llm_sampler> order;
    for (int i = 0; i < ORDER_MAX; i++) {
        const int sampler = static_cast<int>(samplers >> (4 * i) & 15);
        if (sampler > LLM_SAMPLER_NONE && sampler < LLM_SAMPLER_N) {
            order.push_back(static_cast<llm_sampler>(sampler));
        }
    }
    for (int sampler = LLM_SAMPLER_NONE + 1; samplers == 0 && sampler <= LLM_SAMPLER_USUAL_LAST; sampler++) {
        order.push_back(static_cast<llm_sampler>(sampler));
    }
    return order;
}

bool has(const std::vector<llm_sampler> &order, llm_sampler sampler)
{
    return std::find(order.begin(), order.end(), sampler) != order.end();
}

std::vector<llama_token> tokens_of(const model *m, const std::string &text)
{
    std::vector<llama_token> tokens(text.size() + 2);
    const int64_t n = m->ops->tokenize(m, text.data(), text.size(), false, false, tokens.data(), tokens.size());
    tokens.resize(n < 0 ? 0 : std::min(static_cast<size_t>(n), BREAKER_TOKENS_MAX));
    return tokens;
}

/* Adds to `out` every token sequence that begins with this token and spells the breaker.
 * - If the token contains the breaker, the sequence is the token alone.
 * - If the token ends with the beginning of the breaker, further tokens complete the breaker.
 * For the breaker "\n\n" and the token "x\n", the sequence is {"x\n", "\n"}. */
void add_spellings(const model *m, const std::string &breaker, const std::string &piece, llama_token token,
                   breaker_tokens &out)
{
    if (piece.find(breaker) != std::string::npos) {
        out.push_back({token});
        return;
    }
    const size_t n_before = out.size();
    for (size_t at = piece.find(breaker[0]); at != std::string::npos; at = piece.find(breaker[0], at + 1)) {
        const size_t n = piece.size() - at;
        if (n >= breaker.size() || breaker.compare(0, n, piece, at, n) != 0) {
            continue;
        }
        std::vector<llama_token> spelled = tokens_of(m, breaker.substr(n));
        spelled.insert(spelled.begin(), token);
        if (std::find(out.begin() + static_cast<long>(n_before), out.end(), spelled) == out.end()) {
            out.push_back(std::move(spelled));
        }
    }
}

breaker_tokens spelled_breakers(const model *m, const std::vector<std::string> &breakers)
{
    breaker_tokens out;
    char piece[MODEL_PIECE_BYTES_MAX];
    for (uint32_t t = 0; t < m->info.n_vocab; t++) {
        const int32_t token = static_cast<int32_t>(t);
        const int32_t n = m->ops->piece(m, token, true, piece, sizeof piece);
        const std::string text(piece, n > 0 ? static_cast<size_t>(n) : 0);
        for (const std::string &breaker : breakers) {
            add_spellings(m, breaker.substr(0, BREAKER_BYTES_MAX), text, token, out);
        }
    }
    return out;
}

/* Returns one sampler of llama.cpp, or NULL if the sampler would change nothing. `logits` is the address of a pointer.
 * Each pick sets this pointer to the current logits, because the sampler is made once, but the logits can have another
 * address at each pick. */
llama_sampler *made(llm_sampler sampler, const model *m, const llm_sampling &s,
                    const std::vector<std::string> &breakers, const float *const *logits)
{
    const size_t min_keep = static_cast<size_t>(s.min_keep);
    const float temperature = s.temperature > TEMPERATURE_MIN ? s.temperature : 0.0f;
    switch (sampler) {
    case LLM_SAMPLER_PENALTIES:
        return llama_sampler_init_penalties(static_cast<int32_t>(m->info.n_vocab), s.penalty_last_n, s.repeat_penalty,
                                            s.frequency_penalty, s.presence_penalty);
    case LLM_SAMPLER_DRY:
        if (s.dry_multiplier == 0.0f || s.dry_base < 1.0f || s.dry_penalty_last_n == 0) {
            return nullptr;
        }
        return llama_sampler_init_dry_testing(s.dry_multiplier, s.dry_base, s.dry_allowed_length, s.dry_penalty_last_n,
                                              spelled_breakers(m, breakers));
    case LLM_SAMPLER_TOP_N_SIGMA: return llama_sampler_init_top_n_sigma(s.top_n_sigma);
    case LLM_SAMPLER_TOP_K: return llama_sampler_init_top_k(s.top_k);
    case LLM_SAMPLER_TYPICAL_P: return llama_sampler_init_typical(s.typical_p, min_keep);
    case LLM_SAMPLER_TOP_P: return llama_sampler_init_top_p(s.top_p, min_keep);
    case LLM_SAMPLER_MIN_P: return llama_sampler_init_min_p(s.min_p, min_keep);
    case LLM_SAMPLER_XTC:
        return llama_sampler_init_xtc(s.xtc_probability, s.xtc_threshold, min_keep, generator_seed(s.seed));
    case LLM_SAMPLER_TEMPERATURE:
        return llama_sampler_init_temp_ext(temperature, s.dynatemp_range, s.dynatemp_exponent);
    case LLM_SAMPLER_INFILL: return sampler_infill(m, logits);
    case LLM_SAMPLER_ADAPTIVE_P: /* this sampler draws the token, so it must be the last; the constructor adds it */
    case LLM_SAMPLER_NONE:
    case LLM_SAMPLER_N: break;
    }
    return nullptr;
}

} // namespace

uint32_t generator_seed(uint64_t seed)
{
    const uint32_t folded = static_cast<uint32_t>(seed ^ (seed >> 32));
    return folded == LLAMA_DEFAULT_SEED ? folded - 1 : folded;
}

/* In every pick, a chain lists all tokens of the vocabulary, which is slow. So a chain is used only where the fast path
 * could give another result. There are three cases:
 * - The samplers are in another order than in the fast path.
 * - A sampler or a parameter is used that the fast path does not have.
 * - The same sampler occurs twice in a row. */
bool sampler_chain::is_needed(llm_sampling &s)
{
    const std::vector<llm_sampler> order = order_of(s.samplers);
    const bool has_xtc = s.xtc_probability > 0.0f && s.xtc_threshold <= XTC_THRESHOLD_MAX;
    const bool has_dry = s.dry_multiplier > 0.0f && s.dry_base >= 1.0f && s.dry_penalty_last_n > 0;
    if (s.mirostat != 0 || !std::is_sorted(order.begin(), order.end()) || !has(order, LLM_SAMPLER_TEMPERATURE) ||
        has(order, LLM_SAMPLER_INFILL) || has(order, LLM_SAMPLER_ADAPTIVE_P) ||
        std::adjacent_find(order.begin(), order.end()) != order.end() || s.min_keep > 1 || s.dynatemp_range > 0.0f ||
        (s.typical_p < 1.0f && has(order, LLM_SAMPLER_TYPICAL_P)) ||
        (s.top_n_sigma > 0.0f && has(order, LLM_SAMPLER_TOP_N_SIGMA)) || (has_xtc && has(order, LLM_SAMPLER_XTC)) ||
        (has_dry && has(order, LLM_SAMPLER_DRY))) {
        return true;
    }
    s.top_k = has(order, LLM_SAMPLER_TOP_K) ? s.top_k : 0;
    s.top_p = has(order, LLM_SAMPLER_TOP_P) ? s.top_p : 1.0f;
    s.min_p = has(order, LLM_SAMPLER_MIN_P) ? s.min_p : 0.0f;
    s.penalty_last_n = has(order, LLM_SAMPLER_PENALTIES) ? s.penalty_last_n : 0;
    return false;
}

sampler_chain::sampler_chain(const model *m, const llm_sampling &s, const std::vector<std::string> &breakers)
    : chain(llama_sampler_chain_init(llama_sampler_chain_default_params()))
{
    const uint32_t seed = generator_seed(s.seed);
    const auto add = [this](llama_sampler *one) {
        if (one != nullptr) {
            llama_sampler_chain_add(chain, one);
        }
    };
    try {
        if (s.mirostat == 0) {
            const std::vector<llm_sampler> order = order_of(s.samplers);
            for (const llm_sampler sampler : order) {
                add(made(sampler, m, s, breakers, &current));
            }
            add(has(order, LLM_SAMPLER_ADAPTIVE_P)
                    ? llama_sampler_init_adaptive_p(s.adaptive_target, s.adaptive_decay, seed)
                    : llama_sampler_init_dist(seed));
        } else {
            add(llama_sampler_init_temp(s.temperature > TEMPERATURE_MIN ? s.temperature : 0.0f));
            add(s.mirostat == 1 ? llama_sampler_init_mirostat(static_cast<int32_t>(m->info.n_vocab), seed,
                                                              s.mirostat_tau, s.mirostat_eta, MIROSTAT_ESTIMATES)
                                : llama_sampler_init_mirostat_v2(seed, s.mirostat_tau, s.mirostat_eta));
        }
    } catch (...) {
        llama_sampler_free(chain);
        throw;
    }
}

sampler_chain::~sampler_chain()
{
    llama_sampler_free(chain);
}

void sampler_chain::accept(int32_t token)
{
    llama_sampler_accept(chain, token);
}

/* Leaves out tokens whose logit is minus infinity (excluded) or NaN. NaN cannot be sorted. A token whose logit is plus
 * infinity is certain, and is returned without a draw. If the samplers leave no candidate, the most likely token is
 * picked. */
int32_t sampler_chain::pick(const float *logits, uint32_t n)
{
    std::vector<llama_token_data> data;
    data.reserve(n);
    for (uint32_t i = 0; i < n; i++) {
        if (logits[i] > -std::numeric_limits<float>::infinity()) { /* also false for NaN */
            data.push_back({static_cast<llama_token>(i), logits[i], 0.0f});
        }
    }
    if (data.empty()) {
        return -1;
    }
    const auto best =
        std::max_element(data.begin(), data.end(), [](const auto &a, const auto &b) { return a.logit < b.logit; });
    if (std::isinf(best->logit)) {
        return best->id;
    }
    current = logits;
    llama_token_data_array all = {data.data(), data.size(), -1, false};
    const llama_token likeliest = best->id;
    llama_sampler_apply(chain, &all);
    const bool is_drawn = all.selected >= 0 && static_cast<size_t>(all.selected) < all.size;
    return is_drawn ? all.data[all.selected].id : likeliest;
}
