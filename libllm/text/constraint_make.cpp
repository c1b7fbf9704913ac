#include "text/constraint_make.h"

#include <common/json-schema-to-grammar.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "text/chat_budget.h"
#include "text/grammar_walk.h"
#include "text/regex_grammar.h"
#include "text/schema_check.h"

namespace {

using json = nlohmann::ordered_json;

constexpr size_t TEXT_BYTES_MAX = LLM_CONSTRAINT_BYTES_MAX / 2;
constexpr size_t DEPTH_MAX = 128; /* of any JSON here */
constexpr size_t CHOICES_MAX = 4096;

bool is_too_deep(const std::string &text)
{
    size_t depth = 0;
    bool is_string = false;
    for (size_t i = 0; i < text.size(); i++) {
        const char c = text[i];
        if (is_string) {
            i += c == '\\';
            is_string = c != '"';
        } else if (c == '"') {
            is_string = true;
        } else if ((c == '{' || c == '[') && ++depth > DEPTH_MAX) {
            return true;
        } else if (c == '}' || c == ']') {
            depth -= depth > 0;
        }
    }
    return false;
}

json parsed(const std::string &text, const char *what)
{
    if (is_too_deep(text)) {
        throw grammar_fault(std::string(what) + ": more than " + std::to_string(DEPTH_MAX) + " levels");
    }
    json all = json::parse(text, nullptr, false);
    if (all.is_discarded()) {
        throw grammar_fault(std::string(what) + ": no JSON");
    }
    return all;
}

void replace_all(std::string &text, const std::string &from, const std::string &to)
{
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
        text.replace(at, from.size(), to);
    }
}

std::string schema_grammar(const std::string &text, bool is_strict)
{
    json schema = parsed(text, "the schema");
    if (schema.is_boolean() && schema == true) {
        schema = json::object();
    }
    if (!schema.is_object()) {
        throw grammar_fault("the schema is no object");
    }
    const std::vector<schema_pattern> patterns = schema_check(schema, is_strict);
    std::string grammar;
    try {
        grammar = json_schema_to_grammar(common_json::parse(schema.dump()), true);
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception &e) { /* std::invalid_argument, common_json_error */
        throw grammar_fault(std::string("the schema cannot be expressed: ") + e.what());
    }
    for (const schema_pattern &p : patterns) {
        replace_all(grammar, p.literal, p.name);
        grammar += p.name + " ::= " + p.rule + "\n";
    }
    return grammar;
}

std::string choice_grammar(const std::string &text)
{
    const json list = parsed(text, "the choices");
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

std::string grammar_of(const std::string &kind, const std::string &text, bool is_strict)
{
    if (kind == "json") {
        return schema_grammar("{\"type\": \"object\"}", true);
    }
    if (kind == "json_schema") {
        return schema_grammar(text, is_strict);
    }
    if (kind == "grammar") {
        return text;
    }
    if (kind == "regex") {
        return "root ::= " + regex_grammar(text, regex_of::TEXT, false);
    }
    if (kind == "choice") {
        return choice_grammar(text);
    }
    throw grammar_fault("the kind is not one of json, json_schema, grammar, regex, choice");
}

/* Also tries it: what the sampler would refuse later is refused here. */
std::string document_of(const model *m, const std::string &request)
{
    const json all = parsed(request, "the request");
    if (!all.is_object() || !all.contains("kind") || !all["kind"].is_string()) {
        throw grammar_fault("the request has no kind");
    }
    const std::string text = all.value("text", std::string());
    if (text.size() > TEXT_BYTES_MAX) {
        throw grammar_fault(std::to_string(text.size()) + " bytes; at most " + std::to_string(TEXT_BYTES_MAX));
    }
    const std::string kind = all["kind"].get<std::string>();
    const std::string source = grammar_of(kind, text, all.value("strict", true));
    auto rules = std::make_shared<const grammar>(grammar::read(source, m));
    const grammar_walk walk(rules, std::make_shared<const vocabulary_trie>());
    const json document = {{"grammar", source},
                           {"lazy", false},
                           {"triggers", json::array()},
                           {"preserved", json::array()},
                           {"prefill", ""},
                           {"thinking", nullptr}};
    std::string out = document.dump(-1, ' ', false, json::error_handler_t::replace);
    if (out.size() > LLM_CONSTRAINT_BYTES_MAX) {
        throw grammar_fault("it unfolds to a grammar of " + std::to_string(out.size()) + " bytes; at most " +
                            std::to_string(static_cast<int>(LLM_CONSTRAINT_BYTES_MAX)));
    }
    return out;
}

} // namespace

int constraint_make(const model *m, const char *request, size_t n_bytes, llm_document *out, char *error,
                    size_t error_bytes)
{
    int status = LLM_OK;
    const auto refuse = [&](int why, const char *text) {
        status = why;
        if (error != nullptr && error_bytes > 0) {
            snprintf(error, error_bytes, "%s", text);
        }
    };
    const auto attempt = [&]() noexcept {
        try {
            const std::string document = document_of(m, std::string(request, n_bytes));
            out->text = static_cast<char *>(malloc(document.size() + 1));
            if (out->text == nullptr) {
                throw std::bad_alloc();
            }
            memcpy(out->text, document.c_str(), document.size() + 1);
            out->n_bytes = document.size();
        } catch (const std::bad_alloc &) {
            refuse(LLM_NO_MEMORY, "out of memory");
        } catch (const std::exception &e) { /* grammar_fault; json's, for a member of another type */
            refuse(LLM_INVALID, e.what());
        } catch (...) {
            refuse(LLM_INVALID, "it cannot be expressed");
        }
    };
    *out = {nullptr, 0};
    if (!chat_call_with_stack(std::cref(attempt))) {
        refuse(LLM_NO_MEMORY, "out of memory");
    }
    return status;
}
