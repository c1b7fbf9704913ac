#include "text/answer/call_graph.h"

#include <common/chat-peg-parser.h>

#include <algorithm>

namespace {

using tags = common_chat_peg_builder;

bool has_value(const parser_graph &graph, size_t part)
{
    return !graph.tagged(part, tags::TOOL_ARG_VALUE).empty() ||
           !graph.tagged(part, tags::TOOL_ARG_STRING_VALUE).empty();
}

} // namespace

std::string without_blanks(const std::string &text)
{
    const char *const blanks = " \t\r\n";
    const size_t begin = text.find_first_not_of(blanks);
    return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

/* The innermost sequence that contains both an opening and a closing tag matches one tool call. A sequence around this
 * one also contains both tags, but has them in the same child. */
std::vector<size_t> call_nodes(const parser_graph &graph, const std::vector<bool> &opens,
                               const std::vector<bool> &closes)
{
    std::vector<size_t> out;
    for (size_t id = 0; id < graph.size(); id++) {
        if (graph.is(id, "sequence") && opens[id] && closes[id]) {
            const std::vector<size_t> parts = graph.children(id);
            if (std::none_of(parts.begin(), parts.end(), [&](size_t part) { return opens[part] && closes[part]; })) {
                out.push_back(id);
            }
        }
    }
    return out;
}

std::string call_literal(const parser_graph &graph, size_t from, const char *tag)
{
    const std::vector<size_t> found = graph.tagged(from, tag);
    std::string out;
    for (const std::string &text : found.empty() ? std::vector<std::string>() : graph.literals(found.front())) {
        out += text;
    }
    return out;
}

std::string argument_close(const parser_graph &graph, size_t argument)
{
    for (const size_t close : graph.tagged(argument, tags::TOOL_ARG_CLOSE)) {
        const std::vector<std::string> literals = graph.literals(close);
        if (literals.size() == 1) {
            return literals.front();
        }
    }
    return "";
}

bool are_arguments_marked(const parser_graph &graph, const std::vector<size_t> &arguments)
{
    return std::all_of(arguments.begin(), arguments.end(),
                       [&](size_t one) { return !without_blanks(argument_close(graph, one)).empty(); });
}

std::vector<size_t> argument_opening(const parser_graph &graph, size_t argument)
{
    const size_t inner = graph.at(argument).at("child").get<size_t>();
    std::vector<size_t> parts = graph.is(inner, "sequence") ? graph.children(inner) : std::vector<size_t>();
    const auto value = std::find_if(parts.begin(), parts.end(), [&](size_t part) { return has_value(graph, part); });
    parts.erase(value, parts.end());
    return parts;
}

namespace {

/* Returns the common beginning of both texts. */
std::string common_head(const std::string &one, const std::string &other)
{
    return one.substr(
        0, static_cast<size_t>(std::mismatch(one.begin(), one.end(), other.begin(), other.end()).first - one.begin()));
}

/* MiniMax M3 writes the name of an argument into the opening and the closing delimiter. Both delimiters begin with the
 * same text. A string without quotes ends where this text occurs, so the string cannot contain this text. */
void close_with_name(parser_graph *graph, const std::string &close, size_t at, size_t n_name, size_t name,
                     const std::string &open, argument_way *out)
{
    const std::string before = close.substr(0, at);
    out->text_end = common_head(open, before);
    out->closing = {graph->literal(before.substr(out->text_end.size())), name,
                    graph->literal(close.substr(at + n_name))};
}

/* Replaces the name in the nodes before an argument's value by the node `name`. Returns the text before the name. */
std::string rename(parser_graph *graph, const std::vector<size_t> &opening, size_t name)
{
    std::string before;
    for (const size_t part : opening) {
        const std::vector<size_t> names = graph->tagged(part, tags::TOOL_ARG_NAME);
        const std::vector<std::string> literals = graph->literals(part);
        before += literals.empty() ? "" : literals.front();
        if (!names.empty()) {
            graph->at(names.front())["child"] = name;
            break;
        }
    }
    return before;
}

/* Replaces the nodes in way->opening by copies, in which the text `other` is replaced by `what`. Returns false if these
 * nodes contain neither `what` nor `other`. */
bool say(parser_graph *graph, argument_way *way, const std::string &what, const std::string &other)
{
    const size_t n = graph->size();
    bool is_said = false;
    for (size_t &part : way->opening) {
        part = graph->copy(part);
    }
    for (size_t id = n; id < graph->size(); id++) {
        std::string text = graph->is(id, "literal") ? graph->at(id).at("literal").get<std::string>() : "";
        const size_t at = text.find(other);
        if (at != std::string::npos) {
            graph->at(id)["literal"] = text.replace(at, other.size(), what);
        }
        is_said = is_said || text.find(what) != std::string::npos;
    }
    return is_said;
}

/* DeepSeek's models write for each argument whether its value is a string. So an argument can be written in two ways.
 * llama.cpp's parser accepts only one of these ways. The parameter's schema decides which way. But a parameter that can
 * be a string or null needs both ways. */
std::vector<argument_way> told_apart(parser_graph *graph, const argument_way &one)
{
    const std::string is_text = "string=\"true\"", is_json = "string=\"false\"";
    argument_way text = one, json = one;
    if (!say(graph, &text, is_text, is_json)) {
        return {one};
    }
    (void)say(graph, &json, is_json, is_text);
    text.may_be_json = json.may_be_text = false;
    return {text, json};
}

} // namespace

std::vector<argument_way> argument_ways(parser_graph *graph, size_t argument)
{
    argument_way one;
    one.opening = argument_opening(*graph, argument);
    one.text_end = argument_close(*graph, argument);
    return one.opening.empty() ? std::vector<argument_way>() : told_apart(graph, one);
}

std::vector<argument_way> any_argument_ways(parser_graph *graph, size_t sample, size_t name)
{
    argument_way one;
    one.opening = argument_opening(*graph, sample);
    const std::string known = call_literal(*graph, sample, tags::TOOL_ARG_NAME);
    const std::string close = argument_close(*graph, sample);
    if (one.opening.empty() || known.empty() || close.empty()) {
        return {};
    }
    for (size_t &part : one.opening) {
        part = graph->copy(part);
    }
    const std::string open = rename(graph, one.opening, name);
    const size_t at = close.find(known);
    if (at != std::string::npos) {
        close_with_name(graph, close, at, known.size(), name, open, &one);
    } else {
        one.text_end = close;
    }
    return told_apart(graph, one);
}

/* Descends into the node (a tag, a sequence) as long as a single child contains all arguments. So everything around the
 * arguments stays. In the last node of this descent, `with` replaces the children from the first to the last that
 * contains an argument. */
void replace_arguments(parser_graph *graph, size_t call, size_t with)
{
    std::vector<size_t> parts = graph->children(call);
    const auto has_arguments = [&](size_t part) { return !graph->tagged(part, tags::TOOL_ARG).empty(); };
    const auto first = std::find_if(parts.begin(), parts.end(), has_arguments);
    const auto last = std::find_if(parts.rbegin(), parts.rend(), has_arguments).base();
    if (first == parts.end()) {
        return;
    }
    const bool is_outer =
        graph->is_tagged(*first, tags::TOOL_ARGS) || graph->is(*first, "sequence") || graph->is(*first, "atomic");
    if (last - first == 1 && is_outer) {
        replace_arguments(graph, *first, with);
        return;
    }
    parts.erase(first + 1, last);
    *first = with;
    if (graph->is(call, "sequence")) {
        graph->at(call)["children"] = parts;
    } else {
        graph->at(call)["child"] = with;
    }
}
