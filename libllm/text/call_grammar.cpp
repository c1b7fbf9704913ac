#include "text/call_grammar.h"

#include <common/chat-peg-parser.h>
#include <common/json-schema-to-grammar.h>

#include <algorithm>
#include <map>

#include "text/call_graph.h"
#include "text/parser_text.h"

namespace {

using tags = common_chat_peg_builder;

/* n arguments in any order take 2^n rules of about 120 bytes each: one for each set of arguments that are still missing. */
constexpr size_t UNORDERED_MAX = 6, ORDERS_MAX = 1024;

/* The rules of one tool's arguments. */
class argument_rules {
  public:
    argument_rules(parser_graph *graph, tool_schemas *compiled, size_t number_of_call, size_t unordered_max)
        : g(*graph), schemas(*compiled), prefix("arguments-" + std::to_string(number_of_call) + "-"),
          n_unordered(unordered_max)
    {}

    void replace(size_t call, const tool_schemas::separate &tool)
    {
        const std::vector<size_t> nodes = g.tagged(call, tags::TOOL_ARG);
        are_marked = are_arguments_marked(g, nodes);
        has_blanks = !are_marked || has_blanks_outside(call);
        const size_t n_declared =
            static_cast<size_t>(std::count_if(tool.arguments.begin(), tool.arguments.end(),
                                              [](const schema_argument &one) { return !one.name.empty(); }));
        keeps_all = n_declared <= n_unordered;
        for (size_t i = 0; i < tool.arguments.size(); i++) {
            const schema_argument &one = tool.arguments[i];
            for (const size_t node : nodes) {
                const std::string name = call_literal(g, node, tags::TOOL_ARG_NAME);
                if (!one.name.empty() && name == one.name) {
                    add(as_rule(tool.are_lists[i] ? node : declared(node, one)), one.is_required);
                } else if (one.name.empty() && name == ANY_ARGUMENT_NAME && are_marked) {
                    add_undeclared(node, one);
                }
            }
        }
        is_ordered = counted.size() > n_unordered;
        replace_arguments(&g, call, rest(std::vector<bool>(counted.size(), true), true));
    }

  private:
    parser_graph &g;
    tool_schemas &schemas;
    std::string prefix;
    size_t n_unordered, n_rules = 0;
    bool are_marked = false, has_blanks = false;
    bool keeps_all = false;                    /* optional arguments are counted, too: each comes once */
    bool is_ordered = false;                   /* counted arguments come in the order of the schema */
    std::vector<size_t> counted, repeated;     /* nodes of arguments */
    std::vector<bool> is_required;             /* of those that are counted */
    std::map<std::vector<bool>, size_t> rests; /* by the counted arguments that are still missing */

    bool has_blanks_outside(size_t id) const
    {
        if (g.is(id, "space")) {
            return true;
        }
        const std::vector<size_t> parts = g.is_tagged(id, tags::TOOL_ARG) || g.is_tagged(id, tags::TOOL_OPEN)
                                              ? std::vector<size_t>()
                                              : g.children(id);
        return std::any_of(parts.begin(), parts.end(), [&](size_t part) { return has_blanks_outside(part); });
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

    /* As in JSON; texts between single quotes, too, as templates write those of earlier calls. */
    size_t python_value(const schema_argument &one)
    {
        std::vector<size_t> ways = {element(schemas.takes_any_value() ? "value" : one.element)};
        const bool is_any = !one.texts.has_value() || schemas.takes_any_value();
        const std::optional<std::string> quoted =
            one.may_be_text ? schemas.quoted(is_any ? automaton_of_any() : *one.texts) : std::nullopt;
        if (quoted.has_value()) {
            ways.push_back(g.grammar(*quoted));
        }
        return g.choice(ways);
    }

    /* llama.cpp's own node takes any text up to what closes the argument. */
    size_t declared(size_t node, const schema_argument &one)
    {
        std::vector<size_t> parts = argument_opening(g, node);
        if (parts.empty()) {
            return node;
        }
        const std::string close = argument_close(g, node);
        if (!are_marked) {
            parts.push_back(python_value(one));
            return g.sequence(parts);
        }
        if (!one.may_be_text) {
            parts.push_back(element(schemas.takes_any_value() ? "value" : one.element));
            parts.push_back(g.literal(close));
            return g.sequence(parts);
        }
        const std::optional<std::string> texts =
            one.texts.has_value() && !schemas.takes_any_value() ? schemas.bare(*one.texts, close) : std::nullopt;
        if (!texts.has_value()) {
            return node;
        }
        std::vector<size_t> ways = {g.grammar(*texts)};
        if (!one.not_text.empty()) {
            ways.push_back(g.sequence({element(one.not_text), g.literal(close)}));
        }
        parts.push_back(g.choice(ways));
        return g.sequence(parts);
    }

    void add_undeclared(size_t sample, const schema_argument &one)
    {
        const std::string names = schemas.names(*one.names);
        for (const any_argument &way : arguments_of_any_name(&g, sample, g.grammar(names))) {
            std::vector<size_t> values;
            const auto close = [&](std::vector<size_t> parts) {
                parts.insert(parts.end(), way.closing.begin(), way.closing.end());
                values.push_back(g.sequence(parts));
            };
            if (way.may_be_text && one.may_be_text) {
                const automaton any = automaton_of_any();
                const std::optional<std::string> texts = schemas.bare(one.texts.value_or(any), way.text_end);
                const std::optional<std::string> known = texts.has_value() ? texts : schemas.bare(any, way.text_end);
                if (known.has_value()) {
                    close({g.grammar(*known)});
                }
            }
            const bool is_covered = way.may_be_text && one.may_be_text && !one.texts.has_value(); /* by any text */
            const std::string &rule = one.may_be_text && one.texts.has_value() ? one.not_text : one.element;
            if (way.may_be_json && !is_covered && !rule.empty()) {
                close({element(rule), g.literal(way.text_end)});
            }
            if (!names.empty() && !values.empty()) {
                std::vector<size_t> parts = way.opening;
                parts.push_back(g.choice(values));
                repeated.push_back(as_rule(g.sequence(parts)));
            }
        }
    }

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

    /* What may follow while these arguments are missing. */
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
        for (const size_t node : repeated) {
            ways.push_back(argument(node, is_first, left));
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
    size_t n_declared = 0, n_required = 0;
    for (const schema_argument &one : tool.arguments) {
        n_declared += !one.name.empty();
        n_required += one.is_required;
    }
    return n_declared <= unordered_max ? n_declared : n_required;
}

/* How many arguments each tool may have in any order, so that all tools together have no more rules than ORDERS_MAX. */
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

} // namespace

std::string call_grammar(const common_chat_params &form, tool_schemas *schemas)
{
    parser_graph graph(common_json::parse(parser_written(form.parser)));
    const std::vector<call_of_tool> calls = calls_with_arguments(graph, *schemas);
    if (form.grammar.empty() || calls.empty()) {
        return "";
    }
    const size_t most = schemas->takes_any_value() ? 0 : unordered_max(calls);
    for (size_t i = 0; i < calls.size(); i++) {
        argument_rules(&graph, schemas, i, most).replace(calls[i].node, *calls[i].tool);
    }
    const common_peg_arena arena = parser_read(graph.json(), true);
    return build_grammar(
        [&](const common_grammar_builder &builder) { arena.build_grammar(builder, form.grammar_lazy); });
}
