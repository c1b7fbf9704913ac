/* shape.h: what one JSON schema, or several that hold at once, allow: a list of shapes, each a conjunction without
 * alternatives.
 *
 * A condition is a schema of the document, or one keyword of it, as it is or negated. A node is a set of conditions;
 * the value of a member or an item has to meet a node. {"allOf": [A, {"properties": {"x": B}}], "properties": {"x": C}}
 * is one node of one condition; its member x has to meet the node {B, C}, or {B, C, D} if A declares x as D. {"anyOf":
 * [A, B], "type": "object"} has two shapes, and where A says that it is a number, one.
 *
 * A document has a finite number of keywords, so that it has a finite number of conditions and of nodes: a node that is
 * met again is the rule that was made for it, and recursion ends. That is why conditions refer to schemas by address
 * and never hold a schema that was put together: where a schema refers to itself beside other keywords, a merged one
 * would be new at every level. */
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

/* STRICT: a keyword that cannot be enforced is refused. LOOSE: it is left open, and no valid value is forbidden. */
enum class schema_policy { STRICT, LOOSE };

/* Conditions are ordered and compared by addresses (`keyword` is one of keywords.h). */
struct condition {
    const schema_json *schema;
    bool is_negated = false;
    const char *keyword = nullptr; /* NULL: all of them */
    uint32_t index = 0;            /* of the keyword's members or items, where each is a condition */

    auto key() const
    {
        return std::make_tuple(schema, keyword, index, is_negated);
    }
    bool operator<(const condition &other) const /* to find one; addresses change with every document */
    {
        return key() < other.key();
    }
    bool operator==(const condition &other) const
    {
        return key() == other.key();
    }
};

using node = std::vector<condition>; /* as expansion::node_of orders them */

namespace json_type {
inline constexpr uint8_t NOTHING = 0, NUL = 1, BOOLEAN = 2, NUMBER = 4, STRING = 8, ARRAY = 16, OBJECT = 32, ANY = 63;
}

uint8_t schema_type(const std::string &name);  /* NOTHING: there is no such type */
size_t schema_count(const schema_json &value); /* of minItems and the like; SIZE_MAX: it is no number, or beyond all */

/* Names in the order in which they were added, each once. Searching them one by one took 6 s for 32,000 names. */
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

/* What one value may be. Each field holds what all conditions say of it together: what is cheap to intersect is one
 * value (types, counts); the rest (bounds, patterns, sources of members) is a list that is intersected when the rule is
 * written. */
struct shape {
    uint8_t types = json_type::ANY;
    bool is_integer = false;
    struct bound {
        const schema_json *value;
        bool is_exclusive;
    };
    std::vector<bound> least, most;             /* of numbers */
    std::vector<const schema_json *> multiples; /* multipleOf */
    size_t length_least = 0, length_most = SIZE_MAX;
    std::vector<std::pair<const std::string *, bool>> patterns;     /* true: negated */
    std::vector<const std::string *> formats;                       /* known ones */
    std::vector<const schema_json *> array_sources, object_sources; /* schemas whose items or members hold */
    size_t items_least = 0, items_most = SIZE_MAX;
    bool is_unique = false;
    std::vector<condition> contained; /* an item meets it, for each */
    name_list required;
    std::set<std::string> absent;
    std::vector<std::pair<std::string, condition>> members; /* conditions on single ones, beside object_sources */
    size_t members_least = 0, members_most = SIZE_MAX;
    std::vector<condition> names;                           /* propertyNames */
    std::optional<std::vector<const schema_json *>> values; /* one of these */
    std::vector<const schema_json *> excluded;
    bool is_anything() const;
};

/* The automata of a schema's patterns, each made once. */
class pattern_set {
  public:
    explicit pattern_set(work_budget &spent) : budget(spent) {}

    /* Returns NULL if no automaton expresses the pattern; *why then says why, if it is not NULL. */
    const automaton *find(const std::string &pattern, std::string *why);

  private:
    struct entry {
        std::optional<automaton> made;
        std::string why;
    };
    work_budget &budget;
    std::map<std::string, entry> known;
};

/* Whether a value meets a schema (valid.cpp). UNKNOWN: a keyword cannot be tested, or the budget or the depth ends. */
struct verdict {
    enum { INVALID, VALID, UNKNOWN } is;
    const schema_json *schema = nullptr; /* the one with the keyword */
    const char *keyword = nullptr;       /* the one that STRICT refuses; NULL: STRICT keeps the value */
};

class expansion {
  public:
    expansion(const references &where_refs_lead, schema_policy what_to_do, pattern_set &all_patterns,
              work_budget &spent)
        : refs(where_refs_lead), policy(what_to_do), patterns(all_patterns), budget(spent)
    {}

    /* Throws grammar_beyond naming a keyword that cannot be enforced (STRICT), grammar_fault. None: no value. */
    const std::vector<shape> &shapes_of(const node &n);

    /* Returns whether a value that the document contains may be written for the node. STRICT refuses a keyword that
     * would decide it and cannot be tested. */
    bool is_kept(const schema_json &value, const node &n);

    /* True if no value meets the node. False also where a few levels do not decide it. */
    bool is_nothing(const node &n, size_t depth);

    /* Returns the conditions of the shape on a member with this name. */
    node member_node(const shape &s, const std::string &name);

    /* Returns each condition once, without those that hold for every value, in the order in which their
     * schemas were first met: the order of addresses would make another grammar of the same schema, in another process
     * or only the next time. */
    node node_of(node conditions);

    /* Replaces each schema by the first one that equals it, so that equal nodes are found again. */
    node without_repetitions(node n);

    /* Reports what cannot be enforced: STRICT throws and names it, LOOSE ignores it. */
    void give_up(const schema_json &schema, const std::string &what) const;

  private:
    /* Conditions on one value while they are merged. */
    struct state {
        shape s;
        std::vector<condition> pending;
        std::vector<std::vector<node>> choices; /* each: alternatives, of which one holds */
        std::set<condition> met;
        size_t n_items() const; /* how much copying it copies */
    };
    const references &refs;
    schema_policy policy;
    pattern_set &patterns;
    work_budget &budget;
    std::map<node, std::vector<shape>> known;
    std::map<node, bool> nothing;
    std::unordered_map<const schema_json *, size_t> numbers; /* of schemas that were ordered, as they came */

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
