#include "text/chat/chat_answer.h"

#include <cstring>
#include <new>
#include <stdexcept>

#include "text/answer/answer_reading.h"
#include "text/chat/chat_constraint.h"
#include "text/template/chat_budget.h"
#include "text/template/chat_compile.h"

namespace {

/* The form of answers (chat_form.h) cannot be derived from every template. Without the form, the template can still
 * render the conversation, and the answer is plain text. But a request that needs the form, for example for tools, is
 * refused. */
chat_form new_form(const model *m, const chat_program &program, const chat_wish &wish)
{
    try {
        return chat_form_of(m, *program.tmpl, program.analysis, wish);
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const chat_limit &) {
        throw;
    } catch (const std::exception &e) {
        if (wish.needs_form()) {
            const char *what = wish.has_calls() ? "tools: " : wish.grammar.empty() ? "" : "constraint: ";
            throw std::invalid_argument(
                what + ("llmd cannot find out how the model's chat template writes such an answer: " + chat_reason(e)));
        }
        return chat_form();
    }
}

} // namespace

std::string chat_wish::key() const
{
    common_json out = common_json::object();
    out["choice"] = static_cast<int>(choice);
    out["names"] = names;
    out["parallel"] = parallel;
    out["grammar"] = grammar;
    out["arguments"] = common_json::array();
    for (const chat_argument &one : arguments) {
        for (const std::string &text : {one.tool, one.name, one.grammar}) {
            out["arguments"].push_back(text);
        }
    }
    out["apart"] = is_reasoning_apart;
    out["continues_reasoning"] = continues_reasoning;
    out["continues_content"] = continues_content;
    out["kwargs"] = kwargs;
    return out.dump_safe() + offer->text;
}

std::shared_ptr<const chat_form> chat_answer_form(const model *m, const control_words &words,
                                                  const chat_program &program, const chat_wish &wish)
{
    const std::string key = wish.key();
    std::shared_ptr<const chat_form> form = program.forms.find(key);
    if (form == nullptr) {
        chat_form made = new_form(m, program, wish);
        made.marks = chat_constraint_marks(m, words, made);
        made.documents = std::make_shared<chat_last_documents>();
        form = std::make_shared<const chat_form>(std::move(made));
        program.forms.keep(key, form);
    }
    return form;
}

void chat_answer_begin(const chat_form &form, const chat_request &request, chat_text *out)
{
    const std::pair<const char *, const std::string *> parts[] = {{CHAT_FORM_REASONING, &request.begun_reasoning},
                                                                  {CHAT_FORM_CONTENT, &request.begun_content}};
    const chat_family &family = *request.program->family;
    size_t done = family.n_opened != nullptr ? family.n_opened(form.opening, *out) : 0;
    const auto append = [out](const std::string &text, char blocked) {
        out->text += text;
        out->blocked.append(text.size(), blocked);
    };
    for (const auto &[mark, text] : parts) {
        const size_t at = form.opening.find(mark, done);
        if (at != std::string::npos) {
            append(form.opening.substr(done, at - done), '\0');
            append(*text, '\1');
            done = at + strlen(mark);
        }
    }
    append(form.opening.substr(done), '\0');
}

namespace {

/* Returns the text that the parser of the answer has to parse before the generated text. This text is the beginning of
 * the answer, with which the prompt ends.
 *
 * llama.cpp renders a short conversation with and without a generation prompt, and finds form.opening by comparing both
 * texts. Without a generation prompt, some templates end the conversation with EOS. If EOS begins with the same bytes
 * as the answer's opening, these bytes are missing from form.opening. So this function prefers `opening`, the end of
 * the request's prompt, which has these bytes. */
std::string chat_answer_opening(const chat_form &form, bool continues, const std::string &opening)
{
    const bool is_known = !form.opening.empty() && opening.compare(0, form.reopening.size(), form.reopening) == 0;
    return continues || !is_known ? form.opening : opening;
}

/* Returns the last part of the prompt, which the grammar receives before the generated text.
 *
 * The form was derived from the prompt of a short conversation. A template can end the request's prompt differently. If
 * the form's grammar does not accept this different end, form.opening is returned. */
std::string chat_answer_prefill(const model *m, const chat_form &form, bool continues, const std::string &opening)
{
    if (continues) {
        return opening;
    }
    const std::string known = chat_answer_opening(form, false, opening);
    const bool begins =
        known == form.opening || form.grammar.empty() || form.is_lazy || chat_form_begins(m, form, known);
    return begins ? known : form.opening;
}

std::string chat_answer_syntax(const chat_form &form, bool continues, const std::string &opening)
{
    if (form.parser.empty()) {
        return "";
    }
    answer_syntax out;
    out.format = form.format;
    out.parser = form.parser;
    out.reopening = form.reopening;
    out.thinking_end = form.thinking_ends.empty() ? std::string() : form.thinking_ends.front();
    out.calls_once = form.calls_once;
    out.must_call = form.must_call;
    out.opening = chat_answer_opening(form, continues, opening);
    return out.written();
}

} // namespace

std::shared_ptr<const chat_documents> chat_answer_documents(const model *m, const chat_form &form,
                                                            const chat_request &request, const std::string &opening)
{
    const auto make = [&] {
        chat_documents made = {opening, request.follows_thinking, request.thinking_tokens_max, "", ""};
        made.syntax = chat_answer_syntax(form, request.continues(), opening);
        const std::string prefill = chat_answer_prefill(m, form, request.continues(), opening);
        made.constraint = chat_constraint(form, prefill, request);
        return std::make_shared<const chat_documents>(std::move(made));
    };
    if (request.continues()) {
        return make();
    }
    const std::lock_guard<std::mutex> hold(form.documents->lock);
    std::shared_ptr<const chat_documents> &last = form.documents->last;
    if (last == nullptr || last->opening != opening || last->follows_thinking != request.follows_thinking ||
        last->thinking_tokens_max != request.thinking_tokens_max) {
        last = make();
    }
    return last;
}
