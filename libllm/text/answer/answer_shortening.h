/* answer_shortening.h: leaves out the parts of an incomplete call that llama.cpp's parser does not need to parse again:
 * calls before the last call, complete elements of open containers, and the middle of a long text. Used only by the
 * answer parser. Example:
 *
 *   {"files": [{"path": "a", "text": "..."}, {"path": "b", "text": "32 bytes, 4,000 bytes, 96 bytes
 *   {"files": [{"text": "32 bytes, 96 bytes
 *
 * The rest of the call is parsed in the same way after both texts. That the rest is parsed in the same way cannot be
 * proved, so it is checked: the parser parses the shortened text once, and parts are only left out if the result agrees
 * (answer_says_less). */
#ifndef LLM_ANSWER_SHORTENING_H
#define LLM_ANSWER_SHORTENING_H

#include <string>

#include "text/answer/answer_reading.h"

struct answer_shortening {
    std::string head;   /* the text before the last omitted part, without the other omitted parts */
    size_t n_tail = 0;  /* number of bytes after the last omitted part, which are unchanged */
    size_t n_calls = 0; /* number of omitted calls */
};

/* Shortens a text that ends within a call. `now` is the result of parsing the text. `has_marked_strings` says that
 * <|"|> is the quote of strings. If nothing is left out, n_tail is the length of the whole text. */
answer_shortening answer_shortened(const std::string &text, const answer_reading &now, bool has_marked_strings);

/* Returns whether `less`, parsed from the shortened text, agrees with `now` apart from the omitted parts. */
bool answer_says_less(const answer_reading &now, const answer_reading &less, size_t n_calls);

#endif
