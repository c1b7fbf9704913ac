#include "text/answer/tool_schema.h"

#include <algorithm>
#include <string_view>

#include "llm.h"
#include "text/answer/call_graph.h"
#include "text/grammar/grammar_text.h"
#include "text/template/json_size.h"

namespace {

/* a tool whose schema exceeds one of these limits accepts any arguments */
constexpr size_t SCHEMA_BYTES_MAX = 256 << 10, DEPTH_MAX = 128;
/* limit on the grammars of all tools' arguments together. This limit is half of the limit on a whole constraint,
 * because the rest of the constraint needs space, too */
constexpr size_t GRAMMAR_BYTES_MAX = LLM_CONSTRAINT_BYTES_MAX / 2;
/* constant of the first place (tool_schema.h). No client's schema contains such a number */
constexpr long FIRST_PLACE = 7130917300000000;
const char *const PREFIX = "j-";

/* Returns the tool's schema. If the schema is malformed or very large, returns {}, which allows any arguments. */
schema_json parameters_of(const common_json &tool)
{
    const common_json parameters = tool.at("function").value("parameters", common_json());
    if (!parameters.is_object()) {
        return schema_json::object();
    }
    const std::string text = parameters.dump_safe();
    if (text.size() > SCHEMA_BYTES_MAX || json_size_of(text, DEPTH_MAX).is_too_deep) {
        return schema_json::object();
    }
    return schema_json::parse(text);
}

std::optional<std::string> element_if(const std::optional<std::string> &rule)
{
    return rule.has_value() && !rule->empty() ? tool_schemas::element_of(*rule) : rule;
}

/* If the parameter is a list, returns a simple schema of a list. The list's items are strings or any values. With this
 * schema, llama.cpp's parser expects delimiters around each item. Returns null for any other parameter. */
common_json list_of(const schema_json &document, const std::string &name)
{
    const auto properties = document.find("properties");
    if (properties == document.end() || !properties->is_object() || !properties->contains(name)) {
        return common_json();
    }
    const schema_json &member = properties->at(name);
    if (!member.is_object() || member.value("type", schema_json()) != "array") {
        return common_json();
    }
    const schema_json items = member.value("items", schema_json::object());
    if (items.is_object() && items.value("type", schema_json()) == "string") {
        return common_json::parse("{\"type\":\"array\",\"items\":{\"type\":\"string\"}}");
    }
    return common_json::parse("{\"type\":\"array\"}");
}

} // namespace

tool_schemas::tool_schemas(tool_schema_detail how_much, const tool_template &wanted)
    : detail(how_much), tmpl(wanted), compiled(GRAMMAR_BYTES_MAX, wanted.values)
{}

/* Makes a place, which is a schema of one constant (tool_schema.h). llama.cpp writes the constant as a literal into the
 * grammar, at the position of the arguments. There, put() finds the literal. */
common_json tool_schemas::place_for(const std::string &element)
{
    const std::string number = std::to_string(FIRST_PLACE + static_cast<long>(places.size()));
    places["\"" + number + "\""] = PREFIX + element;
    return common_json::parse("{\"type\":\"integer\",\"const\":" + number + "}"); /* some templates need the type */
}

common_json tool_schemas::placed(const common_json &tool, bool has_form)
{
    const schema_json document = parameters_of(tool);
    common_json out = tool;
    if (!has_form && is_whole(detail)) {
        const std::string element = detail == tool_schema_detail::WHOLE ? compiled.object(document) : "object";
        objects[tool.at("function").at("name").get<std::string>()] = element_of(element);
        out["function"]["parameters"] = place_for(element);
        return out;
    }
    common_json properties = common_json::object(), required = common_json::array();
    separate all;
    all.arguments = compiled.members(document);
    size_t n_others = 0, n_texts = 0; /* number of groups of undeclared parameters. n_texts counts the groups that allow
                                       * only strings */
    for (schema_argument &one : all.arguments) {
        n_others += one.name.empty();
        n_texts += one.name.empty() && one.is_text;
        if (takes_any_value()) {
            one.element = "value";
            one.texts.reset();
        }
        const common_json list = tmpl.marks_items && !one.name.empty() ? list_of(document, one.name) : common_json();
        all.are_lists.push_back(!list.is_null());
        if (!one.name.empty()) {
            properties[one.name] = list.is_null() ? place_of(one) : list;
        }
        if (one.is_required) {
            required.push_back(one.name);
        }
    }
    if (!is_whole(detail)) { /* from the parser of this placeholder, call_graph.cpp learns how an argument of any name
                              * is written */
        all.any_name = n_texts > 0 && n_texts == n_others ? ANY_TEXT_NAME : ANY_ARGUMENT_NAME;
        properties[all.any_name] = common_json::parse("{\"type\":\"string\"}");
        separates[tool.at("function").at("name").get<std::string>()] = std::move(all);
    }
    common_json parameters = common_json::parse("{\"type\":\"object\"}");
    parameters["properties"] = properties;
    parameters["required"] = required;
    out["function"]["parameters"] = parameters;
    return out;
}

/* Returns a place (a schema of one constant, tool_schema.h) for one argument. If the argument can be a string, returns
 * a schema without a constant instead. Such a string is written without quotes, up to the closing delimiter of the
 * model's family. */
common_json tool_schemas::place_of(const schema_argument &one)
{
    if (one.is_text || (one.may_be_text && tmpl.needs_types)) {
        return common_json::parse("{\"type\":\"string\"}");
    }
    return one.may_be_text ? common_json::object() : place_for(one.element);
}

std::string tool_schemas::object_of(const std::string &tool) const
{
    const auto found = objects.find(tool);
    return found == objects.end() ? "" : found->second;
}

const tool_schemas::separate *tool_schemas::separate_of(const std::string &tool) const
{
    const auto found = separates.find(tool);
    return found == separates.end() ? nullptr : &found->second;
}

std::string tool_schemas::element_of(const std::string &rule)
{
    return PREFIX + rule;
}

std::optional<std::string> tool_schemas::names(const automaton &texts)
{
    return element_if(compiled.bare_names(texts));
}

std::optional<std::string> tool_schemas::bare(const automaton &texts, const std::string &close)
{
    return element_if(compiled.bare_texts(texts, close));
}

std::optional<std::string> tool_schemas::quoted(const automaton &texts)
{
    return element_if(compiled.quoted_texts(texts));
}

bool tool_schemas::are_mentioned(const std::string &grammar) const
{
    return std::all_of(places.begin(), places.end(),
                       [&](const auto &one) { return grammar.find(one.first) != std::string::npos; });
}

/* Makes one pass from quote to quote. Looks up each literal among the constants of the places (tool_schema.h). A
 * separate search for each place would take time in proportion to the number of places times the size of the
 * grammar. */
std::string tool_schemas::put(const std::string &grammar, const std::string &behind) const
{
    if (places.empty() && separates.empty()) {
        return grammar;
    }
    const size_t n_literal = std::to_string(FIRST_PLACE).size() + 2;
    std::string out;
    size_t done = 0;
    for (size_t at = grammar.find('"'); at != std::string::npos; at = grammar.find('"', std::max(done, at + 1))) {
        const auto found = places.find(std::string_view(grammar).substr(at, n_literal));
        if (found != places.end()) {
            out.append(grammar, done, at - done).append(found->second).append(is_whole(detail) ? behind : "");
            done = at + n_literal;
        }
    }
    return out.append(grammar, done) + "\n" + grammar_renamed(compiled.grammar(), PREFIX);
}
