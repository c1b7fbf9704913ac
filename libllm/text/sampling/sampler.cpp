/* sampler.cpp: the default samplers in llama-server's order: biases, penalties, top_k, top_p, min_p, temperature, draw.
 * These samplers work on the plain logits in vector passes (lanes.h). llama.cpp makes and sorts a record for each of
 * 150,000 tokens, which costs milliseconds per token and request while all other requests wait. llama.cpp's other
 * samplers are used unchanged (sampler_chain.h). llama.cpp's samplers are slow, and so are a few picks under a
 * constraint (constraint.h). The caller can run slow picks in another thread (sampler_next_quick).
 *
 * The same seed must give the same tokens, so candidates have a fixed order, and sums are added in a fixed order. */
#include "text/sampling/sampler.h"

#include "text/constraint/constraint.h"
#include "text/sampling/backoff.h"
#include "text/sampling/end_tokens.h"
#include "text/sampling/lanes.h"
#include "text/sampling/sampler_chain.h"
#include "text/sampling/scratch_memory.h"
#include "text/sampling/token_window.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

/* At or below this temperature, dividing logits by the temperature could overflow, and the most likely token would be
 * drawn anyway. */
constexpr float TEMPERATURE_MIN = 1e-5f;

struct candidate {
    int32_t token;
    float logit;
};

uint64_t drawn_seed()
{
    std::random_device source;
    return source() & 0x7fffffff; /* limited to 31 bits, which are exact in JSON and in every client's integers */
}

bool has_penalties(const llm_sampling &s)
{
    return s.penalty_last_n != 0 &&
           (s.repeat_penalty != 1.0f || s.presence_penalty != 0.0f || s.frequency_penalty != 0.0f);
}

/* Returns whether `a` comes before `b`. The larger logit comes first. If the logits are equal, the smaller id comes
 * first, so that the order is the same on every run. */
bool comes_first(const candidate &a, const candidate &b)
{
    return a.logit > b.logit || (!(a.logit < b.logit) && a.token < b.token);
}

/* Returns the token with the largest logit, or -1 if all tokens are excluded. Stores the largest logit of each block in
 * blocks_of_thread. */
int32_t largest(const float *logits, uint32_t n)
{
    const uint32_t at = largest_at(logits, n, blocks_of_thread(n));
    return at < n ? static_cast<int32_t>(at) : -1;
}

} // namespace

struct sampler {
    const model *m;
    uint32_t n_vocab;
    llm_sampling sampling;
    std::vector<logit_bias> biases; /* a bias of -infinity excludes a token */
    token_window seen;
    bool is_penalizing;
    size_t n_back = 0; /* number of the most recent tokens that the penalties use */
    std::mt19937 random;
    std::vector<candidate> candidates;
    /* the tokens whose logits were changed by biases or min_tokens, with the former logits. If all tokens are excluded,
     * the former logits are restored */
    std::vector<std::pair<int32_t, float>> replaced;

    std::vector<int32_t> stop_tokens;
    uint32_t min_tokens = 0, n_sampled = 0;

    bool needs_chain;
    std::unique_ptr<sampler_chain> chain; /* created when the first token is picked */
    std::vector<int32_t> history;         /* the tokens that the chain receives when it is created */
    std::vector<std::string> breakers;

    std::string document; /* document of the constraint; empty after it was parsed for the first token */
    std::unique_ptr<constraint> form;
    bool no_guesses = false;
    token_set allowed;
    backoff picks, guesses;       /* `picks` belongs to sampler_next_quick, `guesses` to sampler_guess */
    std::optional<int32_t> drawn; /* the token that a pick has drawn without looking at the grammar. Kept until the pick
                                   * ends */

    sampler(const model *of, const llm_sampling &s)
        : m(of), n_vocab(of->info.n_vocab), sampling(s), seen(1), random(generator_seed(s.seed)),
          needs_chain(sampler_chain::is_needed(sampling))
    {
        is_penalizing = !needs_chain && has_penalties(sampling);
        const int32_t n = needs_chain     ? std::max(sampling.penalty_last_n, sampling.dry_penalty_last_n)
                          : is_penalizing ? sampling.penalty_last_n
                                          : 0;
        n_back = static_cast<size_t>(n);
        seen = token_window(std::max<size_t>(1, n_back));
    }
};

