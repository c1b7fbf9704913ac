/* chat_program.h: a compiled template with its analysis, and the function that renders a request with it. A
 * chat_program never changes, except for its cache of forms. Any thread can render. Used only in this folder. */
#ifndef LLM_CHAT_PROGRAM_H
#define LLM_CHAT_PROGRAM_H

#include <common/chat.h>

#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "text/chat/chat_control.h"
#include "text/chat/chat_family.h"
#include "text/chat/chat_form.h"
#include "text/template/chat_loop.h"

struct chat_request;

struct chat_program {
    std::unique_ptr<const common_chat_template> tmpl;
    const chat_family *family;
    chat_analysis analysis;
    mutable chat_forms forms;
    bool has_clock; /* the template uses the current time; see hold_clock */
    mutable std::mutex clock;

    std::unique_lock<std::mutex> hold_clock() const; /* returns a lock that the caller holds while the template runs */
};

/* Throws the exceptions of chat_compile and chat_analyse. */
std::unique_ptr<const chat_program> chat_program_open(const std::string &source, const std::string &bos,
                                                      const std::string &eos);

/* A model's templates. Some models have a second template, for conversations with tools. */
struct chat_programs {
    std::unique_ptr<const chat_program> usual, with_tools; /* NULL if the model has no such template */

    const chat_program &for_request(bool has_tools) const
    {
        return has_tools && with_tools != nullptr ? *with_tools : *usual;
    }
};

/* The messages and tools of a request as values of jinja. They take longer to make than a template takes to read them.
 * So the renderings of a request share them, until a template changes one of them. */
struct chat_given {
    std::vector<jinja::value> messages; /* empty if the values have to be made */
    jinja::value tools;                 /* NULL if there are no tools */
    chat_outcomes outcomes;
};

/* One rendering of a request. All renderings of a request get the same time, because their texts are compared with each
 * other. */
struct chat_rendering {
    const chat_request *request;
    const control_markers *markers;
    std::time_t now;
    chat_given *given; /* the values of this request. Empty before its first rendering */
};

/* Renders the first n messages, with a generation prompt if `asks`. Throws chat_limit and the exceptions of jinja. The
 * thread must have a chat_budget (text/template/chat_budget.h). If `history` is not NULL and `asks`, *history receives
 * the text without a generation prompt, if the template need not run again as a whole to find it. */
chat_text chat_program_render(const chat_rendering &r, size_t n_messages, bool asks,
                              std::optional<chat_text> *history = nullptr);

#endif
