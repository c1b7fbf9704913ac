/* answer_parser.h: reads an answer while it is generated: text, reasoning, and tool calls with their arguments. Owned
 * by one answer; one thread at a time. The result depends on the text alone, not on the pieces that it came in.
 *
 * llama.cpp knows how each family of templates writes an answer, but its parser reads the text from the beginning each
 * time. Called for every token, it would take quadratic time: at 150,000 characters of a call, one run took 20 ms. So
 * it sees as little as possible:
 *   - Text and reasoning. Once it has said that the end of the text is content, what follows is passed through without
 *     it, up to a byte that a marker of this template may begin with ("<"). If that turns out to be no marker, it is
 *     forgotten again.
 *   - A call that is still being written. It is parsed again only when it has grown by 1/32, and what the reading of
 *     its rest does not depend on is left out (answer_shortening.h). At most 8 KiB are read for a piece, wherever it
 *     is.
 *
 * Models break their family's form. Where the text stops fitting it, everything before is reported as it was read, the
 * rest is text, and reading begins anew after it. A call that broke its form is the exception: the rest of it is left
 * out up to what closes calls, because clients would show it as content, and send it back in the next prompt. The
 * arguments that are reported are always the beginning of a JSON object, and all of it only if the call is complete.
 * Example: after
 *
 *   <tool_call>{"name": "f", "arguments": {"a": 1, "b
 *
 * {"a": 1 is reported: not the comma, nor the name "b, since its value may never come. */
#ifndef LLM_ANSWER_PARSER_H
#define LLM_ANSWER_PARSER_H

#include <stddef.h>
#include <stdint.h>

#include "llm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* See llm_answer_parser_open, _feed and _close in llm.h. */
int answer_parser_open(const char *syntax, size_t n_bytes, llm_answer_parser **out, char *error, size_t error_bytes);
int answer_parser_feed(llm_answer_parser *p, const char *text, size_t n_bytes, int is_final, int is_cut,
                       const char **diffs, size_t *n_diffs_bytes);
void answer_parser_close(llm_answer_parser *p);

/* See llm_answer_parser_rescan_bytes in llm.h. */
size_t answer_parser_rescan_bytes(const llm_answer_parser *p);

/* Bytes that llama.cpp's parser has read in all its runs: the cost of an answer, for tests. */
uint64_t answer_parser_work(const llm_answer_parser *p);

#ifdef __cplusplus
}
#endif
#endif
