/* fuzz_schema.cpp: real schemas with changes that the input describes, compiled for strict answers, for loose ones and for the
 * arguments of tools. Whatever is written has to be a grammar, only strict refuses, and the work is bounded. */
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/schema/arguments.h"
#include "text/schema/compile.h"
#include "text/template/json_size.h"
#include "text/template/chat_budget.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

namespace {

constexpr size_t CHANGES_MAX = 24, SCHEMA_BYTES_MAX = 1 << 16, DEPTH_MAX = 100, GRAMMAR_BYTES_MAX = 1 << 18;

const char *const SCHEMAS[] = {
    R"({"type":"object","properties":{"city":{"type":"string","minLength":1,"maxLength":85},"unit":{"type":"string","enum":["C","F"]},"days":{"type":"integer","minimum":1,"maximum":14,"exclusiveMinimum":0}},"required":["city"],"additionalProperties":false})",
    R"({"oneOf":[{"type":"string","maxLength":32767,"minLength":50},{"type":"null"},{"type":"number","exclusiveMaximum":3.25}],"not":{"type":"null","minimum":2}})",
    R"({"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"n":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/definitions/n"},"minItems":1,"maxItems":70},"v":{"type":"number","multipleOf":0.01}},"minProperties":1,"maxProperties":4}},"$ref":"#/definitions/n"})",
    R"({"type":"object","patternProperties":{"^[a-z]+_id$":{"type":"integer"},"^x-":true},"propertyNames":{"maxLength":20,"pattern":"^[a-z_-]+$"},"additionalProperties":{"type":"string","format":"date-time"},"dependentRequired":{"a_id":["b_id"]}})",
    R"({"anyOf":[{"properties":{"kind":{"const":"a"},"v":{"type":"array","prefixItems":[{"type":"string"},{"type":"boolean"}],"items":false}},"required":["kind"]},{"properties":{"kind":{"const":"b"}},"required":["kind","w"]}],"type":"object","if":{"properties":{"kind":{"const":"a"}}},"then":{"required":["v"]},"else":{"maxProperties":2}})",
    R"({"type":"array","contains":{"type":"integer","multipleOf":3},"items":{"enum":[1,2.5,"x",null,{"a":[1]},true,-7e300]},"minItems":2,"maxItems":200,"uniqueItems":true})",
    R"({"allOf":[{"type":["string","null"],"pattern":"^(?:\\S+\\s+){0,9}\\S+$","maxLength":60},{"not":{"enum":["a","b c"]}},{"format":"email"}]})",
    R"({"type":"object","properties":{"f":{"type":"number","minimum":-1e20,"maximum":12.125},"g":{"type":"integer","exclusiveMinimum":-5,"not":{"enum":[0,3]}},"é\"\\\n":{"const":"é\"\\\n\u0001"},"h":{"format":"ipv6","type":"string"}},"required":["f","é\"\\\n"],"nullable":true})"};

const char *const KEYWORDS[] = {"type",
                                "enum",
                                "const",
                                "minimum",
                                "maximum",
                                "exclusiveMinimum",
                                "exclusiveMaximum",
                                "multipleOf",
                                "minLength",
                                "maxLength",
                                "pattern",
                                "format",
                                "items",
                                "prefixItems",
                                "additionalItems",
                                "minItems",
                                "maxItems",
                                "uniqueItems",
                                "contains",
                                "minContains",
                                "properties",
                                "required",
                                "additionalProperties",
                                "patternProperties",
                                "propertyNames",
                                "minProperties",
                                "maxProperties",
                                "dependencies",
                                "dependentSchemas",
                                "anyOf",
                                "oneOf",
                                "allOf",
                                "not",
                                "if",
                                "then",
                                "else",
                                "$ref",
                                "$id",
                                "$defs",
                                "nullable",
                                "unevaluatedProperties"};

