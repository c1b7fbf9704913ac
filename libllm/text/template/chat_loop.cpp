#include "text/template/chat_loop.h"

#include <algorithm>
#include <utility>

#include "text/template/chat_trace.h"

namespace {

using jinja::cast_stmt;
using jinja::context;
using jinja::is_val;
using jinja::statement_ptr;
using jinja::value;

/* Limit on the outcomes of a request. An outcome takes less than 150 bytes, and 32 bytes for each assignment, so all of
 * them take less than 11 MB. An outcome also keeps its item and the assigned values alive until the request ends.
 * Values that the template made were charged to the budget (chat_operation_insert). */
constexpr size_t OUTCOMES_MAX = 16384;

/* Limits on the assignments in the body of a loop, and on the different variables that the body reads. The limits are
 * low, because the loop looks up a variable for each of them when it begins, and does not charge these look-ups to the
 * budget. */
constexpr size_t ASSIGNMENTS_MAX = 16, VARIABLES_MAX = 16;

/* Limit on the members of an object that a kept iteration changes. The cost of setting a member grows with every 64
 * members of the object (chat_operation_insert). An object below this limit still has fewer than 64 members after one
 * more iteration. So the cost is the same for all such objects. */
constexpr size_t MEMBERS_MAX = 32;

constexpr uint16_t WHOLE = jinja::VALUE_INT | jinja::VALUE_BOOL; /* kinds of values that val_int represents
                                                                  * completely */
constexpr uint16_t PLAIN = WHOLE | jinja::VALUE_NONE | jinja::VALUE_FLOAT | jinja::VALUE_STRING;

const char *const COMPARISONS[] = {"==", "!=", "<", "<=", ">", ">=", "in", "not in"};
const char *const TESTS[] = {"defined",  "undefined", "none",   "string", "mapping",
                             "iterable", "sequence",  "number", "boolean"};

template <size_t N> bool is_in(const char *const (&table)[N], const std::string &name)
{
    return std::find(std::begin(table), std::end(table), name) != std::end(table);
}

/* Variables that a kept iteration must not read. `loop` is a different object in each loop. Each reading of CHAT_ASKS
 * must be counted (chat_trace.h). */
bool is_special(const std::string &name)
{
    return name == "loop" || name == CHAT_ASKS;
}

/* ---- the syntax of a loop ------------------------------------------------------------------------------------- */

/* Examines the body of a loop. Functions return false if an iteration can depend on more than its item and on the
 * variables in out->variables, or can do more than set members of the objects in out->targets. */
class examination {
  public:
    examination(const std::string &item_, chat_outcomes::loop *out_) : item(item_), out(out_) {}

    bool are_plain(const jinja::statements &nodes)
    {
        return std::all_of(nodes.begin(), nodes.end(), [this](const statement_ptr &node) { return is_plain(node); });
    }

  private:
    bool is_plain(const statement_ptr &node)
    {
        if (const auto *choice = cast_stmt<jinja::if_statement>(node)) {
            return is_of_item(choice->test) && are_plain(choice->body) && are_plain(choice->alternate);
        }
        if (const auto *set = cast_stmt<jinja::set_statement>(node)) {
            return is_assignment(*set);
        }
        return cast_stmt<jinja::comment_statement>(node) != nullptr;
    }

    bool is_assignment(const jinja::set_statement &set)
    {
        const auto *member = cast_stmt<jinja::member_expression>(set.assignee);
        const auto *target = member == nullptr ? nullptr : cast_stmt<jinja::identifier>(member->object);
        if (target == nullptr || member->computed || cast_stmt<jinja::identifier>(member->property) == nullptr ||
            target->val == item || is_special(target->val) || set.val == nullptr || !set.body.empty() ||
            !is_of_item(set.val)) {
            return false;
        }
        out->targets.push_back(&target->val);
        return out->targets.size() <= ASSIGNMENTS_MAX;
    }

    /* An expression of this kind changes nothing. Its value is a part of the item, the value of a variable, or a number
     * or boolean. The value must not be a new text. A repeated assignment sets the same value again, and `is sameas`
     * can distinguish a text from an equal new text. */
    bool is_of_item(const statement_ptr &node)
    {
        if (const auto *name = cast_stmt<jinja::identifier>(node)) {
            return is_variable(*name);
        }
        if (const auto *pair = cast_stmt<jinja::binary_expression>(node)) {
            return is_pair(*pair);
        }
        if (const auto *one = cast_stmt<jinja::unary_expression>(node)) {
            return one->op.value == "not" && is_of_item(one->argument);
        }
        if (const auto *test = cast_stmt<jinja::test_expression>(node)) {
            const auto *name = cast_stmt<jinja::identifier>(test->test);
            return name != nullptr && is_in(TESTS, name->val) && is_of_item(test->operand);
        }
        return is_member(node) || cast_stmt<jinja::integer_literal>(node) != nullptr;
    }

