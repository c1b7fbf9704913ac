/* grammar.cpp: parses GBNF. Groups are parsed by recursion of limited depth. A repetition becomes copies of its
 * content, as in llama.cpp. Nested counts multiply: (a{2,3}){2} has 2 * 3 copies of a. This product (`weight`) is
 * checked against a limit before any copy is made. */
#include "text/grammar/grammar.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "model/model.h"

namespace {

constexpr size_t ELEMENTS_MAX = 1 << 18; /* limit on the elements of all rules, including ranges. An element has 12
                                          * bytes */
constexpr size_t RULES_MAX = 1 << 16;    /* limit on rules, including those made for groups and repetitions */
constexpr size_t GROUPS_MAX = 128;       /* limit on the levels of nested groups */
constexpr uint64_t REPETITIONS_MAX = 2000;
constexpr uint64_t NO_MOST = UINT64_MAX;

using element = grammar_element;
using sequence = std::vector<element>;

class reader {
  public:
    reader(const std::string &source, const model *vocabulary) : text(source), at(text.c_str()), m(vocabulary) {}

    grammar read()
    {
        skip(true);
        while (*at != '\0') {
            read_rule();
        }
        if (at != text.c_str() + text.size()) {
            throw grammar_fault("the grammar contains a NUL");
        }
        return compiled();
    }

  private:
    const std::string &text;
    const char *at;
    const model *m;
    std::unordered_map<std::string, uint32_t> names;
    std::vector<sequence> rules;
    sequence unfinished; /* parsed elements that are not in a rule yet. First come the elements of the current rule,
                          * last those of the innermost group */
    std::vector<grammar_range> ranges;
    size_t n_elements = 0;

    [[noreturn]] void fail(const std::string &what) const
    {
        const size_t offset = static_cast<size_t>(at - text.c_str());
        const size_t line =
            1 + static_cast<size_t>(std::count(text.begin(), text.begin() + static_cast<long>(offset), '\n'));
        std::string near(at, strnlen(at, 24));
        throw grammar_fault("grammar, line " + std::to_string(line) + ": " + what +
                            (near.empty() ? " at its end" : ", at: " + near));
    }

    static bool is_digit(char c)
    {
        return c >= '0' && c <= '9';
    }

    static bool is_word(char c)
    {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || is_digit(c);
    }

    void skip(bool over_lines)
    {
        while (*at == ' ' || *at == '\t' || *at == '#' || (over_lines && (*at == '\r' || *at == '\n'))) {
            if (*at == '#') {
                at += strcspn(at, "\r\n");
            } else {
                at++;
            }
        }
    }

    std::string read_name()
    {
        const char *begin = at;
        while (is_word(*at)) {
            at++;
        }
        if (at == begin) {
            fail("a name is expected");
        }
        return std::string(begin, at);
    }

    uint64_t read_number()
    {
        uint64_t number = 0;
        if (!is_digit(*at)) {
            fail("a number is expected");
        }
        while (is_digit(*at)) {
            number = std::min<uint64_t>(number * 10 + static_cast<uint64_t>(*at++ - '0'), UINT32_MAX);
        }
        return number;
    }

    uint32_t new_rule()
    {
        if (rules.size() >= RULES_MAX) {
            fail("more than " + std::to_string(RULES_MAX) + " rules");
        }
        rules.emplace_back();
        return static_cast<uint32_t>(rules.size() - 1);
    }

    uint32_t rule_of(const std::string &name)
    {
        const auto [found, is_new] = names.try_emplace(name, 0);
        if (is_new) {
            found->second = new_rule();
        }
        return found->second;
    }

    void count(size_t n)
    {
        n_elements += n;
        if (n_elements > ELEMENTS_MAX) {
            fail("it unfolds to more than " + std::to_string(ELEMENTS_MAX) + " elements");
        }
    }

    void add(sequence &to, element e)
    {
        count(1);
        to.push_back(e);
    }

    void read_rule()
    {
        const uint32_t rule = rule_of(read_name());
        skip(false);
        if (strncmp(at, "::=", 3) != 0) {
            fail("::= is expected");
        }
        at += 3;
        skip(true);
        read_alternates(rule, false, 0);
        if (*at == '\r') {
            at += at[1] == '\n' ? 2 : 1;
        } else if (*at == '\n') {
            at++;
        } else if (*at != '\0') {
            fail("the end of the line is expected");
        }
        skip(true);
    }

    void read_alternates(uint32_t rule, bool is_group, size_t depth)
    {
        const size_t begin = unfinished.size();
        read_sequence(unfinished, is_group, depth);
        while (*at == '|') {
            add(unfinished, {element::ALTERNATE, false, 0, 0});
            at++;
            skip(true);
            read_sequence(unfinished, is_group, depth);
        }
        add(unfinished, {element::END, false, 0, 0});
        rules[rule].assign(unfinished.begin() + static_cast<long>(begin), unfinished.end());
        unfinished.resize(begin);
    }

