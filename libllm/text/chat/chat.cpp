/* chat.cpp: renders a chat request. chat_render parses the request, finds the form of the answer (chat_form.h), renders
 * the conversation, and tokenizes the rendered text. If the session holds the tokens of an earlier answer, only the
 * rendered text after this answer is tokenized (chat_after.h). At the end, chat_render finds boundaries. A boundary is
 * a number of leading tokens that a later prompt is likely to share. A checkpoint after these tokens is useful. In two
 * cases, the conversation is rendered again with repairs (converse_somehow):
 * - The template refuses the conversation.
 * - The rendered text does not show where the session's answer ends. */
#include "text/chat/chat.h"

#include <common/chat.h>
#include <common/log.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>

#include "text/chat/chat_after.h"
#include "text/chat/chat_answer.h"
#include "text/chat/chat_control.h"
#include "text/chat/chat_form.h"
#include "text/chat/chat_program.h"
#include "text/chat/chat_request.h"
#include "text/template/chat_budget.h"
#include "text/template/chat_compile.h"

namespace {

/* Maximum number of boundaries at the beginnings of user messages. The latest user messages get these boundaries. A
 * client usually continues after the last message, or edits or regenerates one of the latest messages. To find a
 * boundary, the messages before it must be rendered separately. */
constexpr size_t USER_BOUNDARIES_MAX = 4;

std::string text_of(const model *m, int32_t token) /* returns "" if `token` is -1 */
{
    return token < 0 ? std::string() : chat_token_text(m, token);
}

} // namespace

struct chat {
    const model *m;
    control_words words;
    bool adds_bos;
    chat_programs programs; /* if programs.usual is NULL, `refusal` has the reason */
    std::string refusal;

    explicit chat(const model *m_) : m(m_), words(m_), adds_bos(chat_adds_bos(m_)) {}
};

