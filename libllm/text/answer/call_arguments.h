/* call_arguments.h: the part of a call's arguments that can be reported while they are generated: always the beginning
 * of valid JSON, since clients append what they get and never take it back. Pure. Private to the answer parser. */
#ifndef LLM_CALL_ARGUMENTS_H
#define LLM_CALL_ARGUMENTS_H

#include <string>

struct call_arguments {
    std::string json;      /* the beginning of an object, or all of it */
    bool is_whole = false; /* `json` is all of the object */
};

/* `written`: the arguments as llama.cpp's parser made them from the model's text so far. Parts that are not certain are
 * held back: a name until its value begins, a number or a word until it ends ("tru" may become "true", 1 may become
 * 12). Things that models write and JSON does not have are repaired: line breaks and other control characters in
 * strings, escapes of other languages, halves of surrogate pairs, commas after the last element. From the first byte on
 * that cannot be JSON everything is left out. More text never changes what was reported before. */
call_arguments call_arguments_of(const std::string &written);

#endif
