#include "text/answer/parser_text.h"

#include <stdexcept>
#include <unordered_map>
#include <utility>

namespace {

common_json written(const common_peg_epsilon_parser &)
{
    return {{"type", "epsilon"}};
}

common_json written(const common_peg_start_parser &)
{
    return {{"type", "start"}};
}

common_json written(const common_peg_end_parser &)
{
    return {{"type", "end"}};
}

common_json written(const common_peg_literal_parser &p)
{
    return {{"type", "literal"}, {"literal", p.literal}};
}

common_json written(const common_peg_sequence_parser &p)
{
    return {{"type", "sequence"}, {"children", p.children}};
}

common_json written(const common_peg_choice_parser &p)
{
    return {{"type", "choice"}, {"children", p.children}};
}

common_json written(const common_peg_repetition_parser &p)
{
    return {{"type", "repetition"}, {"child", p.child}, {"min_count", p.min_count}, {"max_count", p.max_count}};
}

common_json written(const common_peg_and_parser &p)
{
    return {{"type", "and"}, {"child", p.child}};
}

common_json written(const common_peg_not_parser &p)
{
    return {{"type", "not"}, {"child", p.child}};
}

common_json written(const common_peg_any_parser &)
{
    return {{"type", "any"}};
}

common_json written(const common_peg_space_parser &)
{
    return {{"type", "space"}};
}

common_json written(const common_peg_chars_parser &p)
{
    common_json ranges = common_json::array();
    for (const auto &range : p.ranges) {
        ranges.push_back({{"start", range.start}, {"end", range.end}});
    }
    return {{"type", "chars"},      {"pattern", p.pattern},     {"ranges", ranges},
            {"negated", p.negated}, {"min_count", p.min_count}, {"max_count", p.max_count}};
}

common_json written(const common_peg_string_parser &p)
{
    return {{"type", "string"}, {"delimiter", std::string(1, p.delimiter)}};
}

common_json written(const common_peg_until_parser &p)
{
    return {{"type", "until"}, {"delimiters", p.delimiters}};
}

/* Leaves the schema out, because no schema of a client is passed to llama.cpp. llama.cpp's grammar for a schema would
 * differ from the grammar that text/schema makes. */
common_json written(const common_peg_schema_parser &p)
{
    return {{"type", "schema"}, {"child", p.child}, {"name", p.name}, {"raw", p.raw}};
}

common_json written(const common_peg_rule_parser &p)
{
    return {{"type", "rule"}, {"name", p.name}, {"child", p.child}, {"trigger", p.trigger}};
}

common_json written(const common_peg_ref_parser &p)
{
    return {{"type", "ref"}, {"name", p.name}};
}

common_json written(const common_peg_atomic_parser &p)
{
    return {{"type", "atomic"}, {"child", p.child}};
}

common_json written(const common_peg_tag_parser &p)
{
    return {{"type", "tag"}, {"child", p.child}, {"tag", p.tag}};
}

common_json written(const common_peg_gbnf_parser &p)
{
    return {{"type", "gbnf"}, {"child", p.child}, {"grammar", p.grammar}};
}

common_json written(const common_peg_ac_parser &p)
{
    return {{"type", "ac"}, {"child", p.child}, {"delimiters", p.delimiters}};
}

/* ---- making parsers from JSON ------------------------------------------------------------------------------------ */

/* Returns the number of a parser from the JSON, and checks the number. So a wrong number is an error when the parser is
 * made, and not in the middle of an answer. */
common_peg_parser_id id_in(const common_json &from, size_t n_parsers)
{
    const auto id = from.get<common_peg_parser_id>();
    if (id >= n_parsers) {
        throw std::runtime_error("a parser refers to a parser that does not exist");
    }
    return id;
}

std::vector<common_peg_parser_id> ids_in(const common_json &from, size_t n_parsers)
{
    std::vector<common_peg_parser_id> out;
    for (const common_json &id : from) {
        out.push_back(id_in(id, n_parsers));
    }
    return out;
}

std::vector<common_peg_chars_parser::char_range> ranges_in(const common_json &from)
{
    std::vector<common_peg_chars_parser::char_range> out;
    for (const common_json &range : from) {
        out.push_back({range.at("start").get<uint32_t>(), range.at("end").get<uint32_t>()});
    }
    return out;
}

common_peg_parser_variant without_child(const std::string &type, const common_json &from)
{
    if (type == "epsilon") {
        return common_peg_epsilon_parser{};
    } else if (type == "start") {
        return common_peg_start_parser{};
    } else if (type == "end") {
        return common_peg_end_parser{};
    } else if (type == "any") {
        return common_peg_any_parser{};
    } else if (type == "space") {
        return common_peg_space_parser{};
    } else if (type == "literal") {
        return common_peg_literal_parser{from.at("literal").get<std::string>()};
    } else if (type == "chars") {
        return common_peg_chars_parser{from.at("pattern").get<std::string>(), ranges_in(from.at("ranges")),
                                       from.at("negated").get<bool>(), from.at("min_count").get<int>(),
                                       from.at("max_count").get<int>()};
    } else if (type == "string") {
        return common_peg_string_parser{from.at("delimiter").get<std::string>().at(0)};
    } else if (type == "until") {
        return common_peg_until_parser{from.at("delimiters").get<std::vector<std::string>>()};
    }
    throw std::runtime_error("no such type of parser: " + type);
}

common_peg_parser_variant parser_of(const common_json &from, size_t n_parsers)
{
    const std::string type = from.at("type").get<std::string>();
    if (from.contains("children")) {
        const std::vector<common_peg_parser_id> children = ids_in(from.at("children"), n_parsers);
        return type == "sequence" ? common_peg_parser_variant(common_peg_sequence_parser{children})
                                  : common_peg_choice_parser{children};
    }
    if (!from.contains("child")) {
        return without_child(type, from);
    }
    const common_peg_parser_id child = id_in(from.at("child"), n_parsers);
    if (type == "repetition") {
        return common_peg_repetition_parser{child, from.at("min_count").get<int>(), from.at("max_count").get<int>()};
    } else if (type == "and") {
        return common_peg_and_parser{child};
    } else if (type == "not") {
        return common_peg_not_parser{child};
    } else if (type == "schema") {
        return common_peg_schema_parser{child, from.at("name").get<std::string>(), nullptr, nullptr,
                                        from.at("raw").get<bool>()};
    } else if (type == "rule") {
        return common_peg_rule_parser{from.at("name").get<std::string>(), child, from.at("trigger").get<bool>()};
    } else if (type == "atomic") {
        return common_peg_atomic_parser{child};
    } else if (type == "tag") {
        return common_peg_tag_parser{child, from.at("tag").get<std::string>()};
    } else if (type == "gbnf") {
        return common_peg_gbnf_parser{child, from.at("grammar").get<std::string>()};
    } else if (type == "ac") {
        return common_peg_ac_parser{child, from.at("delimiters").get<std::vector<std::string>>()};
    }
    throw std::runtime_error("no such type of parser: " + type);
}

} // namespace

