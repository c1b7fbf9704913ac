/* chat_operation.cpp: the cost of each operation of jinja. A cost is an upper bound of the work of llama.cpp's code. If
 * possible, it is computed from the sizes of the operands, because computing the cost must not take as long as the
 * operation. Products saturate at the largest number instead of wrapping around, because otherwise "x" * 2^62 would be
 * cheap. */
#include "text/template/chat_operation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>

#include "text/template/chat_budget.h"

namespace {

using jinja::is_val;
using jinja::value;
using values = std::vector<value>;

constexpr uint64_t COPIED_PER_STEP = 16384; /* bytes that are moved or compared in the time of a step */
constexpr uint64_t REFERENCE_BYTES = 16;    /* bytes of a list item, which is a reference to a value */
constexpr uint64_t VALUE_BYTES = sizeof(jinja::value_int_t) + 16; /* bytes of a new value, and of the list item that
                                                                   * refers to it */
constexpr uint64_t LOOKUP_COMPARISONS = 32; /* bound on the comparisons with names of members until a member is found */
constexpr int64_t INDENT_MAX = 64, WIDTH_MAX = 1024, RANGE_MAX = 1 << 24;

/* Returns a * b, or the largest number if the product overflows. */
uint64_t product(uint64_t a, uint64_t b)
{
    return a != 0 && b > std::numeric_limits<uint64_t>::max() / a ? std::numeric_limits<uint64_t>::max() : a * b;
}

chat_budget &budget()
{
    return chat_budget::current();
}

void spend_copies(uint64_t n_times, uint64_t n_bytes)
{
    budget().spend(product(n_times, n_bytes) / COPIED_PER_STEP);
}

bool is_container(const value &v)
{
    return v != nullptr && (!v->val_arr.empty() || !v->val_obj.empty());
}

bool is_text(const value &v)
{
    return v != nullptr && is_val<jinja::value_string>(v);
}

uint64_t length(const value &v)
{
    return v == nullptr ? 0 : v->val_str.length();
}

uint64_t size(const value &v)
{
    return v == nullptr ? 0 : v->val_arr.size() + v->val_obj.size();
}

/* Returns an argument by its name or its position, as jinja looks it up. Positions do not count the input of the
 * operation: position 0 is the first argument after the input. Returns NULL if the argument is missing. */
value argument(const values &all, const std::string &key, size_t place)
{
    for (const value &one : all) {
        const auto *named = jinja::cast_val<jinja::value_kwarg>(one);
        if (named != nullptr && named->key == key) {
            return named->val;
        }
    }
    return place < all.size() && !is_val<jinja::value_kwarg>(all[place]) ? all[place] : nullptr;
}

void weigh_deep(const value &v)
{
    if (is_container(v) || (v != nullptr && is_val<jinja::value_kwarg>(v))) {
        budget().weigh(v);
    }
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

/* Returns the number of occurrences of `part` in `text`. Charges the search to the budget (chat_budget.h). */
uint64_t count(const std::string &text, const std::string &part)
{
    uint64_t n = 0;
    spend_copies(text.size(), std::min<uint64_t>(part.size(), text.size()));
    for (size_t at = 0; !part.empty() && (at = text.find(part, at)) != std::string::npos; at += part.size()) {
        n++;
    }
    return n;
}

/* jinja's split and replace move the rest of the text at every match. So each match is charged for half of the text. */
void of_split(const value &input, const values &arguments)
{
    const value by = argument(arguments, "", 0);
    const uint64_t n = count(input->val_str.str(), by == nullptr ? " " : by->val_str.str());
    spend_copies(n, length(input) / 2);
    budget().produce(product(n, VALUE_BYTES) + length(input));
}

void of_replace(const value &input, const values &arguments)
{
    const value from = argument(arguments, "", 0), to = argument(arguments, "", 1);
    if (from == nullptr || to == nullptr) {
        return;
    }
    const uint64_t n = length(from) == 0 ? length(input) + 1 : count(input->val_str.str(), from->val_str.str());
    spend_copies(length(from) == length(to) || length(from) == 0 ? 0 : n,
                 length(input) / 2 + product(n, length(to)) / 2);
    budget().produce(product(n, length(to)) + length(input));
}

/* indent() makes each line longer by `width`, which is a number of blanks or a text. */
void of_indent(const value &input, const values &arguments)
{
    const value width = argument(arguments, "width", 0);
    uint64_t n_each = 4;
    if (width != nullptr && is_val<jinja::value_int>(width)) {
        if (width->val_int < 0 || width->val_int > WIDTH_MAX) {
            throw std::runtime_error("indent() by " + std::to_string(width->val_int));
        }
        n_each = static_cast<uint64_t>(width->val_int);
    } else if (is_text(width)) {
        n_each = length(width);
    }
    const std::string text = input->val_str.str();
    const uint64_t n_lines = static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n')) + 2;
    budget().produce(product(n_lines, n_each) + text.size());
}

void of_strip(const value &input, const values &arguments)
{
    const value characters = argument(arguments, "chars", 0);
    const uint64_t n_parts = input->val_str.parts.size();
    spend_copies(n_parts, product(n_parts, sizeof(jinja::string_part)));
    spend_copies(length(input), length(characters) * 16);
}

/* tojson() can write each part of the value on a line of its own, indented by the depth of the part. */
void of_tojson(const value &input, const values &arguments)
{
    const value indent = argument(arguments, "indent", 1), separators = argument(arguments, "separators", 2);
    const value_weight weight = budget().weigh(input);
    const int64_t n_indent = indent != nullptr && is_val<jinja::value_int>(indent) ? indent->val_int : 0;
    if (n_indent > INDENT_MAX) {
        throw std::runtime_error("tojson() with an indent of " + std::to_string(n_indent));
    }
    uint64_t n_separator = 4;
    for (size_t i = 0; separators != nullptr && i < separators->val_arr.size() && i < 2; i++) {
        n_separator += length(separators->val_arr[i]);
    }
    const uint64_t n_margin = product(static_cast<uint64_t>(std::max<int64_t>(n_indent, 0)), weight.depth + 1);
    budget().produce(weight.n_bytes + product(weight.n_nodes, n_margin + n_separator));
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

void of_join(const value &input, const values &arguments)
{
    const uint64_t n_between = length(argument(arguments, "d", 0));
    budget().weigh(input);
    budget().produce(product(size(input), n_between));
}

/* Refuses arguments of range() beyond RANGE_MAX before computing with them. So no difference overflows. */
void of_range(const values &arguments)
{
    int64_t numbers[3] = {0, 0, 1};
    for (size_t i = 0; i < arguments.size() && i < 3; i++) {
        const value &one = arguments[i];
        if (!is_val<jinja::value_int>(one) || one->val_int > RANGE_MAX || one->val_int < -RANGE_MAX) {
            throw std::runtime_error("range() takes whole numbers up to " + std::to_string(RANGE_MAX));
        }
        numbers[i] = one->val_int;
    }
    if (arguments.size() == 1) {
        std::swap(numbers[0], numbers[1]);
    }
    const int64_t span = numbers[2] > 0 ? numbers[1] - numbers[0] : numbers[0] - numbers[1];
    if (numbers[2] != 0 && span > 0) {
        const uint64_t n = static_cast<uint64_t>(span / std::abs(numbers[2]) + 1);
        budget().spend(n);
        budget().produce(product(n, VALUE_BYTES));
    }
}

enum class order { TEXT, NUMBER, NONE };

order order_of(const value &v)
{
    if (is_val<jinja::value_float>(v) && std::isnan(v->val_flt)) {
        throw std::runtime_error("a list with something that is not a number cannot be sorted");
    }
    return is_text(v)                                                     ? order::TEXT
           : is_val<jinja::value_int>(v) || is_val<jinja::value_float>(v) ? order::NUMBER
                                                                          : order::NONE;
}

/* Refuses values without a consistent order, for example NaN or values of different kinds. With such values, std::sort
 * would read beyond the list. */
void check_order(const values &items)
{
    for (const value &item : items) {
        if (order_of(item) != order_of(items.front())) {
            throw std::runtime_error("a list of different kinds of values cannot be sorted");
        }
    }
}

void of_sort(const value &input, const values &arguments)
{
    const value attribute = argument(arguments, "attribute", 2);
    values keys;
    for (const value &item : input->val_arr) {
        value undefined = jinja::mk_val<jinja::value_undefined>();
        const bool is_member = attribute != nullptr && !attribute->is_undefined();
        if (is_member && !is_val<jinja::value_object>(item)) {
            throw std::runtime_error("only objects can be sorted by an attribute");
        }
        keys.push_back(is_member ? item->at(attribute, undefined) : item);
    }
    check_order(keys);
    spend_copies(64, budget().weigh(input).n_bytes);
}

void of_dictsort(const value &input, const values &arguments)
{
    const value by = argument(arguments, "by", 1);
    const bool is_by_value = is_text(by) && by->val_str.str() == "value";
    values keys;
    for (const auto &[key, item] : input->val_obj) {
        keys.push_back(is_by_value ? item : key);
    }
    check_order(keys);
    spend_copies(64, budget().weigh(input).n_bytes);
}

/* Refuses 0 and -1, because 1 % 0 and INT64_MIN % -1 end the process. */
void check_divisor(const value &divisor)
{
    if (divisor != nullptr && (divisor->val_int == 0 || divisor->val_int == -1)) {
        throw std::runtime_error("divisibleby() takes no " + std::to_string(divisor->val_int));
    }
}

/* select and similar filters apply a test to every item, and pass their last argument to the test. */
void of_select(const value &input, const values &arguments)
{
    for (const value &one : arguments) {
        if (is_text(one) && one->val_str.str() == "divisibleby") {
            check_divisor(is_val<jinja::value_int>(arguments.back()) ? arguments.back() : nullptr);
        }
    }
    const value_weight weight = arguments.empty() ? value_weight{} : budget().weigh(arguments.back());
    budget().spend(product(size(input), 1 + weight.n_nodes));
    spend_copies(size(input), weight.n_bytes);
}

/* Charges an operation to the budget. Used for operations whose work depends on the length of a list, but not on the
 * sizes of its items. */
void of_list(const value &input, const values &)
{
    budget().spend(size(input) / 4);
    budget().produce(product(size(input), REFERENCE_BYTES));
}

void of_items(const value &input, const values &)
{
    budget().spend(size(input) / 4);
    budget().produce(product(size(input), VALUE_BYTES));
}

void of_map(const value &input, const values &arguments)
{
    of_list(input, arguments);
    for (const value &one : arguments) {
        weigh_deep(one);
    }
}

void of_nothing(const value &, const values &) {}

void of_append(const value &input, const values &arguments)
{
    for (const value &one : arguments) {
        chat_operation_insert(input, one);
    }
}

/* dict() searches all keys for each key, so the square of their number is charged. */
void of_dict(const values &arguments)
{
    for (const value &one : arguments) {
        weigh_deep(one);
        spend_copies(size(one), product(size(one), VALUE_BYTES));
    }
}

using operation = void (*)(const value &, const values &);

/* For each operation, the function that charges the operation to the budget (chat_operation.h). One table is for
 * operations on texts, the other for operations on lists and objects. An operation that is not listed processes its
 * input once, and is charged for the size of the input. */
const std::map<std::string, operation> ON_TEXTS = {
    {"split", of_split}, {"rsplit", of_split}, {"replace", of_replace}, {"indent", of_indent}, {"strip", of_strip},
    {"trim", of_strip},  {"lstrip", of_strip}, {"rstrip", of_strip},    {"tojson", of_tojson},
};
const std::map<std::string, operation> ON_CONTAINERS = {
    {"length", of_nothing},  {"count", of_nothing},     {"first", of_nothing},     {"last", of_nothing},
    {"default", of_nothing}, {"d", of_nothing},         {"get", of_map},           {"list", of_list},
    {"reverse", of_list},    {"slice", of_list},        {"pop", of_list},          {"keys", of_list},
    {"values", of_list},     {"items", of_items},       {"map", of_map},           {"select", of_select},
    {"reject", of_select},   {"selectattr", of_select}, {"rejectattr", of_select}, {"join", of_join},
    {"sort", of_sort},       {"append", of_append},     {"tojson", of_tojson},     {"dictsort", of_dictsort},
};

} // namespace

void chat_operation_insert(const value &target, const value &item)
{
    budget().spend(size(target) / 64);
    budget().produce(2 * VALUE_BYTES);
    if (is_container(item) || is_val<jinja::value_func>(item) || is_val<jinja::value_array>(item) ||
        is_val<jinja::value_object>(item)) {
        budget().link();
        budget().weigh(item, target.get());
    }
}

/* The sum of two lists only copies references. All other operations can process everything in both sides. Examples are
 * comparisons, and ~, which writes both sides as text. So both sides are weighed (chat_budget::weigh). */
void chat_operation_binary(const std::string &op, const value &left, const value &right)
{
    if (op == "+" && is_val<jinja::value_array>(left) && is_val<jinja::value_array>(right)) {
        of_list(left, {});
        of_list(right, {});
        return;
    }
    weigh_deep(left);
    if ((op == "in" || op == "not in") && is_val<jinja::value_object>(right)) { /* finds a member by its name */
        spend_copies(LOOKUP_COMPARISONS, length(left));
        return;
    }
    weigh_deep(right);
    if (op == "*") {
        const value &text = is_text(left) ? left : right, &times = is_text(left) ? right : left;
        if (is_text(text) && is_val<jinja::value_int>(times) && times->val_int > 0) {
            const uint64_t n = static_cast<uint64_t>(times->val_int);
            budget().spend(n);
            budget().produce(product(n, length(text) + text->val_str.parts.size() * sizeof(jinja::string_part)));
        }
    } else if (op == "in" || op == "not in") {
        spend_copies(length(left), length(right));
        budget().spend(product(is_container(left) ? budget().weigh(left).n_nodes : 1, size(right)) / 4);
        spend_copies(size(right), length(left));
    } else if (op == "+" || op == "~") { /* chat_guard.cpp counts the resulting text */
        spend_copies(2, length(left) + length(right));
    } else {
        budget().produce(length(left) + length(right));
    }
}

/* For an operation in neither table (ON_TEXTS, ON_CONTAINERS), the sizes of its input and its arguments are charged. */
void chat_operation_call(const std::string &name, const value &input, const values &arguments)
{
    if (input == nullptr) {
        if (name == "range") {
            of_range(arguments);
        } else if (name == "dict" || name == "namespace") {
            of_dict(arguments);
        } else if (name == "tojson" && !arguments.empty()) {
            of_tojson(arguments[0], values(arguments.begin() + 1, arguments.end()));
        } else if (name.rfind("test_is_", 0) == 0 && !arguments.empty()) {
            chat_operation_test(name.substr(8), arguments[0], values(arguments.begin() + 1, arguments.end()));
        } else {
            std::for_each(arguments.begin(), arguments.end(), weigh_deep);
        }
        return;
    }
    const bool is_list = is_val<jinja::value_array>(input) || is_val<jinja::value_object>(input);
    const auto &table = is_list ? ON_CONTAINERS : ON_TEXTS;
    const auto known = table.find(name);
    if (known != table.end() && (is_list || is_text(input) || name == "tojson")) {
        known->second(input, arguments);
        return;
    }
    weigh_deep(input);
    if (name == "replace" && !input->is_undefined()) { /* jinja converts the input to text first */
        of_replace(jinja::mk_val<jinja::value_string>(input->as_string()), arguments);
    }
    budget().produce(2 * length(input));
    std::for_each(arguments.begin(), arguments.end(), weigh_deep);
}

void chat_operation_test(const std::string &name, const value &input, const values &arguments)
{
    if (name == "divisibleby") {
        check_divisor(arguments.empty() ? nullptr : arguments[0]);
    } else if (name == "in" && !arguments.empty()) {
        chat_operation_binary("in", input, arguments[0]);
    }
    budget().produce(is_container(input) ? 0 : length(input));
    std::for_each(arguments.begin(), arguments.end(), weigh_deep);
}
