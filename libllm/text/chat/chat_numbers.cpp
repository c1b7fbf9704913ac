#include "text/chat/chat_numbers.h"

#include <cstdio>
#include <cstdlib>

namespace {

constexpr long FIRST_PREFIX = 713091731, PREFIXES_MAX = 16;
constexpr size_t INDEX_DIGITS = 6, NUMBERS_MAX = 1'000'000; /* a replacement integer has 15 digits: a prefix and an
                                                             * index. A double represents such an integer exactly */

/* Returns whether templates print a number without changing its value. llama.cpp's template engine stores integers as
 * signed 64-bit numbers. The engine prints other numbers with six significant digits or with six decimal places. */
bool is_printed_exactly(const common_json &number)
{
    if (number.is_number_integer()) {
        return number.get<int64_t>() >= 0 || number.dump_safe().front() == '-';
    }
    const double value = number.get<double>();
    char text[512];
    snprintf(text, sizeof text, "%g", value);
    if (strtod(text, nullptr) != value) {
        return false;
    }
    snprintf(text, sizeof text, "%f", value);
    return strtod(text, nullptr) == value;
}

} // namespace

chat_numbers::chat_numbers(const std::string &request)
{
    for (long i = 0; i < PREFIXES_MAX && prefix.empty(); i++) {
        const std::string digits = std::to_string(FIRST_PREFIX + i);
        prefix = request.find(digits) == std::string::npos ? digits : "";
    }
}

common_json chat_numbers::stand_in(const common_json &number)
{
    if (prefix.empty() || texts.size() == NUMBERS_MAX || is_printed_exactly(number)) {
        return number;
    }
    const std::string index = std::to_string(texts.size());
    texts.push_back(number.dump_safe());
    return common_json::make(std::stoll(prefix + std::string(INDEX_DIGITS - index.size(), '0') + index));
}

void chat_numbers::put(chat_text *rendered) const
{
    if (texts.empty()) {
        return;
    }
    const std::string text = rendered->text, blocked = rendered->blocked;
    size_t copied = 0;
    for (size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix, at + prefix.size())) {
        const size_t end = at + prefix.size() + INDEX_DIGITS;
        const std::string digits = text.substr(at + prefix.size(), INDEX_DIGITS);
        const bool is_index =
            digits.size() == INDEX_DIGITS && digits.find_first_not_of("0123456789") == std::string::npos;
        const size_t index = is_index ? std::stoul(digits) : texts.size();
        if (index >= texts.size()) {
            continue;
        }
        if (copied == 0) {
            *rendered = chat_text();
        }
        rendered->text.append(text, copied, at - copied).append(texts[index]);
        rendered->blocked.append(blocked, copied, at - copied).append(texts[index].size(), '\1');
        copied = end;
    }
    if (copied > 0) {
        rendered->text.append(text, copied);
        rendered->blocked.append(blocked, copied);
    }
}
