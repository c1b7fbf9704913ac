/* json_size.h: measures JSON from a client before a parser reads it. Finds out how deeply the JSON nests, and how
 * many names a parser compares. Also finds a member of an object without parsing the JSON. Parsers and compilers of
 * JSON use some stack for each level, so a text of a hundred thousand `[` would end the process. An
 * nlohmann::ordered_json keeps an object's members in a list. So each new name is compared with all earlier names
 * when the object is parsed, and again when the object is changed. Parsing and changing a tool with one object of
 * 20,000 members took 3 s. For text that is not JSON the result is arbitrary. This does no harm, because the parser
 * refuses such text afterwards. */
#ifndef LLM_JSON_SIZE_H
#define LLM_JSON_SIZE_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/* Largest number of members of one object. All objects of a document together can take as many comparisons as one
 * object of this size. */
inline constexpr uint64_t JSON_MEMBERS_MAX = 4096;
inline constexpr uint64_t JSON_COMPARISONS_MAX = JSON_MEMBERS_MAX * (JSON_MEMBERS_MAX - 1) / 2;

struct json_size {
    bool is_too_deep = false;
    /* number of name comparisons when the document is parsed once. Counting stops where the document nests too
     * deeply */
    uint64_t n_comparisons = 0;
};

/* Returns the offset of the quotation mark that ends a string, or the size of the text. `at` is in the string. */
inline size_t json_string_end(const std::string &text, size_t at)
{
    for (size_t end = text.find('"', at); end != std::string::npos; end = text.find('"', end + 1)) {
        size_t n_before = 0; /* backslashes: of two, the first one escapes the second one */
        while (end - n_before > at && text[end - n_before - 1] == '\\') {
            n_before++;
        }
        if (n_before % 2 == 0) {
            return end;
        }
    }
    return text.size();
}

/* Measures the text, but stops where it nests deeper than `depth_max` levels. Objects of up to 64 members are counted
 * as if they took no comparisons. Nearly all requests consist of such objects. */
inline json_size json_size_of(const std::string &text, size_t depth_max)
{
    constexpr uint64_t SMALL = 64;
    json_size out;
    std::vector<uint64_t> n_members; /* for each open object, the number of its members; 0 for a list */
    for (size_t i = 0; i < text.size(); i++) {
        const char c = text[i];
        if (c == '"') {
            i = json_string_end(text, i + 1);
        } else if (c == '{' || c == '[') {
            if (n_members.size() == depth_max) {
                out.is_too_deep = true;
                break;
            }
            n_members.push_back(0);
        } else if ((c == '}' || c == ']') && !n_members.empty()) {
            n_members.pop_back();
        } else if (c == ':' && !n_members.empty()) {
            const uint64_t n_before = n_members.back()++;
            out.n_comparisons += n_before < SMALL ? 0 : n_before;
        }
    }
    return out;
}

/* A part of a text: [begin, end). */
struct json_span {
    size_t begin = 0, end = 0;
};

/* Finds the value of a member of the outermost object, without parsing the text. The span is empty if the object has no
 * such member, or if the text could have it twice. `name` needs no escapes. Not found if it is written with escapes. */
inline json_span json_member(const std::string &text, const std::string &name)
{
    const std::string quoted = '"' + name + "\"";
    json_span out;
    size_t depth = 0, n_found = 0;
    bool is_value = false, is_wanted = false;
    for (size_t i = 0; i < text.size(); i++) {
        const char c = text[i];
        if (c == '"') {
            const size_t begin = i;
            i = json_string_end(text, i + 1);
            is_wanted = is_wanted || (depth == 1 && !is_value && text.compare(begin, i + 1 - begin, quoted) == 0);
        } else if (depth == 1 && c == ':' && !is_value) {
            is_value = true;
            out.begin = is_wanted ? i + 1 : out.begin;
        } else if (depth == 1 && (c == ',' || c == '}')) {
            out.end = is_wanted ? i : out.end;
            n_found += is_wanted ? 1 : 0;
            is_value = is_wanted = false;
            depth -= c == '}' ? 1 : 0;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
    }
    return n_found == 1 ? out : json_span();
}

#endif
