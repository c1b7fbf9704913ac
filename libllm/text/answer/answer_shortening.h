/* answer_shortening.h: what llama.cpp's parser need not see again of calls that are still being written: calls before the
 * last one, complete elements of the containers that are open, the middle of a long text. Private to the answer parser. */
#ifndef LLM_ANSWER_SHORTENING_H
#define LLM_ANSWER_SHORTENING_H

#include <string>

#include "text/answer/answer_reading.h"

struct answer_shortening {
    std::string head;   /* up to what was left out last */
    size_t n_tail = 0;  /* bytes of the text behind that; they are as they were */
    size_t n_calls = 0; /* that were left out */
};

/* What is left of a text that ends within a call, as `now` was read from it. Whatever follows is read alike behind both
 * texts; has_marked_strings: they stand in <|"|>. Nothing left out: n_tail is the whole text. */
answer_shortening answer_shortened(const std::string &text, const answer_reading &now, bool has_marked_strings);

/* Whether `less`, read from the shortened text, says what `now` says, but for what was left out. */
bool answer_says_less(const answer_reading &now, const answer_reading &less, size_t n_calls);

#endif
