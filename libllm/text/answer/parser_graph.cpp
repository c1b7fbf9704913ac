/* parser_graph.cpp: nodes are JSON objects in the format of parser_text.cpp. C++ structs would have to repeat all of
 * llama.cpp's kinds of nodes. As JSON objects, nodes of kinds that this file does not know simply stay unchanged. */
#include "text/answer/parser_graph.h"

#include <algorithm>
#include <stdexcept>
#include <unordered_set>
#include <utility>

parser_graph::parser_graph(common_json parser) : root(parser.at("root").get<size_t>())
{
    for (const common_json &rule : parser.at("rules")) {
        rules[rule.at("name").get<std::string>()] = rule.at("id").get<size_t>();
    }
    common_json &parsers = parser.at("parsers");
    nodes.reserve(parsers.size());
    for (size_t id = 0; id < parsers.size(); id++) {
        nodes.push_back(std::move(parsers.at(id)));
    }
    for (size_t id = 0; id < nodes.size(); id++) {
        for (const size_t child : children(id)) {
            if (child >= nodes.size()) {
                throw std::runtime_error("a parser refers to no other parser");
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

/* The child of a `ref` node, which has only the name of a rule, is the node of this rule. Rules refer to each other in
 * cycles, so the functions below record visited nodes. */
std::vector<size_t> parser_graph::children(size_t id) const
{
    const common_json &node = at(id);
    if (is(id, "ref")) {
        return {rules.at(node.at("name").get<std::string>())};
    }
    if (node.contains("children")) {
        return node.at("children").get<std::vector<size_t>>();
    }
    return node.contains("child") ? std::vector<size_t>{node.at("child").get<size_t>()} : std::vector<size_t>();
}

/* The children of a node are pushed onto the stack `left` in reverse order. So nodes are visited in the order in which
 * they parse a text. Callers rely on this order. The first literal below a delimiter's node must be the text with which
 * the delimiter begins. */
void parser_graph::visit(size_t from, const std::function<bool(size_t)> &enter) const
{
    /* a set of visited nodes, because an array of all nodes would have to be cleared for each argument of each tool */
    std::unordered_set<size_t> known;
    std::vector<size_t> left = {from};
    while (!left.empty()) {
        const size_t id = left.back();
        left.pop_back();
        if (known.insert(id).second && enter(id)) {
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

/* Goes from the tagged nodes to their parents, so that one pass covers all nodes. A search from each node would take
 * time in proportion to the square of the number of nodes. */
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
    const auto known = texts.find(close);
    return known != texts.end() ? known->second
                                : texts[close] = add({{"type", "ac"},
                                                      {"child", add({{"type", "epsilon"}})},
                                                      {"delimiters", std::vector<std::string>{close}}});
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
    if (is(id, "rule") || is(id, "ref")) { /* a rule is not copied, because it can be shared or refer to itself */
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

void parser_graph::remove_unused()
{
    std::vector<bool> is_used(nodes.size());
    visit(root, [&](size_t id) {
        is_used[id] = true;
        return true;
    });
    std::vector<size_t> numbers(nodes.size());
    std::vector<common_json> used;
    for (size_t id = 0; id < nodes.size(); id++) {
        numbers[id] = used.size();
        if (is_used[id]) {
            used.push_back(std::move(nodes[id]));
        }
    }
    for (common_json &node : used) {
        if (node.contains("children")) {
            std::vector<size_t> ids = node.at("children").get<std::vector<size_t>>();
            std::transform(ids.begin(), ids.end(), ids.begin(), [&](size_t id) { return numbers[id]; });
            node["children"] = ids;
        } else if (node.contains("child")) {
            node["child"] = numbers[node.at("child").get<size_t>()];
        }
    }
    std::map<std::string, size_t> used_rules;
    for (const auto &[name, id] : rules) {
        if (is_used[id]) {
            used_rules[name] = numbers[id];
        }
    }
    nodes = std::move(used);
    rules = std::move(used_rules);
    root = numbers[root];
    texts.clear();
}

common_json parser_graph::json() &&
{
    common_json parsers = common_json::array(), out = common_json::object();
    for (common_json &node : nodes) {
        parsers.push_back(std::move(node));
    }
    common_json names = common_json::array();
    for (const auto &[name, id] : rules) {
        names.push_back({{"name", name}, {"id", id}});
    }
    out["parsers"] = std::move(parsers);
    out["rules"] = std::move(names);
    out["root"] = root;
    return out;
}
