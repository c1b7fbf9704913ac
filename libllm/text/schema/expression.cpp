#include "text/schema/expression.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "text/character.h"
#include "text/schema/character_set.h"

namespace {

constexpr size_t GROUPS_MAX = 64;   /* one in another */
constexpr size_t NODES_MAX = 20000; /* of the automaton that is not deterministic yet, repetitions written out */
constexpr uint64_t WITHOUT_END = UINT64_MAX;

/* Characters of their own that stand before and after each text: ^ and $ match them. */
constexpr uint32_t BEGIN = CHARACTER_LAST + 1, END = CHARACTER_LAST + 2;

using ranges = character_set;

struct part {
    enum kind { EMPTY, SET, SEQUENCE, EITHER, REPEATED } is = EMPTY;
    ranges set;
    std::vector<part> parts;
    uint64_t least = 0, most = 0;
};

[[noreturn]] void refuse(const std::string &what)
{
    throw grammar_beyond("the regular expression has " + what + ", which cannot be expressed");
}

[[noreturn]] void fail(const std::string &what)
{
    throw grammar_fault("the regular expression has " + what);
}

class parser {
  public:
    explicit parser(const std::string &expression) : text(expression), end(expression.size()) {}

    part parse()
    {
        part out = alternatives(0);
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

    static part one(ranges set)
    {
        character_set_normalize(set);
        part out;
        out.is = part::SET;
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

    /* After the backslash. */
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
            refuse(std::string("\\") + c);
        }
        return read_utf8();
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

    part read_set()
    {
        ranges set;
        const bool is_negated = has('^');
        at += is_negated;
        while (!has(']')) {
            if (at >= end) {
                fail("a [ that is not closed");
            }
            ranges named;
            if (has('\\') && at + 1 < end && character_set_named(text[at + 1], named)) {
                at += 2;
                set.insert(set.end(), named.begin(), named.end());
                continue;
            }
            const uint32_t low = read_set_character();
            uint32_t high = low;
            const bool is_named = at + 2 < end && text[at + 1] == '\\' && character_set_named(text[at + 2], named);
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

    void skip_group_name()
    {
        if (text.compare(at, 2, "?:") == 0) {
            at += 2;
        } else if (text.compare(at, 2, "?<") == 0 && at + 2 < end && text[at + 2] != '=' && text[at + 2] != '!') {
            at = std::min(text.find('>', at), end - 1) + 1;
        } else if (has('?')) {
            refuse("(" + text.substr(at, 2));
        }
    }

    part read_group(size_t depth)
    {
        if (depth >= GROUPS_MAX) {
            refuse("too many groups in one another");
        }
        skip_group_name();
        part body = alternatives(depth + 1);
        if (!has(')')) {
            fail("a ( that is not closed");
        }
        at++;
        return body;
    }

    part read_item(size_t depth)
    {
        ranges named;
        const char c = text[at];
        switch (c) {
        case '(': at++; return read_group(depth);
        case '[': at++; return read_set();
        case '.': at++; return one(character_set_complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}));
        case '^': at++; return one({{BEGIN, BEGIN}});
        case '$': at++; return one({{END, END}});
        case '*':
        case '+':
        case '?': fail(std::string(1, c) + " with nothing before it");
        case '\\':
            if (at + 1 < end && character_set_named(text[at + 1], named)) {
                at += 2;
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

    /* In braces that begin at `at`; false: they are characters. */
    bool read_counts(uint64_t &least, uint64_t &most)
    {
        const size_t close = text.find('}', at);
        const std::string counts = close < end ? text.substr(at + 1, close - at - 1) : "";
        if (counts.empty() || counts.size() > 18 || !isdigit(static_cast<unsigned char>(counts[0])) ||
            counts.find_first_not_of("0123456789,") != std::string::npos) {
            return false;
        }
        char *behind = nullptr;
        least = strtoull(counts.c_str(), &behind, 10);
        most = *behind != ',' ? least : behind[1] == '\0' ? WITHOUT_END : strtoull(behind + 1, nullptr, 10);
        at = close + 1;
        return true;
    }

    part repeated(part item)
    {
        uint64_t least = 0, most = 0;
        if (has('*') || has('+') || has('?')) {
            least = text[at] == '+';
            most = text[at] == '?' ? 1 : WITHOUT_END;
            at++;
        } else if (!has('{') || !read_counts(least, most)) {
            return item;
        }
        if (most < least) {
            fail("counts of which the first is more than the second");
        }
        if (has('+')) {
            refuse("a possessive repetition");
        }
        at += has('?'); /* lazy or not, the texts are the same */
        part out;
        out.is = part::REPEATED;
        out.least = least;
        out.most = most;
        out.parts.push_back(std::move(item));
        return out;
    }

    part alternatives(size_t depth)
    {
        part all;
        part sequence;
        all.is = part::EITHER;
        sequence.is = part::SEQUENCE;
        while (at < end && text[at] != ')') {
            if (text[at] == '|') {
                at++;
                all.parts.push_back(std::move(sequence));
                sequence = {};
                sequence.is = part::SEQUENCE;
                continue;
            }
            part item = read_item(depth);
            sequence.parts.push_back(repeated(std::move(item)));
        }
        if (all.parts.empty()) {
            return sequence;
        }
        all.parts.push_back(std::move(sequence));
        return all;
    }
};

/* Nodes that wait for a character, or go on in two ways without one. Built from the end: each part knows what follows it. */
class net {
  public:
    net(const part &root, work_budget &spent) : budget(spent)
    {
        nodes.push_back({{}, 0, 0});
        part any;
        any.is = part::SET;
        any.set = {{0, END}};
        const uint32_t after = loop(any, 0);
        first = loop(any, built(root, after));
    }

    automaton deterministic()
    {
        std::vector<uint32_t> start = {first};
        close(start);
        (void)state_of(stepped(start, BEGIN));
        for (size_t i = 0; i < sets.size(); i++) {
            const std::vector<uint32_t> here = sets[i];
            const std::vector<uint32_t> last = stepped(here, END);
            out.states[i].is_end = !last.empty() && last.front() == 0;
            find_ways(static_cast<uint32_t>(i), here);
        }
        return automaton_reduced(out, budget);
    }

  private:
    struct node {
        ranges set; /* empty: without a character, to both */
        uint32_t next, other;
    };
    work_budget &budget;
    static constexpr uint32_t ANYTHING = 2; /* the node after a match: the loop's body that is built first */
    std::vector<node> nodes;                /* 0: the end */
    uint32_t first = 0;
    std::map<std::vector<uint32_t>, uint32_t> numbers;
    std::vector<std::vector<uint32_t>> sets;
    std::vector<uint32_t> seen;
    uint32_t visit = 0;
    automaton out;

    uint32_t added(ranges set, uint32_t next, uint32_t other)
    {
        if (nodes.size() >= NODES_MAX) {
            throw grammar_beyond("the regular expression is too large");
        }
        nodes.push_back({std::move(set), next, other});
        return static_cast<uint32_t>(nodes.size() - 1);
    }

    uint32_t loop(const part &p, uint32_t after)
    {
        const uint32_t split = added({}, after, after);
        const uint32_t body = built(p, split);
        nodes[split].next = body;
        return split;
    }

    uint32_t built(const part &p, uint32_t after)
    {
        switch (p.is) {
        case part::SET: return p.set.empty() ? added({{1, 0}}, after, after) : added(p.set, after, after);
        case part::SEQUENCE:
            for (size_t i = p.parts.size(); i-- > 0;) {
                after = built(p.parts[i], after);
            }
            return after;
        case part::EITHER: {
            uint32_t all = built(p.parts[0], after);
            for (size_t i = 1; i < p.parts.size(); i++) {
                const uint32_t one = built(p.parts[i], after);
                all = added({}, all, one);
            }
            return all;
        }
        case part::REPEATED: return repeated(p, after);
        default: return after;
        }
    }

    uint32_t repeated(const part &p, uint32_t after)
    {
        if (p.least > NODES_MAX || (p.most != WITHOUT_END && p.most > NODES_MAX)) {
            throw grammar_beyond("the regular expression is too large");
        }
        if (p.most == WITHOUT_END) {
            after = loop(p.parts[0], after);
        }
        const uint32_t skipped = after;
        for (uint64_t i = p.least; p.most != WITHOUT_END && i < p.most; i++) {
            const uint32_t body = built(p.parts[0], after);
            after = added({}, body, skipped);
        }
        for (uint64_t i = 0; i < p.least; i++) {
            after = built(p.parts[0], after);
            if (nodes.size() + i > NODES_MAX) { /* of a part that takes no characters, too */
                throw grammar_beyond("the regular expression is too large");
            }
        }
        return after;
    }

    /* All nodes that are reached without a character; only those that wait for one, and the end, are kept. */
    void close(std::vector<uint32_t> &set)
    {
        seen.resize(nodes.size(), 0);
        visit++;
        std::vector<uint32_t> todo = std::move(set);
        set.clear();
        while (!todo.empty()) {
            const uint32_t at = todo.back();
            todo.pop_back();
            if (seen[at] == visit) {
                continue;
            }
            seen[at] = visit;
            budget.spend(1);
            if (at == 0 || !nodes[at].set.empty()) {
                set.push_back(at);
            } else {
                todo.push_back(nodes[at].next);
                todo.push_back(nodes[at].other);
            }
        }
        if (seen[ANYTHING] == visit) { /* all that follows matches, whatever else is open */
            set = {0, ANYTHING};
        }
        std::sort(set.begin(), set.end());
    }

    std::vector<uint32_t> stepped(const std::vector<uint32_t> &from, uint32_t value)
    {
        std::vector<uint32_t> to;
        budget.spend(work_budget::TRANSITION + from.size());
        for (const uint32_t at : from) {
            const bool takes = std::any_of(nodes[at].set.begin(), nodes[at].set.end(),
                                           [&](const auto &r) { return r.low <= value && value <= r.high; });
            if (takes) {
                to.push_back(nodes[at].next);
            }
        }
        close(to);
        return to;
    }

    uint32_t state_of(std::vector<uint32_t> set)
    {
        const auto [found, is_new] = numbers.try_emplace(set, static_cast<uint32_t>(sets.size()));
        if (is_new) {
            if (sets.size() >= AUTOMATON_STATES_MAX) {
                throw grammar_beyond("the regular expression takes more than " + std::to_string(AUTOMATON_STATES_MAX) +
                                     " states");
            }
            sets.push_back(std::move(set));
            out.states.emplace_back();
        }
        return found->second;
    }

    void find_ways(uint32_t number, const std::vector<uint32_t> &here)
    {
        std::vector<uint32_t> lows;
        for (const uint32_t at : here) {
            for (const grammar_range &r : nodes[at].set) {
                lows.push_back(r.low);
                lows.push_back(r.high + 1);
            }
        }
        std::sort(lows.begin(), lows.end());
        lows.erase(std::unique(lows.begin(), lows.end()), lows.end());
        for (size_t i = 0; i + 1 < lows.size() && lows[i] <= CHARACTER_LAST; i++) {
            std::vector<uint32_t> to = stepped(here, lows[i]);
            if (!to.empty()) {
                const uint32_t state = state_of(std::move(to));
                out.states[number].ways.push_back({lows[i], std::min(lows[i + 1] - 1, CHARACTER_LAST), state});
            }
        }
    }
};

/* The end of the group that begins at text[at]. */
size_t end_of_group(const std::string &text, size_t at)
{
    size_t depth = 0;
    for (bool is_set = false; at < text.size(); at++) {
        const char c = text[at];
        if (c == '\\') {
            at++;
        } else if (is_set) {
            is_set = c != ']';
        } else if (c == '[') {
            is_set = true;
        } else if (c == '(') {
            depth++;
        } else if (c == ')' && --depth == 0) {
            return at;
        }
    }
    fail("a ( that is not closed");
}

bool has_ways(const std::string &text)
{
    size_t depth = 0;
    bool is_set = false;
    for (size_t at = 0; at < text.size(); at++) {
        const char c = text[at];
        if (c == '\\') {
            at++;
        } else if (is_set) {
            is_set = c != ']';
        } else if (c == '[') {
            is_set = true;
        } else if (c == '(' || c == ')') {
            depth += c == '(' ? 1 : SIZE_MAX;
        } else if (c == '|' && depth == 0) {
            return true;
        }
    }
    return false;
}

automaton simple_automaton(const std::string &expression, work_budget &budget)
{
    return net(parser(expression).parse(), budget).deterministic();
}

} // namespace

/* What looks ahead from the start is a condition on the whole text. */
automaton expression_automaton(const std::string &expression, work_budget &budget)
{
    struct condition {
        std::string expression;
        bool is_negated;
    };
    std::vector<condition> conditions;
    std::string rest = expression;
    while (rest.compare(0, 4, "^(?!") == 0 || rest.compare(0, 4, "^(?=") == 0) {
        const size_t close = end_of_group(rest, 1);
        conditions.push_back({"^(?:" + rest.substr(4, close - 4) + ")", rest[3] == '!'});
        rest = "^" + rest.substr(close + 1);
    }
    if (!conditions.empty() && has_ways(rest)) {
        refuse("a look-around in one of several ways");
    }
    automaton out = simple_automaton(rest, budget);
    for (const condition &c : conditions) {
        out = automaton_of(c.is_negated ? automaton_operation::FIRST_ONLY : automaton_operation::BOTH, out,
                           simple_automaton(c.expression, budget), budget);
    }
    return out;
}
