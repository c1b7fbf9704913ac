/* number_grammar.h: from bounds to a rule in GBNF for the numbers between them, as JSON has them. Pure. */
#ifndef LLM_NUMBER_GRAMMAR_H
#define LLM_NUMBER_GRAMMAR_H

#include <optional>
#include <string>

struct number_bound {
    std::string text; /* a number in JSON */
    bool is_beyond;   /* it is none of them itself */
};

/* The right side of a rule; nullopt: no number is between them. Numbers have no exponent, at most 16 digits before the point and
 * some more behind it than the bounds have. Throws grammar_fault where a bound wants more: 16 before it, 40 behind it. */
std::optional<std::string> number_grammar(const std::optional<number_bound> &least,
                                          const std::optional<number_bound> &most);

#endif
