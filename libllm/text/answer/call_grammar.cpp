#include "text/answer/call_grammar.h"

#include <common/chat-peg-parser.h>
#include <common/json-schema-to-grammar.h>

#include <algorithm>
#include <map>

#include "text/answer/call_graph.h"
#include "text/answer/parser_text.h"

namespace {

using tags = common_chat_peg_builder;

/* n arguments in any order take 2^n rules of about 120 bytes each, one rule for each set of missing arguments. A rule
 * for each order would take n! rules. If a tool has more than UNORDERED_MAX arguments, its optional arguments can come
 * anywhere, and each can occur any number of times. If more than UNORDERED_MAX arguments are required, the required
 * arguments must come in the order of the schema. */
constexpr size_t UNORDERED_MAX = 6, ORDERS_MAX = 1024;

/* Matches any argument name. Used if a grammar of the names that the schema allows would be too large. */
const char *const ANY_NAME = "[^\\x00-\\x1F\\x7F<>\"/]+";

size_t n_declared(const tool_schemas::separate &tool)
{
    return static_cast<size_t>(std::count_if(tool.arguments.begin(), tool.arguments.end(),
                                             [](const schema_argument &one) { return !one.name.empty(); }));
}

/* Makes one rule for each delimiter of arguments. The same delimiter can be next to thousands of arguments, and a rule
 * keeps the grammar small. */
class shared_marks {
  public:
    explicit shared_marks(parser_graph *graph) : g(*graph) {}

    size_t node(const std::string &text)
    {
        constexpr size_t BYTES_MIN = 6; /* a shorter delimiter gets no rule, because the rule's name would not be
                                         * shorter */
        if (text.size() < BYTES_MIN) {
            return g.literal(text);
        }
        const auto known = rules.find(text);
        return known != rules.end() ? known->second
                                    : rules[text] = g.rule("m" + std::to_string(rules.size()), g.literal(text));
    }

  private:
    parser_graph &g;
    std::map<std::string, size_t> rules;
};

/* Makes the rules of one tool's arguments. An argument is either *counted* or *repeated*. A counted argument can come
 * at most once. The rules of rest() depend on the counted arguments that are still missing. A repeated argument can
 * come any number of times. Required arguments are counted. Optional arguments are counted only if the tool has few
 * arguments. */
class argument_rules {
  public:
    argument_rules(parser_graph *graph, shared_marks *all_marks, tool_schemas *compiled, size_t number_of_call,
                   size_t unordered_max)
        : g(*graph), marks(*all_marks), schemas(*compiled), prefix("a" + std::to_string(number_of_call) + "-"),
          n_unordered(unordered_max)
    {}

    void replace(size_t call, const tool_schemas::separate &tool)
    {
        const std::vector<size_t> nodes = g.tagged(call, tags::TOOL_ARG);
        std::multimap<std::string, size_t> named;
        for (const size_t node : nodes) {
            named.emplace(call_literal(g, node, tags::TOOL_ARG_NAME), node);
        }
        are_marked = are_arguments_marked(g, nodes);
        has_blanks = !are_marked || has_blanks_outside(call);
        keeps_all = n_declared(tool) <= n_unordered;
        for (size_t i = 0; i < tool.arguments.size(); i++) {
            const schema_argument &one = tool.arguments[i];
            const auto [first, last] = named.equal_range(one.name.empty() ? tool.any_name : one.name);
            for (auto at = first; at != last; ++at) {
                if (!one.name.empty()) {
                    add(as_rule(tool.are_lists[i] ? at->second : declared(at->second, one)), one.is_required);
                } else if (are_marked) {
                    add_undeclared(at->second, one);
                }
            }
        }
        if (!repeated.empty()) {
            any_repeated = as_rule(g.choice(repeated));
        }
        is_ordered = counted.size() > n_unordered;
        replace_arguments(&g, call, rest(std::vector<bool>(counted.size(), true), true));
    }

