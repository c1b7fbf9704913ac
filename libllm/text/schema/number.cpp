#include "text/schema/number.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "text/grammar/grammar.h"

namespace {

constexpr size_t WHOLE_MAX = 40, FRACTION_MAX = 40;
/* names of rules that the GBNF of this file uses. rules.cpp defines these rules */
const char *const FRACTION = "fraction", *const MORE = "more";

/* A bound without its sign. A negative number is written as a minus sign and the number without sign. So the code below
 * handles only numbers from zero on. */
struct magnitude {
    std::string whole;    /* digits before the point, without leading zeros. "" for zero */
    std::string fraction; /* digits after the point, without trailing zeros */
    bool is_beyond = false;

    bool is_zero() const
    {
        return whole.empty() && fraction.empty();
    }
};

int compared(const magnitude &a, const magnitude &b)
{
    if (a.whole.size() != b.whole.size()) {
        return a.whole.size() < b.whole.size() ? -1 : 1;
    }
    const int whole = a.whole.compare(b.whole);
    /* the fractions are compared digit by digit. If one fraction begins with the other fraction, the longer fraction is
     * larger */
    return whole != 0 ? whole : a.fraction.compare(b.fraction);
}

magnitude power_of_ten(size_t n)
{
    return {"1" + std::string(n, '0'), "", false};
}

/* Returns the bound without its sign and exponent. The exponent moves the decimal point. For example, in 1.5e3 the
 * exponent moves the point from after the 1st digit to after the 4th. The missing digits become zeros: 1500. */
magnitude magnitude_of(const number_bound &bound)
{
    const std::string &text = bound.text;
    const size_t from = text[0] == '-' ? 1 : 0;
    const size_t exponent_at = std::min(text.find_first_of("eE"), text.size());
    const size_t point_at = std::min(text.find('.'), exponent_at);
    std::string digits = text.substr(from, point_at - from);
    long point = static_cast<long>(digits.size());
    if (point_at < exponent_at) {
        digits += text.substr(point_at + 1, exponent_at - point_at - 1);
    }
    if (exponent_at < text.size()) {
        point += strtol(text.c_str() + exponent_at + 1, nullptr, 10);
    }
    const size_t first = std::min(digits.find_first_not_of('0'), digits.size());
    /* number of digits before the point. If n_before is negative, there are -n_before zeros between the point and the
     * first other digit */
    const long n_before = point - static_cast<long>(first);
    digits.erase(0, first);
    digits.erase(digits.find_last_not_of('0') + 1);
    if (digits.empty()) {
        return {"", "", bound.is_beyond};
    }
    const size_t n_whole = n_before > 0 ? static_cast<size_t>(n_before) : 0;
    magnitude out;
    out.is_beyond = bound.is_beyond;
    out.whole = digits.substr(0, n_whole);
    out.whole.resize(n_whole, '0');
    out.fraction = std::string(n_before < 0 ? static_cast<size_t>(-n_before) : 0, '0');
    out.fraction += n_whole < digits.size() ? digits.substr(n_whole) : "";
    if (out.fraction.size() > FRACTION_MAX) {
        throw grammar_fault("the bound " + text + " has more than " + std::to_string(FRACTION_MAX) +
                            " digits after the point");
    }
    return out;
}

std::string digit_between(char least, char most)
{
    return least == most ? std::string("\"") + least + "\"" : std::string("[") + least + "-" + most + "]";
}

std::string either(const std::vector<std::string> &alternatives)
{
    std::string out = alternatives[0];
    for (size_t i = 1; i < alternatives.size(); i++) {
        out += " | " + alternatives[i];
    }
    return alternatives.size() > 1 ? "(" + out + ")" : out;
}

/* Writes GBNF for the numbers of one length between two bounds. The length is the number of digits before the point,
 * `n_digits`. Numbers of equal length are ordered like strings, so a bound can be applied digit by digit, beginning
 * with the first. Each length is written separately, because a longer number is always larger than a shorter one,
 * whatever its digits are.
 *
 * The functions below have a parameter `low`. `low` is true if the digits so far equal those of the lower bound. In
 * this case the lower bound limits the next digit. `high` is the same for the upper bound. After a digit that differs
 * from the bound's digit, the bound no longer matters. The numbers from 137 to 254, for example, are:
 * - 1, then 3, then 7 to 9
 * - 1, then 4 to 9, then any digit
 * - 2, then 0 to 4, then any digit
 * - 2, then 5, then 0 to 4
 * So the GBNF has a few alternatives per digit, instead of one per number. */
class of_length {
  public:
    /* `most` is NULL if all numbers of this length are below the upper bound. */
    of_length(size_t n_digits, const magnitude &least, const magnitude *most, bool only_integers)
        : is_integer(only_integers), n_whole(n_digits), is_beyond_least(least.is_beyond),
          is_beyond_most(most != nullptr && most->is_beyond), has_high(most != nullptr)
    {
        const size_t n = n_digits + std::max(least.fraction.size(), has_high ? most->fraction.size() : 0);
        least_digits = padded(least, n);
        most_digits = has_high ? padded(*most, n) : "";
    }

