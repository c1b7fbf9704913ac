/* chat_after.h: finds the part of a rendered chat that follows an answer whose tokens the session holds. Used only in
 * this folder. Pure functions. Templates render an earlier answer differently than the model wrote it. For example,
 * templates drop old reasoning, change the format of the arguments of tool calls, and move the list of tools. A prompt
 * rendered from the beginning would therefore differ from the session's tokens, often early, and the whole conversation
 * would be prefilled again. So the new prompt begins with the session's tokens. Only the text after the session's last
 * answer is taken from the rendered chat. For example, the session holds 157 tokens that end with a tool call. Only the
 * tool's result is taken from the rendered chat, and adds 22 tokens.
 *
 * The answer is passed to the template with a sentinel: a text that occurs nowhere else. The sentinel replaces the
 * answer's text, or the arguments of its last tool call. The position of the sentinel in the rendered chat shows where
 * the answer ends. After a tool call, the text from the sentinel to the end of the turn is skipped. The model itself
 * generated this text before it stopped. The alternative would be to render everything and to put the session's tokens
 * in place of the answers. But this works only if the template renders the text around the answers in the same way as
 * in the earlier prompts. If the end of the answer is in any doubt, the prompt is the whole rendered chat. A longer
 * prefill is better than a wrong history. */
#ifndef LLM_CHAT_AFTER_H
#define LLM_CHAT_AFTER_H

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/chat/chat_control.h"

/* An answer whose tokens the session holds. The request of llm_chat_render names this answer in its member `after`. */
struct chat_after {
    size_t message;            /* index of the answer in the request's messages */
    std::string rest;          /* text at the end of the answer for which the session has no tokens, or "" */
    std::vector<int32_t> last; /* last tokens of the answer */
};

/* How the answer of chat_after is passed to the template.
 * - `calls`: with its tool calls.
 * - `text`: as a text, for templates that cannot write the calls.
 * - `none`: not at all. The whole chat is rendered, without a sentinel. */
enum class chat_answer { calls, text, none };

/* The text to be tokenized. The text is the part of the answer that is not yet in the branch (chat_after::rest),
 * followed by the template's output from offset `begin` to its end. The sentinels that llmd put into the messages are
 * removed. */
struct chat_tail {
    struct range {
        size_t begin, end;
    };
    chat_text text;
    size_t begin = 0;           /* offset in the rendered text. The bytes before `begin` are left out */
    size_t n_front = 0;         /* number of leading bytes of `text` that come from chat_after::rest */
    std::vector<range> removed; /* sentinels in the rendered text, after `begin`; ascending */

    static constexpr size_t NONE = static_cast<size_t>(-1);
    /* Converts an offset in the rendered text to an offset in `text`. Returns NONE if the byte there is before
     * `begin`. */
    size_t place_of(size_t byte) const;
};

/* Returns the part of the rendered text after the answer, or nullopt if the end of the answer is in doubt. Sentinel 0
 * is in the answer, and sentinels 1 to n_marks - 1 are in later messages. If one of these later sentinels is before the
 * end of the answer, the end is in doubt. In this case, the template has moved a later message to a position before the
 * end, and this message would be lost. Sentinel n_marks is in the tools. *has_tools becomes true if this sentinel is
 * after the answer. */
std::optional<chat_tail> chat_tail_after(const model *m, const control_words &words, const control_markers &markers,
                                         const chat_text &rendered, const chat_after &after, chat_answer form,
                                         size_t n_marks, bool *has_tools);

/* Returns whether the tokens before the tail's first control token spell exactly the tail's text. If the tail has no
 * control token, all its tokens are compared. Some tokenizers add a blank at the beginning of a text. With such a
 * tokenizer, the tail would get other tokens than the same text in the middle of a prompt. */
bool chat_tail_keeps_spelling(const model *m, const chat_tail &tail, const chat_tokens &tokens);

#endif
