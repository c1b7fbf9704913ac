/* unicode-pattern.h: parses the patterns (regular expressions) of pre-tokenizers into trees. cmake/llama.sh adds this
 * file to llama.cpp's src/. Used by unicode-split.h. Any thread.
 *
 * The patterns use these parts of ECMAScript: alternatives, groups, sets, greedy repetitions, lookaheads, `$`. For
 * anything else, the parser throws std::runtime_error, and the model cannot be loaded. If the parser ignored a part of
 * a pattern, texts would be split into other tokens than in training, and nobody would notice. */
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace unicode_split {

constexpr uint32_t NO_MAX = UINT32_MAX;

/* ---- sets of characters ------------------------------------------------------------------------------------------ */

struct char_range {
    uint32_t first, last;
};

/* The ranges are ascending, disjoint and not adjacent. */
using char_ranges = std::vector<char_range>;

inline char_ranges ranges_joined(char_ranges all)
{
    std::sort(all.begin(), all.end(), [](const char_range &a, const char_range &b) { return a.first < b.first; });
    char_ranges out;
    for (const char_range &r : all) {
        if (!out.empty() && (out.back().last == UINT32_MAX || r.first <= out.back().last + 1)) {
            out.back().last = std::max(out.back().last, r.last);
        } else {
            out.push_back(r);
        }
    }
    return out;
}

inline char_ranges ranges_negated(const char_ranges &in)
{
    char_ranges out;
    uint64_t next = 0;
    for (const char_range &r : in) {
        if (r.first > next) {
            out.push_back({static_cast<uint32_t>(next), r.first - 1});
        }
        next = static_cast<uint64_t>(r.last) + 1;
    }
    if (next <= UINT32_MAX) {
        out.push_back({static_cast<uint32_t>(next), UINT32_MAX});
    }
    return out;
}

inline char_ranges ranges_united(char_ranges a, const char_ranges &b)
{
    a.insert(a.end(), b.begin(), b.end());
    return ranges_joined(std::move(a));
}

inline char_ranges ranges_common(const char_ranges &a, const char_ranges &b)
{
    return ranges_negated(ranges_united(ranges_negated(a), ranges_negated(b)));
}

/* A set of characters. It has a table for the characters below 256, which are the most frequent, and uses binary search
 * for all others. */
struct char_set {
    bool low[256] = {};
    char_ranges ranges;

    explicit char_set(const char_ranges &all) : ranges(all)
    {
        for (uint32_t c = 0; c < 256; ++c) {
            low[c] = find(c);
        }
    }

    bool has(uint32_t c) const
    {
        return c < 256 ? low[c] : find(c);
    }

  private:
    bool find(uint32_t c) const
    {
        const auto it = std::upper_bound(ranges.begin(), ranges.end(), c,
                                         [](uint32_t value, const char_range &r) { return value < r.first; });
        return it != ranges.begin() && c <= (it - 1)->last;
    }
};

/* ---- the pattern as a tree --------------------------------------------------------------------------------------- */

struct node {
    enum kind_type { SET, SEQUENCE, CHOICE, REPEAT, AHEAD, END } kind;

    char_ranges set;           /* SET */
    std::vector<node> parts;   /* for all kinds except SET and END */
    uint32_t min = 1, max = 1; /* REPEAT */
    bool negated = false;      /* AHEAD */

    bool can_be_empty() const
    {
        switch (kind) {
        case SET: return false;
        case REPEAT: return min == 0 || parts[0].can_be_empty();
        case CHOICE: return std::any_of(parts.begin(), parts.end(), [](const node &n) { return n.can_be_empty(); });
        case SEQUENCE: return std::all_of(parts.begin(), parts.end(), [](const node &n) { return n.can_be_empty(); });
        default: return true;
        }
    }
};

/* Parses a pattern into a tree, by recursive descent. If A and B are sets, (A|B) and (?=A)B become one set. This
 * matters for repetitions: repeating a set is one instruction of the program, while any other repetition stores a
 * choice on the heap for each character. */
class parser {
  public:
    explicit parser(std::vector<uint32_t> pattern) : text(std::move(pattern)) {}

    node parse()
    {
        node all = choice();
        if (at < text.size()) {
            fail("an unexpected ')'");
        }
        return all;
    }

  private:
    const std::vector<uint32_t> text;
    size_t at = 0;

    [[noreturn]] void fail(const char *what) const
    {
        throw std::runtime_error("pre-tokenizer pattern, character " + std::to_string(at) + ": " + what);
    }

    bool is_next(uint32_t c) const
    {
        return at < text.size() && text[at] == c;
    }

    uint32_t any()
    {
        if (at == text.size()) {
            fail("it ends too early");
        }
        return text[at++];
    }

    node choice()
    {
        node out = {node::CHOICE, {}, {}, 1, 1, false};
        do {
            out.parts.push_back(sequence());
        } while (is_next('|') && ++at);
        if (out.parts.size() == 1) {
            return out.parts[0];
        }
        if (std::all_of(out.parts.begin(), out.parts.end(), [](const node &n) { return n.kind == node::SET; })) {
            node set = out.parts[0];
            for (const node &n : out.parts) {
                set.set = ranges_united(set.set, n.set);
            }
            return set;
        }
        return out;
    }

    node sequence()
    {
        node out = {node::SEQUENCE, {}, {}, 1, 1, false};
        while (at < text.size() && text[at] != '|' && text[at] != ')') {
            node next = repeated();
            if (next.kind == node::SET && !out.parts.empty() && is_ahead_of_set(out.parts.back())) {
                const node &ahead = out.parts.back();
                next.set =
                    ranges_common(next.set, ahead.negated ? ranges_negated(ahead.parts[0].set) : ahead.parts[0].set);
                out.parts.pop_back();
            }
            out.parts.push_back(std::move(next));
        }
        return out.parts.size() == 1 ? out.parts[0] : out;
    }

    static bool is_ahead_of_set(const node &n)
    {
        return n.kind == node::AHEAD && n.parts[0].kind == node::SET;
    }

    node repeated()
    {
        node body = atom();
        uint32_t min = 1, max = 1;
        if (is_next('*') || is_next('+') || is_next('?')) {
            min = text[at] == '+' ? 1 : 0;
            max = text[at] == '?' ? 1 : NO_MAX;
            ++at;
        } else if (is_next('{')) {
            ++at;
            min = number();
            max = min;
            if (is_next(',')) {
                ++at;
                max = is_next('}') ? NO_MAX : number();
            }
            if (any() != '}' || max < min) {
                fail("not a count");
            }
        } else {
            return body;
        }
        if (is_next('?') || is_next('+') || is_next('*') || is_next('{')) {
            fail("a repetition of another kind");
        }
        if (body.can_be_empty()) { /* such a repetition could match the empty string forever */
            fail("a repetition of something that may be empty");
        }
        return {node::REPEAT, {}, {std::move(body)}, min, max, false};
    }

    uint32_t number()
    {
        uint32_t out = 0;
        if (at == text.size() || text[at] < '0' || text[at] > '9') {
            fail("a number is missing");
        }
        while (at < text.size() && text[at] >= '0' && text[at] <= '9' && out < 10000) {
            out = out * 10 + (text[at++] - '0');
        }
        return out;
    }

    node atom()
    {
        const uint32_t c = any();
        switch (c) {
        case '(': return group();
        case '[': return set_of(bracket());
        case '\\': return set_of(escape());
        case '$': return {node::END, {}, {}, 1, 1, false};
        case '.':
        case '^':
        case '*':
        case '+':
        case '?':
        case '{': fail("a character with a meaning that is not known here");
        default: return set_of({{c, c}});
        }
    }

    static node set_of(char_ranges set)
    {
        return {node::SET, std::move(set), {}, 1, 1, false};
    }

    node group()
    {
        bool is_ahead = false, negated = false;
        if (is_next('?')) {
            ++at;
            const uint32_t kind = any();
            is_ahead = kind == '=' || kind == '!';
            negated = kind == '!';
            if (!is_ahead && kind != ':') {
                fail("a group of another kind");
            }
        }
        node body = choice();
        if (any() != ')') {
            fail("')' is missing");
        }
        if (!is_ahead) {
            return body;
        }
        return {node::AHEAD, {}, {std::move(body)}, 1, 1, negated};
    }

    char_ranges escape()
    {
        const uint32_t c = any();
        switch (c) {
        case 's': return {{'\t', '\r'}, {' ', ' '}};
        case 'S': return ranges_negated({{'\t', '\r'}, {' ', ' '}});
        case 'd': return {{'0', '9'}};
        case 'n': return {{'\n', '\n'}};
        case 'r': return {{'\r', '\r'}};
        case 't': return {{'\t', '\t'}};
        default: break;
        }
        if (c >= 128 || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')) {
            fail("an escape that is not known here");
        }
        return {{c, c}};
    }

    char_ranges bracket()
    {
        const bool negated = is_next('^') && ++at;
        char_ranges out;
        while (!is_next(']')) {
            const uint32_t c = any();
            char_ranges item = c == '\\' ? escape() : char_ranges{{c, c}};
            if (is_next('-') && at + 1 < text.size() && text[at + 1] != ']') {
                ++at;
                const uint32_t d = any();
                const char_ranges last = d == '\\' ? escape() : char_ranges{{d, d}};
                if (!is_single(item) || !is_single(last) || last[0].first < item[0].first) {
                    fail("not a range");
                }
                item[0].last = last[0].last;
            }
            out.insert(out.end(), item.begin(), item.end());
        }
        ++at;
        out = ranges_joined(std::move(out));
        return negated ? ranges_negated(out) : out;
    }

    static bool is_single(const char_ranges &r)
    {
        return r.size() == 1 && r[0].first == r[0].last;
    }
};

} // namespace unicode_split
