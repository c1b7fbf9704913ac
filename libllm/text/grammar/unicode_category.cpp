#include "text/grammar/unicode_category.h"

#include <algorithm>
#include <iterator>

#include "text/grammar/unicode_table.h"

namespace {

constexpr char LONG_NAMES[][2][24] = {
    {"Letter", "L"},
    {"Cased_Letter", "LC"},
    {"Uppercase_Letter", "Lu"},
    {"Lowercase_Letter", "Ll"},
    {"Titlecase_Letter", "Lt"},
    {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"},
    {"Mark", "M"},
    {"Combining_Mark", "M"},
    {"Nonspacing_Mark", "Mn"},
    {"Spacing_Mark", "Mc"},
    {"Enclosing_Mark", "Me"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"digit", "Nd"},
    {"Letter_Number", "Nl"},
    {"Other_Number", "No"},
    {"Punctuation", "P"},
    {"punct", "P"},
    {"Connector_Punctuation", "Pc"},
    {"Dash_Punctuation", "Pd"},
    {"Open_Punctuation", "Ps"},
    {"Close_Punctuation", "Pe"},
    {"Initial_Punctuation", "Pi"},
    {"Final_Punctuation", "Pf"},
    {"Other_Punctuation", "Po"},
    {"Symbol", "S"},
    {"Math_Symbol", "Sm"},
    {"Currency_Symbol", "Sc"},
    {"Modifier_Symbol", "Sk"},
    {"Other_Symbol", "So"},
    {"Separator", "Z"},
    {"Space_Separator", "Zs"},
    {"Line_Separator", "Zl"},
    {"Paragraph_Separator", "Zp"},
    {"Other", "C"},
    {"Control", "Cc"},
    {"cntrl", "Cc"},
    {"Format", "Cf"},
    {"Surrogate", "Cs"},
    {"Private_Use", "Co"},
    {"Unassigned", "Cn"},
};

bool is_in(const char (&category)[3], const std::string &name)
{
    if (std::string("Cs") == category) { /* halves of surrogate pairs, which UTF-8 text never contains */
        return false;
    }
    const bool is_cased = category[0] == 'L' && (category[1] == 'u' || category[1] == 'l' || category[1] == 't');
    return name == category || (name.size() == 1 && name[0] == category[0]) || (name == "LC" && is_cased);
}

} // namespace

bool unicode_category(const std::string &name, character_set &out)
{
    const auto known =
        std::find_if(std::begin(LONG_NAMES), std::end(LONG_NAMES), [&](const auto &names) { return name == names[0]; });
    const std::string sought = known != std::end(LONG_NAMES) ? (*known)[1] : name;
    const size_t n = std::size(UNICODE_RUNS);
    out.clear();
    for (size_t i = 0; i < n; i++) {
        const uint32_t low = UNICODE_RUNS[i] >> 5, next = i + 1 < n ? UNICODE_RUNS[i + 1] >> 5 : CHARACTER_LAST + 1;
        if (!is_in(UNICODE_CATEGORIES[UNICODE_RUNS[i] & 31], sought)) {
            continue;
        }
        if (!out.empty() && out.back().high + 1 == low) {
            out.back().high = next - 1;
        } else {
            out.push_back({low, next - 1});
        }
    }
    return !out.empty();
}