namespace {

/* If the template cannot be compiled, returns NULL and stores the reason in *why. */
std::unique_ptr<const chat_program> program_of(const model *m, const char *source, std::string *why)
{
    try {
        return chat_program_open(source, text_of(m, m->ops->bos(m)), text_of(m, m->ops->eos(m)));
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception &e) {
        *why = e.what();
        return nullptr;
    }
}

void compile(chat *c)
{
    const model_ops *ops = c->m->ops;
    const char *source = ops->chat_template(c->m);
    const char *with_tools = ops->tool_template != nullptr ? ops->tool_template(c->m) : nullptr;
    if (source == nullptr || *source == '\0') {
        c->refusal = "the model has no chat template; give one with --chat-template-file, or use plain completions";
        return;
    }
    std::string why;
    c->programs.usual = program_of(c->m, source, &why);
    if (c->programs.usual == nullptr) {
        c->refusal = "the model's chat template cannot be read: " + why;
    } else if (with_tools != nullptr) {
        c->programs.with_tools = program_of(c->m, with_tools, &why); /* if this template cannot be compiled, the usual
                                                                      * template is used, as in llama.cpp */
    }
}

/* Returns whether the template accepts the messages that `render` passes to it. */
template <typename F> bool is_accepted(const F &render)
{
    try {
        render();
        return true;
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const chat_limit &) {
        throw;
    } catch (const std::exception &) {
        return false;
    }
}

/* ---- boundaries -------------------------------------------------------------------------------------------------- */

/* Returns how many messages are in the head of the prompt. The head has the leading system messages, which many
 * conversations share. */
size_t head_messages(const common_json &messages)
{
    size_t head = 0;
    while (head < messages.size() && messages.at(head).at("role") == "system") {
        head++;
    }
    return head;
}

/* Returns for each boundary the number of messages before it, ascending. The first boundary is the end of the head, the
 * others are the starts of the latest user messages. The caller also adds a boundary at the end of the last message. */
std::vector<size_t> message_counts(const common_json &messages, size_t head)
{
    std::vector<size_t> out;
    for (size_t i = messages.size(); i-- > 1 && out.size() < USER_BOUNDARIES_MAX;) {
        if (messages.at(i).at("role") == "user") {
            out.push_back(i);
        }
    }
    if (head > 0 && head < messages.size() && (out.empty() || head < out.back())) {
        out.push_back(head);
    }
    std::reverse(out.begin(), out.end());
    return out;
}

/* A conversation: its request, its text and its tokens. */
struct conversation {
    chat_request request;
    chat_given given;                      /* messages and tools of `request` as values of jinja */
    std::shared_ptr<const chat_form> form; /* form of the answer */
    chat_text rendered;
    chat_tail tail; /* the text to be tokenized: everything, or the part after an answer (chat_after.h) */
    chat_tokens tokens;
    size_t n_history_bytes = 0; /* number of bytes before the generation prompt; 0 if unknown */
};

chat_tokens tokenized(const chat *c, const conversation &all, const chat_text &text)
{
    return chat_tokenize(c->m, c->words, c->adds_bos && all.tail.begin == 0 && all.tail.n_front == 0, text);
}

/* Returns how many of all.tokens are in the first n_rendered bytes of the rendered text. Returns -1 if these bytes end
 * before all.tail or inside a token. Tokenizing these bytes alone could give other tokens, because a token of the whole
 * text can extend beyond them. For example, "new" and "line" may be one token. */
int32_t tokens_before(const chat *c, const conversation &all, size_t n_rendered)
{
    const size_t n = all.tail.place_of(n_rendered);
    const chat_tokens &t = all.tokens;
    const chat_text &text = all.tail.text;
    if (n == chat_tail::NONE) {
        return -1;
    }
    const auto cut = std::lower_bound(t.cuts.begin(), t.cuts.end(), n,
                                      [](const chat_tokens::cut &a, size_t byte) { return a.byte < byte; });
    if (cut != t.cuts.end() && cut->byte == n) {
        return static_cast<int32_t>(cut->token);
    }
    if (n == text.text.size()) {
        return static_cast<int32_t>(t.tokens.size());
    }
    const std::vector<int32_t> tokens = tokenized(c, all, {text.text.substr(0, n), text.blocked.substr(0, n)}).tokens;
    const bool is_prefix =
        tokens.size() <= t.tokens.size() && std::equal(tokens.begin(), tokens.end(), t.tokens.begin());
    return is_prefix ? static_cast<int32_t>(tokens.size()) : -1;
}

bool is_prefix_of(const std::string &head, const std::string &all)
{
    return all.compare(0, head.size(), head) == 0;
}

/* Returns how many bytes of `all` belong to the first n_messages messages. `all` is the rendered text of the whole
 * conversation. `head` is the text of the first messages, if it is known. Returns 0 if these messages are rendered
 * differently when the later messages are left out. In some templates, the text of a turn depends on later turns. Other
 * templates refuse a conversation that ends after these messages. */
size_t bytes_of_head(const chat_rendering &r, size_t n_messages, const std::string &all, std::string head = "")
{
    if (head.empty() && !is_accepted([&] { head = chat_program_render(r, n_messages, false).text; })) {
        return 0;
    }
    const std::string &eos =
        r.request->program->tmpl->eos_token(); /* without a generation prompt, some templates append EOS, which is
                                                * removed below */
    if (!is_prefix_of(head, all) && !eos.empty() && head.size() > eos.size() &&
        head.compare(head.size() - eos.size(), eos.size(), eos) == 0) {
        head.resize(head.size() - eos.size());
    }
    return is_prefix_of(head, all) ? head.size() : 0;
}

void add_boundary(int32_t n_tokens, std::vector<int32_t> *out)
{
    if (n_tokens > 0 && (out->empty() || n_tokens > out->back())) {
        out->push_back(n_tokens);
    }
}

/* Positions in the prompt, as numbers of tokens. n_head is the end of the head. n_history is the end of the last
 * message, before the generation prompt. n_head and n_history are 0 if unknown. */
struct marks {
    int32_t n_head = 0;
    int32_t n_history = 0;
    std::vector<int32_t> boundaries;
};

/* Returns the number of tokens in the head of the prompt. The head ends at the text of the user's first message. Some
 * templates refuse a conversation without a user message, or put the tools after the system message. So the head cannot
 * always be rendered alone. Instead, request.front is rendered. It has the system messages, and a user message whose
 * text is a sentinel (control_markers::sentinel). The rendered text before the sentinel is the head. */
int32_t tokens_before_question(const chat *c, const chat_rendering &r, const conversation &all)
{
    chat_request asking = *r.request;
    asking.messages = asking.front;
    chat_given values;
    const chat_rendering other = {&asking, r.markers, r.now, &values};
    std::string text;
    if (!is_accepted([&] { text = chat_program_render(other, asking.messages.size(), false).text; })) {
        return 0;
    }
    const size_t at = text.find(r.markers->sentinel(0));
    if (at == std::string::npos || all.rendered.text.compare(0, at, text, 0, at) != 0) {
        return 0;
    }
    const int32_t n_tokens = tokens_before(c, all, at);
    const auto behind = std::upper_bound(all.tokens.cuts.begin(), all.tokens.cuts.end(), at,
                                         [](size_t byte, const chat_tokens::cut &cut) { return byte < cut.byte; });
    const bool has_cut = behind != all.tokens.cuts.begin();
    return n_tokens >= 0 ? n_tokens : has_cut ? static_cast<int32_t>(std::prev(behind)->token) : 0;
}

/* Finds the boundaries. A boundary is a position between two messages. To find its position, the messages before the
 * boundary are rendered alone. There is no boundary at this position if the text or the tokens of these messages are
 * not a prefix of the text or the tokens of the whole conversation. */
marks marks_of(const chat *c, const chat_rendering &r, const conversation &all)
{
    marks out;
    const size_t head = head_messages(r.request->messages),
                 n_before_tail = chat_messages_before_tail(*r.request, *r.markers);
    for (const size_t n : message_counts(r.request->messages, head)) {
        if (n < n_before_tail) { /* the text of these messages lacks the sentinel, so it ends before all.tail */
            continue;
        }
        const size_t n_bytes = bytes_of_head(r, n, all.rendered.text);
        const int32_t n_tokens = n_bytes > 0 ? tokens_before(c, all, n_bytes) : -1;
        out.n_head = n == head ? std::max(n_tokens, 0) : out.n_head;
        add_boundary(n_tokens, &out.boundaries);
    }
    if (!r.request->front.is_null() && (out.n_head == 0 || !r.request->tools.is_null())) {
        out.n_head = std::max(out.n_head, tokens_before_question(c, r, all));
    }
    out.n_history = all.n_history_bytes > 0 ? std::max(tokens_before(c, all, all.n_history_bytes), 0) : 0;
    add_boundary(out.n_history, &out.boundaries);
    return out;
}

/* ---- rendering --------------------------------------------------------------------------------------------------- */

void check_tokens(const model *m, const chat_request &request)
{
    for (const int32_t token : request.after.has_value() ? request.after->last : std::vector<int32_t>()) {
        if (token < 0 || static_cast<uint32_t>(token) >= m->info.n_vocab) {
            throw chat_invalid("token " + std::to_string(token) + " of the answer is outside the vocabulary");
        }
    }
}

enum class attempt { done, has_tools, failed };

std::shared_ptr<const chat_form> form_of(const chat *c, const chat_request &request)
{
    const chat_program &program = *request.program;
    const std::unique_lock<std::mutex> hold = program.hold_clock(); /* chat_answer_form can run the template */
    return chat_answer_form(c->m, c->words, program, request.wish);
}

/* Renders the conversation once. If only the text after an earlier answer is needed (chat_after.h), the attempt can
 * fail in two ways. Returns has_tools if the template writes the tools after this answer, although the session's tokens
 * already contain the tools. Returns failed if the rendered text does not show where this answer ends. */
attempt converse(const chat *c, const control_markers &markers, std::time_t now, conversation *out)
{
    const chat_request &request = out->request;
    const chat_rendering r = {&request, &markers, now, &out->given};
    const size_t n = request.messages.size();
    out->form = form_of(c, request);
    std::optional<chat_text> history;
    out->rendered = chat_program_render(r, n, request.add_generation_prompt, &history);
    const std::string &all = out->rendered.text;
    const std::string known = history.has_value() ? std::move(history->text) : std::string();
    out->n_history_bytes = request.add_generation_prompt ? bytes_of_head(r, n, all, known) : all.size();
    if (request.continues()) {
        chat_answer_begin(*out->form, request, &out->rendered);
    }
    if (request.form == chat_answer::none) {
        out->tail.text = out->rendered;
        out->tokens = tokenized(c, *out, out->tail.text);
        return attempt::done;
    }
    bool has_tools = false;
    const auto tail = chat_tail_after(c->m, c->words, markers, out->rendered, *request.after, request.form,
                                      request.n_marks, &has_tools);
    if (!tail.has_value() || has_tools) {
        return has_tools ? attempt::has_tools : attempt::failed;
    }
    out->tail = *tail;
    out->tokens = tokenized(c, *out, out->tail.text);
    return chat_tail_keeps_spelling(c->m, out->tail, out->tokens) ? attempt::done : attempt::failed;
}

/* Throws the template's error again. If the arguments of some tool call are not JSON, the new error mentions these
 * arguments, because they are the likely cause. */
[[noreturn]] void rethrow(const std::exception &e, const chat_request &request)
{
    if (request.unread_arguments.empty()) {
        throw;
    }
    throw chat_invalid(chat_reason(e) +
                       " (the arguments of a tool call are not JSON: " + request.unread_arguments.substr(0, 200) + ")");
}

/* Selects the next way to pass the answer of chat_request::after to the template. The ways are tried in this order:
 * with the answer's tool calls, as text, `none`. With `none` the whole chat is rendered, which costs a longer prefill
 * but avoids a refusal. Returns false if the last way was `none`. */
bool has_next_form(const chat_request &request, chat_repair *repair)
{
    const chat_answer form = request.form;
    const shown_types types = repair->types;
    *repair = chat_repair();
    repair->types = types;
    repair->form = form == chat_answer::calls ? chat_answer::text : chat_answer::none;
    return form != chat_answer::none;
}

/* Selects the next repair of a request that the template refused. Returns false if no repair is left. */
bool repair_more(const chat_request &request, chat_repair *repair)
{
    if (request.has_odd_ids) {
        return repair->renames_ids = true;
    }
    if (!request.unread_arguments.empty() && !repair->encloses_arguments) {
        return repair->encloses_arguments = true;
    }
    if (request.has_parallel_calls) {
        return repair->splits_calls = true;
    }
    return has_next_form(request, repair);
}

/* Returns whether the same text follows the answer in two renderings. One rendering has the answer's tool calls, the
 * other has the answer as text. The text after the answer can differ, because tool results can refer to their calls. */
bool ends_alike(const std::string &as_calls, const conversation &as_text)
{
    const size_t n = as_text.rendered.text.size() - as_text.tail.begin;
    return as_calls.size() >= n &&
           as_calls.compare(as_calls.size() - n, n, as_text.rendered.text, as_text.tail.begin, n) == 0;
}

/* Finds out how the types in the tools' schemas have to be passed to the template. Some templates fail on certain
 * schemas. For example, Hermes 3's template uses the type as a dictionary key, and fails if the type is a list of
 * types. This function renders the conversation only up to the first question, because later messages can cause other
 * failures. If the rendering fails in every form of the types, the tools are not the reason, and GIVEN is returned. */
shown_types types_to_show(const chat *c, const std::string &given, const control_markers &markers, std::time_t now,
                          typed_tools *typed)
{
    for (const shown_types types : {shown_types::GIVEN, shown_types::SINGLE, shown_types::WITHOUT_LISTS}) {
        chat_repair repair;
        repair.form = chat_answer::none;
        repair.types = types;
        chat_request request = chat_request_read(c->m, given, c->programs, markers, repair, typed);
        if (request.front.is_null()) {
            break;
        }
        request.messages = request.front;
        chat_given values;
        const chat_rendering r = {&request, &markers, now, &values};
        if (is_accepted([&] { (void)chat_program_render(r, request.messages.size(), true); })) {
            return types;
        }
    }
    return shown_types::GIVEN;
}

/* Renders the conversation, and adds repairs (changes to the conversation) until the template accepts it. Each repair
 * loses information, for example an id or the position of the tools. So repairs are tried one by one, and only after a
 * refusal. */
conversation converse_somehow(const chat *c, const std::string &given, const control_markers &markers, std::time_t now)
{
    bool are_types_known = false;
    typed_tools typed;
    std::optional<std::string> as_calls; /* the rendered text of the attempt in which the answer had its tool calls, if
                                          * this attempt failed */
    for (chat_repair repair;;) {
        conversation out;
        out.request = chat_request_read(c->m, given, c->programs, markers, repair, &typed);
        check_tokens(c->m, out.request);
        try {
            const attempt found = converse(c, markers, now, &out);
            const bool is_alike =
                out.request.form != chat_answer::text || !as_calls.has_value() || ends_alike(*as_calls, out);
            if (found == attempt::done && is_alike) {
                return out;
            }
            if (out.request.form == chat_answer::calls) {
                as_calls = out.rendered.text;
            }
            if (found == attempt::has_tools && repair.keeps_tools) {
                repair.keeps_tools = false;
            } else {
                has_next_form(out.request, &repair);
            }
        } catch (const std::bad_alloc &) {
            throw;
        } catch (const chat_limit &) {
            throw;
        } catch (const std::invalid_argument &e) { /* the requested answer needs a form (chat_form.h) that cannot be
                                                    * made */
            throw chat_invalid(e.what());
        } catch (const std::exception &e) {
            if (!are_types_known && !out.request.tools.is_null()) {
                are_types_known = true;
                repair.types = types_to_show(c, given, markers, now, &typed);
                if (repair.types != shown_types::GIVEN) {
                    continue;
                }
            }
            if (!repair_more(out.request, &repair)) {
                rethrow(e, out.request);
            }
        }
    }
}

/* ---- the result of chat_render ----------------------------------------------------------------------------------- */

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

void fill_prompt(llm_prompt *out, const chat *c, const conversation &all, const marks &at)
{
    const std::string &text_of_all = all.rendered.text;
    const std::string opening = all.n_history_bytes > 0 ? text_of_all.substr(all.n_history_bytes) : all.form->opening;
    const std::shared_ptr<const chat_documents> documents =
        chat_answer_documents(c->m, *all.form, all.request, opening);
    const std::string &syntax = documents->syntax, &constraint = documents->constraint;
    const std::string stops = all.form->stops.empty() ? std::string() : common_json(all.form->stops).dump_safe();
    owned<char> syntax_bytes(syntax.data(), syntax.size());
    owned<char> constraint_bytes(constraint.data(), constraint.size());
    const auto preserved = all.form->marks.at("preserved").get<std::vector<int>>();
    owned<int32_t> preserved_tokens(preserved.data(), preserved.size());
    owned<char> stops_bytes(stops.data(), stops.size());
    owned<int32_t> tokens(all.tokens.tokens.data(), all.tokens.tokens.size());
    owned<char> text(all.tail.text.text.data(), all.tail.text.text.size());
    owned<int32_t> bounds(at.boundaries.data(), at.boundaries.size());
    *out = {tokens.bytes.release(),
            tokens.n,
            text.bytes.release(),
            text.n,
            bounds.bytes.release(),
            bounds.n,
            static_cast<size_t>(at.n_history),
            static_cast<size_t>(at.n_head),
            all.request.form != chat_answer::none,
            syntax_bytes.bytes.release(),
            syntax_bytes.n,
            constraint_bytes.bytes.release(),
            constraint_bytes.n,
            preserved_tokens.bytes.release(),
            preserved_tokens.n,
            stops_bytes.bytes.release(),
            stops_bytes.n};
}

/* ---- the functions of chat.h -------------------------------------------------------------------------------------- *
 * These functions run on a separate large stack (chat_call_with_stack), and let no exception out. */

struct outcome {
    int status = LLM_OK;
    char *error;
    size_t error_bytes;

