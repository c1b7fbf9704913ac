/* automaton.h: sets of texts as deterministic automata over Unicode characters. JSON schema puts several conditions on
 * one text (a pattern, a length, a format, names that are taken); as automata they can be intersected and complemented,
 * which GBNF cannot write. {"pattern": "^a", "maxLength": 3, "not": {"const": "ab"}} is one product of three automata,
 * and rules.h writes its states as rules, one for each. The functions are pure: any thread may call them.
 *
 * A product of two automata may have as many states as both numbers multiplied, and a deterministic automaton may need
 * two to the power of n states for an expression of n characters. A stranger chooses the schema, so what combines or
 * merges states throws grammar_beyond where a result would have more than AUTOMATON_STATES_MAX states, or the budget is
 * spent. What lists texts is linear in the document and never refused: an open object excludes its declared names from
 * the undeclared ones also where no work is left, else {"more": 1, "a": 1} would be accepted where `a` has to be
 * null. */
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
        uint32_t low, high, to; /* the characters from low to high, both included, lead to the state `to` */
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

/* BOTH: texts that a and b accept. EITHER: texts that one of them accepts. FIRST_ONLY: texts that a accepts and b does
 * not. */
enum class automaton_operation { BOTH, EITHER, FIRST_ONLY };

automaton automaton_of(automaton_operation operation, const automaton &a, const automaton &b, work_budget &budget);
automaton automaton_of_any();

/* The automata of texts are trees, whose equal states stay apart. The texts are UTF-8, else grammar_fault is thrown. */
automaton automaton_of_texts(const std::vector<std::string> &texts, work_budget &budget);
automaton automaton_of_other_texts(const std::vector<std::string> &texts, work_budget &budget); /* all but these */

/* Returns the texts that can stand before `close` so that the text with it has `close` at its end and nowhere before:
 * an argument between tags ends at the first closing tag that the model writes. `close` is not empty. */
automaton automaton_of_text_before(const std::string &close);

/* Returns the texts of `least` to `most` characters; a `most` of SIZE_MAX is no limit. Each length is a state of its
 * own, so that lengths of AUTOMATON_STATES_MAX and more throw grammar_beyond. */
automaton automaton_of_length(size_t least, size_t most);

/* Returns the automaton of the same texts without states that lead to no end, and without equal ones. */
automaton automaton_reduced(const automaton &a, work_budget &budget);

#endif
