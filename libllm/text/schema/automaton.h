/* automaton.h: sets of texts as deterministic automata over Unicode characters. A JSON schema can put several
 * conditions on one text (pattern, length, format, excluded names). Automata can be intersected and complemented, which
 * GBNF cannot express. {"pattern": "^a", "maxLength": 3, "not": {"const": "ab"}} is one product of three automata, and
 * rules.h writes each state of the product as a rule. The functions are pure: any thread can call them.
 *
 * A product of two automata can have as many states as both counts multiplied, and an expression of n characters can
 * need two to the power of n states. Clients choose the schema. So the operations that combine or merge states throw
 * grammar_beyond if the result would have more than AUTOMATON_STATES_MAX states or if the budget is spent. Building
 * an automaton from a list of texts is linear in the document and never refused, because an open object must exclude
 * its declared names from the undeclared names even without budget. Otherwise {"more": 1, "a": 1} would be accepted
 * although `a` has to be null. */
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
        uint32_t low, high, to; /* a transition: the characters from low to high, both included, lead to the state
                                 * `to` */
    };
    struct state {
        std::vector<way> ways; /* ascending, disjoint; a character that is in no way is rejected */
        bool is_end = false;
    };
    std::vector<state> states; /* state 0 is the start; from each state an end can be reached. Empty if no text is
                                * accepted */

    bool is_empty() const
    {
        return states.empty();
    }
    bool accepts(const std::string &text) const; /* `text` is UTF-8 */
};

/* BOTH: texts that a and b accept. EITHER: texts that a or b accepts. FIRST_ONLY: texts that a accepts and b
 * rejects. */
enum class automaton_operation { BOTH, EITHER, FIRST_ONLY };

automaton automaton_of(automaton_operation operation, const automaton &a, const automaton &b, work_budget &budget);
automaton automaton_of_any();

/* Builds a tree of the texts, in which equal states are not merged. Throws grammar_fault if a text is not UTF-8. */
automaton automaton_of_texts(const std::vector<std::string> &texts, work_budget &budget);
/* Returns the automaton of all other texts. */
automaton automaton_of_other_texts(const std::vector<std::string> &texts, work_budget &budget);

/* Returns the texts x for which the first occurrence of `close` in x + `close` is at the end. An argument between tags
 * must be such a text, because it ends at the first closing tag that the model writes. `close` must not be empty. */
automaton automaton_of_text_before(const std::string &close);

/* Returns the texts of `least` to `most` characters. SIZE_MAX as `most` means no limit. Each length is a state of
 * its own, so lengths of AUTOMATON_STATES_MAX and more throw grammar_beyond. */
automaton automaton_of_length(size_t least, size_t most);

/* Returns an automaton that accepts the same texts, without equal states and without states that lead to no end. */
automaton automaton_reduced(const automaton &a, work_budget &budget);

#endif
