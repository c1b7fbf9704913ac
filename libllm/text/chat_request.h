/* chat_request.h: a chat request as a template takes it. Private to the chat door. */
#ifndef LLM_CHAT_REQUEST_H
#define LLM_CHAT_REQUEST_H

#include <common/chat.h>

#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "text/chat_control.h"
#include "text/chat_form.h"
#include "text/chat_splice.h"

/* The request is not what llm_chat_render takes. */
struct chat_invalid : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct chat_request {
    common_json messages;             /* array; strings are wrapped in the markers */
    common_json tools;                /* array, or null */
    common_json kwargs;               /* object: variables for the template */
    std::vector<chat_splice> splices; /* ascending by message */
    std::string unread_arguments;     /* of the first tool call whose arguments are no JSON; "": of none */
    bool add_generation_prompt = true;
    chat_wish wish;              /* what the answer is to be */
    std::string begun_reasoning; /* of the message that is continued, which is no longer among the messages */
    std::string begun_content;
    bool has_odd_ids = false;         /* some id of a call is not made of nine letters and digits */
    int64_t thinking_tokens_max = -1; /* -1: no budget */

    bool continues() const
    {
        return wish.continues_content || wish.continues_reasoning;
    }
};

/* What to do to a conversation, since the template refused it as it came. */
struct chat_repair {
    std::set<size_t> unspliced;      /* messages to leave as they are, though there are tokens for them */
    bool renames_ids = false;        /* ids of calls become nine letters and digits */
    bool encloses_arguments = false; /* arguments that are no JSON become a member of an object */
};

/* Parses and checks the JSON (throws chat_invalid), and brings messages and tools into the shape that this template can
 * digest: text or typed content, arguments of tool calls as object or string, a system role or none. Arguments that are
 * no JSON stay a string: a model wrote them, and its mistake is part of the history for good. Of each message to be
 * spliced, the sentinel stands for what it says. Where the template does not write calls or tools, we do. */
chat_request chat_request_read(const model *m, const std::string &given, const common_chat_template &tmpl,
                               const chat_analysis &analysis, const control_markers &markers,
                               const chat_repair &repair);

#endif
