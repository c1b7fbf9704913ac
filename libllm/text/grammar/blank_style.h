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

    /* A position in an answer, or in a guess of how it goes on. Blanks are collected only up to a limit, so that the copy
     * of a position is small. */
    struct position {
        uint32_t last = 0; /* the last character that is no such blank */
        std::string run;   /* the blanks after it; one more than BLANKS_MAX stands for all that are longer */
        std::string line;  /* the end of line before the last member; empty if it did not begin on a line of its own */
        std::string indent, unit; /* the indentation of that line, and of one more bracket */

        /* Advances by a character. `is_choice`: the grammar allows blanks before it, and it can be one of them. The
         * blanks after a line's end are its indentation, whether or not other text could follow, too. */
        void advance(uint32_t character, bool is_choice)
        {
            if (adds_blank(character, is_choice)) {
                if (run.size() <= BLANKS_MAX) {
                    run += static_cast<char>(character);
                }
                return;
            }
            if (ends_gap(character, is_choice) && can_begin_line(character)) {
                remember_line(character);
            }
            last = character;
            run.clear();
        }

        /* Returns whether the character ends blanks that are remembered. */
        bool ends_gap(uint32_t character, bool is_choice) const
        {
            return !adds_blank(character, is_choice) && (is_choice || !run.empty()) && run.size() <= BLANKS_MAX;
        }

        bool can_begin_line(uint32_t before) const
        {
            return opens(last) || last == ',' || closes(before);
        }

      private:
        bool adds_blank(uint32_t character, bool is_choice) const
        {
            return is_blank(character) && (is_choice || character == '\n' || !run.empty());
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
    };

    /* Adds a character of the answer, see position::advance. */
    void add(uint32_t character, bool is_choice)
    {
        if (now.ends_gap(character, is_choice)) {
            remember(character);
        }
        now.advance(character, is_choice);
    }

    /* Returns the position after the characters of the answer so far. A guess of how it goes on advances a copy. */
    const position &at_end() const
    {
        return now;
    }

    /* Returns the next of the blanks that are guessed to stand before this character at the position `at`, or 0 if it
     * follows at once. */
    char next_blank(const position &at, uint32_t before) const
    {
        const std::string all = blanks(at, before);
        return at.run.size() < all.size() && all.compare(0, at.run.size(), at.run) == 0 ? all[at.run.size()] : '\0';
    }

  private:
    static constexpr size_t GAPS_MAX = 32, BLANKS_MAX = 64;

    struct gap {
        uint32_t after, before; /* the characters before and after the blanks */
        std::string blanks;
    };
    std::vector<gap> gaps;
    position now;

    static bool opens(uint32_t character)
    {
        return character == '{' || character == '[';
    }
    static bool closes(uint32_t character)
    {
        return character == '}' || character == ']';
    }

    /* Returns the blanks that are guessed to stand between the last character and this one. Before the first time, these
     * are a blank after a colon or a comma. */
    std::string blanks(const position &at, uint32_t before) const
    {
        if (!at.line.empty() && at.can_begin_line(before)) {
            const std::string inside = opens(at.last) ? at.indent + at.unit : at.indent;
            return at.line + (closes(before) ? inside.substr(0, inside.size() - std::min(inside.size(), at.unit.size()))
                                             : inside);
        }
        const gap *found = nullptr;
        for (const gap &g : gaps) {
            const bool is_same = g.after == at.last && g.before == before;
            found = is_same || (found == nullptr && g.after == at.last) ? &g : found;
        }
        return found != nullptr ? found->blanks : at.last == ':' || at.last == ',' ? " " : "";
    }

    void remember(uint32_t before)
    {
        for (gap &g : gaps) {
            if (g.after == now.last && g.before == before) {
                g.blanks = now.run;
                return;
            }
        }
        if (gaps.size() < GAPS_MAX) {
            gaps.push_back({now.last, before, now.run});
        }
    }
};

#endif
