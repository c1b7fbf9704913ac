#include "text/chat/chat_program.h"

#include <algorithm>
#include <iterator>

#include "text/chat/chat_request.h"
#include "text/template/chat_budget.h"
#include "text/template/chat_compile.h"
#include "text/template/chat_trace.h"

namespace {

const char *const ROLES[] = {"system", "developer", "user", "assistant", "tool", "function"};

void set_dates(common_json *variables, std::time_t now)
{
    std::tm local;
    char text[32];
    localtime_r(&now, &local);
    strftime(text, sizeof text, "%d %b %Y", &local);
    (*variables)["date_string"] = text;
    strftime(text, sizeof text, "%b %d %Y", &local);
    (*variables)["datetime"] = text;
}

/* Some templates build control words around the role ("<|" + role + "|>"). If the role were marked as the client's
 * text, these words would not become control tokens. So the well-known roles count as the template's own text. Any
 * other role counts as the client's text. */
void trust_role(const jinja::value &message)
{
    const std::string role = message->at("role")->as_string().str();
    if (std::find(std::begin(ROLES), std::end(ROLES), role) != std::end(ROLES)) {
        message->insert(jinja::mk_val<jinja::value_string>("role"), jinja::mk_val<jinja::value_string>(role));
    }
}

void make_given(const chat_request &request, chat_given *out)
{
    for (const common_json &message : request.messages) {
        out->messages.push_back(jinja::value_from_json(message, true));
        trust_role(out->messages.back());
    }
    out->tools = request.tools.is_null() ? nullptr : jinja::value_from_json(request.tools, true);
}

void fill_context(jinja::context &context, const chat_rendering &r, size_t n_messages, bool asks)
{
    if (r.given->messages.empty()) {
        make_given(*r.request, r.given);
    }
    const std::vector<jinja::value> &messages = r.given->messages;
    context.set_val("messages", jinja::mk_val<jinja::value_array>(std::vector<jinja::value>(
                                    messages.begin(), messages.begin() + static_cast<ptrdiff_t>(n_messages))));
    if (r.given->tools != nullptr) {
        context.set_val("tools", r.given->tools);
    }
    common_json variables = common_json::object();
    variables["enable_thinking"] = true;
    set_dates(&variables, r.now);
    for (const auto &[name, value] : r.request->kwargs.items()) {
        variables[name] = value;
        if (name == "reasoning_effort" && !r.request->kwargs.contains("reasoning_strength")) {
            variables["reasoning_strength"] = value; /* some templates use this name for the variable */
        }
    }
    context.current_time = r.now;
    const common_json &kwargs = r.request->kwargs;
    if (kwargs.contains("preserve_reasoning") && kwargs.at("preserve_reasoning").is_boolean()) {
        jinja::caps_apply_preserve_reasoning(context, kwargs.at("preserve_reasoning").get<bool>());
    }
    jinja::global_from_json(context, variables, true);
    context.set_val("bos_token", jinja::mk_val<jinja::value_string>(r.request->program->tmpl->bos_token()));
    context.set_val("eos_token", jinja::mk_val<jinja::value_string>(r.request->program->tmpl->eos_token()));
    if (asks) {
        context.set_val(CHAT_ASKS, jinja::mk_val<jinja::value_bool>(true));
    }
}

/* Exists while a template runs. If the template changes a value that the renderings of a request share, the next
 * rendering makes the values again. */
class shared_values {
  public:
    explicit shared_values(chat_given *given_) : given(given_)
    {
        given->outcomes.begin_rendering();
        chat_outcomes::current() = &given->outcomes;
    }
    ~shared_values()
    {
        chat_outcomes::current() = nullptr;
        if (chat_trace::current().n_given_changes != n_before) {
            *given = chat_given();
        }
    }
    shared_values(const shared_values &) = delete;
    shared_values &operator=(const shared_values &) = delete;

  private:
    chat_given *given;
    uint64_t n_before = chat_trace::current().n_given_changes;
};

} // namespace

std::unique_ptr<const chat_program> chat_program_open(const std::string &source, const std::string &bos,
                                                      const std::string &eos)
{
    auto out = std::make_unique<chat_program>();
    {
        const chat_budget budget(0);
        out->tmpl = chat_compile(source, bos, eos);
    }
    out->family = &chat_family_of(out->tmpl->source());
    out->has_clock = out->tmpl->source().find("strftime_now") != std::string::npos;
    const chat_budget budget(0);
    out->analysis = chat_analyse(*out->tmpl);
    return out;
}

