/* The order is llama-server's: biases, penalties, top_k, top_p, min_p, temperature, draw. The first three work on the
 * plain logits: they touch few tokens, and after top_k a few dozen candidates go to llama.cpp's samplers instead of a
 * record for each word of a vocabulary of 150,000. */
#include "sampler.h"

#include <llama.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <unordered_map>
#include <vector>

namespace {

constexpr float RULED_OUT = -std::numeric_limits<float>::infinity();

/* Below this, dividing by the temperature could overflow; the draw is certain anyway. */
constexpr float TEMPERATURE_MIN = 1e-5f;

struct chain_free {
    void operator()(llama_sampler *chain) const { llama_sampler_free(chain); }
};

/* The last tokens and how often each is among them. */
class window {
public:
    explicit window(size_t n) : size(n) {}

    void push(int32_t token)
    {
        if (recent.size() < size) {
            recent.push_back(token);
        } else {
            const auto oldest = counts.find(recent[next]);
            if (--oldest->second == 0) {
                counts.erase(oldest);
            }
            recent[next] = token;
            next = (next + 1) % size;
        }
        counts[token]++;
    }

    const std::unordered_map<int32_t, uint32_t> &seen() const { return counts; }

private:
    size_t size; /* > 0 */
    size_t next = 0;
    std::vector<int32_t> recent;
    std::unordered_map<int32_t, uint32_t> counts;
};

/* Vocabularies are large and requests that ignore the end come in crowds: the list of the last model is kept. */
std::vector<int32_t> end_tokens(const model *m)
{
    static std::mutex mutex;
    static const model *of = nullptr;
    static uint8_t fingerprint[sizeof m->info.fingerprint];
    static std::vector<int32_t> *tokens = new std::vector<int32_t>;

    const std::lock_guard<std::mutex> hold(mutex);
    if (of != m || memcmp(fingerprint, m->info.fingerprint, sizeof fingerprint) != 0) {
        of = nullptr; /* nothing is kept should this run out of memory */
        tokens->clear();
        for (uint32_t t = 0; t < m->info.n_vocab; t++) {
            if (m->ops->is_end(m, static_cast<int32_t>(t))) {
                tokens->push_back(static_cast<int32_t>(t));
            }
        }
        of = m;
        memcpy(fingerprint, m->info.fingerprint, sizeof fingerprint);
    }
    return *tokens;
}

uint64_t drawn_seed()
{
    std::random_device source;
    return source() & 0x7fffffff; /* exact in JSON and in every client's integers */
}

/* llama.cpp seeds with 32 bits and takes the largest value as "random". */
uint32_t folded_seed(uint64_t seed)
{
    const uint32_t folded = static_cast<uint32_t>(seed ^ (seed >> 32));
    return folded == LLAMA_DEFAULT_SEED ? folded - 1 : folded;
}

bool has_penalties(const llm_sampling &s)
{
    return s.penalty_last_n != 0 &&
           (s.repeat_penalty != 1.0f || s.presence_penalty != 0.0f || s.frequency_penalty != 0.0f);
}

/* Larger logit first, then smaller id: the same order on every run. */
bool comes_first(const llama_token_data &a, const llama_token_data &b)
{
    return a.logit > b.logit || (!(a.logit < b.logit) && a.id < b.id);
}

/* Index of the largest number; NaN is no number. -1 when all are ruled out. */
int32_t largest(const float *logits, uint32_t n)
{
    float best = RULED_OUT;
    int32_t at = -1;
    for (uint32_t i = 0; i < n; i++) {
        if (logits[i] > best) {
            best = logits[i];
            at = static_cast<int32_t>(i);
        }
    }
    return at;
}

} // namespace

struct sampler {
    uint32_t n_vocab;
    llm_sampling sampling;
    std::vector<logit_bias> biases; /* a bias of -infinity rules a token out */
    window seen;
    bool is_penalizing;
    std::unique_ptr<llama_sampler, chain_free> chain; /* NULL: greedy */
    std::vector<llama_token_data> candidates;
    std::vector<std::pair<int32_t, float>> replaced; /* logits before the biases, for when those rule out everything */

    sampler(const model *m, const llm_sampling &s)
        : n_vocab(m->info.n_vocab), sampling(s),
          seen(s.penalty_last_n > 0 ? static_cast<size_t>(s.penalty_last_n) : std::max<size_t>(1, m->info.n_ctx)),
          is_penalizing(has_penalties(s))
    {
    }
};

