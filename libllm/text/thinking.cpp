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

void thinking::accept(int32_t token, bool is_whole)
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
        if (ends_with(start)) {
            is_inside = true;
            n_inside = 0;
            n_forced = 0;
        }
        return;
    }
    n_inside++;
    n_forced += was_forced;
    if (ends_with(end) || (was_forced && n_forced == forced.size())) {
        is_inside = false;
    }
}

void thinking::give_up()
{
    max = -1;
}
