/* scalars.cpp: writes GBNF for the strings and numbers of a shape. A shape is the result of merging schemas, for one
 * combination of their alternatives (shape.h). */
#include <algorithm>
#include <cmath>

#include "text/schema/formats.h"
#include "text/schema/number.h"
#include "text/schema/writer.h"

namespace {

constexpr size_t MULTIPLES_MAX = 512; /* limit on the multiples (multipleOf) that are listed one by one */
constexpr size_t LENGTH_MAX = 40;     /* largest minLength or maxLength that is enforced in Gemma's syntax */
constexpr size_t REMAINDERS_MAX = 128, EXCLUDED_MAX = 32;

} // namespace

/* ---- strings ----------------------------------------------------------------------------------------------------- */

void writer::exclude_texts(const shape &s, automaton *all, bool *has_any)
{
    std::vector<std::string> texts;
    for (const schema_json *one : s.excluded) {
        if (one->is_string()) {
            texts.push_back(one->get<std::string>());
        }
    }
    if (!texts.empty()) {
        *all = automaton_of(automaton_operation::FIRST_ONLY, *all, automaton_of_texts(texts, budget), budget);
        *has_any = true;
    }
}

/* Stores in *all the strings that satisfy all string conditions of the shape: patterns, formats, excluded strings, and
 * lengths. Returns false if the shape has no string conditions except lengths. The caller then writes the length as a
 * repetition, because an automaton would have a state for each length. If one condition would make the automaton too
 * large, only this condition is ignored. */
bool writer::conditions_of(const shape &s, const node &n, automaton *all)
{
    bool has_any = false;
    const auto add = [&](const automaton &one, bool is_negated) {
        *all = has_any || is_negated
                   ? automaton_of(is_negated ? automaton_operation::FIRST_ONLY : automaton_operation::BOTH, *all, one,
                                  budget)
                   : one;
        has_any = true;
    };
    *all = automaton_of_any();
    for (const auto &[pattern, is_negated] : s.patterns) {
        std::string why;
        const automaton *found = patterns.find(*pattern, &why);
        if (found == nullptr) {
            shapes.give_up(*n.front().schema, "the keyword pattern: " + why);
            continue;
        }
        try {
            add(*found, is_negated);
        } catch (const grammar_beyond &e) {
            shapes.give_up(*n.front().schema, std::string("the keyword pattern: ") + e.what());
        }
    }
    for (const std::string *format : s.formats) {
        const std::shared_ptr<const automaton> found = format_automaton(*format);
        if (found == nullptr && format_is_standard(*format)) {
            shapes.give_up(*n.front().schema, "the keyword format: \"" + *format + "\" cannot be enforced");
        }
        try {
            if (found != nullptr) {
                add(*found, false);
            }
        } catch (const grammar_beyond &e) {
            shapes.give_up(*n.front().schema, std::string("the keyword format: ") + e.what());
        }
    }
    try {
        exclude_texts(s, all, &has_any);
    } catch (const grammar_beyond &e) {
        shapes.give_up(*n.front().schema, std::string("texts that are excluded: ") + e.what());
    }
    const bool is_any = all->states.size() == 1 && all->states[0].is_end && all->states[0].ways.size() == 1 &&
                        all->states[0].ways[0].low == 0 && all->states[0].ways[0].high == CHARACTER_LAST;
    if (!has_any || is_any) {
        return false;
    }
    if (s.length_least > 0 || s.length_most != SIZE_MAX) {
        try {
            *all = automaton_of(automaton_operation::BOTH, *all, automaton_of_length(s.length_least, s.length_most),
                                budget);
        } catch (const grammar_beyond &e) {
            shapes.give_up(*n.front().schema, std::string("a length together with pattern or format: ") + e.what());
        }
    }
    return true;
}

std::optional<automaton> writer::texts_of(const node &n)
{
    automaton all;
    /* copied, because the loop adds entries to the cache to which the result of shapes_of refers */
    const std::vector<shape> each = n.empty() ? std::vector<shape>(1) : shapes.shapes_of(n);
    for (const shape &s : each) {
        automaton part;
        if (s.values.has_value()) {
            std::vector<std::string> texts;
            for (const schema_json *one : *s.values) {
                if (one->is_string() && !is_excluded(s, *one) && shapes.is_kept(*one, n)) {
                    texts.push_back(one->get<std::string>());
                }
            }
            part = automaton_of_texts(texts, budget);
        } else if ((s.types & json_type::STRING) != 0 && !conditions_of(s, n, &part)) {
            if (s.length_least == 0 && s.length_most == SIZE_MAX) {
                return std::nullopt;
            }
            part = automaton_of_length(s.length_least, s.length_most);
        }
        all = automaton_of(automaton_operation::EITHER, all, part, budget);
    }
    return all;
}