    uint32_t read_hex(int n_digits)
    {
        uint32_t value = 0;
        for (int i = 0; i < n_digits; i++, at++) {
            if (!isxdigit(static_cast<unsigned char>(*at))) {
                fail("a hexadecimal digit is expected");
            }
            const char digit[2] = {*at, '\0'};
            value = value << 4 | static_cast<uint32_t>(strtoul(digit, nullptr, 16));
        }
        return value;
    }

    uint32_t read_escape()
    {
        const char c = at[1];
        at += 2;
        switch (c) {
        case 'x': return read_hex(2);
        case 'u': return read_hex(4);
        case 'U': return read_hex(8);
        case 't': return '\t';
        case 'r': return '\r';
        case 'n': return '\n';
        case '\\':
        case '"':
        case '[':
        case ']':
        case '-': return static_cast<uint32_t>(c);
        default: at -= 2; fail("the escape is unknown");
        }
    }

    uint32_t read_character()
    {
        if (*at == '\0') {
            fail("a text or set is not closed");
        }
        if (*at == '\\') {
            return read_escape();
        }
        const uint8_t first = static_cast<uint8_t>(*at++);
        const int n = first < 0xc0 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
        uint32_t value = n == 0 ? first : first & (0x3fu >> n);
        for (int i = 0; i < n && *at != '\0'; i++) {
            value = value << 6 | (static_cast<uint8_t>(*at++) & 0x3fu);
        }
        return value;
    }

    void add_range(uint32_t low, uint32_t high)
    {
        count(1);
        ranges.push_back({low, high});
    }

    void read_literal(sequence &to)
    {
        at++;
        while (*at != '"') {
            const uint32_t c = read_character();
            add(to, {element::CHARACTER, false, static_cast<uint32_t>(ranges.size()), 1});
            add_range(c, c);
        }
        at++;
    }

    void read_set(sequence &to)
    {
        at++;
        element set = {element::CHARACTER, *at == '^', static_cast<uint32_t>(ranges.size()), 0};
        at += *at == '^';
        while (*at != ']') {
            const uint32_t low = read_character();
            uint32_t high = low;
            if (at[0] == '-' && at[1] != ']') {
                at++;
                high = read_character();
            }
            add_range(low, high);
            set.n++;
        }
        at++;
        if (set.n > 0) {
            add(to, set);
        }
    }

    /* Parses <[17]> or <name>, with or without a preceding !. */
    void read_token(sequence &to)
    {
        element token = {element::TOKEN, *at == '!', 0, 0};
        at += *at == '!';
        if (*at != '<') {
            fail("a token is expected");
        }
        if (at[1] == '[') {
            at += 2;
            token.value = static_cast<uint32_t>(read_number());
            if (strncmp(at, "]>", 2) != 0) {
                fail("]> is expected");
            }
            at += 2;
        } else {
            const char *end = strchr(at, '>');
            int32_t found[2] = {0, 0};
            if (end == nullptr || (m != nullptr && m->ops->tokenize(m, at, static_cast<size_t>(end + 1 - at), false,
                                                                    true, found, 2) != 1)) {
                fail("the model has no such token");
            }
            token.value = static_cast<uint32_t>(found[0]);
            at = end + 1;
        }
        add(to, token);
    }

    /* Repeats the last item of the sequence `to`, which begins at index `item`. `weight` is the number of rules made
     * for the item (1 if none), times the counts of the repetitions already applied to the item. */
    void repeat(sequence &to, size_t item, uint64_t least, uint64_t most, uint64_t &weight)
    {
        if (item == to.size()) {
            fail("there is nothing to repeat");
        }
        if (least > REPETITIONS_MAX) {
            fail("more than " + std::to_string(REPETITIONS_MAX) + " repetitions");
        }
        if (most != NO_MOST && most > REPETITIONS_MAX) {
            most = NO_MOST;
        }
        const uint64_t times = most != NO_MOST && most > 0 ? most : std::max<uint64_t>(least, 1);
        if (weight * times > REPETITIONS_MAX) {
            fail("more than " + std::to_string(REPETITIONS_MAX) + " copies by nested repetitions");
        }
        weight *= times;
        if (most < least) {
            fail("the maximum of a repetition is less than its minimum");
        }
        const sequence unit(to.begin() + static_cast<long>(item), to.end());
        if (least == 0) {
            to.resize(item);
        }
        for (uint64_t i = 1; i < least; i++) {
            count(unit.size());
            to.insert(to.end(), unit.begin(), unit.end());
        }
        repeat_freely(to, unit, most == NO_MOST ? 1 : most - least, most == NO_MOST);
    }

