/* chat_request.h: a chat request as a template takes it. Private to the chat door. */
#ifndef LLM_CHAT_REQUEST_H
#define LLM_CHAT_REQUEST_H

#include <common/chat.h>

#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "text/chat_control.h"
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
};

/* Parses and checks the JSON (throws chat_invalid), and brings messages and tools into the shape that this template can
 * digest: text or typed content, arguments of tool calls as object or string, a system role or none. Arguments that are
 * no JSON stay a string: a model wrote them, and its mistake is part of the history for good. Of each message to be
 * spliced, the sentinel stands for what it says. `unspliced`: messages to leave as they are all the same. */
chat_request chat_request_read(const std::string &json, const common_chat_template &tmpl,
                               const control_markers &markers, const std::set<size_t> &unspliced);

#endif
