/* chat_family.h: what llama.cpp changes for one family of models before and after the template renders a conversation.
 *
 * llama.cpp makes these changes in the answer parsers of the families, which also render. libllm renders by itself (only the
 * template's own text may become control tokens), so the changes are repeated here; tests/real_templates/test_prompts.py compares the
 * prompts with llama.cpp's for every template it ships. Private to the chat door. Pure. */
#ifndef LLM_CHAT_FAMILY_H
#define LLM_CHAT_FAMILY_H

#include <common/json.h>

#include <string>

#include "text/chat/chat_control.h"

struct chat_family {
    enum trait : unsigned {
        DEVELOPERS = 1,      /* the role "developer" is not "system" */
        TRIMS = 2,           /* whitespace around texts makes the model think in circles */
        GATHERS_RESULTS = 4, /* results become part of the message that called */
        SHOWS_SCHEMA = 8,    /* the variable response_format is the schema of the answer */
    };
    bool (*has_template)(const std::string &source);
    /* The messages, ready for the template but for this. `variables`: the request's, of the template. NULL: no change. */
    void (*change_messages)(common_json &messages, const common_json &variables);
    /* The rendered text. `asks`: it was rendered with a generation prompt. NULL: no change. */
    void (*change_text)(bool asks, chat_text *rendered);
    /* How many bytes of an answer's opening the text has already, as a turn of the model that is still open. NULL: none. */
    size_t (*n_opened)(const std::string &opening, const chat_text &rendered);
    unsigned traits;

    bool has(trait one) const
    {
        return (traits & one) != 0;
    }
};

/* The family of a template, or one without any changes. */
const chat_family &chat_family_of(const std::string &source);

#endif
