#include "chat.h"

#include <common/chat.h>
#include <common/log.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>
#include <new>

#include "chat_control.h"
#include "chat_request.h"

namespace {

/* Boundaries before user messages, counted from the last one back: a client goes on after the last message, or edits or
 * regenerates one of the latest. Each costs a rendering of what precedes it. */
constexpr size_t USER_BOUNDARIES_MAX = 4;

const char *const ROLES[] = {"system", "developer", "user", "assistant", "tool", "function"};

std::string token_text(const model *m, int32_t token)
{
    char text[256];
    const int32_t n = token < 0 ? 0 : m->ops->piece(m, token, true, text, sizeof text);
    return n > 0 ? std::string(text, static_cast<size_t>(n)) : std::string();
}

/* What the template itself said with raise_exception, or the first thing that went wrong, without the trace. */
std::string message_of(const std::exception &e)
{
    std::string text = e.what();
    for (const char *mark : {"Error: ", "Jinja Exception: "}) {
        const size_t at = text.rfind(mark);
        text = at == std::string::npos ? text : text.substr(at + strlen(mark));
    }
    return text;
}

/* Workarounds for particular templates live in llama.cpp; they are applied to the source. */
std::string patched_source(const std::string &source)
{
    try {
        return common_chat_templates_source(common_chat_templates_init(nullptr, source).get());
    } catch (...) {
        return source; /* compiling it next says what is wrong */
    }
}

} // namespace

struct chat {
    const model *m;
    control_words words;
    bool adds_bos;
    std::unique_ptr<const common_chat_template> tmpl; /* NULL: none, and `refusal` says why */
    std::string refusal;
    bool has_clock; /* the engine's clock is not safe for several threads */
    mutable std::mutex clock;

    explicit chat(const model *m_) : m(m_), words(m_), adds_bos(chat_adds_bos(m_)), has_clock(false) {}
};

namespace {

void compile(chat *c)
{
    const char *source = c->m->ops->chat_template(c->m);
    if (source == nullptr || *source == '\0') {
        c->refusal = "the model has no chat template; give one, or use plain completions";
        return;
    }
    try {
        c->tmpl = std::make_unique<common_chat_template>(patched_source(source), token_text(c->m, c->m->ops->bos(c->m)),
                                                         token_text(c->m, c->m->ops->eos(c->m)));
        c->has_clock = c->tmpl->source().find("strftime_now") != std::string::npos;
    } catch (const std::exception &e) {
        c->refusal = std::string("the model's chat template cannot be read: ") + e.what();
    }
}

/* ---- rendering ----------------------------------------------------------------------------------------------------- */

/* One request; all its renderings see the same time. */
struct rendering {
    const chat *c;
    const chat_request *request;
    const control_markers *markers;
    std::time_t now;
};

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

/* Templates spell out control words with the role in the middle ("<|" + role + "|>"). The well-known roles are words of
 * this library and not of the client, whoever wrote them. */
void trust_roles(jinja::context &context)
{
    for (const jinja::value &message : context.get_val("messages")->as_array()) {
        const std::string role = message->at("role")->as_string().str();
        if (std::find(std::begin(ROLES), std::end(ROLES), role) != std::end(ROLES)) {
            message->insert(jinja::mk_val<jinja::value_string>("role"), jinja::mk_val<jinja::value_string>(role));
        }
    }
}

void fill_context(jinja::context &context, const rendering &r, size_t n_messages, bool add_generation_prompt)
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
    }
    context.current_time = r.now;
    const common_json &kwargs = r.request->kwargs;
    if (kwargs.contains("preserve_reasoning") && kwargs.at("preserve_reasoning").is_boolean()) {
        jinja::caps_apply_preserve_reasoning(context, kwargs.at("preserve_reasoning").get<bool>());
    }
    jinja::global_from_json(context, variables, true);
    context.set_val("bos_token", jinja::mk_val<jinja::value_string>(r.c->tmpl->bos_token()));
    context.set_val("eos_token", jinja::mk_val<jinja::value_string>(r.c->tmpl->eos_token()));
    if (add_generation_prompt) {
        context.set_val("add_generation_prompt", jinja::mk_val<jinja::value_bool>(true));
    }
    trust_roles(context);
}

