#include "text/answer/answer_parser.h"

#include <sys/random.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "policy/utf8.h"
#include "text/answer/answer_reading.h"
#include "text/answer/answer_shortening.h"
#include "text/answer/call_arguments.h"

namespace {

using part = answer_reading::part;

constexpr size_t SHARE = 32;        /* an unfinished tool call is parsed again after it has grown by 1 / SHARE */
constexpr size_t SHORT = 512;       /* bytes. A smaller tool call is not shortened, because that would save too little
                                     * work */
constexpr size_t CLOSING_MAX = 96;  /* limit on the bytes that close a tool call */
constexpr size_t ID_CHARACTERS = 9; /* length of the ids that llmd makes; some templates require 9 */
constexpr size_t ID_BYTES_MAX = 64; /* limit on an id that a model has written */

struct diff {
    const char *kind;
    std::string text;
    size_t call = 0;
    std::string name, id;
};

std::string new_id()
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    unsigned char random[ID_CHARACTERS];
    if (getrandom(random, sizeof random, 0) != static_cast<ssize_t>(sizeof random)) {
        throw std::bad_alloc();
    }
    std::string out;
    for (const unsigned char byte : random) {
        out += digits[byte % (sizeof digits - 1)];
    }
    return out;
}

bool is_usable_id(const std::string &id)
{
    return !id.empty() && id.size() <= ID_BYTES_MAX &&
           std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c <= '~' && c != '"' && c != '\\'; });
}

bool is_blank(const std::string &text)
{
    return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

bool begins_with(const std::string &text, const std::string &head)
{
    return text.compare(0, head.size(), head) == 0;
}

utf8_part character_at(const std::string &text, size_t at)
{
    return utf8_part_of(reinterpret_cast<const uint8_t *>(text.data()) + at, text.size() - at);
}

/* Returns how many bytes at the end of the last call's arguments are not reported yet (call_arguments.h). */
size_t n_held_back(const answer_reading &reading)
{
    const std::string &arguments = reading.said.tool_calls.back().arguments;
    return arguments.size() - call_arguments_of(arguments).json.size();
}

int refuse(int status, const char *why, char *error, size_t error_bytes)
{
    if (error != nullptr && error_bytes > 0) {
        snprintf(error, error_bytes, "%s", why);
    }
    return status;
}

} // namespace

struct llm_answer_parser {
    answer_syntax syntax;
    std::unique_ptr<const answer_form> form; /* NULL if the whole answer is text */
    std::string incoming;                    /* received text; the part from `at` on has not been consumed yet */
    size_t at = 0;
    bool is_done = false;

    /* The parser gets the text base + pending. This is all text after the most recent begin of parsing, without the
     * parts that are no longer needed. */
    std::string base;        /* text that has been parsed. `mode` is the kind of its last part */
    common_chat_msg settled; /* the message that `base` contains */
    part mode = part::NONE;  /* NONE if base is the prompt's opening */
    std::string pending;
    common_chat_msg reported;
    size_t n_fit = 0;        /* number of leading bytes of `pending` that are known to fit the form */
    size_t next = 1;         /* `pending` is parsed next when it has this size */
    size_t long_at = 0;      /* size of base + pending at which a call is next shortened */
    bool is_outside = false; /* true after an error. Text is then reported without parsing, until parsing can begin
                              * again at a delimiter */

    /* State while the rest of a reported tool call is dropped, because the call is malformed. */
    bool is_in_broken_call = false;
    bool is_after_close = false; /* the closing delimiter of the broken call has been received, so text can follow */
    std::string skipped;         /* the last bytes of the broken call, which may be the beginning of a delimiter */

    /* State of the whole answer. This state is kept when parsing begins again after an error. */
    std::vector<std::string> ids; /* ids of the answer's calls */
    bool has_dropped = false;     /* a part of an unfinished or malformed call was not reported */
    size_t n_calls_before = 0;    /* number of the answer's earlier calls, which are not in `reported` */
    std::string blanks;           /* blanks that are reported as text if no call follows */
    bool is_after_call = false;
    std::vector<diff> diffs;
    std::string written;

    void begin(const std::string &opening);
    void take(const std::string &character);
    void examine();
    void give_up();
    void go_back(const std::string &rest);
    void skip(const std::string &character);
    void settle(const answer_reading &now);
    void shorten(const answer_reading &now);
    bool may_be_text(const std::string &rest) const;
    void report_unfinished(const answer_reading &now, bool is_cut);
    void finish(bool is_cut);
    size_t n_not_text(const answer_reading &now, size_t n_fitting) const;
    size_t end_after_thinking(size_t n_reported) const;