    std::optional<std::string> grammar() const
    {
        return rest(0, binds_low(0), has_high);
    }

  private:
    bool is_integer;
    size_t n_whole;
    std::string least_digits, most_digits; /* the digits of both bounds, padded with zeros to one length */
    bool is_beyond_least, is_beyond_most, has_high;

    std::string padded(const magnitude &m, size_t n) const
    {
        std::string digits = std::string(n_whole - m.whole.size(), '0') + m.whole + m.fraction;
        digits.resize(n, '0');
        return digits;
    }

    static bool are_zeros(const std::string &digits, size_t at)
    {
        return at >= digits.size() || digits.find_first_not_of('0', at) == std::string::npos;
    }

    /* Returns whether the lower bound limits the digits from position `at` on, if all digits before `at` equal the
     * bound's digits. If the bound is inclusive and has only zeros from `at` on, the bound does not limit the digits,
     * because every continuation is large enough. */
    bool binds_low(size_t at) const
    {
        return is_beyond_least || !are_zeros(least_digits, at);
    }

    /* Returns GBNF for arbitrary digits from position `at` up to the point, and an arbitrary fraction. */
    std::string anything(size_t at) const
    {
        if (at > n_whole) {
            return MORE;
        }
        const size_t n = n_whole - at;
        return (n > 0 ? "[0-9]{" + std::to_string(n) + "} " : "") + (is_integer ? "" : FRACTION);
    }

    /* Returns GBNF for everything that can follow the first `at` digits. Returns nullopt if no number within the bounds
     * begins with these digits. */
    std::optional<std::string> rest(size_t at, bool low, bool high) const
    {
        if (!low && !high) {
            return anything(at);
        }
        if (is_integer && at == n_whole) { /* for integers, both bounds are inclusive integers (whole_within) */
            return low ? std::nullopt : std::optional<std::string>("");
        }
        std::optional<std::string> digits =
            at < least_digits.size() ? digits_within(at, low, high) : digits_after(low, high);
        if (at < n_whole) {
            return digits;
        }
        if (digits.has_value() && at == n_whole) {
            digits = "\".\" " + *digits;
        }
        const bool may_end = !low && (!is_beyond_most || !are_zeros(most_digits, at));
        if (!may_end) {
            return digits;
        }
        return digits.has_value() ? "(" + *digits + ")?" : "";
    }

    std::optional<std::string> digits_within(size_t at, bool low, bool high) const
    {
        const bool low_after = low && binds_low(at + 1);
        char first = low ? least_digits[at] : '0', last = high ? most_digits[at] : '9';
        std::vector<std::string> found;
        const auto add = [&](char digit, bool with_low, bool with_high) {
            const std::optional<std::string> more = rest(at + 1, with_low, with_high);
            if (more.has_value()) {
                found.push_back(digit_between(digit, digit) + (more->empty() ? "" : " " + *more));
            }
        };
        if (low && high && first == last) {
            add(first, low_after, true);
            return found.empty() ? std::nullopt : std::optional(found[0]);
        }
        if (low_after) {
            add(first++, true, false);
        }
        if (high) {
            add(last--, false, true);
        }
        if (first <= last) {
            found.push_back(digit_between(first, last) + " " + anything(at + 1));
        }
        return found.empty() ? std::nullopt : std::optional(either(found));
    }

