#include "text/constraint/thinking.h"

#include <algorithm>

namespace {

/* Returns whether the text ends with the first bytes of the end delimiter `mark`, but not with the whole delimiter.
 * Blanks at the start of the delimiter are ignored, because in the text most such blanks belong to the reasoning. */
bool ends_amid(const std::string &text, const std::string &mark)
{
    const size_t from = std::min(mark.find_first_not_of(" \t\r\n"), mark.size());
    for (size_t n = std::min(text.size(), mark.size() - from); n > 0; n--) {
        if (from + n < mark.size() && text.compare(text.size() - n, n, mark, from, n) == 0) {
            return true;
        }
    }
    return false;
}

} // namespace

void thinking::add_end(mark end)
{
    longest_tokens = std::max(longest_tokens, end.tokens.size());
    longest_text = std::max(longest_text, end.text.size());
    if (!end.tokens.empty()) {
        last_tokens.insert(end.tokens.back());
    }
    if (!end.text.empty()) {
        is_last_byte[static_cast<unsigned char>(end.text.back())] = true;
    }
    ends.push_back(std::move(end));
}

size_t thinking::longest() const
{
    return std::max({start.size(), longest_tokens, longest_text});
}

std::string thinking::recent_text() const
{
    std::string out;
    for (const trigger::piece &p : recent) {
        out += p.text;
    }
    return out;
}

/* Adds a token to `recent`. Removes the oldest tokens if no delimiter is long enough to contain both such a token and
 * the new token. */
void thinking::remember(int32_t token, const std::string &text)
{
    const size_t n_tokens = std::max(start.size(), longest_tokens);
    recent.push_back({token, text});
    n_recent_bytes += text.size();
    while (recent.size() > longest() ||
           (recent.size() > n_tokens && n_recent_bytes - recent.front().text.size() >= longest_text + text.size())) {
        n_recent_bytes -= recent.front().text.size();
        recent.pop_front();
    }
}

void thinking::forget()
{
    recent.clear();
    n_recent_bytes = 0;
}

bool thinking::ends_with(const std::vector<int32_t> &sequence) const
{
    return !sequence.empty() && recent.size() >= sequence.size() &&
           std::equal(sequence.rbegin(), sequence.rend(), recent.rbegin(),
                      [](int32_t token, const trigger::piece &p) { return token == p.token; });
}

bool thinking::is_amid_mark() const
{
    const std::string text = recent_text();
    return std::any_of(ends.begin(), ends.end(), [&](const mark &end) { return ends_amid(text, end.text); });
}

/* When the reasoning budget is used up, the tokens that end the reasoning are forced. The first forced token comes
 * only after a complete character. This token also waits while the text ends with the first bytes of an end
 * delimiter. These bytes may begin a tool call, and the forced tokens would then be written into this call.
 * Reasoning could contain such bytes again and again. So the token waits for at most as many bytes as the longest
 * delimiter has. */
int32_t thinking::due() const
{
    if (!is_inside || max < 0 || n_inside < max || n_forced == forced.size()) {
        return -1;
    }
    if (n_forced == 0) {
        const bool may_wait = n_inside - max < static_cast<int64_t>(longest());
        if (!ends_whole || (may_wait && is_amid_mark())) {
            return -1;
        }
    }
    return forced[n_forced];
}

/* Looks for the first end delimiter that the last token completed. Returns the number of bytes from the delimiter's
 * start to the end of the text, or 0 if the token completed no end delimiter. */
size_t thinking::ending_bytes() const
{
    const std::string &last = recent.back().text;
    if (std::none_of(last.begin(), last.end(), [&](char c) { return is_last_byte[static_cast<unsigned char>(c)]; })) {
        return 0;
    }
    const std::string text = recent_text();
    const size_t n_before = text.size() - last.size();
    size_t begin = text.size();
    for (const mark &end : ends) {
        const size_t from = n_before >= end.text.size() ? n_before - end.text.size() + 1 : 0;
        begin = end.text.empty() ? begin : std::min(begin, text.find(end.text, from));
    }
    return text.size() - begin;
}

/* Returns whether the last token completed an end delimiter, and stores the delimiter's tokens in last_ending. */
bool thinking::find_ending()
{
    size_t n_tokens = 0, n_bytes = 0;
    if (last_tokens.count(recent.back().token) > 0) {
        for (const mark &end : ends) {
            n_tokens = ends_with(end.tokens) ? std::max(n_tokens, end.tokens.size()) : n_tokens;
        }
    }
    if (n_tokens == 0) {
        const size_t n_wanted = ending_bytes();
        while (n_bytes < n_wanted) {
            n_bytes += recent[recent.size() - ++n_tokens].text.size();
        }
    }
    last_ending.assign(recent.end() - static_cast<long>(n_tokens), recent.end());
    return n_tokens > 0;
}

/* Outside reasoning, only the tokens that open reasoning are searched for. Inside reasoning, only end delimiters are
 * searched for. Blanks after the end of reasoning belong neither to the reasoning nor to the answer. is_between is true
 * for these blanks. The complete sequence of forced tokens ends the reasoning even if this sequence is no end
 * delimiter. */
void thinking::accept(int32_t token, const std::string &text, bool is_whole)
{
    const bool was_forced = due() == token;
    last_ending.clear();
    if (longest() == 0) {
        return;
    }
    remember(token, text);
    ends_whole = is_whole;
    if (!is_inside) {
        is_between = has_ended && text.find_first_not_of(" \t\r\n") == std::string::npos;
        has_ended = is_between;
        if (ends_with(start)) {
            is_inside = true;
            forget();
            n_inside = 0;
            n_forced = 0;
        }
        return;
    }
    n_inside++;
    n_forced += was_forced;
    if (find_ending() || (was_forced && n_forced == forced.size())) {
        is_inside = false;
        has_ended = true;
        forget();
    }
}

void thinking::give_up()
{
    max = -1;
}
