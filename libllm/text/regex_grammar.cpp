#include "text/regex_grammar.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <vector>

#include "text/grammar.h"

namespace {

constexpr uint32_t LAST_CHARACTER = 0x10ffff;
constexpr size_t GROUPS_MAX = 64; /* one in another */

/* What a JSON string escapes with one letter: the character and the letter. */
const char *const ESCAPED_LETTERS = "\nn\tt\rr\bb\ff\"\"\\\\";

using ranges = std::vector<grammar_range>;

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

    std::string translate(bool is_search)
    {
        const bool from_start = !text.empty() && text[0] == '^';
        const bool to_end = text.size() > from_start && text.back() == '$' && !is_escaped(text.size() - 1);
        at = from_start;
        end = text.size() - to_end;
        const std::string body = alternatives(0);
        if (at != end) {
            fail("an unbalanced )");
        }
        if (is_search && has_ways && (from_start || to_end)) {
            refuse("ways of which one begins with ^ or ends with $; put them into a group");
        }
        const std::string any = set_of(all_but({}), false) + "*";
        return (is_search && !from_start ? any + " " : "") + "(" + body + ")" + (is_search && !to_end ? " " + any : "");
    }

  private:
    const std::string &text;
    regex_of in;
    size_t at = 0, end = 0;
    bool has_ways = false; /* a | outside of groups */

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

    std::string read_group(size_t depth)
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
        const std::string body = alternatives(depth + 1);
        if (!has(')')) {
            fail("a ( that is not closed");
        }
        at++;
        return "(" + body + ")";
    }

    std::string read_item(size_t depth)
    {
        ranges named;
        const char c = text[at];
        switch (c) {
        case '(': at++; return read_group(depth);
        case '[': at++; return read_set();
        case '.': at++; return set_of({{'\n', '\n'}, {'\r', '\r'}}, true);
        case '^':
        case '$': refuse(std::string(1, c) + " inside");
        case '*':
        case '+':
        case '?': fail(std::string(1, c) + " with nothing before it");
        case '\\':
            if (at + 1 < end && named_set(text[at + 1], named)) {
                at += 2;
                return set_of(named, false);
            }
            at++;
            return character(read_escape());
        default: return character(read_utf8());
        }
    }

    /* *, +, ? or counts, as GBNF writes them; lazy or not, the texts are the same. */
    std::string read_repetition()
    {
        std::string out;
        if (has('*') || has('+') || has('?')) {
            out = text[at++];
        } else if (has('{')) {
            const size_t close = text.find('}', at);
            const std::string counts = close < end ? text.substr(at, close + 1 - at) : "";
            if (counts.size() < 3 || !isdigit(static_cast<unsigned char>(counts[1])) ||
                counts.find_first_not_of("0123456789,", 1) != counts.size() - 1) {
                refuse("counts like " + text.substr(at, 8));
            }
            at = close + 1;
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

    std::string alternatives(size_t depth)
    {
        std::string out;
        bool is_empty = true;
        while (at < end && text[at] != ')') {
            if (text[at] == '|') {
                at++;
                out += is_empty ? "\"\" |" : " |";
                is_empty = true;
                has_ways = has_ways || depth == 0;
                continue;
            }
            out += " " + read_item(depth);
            out += read_repetition();
            is_empty = false;
        }
        return is_empty ? out + " \"\"" : out;
    }
};

} // namespace

std::string regex_grammar(const std::string &expression, regex_of where, bool is_search)
{
    return translator(expression, where).translate(is_search);
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
