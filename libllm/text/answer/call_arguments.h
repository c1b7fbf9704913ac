/* call_arguments.h: finds the part of a tool call's arguments that can be reported to the client before the tool call
 * is complete. This part is always the beginning of valid JSON, because clients append what they receive. The function
 * is pure, and is used only by the answer parser. */
#ifndef LLM_CALL_ARGUMENTS_H
#define LLM_CALL_ARGUMENTS_H

#include <string>

struct call_arguments {
    std::string json;      /* the beginning of a JSON object, or the whole object */
    bool is_whole = false; /* `json` is the whole object */
};

/* `written` are the arguments that llama.cpp's parser returned for the model's text so far. Uncertain parts are held
 * back. A name is held back until its value begins. A number or a word is held back until it ends. For example, "tru"
 * may become "true", and 1 may become 12. Common errors of models are repaired:
 * - line breaks and other control characters in strings
 * - escapes of other languages
 * - halves of surrogate pairs
 * - commas after the last element
 * If a byte cannot be JSON, it is left out with everything after it. When `written` becomes longer, the earlier result
 * stays a prefix of the new result. */
call_arguments call_arguments_of(const std::string &written);

#endif
