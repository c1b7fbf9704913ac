/* call_head.h: how a template begins a call. A model that calls before it has closed its thinking is understood by this text: a
 * mention of the mark alone is a thought. Pure. */
#ifndef LLM_CALL_HEAD_H
#define LLM_CALL_HEAD_H

#include <common/chat-auto-parser.h>
#include <common/chat.h>

#include <string>
#include <vector>

struct call_head {
    std::string before, after; /* the name of the tool; after: one character. Empty: it is not known */

    bool is_known() const
    {
        return !before.empty();
    }
};

/* `form`: what llama.cpp makes of the template for tools that a model may call. `params` has what the template is rendered with. */
call_head call_head_of(const common_chat_template &tmpl, autoparser::generation_params params,
                       const common_chat_params &form);

#endif
