#include "text/schema/rules.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>

#include "text/grammar/regex_grammar.h"

namespace {

constexpr size_t WRITTEN_OUT_MAX = 64; /* largest repetition count written as {n} (see rules::power) */
constexpr size_t COUNTED_MAX = 1'000'000'000;

/* Rules of any JSON value. The numbers of blanks, of digits, and of digits in an exponent are limited, because a
 * confused model can repeat them forever. Carriage returns are not allowed between values, because llama.cpp's parser
 * of tool calls loses the comma after a carriage return. `tail` is the rest of a string up to its closing quote.
 * `control` matches the escapes of control characters, quotes and backslashes. `beyond` matches what `control` matches,
 * and the escapes of all characters beyond ASCII. A `unit` is the four digits of a \u escape. If a unit is the first
 * half of a surrogate pair, the second half must follow (`pairing`), because half a pair is not a character. */
const char *const ANY_JSON = R"(ws ::= "" | " " | "\n" "\n"? [ \t]{0,60}
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (pair ("," ws pair)*)? "}"
pair ::= string ws ":" ws value ws
array ::= "[" ws (value ws ("," ws value ws)*)? "]"
string ::= "\"" tail
tail ::= [^"\\\x00-\x1F] tail | escape tail | "\""
char ::= [^"\\\x00-\x1F] | escape
escape ::= "\\" (["\\/bfnrt] | "u" unit)
unit ::= [0-9a-cA-CefEF] hex hex hex | [dD] ([0-7] hex hex | pairing)
pairing ::= [89abAB] hex hex "\\u" [dD] [c-fC-F] hex hex
hex ::= [0-9a-fA-F]
control ::= "\\" (["\\bfnrt] | "u00" [01] hex)
beyond ::= control | "\\u" ("00" [89a-fA-F] hex | "0" [1-9a-fA-F] hex hex | [1-9a-cA-CefEF] hex hex hex | [dD] ([0-7] hex hex | pairing))
)";

/* Rules of any value in Gemma's syntax, in which each string ends with the delimiter <|"|>. `tail` is the rest of a
 * string up to and including this delimiter. `mark`, `quote`, `bar` and `end` are the rest of the string after the
 * first 1, 2, 3 and 4 characters of the delimiter. Member names contain no punctuation of JSON. Otherwise, if a model
 * wrote JSON by mistake, the quotes would become part of the member's name. */
const char *const ANY_GEMMA = R"(ws ::= ""
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" (pair ("," pair)*)? "}"
pair ::= [^\x00-\x20"',:<>\[\]{}\x7F] [^\x00-\x1F"',:<>\[\]{}\x7F]* ":" value
array ::= "[" (value ("," value)*)? "]"
string ::= "<|\"|>" tail
tail ::= [^<] tail | "<" mark
mark ::= [^<|] tail | "<" mark | "|" quote
quote ::= [^<"] tail | "<" mark | "\"" bar
bar ::= [^<|] tail | "<" mark | "|" end
end ::= [^<>] tail | "<" mark | ">"
)";

const char *const ANY_NUMBER = R"(number ::= "-"? whole fraction exponent?
integer ::= "-"? whole
whole ::= "0" | [1-9] [0-9]{0,39}
fraction ::= ("." [0-9]{1,40})?
more ::= [0-9]{0,40}
exponent ::= [eE] [-+]? [0-9]{1,3}
tiny ::= [1-9] fraction [eE] "-" ("0"? [5-9] | [1-9] [0-9]{1,2})
huge ::= [1-9] fraction [eE] "+"? ("1" [6-9] | [2-9] [0-9] | [1-9] [0-9] [0-9])
)";

/* The delimiter before and after each string in Gemma's syntax. */
const char *const TEXT_MARK = "<|\"|>";

const char *const SHORT_ESCAPES = "\nn\tt\rr\bb\ff\"\"\\\\";

std::string shown(uint32_t c)
{
    char text[16];
    if (c == ']' || c == '\\' || c == '-' || c == '"' || c == '[') {
        return {'\\', static_cast<char>(c)};
    }
    if (c > 0x20 && c < 0x7f && c != '^') {
        return std::string(1, static_cast<char>(c));
    }
    snprintf(text, sizeof text, c < 0x100 ? "\\x%02X" : c < 0x10000 ? "\\u%04X" : "\\U%08X", c);
    return text;
}

/* Returns the set in GBNF. A range of two characters is written without a dash, which is shorter. */
std::string set_text(const character_set &set, bool is_negated)
{
    std::string out = is_negated ? "[^" : "[";
    for (const grammar_range &r : set) {
        out += shown(r.low) + (r.high > r.low + 1 ? "-" : "") + (r.high > r.low ? shown(r.high) : "");
    }
    return out + "]";
}

/* Returns whether one range of the set contains all characters from `low` to `high`. */
bool covers(const character_set &set, uint32_t low, uint32_t high)
{
    return std::any_of(set.begin(), set.end(), [&](const auto &r) { return r.low <= low && high <= r.high; });
}

/* Returns GBNF for the characters of the set as a JSON string writes them. JSON allows any character to be written as
 * an escape (\u0041 for A), and a grammar should not forbid valid JSON. But a set of only some characters would need a
 * separate escape for each character. So only wide sets allow \u escapes, by the rules `escape`, `beyond` and
 * `control`. A wide set has all control characters, the quote and the backslash. All other sets allow only the short
 * escapes of their characters, such as \n and \". So letters that the keyword `pattern` demands are never written as
 * escapes. The set is written negated, as [^...], if this is shorter. For example, in the name of an undeclared member,
 * only a few of a million characters are excluded. */
rules::written_set written_as_json(const character_set &set)
{
    character_set others; /* characters outside the set, and characters that must be escaped */
    uint32_t next = 0;
    for (const grammar_range &r : set) {
        if (r.low > next) {
            others.push_back({next, r.low - 1});
        }
        next = r.high + 1;
    }
    if (next <= CHARACTER_LAST) {
        others.push_back({next, CHARACTER_LAST});
    }
    others.insert(others.end(), {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}});
    std::sort(others.begin(), others.end(), [](const auto &a, const auto &b) { return a.low < b.low; });
    character_set negated, plain;
    next = 0;
    for (const grammar_range &r : others) {
        if (!negated.empty() && r.low <= negated.back().high + 1) {
            negated.back().high = std::max(negated.back().high, r.high);
        } else {
            negated.push_back(r);
        }
    }
    for (const grammar_range &r : negated) {
        if (r.low > next) {
            plain.push_back({next, r.low - 1});
        }
        next = r.high + 1;
    }
    if (next <= CHARACTER_LAST) {
        plain.push_back({next, CHARACTER_LAST});
    }
    rules::written_set out;
    const bool is_short =
        negated.size() < plain.size() || (negated.size() == plain.size() && plain.back().high == CHARACTER_LAST);
    out.plain = plain.empty() ? "" : is_short ? set_text(negated, true) : set_text(plain, false);
    if (covers(set, 0, 0x1f) && covers(set, '"', '"') && covers(set, '\\', '\\')) {
        out.escaped = covers(set, 0, CHARACTER_LAST)      ? "escape"
                      : covers(set, 0x80, CHARACTER_LAST) ? "beyond"
                                                          : "control";
        return out;
    }
    std::string letters;
    for (const char *l = SHORT_ESCAPES; *l != '\0'; l += 2) {
        letters +=
            covers(set, static_cast<uint8_t>(*l), static_cast<uint8_t>(*l)) ? shown(static_cast<uint8_t>(l[1])) : "";
    }
    out.escaped = letters.empty() ? "" : "\"\\\\\" [" + letters + "]";
    return out;
}

/* Writes the states of an automaton as GBNF rules. The targets of a state's transitions are written before the state
 * itself. So equal states get equal bodies and become one rule. Prefix trees have many equal states. If the automaton
 * has a loop, a state is reached again before its rule is complete. In this case, the rule's name is reserved, and the
 * rule is defined when its body is complete. A chain of states with one transition each becomes one literal. So
 * "temperature" is one element and not eleven rules. The literal ends before a state that already has a rule. */
class automaton_writer {
  public:
    /* `bare_close` is the delimiter that ends a string without quotes. If it is NULL, strings are written as in
     * JSON. */
    automaton_writer(rules &to, const automaton &texts, const std::string *bare_close)
        : out(to), a(texts), close(bare_close), end(grammar_literal(close == nullptr ? "\"" : *close)),
          names(texts.states.size()), is_open(texts.states.size())
    {}

    const std::string &write(uint32_t state)
    {
        if (!names[state].empty()) {
            return names[state];
        }
        if (close == nullptr && is_universal(state)) {
            return names[state] = "tail";
        }
        if (is_open[state]) {
            return names[state] = out.reserve();
        }
        is_open[state] = true;
        const std::string body = body_of(state);
        if (!names[state].empty()) { /* the state was reached again while its body was written */
            out.define(names[state], body);
        } else {
            names[state] = out.add(body);
        }
        return names[state];
    }

  private:
    rules &out;
    const automaton &a;
    const std::string *close;
    const std::string end;
    std::vector<std::string> names;
    std::vector<bool> is_open;
    std::vector<automaton::way> ways; /* transitions of all states that are being written. The transitions of one state
                                       * are consecutive and sorted by target */
    character_set set;                /* the character set that is being written */

    /* Returns whether every continuation of the string is accepted from this state on. Such a state is written as the
     * rule `tail` of ANY_JSON. */
    bool is_universal(uint32_t state) const
    {
        const automaton::state &s = a.states[state];
        return s.is_end && s.ways.size() == 1 && s.ways[0].low == 0 && s.ways[0].high == CHARACTER_LAST &&
               s.ways[0].to == state;
    }

    /* Returns the state's only transition if the string must continue and only one character is possible. Returns NULL
     * if the string can end here. Also returns NULL for several possible characters, and for a control character. */
    const automaton::way *only_way(uint32_t state) const
    {
        const automaton::state &s = a.states[state];
        const bool is_one = !s.is_end && s.ways.size() == 1 && s.ways[0].low == s.ways[0].high && s.ways[0].low >= 0x20;
        return is_one ? &s.ways[0] : nullptr;
    }

    /* Returns the body of a state's rule: one alternative for each target state. The transitions are sorted by target.
     * So all characters that lead to the same state form one set. body_of calls itself for the target states, and all
     * these calls share the array `ways`. The code uses positions in the array, because pointers would become invalid
     * when the array grows. */
    std::string body_of(uint32_t state)
    {
        const size_t first = ways.size();
        const auto begin = [&] { return ways.begin() + static_cast<std::ptrdiff_t>(first); };
        ways.insert(ways.end(), a.states[state].ways.begin(), a.states[state].ways.end());
        std::sort(begin(), ways.end(),
                  [](const auto &l, const auto &r) { return l.to != r.to ? l.to < r.to : l.low < r.low; });
        const size_t end_of_ways = ways.size();
        std::string body;
        body.reserve(128);
        for (size_t i = first, next = i; i < end_of_ways; i = next) {
            while (next < end_of_ways && ways[next].to == ways[i].to) {
                next++;
            }
            add_ways(body, i, next);
        }
        ways.resize(first);
        if (a.states[state].is_end) {
            add_way(body, end, "");
        }
        return body;
    }

    static void add_way(std::string &body, const std::string &first, const std::string &next)
    {
        body += body.empty() ? "" : " | ";
        body += first;
        body += next.empty() ? "" : " ";
        body += next;
    }

    /* Adds to `body` the alternative for the transitions ways[begin, after), which all lead to the same state. */
    void add_ways(std::string &body, size_t begin, size_t after)
    {
        const automaton::way one = ways[begin];
        if (after == begin + 1 && one.low == one.high && one.low >= 0x20) {
            add_literal(body, one.low, one.to);
            return;
        }
        const bool is_begun = close == nullptr && is_universal(one.to);
        /* the target is written first, because writing it also uses the member `set` */
        const std::string *next = is_begun ? nullptr : &write(one.to);
        set.clear();
        for (size_t i = begin; i < after; i++) {
            set.push_back({ways[i].low, ways[i].high});
        }
        if (is_begun) {
            add_way(body, out.add_begun(set), "");
        } else if (close != nullptr) {
            add_way(body, out.set_element(set_text(set, false)), *next);
        } else { /* in a JSON string, some characters are written as escapes */
            const rules::written_set &w = out.written(set);
            for (const std::string *part : {&w.plain, &w.escaped}) {
                if (!part->empty()) {
                    add_way(body, *part, *next);
                }
            }
        }
    }

    /* Adds to `body` a literal that begins with the character `first`. The literal continues while only one character
     * is possible, up to 257 characters. Then adds the rule of the state that is reached. */
    void add_literal(std::string &body, uint32_t first, uint32_t to)
    {
        std::string text = utf8_of(first);
        for (size_t n = 0; n < 256 && !is_open[to] && names[to].empty(); n++) {
            const automaton::way *next = only_way(to);
            if (next == nullptr) {
                break;
            }
            text += utf8_of(next->low);
            to = next->to;
        }
        if (close == nullptr) {
            text = json_escaped(text);
        }
        const automaton::state &s = a.states[to];
        if (s.is_end && s.ways.empty()) {
            add_way(body, grammar_literal(text + (close == nullptr ? "\"" : *close)), "");
        } else {
            add_way(body, grammar_literal(text), write(to));
        }
    }
};

} // namespace

std::string rules::reserve()
{
    std::string name = "R";
    for (size_t n = n_names++; n > 0 || name.size() == 1; n /= 36) {
        name += "0123456789abcdefghijklmnopqrstuvwxyz"[n % 36];
    }
    return name;
}

void rules::define(const std::string &name, const std::string &body)
{
    /* counts the bytes that the rule takes in a JSON document, where quotes and backslashes are escaped */
    n_bytes += name.size() + body.size() + 7;
    (void)budget.take(work_budget::WRITTEN_BYTE * body.size());
    n_bytes +=
        static_cast<size_t>(std::count_if(body.begin(), body.end(), [](char c) { return c == '"' || c == '\\'; }));
    if (n_bytes > bytes_max) {
        throw grammar_too_large("the schema unfolds to a grammar of more than " + std::to_string(bytes_max) + " bytes");
    }
    text += name;
    text += " ::= ";
    text += body;
    text += '\n';
}

std::string rules::add(const std::string &body)
{
    const auto found = known.find(body);
    if (found != known.end()) {
        return found->second;
    }
    std::string name = reserve();
    define(name, body);
    const auto added = known.emplace(body, std::move(name)).first;
    order.push_back(&added->first);
    return added->second;
}

void rules::forget(const mark &since)
{
    for (size_t i = since.n_known; i < order.size(); i++) {
        known.erase(known.find(*order[i]));
    }
    order.resize(since.n_known);
    sets.clear();
    text.resize(since.n_text);
    n_names = since.n_names;
    n_bytes = since.n_bytes;
}

size_t rules::set_order::operator()(const character_set &set) const
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const grammar_range &r : set) {
        hash = (hash ^ (static_cast<uint64_t>(r.low) << 32 | r.high)) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return hash;
}

bool rules::set_order::operator()(const character_set &a, const character_set &b) const
{
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const auto &l, const auto &r) { return l.low == r.low && l.high == r.high; });
}

