#include "text/answer/call_repairs.h"

#include <common/chat-peg-parser.h>

#include <utility>

#include "text/answer/parser_graph.h"
#include "text/answer/parser_text.h"
#include "text/grammar/grammar_text.h"

namespace {

/* The characters of calls' ids, as pairs of the first and the last character of a range, and in GBNF. */
const char *const ID_RANGES = "09AZ__az..::--", *const ID_ELEMENT = "[0-9A-Z_a-z.:-]{1,64}";

} // namespace

std::string split_id_from_name(autoparser::autoparser *analysis)
{
    const std::string id = "call00001"; /* llama.cpp's example */
    std::string &prefix = analysis->tools.function.name_prefix;
    if (prefix.size() <= id.size() || prefix.compare(0, id.size(), id) != 0) {
        return "";
    }
    prefix.erase(0, id.size());
    analysis->preserved_tokens.push_back(prefix);
    return prefix;
}

/* Solar Open's template asks the model for ten letters and digits. Ids of other servers, in calls of the past, look
 * different, and a model may leave the id out. */
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

/* gpt-oss and LLM-jp can state the format of an answer, even if the client requested none: <|channel|>final
 * <|constrain|>json<|message|>. llama.cpp parses the format only with response_format, and then parses no calls. */
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
