/* automaton.h: sets of strings, as deterministic finite automata over Unicode characters. A JSON schema can put several
 * conditions on one string (pattern, length, format, excluded names). GBNF cannot express the intersection of such
 * conditions, nor a complement. Automata can be intersected and complemented. For example, {"pattern": "^a",
 * "maxLength": 3, "not": {"const": "ab"}} becomes one automaton, the product of three. Each state of the product
 * becomes a GBNF rule (rules.h). The functions are pure: any thread can call them.
 *
 * The product of automata with m and n states can have m * n states. A regular expression of n characters can need 2^n
 * states. Clients choose the schema, so states and work are limited. Operations that combine automata or merge states
 * throw grammar_beyond in two cases:
 * - The result would have more than AUTOMATON_STATES_MAX states.
 * - The work budget is spent.
 *
 * Building an automaton from a list of strings is never refused. The work is linear in the size of the list. The rule
 * of an object's undeclared members must exclude the declared names, even if the work budget is spent. Otherwise the
 * model could write a declared member as an undeclared one, with any value. For example, it could write {"more": 1,
 * "a": 1} although the schema demands null for `a`. */
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
        std::vector<way> ways; /* ascending, disjoint; a character without a transition is rejected */
        bool is_end = false;
    };
    std::vector<state> states; /* state 0 is the start; each state leads to an accepting state. Empty if no string is
                                * accepted */

    bool is_empty() const
    {
        return states.empty();
    }
    bool accepts(const std::string &text) const; /* `text` is UTF-8 */
};

/* BOTH: strings that a and b both accept. EITHER: strings that a or b accepts. FIRST_ONLY: strings that a accepts and b
 * rejects. */
enum class automaton_operation { BOTH, EITHER, FIRST_ONLY };

automaton automaton_of(automaton_operation operation, const automaton &a, const automaton &b, work_budget &budget);
automaton automaton_of_any();

/* Returns the automaton that accepts exactly these strings, as a prefix tree. Equal states are not merged. Throws
 * grammar_fault if a string is not UTF-8. */
automaton automaton_of_texts(const std::vector<std::string> &texts, work_budget &budget);
/* Returns the automaton that accepts all strings except these. */
automaton automaton_of_other_texts(const std::vector<std::string> &texts, work_budget &budget);

/* Returns the automaton of the strings x for which x + `close` contains `close` only at its end. An argument between
 * tags must be such a string, because the argument ends at the first closing tag that the model writes. `close` must
 * not be empty. */
automaton automaton_of_text_before(const std::string &close);

/* Returns the automaton of all strings of `least` to `most` characters. SIZE_MAX as `most` means no limit. The
 * automaton has a state for each length. The function throws grammar_beyond if a limit is AUTOMATON_STATES_MAX or
 * more. */
automaton automaton_of_length(size_t least, size_t most);

/* Returns the smallest automaton that accepts the same strings. Equivalent states are merged. States that lead to no
 * accepting state are removed. */
automaton automaton_reduced(const automaton &a, work_budget &budget);

#endif