std::string rules::set_element(const std::string &set)
{
    constexpr size_t BYTES_MAX = 100;
    return set.size() > BYTES_MAX ? add(set) : set;
}

rules::known_set &rules::known_set_of(const character_set &set)
{
    auto found = sets.find(set);
    if (found == sets.end()) {
        written_set all = written_as_json(set);
        all.plain = set_element(all.plain);
        found = sets.emplace(set, known_set{std::move(all), ""}).first;
    }
    return found->second;
}

const rules::written_set &rules::written(const character_set &set)
{
    return known_set_of(set).written;
}

const std::string &rules::add_begun(const character_set &set)
{
    known_set &one = known_set_of(set);
    if (one.begun.empty()) {
        const written_set &w = one.written;
        one.begun =
            add(w.plain + (w.plain.empty() ? "" : " tail") + (w.plain.empty() || w.escaped.empty() ? "" : " | ") +
                w.escaped + (w.escaped.empty() ? "" : " tail"));
    }
    return one.begun;
}

namespace {

/* Returns the automaton of the member names that ANY_GEMMA allows. */
automaton gemma_names()
{
    const character_set signs = {{0, ' '},   {'"', '"'}, {'\'', '\''}, {',', ','}, {':', ':'}, {'<', '<'},
                                 {'>', '>'}, {'[', '['}, {']', ']'},   {'{', '{'}, {'}', '}'}, {0x7f, 0x7f}};
    automaton out;
    out.states.resize(2);
    for (const grammar_range &r : character_set_complement(signs)) {
        out.states[0].ways.push_back({r.low, r.high, 1});
    }
    out.states[1].ways = out.states[0].ways;
    out.states[1].ways.insert(out.states[1].ways.begin(), {' ', ' ', 1});
    out.states[1].is_end = true;
    return out;
}

} // namespace