  private:
    parser_graph &g;
    shared_marks &marks;
    tool_schemas &schemas;
    std::string prefix;
    size_t n_unordered, n_rules = 0;
    bool are_marked = false, has_blanks = false;
    bool keeps_all = false;                /* optional arguments are counted, too */
    bool is_ordered = false;               /* counted arguments must come in the order of the schema */
    std::vector<size_t> counted, repeated; /* nodes of the parser graph, one per argument */
    /* one rule for all repeated arguments. If each rule of rest() listed these arguments, the grammar would grow
     * quadratically */
    size_t any_repeated = 0;
    std::vector<bool> is_required;             /* whether each counted argument is required */
    std::map<std::vector<bool>, size_t> rests; /* rule for each set of missing counted arguments */

    /* Returns whether llama.cpp's parser of this tool call allows blanks outside arguments. If so, blanks are also
     * allowed between arguments. Blanks in the text that opens the call do not count. */
    bool has_blanks_outside(size_t call) const
    {
        bool has_blanks_there = false;
        g.visit(call, [&](size_t id) {
            has_blanks_there = has_blanks_there || g.is(id, "space");
            return !g.is_tagged(id, tags::TOOL_ARG) && !g.is_tagged(id, tags::TOOL_OPEN);
        });
        return has_blanks_there;
    }

    size_t as_rule(size_t node)
    {
        return g.rule(prefix + std::to_string(n_rules++), node);
    }

    void add(size_t node, bool must_come)
    {
        if (must_come || keeps_all) {
            counted.push_back(node);
            is_required.push_back(must_come);
        } else {
            repeated.push_back(node);
        }
    }

    size_t element(const std::string &rule)
    {
        return g.grammar(tool_schemas::element_of(rule));
    }

    /* Returns a node that matches an argument's value as JSON. Strings can also be in single quotes, because templates
     * write the strings of earlier tool calls in single quotes. */
    size_t python_value(const schema_argument &one)
    {
        std::vector<size_t> ways = {element(one.element)};
        const std::optional<std::string> quoted =
            one.may_be_text ? schemas.quoted(one.texts.value_or(automaton_of_any())) : std::nullopt;
        if (quoted.has_value()) {
            ways.push_back(g.grammar(*quoted));
        }
        return g.choice(ways);
    }

    size_t declared(size_t node, const schema_argument &one)
    {
        const std::vector<argument_way> ways = argument_ways(&g, node);
        if (ways.empty()) {
            return node;
        }
        if (!are_marked) {
            std::vector<size_t> parts = ways.front().opening;
            parts.push_back(python_value(one));
            return g.sequence(parts);
        }
        return g.choice(written(ways, one));
    }

    void add_undeclared(size_t sample, const schema_argument &one)
    {
        const std::optional<std::string> names = schemas.names(*one.names);
        if (names.has_value() && names->empty()) {
            return;
        }
        for (const size_t way : written(any_argument_ways(&g, sample, g.grammar(names.value_or(ANY_NAME))), one)) {
            repeated.push_back(as_rule(way));
        }
    }

    /* Returns the rule of the strings that the argument allows, followed by `close`. Returns nullopt if the argument
     * allows any string. */
    std::optional<std::string> texts_before(const std::string &close, const schema_argument &one)
    {
        return one.texts.has_value() ? schemas.bare(*one.texts, close) : std::nullopt;
    }

    /* If the node consists only of literals, appends their text to *text. Otherwise returns false. */
    bool add_literals(size_t node, std::string *text) const
    {
        if (g.is(node, "literal")) {
            *text += g.at(node).at("literal").get<std::string>();
            return true;
        }
        const std::vector<size_t> parts = g.children(node);
        return (g.is(node, "sequence") || g.is(node, "tag") || g.is(node, "atomic")) &&
               std::all_of(parts.begin(), parts.end(), [&](size_t part) { return add_literals(part, text); });
    }

