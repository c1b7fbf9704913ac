/* call_arguments.h: what of a call's arguments can be reported while they are generated: always the beginning of valid
 * JSON. Pure. Private to the answer parser. */
#ifndef LLM_CALL_ARGUMENTS_H
#define LLM_CALL_ARGUMENTS_H

#include <string>

struct call_arguments {
    std::string json;      /* the beginning of an object, or all of it */
    bool is_whole = false; /* `json` is all of the object */
};

/* `written`: the arguments as far as llama.cpp's parser made them out of what the model wrote. Held back is what is not
 * sure yet: a name until its value begins, a number or a word until it ends. Repaired is what models write and JSON does
 * not have: line breaks and other control characters in strings, escapes of other languages, halves of characters, commas
 * behind the last element. The rest is left out from the first byte on that cannot be JSON. More written text never changes
 * what was reported before. */
call_arguments call_arguments_of(const std::string &written);

#endif