std::string rules::text_value(const automaton &texts)
{
    if (written_as == value_syntax::JSON) {
        return "\"\\\"\" " + add_texts(texts);
    }
    automaton all;
    try {
        all = automaton_of(automaton_operation::BOTH, texts, automaton_of_text_before(TEXT_MARK), budget);
    } catch (const grammar_beyond &) { /* too much work: any string is allowed */
        return "string";
    }
    return all.is_empty() ? "" : grammar_literal(TEXT_MARK) + " " + add_bare_texts(all, TEXT_MARK);
}

std::string rules::name_with_colon(const std::string &name) const
{
    if (written_as == value_syntax::JSON) {
        return grammar_literal(json_escaped(name) + "\"") + " ws \":\" ws";
    }
    const bool is_read = !name.empty() && strchr(" \t\r\n", name[0]) == nullptr &&
                         name.find_first_of(":}") == std::string::npos && name.find(TEXT_MARK) == std::string::npos;
    return is_read ? grammar_literal(name + ":") : "";
}

std::string rules::names_with_colon(const automaton &names)
{
    if (written_as == value_syntax::JSON) {
        return add_texts(names) + " ws \":\" ws";
    }
    const automaton all = automaton_of(automaton_operation::BOTH, names, gemma_names(), budget);
    return all.is_empty() ? "" : add_bare_texts(all, ":");
}

