#include "text/answer/call_parser.h"

#include <common/chat-peg-parser.h>

#include <algorithm>
#include <map>
#include <utility>

#include "text/answer/call_graph.h"
#include "text/answer/parser_graph.h"

namespace {

using tags = common_chat_peg_builder;

const char *const BLANKS = " \t\r\n";

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* Nodes that parse values as JSON or as Python writes them. Templates write True, None and 'x' in earlier tool calls,
 * and models imitate them. A number or word must not be followed by a letter or digit, so `nullable` and 12ab do not
 * match. If each parameter is between its own delimiters, `nullable` and 12ab become strings. */
class values {
  public:
    explicit values(parser_graph &graph) : g(graph)
    {
        const size_t space = g.blanks();
        any = g.choice({}); /* its alternatives are set below, because objects and arrays contain values */
        string = g.choice({quoted('"'), quoted('\'')});
        const size_t comma = g.sequence({space, g.literal(","), space});
        object = list("{", "}", g.sequence({string, space, g.literal(":"), space, any}), comma, space);
        const size_t array = list("[", "]", any, comma, space);
        g.at(any)["children"] = std::vector<size_t>{object, array, string, number(), word()};
    }

    size_t any, object;

  private:
    size_t list(const char *opens, const char *closes, size_t element, size_t comma, size_t space)
    {
        const size_t elements = g.sequence({element, g.any_number_of(g.sequence({comma, element})), g.optional(comma)});
        return g.sequence({g.literal(opens), space, g.optional(elements), space, g.literal(closes)});
    }

    size_t quoted(char quote)
    {
        const size_t plain = g.characters(std::string(2, quote) + "\\\\", true, 1);
        const size_t escape = g.sequence({g.literal("\\"), g.add({{"type", "any"}})});
        const size_t mark = g.literal(std::string(1, quote));
        return g.sequence({mark, g.any_number_of(g.choice({plain, escape})), mark});
    }

    size_t number()
    {
        const size_t digits = g.characters("09", false, 1);
        const size_t fraction = g.sequence({g.literal("."), digits});
        const size_t exponent = g.sequence({g.choice({g.literal("e"), g.literal("E")}),
                                            g.optional(g.choice({g.literal("+"), g.literal("-")})), digits});
        return g.sequence(
            {g.optional(g.literal("-")), digits, g.optional(fraction), g.optional(exponent), end_of_word()});
    }

    size_t word()
    {
        std::vector<size_t> words;
        for (const char *one : {"true", "false", "null", "True", "False", "None"}) {
            words.push_back(g.literal(one));
        }
        return g.sequence({g.choice(words), end_of_word()});
    }

    size_t end_of_word()
    {
        return g.unless(g.characters("09azAZ__..++--", false, 1));
    }

    parser_graph &g;
    size_t string;
};

/* ---- arguments --------------------------------------------------------------------------------------------------- */

/* Makes the parser of a tool call accept more than llama.cpp's parser does: arguments in any order, arguments with
 * undeclared names, and more kinds of values. There are three ways to write arguments:
 * - as one JSON object,
 * - as in Python, for example a=1, b="x",
 * - each between its own delimiters. */
class widening {
  public:
    /* `has_own_values` is true if the model family writes values neither as JSON nor as Python. */
    widening(parser_graph &graph, bool has_own_values) : g(graph), value(graph), has_values(!has_own_values) {}

