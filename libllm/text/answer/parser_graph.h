/* parser_graph.h: llama.cpp's parser of an answer as a graph that can be changed, for which llama.cpp has no functions.
 * One caller owns it. */
#ifndef LLM_PARSER_GRAPH_H
#define LLM_PARSER_GRAPH_H

#include <common/chat.h>

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

/* A node is a JSON object. Nodes refer to each other by number, and may do so in circles. */
class parser_graph {
  public:
    explicit parser_graph(common_json parser); /* throws */

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

    /* Visits each node that can be reached from `from` (itself included) once, in the order of the text. `enter` says
     * whether to go deeper. */
    void visit(size_t from, const std::function<bool(size_t)> &enter) const;
    /* Returns the nodes with this tag that can be reached from `from` (itself included), but not through another one of
     * them. */
    std::vector<size_t> tagged(size_t from, const char *tag) const;
    /* Returns for each node whether a node with this tag can be reached from it. Nodes that are added later have no
     * index in the list, and must not be looked up. */
    std::vector<bool> reaching(const char *tag) const;
    /* Returns the texts of literals that can be reached from `from`, in the order of the text. */
    std::vector<std::string> literals(size_t from) const;

    size_t add(const common_json &node);
    size_t literal(const std::string &text);
    size_t tag(const char *tag, size_t child);
    size_t sequence(const std::vector<size_t> &ids);
    size_t choice(const std::vector<size_t> &ids);
    size_t optional(size_t child);
    size_t any_number_of(size_t child);
    size_t unless(size_t child);
    /* Adds at least `min` characters of these, or of all others. `pairs` has the first and the last character of each
     * range: "09az" are digits and small letters. */
    size_t characters(const std::string &pairs, bool is_negated, int min);
    size_t blanks();
    /* Adds any text up to and with the first `close`. It is for grammars only, as a parser it is empty. Its rules are
     * long, so that there is one node for each `close`. */
    size_t text_with(const std::string &close);
    /* Adds a part for grammars only, which is parsed as nothing: `element` is one element of GBNF. */
    size_t grammar(const std::string &element);
    /* Adds a rule of the grammar under a name of its own. Its child may be set later, so that rules can refer to each
     * other. */
    size_t rule(const std::string &name, size_t child);
    /* Returns a copy of the node and of all below it, but for rules, which stay shared. */
    size_t copy(size_t id);

    /* Removes the nodes that the root does not reach, which changes the numbers of the others. */
    void remove_unused();

    common_json json() &&;

  private:
    std::vector<common_json> nodes;
    std::map<std::string, size_t> rules, texts; /* texts: nodes of text_with */
    size_t root;
};

#endif