/* llama.cpp's strftime_now calls std::localtime. All threads share the result of std::localtime. So two threads must
 * not render a template with strftime_now at the same time. Other templates are rendered without the lock. */
std::unique_lock<std::mutex> chat_program::hold_clock() const
{
    std::unique_lock<std::mutex> hold(clock, std::defer_lock);
    if (has_clock) {
        hold.lock();
    }
    return hold;
}

namespace {

/* Appends what a statement of the template has returned, as jinja writes it. */
void write(const jinja::value &result, chat_text *out)
{
    if (jinja::is_val<jinja::value_string>(result)) {
        for (const jinja::string_part &part : result->val_str.parts) {
            out->text += part.val;
            out->blocked.append(part.val.size(), part.is_input ? '\1' : '\0');
        }
    } else if (jinja::is_val<jinja::value_array>(result)) {
        for (const jinja::value &item : result->as_array()) {
            write(item, out);
        }
    } else if (jinja::is_val<jinja::value_int>(result) || jinja::is_val<jinja::value_float>(result) ||
               jinja::is_val<jinja::value_bool>(result)) {
        write(jinja::mk_val<jinja::value_string>(result->as_string()), out);
    }
}

/* The outermost statements of a template, and the texts that they return. A template usually reads CHAT_ASKS only in
 * its last statement. The statements before it return the same texts with and without a generation prompt. */
class statements {
  public:
    statements(const jinja::program &program, jinja::context &context_) : body(program.body), context(context_)
    {
        chat_trace &trace = chat_trace::current();
        for (const jinja::statement_ptr &one : body) {
            const uint64_t n_asks = trace.n_asks;
            if (!has_asked) {
                n_same = results.size();
                n_changes = trace.n_changes;
            }
            results.push_back(one->execute(context));
            has_asked = has_asked || trace.n_asks != n_asks;
        }
        n_same = has_asked ? n_same : results.size();
        is_unchanged = !has_asked || trace.n_changes == n_changes;
    }

    chat_text text() const
    {
        return text_of(results);
    }

    /* Returns the text without a generation prompt. Runs the statements again from the first one that read CHAT_ASKS.
     * Returns nullopt if they have changed a value that they read. */
    std::optional<chat_text> history()
    {
        if (!is_unchanged) {
            return std::nullopt;
        }
        context.set_val(CHAT_ASKS, jinja::mk_val<jinja::value_undefined>(CHAT_ASKS));
        std::vector<jinja::value> others(results.begin(), results.begin() + static_cast<ptrdiff_t>(n_same));
        for (size_t i = n_same; i < body.size(); i++) {
            others.push_back(body[i]->execute(context));
        }
        return text_of(others);
    }

  private:
    static chat_text text_of(const std::vector<jinja::value> &results)
    {
        chat_text out;
        for (const jinja::value &result : results) {
            write(result, &out);
        }
        return out;
    }

    const jinja::statements &body;
    jinja::context &context;
    std::vector<jinja::value> results;
    size_t n_same = 0;      /* number of leading statements that have not read CHAT_ASKS */
    uint64_t n_changes = 0; /* chat_trace::n_changes after these statements */
    bool has_asked = false, is_unchanged = false;
};

void finish(const chat_rendering &r, bool asks, chat_text *out)
{
    r.request->numbers.put(out);
    r.markers->unwrap(out);
    if (r.request->program->family->change_text != nullptr) {
        r.request->program->family->change_text(asks, out);
    }
}

} // namespace

chat_text chat_program_render(const chat_rendering &r, size_t n_messages, bool asks, std::optional<chat_text> *history)
{
    const chat_program &program = *r.request->program;
    const std::unique_lock<std::mutex> hold = program.hold_clock();
    const shared_values guard(r.given);
    jinja::context context(program.tmpl->source());
    fill_context(context, r, n_messages, asks);
    statements run(program.tmpl->prog, context);
    chat_text out = run.text();
    if (asks && history != nullptr) {
        try {
            *history = run.history();
        } catch (const std::bad_alloc &) {
            throw;
        } catch (const std::exception &) { /* the caller renders again, and gets the same exception */
        }
        if (history->has_value()) {
            finish(r, false, &**history);
        }
    }
    finish(r, asks, &out);
    return out;
}
