/* call_head.h: finds the head of a tool call. The head is the text with which a template begins a tool call, up to the
 * tool's name. Some models (GLM 4.7, Qwen3, MiniMax M2) write a tool call inside <think> and never close the reasoning.
 * Such a call is recognized by its head and the name of an offered tool. A model can also reason about the delimiter
 * that opens tool calls. So a tool call cannot be recognized by this delimiter alone. The function is pure. */
#ifndef LLM_CALL_HEAD_H
#define LLM_CALL_HEAD_H

#include <common/chat-auto-parser.h>
#include <common/chat.h>

#include <string>
#include <vector>

struct call_head {
    std::string before, after; /* `before` is the text from the call's beginning to the tool's name. `after` is the one
                                * character after the name. Both are "" if not known */
    bool has_id_after = false; /* the id of a tool call follows the call's arguments, in the same JSON object */

    bool is_known() const
    {
        return !before.empty();
    }
};

/* Renders a conversation with a tool call and examines the text around the tool's name. `form` has llama.cpp's parser
 * and triggers for answers with the tools that the model can call. `params` are the parameters for rendering the
 * template. */
call_head call_head_of(const common_chat_template &tmpl, autoparser::generation_params params,
                       const common_chat_params &form);

#endif