    void report_message(const common_chat_msg &now);
    void report_call(size_t i, const common_chat_tool_call &now);
    void end_calls(bool is_last_open);
    void report_text(const std::string &text);
    void report(const char *kind, const std::string &text, size_t call = 0);
    void feed(const char *text, size_t n_bytes, bool is_final, bool is_cut);
    void write();
};

/* ---- reporting --------------------------------------------------------------------------------------------------- */

void llm_answer_parser::report(const char *kind, const std::string &text, size_t call)
{
    if (text.empty()) {
        return;
    }
    if (!diffs.empty() && strcmp(diffs.back().kind, kind) == 0 && diffs.back().call == call) {
        diffs.back().text += text;
    } else {
        diffs.push_back({kind, text, call, "", ""});
    }
}

/* Blanks at the end of the text are held back, because blanks between text and a call do not count as text. Held-back
 * blanks are reported with the next text, or at the end of the answer. */
void llm_answer_parser::report_text(const std::string &text)
{
    const size_t last = text.find_last_not_of(" \t\r\n");
    const size_t n_reported = last == std::string::npos ? 0 : last + 1;
    if (n_reported > 0) {
        report("text", blanks + text.substr(0, n_reported));
        blanks.clear();
        is_after_call = false;
    }
    blanks += text.substr(n_reported);
}

void llm_answer_parser::report_call(size_t i, const common_chat_tool_call &now)
{
    const size_t call = n_calls_before + i;
    const std::string arguments = call_arguments_of(now.arguments).json;
    if (i == reported.tool_calls.size()) {
        const bool is_free = std::find(ids.begin(), ids.end(), now.id) == ids.end();
        ids.push_back(is_free && is_usable_id(now.id) ? now.id : new_id());
        blanks.clear();
        is_after_call = true;
        diffs.push_back({"call", arguments, call, now.name, ids.back()});
        reported.tool_calls.push_back(now);
        reported.tool_calls.back().arguments = arguments;
        return;
    }
    std::string &before = reported.tool_calls[i].arguments;
    if (begins_with(arguments, before)) {
        report("call", arguments.substr(before.size()), call);
        before = arguments;
    }
}

void llm_answer_parser::report_message(const common_chat_msg &now)
{
    if (begins_with(now.reasoning_content, reported.reasoning_content)) {
        report("reasoning", now.reasoning_content.substr(reported.reasoning_content.size()));
        reported.reasoning_content = now.reasoning_content;
    }
    if (begins_with(now.content, reported.content)) {
        if (now.content.size() > reported.content.size()) {
            report_text(now.content.substr(reported.content.size()));
        }
        reported.content = now.content;
    }
    for (size_t i = 0; i < now.tool_calls.size() && !now.tool_calls[i].name.empty(); i++) {
        report_call(i, now.tool_calls[i]);
    }
}

/* Reports {} as the arguments of a call without arguments. If the last call is incomplete, reports only { for this
 * call, because the call's arguments are not known. */
void llm_answer_parser::end_calls(bool is_last_open)
{
    const size_t n = reported.tool_calls.size();
    for (size_t i = 0; i < n; i++) {
        if (reported.tool_calls[i].arguments.empty()) {
            report("call", is_last_open && i + 1 == n ? "{" : "{}", n_calls_before + i);
        }
    }
    has_dropped = has_dropped || (is_last_open && n > 0);
    n_calls_before = ids.size();
}

/* ---- parsing ----------------------------------------------------------------------------------------------------- */

/* The opening is not reported, because it is the end of the prompt and was not generated by the model. */
void llm_answer_parser::begin(const std::string &opening)
{
    base = opening;
    settled = form->read(base).said;
    reported = settled;
    mode = part::NONE;
    pending.clear();
    n_fit = 0;
    next = 1;
    long_at = base.size() + SHORT;
}

void llm_answer_parser::take(const std::string &character)
{
    if (form == nullptr) {
        report("text", character);
        return;
    }
    if (is_in_broken_call) {
        skip(character);
        return;
    }
    const bool may_begin = form->may_begin_marker(character[0]);
    const bool has_all_calls = syntax.calls_once && !ids.empty();
    if (is_outside && (has_all_calls || !may_begin || is_blank(character))) { /* parsing never begins again at a blank,
                                                                               * because parsers skip blanks before a
                                                                               * delimiter */
        report_text(character);
        return;
    }
    if (is_outside) {
        is_outside = false;
        begin(syntax.reopening);
    }
    if (mode != part::NONE && pending.empty() && !may_begin) {
        mode == part::TEXT ? report_text(character) : report("reasoning", character);
        return;
    }
    pending += character;
    if (pending.size() >= next) {
        examine();
    }
}

