/* rules.h: collects the GBNF rules to which a schema is compiled. A new rule is first looked up by its body. So equal
 * rules are written once, even if a schema repeats itself. The bytes of all rules together are limited. A `rules`
 * object is owned by the thread that compiles. */
#ifndef LLM_SCHEMA_RULES_H
#define LLM_SCHEMA_RULES_H

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/schema/automaton.h"

/* Thrown if the grammar exceeds its limit of bytes. */
struct grammar_too_large : grammar_fault {
    using grammar_fault::grammar_fault;
};

/* The syntax in which the model writes values. GEMMA is the syntax of arguments in the tool calls of Gemma 4. An
 * example is {city:<|"|>New York<|"|>,days:3}. Strings have no escapes, names have no quotes, and there are no blanks.
 * llama.cpp's parser of Gemma 4's tool calls accepts this syntax. */
enum class value_syntax { JSON, GEMMA };

class rules {
  public:
    /* The work of writing rules is charged to the budget `spent`. If the budget runs out, the current rule is written
     * to its end, because an unfinished rule would break the grammar. */
    rules(size_t most_bytes, work_budget &spent, value_syntax how_values_are_written = value_syntax::JSON)
        : written_as(how_values_are_written), bytes_max(most_bytes), budget(spent)
    {}

    value_syntax syntax() const
    {
        return written_as;
    }

    std::string add(const std::string &body); /* returns the name of the rule with this body */
    /* returns a name for a rule that is defined later. A rule that refers to itself needs its name before its body is
     * known */
    std::string reserve();
    void define(const std::string &name, const std::string &body);

    /* Returns GBNF that matches one of these strings with its quotes (or with Gemma's delimiters). Returns "" if the
     * syntax can express none of these strings. */
    std::string text_value(const automaton &texts);

    /* Returns GBNF that matches an object member's name and everything up to its value, such as the closing quote and
     * the colon. The opening quote of the name is left out. Returns "" if the name cannot be written.
     * `names_with_colon` does the same for a set of names. */
    std::string name_with_colon(const std::string &name) const;
    std::string names_with_colon(const automaton &names);

    /* Returns the rule that matches one of these strings in JSON, from the first character to the closing quote. */
    std::string add_texts(const automaton &texts);

    /* Returns the rule that matches any JSON string whose first character is in the set. The rule matches from that
     * character to the closing quote. */
    const std::string &add_begun(const character_set &set);

    /* How the characters of a set are written in a JSON string, as two pieces of GBNF. `plain` matches characters that
     * are written as they are. `escaped` matches characters that are written as escapes. Each piece is "" if the set
     * has no such characters. */
    struct written_set {
        std::string plain, escaped;
    };
    const written_set &written(const character_set &set);

    /* Returns a short GBNF set unchanged. For a long set, returns the name of a rule with this set. The set of all
     * letters takes 10 KB and occurs in many rules. */
    std::string set_element(const std::string &set);

    /* Returns a rule that matches one of these strings without quotes and escapes, followed by `close`. */
    std::string add_bare_texts(const automaton &texts, const std::string &close);

    /* `unit` is one element of GBNF. Returns `unit` repeated `least` to `most` times, or "" if `most` is 0. SIZE_MAX as
     * `most` means no limit. */
    std::string repeated(const std::string &unit, size_t least, size_t most);

    /* `now` returns how many rules there are. `forget` removes all rules that were added after the call of `now` that
     * returned `since`. A failed compilation leaves rules that refer to reserved but undefined names. grammar::read
     * would refuse the whole grammar because of an undefined name. */
    struct mark {
        size_t n_text, n_names, n_bytes, n_known;
    };
    mark now() const
    {
        return {text.size(), n_names, n_bytes, order.size()};
    }
    void forget(const mark &since);

    /* Returns the whole grammar, including the rules of any JSON value. `root` is its first rule. */
    std::string grammar(const std::string &root) const;

  private:
    value_syntax written_as;
    size_t bytes_max, n_names = 0, n_bytes = 0;
    work_budget &budget;
    std::string text;
    std::unordered_map<std::string, std::string> known; /* for the body of each rule, the rule's name */
    std::vector<const std::string *> order;             /* bodies of the rules, in the order in which the rules were
                                                         * added */

    /* Character sets that were written before. An automaton's transitions have few different sets. Writing a set takes
     * longer than writing everything else in a state's rule. */
    struct known_set {
        written_set written;
        std::string begun; /* rule of add_begun for this set. "" if the rule was not added yet */
    };
    struct set_order {
        size_t operator()(const character_set &set) const;
        bool operator()(const character_set &a, const character_set &b) const;
    };
    std::unordered_map<character_set, known_set, set_order, set_order> sets;
    known_set &known_set_of(const character_set &set);

    std::string exactly(const std::string &unit, size_t n);
    std::string at_most(const std::string &unit, size_t n);
    std::string power(const std::string &unit, size_t n);
};

#endif
