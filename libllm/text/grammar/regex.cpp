/* regex.cpp: a recursive-descent parser of limited depth. The parser refuses unknown constructs. If unknown constructs
 * were ignored, the grammar would allow texts that do not match the expression in the client's own check. */
#include "text/grammar/regex.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <utility>

#include "text/grammar/character.h"
#include "text/grammar/unicode_category.h"

namespace {

constexpr size_t GROUPS_MAX = 64; /* limit on the levels of nested groups */

[[noreturn]] void fail(const std::string &what)
{
    throw grammar_fault("the regular expression has " + what);
}

class parser {
  public:
    explicit parser(const std::string &expression) : text(expression), end(expression.size()) {}

    regex_part parse()
    {
        regex_part out = alternatives(0);
        if (at != end) {
            fail("an unbalanced )");
        }
        return out;
    }

  private:
    const std::string &text;
    size_t at = 0, end;

    bool has(char c) const
    {
        return at < end && text[at] == c;
    }

    static regex_part one(character_set set)
    {
        character_set_normalize(set);
        regex_part out;
        out.is = regex_part::SET;
        out.set = std::move(set);
        return out;
    }

    uint32_t read_utf8()
    {
        character c;
        do {
            if (at >= end || !c.take(static_cast<uint8_t>(text[at++]))) {
                fail("a character that is not UTF-8");
            }
        } while (c.n_missing > 0);
        return c.value;
    }

    uint32_t read_hex(size_t n)
    {
        if (end - at < n) {
            fail("an escape that ends early");
        }
        uint32_t value = 0;
        for (size_t i = 0; i < n; i++, at++) {
            const char *digits = "0123456789abcdef";
            const char *found = text[at] != '\0' ? strchr(digits, text[at] | 0x20) : nullptr;
            if (found == nullptr) {
                fail("an escape without hexadecimal digits");
            }
            value = value << 4 | static_cast<uint32_t>(found - digits);
        }
        return value;
    }

    /* Parses the digits after \u: four digits, or up to six in braces. */
    uint32_t read_code_point()
    {
        if (!has('{')) {
            return read_hex(4);
        }
        const size_t close = std::min(text.find('}', at), end);
        if (close == end || close - at > 7) {
            fail("an escape that ends early");
        }
        at++;
        const uint32_t value = read_hex(close - at);
        at++;
        return std::min(value, CHARACTER_LAST);
    }

