#include "text/thinking.h"

#include <algorithm>

int32_t thinking::due() const
{
    const bool is_over = is_inside && max >= 0 && n_inside >= max && n_forced < forced.size();
    return is_over && (ends_whole || n_forced > 0) ? forced[n_forced] : -1;
}

bool thinking::ends_with(const std::vector<int32_t> &sequence) const
{
    return !sequence.empty() && recent.size() >= sequence.size() &&
           std::equal(sequence.rbegin(), sequence.rend(), recent.rbegin());
}

/* Of the text up to here, of which little is kept. */
bool thinking::has_end_text(const std::string &text)
{
    if (end_text.empty()) {
        return false;
    }
    recent_text += text;
    const bool has = recent_text.find(end_text) != std::string::npos;
    if (recent_text.size() >= end_text.size()) {
        recent_text.erase(0, recent_text.size() - end_text.size() + 1);
    }
    return has;
}

void thinking::accept(int32_t token, const std::string &text, bool is_whole)
{
    const size_t n_kept = std::max(start.size(), end.size());
    const bool was_forced = due() == token;
    if (n_kept == 0) {
        return;
    }
    recent.push_back(token);
    if (recent.size() > n_kept) {
        recent.erase(recent.begin());
    }
    ends_whole = is_whole;
    if (!is_inside) {
        is_between = has_ended && text.find_first_not_of(" \t\r\n") == std::string::npos;
        has_ended = is_between;
        if (ends_with(start)) {
            is_inside = true;
            recent_text.clear();
            n_inside = 0;
            n_forced = 0;
        }
        return;
    }
    n_inside++;
    n_forced += was_forced;
    const bool has_text = has_end_text(text);
    if (has_text || ends_with(end) || (was_forced && n_forced == forced.size())) {
        is_inside = false;
        has_ended = true;
    }
}

void thinking::give_up()
{
    max = -1;
}
