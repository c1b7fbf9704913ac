/* blank_style.h: remembers the blanks that an answer has written where its grammar leaves the choice, as in JSON. A model
 * keeps its style: it writes {"a": 1, "b": 2} or one member per line. So the blanks between two characters are guessed to
 * be those that stood there the last time. In a style with lines, the indentation follows the brackets. One object per
 * answer. */
#ifndef LLM_BLANK_STYLE_H
#define LLM_BLANK_STYLE_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

class blank_style {
  public:
    static bool is_blank(uint32_t character)
    {
        return character == ' ' || character == '\n' || character == '\t' || character == '\r';
    }

    /* Adds a character of the answer. `is_choice`: the grammar allows blanks before it, and it can be one of them. The
     * blanks after a line's end are its indentation, whether or not other text could follow, too. */
    void add(uint32_t character, bool is_choice)
    {
        if (is_blank(character) && (is_choice || character == '\n' || !run.empty())) {
            run += static_cast<char>(character);
            return;
        }
        if (is_choice || !run.empty()) {
            remember(character);
        }
        last = character;
        run.clear();
    }

    /* Returns the next of the blanks that are guessed to stand before this character, or 0 if it follows at once. */
    char next_blank(uint32_t before) const
    {
        const std::string all = blanks(before);
        return run.size() < all.size() && all.compare(0, run.size(), run) == 0 ? all[run.size()] : '\0';
    }

  private:
    static constexpr size_t GAPS_MAX = 32, BLANKS_MAX = 64;

    struct gap {
        uint32_t after, before; /* the characters before and after the blanks */
        std::string blanks;
    };
    std::vector<gap> gaps;
    uint32_t last = 0; /* the last character that is no such blank */
    std::string run;   /* the blanks after it */
    std::string line;  /* the end of line before the last member; empty if it did not begin on a line of its own */
    std::string indent, unit; /* the indentation of that line, and of one more bracket */

    static bool opens(uint32_t character)
    {
        return character == '{' || character == '[';
    }
    static bool closes(uint32_t character)
    {
        return character == '}' || character == ']';
    }
    bool can_begin_line(uint32_t before) const
    {
        return opens(last) || last == ',' || closes(before);
    }

    /* Returns the blanks that are guessed to stand between the last character and this one. Before the first time, these
     * are a blank after a colon or a comma. */
    std::string blanks(uint32_t before) const
    {
        if (!line.empty() && can_begin_line(before)) {
            const std::string inside = opens(last) ? indent + unit : indent;
            return line +
                   (closes(before) ? inside.substr(0, inside.size() - std::min(inside.size(), unit.size())) : inside);
        }
        const gap *found = nullptr;
        for (const gap &g : gaps) {
            const bool is_same = g.after == last && g.before == before;
            found = is_same || (found == nullptr && g.after == last) ? &g : found;
        }
        return found != nullptr ? found->blanks : last == ':' || last == ',' ? " " : "";
    }

    void remember_line(uint32_t before)
    {
        const size_t end = run.rfind('\n') + 1; /* 0 if the run has no end of line */
        line = run.substr(0, end);
        if (line.empty()) {
            return;
        }
        std::string next = run.substr(end);
        if (opens(last) && !closes(before) && next.size() > indent.size()) {
            unit = next.substr(indent.size());
        }
        indent = std::move(next);
    }

    void remember(uint32_t before)
    {
        if (run.size() > BLANKS_MAX) {
            return;
        }
        if (can_begin_line(before)) {
            remember_line(before);
        }
        for (gap &g : gaps) {
            if (g.after == last && g.before == before) {
                g.blanks = run;
                return;
            }
        }
        if (gaps.size() < GAPS_MAX) {
            gaps.push_back({last, before, run});
        }
    }
};

#endif