std::string rules::add_texts(const automaton &texts)
{
    return automaton_writer(*this, texts, nullptr).write(0);
}

std::string rules::add_bare_texts(const automaton &texts, const std::string &close)
{
    return automaton_writer(*this, texts, &close).write(0);
}

/* ---- repetitions ------------------------------------------------------------------------------------------------- */

/* Returns GBNF that matches `unit` n times. n is a power of ten. Long repetitions are counted in powers of ten, because
 * grammar::read expands {n} to n elements. {"maxLength": 50000} would become 50,000 elements. Instead, unit{10} is a
 * rule, and ten times this rule is the rule of 100. 50,000 units are five times the rule of 10,000. */
std::string rules::power(const std::string &unit, size_t n)
{
    return n == 1 ? unit : add(power(unit, n / 10) + "{10}");
}

std::string rules::exactly(const std::string &unit, size_t n)
{
    if (n <= WRITTEN_OUT_MAX) {
        return n > 0 ? unit + "{" + std::to_string(n) + "}" : "";
    }
    std::string out;
    size_t size = 1;
    while (size <= n / 10) {
        size *= 10;
    }
    for (; n > 0; n %= size, size /= 10) {
        if (n >= size) {
            out += (out.empty() ? "" : " ") + power(unit, size) + "{" + std::to_string(n / size) + "}";
        }
        if (size == 1) {
            break;
        }
    }
    return out;
}