    void widen(size_t tool)
    {
        const std::vector<size_t> arguments = g.tagged(tool, tags::TOOL_ARG);
        if (arguments.empty()) {
            widen_object(tool);
            return;
        }
        if (!are_arguments_marked(g, arguments)) { /* arguments as in Python. They become optional, because llama.cpp's
                                                    * parser accepts no call without arguments */
            for (const size_t one : g.tagged(tool, tags::TOOL_ARGS)) {
                g.at(one)["child"] = g.optional(g.at(one).at("child").get<size_t>());
            }
            for (const size_t one : g.tagged(tool, tags::TOOL_ARG_VALUE)) {
                g.at(one)["child"] = g.choice({g.at(one).at("child").get<size_t>(), value.any});
            }
            return;
        }
        std::vector<size_t> all;
        bool are_texts = false;
        for (const size_t one : arguments) {
            const std::string name = call_literal(g, one, tags::TOOL_ARG_NAME);
            if (name == ANY_ARGUMENT_NAME || name == ANY_TEXT_NAME) {
                are_texts = name == ANY_TEXT_NAME;
                continue;
            }
            if (has_values) {
                widen_value(one);
            }
            all.push_back(one);
        }
        /* Each argument is accepted any number of times and in any order. If arguments are missing or repeated, the
         * tool can answer with an error. If the tool call were not parsed, it would be lost. */
        add_any(arguments.back(), are_texts, &all);
        replace_arguments(&g, tool, g.any_number_of(g.sequence({g.blanks(), g.choice(all)})));
    }

  private:
    /* For a tool call whose arguments are one object: accepts any object as arguments. */
    void widen_object(size_t tool)
    {
        const bool may_have_id =
            g.tagged(tool, tags::TOOL_ID).empty() && call_literal(g, tool, tags::TOOL_CLOSE) == "}";
        for (const size_t one : g.tagged(tool, tags::TOOL_ARGS)) {
            if (g.is(g.at(one).at("child").get<size_t>(), "schema")) {
                g.at(one)["child"] = value.object;
                if (may_have_id) {
                    const size_t arguments = g.add(g.at(one));
                    g.at(one) = g.at(g.sequence({arguments, g.optional(id())}));
                }
            }
        }
    }

    /* Returns a node for an id after the arguments. Apriel's templates write the ids of earlier calls after the
     * arguments, and the model imitates these calls. */
    size_t id()
    {
        const size_t space = g.blanks(), quote = g.literal("\""), text = g.characters("\"\"\\\\", true, 1);
        return g.sequence({space, g.literal(","), space, g.literal("\"id\""), space, g.literal(":"), space, quote,
                           g.tag(tags::TOOL_ID, text), quote});
    }

    /* Returns a node for a JSON or Python value followed by the closing delimiter `close`. Blanks around the value do
     * not belong to the value, and blanks at the ends of `close` can be missing. */
    size_t value_before(const std::string &close)
    {
        const auto known = values_before.find(close);
        return known != values_before.end() ? known->second : values_before[close] = make_value_before(close);
    }

    size_t make_value_before(const std::string &close)
    {
        const std::string bare = without_blanks(close);
        const size_t end = close.find_last_not_of(BLANKS) + 1;
        const size_t closing = g.choice({g.literal(bare + close.substr(end)), g.literal(bare)});
        const size_t space = g.blanks();
        return g.sequence({space, g.tag(tags::TOOL_ARG_VALUE, value.any), space, closed_by(closing)});
    }

    size_t text_before(const std::string &close)
    {
        const auto known = texts_before.find(close);
        return known != texts_before.end() ? known->second : texts_before[close] = make_text_before(close);
    }

    size_t make_text_before(const std::string &close)
    {
        const size_t text = g.add({{"type", "until"}, {"delimiters", std::vector<std::string>{close}}});
        return g.sequence({g.tag(tags::TOOL_ARG_STRING_VALUE, text), closed_by(g.literal(close))});
    }

    size_t closed_by(size_t closing)
    {
        return g.add({{"type", "atomic"}, {"child", g.tag(tags::TOOL_ARG_CLOSE, closing)}});
    }

    /* Changes an argument that need not be a string. The changed parser accepts JSON, Python values, and any other text
     * as the argument's value. If llama.cpp's parser already has such a choice, the choice stays unchanged. */
    void widen_value(size_t argument)
    {
        const std::string close = argument_close(g, argument);
        std::vector<size_t> left = {g.at(argument).at("child").get<size_t>()};
        while (!left.empty()) {
            const size_t id = left.back();
            left.pop_back();
            if (!g.is(id, "sequence")) {
                continue;
            }
            std::vector<size_t> parts = g.children(id);
            for (size_t i = 0; i + 1 < parts.size(); i++) {
                if (g.is_tagged(parts[i], tags::TOOL_ARG_VALUE)) {
                    parts[i] = g.choice({value_before(close), text_before(close)});
                    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
                }
            }
            g.at(id)["children"] = parts;
            left.insert(left.end(), parts.begin(), parts.end());
        }
    }

