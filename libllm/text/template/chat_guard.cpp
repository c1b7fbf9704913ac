#include "text/template/chat_guard.h"

#include <type_traits>

#include "text/template/chat_budget.h"
#include "text/template/chat_loop.h"
#include "text/template/chat_operation.h"
#include "text/template/chat_trace.h"

namespace {

using jinja::cast_stmt;
using jinja::context;
using jinja::is_stmt;
using jinja::is_val;
using jinja::statement;
using jinja::statement_ptr;
using jinja::statements;
using jinja::value;

constexpr uint64_t ITERATION_STEPS = 8, ITERATION_BYTES = 128; /* cost of one iteration of a loop, which makes a scope
                                                                * and a variable */

/* How the result of a node is used. The use decides how much work is charged to the request's budget for the node's
 * result. */
enum class use {
    PART,     /* part of an expression. The operation that uses the part is charged for it */
    WRITTEN,  /* written as text or hashed, with everything that it contains */
    ITERATED, /* a loop iterates over it */
};

void guard(statement_ptr &node, use how);

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* For a node with an operation, `run` evaluates the operands and charges the operation to the request's budget
 * (chat_budget.h). After that, `run` calls llama.cpp's code for the operation (`apply`) with these operands. */

template <typename T>
constexpr bool is_container_literal =
    std::is_same_v<T, jinja::array_literal> || std::is_same_v<T, jinja::tuple_literal> ||
    std::is_same_v<T, jinja::object_literal>;

/* When a list or object literal has been evaluated, chat_budget::weigh computes the size of the value. weigh also
 * refuses a value that nests too deeply, because the destructors of nested lists recurse and cannot be stopped. */
template <typename T> value run(const T &node, context &ctx)
{
    value out = node.T::execute_impl(ctx);
    if (is_container_literal<T>) {
        chat_budget::current().weigh(out);
    }
    return out;
}

value run(const jinja::identifier &node, context &ctx)
{
    if (node.val == CHAT_ASKS) {
        chat_trace::current().n_asks++;
    }
    return node.jinja::identifier::execute_impl(ctx);
}

value run(const jinja::for_statement &node, context &ctx)
{
    return chat_loop_run(node, ctx);
}

value run(const jinja::macro_statement &node, context &ctx)
{
    chat_trace::current().n_changes++;
    return node.jinja::macro_statement::execute_impl(ctx);
}

void count_change_of(const value &target)
{
    chat_trace::current().n_changes++;
    chat_trace::current().n_given_changes += target != nullptr && target->is_given;
}

/* Counts a call of a built-in function that changes a list. No other built-in function changes a value. */
void count_call(const std::string &name, const value &input)
{
    if (name == "append" || name == "pop") {
        count_change_of(input);
    }
}

value written(const statements &body, context &ctx)
{
    auto parts = jinja::mk_val<jinja::value_array>();
    for (const statement_ptr &part : body) {
        parts->push_back(part->execute(ctx));
    }
    return jinja::runtime::gather_string_parts(parts);
}

std::vector<value> evaluated(const statements &arguments, context &ctx)
{
    std::vector<value> out;
    for (const statement_ptr &argument : arguments) {
        out.push_back(argument->execute(ctx));
    }
    return out;
}

/* `and` and `or` evaluate their right side only if the right side decides the result. They have no operation that must
 * be charged to the budget. */
value run(const jinja::binary_expression &node, context &ctx)
{
    const value left = node.left->execute(ctx);
    if (node.op.value == "and" || node.op.value == "or") {
        return left->as_bool() == (node.op.value == "and") ? node.right->execute(ctx) : left;
    }
    const value right = node.right->execute(ctx);
    chat_operation_binary(node.op.value, left, right);
    return node.apply(ctx, left, right);
}

/* The name of a filter or test with its evaluated arguments, from "name" or "name(...)". */
struct named_call {
    const std::string *name;
    bool has_arguments;
    std::vector<value> arguments;

