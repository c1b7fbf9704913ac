/* writer.h: writes grammar rules for the values that a schema allows. The values are described by nodes and shapes
 * (shape.h). A node is a set of conditions on one value. A shape is the merged conditions of a node, for one
 * combination of alternatives. There is one writer per schema, owned by the thread that compiles. */
#ifndef LLM_SCHEMA_WRITER_H
#define LLM_SCHEMA_WRITER_H

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "text/schema/rules.h"
#include "text/schema/shape.h"

class writer {
  public:
    /* Values that are nested deeper than `n_levels` are not constrained. So if the grammar of the whole schema is too
     * large, at least the top levels can be enforced. */
    writer(expansion &meaning, pattern_set &all_patterns, rules &to, size_t n_levels, work_budget &spent)
        : shapes(meaning), patterns(all_patterns), out(to), budget(spent), levels_max(n_levels)
    {}

    /* Returns one element of GBNF for the values that satisfy all `conditions`. Returns "" if no value satisfies all of
     * them. */
    std::string value(const node &conditions);

    /* Returns the strings that satisfy all conditions of the node, or nullopt if every string does. Throws
     * grammar_beyond if finding the strings takes too much work. */
    std::optional<automaton> texts_of(const node &n);

    /* A class of undeclared members. No schema of the shape declares their names, and all these names match the same
     * patterns. `value` is the set of conditions on the values of these members. */
    struct undeclared {
        automaton names;
        node value;
    };
    /* Returns the classes of undeclared members of a shape. `n`, the node to which the shape belongs, is needed only
     * for error messages. */
    std::vector<undeclared> undeclared_of(const shape &s, const node &n, const std::vector<std::string> &declared);

  private:
    /* How an object is written: first the declared members in the order of the schema, then undeclared members. If n
     * members could come in any order, the grammar would need 2^n rules: one for each set of members already written.
     * With a fixed order, a rule depends only on the next member. If minProperties or maxProperties is enforced, the
     * rule also depends on the number of members already written. */
    struct object_plan {
        struct member {
            std::string name, value; /* `value` is an element of GBNF, or "" if the member must be absent */
            bool is_required;
        };
        std::vector<member> members;
        /* True if members can come in any order. The parameter `at` of the functions below is then the set of members
         * already written, one bit each. `needed` is the set of required members. If members are ordered, `at` is the
         * number of the next member. */
        bool is_unordered = false;
        size_t needed = 0;
        bool has_others_between = false; /* undeclared members can come anywhere, not only after the declared members */
        std::vector<std::string> others; /* the GBNF alternatives for an undeclared member */
        size_t n_needed = 0;             /* number of declared members up to the last required one */
        size_t least = 0, most = SIZE_MAX;
        bool is_counted = false;
        /* names of the rules that names_from and rest_from have made, by `at` and number of members already written */
        std::map<std::pair<size_t, size_t>, std::string> names, rests;

        bool has_needed(size_t at) const
        {
            return is_unordered ? (at & needed) == needed : at >= n_needed;
        }

        /* `n` is the number of members already written. Returns `n`, or a smaller number that allows the same
         * continuations of the object. So equal rules are not made twice. */
        size_t counted(size_t n) const
        {
            return !is_counted ? 0 : most == SIZE_MAX && n > least ? least : n;
        }
    };
    /* A set of undeclared names that all match the same patterns (`met`). The same conditions therefore apply to the
     * values of these members. */
    struct name_class {
        automaton names;
        std::vector<std::string> met;
    };
    struct item_plan {
        std::vector<std::string> first;
        std::string rest; /* rule of every array item after the items in `first`. "" if no further item is allowed */
        size_t least, most;
    };

    expansion &shapes;
    pattern_set &patterns;
    rules &out;
    work_budget &budget;
    size_t levels_max, level = 0;
    struct known_node {
        std::string name;
        bool is_open = false, is_reserved = false;
    };
    std::map<node, known_node> known;

    static std::string either(const std::vector<std::string> &ways);
    static void add_once(std::vector<std::string> &to, std::string way);

    std::string all_shapes(const node &n);
    std::string one_shape(const shape &s, const node &n);
    std::string values(const std::vector<const schema_json *> &all);
    std::string literal(const schema_json &value);
    bool is_excluded(const shape &s, const schema_json &value) const;

    std::string number(const shape &s, const node &n);
    std::string number_but(const shape &s, const std::vector<const schema_json *> &excluded, const node &n);
    std::string bounded_number(const shape &s, const node &n);
    std::string multiples(const shape &s, const node &n);
    std::string text(const shape &s, const node &n);
    bool conditions_of(const shape &s, const node &n, automaton *all);
    void exclude_texts(const shape &s, automaton *all, bool *has_any);

    std::string array(const shape &s, const node &n);
    item_plan items_of(const shape &s);
    std::string rest_of_array(const item_plan &plan, size_t at);
    std::string array_with(const item_plan &plan, const std::string &contained);

    std::string object(const shape &s, const node &n);
    bool plan_members(const shape &s, object_plan *plan);
    node undeclared_value(const shape &s, const name_class &one, bool are_known);
    std::vector<name_class> classes_of(automaton all, const std::vector<std::string> &expressions);
    void narrow_names(const shape &s, automaton *names);
    void order_members(object_plan *plan);
    const char *name_opening() const;
    void add_member(const object_plan::member &member, const std::string &rest, std::vector<std::string> *ways);
    void add_others(object_plan &plan, size_t at, size_t n_written, std::vector<std::string> *ways);
    std::string any_name_from(object_plan &plan, size_t at, size_t n_written);
    std::string names_from(object_plan &plan, size_t at, size_t n_written);
    std::string rest_from(object_plan &plan, size_t at, size_t n_written);
};

#endif
