#include "text/chat/chat_form.h"

#include <common/chat-peg-parser.h>
#include <common/json-schema-to-grammar.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "text/answer/call_graph.h"
#include "text/answer/call_grammar.h"
#include "text/answer/call_parser.h"
#include "text/answer/call_repairs.h"
#include "text/template/chat_budget.h"
#include "text/template/chat_compile.h"
#include "text/grammar/grammar.h"
#include "text/grammar/grammar_text.h"
#include "text/grammar/grammar_walk.h"
#include "text/answer/parser_text.h"
#include "text/answer/tool_schema.h"

const char *const CHAT_FORM_CONTENT = "c0nt3nt0f7h3m355ag3", *const CHAT_FORM_REASONING = "r3a50n1ng0f7h3m355ag3";

namespace {

/* Placeholder in llama.cpp's grammar of an answer. The client's grammar of the text is inserted there. */
const char *const GRAMMAR_OF_TEXT = "f0rm0f7h373x7";

/* Beginning of the delimiters around list items in MiniMax M3's tool calls. */
const char *const ITEM_MARK = "]<]minimax[>[";

/* The delimiters of tool calls, for templates that have none. describe_tools shows them to the model. */
const char *const CALL_BEGIN = "<tool_call>", *const CALL_END = "</tool_call>";

common_json message_of(const char *role, const char *content)
{
    common_json out = common_json::object();
    out["role"] = role;
    out["content"] = content;
    return out;
}

common_json object_schema(const char *constant)
{
    common_json out = common_json::object();
    out["const"] = constant;
    return out;
}

void continue_last(const chat_wish &wish, autoparser::generation_params *out)
{
    out->add_generation_prompt = false;
    out->continue_final_message =
        wish.continues_content ? COMMON_CHAT_CONTINUATION_CONTENT : COMMON_CHAT_CONTINUATION_REASONING;
    out->continue_msg.role = "assistant";
    out->continue_msg.content = wish.continues_content ? CHAT_FORM_CONTENT : "";
    out->continue_msg.reasoning_content = wish.continues_reasoning ? CHAT_FORM_REASONING : "";
}

/* The form of answers (chat_form.h) does not depend on the messages, so it is derived from a short conversation. */
autoparser::generation_params params_of(const common_chat_template &tmpl, const chat_wish &wish)
{
    autoparser::generation_params out;
    out.messages = common_json::array();
    out.messages.push_back(message_of("user", "Hello"));
    out.add_generation_prompt = true;
    out.reasoning_format = wish.is_reasoning_apart ? COMMON_REASONING_FORMAT_AUTO : COMMON_REASONING_FORMAT_NONE;
    out.tool_choice = COMMON_CHAT_TOOL_CHOICE_NONE;
    out.parallel_tool_calls =
        wish.parallel < 0 ? tmpl.original_caps().supports_parallel_tool_calls : wish.parallel != 0;
    out.extra_context = common_json::object();
    out.extra_context["date_string"] = "01 Jan 2026";
    out.extra_context["datetime"] = "Jan 01 2026";
    for (const auto &[name, value] : wish.kwargs.items()) {
        out.extra_context[name] = value;
    }
    const common_json thinks = out.extra_context.value("enable_thinking", common_json());
    out.enable_thinking = !thinks.is_boolean() || thinks.get<bool>();
    if (wish.continues_content || wish.continues_reasoning) {
        continue_last(wish, &out);
    }
    return out;
}

/* Returns the placeholder for the client's grammar of argument i. */
std::string argument_mark(size_t i)
{
    return "f0rm0f4n4rgum3n7-" + std::to_string(i);
}

void mark_arguments(const chat_wish &wish, const std::string &tool, common_json &out)
{
    common_json &parameters = out["function"]["parameters"];
    if (!parameters.contains("properties")) {
        return;
    }
    common_json &properties = parameters["properties"];
    for (size_t i = 0; i < wish.arguments.size(); i++) {
        const chat_argument &one = wish.arguments[i];
        if (one.tool == tool && properties.is_object() && properties.contains(one.name)) {
            properties[one.name] = object_schema(argument_mark(i).c_str());
        }
    }
}

common_json callable_tools(const chat_wish &wish, tool_schemas &schemas)
{
    common_json out = common_json::array();
    for (const common_json &tool : wish.offer->tools) {
        const std::string name = tool.at("function").at("name").get<std::string>();
        const bool has_form = std::any_of(wish.arguments.begin(), wish.arguments.end(),
                                          [&](const chat_argument &one) { return one.tool == name; });
        if (wish.names.empty() || std::find(wish.names.begin(), wish.names.end(), name) != wish.names.end()) {
            out.push_back(schemas.placed(tool, has_form));
            mark_arguments(wish, name, out[out.size() - 1]);
        }
    }
    return out;
}

/* Inserts the grammars that a client gives for arguments. A family that writes no JSON strings allows any text. */
std::string with_arguments(std::string grammar, const chat_wish &wish)
{
    for (size_t i = 0; i < wish.arguments.size(); i++) {
        if (grammar_mentions(grammar, argument_mark(i))) {
            grammar = grammar_with(grammar, argument_mark(i), wish.arguments[i].grammar, argument_mark(i) + "-");
        }
    }
    return grammar;
}

/* A template can refuse the short conversation (params_of) and still accept the request's conversation. In this case,
 * the form is derived with a trivial template, and everything but the form's opening is still right. */
common_chat_params generated(const common_chat_template &tmpl, const chat_analysis &analysis,
                             const autoparser::generation_params &params)
{
    try {
        return autoparser::peg_generator::generate_parser(tmpl, params, analysis.found);
    } catch (const chat_limit &) {
        throw;
    } catch (const jinja::rethrown_exception &) {
        if (analysis.knows_calls || params.has_continuation()) {
            throw;
        }
        return autoparser::peg_generator::generate_parser(*chat_compile("{{ messages[0].content }}", "", ""), params,
                                                          analysis.found);
    }
}

common_chat_params apply(const common_chat_template &tmpl, const chat_analysis &analysis,
                         autoparser::generation_params params)
{
    if (analysis.is_special) {
        if (const auto found = common_chat_try_specialized_template(tmpl, params)) {
            return *found;
        }
    }
    common_chat_params out = generated(tmpl, analysis, params);
    const autoparser::analyze_reasoning &reasoning = analysis.found.reasoning;
    out.supports_thinking = reasoning.mode != autoparser::reasoning_mode::NONE;
    if (out.supports_thinking) {
        out.thinking_start_tag = reasoning.start;
        out.thinking_end_tags = {reasoning.end};
    }
    if (!analysis.id_end.empty()) {
        allow_ids(analysis.id_end, &out);
    }
    if (analysis.has_messages) {
        allow_messages(analysis.found, params.continue_msg.content, &out);
    }
    return out;
}

/* Returns the texts that begin a tool call in the middle of reasoning, one per tool. The list is empty if llama.cpp
 * already ends reasoning at the opening of every tool call. */
std::vector<std::string> heads_of_calls(const common_chat_params &params, const common_json &tools,
                                        const call_head &head)
{
    const bool is_needed =
        head.is_known() && params.grammar_lazy && params.supports_thinking &&
        std::none_of(params.thinking_end_tags.begin(), params.thinking_end_tags.end(),
                     [&](const std::string &end) { return head.before.compare(0, end.size(), end) == 0; });
    std::vector<std::string> out;
    for (const common_json &tool : is_needed ? tools : common_json::array()) {
        out.push_back(head.before + tool.at("function").at("name").get<std::string>() + head.after);
    }
    return out;
}

void describe(const common_chat_params &params, const std::vector<std::string> &heads, chat_form *out)
{
    out->format = params.format;
    out->parser =
        call_parser_for_reading(params.format, with_named_format(parser_written(params.parser)), heads).dump_safe();
    out->opening = params.generation_prompt;
    out->preserved = params.preserved_tokens;
    for (const std::string &stop : params.additional_stops) {
        if (!stop.empty() && stop.size() <= LLM_STOP_BYTES_MAX && out->stops.size() < LLM_TEMPLATE_STOPS_MAX) {
            out->stops.push_back(stop);
        }
    }
    if (params.supports_thinking && !params.thinking_end_tags.empty()) {
        out->thinking_start = without_blanks(params.thinking_start_tag);
        out->thinking_forced = params.thinking_end_tags.front();
        for (const std::string &tag : params.thinking_end_tags) {
            const std::string mark = without_blanks(tag);
            if (!mark.empty() &&
                std::find(out->thinking_ends.begin(), out->thinking_ends.end(), mark) == out->thinking_ends.end()) {
                out->thinking_ends.push_back(mark);
            }
        }
        out->thinking_ends.insert(out->thinking_ends.end(), heads.begin(), heads.end());
    }
}

/* Returns the part of `opening` before the text that opens reasoning. */
std::string without_thinking(const std::string &opening, const std::string &thinking_start)
{
    const size_t at = thinking_start.empty() ? std::string::npos : opening.find(thinking_start);
    return opening.substr(0, at);
}

/* If a tool call is required, llama.cpp's grammars still allow unlimited text before the call, and some text after the
 * call. The model might never call a tool. This function makes the rules of this text match only blanks. It finds the
 * rules by their names, which contain the numbers of llama.cpp's parsers. */
std::string without_text(std::string grammar, const common_peg_arena &parser)
{
    for (common_peg_parser_id id = 0; id < parser.size(); id++) {
        const auto *tag = std::get_if<common_peg_tag_parser>(&parser.get(id));
        if (tag != nullptr && tag->tag == common_chat_peg_builder::CONTENT &&
            std::holds_alternative<common_peg_until_parser>(parser.get(tag->child))) {
            grammar = grammar_with_blank_rule(grammar, "until-" + std::to_string(tag->child));
        }
    }
    return grammar;
}

/* Some of llama.cpp's grammars allow several tool calls even if the request allows only one. Rules that repeat calls
 * have the flag `trigger` in llama.cpp's parser. This function removes the repetition. */
std::string with_one_call(std::string grammar, const common_peg_arena &parser)
{
    for (common_peg_parser_id id = 0; id < parser.size(); id++) {
        const auto *rule = std::get_if<common_peg_rule_parser>(&parser.get(id));
        if (rule != nullptr && rule->trigger) {
            grammar = grammar_without_repetition(grammar, rule->name);
        }
    }
    return grammar;
}

/* Grammar of a tool call's id that follows the call's arguments. call_parser.cpp parses such an id. */
const char *const ID_BEHIND =
    R"( ([ \t\n]{0,4} "," [ \t\n]{0,4} "\"id\"" [ \t\n]{0,4} ":" [ \t\n]{0,4} "\"" [^"\\\x00-\x1F\x7F]+ "\"")?)";