    /* Appends 0 to n repetitions of `unit`. Makes n rules for this. Each rule matches nothing, or `unit` followed by
     * the rule made before. If `is_endless`, there is only one rule. This rule matches nothing, or `unit` followed by
     * itself. */
    void repeat_freely(sequence &to, const sequence &unit, uint64_t n, bool is_endless)
    {
        uint32_t before = 0;
        for (uint64_t i = 0; i < n; i++) {
            const uint32_t rule = new_rule();
            sequence body = unit;
            if (i > 0 || is_endless) {
                body.push_back({element::RULE, false, is_endless ? rule : before, 0});
            }
            body.push_back({element::ALTERNATE, false, 0, 0});
            body.push_back({element::END, false, 0, 0});
            count(body.size());
            rules[rule] = std::move(body);
            before = rule;
        }
        if (n > 0) {
            add(to, {element::RULE, false, before, 0});
        }
    }

    void read_counts(sequence &to, size_t item, uint64_t &weight, bool is_group)
    {
        at++;
        skip(is_group);
        const uint64_t least = read_number();
        uint64_t most = least;
        skip(is_group);
        if (*at == ',') {
            at++;
            skip(is_group);
            most = is_digit(*at) ? read_number() : NO_MOST;
            skip(is_group);
        }
        if (*at != '}') {
            fail("} is expected");
        }
        at++;
        repeat(to, item, least, most, weight);
    }

    void read_group(sequence &to, size_t depth, uint64_t &weight)
    {
        if (depth >= GROUPS_MAX) {
            fail("more than " + std::to_string(GROUPS_MAX) + " levels of nested groups");
        }
        at++;
        skip(true);
        const size_t n_before = rules.size();
        const uint32_t group = new_rule();
        read_alternates(group, true, depth + 1);
        weight = std::max<uint64_t>(1, rules.size() - n_before);
        add(to, {element::RULE, false, group, 0});
        if (*at != ')') {
            fail(") is expected");
        }
        at++;
    }

    void read_sequence(sequence &to, bool is_group, size_t depth)
    {
        size_t item = to.size();
        uint64_t weight = 1;
        for (;; skip(is_group)) {
            const char c = *at;
            const bool is_repetition = c == '*' || c == '+' || c == '?' || c == '{';
            if (!is_repetition) {
                if (c != '"' && c != '[' && c != '<' && c != '!' && c != '(' && c != '.' && !is_word(c)) {
                    return;
                }
                item = to.size();
                weight = 1;
            }
            switch (c) {
            case '"': read_literal(to); break;
            case '[': read_set(to); break;
            case '<':
            case '!': read_token(to); break;
            case '(': read_group(to, depth, weight); break;
            case '{': read_counts(to, item, weight, is_group); break;
            case '.':
                at++;
                add(to, {element::CHARACTER, true, 0, 0});
                break;
            case '*':
            case '+':
            case '?':
                at++;
                repeat(to, item, c == '+', c == '?' ? 1 : NO_MOST, weight);
                break;
            default: add(to, {element::RULE, false, rule_of(read_name()), 0}); break;
            }
        }
    }

    grammar compiled()
    {
        const auto root = names.find("root");
        if (root == names.end()) {
            throw grammar_fault("the grammar has no rule named root");
        }
        for (const auto &[name, rule] : names) {
            if (rules[rule].empty()) {
                throw grammar_fault("the grammar has no rule named " + name.substr(0, 64));
            }
        }
        grammar g;
        g.root = root->second;
        g.rules.reserve(rules.size());
        for (const sequence &rule : rules) {
            g.rules.push_back(static_cast<uint32_t>(g.elements.size()));
            g.elements.insert(g.elements.end(), rule.begin(), rule.end());
        }
        g.ranges = std::move(ranges);
        return g;
    }
};

/* ---- left recursion: a rule that begins with itself would be expanded forever ---- */

/* Finds the rules that match the empty string. Such a rule has an alternative whose elements can all be empty. An
 * element can be a rule that is not yet known to match the empty string. So the search repeats until nothing
 * changes. */
std::vector<bool> empty_rules(const grammar &g)
{
    std::vector<bool> is_empty(g.rules.size(), false);
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t rule = 0; rule < g.rules.size(); rule++) {
            bool may_be = true;
            for (size_t i = g.rules[rule]; !is_empty[rule]; i++) {
                const element &e = g.elements[i];
                if (e.ends_sequence()) {
                    changed = changed || may_be;
                    is_empty[rule] = may_be;
                    may_be = true;
                    if (e.is == element::END) {
                        break;
                    }
                } else if (e.is != element::RULE || !is_empty[e.value]) {
                    may_be = false;
                }
            }
        }
    }
    return is_empty;
}

