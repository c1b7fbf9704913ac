/* instance_search.h: whether a grammar takes a JSON value with the members of its objects in some order. One for each grammar; one
 * thread.
 *
 * A position in a grammar is a stack of open rules, and the stacks that a text can lead to are a set. What a value adds to a set is
 * the union of what it adds to each of its stacks, so the result of a value and a stack is kept and found again. Most invalid
 * instances are refuted by what no order can reach, most valid ones are taken in one of two orders. Only the rest needs all orders:
 * a walk over sets of written members, where the stacks that different orders lead to are joined. */
#ifndef INSTANCE_SEARCH_H
#define INSTANCE_SEARCH_H

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/schema/references.h"

enum class search_verdict { TAKEN, FORBIDDEN, UNDECIDED };

class instance_search {
  public:
    /* `schema` names the order in which properties are declared. Both are referred to. */
    instance_search(const grammar &rules, const schema_json &schema);

    /* *text: how the value was written, if it is taken in the order of the instance or of the schema; else "". */
    search_verdict find(const schema_json &value, std::string *text);

  private:
    using stacks = std::vector<uint32_t>; /* ascending; 0: the text may end */
    struct member {
        std::string name;
        const schema_json *value;
    };

    const grammar &g;
    std::unordered_map<std::string, size_t> ranks;
    std::vector<std::pair<uint32_t, uint32_t>> pushed_stacks; /* element, stack below */
    std::unordered_map<uint64_t, uint32_t> stack_numbers;
    std::map<std::pair<const schema_json *, uint32_t>, stacks> known;
    std::vector<uint64_t> last_seen; /* by stack: the last expansion that met it */
    uint64_t n_expansions = 0;
    size_t n_steps = 0;
    enum class effort { ANY_NUMBER_OF_TIMES, TWO_ORDERS, ALL_ORDERS } tried = effort::ALL_ORDERS; /* with objects */
    bool is_cut = false; /* something was not tried */

    void find_ranks(const schema_json &value);
    size_t rank_of(const std::string &name) const;
    std::string written(const schema_json &value, bool by_schema) const;

    uint32_t pushed(uint32_t element, uint32_t below);
    uint32_t popped(uint32_t stack);
    void open_rule(uint32_t rule, uint32_t below, stacks &todo);
    stacks expanded(stacks &todo);
    stacks start();
    stacks after_text(const stacks &from, const std::string &text);

    stacks after(const stacks &from, const schema_json &value);
    stacks after_one(uint32_t stack, const schema_json &value);
    stacks after_array(const stacks &from, const schema_json &value);
    stacks after_object(const stacks &from, const schema_json &value);
    stacks after_member(const stacks &from, const member &next, bool is_first);
    stacks any_number_of_times(const stacks &open, const std::vector<member> &members);
    stacks in_any_order(const stacks &open, const std::vector<member> &members);
    stacks in_two_orders(const stacks &open, std::vector<member> members);
};

#endif