/* Returns the rule that matches `unit` 0 to n times, built from the digits of n. For 2345, the rule has two
 * alternatives: "1000 units, then 0 to 1345 more" and "fewer than 1000 units". A count fits only one of these
 * alternatives, so each string has one derivation. */
std::string rules::at_most(const std::string &unit, size_t n)
{
    if (n <= WRITTEN_OUT_MAX) {
        return add(unit + "{0," + std::to_string(n) + "}");
    }
    size_t size = 1;
    while (size <= n / 10) {
        size *= 10;
    }
    const std::string less = at_most(unit, size - 1);
    std::string name = n % size > 0 ? at_most(unit, n % size) : "";
    for (size_t i = 0; i < n / size; i++) {
        name = add(power(unit, size) + " " + name + " | " + less);
    }
    return name;
}

std::string rules::repeated(const std::string &unit, size_t least, size_t most)
{
    if (least > COUNTED_MAX) {
        throw grammar_fault("a length of more than " + std::to_string(COUNTED_MAX));
    }
    if (most > COUNTED_MAX) { /* no answer is that long, so no upper limit is enforced */
        return least > 0 ? exactly(unit, least) + " " + unit + "*" : unit + "*";
    }
    if (most <= WRITTEN_OUT_MAX) {
        return most > 0 ? unit + "{" + std::to_string(least) + "," + std::to_string(most) + "}" : "";
    }
    const std::string first = exactly(unit, least);
    return first + (most > least ? (first.empty() ? "" : " ") + at_most(unit, most - least) : "");
}

std::string rules::grammar(const std::string &root) const
{
    return "root ::= " + root + "\n" + text + (written_as == value_syntax::JSON ? ANY_JSON : ANY_GEMMA) + ANY_NUMBER;
}
