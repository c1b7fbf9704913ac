#include "text/chat/chat_history.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "text/template/json_size.h"
#include "text/template/chat_budget.h"

std::string chat_text_of(const common_json &content)
{
    if (!content.is_array()) {
        return content.is_string() ? content.get<std::string>() : std::string();
    }
    std::string text;
    for (const common_json &part : content) {
        text += (text.empty() ? "" : "\n") + part.value("text", "");
    }
    return text;
}

bool chat_has_calls(const common_json &message)
{
    return message.contains("tool_calls") && message.at("tool_calls").is_array() && !message.at("tool_calls").empty();
}

bool chat_read_json(const std::string &text, common_json *out)
{
    const json_size size = json_size_of(text, CHAT_DEPTH_MAX);
    if (size.is_too_deep || size.n_comparisons > JSON_COMPARISONS_MAX) {
        return false;
    }
    chat_budget::current().compare(size.n_comparisons);
    try {
        *out = common_json::parse(text);
        return true;
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception &) {
        return false;
    }
}

namespace {

constexpr size_t ID_CHARACTERS = 9; /* Mistral's templates refuse other ids */

bool is_plain_id(const std::string &id)
{
    return id.size() == ID_CHARACTERS &&
           std::all_of(id.begin(), id.end(), [](unsigned char c) { return isalnum(c) != 0 && c < 0x80; });
}

/* Makes the new id of a tool call from a hash of the old id. If the new ids were consecutive numbers, they would change
 * when the client removes an earlier message. From the first changed id on, the prompt would have to be prefilled
 * again. Nine characters of 62 kinds hold 53 of the hash's 64 bits. */
std::string plain_id(const std::string &id)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (const char c : id) {
        hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
    }
    std::string out;
    for (size_t i = 0; i < ID_CHARACTERS; i++, hash /= sizeof digits - 1) {
        out += digits[hash % (sizeof digits - 1)];
    }
    return out;
}

void visit_id(common_json &owner, const char *name, const std::function<std::string(const std::string &)> &rename)
{
    if (owner.is_object() && owner.contains(name) && owner.at(name).is_string()) {
        owner[name] = rename(owner.at(name).get<std::string>());
    }
}

void visit_ids(common_json &messages, const std::function<std::string(const std::string &)> &rename)
{
    for (common_json &message : messages) {
        visit_id(message, "tool_call_id", rename);
        if (!message.contains("tool_calls") || !message.at("tool_calls").is_array()) {
            continue;
        }
        for (common_json &call : message["tool_calls"]) {
            visit_id(call, "id", rename);
        }
    }
}

std::string written_call(const common_json &call)
{
    const common_json function = call.value("function", common_json::object());
    common_json arguments = function.value("arguments", common_json::object());
    const std::string text = arguments.is_string() ? arguments.get<std::string>() : arguments.dump_safe();
    return "<tool_call>\n{\"name\": " + common_json::make(function.value("name", "")).dump_safe() +
           ", \"arguments\": " + (text.empty() ? "{}" : text) + "}\n</tool_call>";
}

std::string joined(const std::string &one, const std::string &other, const char *between)
{
    return one + (one.empty() || other.empty() ? "" : between) + other;
}

common_json text_message(const char *role, const std::string &content)
{
    common_json out = common_json::object();
    out["role"] = role;
    out["content"] = content;
    return out;
}

/* Returns the index of the tool call to which a result belongs. This is the call with the result's id. If no call has
 * this id, returns the first call that has no result yet. If all calls have results, returns the last call. Ids can be
 * missing, because a client or a template may have left them out. */
size_t call_of(const common_json &result, const common_json &calls, const std::vector<common_json> &results)
{
    const std::string id = result.value("tool_call_id", "");
    for (size_t k = 0; k < calls.size() && !id.empty(); k++) {
        if (calls.at(k).value("id", "") == id) {
            return k;
        }
    }
    const auto empty =
        std::find_if(results.begin(), results.end() - 1, [](const common_json &some) { return some.empty(); });
    return static_cast<size_t>(empty - results.begin());
}

} // namespace

bool has_ids(const common_json &messages)
{
    const auto is_odd = [](const common_json &owner, const char *name) {
        return owner.is_object() && owner.contains(name) && owner.at(name).is_string() &&
               !is_plain_id(owner.at(name).get<std::string>());
    };
    for (const common_json &message : messages) {
        if (is_odd(message, "tool_call_id")) {
            return true;
        }
        if (!chat_has_calls(message)) {
            continue;
        }
        for (const common_json &call : message.at("tool_calls")) {
            if (is_odd(call, "id")) {
                return true;
            }
        }
    }
    return false;
}

