/* chat_after.h: the part of a rendered chat that follows an answer whose tokens are known. Private to the chat door. Pure.
 *
 * What was resident after an answer is the history, however a template would write it now: templates drop old reasoning,
 * write calls anew, move tools. So of the rendered text only what stands behind the answer is taken. Where the answer ends
 * is found by a sentinel in its text, or in the arguments of its last call, from where the template goes on to the word
 * that ends a turn: there the model stopped. A place that is not beyond doubt is none: then all is rendered. */
#ifndef LLM_CHAT_AFTER_H
#define LLM_CHAT_AFTER_H

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/chat/chat_control.h"

/* The answer, as the request has it. */
struct chat_after {
    size_t message;            /* index in the request */
    std::string rest;          /* text of the answer that its tokens do not cover */
    std::vector<int32_t> last; /* the last of its tokens */
};

/* How the template is given the answer: with its calls, or, for templates that do not know them, as a text. */
enum class chat_answer { calls, text, none };

/* Text to be tokenized, and which bytes of the rendered text it is. */
struct chat_tail {
    struct range {
        size_t begin, end;
    };
    chat_text text;
    size_t begin = 0;           /* bytes of the rendered text that are left out in front */
    size_t n_front = 0;         /* bytes of `text` that are the answer's rest */
    std::vector<range> removed; /* sentinels in the rendered text, behind `begin`; ascending */

    static constexpr size_t NONE = static_cast<size_t>(-1);
    size_t place_of(size_t byte) const; /* of the rendered text, in `text`; NONE: it is left out */
};

/* `n_marks`: sentinels 1 to n_marks - 1 stand in messages behind the answer, and all must be there. None: the place cannot
 * be told. `has_tools` becomes true if the sentinel n_marks, which stands in the tools, is behind the answer: the template
 * has moved them there. */
std::optional<chat_tail> chat_tail_after(const model *m, const control_words &words, const control_markers &markers,
                                         const chat_text &rendered, const chat_after &after, chat_answer form,
                                         size_t n_marks, bool *has_tools);

/* The text in front of the first control token of a tail, or all of it, is spelled by its tokens: it does not change when
 * it is tokenized alone. */
bool chat_tail_keeps_spelling(const model *m, const chat_tail &tail, const chat_tokens &tokens);

#endif
