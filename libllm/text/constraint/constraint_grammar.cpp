#include "text/constraint/constraint_grammar.h"

#include "llm.h"
#include "text/grammar/grammar.h"
#include "text/grammar/lark_grammar.h"
#include "text/grammar/regex_grammar.h"
#include "text/schema/compile.h"
#include "text/template/json_size.h"

namespace {

using json = schema_json;

/* limit on the bytes of the client's text, for every kind of constraint */
constexpr size_t TEXT_BYTES_MAX = LLM_CONSTRAINT_BYTES_MAX / 2;
/* limit on the levels of JSON, because parsing and compiling recurse */
constexpr size_t DEPTH_MAX = 128;
constexpr size_t CHOICES_MAX = 4096;

} // namespace

schema_json constraint_json(const std::string &text, const char *what)
{
    const json_size size = json_size_of(text, DEPTH_MAX);
    if (size.is_too_deep) {
        throw grammar_fault(std::string(what) + ": more than " + std::to_string(DEPTH_MAX) + " levels");
    }
    if (size.n_comparisons > JSON_COMPARISONS_MAX) {
        throw grammar_fault(std::string(what) + ": its objects have too many members; one object may have " +
                            std::to_string(JSON_MEMBERS_MAX));
    }
    json all = json::parse(text, nullptr, false);
    if (all.is_discarded()) {
        throw grammar_fault(std::string(what) + ": no JSON");
    }
    return all;
}

namespace {

/* Limit on the bytes of the grammar. The constraint document contains the grammar and other members, so the document's
 * limit is larger. */
constexpr size_t GRAMMAR_BYTES_MAX = LLM_CONSTRAINT_BYTES_MAX - 4096;

std::string grammar_of_schema(const std::string &text, bool is_strict)
{
    const json schema = constraint_json(text, "the schema");
    if (!schema.is_object() && schema != true) {
        throw grammar_fault("the schema is no object");
    }
    work_budget budget;
    return schema_grammar(schema, is_strict ? schema_policy::STRICT : schema_policy::LOOSE, GRAMMAR_BYTES_MAX, budget);
}

std::string choice_grammar(const std::string &text)
{
    const json list = constraint_json(text, "the choices");
    if (!list.is_array() || list.empty() || list.size() > CHOICES_MAX) {
        throw grammar_fault("the choices: a list of 1 to " + std::to_string(CHOICES_MAX) + " texts is expected");
    }
    std::string grammar = "root ::= ";
    for (size_t i = 0; i < list.size(); i++) {
        if (!list[i].is_string()) {
            throw grammar_fault("the choices: one of them is no text");
        }
        grammar += (i > 0 ? " | " : "") + grammar_literal(list[i].get<std::string>());
    }
    return grammar;
}

std::string grammar_text_of(const std::string &kind, const std::string &text, bool is_strict)
{
    if (kind == "json") {
        return grammar_of_schema("{\"type\": \"object\"}", true);
    }
    if (kind == "json_schema") {
        return grammar_of_schema(text, is_strict);
    }
    if (kind == "grammar") {
        return text;
    }
    if (kind == "regex") {
        return "root ::= " + regex_grammar(text, regex_of::TEXT);
    }
    if (kind == "choice") {
        return choice_grammar(text);
    }
    if (kind == "regex_string") {
        return R"(root ::= "\"" )" + regex_grammar(text, regex_of::JSON_STRING) + R"( "\"")";
    }
    if (kind == "lark" || kind == "lark_string") {
        return lark_grammar(text, kind == "lark" ? regex_of::TEXT : regex_of::JSON_STRING);
    }
    throw grammar_fault(
        "the kind is not one of json, json_schema, grammar, regex, regex_string, choice, lark, lark_string");
}

} // namespace

/* The grammar is parsed once here. So an error in the grammar makes the request fail before it begins, and not in the
 * middle of the answer. If libllm itself made the refused grammar, for example from a schema, grammar_beyond is thrown.
 * In this case, the client made no error, but its request needs a larger grammar than the limits allow. */
std::string constraint_grammar(const model *m, const std::string &kind, const std::string &text, bool is_strict)
{
    if (text.size() > TEXT_BYTES_MAX) {
        throw grammar_fault(std::to_string(text.size()) + " bytes; at most " + std::to_string(TEXT_BYTES_MAX));
    }
    std::string source = grammar_text_of(kind, text, is_strict);
    try {
        (void)grammar::read(source, m);
    } catch (const grammar_fault &e) {
        if (kind == "grammar") {
            throw;
        }
        throw grammar_beyond(e.what());
    }
    return source;
}
