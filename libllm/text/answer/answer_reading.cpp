#include "text/answer/answer_reading.h"

#include <common/chat-peg-parser.h>

#include <algorithm>
#include <memory>
#include <new>

#include "text/answer/parser_text.h"
#include "text/grammar/document_cache.h"
#include "text/template/chat_budget.h"

namespace {

/* llama.cpp's parser recurses for each level of JSON that a model writes. Beyond NESTING_SAFE levels the parser runs on
 * a separate large stack. Beyond NESTING_MAX levels the parser does not run. Otherwise a model that writes [ forever
 * would end the process. */
constexpr size_t NESTING_MAX = 1000, NESTING_SAFE = 64;

/* Returns the largest number of brackets that are open at once. Brackets in strings count, too, because the syntax of
 * strings depends on the form. So the result is never too small, and brackets in a string only cost the use of the
 * separate stack. */
size_t nesting_of(const std::string &text)
{
    size_t depth = 0, most = 0;
    for (const char c : text) {
        if (c == '[' || c == '{') {
            most = std::max(most, ++depth);
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    return most;
}

/* Collects the first bytes of all delimiters that end a text or reasoning. Text that has none of these bytes is
 * reported without parsing. */
void collect_markers(const common_json &node, bool *begins)
{
    if (node.is_object() && node.value("type", "") == "until" && node.contains("delimiters")) {
        for (const common_json &delimiter : node.at("delimiters")) {
            const std::string text = delimiter.get<std::string>();
            begins[static_cast<unsigned char>(text.empty() ? '\0' : text[0])] = true;
        }
    }
    if (node.is_object() || node.is_array()) {
        for (const common_json &child : node) {
            collect_markers(child, begins);
        }
    }
}

/* Returns the delimiters that end the text (content) of an answer. */
std::vector<std::string> markers_behind_text(const common_json &parser)
{
    std::vector<std::string> out;
    const common_json &parsers = parser.at("parsers");
    for (const common_json &one : parsers) {
        const bool is_text = one.value("type", "") == "tag" && one.value("tag", "") == common_chat_peg_builder::CONTENT;
        const size_t child = is_text ? one.at("child").get<size_t>() : parsers.size();
        if (child < parsers.size() && parsers.at(child).value("type", "") == "until") {
            for (const common_json &delimiter : parsers.at(child).at("delimiters")) {
                const std::string marker = delimiter.get<std::string>();
                out.push_back(marker.substr(0, marker.find_last_not_of(" \t\r\n") + 1));
            }
        }
    }
    return out;
}

/* Accepts arguments that are one object in Python's spelling, with True, None and 'x'. llama.cpp's own mapper accepts
 * this spelling only in single values. */
class native_mapper : public common_chat_peg_mapper {
  public:
    using common_chat_peg_mapper::common_chat_peg_mapper;

    void map(const common_peg_ast_node &node) override
    {
        if (node.tag != common_chat_peg_builder::TOOL_ARGS || node.text.empty() || node.text.front() != '{') {
            common_chat_peg_mapper::map(node);
            return;
        }
        const std::string json = normalize_container_value(std::string(node.text));
        common_peg_ast_node as_json = node;
        as_json.text = json;
        common_chat_peg_mapper::map(as_json);
    }
};

std::unique_ptr<common_chat_peg_mapper> mapper_of(common_chat_format format, common_chat_msg *out)
{
    switch (format) {
    case COMMON_CHAT_FORMAT_PEG_GEMMA4: return std::make_unique<common_chat_peg_gemma4_mapper>(*out);
    case COMMON_CHAT_FORMAT_PEG_MINIMAX_M3: return std::make_unique<common_chat_peg_minimax_m3_mapper>(*out);
    default: return std::make_unique<native_mapper>(*out);
    }
}

bool is_of_call(const std::string &tag)
{
    return tag.rfind("tool", 0) == 0;
}

/* Returns whether the node's text is a single value. The middle of a single value can be left out when a long call is
 * parsed again. If each argument is between its own delimiters, the node of all arguments is not a single value. If the
 * middle of this node were left out, two arguments could become one. */
bool is_value(const common_peg_ast_node &node)
{
    const bool is_object = !node.text.empty() && node.text.front() == '{';
    return (node.tag == common_chat_peg_builder::TOOL_ARGS && is_object) ||
           node.tag == common_chat_peg_builder::TOOL_ARG_VALUE ||
           node.tag == common_chat_peg_builder::TOOL_ARG_STRING_VALUE;
}

/* Records in `out` the position of the node if the node is a tool call, an unfinished value, or an unfinished list.
 * Outer values are visited before inner values, so the innermost unfinished value remains in `out`. */
void locate_call(const common_peg_ast_arena &ast, const common_peg_ast_node &node, size_t n_bytes, answer_reading *out)
{
    if (node.tag == common_chat_peg_builder::TOOL_OPEN) {
        out->first_call = std::min(out->first_call, node.start);
        out->last_call = node.start;
    } else if (is_value(node) && node.end == n_bytes) {
        out->value = node.start;
        out->is_value_verbatim = node.tag == common_chat_peg_builder::TOOL_ARG_STRING_VALUE;
    } else if (node.tag == common_chat_peg_minimax_m3_mapper::TOOL_ARG_ARRAY && node.end == n_bytes &&
               !node.children.empty()) {
        out->lists.push_back({ast.get(node.children.front()).start, ast.get(node.children.back()).start});
    }
}

/* Finds the part of the answer that contains the last byte. Also finds the end of the last part that is reported. A
 * call is reported only if its name is complete. */
void locate(const common_peg_ast_arena &ast, const common_peg_parse_result &result, size_t n_bytes, answer_reading *out)
{
    bool is_named = false;
    ast.visit(result, [&](const common_peg_ast_node &node) {
        locate_call(ast, node, n_bytes, out);
        answer_reading::part part = answer_reading::NONE;
        if (node.tag == common_chat_peg_builder::CONTENT) {
            part = answer_reading::TEXT;
        } else if (node.tag == common_chat_peg_builder::REASONING) {
            part = answer_reading::REASONING;
        } else if (is_of_call(node.tag)) {
            const bool begins =
                node.tag == common_chat_peg_builder::TOOL || node.tag == common_chat_peg_builder::TOOL_OPEN;
            is_named = node.tag == common_chat_peg_builder::TOOL_NAME || (is_named && !begins);
            out->unnamed_call = is_named ? SIZE_MAX : std::min(out->unnamed_call, node.start);
            part = is_named ? answer_reading::CALL : answer_reading::NONE;
        }
        if (part != answer_reading::NONE && node.end >= out->n_reported) {
            out->n_reported = node.end;
            out->last = node.end == n_bytes ? part : answer_reading::NONE;
        }
    });
}

} // namespace

/* ---- syntax ------------------------------------------------------------------------------------------------------ */

std::string answer_syntax::written() const
{
    common_json out = common_json::object();
    out["format"] = static_cast<int>(format);
    out["opening"] = opening;
    out["reopening"] = reopening;
    out["thinking_end"] = thinking_end;
    out["calls_once"] = calls_once;
    out["must_call"] = must_call;
    out["parser"] = parser;
    return out.dump_safe();
}

answer_syntax answer_syntax::read(const std::string &given)
{
    const common_json from = common_json::parse(given);
    answer_syntax out;
    const int format = from.at("format").get<int>();
    if (format < 0 || format >= COMMON_CHAT_FORMAT_COUNT) {
        throw std::runtime_error("unknown format");
    }
    out.format = static_cast<common_chat_format>(format);
    out.opening = from.at("opening").get<std::string>();
    out.reopening = from.at("reopening").get<std::string>();
    out.thinking_end = from.at("thinking_end").get<std::string>();
    out.calls_once = from.at("calls_once").get<bool>();
    out.must_call = from.at("must_call").get<bool>();
    out.parser = from.at("parser").get<std::string>();
    return out;
}

/* ---- form -------------------------------------------------------------------------------------------------------- */

std::shared_ptr<const answer_grammar> answer_grammar::of(std::string_view document)
{
    static document_cache<answer_grammar> *const kept = new document_cache<answer_grammar>;
    std::shared_ptr<const answer_grammar> found = kept->find(document);
    if (found == nullptr) {
        auto made = std::make_shared<answer_grammar>();
        made->syntax = answer_syntax::read(std::string(document));
        const common_json parser = common_json::parse(made->syntax.parser);
        made->syntax.parser = std::string();
        made->arena = parser_read(parser);
        collect_markers(parser, made->begins_marker);
        made->markers = markers_behind_text(parser);
        made->marks = call_marks_of(parser);
        kept->keep(std::string(document), made);
        found = made;
    }
    return found;
}

/* Parses in llama.cpp's lenient mode, in which the text can end anywhere, because the answer is still being generated.
 * If the parser stops before the end of the text, the text does not fit, because the rest of the text would be lost. */
answer_reading answer_form::parse(const std::string &text) const
{
    answer_reading out;
    n_bytes_read += text.size();
    try {
        common_peg_parse_context context(text, COMMON_PEG_PARSE_FLAG_LENIENT);
        const common_peg_parse_result result = rules->arena.parse(context);
        if (result.fail() || (result.success() && result.end != text.size())) {
            return out;
        }
        out.said.role = "assistant";
        mapper_of(rules->syntax.format, &out.said)->from_ast(context.ast, result);
        if (rules->syntax.calls_once && out.said.tool_calls.size() > 1) {
            return answer_reading();
        }
        locate(context.ast, result, text.size(), &out);
        out.fits = true;
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception &) { /* llama.cpp's mappers throw if they cannot convert a part */
        out = answer_reading();
    }
    return out;
}

answer_reading answer_form::read(const std::string &text) const
{
    const size_t nesting = nesting_of(text);
    if (nesting > NESTING_MAX) {
        return {};
    }
    if (nesting <= NESTING_SAFE) {
        return parse(text);
    }
    answer_reading out;
    bool has_memory = true;
    const auto work = [&]() noexcept {
        try {
            out = parse(text);
        } catch (const std::bad_alloc &) {
            has_memory = false;
        }
    };
    if (!chat_call_with_stack(std::cref(work)) || !has_memory) {
        throw std::bad_alloc();
    }
    return out;
}

bool answer_form::may_be_text(const std::string &begun, bool is_after_text) const
{
    bool is_part = false;
    for (const std::string &marker : rules->markers) {
        const size_t n = std::min(marker.size(), begun.size());
        if (n > 0 && begun.compare(0, n, marker, 0, n) == 0) {
            if (n == marker.size() || n >= CALL_MARK_BYTES_MIN) {
                return false;
            }
            is_part = true;
        }
    }
    return is_part || is_after_text;
}

/* Looks for complete delimiters of three kinds, in this order: delimiters with which calls begin, closing delimiters,
 * opening delimiters. If several delimiters of a kind match, returns the longest. A complete delimiter is returned even
 * if further text could make it a longer delimiter. */
answer_mark answer_form::mark_at(const std::string &text) const
{
    bool may_become_one = false;
    const auto length = [&](const std::vector<std::string> &all) {
        size_t most = 0;
        for (const std::string &mark : all) {
            const size_t n = std::min(mark.size(), text.size());
            if (mark.size() >= CALL_MARK_BYTES_MIN && text.compare(0, n, mark, 0, n) == 0) {
                most = n == mark.size() ? std::max(most, n) : most;
                may_become_one = may_become_one || n < mark.size();
            }
        }
        return most;
    };
    const size_t n_begin = length(rules->markers);
    const size_t n_closing = length(rules->marks.closing), n_opening = length(rules->marks.opening);
    if (n_begin > 0) {
        return {answer_mark::BEGIN, n_begin};
    }
    if (n_closing > 0) {
        return {answer_mark::CLOSING, n_closing};
    }
    if (n_opening > 0) {
        return {answer_mark::OPENING, n_opening};
    }
    return {may_become_one ? answer_mark::UNSURE : answer_mark::NONE, 0};
}

bool answer_form::ends_with_closing_mark(const std::string &text) const
{
    const size_t end = text.find_last_not_of(" \t\r\n") + 1;
    const std::vector<std::string> &closing = rules->marks.closing;
    return std::any_of(closing.begin(), closing.end(), [&](const std::string &mark) {
        return mark.size() <= end && text.compare(end - mark.size(), mark.size(), mark) == 0;
    });
}

bool answer_form::is_whole(const std::string &text) const
{
    n_bytes_read += text.size();
    if (nesting_of(text) > NESTING_SAFE) {
        return false;
    }
    try {
        common_peg_parse_context context(text, COMMON_PEG_PARSE_FLAG_NONE);
        const common_peg_parse_result result = rules->arena.parse(context);
        return result.success() && result.end == text.size();
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception &) {
        return false;
    }
}
