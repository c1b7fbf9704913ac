#include "text/chat/chat_given.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <string>

namespace {

using jinja::is_val;
using jinja::value;

const char *const ROLES[] = {"system", "developer", "user", "assistant", "tool", "function"};

/* Limits on all conversations of a template together. A conversation of 60,000 tokens with 60 tools takes 5 MB. */
constexpr size_t CONVERSATIONS_MAX = 32, BYTES_MAX = 64 << 20;

/* Smaller conversations are not kept, because they are rendered in a millisecond. */
constexpr size_t BYTES_MIN = 64 << 10;

constexpr size_t SHIFT_MAX = 4; /* how many system messages more one of two lists can have */

/* Some templates build control words around the role ("<|" + role + "|>"). If the role were marked as the client's
 * text, these words would not become control tokens. So the well-known roles count as the template's own text. Any
 * other role counts as the client's text. */
void trust_role(const value &message)
{
    const std::string role = message->at("role")->as_string().str();
    if (std::find(std::begin(ROLES), std::end(ROLES), role) != std::end(ROLES)) {
        message->insert(jinja::mk_val<jinja::value_string>("role"), jinja::mk_val<jinja::value_string>(role));
    }
}

/* Returns whether the value was made of the same JSON. */
bool is_of(const value &one, const common_json &json);

bool is_of_object(const value &one, const common_json &json)
{
    const auto &members = one->as_ordered_object();
    if (members.size() != json.size()) {
        return false;
    }
    size_t i = 0;
    for (const auto &[name, item] : json.items()) {
        if (members[i].first->val_str.str() != name || !is_of(members[i].second, item)) {
            return false;
        }
        i++;
    }
    return true;
}

bool is_of_array(const value &one, const common_json &json)
{
    const std::vector<value> &items = one->as_array();
    if (items.size() != json.size()) {
        return false;
    }
    for (size_t i = 0; i < items.size(); i++) {
        if (!is_of(items[i], json.at(i))) {
            return false;
        }
    }
    return true;
}

bool is_of(const value &one, const common_json &json)
{
    if (json.is_object()) {
        return is_val<jinja::value_object>(one) && is_of_object(one, json);
    }
    if (json.is_array()) {
        return is_val<jinja::value_array>(one) && is_of_array(one, json);
    }
    if (json.is_string()) {
        return is_val<jinja::value_string>(one) && one->val_str.str() == json.get<std::string>();
    }
    const value other = jinja::value_from_json(json, true);
    return one->kinds == other->kinds &&
           (json.is_null() || (json.is_number_float() ? memcmp(&one->val_flt, &other->val_flt, sizeof one->val_flt) == 0
                                                      : one->val_int == other->val_int));
}

size_t weight_of(const value &one)
{
    size_t n =
        sizeof(jinja::value_object_t) + one->val_str.length() + one->val_str.parts.size() * sizeof(jinja::string_part);
    for (const value &item : one->val_arr) {
        n += sizeof(value) + weight_of(item);
    }
    for (const auto &[name, item] : one->val_obj) {
        n += 2 * sizeof(value) + weight_of(name) + weight_of(item);
    }
    return n;
}

} // namespace

void chat_given::list::add(value one)
{
    weights.push_back(weight_of(one));
    values.push_back(std::move(one));
}

size_t chat_given::list::bytes() const
{
    return std::accumulate(weights.begin(), weights.end(), size_t{0});
}

void chat_given::clear()
{
    *this = chat_given();
}

size_t chat_given::match(const common_json &messages_)
{
    const std::vector<value> &old = of_messages.values;
    is_matched = true;
    n_same = 0;
    for (size_t shift = 0; shift <= SHIFT_MAX && n_same == 0; shift++) {
        for (const bool is_old : {true, false}) {
            old_begin = is_old ? shift : 0;
            new_begin = is_old ? 0 : shift;
            n_same = 0;
            while (old_begin + n_same < old.size() && new_begin + n_same < messages_.size() &&
                   is_of(old[old_begin + n_same], messages_.at(new_begin + n_same))) {
                n_same++;
            }
            if (n_same > 0) {
                break;
            }
        }
    }
    return n_same;
}

void chat_given::make(const common_json &messages_, const common_json &tools_)
{
    if (is_made) {
        return;
    }
    if (!is_matched) {
        match(messages_);
    }
    list before = std::exchange(of_messages, list());
    for (size_t i = 0; i < messages_.size(); i++) {
        const bool is_same = i >= new_begin && i < new_begin + n_same;
        if (is_same) {
            of_messages.values.push_back(before.values[i - new_begin + old_begin]);
            of_messages.weights.push_back(before.weights[i - new_begin + old_begin]);
            continue;
        }
        value message = jinja::value_from_json(messages_.at(i), true);
        trust_role(message);
        of_messages.add(std::move(message));
    }
    before = std::exchange(of_tools, list());
    all_tools = nullptr;
    if (!tools_.is_null()) {
        for (size_t i = 0; i < tools_.size(); i++) {
            const bool is_same = i < before.values.size() && is_of(before.values[i], tools_.at(i));
            of_tools.add(is_same ? before.values[i] : jinja::value_from_json(tools_.at(i), true));
        }
        all_tools = jinja::mk_val<jinja::value_array>(of_tools.values);
        all_tools->is_given = true;
    }
    is_made = true;
}

std::unique_ptr<chat_given> chat_conversations::take(int64_t owner, const common_json &messages)
{
    const std::lock_guard<std::mutex> hold(lock);
    auto best = entries.end();
    size_t n_best = 0;
    for (auto at = entries.begin(); at != entries.end(); ++at) {
        const size_t n = at->owner == owner ? at->given->match(messages) : 0;
        if (n > n_best && 2 * n >= at->given->messages().size()) {
            best = at;
            n_best = n;
        }
    }
    if (best == entries.end()) {
        return std::make_unique<chat_given>();
    }
    std::unique_ptr<chat_given> out = std::move(best->given);
    n_bytes -= best->n_bytes;
    entries.erase(best);
    return out;
}

void chat_conversations::give(int64_t owner, std::unique_ptr<chat_given> given)
{
    given->memo.drop_unused();
    given->renew();
    const size_t n = given->bytes();
    std::list<entry> dropped; /* freed without the lock */
    if (n < BYTES_MIN || n > BYTES_MAX) {
        return;
    }
    const std::lock_guard<std::mutex> hold(lock);
    n_bytes += n;
    entries.push_front({owner, n, std::move(given)});
    while (entries.size() > CONVERSATIONS_MAX || n_bytes > BYTES_MAX) {
        n_bytes -= entries.back().n_bytes;
        dropped.splice(dropped.begin(), entries, std::prev(entries.end()));
    }
}
