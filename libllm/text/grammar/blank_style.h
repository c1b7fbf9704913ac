/* blank_style.h: guesses the blanks (spaces, tabs, line ends) in structured output. In JSON, the grammar lets the model
 * choose the blanks between two characters. A model keeps its style: it writes {"a": 1, "b": 2}, or one member per
 * line. So this class remembers the blanks between each pair of characters, and guesses the same blanks when the pair
 * occurs again. If the answer has one member per line, the guessed indentation follows the brackets. One object per
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

    /* A position in an answer, or in a guess of its continuation. At most BLANKS_MAX + 1 blanks are stored, so that
     * copies of a position are small. */
    struct position {
        uint32_t last = 0; /* the latest character that is not a blank between two parts of the answer */
        std::string run;   /* the blanks after `last`. BLANKS_MAX + 1 blanks stand for any longer run */
        std::string line;  /* the line end before the latest member or bracket; empty if that did not begin on a new
                            * line */
        std::string indent, unit; /* indentation of the line that follows `line`, and additional indentation inside one
                                   * more bracket */

        /* Advances by a character. `is_choice` means that the grammar allows a blank at this position. Blanks after a
         * line end are always stored, because they are the indentation of the new line. */
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

        /* Returns whether the character ends a place where blanks were allowed, and the blanks there are short enough
         * to be remembered. */
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

    /* Adds a character of the answer. position::advance explains `is_choice`. */
    void add(uint32_t character, bool is_choice)
    {
        if (now.ends_gap(character, is_choice)) {
            remember(character);
        }
        now.advance(character, is_choice);
    }

    /* Returns the position after the answer so far. The caller advances a copy of this position to guess the
     * continuation. */
    const position &at_end() const
    {
        return now;
    }

    /* Returns the next blank that is guessed at the position `at` before the character `before`. Returns 0 if no
     * further blank is guessed. */
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

    /* Returns all blanks that are guessed between the character at.last and the character `before`. If the answer has
     * not had this pair yet, the guess comes from another pair that begins with at.last. If there is none, the guess is
     * a single blank after a colon or a comma, and otherwise no blank. */
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