    /* Adds nodes for an argument of any name, written like the argument `sample`. If `are_texts` is true, values that
     * can be strings are never parsed as JSON. */
    void add_any(size_t sample, bool are_texts, std::vector<size_t> *to)
    {
        const size_t name = g.sequence({g.unless(g.literal("/")), g.characters("<<>>\"\"\n\n", true, 1)});
        for (const argument_way &one : any_argument_ways(&g, sample, name)) {
            std::vector<size_t> closing = one.closing, parts = one.opening, ways;
            closing.insert(closing.begin(), g.literal(one.text_end));
            const size_t close = closed_by(g.sequence(closing));
            if (one.may_be_json && !(are_texts && one.may_be_text)) {
                ways.push_back(one.closing.empty() ? value_before(one.text_end)
                                                   : g.sequence({g.tag(tags::TOOL_ARG_VALUE, value.any), close}));
            }
            if (one.may_be_text) {
                const size_t text = g.add({{"type", "until"}, {"delimiters", std::vector<std::string>{one.text_end}}});
                ways.push_back(g.sequence({g.tag(tags::TOOL_ARG_STRING_VALUE, text), close}));
            }
            parts.push_back(g.choice(ways));
            to->push_back(g.tag(tags::TOOL_ARG, g.sequence(parts)));
        }
    }

