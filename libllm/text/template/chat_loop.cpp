#include "text/template/chat_loop.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "text/template/chat_budget.h"
#include "text/template/chat_memo.h"
#include "text/template/chat_trace.h"

namespace {

using jinja::cast_stmt;
using jinja::context;
using jinja::is_val;
using jinja::mk_val;
using jinja::statement_ptr;
using jinja::value;

/* The variable `loop`, as in llama.cpp's for_statement. Most iterations read no member of it. */
struct loop_variable final : jinja::value_object_t {
    loop_variable(size_t i_, const std::vector<value> &items_) : i(i_), n(items_.size())
    {
        has_builtins = false;
        is_pending = true;
        previous = i > 0 ? items_[i - 1] : nullptr;
        next = i + 1 < n ? items_[i + 1] : nullptr;
    }

    void complete() override
    {
        is_pending = false;
        const auto add = [this](const char *name, value item) {
            val_obj.emplace_back(mk_val<jinja::value_string>(name), std::move(item));
        };
        const auto number = [](size_t one) { return mk_val<jinja::value_int>(static_cast<int64_t>(one)); };
        add("index", number(i + 1));
        add("index0", number(i));
        add("revindex", number(n - i));
        add("revindex0", number(n - i - 1));
        add("first", mk_val<jinja::value_bool>(i == 0));
        add("last", mk_val<jinja::value_bool>(i == n - 1));
        add("length", number(n));
        add("previtem", previous != nullptr ? previous : mk_val<jinja::value_undefined>("previtem"));
        add("nextitem", next != nullptr ? next : mk_val<jinja::value_undefined>("nextitem"));
    }

    size_t i, n;
    value previous, next; /* NULL if there is none */
};

/* Returns whether evaluating the expression twice is the same as once. */
bool is_plain(const statement_ptr &node)
{
    if (node == nullptr || cast_stmt<jinja::identifier>(node) != nullptr ||
        cast_stmt<jinja::integer_literal>(node) != nullptr) {
        return true;
    }
    if (const auto *member = cast_stmt<jinja::member_expression>(node)) {
        return is_plain(member->object) && (!member->computed || is_plain(member->property));
    }
    if (const auto *slice = cast_stmt<jinja::slice_expression>(node)) {
        return is_plain(slice->start_expr) && is_plain(slice->stop_expr) && is_plain(slice->step_expr);
    }
    const auto *pair = cast_stmt<jinja::binary_expression>(node);
    return pair != nullptr && is_plain(pair->left) && is_plain(pair->right);
}

class loop_run {
  public:
    loop_run(const jinja::for_statement &loop_, context &ctx, const std::vector<value> &items_)
        : loop(loop_), name(cast_stmt<jinja::identifier>(loop.loopvar)->val), items(items_), scope(ctx)
    {}

    void run()
    {
        for (at = 0; at < items.size(); at++) {
            is_set = false;
            try {
                run_iteration();
            } catch (const jinja::continue_statement::signal &) {
                continue;
            } catch (const jinja::break_statement::signal &) {
                break;
            }
            has_iterated = true;
        }
        pay();
    }

    std::vector<value> results;
    bool has_iterated = false;

  private:
    void run_iteration()
    {
        chat_memo *const memo = chat_memo::current();
        const bool is_kept = memo->is_usable() && items[at]->is_given && chat_recorder::current() == nullptr;
        chat_memo::known *const known = is_kept ? memo->of(loop, items[at]) : nullptr;
        if (known == nullptr || !repeat(*memo, *known)) {
            pay();
            set_variables();
            known == nullptr || known->is_refused ? run_body() : record(*memo, known);
        }
    }

    /* Skips the iteration if its outcome is known. The cost of skipped iterations is added up, because the budget looks
     * at the clock when it is paid. */
    bool repeat(const chat_memo &memo, const chat_memo::known &known)
    {
        for (const chat_memo::outcome &one : known.outcomes) {
            if (!one.reads.empty()) {
                set_variables();
            }
            if (memo.fits(one, scope)) {
                chat_memo::repeat(one, scope);
                cost.add(one.cost);
                results.push_back(one.text);
                return true;
            }
        }
        return false;
    }

    void record(chat_memo &memo, chat_memo::known *known)
    {
        const chat_cost spent = chat_budget::current().spent();
        const chat_trace trace = chat_trace::current();
        const size_t n_before = results.size();
        chat_recorder recorder(memo, name, scope);
        run_body();
        chat_memo::outcome out;
        known->is_refused = !recorder.take(&out);
        if (known->is_refused) {
            return;
        }
        out.cost = chat_budget::current().spent().since(spent);
        out.n_asks = chat_trace::current().n_asks - trace.n_asks;
        out.n_changes = chat_trace::current().n_changes - trace.n_changes;
        auto text = mk_val<jinja::value_string>();
        const auto first = results.begin() + static_cast<ptrdiff_t>(n_before);
        std::vector<value> parts(std::make_move_iterator(first), std::make_move_iterator(results.end()));
        jinja::gather_string_parts(std::move(parts), text);
        results.resize(n_before);
        results.push_back(text);
        out.text = text;
        memo.keep(*known, std::move(out));
    }

    void run_body()
    {
        for (const statement_ptr &part : loop.body) {
            results.push_back(part->execute(scope));
        }
    }

    void set_variables()
    {
        if (!is_set) {
            scope.set_val("loop", std::make_shared<loop_variable>(at, items));
            scope.set_val(name, items[at]);
            is_set = true;
        }
    }

    void pay()
    {
        chat_budget::current().pay(std::exchange(cost, chat_cost()));
    }

    const jinja::for_statement &loop;
    const std::string &name;
    const std::vector<value> &items;
    context scope; /* as in llama.cpp, all iterations have the same scope */
    size_t at = 0;
    bool is_set = false; /* whether the scope has the variables of the iteration */
    chat_cost cost;
};

/* Returns whether the memo can be used for this loop. Other loops run in llama.cpp's code. */
bool is_known(const jinja::for_statement &loop, const context &ctx)
{
    return chat_memo::current() != nullptr && !ctx.is_get_stats &&
           cast_stmt<jinja::identifier>(loop.loopvar) != nullptr && is_plain(loop.iterable);
}

} // namespace

value chat_loop_run(const jinja::for_statement &loop, context &ctx)
{
    if (!is_known(loop, ctx)) {
        return loop.jinja::for_statement::execute_impl(ctx);
    }
    const chat_cost spent = chat_budget::current().spent();
    const chat_recorder *const recorder = chat_recorder::current();
    const chat_recorder::point before = recorder != nullptr ? recorder->now() : chat_recorder::point();
    const value list = loop.iterable->execute(ctx);
    if (!is_val<jinja::value_array>(list)) {
        chat_budget::current().rewind(spent);
        return loop.jinja::for_statement::execute_impl(ctx);
    }
    if (recorder != nullptr && recorder->has_unfixed(before)) {
        chat_recorder::refuse(); /* the outer iteration cannot be kept, so the inner ones can */
    }
    const std::vector<value> items = list->as_array(); /* the loop can change the list */
    loop_run run(loop, ctx, items);
    run.run();
    if (!run.has_iterated) {
        for (const statement_ptr &part : loop.default_block) {
            run.results.push_back(part->execute(ctx));
        }
    }
    auto out = mk_val<jinja::value_string>();
    jinja::gather_string_parts(std::move(run.results), out);
    return out;
}