std::string calling_grammar(const common_chat_params &found, const chat_analysis &analysis, const chat_wish &wish,
                            tool_schemas &schemas, bool must_call)
{
    const std::string ours = call_grammar(found, &schemas);
    const bool needs_id = analysis.head.has_id_after && !reads_ids(found.parser);
    const std::string all =
        schemas.put(with_arguments(ours.empty() ? found.grammar : ours, wish), needs_id ? ID_BEHIND : "");
    std::string out = wish.calls_once() ? with_one_call(all, found.parser) : all;
    if (must_call || (wish.calls_once() && found.grammar_lazy)) {
        out = without_text(out, found.parser);
    }
    return must_call ? out : grammar_without_empty_turns(out);
}

/* Returns the grammar of an answer without tool calls: optional reasoning, then the placeholder GRAMMAR_OF_TEXT. */
std::string plain_grammar(const chat_form &form, const chat_analysis &analysis, bool has_calls)
{
    const autoparser::analyze_content &content = analysis.found.content;
    /* if an answer can have tool calls, llama.cpp parses delimiters around the text only in formats with JSON calls */
    const bool is_read =
        analysis.has_messages || analysis.found.tools.format.mode == autoparser::tool_format::JSON_NATIVE;
    const bool is_framed = content.is_always_wrapped() && (!has_calls || is_read);
    const std::string &start = form.thinking_start;
    const std::string end = form.thinking_ends.empty() ? std::string() : form.thinking_ends.front();
    const common_peg_arena parser = build_chat_peg_parser([&](common_chat_peg_builder &p) {
        const bool thinks = !start.empty() && !end.empty();
        const common_peg_parser text = p.content(p.schema(p.json(), "text", object_schema(GRAMMAR_OF_TEXT)));
        const common_peg_parser thinking =
            thinks ? p.optional(p.literal(start) + p.until(end) + p.literal(end) + p.space()) : p.eps();
        const common_peg_parser opening = p.prefix(form.opening, start) + thinking;
        return is_framed ? opening + p.literal(content.start) + text + p.literal(content.end) : opening + text;
    });
    return build_grammar([&](const common_grammar_builder &builder) { parser.build_grammar(builder, false); });
}

