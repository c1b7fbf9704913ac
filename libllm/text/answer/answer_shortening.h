/* answer_shortening.h: shortens an answer that ends within a tool call, before llama.cpp's parser parses it again. The
 * parts that no longer matter for parsing the rest are left out. These parts are:
 * - tool calls before the last one,
 * - complete elements of lists and objects that are still open,
 * - the middle of a long string.
 * Used only by the answer parser. An example, with the first line before and the second line after shortening:
 *
 *   {"files": [{"path": "a", "text": "..."}, {"path": "b", "text": "(32 bytes)(4,000 bytes)(96 bytes)
 *   {"files": [{"text": "(32 bytes)(96 bytes)
 *
 * The model's next text should be parsed in the same way after both texts. No proof of this exists, so each shortened
 * text is checked. The shortened text is parsed once, and its result is compared with the result for the whole text
 * (answer_says_less). The parts are left out only if the results agree. */
#ifndef LLM_ANSWER_SHORTENING_H
#define LLM_ANSWER_SHORTENING_H

#include <string>

#include "text/answer/answer_reading.h"

struct answer_shortening {
    std::string head;   /* the shortened text up to the last omitted part */
    size_t n_tail = 0;  /* number of bytes after the last omitted part */
    size_t n_calls = 0; /* number of omitted tool calls */
};

/* Shortens the text of an answer that ends within a tool call. `now` is the result of parsing the text.
 * `has_marked_strings` is true if the model writes strings between <|"|> instead of quotes. If nothing is left out,
 * n_tail is the length of the whole text. */
answer_shortening answer_shortened(const std::string &text, const answer_reading &now, bool has_marked_strings);

/* Returns whether the results of parsing both texts differ only by the omitted parts. `now` is the result for the whole
 * text, `less` the result for the shortened text. `n_calls` is the number of omitted tool calls. */
bool answer_says_less(const answer_reading &now, const answer_reading &less, size_t n_calls);

#endif