    named_call(const statement_ptr &node, context &ctx)
    {
        const auto *call = cast_stmt<jinja::call_expression>(node);
        const auto *id = cast_stmt<jinja::identifier>(call != nullptr ? call->callee : node);
        has_arguments = call != nullptr;
        if (has_arguments) {
            arguments = evaluated(call->args, ctx);
        }
        if (id == nullptr) {
            throw std::runtime_error("a filter or test must have a name");
        }
        name = &id->val;
    }

    void add_to(jinja::func_args *out) const
    {
        for (const value &argument : arguments) {
            out->push_back(argument);
        }
    }
};

value filtered(const value &input, const statement_ptr &filter, context &ctx)
{
    const named_call call(filter, ctx);
    chat_operation_call(*call.name, input, call.arguments);
    count_call(*call.name, input);
    jinja::func_args passed(ctx);
    call.add_to(&passed);
    return jinja::filter_expression::apply(ctx, *call.name, input, call.has_arguments ? &passed : nullptr);
}

value run(const jinja::filter_expression &node, context &ctx)
{
    return filtered(node.operand->execute(ctx), node.filter, ctx);
}

value run(const jinja::filter_statement &node, context &ctx)
{
    return filtered(written(node.body, ctx), node.filter, ctx);
}

value run(const jinja::test_expression &node, context &ctx)
{
    const value input = node.operand->execute(ctx);
    const named_call call(node.test, ctx);
    chat_operation_test(*call.name, input, call.arguments);
    jinja::func_args passed(ctx);
    passed.push_back(input);
    call.add_to(&passed);
    return node.apply(ctx, *call.name, passed);
}

/* Returns whether the function is a built-in function of jinja. A built-in function has no nodes that charge its work
 * to the budget (chat_budget.h). So the work is charged before the call. The call of a macro is not charged, because
 * the nodes of the macro charge their own work. */
bool is_built_in(const jinja::value_func_t *function)
{
    return function->arg0 != nullptr || jinja::global_builtins().count(function->name) != 0;
}

value run(const jinja::call_expression &node, context &ctx)
{
    const std::vector<value> arguments = evaluated(node.args, ctx);
    value callee = node.callee->execute(ctx);
    const auto *function = jinja::cast_val<jinja::value_func>(callee);
    if (function == nullptr) {
        throw std::runtime_error("Callee is not a function: got " + callee->type());
    }
    if (is_built_in(function)) {
        chat_operation_call(function->name, function->arg0, arguments);
        count_call(function->name, function->arg0);
    }
    jinja::func_args passed(ctx);
    for (const value &argument : arguments) {
        passed.push_back(argument);
    }
    value out = function->invoke(passed);
    if (is_built_in(function) && (function->name == "dict" || function->name == "namespace")) {
        chat_budget::current().weigh(out);
    }
    return out;
}

/* A call block passes its text to a macro. A call block of a built-in function is refused. llama.cpp's code itself
 * evaluates the arguments, so the cost of the call is not known before the call. Built-in functions have no use for a
 * block anyway. */
value run(const jinja::call_statement &node, context &ctx)
{
    const value callee = cast_stmt<jinja::call_expression>(node.call)->callee->execute(ctx);
    const auto *function = jinja::cast_val<jinja::value_func>(callee);
    if (function != nullptr && is_built_in(function)) {
        throw std::runtime_error("a call block needs a macro, not " + function->name);
    }
    return node.jinja::call_statement::execute_impl(ctx);
}

/* Only assignments to a member (set a.b = c) are handled here. llama.cpp's code runs all other assignments. An
 * assignment to a member changes an object to which other values can refer. So the assignment can make a cycle, or a
 * chain of any depth. chat_operation_insert refuses cycles and limits chains before the member is set. */
value run(const jinja::set_statement &node, context &ctx)
{
    const auto *member = cast_stmt<jinja::member_expression>(node.assignee);
    if (member == nullptr || member->computed || !is_stmt<jinja::identifier>(member->property)) {
        chat_trace::current().n_changes++;
        return node.jinja::set_statement::execute_impl(ctx);
    }
    const value item = node.val ? node.val->execute(ctx) : written(node.body, ctx);
    const value target = member->object->execute(ctx);
    if (!is_val<jinja::value_object>(target)) {
        throw std::runtime_error("Cannot assign to member of non-object");
    }
    chat_operation_insert(target, item);
    count_change_of(target);
    target->insert(jinja::mk_val<jinja::value_string>(cast_stmt<jinja::identifier>(member->property)->val), item);
    chat_loop_note(*member, item);
    return jinja::mk_val<jinja::value_undefined>();
}

/* Returns whether the node returns a reference to an existing value instead of making a new one. Nodes for variables
 * and members return such references; slices do not. */
template <typename T> bool is_shared(const T &)
{
    return std::is_same_v<T, jinja::identifier>;
}

bool is_shared(const jinja::member_expression &node)
{
    return !is_stmt<jinja::slice_expression>(node.property);
}

/* Charges the result of a node to the budget (chat_budget.h). When a text is made, its bytes and parts are charged.
 * Lists and objects are shared and not copied, so they cost nothing as parts of an expression. If a list or object is
 * written or hashed, everything inside it is charged. */
void pay_for(const value &result, use how, bool is_shared)
{
    chat_budget &budget = chat_budget::current();
    if (is_shared && how == use::PART) {
        return;
    }
    if (is_val<jinja::value_string>(result)) {
        const jinja::string &text = result->val_str;
        budget.produce(text.length() + text.parts.size() * sizeof(jinja::string_part));
    } else if (how == use::WRITTEN && (!result->val_arr.empty() || !result->val_obj.empty())) {
        budget.weigh(result);
    } else if (how == use::ITERATED) {
        const uint64_t n = result->val_arr.size() + result->val_obj.size();
        budget.spend(n * ITERATION_STEPS);
        budget.produce(n * ITERATION_BYTES);
    }
}

/* A node that charges its work to the budget (chat_budget.h). Its class derives from llama.cpp's class T, because other
 * nodes find out the kind of their children with dynamic_cast. */
template <typename T> struct guarded final : T {
    guarded(T &&node, use how_) : T(std::move(node)), how(how_) {}

    value execute_impl(context &ctx) const override
    {
        chat_budget::current().enter();
        value result = run(static_cast<const T &>(*this), ctx);
        pay_for(result, how, is_shared(static_cast<const T &>(*this)));
        return result;
    }

    use how;
};

/* The node that is inserted before all nodes of a template. It resets the budget's count of bytes and writes
 * nothing. */
struct beginning final : jinja::statement {
    std::string type() const override
    {
        return "Beginning";
    }
    value execute_impl(context &) const override
    {
        chat_budget::current().begin_rendering();
        return jinja::mk_val<jinja::value_undefined>();
    }
};

/* ---- replacing the nodes of a template --------------------------------------------------------------------------- */

void guard(statements &nodes, use how)
{
    for (statement_ptr &node : nodes) {
        guard(node, how);
    }
}

template <typename... T> void guard_parts(T &...nodes)
{
    (guard(nodes, use::PART), ...);
}

/* Makes the default values of a macro's parameters charge their work to the budget. A parameter is a name with or
 * without a default value. */
void guard_parameters(statements &parameters)
{
    for (statement_ptr &parameter : parameters) {
        if (auto *named = cast_stmt<jinja::keyword_argument_expression>(parameter)) {
            guard(named->val, use::PART);
        }
    }
}

/* Makes only the arguments of a filter or test charge their work to the budget, because the name is not evaluated. */
void guard_named_call(statement_ptr &node)
{
    if (auto *call = cast_stmt<jinja::call_expression>(node)) {
        guard(call->args, use::PART);
    }
}

void guard_children(jinja::if_statement &n)
{
    guard(n.test, use::PART);
    guard(n.body, use::WRITTEN);
    guard(n.alternate, use::WRITTEN);
}

void guard_children(jinja::for_statement &n)
{
    if (auto *select = cast_stmt<jinja::select_expression>(n.iterable)) {
        guard(select->lhs, use::ITERATED);
        guard(select->test, use::PART);
    } else {
        guard(n.iterable, use::ITERATED);
    }
    guard(n.body, use::WRITTEN);
    guard(n.default_block, use::WRITTEN);
}

void guard_children(jinja::set_statement &n)
{
    if (auto *member = cast_stmt<jinja::member_expression>(n.assignee)) {
        guard(member->object, use::PART);
    }
    guard(n.val, use::PART);
    guard(n.body, use::WRITTEN);
}

void guard_children(jinja::macro_statement &n)
{
    guard_parameters(n.args);
    guard(n.body, use::WRITTEN);
}

void guard_children(jinja::call_statement &n)
{
    auto *call = cast_stmt<jinja::call_expression>(n.call);
    guard_parts(call->callee, call->args);
    guard_parameters(n.caller_args);
    guard(n.body, use::WRITTEN);
}

void guard_children(jinja::filter_statement &n)
{
    guard_named_call(n.filter);
    guard(n.body, use::WRITTEN);
}

void guard_children(jinja::member_expression &n)
{
    guard(n.object, use::PART);
    if (auto *slice = cast_stmt<jinja::slice_expression>(n.property)) {
        guard_parts(slice->start_expr, slice->stop_expr, slice->step_expr);
    } else if (n.computed) {
        guard(n.property, use::WRITTEN);
    }
}

void guard_children(jinja::call_expression &n)
{
    guard_parts(n.callee, n.args);
}

void guard_children(jinja::binary_expression &n)
{
    guard_parts(n.left, n.right);
}

void guard_children(jinja::filter_expression &n)
{
    guard(n.operand, use::PART);
    guard_named_call(n.filter);
}

void guard_children(jinja::test_expression &n)
{
    guard(n.operand, use::PART);
    guard_named_call(n.test);
}

void guard_children(jinja::select_expression &n)
{
    guard_parts(n.lhs, n.test);
}

void guard_children(jinja::unary_expression &n)
{
    guard(n.argument, use::PART);
}

void guard_children(jinja::keyword_argument_expression &n)
{
    guard(n.val, use::PART);
}

void guard_children(jinja::ternary_expression &n)
{
    guard_parts(n.condition, n.true_expr, n.false_expr);
}

void guard_children(jinja::array_literal &n)
{
    guard(n.val, use::PART);
}

void guard_children(jinja::tuple_literal &n)
{
    guard(n.val, use::PART);
}

void guard_children(jinja::object_literal &n)
{
    for (auto &[key, item] : n.val) {
        guard(key, use::WRITTEN);
        guard(item, use::PART);
    }
}

void guard_children(jinja::identifier &) {}

void guard_children(jinja::string_literal &) {}

/* If the node is of type T, replaces its children and then the node by guarded nodes. Returns whether the node is of
 * type T. */
template <typename T> bool guard_as(statement_ptr &node, use how)
{
    T *known = cast_stmt<T>(node);
    if (known == nullptr) {
        return false;
    }
    guard_children(*known);
    node = std::make_unique<guarded<T>>(std::move(*known), how);
    return true;
}

template <typename... T> void guard_as_one_of(statement_ptr &node, use how)
{
    (guard_as<T>(node, how) || ...);
}

/* Nodes of other types (numbers, comments, break) stay unchanged, because their cost is negligible. */
void guard(statement_ptr &node, use how)
{
    guard_as_one_of<jinja::if_statement, jinja::for_statement, jinja::set_statement, jinja::macro_statement,
                    jinja::call_statement, jinja::filter_statement, jinja::member_expression, jinja::call_expression,
                    jinja::binary_expression, jinja::filter_expression, jinja::test_expression,
                    jinja::select_expression, jinja::unary_expression, jinja::keyword_argument_expression,
                    jinja::ternary_expression, jinja::array_literal, jinja::tuple_literal, jinja::object_literal,
                    jinja::identifier, jinja::string_literal>(node, how);
}

} // namespace

void chat_guard(jinja::program *program)
{
    guard(program->body, use::WRITTEN);
    program->body.insert(program->body.begin(), std::make_unique<beginning>());
}
