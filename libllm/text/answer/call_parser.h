/* call_parser.h: makes llama.cpp's parser of calls accept the calls that models and their templates really write. Pure.
 *
 * llama.cpp generates one parser from the tools' schemas, for the grammar and for parsing. A grammar should allow only
 * valid calls. Parsing should accept as many calls as possible: a refused call is lost, while the tool could have
 * answered it with an error, so that the model could correct itself. */
#ifndef LLM_CALL_PARSER_H
#define LLM_CALL_PARSER_H

#include <common/chat.h>

#include <cstddef>
#include <string>
#include <vector>

/* Returns a more tolerant version of the same parser, for parsing only. Values can be in Python's spelling. Parameters
 * can come in any order, be missing, or not be in the schema. If each parameter is between marks, a value that is
 * neither JSON nor Python is a string. The values of Gemma 4 and MiniMax M3 have a syntax of their own and stay
 * unchanged. Each of `heads` (call_head.h) begins a call in the middle of reasoning. */
common_json call_parser_for_reading(common_chat_format format, common_json parser,
                                    const std::vector<std::string> &heads);

constexpr size_t CALL_MARK_BYTES_MIN = 3; /* a single bracket is not a mark, because any text can contain it */

/* The marks around calls, without their leading and trailing blanks. */
struct call_marks {
    std::vector<std::string> closing; /* marks after a call, or at the end of a call */
    std::vector<std::string> opening; /* marks before a call, or at the beginning of a call */
};

call_marks call_marks_of(const common_json &parser_for_reading);

#endif
