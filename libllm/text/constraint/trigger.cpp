/* trigger.cpp: searches an answer for triggers, which are the words, tokens and patterns at which a lazy grammar
 * begins. The warning -Wmaybe-uninitialized is disabled, because with sanitizers some versions of gcc report an
 * uninitialized variable in the standard library's <regex>. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include "text/constraint/trigger.h"

#include <algorithm>

namespace {

/* Patterns are searched for only in the last bytes of the answer, at most this many. Reason: std::regex recurses for
 * each character, and starts again with each token. A pattern that must match the whole answer is not tried if the
 * answer is longer than this limit. */
constexpr size_t PATTERN_BYTES_MAX = 4096;

/* Returns the position at which the grammar begins. As in llama.cpp, this is the start of the first capture group that
 * matched some text. If no group did, it is the start of the whole match. */
size_t begin_of(const std::smatch &match)
{
    for (size_t i = 1; i < match.size(); i++) {
        if (match.length(i) > 0) {
            return static_cast<size_t>(match.position(i));
        }
    }
    return static_cast<size_t>(match.position(0));
}

} // namespace

void trigger::add_word(std::string word)
{
    if (!word.empty()) {
        longest_word = std::max(longest_word, word.size());
        words.push_back(std::move(word));
    }
}

void trigger::add_token(int32_t token)
{
    tokens.push_back(token);
}

void trigger::add_pattern(const std::string &source, bool is_whole)
{
    patterns.push_back({std::regex(source), is_whole});
}

void trigger::forget()
{
    text.clear();
    ends.clear();
    is_cut = false;
}

/* Returns the position of the first trigger word in `text`, looking only for words that end after the first n_before
 * bytes. A word that ends earlier would have been found by an earlier call. So for each word, each byte is examined
 * once, however long the answer is. */
size_t trigger::find_word(size_t n_before) const
{
    size_t first = std::string::npos;
    for (const std::string &word : words) {
        const size_t from = n_before >= word.size() ? n_before - word.size() + 1 : 0;
        first = std::min(first, text.find(word, from));
    }
    return first;
}

/* Returns the position at which the grammar begins according to the first pattern that matches. If `text` no longer has
 * the answer's beginning, ^ must not match at the beginning of `text`, and a pattern for the whole answer cannot
 * match. */
size_t trigger::find_pattern() const
{
    const auto flags = is_cut ? std::regex_constants::match_not_bol : std::regex_constants::match_default;
    std::smatch match;
    for (const pattern &p : patterns) {
        const bool is_found = p.is_whole ? !is_cut && std::regex_match(text, match, p.expression)
                                         : std::regex_search(text, match, p.expression, flags);
        if (is_found) {
            return begin_of(match);
        }
    }
    return std::string::npos;
}

/* Stores the tokens that the grammar receives: those from the trigger on. If the trigger begins in the middle of a
 * token ("\n<tool_call>"), the grammar gets only the end of this token. */
void trigger::take_from(size_t at)
{
    size_t begin = 0;
    pieces.clear();
    for (const auto &[token, end] : ends) {
        const size_t from = std::max(begin, at);
        if (end > from) {
            pieces.push_back({token, text.substr(from, end - from)});
        }
        begin = end;
    }
}

/* Drops whole tokens from the beginning of `text`. Does nothing until `text` is longer than twice the needed length,
 * because dropping tokens moves the rest of `text` to the front. */
void trigger::cut()
{
    const size_t n_kept = std::max(patterns.empty() ? 0 : PATTERN_BYTES_MAX, longest_word);
    if (text.size() <= 2 * n_kept + 256) {
        return;
    }
    size_t n_gone = 0, i = 0;
    while (i < ends.size() && text.size() - ends[i].second >= n_kept) {
        n_gone = ends[i++].second;
    }
    text.erase(0, n_gone);
    ends.erase(ends.begin(), ends.begin() + static_cast<long>(i));
    for (auto &[token, end] : ends) {
        end -= n_gone;
    }
    is_cut = is_cut || n_gone > 0;
}

bool trigger::accept(int32_t token, const std::string &spelled)
{
    if (std::find(tokens.begin(), tokens.end(), token) != tokens.end()) {
        pieces.assign(1, {token, spelled});
        return true;
    }
    if (words.empty() && patterns.empty()) {
        return false;
    }
    const size_t n_before = text.size();
    text += spelled;
    ends.emplace_back(token, text.size());
    size_t at = find_word(n_before);
    at = at == std::string::npos && !patterns.empty() ? find_pattern() : at;
    if (at == std::string::npos) {
        cut();
        return false;
    }
    take_from(at);
    return true;
}
