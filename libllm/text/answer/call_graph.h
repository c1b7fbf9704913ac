/* call_graph.h: finds the parts of calls in llama.cpp's parser of an answer. Pure. */
#ifndef LLM_CALL_GRAPH_H
#define LLM_CALL_GRAPH_H

#include <cstddef>
#include <string>
#include <vector>

#include "text/answer/parser_graph.h"

std::string without_blanks(const std::string &text); /* at both ends */

/* The sequences that are one call, from what opens it to what closes it. They are found by these two, since some of
 * llama.cpp's forms have no tag around their calls. `opens` and `closes` are graph.reaching() of TOOL_OPEN and
 * TOOL_CLOSE. */
std::vector<size_t> call_nodes(const parser_graph &graph, const std::vector<bool> &opens,
                               const std::vector<bool> &closes);

/* The literals under the first node with this tag, joined; "": there is none. */
std::string call_literal(const parser_graph &graph, size_t from, const char *tag);

/* The text that closes an argument; "": nothing does, or one of several texts. */
std::string argument_close(const parser_graph &graph, size_t argument);

/* Whether all of a call's arguments (nodes with the tag TOOL_ARG) have text that closes them. */
bool are_arguments_marked(const parser_graph &graph, const std::vector<size_t> &arguments);

/* The parts of an argument before its value. None: the parser does not write the argument as a sequence. */
std::vector<size_t> argument_opening(const parser_graph &graph, size_t argument);

/* The name of a placeholder for all parameters that a tool does not declare, and its name if these can only be texts.
 * llama.cpp's form for it shows how the family writes a parameter of any name. */
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

/* The same for an argument of any name, in the place of `sample`. `name`: the node of any name. */
std::vector<argument_way> any_argument_ways(parser_graph *graph, size_t sample, size_t name);

/* Replaces the part that holds all arguments of a call by `with`. */
void replace_arguments(parser_graph *graph, size_t call, size_t with);

#endif
