#include "text/thinking.h"

#include <algorithm>

namespace {

/* The text ends with some bytes that `mark` begins with, and not with all of it. Blanks in front of a mark are as likely
 * a thought's own, so they do not count. */
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

std::string text_of(const std::vector<trigger::piece> &pieces)
{
    std::string out;
    for (const trigger::piece &p : pieces) {
        out += p.text;
    }
    return out;
}

} // namespace

size_t thinking::longest() const
{
    size_t n = start.size();
    for (const mark &end : ends) {
        n = std::max({n, end.tokens.size(), end.text.size()});
    }
    return n;
}

bool thinking::ends_with(const std::vector<int32_t> &sequence) const
{
    return !sequence.empty() && recent.size() >= sequence.size() &&
           std::equal(sequence.rbegin(), sequence.rend(), recent.rbegin(),
                      [](int32_t token, const trigger::piece &p) { return token == p.token; });
}

bool thinking::is_amid_mark() const
{
    const std::string text = text_of(recent);
    return std::any_of(ends.begin(), ends.end(), [&](const mark &end) { return ends_amid(text, end.text); });
}

/* A mark that has begun may become whole, and a forced end within it would break the call that it opens. The wait is
 * bounded: a thought may go on with the beginnings of marks for ever. */
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

/* Bytes from the begin of the first mark that the last token completed to the end; 0: it completed none. */
size_t thinking::ending_bytes() const
{
    const std::string text = text_of(recent);
    const size_t n_before = text.size() - recent.back().text.size();
    size_t begin = text.size();
    for (const mark &end : ends) {
        const size_t from = n_before >= end.text.size() ? n_before - end.text.size() + 1 : 0;
        begin = end.text.empty() ? begin : std::min(begin, text.find(end.text, from));
    }
    return text.size() - begin;
}

/* Fills last_ending. */
bool thinking::find_ending()
{
    size_t n_tokens = 0, n_bytes = 0;
    for (const mark &end : ends) {
        n_tokens = ends_with(end.tokens) ? std::max(n_tokens, end.tokens.size()) : n_tokens;
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

void thinking::accept(int32_t token, const std::string &text, bool is_whole)
{
    const size_t n_kept = longest();
    const bool was_forced = due() == token;
    last_ending.clear();
    if (n_kept == 0) {
        return;
    }
    recent.push_back({token, text});
    if (recent.size() > n_kept) {
        recent.erase(recent.begin());
    }
    ends_whole = is_whole;
    if (!is_inside) {
        is_between = has_ended && text.find_first_not_of(" \t\r\n") == std::string::npos;
        has_ended = is_between;
        if (ends_with(start)) {
            is_inside = true;
            recent.clear();
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
        recent.clear();
    }
}

void thinking::give_up()
{
    max = -1;
}