/* Inserts the client's grammar into the grammar of llama.cpp's special parser if possible, else into plain_grammar. */
std::string constrained_grammar(const common_chat_template &tmpl, const chat_analysis &analysis, const chat_wish &wish,
                                const chat_form &form)
{
    autoparser::generation_params params = params_of(tmpl, wish);
    params.json_schema = object_schema(GRAMMAR_OF_TEXT);
    std::string out;
    if (analysis.is_special) {
        out = grammar_without_fences(apply(tmpl, analysis, params).grammar);
    }
    if (!grammar_mentions(out, GRAMMAR_OF_TEXT)) {
        out = plain_grammar(form, analysis, wish.has_calls());
    }
    return grammar_with(out, GRAMMAR_OF_TEXT, wish.grammar, "given-");
}

} // namespace

/* ---- the analysis of a template ---------------------------------------------------------------------------------- */

namespace {

/* Sets libllm's syntax of tool calls, for templates without their own. Many models were trained with this syntax. */
void use_own_calls(autoparser::autoparser *analysis)
{
    analysis->jinja_caps.supports_tool_calls = true;
    analysis->tools = autoparser::analyze_tools();
    analysis->tools.format.mode = autoparser::tool_format::JSON_NATIVE;
    analysis->tools.format.per_call_start = CALL_BEGIN;
    analysis->tools.format.per_call_end = CALL_END;
    analysis->preserved_tokens.push_back(CALL_BEGIN);
    analysis->preserved_tokens.push_back(CALL_END);
}

/* If tool calls are name[CALL_ID]id[ARGS]{...}, llama.cpp's analysis stores [ARGS] twice: correctly after the id, and
 * also as the end of the tool's name. This function removes the second entry. */
void count_markers_once(autoparser::autoparser *analysis)
{
    std::string &suffix = analysis->tools.function.name_suffix;
    if (suffix == analysis->tools.call_id.suffix || suffix == analysis->tools.arguments.start) {
        suffix.clear();
    }
}

/* Some templates begin every message with a delimiter of its role. So the prompt ends with the answer's delimiter. If
 * llama.cpp's analysis expects this delimiter again in the answer, removes the delimiter from the analysis. */
void count_opening_once(const common_chat_template &tmpl, const autoparser::generation_params &params,
                        autoparser::autoparser *analysis)
{
    if (!analysis->content.is_always_wrapped()) {
        return;
    }
    const std::string opening = without_blanks(common_chat_template_generation_prompt(tmpl, params));
    const std::string start = without_blanks(analysis->content.start);
    if (opening.size() >= start.size() && opening.compare(opening.size() - start.size(), start.size(), start) == 0) {
        analysis->content.mode = autoparser::content_mode::PLAIN;
        analysis->content.start.clear();
        analysis->content.end.clear();
    }
}

void offer_tool(autoparser::generation_params *params)
{
    params->tools = common_json::parse(R"([{"type":"function","function":{"name":"t","parameters":{}}}])");
    params->tool_choice = COMMON_CHAT_TOOL_CHOICE_AUTO;
}

/* Returns how a tool call begins, or an empty call_head if the template refuses a short conversation with a call. */
call_head head_of_calls(const common_chat_template &tmpl, const chat_analysis &analysis,
                        autoparser::generation_params params)
{
    try {
        offer_tool(&params);
        return call_head_of(tmpl, params, apply(tmpl, analysis, params));
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception &) {
        return {};
    }
}

enum class own_parser { NONE, WORKS, FAILS };

/* Returns whether llama.cpp has a special parser for this family and can render the template with it. Some templates
 * refuse a conversation without tools, so rendering with a tool is tried, too. */
own_parser own_parser_of(const common_chat_template &tmpl, autoparser::generation_params params,
                         common_chat_format *format)
{
    for (const bool has_tools : {false, true}) {
        if (has_tools) {
            offer_tool(&params);
        }
        try {
            const auto found = common_chat_try_specialized_template(tmpl, params);
            *format = found.has_value() ? found->format : *format;
            return found.has_value() ? own_parser::WORKS : own_parser::NONE;
        } catch (const std::bad_alloc &) {
            throw;
        } catch (const std::exception &) { /* the template refused the conversation; its reason does not matter here */
        }
    }
    return own_parser::FAILS;
}

autoparser::autoparser nothing_known(const common_chat_template &tmpl)
{
    autoparser::autoparser out;
    out.jinja_caps = tmpl.original_caps();
    out.analysis_complete = true;
    return out;
}

/* llama.cpp's analysis compares renderings of short conversations. If the template refuses one, the result is empty. */
void analyse_by_differences(const common_chat_template &tmpl, const autoparser::generation_params &params,
                            autoparser::autoparser *out)
{
    try {
        out->analyze_template(tmpl);
        count_markers_once(out);
        count_opening_once(tmpl, params, out);
        out->tools.arguments.tolerate_intertag_whitespace = true; /* the grammar tolerates this white space, too */
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception &) {
        *out = nothing_known(tmpl);
    }
}

} // namespace

