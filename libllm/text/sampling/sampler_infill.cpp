/* sampler_infill.cpp: implements the sampler `infill`. llama.cpp's own implementation is not used for three reasons:
 * - It compares every candidate with every other candidate. This takes minutes if no sampler has narrowed the
 *   vocabulary.
 * - It crashes at a token of more than 512 bytes.
 * - It ends answers that must not end yet.
 * This implementation adds the probabilities in llama.cpp's order. A table lists the candidates that are merged with
 * each candidate. An answer ends only with an end token that is not excluded. */
#include "text/sampling/sampler_infill.h"

#include <llama.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace {

/* These thresholds are llama.cpp's. */
constexpr float END_WEIGHT = 3.0f;
constexpr float PROBABILITY_MIN = 0.2f;
constexpr float RULED_OUT = -std::numeric_limits<float>::infinity();

struct infill {
    const model *m;
    const float *const *logits;
};

struct candidates {
    llama_token_data *data;
    size_t n;
};

/* Sorts the candidates by probability, the largest first, and normalizes the probabilities. */
void sort_and_weigh(candidates all)
{
    std::sort(all.data, all.data + all.n, [](const auto &a, const auto &b) { return a.logit > b.logit; });
    float sum = 0.0f;
    for (size_t i = 0; i < all.n; i++) {
        all.data[i].p = expf(all.data[i].logit - all.data[0].logit);
        sum += all.data[i].p;
    }
    for (size_t i = 0; i < all.n; i++) {
        all.data[i].p /= sum;
    }
}

bool is_end(const infill *s, const llama_token_data &candidate)
{
    return s->m->ops->is_end(s->m, candidate.id);
}

template <typename F> size_t keep(candidates all, const F &keeps)
{
    return static_cast<size_t>(std::stable_partition(all.data, all.data + all.n, keeps) - all.data);
}

float sum_of(candidates all)
{
    float sum = 0.0f;
    for (size_t i = 0; i < all.n; i++) {
        sum += all.data[i].p;
    }
    return sum;
}

std::vector<std::string> texts_of(const model *m, candidates all)
{
    std::vector<std::string> texts(all.n);
    char piece[MODEL_PIECE_BYTES_MAX];
    for (size_t i = 0; i < all.n; i++) {
        const int32_t n = m->ops->piece(m, all.data[i].id, false, piece, sizeof piece);
        texts[i].assign(piece, n > 0 ? static_cast<size_t>(n) : 0);
    }
    return texts;
}

/* Maps the text of each candidate to all candidates whose texts begin with this text. The candidates keep their order.
 * Few prefixes of a token's text are themselves tokens, so the map is small. */
using extensions = std::unordered_map<std::string_view, std::vector<uint32_t>>;

extensions extensions_of(const std::vector<std::string> &texts)
{
    extensions out;
    for (const std::string &text : texts) {
        if (!text.empty()) {
            out.try_emplace(text);
        }
    }
    for (size_t i = 0; i < texts.size(); i++) {
        const std::string_view text = texts[i];
        for (size_t n = 1; n <= text.size(); n++) {
            const auto found = out.find(text.substr(0, n));
            if (found != out.end()) {
                found->second.push_back(static_cast<uint32_t>(i));
            }
        }
    }
    return out;
}

/* Adds the probability of the less likely candidate to that of the more likely candidate, and excludes the less likely
 * one. */
void merge(llama_token_data &begins, llama_token_data &extends)
{
    llama_token_data &into = extends.p > begins.p ? extends : begins;
    llama_token_data &from = extends.p > begins.p ? begins : extends;
    into.p += from.p;
    from.p = 0.0f;
    from.logit = RULED_OUT;
}

/* Merges each candidate with the candidates whose texts begin with its text. The merges are in llama.cpp's order,
 * because the sums depend on the order. Excluded candidates are removed from the lists, so that the whole loop takes
 * linear time. */
void merge_beginnings(const model *m, candidates all)
{
    const std::vector<std::string> texts = texts_of(m, all);
    extensions by_text = extensions_of(texts);
    for (size_t i = 0; i < all.n; i++) {
        if (texts[i].empty()) {
            continue;
        }
        std::vector<uint32_t> &others = by_text.find(texts[i])->second;
        size_t n_kept = 0, at = 0;
        for (; at < others.size() && all.data[i].logit > RULED_OUT; at++) {
            llama_token_data &other = all.data[others[at]];
            if (others[at] != i && other.logit > RULED_OUT) {
                merge(all.data[i], other);
            }
            if (other.logit > RULED_OUT) {
                others[n_kept++] = others[at];
            }
        }
        others.erase(others.begin() + static_cast<long>(n_kept), others.begin() + static_cast<long>(at));
    }
}

/* Picks the most probable end token that is not excluded. If all end tokens are excluded, the most probable candidate
 * stays. */
void end(const infill *s, llama_token_data &only)
{
    const float *logits = *s->logits;
    float best = RULED_OUT;
    for (uint32_t t = 0; t < s->m->info.n_vocab; t++) {
        if (logits[t] > best && s->m->ops->is_end(s->m, static_cast<int32_t>(t))) {
            best = logits[t];
            only.id = static_cast<llama_token>(t);
        }
    }
    only.logit = 1.0f;
}

/* Applies the sampler to the candidates. Returns how many remain. */
size_t narrow(const infill *s, candidates all)
{
    sort_and_weigh(all);
    const llama_token likeliest = all.data[0].id;
    float end_sum = 0.0f, text_sum = 0.0f;
    for (size_t i = 0; i < all.n; i++) {
        (is_end(s, all.data[i]) ? end_sum : text_sum) += all.data[i].p;
    }
    if (END_WEIGHT * end_sum * static_cast<float>(all.n) > text_sum) {
        return keep(all, [s](const llama_token_data &c) { return is_end(s, c); });
    }
    merge_beginnings(s->m, all);
    all.n = keep(all, [s](const llama_token_data &c) { return c.p >= PROBABILITY_MIN || is_end(s, c); });
    const auto n_texts = std::count_if(all.data, all.data + all.n, [s](const auto &c) { return !is_end(s, c); });
    if (n_texts == 0) {
        all.data[0].id = likeliest;
        end(s, all.data[0]);
        return 1;
    }
    const float sum = sum_of(all), least = 1.0f / static_cast<float>(n_texts + 1);
    return keep(all, [=](const llama_token_data &c) { return c.p / sum >= least || is_end(s, c); });
}

void apply(llama_sampler *one, llama_token_data_array *all)
{
    if (all->size > 0) {
        all->size = narrow(static_cast<const infill *>(one->ctx), {all->data, all->size});
        all->sorted = false; /* merged end tokens stay in place, with probability 0 */
    }
}

void release(llama_sampler *one)
{
    delete static_cast<infill *>(one->ctx);
}

} // namespace

llama_sampler *sampler_infill(const model *m, const float *const *logits)
{
    static llama_sampler_i interface = [] {
        llama_sampler_i own = {};
        own.name = [](const llama_sampler *) { return "infill"; };
        own.apply = apply;
        own.free = release;
        return own;
    }();
    auto own = std::make_unique<infill>(infill{m, logits});
    llama_sampler *one = llama_sampler_init(&interface, own.get());
    (void)own.release();
    return one;
}
