/* shape.h: describes the values that satisfy one or several JSON schemas together. The description is a list of shapes.
 * Keywords such as anyOf, oneOf and if have alternatives. There is one shape for each combination of alternatives. A
 * shape has everything that one combination demands of a value, such as types, bounds, patterns and members. A value is
 * allowed if it satisfies at least one of the shapes.
 *
 * A condition is a schema of the document, or one of its keywords, possibly negated (`not`). A node is the set of all
 * conditions on one value, for example on an object member or on an array item. An example is {"allOf": [A,
 * {"properties": {"x": B}}], "properties": {"x": C}}. The root is a node with one condition, the root schema. The
 * member x is a node with the conditions B and C. If A declares x as D, D is a third condition. The schema {"anyOf":
 * [A, B], "type": "object"} has two shapes, one for A and one for B. If A allows only numbers, it contradicts "type":
 * "object", and only the shape for B remains.
 *
 * Compiling ends even if a schema refers to itself. A document has a finite number of keywords, and therefore of
 * conditions and nodes. If a node occurs again, the grammar rule that was made for the node is used. This works only
 * because a condition refers to a schema by its address and never contains a merged schema. A schema can have a
 * reference to itself, together with other keywords. Merging the reference with these keywords would make a new schema
 * at every level of the recursion. */
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

/* STRICT refuses a schema with a keyword that cannot be enforced. LOOSE ignores such a keyword, so that no valid value
 * is forbidden. */
enum class schema_policy { STRICT, LOOSE };

/* A schema, or one keyword of a schema, that a value must satisfy. Conditions are compared by the address of the schema
 * and the address of the keyword's name (the names are in keywords.h). */
struct condition {
    const schema_json *schema;
    bool is_negated = false;
    const char *keyword = nullptr; /* NULL if the condition is the whole schema */
    uint32_t index = 0;            /* index of the element, if the condition is one element of the keyword's list or
                                    * object */

    auto key() const
    {
        return std::make_tuple(schema, keyword, index, is_negated);
    }
    bool operator<(const condition &other) const /* used only for lookups, because addresses, and so this order, differ
                                                  * from run to run */
    {
        return key() < other.key();
    }
    bool operator==(const condition &other) const
    {
        return key() == other.key();
    }
};

using node = std::vector<condition>; /* all conditions on one value, in the order that expansion::node_of gives them */

namespace json_type {
inline constexpr uint8_t NOTHING = 0, NUL = 1, BOOLEAN = 2, NUMBER = 4, STRING = 8, ARRAY = 16, OBJECT = 32, ANY = 63;
}

uint8_t schema_type(const std::string &name); /* returns the bit of the type, or NOTHING for an unknown type */
/* Returns the number that minItems or a similar keyword has. Returns SIZE_MAX if the keyword's value is not a number,
 * or is 1e15 or more. */
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

/* What one combination of alternatives demands of a value (see the top of this file). Each field combines the demands
 * of all schemas that hold together. Types and counts are cheap to intersect, so each of these fields is a single
 * number. Bounds, patterns and member schemas are collected in lists. The lists are intersected when the grammar rule
 * is written. */
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
    std::vector<std::pair<const std::string *, bool>> patterns;     /* each pattern, and whether the string must not
                                                                     * match the pattern (true) */
    std::vector<const std::string *> formats;                       /* values of the keyword `format` */
    std::vector<const schema_json *> array_sources, object_sources; /* schemas that constrain the items of an array,
                                                                     * and schemas that constrain the members of an
                                                                     * object */
    size_t items_least = 0, items_most = SIZE_MAX;
    bool is_unique = false;
    std::vector<condition> contained; /* for each of these conditions, at least one array item must satisfy the
                                       * condition */
    name_list required;
    std::set<std::string> absent;
    /* conditions on object members by name, in addition to the schemas in object_sources */
    std::vector<std::pair<std::string, condition>> members;
    size_t members_least = 0, members_most = SIZE_MAX;
    std::vector<condition> names;                           /* schemas of propertyNames */
    std::optional<std::vector<const schema_json *>> values; /* values of an enum or const: only these values are
                                                             * allowed */
    std::vector<const schema_json *> excluded;
    bool is_anything() const;
};

