/* parser_graph.h: changes llama.cpp's parser of an answer. For this, the parser is represented as a graph, because
 * llama.cpp has no functions for changing a parser. A graph is owned by one caller. */
#ifndef LLM_PARSER_GRAPH_H
#define LLM_PARSER_GRAPH_H

#include <common/chat.h>

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

/* A node is a JSON object. Nodes refer to each other by number. These references can form cycles. */
class parser_graph {
  public:
    explicit parser_graph(common_json parser); /* throws std::exception if the JSON is malformed */

    size_t size() const
    {
        return nodes.size();
    }
    common_json &at(size_t id)
    {
        return nodes.at(id);
    }
    const common_json &at(size_t id) const
    {
        return nodes.at(id);
    }
    bool is(size_t id, const char *type) const;
    bool is_tagged(size_t id, const char *tag) const;
    std::vector<size_t> children(size_t id) const;

    /* Visits `from` and each node that is reachable from it once. The nodes are visited in the order in which they
     * parse a text. `enter` is called for each visited node and decides whether to visit the node's children. */
    void visit(size_t from, const std::function<bool(size_t)> &enter) const;
    /* Returns the nodes with this tag that are reachable from `from` without passing another node with this tag. `from`
     * itself can be one of them. */
    std::vector<size_t> tagged(size_t from, const char *tag) const;
    /* Returns for each node whether a node with this tag is reachable from it. The list has no entries for nodes that
     * are added later. So the numbers of such nodes must not be used as an index. */
    std::vector<bool> reaching(const char *tag) const;
    /* Returns the texts of literals that are reachable from `from`. The texts have the order in which the literals
     * parse a text. */
    std::vector<std::string> literals(size_t from) const;

    size_t add(const common_json &node);
    size_t literal(const std::string &text);
    size_t tag(const char *tag, size_t child);
    size_t sequence(const std::vector<size_t> &ids);
    size_t choice(const std::vector<size_t> &ids);
    size_t optional(size_t child);
    size_t any_number_of(size_t child);
    size_t unless(size_t child);
    /* Adds a node for at least `min` of these characters, or of all other characters if `is_negated`. `pairs` has the
     * first and the last character of each range: "09az" means digits and lower-case letters. */
    size_t characters(const std::string &pairs, bool is_negated, int min);
    size_t blanks();
    /* Adds a node for any text up to and including the first `close`. The node is only for making a grammar and parses
     * nothing. The grammar rules of such a node are long, so all calls with the same `close` return the same node. */
    size_t text_with(const std::string &close);
    /* Adds a node for the GBNF element `element`. The node is only for making a grammar and parses nothing. */
    size_t grammar(const std::string &element);
    /* Adds a named rule of the grammar. The rule's child can be set later, so that rules can refer to each other. */
    size_t rule(const std::string &name, size_t child);
    /* Returns a copy of the node and of everything below it, except rules, which stay shared. */
    size_t copy(size_t id);

    /* Removes the nodes that are not reachable from the root. This changes the numbers of the other nodes. */
    void remove_unused();

    common_json json() &&;

  private:
    std::vector<common_json> nodes;
    std::map<std::string, size_t> rules, texts; /* `rules` has nodes by rule name. `texts` has the nodes that text_with
                                                 * made, by `close` */
    size_t root;
};

#endif
