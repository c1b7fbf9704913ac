/* parser_graph.cpp: nodes are objects of JSON, spelled as parser_text.cpp spells llama.cpp's parsers. A struct for each
 * kind of node would repeat all kinds that llama.cpp has; here, a kind that is not changed passes through untouched. */
#include "text/answer/parser_graph.h"

#include <stdexcept>

parser_graph::parser_graph(const common_json &parser) : rules(parser.at("rules")), root(parser.at("root"))
{
    for (const common_json &node : parser.at("parsers")) {
        nodes.push_back(node);
    }
    for (size_t id = 0; id < nodes.size(); id++) {
        for (const size_t child : children(id)) {
            if (child >= nodes.size()) {
                throw std::runtime_error("a parser refers to none");
            }
        }
    }
}

bool parser_graph::is(size_t id, const char *type) const
{
    return at(id).value("type", "") == type;
}

bool parser_graph::is_tagged(size_t id, const char *tag) const
{
    return is(id, "tag") && at(id).value("tag", "") == tag;
}

/* A `ref` has no child but the name of a rule, so that it leads to the rule's node: rules refer to each other in
 * circles, and each walk below marks what it has seen. */
std::vector<size_t> parser_graph::children(size_t id) const
{
    const common_json &node = at(id);
    if (is(id, "ref")) {
        return {rules.at(node.at("name").get<std::string>()).get<size_t>()};
    }
    if (node.contains("children")) {
        return node.at("children").get<std::vector<size_t>>();
    }
    return node.contains("child") ? std::vector<size_t>{node.at("child").get<size_t>()} : std::vector<size_t>();
}

/* Children are put on the stack in reverse, so that nodes are visited in the order of the text: the first literal below
 * a mark is the text that it begins with.  */
void parser_graph::visit(size_t from, const std::function<bool(size_t)> &enter) const
{
    std::vector<bool> is_known(nodes.size());
    std::vector<size_t> left = {from};
    while (!left.empty()) {
        const size_t id = left.back();
        left.pop_back();
        if (is_known[id]) {
            continue;
        }
        is_known[id] = true;
        if (enter(id)) {
            const std::vector<size_t> next = children(id);
            left.insert(left.end(), next.rbegin(), next.rend());
        }
    }
}

std::vector<size_t> parser_graph::tagged(size_t from, const char *tag) const
{
    std::vector<size_t> out;
    visit(from, [&](size_t id) {
        const bool is_found = is_tagged(id, tag);
        if (is_found) {
            out.push_back(id);
        }
        return !is_found;
    });
    return out;
}

/* Goes from the tagged nodes to their parents, so that all nodes take one pass; asking each node what it reaches would
 * take the square of their number. */
std::vector<bool> parser_graph::reaching(const char *tag) const
{
    std::vector<std::vector<size_t>> parents(nodes.size());
    std::vector<size_t> left;
    std::vector<bool> out(nodes.size());
    for (size_t id = 0; id < nodes.size(); id++) {
        for (const size_t child : children(id)) {
            parents[child].push_back(id);
        }
        if (is_tagged(id, tag)) {
            left.push_back(id);
        }
    }
    while (!left.empty()) {
        const size_t id = left.back();
        left.pop_back();
        if (!out[id]) {
            out[id] = true;
            left.insert(left.end(), parents[id].begin(), parents[id].end());
        }
    }
    return out;
}

std::vector<std::string> parser_graph::literals(size_t from) const
{
    std::vector<std::string> out;
    visit(from, [&](size_t id) {
        if (is(id, "literal")) {
            out.push_back(at(id).at("literal").get<std::string>());
        }
        return true;
    });
    return out;
}

size_t parser_graph::add(const common_json &node)
{
    nodes.push_back(node);
    return nodes.size() - 1;
}

size_t parser_graph::literal(const std::string &text)
{
    return add({{"type", "literal"}, {"literal", text}});
}

size_t parser_graph::tag(const char *tag, size_t child)
{
    return add({{"type", "tag"}, {"tag", tag}, {"child", child}});
}

size_t parser_graph::sequence(const std::vector<size_t> &ids)
{
    return add({{"type", "sequence"}, {"children", ids}});
}

size_t parser_graph::choice(const std::vector<size_t> &ids)
{
    return add({{"type", "choice"}, {"children", ids}});
}

size_t parser_graph::optional(size_t child)
{
    return add({{"type", "repetition"}, {"child", child}, {"min_count", 0}, {"max_count", 1}});
}

size_t parser_graph::any_number_of(size_t child)
{
    return add({{"type", "repetition"}, {"child", child}, {"min_count", 0}, {"max_count", -1}});
}

size_t parser_graph::unless(size_t child)
{
    return add({{"type", "not"}, {"child", child}});
}

size_t parser_graph::characters(const std::string &pairs, bool is_negated, int min)
{
    common_json ranges = common_json::array();
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
        const auto first = static_cast<unsigned char>(pairs[i]), last = static_cast<unsigned char>(pairs[i + 1]);
        ranges.push_back({{"start", static_cast<uint32_t>(first)}, {"end", static_cast<uint32_t>(last)}});
    }
    return add({{"type", "chars"},
                {"pattern", ""},
                {"ranges", ranges},
                {"negated", is_negated},
                {"min_count", min},
                {"max_count", -1}});
}

size_t parser_graph::blanks()
{
    return add({{"type", "space"}});
}

size_t parser_graph::text_with(const std::string &close)
{
    return add(
        {{"type", "ac"}, {"child", add({{"type", "epsilon"}})}, {"delimiters", std::vector<std::string>{close}}});
}

size_t parser_graph::grammar(const std::string &element)
{
    return add({{"type", "gbnf"}, {"child", add({{"type", "epsilon"}})}, {"grammar", element}});
}

size_t parser_graph::rule(const std::string &name, size_t child)
{
    const size_t id = add({{"type", "rule"}, {"name", name}, {"child", child}, {"trigger", false}});
    rules[name] = id;
    return id;
}

size_t parser_graph::copy(size_t id)
{
    common_json node = at(id);
    if (is(id, "rule") || is(id, "ref")) { /* rules may be shared, and refer to themselves */
        return id;
    }
    if (node.contains("children")) {
        std::vector<size_t> copies;
        for (const size_t child : children(id)) {
            copies.push_back(copy(child));
        }
        node["children"] = copies;
    } else if (node.contains("child")) {
        node["child"] = copy(node.at("child").get<size_t>());
    }
    return add(node);
}

common_json parser_graph::json() const
{
    common_json parsers = common_json::array();
    for (const common_json &node : nodes) {
        parsers.push_back(node);
    }
    common_json out = common_json::object();
    out["parsers"] = parsers;
    out["rules"] = rules;
    out["root"] = root;
    return out;
}