    bool is_pair(const jinja::binary_expression &pair)
    {
        if (is_in(COMPARISONS, pair.op.value)) {
            return is_compared(pair.left) && is_compared(pair.right);
        }
        return (pair.op.value == "and" || pair.op.value == "or") && is_of_item(pair.left) && is_of_item(pair.right);
    }

    bool is_compared(const statement_ptr &node)
    {
        return cast_stmt<jinja::string_literal>(node) != nullptr || is_of_item(node);
    }

    bool is_variable(const jinja::identifier &name)
    {
        const bool is_known = std::any_of(out->variables.begin(), out->variables.end(),
                                          [&](const std::string *other) { return *other == name.val; });
        if (name.val != item && !is_known) {
            out->variables.push_back(&name.val);
        }
        return !is_special(name.val) && out->variables.size() <= VARIABLES_MAX;
    }

    /* item.name, item["name"], or a member of such a member. Members of other objects can change in the loop. */
    bool is_member(const statement_ptr &node) const
    {
        const auto *member = cast_stmt<jinja::member_expression>(node);
        if (member == nullptr) {
            return false;
        }
        const auto *name = cast_stmt<jinja::identifier>(member->object);
        const bool has_name = member->computed ? cast_stmt<jinja::string_literal>(member->property) != nullptr
                                               : cast_stmt<jinja::identifier>(member->property) != nullptr;
        return has_name && (name != nullptr ? name->val == item : is_member(member->object));
    }

    const std::string &item;
    chat_outcomes::loop *out;
};

/* Returns whether evaluating the bound of a slice changes nothing. */
bool is_bound(const statement_ptr &node)
{
    if (const auto *pair = cast_stmt<jinja::binary_expression>(node)) {
        return is_bound(pair->left) && is_bound(pair->right);
    }
    const auto *member = cast_stmt<jinja::member_expression>(node);
    const statement_ptr &name = member != nullptr && !member->computed ? member->object : node;
    return node == nullptr || cast_stmt<jinja::identifier>(name) != nullptr ||
           cast_stmt<jinja::integer_literal>(node) != nullptr;
}

/* Returns the variable with the list, if the loop is over a variable or over a slice of a variable. */
const std::string *list_of(const jinja::for_statement &node)
{
    const auto *member = cast_stmt<jinja::member_expression>(node.iterable);
    const auto *slice = member != nullptr ? cast_stmt<jinja::slice_expression>(member->property) : nullptr;
    const auto *name = cast_stmt<jinja::identifier>(slice != nullptr ? member->object : node.iterable);
    const bool is_plain =
        slice == nullptr || (is_bound(slice->start_expr) && is_bound(slice->stop_expr) && is_bound(slice->step_expr));
    return name != nullptr && is_plain ? &name->val : nullptr;
}

chat_outcomes::loop examined(const jinja::for_statement &node)
{
    chat_outcomes::loop out;
    const auto *item = cast_stmt<jinja::identifier>(node.loopvar);
    out.list = list_of(node);
    out.has_plan = item != nullptr && !is_special(item->val) && out.list != nullptr && node.default_block.empty() &&
                   examination(item->val, &out).are_plain(node.body);
    return out;
}

/* ---- running -------------------------------------------------------------------------------------------------- */

bool has_kind(const value &one, uint16_t kinds)
{
    return (one->kinds & kinds) != 0;
}

bool is_same(const value &one, const value &other)
{
    if (one == other || one->kinds != other->kinds) {
        return one == other;
    }
    return has_kind(one, jinja::VALUE_NONE) || (has_kind(one, WHOLE) && one->val_int == other->val_int);
}

/* Drops the outcomes if the variables that the body reads have other values than before. Returns false if a value is
 * not plain (a list or an object). Otherwise a variable could be an object whose members the body sets. */
bool has_values(chat_outcomes::loop *loop, const context &ctx)
{
    std::vector<value> values;
    for (const std::string *name : loop->variables) {
        const value *found = ctx.find_val(*name);
        if (found == nullptr || !has_kind(*found, PLAIN)) {
            return false;
        }
        values.push_back(*found);
    }
    if (!std::equal(values.begin(), values.end(), loop->values.begin(), loop->values.end(), is_same)) {
        loop->outcomes.clear();
        loop->values = std::move(values);
    }
    return true;
}

bool can_change(const value *target)
{
    return target != nullptr && is_val<jinja::value_object>(*target) && !(*target)->is_given &&
           (*target)->val_obj.size() < MEMBERS_MAX;
}

/* Returns whether the outcomes of this loop can be used here. */
bool is_ready(chat_outcomes::loop *loop, const context &ctx)
{
    if (!loop->has_plan || ctx.is_get_stats) {
        return false;
    }
    const value *list = ctx.find_val(*loop->list);
    return list != nullptr && is_val<jinja::value_array>(*list) && has_values(loop, ctx) &&
           std::all_of(loop->targets.begin(), loop->targets.end(),
                       [&](const std::string *name) { return can_change(ctx.find_val(*name)); });
}

thread_local std::vector<chat_outcomes::write> *writes_of_thread; /* the assignments of the running iteration, if its
                                                                   * outcome will be kept */

class loop_run {
  public:
    loop_run(const jinja::for_statement &node_, chat_outcomes *all_, chat_outcomes::loop *loop_, context &ctx)
        : node(node_), item(cast_stmt<jinja::identifier>(node.loopvar)->val), all(all_), loop(loop_), scope(ctx)
    {}

