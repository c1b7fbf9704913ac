/* chat_request.h: a chat request as a template takes it. Private to the chat door. */
#ifndef LLM_CHAT_REQUEST_H
#define LLM_CHAT_REQUEST_H

#include <common/chat.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "text/chat/chat_after.h"
#include "text/chat/chat_control.h"
#include "text/chat/chat_form.h"
#include "text/chat/chat_program.h"

/* The request is not what llm_chat_render takes. */
struct chat_invalid : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct chat_request {
    const chat_program *program; /* that renders it */
    common_json messages;        /* array; strings are wrapped in the markers */
    common_json front;  /* up to the user's first message, whose text is the first sentinel; null: not asked for */
    common_json tools;  /* array, or null */
    common_json kwargs; /* object: variables for the template */
    std::optional<chat_after> after;      /* the answer behind which the wanted part begins */
    chat_answer form = chat_answer::none; /* how that answer was written; none: it was not, and all is wanted */
    size_t n_marks = 0;                   /* sentinels in the messages */
    std::string unread_arguments;         /* of the first tool call whose arguments are no JSON; "": of none */
    bool add_generation_prompt = true;
    chat_wish wish;              /* what the answer is to be */
    std::string begun_reasoning; /* of the message that is continued, which is no longer among the messages */
    std::string begun_content;
    bool has_parallel_calls = false;  /* some message has more than one call */
    bool has_odd_ids = false;         /* some id of a call is not made of nine letters and digits */
    int64_t thinking_tokens_max = -1; /* -1: no budget */
    bool follows_thinking = false;    /* where the answer thinks has to be known as it is generated */

    bool continues() const
    {
        return wish.continues_content || wish.continues_reasoning;
    }
};

/* What to do to a conversation, since the template refused it as it came, or did not tell where its answer ends. */
struct chat_repair {
    chat_answer form = chat_answer::calls; /* of the answer to go on after, if there is one and it has calls */
    bool keeps_tools = true;         /* else the template is not told of them, as it has put them behind that answer */
    bool splits_calls = false;       /* each call becomes a message of its own */
    bool renames_ids = false;        /* ids of calls become nine letters and digits */
    bool encloses_arguments = false; /* arguments that are no JSON become a member of an object */
};

/* Parses and checks the JSON (throws chat_invalid), and brings messages and tools into the shape that this template can
 * digest: text or typed content, arguments of tool calls as object or string, a system role or none. Arguments that are
 * no JSON stay a string: a model wrote them, and its mistake is part of the history for good. Where the
 * template does not write calls or tools, we do. What stands in front of the answer to go on after is not wanted: the
 * system's first words, which a template might move behind it, are left out. */
chat_request chat_request_read(const model *m, const std::string &given, const chat_programs &programs,
                               const control_markers &markers, const chat_repair &repair);

#endif
