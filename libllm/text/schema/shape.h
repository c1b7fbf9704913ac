/* shape.h: the values that satisfy one or several JSON schemas, as a list of shapes. A shape is a conjunction of
 * conditions without alternatives.
 *
 * A condition is a schema of the document or one of its keywords, negated or not. A node is a set of conditions, all of
 * which the value of a member or an item has to meet. {"allOf": [A, {"properties": {"x": B}}], "properties": {"x": C}}
 * is one node of one condition. The member x of a value has to meet the node {B, C}, or {B, C, D} if A declares x as D.
 * {"anyOf": [A, B], "type": "object"} has two shapes, or one if A is a number.
 *
 * Recursion ends, because a document has a finite number of keywords, and therefore of conditions and nodes, and a node
 * that occurs again uses the rule that was made for it. For this reason conditions refer to schemas by address and
 * never contain a merged schema. If a schema has other keywords beside a reference to itself, merging would make a new
 * schema at every level. */
#ifndef LLM_SCHEMA_SHAPE_H
#define LLM_SCHEMA_SHAPE_H

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/schema/automaton.h"
#include "text/schema/references.h"

/* STRICT refuses a schema with a keyword that cannot be enforced. LOOSE ignores the keyword, so that no valid value is
 * forbidden. */
enum class schema_policy { STRICT, LOOSE };

/* Conditions are ordered and compared by address (`keyword` is one of keywords.h). */
struct condition {
    const schema_json *schema;
    bool is_negated = false;
    const char *keyword = nullptr; /* NULL for all keywords of the schema */
    uint32_t index = 0;            /* index of the member or item of the keyword, if each member or item is a
                                    * condition */

    auto key() const
    {
        return std::make_tuple(schema, keyword, index, is_negated);
    }
    bool operator<(const condition &other) const /* an order for lookups only, because addresses differ between
                                                  * documents */
    {
        return key() < other.key();
    }
    bool operator==(const condition &other) const
    {
        return key() == other.key();
    }
};

using node = std::vector<condition>; /* the conditions are in the order of expansion::node_of */

namespace json_type {
inline constexpr uint8_t NOTHING = 0, NUL = 1, BOOLEAN = 2, NUMBER = 4, STRING = 8, ARRAY = 16, OBJECT = 32, ANY = 63;
}

uint8_t schema_type(const std::string &name); /* returns NOTHING for an unknown type */
/* Returns the value of minItems or a similar keyword, or SIZE_MAX if the value is not a number or too large for a
 * size. */
size_t schema_count(const schema_json &value);

/* Distinct names in the order in which they were added. A linear search for each name took 6 s for 32,000 names. */
class name_list {
  public:
    void add(const std::string &name)
    {
        if (known.insert(name).second) {
            order.push_back(name);
        }
    }
    bool has(const std::string &name) const
    {
        return known.count(name) > 0;
    }
    size_t size() const
    {
        return order.size();
    }
    bool empty() const
    {
        return order.empty();
    }
    auto begin() const
    {
        return order.begin();
    }
    auto end() const
    {
        return order.end();
    }

  private:
    std::vector<std::string> order;
    std::set<std::string> known;
};

/* The conditions on one value. Each field combines all conditions. Types and counts are cheap to intersect and are one
 * value each. Bounds, patterns and sources of members are lists, which are intersected when the rule is written. */
struct shape {
    uint8_t types = json_type::ANY;
    bool is_integer = false;
    struct bound {
        const schema_json *value;
        bool is_exclusive;
    };
    std::vector<bound> least, most;             /* bounds of numbers */
    std::vector<const schema_json *> multiples; /* values of multipleOf */
    size_t length_least = 0, length_most = SIZE_MAX;
    std::vector<std::pair<const std::string *, bool>> patterns;     /* true for a negated pattern */
    std::vector<const std::string *> formats;                       /* contains only known formats */
    std::vector<const schema_json *> array_sources, object_sources; /* schemas that constrain items or members */
    size_t items_least = 0, items_most = SIZE_MAX;
    bool is_unique = false;
    std::vector<condition> contained; /* some item must meet each of these conditions */
    name_list required;
    std::set<std::string> absent;
    /* conditions on single members, in addition to object_sources */
    std::vector<std::pair<std::string, condition>> members;
    size_t members_least = 0, members_most = SIZE_MAX;
    std::vector<condition> names;                           /* values of propertyNames */
    std::optional<std::vector<const schema_json *>> values; /* the value must be one of these */
    std::vector<const schema_json *> excluded;
    bool is_anything() const;
};

