/* chat_request.h: parses a chat request, and changes it so that a template accepts it. Used only in this folder. */
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

/* Thrown if llm_chat_render does not accept the request. The message is a sentence for the request's author. */
struct chat_invalid : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct chat_request {
    const chat_program *program;          /* the template that renders the request */
    common_json messages;                 /* array; control words in strings are wrapped in markers */
    common_json front;                    /* messages that are rendered to find the head of the prompt. `front` has the
                                      * system messages and a user message with sentinel 0 as its text. null if the head
                                      * is not searched for in this way */
    common_json tools;                    /* array, or null */
    common_json kwargs;                   /* object: variables for the template */
    std::optional<chat_after> after;      /* an answer whose tokens the session holds (chat_after.h) */
    chat_answer form = chat_answer::none; /* how the answer that `after` names is passed to the template */
    size_t n_marks = 0;                   /* number of sentinels in the messages */
    std::string unread_arguments;         /* arguments of the first tool call whose arguments are no JSON object, or
                                           * "" */
    bool add_generation_prompt = true;
    chat_wish wish;
    chat_numbers numbers;        /* the numbers that were replaced in messages, front and tools */
    std::string begun_reasoning; /* reasoning of the message that the answer continues; this message is no longer in
                                  * `messages` */
    std::string begun_content;
    bool has_parallel_calls = false;  /* some message has more than one tool call */
    bool has_odd_ids = false;         /* the id of some tool call is not nine letters and digits */
    int64_t thinking_tokens_max = -1; /* limit on the reasoning tokens; -1 for no limit */
    bool follows_thinking = false;    /* the sampler must know which part of the answer is reasoning */

    bool continues() const
    {
        return wish.continues_content || wish.continues_reasoning;
    }
};

/* Changes to a conversation. They are tried if the template refused the conversation, or if the rendered text did not
 * show where the session's answer ends (chat_after.h). */
struct chat_repair {
    chat_answer form = chat_answer::calls; /* how the answer of chat_request::after is passed to the template. Only used
                                            * for an answer with tool calls */
    /* false if the tools are not passed to the template. Reason: the template would write the tools after the answer
     * of chat_request::after */
    bool keeps_tools = true;
    bool splits_calls = false;              /* each tool call becomes a separate message */
    bool renames_ids = false;               /* ids of tool calls become nine letters and digits */
    shown_types types = shown_types::GIVEN; /* how the types in the tools' schemas are shown to the template */
    bool encloses_arguments = false;        /* arguments that are not JSON become a member of an object */
};

/* Parses and checks the JSON. Changes messages and tools so that this template accepts them (chat_messages_fit).
 * Arguments that are not JSON stay a string. A model wrote them, and its mistake remains part of the history. Tool
 * calls and tools that the template cannot write become text in messages. If `after` is set, the leading system
 * messages are left out. These messages precede the answer that `after` names, but a template might move them after
 * this answer. `typed` has the tools with changed types (chat_tools.h), and is shared by all attempts to render the
 * request. Throws chat_invalid. The thread must have a chat_budget (text/template/chat_budget.h). */
chat_request chat_request_read(const model *m, const std::string &given, const chat_programs &programs,
                               const control_markers &markers, const chat_repair &repair, typed_tools *typed);

/* Returns the number of messages up to the answer whose tokens the session holds (chat_after.h). This answer has
 * sentinel 0. Returns 0 if the whole conversation is the prompt, or if no message has the sentinel. */
size_t chat_messages_before_tail(const chat_request &request, const control_markers &markers);

#endif
