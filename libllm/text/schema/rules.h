/* rules.h: the rules of the GBNF to which a schema is compiled. A rule is looked up by its body, so that equal rules
 * are written once, however often a schema repeats itself. The bytes of all rules together are limited. Owned by the
 * thread that compiles. */
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

/* Syntax of values. GEMMA is the syntax of arguments in Gemma 4's calls, {city:<|"|>New York<|"|>,days:3}: texts
 * without escapes, names without quotes, no blanks. llama.cpp's parser of Gemma 4's calls accepts this syntax. */
enum class value_syntax { JSON, GEMMA };

class rules {
  public:
    /* `spent` counts the work of a rule but never interrupts it, because an unfinished rule would break the grammar. */
    rules(size_t most_bytes, work_budget &spent, value_syntax how_values_are_written = value_syntax::JSON)
        : written_as(how_values_are_written), bytes_max(most_bytes), budget(spent)
    {}

    value_syntax syntax() const
    {
        return written_as;
    }

    std::string add(const std::string &body); /* returns the name of the rule */
    /* returns a name for a rule that is defined later, because the rule refers to itself */
    std::string reserve();
    void define(const std::string &name, const std::string &body);

    /* Returns elements that match one of these texts with its quotes, in the syntax of the values, or "" if no text can
     * be written. */
    std::string text_value(const automaton &texts);

    /* Returns the name of a member and the text between it and the value. An opening quote of the name is left out.
     * Returns "" if the name cannot be written. `names_with_colon` matches any of several names. */
    std::string name_with_colon(const std::string &name) const;
    std::string names_with_colon(const automaton &names);

    /* Returns the rule of these texts within a JSON string, from the first character to the closing quote. */
    std::string add_texts(const automaton &texts);

    /* Returns the rule of any text within a JSON string that begins with one of these characters. */
    const std::string &add_begun(const character_set &set);

    /* Two GBNF sets for a set of characters within a JSON string: the characters written plainly and the characters
     * written as escapes; "" if there are none. */
    struct written_set {
        std::string plain, escaped;
    };
    const written_set &written(const character_set &set);

    /* Returns the set, or the name of a rule for a long set, because the set of all letters takes 10 KB and is part of
     * many rules. */
    std::string set_element(const std::string &set);

    /* Returns a rule that matches one of these texts without quotes and escapes, followed by `close`. */
    std::string add_bare_texts(const automaton &texts, const std::string &close);

    /* Returns `unit` (one element of GBNF) repeated `least` to `most` times, or "" if `most` is 0. SIZE_MAX as `most`
     * means no limit. */
    std::string repeated(const std::string &unit, size_t least, size_t most);

    /* Removes the rules added since the mark. A failed compilation leaves rules that refer to reserved names without
     * a definition, and a grammar with an undefined rule is refused as a whole. */
    struct mark {
        size_t n_text, n_names, n_bytes, n_known;
    };
    mark now() const
    {
        return {text.size(), n_names, n_bytes, order.size()};
    }
    void forget(const mark &since);

    /* Returns the whole grammar, with the rules of any JSON value. */
    std::string grammar(const std::string &root) const;

  private:
    value_syntax written_as;
    size_t bytes_max, n_names = 0, n_bytes = 0;
    work_budget &budget;
    std::string text;
    std::unordered_map<std::string, std::string> known; /* names of rules by body */
    std::vector<const std::string *> order;             /* bodies in the order they were added */

    /* Rules of sets that were written before. The states of an automaton have few different sets, and writing a set
     * takes longer than the rest of a state's rule. */
    struct known_set {
        written_set written;
        std::string begun; /* name of the rule; "" if it has not been added yet */
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