void llm_answer_parser::examine()
{
    const answer_reading now = form->read(base + pending);
    if (!now.fits) {
        give_up();
        return;
    }
    n_fit = pending.size();
    report_message(now.said);
    const std::string &said = now.last == part::TEXT ? now.said.content : now.said.reasoning_content;
    if ((now.last == part::TEXT || now.last == part::REASONING) && !said.empty()) {
        settle(now);
    } else {
        if (now.last == part::CALL && base.size() + pending.size() >= long_at) {
            shorten(now);
        }
        next = pending.size() + std::max<size_t>(1, (base.size() - syntax.opening.size() + pending.size()) / SHARE);
    }
}

/* Called if the text ends within a tool call. Removes the parts of the call from base + pending that no longer matter
 * (answer_shortening.h). Removes nothing if the shorter text is parsed differently. */
void llm_answer_parser::shorten(const answer_reading &now)
{
    const std::string text = base + pending;
    const answer_shortening left = answer_shortened(text, now, syntax.format == COMMON_CHAT_FORMAT_PEG_GEMMA4);
    const size_t n_left = left.head.size() + left.n_tail;
    if (n_left == text.size()) {
        return;
    }
    long_at = 2 * text.size(); /* if shortening fails, it is tried again at this size */
    const std::string tail = text.substr(text.size() - left.n_tail);
    const answer_reading less = form->read(left.head + tail);
    if (!answer_says_less(now, less, left.n_calls) || n_held_back(now) != n_held_back(less)) {
        return;
    }
    for (size_t i = 0; i < left.n_calls; i++) {
        if (reported.tool_calls[i].arguments.empty()) {
            report("call", "{}", n_calls_before + i);
        }
    }
    n_calls_before += left.n_calls;
    base = left.head;
    pending = tail;
    settled = reported = less.said;
    for (common_chat_tool_call &one : reported.tool_calls) {
        one.arguments = call_arguments_of(one.arguments).json;
    }
    mode = part::NONE;
    n_fit = pending.size();
    long_at = std::max(syntax.opening.size() + SHORT, 2 * n_left);
}

/* Called if the text ends with content or reasoning. Empties `pending`. The bytes of `pending` are added to `base` only
 * if they did more than make this content or reasoning longer. */
void llm_answer_parser::settle(const answer_reading &now)
{
    const bool is_text = now.last == part::TEXT;
    common_chat_msg longer = settled;
    (is_text ? longer.content : longer.reasoning_content) += pending;
    if (mode != now.last || now.said != longer) {
        base += pending;
        settled = now.said;
    }
    reported = settled;
    mode = now.last;
    pending.clear();
    n_fit = 0;
    next = 1;
}

/* Returns how many of the first n_fitting bytes of `pending` must not be reported as text. These are the bytes whose
 * content has been reported, and the delimiters that directly follow these bytes. */
size_t llm_answer_parser::n_not_text(const answer_reading &now, size_t n_fitting) const
{
    const size_t n_reported = std::min(std::max(now.n_reported, base.size()) - base.size(), n_fitting);
    const size_t most = std::min(n_fitting, n_reported + CLOSING_MAX);
    for (size_t n = most; n > n_reported; n--) {
        if (form->is_whole(base + pending.substr(0, n))) {
            return n;
        }
    }
    return now.said.content.empty() && now.said.tool_calls.empty() ? end_after_thinking(n_reported) : n_reported;
}

/* If the delimiter that closes reasoning is at n_reported in `pending`, returns the position after this delimiter. The
 * opening of a new message (syntax.reopening) can follow, and is skipped, too. Returns n_reported if reasoning is not
 * closed there. */
size_t llm_answer_parser::end_after_thinking(size_t n_reported) const
{
    size_t end = std::min(pending.find_first_not_of(" \t\r\n", n_reported), pending.size());
    if (syntax.thinking_end.empty() || pending.compare(end, syntax.thinking_end.size(), syntax.thinking_end) != 0) {
        return n_reported;
    }
    end += syntax.thinking_end.size();
    if (pending.compare(end, syntax.reopening.size(), syntax.reopening) == 0) {
        end += syntax.reopening.size();
    }
    return std::min(pending.find_first_not_of(" \t\r\n", end), pending.size());
}

