#include "text/chat/chat_after.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace {

using range = chat_tail::range;

bool is_of_template(const chat_text &t, size_t begin, size_t end)
{
    return std::all_of(t.blocked.begin() + static_cast<ptrdiff_t>(begin),
                       t.blocked.begin() + static_cast<ptrdiff_t>(end), [](char b) { return b == 0; });
}

/* Returns the positions of sentinels 0 to n - 1. Returns nullopt unless each of them occurs exactly once. *last
 * receives the position after the last occurrence of sentinel n, or 0 if sentinel n does not occur. */
std::optional<std::vector<range>> find_marks(const std::string &text, const control_markers &markers, size_t n,
                                             size_t *last)
{
    const std::string first = markers.sentinel(0), stem = first.substr(0, first.size() - 2);
    std::vector<range> found(n, {0, 0});
    size_t n_found = 0;
    *last = 0;
    for (size_t p = text.find(stem); p != std::string::npos; p = text.find(stem, p + stem.size())) {
        const size_t i = std::strtoul(text.c_str() + p + stem.size(), nullptr, 10);
        const std::string whole = i <= n ? markers.sentinel(i) : std::string();
        if (i == n && text.compare(p, whole.size(), whole) == 0) {
            *last = p + whole.size();
            continue;
        }
        if (i >= n || found[i].end > 0 || text.compare(p, whole.size(), whole) != 0) {
            return std::nullopt;
        }
        found[i] = {p, p + whole.size()};
        n_found++;
    }
    return n_found == n ? std::optional(found) : std::nullopt;
}

/* Returns the position of the next control word that ends a turn and was written by the template itself, or NONE. */
size_t next_end(const model *m, const control_words &words, const chat_text &t, size_t from)
{
    for (size_t at = from; at < t.text.size();) {
        const size_t n = words.longest_at(t.text, at);
        if (n > 0 && is_of_template(t, at, at + n) &&
            m->ops->is_end(m, words.token_of(std::string_view(t.text).substr(at, n)))) {
            return at;
        }
        at += std::max<size_t>(n, 1);
    }
    return chat_tail::NONE;
}

/* Returns whether the text in [begin, end) only closes a tool call. This text follows the sentinel in the call's
 * arguments, and ends where the turn ends. Two parts of the text may come from the request:
 * - the end of the JSON arguments, which is "}
 * - the call's id, which is one word
 * Anything else from the request would belong to another message. */
bool closes_a_call(const chat_text &t, size_t begin, size_t end)
{
    std::string given;
    for (size_t i = begin; i < end; i++) {
        if (t.blocked[i] != 0) {
            given += t.text[i];
        }
    }
    const std::string closing = "\"}";
    const size_t from = given.compare(0, closing.size(), closing) == 0 ? closing.size() : 0;
    return given.find_first_of(" \t\r\n", from) == std::string::npos;
}

bool said_last(const model *m, const chat_after &after, std::string_view text)
{
    std::string said;
    for (const int32_t token : after.last) {
        said += chat_token_text(m, token);
    }
    return after.rest.empty() && said.size() >= text.size() &&
           std::string_view(said).substr(said.size() - text.size()) == text;
}

/* Returns the end of the answer that contains the sentinel `mark`. An answer with tool calls ends at the control word
 * that ends its turn. Returns NONE if the text before this control word does more than close a call (closes_a_call). An
 * answer without tool calls ends at the sentinel. Exception: the template can write text between the sentinel and the
 * end of the turn, for example a word that closes a block. If the model generated the same text last, the answer ends
 * after this text. */
size_t end_of_answer(const model *m, const control_words &words, const chat_text &t, const chat_after &after,
                     range mark, bool has_calls)
{
    const size_t stop = next_end(m, words, t, mark.end);
    if (has_calls) {
        return stop != chat_tail::NONE && closes_a_call(t, mark.end, stop) ? stop : chat_tail::NONE;
    }
    const bool is_said = stop != chat_tail::NONE && is_of_template(t, mark.end, stop) &&
                         said_last(m, after, std::string_view(t.text).substr(mark.end, stop - mark.end));
    return is_said ? stop : mark.end;
}

} // namespace

size_t chat_tail::place_of(size_t byte) const
{
    if (byte < begin) {
        return NONE;
    }
    size_t place = byte - begin + n_front;
    for (const range &one : removed) {
        place -= one.end <= byte ? one.end - one.begin : 0;
    }
    return place;
}

std::optional<chat_tail> chat_tail_after(const model *m, const control_words &words, const control_markers &markers,
                                         const chat_text &rendered, const chat_after &after, chat_answer form,
                                         size_t n_marks, bool *has_tools)
{
    size_t tools = 0;
    const std::optional<std::vector<range>> marks = find_marks(rendered.text, markers, n_marks, &tools);
    if (!marks.has_value()) {
        return std::nullopt;
    }
    chat_tail tail;
    tail.begin = end_of_answer(m, words, rendered, after, marks->front(), form == chat_answer::calls);
    tail.removed.assign(marks->begin() + 1, marks->end());
    std::sort(tail.removed.begin(), tail.removed.end(), [](range a, range b) { return a.begin < b.begin; });
    if (tail.begin == chat_tail::NONE || (!tail.removed.empty() && tail.removed.front().begin < tail.begin)) {
        return std::nullopt;
    }
    *has_tools = tools > tail.begin;
    tail.n_front = after.rest.size();
    tail.text = {after.rest, std::string(tail.n_front, '\1')};
    size_t done = tail.begin;
    for (size_t i = 0; i <= tail.removed.size(); i++) {
        const size_t end = i < tail.removed.size() ? tail.removed[i].begin : rendered.text.size();
        tail.text.text.append(rendered.text, done, end - done);
        tail.text.blocked.append(rendered.blocked, done, end - done);
        done = i < tail.removed.size() ? tail.removed[i].end : end;
    }
    return tail;
}

bool chat_tail_keeps_spelling(const model *m, const chat_tail &tail, const chat_tokens &tokens)
{
    const bool is_all = tokens.cuts.empty();
    const size_t n_tokens = is_all ? tokens.tokens.size() : tokens.cuts.front().token;
    const std::string_view expected =
        std::string_view(tail.text.text).substr(0, is_all ? tail.text.text.size() : tokens.cuts.front().byte);
    std::string spelled;
    for (size_t i = 0; i < n_tokens && spelled.size() <= expected.size(); i++) {
        spelled += chat_token_text(m, tokens.tokens[i]);
    }
    return spelled == expected;
}
