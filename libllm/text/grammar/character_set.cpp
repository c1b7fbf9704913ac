#include "text/grammar/character_set.h"

#include <algorithm>
#include <utility>

void character_set_normalize(character_set &set)
{
    std::sort(set.begin(), set.end(), [](const auto &a, const auto &b) { return a.low < b.low; });
    character_set merged;
    for (const grammar_range &r : set) {
        if (!merged.empty() && r.low <= merged.back().high + 1) {
            merged.back().high = std::max(merged.back().high, r.high);
        } else {
            merged.push_back(r);
        }
    }
    set = std::move(merged);
}

character_set character_set_complement(character_set set)
{
    character_set_normalize(set);
    character_set rest;
    uint32_t next = 0;
    for (const grammar_range &r : set) {
        if (r.low > next) {
            rest.push_back({next, r.low - 1});
        }
        next = r.high + 1;
    }
    if (next <= CHARACTER_LAST) {
        rest.push_back({next, CHARACTER_LAST});
    }
    return rest;
}

bool character_set_named(char letter, character_set &out)
{
    switch (letter) {
    case 'd':
    case 'D': out = {{'0', '9'}}; break;
    case 'w':
    case 'W': out = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; break;
    case 's':
    case 'S':
        out = {{'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
               {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
        break;
    default: return false;
    }
    if (letter < 'a') {
        out = character_set_complement(out);
    }
    return true;
}
