/* call_parser.h: makes llama.cpp's parser of calls read what models and their templates really write. Pure.
 *
 * llama.cpp generates one parser from the tools' schemas, for the grammar and for reading. A grammar keeps a model to what
 * is right; who reads an answer has to make the best of what is there: a call that the parser gives up on is lost, while
 * the tool could have answered what is wrong with it. */
#ifndef LLM_CALL_PARSER_H
#define LLM_CALL_PARSER_H

#include <common/chat.h>

#include <cstddef>
#include <string>
#include <vector>

/* The same parser for reading only, with the marks around its calls. Values may be written as Python writes them; parameters come in any order, none is
 * required, others than the schema's are read, too; and where a parameter has marks of its own, a value that is neither
 * JSON nor Python is a string. Gemma 4 and MiniMax M3 have values of their own, which stay as they are. Each of `heads` begins a
 * call where the answer is still thinking. */
std::string call_parser_for_reading(common_chat_format format, const std::string &parser,
                                    const std::vector<std::string> &heads);

constexpr size_t CALL_MARK_BYTES_MIN = 3; /* brackets are no marks */

/* Without blanks at their ends. */
struct call_marks {
    std::vector<std::string> closing; /* what comes behind a call, or ends it */
    std::vector<std::string> opening; /* what comes before a call, or begins it */
};

call_marks call_marks_of(const common_json &parser_for_reading);

#endif