common_json parser_written(const common_peg_arena &arena)
{
    common_json parsers = common_json::array(), rules = common_json::array();
    for (size_t id = 0; id < arena.size(); id++) {
        parsers.push_back(std::visit([](const auto &p) { return written(p); }, arena.get(id)));
        if (const auto *rule = std::get_if<common_peg_rule_parser>(&arena.get(id))) {
            rules.push_back({{"name", rule->name}, {"id", id}});
        }
    }
    common_json out = common_json::object();
    out["root"] = arena.root();
    out["rules"] = std::move(rules);
    out["parsers"] = std::move(parsers);
    return out;
}

/* llama.cpp's builder has a different function for each kind of parser. So this function uses the builder only to add
 * empty parsers. Each empty parser is then replaced by a parser from the JSON. For a grammar (`has_rules`), each
 * named rule becomes a copy of the parser that it names. */
common_peg_arena parser_read(const common_json &text, bool has_rules)
{
    const common_json &parsers = text.at("parsers");
    const size_t n = parsers.size();
    common_peg_parser_builder builder;
    for (size_t id = 0; id < n; id++) {
        builder.eps();
    }
    const common_peg_parser empty = builder.eps();
    std::unordered_map<std::string, common_peg_parser_id> rules;
    for (const common_json &rule : text.at("rules")) {
        const std::string name = rule.at("name").get<std::string>();
        rules[name] = id_in(rule.at("id"), n);
        if (has_rules) {
            builder.rule(name, empty);
        }
    }
    common_peg_arena out = builder.build();
    for (size_t id = 0; id < n; id++) {
        const common_json &one = parsers.at(id);
        if (one.at("type").get<std::string>() == "ref") { /* the new parser refers to rules by number, not by name */
            out.get(id) = common_peg_choice_parser{{rules.at(one.at("name").get<std::string>())}};
        } else {
            out.get(id) = parser_of(one, n);
        }
    }
    for (const auto &[name, id] : has_rules ? rules : decltype(rules)()) {
        out.get(out.get_rule(name)) = out.get(id);
    }
    out.set_root(id_in(text.at("root"), n));
    return out;
}