    /* Parses an escape after its backslash. An unknown escape of a letter or digit, such as \b, \1 or \p, is refused.
     * Such an escape has a special meaning in some dialect of regular expressions. If it were parsed as the plain
     * letter or digit, the expression would match other texts. */
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
        case 'u': at++; return read_code_point();
        default: break;
        }
        if (isalnum(static_cast<unsigned char>(c))) {
            regex_refuse(std::string("\\") + c);
        }
        return read_utf8();
    }

    /* Parses a character between brackets, where \b is a backspace and not a word boundary. */
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

    /* Parses \d, \p{L} or a similar set. Returns false if no such set begins at `at`. */
    bool read_named_set(character_set &out)
    {
        if (!has('\\') || at + 1 >= end) {
            return false;
        }
        const char letter = text[at + 1];
        if (letter != 'p' && letter != 'P') {
            const bool is_named = character_set_named(letter, out);
            at += is_named ? 2 : 0;
            return is_named;
        }
        const size_t close = at + 2 < end && text[at + 2] == '{' ? std::min(text.find('}', at), end) : end;
        const std::string name = text.substr(at, close - at + (close < end));
        if (close == end || !unicode_category(name.substr(3, name.size() - 4), out)) {
            regex_refuse(close == end ? std::string("\\") + letter : name);
        }
        if (letter == 'P') {
            out = character_set_complement(out);
        }
        at = close + 1;
        return true;
    }

    /* Parses the content of brackets, after the opening bracket. A dash makes a range only between two characters. In
     * [\w-z] and [a-] the dash is a plain character. */
    regex_part read_set()
    {
        character_set set;
        const bool is_negated = has('^');
        at += is_negated;
        while (!has(']')) {
            if (at >= end) {
                fail("a [ that is not closed");
            }
            character_set named;
            if (read_named_set(named)) {
                set.insert(set.end(), named.begin(), named.end());
                continue;
            }
            const uint32_t low = read_set_character();
            uint32_t high = low;
            const bool is_named = at + 2 < end && text[at + 1] == '\\' &&
                                  (character_set_named(text[at + 2], named) || (text[at + 2] | 0x20) == 'p');
            if (has('-') && at + 1 < end && text[at + 1] != ']' && !is_named) {
                at++;
                high = read_set_character();
            }
            if (high < low) {
                fail("a range that runs backwards");
            }
            set.push_back({low, high});
        }
        at++;
        return one(is_negated ? character_set_complement(set) : set);
    }

    /* Skips ?: or ?<name> at the start of a group. These characters only say whether and under which name the group is
     * captured. Any other group that begins with ? is a look-ahead or look-behind, which the parsed tree (regex_part)
     * cannot express. */
    void skip_group_name()
    {
        if (text.compare(at, 2, "?:") == 0) {
            at += 2;
        } else if (text.compare(at, 2, "?<") == 0 && at + 2 < end && text[at + 2] != '=' && text[at + 2] != '!') {
            at = std::min(text.find('>', at), end - 1) + 1;
        } else if (has('?')) {
            regex_refuse("(" + text.substr(at, 2));
        }
    }

    regex_part read_group(size_t depth)
    {
        if (depth >= GROUPS_MAX) {
            regex_refuse("too many levels of nested groups");
        }
        skip_group_name();
        regex_part body = alternatives(depth + 1);
        if (!has(')')) {
            fail("a ( that is not closed");
        }
        at++;
        return body;
    }

    regex_part read_item(size_t depth)
    {
        character_set named;
        const char c = text[at];
        switch (c) {
        case '(': at++; return read_group(depth);
        case '[': at++; return read_set();
        case '.': at++; return one(character_set_complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}));
        case '^': at++; return one({{REGEX_BEGIN, REGEX_BEGIN}});
        case '$': at++; return one({{REGEX_END, REGEX_END}});
        case '*':
        case '+':
        case '?': fail(std::string(1, c) + " with nothing before it");
        case '\\':
            if (read_named_set(named)) {
                return one(named);
            }
            at++;
            break;
        default: {
            const uint32_t value = read_utf8();
            return one({{value, value}});
        }
        }
        const uint32_t value = read_escape();
        return one({{value, value}});
    }

    /* Parses the counts in braces at `at`. Returns false if ECMA-262 treats the braces as plain characters. */
    bool read_counts(uint64_t &least, uint64_t &most)
    {
        if (text.compare(at, 2, "{,") == 0) { /* refused, because "{,3}" is plain text in ECMA-262, but means 0 to 3 in
                                               * Python */
            regex_refuse("counts like " + text.substr(at, 8));
        }
        const size_t close = text.find('}', at);
        const std::string counts = close < end ? text.substr(at + 1, close - at - 1) : "";
        if (counts.empty() || counts.size() > 18 || !isdigit(static_cast<unsigned char>(counts[0])) ||
            counts.find_first_not_of("0123456789,") != std::string::npos) {
            return false;
        }
        char *behind = nullptr;
        least = strtoull(counts.c_str(), &behind, 10);
        most = *behind != ',' ? least : behind[1] == '\0' ? REGEX_WITHOUT_END : strtoull(behind + 1, nullptr, 10);
        at = close + 1;
        return true;
    }

    regex_part repeated(regex_part item)
    {
        uint64_t least = 0, most = 0;
        if (has('*') || has('+') || has('?')) {
            least = text[at] == '+';
            most = text[at] == '?' ? 1 : REGEX_WITHOUT_END;
            at++;
        } else if (!has('{') || !read_counts(least, most)) {
            return item;
        }
        if (most < least) {
            fail("counts whose minimum is more than their maximum");
        }
        if (has('+')) {
            regex_refuse("a possessive repetition");
        }
        at += has('?'); /* a lazy repetition matches the same texts as a greedy one */
        regex_part out;
        out.is = regex_part::REPEATED;
        out.least = least;
        out.most = most;
        out.parts.push_back(std::move(item));
        return out;
    }

    /* Parses alternatives, separated by |, up to the end of the expression or the closing parenthesis. A single
     * alternative is returned as a SEQUENCE, without an EITHER around it. */
    regex_part alternatives(size_t depth)
    {
        regex_part all;
        regex_part sequence;
        all.is = regex_part::EITHER;
        sequence.is = regex_part::SEQUENCE;
        while (at < end && text[at] != ')') {
            if (text[at] == '|') {
                at++;
                all.parts.push_back(std::move(sequence));
                sequence = {};
                sequence.is = regex_part::SEQUENCE;
                continue;
            }
            regex_part item = read_item(depth);
            sequence.parts.push_back(repeated(std::move(item)));
        }
        if (all.parts.empty()) {
            return sequence;
        }
        all.parts.push_back(std::move(sequence));
        return all;
    }
};

} // namespace

void regex_refuse(const std::string &what)
{
    throw grammar_beyond("the regular expression has " + what + ", which cannot be expressed");
}

regex_part regex_read(const std::string &expression)
{
    return parser(expression).parse();
}