std::string writer::text(const shape &s, const node &n)
{
    if (s.length_least > s.length_most) {
        return "";
    }
    automaton all;
    if (conditions_of(s, n, &all)) {
        return all.is_empty() ? "" : out.text_value(all);
    }
    if (s.length_least == 0 && s.length_most == SIZE_MAX) {
        return "string";
    }
    if (out.syntax() == value_syntax::GEMMA) {
        /* In Gemma's syntax, minLength and maxLength need an automaton. Its number of states is the limit times the
         * length of the closing delimiter. So a few schemas of long strings would use up the limit on the size of the
         * grammar. */
        const bool is_short = (s.length_most == SIZE_MAX ? s.length_least : s.length_most) <= LENGTH_MAX;
        return is_short ? out.text_value(automaton_of_length(s.length_least, s.length_most)) : "string";
    }
    const std::string characters = out.repeated("char", s.length_least, s.length_most);
    return "\"\\\"\" " + characters + (characters.empty() ? "" : " ") + "\"\\\"\"";
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

namespace {

/* Returns the tightest of the bounds. If two bounds are equal, the exclusive one is tighter. */
std::optional<number_bound> tightest(const std::vector<shape::bound> &bounds, bool is_least)
{
    const shape::bound *found = nullptr;
    for (const shape::bound &one : bounds) {
        const bool is_tighter = found == nullptr ||
                                (is_least ? *one.value > *found->value : *one.value < *found->value) ||
                                (*one.value == *found->value && one.is_exclusive);
        found = is_tighter ? &one : found;
    }
    return found != nullptr ? std::optional<number_bound>({found->value->dump(), found->is_exclusive}) : std::nullopt;
}

double value_of(const std::optional<number_bound> &bound, double none)
{
    return bound.has_value() ? std::strtod(bound->text.c_str(), nullptr) : none;
}

} // namespace

std::string writer::bounded_number(const shape &s, const node &n)
{
    const std::optional<number_bound> least = tightest(s.least, true), most = tightest(s.most, false);
    if (!least.has_value() && !most.has_value()) {
        return s.is_integer ? "integer" : "number";
    }
    std::optional<std::string> found;
    try {
        found = number_rule(least, most, s.is_integer);
    } catch (const grammar_fault &e) {
        shapes.give_up(*n.front().schema, e.what());
        return s.is_integer ? "integer" : "number";
    }
    if (!found.has_value()) {
        return "";
    }
    if (s.is_integer) {
        return out.add(*found);
    }
    /* Programs write numbers close to zero, or far from it, with an exponent, such as 1e-05 and 1e+16. number_rule
     * writes no exponents. A regular expression cannot compare digits and an exponent together with a bound. So
     * exponents are allowed for numbers below 1e-4 only if the bounds allow all of these numbers. The same holds for
     * numbers of 1e16 and more. */
    const double low = value_of(least, -HUGE_VAL), high = value_of(most, HUGE_VAL);
    std::string all = *found;
    all += low <= 0 && high >= 1e-4 ? " | tiny" : "";
    all += high >= 0 && low <= -1e-4 ? " | \"-\" tiny" : "";
    all += !most.has_value() && low <= 1e16 ? " | huge" : "";
    all += !least.has_value() && high >= -1e16 ? " | \"-\" huge" : "";
    return out.add(all);
}

namespace {

/* Returns n if `step` (the value of multipleOf) is 10 to the power of -n. Multiples of such a step have at most n
 * digits after the point. Returns SIZE_MAX for any other step. */
size_t places_of(double step)
{
    for (size_t n = 1; n <= 15; n++) {
        if (step == std::strtod(("1e-" + std::to_string(n)).c_str(), nullptr)) {
            return n;
        }
    }
    return SIZE_MAX;
}

} // namespace

/* Returns GBNF for the numbers that multipleOf allows, or "" if multipleOf cannot be enforced. The digits that are
 * already written form a number. There is a rule for each possible remainder of this number divided by the step. A
 * number is a multiple if its last digit leads to the rule of remainder 0. To enforce bounds as well, each of these
 * rules would have to be combined with the digits of the bounds. So bounds are enforced only in two cases: the
 * multiples between them can be listed, or the only bound is a minimum of 0. If the step is a power of ten below one,
 * only the number of digits after the point is limited. */
std::string writer::multiples(const shape &s, const node &n)
{
    const double step = s.multiples.front()->get<double>();
    const std::optional<number_bound> least = tightest(s.least, true), most = tightest(s.most, false);
    const double low = value_of(least, -HUGE_VAL), high = value_of(most, HUGE_VAL);
    if (s.multiples.size() > 1 || !(step > 0)) {
        return "";
    }
    const bool is_whole = std::floor(step) == step;
    if (step == 1 || (s.is_integer && places_of(step) != SIZE_MAX)) {
        shape whole = s;
        whole.is_integer = true;
        return bounded_number(whole, n);
    }
    if (least.has_value() && most.has_value() && (high - low) / step <= static_cast<double>(MULTIPLES_MAX) &&
        is_whole && std::fabs(low) < 1e15 && std::fabs(high) < 1e15) {
        std::string all;
        for (double i = std::ceil(low / step); i * step <= high; i++) {
            const bool is_out = (least->is_beyond && i * step <= low) || (most->is_beyond && i * step >= high);
            all +=
                is_out ? "" : (all.empty() ? "\"" : " | \"") + std::to_string(static_cast<long long>(i * step)) + "\"";
        }
        return all.empty() ? "" : out.add(all);
    }
    const bool is_from_zero = !most.has_value() && least.has_value() && low == 0 && !least->is_beyond;
    if (most.has_value() || (least.has_value() && !is_from_zero)) {
        return "";
    }
    const std::string sign = is_from_zero ? "" : "\"-\"? ";
    if (const size_t places = places_of(step); places != SIZE_MAX) {
        return sign + "whole (\".\" [0-9]{1," + std::to_string(places) + "})?";
    }
    if (!is_whole || step > static_cast<double>(REMAINDERS_MAX)) {
        return "";
    }
    const unsigned modulus = static_cast<unsigned>(step);
    std::vector<std::string> names; /* rule names by the remainder of the digits so far */
    for (unsigned i = 0; i < modulus; i++) {
        names.push_back(out.reserve());
    }
    const auto ways = [&](unsigned remainder, char first) {
        std::string all;
        for (char digit = first; digit <= '9'; digit++) {
            all += (all.empty() ? "\"" : " | \"") + std::string(1, digit) + "\" " +
                   names[(remainder * 10 + static_cast<unsigned>(digit - '0')) % modulus];
        }
        return all;
    };
    for (unsigned i = 0; i < modulus; i++) {
        out.define(names[i], ways(i, '0') + (i == 0 ? " | \"\"" : ""));
    }
    return sign + out.add("\"0\" | " + ways(0, '1'));
}

/* Returns GBNF for the numbers that the shape allows and `excluded` does not contain. `excluded` is in ascending order.
 * Its n numbers divide all numbers into n + 1 ranges with exclusive bounds. */
std::string writer::number_but(const shape &s, const std::vector<const schema_json *> &excluded, const node &n)
{
    std::string all;
    shape between = s;
    between.excluded.clear();
    for (size_t i = 0; i <= excluded.size(); i++) {
        between.least = s.least;
        between.most = s.most;
        if (i > 0) {
            between.least.push_back({excluded[i - 1], true});
        }
        if (i < excluded.size()) {
            between.most.push_back({excluded[i], true});
        }
        const std::string one = bounded_number(between, n);
        all += (all.empty() || one.empty() ? "" : " | ") + one;
    }
    return all;
}

std::string writer::number(const shape &s, const node &n)
{
    std::vector<const schema_json *> excluded;
    for (const schema_json *one : s.excluded) {
        if (one->is_number()) {
            excluded.push_back(one);
        }
    }
    std::sort(excluded.begin(), excluded.end(), [](const auto *a, const auto *b) { return *a < *b; });
    if (!excluded.empty() && excluded.size() <= EXCLUDED_MAX && s.multiples.empty()) {
        return number_but(s, excluded, n);
    }
    if (!excluded.empty()) {
        shapes.give_up(*n.front().schema, "numbers that are excluded by not cannot be enforced");
    }
    if (s.multiples.empty()) {
        return bounded_number(s, n);
    }
    const std::string found = multiples(s, n);
    if (!found.empty()) {
        return found;
    }
    shapes.give_up(*n.front().schema, "the keyword multipleOf cannot be enforced here");
    return bounded_number(s, n);
}
