/* call_graph.h: finds the parts of tool calls in the graph of llama.cpp's parser of an answer, and replaces the
 * arguments. parser_graph.h describes the graph. Each model family writes tool calls in its own way. This code uses
 * only the positions of llama.cpp's tags, which are nodes such as TOOL_OPEN and TOOL_ARG. So no code depends on the
 * family. The functions change nothing but the graph, which the caller owns. */
#ifndef LLM_CALL_GRAPH_H
#define LLM_CALL_GRAPH_H

#include <cstddef>
#include <string>
#include <vector>

#include "text/answer/parser_graph.h"

std::string without_blanks(const std::string &text); /* removes blanks at both ends */

/* Returns the nodes that match one tool call each. Such a node is a sequence. It begins with the text that opens the
 * call, and ends with the text that closes the call. The nodes are found by the tags of these two texts, because some
 * of llama.cpp's parsers have no tag around a whole tool call. `opens` and `closes` are the results of graph.reaching()
 * for the tags TOOL_OPEN and TOOL_CLOSE. */
std::vector<size_t> call_nodes(const parser_graph &graph, const std::vector<bool> &opens,
                               const std::vector<bool> &closes);

/* Finds the first node with this tag among the nodes that are reachable from `from`. Returns the joined text of all
 * literals below the found node. Returns "" if there is no such node. */
std::string call_literal(const parser_graph &graph, size_t from, const char *tag);

/* Returns the text that closes an argument. Returns "" if there is no such text or more than one. */
std::string argument_close(const parser_graph &graph, size_t argument);

/* Returns whether all arguments of a tool call have a closing delimiter. For example, the argument <a>1</a> has one,
 * and the arguments in f(a=1, b="x") have none. `arguments` are nodes with the tag TOOL_ARG. */
bool are_arguments_marked(const parser_graph &graph, const std::vector<size_t> &arguments);

/* Returns the nodes of an argument that come before its value. The list is empty if the parser does not define the
 * argument as a sequence. */
std::vector<size_t> argument_opening(const parser_graph &graph, size_t argument);

/* Before llama.cpp makes its parser, each tool gets an additional parameter, the placeholder. The placeholder stands
 * for all undeclared parameters. The part of llama.cpp's parser that parses the placeholder shows how the model family
 * writes a parameter of any name. The placeholder is called ANY_TEXT_NAME if undeclared parameters can only be strings,
 * otherwise ANY_ARGUMENT_NAME. The names are random, so that no real parameter has them. */
constexpr char ANY_ARGUMENT_NAME[] = "4ny0f7h30fh3r5", ANY_TEXT_NAME[] = "4ny0f7h30fh3r573x75";

/* One way in which the model family writes an argument. */
struct argument_way {
    std::vector<size_t> opening; /* nodes before the value */
    std::string text_end;        /* the text that ends a string value */
    std::vector<size_t> closing; /* nodes after text_end */
    bool may_be_text = true, may_be_json = true;
};

/* Returns the ways to write this argument. The list is empty if the parser does not define the argument as a
 * sequence. */
std::vector<argument_way> argument_ways(parser_graph *graph, size_t argument);

/* Returns the ways to write an argument with any name. The ways are copied from the argument `sample`. The name of the
 * sample is replaced by `name`, a node that matches any name. */
std::vector<argument_way> any_argument_ways(parser_graph *graph, size_t sample, size_t name);

/* Replaces all arguments of the tool call `call`, and everything between them, by the node `with`. */
void replace_arguments(parser_graph *graph, size_t call, size_t with);

#endif