namespace {

void rule_out(sampler *s, float *logits, int32_t token)
{
    s->replaced.emplace_back(token, logits[token]);
    logits[token] = RULED_OUT;
}

void rule_out_ends(sampler *s, float *logits)
{
    for (const int32_t token : end_tokens(s->m)) {
        rule_out(s, logits, token);
    }
    for (const int32_t token : s->stop_tokens) {
        rule_out(s, logits, token);
    }
}

/* Applies biases, min_tokens and penalties. Biases come first: a bias of minus infinity excludes a token, whatever
 * penalties do afterwards. A copy of the logits would take 600 KB for a vocabulary of 150,000 tokens. So the logits are
 * changed in place. `replaced` keeps the former logits of the tokens that biases and min_tokens changed. The penalty
 * formula is llama.cpp's. A positive logit is divided by repeat_penalty, but a negative logit is multiplied by it,
 * because a division would make the token more likely. */
void adjust(sampler *s, float *logits)
{
    s->replaced.clear();
    for (const logit_bias &b : s->biases) {
        float &logit = logits[b.token];
        s->replaced.emplace_back(b.token, logit);
        logit += b.bias;
    }
    if (s->n_sampled < s->min_tokens) {
        rule_out_ends(s, logits);
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

/* Updates `best`, the heap of the k tokens with the largest logits so far, with the tokens [at, end). */
void offer_top(std::vector<candidate> &best, const float *logits, uint32_t at, uint32_t end, size_t k)
{
    for (uint32_t i = at; i < end; i++) {
        const candidate next = {static_cast<int32_t>(i), logits[i]};
        if (best.size() < k) {
            if (logits[i] > RULED_OUT) {
                best.push_back(next);
                std::push_heap(best.begin(), best.end(), comes_first);
            }
        } else if (logits[i] > best.front().logit) {
            std::pop_heap(best.begin(), best.end(), comes_first);
            best.back() = next;
            std::push_heap(best.begin(), best.end(), comes_first);
        }
    }
}

/* Sets the candidates to the k tokens with the largest logits, sorted. Skips each block whose largest logit is too
 * small, which is true of most blocks. The function `largest` has stored these logits. */
void take_top(sampler *s, const float *logits, size_t k)
{
    std::vector<candidate> &best = s->candidates;
    const float *blocks = blocks_of_thread(s->n_vocab);
    uint32_t i = 0;
    for (; i + BLOCK <= s->n_vocab; i += BLOCK) {
        if (best.size() < k || blocks[i / BLOCK] > best.front().logit) {
            offer_top(best, logits, i, i + BLOCK, k);
        }
    }
    offer_top(best, logits, i, s->n_vocab, k);
    std::sort_heap(best.begin(), best.end(), comes_first);
}

/* Adds the tokens of [at, end) with logits of at least `least` to the candidates, in the order of their ids. */
void offer_above(sampler *s, const float *logits, uint32_t at, uint32_t end, float least)
{
    for (uint32_t i = at; i < end; i++) {
        if (logits[i] >= least && logits[i] > RULED_OUT) {
            s->candidates.push_back({static_cast<int32_t>(i), logits[i]});
        }
    }
}

void take_above(sampler *s, const float *logits, float least)
{
    const float *blocks = blocks_of_thread(s->n_vocab);
    uint32_t i = 0;
    for (; i + BLOCK <= s->n_vocab; i += BLOCK) {
        if (blocks[i / BLOCK] >= least) {
            offer_above(s, logits, i, i + BLOCK, least);
        }
    }
    offer_above(s, logits, i, s->n_vocab, least);
}

/* Sets the candidates to the tokens that top_p keeps, and perhaps a few more, sorted. Only tokens above a threshold are
 * sorted, not the whole vocabulary. The threshold is found with a histogram of the weights. Each interval of the
 * histogram covers an eighth of a logit. Returns the total weight of all tokens. */
double take_nucleus(sampler *s, const float *logits, float best)
{
    constexpr size_t N_STRETCHES = 256;
    constexpr float PER_UNIT = 8.0f;
    double stretches[N_STRETCHES] = {0};
    float *weights = weights_of_thread(s->n_vocab);
    const double sum = weigh(logits, s->n_vocab, best, 1.0f, weights);
    for (uint32_t i = 0; i < s->n_vocab; i++) {
        if (weights[i] > 0.0f) {
            const size_t stretch = static_cast<size_t>((best - logits[i]) * PER_UNIT);
            stretches[std::min(stretch, N_STRETCHES - 1)] += static_cast<double>(weights[i]);
        }
    }
    double mass = 0;
    size_t last = 0;
    while (last < N_STRETCHES - 1 && (mass += stretches[last]) < static_cast<double>(s->sampling.top_p) * sum) {
        last++;
    }
    take_above(s, logits, last == N_STRETCHES - 1 ? RULED_OUT : best - static_cast<float>(last + 1) / PER_UNIT);
    std::sort(s->candidates.begin(), s->candidates.end(), comes_first);
    return sum;
}

/* Keeps the first candidates, as few as possible, with a total weight of at least top_p times `sum`. */
void cut_nucleus(sampler *s, float best, double sum)
{
    double mass = 0;
    size_t n = 0;
    while (n < s->candidates.size() && mass < static_cast<double>(s->sampling.top_p) * sum) {
        mass += static_cast<double>(exp_of(s->candidates[n++].logit - best));
    }
    s->candidates.resize(std::max<size_t>(1, n));
}

/* Applies min_p. Drops candidates whose probability is below min_p times the largest probability. A ratio of
 * probabilities is a difference of logits, so no probability is computed. */
void cut_improbable(sampler *s, float best)
{
    const float least = best + logf(s->sampling.min_p);
    const auto keeps = [least](const candidate &c) { return c.logit >= least; };
    s->candidates.erase(std::stable_partition(s->candidates.begin(), s->candidates.end(), keeps), s->candidates.end());
}

double random_below(sampler *s, double limit)
{
    return std::uniform_real_distribution<double>(0.0, 1.0)(s->random) * limit;
}

int32_t draw_candidate(sampler *s, float best)
{
    const float scale = 1.0f / s->sampling.temperature;
    double sum = 0;
    for (const candidate &c : s->candidates) {
        sum += static_cast<double>(exp_of((c.logit - best) * scale));
    }
    double left = random_below(s, sum);
    for (const candidate &c : s->candidates) {
        left -= static_cast<double>(exp_of((c.logit - best) * scale));
        if (left < 0) {
            return c.token;
        }
    }
    return s->candidates.front().token; /* rounding made the drawn number larger than the sum of all candidates */
}

int32_t draw_any(sampler *s, const float *logits, float best, int32_t otherwise)
{
    float *weights = weights_of_thread(s->n_vocab);
    const double sum = weigh(logits, s->n_vocab, best, 1.0f / s->sampling.temperature, weights);
    const uint32_t drawn = word_at(weights, s->n_vocab, random_below(s, sum));
    return drawn < s->n_vocab ? static_cast<int32_t>(drawn) : otherwise;
}

/* Draws a token. `token` has the largest logit, which is finite. The request's first sampler among top_k, top_p and
 * min_p finds the candidates, without sorting the vocabulary. The others of these three drop some candidates. */
int32_t draw(sampler *s, const float *logits, int32_t token)
{
    const llm_sampling &p = s->sampling;
    const float best = logits[token];
    const bool has_top_k = p.top_k > 0 && static_cast<uint32_t>(p.top_k) < s->n_vocab;
    s->candidates.clear();
    if (has_top_k) {
        take_top(s, logits, static_cast<size_t>(p.top_k));
        double sum = 0;
        for (const candidate &c : s->candidates) {
            sum += static_cast<double>(exp_of(c.logit - best));
        }
        cut_nucleus(s, best, p.top_p < 1.0f ? sum : std::numeric_limits<double>::infinity());
    } else if (p.top_p < 1.0f) {
        const double sum = take_nucleus(s, logits, best);
        cut_nucleus(s, best, sum);
    } else if (p.min_p > 0.0f) {
        take_above(s, logits, best + logf(p.min_p));
    } else {
        return draw_any(s, logits, best, token);
    }
    if (p.min_p > 0.0f) {
        cut_improbable(s, best);
    }
    return s->candidates.empty() ? token : draw_candidate(s, best);
}

bool is_token(const model *m, int32_t token)
{
    return token >= 0 && static_cast<uint32_t>(token) < m->info.n_vocab;
}

bool are_tokens(const model *m, const sampler_options *o)
{
    return std::all_of(o->biases, o->biases + o->n_biases, [&](const logit_bias &b) { return is_token(m, b.token); }) &&
           std::all_of(o->stop_tokens, o->stop_tokens + o->n_stop_tokens, [&](int32_t t) { return is_token(m, t); });
}

std::vector<std::string> breakers_of(const sampler_options *o)
{
    if (!o->has_breakers) {
        return {"\n", ":", "\"", "*"};
    }
    std::vector<std::string> breakers;
    for (uint32_t i = 0; i < o->n_breakers; i++) {
        breakers.emplace_back(o->breakers[i], o->breaker_bytes[i]);
    }
    return breakers;
}

/* Parses the constraint and makes the chain. Both can take long and can fail. So this is left to the first pick, which
 * the caller can run in another thread (sampler_is_slow). */
void prepare(sampler *s)
{
    if (!s->document.empty()) {
        s->form = constraint::read(s->m, s->document);
        if (s->no_guesses) {
            s->form->never_guess();
        }
        s->document = std::string();
    }
    if (s->needs_chain && s->chain == nullptr) {
        auto chain = std::make_unique<sampler_chain>(s->m, s->sampling, s->breakers);
        for (const int32_t token : s->history) {
            chain->accept(token);
        }
        s->chain = std::move(chain);
        s->history = std::vector<int32_t>();
    }
}

/* Picks a token from the adjusted logits, and does not change them. Returns -1 if all tokens are excluded. */
int32_t choose(sampler *s, const float *logits)
{
    if (s->chain != nullptr) {
        return s->chain->pick(logits, s->n_vocab);
    }
    const int32_t best = largest(logits, s->n_vocab);
    if (best < 0) {
        return -1;
    }
    const bool is_certain = !(s->sampling.temperature > TEMPERATURE_MIN) || std::isinf(logits[best]);
    return is_certain ? best : draw(s, logits, best);
}

/* Undoes the changes by biases and min_tokens. Called if these changes exclude all tokens, or all tokens that the
 * grammar allows. */
void restore(sampler *s, float *logits)
{
    /* backwards: if a token has two biases, its first logit is restored last */
    for (size_t i = s->replaced.size(); i-- > 0;) {
        logits[s->replaced[i].first] = s->replaced[i].second;
    }
    s->replaced.clear();
}

/* Picks as if there were no grammar, and checks only the picked token, which costs microseconds. Usually the grammar
 * allows this token. Otherwise all tokens are checked, and the pick is repeated among the allowed tokens, as in
 * llama.cpp. If the check takes too long, it ends the pick (constraint::be_quick). The next pick then continues with
 * the token that this pick has drawn. Drawing a second time would change the random numbers, and thus the answer. */
int32_t choose_allowed(sampler *s, float *logits)
{
    constraint *form = s->form.get();
    if (!s->drawn) {
        s->drawn = choose(s, logits);
    }
    if (*s->drawn >= 0 && form->allows(*s->drawn)) {
        return *s->drawn;
    }
    form->find_allowed(s->allowed);
    keep_only(s->allowed, logits, s->n_vocab);
    int32_t token = choose(s, logits);
    if (token < 0) { /* biases or min_tokens exclude all allowed tokens */
        restore(s, logits);
        keep_only(s->allowed, logits, s->n_vocab);
        token = choose(s, logits);
    }
    if (token < 0) {
        throw grammar_fault("the grammar allows no token of the model here");
    }
    return token;
}

int32_t chosen(sampler *s, float *logits)
{
    if (!s->drawn) {
        const int32_t forced = s->form != nullptr ? s->form->forced() : -1;
        if (forced >= 0) {
            return forced;
        }
        adjust(s, logits);
    }
    if (s->form != nullptr && s->form->holds()) {
        const int32_t token = choose_allowed(s, logits);
        s->drawn.reset();
        return token;
    }
    const int32_t token = choose(s, logits);
    if (token >= 0) {
        return token;
    }
    restore(s, logits);
    return std::max(0, largest(logits, s->n_vocab));
}

template <typename F> int guarded(const F &work)
{
    try {
        work();
        return LLM_OK;
    } catch (const grammar_fault &) {
        return LLM_CONSTRAINT;
    } catch (...) { /* std::bad_alloc, or std::regex_error for a too complex trigger pattern */
        return LLM_NO_MEMORY;
    }
}

} // namespace

int sampler_open(const model *m, const sampler_options *options, sampler **out)
{
    *out = nullptr;
    if (!are_tokens(m, options)) {
        return LLM_TOKEN;
    }
    try {
        llm_sampling own = options->sampling;
        own.seed = own.seed == UINT64_MAX ? drawn_seed() : own.seed;
        auto s = std::make_unique<sampler>(m, own);
        s->biases.assign(options->biases, options->biases + options->n_biases);
        s->stop_tokens.assign(options->stop_tokens, options->stop_tokens + options->n_stop_tokens);
        s->min_tokens = options->min_tokens;
        s->no_guesses = options->no_guesses;
        s->breakers = breakers_of(options);
        s->document.assign(options->constraint, options->constraint + options->n_constraint_bytes);
        if (options->ignore_end) {
            for (const int32_t token : end_tokens(m)) {
                s->biases.push_back({token, RULED_OUT});
            }
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

static void accept_one(sampler *s, int32_t token)
{
    if (!is_token(s->m, token)) {
        return;
    }
    try {
        if (s->chain != nullptr) {
            s->chain->accept(token);
        } else if (s->needs_chain) {
            s->history.push_back(token);
        } else if (s->is_penalizing) {
            s->seen.push(token);
        }
    } catch (...) { /* out of memory; this token is not penalized, which is better than ending the answer */
    }
}

void sampler_accept(sampler *s, const int32_t *tokens, size_t n)
{
    for (size_t i = n - std::min(n, s->n_back); i < n; i++) {
        accept_one(s, tokens[i]);
    }
}

int sampler_pick(sampler *s, float *logits, int32_t *token)
{
    return guarded([&] {
        prepare(s);
        *token = chosen(s, logits);
    });
}

static int accept_picked(sampler *s, int32_t token)
{
    return guarded([&] {
        if (s->form != nullptr) {
            s->form->accept(token);
        }
        accept_one(s, token);
        s->n_sampled++;
        s->picks.count_token();
        s->guesses.count_token();
    });
}

int sampler_next(sampler *s, float *logits, int32_t *token)
{
    int status = sampler_pick(s, logits, token);
    status = status == LLM_OK ? accept_picked(s, *token) : status;
    return status == LLM_OK && s->form != nullptr ? guarded([&] { s->form->forget(); }) : status;
}

static void be_quick(sampler *s, bool is_quick)
{
    if (s->form != nullptr) {
        s->form->be_quick(is_quick);
    }
}

bool sampler_next_quick(sampler *s, float *logits, int *status, int32_t *token)
{
    if (sampler_is_slow(s)) {
        return false;
    }
    be_quick(s, true);
    *status = sampler_pick(s, logits, token);
    be_quick(s, false);
    s->picks.learn(*status != LLM_CONSTRAINT);
    if (*status == LLM_CONSTRAINT) {
        return false;
    }
    *status = *status == LLM_OK ? accept_picked(s, *token) : *status;
    return true;
}

uint32_t sampler_guess(sampler *s, int32_t *tokens, uint32_t n_max)
{
    size_t n = 0;
    if (s->form == nullptr || s->guesses.is_waiting()) {
        return 0;
    }
    be_quick(s, true);
    const int status = guarded([&] { n = s->form->guess(tokens, n_max); });
    be_quick(s, false);
    s->guesses.learn(status == LLM_OK);
    return status == LLM_OK ? static_cast<uint32_t>(n) : 0;
}

bool sampler_is_slow(const sampler *s)
{
    return s->needs_chain || !s->document.empty() || s->picks.is_waiting() ||
           (s->form != nullptr && s->form->is_slow());
}

bool sampler_is_constrained(const sampler *s)
{
    return s->form != nullptr || !s->document.empty();
}

bool sampler_ends(const sampler *s, int32_t token)
{
    return s->m->ops->is_end(s->m, token) ||
           std::find(s->stop_tokens.begin(), s->stop_tokens.end(), token) != s->stop_tokens.end();
}

bool sampler_shows(const sampler *s, int32_t token)
{
    return s->form != nullptr && s->form->shows(token);
}

bool sampler_is_before_answer(const sampler *s)
{
    return s->form != nullptr && s->form->is_before_answer();
}

uint64_t sampler_seed(const sampler *s)
{
    return s->sampling.seed;
}
