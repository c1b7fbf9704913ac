/* answer_shortening.h: leaves out what llama.cpp's parser need not see again of a call that is still being written:
 * calls before the last one, complete elements of open containers, the middle of a long text. Private to the answer
 * parser. Example:
 *
 *   {"files": [{"path": "a", "text": "..."}, {"path": "b", "text": "32 bytes, 4,000 bytes, 96 bytes
 *   {"files": [{"text": "32 bytes, 96 bytes
 *
 * The rest of the call is read the same way after both. That is not proved, but checked: the parser reads the shortened
 * text once, and unless it says the same (answer_says_less), nothing is left out. */
#ifndef LLM_ANSWER_SHORTENING_H
#define LLM_ANSWER_SHORTENING_H

#include <string>

#include "text/answer/answer_reading.h"

struct answer_shortening {
    std::string head;   /* the text up to the last part that was left out, without these parts */
    size_t n_tail = 0;  /* bytes of the text after that part, which are unchanged */
    size_t n_calls = 0; /* calls that were left out */
};

/* Shortens a text that ends within a call; `now` was read from it. has_marked_strings: strings stand in <|"|>. If
 * nothing is left out, n_tail is the whole text. */
answer_shortening answer_shortened(const std::string &text, const answer_reading &now, bool has_marked_strings);

/* Returns whether `less`, read from the shortened text, says the same as `now`, without the parts that were left
 * out. */
bool answer_says_less(const answer_reading &now, const answer_reading &less, size_t n_calls);

#endif
