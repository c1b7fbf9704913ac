#include "text/chat/chat_family.h"

#include <algorithm>
#include <map>
#include <vector>

#include "text/chat/chat_history.h"

namespace {

bool has_word(const std::string &source, const char *word)
{
    return source.find(word) != std::string::npos;
}

std::string role_of(const common_json &message)
{
    return message.value("role", "");
}

bool is_one_of(const std::string &role, std::initializer_list<const char *> roles)
{
    return std::any_of(roles.begin(), roles.end(), [&](const char *one) { return role == one; });
}

bool has_text(const common_json &message, const char *name)
{
    return message.contains(name) && message.at(name).is_string();
}

/* ---- where the template expects reasoning ------------------------------------------------------------------------ */

void reasoning_as_thinking(common_json &messages, const common_json & /*variables*/)
{
    for (common_json &message : messages) {
        if (has_text(message, "reasoning_content")) {
            message["thinking"] = message.at("reasoning_content");
        }
    }
}

void reasoning_by_another_name(common_json &messages, const common_json & /*variables*/)
{
    for (common_json &message : messages) {
        if (has_text(message, "reasoning_content")) {
            message["reasoning"] = message.at("reasoning_content");
        }
    }
}

/* gpt-oss's template can write only one text before a tool call. If the message has reasoning, the reasoning is
 * written, and the content is left out. */
void reasoning_as_text_of_calls(common_json &messages, const common_json &variables)
{
    reasoning_as_thinking(messages, variables);
    for (common_json &message : messages) {
        if (has_text(message, "thinking") && chat_has_calls(message)) {
            message.erase("content");
        }
    }
}

common_json part_of(const char *type, const char *name, const common_json &text)
{
    common_json out = common_json::object();
    out["type"] = type;
    out[name] = text;
    return out;
}

void reasoning_as_part(common_json &messages, const common_json & /*variables*/)
{
    for (common_json &message : messages) {
        if (!is_one_of(role_of(message), {"system", "assistant"})) {
            continue;
        }
        common_json parts = common_json::array();
        if (has_text(message, "reasoning_content")) {
            parts.push_back(part_of("thinking", "thinking", message.at("reasoning_content")));
        }
        if (has_text(message, "content")) {
            parts.push_back(part_of("text", "text", message.at("content")));
        } else if (message.contains("content") && message.at("content").is_array()) {
            parts.insert(message.at("content"));
        }
        message["content"] = parts;
        message.erase("reasoning_content");
    }
}

/* K2 Horizon's template refuses an answer without reasoning. */
void reasoning_everywhere(common_json &messages, const common_json & /*variables*/)
{
    for (common_json &message : messages) {
        if (role_of(message) == "assistant" && !message.contains("reasoning_content")) {
            message["reasoning_content"] = "";
        }
    }
}

/* ---- the languages of a translation ------------------------------------------------------------------------------ */

/* TranslateGemma's template requires the source and target language with each text of the user. The request gives the
 * languages as variables of the template. */
void texts_with_languages(common_json &messages, const common_json &variables)
{
    for (common_json &message : messages) {
        if (role_of(message) != "user") {
            continue;
        }
        common_json part = part_of("text", "text", common_json::make(chat_text_of(message.at("content"))));
        for (const char *name : {"source_lang_code", "target_lang_code"}) {
            part[name] = variables.value(name, "en-GB");
        }
        message["content"] = common_json::array();
        message["content"].push_back(part);
    }
}

/* ---- where the template expects tool results --------------------------------------------------------------------- */

std::map<std::string, size_t> places_of_calls(const common_json &answer)
{
    std::map<std::string, size_t> out;
    for (const common_json &call : answer.at("tool_calls")) {
        const size_t place = out.size();
        const std::string id = call.value("id", "");
        if (!id.empty()) {
            out[id] = place;
        }
    }
    return out;
}

/* DeepSeek V4's template writes tool results without the ids of their calls, in one turn with the user's text. Only the
 * order of the results shows to which calls they belong. So this function sorts the results into the order of the
 * calls. */
void results_as_called(common_json &messages, const common_json & /*variables*/)
{
    std::map<std::string, size_t> places;
    const auto is_before = [&places](const common_json &one, const common_json &other) {
        const auto place_of = [&places](const common_json &result) {
            const auto found = places.find(result.value("tool_call_id", ""));
            return found == places.end() ? size_t{0} : found->second;
        };
        return place_of(one) < place_of(other);
    };
    for (size_t i = 0; i < messages.size();) {
        places = chat_has_calls(messages.at(i)) ? places_of_calls(messages.at(i)) : places;
        std::vector<size_t> at;
        std::vector<common_json> results;
        size_t end = i; /* end of the run of user and tool messages that begins at i */
        for (; end < messages.size() && is_one_of(role_of(messages.at(end)), {"user", "tool"}); end++) {
            if (role_of(messages.at(end)) == "tool") {
                at.push_back(end);
                results.push_back(messages.at(end));
            }
        }
        std::stable_sort(results.begin(), results.end(), is_before);
        for (size_t k = 0; k < at.size(); k++) {
            messages[at[k]] = results[k];
        }
        i = std::max(end, i + 1);
    }
}

common_json response_of(const common_json &result, const common_json &calls, size_t place)
{
    common_json response = result.value("content", common_json());
    if (response.is_string()) {
        const std::string text = response.get<std::string>();
        common_json read;
        response = chat_read_json(text, &read) ? read : response;
    }
    const std::string name =
        place < calls.size() ? calls.at(place).value("function", common_json::object()).value("name", "") : "";
    common_json out = common_json::object();
    out["name"] = name.empty() ? result.value("tool_call_id", "") : name;
    out["response"] = response;
    return out;
}

bool has_content(const common_json &message)
{
    const common_json content = message.value("content", common_json());
    return content.is_string() ? !content.get<std::string>().empty() : content.is_array() && !content.empty();
}

/* Moves tool results, and the assistant's text after them, into the message with the tool calls, because Gemma 4's
 * first templates have no role "tool". */
void results_in_calls(common_json &messages, const common_json & /*variables*/)
{
    common_json out = common_json::array();
    for (size_t i = 0; i < messages.size(); i++) {
        const common_json &message = messages.at(i);
        if (role_of(message) != "assistant" || !chat_has_calls(message)) {
            out.push_back(message);
            continue;
        }
        common_json turn = common_json::object(), responses = common_json::array();
        turn["role"] = "assistant";
        turn["tool_calls"] = message.at("tool_calls");
        while (i + 1 < messages.size() && role_of(messages.at(i + 1)) == "tool") {
            i++;
            responses.push_back(response_of(messages.at(i), message.at("tool_calls"), responses.size()));
        }
        if (!responses.empty()) {
            turn["tool_responses"] = responses;
        }
        if (i + 1 < messages.size() && role_of(messages.at(i + 1)) == "assistant" &&
            !chat_has_calls(messages.at(i + 1)) && has_content(messages.at(i + 1))) {
            i++;
            turn["content"] = messages.at(i).at("content");
        }
        if (has_text(message, "reasoning_content")) {
            turn["reasoning_content"] = message.at("reasoning_content");
        }
        out.push_back(turn);
    }
    messages = out;
}

/* ---- the end of the rendered text -------------------------------------------------------------------------------- */

/* Returns whether the text ends with `words`, and the template itself has written these words. */
bool ends_with(const chat_text &t, const std::string &words)
{
    const size_t n = words.size();
    return t.text.size() >= n && t.text.compare(t.text.size() - n, n, words) == 0 &&
           t.blocked.find('\1', t.text.size() - n) == std::string::npos;
}

void append(const std::string &words, chat_text *out)
{
    out->text += words;
    out->blocked.append(words.size(), '\0');
}

/* In Gemma 4's format, the model's turn stays open after a tool result. But if the model wrote text before the tool
 * call, Gemma's templates close the turn after the result and open no new turn. `open_turn` adds the missing
 * opening. */
const char *const GEMMA4_END = "<turn|>\n", *const GEMMA4_BEGIN = "<|turn>model\n";

void open_turn(bool asks, chat_text *rendered)
{
    if (asks && ends_with(*rendered, GEMMA4_END)) {
        append(GEMMA4_BEGIN, rendered);
    }
}

size_t n_of_open_turn(const std::string &opening, const chat_text &rendered)
{
    const std::string begin = GEMMA4_BEGIN;
    return ends_with(rendered, GEMMA4_END) || opening.compare(0, begin.size(), begin) != 0 ? 0 : begin.size();
}

/* gpt-oss's template writes <|return|> after the last answer of a conversation, as in training data. In a later prompt,
 * other messages follow this answer, and the template writes <|end|> after it. This function replaces <|return|> by
 * <|end|>. So the later prompt begins with the tokens of this prompt. */
void end_as_in_history(bool asks, chat_text *rendered)
{
    const std::string last = "<|return|>";
    if (!asks && ends_with(*rendered, last)) {
        rendered->text.resize(rendered->text.size() - last.size());
        rendered->blocked.resize(rendered->text.size());
        append("<|end|>", rendered);
    }
}

/* ---- families ----------------------------------------------------------------------------------------------------- *
 * A template belongs to the first family whose condition is true. The order of the families and their conditions are
 * those of llama.cpp's common_chat_template_detect_params_init. LLM-jp gets the same changes as gpt-oss. */

bool is_ministral(const std::string &source)
{
    return has_word(source, "[SYSTEM_PROMPT]") && has_word(source, "[TOOL_CALLS]") && has_word(source, "[ARGS]") &&
           !has_word(source, "[CALL_ID]");
}

bool is_gpt_oss(const std::string &source)
{
    return has_word(source, "<|channel|>");
}

bool is_k2_horizon(const std::string &source)
{
    return has_word(source, "<|ifm|im_start|>") && has_word(source, "<ifm|tool_calls>");
}

bool is_lfm2(const std::string &source)
{
    return (has_word(source, "<|tool_list_start|>") && has_word(source, "<|tool_list_end|>")) ||
           (has_word(source, "List of tools: [") && !has_word(source, "<|tool_list_start|>"));
}

bool is_deepseek_v4(const std::string &source)
{
    return has_word(source, "dsml_token") && has_word(source, "DSML") && has_word(source, "tool_calls") &&
           !has_word(source, "function_calls");
}

bool is_first_gemma4(const std::string &source)
{
    return has_word(source, "'<|tool_call>call:'") && !has_word(source, "{#- OpenAI Chat Completions:");
}

bool is_gemma4(const std::string &source)
{
    return has_word(source, "'<|tool_call>call:'");
}

bool is_translate_gemma(const std::string &source)
{
    return has_word(source, "[source_lang_code]") && has_word(source, "[target_lang_code]");
}

bool is_stepfun(const std::string &source)
{
    return has_word(source, "You have access to the following functions in JSONSchema format");
}

bool is_solar_open(const std::string &source)
{
    return has_word(source, "<|begin|>assistant<|think|>");
}

bool is_other(const std::string & /*source*/)
{
    return true;
}

const chat_family FAMILIES[] = {
    {is_ministral, reasoning_as_part, nullptr, nullptr, 0},
    {is_gpt_oss, reasoning_as_text_of_calls, end_as_in_history, nullptr, chat_family::DEVELOPERS},
    {is_k2_horizon, reasoning_everywhere, nullptr, nullptr, 0},
    {is_lfm2, reasoning_as_thinking, nullptr, nullptr, 0},
    {is_deepseek_v4, results_as_called, nullptr, nullptr, chat_family::SHOWS_SCHEMA},
    {is_first_gemma4, results_in_calls, open_turn, n_of_open_turn, chat_family::GATHERS_RESULTS},
    {is_gemma4, nullptr, open_turn, n_of_open_turn, 0},
    {is_translate_gemma, texts_with_languages, nullptr, nullptr, 0},
    {is_stepfun, nullptr, nullptr, nullptr, chat_family::TRIMS},
    {is_solar_open, reasoning_by_another_name, nullptr, nullptr, 0},
    {is_other, nullptr, nullptr, nullptr, 0},
};

} // namespace

const chat_family &chat_family_of(const std::string &source)
{
    return *std::find_if(std::begin(FAMILIES), std::end(FAMILIES),
                         [&](const chat_family &family) { return family.has_template(source); });
}
