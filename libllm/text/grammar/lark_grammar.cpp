/* lark_grammar.cpp: parses a Lark grammar from beginning to end and writes each rule as GBNF. Groups are parsed by
 * recursion of limited depth. An unknown construct is an error that names the construct. If such a construct were
 * ignored, the model could write answers that the client's own parser rejects. */
#include "text/grammar/lark_grammar.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <set>

#include "text/grammar/grammar.h"

namespace {

constexpr size_t SOURCE_BYTES_MAX = 64 << 10;
constexpr size_t RULES_MAX = 2048;
constexpr size_t GROUPS_MAX = 64; /* limit on the levels of nested groups */

/* The terminals of Lark's library `common`, in Lark's own language. */
struct library_terminal {
    const char *name, *body;
};
const library_terminal LIBRARY[] = {
    {"CR", "\"\\r\""},
    {"LF", "\"\\n\""},
    {"NEWLINE", "(CR? LF)+"},
    {"WS", "/[ \\t\\f\\r\\n]/+"},
    {"WS_INLINE", "(\" \" | \"\\t\")+"},
    {"DIGIT", "\"0\"..\"9\""},
    {"HEXDIGIT", "\"a\"..\"f\" | \"A\"..\"F\" | DIGIT"},
    {"INT", "DIGIT+"},
    {"SIGNED_INT", "[\"+\" | \"-\"] INT"},
    {"DECIMAL", "INT \".\" INT? | \".\" INT"},
    {"FLOAT", "INT /[eE]/ SIGNED_INT | DECIMAL [/[eE]/ SIGNED_INT]"},
    {"SIGNED_FLOAT", "[\"+\" | \"-\"] FLOAT"},
    {"NUMBER", "FLOAT | INT"},
    {"SIGNED_NUMBER", "[\"+\" | \"-\"] NUMBER"},
    {"LCASE_LETTER", "\"a\"..\"z\""},
    {"UCASE_LETTER", "\"A\"..\"Z\""},
    {"LETTER", "UCASE_LETTER | LCASE_LETTER"},
    {"WORD", "LETTER+"},
    {"CNAME", "(\"_\" | LETTER) (\"_\" | LETTER | DIGIT)*"},
    {"ESCAPED_STRING", "\"\\\"\" (/[^\"\\\\\\n]/ | /\\\\./)* \"\\\"\""},
};

const library_terminal *in_library(const std::string &name)
{
    const auto found =
        std::find_if(std::begin(LIBRARY), std::end(LIBRARY), [&](const auto &t) { return name == t.name; });
    return found != std::end(LIBRARY) ? found : nullptr;
}

bool is_letter(char c)
{
    return isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/* Replaces _ by -, because names in GBNF have no _. Different names stay different, because names in Lark have no -. */
std::string rule_name(std::string name)
{
    std::replace(name.begin(), name.end(), '_', '-');
    return "l-" + name;
}

/* Decodes a UTF-8 text into characters. */
std::vector<uint32_t> characters_of(const std::string &text)
{
    std::vector<uint32_t> out;
    for (const char c : text) {
        const uint8_t byte = static_cast<uint8_t>(c);
        if (byte >> 6 == 2 && !out.empty()) {
            out.back() = out.back() << 6 | (byte & 0x3fu);
        } else {
            out.push_back(byte < 0xc0 ? byte : byte & (byte < 0xe0 ? 0x1fu : byte < 0xf0 ? 0x0fu : 0x07u));
        }
    }
    return out;
}

/* Parses one Lark grammar (`text`). Adds its rules to `rules`. Adds all names that these rules use to `used`. */
class lark_reader {
  public:
    std::map<std::string, std::string> rules; /* GBNF of each rule, by the rule's name */
    std::set<std::string> used;
    std::map<std::string, std::string> imported; /* name in Lark's library, by name in the grammar */

    lark_reader(const std::string &source, regex_of where) : text(source), in(where) {}

    void read()
    {
        for (skip(true); at < text.size(); skip(true)) {
            if (text[at] == '%') {
                read_directive();
            } else {
                read_rule();
            }
            skip(false);
            if (at < text.size() && text[at] != '\n') {
                fail("the end of the line is expected");
            }
        }
    }

    void define(const std::string &name, const std::string &body)
    {
        if (rules.size() >= RULES_MAX) {
            throw grammar_beyond("more than " + std::to_string(RULES_MAX) + " rules");
        }
        if (!rules.emplace(name, body).second) {
            fail(name + " is there twice");
        }
    }

    /* Parses all of `text` as the body of a rule. */
    std::string read_body()
    {
        std::string out = alternatives(0);
        if (at < text.size()) {
            fail("the end is expected");
        }
        return out;
    }

  private:
    const std::string text;
    const regex_of in;
    size_t at = 0;

    [[noreturn]] void fail(const std::string &what) const
    {
        const auto here = text.begin() + static_cast<long>(std::min(at, text.size()));
        throw grammar_fault("line " + std::to_string(1 + std::count(text.begin(), here, '\n')) + ": " + what);
    }

    bool has(const char *what) const
    {
        return text.compare(at, strlen(what), what) == 0;
    }

    bool take(const char *what)
    {
        const bool is_there = has(what);
        at += is_there ? strlen(what) : 0;
        return is_there;
    }

    void expect(const char *what)
    {
        if (!take(what)) {
            fail(std::string(what) + " is expected");
        }
    }

    /* Skips blanks and comments. A rule ends with its line. So line breaks are skipped only in three places: between
     * rules, in groups, and before a | that continues the rule. */
    void skip(bool over_lines)
    {
        for (; at < text.size(); at++) {
            if (has("//") || has("#")) {
                at = std::min(text.find('\n', at), text.size());
                if (!over_lines || at == text.size()) {
                    return;
                }
            } else if (strchr(over_lines ? " \t\r\f\n" : " \t\r\f", text[at]) == nullptr || text[at] == '\0') {
                return;
            }
        }
    }

    std::string read_name()
    {
        const size_t begin = at;
        while (at < text.size() && is_letter(text[at])) {
            at++;
        }
        if (at == begin) {
            fail("a name is expected");
        }
        return text.substr(begin, at - begin);
    }

    size_t read_number()
    {
        size_t number = 0;
        const size_t begin = at;
        while (at < text.size() && isdigit(static_cast<unsigned char>(text[at]))) {
            number = std::min<size_t>(number * 10 + static_cast<size_t>(text[at++] - '0'), SOURCE_BYTES_MAX);
        }
        if (at == begin) {
            fail("a number is expected");
        }
        return number;
    }

    void import_one(const std::string &module)
    {
        const std::string name = read_name();
        skip(false);
        std::string alias = name;
        if (take("->")) {
            skip(false);
            alias = read_name();
        }
        if (module != "common" || in_library(name) == nullptr) {
            throw grammar_beyond("%import " + module + "." + name);
        }
        imported[alias] = name;
    }

    void read_directive()
    {
        at++;
        const std::string name = read_name();
        if (name != "import") {
            for (const char *known : {"ignore", "declare", "override", "extend"}) {
                if (name == known) {
                    throw grammar_beyond("%" + name);
                }
            }
            fail("there is no %" + name);
        }
        skip(false);
        if (has(".")) {
            throw grammar_beyond("%import of a file");
        }
        const std::string module = read_name();
        if (take(".")) {
            import_one(module);
            return;
        }
        skip(false);
        expect("(");
        do {
            skip(true);
            import_one(module);
            skip(true);
        } while (take(","));
        expect(")");
    }

    void read_rule()
    {
        while (take("?") || take("!")) { /* ? and ! before a name concern only Lark's syntax trees, not what is
                                          * matched */
        }
        const std::string name = read_name();
        if (isdigit(static_cast<unsigned char>(name[0]))) {
            fail("a name begins with a letter");
        }
        skip(false);
        if (has("{")) {
            throw grammar_beyond("templates");
        }
        if (take(".")) {
            take("-");
            (void)read_number();
            skip(false);
        }
        expect(":");
        define(name, alternatives(0));
    }

    /* Returns whether another alternative follows. The | before the alternative can be on the next line. Inside a
     * group, every part of an alternative can be on the next line. */
    bool goes_on(size_t depth)
    {
        const size_t before = at;
        skip(true);
        if (take("|")) {
            return true;
        }
        at = depth == 0 ? before : at;
        return false;
    }

    std::string alternatives(size_t depth)
    {
        if (depth > GROUPS_MAX) {
            throw grammar_beyond("more than " + std::to_string(GROUPS_MAX) + " levels of nested groups");
        }
        std::string out = sequence(depth);
        while (goes_on(depth)) {
            out += " |" + sequence(depth);
        }
        return out;
    }

    std::string sequence(size_t depth)
    {
        std::string out;
        for (skip(depth > 0); at < text.size() && strchr("\n|)]", text[at]) == nullptr; skip(depth > 0)) {
            if (take("->")) {
                skip(false);
                (void)read_name();
                break;
            }
            out += " " + item(depth);
            out += repetition();
        }
        return out.empty() ? " \"\"" : out;
    }

    /* Parses one item (a group, a literal, an expression or a name) and returns it as GBNF. In Lark, [x] is x or
     * nothing. A name can be used before its definition. So undefined names in `used` are found only after the whole
     * grammar is parsed. */
    std::string item(size_t depth)
    {
        if (take("(")) {
            const std::string body = alternatives(depth + 1);
            expect(")");
            return "(" + body + ")";
        }
        if (take("[")) {
            const std::string body = alternatives(depth + 1);
            expect("]");
            return "((" + body + ")?)";
        }
        if (has("\"")) {
            return literal();
        }
        if (take("/")) {
            return expression();
        }
        if (!is_letter(text[at])) {
            fail("this is not expected: " + text.substr(at, 8));
        }
        const std::string name = read_name();
        if (has("{")) {
            throw grammar_beyond("templates");
        }
        used.insert(name);
        return rule_name(name);
    }

    std::string repetition()
    {
        skip(false);
        for (const char *one : {"?", "*", "+"}) {
            if (take(one)) {
                return one;
            }
        }
        if (!take("~")) {
            return "";
        }
        skip(false);
        const size_t least = read_number(), dots = at;
        skip(false);
        if (!take("..")) {
            at = dots;
            return "{" + std::to_string(least) + "}";
        }
        skip(false);
        const size_t most = read_number();
        if (most < least) {
            fail("the maximum of a repetition is less than its minimum");
        }
        return "{" + std::to_string(least) + "," + std::to_string(most) + "}";
    }

    uint32_t hex(size_t n)
    {
        const std::string digits = text.substr(at, n);
        if (digits.size() < n || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
            fail("an escape without hexadecimal digits");
        }
        at += n;
        return static_cast<uint32_t>(std::stoul(digits, nullptr, 16));
    }

    void append_escape(std::string &out)
    {
        const char c = text[at++];
        const char *escape = "n\nt\tr\rf\fv\vb\b\"\"\\\\''";
        while (*escape != '\0' && *escape != c) {
            escape += 2;
        }
        uint32_t value = *escape != '\0' ? static_cast<uint8_t>(escape[1]) : 0;
        if (c == 'x' || c == 'u' || c == 'U') {
            value = hex(c == 'x' ? 2 : c == 'u' ? 4 : 8);
        } else if (*escape == '\0') {
            fail(std::string("there is no escape \\") + c);
        }
        if (value > 0x10ffff || value >> 11 == 0x1b || value == 0) {
            fail("an escape that is no character");
        }
        out += utf8_of(value);
    }

    std::string read_text()
    {
        std::string out;
        for (expect("\""); !take("\"");) {
            if (at + 1 >= text.size() || text[at] == '\n') {
                fail("a text is not closed");
            }
            if (take("\\")) {
                append_escape(out);
            } else {
                out += text[at++];
            }
        }
        return out;
    }

    /* Parses a string literal, a range such as "a".."z", or a case-insensitive literal such as "select"i. Returns it as
     * GBNF. */
    std::string literal()
    {
        const std::string value = read_text();
        if (take("..")) {
            const std::vector<uint32_t> low = characters_of(value), high = characters_of(read_text());
            if (low.size() != 1 || high.size() != 1 || low[0] > high[0]) {
                fail("a range goes from one character to a later one");
            }
            return set({{low[0], high[0]}});
        }
        if (at < text.size() && text[at] == 'i' && (at + 1 == text.size() || !is_letter(text[at + 1]))) {
            at++;
            return in_any_case(value);
        }
        return grammar_literal(in == regex_of::TEXT ? value : json_escaped(value));
    }

    std::string set(const std::vector<grammar_range> &ranges) const
    {
        const std::string out = grammar_set(ranges, in);
        if (out.empty()) {
            throw grammar_beyond("a set of control characters");
        }
        return out;
    }

    /* Returns GBNF that matches the text with its ASCII letters in upper or lower case. */
    std::string in_any_case(const std::string &value) const
    {
        std::string out = "(\"\"";
        for (const uint32_t c : characters_of(value)) {
            const bool is_ascii_letter = c < 0x80 && isalpha(static_cast<int>(c));
            out +=
                " " + (is_ascii_letter ? set({{c, c}, {c ^ 0x20, c ^ 0x20}})
                                       : grammar_literal(in == regex_of::TEXT ? utf8_of(c) : json_escaped(utf8_of(c))));
        }
        return out + ")";
    }

    std::string expression()
    {
        const size_t begin = at;
        while (at < text.size() && text[at] != '/' && text[at] != '\n') {
            at += text[at] == '\\' ? 2 : 1;
        }
        if (at >= text.size() || text[at] != '/') {
            fail("an expression is not closed");
        }
        const std::string value = text.substr(begin, at++ - begin);
        if (at < text.size() && strchr("imslux", text[at]) != nullptr && text[at] != '\0') {
            throw grammar_beyond("flags of an expression");
        }
        return regex_grammar(value, in);
    }
};

/* Adds the imported terminals of Lark's library, and the library terminals to which the imported ones refer. If the
 * grammar defines a rule with the name of a library terminal, the grammar's rule is used. */
void add_imported(lark_reader *all, regex_of where)
{
    std::vector<std::pair<std::string, std::string>> todo(all->imported.begin(), all->imported.end());
    while (!todo.empty()) {
        const auto [name, original] = todo.back();
        todo.pop_back();
        if (all->rules.count(name) > 0) {
            continue;
        }
        lark_reader one(in_library(original)->body, where);
        all->define(name, one.read_body());
        for (const std::string &part : one.used) {
            todo.emplace_back(part, part);
        }
    }
}

} // namespace

std::string lark_grammar(const std::string &definition, regex_of where)
{
    if (definition.size() > SOURCE_BYTES_MAX) {
        throw grammar_beyond(std::to_string(definition.size()) + " bytes; at most " + std::to_string(SOURCE_BYTES_MAX));
    }
    lark_reader all(definition, where);
    all.read();
    add_imported(&all, where);
    all.used.insert("start");
    for (const std::string &name : all.used) {
        if (all.rules.count(name) == 0) {
            throw grammar_fault("there is no rule " + name.substr(0, 64));
        }
    }
    const char *quote = where == regex_of::TEXT ? "" : "\"\\\"\"";
    std::string out = std::string("root ::= ") + quote + " " + rule_name("start") + " " + quote + "\n";
    for (const auto &[name, body] : all.rules) {
        out += rule_name(name) + " ::=" + body + "\n";
    }
    return out;
}