/* A rule with which another rule, the outer rule, can begin. The rule is harmless if it is the last element of its
 * alternative and only elements that can be empty precede it. Such a rule replaces the outer rule on the stack. So the
 * stack does not grow, and the walk stops at a stack that it has already expanded. (a? b?)+ contains a harmless rule.
 * llama.cpp's converters write such repetitions for tool calls. */
struct beginning {
    uint32_t rule;
    bool is_harmless;
};

/* For each rule, the rules with which this rule can begin. The beginnings of one rule are adjacent in `all`. */
struct graph {
    std::vector<beginning> all;
    std::vector<size_t> ends; /* for each rule, the end of its beginnings in `all` */

    size_t begin(size_t rule) const
    {
        return rule > 0 ? ends[rule - 1] : 0;
    }
};

graph beginnings(const grammar &g, const std::vector<bool> &is_empty)
{
    graph found;
    for (const uint32_t rule : g.rules) {
        bool is_beginning = true, is_first = true;
        for (size_t i = rule; g.elements[i].is != element::END; i++) {
            const element &e = g.elements[i];
            if (e.is == element::ALTERNATE) {
                is_beginning = is_first = true;
            } else if (is_beginning && e.is == element::RULE) {
                found.all.push_back({e.value, !is_first && g.elements[i + 1].ends_sequence()});
                is_beginning = is_empty[e.value];
                is_first = false;
            } else {
                is_beginning = false;
            }
        }
        found.ends.push_back(found.all.size());
    }
    return found;
}

/* Returns the graph with reversed edges. If rule A can begin with rule B, the result has an edge from B to A. */
graph turned_around(const graph &forth)
{
    const size_t n = forth.ends.size();
    graph back = {std::vector<beginning>(forth.all.size()), std::vector<size_t>(n + 1, 0)};
    for (const beginning &to : forth.all) {
        back.ends[to.rule + 1]++;
    }
    std::partial_sum(back.ends.begin(), back.ends.end(), back.ends.begin());
    for (uint32_t rule = 0; rule < n; rule++) {
        for (size_t i = forth.begin(rule); i < forth.ends[rule]; i++) {
            /* afterwards ends[r] is the end of the range of rule r */
            back.all[back.ends[forth.all[i].rule]++] = {rule, true};
        }
    }
    return back;
}

/* Marks the unmarked rules that can be reached from `first`. Appends them to `order` in post-order, the deepest first.
 * Uses no recursion, because the depth can equal the number of rules. */
void visit(const graph &edges, uint32_t first, uint32_t mark, std::vector<uint32_t> &marks,
           std::vector<uint32_t> &order)
{
    std::vector<std::pair<uint32_t, size_t>> path; /* each rule with its next edge */
    const auto enter = [&](uint32_t rule) {
        if (marks[rule] == 0) {
            marks[rule] = mark;
            path.emplace_back(rule, edges.begin(rule));
        }
    };
    for (enter(first); !path.empty();) {
        const auto [rule, next] = path.back();
        if (next < edges.ends[rule]) {
            path.back().second++;
            enter(edges.all[next].rule);
        } else {
            order.push_back(rule);
            path.pop_back();
        }
    }
}

/* Refuses a grammar with left recursion. A group of rules that begin with each other is a strongly connected component,
 * found with Kosaraju's algorithm. In such a group, only harmless beginnings are allowed. */
void refuse_left_recursion(const grammar &g)
{
    const graph forth = beginnings(g, empty_rules(g)), back = turned_around(forth);
    const uint32_t n = static_cast<uint32_t>(g.rules.size());
    std::vector<uint32_t> marks(n, 0), groups(n, 0), order, members;
    for (uint32_t rule = 0; rule < n; rule++) {
        visit(forth, rule, 1, marks, order);
    }
    for (size_t i = order.size(); i-- > 0;) {
        visit(back, order[i], order[i] + 1, groups, members);
    }
    for (uint32_t rule = 0; rule < n; rule++) {
        for (size_t i = forth.begin(rule); i < forth.ends[rule]; i++) {
            if (groups[rule] == groups[forth.all[i].rule] && !forth.all[i].is_harmless) {
                throw grammar_fault("the grammar has a rule that begins with itself (left recursion)");
            }
        }
    }
}

} // namespace

grammar grammar::read(const std::string &text, const model *m)
{
    grammar g = reader(text, m).read();
    refuse_left_recursion(g);
    return g;
}

bool grammar::matches(const grammar_element &e, uint32_t character) const
{
    for (uint32_t i = 0; i < e.n; i++) {
        const grammar_range &r = ranges[e.value + i];
        if (r.low <= character && character <= r.high) {
            return !e.is_negated;
        }
    }
    return e.is_negated;
}
