#if defined(__GNUC__) && !defined(__clang__) /* GCC 12 gives a wrong warning about std::regex with sanitizers */
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "pattern_split.h"

#include <algorithm>
#include <cstring>
#include <regex>

#include "unicode-split.h"

int64_t pattern_split(const char *pattern, const char *text, size_t n_bytes, size_t *lengths)
{
    try {
        const std::vector<size_t> out =
            unicode_split::split(std::string(text, n_bytes), std::string(pattern), {n_bytes});
        std::copy(out.begin(), out.end(), lengths);
        return static_cast<int64_t>(out.size());
    } catch (const std::runtime_error &e) {
        return std::strstr(e.what(), "too many steps") != nullptr ? PATTERN_TOO_MANY_STEPS : PATTERN_REFUSED;
    }
}

/* As llama.cpp does it. */
int64_t pattern_split_std(const char *pattern, const char *text, size_t n_bytes, size_t *lengths)
{
    const std::string all(text, n_bytes);
    const std::regex expression(pattern, std::regex_constants::optimize | std::regex_constants::nosubs);
    int64_t n = 0, done = 0;
    for (std::sregex_iterator it(all.begin(), all.end(), expression), end; it != end; ++it) {
        if (it->position() > done) {
            lengths[n++] = static_cast<size_t>(it->position() - done);
        }
        lengths[n++] = static_cast<size_t>(it->length());
        done = it->position() + it->length();
    }
    if (done < static_cast<int64_t>(n_bytes)) {
        lengths[n++] = n_bytes - static_cast<size_t>(done);
    }
    return n;
}
