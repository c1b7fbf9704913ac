#include "text/grammar/grammar_text.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace {

bool is_of_name(char c)
{
    return isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

/* text[at] is an opening delimiter, such as a quote. Returns the position after the first unescaped `close` that
 * follows it. */
size_t end_of(const std::string &text, size_t at, char close)
{
    for (at++; at < text.size() && text[at] != close; at++) {
        at += text[at] == '\\';
    }
    return at < text.size() ? at + 1 : text.size();
}

/* Returns the position after the literal, set, token, count or comment that begins at text[at]. If none of these begins
 * there, returns at + 1. */
size_t end_of_other(const std::string &text, size_t at)
{
    switch (text[at]) {
    case '"': return end_of(text, at, '"');
    case '[': return end_of(text, at, ']');
    case '<': return end_of(text, at, '>');
    case '{': return end_of(text, at, '}');
    case '#': {
        const size_t end = text.find('\n', at);
        return end == std::string::npos ? text.size() : end;
    }
    default: return at + 1;
    }
}

std::string replaced(std::string text, const std::string &what, const std::string &by)
{
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
        text.replace(at, what.size(), by);
    }
    return text;
}

/* Returns where the right side of a rule is in the grammar, as [begin, end). If the rule does not exist, begin equals
 * end. Each rule is on one line, as llama.cpp writes it. */
std::pair<size_t, size_t> rule_of(const std::string &grammar, const std::string &name)
{
    const std::string head = name + " ::= ";
    const size_t at = grammar.compare(0, head.size(), head) == 0 ? 0 : grammar.find("\n" + head);
    if (at == std::string::npos) {
        return {grammar.size(), grammar.size()};
    }
    const size_t begin = at + (at > 0 ? 1 : 0) + head.size();
    return {begin, std::min(grammar.find('\n', begin), grammar.size())};
}

std::string as_literal(const std::string &constant)
{
    return "\"\\\"" + constant + "\\\"\"";
}

} // namespace

std::string grammar_renamed(const std::string &grammar, const std::string &prefix)
{
    std::string out;
    for (size_t at = 0; at < grammar.size();) {
        size_t end = at;
        while (end < grammar.size() && is_of_name(grammar[end])) {
            end++;
        }
        out += end > at ? prefix : "";
        end = end > at ? end : end_of_other(grammar, at);
        out.append(grammar, at, end - at);
        at = end;
    }
    return out;
}

std::string grammar_of_either(const std::string &one, const std::string &other)
{
    return "root ::= one-root | other-root\n" + grammar_renamed(one, "one-") + "\n" + grammar_renamed(other, "other-");
}

bool grammar_mentions(const std::string &grammar, const std::string &constant)
{
    return grammar.find(as_literal(constant)) != std::string::npos;
}

std::string grammar_with(const std::string &grammar, const std::string &constant, const std::string &inner,
                         const std::string &prefix)
{
    return replaced(grammar, as_literal(constant), prefix + "root") + "\n" + grammar_renamed(inner, prefix);
}

std::string grammar_with_blank_rule(const std::string &grammar, const std::string &name)
{
    const auto [begin, end] = rule_of(grammar, name);
    return begin == end ? grammar : grammar.substr(0, begin) + "[ \\t\\n]{0,4}" + grammar.substr(end);
}

std::string grammar_with_optional(const std::string &grammar, const std::string &literal, const std::string &element)
{
    const std::string quoted = "\"" + literal + "\"";
    return replaced(grammar, quoted, element + "? " + quoted);
}

std::string grammar_without_repetition(const std::string &grammar, const std::string &name)
{
    const auto [begin, end] = rule_of(grammar, name);
    std::string out = grammar.substr(0, begin);
    for (size_t at = begin; at < end;) {
        const size_t next = end_of_other(grammar, at);
        const bool repeats = grammar[at] == '+' && (grammar[at - 1] == ')' || is_of_name(grammar[at - 1]));
        out.append(grammar, at, repeats ? 0 : next - at);
        at = next;
    }
    return out + grammar.substr(end);
}

std::string grammar_without_fences(std::string grammar)
{
    return replaced(replaced(std::move(grammar), "\"```json\"", "\"\""), "\"```\"", "\"\"");
}

std::string grammar_without_empty_turns(std::string grammar)
{
    return replaced(std::move(grammar), "(tool-call? space)+", "(tool-call space)*");
}