chat_analysis chat_analyse(const common_chat_template &tmpl)
{
    chat_analysis out;
    const chat_template_caps caps = tmpl.original_caps();
    chat_wish nothing;
    nothing.kwargs = common_json::object();
    common_chat_format format = COMMON_CHAT_FORMAT_PEG_NATIVE;
    const own_parser own = own_parser_of(tmpl, params_of(tmpl, nothing), &format);
    out.is_special = own == own_parser::WORKS;
    out.knows_calls = out.describes_tools = out.is_special;
    if (out.is_special) {
        out.has_gemma_values = format == COMMON_CHAT_FORMAT_PEG_GEMMA4;
        out.head = head_of_calls(tmpl, out, params_of(tmpl, nothing));
        return out;
    }
    if (own == own_parser::FAILS) { /* llama.cpp's analysis, which compares renderings, would fail, too */
        out.found = nothing_known(tmpl);
    } else {
        analyse_by_differences(tmpl, params_of(tmpl, nothing), &out.found);
        out.id_end = split_id_from_name(&out.found);
        out.has_messages = find_messages(tmpl.source(), &out.found);
    }
    out.describes_tools = caps.supports_tools;
    out.knows_calls = caps.supports_tool_calls && out.found.tools.format.mode != autoparser::tool_format::NONE;
    if (!out.knows_calls) {
        use_own_calls(&out.found);
    }
    out.head = head_of_calls(tmpl, out, params_of(tmpl, nothing));
    if (out.has_messages) { /* head.before contains the id of the example call, which no other call has */
        out.head.before.clear();
    }
    return out;
}

