#include "text/grammar/regex_grammar.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "text/grammar/regex.h"

namespace {

/* Characters that JSON escapes with a backslash and one letter, each followed by this letter. */
const char *const ESCAPED_LETTERS = "\nn\tt\rr\bb\ff\"\"\\\\";

std::string shown(uint32_t c)
{
    char text[16];
    snprintf(text, sizeof text, "\\U%08X", c);
    return text;
}

/* Returns a character as it is written in a JSON string. */
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

std::string set_text(const character_set &set)
{
    std::string out = "[";
    for (const grammar_range &r : set) {
        out += shown(r.low) + (r.high > r.low ? "-" + shown(r.high) : "");
    }
    return out + "]";
}

/* Removes ^ at the beginning and $ at the end of the expression, because the expression must match the whole text
 * anyway. */
void drop_anchors(regex_part &p, bool is_first, bool is_last)
{
    const auto is = [](const regex_part &one, uint32_t anchor) {
        return one.is == regex_part::SET && one.set.size() == 1 && one.set[0].low == anchor;
    };
    if (p.is == regex_part::EITHER) {
        for (regex_part &one : p.parts) {
            drop_anchors(one, is_first, is_last);
        }
    }
    if (p.is != regex_part::SEQUENCE) {
        return;
    }
    while (is_first && !p.parts.empty() && is(p.parts.front(), REGEX_BEGIN)) {
        p.parts.erase(p.parts.begin());
    }
    while (is_last && !p.parts.empty() && is(p.parts.back(), REGEX_END)) {
        p.parts.pop_back();
    }
    for (size_t i = 0; i < p.parts.size(); i++) {
        drop_anchors(p.parts[i], is_first && i == 0, is_last && i + 1 == p.parts.size());
    }
}

std::string rule_of(const regex_part &p, regex_of where);

std::string joined(const regex_part &p, regex_of where, const char *between)
{
    std::string out;
    for (const regex_part &one : p.parts) {
        out += (out.empty() ? "" : between) + rule_of(one, where);
    }
    return out;
}

/* Returns GBNF for a part of the expression, as one or several elements. Refuses ^ and $ in the middle, because GBNF
 * cannot express "the text begins here". */
std::string rule_of(const regex_part &p, regex_of where)
{
    if (p.is == regex_part::SET) {
        if (!p.set.empty() && p.set[0].low > CHARACTER_LAST) {
            regex_refuse(p.set[0].low == REGEX_BEGIN ? "^ inside" : "$ inside");
        }
        if (p.set.size() == 1 && p.set[0].low == p.set[0].high) {
            const std::string one = utf8_of(p.set[0].low);
            return grammar_literal(where == regex_of::TEXT ? one : json_escaped(one));
        }
        const std::string set = grammar_set(p.set, where);
        if (set.empty()) {
            regex_refuse("a set without characters");
        }
        return set;
    }
    if (p.is == regex_part::EITHER) {
        return "(" + joined(p, where, " | ") + ")";
    }
    if (p.is == regex_part::SEQUENCE) {
        return p.parts.empty() ? "\"\"" : joined(p, where, " ");
    }
    const std::string most = p.most == REGEX_WITHOUT_END ? "" : std::to_string(p.most);
    return "(" + joined(p, where, "") + "){" + std::to_string(p.least) + "," + most + "}";
}

} // namespace

std::string regex_grammar(const std::string &expression, regex_of where)
{
    regex_part all = regex_read(expression);
    drop_anchors(all, true, true);
    return rule_of(all, where);
}

std::string grammar_set(character_set set, regex_of where)
{
    character_set_normalize(set);
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
    character_set others = character_set_complement(set);
    others.insert(others.end(), {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}});
    const character_set plain = character_set_complement(others);
    const std::string escapes = letters.empty() ? "" : "\"\\\\\" [" + letters + "]";
    if (plain.empty() || escapes.empty()) {
        return plain.empty() ? (escapes.empty() ? "" : "(" + escapes + ")") : set_text(plain);
    }
    return "(" + set_text(plain) + " | " + escapes + ")";
}

/* Encodes a character in UTF-8. The first byte says how many bytes follow: one after 0xc0, two after 0xe0 and three
 * after 0xf0. Each following byte has six bits of the character. */
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
        if (byte < 0x20 || c == '"' || c == '\\') {
            out += escaped(byte);
        } else {
            out += c;
        }
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