const char *const VALUES[] = {"null",
                              "true",
                              "false",
                              "0",
                              "1",
                              "-1",
                              "7",
                              "65",
                              "1000",
                              "2000000",
                              "9223372036854775808",
                              "-0.0",
                              "0.1",
                              "1e-7",
                              "1e300",
                              "\"\"",
                              "\"a\"",
                              "\"integer\"",
                              "\"string\"",
                              "\"#\"",
                              "\"#/properties/city\"",
                              "\"^a{0,70}b|c$\"",
                              "\"(\"",
                              "\"time\"",
                              "[]",
                              "{}",
                              "[\"a\",\"a\"]",
                              "{\"a\":{}}",
                              "[[]]",
                              "[{\"type\":\"null\"}]"};

void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

template <typename T, size_t N> const T &one_of(const T (&all)[N], uint8_t at)
{
    return all[at % N];
}

void find_values(schema_json &value, std::vector<schema_json *> &all, size_t depth)
{
    all.push_back(&value);
    for (auto it = value.begin(); value.is_structured() && it != value.end() && depth > 0; ++it) {
        find_values(*it, all, depth - 1);
    }
}

/* `change`: 4 bytes. */
void apply(schema_json &schema, const uint8_t *change)
{
    std::vector<schema_json *> all;
    find_values(schema, all, DEPTH_MAX);
    schema_json &at = *all[change[1] % all.size()];
    const schema_json other = *all[change[2] % all.size()];
    switch (change[0] % 6) {
    case 0: at = other; break;
    case 1: at = schema_json::parse(one_of(VALUES, change[3])); break;
    case 2:
        if (at.is_object()) {
            at[one_of(KEYWORDS, change[3])] = other;
        }
        break;
    case 3:
        if (at.is_object()) {
            at[one_of(KEYWORDS, change[3])] = schema_json::parse(one_of(VALUES, change[2]));
        }
        break;
    case 4:
        if (at.is_structured() && !at.empty()) {
            auto it = at.begin();
            std::advance(it, change[3] % at.size());
            at.erase(it);
        }
        break;
    default:
        if (at.is_array()) {
            at.push_back(other);
        }
        break;
    }
}

schema_json schema_of(const uint8_t *data, size_t n_bytes)
{
    schema_json schema = schema_json::parse(one_of(SCHEMAS, data[0]));
    for (size_t i = 0; i < CHANGES_MAX && 1 + 4 * (i + 1) <= n_bytes; i++) {
        schema_json changed = schema;
        apply(changed, data + 1 + 4 * i);
        const std::string text = changed.dump();
        if (text.size() > SCHEMA_BYTES_MAX || json_size_of(text, DEPTH_MAX).is_too_deep) {
            break;
        }
        schema = std::move(changed);
    }
    return schema;
}

void compile(const schema_json &schema, schema_policy policy)
{
    work_budget budget;
    std::string grammar;
    try {
        grammar = schema_grammar(schema, policy, GRAMMAR_BYTES_MAX, budget);
    } catch (const grammar_fault &e) {
        require(policy == schema_policy::STRICT && e.what()[0] != '\0');
        return;
    }
    require(budget.steps() < 2 * work_budget::STEPS_MAX);
    (void)grammar::read(grammar, nullptr);
}

void compile_arguments(const schema_json &schema)
{
    schema_arguments arguments(GRAMMAR_BYTES_MAX);
    std::string uses = "object-of-it ::= " + arguments.object(schema) + "\n";
    size_t n = 0;
    for (const schema_argument &one : arguments.members(schema)) {
        uses += "argument-" + std::to_string(n++) + " ::= " + one.element + "\n";
    }
    (void)grammar::read(arguments.grammar() + uses, nullptr);
}

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes == 0) {
        return 0;
    }
    require(chat_call_with_stack([&]() noexcept { /* what is thrown is a failure */
                                                  const schema_json schema = schema_of(data, n_bytes);
                                                  compile(schema, schema_policy::STRICT);
                                                  compile(schema, schema_policy::LOOSE);
                                                  compile_arguments(schema);
    }));
    return 0;
}