/* ---- the form of an answer --------------------------------------------------------------------------------------- */

namespace {

/* Removes the EOS token's text from llama.cpp's grammars. Otherwise a model could write this text with ordinary tokens,
 * and it would become part of the answer. */
std::string without_end(std::string grammar, const std::string &eos)
{
    const std::string option = " \"" + eos + "\"?";
    for (size_t at = 0; !eos.empty() && (at = grammar.find(option, at)) != std::string::npos;) {
        grammar.erase(at, option.size());
    }
    return grammar;
}

/* Returns whether the grammar is too large for the JSON document of a constraint (chat_constraint.h). */
bool is_too_large(const std::string &grammar)
{
    constexpr size_t BYTES_MAX = LLM_CONSTRAINT_BYTES_MAX / 4 * 3; /* the document has other members, too */
    return grammar.size() > BYTES_MAX || common_json::make(grammar).dump_safe().size() > BYTES_MAX;
}

/* Tries to make the form of an answer (chat_form.h). `detail` says how much of the tools' schemas the grammar enforces.
 * WHOLE and NOTHING are for families that write all arguments as one object, EACH and NAMES for other families. Returns
 * nullopt if `detail` does not suit the family, or if `detail` is EACH and the grammar is too large. */
std::optional<chat_form> attempt(const common_chat_template &tmpl, const chat_analysis &analysis, const chat_wish &wish,
                                 tool_schema_detail detail, bool needs_types)
{
    tool_schemas schemas(detail, {tmpl.source().find(ITEM_MARK) != std::string::npos, needs_types,
                                  analysis.has_gemma_values ? value_syntax::GEMMA : value_syntax::JSON});
    const bool calls = wish.has_calls(), must_call = wish.choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED;
    autoparser::generation_params params = params_of(tmpl, wish);
    if (calls) {
        params.tools = callable_tools(wish, schemas);
        params.tool_choice = wish.choice;
    }
    const common_chat_params found = apply(tmpl, analysis, params);
    const bool has_text_form = !wish.grammar.empty() && !must_call;
    chat_form out;
    if (calls) {
        std::optional<common_chat_params> calling;
        if (has_text_form) {
            params.tool_choice = COMMON_CHAT_TOOL_CHOICE_REQUIRED;
            calling = apply(tmpl, analysis, params);
        }
        const common_chat_params &used = calling.has_value() ? *calling : found;
        if (is_whole(detail) && !analysis.has_gemma_values && !schemas.are_mentioned(used.grammar)) {
            return std::nullopt;
        }
        out.grammar = calling_grammar(used, analysis, wish, schemas, must_call || has_text_form);
        const bool is_left_to_next = detail == tool_schema_detail::EACH && is_too_large(out.grammar);
        if (is_left_to_next || out.grammar.find(ANY_ARGUMENT_NAME) != std::string::npos) {
            return std::nullopt;
        }
    }
    describe(found, heads_of_calls(found, params.tools, analysis.head), &out);
    out.reopening = without_thinking(out.opening, out.thinking_start);
    const bool is_wrapped = analysis.is_special || analysis.found.content.is_always_wrapped();
    if (!calls && out.thinking_ends.empty() && !is_wrapped) {
        out.parser.clear();
    }
    if (calls) {
        out.calls_once = wish.calls_once();
        out.must_call = must_call;
        out.is_lazy = found.grammar_lazy;
        out.triggers = found.grammar_lazy ? found.grammar_triggers : std::vector<common_grammar_trigger>();
    }
    if (has_text_form) {
        const std::string text = constrained_grammar(tmpl, analysis, wish, out);
        out.grammar = calls ? grammar_of_either(out.grammar, text) : text;
        out.is_lazy = false;
        out.triggers.clear();
    }
    out.grammar = without_end(out.grammar, tmpl.eos_token());
    return out;
}

/* Returns whether the sampler would accept the form's grammar in a constraint document. */
bool is_usable_grammar(const model *m, const chat_form &form)
{
    return !is_too_large(form.grammar) && chat_form_begins(m, form, form.opening);
}

} // namespace

