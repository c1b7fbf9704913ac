/* chat_after.h: the part of a rendered chat that follows an answer whose tokens are known. Private to the chat folder.
 * Pure.
 *
 * Templates rewrite the past: they drop old reasoning, write calls anew from their arguments, move tools. A prompt that
 * was rendered from the beginning would therefore differ from the tokens in the session, often early, and the whole
 * conversation would be prefilled again. So the resident tokens are kept as the history, and only the text after the
 * last known answer is taken from the rendering. Example: the session holds 157 tokens that end with a tool call; the
 * result is rendered, and 22 tokens are added.
 *
 * Where the answer ends in the rendering is found by a sentinel in its text, or in the arguments of its last call; from
 * there the template continues to the word that ends a turn, at which the model had stopped. Splicing known tokens into
 * a complete rendering would fit only where the template left the text around them unchanged. If there is any doubt
 * about the place, everything is rendered: a longer prefill is better than a wrong history. */
#ifndef LLM_CHAT_AFTER_H
#define LLM_CHAT_AFTER_H

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/chat/chat_control.h"

/* The answer to continue after, as the request has it. */
struct chat_after {
    size_t message;            /* index in the request */
    std::string rest;          /* text of the answer that its tokens do not cover */
    std::vector<int32_t> last; /* the last of its tokens */
};

/* How the template is given the answer: with its calls or, for templates that have no place for them, as a text. */
enum class chat_answer { calls, text, none };

/* The text to be tokenized, and which bytes of the rendered text it is. */
struct chat_tail {
    struct range {
        size_t begin, end;
    };
    chat_text text;
    size_t begin = 0;           /* bytes of the rendered text that are left out at its beginning */
    size_t n_front = 0;         /* bytes of `text` that are the answer's rest */
    std::vector<range> removed; /* sentinels in the rendered text, after `begin`; ascending */

    static constexpr size_t NONE = static_cast<size_t>(-1);
    size_t place_of(size_t byte) const; /* offset in `text` of a byte of the rendered text; NONE: it is left out */
};

/* Returns the text after the answer; none: the place is in doubt. Sentinels 1 to n_marks - 1 stand in later messages,
 * and all must be found after the answer: a template that moved one before it would lose that message. `has_tools`
 * becomes true if sentinel n_marks, which stands in the tools, is after the answer: the template has moved the tools
 * there. */
std::optional<chat_tail> chat_tail_after(const model *m, const control_words &words, const control_markers &markers,
                                         const chat_text &rendered, const chat_after &after, chat_answer form,
                                         size_t n_marks, bool *has_tools);

/* Returns whether the tokens before the first control token of the tail (or all) spell exactly its text. Some
 * tokenizers add a blank to the beginning of a text; the tail would then differ from the same text in the middle of a
 * prompt. */
bool chat_tail_keeps_spelling(const model *m, const chat_tail &tail, const chat_tokens &tokens);

#endif