    /* Returns GBNF for the digits after the last digit of the bounds. All digits so far equal those of a bound. If this
     * is the lower bound, the bound is exclusive (binds_low), and the number needs another digit that is not zero. If
     * this is the upper bound, only zeros can follow. At most 16 zeros are allowed. */
    std::optional<std::string> digits_after(bool low, bool high) const
    {
        if (low) {
            return high ? std::nullopt : std::optional<std::string>(R"("0"{0,16} [1-9] )" + std::string(MORE));
        }
        return is_beyond_most ? std::nullopt : std::optional<std::string>(R"("0"{1,16})");
    }
};

/* Returns GBNF for all numbers with n_least to n_most digits (both included) before the point. */
std::string of_any(size_t n_least, size_t n_most, bool is_integer)
{
    return "[1-9] [0-9]{" + std::to_string(n_least - 1) + "," + std::to_string(n_most - 1) + "} " +
           (is_integer ? "" : FRACTION);
}

/* Returns GBNF alternatives for the numbers between the bounds. A length is the number of digits before the point. Each
 * length in which a bound excludes some numbers has one alternative. All other lengths that the bounds allow share one
 * alternative. The list is empty if no number is between the bounds. */
std::vector<std::string> between(const magnitude &least, const magnitude &said_most, bool is_integer)
{
    const magnitude limit = {power_of_ten(WHOLE_MAX).whole, "", true};
    const magnitude &most = compared(said_most, limit) < 0 ? said_most : limit;
    if (least.whole.size() > WHOLE_MAX) {
        throw grammar_fault("a bound of numbers has more than " + std::to_string(WHOLE_MAX) +
                            " digits before the point");
    }
    std::vector<std::string> found;
    const int order = compared(least, most);
    if (order > 0 || (order == 0 && (least.is_beyond || most.is_beyond))) {
        return found;
    }
    size_t n_any_from = 0, n_any_to = 0; /* the lengths in which no bound excludes a number */
    for (size_t n = 1; n <= WHOLE_MAX; n++) {
        const magnitude shortest = n > 1 ? power_of_ten(n - 1) : magnitude();
        const magnitude beyond = power_of_ten(n);
        if (compared(least, beyond) >= 0) {
            continue;
        }
        const int at_most = compared(most, shortest);
        if (at_most < 0 || (at_most == 0 && most.is_beyond)) {
            break;
        }
        const bool has_low = compared(least, shortest) > 0 || (compared(least, shortest) == 0 && least.is_beyond);
        const bool has_high = compared(most, beyond) < 0;
        if (n > 1 && !has_low && !has_high) {
            n_any_from = n_any_from == 0 ? n : n_any_from;
            n_any_to = n;
            continue;
        }
        const std::optional<std::string> one =
            of_length(n, has_low ? least : shortest, has_high ? &most : nullptr, is_integer).grammar();
        if (one.has_value()) {
            found.push_back(*one);
        }
    }
    if (n_any_from > 0) {
        found.push_back(of_any(n_any_from, n_any_to, is_integer));
    }
    return found;
}

bool is_negative(const std::optional<number_bound> &bound)
{
    return bound.has_value() && bound->text[0] == '-' && !magnitude_of(*bound).is_zero();
}

/* Returns the whole number plus one. Numbers are strings of digits and not C integers, because a bound has up to 40
 * digits. */
std::string next_whole(std::string digits)
{
    size_t i = digits.size();
    while (i > 0 && digits[i - 1] == '9') {
        digits[--i] = '0';
    }
    if (i == 0) {
        return "1" + digits;
    }
    digits[i - 1]++;
    return digits;
}

std::string previous_whole(std::string digits)
{
    size_t i = digits.size();
    while (i > 0 && digits[i - 1] == '0') {
        digits[--i] = '9';
    }
    digits[i - 1]--;
    digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
    return digits;
}

/* Replaces a bound by the nearest integer that satisfies it, as an inclusive bound. For example, a lower bound of
 * 2.5 becomes 3. An exclusive upper bound of 3 becomes 2. Returns nullopt if no integer from zero on satisfies the
 * bound. */
std::optional<magnitude> whole_within(const magnitude &m, bool is_least)
{
    magnitude out = {m.whole, "", false};
    if (is_least) {
        out.whole = m.fraction.empty() && !m.is_beyond ? m.whole : next_whole(m.whole);
    } else if (m.fraction.empty() && m.is_beyond) {
        if (m.whole.empty()) {
            return std::nullopt;
        }
        out.whole = previous_whole(m.whole);
    }
    return out;
}

std::vector<std::string> within(const magnitude &least, const magnitude &most, bool is_integer)
{
    if (!is_integer) {
        return between(least, most, false);
    }
    const std::optional<magnitude> low = whole_within(least, true), high = whole_within(most, false);
    return low.has_value() && high.has_value() ? between(*low, *high, true) : std::vector<std::string>();
}

} // namespace

std::optional<std::string> number_rule(const std::optional<number_bound> &least,
                                       const std::optional<number_bound> &most, bool is_integer)
{
    const magnitude zero;
    magnitude endless = power_of_ten(WHOLE_MAX);
    endless.is_beyond = true;
    const bool is_all_negative =
        is_negative(most) || (most.has_value() && most->is_beyond && magnitude_of(*most).is_zero());
    const bool is_none_negative = least.has_value() && !is_negative(least);
    std::vector<std::string> found;
    if (!is_all_negative) {
        found = within(is_none_negative ? magnitude_of(*least) : zero, most.has_value() ? magnitude_of(*most) : endless,
                       is_integer);
    }
    if (!is_none_negative) {
        const bool is_bounded = most.has_value() && (is_all_negative || magnitude_of(*most).is_zero());
        const std::vector<std::string> negative = within(
            is_bounded ? magnitude_of(*most) : zero, least.has_value() ? magnitude_of(*least) : endless, is_integer);
        if (!negative.empty()) {
            found.push_back("\"-\" " + either(negative));
        }
    }
    return found.empty() ? std::nullopt : std::optional(either(found));
}
