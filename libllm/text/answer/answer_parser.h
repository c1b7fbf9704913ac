/* answer_parser.h: parses an answer while it is generated. An answer has text, reasoning, and tool calls with their
 * arguments. There is one parser per answer, and only one thread at a time uses it. The result depends on the text
 * alone, not on the pieces in which the text arrives.
 *
 * llama.cpp has a parser for the answers of each family of templates. But in each run, this parser starts at the
 * beginning of the text. Parsing after every token would take quadratic time. For example, a single run over the
 * 150,000 characters of a call took 20 ms. So the parser gets as little text as possible:
 * - Text and reasoning. If the answer so far ends with text or reasoning, the next bytes are reported without parsing.
 *   Parsing begins at a byte with which a delimiter of the model's template can begin, such as "<". If the parsed bytes
 *   are no delimiter, they are not parsed a second time with later text.
 * - A call that is still being generated. The call is parsed again only after it has grown by 1/32. Parts of the call
 *   that do not matter for parsing the rest of the call are left out (answer_shortening.h). For each new piece of the
 *   answer, at most 8 KiB are parsed, even near the end of a long answer.
 *
 * The syntax of a model family's answers is called its form. Models sometimes write an answer that breaks the form. In
 * this case, everything before the error is reported as it was parsed. The characters at the error are reported as
 * text, and parsing begins again after the error. If the error is in a call's name or before the name, the call is
 * reported as text. An example of such an error is a name that no tool has. If the error comes after the name, the call
 * has already been reported. The rest of this call is dropped, up to the delimiter that closes the call. Otherwise
 * clients would show the rest as content and send it back in the next prompt. Some families have no such delimiter. In
 * these families, the text after a call with whole arguments is not dropped. It is reported as text. The arguments that
 * have been reported are always the beginning of a JSON object. The reported arguments are a whole object only if the
 * call is complete. An example:
 *
 *   <tool_call>{"name": "f", "arguments": {"a": 1, "b
 *
 * After this text, the parser has reported {"a": 1. The comma and the name "b are not reported yet, because the value
 * of b may never come. */
#ifndef LLM_ANSWER_PARSER_H
#define LLM_ANSWER_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Implement llm_answer_parser_open and llm_answer_parser_feed (llm.h). */
int answer_parser_open(const char *syntax, size_t n_bytes, llm_answer_parser **out, char *error, size_t error_bytes);
int answer_parser_feed(llm_answer_parser *p, const char *text, size_t n_bytes, int is_final, int is_cut,
                       const char **diffs, size_t *n_diffs_bytes);
void answer_parser_close(llm_answer_parser *p);

/* Implements llm_answer_parser_rescan_bytes (llm.h). */
size_t answer_parser_rescan_bytes(const llm_answer_parser *p);

/* Returns the number of bytes that llama.cpp's parser has parsed in all its runs for this answer. For tests. */
uint64_t answer_parser_work(const llm_answer_parser *p);

/* Returns whether a part of a call was not reported, because the call is unfinished or malformed. For tests. */
bool answer_parser_has_dropped(const llm_answer_parser *p);

#ifdef __cplusplus
}
#endif
#endif
