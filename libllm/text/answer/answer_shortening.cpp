#include "text/answer/answer_shortening.h"

#include <algorithm>
#include <vector>

namespace {

constexpr size_t HEAD = 32, TAIL = 96; /* number of bytes kept at the beginning and the end of a long string; TAIL is
                                        * longer than any closing delimiter */
constexpr char MARKED_QUOTE[] = "<|\"|>";

struct span {
    size_t begin, end;
};

bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

bool is_within_character(char c)
{
    return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

/* Scans the lists, objects and strings of a value that is still being generated. Finds the parts that can be left
 * out. */
class containers {
  public:
    containers(const std::string &value_text, size_t begin, bool is_marked)
        : text(value_text), at(begin), has_marked_strings(is_marked)
    {
        while (at < text.size() && !is_complete) {
            quote.empty() ? follow() : follow_string();
        }
    }

    /* Returns the parts that can be left out, in ascending order and not adjacent. These parts are the complete
     * elements of each list or object that is still open. The middle of a string that is still open can also be left
     * out. If the element after the last comma has no byte yet, all elements of its list or object are kept. */
    std::vector<span> superfluous() const
    {
        std::vector<span> out;
        for (const level &l : open) {
            if (l.has_begun && l.current > l.first && !is_complete) {
                out.push_back({l.first, l.current});
            }
        }
        if (!quote.empty() && cut_begin > 0 && cut_end > cut_begin) {
            out.push_back({cut_begin, cut_end});
        }
        return out;
    }

  private:
    struct level {
        size_t first, current; /* positions at which the first and the current element begin */
        bool has_begun;        /* the current element has at least one byte */
    };

    void follow()
    {
        const char c = text[at];
        if (has_marked_strings ? text.compare(at, sizeof MARKED_QUOTE - 1, MARKED_QUOTE) == 0 : c == '"' || c == '\'') {
            begin_element();
            quote = has_marked_strings ? MARKED_QUOTE : std::string(1, c);
            at += quote.size();
            string_begin = at;
            cut_begin = cut_end = 0;
            return;
        }
        at++;
        if (c == '{' || c == '[') {
            begin_element();
            open.push_back({at, at, false});
        } else if (c == '}' || c == ']') {
            open.empty() ? void() : open.pop_back();
            is_complete = open.empty();
        } else if (c == ',' && !open.empty()) {
            open.back().current = at;
            open.back().has_begun = false;
        } else if (!is_blank(c)) {
            begin_element();
        }
    }

    void begin_element()
    {
        if (!open.empty()) {
            open.back().has_begun = true;
        }
    }

    /* Moves past the next escape or character, or past the closing quote. The omitted part of a string begins and ends
     * at such positions (cut_begin, cut_end), never inside an escape or character. */
    void follow_string()
    {
        if (at >= string_begin + HEAD && cut_begin == 0) {
            cut_begin = at;
        }
        if (at + TAIL <= text.size()) {
            cut_end = at;
        }
        if (text.compare(at, quote.size(), quote) == 0) {
            at += quote.size();
            quote.clear();
            is_complete = open.empty();
        } else if (text[at] == '\\' && !has_marked_strings) {
            at += at + 1 < text.size() && text[at + 1] == 'u' ? 6 : 2;
        } else {
            do {
                at++;
            } while (at < text.size() && is_within_character(text[at]));
        }
    }

    const std::string &text;
    size_t at;
    bool has_marked_strings, is_complete = false;
    std::vector<level> open;
    std::string quote; /* opening quote of the current string */
    size_t string_begin = 0, cut_begin = 0, cut_end = 0;
};

/* For an argument that is plain text between delimiters, without quotes: returns the part of the text that can be left
 * out. This part is the middle of the text, from one character boundary to another. */
std::vector<span> superfluous_text(const std::string &text, size_t begin)
{
    size_t from = begin + HEAD, to = text.size() < TAIL ? 0 : text.size() - TAIL;
    while (from < to && is_within_character(text[from])) {
        from++;
    }
    while (to > from && is_within_character(text[to])) {
        to--;
    }
    return from < to ? std::vector<span>{{from, to}} : std::vector<span>();
}

/* Returns the parts that can be left out of the value in which the text ends. No part of a number can be left out. The
 * parser needs all characters to see that the value is a number. */
std::vector<span> superfluous_value(const std::string &text, const answer_reading &now, bool has_marked_strings)
{
    const size_t begin = text.find_first_not_of(" \t\r\n", now.value);
    if (begin >= text.size()) {
        return {};
    }
    const char c = text[begin];
    if (now.is_value_verbatim) {
        return superfluous_text(text, begin);
    }
    if (c == '{' || c == '[' || c == '"' || c == '\'') {
        return containers(text, begin, has_marked_strings).superfluous();
    }
    const bool is_number = (c >= '0' && c <= '9') || c == '-';
    return is_number ? std::vector<span>() : superfluous_text(text, begin);
}

/* Returns whether `less` can be made from `text` by leaving out characters. The omitted parts must be the only
 * difference between the two texts. */
bool is_spelled_within(const std::string &less, const std::string &text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.size() && n < less.size(); i++) {
        n += text[i] == less[n];
    }
    return n == less.size();
}

} // namespace

answer_shortening answer_shortened(const std::string &text, const answer_reading &now, bool has_marked_strings)
{
    answer_shortening out;
    std::vector<span> spans;
    if (now.said.tool_calls.size() > 1 && now.first_call < now.last_call) {
        spans.push_back({now.first_call, now.last_call});
        out.n_calls = now.said.tool_calls.size() - 1;
    }
    for (const answer_reading::list &l : now.lists) {
        const bool has_begun = now.value >= l.last && now.value < text.size();
        if (has_begun && l.first < l.last && (spans.empty() || spans.back().end <= l.first)) {
            spans.push_back({l.first, l.last});
        }
    }
    if (now.value < text.size() && (spans.empty() || spans.back().end <= now.value)) {
        const std::vector<span> more = superfluous_value(text, now, has_marked_strings);
        spans.insert(spans.end(), more.begin(), more.end());
    }
    size_t at = 0;
    for (const span &s : spans) {
        out.head.append(text, at, s.begin - at);
        at = s.end;
    }
    out.n_tail = text.size() - at;
    return out;
}

bool answer_says_less(const answer_reading &now, const answer_reading &less, size_t n_calls)
{
    const auto &calls = now.said.tool_calls, &left = less.said.tool_calls;
    return less.fits && less.last == now.last && less.said.content == now.said.content &&
           less.said.reasoning_content == now.said.reasoning_content && left.size() + n_calls == calls.size() &&
           !left.empty() && left.back().name == calls.back().name && left.back().id == calls.back().id &&
           !left.back().arguments.empty() && left.back().arguments.back() == calls.back().arguments.back() &&
           is_spelled_within(left.back().arguments, calls.back().arguments);
}