bool chat_form_begins(const model *m, const chat_form &form, const std::string &opening)
{
    try {
        const auto rules = std::make_shared<const grammar>(grammar::read(form.grammar, m));
        return form.is_lazy || opening.empty() ||
               grammar_walk(rules, vocabulary_trie::of(m)).accept(-1, opening.data(), opening.size());
    } catch (const grammar_fault &) {
        return false;
    }
}

namespace {

chat_form form_of(const model *m, const common_chat_template &tmpl, const chat_analysis &analysis,
                  const chat_wish &wish, bool needs_types)
{
    const bool needs_grammar = wish.choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED || !wish.grammar.empty();
    const bool is_tagged =
        !analysis.is_special && analysis.found.tools.format.mode == autoparser::tool_format::TAG_WITH_TAGGED;
    chat_form out;
    for (const tool_schema_detail detail : {tool_schema_detail::WHOLE, tool_schema_detail::NOTHING,
                                            tool_schema_detail::EACH, tool_schema_detail::NAMES}) {
        if (is_whole(detail) && is_tagged) {
            continue;
        }
        std::optional<chat_form> found = attempt(tmpl, analysis, wish, detail, needs_types);
        if (!found.has_value()) {
            continue;
        }
        out = std::move(*found);
        if (!wish.has_calls() || out.grammar.empty() || is_usable_grammar(m, out)) {
            break;
        }
    }
    if (!out.grammar.empty() && !is_usable_grammar(m, out)) {
        out.grammar.clear(); /* the syntax of tool calls is not enforced, but calls are still parsed */
        out.is_lazy = false;
        out.triggers.clear();
    }
    if (needs_grammar && out.grammar.empty()) {
        throw std::invalid_argument(
            "the output format of the answer cannot be enforced: it has no grammar, or the grammar is too large");
    }
    return out;
}

} // namespace

chat_form chat_form_of(const model *m, const common_chat_template &tmpl, const chat_analysis &analysis,
                       const chat_wish &wish)
{
    try {
        return form_of(m, tmpl, analysis, wish, false);
    } catch (const chat_limit &) {
        throw;
    } catch (const jinja::rethrown_exception &) { /* Seed-OSS's template accepts no parameter without a type */
        if (!wish.has_calls()) {
            throw;
        }
    }
    return form_of(m, tmpl, analysis, wish, true);
}
