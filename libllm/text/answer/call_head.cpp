#include "text/answer/call_head.h"

#include <algorithm>
#include <new>

#include "text/answer/call_graph.h"
#include "text/answer/call_parser.h"
#include "text/answer/parser_text.h"

namespace {

const char *const NAME = "4n4m30f4t00l"; /* name of the tool in the rendered conversation; no template contains this
                                          * text */
const char *const ID = "call00001";

common_json call_with(const common_json &arguments)
{
    common_json function = common_json::object(), call = common_json::object(), out = common_json::object();
    function["name"] = NAME;
    function["arguments"] = arguments;
    call["id"] = ID;
    call["type"] = "function";
    call["function"] = function;
    out["role"] = "assistant";
    out["content"] = "";
    out["reasoning_content"] = ""; /* K2 Horizon's template requires this member in an assistant message */
    out["tool_calls"] = common_json::array();
    out["tool_calls"].push_back(call);
    return out;
}

common_json result_of_call()
{
    common_json out = common_json::object();
    out["role"] = "tool";
    out["name"] = NAME;
    out["tool_call_id"] = ID;
    out["content"] = "c";
    return out;
}

/* Renders a conversation that ends with a tool call. If `has_result` is true, the result of this call follows. The
 * arguments are passed as an object. If the template refuses the object, they are passed as JSON text. Returns "" if
 * the template refuses both. */
std::string rendered(const common_chat_template &tmpl, autoparser::generation_params params, bool has_result)
{
    const common_json text = common_json::make(std::string("{\"a\": \"b\"}"));
    const common_json before = params.messages;
    params.add_generation_prompt = false;
    for (const common_json &arguments : {common_json::parse("{\"a\": \"b\"}"), text}) {
        params.messages = before;
        params.messages.push_back(call_with(arguments));
        if (has_result) {
            params.messages.push_back(result_of_call());
        }
        try {
            return common_chat_template_direct_apply(tmpl, params);
        } catch (const std::bad_alloc &) {
            throw;
        } catch (const std::exception &) { /* the next attempt passes the arguments as JSON text */
        }
    }
    return "";
}

bool is_of_name(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
}

/* Returns the position at which the opening delimiters of a tool call begin. `begin` is the position of the delimiter
 * that triggers the grammar. Delimiters that open a group of calls can directly precede this delimiter. In this case,
 * returns the position of the first of these delimiters. */
size_t begin_with_marks(const std::string &text, size_t begin, const std::vector<std::string> &marks)
{
    for (bool is_longer = true; is_longer;) {
        is_longer = false;
        const size_t end = begin == 0 ? std::string::npos : text.find_last_not_of(" \t\r\n", begin - 1);
        for (const std::string &mark : marks) {
            if (end != std::string::npos && end + 1 >= mark.size() &&
                text.compare(end + 1 - mark.size(), mark.size(), mark) == 0) {
                begin = end + 1 - mark.size();
                is_longer = true;
                break;
            }
        }
    }
    return begin;
}

/* Returns the delimiters that open tool calls in this form of answers. Delimiters of reasoning and of turns are left
 * out. */
std::vector<std::string> marks_of_calls(const common_chat_params &form)
{
    std::vector<std::string> out =
        call_marks_of(call_parser_for_reading(form.format, parser_written(form.parser), {})).opening;
    out.insert(out.end(), form.preserved_tokens.begin(), form.preserved_tokens.end());
    const auto is_other = [&](const std::string &mark) {
        const bool ends = std::any_of(form.thinking_end_tags.begin(), form.thinking_end_tags.end(),
                                      [&](const std::string &end) { return end.find(mark) != std::string::npos; });
        return mark.empty() || ends || form.generation_prompt.find(mark) != std::string::npos ||
               form.thinking_start_tag.find(mark) != std::string::npos;
    };
    out.erase(std::remove_if(out.begin(), out.end(), is_other), out.end());
    return out;
}

} // namespace

/* The head begins at the last trigger before the tool's name. A trigger is a text at which the grammar begins to apply.
 * If there is no trigger, or if the character after the name could belong to a longer name, the head is unknown. An
 * incomplete head would end the reasoning wherever the model only mentions the delimiter. */
call_head call_head_of(const common_chat_template &tmpl, autoparser::generation_params params,
                       const common_chat_params &form)
{
    /* rendered with the result of the call, because Apriel's template writes no id in the last message */
    const bool has_id_after =
        rendered(tmpl, params, true).rfind("}, \"id\": \"" + std::string(ID) + "\"}") != std::string::npos;
    const std::string text = rendered(tmpl, std::move(params), false);
    const size_t name = text.rfind(NAME), end = name == std::string::npos ? name : name + std::string(NAME).size();
    size_t begin = std::string::npos;
    for (const common_grammar_trigger &trigger : form.grammar_triggers) {
        const std::string word =
            trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_WORD ? without_blanks(trigger.value) : std::string();
        const size_t at =
            word.size() < CALL_MARK_BYTES_MIN || name == std::string::npos ? std::string::npos : text.rfind(word, name);
        begin = at == std::string::npos || (begin != std::string::npos && begin > at) ? begin : at;
    }
    if (begin == std::string::npos || end >= text.size() || is_of_name(text[end])) {
        return {"", "", has_id_after};
    }
    begin = begin_with_marks(text, begin, marks_of_calls(form));
    return {text.substr(begin, name - begin), text.substr(end, 1), has_id_after};
}
