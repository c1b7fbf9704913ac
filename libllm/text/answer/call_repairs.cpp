#include "text/answer/call_repairs.h"

#include <common/chat-peg-parser.h>

#include <algorithm>
#include <utility>

#include "text/answer/parser_graph.h"
#include "text/answer/parser_text.h"
#include "text/grammar/grammar_text.h"

namespace {

const char *const MESSAGE_BEGIN = "<|begin|>assistant", *const MESSAGE_END = "<|end|>", *const THOUGHT = "<|think|>";

/* The characters of a tool call's id, as pairs of the first and the last character of each range, and as GBNF. */
const char *const ID_RANGES = "09AZ__az..::--", *const ID_ELEMENT = "[0-9A-Z_a-z.:-]{1,64}";

} // namespace

std::string split_id_from_name(autoparser::autoparser *analysis)
{
    const std::string id = "call00001"; /* the id in llama.cpp's example */
    std::string &prefix = analysis->tools.function.name_prefix;
    if (prefix.size() <= id.size() || prefix.compare(0, id.size(), id) != 0) {
        return "";
    }
    prefix.erase(0, id.size());
    analysis->preserved_tokens.push_back(prefix);
    return prefix;
}

/* Solar Open's template asks the model for an id of ten letters and digits. But other ids are accepted, too, because
 * earlier tool calls in the prompt can have ids from other servers. The id is optional, because a model may leave it
 * out. */
void allow_ids(const std::string &id_end, common_chat_params *form)
{
    parser_graph graph(parser_written(form->parser));
    for (size_t id = 0, n = graph.size(); id < n; id++) {
        if (graph.is(id, "literal") && graph.at(id).at("literal") == id_end) {
            const size_t call_id = graph.tag(common_chat_peg_builder::TOOL_ID, graph.characters(ID_RANGES, false, 1));
            graph.at(id) = graph.at(graph.sequence({graph.optional(call_id), graph.literal(id_end)}));
        }
    }
    form->parser = parser_read(std::move(graph).json(), true);
    form->grammar = grammar_with_optional(form->grammar, id_end, ID_ELEMENT);
}

bool reads_ids(const common_peg_arena &parser)
{
    for (common_peg_parser_id id = 0; id < parser.size(); id++) {
        const auto *tag = std::get_if<common_peg_tag_parser>(&parser.get(id));
        if (tag != nullptr && tag->tag == common_chat_peg_builder::TOOL_ID) {
            return true;
        }
    }
    return false;
}

bool find_messages(const std::string &source, autoparser::autoparser *found)
{
    if (source.find(std::string(MESSAGE_BEGIN) + THOUGHT) == std::string::npos || !found->content.is_always_wrapped() ||
        found->reasoning.mode != autoparser::reasoning_mode::NONE) {
        return false;
    }
    found->reasoning.mode = autoparser::reasoning_mode::TAG_BASED;
    found->reasoning.start = THOUGHT;
    found->reasoning.end = std::string(MESSAGE_END) + MESSAGE_BEGIN;
    return true;
}

void allow_messages(const autoparser::autoparser &found, const std::string &continued, common_chat_params *form)
{
    std::string &opening = form->generation_prompt;
    const std::string no_thought = found.reasoning.start + found.reasoning.end;
    const size_t text_at = continued.empty() ? std::string::npos : opening.find(continued);
    if (text_at != std::string::npos) {
        const bool thinks = text_at < no_thought.size() ||
                            opening.compare(text_at - no_thought.size(), no_thought.size(), no_thought) != 0;
        opening.insert(text_at, found.content.start);
        if (!thinks) {
            opening.erase(text_at - no_thought.size(), no_thought.size());
        }
    }
    parser_graph graph(parser_written(form->parser));
    for (size_t id = 0, n = graph.size(); id < n; id++) {
        const common_json tag = graph.at(id);
        const size_t child = graph.is_tagged(id, common_chat_peg_builder::CONTENT) ? tag.at("child").get<size_t>() : n;
        if (child >= n || !graph.is(child, "until")) {
            continue;
        }
        std::vector<std::string> ends = graph.at(child).at("delimiters").get<std::vector<std::string>>();
        if (std::find(ends.begin(), ends.end(), MESSAGE_END) != ends.end()) {
            continue; /* this parser already expects the message's end, for example because no tools are offered */
        }
        ends.push_back(MESSAGE_END);
        const size_t text =
            graph.tag(common_chat_peg_builder::CONTENT, graph.add({{"type", "until"}, {"delimiters", ends}}));
        const size_t next = graph.optional(graph.literal(MESSAGE_BEGIN));
        const size_t end = graph.optional(graph.sequence({graph.literal(MESSAGE_END), next}));
        const size_t framed = graph.sequence({graph.literal(found.content.start), text, end});
        const size_t bare = graph.add(tag);
        graph.at(id) = graph.at(graph.choice({framed, bare}));
    }
    form->parser = parser_read(std::move(graph).json(), true);
}

/* gpt-oss and LLM-jp can name the format of an answer, even if the client requested no format. An example with json is
 * <|channel|>final <|constrain|>json<|message|>. llama.cpp parses the name of the format only if the request has a
 * response_format. But in this case llama.cpp parses no tool calls. */
common_json with_named_format(common_json parser)
{
    const std::string channel = "<|channel|>", final = "final", message = "<|message|>";
    parser_graph graph(std::move(parser));
    const auto is_literal = [&](size_t id, const std::string &text) {
        return graph.is(id, "literal") && graph.at(id).value("literal", "") == text;
    };
    const size_t n = graph.size();
    const size_t name = graph.add({{"type", "until"}, {"delimiters", std::vector<std::string>{message}}});
    for (size_t id = 0; id < n; id++) {
        if (is_literal(id, channel + final + message)) {
            graph.at(id) = graph.at(graph.sequence({graph.literal(channel + final), name, graph.literal(message)}));
        } else if (graph.is(id, "sequence")) {
            std::vector<size_t> parts = graph.children(id);
            for (size_t i = 0; i + 1 < parts.size(); i++) {
                if (is_literal(parts[i], final) && is_literal(parts[i + 1], message)) {
                    parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1, name);
                }
            }
            graph.at(id)["children"] = parts;
        }
    }
    return std::move(graph).json();
}
