/* writer.h: from shapes to rules of a grammar. Each schema that is compiled has one; the thread that compiles owns
 * it. */
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
    /* `n_levels`: values below so many levels are left open, so that a schema whose grammar is too large is enforced at
     * its top. */
    writer(expansion &meaning, pattern_set &all_patterns, rules &to, size_t n_levels, work_budget &spent)
        : shapes(meaning), patterns(all_patterns), out(to), budget(spent), levels_max(n_levels)
    {}

    /* Returns one element of GBNF; "", if no value meets the node. */
    std::string value(const node &conditions);

    /* Returns the texts that meet the node; nullopt: any text. Throws grammar_beyond. */
    std::optional<automaton> texts_of(const node &n);

    /* Names of members that no schema of the shape declares, and meet the same patterns; and what their values meet. */
    struct undeclared {
        automaton names;
        node value;
    };
    /* `n`: a node with this shape. */
    std::vector<undeclared> undeclared_of(const shape &s, const node &n, const std::vector<std::string> &declared);

  private:
    /* How an object is written. Members come in the order of the schema, then the undeclared ones: any order would take
     * a rule for each set of members that are written already, two to the power of their number. There is a rule for
     * each member and for each number of members before it, where that number matters (minProperties,
     * maxProperties). */
    struct object_plan {
        struct member {
            std::string name, value; /* value: an element; "": it must not be there */
            bool is_required;
        };
        std::vector<member> members;
        /* The members come in any order: then the place in the object (`at`) is the set of those that were written,
         * a bit for each, and `needed` the set of those that are required. Otherwise it is the number of the next
         * member. */
        bool is_unordered = false;
        size_t needed = 0;
        bool has_others_between = false; /* the others may come anywhere, not only after the declared ones */
        std::vector<std::string> others; /* alternatives: names that are not declared, and their values */
        size_t n_needed = 0;             /* up to the last one that is required */
        size_t least = 0, most = SIZE_MAX;
        bool is_counted = false;
        std::map<std::pair<size_t, size_t>, std::string> names, rests; /* by member, and how many came before */

        bool has_needed(size_t at) const
        {
            return is_unordered ? (at & needed) == needed : at >= n_needed;
        }

        /* Returns n, or the largest number that differs from none: more rules would say the same. */
        size_t counted(size_t n) const
        {
            return !is_counted ? 0 : most == SIZE_MAX && n > least ? least : n;
        }
    };
    /* The undeclared names that meet the same patterns, and so have values of the same kind. */
    struct name_class {
        automaton names;
        std::vector<std::string> met;
    };
    struct item_plan {
        std::vector<std::string> first;
        std::string rest; /* "": no more */
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
