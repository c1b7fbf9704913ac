#include "text/chat/chat_messages.h"

#include "text/chat/chat_family.h"
#include "text/chat/chat_history.h"

namespace {

common_json as_parts(const std::string &text)
{
    common_json part = common_json::object();
    part["type"] = "text";
    part["text"] = text;
    common_json out = common_json::array();
    out.push_back(part);
    return out;
}

void fit_content(common_json &messages, const chat_template_caps &caps)
{
    for (common_json &message : messages) {
        common_json &content = message["content"]; /* a message that has only tool calls gets an empty text */
        if (content.is_null()) {
            content = "";
        }
        if (content.is_array() && !caps.supports_typed_content) {
            content = chat_text_of(content);
        } else if (content.is_string() && !caps.supports_string_content && caps.supports_typed_content) {
            content = as_parts(content.get<std::string>());
        }
    }
}

/* Parses the arguments of a tool call as a JSON object. An empty text is an empty object. */
bool read_arguments(const std::string &text, common_json *out)
{
    if (text.empty()) {
        *out = common_json::object();
        return true;
    }
    return chat_read_json(text, out) && out->is_object();
}

/* Parses the arguments of tool calls into objects, for templates that need objects. Returns the arguments of the first
 * tool call whose arguments are not a JSON object, or "". If `encloses` is true, such arguments become a member of an
 * object. A tool call with malformed arguments stays in the history. Without `encloses`, a template that needs objects
 * would refuse this turn and every later turn. */
std::string fit_arguments(common_json &messages, bool encloses)
{
    std::string unread;
    for (common_json &message : messages) {
        if (!message.contains("tool_calls")) {
            continue;
        }
        for (common_json &call : message["tool_calls"]) {
            common_json &arguments = call["function"]["arguments"];
            if (!arguments.is_string()) {
                continue;
            }
            const std::string text = arguments.get<std::string>();
            if (read_arguments(text, &arguments)) {
                continue;
            }
            unread = unread.empty() ? text : unread;
            if (encloses) {
                arguments = common_json::object();
                arguments["arguments"] = text;
            }
        }
    }
    return unread;
}

/* Adds the text of the system message to the next message, for a template without a system role. */
void fit_system(common_json &messages, const chat_template_caps &caps)
{
    if (caps.supports_system_role || messages.empty() || messages.front().at("role") != "system") {
        return;
    }
    const std::string text = chat_text_of(messages.front().at("content"));
    messages.erase(static_cast<size_t>(0));
    if (messages.empty()) {
        return;
    }
    common_json &content = messages.front()["content"];
    const std::string joined = text + "\n" + chat_text_of(content);
    content = content.is_array() ? as_parts(joined) : common_json::make(joined);
}

std::string trimmed(const std::string &text)
{
    const char *const blanks = " \t\n\v\f\r";
    const size_t begin = text.find_first_not_of(blanks);
    return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

void trim(common_chat_msg *message)
{
    message->content = trimmed(message->content);
    message->reasoning_content = trimmed(message->reasoning_content);
    for (common_chat_msg_content_part &part : message->content_parts) {
        part.text = trimmed(part.text);
    }
}

/* Returns the messages in the format in which llama.cpp passes them to templates. */
common_json usual(const common_json &messages, bool trims)
{
    common_json out = common_json::array();
    for (common_chat_msg &message : common_chat_msgs_parse_oaicompat(messages)) {
        if (trims) {
            trim(&message);
        }
        out.push_back(message.to_json_oaicompat(false));
    }
    return out;
}

} // namespace

common_json chat_messages_fit(const common_json &messages, const common_chat_template &tmpl,
                              const common_json &variables, bool encloses_arguments, std::string *unread_arguments)
{
    const chat_template_caps caps = tmpl.original_caps();
    const chat_family &family = chat_family_of(tmpl.source());
    common_json out = usual(messages, family.has(chat_family::TRIMS));
    for (common_json &message : out) {
        if (message.at("role") == "developer" && !family.has(chat_family::DEVELOPERS)) {
            message["role"] = "system";
        }
    }
    fit_content(out, caps);
    fit_system(out, caps);
    if (caps.supports_object_arguments) {
        *unread_arguments = fit_arguments(out, encloses_arguments);
    }
    if (family.change_messages != nullptr) {
        family.change_messages(out, variables);
    }
    return out;
}
