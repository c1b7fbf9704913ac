/* json_members.h: computes the cost of the members in a client's JSON objects, before the objects are parsed. Objects
 * that keep the order of their members (nlohmann::ordered_json) compare each new name with all earlier names, when they
 * are parsed and again when they are changed. A tool with one object of 20,000 members took 3 s. For text that is not
 * JSON the result is arbitrary, because the parser refuses such text afterwards. */
#ifndef LLM_JSON_MEMBERS_H
#define LLM_JSON_MEMBERS_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/* Largest number of members of one object. All objects of a document together can take as many comparisons as one
 * object of this size. */
inline constexpr uint64_t JSON_MEMBERS_MAX = 4096;
inline constexpr uint64_t JSON_COMPARISONS_MAX = JSON_MEMBERS_MAX * (JSON_MEMBERS_MAX - 1) / 2;

/* Returns how many names are compared when the document is parsed once. Small objects, of which nearly all requests
 * consist, do not count. */
inline uint64_t json_comparisons(const std::string &text)
{
    constexpr uint64_t SMALL = 64;
    std::vector<uint64_t> n_members; /* number of members of each open object; 0 for a list */
    uint64_t n = 0;
    bool is_string = false;
    for (size_t i = 0; i < text.size(); i++) {
        const char c = text[i];
        if (is_string) {
            i += c == '\\';
            is_string = c != '"';
        } else if (c == '"') {
            is_string = true;
        } else if (c == '{' || c == '[') {
            n_members.push_back(0);
        } else if ((c == '}' || c == ']') && !n_members.empty()) {
            n_members.pop_back();
        } else if (c == ':' && !n_members.empty()) {
            const uint64_t n_before = n_members.back()++;
            n += n_before < SMALL ? 0 : n_before;
        }
    }
    return n;
}

#endif
