/* chat_family.h: changes to conversations for certain families of models, before and after the template renders.
 *
 * llama.cpp makes the same changes in its functions that render a conversation. libllm cannot use these functions,
 * because it must know which parts of the text are the template's own. Only these parts may become control tokens. So
 * libllm renders conversations itself, and repeats the changes. tests/real_templates/test_prompts.py compares the
 * prompts with llama.cpp's prompts for every template that llama.cpp ships. Used only in this folder. Pure
 * functions. */
#ifndef LLM_CHAT_FAMILY_H
#define LLM_CHAT_FAMILY_H

#include <common/json.h>

#include <string>

#include "text/chat/chat_control.h"

struct chat_family {
    enum trait : unsigned {
        DEVELOPERS = 1,      /* the template distinguishes the roles "developer" and "system" */
        TRIMS = 2,           /* texts are trimmed, because blanks around a text make the model reason in circles */
        GATHERS_RESULTS = 4, /* tool results become part of the message with the tool calls */
        SHOWS_SCHEMA = 8,    /* the template reads the answer's schema from the variable response_format, and shows it
                              * to the model */
    };
    bool (*has_template)(const std::string &source);
    /* Changes messages that are otherwise ready for the template. NULL if the family needs no change. `variables` are
     * the template's variables from the request. */
    void (*change_messages)(common_json &messages, const common_json &variables);
    /* Changes the rendered text; NULL if the family needs no such change. `asks` is true if the text was rendered with
     * a generation prompt. */
    void (*change_text)(bool asks, chat_text *rendered);
    /* If the model's turn is open at the end of the rendered text, the text already contains the first bytes of the
     * answer's opening (chat_form.h). Returns the number of these bytes. NULL if the number is always 0. */
    size_t (*n_opened)(const std::string &opening, const chat_text &rendered);
    unsigned traits;

    bool has(trait one) const
    {
        return (traits & one) != 0;
    }
};

/* Returns the family to which the template belongs. All other templates get a family that changes nothing. */
const chat_family &chat_family_of(const std::string &source);

#endif
