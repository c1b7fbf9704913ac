#include "text/template/chat_memo.h"

#include <algorithm>
#include <cstring>

#include "text/template/chat_trace.h"

namespace {

using jinja::cast_stmt;
using jinja::context;
using jinja::is_val;
using jinja::statement;
using jinja::value;

/* One item usually has the same outcome for a whole conversation, except near its end: there it has one in the rendering
 * with, and another in the rendering without the messages after it. */
constexpr size_t OUTCOMES_MAX = 3;

/* Limit on the bytes of a memo. A conversation of 60,000 tokens takes about a megabyte. */
constexpr size_t BYTES_MAX = 16 << 20;

constexpr uint16_t SCALARS = jinja::VALUE_INT | jinja::VALUE_FLOAT | jinja::VALUE_STRING | jinja::VALUE_BOOL |
                             jinja::VALUE_NONE | jinja::VALUE_UNDEFINED;
constexpr uint16_t CONTAINERS = jinja::VALUE_ARRAY | jinja::VALUE_OBJECT;

bool is_same_text(const jinja::string &a, const jinja::string &b)
{
    return a.parts.size() == b.parts.size() &&
           std::equal(a.parts.begin(), a.parts.end(), b.parts.begin(),
                      [](const jinja::string_part &one, const jinja::string_part &other) {
                          return one.is_input == other.is_input && one.val == other.val;
                      });
}

const jinja::value_func_t &function_of(const value &one)
{
    return *jinja::cast_val<jinja::value_func>(one);
}

/* Returns whether two fixed values are the same for every operation of a template, except for the macro that they
 * are. */
bool is_same(const value &a, const value &b)
{
    if (a == b) {
        return true;
    }
    if (a->kinds != b->kinds) {
        return false;
    }
    switch (a->kinds) {
    case jinja::VALUE_INT:
    case jinja::VALUE_BOOL: return a->val_int == b->val_int;
    case jinja::VALUE_FLOAT: return memcmp(&a->val_flt, &b->val_flt, sizeof a->val_flt) == 0;
    case jinja::VALUE_STRING: return is_same_text(a->val_str, b->val_str);
    case jinja::VALUE_NONE: return true;
    case jinja::VALUE_UNDEFINED: return a->type() == b->type();
    case jinja::VALUE_FUNC: return function_of(a).name == function_of(b).name;
    default: return false;
    }
}

size_t bytes_of(const value &one)
{
    return sizeof(jinja::value_string_t) + one->val_str.length() +
           one->val_str.parts.size() * sizeof(jinja::string_part);
}

size_t bytes_of(const chat_memo::outcome &one)
{
    size_t n = sizeof one + bytes_of(one.text);
    for (const chat_memo::read &read : one.reads) {
        n += sizeof read + bytes_of(read.result);
    }
    for (const chat_memo::write &write : one.writes) {
        n += sizeof write + bytes_of(write.item);
    }
    return n;
}

} // namespace

chat_memo *&chat_memo::current()
{
    static thread_local chat_memo *memo;
    return memo;
}

void chat_memo::begin_rendering()
{
    macros.clear();
}

void chat_memo::drop_unused()
{
    macros.clear();
    for (auto at = items.begin(); at != items.end();) {
        if (at->second.item.use_count() > 1) {
            ++at;
            continue;
        }
        for (const outcome &one : at->second.outcomes) {
            n_bytes -= bytes_of(one);
        }
        n_bytes -= sizeof(*at);
        at = items.erase(at);
    }
}

chat_memo::known *chat_memo::of(const statement &loop, const value &item)
{
    const auto found = items.find({&loop, item.get()});
    if (found != items.end() || n_bytes > BYTES_MAX) {
        return found != items.end() ? &found->second : nullptr;
    }
    n_bytes += sizeof(*found);
    return &items.emplace(place(&loop, item.get()), known{item, {}, false}).first->second;
}

bool chat_memo::fits(const outcome &one, context &scope) const
{
    for (const write &change : one.writes) {
        const value *target = change.member.empty() ? nullptr : scope.find_val(change.variable);
        if (!change.member.empty() &&
            (target == nullptr || !is_val<jinja::value_object>(*target) || (*target)->is_given)) {
            return false;
        }
    }
    const chat_cost spent = chat_budget::current().spent();
    const chat_trace trace = chat_trace::current();
    const bool is_same_everywhere = std::all_of(one.reads.begin(), one.reads.end(), [&](const read &before) {
        try {
            const value now = before.node->execute(scope);
            return is_fixed(now) && is_same(before.result, now) && before.macro == macro_of(now);
        } catch (const chat_limit &) {
            throw;
        } catch (const std::bad_alloc &) {
            throw;
        } catch (const std::exception &) { /* the iteration fails, too, when it comes to this expression */
            return false;
        }
    });
    chat_budget::current().rewind(spent);
    chat_trace::current() = trace;
    return is_same_everywhere;
}

