/* call_graph.h: finds the parts of calls in llama.cpp's parser of an answer, and replaces the arguments. Each family
 * writes calls in its own way. This code uses only the positions of llama.cpp's tags (TOOL_OPEN, TOOL_ARG, ...), so
 * that no code depends on the family. Pure; the caller owns the graph. */
#ifndef LLM_CALL_GRAPH_H
#define LLM_CALL_GRAPH_H

#include <cstddef>
#include <string>
#include <vector>

#include "text/answer/parser_graph.h"

std::string without_blanks(const std::string &text); /* removes blanks at both ends */

/* Returns the sequences that are one call each, from the text that opens the call to the text that closes it. A call is
 * found by these two texts, because some of llama.cpp's forms have no tag around a call. `opens` and `closes` are
 * graph.reaching() of TOOL_OPEN and TOOL_CLOSE. */
std::vector<size_t> call_nodes(const parser_graph &graph, const std::vector<bool> &opens,
                               const std::vector<bool> &closes);

/* Returns the literals below the first node with this tag, joined; "" if there is no such node. */
std::string call_literal(const parser_graph &graph, size_t from, const char *tag);

/* Returns the text that closes an argument, or "" if no text or one of several texts can close the argument. */
std::string argument_close(const parser_graph &graph, size_t argument);

/* Returns whether all arguments of a call (nodes with the tag TOOL_ARG) have a mark that closes them, as in <a>1</a>,
 * and not as in f(a=1, b="x"). */
bool are_arguments_marked(const parser_graph &graph, const std::vector<size_t> &arguments);

/* Returns the parts of an argument before its value. The list is empty if the parser does not define the argument as
 * a sequence. */
std::vector<size_t> argument_opening(const parser_graph &graph, size_t argument);

/* Names of a placeholder for all undeclared parameters of a tool; the second name is used if these parameters can only
 * be texts. Each tool gets a placeholder before llama.cpp makes its parser. llama.cpp's form of the placeholder shows
 * how the family writes a parameter with any name. The names are random, so that no parameter has them. */
constexpr char ANY_ARGUMENT_NAME[] = "4ny0f7h30fh3r5", ANY_TEXT_NAME[] = "4ny0f7h30fh3r573x75";

/* One way to write an argument. */
struct argument_way {
    std::vector<size_t> opening; /* parts before the value */
    std::string text_end;        /* text that follows a value that is text */
    std::vector<size_t> closing; /* parts after text_end */
    bool may_be_text = true, may_be_json = true;
};

/* Returns the ways to write this argument. The list is empty if the parser does not define the argument as a
 * sequence. */
std::vector<argument_way> argument_ways(parser_graph *graph, size_t argument);

/* Returns the ways to write an argument with any name, in the same form as the argument `sample`. `name` is the node
 * that matches any name. */
std::vector<argument_way> any_argument_ways(parser_graph *graph, size_t sample, size_t name);

/* Replaces the part that contains all arguments of a call by `with`. */
void replace_arguments(parser_graph *graph, size_t call, size_t with);

#endif
