/* number.h: writes GBNF for the JSON numbers between two bounds. The GBNF allows only numbers without exponents. The
 * bounds are decimal strings and are compared digit by digit, because a double's 53 bits are too few for integers of 19
 * digits. The function is pure. */
#ifndef LLM_SCHEMA_NUMBER_H
#define LLM_SCHEMA_NUMBER_H

#include <optional>
#include <string>

struct number_bound {
    std::string text; /* a number in JSON */
    bool is_beyond;   /* the bound is exclusive */
};

/* Returns one element of GBNF for the numbers between the bounds, or nullopt if there is no such number. The element
 * can refer to two rules that the grammar must contain. The rule `fraction` matches a point and digits, or nothing. The
 * rule `more` matches any number of digits, or nothing. The numbers have at most 40 digits before the point. Throws
 * grammar_fault if a bound has more than 40 digits before or after the point. */
std::optional<std::string> number_rule(const std::optional<number_bound> &least,
                                       const std::optional<number_bound> &most, bool is_integer);

#endif
