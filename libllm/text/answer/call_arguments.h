/* call_arguments.h: finds the part of a tool call's arguments that can be reported to the client while the arguments
 * are generated. This part is always the beginning of valid JSON, since clients append what they receive. The function
 * is pure, and is used only by the answer parser. */
#ifndef LLM_CALL_ARGUMENTS_H
#define LLM_CALL_ARGUMENTS_H

#include <string>

struct call_arguments {
    std::string json;      /* the beginning of a JSON object, or the whole object */
    bool is_whole = false; /* `json` is the whole object */
};

/* `written` are the arguments that llama.cpp's parser returned for the model's text so far. Uncertain parts are held
 * back: a name until its value begins, a number or a word until it ends ("tru" may become "true", 1 may become 12).
 * Common errors of models are repaired: line breaks and other control characters in strings, escapes of other
 * languages, halves of surrogate pairs, commas after the last element. If a byte cannot be JSON, it is left out with
 * everything after it. When `written` becomes longer, the earlier result stays a prefix of the new result. */
call_arguments call_arguments_of(const std::string &written);

#endif
