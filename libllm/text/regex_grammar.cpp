#include "text/regex_grammar.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "text/grammar.h"

namespace {

constexpr uint32_t LAST_CHARACTER = 0x10ffff;
constexpr size_t GROUPS_MAX = 64; /* one in another */

/* What a JSON string escapes with one letter: the character and the letter. */
const char *const ESCAPED_LETTERS = "\nn\tt\rr\bb\ff\"\"\\\\";

using ranges = std::vector<grammar_range>;

/* What is repeated, how long one of its texts is, and how often it stands there. */
struct piece {
    std::string rule;
    regex_count length = {1, 1}, times = {1, 1};
};

size_t sum(size_t a, size_t b)
{
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

size_t product(size_t a, size_t b)
{
    return b != 0 && a > SIZE_MAX / b ? SIZE_MAX : a * b;
}

regex_count length_of(const piece &p)
{
    return {product(p.length.least, p.times.least), product(p.length.most, p.times.most)};
}

void sort_out(ranges &set)
{
    std::sort(set.begin(), set.end(), [](const auto &a, const auto &b) { return a.low < b.low; });
    ranges merged;
    for (const grammar_range &r : set) {
        if (!merged.empty() && r.low <= merged.back().high + 1) {
            merged.back().high = std::max(merged.back().high, r.high);
        } else {
            merged.push_back(r);
        }
    }
    set = std::move(merged);
}

ranges all_but(ranges set)
{
    sort_out(set);
    ranges rest;
    uint32_t next = 0;
    for (const grammar_range &r : set) {
        if (r.low > next) {
            rest.push_back({next, r.low - 1});
        }
        next = r.high + 1;
    }
    if (next <= LAST_CHARACTER) {
        rest.push_back({next, LAST_CHARACTER});
    }
    return rest;
}

/* \d, \w, \s and their opposites; false: no such letter. */
bool named_set(char letter, ranges &out)
{
    switch (letter) {
    case 'd':
    case 'D': out = {{'0', '9'}}; break;
    case 'w':
    case 'W': out = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; break;
    case 's':
    case 'S': out = {{'\t', '\r'}, {' ', ' '}, {0xa0, 0xa0}, {0x2028, 0x2029}, {0xfeff, 0xfeff}}; break;
    default: return false;
    }
    if (letter < 'a') {
        out = all_but(out);
    }
    return true;
}

std::string shown(uint32_t c)
{
    char text[16];
    snprintf(text, sizeof text, "\\U%08X", c);
    return text;
}

/* In a JSON string. */
std::string escaped(uint32_t c)
{
    const char *letters = ESCAPED_LETTERS;
    for (const char *l = letters; *l != '\0'; l += 2) {
        if (c == static_cast<uint32_t>(*l)) {
            return {'\\', l[1]};
        }
    }
    char text[16];
    if (c < 0x20) {
        snprintf(text, sizeof text, "\\u%04x", c);
        return text;
    }
    return utf8_of(c);
}

std::string set_text(const ranges &set)
{
    std::string out = "[";
    for (const grammar_range &r : set) {
        out += shown(r.low) + (r.high > r.low ? "-" + shown(r.high) : "");
    }
    return out + "]";
}

class translator {
  public:
    translator(const std::string &expression, regex_of where) : text(expression), in(where) {}

    std::string translate(bool is_search, const regex_count &length)
    {
        const bool from_start = !text.empty() && text[0] == '^';
        const bool to_end = text.size() > from_start && text.back() == '$' && !is_escaped(text.size() - 1);
        at = from_start;
        end = text.size() - to_end;
        const piece body = alternatives(0);
        if (at != end) {
            fail("an unbalanced )");
        }
        if (is_search && has_ways && (from_start || to_end)) {
            refuse("ways of which one begins with ^ or ends with $; put them into a group");
        }
        const bool is_open_before = is_search && !from_start, is_open_behind = is_search && !to_end;
        const size_t most = is_open_before || is_open_behind ? SIZE_MAX : body.length.most;
        if (body.length.least < length.least || most > length.most) {
            return narrowed(is_open_before, is_open_behind, length);
        }
        const std::string any = set_of(all_but({}), false) + "*";
        return (is_open_before ? any + " " : "") + "(" + body.rule + ")" + (is_open_behind ? " " + any : "");
    }

  private:
    const std::string &text;
    regex_of in;
    size_t at = 0, end = 0;
    bool has_ways = false;     /* a | outside of groups */
    std::vector<piece> pieces; /* outside of groups */

    [[noreturn]] static void refuse(const std::string &what)
    {
        throw grammar_beyond("the regular expression has " + what + ", which cannot be expressed");
    }

    [[noreturn]] static void fail(const std::string &what)
    {
        throw grammar_fault("the regular expression has " + what);
    }

    bool is_escaped(size_t i) const
    {
        size_t n = 0;
        while (i > n && text[i - 1 - n] == '\\') {
            n++;
        }
        return n % 2 == 1;
    }

    bool has(char c) const
    {
        return at < end && text[at] == c;
    }

    /* What is there at least is enough beside any text. */
    void open(bool is_before, bool is_behind)
    {
        const piece any = {set_of(all_but({}), false), {1, 1}, {0, SIZE_MAX}};
        if (is_before && !pieces.empty()) {
            pieces.front().times.most = pieces.front().times.least;
        }
        if (is_behind && !pieces.empty()) {
            pieces.back().times.most = pieces.back().times.least;
        }
        if (is_before) {
            pieces.insert(pieces.begin(), any);
        }
        if (is_behind) {
            pieces.push_back(any);
        }
    }

    /* The texts of that length, where one piece decides how long they are. */
    std::string narrowed(bool is_open_before, bool is_open_behind, const regex_count &length)
    {
        if (has_ways) {
            refuse("ways that are not all of that length");
        }
        open(is_open_before, is_open_behind);
        piece *deciding = nullptr;
        size_t n_others = 0;
        for (piece &p : pieces) {
            const regex_count own = length_of(p);
            if (own.least == own.most) {
                n_others = sum(n_others, own.least);
            } else if (deciding == nullptr && p.length.least == 1 && p.length.most == 1) {
                deciding = &p;
            } else {
                refuse("several parts that decide how long a text is");
            }
        }
        if (deciding == nullptr || n_others > length.most || !narrow(deciding->times, length, n_others)) {
            fail("no text of that length");
        }
        std::string out;
        for (const piece &p : pieces) {
            out += p.times.most > 0 ? " " + p.rule + repetition(p.times) : "";
        }
        return out;
    }

    /* False: nothing is left. */
    static bool narrow(regex_count &times, const regex_count &length, size_t n_others)
    {
        times.least = std::max(times.least, length.least - std::min(length.least, n_others));
        times.most = std::min(times.most, length.most == SIZE_MAX ? SIZE_MAX : length.most - n_others);
        return times.least <= times.most;
    }

    static std::string repetition(const regex_count &times)
    {
        return "{" + std::to_string(times.least) + "," + (times.most == SIZE_MAX ? "" : std::to_string(times.most)) +
               "}";
    }

    std::string set_of(ranges set, bool is_negated) const
    {
        sort_out(set);
        const std::string out = grammar_set(is_negated ? all_but(set) : set, in);
        if (out.empty()) {
            refuse("a set without characters");
        }
        return out;
    }

    std::string character(uint32_t c) const
    {
        return in == regex_of::TEXT ? "[" + shown(c) + "]" : grammar_literal(escaped(c));
    }

    uint32_t read_utf8()
    {
        const uint8_t first = static_cast<uint8_t>(text[at++]);
        const int n = first < 0xc0 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
        uint32_t value = n == 0 ? first : first & (0x3fu >> n);
        for (int i = 0; i < n && at < end; i++) {
            value = value << 6 | (static_cast<uint8_t>(text[at++]) & 0x3fu);
        }
        return value;
    }

    uint32_t read_hex(size_t n)
    {
        if (end - at < n) {
            fail("an escape that ends early");
        }
        uint32_t value = 0;
        for (size_t i = 0; i < n; i++) {
            const char *digits = "0123456789abcdef";
            const char *found = strchr(digits, text[at] | 0x20);
            if (text[at] == '\0' || found == nullptr) {
                fail("an escape without hexadecimal digits");
            }
            value = value << 4 | static_cast<uint32_t>(found - digits);
            at++;
        }
        return value;
    }

    /* Behind the backslash; a letter that is no escape is refused. */
    uint32_t read_escape()
    {
        if (at >= end) {
            fail("a backslash at its end");
        }
        const char c = text[at];
        switch (c) {
        case 'n': at++; return '\n';
        case 't': at++; return '\t';
        case 'r': at++; return '\r';
        case 'f': at++; return '\f';
        case 'v': at++; return '\v';
        case '0': at++; return 0;
        case 'x': at++; return read_hex(2);
        case 'u': at++; return read_hex(4);
        default: break;
        }
        if (isalnum(static_cast<unsigned char>(c))) {
            refuse(std::string("\\") + c);
        }
        return read_utf8();
    }

    std::string read_set()
    {
        ranges set;
        const bool is_negated = has('^');
        at += is_negated;
        while (!has(']')) {
            if (at >= end) {
                fail("a [ that is not closed");
            }
            ranges named;
            if (has('\\') && at + 1 < end && named_set(text[at + 1], named)) {
                at += 2;
                set.insert(set.end(), named.begin(), named.end());
                continue;
            }
            const uint32_t low = read_set_character();
            uint32_t high = low;
            if (has('-') && at + 1 < end && text[at + 1] != ']') {
                at++;
                high = read_set_character();
            }
            if (high < low) {
                fail("a range that runs backwards");
            }
            set.push_back({low, high});
        }
        at++;
        return set_of(set, is_negated);
    }

    uint32_t read_set_character()
    {
        if (!has('\\')) {
            return read_utf8();
        }
        at++;
        if (has('b')) {
            at++;
            return '\b';
        }
        return read_escape();
    }

    piece read_group(size_t depth)
    {
        if (depth >= GROUPS_MAX) {
            refuse("too many groups in one another");
        }
        if (has('?')) {
            if (at + 1 >= end || text[at + 1] != ':') {
                refuse("(?" + text.substr(at + 1, 1));
            }
            at += 2;
        }
        const piece body = alternatives(depth + 1);
        if (!has(')')) {
            fail("a ( that is not closed");
        }
        at++;
        return {"(" + body.rule + ")", body.length};
    }

    piece read_item(size_t depth)
    {
        ranges named;
        const char c = text[at];
        switch (c) {
        case '(': at++; return read_group(depth);
        case '[': at++; return {read_set()};
        case '.': at++; return {set_of({{'\n', '\n'}, {'\r', '\r'}}, true)};
        case '^':
        case '$': refuse(std::string(1, c) + " inside");
        case '*':
        case '+':
        case '?': fail(std::string(1, c) + " with nothing before it");
        case '\\':
            if (at + 1 < end && named_set(text[at + 1], named)) {
                at += 2;
                return {set_of(named, false)};
            }
            at++;
            return {character(read_escape())};
        default: return {character(read_utf8())};
        }
    }

    /* *, +, ? or counts, as GBNF writes them; lazy or not, the texts are the same. */
    std::string read_repetition(regex_count &times)
    {
        std::string out;
        if (has('*') || has('+') || has('?')) {
            times = {text[at] == '+' ? 1u : 0u, text[at] == '?' ? 1 : SIZE_MAX};
            out = text[at++];
        } else if (has('{')) {
            const size_t close = text.find('}', at);
            const std::string counts = close < end ? text.substr(at, close + 1 - at) : "";
            if (counts.size() < 3 || !isdigit(static_cast<unsigned char>(counts[1])) ||
                counts.find_first_not_of("0123456789,", 1) != counts.size() - 1) {
                refuse("counts like " + text.substr(at, 8));
            }
            at = close + 1;
            times = times_of(counts);
            out = counts;
        }
        if (!out.empty() && (has('?') || has('+'))) {
            if (has('+')) {
                refuse("a possessive repetition");
            }
            at++;
        }
        return out;
    }

    /* Of counts in braces. */
    static regex_count times_of(const std::string &counts)
    {
        char *behind = nullptr;
        const size_t least = strtoull(counts.c_str() + 1, &behind, 10);
        if (*behind != ',') {
            return {least, least};
        }
        return {least, behind[1] == '}' ? SIZE_MAX : strtoull(behind + 1, nullptr, 10)};
    }

    piece alternatives(size_t depth)
    {
        std::string out;
        bool is_empty = true;
        regex_count all = {SIZE_MAX, 0}, way = {0, 0};
        while (at < end && text[at] != ')') {
            if (text[at] == '|') {
                at++;
                out += is_empty ? "\"\" |" : " |";
                is_empty = true;
                has_ways = has_ways || depth == 0;
                all = {std::min(all.least, way.least), std::max(all.most, way.most)};
                way = {0, 0};
                continue;
            }
            piece next = read_item(depth);
            out += " " + next.rule + read_repetition(next.times);
            const regex_count own = length_of(next);
            way = {sum(way.least, own.least), sum(way.most, own.most)};
            is_empty = false;
            if (depth == 0) {
                pieces.push_back(std::move(next));
            }
        }
        return {is_empty ? out + " \"\"" : out, {std::min(all.least, way.least), std::max(all.most, way.most)}};
    }
};

} // namespace

std::string regex_grammar(const std::string &expression, regex_of where, bool is_search, regex_count length)
{
    return translator(expression, where).translate(is_search, length);
}

std::string grammar_set(std::vector<grammar_range> set, regex_of where)
{
    sort_out(set);
    if (where == regex_of::TEXT) {
        return set.empty() ? "" : set_text(set);
    }
    const auto has = [&](uint32_t c) {
        return std::any_of(set.begin(), set.end(), [&](const auto &r) { return r.low <= c && c <= r.high; });
    };
    std::string letters;
    for (const char *l = ESCAPED_LETTERS; *l != '\0'; l += 2) {
        letters += has(static_cast<uint32_t>(*l)) ? shown(static_cast<uint8_t>(l[1])) : "";
    }
    ranges others = all_but(set);
    others.insert(others.end(), {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}});
    const ranges plain = all_but(others);
    const std::string escapes = letters.empty() ? "" : "\"\\\\\" [" + letters + "]";
    if (plain.empty() || escapes.empty()) {
        return plain.empty() ? (escapes.empty() ? "" : "(" + escapes + ")") : set_text(plain);
    }
    return "(" + set_text(plain) + " | " + escapes + ")";
}

std::string utf8_of(uint32_t c)
{
    const int n = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    const uint32_t lead[] = {0, 0xc0, 0xe0, 0xf0};
    std::string out(1, static_cast<char>(lead[n] | c >> (6 * n)));
    for (int i = n; i-- > 0;) {
        out += static_cast<char>(0x80u | (c >> (6 * i) & 0x3fu));
    }
    return out;
}

std::string json_escaped(const std::string &text)
{
    std::string out;
    for (const char c : text) {
        const uint8_t byte = static_cast<uint8_t>(c);
        out += byte < 0x80 ? escaped(byte) : std::string(1, c);
    }
    return out;
}

std::string grammar_literal(const std::string &text)
{
    std::string out = "\"";
    for (const char c : text) {
        char escape[8];
        if (c == '"' || c == '\\') {
            out += {'\\', c};
        } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
            snprintf(escape, sizeof escape, "\\x%02X", static_cast<unsigned>(c));
            out += escape;
        } else {
            out += c;
        }
    }
    return out + "\"";
}