/* Called when the text no longer fits the form. Finds by bisection how much of the text fits, and reports that part.
 * The first character that does not fit is reported as text. Exception: if a reported call is incomplete, the rest of
 * this call is dropped. But if the call's arguments are complete, and no delimiter closes this family's calls, the rest
 * of the answer is text. Otherwise everything up to the end of the answer would be dropped. A call whose name is
 * incomplete has not been reported, so all of it becomes text. */
void llm_answer_parser::give_up()
{
    size_t fits = n_fit, too_long = pending.size();
    while (too_long - fits > 1) {
        const size_t middle = fits + (too_long - fits) / 2;
        (form->read(base + pending.substr(0, middle)).fits ? fits : too_long) = middle;
    }
    while (fits > 0 && (static_cast<unsigned char>(pending[fits]) & 0xc0) == 0x80) {
        fits--;
    }
    const answer_reading now = form->read(base + pending.substr(0, fits));
    size_t n_said = 0;
    if (now.fits) {
        report_message(now.said);
        n_said = std::min(n_not_text(now, fits), fits);
    }
    const std::string until = base + pending.substr(0, n_said);
    const bool is_in_call = now.fits && !reported.tool_calls.empty() && !form->is_whole(until);
    const bool is_unnamed = is_in_call && now.unnamed_call != SIZE_MAX && now.unnamed_call >= base.size();
    n_said = is_unnamed ? now.unnamed_call - base.size() : n_said;
    const bool is_call_over =
        is_in_call && !form->has_closing_marks() && call_arguments_of(reported.tool_calls.back().arguments).is_whole;
    is_in_broken_call = is_in_call && !is_unnamed && !is_call_over;
    end_calls(is_in_broken_call);
    if (is_in_broken_call) {
        is_after_close = form->ends_with_closing_mark(until);
        skipped.clear();
        go_back(pending.substr(n_said));
        return;
    }
    size_t n_text = fits - n_said;
    if (n_said == 0 || n_text > 0) { /* consumes at least one character, to make progress */
        n_text += character_at(pending, fits).n_bytes;
        report_text(pending.substr(n_said, n_text));
    }
    go_back(pending.substr(n_said + n_text));
    is_outside = true;
}

/* Puts the text `rest`, which was consumed last, back into `incoming`, so that it is consumed a second time. */
void llm_answer_parser::go_back(const std::string &rest)
{
    if (at >= rest.size() && incoming.compare(at - rest.size(), rest.size(), rest) == 0) {
        at -= rest.size();
    } else {
        incoming = rest + incoming.substr(at);
        at = 0;
    }
    pending.clear();
}

/* Drops the rest of a malformed call. The malformed call ends where text or another call follows its closing delimiter.
 * If there is no closing delimiter, the malformed call ends before the next delimiter with which calls begin. */
void llm_answer_parser::skip(const std::string &character)
{
    skipped += character;
    while (!skipped.empty()) {
        const answer_mark mark = form->mark_at(skipped);
        if (mark.what == answer_mark::UNSURE) {
            return;
        }
        const bool is_closing = mark.what == answer_mark::CLOSING;
        if (mark.what == answer_mark::BEGIN || (is_after_close && !is_closing && !is_blank(skipped.substr(0, 1)))) {
            is_in_broken_call = false;
            is_outside = true;
            go_back(std::exchange(skipped, {}));
            return;
        }
        is_after_close = is_after_close || is_closing;
        skipped.erase(0, std::max<size_t>(1, mark.n_bytes));
    }
}

/* Called if a limit (such as max_tokens) has cut the answer off. `rest` is the unreported end of the answer.
 * Returns whether `rest` is text and not the beginning of a call. */
bool llm_answer_parser::may_be_text(const std::string &rest) const
{
    const bool is_thinking = mode == part::REASONING && pending.find(syntax.thinking_end) == std::string::npos;
    const size_t begin = std::min(rest.find_first_not_of(" \t\r\n"), rest.size());
    const bool is_after_text = mode == part::TEXT && rest.size() == pending.size();
    return !syntax.must_call && !is_thinking && form->may_be_text(rest.substr(begin), is_after_text);
}

/* Called if the answer ends before its form is complete. If a tool call was reported and another could follow, the
 * unreported end of the answer is not text: it is part of the reported call or begins another one. */
