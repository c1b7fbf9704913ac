#include "text/chat_request.h"

#include <algorithm>
#include <new>

#include "text/chat_history.h"
#include "text/constraint_grammar.h"
#include "text/grammar.h"
#include "text/json_depth.h"

namespace {

constexpr size_t VARIABLES_MAX = 64; /* every scope of a template copies them */
constexpr size_t DEPTH_MAX = 128;    /* reading and rendering recurse once per level of nesting */

/* What a template's variables may not be called: the request or the model decides these. */
const char *const RESERVED[] = {"messages", "tools", "bos_token", "eos_token", "add_generation_prompt"};
const char *const MEMBERS[] = {"messages",
                               "tools",
                               "tool_choice",
                               "parallel_tool_calls",
                               "constraint",
                               "continues",
                               "after",
                               "add_generation_prompt",
                               "reasoning_apart",
                               "chat_template_kwargs",
                               "thinking_tokens_max",
                               "follows_thinking"};

template <size_t N> bool is_in(const char *const (&table)[N], const std::string &name)
{
    return std::find(std::begin(table), std::end(table), name) != std::end(table);
}

common_json parse(const std::string &given)
{
    if (json_is_deeper(given, DEPTH_MAX)) {
        throw chat_invalid("the request nests deeper than " + std::to_string(DEPTH_MAX) + " levels");
    }
    common_json request;
    try {
        request = common_json::parse(given);
    } catch (const std::exception &e) {
        throw chat_invalid(std::string("the request is not JSON: ") + e.what());
    }
    if (!request.is_object()) {
        throw chat_invalid("the request is not a JSON object");
    }
    for (const auto &[name, value] : request.items()) {
        if (!is_in(MEMBERS, name)) {
            throw chat_invalid("unknown member \"" + name + "\" of the chat request");
        }
    }
    return request;
}

/* Clients send members they leave open as null; for a template, absent and null are different things. */
common_json without_nulls(const common_json &messages)
{
    common_json out = common_json::array();
    for (const common_json &message : messages) {
        if (!message.is_object() || !message.contains("role") || !message.at("role").is_string()) {
            throw chat_invalid("messages[" + std::to_string(out.size()) + "] needs a role");
        }
        common_json kept = common_json::object();
        for (const auto &[name, value] : message.items()) {
            if (!value.is_null() || name == "content") {
                kept[name] = value;
            }
        }
        out.push_back(kept);
    }
    return out;
}

/* Every string, and every name in an object, as the template may see it. */
common_json wrapped(const common_json &value, const control_markers &markers)
{
    if (value.is_string()) {
        return common_json::make(markers.wrap(value.get<std::string>()));
    }
    if (value.is_array()) {
        common_json out = common_json::array();
        for (const common_json &item : value) {
            out.push_back(wrapped(item, markers));
        }
        return out;
    }
    if (value.is_object()) {
        common_json out = common_json::object();
        for (const auto &[name, item] : value.items()) {
            out[markers.wrap(name)] = wrapped(item, markers);
        }
        return out;
    }
    return value;
}

/* ---- an answer whose tokens are known ------------------------------------------------------------------------------ */

std::vector<int32_t> read_tokens(const common_json &after)
{
    std::vector<int32_t> out;
    if (after.contains("last")) {
        for (const common_json &token : after.at("last")) {
            if (!token.is_number_integer()) {
                throw chat_invalid("the last tokens of the answer to go on after are not integers");
            }
            out.push_back(token.get<int32_t>());
        }
    }
    return out;
}

/* A message that is continued has no tokens of a whole answer. */
std::optional<chat_after> read_after(const common_json &request, bool continues)
{
    const char *name = "after";
    if (!request.contains(name) || request.at(name).is_null()) {
        return std::nullopt;
    }
    const common_json &after = request.at(name), &messages = request.at("messages");
    if (!after.is_object() || !after.contains("message") || !after.at("message").is_number_integer()) {
        throw chat_invalid("what to go on after needs a message");
    }
    const int64_t message = after.at("message").get<int64_t>();
    if (message < 0 || static_cast<uint64_t>(message) >= messages.size()) {
        throw chat_invalid("the message to go on after is not there");
    }
    const common_json &answer = messages.at(static_cast<size_t>(message));
    if (!answer.is_object() || answer.value("role", "") != "assistant") {
        throw chat_invalid("the message to go on after is not the assistant's");
    }
    if (continues && static_cast<uint64_t>(message) + 1 == messages.size()) {
        return std::nullopt;
    }
    return chat_after{static_cast<size_t>(message), after.value("rest", ""), read_tokens(after)};
}

bool has_calls(const common_json &message)
{
    return message.contains("tool_calls") && message.at("tool_calls").is_array() && !message.at("tool_calls").empty();
}

/* The answer as it is given to the template: only where it ends will be looked at, and what later messages may ask of it,
 * names and ids of its calls. */
common_json marked_answer(const common_json &answer, chat_answer form, const std::string &mark)
{
    common_json out = common_json::object();
    out["role"] = "assistant";
    if (form == chat_answer::text) {
        out["content"] = mark;
        return out;
    }
    common_json calls = common_json::array();
    for (common_json call : answer.at("tool_calls")) {
        const bool is_last = calls.size() + 1 == answer.at("tool_calls").size();
        call["function"]["arguments"] = is_last ? "{\"_\": \"" + mark + "\"}" : std::string("{}");
        calls.push_back(call);
    }
    out["content"] = "";
    out["tool_calls"] = calls;
    return out;
}

/* Marks behind the texts that a template might put somewhere else than behind the answer, or leave out. */
void mark_later(common_json &messages, size_t from, const control_markers &markers, size_t *n_marks)
{
    for (size_t i = from; i < messages.size(); i++) {
        common_json &message = messages[i];
        const std::string role = message.is_object() ? message.value("role", "") : "";
        if ((role == "system" || role == "developer" || role == "tool") && message.contains("content") &&
            message.at("content").is_string() && !message.at("content").get<std::string>().empty()) {
            message["content"] = message.at("content").get<std::string>() + markers.sentinel((*n_marks)++);
        }
    }
}

common_json with_marks(const common_json &messages, const control_markers &markers, chat_request *r)
{
    if (r->form == chat_answer::none) {
        return messages;
    }
    common_json marked = messages, out = common_json::array();
    common_json &answer = marked[r->after->message];
    answer = marked_answer(answer, r->form, markers.sentinel(r->n_marks++));
    mark_later(marked, r->after->message + 1, markers, &r->n_marks);
    for (const common_json &message : marked) {
        const std::string role = message.is_object() ? message.value("role", "") : "";
        if (!out.empty() || (role != "system" && role != "developer")) {
            out.push_back(message);
        }
    }
    return out;
}

/* The mark behind all others tells where the template puts the tools. */
void mark_tools(common_json &tools, const control_markers &markers, size_t n_marks)
{
    common_json &function = tools[tools.size() - 1]["function"];
    function["description"] = function.value("description", "") + markers.sentinel(n_marks);
}

/* ---- the template's abilities -------------------------------------------------------------------------------------- */

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
        common_json &content = message["content"]; /* calls without words get an empty text */
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

bool read_arguments(const std::string &text, common_json *out)
{
    if (json_is_deeper(text, DEPTH_MAX)) {
        return false;
    }
    try {
        *out = text.empty() ? common_json::object() : common_json::parse(text);
        return true;
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception &) {
        return false;
    }
}

/* Where this template takes objects. Returns the first that cannot be read, or "". */
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
            if (read_arguments(text, &arguments) && arguments.is_object()) {
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

/* A template that knows no system role gets the system's text in front of the first message after it. */
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

bool has_word(const std::string &source, const char *word)
{
    return source.find(word) != std::string::npos;
}

/* What was thought stands elsewhere in two families; llama.cpp's own parsers of these move it there, too. */
void fit_reasoning(common_json &messages, const std::string &source)
{
    const bool is_thinking = has_word(source, "<|channel|>"); /* with calls it takes the place of the text */
    const bool is_part = has_word(source, "[SYSTEM_PROMPT]") && has_word(source, "[THINK]");
    for (common_json &message : messages) {
        if (!message.contains("reasoning_content") || !message.at("reasoning_content").is_string()) {
            continue;
        }
        const common_json thought = message.at("reasoning_content");
        if (is_thinking) {
            message["thinking"] = thought;
            message["content"] = message.contains("tool_calls") ? common_json::make("") : message.at("content");
        } else if (is_part) {
            common_json part = common_json::object();
            part["type"] = "thinking";
            part["thinking"] = thought;
            common_json parts = common_json::array();
            parts.push_back(part);
            parts.insert(as_parts(chat_text_of(message.at("content"))));
            message["content"] = parts;
            message.erase("reasoning_content");
        }
    }
}

common_json fit_messages(const common_json &messages, const common_chat_template &tmpl, bool encloses_arguments,
                         std::string *unread_arguments)
{
    const chat_template_caps caps = tmpl.original_caps();
    common_json out = common_json::array();
    try {
        for (const common_chat_msg &message : common_chat_msgs_parse_oaicompat(messages)) {
            out.push_back(message.to_json_oaicompat(false));
        }
    } catch (const std::exception &e) {
        throw chat_invalid(e.what());
    }
    const bool has_developers = has_word(tmpl.source(), "<|channel|>");
    for (common_json &message : out) {
        if (!has_developers && message.at("role") == "developer") {
            message["role"] = "system";
        }
    }
    fit_content(out, caps);
    fit_reasoning(out, tmpl.source());
    fit_system(out, caps);
    if (caps.supports_object_arguments) {
        *unread_arguments = fit_arguments(out, encloses_arguments);
    }
    return out;
}

common_json fit_tools(const common_json &tools)
{
    try {
        return common_chat_tools_to_json_oaicompat(common_chat_tools_parse_oaicompat(tools));
    } catch (const std::exception &e) {
        throw chat_invalid(std::string("tools: ") + e.what());
    }
}

bool read_bool(const common_json &request, const char *name, bool otherwise)
{
    if (!request.contains(name) || request.at(name).is_null()) {
        return otherwise;
    }
    if (!request.at(name).is_boolean()) {
        throw chat_invalid(std::string(name) + " is not true or false");
    }
    return request.at(name).get<bool>();
}

common_json read_kwargs(const common_json &request)
{
    const char *name = "chat_template_kwargs";
    if (!request.contains(name) || request.at(name).is_null()) {
        return common_json::object();
    }
    if (!request.at(name).is_object()) {
        throw chat_invalid(std::string(name) + " is not an object");
    }
    if (request.at(name).size() > VARIABLES_MAX) {
        throw chat_invalid(std::string(name) + " has " + std::to_string(request.at(name).size()) +
                           " members; at most " + std::to_string(VARIABLES_MAX) + " are allowed");
    }
    for (const auto &[key, value] : request.at(name).items()) {
        if (is_in(RESERVED, key)) {
            throw chat_invalid(std::string(name) + " may not set \"" + key + "\"");
        }
    }
    return request.at(name);
}

/* ---- what the answer is to be -------------------------------------------------------------------------------------- */

bool is_known(const common_json &tools, const std::string &name)
{
    for (const common_json &tool : tools) {
        if (tool.at("function").at("name") == name) {
            return true;
        }
    }
    return false;
}

void read_choice(const common_json &choice, chat_wish *out)
{
    const std::string mode = choice.is_object() ? choice.value("mode", "") : "";
    if (mode != "auto" && mode != "none" && mode != "required") {
        throw chat_invalid("tool_choice.mode is not auto, none or required");
    }
    out->choice = mode == "auto"   ? COMMON_CHAT_TOOL_CHOICE_AUTO
                  : mode == "none" ? COMMON_CHAT_TOOL_CHOICE_NONE
                                   : COMMON_CHAT_TOOL_CHOICE_REQUIRED;
    for (const common_json &name : choice.value("names", common_json::array())) {
        out->names.push_back(name.get<std::string>());
        if (!out->has_tools() || !is_known(out->tools, out->names.back())) {
            throw chat_invalid("tool_choice names \"" + out->names.back() + "\", which is not among the tools");
        }
    }
    if (out->choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED && !out->has_tools()) {
        throw chat_invalid("tool_choice requires a call, but there are no tools");
    }
}

std::string read_grammar(const model *m, const common_json &request)
{
    const common_json constraint = request.value("constraint", common_json());
    if (constraint.is_null()) {
        return "";
    }
    if (!constraint.is_object() || !constraint.contains("kind") || !constraint.contains("text")) {
        throw chat_invalid("constraint needs a kind and a text");
    }
    try {
        return constraint_grammar(m, constraint.at("kind").get<std::string>(), constraint.at("text").get<std::string>(),
                                  constraint.value("strict", true));
    } catch (const grammar_fault &e) {
        throw chat_invalid(std::string("constraint: ") + e.what());
    }
}

/* Of tools that take a text of a form of its own: {argument, kind, text}, kind as constraint_grammar has it. What is beyond a
 * grammar is not enforced. */
std::vector<chat_argument> read_arguments(const model *m, const common_json &request)
{
    std::vector<chat_argument> out;
    for (const common_json &tool : request.value("tools", common_json::array())) {
        const common_json &function = tool.at("function");
        const common_json form = function.value("form", common_json());
        if (form.is_null()) {
            continue;
        }
        const std::string name = function.at("name").get<std::string>();
        try {
            out.push_back(
                {name, form.at("argument").get<std::string>(),
                 constraint_grammar(m, form.at("kind").get<std::string>(), form.at("text").get<std::string>(), true)});
        } catch (const grammar_beyond &) {
        } catch (const grammar_fault &e) {
            throw chat_invalid("tools: the grammar of " + name + ": " + e.what());
        }
    }
    return out;
}

chat_wish read_wish(const model *m, const common_json &request, const common_json &tools)
{
    chat_wish out;
    out.tools = tools;
    if (request.contains("tool_choice") && !request.at("tool_choice").is_null()) {
        read_choice(request.at("tool_choice"), &out);
    }
    const common_json parallel = request.value("parallel_tool_calls", common_json());
    out.parallel = parallel.is_null() ? -1 : read_bool(request, "parallel_tool_calls", true);
    out.grammar = read_grammar(m, request);
    if (out.has_calls()) {
        out.arguments = read_arguments(m, request);
    }
    out.is_reasoning_apart = read_bool(request, "reasoning_apart", true);
    out.kwargs = read_kwargs(request);
    return out;
}

/* Takes the message to be continued from the others. */
void take_begun(common_json &messages, chat_request *out)
{
    const common_json last = messages.back();
    if (last.at("role") != "assistant" || last.contains("tool_calls")) {
        throw chat_invalid("messages[" + std::to_string(messages.size() - 1) +
                           "] cannot be continued: it is not a text of the assistant");
    }
    out->begun_content = chat_text_of(last.value("content", common_json()));
    out->begun_reasoning = last.value("reasoning_content", "");
    out->wish.continues_content = !out->begun_content.empty();
    out->wish.continues_reasoning = !out->begun_reasoning.empty();
    messages.erase(messages.size() - 1);
}

/* The system's messages and a question: what stands before its text is what many conversations share. */
common_json front_of(const common_json &messages, const control_markers &markers)
{
    common_json out = common_json::array();
    for (const common_json &message : messages) {
        const std::string role = message.is_object() ? message.value("role", "") : "";
        if (role == "user") {
            common_json question = common_json::object();
            question["role"] = role;
            question["content"] = markers.sentinel(0);
            out.push_back(question);
            return out;
        }
        if (role != "system" && role != "developer") {
            break;
        }
        out.push_back(message);
    }
    return common_json();
}

chat_answer form_of(const common_json &request, const std::optional<chat_after> &after, chat_answer wanted)
{
    if (!after.has_value()) {
        return chat_answer::none;
    }
    const bool calls = has_calls(request.at("messages").at(after->message));
    return wanted == chat_answer::calls && !calls ? chat_answer::text : wanted;
}

/* Calls, and the tools to tell of, where the template has no form for them. */
common_json written(const common_json &messages, const common_json &tools, const chat_analysis &analysis)
{
    common_json out = analysis.knows_calls ? messages : with_written_calls(messages);
    if (!tools.is_null() && !tools.empty() && !(analysis.describes_tools && analysis.knows_calls)) {
        describe_tools(tools, !analysis.describes_tools, !analysis.knows_calls, out);
    }
    return out;
}

/* Tools as the template may see them. */
common_json shown_tools(const common_json &tools, const chat_request &request, const control_markers &markers,
                        bool keeps_tools)
{
    const bool is_marked = request.form != chat_answer::none;
    if (tools.is_null() || tools.empty() || (is_marked && !keeps_tools)) {
        return tools.is_null() || !is_marked ? tools : common_json();
    }
    common_json out = tools;
    if (is_marked) {
        mark_tools(out, markers, request.n_marks);
    }
    return wrapped(out, markers);
}

} // namespace

chat_request chat_request_read(const model *m, const std::string &given, const chat_programs &programs,
                               const control_markers &markers, const chat_repair &repair)
{
    const common_json request = parse(given);
    if (!request.contains("messages") || !request.at("messages").is_array() || request.at("messages").empty()) {
        throw chat_invalid("messages must be a list with at least one message");
    }
    chat_request out;
    const bool continues = read_bool(request, "continues", false);
    out.after = read_after(request, continues);
    out.form = form_of(request, out.after, repair.form);
    const common_json tools =
        request.value("tools", common_json()).is_null() ? common_json() : fit_tools(request.at("tools"));
    out.wish = read_wish(m, request, tools);
    const common_json told = tools.is_null() ? tools : told_tools(request.at("tools"), tools);
    out.program = &programs.for_request(out.wish.has_tools());
    const common_chat_template &tmpl = *out.program->tmpl;
    const chat_analysis &analysis = out.program->analysis;
    common_json messages = without_nulls(with_marks(request.at("messages"), markers, &out));
    if (continues) {
        take_begun(messages, &out);
    }
    if (repair.renames_ids) {
        rename_ids(messages);
    }
    out.has_odd_ids = !repair.renames_ids && has_ids(messages);
    const common_json front = out.form == chat_answer::none ? front_of(request.at("messages"), markers) : common_json();
    if (!front.is_null() && ((!told.is_null() && !told.empty()) || front.size() > 1)) {
        std::string unread;
        out.front = wrapped(fit_messages(written(without_nulls(front), told, analysis), tmpl, false, &unread), markers);
    }
    messages = written(messages, out.form == chat_answer::none ? told : common_json(), analysis);
    messages = fit_messages(messages, tmpl, repair.encloses_arguments, &out.unread_arguments);
    out.messages = wrapped(messages, markers);
    out.tools = shown_tools(told, out, markers, repair.keeps_tools);
    out.kwargs = wrapped(out.wish.kwargs, markers);
    out.add_generation_prompt = !out.continues() && read_bool(request, "add_generation_prompt", true);
    const common_json budget = request.value("thinking_tokens_max", common_json());
    out.thinking_tokens_max = budget.is_number_integer() ? std::max<int64_t>(-1, budget.get<int64_t>()) : -1;
    out.follows_thinking = read_bool(request, "follows_thinking", false);
    return out;
}
