#include "text/chat/chat_request.h"

#include <algorithm>
#include <new>

#include "text/chat/chat_family.h"
#include "text/chat/chat_history.h"
#include "text/chat/chat_messages.h"
#include "text/constraint/constraint_grammar.h"
#include "text/grammar/document_cache.h"
#include "text/grammar/grammar.h"
#include "text/template/json_size.h"
#include "text/template/chat_budget.h"

namespace {

constexpr size_t VARIABLES_MAX = 64; /* limit on the template variables of a request, because each scope of a template
                                      * copies all of them */

/* Names that a request must not give to its template variables. Other members of the request, or the model, set these
 * variables. */
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

/* Parses a text whose size was checked. */
common_json parsed(const std::string &given)
{
    try {
        return common_json::parse(given);
    } catch (const std::exception &e) {
        throw chat_invalid(std::string("the request is not JSON: ") + e.what());
    }
}

/* Parses the request without the value of its member `tools`, which is returned in *tools as text. */
common_json parse(const std::string &given, std::string *tools)
{
    const json_size size = json_size_of(given, CHAT_DEPTH_MAX);
    if (size.is_too_deep) {
        throw chat_invalid("the request nests deeper than " + std::to_string(CHAT_DEPTH_MAX) + " levels");
    }
    if (size.n_comparisons > JSON_COMPARISONS_MAX) {
        throw chat_invalid("the objects of the request have too many members; one object may have " +
                           std::to_string(JSON_MEMBERS_MAX));
    }
    chat_budget::current().compare(size.n_comparisons);
    const json_span place = json_member(given, "tools");
    *tools = given.substr(place.begin, place.end - place.begin);
    common_json request =
        parsed(tools->empty() ? given : given.substr(0, place.begin) + "null" + given.substr(place.end));
    if (!request.is_object()) {
        throw chat_invalid("the request is not a JSON object");
    }
    if (tools->empty() && request.contains("tools")) { /* the name "tools" is written with escapes, or occurs twice */
        *tools = request.at("tools").dump_safe();
    }
    for (const auto &[name, value] : request.items()) {
        if (!is_in(MEMBERS, name)) {
            throw chat_invalid("unknown member \"" + name + "\" of the chat request");
        }
    }
    return request;
}

/* Removes null members. Clients send null for members that they do not set, but a template distinguishes null from a
 * missing member. */
common_json without_nulls(common_json messages)
{
    for (size_t i = 0; i < messages.size(); i++) {
        common_json &message = messages.at(i);
        if (!message.is_object() || !message.contains("role") || !message.at("role").is_string()) {
            throw chat_invalid("messages[" + std::to_string(i) + "] needs a role");
        }
        std::vector<std::string> nulls;
        for (const auto &[name, value] : message.items()) {
            if (value.is_null() && name != "content") {
                nulls.push_back(name);
            }
        }
        for (const std::string &name : nulls) {
            message.erase(name);
        }
    }
    return messages;
}

/* Wraps control words in every string and every name of an object (chat_control.h). If `numbers` is not NULL, also
 * replaces the numbers that a template would round (chat_numbers.h). */
common_json wrapped(common_json value, const control_markers &markers, chat_numbers *numbers);

void wrap_members(common_json &object, const control_markers &markers, chat_numbers *numbers)
{
    bool has_words = false;
    for (const auto &[name, item] : object.items()) {
        has_words = has_words || markers.wraps(name);
    }
    common_json out = common_json::object();
    for (const auto &[name, item] : object.items()) {
        (has_words ? out[markers.wrap(name)] : item) = wrapped(std::move(item), markers, numbers);
    }
    if (has_words) {
        object = std::move(out);
    }
}

common_json wrapped(common_json value, const control_markers &markers, chat_numbers *numbers)
{
    if (numbers != nullptr && value.is_number()) {
        return numbers->stand_in(value);
    }
    if (value.is_string()) {
        const std::string text = value.get<std::string>();
        return markers.wraps(text) ? common_json::make(markers.wrap(text)) : std::move(value);
    }
    if (value.is_array()) {
        for (common_json &item : value) {
            item = wrapped(std::move(item), markers, numbers);
        }
    } else if (value.is_object()) {
        wrap_members(value, markers, numbers);
    }
    return value;
}

/* ---- parsing the member `after` ---------------------------------------------------------------------------------- */

std::vector<int32_t> read_tokens(const common_json &after)
{
    std::vector<int32_t> out;
    if (after.contains("last")) {
        for (const common_json &token : after.at("last")) {
            if (!token.is_number_integer()) {
                throw chat_invalid("after.last must be a list of integers");
            }
            out.push_back(token.get<int32_t>());
        }
    }
    return out;
}

/* Parses the member `after`. `after` is ignored if it names the message that the new answer continues. Reason: the
 * session's tokens of this unfinished message are not a complete answer. */
std::optional<chat_after> read_after(const common_json &request, bool continues)
{
    const char *name = "after";
    if (!request.contains(name) || request.at(name).is_null()) {
        return std::nullopt;
    }
    const common_json &after = request.at(name), &messages = request.at("messages");
    if (!after.is_object() || !after.contains("message") || !after.at("message").is_number_integer()) {
        throw chat_invalid("after must be an object with the index of a message");
    }
    const int64_t message = after.at("message").get<int64_t>();
    if (message < 0 || static_cast<uint64_t>(message) >= messages.size()) {
        throw chat_invalid("after.message is not the index of a message");
    }
    const common_json &answer = messages.at(static_cast<size_t>(message));
    if (!answer.is_object() || answer.value("role", "") != "assistant") {
        throw chat_invalid("after.message is not a message of the assistant");
    }
    if (continues && static_cast<uint64_t>(message) + 1 == messages.size()) {
        return std::nullopt;
    }
    return chat_after{static_cast<size_t>(message), after.value("rest", ""), read_tokens(after)};
}

/* Returns the answer as it is passed to the template, with the sentinel `mark` at the end of the answer. The names and
 * ids of the answer's tool calls are kept, because later messages refer to them. All other parts of the answer are left
 * out. The session has the tokens of these parts, so they need not be rendered. */
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

/* Puts the sentinel `mark` before the blanks at the end of a text. Some templates and some families (TRIMS in
 * chat_family.h) remove blanks at the end of a text. They would not remove blanks before a sentinel. */
std::string with_mark(const std::string &text, const std::string &mark)
{
    const size_t last = text.find_last_not_of(" \t\r\n");
    const size_t at = last == std::string::npos ? text.size() : last + 1;
    return text.substr(0, at) + mark + text.substr(at);
}

/* Adds a sentinel to each text that a template might move before the answer, or leave out. Only the messages after the
 * answer are changed. `from` is the index of the first of these messages. Some families move tool results into the
 * answer (GATHERS_RESULTS in chat_family.h). Such results get no sentinel, because these families parse results as
 * JSON. */
void mark_later(common_json &messages, size_t from, const control_markers &markers, bool marks_results, size_t *n_marks)
{
    for (size_t i = from; i < messages.size(); i++) {
        common_json &message = messages[i];
        const std::string role = message.is_object() ? message.value("role", "") : "";
        if ((role == "system" || role == "developer" || (role == "tool" && marks_results)) &&
            message.contains("content") && message.at("content").is_string() &&
            !message.at("content").get<std::string>().empty()) {
            message["content"] = with_mark(message.at("content").get<std::string>(), markers.sentinel((*n_marks)++));
        }
    }
}

bool is_of_system(const common_json &message)
{
    const std::string role = message.is_object() ? message.value("role", "") : "";
    return role == "system" || role == "developer";
}

common_json with_marks(common_json messages, const control_markers &markers, bool marks_results, chat_request *r)
{
    if (r->form == chat_answer::none) {
        return messages;
    }
    common_json &answer = messages[r->after->message];
    answer = marked_answer(answer, r->form, markers.sentinel(r->n_marks++));
    mark_later(messages, r->after->message + 1, markers, marks_results, &r->n_marks);
    while (!messages.empty() && is_of_system(messages.front())) {
        messages.erase(static_cast<size_t>(0));
    }
    return messages;
}

/* Puts the last sentinel into the tools, to find the position at which the template writes them. */
void mark_tools(common_json &tools, const control_markers &markers, size_t n_marks)
{
    common_json &function = tools[tools.size() - 1]["function"];
    function["description"] = function.value("description", "") + markers.sentinel(n_marks);
}

common_json fit_messages(const common_json &messages, const chat_request &request, bool encloses_arguments,
                         std::string *unread_arguments)
{
    try {
        return chat_messages_fit(messages, *request.program->tmpl, request.wish.kwargs, encloses_arguments,
                                 unread_arguments);
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception &e) {
        throw chat_invalid(e.what());
    }
}

common_json fit_tools(const common_json &tools)
{
    try {
        return common_chat_tools_to_json_oaicompat(common_chat_tools_parse_oaicompat(tools));
    } catch (const std::exception &e) {
        throw chat_invalid(std::string("tools: ") + e.what());
    }
}

/* Returns the tools of this JSON text. Parsing 60 tools and changing them to OpenAI's format takes longer than
 * rendering the messages of a turn. So the tools of the most recent requests are kept. */
std::shared_ptr<const chat_offer> offer_of(const std::string &text)
{
    static document_cache<chat_offer> *const kept = new document_cache<chat_offer>;
    std::shared_ptr<const chat_offer> found = kept->find(text);
    if (found == nullptr) {
        auto made = std::make_shared<chat_offer>();
        made->text = text;
        const common_json given = text.empty() ? common_json() : parsed(text);
        if (!given.is_null()) {
            made->tools = fit_tools(given);
            made->listed = tools_for_template(given, made->tools);
            made->forms = common_json::array();
            for (const common_json &tool : given) {
                if (!tool.at("function").value("form", common_json()).is_null()) {
                    made->forms.push_back(tool);
                }
            }
        }
        kept->keep(text, made);
        found = made;
    }
    return found;
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

/* ---- options of the answer --------------------------------------------------------------------------------------- */

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
        if (!out->has_tools() || !is_known(out->offer->tools, out->names.back())) {
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

/* Parses the client's grammars for tools whose only argument is a text. Such a tool has a member `form`: {argument,
 * kind, text}. `kind` is one of the kinds of constraint_grammar. Ignores a grammar that cannot be enforced. */
std::vector<chat_argument> read_arguments(const model *m, const common_json &tools)
{
    std::vector<chat_argument> out;
    for (const common_json &tool : tools) {
        const common_json &function = tool.at("function");
        const common_json &form = function.at("form");
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

chat_wish read_wish(const model *m, const common_json &request, const std::string &tools)
{
    chat_wish out;
    out.offer = offer_of(tools);
    if (request.contains("tool_choice") && !request.at("tool_choice").is_null()) {
        read_choice(request.at("tool_choice"), &out);
    }
    const common_json parallel = request.value("parallel_tool_calls", common_json());
    out.parallel = parallel.is_null() ? -1 : read_bool(request, "parallel_tool_calls", true);
    out.grammar = read_grammar(m, request);
    if (out.has_calls()) {
        out.arguments = read_arguments(m, out.offer->forms);
    }
    out.is_reasoning_apart = read_bool(request, "reasoning_apart", true);
    out.kwargs = read_kwargs(request);
    return out;
}

/* Removes the last message, which the answer continues, from the messages. The text of this message is later appended
 * to the rendered text, because a template would close the message's turn. */
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

/* Returns the system messages, and a user message whose text is a sentinel. The rendered text before the sentinel is
 * the head of the prompt, which many conversations share. */
common_json front_of(const common_json &messages, const control_markers &markers)
{
    common_json out = common_json::array();
    for (const common_json &message : messages) {
        const bool has_role = message.is_object() && message.contains("role") && message.at("role").is_string();
        const std::string role = has_role ? message.at("role").get<std::string>() : "";
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
    const bool calls = chat_has_calls(request.at("messages").at(after->message));
    return wanted == chat_answer::calls && !calls ? chat_answer::text : wanted;
}

/* Writes tool calls and the list of tools as text into the messages, if the template cannot write them. */
common_json written(common_json messages, const common_json &tools, const chat_analysis &analysis)
{
    common_json out = analysis.knows_calls ? std::move(messages) : with_written_calls(messages);
    if (!tools.is_null() && !tools.empty() && !(analysis.describes_tools && analysis.knows_calls)) {
        describe_tools(tools, !analysis.describes_tools, !analysis.knows_calls, out);
    }
    return out;
}

/* Returns the tools as they are passed to the template. If only the text after an earlier answer is needed
 * (chat_after.h), the last sentinel is put into the tools. This sentinel shows where the template writes the tools. If
 * the template writes the tools after this answer, the next attempt to render the request leaves the tools out
 * (keeps_tools). */
common_json shown_tools(const common_json &tools, chat_request &request, const control_markers &markers,
                        const chat_repair &repair, typed_tools *typed)
{
    const bool is_marked = request.form != chat_answer::none;
    if (tools.is_null() || tools.empty() || (is_marked && !repair.keeps_tools)) {
        return tools.is_null() || !is_marked ? tools : common_json();
    }
    common_json out = typed->of(tools, repair.types);
    if (is_marked) {
        mark_tools(out, markers, request.n_marks);
    }
    return wrapped(std::move(out), markers, &request.numbers);
}

/* Returns the variables of the template. These are the client's variables and, for some families, the schema of the
 * answer (SHOWS_SCHEMA in chat_family.h). */
common_json variables(const common_json &request, const chat_wish &wish, const chat_family &family)
{
    common_json out = wish.kwargs, schema;
    const common_json form = request.value("constraint", common_json());
    if (family.has(chat_family::SHOWS_SCHEMA) && form.is_object() && form.value("kind", "") == "json_schema" &&
        chat_read_json(form.value("text", ""), &schema)) {
        out["response_format"] = schema;
    }
    return out;
}

} // namespace

chat_request chat_request_read(const model *m, const std::string &given, const chat_programs &programs,
                               const control_markers &markers, const chat_repair &repair, typed_tools *typed)
{
    std::string tools;
    common_json request = parse(given, &tools);
    if (!request.contains("messages") || !request.at("messages").is_array() || request.at("messages").empty()) {
        throw chat_invalid("messages must be a list with at least one message");
    }
    chat_request out;
    out.numbers = chat_numbers(given);
    const bool continues = read_bool(request, "continues", false);
    out.after = read_after(request, continues);
    out.form = form_of(request, out.after, repair.form);
    out.wish = read_wish(m, request, tools);
    const common_json &listed_tools = out.wish.offer->listed;
    out.program = &programs.for_request(out.wish.has_tools());
    const chat_analysis &analysis = out.program->analysis;
    const chat_family &family = *out.program->family;
    const bool marks_results = !family.has(chat_family::GATHERS_RESULTS);
    const common_json front = out.form == chat_answer::none ? front_of(request.at("messages"), markers) : common_json();
    common_json messages = without_nulls(with_marks(std::move(request.at("messages")), markers, marks_results, &out));
    if (continues) {
        take_begun(messages, &out);
    }
    if (repair.renames_ids) {
        rename_ids(messages);
    }
    out.has_odd_ids = !repair.renames_ids && has_ids(messages);
    if (repair.splits_calls) {
        messages = with_calls_in_turns(messages);
    }
    out.has_parallel_calls = !repair.splits_calls && has_parallel_calls(messages);
    if (!front.is_null() && ((!listed_tools.is_null() && !listed_tools.empty()) || front.size() > 1)) {
        std::string unread;
        out.front = wrapped(fit_messages(written(without_nulls(front), listed_tools, analysis), out, false, &unread),
                            markers, &out.numbers);
    }
    messages = written(std::move(messages), out.form == chat_answer::none ? listed_tools : common_json(), analysis);
    messages = fit_messages(messages, out, repair.encloses_arguments, &out.unread_arguments);
    out.messages = wrapped(std::move(messages), markers, &out.numbers);
    out.tools = shown_tools(listed_tools, out, markers, repair, typed);
    out.kwargs = wrapped(variables(request, out.wish, family), markers, nullptr); /* no numbers are replaced, because
                                                                                   * templates compare variables with
                                                                                   * numbers */
    out.add_generation_prompt = !out.continues() && read_bool(request, "add_generation_prompt", true);
    const common_json budget = request.value("thinking_tokens_max", common_json());
    out.thinking_tokens_max = budget.is_number_integer() ? std::max<int64_t>(-1, budget.get<int64_t>()) : -1;
    out.follows_thinking = read_bool(request, "follows_thinking", false);
    return out;
}

size_t chat_messages_before_tail(const chat_request &request, const control_markers &markers)
{
    size_t n = request.form == chat_answer::none ? 0 : request.messages.size();
    while (n > 0 && request.messages.at(n - 1).dump_safe().find(markers.sentinel(0)) == std::string::npos) {
        n--;
    }
    return n;
}