void llm_answer_parser::report_unfinished(const answer_reading &now, bool is_cut)
{
    const size_t n = n_not_text(now, pending.size());
    const std::string rest = pending.substr(n);
    const bool may_go_on = !syntax.calls_once || !form->is_whole(base + pending.substr(0, n));
    if (is_blank(rest) || (!reported.tool_calls.empty() && may_go_on)) {
        return;
    }
    if (is_cut && !may_be_text(rest)) {
        is_after_call = true; /* `rest` began a call */
    } else {
        report_text(rest);
    }
}

void llm_answer_parser::finish(bool is_cut)
{
    bool is_open = form != nullptr && !is_outside && !pending.empty();
    if (is_open) {
        const answer_reading now = form->read(base + pending);
        report_message(now.said);
        is_open = !form->is_whole(base + pending);
        if (is_open) {
            report_unfinished(now, is_cut);
        }
    }
    end_calls(is_open);
    if (!is_after_call) {
        report("text", blanks);
    }
    is_done = true;
}

void llm_answer_parser::feed(const char *text, size_t n_bytes, bool is_final, bool is_cut)
{
    diffs.clear();
    incoming.erase(0, at);
    at = 0;
    incoming.append(text, n_bytes);
    for (;;) {
        while (at < incoming.size()) {
            const utf8_part next_part = character_at(incoming, at);
            if (next_part.is_cut && !is_final) {
                break;
            }
            if (!next_part.is_valid) {
                incoming.replace(at, next_part.n_bytes, "\xef\xbf\xbd");
            }
            const std::string character = incoming.substr(at, next_part.is_valid ? next_part.n_bytes : 3);
            at += character.size();
            take(character);
        }
        if (!is_final || pending.empty() || is_outside || form == nullptr || form->read(base + pending).fits) {
            break;
        }
        give_up();
    }
    if (is_final) {
        finish(is_cut);
    }
}

void llm_answer_parser::write()
{
    common_json out = common_json::array();
    for (const diff &d : diffs) {
        common_json item = {{"kind", d.kind}, {"text", d.text}};
        if (strcmp(d.kind, "call") == 0) {
            item["call"] = d.call;
        }
        if (!d.id.empty()) {
            item["name"] = d.name;
            item["id"] = d.id;
        }
        out.push_back(item);
    }
    written = out.dump_safe();
}

/* ---- the functions of answer_parser.h ---------------------------------------------------------------------------- */

int answer_parser_open(const char *syntax, size_t n_bytes, llm_answer_parser **out, char *error, size_t error_bytes)
{
    *out = nullptr;
    try {
        auto p = std::make_unique<llm_answer_parser>();
        if (n_bytes > 0) {
            std::shared_ptr<const answer_grammar> grammar = answer_grammar::of({syntax, n_bytes});
            p->syntax = grammar->syntax;
            p->form = std::make_unique<const answer_form>(std::move(grammar));
            p->begin(p->syntax.opening);
        }
        *out = p.release();
        return LLM_OK;
    } catch (const std::bad_alloc &) {
        return refuse(LLM_NO_MEMORY, "out of memory for the parser of an answer", error, error_bytes);
    } catch (const std::exception &e) {
        return refuse(LLM_INVALID, e.what(), error, error_bytes);
    }
}

int answer_parser_feed(llm_answer_parser *p, const char *text, size_t n_bytes, int is_final, int is_cut,
                       const char **diffs, size_t *n_diffs_bytes)
{
    if (p->is_done) {
        return LLM_MISUSE;
    }
    try {
        p->feed(text, n_bytes, is_final != 0, is_cut != 0);
        p->write();
    } catch (const std::exception &) { /* only a lack of memory causes an exception here */
        p->is_done = true;
        return LLM_NO_MEMORY;
    }
    *diffs = p->written.data();
    *n_diffs_bytes = p->written.size();
    return LLM_OK;
}

void answer_parser_close(llm_answer_parser *p)
{
    delete p;
}

size_t answer_parser_rescan_bytes(const llm_answer_parser *p)
{
    return p->form == nullptr || p->is_outside ? 0 : p->base.size() + p->pending.size();
}

uint64_t answer_parser_work(const llm_answer_parser *p)
{
    return p->form == nullptr ? 0 : p->form->n_bytes_read;
}

bool answer_parser_has_dropped(const llm_answer_parser *p)
{
    return p->has_dropped;
}
