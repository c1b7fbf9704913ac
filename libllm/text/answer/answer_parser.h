/* answer_parser.h: parses an answer while it is generated: text, reasoning, and tool calls with their arguments. Owned
 * by one answer; one thread at a time. The result depends on the text alone, not on how it was divided.
 *
 * llama.cpp knows how each family of templates writes an answer, but its parser parses the text from the beginning each
 * time. Calling it for every token would take quadratic time: at 150,000 characters of a call, one run took 20 ms. So
 * it gets as little text as possible:
 *   - Text and reasoning. Once the parser has classified the end of the text as content, further text is passed through
 *     without parsing, up to a byte with which a marker of this template can begin ("<"). If the following bytes turn out
 *     not to be a marker, they are forgotten again.
 *   - A call that is still being generated. It is parsed again only after it has grown by 1/32, and parts on which the
 *     parsing of its rest does not depend are left out (answer_shortening.h). At most 8 KiB are parsed for a piece,
 *     wherever in the answer it is.
 *
 * Models break their family's form. Where the text stops fitting the form, everything before is reported as it was
 * parsed, the rest is text, and parsing begins again after it. A malformed call is the exception: its rest is dropped
 * up to the mark that closes calls, because clients would show it as content and send it back in the next prompt. The
 * reported arguments are always the beginning of a JSON object, and the whole object only if the call is complete.
 * Example: after
 *
 *   <tool_call>{"name": "f", "arguments": {"a": 1, "b
 *
 * {"a": 1 is reported, without the comma and the name "b, because the value of b may never come. */
#ifndef LLM_ANSWER_PARSER_H
#define LLM_ANSWER_PARSER_H

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

/* Number of bytes that llama.cpp's parser has parsed in all runs, which is the cost of an answer. For tests. */
uint64_t answer_parser_work(const llm_answer_parser *p);

#ifdef __cplusplus
}
#endif
#endif
