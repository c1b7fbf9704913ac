/* rules.h: the rules of the GBNF that a schema is compiled to. A rule is looked up by its body, so that equal rules
 * are written once, however often a schema repeats itself. Their total bytes are limited. Owned by the thread that
 * compiles. */
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
 * without escapes, names without quotes, no blanks. llama.cpp's parser of that family reads it. */
enum class value_syntax { JSON, GEMMA };

class rules {
  public:
    /* `spent` counts the work of a rule but never stops it half-way: an unfinished rule would break the grammar. */
    rules(size_t most_bytes, work_budget &spent, value_syntax how_values_are_written = value_syntax::JSON)
        : written_as(how_values_are_written), bytes_max(most_bytes), budget(spent)
    {}

    value_syntax syntax() const
    {
        return written_as;
    }

    std::string add(const std::string &body); /* returns the name of the rule */
    /* returns a name for a rule that is defined later, since it refers to itself */
    std::string reserve();
    void define(const std::string &name, const std::string &body);

    /* Returns elements for one of these texts with its quotes, in the syntax of the values. "": none of them can be
     * written. */
    std::string text_value(const automaton &texts);

    /* Returns the name of a member and the text between it and the value. An opening quote of the name is left out.
     * "": the name cannot be written. `names_with_colon` does the same for any of these names. */
    std::string name_with_colon(const std::string &name) const;
    std::string names_with_colon(const automaton &names);

    /* Returns the rule of these texts within a JSON string, from the first character to the closing quote. */
    std::string add_texts(const automaton &texts);

    /* Returns the rule of any text within a JSON string that begins with one of these characters. */
    const std::string &add_begun(const character_set &set);

    /* A set of characters within a JSON string: those written plainly and those written as escapes. "": none. */
    struct written_set {
        std::string plain, escaped;
    };
    const written_set &written(const character_set &set);

    /* Returns the set, or the name of a rule of it: the set of all letters takes 10 KB and is part of many rules. */
    std::string set_element(const std::string &set);

    /* Returns a rule of one of these texts without quotes and escapes, followed by `close`. */
    std::string add_bare_texts(const automaton &texts, const std::string &close);

    /* Returns `unit` (one element of GBNF) repeated; "" for zero times. SIZE_MAX as `most` means no limit. */
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

    /* Automata repeat a few sets in thousands of states, and writing a set takes longer than everything else in a
     * state. */
    struct known_set {
        written_set written;
        std::string begun; /* name of the rule; "": not added yet */
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
