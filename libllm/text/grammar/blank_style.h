/* blank_style.h: remembers the blanks that an answer has written where its grammar leaves the choice, as in JSON. A model
 * keeps its style: it writes {"a": 1, "b": 2} or one member per line. So the blanks between two characters are guessed to
 * be those that stood between these characters the last time. One object per answer. */
#ifndef LLM_BLANK_STYLE_H
#define LLM_BLANK_STYLE_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

class blank_style {
  public:
    static bool is_blank(uint32_t character)
    {
        return character == ' ' || character == '\n' || character == '\t' || character == '\r';
    }

    /* Adds a blank that the grammar leaves to the answer. */
    void add_blank(char blank)
    {
        run += blank;
    }

    /* Adds any other character. Remembers the blanks before it, or that there are none if `is_choice`: there could be
     * some. */
    void add(uint32_t character, bool is_choice)
    {
        if (is_choice || !run.empty()) {
            remember(character);
        }
        last = character;
        run.clear();
    }

    /* Returns the next of the blanks that are guessed to stand before this character, or 0 if it follows at once. Before
     * the first time, these are a blank after a colon or a comma. */
    char next_blank(uint32_t before) const
    {
        const std::string *all = nullptr;
        for (const gap &g : gaps) {
            all = g.after == last && g.before == before ? &g.blanks : all;
        }
        if (all == nullptr) {
            return run.empty() && (last == ':' || last == ',') ? ' ' : '\0';
        }
        return run.size() < all->size() && all->compare(0, run.size(), run) == 0 ? (*all)[run.size()] : '\0';
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

    void remember(uint32_t before)
    {
        if (run.size() > BLANKS_MAX) {
            return;
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