chat_text render(const rendering &r, size_t n_messages, bool add_generation_prompt)
{
    std::unique_lock<std::mutex> hold(r.c->clock, std::defer_lock);
    if (r.c->has_clock) {
        hold.lock();
    }
    jinja::context context(r.c->tmpl->source());
    fill_context(context, r, n_messages, add_generation_prompt);
    jinja::runtime runtime(context);
    const jinja::value result = runtime.execute(r.c->tmpl->prog);
    const auto gathered = jinja::runtime::gather_string_parts(result);
    chat_text out;
    for (const jinja::string_part &part : gathered->val_str.parts) {
        out.text += part.val;
        out.blocked.append(part.val.size(), part.is_input ? '\1' : '\0');
    }
    r.markers->unwrap(&out);
    return out;
}

/* ---- boundaries ---------------------------------------------------------------------------------------------------- */

/* How many messages to render for each boundary, ascending: the head that many conversations share, then the starts of
 * the latest user messages. The end of the history is the caller's. */
std::vector<size_t> message_counts(const common_json &messages)
{
    std::vector<size_t> out;
    for (size_t i = messages.size(); i-- > 1 && out.size() < USER_BOUNDARIES_MAX;) {
        if (messages.at(i).at("role") == "user") {
            out.push_back(i);
        }
    }
    size_t head = 0;
    while (head < messages.size() && messages.at(head).at("role") == "system") {
        head++;
    }
    if (head > 0 && head < messages.size() && (out.empty() || head < out.back())) {
        out.push_back(head);
    }
    std::reverse(out.begin(), out.end());
    return out;
}

/* Tokens of `all` that stand for its first n bytes, or -1 when the cut would go through one. */
int32_t tokens_before(const chat *c, const chat_text &all, const chat_tokens &t, size_t n)
{
    const auto cut = std::lower_bound(t.cuts.begin(), t.cuts.end(), n,
                                      [](const chat_tokens::cut &a, size_t byte) { return a.byte < byte; });
    if (cut != t.cuts.end() && cut->byte == n) {
        return static_cast<int32_t>(cut->token);
    }
    const chat_text head = {all.text.substr(0, n), all.blocked.substr(0, n)};
    const std::vector<int32_t> tokens = chat_tokenize(c->m, c->words, c->adds_bos, head).tokens;
    const bool is_prefix =
        tokens.size() <= t.tokens.size() && std::equal(tokens.begin(), tokens.end(), t.tokens.begin());
    return is_prefix ? static_cast<int32_t>(tokens.size()) : -1;
}

bool is_prefix_of(const std::string &head, const std::string &all)
{
    return all.compare(0, head.size(), head) == 0;
}

/* A shorter conversation counts only if it renders to a prefix of the whole, in text and in tokens: templates may treat
 * earlier turns by what comes later, or refuse a conversation that ends there. */
void add_boundary(const rendering &r, size_t n_messages, const chat_text &all, const chat_tokens &t,
                  std::vector<int32_t> *out)
{
    try {
        std::string head = render(r, n_messages, false).text;
        const std::string &eos = r.c->tmpl->eos_token(); /* some templates close what asks for no answer */
        if (!is_prefix_of(head, all.text) && !eos.empty() && head.size() > eos.size() &&
            head.compare(head.size() - eos.size(), eos.size(), eos) == 0) {
            head.resize(head.size() - eos.size());
        }
        const bool is_prefix = !head.empty() && is_prefix_of(head, all.text);
        const int32_t n = is_prefix ? tokens_before(r.c, all, t, head.size()) : -1;
        if (n > 0 && (out->empty() || n > out->back())) {
            out->push_back(n);
        }
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception &) { /* the template's refusal */
    }
}

