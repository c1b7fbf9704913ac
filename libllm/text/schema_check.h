/* schema_check.h: what of a JSON schema llama.cpp's converter would drop or widen without a word, and what would take it long.
 * Throws grammar_fault naming the keyword. */
#ifndef LLM_SCHEMA_CHECK_H
#define LLM_SCHEMA_CHECK_H

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

using schema_json = nlohmann::ordered_json;

/* What the converter does not know, a pattern or the bounds of a number, taken out of the schema: in the grammar of the rest,
 * `literal` stands for `rule`. */
struct schema_taken {
    std::string name, literal, rule;
};

/* is_strict: what cannot be kept to is refused; otherwise the answer may be more than the schema allows there. What is
 * taken out is returned, and a text of its own stands there. */
std::vector<schema_taken> schema_check(schema_json &schema, bool is_strict);

/* Throws grammar_fault where a $ref leads to itself, by others, or is too long: the converter would follow it for ever. */
void schema_check_refs(const schema_json &schema);

/* Whether it has a keyword that only a refusal keeps to. */
bool schema_has_unkept(const schema_json &schema);

#endif
