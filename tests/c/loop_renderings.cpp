#include "loop_renderings.h"

#include <common/chat.h>
#include <common/json.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "text/template/chat_budget.h"
#include "text/template/chat_compile.h"
#include "text/template/chat_loop.h"
#include "text/template/chat_trace.h"

namespace {

using jinja::value;

constexpr uint64_t STEPS_MAX = 500'000; /* of a request without bytes (chat_budget.cpp) */

struct rendering {
    std::string text, sources, error;
    chat_cost cost;
    uint64_t n_asks, n_changes, n_given_changes;

    auto all() const
    {
        return std::tie(text, sources, error, cost.steps, cost.bytes, n_asks, n_changes, n_given_changes);
    }
    std::string shown() const
    {
        return "\"" + text + "\" " + sources + " " + error + " steps " + std::to_string(cost.steps) + " bytes " +
               std::to_string(cost.bytes) + " asks " + std::to_string(n_asks) + " changes " +
               std::to_string(n_changes) + " of given " + std::to_string(n_given_changes);
    }
};

class comparison {
  public:
    comparison(const common_chat_template &tmpl_, const char *messages_, uint64_t n_steps_)
        : tmpl(tmpl_), messages(common_json::parse(messages_)), n_steps(n_steps_ > 0 ? n_steps_ : STEPS_MAX)
    {
        std::vector<value> values = made();
        auto outcomes = std::make_unique<chat_outcomes>();
        for (size_t n_left_out = 0; n_left_out < 2 && difference.empty(); n_left_out++) {
            const size_t n = messages.size() - n_left_out;
            const rendering plain = rendered(made(), n, nullptr), kept = rendered(values, n, outcomes.get());
            if (plain.all() != kept.all()) {
                difference = kept.shown() + " with outcomes, " + plain.shown() + " without";
            }
            counts.n_outcomes = static_cast<int64_t>(outcomes->size());
            counts.n_repeated += static_cast<int64_t>(std::exchange(outcomes->n_repeated, 0));
            if (kept.n_given_changes > 0) { /* as in chat_program.cpp */
                values = made();
                outcomes = std::make_unique<chat_outcomes>();
            }
        }
    }

    std::string difference;
    loop_counts counts = {0, 0};

  private:
    std::vector<value> made() const
    {
        std::vector<value> out;
        for (const common_json &message : messages) {
            out.push_back(jinja::value_from_json(message, true));
        }
        return out;
    }

    rendering rendered(const std::vector<value> &values, size_t n, chat_outcomes *outcomes) const
    {
        rendering out;
        chat_budget budget(0);
        budget.spend(STEPS_MAX - n_steps);
        jinja::context context(tmpl.source());
        context.set_val("messages", jinja::mk_val<jinja::value_array>(std::vector<value>(
                                        values.begin(), values.begin() + static_cast<ptrdiff_t>(n))));
        context.set_val(CHAT_ASKS, jinja::mk_val<jinja::value_bool>(true));
        const chat_trace before = chat_trace::current();
        if (outcomes != nullptr) {
            outcomes->begin_rendering();
        }
        chat_outcomes::current() = outcomes;
        try {
            auto results = jinja::mk_val<jinja::value_array>();
            for (const jinja::statement_ptr &one : tmpl.prog.body) {
                results->push_back(one->execute(context));
            }
            const value written = jinja::runtime::gather_string_parts(results);
            for (const jinja::string_part &part : written->val_str.parts) {
                out.text += part.val;
                out.sources.append(part.val.size(), part.is_input ? 'i' : 't');
            }
        } catch (const std::exception &e) {
            out.error = e.what();
        }
        chat_outcomes::current() = nullptr;
        const chat_trace &after = chat_trace::current();
        out.cost = budget.spent();
        out.n_asks = after.n_asks - before.n_asks;
        out.n_changes = after.n_changes - before.n_changes;
        out.n_given_changes = after.n_given_changes - before.n_given_changes;
        return out;
    }

    const common_chat_template &tmpl;
    const common_json messages;
    const uint64_t n_steps;
};

std::unique_ptr<const common_chat_template> compiled(const char *source)
{
    const chat_budget budget(0);
    try {
        return chat_compile(source, "", "");
    } catch (const std::exception &) {
        return nullptr;
    }
}

} // namespace

loop_counts loop_renderings_compare(const char *source, const char *messages, uint64_t n_steps, char *difference,
                                    size_t n_bytes)
{
    loop_counts counts = {-1, 0};
    difference[0] = '\0';
    const std::function<void()> work = [&] {
        const auto tmpl = compiled(source);
        if (tmpl != nullptr) {
            const comparison both(*tmpl, messages, n_steps);
            counts = both.counts;
            snprintf(difference, n_bytes, "%s", both.difference.c_str());
        }
    };
    if (!chat_call_with_stack(work)) {
        snprintf(difference, n_bytes, "no memory for a thread");
    }
    return counts;
}
