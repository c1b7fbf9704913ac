/* call_graph.h: finds the parts of calls in llama.cpp's parser of an answer, and replaces its arguments. Each family
 * writes calls in its own way; all that is known of a form here is where llama.cpp put its tags (TOOL_OPEN, TOOL_ARG,
 * ...), so that a family needs no code of its own. Pure; the caller owns the graph. */
#ifndef LLM_CALL_GRAPH_H
#define LLM_CALL_GRAPH_H

#include <cstddef>
#include <string>
#include <vector>

#include "text/answer/parser_graph.h"

std::string without_blanks(const std::string &text); /* at both ends */

/* Returns the sequences that are one call, from what opens it to what closes it. They are found by these two, since
 * some of llama.cpp's forms have no tag around their calls. `opens` and `closes` are graph.reaching() of TOOL_OPEN and
 * TOOL_CLOSE. */
std::vector<size_t> call_nodes(const parser_graph &graph, const std::vector<bool> &opens,
                               const std::vector<bool> &closes);

/* Returns the literals under the first node with this tag, joined; "": there is none. */
std::string call_literal(const parser_graph &graph, size_t from, const char *tag);

/* Returns the text that closes an argument; "": no text does, or one of several. */
std::string argument_close(const parser_graph &graph, size_t argument);

/* Returns whether all of a call's arguments (nodes with the tag TOOL_ARG) have a mark that closes them. In
 * f(a=1, b="x") they do not, in <a>1</a> they do. */
bool are_arguments_marked(const parser_graph &graph, const std::vector<size_t> &arguments);

/* Returns the parts of an argument before its value. None: the parser does not write the argument as a sequence. */
std::vector<size_t> argument_opening(const parser_graph &graph, size_t argument);

/* The name of a placeholder for all parameters that a tool does not declare, and its name if these can only be texts.
 * Each tool gets one before llama.cpp makes its parser: the form that llama.cpp gives it shows how the family writes a
 * parameter of any name, which it does not say otherwise. The names are random, so that no parameter has them. */
constexpr char ANY_ARGUMENT_NAME[] = "4ny0f7h30fh3r5", ANY_TEXT_NAME[] = "4ny0f7h30fh3r573x75";

/* One way to write an argument. */
struct argument_way {
    std::vector<size_t> opening; /* before the value */
    std::string text_end;        /* a value that is text goes up to this */
    std::vector<size_t> closing; /* after text_end */
    bool may_be_text = true, may_be_json = true;
};

/* Returns the ways to write this argument. None: the parser does not write it as a sequence. */
std::vector<argument_way> argument_ways(parser_graph *graph, size_t argument);

/* Returns the ways to write an argument of any name, as `sample` is written. `name`: the node of any name. */
std::vector<argument_way> any_argument_ways(parser_graph *graph, size_t sample, size_t name);

/* Replaces the part that holds all arguments of a call by `with`. */
void replace_arguments(parser_graph *graph, size_t call, size_t with);

#endif
