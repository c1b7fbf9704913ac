/* answer_parser.h: reads an answer while it is generated: text, reasoning, and calls of tools with their arguments. Owned
 * by one answer; one thread at a time.
 *
 * llama.cpp's parser starts at the beginning of the text at each call. Here it sees little of it: once it has said that
 * the end of the text is content (or reasoning), whatever follows is passed through up to a byte that a marker of this
 * template may begin with; and what turns out to be no marker is forgotten. Of a call that
 * is still being written it sees what the reading of the rest depends on, and that again only when it has grown by a
 * share. Where the text stops fitting the form, what has not been told yet is told as text, and
 * reading begins anew behind it; but within a call it is left out up to what closes calls. The arguments of a call are the
 * beginning of a JSON object, and all of it only if the call is whole. What comes out depends on the text alone, not on the pieces it came in. */
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

/* See llm_answer_parser_again in llm.h. */
size_t answer_parser_again(const llm_answer_parser *p);

/* Bytes that llama.cpp's parser has read, all its runs together: what an answer cost. */
uint64_t answer_parser_work(const llm_answer_parser *p);

#ifdef __cplusplus
}
#endif
#endif
