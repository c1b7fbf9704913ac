/* call_parser.h: makes llama.cpp's parser of calls accept what models and their templates really write. Pure.
 *
 * llama.cpp generates one parser from the tools' schemas, both for the grammar and for reading. A grammar should allow
 * only what is right. Reading should make the best of what is there: a call that the parser gives up on is lost, while
 * the tool could have answered what is wrong with it, and the model could correct itself. */
#ifndef LLM_CALL_PARSER_H
#define LLM_CALL_PARSER_H

#include <common/chat.h>

#include <cstddef>
#include <string>
#include <vector>

/* Returns the same parser, wider and for reading only, with the marks around its calls. Values may be written as Python
 * writes them; parameters may come in any order, be missing, or not be in the schema; and where a parameter has marks
 * of its own, a value that is neither JSON nor Python is a string. Gemma 4 and MiniMax M3 have values of their own,
 * which are left as they are. Each of `heads` (call_head.h) begins a call in the middle of reasoning. */
common_json call_parser_for_reading(common_chat_format format, common_json parser,
                                    const std::vector<std::string> &heads);

constexpr size_t CALL_MARK_BYTES_MIN = 3; /* a bracket alone is no mark: any text may contain it */

/* The marks around calls, without blanks at their ends. */
struct call_marks {
    std::vector<std::string> closing; /* after a call, or at its end */
    std::vector<std::string> opening; /* before a call, or at its begin */
};

call_marks call_marks_of(const common_json &parser_for_reading);

#endif