namespace {

void build_chain(sampler *s)
{
    llama_sampler_chain_params params = llama_sampler_chain_default_params();
    params.no_perf = true;
    s->chain.reset(llama_sampler_chain_init(params));
    if (s->sampling.top_p < 1.0f) {
        llama_sampler_chain_add(s->chain.get(), llama_sampler_init_top_p(s->sampling.top_p, 1));
    }
    if (s->sampling.min_p > 0.0f) {
        llama_sampler_chain_add(s->chain.get(), llama_sampler_init_min_p(s->sampling.min_p, 1));
    }
    llama_sampler_chain_add(s->chain.get(), llama_sampler_init_temp(s->sampling.temperature));
    llama_sampler_chain_add(s->chain.get(), llama_sampler_init_dist(folded_seed(s->sampling.seed)));
}

/* Biases first, so that a token that is ruled out stays so. */
void adjust(sampler *s, float *logits)
{
    s->replaced.clear();
    for (const logit_bias &b : s->biases) {
        float &logit = logits[b.token];
        s->replaced.emplace_back(b.token, logit);
        logit += b.bias;
    }
    if (!s->is_penalizing) {
        return;
    }
    const llm_sampling &p = s->sampling;
    for (const auto &[token, count] : s->seen.seen()) {
        float &logit = logits[token];
        logit = logit <= 0.0f ? logit * p.repeat_penalty : logit / p.repeat_penalty;
        logit -= static_cast<float>(count) * p.frequency_penalty + p.presence_penalty;
    }
}

/* The k largest, sorted. A heap of the best so far: most logits fail its one comparison. */
void take_top(sampler *s, const float *logits, size_t k)
{
    std::vector<llama_token_data> &best = s->candidates;
    for (uint32_t i = 0; i < s->n_vocab; i++) {
        const llama_token_data candidate = {static_cast<llama_token>(i), logits[i], 0.0f};
        if (best.size() < k) {
            if (logits[i] > RULED_OUT) {
                best.push_back(candidate);
                std::push_heap(best.begin(), best.end(), comes_first);
            }
        } else if (logits[i] > best.front().logit) {
            std::pop_heap(best.begin(), best.end(), comes_first);
            best.back() = candidate;
            std::push_heap(best.begin(), best.end(), comes_first);
        }
    }
    std::sort_heap(best.begin(), best.end(), comes_first);
}

void take_above(sampler *s, const float *logits, float least)
{
    for (uint32_t i = 0; i < s->n_vocab; i++) {
        if (logits[i] >= least && logits[i] > RULED_OUT) {
            s->candidates.push_back({static_cast<llama_token>(i), logits[i], 0.0f});
        }
    }
}

/* `best` is the largest logit's token. Returns -1 when the samplers select nothing. */
int32_t draw(sampler *s, const float *logits, int32_t best)
{
    const llm_sampling &p = s->sampling;
    const bool has_top_k = p.top_k > 0 && static_cast<uint32_t>(p.top_k) < s->n_vocab;
    s->candidates.clear();
    if (has_top_k) {
        take_top(s, logits, static_cast<size_t>(p.top_k));
    } else if (p.top_p >= 1.0f && p.min_p > 0.0f) {
        take_above(s, logits, logits[best] + logf(p.min_p)); /* exactly what min_p would leave */
    } else {
        take_above(s, logits, RULED_OUT);
    }
    if (s->candidates.empty()) {
        return -1;
    }
    llama_token_data_array all = {s->candidates.data(), s->candidates.size(), -1, has_top_k};
    llama_sampler_apply(s->chain.get(), &all);
    return all.selected >= 0 && static_cast<size_t>(all.selected) < all.size ? all.data[all.selected].id : -1;
}

} // namespace

int sampler_open(const model *m, const llm_sampling *sampling, const logit_bias *biases, size_t n_biases,
                 int ignore_end, sampler **out)
{
    *out = nullptr;
    for (size_t i = 0; i < n_biases; i++) {
        if (biases[i].token < 0 || static_cast<uint32_t>(biases[i].token) >= m->info.n_vocab) {
            return LLM_TOKEN;
        }
    }
    try {
        auto s = std::make_unique<sampler>(m, *sampling);
        if (s->sampling.seed == UINT64_MAX) {
            s->sampling.seed = drawn_seed();
        }
        s->biases.assign(biases, biases + n_biases);
        if (ignore_end) {
            for (const int32_t token : end_tokens(m)) {
                s->biases.push_back({token, RULED_OUT});
            }
        }
        if (s->sampling.temperature > TEMPERATURE_MIN) {
            build_chain(s.get());
        }
        *out = s.release();
        return LLM_OK;
    } catch (...) {
        return LLM_NO_MEMORY;
    }
}

void sampler_close(sampler *s)
{
    delete s;
}

void sampler_accept(sampler *s, int32_t token)
{
    if (!s->is_penalizing || token < 0 || static_cast<uint32_t>(token) >= s->n_vocab) {
        return;
    }
    try {
        s->seen.push(token);
    } catch (...) { /* out of memory: one token goes unpenalized */
    }
}

int32_t sampler_sample(sampler *s, float *logits)
{
    try {
        adjust(s, logits);
        const int32_t best = largest(logits, s->n_vocab);
        if (best >= 0) {
            const bool is_certain = s->chain == nullptr || std::isinf(logits[best]);
            const int32_t drawn = is_certain ? best : draw(s, logits, best);
            return drawn >= 0 ? drawn : best;
        }
        for (size_t i = s->replaced.size(); i-- > 0;) { /* backwards: a token may have two biases */
            logits[s->replaced[i].first] = s->replaced[i].second;
        }
    } catch (...) { /* out of memory: the largest logit as it stands */
    }
    return std::max(0, largest(logits, s->n_vocab));
}

uint64_t sampler_seed(const sampler *s)
{
    return s->sampling.seed;
}