std::vector<int32_t> boundaries_of(const rendering &r, const chat_text &all, const chat_tokens &t)
{
    std::vector<int32_t> out;
    for (const size_t n : message_counts(r.request->messages)) {
        add_boundary(r, n, all, t, &out);
    }
    if (r.request->add_generation_prompt) {
        add_boundary(r, r.request->messages.size(), all, t, &out);
    } else if (out.empty() || out.back() < static_cast<int32_t>(t.tokens.size())) {
        out.push_back(static_cast<int32_t>(t.tokens.size()));
    }
    return out;
}

/* ---- the answer ---------------------------------------------------------------------------------------------------- */

template <typename T> struct owned {
    std::unique_ptr<T, decltype(&free)> bytes;
    size_t n;

    owned(const T *from, size_t n_) : bytes(static_cast<T *>(malloc(std::max<size_t>(1, n_ * sizeof(T)))), free), n(n_)
    {
        if (bytes == nullptr) {
            throw std::bad_alloc();
        }
        std::copy_n(from, n, bytes.get());
    }
};

void fill_prompt(llm_prompt *out, const chat_text &all, const chat_tokens &t, const std::vector<int32_t> &boundaries)
{
    owned<int32_t> tokens(t.tokens.data(), t.tokens.size());
    owned<char> text(all.text.data(), all.text.size());
    owned<int32_t> bounds(boundaries.data(), boundaries.size());
    *out = {tokens.bytes.release(), tokens.n, text.bytes.release(), text.n, bounds.bytes.release(), bounds.n};
}

} // namespace

int chat_open(const model *m, chat **out, char *error, size_t error_bytes)
{
    *out = nullptr;
    try {
        common_log_set_verbosity_thold(-1); /* `common` logs by itself, and to stderr */
        auto c = std::make_unique<chat>(m);
        compile(c.get());
        *out = c.release();
        return LLM_OK;
    } catch (...) {
        if (error != nullptr && error_bytes > 0) {
            snprintf(error, error_bytes, "out of memory while reading the chat template");
        }
        return LLM_NO_MEMORY;
    }
}

void chat_close(chat *c)
{
    delete c;
}

int chat_has_template(const chat *c)
{
    return c->tmpl != nullptr;
}

int chat_render(const chat *c, const char *request, size_t n_bytes, llm_prompt *out, char *error, size_t error_bytes)
{
    const auto refuse = [&](int status, const std::string &text) {
        if (error != nullptr && error_bytes > 0) {
            snprintf(error, error_bytes, "%s", text.c_str());
        }
        return status;
    };
    memset(out, 0, sizeof *out);
    try {
        if (c->tmpl == nullptr) {
            return refuse(LLM_TEMPLATE, c->refusal);
        }
        const std::string json(request, n_bytes);
        const control_markers markers(c->words, json);
        const chat_request read = chat_request_read(json, *c->tmpl, markers);
        const rendering r = {c, &read, &markers, std::time(nullptr)};
        const chat_text all = render(r, read.messages.size(), read.add_generation_prompt);
        const chat_tokens tokens = chat_tokenize(c->m, c->words, c->adds_bos, all);
        fill_prompt(out, all, tokens, boundaries_of(r, all, tokens));
        return LLM_OK;
    } catch (const chat_invalid &e) {
        return refuse(LLM_INVALID, e.what());
    } catch (const common_json_error &e) { /* a member of an unexpected type */
        return refuse(LLM_INVALID, e.what());
    } catch (const std::bad_alloc &) {
        return refuse(LLM_NO_MEMORY, "out of memory while rendering the chat");
    } catch (const std::exception &e) {
        return refuse(LLM_TEMPLATE, message_of(e));
    } catch (...) {
        return refuse(LLM_TEMPLATE, "the chat template failed in an unknown way");
    }
}