/* The automata of a schema's patterns. Each automaton is built once. */
class pattern_set {
  public:
    explicit pattern_set(work_budget &spent) : budget(spent) {}

    /* Returns NULL if no automaton can express the pattern; *why (if not NULL) then receives the reason. */
    const automaton *find(const std::string &pattern, std::string *why);

  private:
    struct entry {
        std::optional<automaton> made;
        std::string why;
    };
    work_budget &budget;
    std::map<std::string, entry> known;
};

/* Whether a value meets a schema (valid.cpp). The verdict is UNKNOWN if a keyword cannot be tested, or if the budget or
 * the depth is used up. */
struct verdict {
    enum { INVALID, VALID, UNKNOWN } is;
    const schema_json *schema = nullptr; /* the schema with the keyword that cannot be tested */
    const char *keyword = nullptr;       /* the keyword that STRICT refuses; NULL if STRICT keeps the value */
};

class expansion {
  public:
    expansion(const references &where_refs_lead, schema_policy what_to_do, pattern_set &all_patterns,
              work_budget &spent)
        : refs(where_refs_lead), policy(what_to_do), patterns(all_patterns), budget(spent)
    {}

    /* Returns the shapes; an empty list means that no value meets the node. Throws grammar_beyond, which names a
     * keyword that cannot be enforced (STRICT), or grammar_fault. */
    const std::vector<shape> &shapes_of(const node &n);

    /* Returns whether the node allows a value of the document. Under STRICT, a keyword that decides this but cannot be
     * tested is refused. */
    bool is_kept(const schema_json &value, const node &n);

    /* Returns true if a few levels of the schema prove that no value meets the node, otherwise false. */
    bool is_nothing(const node &n, size_t depth);

    /* Returns the shape's conditions on a member with this name. */
    node member_node(const shape &s, const std::string &name);

    /* Returns the conditions without repetitions and without conditions that hold for every value, in the order in
     * which their schemas were first used. If the order were that of addresses, the same schema would give another
     * grammar in another process, or on the next request. */
    node node_of(node conditions);

    /* Replaces each schema by the first schema that equals it, so that equal nodes are recognized. */
    node without_repetitions(node n);

    /* Reports a keyword that cannot be enforced. STRICT throws an exception that names the keyword, LOOSE ignores the
     * keyword. */
    void give_up(const schema_json &schema, const std::string &what) const;

  private:
    /* Conditions on one value while they are merged. */
    struct state {
        shape s;
        std::vector<condition> pending;
        std::vector<std::vector<node>> choices; /* each choice is a list of alternatives, one of which must hold */
        std::set<condition> met;
        size_t n_items() const; /* number of items in all lists of the state, which decides the cost of a copy */
    };
    const references &refs;
    schema_policy policy;
    pattern_set &patterns;
    work_budget &budget;
    std::map<node, std::vector<shape>> known;
    std::map<node, bool> nothing;
    std::unordered_map<const schema_json *, size_t> numbers; /* number of each schema, in the order of first use */

    void settle(state s, bool has_choices, std::vector<shape> &out);
    bool apply(state &s, const condition &c);
    bool apply_schema(state &s, const schema_json &schema);
    bool apply_negated(state &s, const schema_json &schema);
    bool apply_negated_keyword(state &s, const condition &c);
    void apply_numbers(state &s, const schema_json &schema);
    void apply_texts(state &s, const schema_json &schema);
    void apply_arrays(state &s, const schema_json &schema);
    void apply_objects(state &s, const schema_json &schema);
    void apply_choices(state &s, const schema_json &schema);
    void apply_one_of(state &s, const schema_json &schema);
    void apply_dependencies(state &s, const schema_json &schema);
    bool can_negate(const schema_json &schema, size_t depth);
    bool is_nothing_shape(const shape &s, const node &n, size_t depth);
    bool may_be_valid(const schema_json &value, const node &n);
    verdict verdict_on(const schema_json &value, const node &n);
    verdict schema_verdict(const schema_json &value, const schema_json &schema, size_t depth);
    verdict text_verdict(const schema_json &value, const schema_json &schema);
    verdict array_verdict(const schema_json &value, const schema_json &schema, size_t depth);
    verdict unique_verdict(const schema_json &value, const schema_json &schema);
    verdict object_verdict(const schema_json &value, const schema_json &schema, size_t depth);
    verdict combination_verdict(const schema_json &value, const schema_json &schema, size_t depth);
    void add_dependencies(const schema_json &value, const schema_json &schema, size_t depth, verdict *all);
};

#endif