void rename_ids(common_json &messages)
{
    visit_ids(messages, [](const std::string &id) { return is_plain_id(id) ? id : plain_id(id); });
}

bool has_parallel_calls(const common_json &messages)
{
    for (const common_json &message : messages) {
        if (chat_has_calls(message) && message.at("tool_calls").size() > 1) {
            return true;
        }
    }
    return false;
}

/* The first tool call of a message keeps the text and the reasoning of the message. Later calls become messages without
 * text. Each result that follows the message is put after its call, whatever the order of the results was. */
common_json with_calls_in_turns(const common_json &messages)
{
    common_json out = common_json::array();
    for (size_t i = 0; i < messages.size(); i++) {
        if (!chat_has_calls(messages.at(i)) || messages.at(i).at("tool_calls").size() == 1) {
            out.push_back(messages.at(i));
            continue;
        }
        const common_json calls = messages.at(i).at("tool_calls");
        std::vector<common_json> results(calls.size(), common_json::array());
        common_json turn = messages.at(i);
        for (; i + 1 < messages.size() && messages.at(i + 1).at("role") == "tool"; i++) {
            results[call_of(messages.at(i + 1), calls, results)].push_back(messages.at(i + 1));
        }
        for (size_t k = 0; k < calls.size(); k++) {
            turn["tool_calls"] = common_json::array();
            turn["tool_calls"].push_back(calls.at(k));
            out.push_back(turn);
            out.insert(results[k]);
            turn = text_message("assistant", "");
        }
    }
    return out;
}

common_json with_written_calls(const common_json &messages)
{
    common_json out = common_json::array();
    bool is_after_result = false; /* the last message of `out` has tool results. If the next message is a result or the
                                   * user's, its text is added to this last message */
    for (const common_json &message : messages) {
        const bool is_result = message.at("role") == "tool" || message.at("role") == "function";
        std::string text = chat_text_of(message.value("content", common_json()));
        if (is_result) {
            text = "<tool_response>\n" + text + "\n</tool_response>";
        }
        if (is_after_result && (is_result || message.at("role") == "user")) {
            out.back()["content"] = joined(out.back().at("content").get<std::string>(), text, "\n");
            continue;
        }
        is_after_result = is_result;
        if (is_result) {
            out.push_back(text_message("user", text));
        } else if (message.contains("tool_calls") && message.at("tool_calls").is_array()) {
            for (const common_json &call : message.at("tool_calls")) {
                text = joined(text, written_call(call), "\n");
            }
            out.push_back(text_message("assistant", text));
        } else {
            out.push_back(message);
        }
    }
    return out;
}

common_json tools_for_template(const common_json &given, const common_json &tools)
{
    common_json out = common_json::array();
    for (size_t i = 0; i < tools.size(); i++) {
        const common_json deferred = given.at(i).at("function").value("is_deferred", common_json());
        if (!deferred.is_boolean() || !deferred.get<bool>()) {
            out.push_back(tools.at(i));
        }
    }
    return out.size() == tools.size() ? tools : out.empty() ? common_json() : out;
}

/* with_written_calls writes earlier calls in the syntax that this function describes. So the model sees its earlier
 * calls in the syntax in which it should write new calls. */
void describe_tools(const common_json &tools, bool lists_tools, bool shows_form, common_json &messages)
{
    std::string text;
    if (lists_tools) {
        text = "You can call these functions:\n<tools>\n";
        for (const common_json &tool : tools) {
            text += tool.at("function").dump_safe() + "\n";
        }
        text += "</tools>";
    }
    if (shows_form) {
        text = joined(text,
                      "To call a function, answer with its name and its arguments as JSON, between these marks:\n"
                      "<tool_call>\n{\"name\": \"function-name\", \"arguments\": {}}\n</tool_call>\n"
                      "Its result will come between <tool_response> and </tool_response>.",
                      "\n\n");
    }
    if (!messages.empty() && messages.front().at("role") == "system") {
        const std::string before = chat_text_of(messages.front().value("content", common_json()));
        messages.front() = text_message("system", joined(before, text, "\n\n"));
        return;
    }
    common_json out = common_json::array();
    out.push_back(text_message("system", text));
    out.insert(messages);
    messages = out;
}
