/* answer_parser.h: parses an answer while it is generated: text, reasoning, and tool calls with their arguments. There
 * is one parser per answer, and only one thread at a time uses it. The result depends on the text alone, not on the
 * pieces in which the text arrives.
 *
 * llama.cpp has a parser for the answers of each family of templates, but this parser starts at the beginning of the
 * text each time. Parsing after every token would take quadratic time: a single run over the 150,000 characters of a
 * call took 20 ms. So the parser gets as little text as possible:
 *   - Text and reasoning. Once the parser has found that the answer so far ends with text or reasoning, further text is
 *   reported without parsing, up to a byte with which a delimiter of this template can begin ("<"). The bytes after it
 *   are parsed. Bytes that turn out to be no delimiter are parsed once, and not again with later text.
 *   - A call that is still being generated. The call is parsed again only after it has grown by 1/32. Parts of the call
 *   that do not matter for parsing its rest are left out (answer_shortening.h). At most 8 KiB are parsed for each piece
 *   of the answer, also near the end of a long answer.
 *
 * Models sometimes write an answer that breaks the syntax of their family (its form). Everything before the error is
 * then reported as it was parsed, the text at the error is reported as text, and parsing begins again after it. A call
 * with an error in or before its name (for example a name that no tool has) also becomes text. But if the call has
 * already been reported, its rest is dropped, up to the delimiter that closes the call: clients would show the rest as
 * content and send it back in the next prompt. The arguments that have been reported are always the beginning of a JSON
 * object. They are a whole object only if the call is complete. For example, after
 *
 *   <tool_call>{"name": "f", "arguments": {"a": 1, "b
 *
 * the parser has reported {"a": 1, but not the comma and the name "b, because the value of b may never come. */
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
