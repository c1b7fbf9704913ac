/* call_parser.h: makes llama.cpp's parser of answers accept the tool calls that models and templates really write. The
 * functions are pure.
 *
 * From the tools' schemas, llama.cpp makes one parser for two purposes: to make the grammar, and to parse. The grammar
 * should allow only valid tool calls. Parsing should accept as many tool calls as possible. A call that is not parsed
 * is lost. But the tool could have answered an invalid call with an error, and the model could have corrected
 * itself. */
#ifndef LLM_CALL_PARSER_H
#define LLM_CALL_PARSER_H

#include <common/chat.h>

#include <cstddef>
#include <string>
#include <vector>

/* Returns a more tolerant version of `parser`, only for parsing and not for a grammar. This version also accepts:
 * - values as Python writes them,
 * - parameters in any order,
 * - calls without some of the required parameters,
 * - parameters that the schema does not declare.
 * If each parameter is between its own delimiters, a value that is neither JSON nor Python is a string. The values of
 * Gemma 4 and MiniMax M3 have a syntax of their own. These values are parsed as `parser` parses them. Each text in
 * `heads` (call_head.h) begins a tool call even in the middle of reasoning. */
common_json call_parser_for_reading(common_chat_format format, common_json parser,
                                    const std::vector<std::string> &heads);

constexpr size_t CALL_MARK_BYTES_MIN = 3; /* shorter texts, such as a bracket, do not count as delimiters of tool calls,
                                           * because any text can contain them */

/* The delimiters around tool calls, without their leading and trailing blanks. */
struct call_marks {
    std::vector<std::string> closing; /* delimiters after a tool call, or at its end */
    std::vector<std::string> opening; /* delimiters before a tool call, or at its beginning */
};

call_marks call_marks_of(const common_json &parser_for_reading);

#endif