    /* Returns the nodes `parts` with adjacent literals joined, so that there are few literals. The argument's name
     * stays a separate literal. The texts before and after the name use shared rules (shared_marks). `name` is "" if
     * the argument can have any name. */
    std::vector<size_t> joined(const std::vector<size_t> &parts, const std::string &name)
    {
        std::vector<size_t> out;
        std::string text;
        const auto end_literal = [&] {
            const size_t at = name.empty() ? std::string::npos : text.find(name);
            const std::string before = text.substr(0, at == std::string::npos ? text.size() : at);
            const std::string behind = at == std::string::npos ? "" : text.substr(at + name.size());
            for (const size_t one :
                 {before.empty() ? 0 : marks.node(before), at == std::string::npos ? 0 : g.literal(name),
                  behind.empty() ? 0 : marks.node(behind)}) {
                if (one != 0) { /* 0 means that there is no node; node 0 itself is never a new node */
                    out.push_back(one);
                }
            }
            text.clear();
        };
        for (const size_t part : parts) {
            std::string more = text;
            if (add_literals(part, &more)) {
                text = more;
            } else {
                end_literal();
                out.push_back(part);
            }
        }
        end_literal();
        return out;
    }

    /* Returns a node for each way to write the argument, with the values that its schema allows. A string without
     * quotes ends at the closing delimiter, and can look like any JSON value. So if any string is allowed, the grammar
     * needs no alternative for JSON values. */
    std::vector<size_t> written(const std::vector<argument_way> &ways, const schema_argument &one)
    {
        std::vector<size_t> all;
        for (const argument_way &way : ways) {
            std::vector<size_t> values;
            const auto close = [&](std::vector<size_t> parts) {
                parts.insert(parts.end(), way.closing.begin(), way.closing.end());
                values.push_back(g.sequence(parts));
            };
            if (way.may_be_text && one.may_be_text) {
                const std::optional<std::string> texts = texts_before(way.text_end, one);
                close({texts.has_value() ? g.grammar(*texts) : g.text_with(way.text_end)});
            }
            /* true if any string is allowed, which includes all JSON values */
            const bool is_covered = way.may_be_text && one.may_be_text && !one.texts.has_value();
            const std::string &rule = one.may_be_text && one.texts.has_value() ? one.not_text : one.element;
            if (way.may_be_json && !one.is_text && !is_covered && !rule.empty()) {
                close({element(rule), marks.node(way.text_end)});
            }
            if (!values.empty()) {
                std::vector<size_t> parts = joined(way.opening, one.name);
                parts.push_back(values.size() == 1 ? values.front() : g.choice(values));
                all.push_back(g.sequence(parts));
            }
        }
        return all;
    }

    /* Returns a node for the separator, the argument, and everything after the argument. */
    size_t argument(size_t node, bool is_first, const std::vector<bool> &left)
    {
        std::vector<size_t> parts;
        if (!are_marked && !is_first) {
            parts.push_back(g.literal(","));
        }
        if (has_blanks && (are_marked || !is_first)) {
            parts.push_back(g.blanks());
        }
        parts.push_back(node);
        parts.push_back(rest(left, false));
        return g.sequence(parts);
    }

