/* chat_family.h: changes to conversations for single families of models, before and after the template renders.
 *
 * llama.cpp makes these changes in the answer parsers of the families, which also render. libllm renders by itself,
 * since only the template's own text may become control tokens. So the changes are repeated here;
 * tests/real_templates/test_prompts.py compares the prompts with llama.cpp's for every template that it ships. Private
 * to the chat folder. Pure. */
#ifndef LLM_CHAT_FAMILY_H
#define LLM_CHAT_FAMILY_H

#include <common/json.h>

#include <string>

#include "text/chat/chat_control.h"

struct chat_family {
    enum trait : unsigned {
        DEVELOPERS = 1,      /* "developer" is a role of its own, not "system" */
        TRIMS = 2,           /* texts are trimmed: whitespace around them makes the model think in circles */
        GATHERS_RESULTS = 4, /* results become part of the message that called */
        SHOWS_SCHEMA = 8,    /* the template shows the schema of the answer, in the variable response_format */
    };
    bool (*has_template)(const std::string &source);
    /* Changes messages that are otherwise ready for the template. `variables`: the template's, from the request. NULL:
     * no change. */
    void (*change_messages)(common_json &messages, const common_json &variables);
    /* Changes the rendered text. `asks`: it was rendered with a generation prompt. NULL: no change. */
    void (*change_text)(bool asks, chat_text *rendered);
    /* The bytes of an answer's opening that the text already has, as an open turn of the model. NULL: none. */
    size_t (*n_opened)(const std::string &opening, const chat_text &rendered);
    unsigned traits;

    bool has(trait one) const
    {
        return (traits & one) != 0;
    }
};

/* Returns the family of a template; one without changes, if it is of no special family. */
const chat_family &chat_family_of(const std::string &source);

#endif
