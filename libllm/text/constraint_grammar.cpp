#include "text/constraint_grammar.h"

#include <common/json-schema-to-grammar.h>

#include <stdexcept>

std::string constraint_grammar(const std::string &kind, const std::string &text)
{
    if (kind == "grammar") {
        return text;
    }
    if (kind == "json") {
        return json_schema_to_grammar(common_json::parse("{\"type\":\"object\"}"), true);
    }
    if (kind == "json_schema") {
        return json_schema_to_grammar(common_json::parse(text), true);
    }
    if (kind == "choice") {
        std::string out = "root ::= ";
        const common_json choices = common_json::parse(text);
        for (const common_json &choice : choices) {
            out += (out.size() > 9 ? " | " : "") + gbnf_format_literal(choice.get<std::string>());
        }
        return out + "\n";
    }
    throw std::invalid_argument("constraint: there is no kind \"" + kind + "\"");
}