/* The automata of all regular expressions in one schema document (`pattern`, `patternProperties`). Each automaton is
 * built once. */
class pattern_set {
  public:
    explicit pattern_set(work_budget &spent) : budget(spent) {}

    /* Returns the automaton of the pattern, or NULL if no automaton can express the pattern. In that case the reason is
     * stored in *why, unless `why` is NULL. */
    const automaton *find(const std::string &pattern, std::string *why);

  private:
    struct entry {
        std::optional<automaton> made;
        std::string why;
    };
    work_budget &budget;
    std::map<std::string, entry> known;
};

/* Whether a value satisfies a schema (valid.cpp). The verdict is UNKNOWN in three cases: a keyword cannot be tested,
 * the work budget is spent, or the schema nests too deeply. */
struct verdict {
    enum { INVALID, VALID, UNKNOWN } is;
    const schema_json *schema = nullptr; /* for an UNKNOWN verdict: the schema that could not be tested */
    const char *keyword = nullptr;       /* for an UNKNOWN verdict: STRICT refuses the schema because of this keyword.
                                          * If `keyword` is NULL, STRICT accepts the value */
};

class expansion {
  public:
    expansion(const references &where_refs_lead, schema_policy what_to_do, pattern_set &all_patterns,
              work_budget &spent)
        : refs(where_refs_lead), policy(what_to_do), patterns(all_patterns), budget(spent)
    {}

    /* Returns the shapes of a node. A value that satisfies one of these shapes satisfies all conditions of the node. An
     * empty list means that no value satisfies the node. Under STRICT, throws grammar_beyond with the name of a keyword
     * that cannot be enforced. Throws grammar_fault for other errors in the schema. */
    const std::vector<shape> &shapes_of(const node &n);

    /* Returns whether a value of the document satisfies all conditions of the node. The value is from enum or const, or
     * is a member name. Returns true if it is unknown whether the value satisfies the node. Under STRICT, throws
     * grammar_beyond if the result depends on a keyword that cannot be tested. */
    bool is_kept(const schema_json &value, const node &n);

    /* Returns true if no value satisfies all conditions of the node. Examines only the first `depth` levels of the
     * schema. */
    bool is_nothing(const node &n, size_t depth);

    /* Returns all conditions that a shape puts on the object member with this name. */
    node member_node(const shape &s, const std::string &name);

    /* Makes a node from conditions: removes repetitions and conditions that hold for every value. Sorts the remaining
     * conditions by the order in which their schemas were first used. Addresses cannot define the order. They differ
     * from request to request, so the same schema would give different grammars. */
    node node_of(node conditions);

    /* Replaces each schema of the node by the first schema in the document that equals it. So nodes with equal schemas
     * share one grammar rule. */
    node without_repetitions(node n);

    /* Handles a keyword that cannot be enforced. Under STRICT, throws grammar_beyond with the path of `schema` and
     * `what`. Under LOOSE, does nothing, and the caller ignores the keyword. */
    void give_up(const schema_json &schema, const std::string &what) const;

  private:
    /* The conditions on one value while they are merged into shapes. */
    struct state {
        shape s;
        std::vector<condition> pending;
        std::vector<std::vector<node>> choices; /* each choice is a list of alternatives, one of which must hold */
        std::set<condition> met;
        size_t n_items() const; /* number of elements in all lists of the state. Copying the state costs
                                 * work_budget::COPIED_ITEM steps for each element */
    };
    const references &refs;
    schema_policy policy;
    pattern_set &patterns;
    work_budget &budget;
    std::map<node, std::vector<shape>> known;
    std::map<node, bool> nothing;
    std::unordered_map<const schema_json *, size_t> numbers; /* position of each schema in the order of first use */

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
