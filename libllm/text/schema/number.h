/* number.h: from bounds to the GBNF of the numbers between them, as JSON writes them without an exponent. The bounds
 * are texts and are compared digit by digit: a double has 53 bits, which is too few for integers of 19 digits. Pure. */
#ifndef LLM_SCHEMA_NUMBER_H
#define LLM_SCHEMA_NUMBER_H

#include <optional>
#include <string>

struct number_bound {
    std::string text; /* a number in JSON */
    bool is_beyond;   /* the bound itself is excluded */
};

/* Returns one element of GBNF that refers to the rules `fraction` (which may be empty) and `more` (digits, or none).
 * nullopt: no number is between the bounds. The numbers have at most 40 digits before the point. Throws grammar_fault
 * where a bound has more, or more than 40 digits behind the point. */
std::optional<std::string> number_rule(const std::optional<number_bound> &least,
                                       const std::optional<number_bound> &most, bool is_integer);

#endif