    void refuse(int status_, const char *text)
    {
        status = status_;
        if (error != nullptr && error_bytes > 0) {
            snprintf(error, error_bytes, "%s", text);
        }
    }
};

/* Converts the current exception to a status and a sentence. Called inside a catch block. If this function runs out of
 * memory, an outer catch block handles that. */
void explain(outcome *out)
{
    try {
        throw;
    } catch (const chat_invalid &e) {
        out->refuse(LLM_INVALID, e.what());
    } catch (const common_json_error &e) { /* a member of the request has an unexpected type */
        out->refuse(LLM_INVALID, e.what());
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception &e) {
        out->refuse(LLM_TEMPLATE, chat_reason(e).c_str());
    }
}

template <typename F> int on_own_stack(char *error, size_t error_bytes, const F &work)
{
    outcome out = {LLM_OK, error, error_bytes};
    const auto attempt = [&]() noexcept {
        try {
            try {
                work();
            } catch (...) {
                explain(&out);
            }
        } catch (const std::bad_alloc &) {
            out.refuse(LLM_NO_MEMORY, "out of memory while working with the chat template");
        } catch (...) {
            out.refuse(LLM_TEMPLATE, "the chat template failed in an unknown way");
        }
    };
    if (!chat_call_with_stack(std::cref(attempt))) { /* passed by reference, so that nothing is allocated */
        out.refuse(LLM_NO_MEMORY, "out of memory while working with the chat template");
    }
    return out.status;
}

} // namespace

