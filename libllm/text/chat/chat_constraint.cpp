#include "text/chat/chat_constraint.h"

#include <algorithm>
#include <set>

namespace {

common_json ids_of(const model *m, const control_words &words, const std::string &text)
{
    const chat_text all = {text, std::string(text.size(), '\0')};
    common_json out = common_json::array();
    for (const int32_t token : text.empty() ? std::vector<int32_t>() : chat_tokenize(m, words, false, all).tokens) {
        out.push_back(token);
    }
    return out;
}

/* Returns the control tokens that the parser of answers searches for. The text of these tokens must therefore be part
 * of the answer's text. */
common_json preserved_tokens(const control_words &words, const chat_form &form)
{
    std::vector<std::string> texts = form.preserved;
    texts.insert(texts.end(), {form.thinking_start, form.thinking_forced});
    texts.insert(texts.end(), form.thinking_ends.begin(), form.thinking_ends.end());
    for (const common_grammar_trigger &trigger : form.triggers) {
        texts.push_back(trigger.value);
    }
    std::set<int32_t> found;
    for (const std::string &text : texts) {
        for (size_t at = 0, n; at < text.size(); at += n) {
            n = words.longest_at(text, at);
            if (n > 0) {
                found.insert(words.token_of(std::string_view(text).substr(at, n)));
            }
            n = n > 0 ? n : 1;
        }
    }
    common_json out = common_json::array();
    for (const int32_t token : found) {
        out.push_back(token);
    }
    return out;
}

/* Returns the trigger in the format of the constraint document. If a trigger word is the text of a control token, the
 * trigger becomes this token. A trigger that is a token is found without a search in the answer's text. */
common_json trigger_of(const control_words &words, const common_grammar_trigger &trigger)
{
    const int32_t token =
        trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_WORD ? words.token_of(trigger.value) : trigger.token;
    const char *type = "pattern_full";
    switch (trigger.type) {
    case COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN: type = "token"; break;
    case COMMON_GRAMMAR_TRIGGER_TYPE_WORD: type = token >= 0 ? "token" : "word"; break;
    case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN: type = "pattern"; break;
    case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN_FULL: break;
    }
    common_json out = common_json::object();
    out["type"] = type;
    out["value"] = trigger.value;
    out["token"] = token;
    return out;
}

/* Returns whether the prompt ends within reasoning. This is the case if the end of the prompt contains the delimiter
 * that opens reasoning, and no later delimiter that ends reasoning. */
bool is_thinking(const chat_form &form, const std::string &opening)
{
    const size_t begun = form.thinking_start.empty() ? std::string::npos : opening.rfind(form.thinking_start);
    return begun != std::string::npos &&
           std::all_of(form.thinking_ends.begin(), form.thinking_ends.end(), [&](const std::string &end) {
               const size_t ended = opening.rfind(end);
               return ended == std::string::npos || ended < begun;
           });
}

} // namespace

common_json chat_constraint_marks(const model *m, const control_words &words, const chat_form &form)
{
    common_json thinking = common_json::object(), triggers = common_json::array(), out = common_json::object();
    thinking["start"] = ids_of(m, words, form.thinking_start);
    thinking["ends"] = common_json::array();
    for (const std::string &text : form.thinking_ends) {
        common_json end = common_json::object();
        end["tokens"] = ids_of(m, words, text);
        end["text"] = text;
        thinking["ends"].push_back(end);
    }
    thinking["forced"] = ids_of(m, words, form.thinking_forced);
    for (const common_grammar_trigger &trigger : form.triggers) {
        triggers.push_back(trigger_of(words, trigger));
    }
    out["thinking"] = thinking;
    out["triggers"] = triggers;
    out["preserved"] = preserved_tokens(words, form);
    return out;
}

std::string chat_constraint(const chat_form &form, const std::string &opening, const chat_request &request)
{
    const bool has_budget = request.thinking_tokens_max >= 0 && !form.thinking_ends.empty();
    const bool has_to_follow = has_budget || (request.follows_thinking && !form.thinking_ends.empty());
    if (form.grammar.empty() && form.marks.at("preserved").empty() && !has_to_follow) {
        return "";
    }
    common_json out = form.marks;
    out["grammar"] = form.grammar;
    out["lazy"] = form.is_lazy;
    out["prefill"] = form.grammar.empty() || form.is_lazy ? std::string() : opening;
    out["thinking"]["max"] = has_budget ? request.thinking_tokens_max : static_cast<int64_t>(-1);
    out["thinking"]["is_open"] = is_thinking(form, opening);
    return out.dump_safe();
}
