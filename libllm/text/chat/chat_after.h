/* chat_after.h: the part of a rendered chat that follows an answer whose tokens are known. Private to the chat folder.
 * Pure.
 *
 * Templates rewrite the past: they drop old reasoning, write calls anew from their arguments, move tools. A prompt
 * rendered from the beginning would therefore differ from the tokens of the session, often early, and the whole
 * conversation would be prefilled again. So the resident tokens remain the history, and only the text after the last
 * known answer is taken from the rendering. Example: the session holds 157 tokens that end with a tool call; the result
 * is rendered, and 22 tokens are added.
 *
 * A sentinel in the answer's text, or in the arguments of its last call, shows where the answer ends in the
 * rendering. From there the template continues to the word that ends a turn, where the model had stopped. The
 * alternative, splicing known tokens into a complete rendering, would work only if the template left the text around
 * them unchanged. If the place is in any doubt, everything is rendered: a longer prefill is better than a wrong
 * history. */
#ifndef LLM_CHAT_AFTER_H
#define LLM_CHAT_AFTER_H

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/chat/chat_control.h"

/* The answer to continue after, from the request. */
struct chat_after {
    size_t message;            /* index in the request */
    std::string rest;          /* text of the answer that its tokens do not cover */
    std::vector<int32_t> last; /* last tokens of the answer */
};

/* How the answer is passed to the template: with its calls, or as a text if the template has no form for calls. */
enum class chat_answer { calls, text, none };

/* The text to be tokenized, and which bytes of the rendered text it consists of. */
struct chat_tail {
    struct range {
        size_t begin, end;
    };
    chat_text text;
    size_t begin = 0;           /* bytes left out at the beginning of the rendered text */
    size_t n_front = 0;         /* bytes of `text` that are the rest of the answer */
    std::vector<range> removed; /* sentinels in the rendered text, after `begin`; ascending */

    static constexpr size_t NONE = static_cast<size_t>(-1);
    /* offset in `text` of a byte of the rendered text; NONE: the byte is left out */
    size_t place_of(size_t byte) const;
};

/* Returns the text after the answer; nullopt if the place is in doubt. Sentinels 1 to n_marks - 1 stand in later
 * messages, and all must be found after the answer: if a template moved a message before the answer, that message
 * would be lost. `has_tools` becomes true if sentinel n_marks, which stands in the tools, is after the answer: the
 * template has moved the tools there. */
std::optional<chat_tail> chat_tail_after(const model *m, const control_words &words, const control_markers &markers,
                                         const chat_text &rendered, const chat_after &after, chat_answer form,
                                         size_t n_marks, bool *has_tools);

/* Returns whether the tokens before the first control token of the tail (or all its tokens) spell exactly its text.
 * Some tokenizers add a blank to the beginning of a text, and the tail would then differ from the same text in the
 * middle of a prompt. */
bool chat_tail_keeps_spelling(const model *m, const chat_tail &tail, const chat_tokens &tokens);

#endif
