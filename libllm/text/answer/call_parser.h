/* call_parser.h: makes llama.cpp's parser of calls accept what models and their templates really write. Pure.
 *
 * llama.cpp generates one parser from the tools' schemas, for the grammar and for parsing. A grammar should allow
 * only valid calls. Parsing should accept as much as possible: a call that the parser gives up on is lost, while the
 * tool could have answered with an error, and the model could correct itself. */
#ifndef LLM_CALL_PARSER_H
#define LLM_CALL_PARSER_H

#include <common/chat.h>

#include <cstddef>
#include <string>
#include <vector>

/* Returns a more tolerant version of the same parser, for parsing only, which knows the marks around its calls.
 * Values can be in Python's spelling. Parameters can come in any order, be missing, or not be in the schema. If a
 * parameter has marks of its own, a value that is neither JSON nor Python is a string. Gemma 4 and MiniMax M3 have
 * values of their own, which stay unchanged. Each of `heads` (call_head.h) begins a call in the middle of reasoning. */
common_json call_parser_for_reading(common_chat_format format, common_json parser,
                                    const std::vector<std::string> &heads);

constexpr size_t CALL_MARK_BYTES_MIN = 3; /* a single bracket is not a mark, because any text can contain it */

/* The marks around calls, without blanks at their ends. */
struct call_marks {
    std::vector<std::string> closing; /* after a call, or at its end */
    std::vector<std::string> opening; /* before a call, or at its begin */
};

call_marks call_marks_of(const common_json &parser_for_reading);

#endif
