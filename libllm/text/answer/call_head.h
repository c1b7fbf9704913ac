/* call_head.h: the text with which a template begins a call, up to the tool's name. Some models (GLM 4.7, Qwen3,
 * MiniMax M2) call inside <think> and never close the reasoning. The head together with the name of an offered tool
 * identifies such a call. The mark that opens calls is not enough, because a model can reason about its own marks.
 * Pure. */
#ifndef LLM_CALL_HEAD_H
#define LLM_CALL_HEAD_H

#include <common/chat-auto-parser.h>
#include <common/chat.h>

#include <string>
#include <vector>

struct call_head {
    std::string before, after; /* text before the tool's name, and one character after it; empty if not known */
    bool has_id_after = false; /* a call's id follows its arguments, in the same object */

    bool is_known() const
    {
        return !before.empty();
    }
};

/* Renders a conversation with a call and examines the text around the tool's name. `form` is llama.cpp's form for the
 * tools that the model can call, `params` are the parameters for rendering the template. */
call_head call_head_of(const common_chat_template &tmpl, autoparser::generation_params params,
                       const common_chat_params &form);

#endif