void chat_memo::repeat(const outcome &one, context &scope)
{
    for (const write &change : one.writes) {
        if (change.member.empty()) {
            scope.set_val(change.variable, change.item);
        } else {
            value target = *scope.find_val(change.variable);
            target->insert(jinja::mk_val<jinja::value_string>(change.member), change.item);
        }
    }
    chat_trace::current().n_asks += one.n_asks;
    chat_trace::current().n_changes += one.n_changes;
}

void chat_memo::keep(known &item, outcome &&one)
{
    if (n_bytes > BYTES_MAX) {
        return;
    }
    if (item.outcomes.size() == OUTCOMES_MAX) {
        n_bytes -= bytes_of(item.outcomes.front());
        item.outcomes.erase(item.outcomes.begin());
    }
    n_bytes += bytes_of(one);
    item.outcomes.push_back(std::move(one));
}

void chat_memo::define(const value &function, const statement *macro)
{
    macros[function.get()] = {function, macro};
}

const statement *chat_memo::macro_of(const value &function) const
{
    const auto found = macros.find(function.get());
    return found == macros.end() ? nullptr : found->second.second;
}

bool chat_memo::is_fixed(const value &one) const
{
    if ((one->kinds & SCALARS) != 0) {
        return true;
    }
    if ((one->kinds & CONTAINERS) != 0) {
        return one->is_given;
    }
    return is_val<jinja::value_func>(one) && function_of(one).arg0 == nullptr &&
           (macro_of(one) != nullptr || jinja::global_builtins().count(function_of(one).name) != 0);
}

/* ---- the recorder ------------------------------------------------------------------------------------------------ */

chat_recorder *&chat_recorder::current()
{
    static thread_local chat_recorder *recorder;
    return recorder;
}

chat_recorder::chat_recorder(chat_memo &memo_, const std::string &item_name_, context &scope_)
    : memo(memo_), item_name(item_name_), scope(scope_), start(scope_)
{
    current() = this;
}

chat_recorder::~chat_recorder()
{
    if (is_recording()) {
        current() = nullptr;
    }
}

/* A variable has a value from outside if it is the same object as before the iteration. */
void chat_recorder::read(const jinja::identifier &node, const value &found, const context &ctx)
{
    const value *before = start.find_val(node.val), *now = ctx.find_val(node.val);
    const bool is_outer = before == nullptr || now == nullptr ? before == now : *before == *now;
    if (!is_outer) {
        n_inner++;
    } else if (node.val != item_name) {
        reads.push_back({&node, found, memo.macro_of(found)});
    }
}

void chat_recorder::finish(const statement &node, const value &result, const point &before)
{
    const bool reads_only_outer = reads.size() > before.n_reads && n_inner == before.n_inner;
    if (!reads_only_outer || writes.size() != before.n_writes || (has_changed && has_unfixed(before)) ||
        !memo.is_fixed(result)) {
        return;
    }
    reads.resize(before.n_reads);
    reads.push_back({&node, result, memo.macro_of(result)});
}

/* Called after {% set name = ... %}. A variable of a scope within the iteration is lost at the end of this scope. */
void chat_recorder::set_variable(const std::string &name, const context &ctx)
{
    if (&ctx != &scope) {
        return;
    }
    const value *item = ctx.find_val(name);
    if (item == nullptr || !memo.is_fixed(*item) || is_val<jinja::value_func>(*item)) {
        refuse();
        return;
    }
    writes.push_back({name, "", *item});
}

/* Called after {% set object.member = item %}, of an object that is no value of the request. If the object was not read
 * from outside, the iteration has made it. */
void chat_recorder::set_member(const jinja::statement_ptr &object, const value &target, const std::string &member,
                               const value &item, const point &before)
{
    if (reads.size() == before.n_reads) {
        return;
    }
    const auto *name = cast_stmt<jinja::identifier>(object);
    const bool is_known = name != nullptr && reads.size() == before.n_reads + 1 && reads.back().result == target;
    if (!is_known || !memo.is_fixed(item) || is_val<jinja::value_func>(item)) {
        refuse();
        return;
    }
    reads.pop_back();
    writes.push_back({name->val, member, item});
    has_changed = true;
}

bool chat_recorder::has_unfixed(const point &before) const
{
    return std::any_of(reads.begin() + static_cast<ptrdiff_t>(before.n_reads), reads.end(),
                       [this](const chat_memo::read &one) { return !memo.is_fixed(one.result); });
}

bool chat_recorder::take(chat_memo::outcome *out)
{
    if (!is_recording() || has_unfixed({})) {
        return false;
    }
    out->reads = std::move(reads);
    out->writes = std::move(writes);
    return true;
}
