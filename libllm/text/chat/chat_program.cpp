#include "text/chat/chat_program.h"

#include <algorithm>
#include <iterator>

#include "text/chat/chat_request.h"
#include "text/template/chat_budget.h"
#include "text/template/chat_compile.h"

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
void trust_roles(jinja::context &context)
{
    for (const jinja::value &message : context.get_val("messages")->as_array()) {
        const std::string role = message->at("role")->as_string().str();
        if (std::find(std::begin(ROLES), std::end(ROLES), role) != std::end(ROLES)) {
            message->insert(jinja::mk_val<jinja::value_string>("role"), jinja::mk_val<jinja::value_string>(role));
        }
    }
}

void fill_context(jinja::context &context, const chat_rendering &r, size_t n_messages, bool asks)
{
    common_json variables = common_json::object();
    common_json messages = common_json::array();
    for (size_t i = 0; i < n_messages; i++) {
        messages.push_back(r.request->messages.at(i));
    }
    variables["messages"] = messages;
    if (!r.request->tools.is_null()) {
        variables["tools"] = r.request->tools;
    }
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
        context.set_val("add_generation_prompt", jinja::mk_val<jinja::value_bool>(true));
    }
    trust_roles(context);
}

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

chat_text chat_program_render(const chat_rendering &r, size_t n_messages, bool asks)
{
    const chat_program &program = *r.request->program;
    const std::unique_lock<std::mutex> hold = program.hold_clock();
    jinja::context context(program.tmpl->source());
    fill_context(context, r, n_messages, asks);
    jinja::runtime runtime(context);
    const jinja::value result = runtime.execute(program.tmpl->prog);
    const auto gathered = jinja::runtime::gather_string_parts(result);
    chat_text out;
    for (const jinja::string_part &part : gathered->val_str.parts) {
        out.text += part.val;
        out.blocked.append(part.val.size(), part.is_input ? '\1' : '\0');
    }
    r.request->numbers.put(&out);
    r.markers->unwrap(&out);
    if (program.family->change_text != nullptr) {
        program.family->change_text(asks, &out);
    }
    return out;
}
