/* automaton.h: sets of texts as deterministic automata over Unicode characters. JSON schema puts several conditions on one text (a
 * pattern, a length, a format, names that are taken); as automata they can be intersected and complemented, which GBNF cannot
 * write. Pure. What combines or merges states throws grammar_beyond where a result would have more than AUTOMATON_STATES_MAX states,
 * or the budget is spent; what lists texts is linear in the document and never refused. */
#ifndef LLM_SCHEMA_AUTOMATON_H
#define LLM_SCHEMA_AUTOMATON_H

#include <cstdint>
#include <string>
#include <vector>

#include "text/grammar/character_set.h"
#include "text/schema/work_budget.h"

constexpr size_t AUTOMATON_STATES_MAX = 4096;

struct automaton {
    struct way {
        uint32_t low, high, to;
    };
    struct state {
        std::vector<way> ways; /* ascending, disjoint; a character without a way is rejected */
        bool is_end = false;
    };
    std::vector<state> states; /* 0 is the start; each one leads to an end. None: no text */

    bool is_empty() const
    {
        return states.empty();
    }
    bool accepts(const std::string &text) const; /* UTF-8 */
};

enum class automaton_operation { BOTH, EITHER, FIRST_ONLY };

automaton automaton_of(automaton_operation operation, const automaton &a, const automaton &b, work_budget &budget);
automaton automaton_of_any();
automaton automaton_of_texts(const std::vector<std::string> &texts, work_budget &budget);
automaton automaton_of_other_texts(const std::vector<std::string> &texts, work_budget &budget); /* all but these */
/* What can stand before `close` so that the text with it has `close` at its end and nowhere before. `close` is not empty. */
automaton automaton_of_text_before(const std::string &close);
automaton automaton_of_length(size_t least, size_t most); /* SIZE_MAX: any */

/* Without states that lead to no end, and without equal ones. */
automaton automaton_reduced(const automaton &a, work_budget &budget);

#endif
