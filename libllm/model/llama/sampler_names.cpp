#include "model/llama/sampler_names.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "llm.h"

namespace {

constexpr int SAMPLERS_MAX = 16, SAMPLER_BITS = 4; /* entries, and bits per entry, of llm_sampling.samplers */

bool is_name_of(const std::string &name, const std::string &word)
{
    static const std::map<std::string, std::string> SHORT = {
        {"nucleus", "top_p"}, {"temp", "temperature"}, {"typ", "typ_p"}};
    std::string hyphens = word, joined = word;
    std::replace(hyphens.begin(), hyphens.end(), '_', '-');
    joined.erase(std::remove(joined.begin(), joined.end(), '_'), joined.end());
    const auto found = SHORT.find(name);
    return name == word || name == hyphens || name == joined || (found != SHORT.end() && found->second == word);
}

} // namespace

uint64_t sampler_order_of(const std::string &names)
{
    uint64_t order = 0;
    int n = 0;
    for (size_t at = 0; at < names.size() && n < SAMPLERS_MAX;) {
        const size_t end = std::min(names.find(';', at), names.size());
        std::string name = names.substr(at, end - at);
        std::transform(name.begin(), name.end(), name.begin(),
                       [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        for (int sampler = LLM_SAMPLER_NONE + 1; sampler < LLM_SAMPLER_N; sampler++) {
            if (is_name_of(name, llm_word(LLM_SAMPLERS, sampler))) {
                order |= static_cast<uint64_t>(sampler) << (SAMPLER_BITS * n++);
            }
        }
        at = end + 1;
    }
    return order;
}
