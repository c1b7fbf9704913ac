/* rules.h: the GBNF that a schema is compiled to, rule by rule. Equal rules are written once; what all of them may be together is
 * bounded. */
#ifndef LLM_SCHEMA_RULES_H
#define LLM_SCHEMA_RULES_H

#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/schema/automaton.h"

/* The grammar is larger than it may be. */
struct grammar_too_large : grammar_fault {
    using grammar_fault::grammar_fault;
};

class rules {
  public:
    /* The work is counted; the rules that are being written are finished even where nothing of it is left. */
    rules(size_t most_bytes, work_budget &spent) : bytes_max(most_bytes), budget(spent) {}

    std::string add(const std::string &body); /* the name of the rule with this body */
    std::string reserve();                    /* a name to be defined later, for rules that refer to themselves */
    void define(const std::string &name, const std::string &body);

    /* A text within a JSON string, from its first character to the closing quote. */
    std::string add_texts(const automaton &texts);

    /* The rest of any text that goes on with one of these characters, within a JSON string. */
    std::string add_begun(const std::vector<grammar_range> &set);

    /* What `unit` (one element of GBNF) allows, so often; "": nothing. SIZE_MAX: without end. */
    std::string repeated(const std::string &unit, size_t least, size_t most);

    /* The rules after the mark are removed, where what they are for could not be finished: they may refer to one that was not defined. */
    struct mark {
        size_t n_text, n_names, n_bytes, n_known;
    };
    mark now() const
    {
        return {text.size(), n_names, n_bytes, order.size()};
    }
    void forget(const mark &since);

    /* With the rules that any JSON value needs. */
    std::string grammar(const std::string &root) const;

  private:
    size_t bytes_max, n_names = 0, n_bytes = 0;
    work_budget &budget;
    std::string text;
    std::unordered_map<std::string, std::string> known;                      /* by body */
    std::vector<const std::string *> order;                                  /* bodies as they became known */
    std::map<std::vector<std::pair<uint32_t, uint32_t>>, std::string> begun; /* by the ranges of the set */

    std::string exactly(const std::string &unit, size_t n);
    std::string at_most(const std::string &unit, size_t n);
    std::string power(const std::string &unit, size_t n);
};

#endif
