/* chat_request.h: a chat request in the shape that a template accepts. Used only in this folder. */
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
#include "text/chat/chat_numbers.h"
#include "text/chat/chat_program.h"
#include "text/chat/chat_tools.h"

/* The request has a form that llm_chat_render does not accept. The message is a sentence for the request's author. */
struct chat_invalid : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct chat_request {
    const chat_program *program;     /* the template that renders the request */
    common_json messages;            /* array; control words in strings are wrapped in markers */
    common_json front;               /* messages up to the user's first message, whose text is sentinel 0; null if not
                                  * needed */
    common_json tools;               /* array, or null */
    common_json kwargs;              /* object: variables for the template */
    std::optional<chat_after> after; /* the answer after which the wanted part of the rendering begins */
    chat_answer form = chat_answer::none; /* how this answer is passed to the template; none if the whole rendering is
                                           * wanted */
    size_t n_marks = 0;                   /* number of sentinels in the messages */
    std::string unread_arguments;         /* first arguments of a tool call that are not JSON, or "" */
    bool add_generation_prompt = true;
    chat_wish wish;
    chat_numbers numbers;        /* the replaced numbers of messages, front and tools */
    std::string begun_reasoning; /* reasoning of the message to be continued, which is no longer in `messages` */
    std::string begun_content;
    bool has_parallel_calls = false;  /* some message has more than one call */
    bool has_odd_ids = false;         /* the id of some call is not nine letters and digits */
    int64_t thinking_tokens_max = -1; /* most reasoning tokens; -1 for no limit */
    bool follows_thinking = false;    /* the sampler must know which part of the answer is reasoning */

    bool continues() const
    {
        return wish.continues_content || wish.continues_reasoning;
    }
};

/* Changes to a conversation, which are tried if the template refused it or its rendering did not show where the answer
 * ends. */
struct chat_repair {
    chat_answer form = chat_answer::calls; /* form of the answer after which the rendering continues, if this answer has
                                            * calls */
    /* false if the template does not get the tools, because it writes them after this answer */
    bool keeps_tools = true;
    bool splits_calls = false;              /* each call becomes a separate message */
    bool renames_ids = false;               /* ids of calls become nine letters and digits */
    shown_types types = shown_types::GIVEN; /* how the types in the tools' schemas are shown to the template */
    bool encloses_arguments = false;        /* arguments that are not JSON become a member of an object */
};

/* Parses and checks the JSON, and brings messages and tools into the shape that this template accepts
 * (chat_messages_fit). Arguments that are not JSON stay a string, because a model wrote them, and its mistake remains
 * part of the history. Calls and tools that the template cannot write become texts of messages. If the rendering
 * continues after an answer, the leading system messages are left out, because they precede this answer, and a template
 * might move them after it. `typed` belongs to the request and is used for all its repairs. Throws chat_invalid. The
 * thread must have a chat_budget. */
chat_request chat_request_read(const model *m, const std::string &given, const chat_programs &programs,
                               const control_markers &markers, const chat_repair &repair, typed_tools *typed);

#endif