    /* Returns the rule for the rest of a tool call's arguments. `left` says which counted arguments the call still
     * lacks. There is one rule for each `left`, whatever the order of the earlier arguments was. */
    size_t rest(const std::vector<bool> &left, bool is_first)
    {
        const auto found = rests.find(left);
        if (!is_first && found != rests.end()) {
            return found->second;
        }
        const size_t rule = as_rule(0);
        if (!is_first || are_marked) {
            rests[left] = rule;
        }
        std::vector<size_t> ways;
        bool may_end = true;
        for (size_t i = 0; i < counted.size(); i++) {
            if (left[i] && (!is_ordered || ways.empty())) {
                std::vector<bool> less = left;
                less[i] = false;
                ways.push_back(argument(counted[i], is_first, less));
            }
            may_end = may_end && !(left[i] && is_required[i]);
        }
        if (!repeated.empty()) {
            ways.push_back(argument(any_repeated, is_first, left));
        }
        const size_t all = ways.empty() ? g.literal("") : g.choice(ways);
        g.at(rule)["child"] = may_end && !ways.empty() ? g.optional(all) : all;
        return rule;
    }
};

struct call_of_tool {
    size_t node;
    const tool_schemas::separate *tool;
};

std::vector<call_of_tool> calls_with_arguments(const parser_graph &graph, const tool_schemas &schemas)
{
    std::vector<call_of_tool> out;
    const std::vector<size_t> calls =
        call_nodes(graph, graph.reaching(tags::TOOL_OPEN), graph.reaching(tags::TOOL_CLOSE));
    for (const size_t call : calls) {
        const tool_schemas::separate *tool = schemas.separate_of(call_literal(graph, call, tags::TOOL_NAME));
        if (tool != nullptr && !graph.tagged(call, tags::TOOL_ARG).empty()) {
            out.push_back({call, tool});
        }
    }
    return out;
}

size_t n_counted(const tool_schemas::separate &tool, size_t unordered_max)
{
    const size_t n = n_declared(tool);
    return n <= unordered_max ? n
                              : static_cast<size_t>(std::count_if(tool.arguments.begin(), tool.arguments.end(),
                                                                  [](const auto &one) { return one.is_required; }));
}

/* Returns the largest number of arguments for which a tool accepts any order. This number is at most UNORDERED_MAX, and
 * so small that all tools together need at most ORDERS_MAX rules. */
size_t unordered_max(const std::vector<call_of_tool> &calls)
{
    size_t most = UNORDERED_MAX;
    const auto n_orders = [&] {
        size_t n = 0;
        for (const call_of_tool &one : calls) {
            const size_t n_arguments = n_counted(*one.tool, most);
            n += n_arguments <= most ? size_t{1} << n_arguments : n_arguments;
        }
        return n;
    };
    while (most > 0 && n_orders() > ORDERS_MAX) {
        most--;
    }
    return most;
}

/* llama.cpp's grammar of Gemma 4 allows any object as the arguments of a tool call. This function makes the grammar
 * allow only objects that match the tool's schema. Returns whether any tool call was changed. */
bool replace_objects(parser_graph *graph, const tool_schemas &schemas)
{
    bool is_any = false;
    for (size_t id = 0, n = graph->size(); id < n; id++) {
        const std::string element =
            graph->is_tagged(id, tags::TOOL) ? schemas.object_of(call_literal(*graph, id, tags::TOOL_NAME)) : "";
        for (const size_t arguments : element.empty() ? std::vector<size_t>() : graph->tagged(id, tags::TOOL_ARGS)) {
            graph->at(arguments)["child"] = graph->grammar(element);
            is_any = true;
        }
    }
    return is_any;
}

} // namespace

std::string call_grammar(const common_chat_params &form, tool_schemas *schemas)
{
    parser_graph graph(parser_written(form.parser));
    const std::vector<call_of_tool> calls = calls_with_arguments(graph, *schemas);
    const bool has_objects = form.format == COMMON_CHAT_FORMAT_PEG_GEMMA4 && replace_objects(&graph, *schemas);
    if (form.grammar.empty() || (calls.empty() && !has_objects)) {
        return "";
    }
    const size_t most = schemas->takes_any_value() ? 0 : unordered_max(calls);
    shared_marks marks(&graph);
    for (size_t i = 0; i < calls.size(); i++) {
        argument_rules(&graph, &marks, schemas, i, most).replace(calls[i].node, *calls[i].tool);
    }
    const common_peg_arena arena = parser_read(std::move(graph).json(), true);
    return build_grammar(
        [&](const common_grammar_builder &builder) { arena.build_grammar(builder, form.grammar_lazy); });
}