int chat_open(const model *m, chat **out, char *error, size_t error_bytes)
{
    *out = nullptr;
    return on_own_stack(error, error_bytes, [&] {
        common_log_set_verbosity_thold(-1); /* llama.cpp's `common` would log to stderr */
        auto c = std::make_unique<chat>(m);
        compile(c.get());
        *out = c.release();
    });
}

void chat_close(chat *c)
{
    if (c != nullptr && !chat_call_with_stack([&] { delete c; })) {
        delete c;
    }
}

int chat_has_template(const chat *c)
{
    return c->programs.usual != nullptr;
}

int chat_render(const chat *c, const char *request, size_t n_bytes, llm_prompt *out, char *error, size_t error_bytes)
{
    memset(out, 0, sizeof *out);
    return on_own_stack(error, error_bytes, [&] {
        if (c->programs.usual == nullptr) {
            throw std::runtime_error(c->refusal);
        }
        const chat_budget budget(n_bytes);
        const std::string given(request, n_bytes);
        const control_markers markers(c->words, given);
        const std::time_t now = std::time(nullptr);
        conversation all = converse_somehow(c, given, markers, now);
        const chat_rendering r = {&all.request, &markers, now, &all.given};
        fill_prompt(out, c, all, marks_of(c, r, all));
    });
}