    value run()
    {
        const value list = node.iterable->execute(scope);
        for (const value &one : list->as_array()) {
            if (!repeat(one)) {
                pay();
                scope.set_val(item, one);
                if (one->is_given) {
                    record(one);
                } else {
                    run_body();
                }
            }
        }
        pay();
        auto text = jinja::mk_val<jinja::value_string>();
        jinja::gather_string_parts(std::move(results), text);
        return text;
    }

  private:
    /* Repeats the known outcome of an iteration with this item. Returns false if the outcome is not known, or costs
     * more than the rest of the budget. Then the iteration has to run, and stops where the budget ends. The costs are
     * added up and charged later, because each charge may read the clock, which takes time. */
    bool repeat(const value &one)
    {
        const auto found = loop->outcomes.find(one.get());
        if (found == loop->outcomes.end() || !chat_budget::current().covers(owed.plus(found->second.cost))) {
            return false;
        }
        owed = owed.plus(found->second.cost);
        for (const chat_outcomes::write &change : found->second.writes) {
            const value target = *scope.find_val(*change.variable);
            target->insert(jinja::mk_val<jinja::value_string>(*change.member), change.item);
            chat_trace::current().n_changes++;
        }
        all->n_repeated++;
        return true;
    }

    void record(const value &one)
    {
        const chat_cost before = chat_budget::current().spent();
        std::vector<chat_outcomes::write> writes;
        {
            const recording guard(&writes);
            run_body();
        }
        const bool is_plain = std::all_of(writes.begin(), writes.end(), [](const chat_outcomes::write &change) {
            return has_kind(change.item, PLAIN);
        });
        if (is_plain) {
            all->keep(loop, {one, chat_budget::current().spent().minus(before), std::move(writes)});
        }
    }

    struct recording {
        explicit recording(std::vector<chat_outcomes::write> *writes)
        {
            writes_of_thread = writes;
        }
        ~recording()
        {
            writes_of_thread = nullptr;
        }
        recording(const recording &) = delete;
        recording &operator=(const recording &) = delete;
    };

    void run_body()
    {
        for (const statement_ptr &part : node.body) {
            results.push_back(part->execute(scope));
        }
    }

    void pay()
    {
        chat_budget::current().pay(std::exchange(owed, chat_cost()));
    }

    const jinja::for_statement &node;
    const std::string &item;
    chat_outcomes *all;
    chat_outcomes::loop *loop;
    context scope;
    chat_cost owed; /* cost of the repeated iterations that has not been charged yet */
    std::vector<value> results;
};

} // namespace

chat_outcomes *&chat_outcomes::current()
{
    static thread_local chat_outcomes *outcomes;
    return outcomes;
}

void chat_outcomes::begin_rendering()
{
    n_given_changes = chat_trace::current().n_given_changes;
}

bool chat_outcomes::is_usable() const
{
    return n_given_changes == chat_trace::current().n_given_changes;
}

chat_outcomes::loop &chat_outcomes::of(const jinja::for_statement &node)
{
    const auto found = loops.find(&node);
    return found != loops.end() ? found->second : loops.emplace(&node, examined(node)).first->second;
}

void chat_outcomes::keep(loop *to, outcome &&one)
{
    if (n_outcomes < OUTCOMES_MAX) {
        const jinja::value_t *const item = one.item.get();
        n_outcomes += to->outcomes.emplace(item, std::move(one)).second;
    }
}

value chat_loop_run(const jinja::for_statement &node, context &ctx)
{
    chat_outcomes *const all = chat_outcomes::current();
    chat_outcomes::loop *const loop = all != nullptr && all->is_usable() ? &all->of(node) : nullptr;
    if (loop == nullptr || !is_ready(loop, ctx)) {
        return node.jinja::for_statement::execute_impl(ctx);
    }
    return loop_run(node, all, loop, ctx).run();
}

void chat_loop_note(const jinja::member_expression &assignee, const value &item)
{
    if (writes_of_thread != nullptr) {
        writes_of_thread->push_back({&cast_stmt<jinja::identifier>(assignee.object)->val,
                                     &cast_stmt<jinja::identifier>(assignee.property)->val, item});
    }
}