    parser_graph &g;
    values value;
    bool has_values;
    std::map<std::string, size_t> values_before,
        texts_before; /* nodes by closing delimiter; thousands of arguments share a node */
};

/* ---- reasoning --------------------------------------------------------------------------------------------------- */

/* Returns whether the node `part` is a closing delimiter of reasoning. `ends` has these delimiters. */
bool ends_thinking(const parser_graph &graph, size_t part, const std::vector<std::string> &ends)
{
    const std::vector<std::string> literals = graph.literals(part);
    return !literals.empty() && std::all_of(literals.begin(), literals.end(), [&](const std::string &one) {
        return std::find(ends.begin(), ends.end(), without_blanks(one)) != ends.end();
    });
}

/* If the node is a sequence of reasoning and its closing delimiter, makes the beginning of a tool call end the
 * reasoning, too. GLM 4.7, Qwen3, MiniMax M2 and other models sometimes write a tool call inside <think> and never
 * write </think>. Such a call would otherwise be reported as reasoning. `heads` has the possible beginnings of a tool
 * call. Each of these heads contains the name of an offered tool. So reasoning about tool calls stays reasoning. The
 * head is only a look-ahead (`and`). The parser of the tool call consumes the head. */
void end_thinking_with_calls(parser_graph *graph, size_t sequence, const std::vector<std::string> &heads)
{
    std::vector<size_t> parts = graph->is(sequence, "sequence") ? graph->children(sequence) : std::vector<size_t>();
    const auto thought =
        std::find_if(parts.begin(), parts.end(), [&](size_t part) { return graph->is_tagged(part, tags::REASONING); });
    if (thought == parts.end()) {
        return;
    }
    const size_t text = graph->at(*thought).at("child").get<size_t>();
    if (!graph->is(text, "until")) {
        return;
    }
    std::vector<std::string> ends = graph->at(text).at("delimiters").get<std::vector<std::string>>();
    const auto mark =
        std::find_if(thought, parts.end(), [&](size_t part) { return ends_thinking(*graph, part, ends); });
    if (mark == parts.end()) {
        return;
    }
    if (!graph->is(*mark, "repetition")) { /* an optional closing delimiter can be missing anyway */
        std::vector<size_t> calls;
        for (const std::string &head : heads) {
            calls.push_back(graph->literal(head));
        }
        const size_t call = graph->add({{"type", "and"}, {"child", graph->choice(calls)}});
        *(thought + 1) = graph->choice({graph->sequence({thought + 1, mark + 1}), call});
        parts.erase(thought + 2, mark + 1);
        graph->at(sequence)["children"] = parts;
    }
    ends.insert(ends.end(), heads.begin(), heads.end());
    graph->at(text)["delimiters"] = ends;
}

/* ---- delimiters of tool calls ------------------------------------------------------------------------------------ */

void add_marks(const std::vector<std::string> &literals, std::vector<std::string> *out)
{
    for (const std::string &one : literals) {
        const std::string mark = without_blanks(one);
        if (mark.size() >= CALL_MARK_BYTES_MIN && std::find(out->begin(), out->end(), mark) == out->end()) {
            out->push_back(mark);
        }
    }
}

/* Collects the delimiters of tool calls. These are the texts that open and close a call, and the texts before and after
 * calls. With these delimiters, the rest of a malformed tool call can be dropped up to a closing delimiter. The text
 * that opens a call can include the tool's name. The name is no delimiter and is removed. */
call_marks marks_of(const parser_graph &graph, const std::vector<bool> &opens, const std::vector<bool> &closes)
{
    call_marks out;
    std::vector<std::string> names;
    const auto has_call = [&](size_t id) { return opens[id] && closes[id]; };
    for (size_t id = 0; id < graph.size(); id++) {
        if (graph.is_tagged(id, tags::TOOL_NAME)) {
            add_marks(graph.literals(id), &names);
        } else if (graph.is_tagged(id, tags::TOOL_CLOSE)) {
            add_marks(graph.literals(id), &out.closing);
        } else if (graph.is_tagged(id, tags::TOOL_OPEN)) {
            add_marks(graph.literals(id), &out.opening);
        } else if (graph.is(id, "sequence") && has_call(id)) {
            const std::vector<size_t> parts = graph.children(id);
            if (std::none_of(parts.begin(), parts.end(), has_call)) {
                continue; /* the sequence is one tool call, and has nothing before or after it */
            }
            bool is_after_part = false;
            for (const size_t part : parts) {
                is_after_part = is_after_part || has_call(part);
                if (!has_call(part) && (is_after_part || graph.is(part, "literal"))) {
                    add_marks(graph.literals(part), is_after_part ? &out.closing : &out.opening);
                }
            }
        }
    }
    const auto is_name = [&](const std::string &one) {
        return std::find(names.begin(), names.end(), one) != names.end();
    };
    out.opening.erase(std::remove_if(out.opening.begin(), out.opening.end(), is_name), out.opening.end());
    return out;
}

} // namespace

common_json call_parser_for_reading(common_chat_format format, common_json parser,
                                    const std::vector<std::string> &heads)
{
    parser_graph graph(std::move(parser));
    const std::vector<bool> opens = graph.reaching(tags::TOOL_OPEN), closes = graph.reaching(tags::TOOL_CLOSE);
    const call_marks marks = marks_of(graph, opens, closes);
    if (format != COMMON_CHAT_FORMAT_PEG_GEMMA4) {
        /* computed before nodes are added, because `opens` has no entries for added nodes */
        const std::vector<size_t> calls = call_nodes(graph, opens, closes);
        widening wide(graph, format == COMMON_CHAT_FORMAT_PEG_MINIMAX_M3);
        for (const size_t call : calls) {
            wide.widen(call);
        }
    }
    for (size_t id = 0, n = graph.size(); id < n && !heads.empty(); id++) {
        end_thinking_with_calls(&graph, id, heads);
    }
    graph.remove_unused();
    common_json out = std::move(graph).json();
    out["closing_marks"] = marks.closing;
    out["opening_marks"] = marks.opening;
    return out;
}

call_marks call_marks_of(const common_json &parser)
{
    call_marks out;
    if (parser.contains("closing_marks")) {
        out.closing = parser.at("closing_marks").get<std::vector<std::string>>();
        out.opening = parser.at("opening_marks").get<std::vector<std::string>>();
    }
    return out;
}
