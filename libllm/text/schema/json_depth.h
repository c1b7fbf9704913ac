/* json_depth.h: measures how deeply JSON from a client nests, before a recursive parser reads it. Parsers and
 * compilers of JSON use some stack for each level, so a text of a hundred thousand `[` would end the process. For text
 * that is not JSON the result is arbitrary, because the parser refuses such text afterwards. */
#ifndef LLM_JSON_DEPTH_H
#define LLM_JSON_DEPTH_H

#include <cstddef>
#include <string>

inline bool json_is_deeper(const std::string &text, size_t most)
{
    size_t depth = 0;
    bool is_string = false;
    for (size_t i = 0; i < text.size(); i++) {
        const char c = text[i];
        if (is_string) {
            i += c == '\\';
            is_string = c != '"';
        } else if (c == '"') {
            is_string = true;
        } else if ((c == '{' || c == '[') && ++depth > most) {
            return true;
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
    }
    return false;
}

#endif
