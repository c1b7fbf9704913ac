#include "text/chat_splice.h"

#include <algorithm>
#include <cstdlib>

namespace {

/* What a template may put in front of an answer, or leave out, by whether and how the model reasons. */
const char *const REASONING_TAGS[] = {"<think>", "</think>", "[THINK]", "[/THINK]", "<seed:think>", "</seed:think>"};
const char *const BLANKS = " \t\r\n";

bool begins_with(std::string_view text, std::string_view head)
{
    return text.substr(0, head.size()) == head;
}

std::string_view without_blanks_behind(std::string_view text)
{
    const size_t last = text.find_last_not_of(BLANKS);
    return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

/* What opens an answer, without what depends on reasoning. */
std::string_view core_of(std::string_view opening)
{
    for (;;) {
        opening = without_blanks_behind(opening);
        const auto tag = std::find_if(std::begin(REASONING_TAGS), std::end(REASONING_TAGS), [&](std::string_view t) {
            return opening.size() >= t.size() && opening.substr(opening.size() - t.size()) == t;
        });
        if (tag == std::end(REASONING_TAGS)) {
            return opening;
        }
        opening.remove_suffix(std::string_view(*tag).size());
    }
}

bool is_of_template(const chat_text &t, size_t begin, size_t end)
{
    return std::all_of(t.blocked.begin() + static_cast<ptrdiff_t>(begin),
                       t.blocked.begin() + static_cast<ptrdiff_t>(end), [](char b) { return b == 0; });
}

/* The sentinels found, in order of their places; one that is not there exactly once has none. */
struct sentinel_places {
    std::vector<size_t> at; /* per splice; npos: none */

    sentinel_places(const std::string &text, const control_markers &markers, size_t n) : at(n, std::string::npos)
    {
        const std::string first = markers.sentinel(0), stem = first.substr(0, first.size() - 2);
        std::vector<bool> seen(n, false);
        for (size_t p = text.find(stem); p != std::string::npos; p = text.find(stem, p + stem.size())) {
            const size_t i = std::strtoul(text.c_str() + p + stem.size(), nullptr, 10);
            if (i < n && text.compare(p, markers.sentinel(i).size(), markers.sentinel(i)) == 0) {
                at[i] = seen[i] ? std::string::npos : p;
                seen[i] = true;
            }
        }
    }
};

/* Templates without a generation prompt: the answer follows what asks for it, and the blanks between are the answer's,
 * but for those that also end the prompt. */
size_t begin_of_bare_answer(std::string_view all, std::string_view blanks_at_end, size_t from, size_t at)
{
    const size_t body = from + without_blanks_behind(all.substr(from, at - from)).size();
    return begins_with(all.substr(body, at - body), blanks_at_end) ? body + blanks_at_end.size() : at;
}

/* Where the opening of the answer begins whose text begins at `at`, behind `from`; npos when that is not certain. */
size_t begin_of_answer(const control_words &words, const chat_text &t, const std::string &opening, size_t from,
                       size_t at)
{
    const size_t n_blanks = std::min(opening.find_first_not_of(BLANKS), opening.size());
    const std::string_view wanted = core_of(std::string_view(opening).substr(n_blanks));
    if (wanted.empty()) {
        return std::string::npos;
    }
    const size_t n_control = words.longest_at(wanted, 0);
    const size_t behind = std::string_view(t.text)
                              .substr(from, at - from)
                              .rfind(wanted.substr(0, n_control > 0 ? n_control : wanted.size()));
    if (behind == std::string::npos || behind < n_blanks) {
        return std::string::npos;
    }
    const size_t found = from + behind;
    const size_t begin = found - n_blanks;
    const std::string_view core = core_of(std::string_view(t.text).substr(found, at - found));
    const bool is_alike = begins_with(core, wanted) || (core.size() > n_control && begins_with(wanted, core));
    const bool has_blanks = t.text.compare(begin, n_blanks, opening, 0, n_blanks) == 0;
    return is_alike && has_blanks && is_of_template(t, begin, at) ? begin : std::string::npos;
}

/* Text before the first control token, or all of it, spells itself. */
bool keeps_spelling(const model *m, std::string_view text, const chat_tokens &t)
{
    const size_t n_tokens = t.cuts.empty() ? t.tokens.size() : t.cuts.front().token;
    const std::string_view expected = t.cuts.empty() ? text : text.substr(0, t.cuts.front().byte);
    std::string spelled;
    for (size_t i = 0; i < n_tokens && spelled.size() <= expected.size(); i++) {
        spelled += chat_token_text(m, t.tokens[i]);
    }
    return spelled == expected;
}

} // namespace

std::vector<size_t> spliced_text::place(const control_markers &markers, const std::optional<std::string> &opening)
{
    std::vector<size_t> refused;
    const sentinel_places places(rendered.text, markers, splices.size());
    const std::string_view all = rendered.text, blanks_at_end = all.substr(without_blanks_behind(all).size());
    size_t from = 0; /* behind the last sentinel, so that no two searches go over the same text */
    for (size_t i = 0; i < splices.size(); i++) {
        const size_t at = places.at[i];
        if (!opening.has_value() || at == std::string::npos || at < from) {
            refused.push_back(splices[i].message);
            continue;
        }
        const size_t begin = opening->empty() ? begin_of_bare_answer(all, blanks_at_end, from, at)
                                              : begin_of_answer(*words, rendered, *opening, from, at);
        from = at + markers.sentinel(i).size();
        if (begin == std::string::npos) {
            refused.push_back(splices[i].message);
        } else {
            ranges.push_back({begin, from});
        }
    }
    return refused;
}

chat_tokens spliced_text::tokenize(size_t n_bytes, std::vector<size_t> *refused) const
{
    chat_tokens out;
    size_t done = 0;
    for (size_t i = 0;; i++) {
        const bool is_last = i == ranges.size() || ranges[i].end > n_bytes;
        const size_t end = is_last ? n_bytes : ranges[i].begin;
        const chat_text stretch = {rendered.text.substr(done, end - done), rendered.blocked.substr(done, end - done)};
        const chat_tokens t = chat_tokenize(m, *words, adds_bos && i == 0, stretch);
        if (i > 0 && refused != nullptr && !keeps_spelling(m, stretch.text, t)) {
            refused->push_back(splices[i - 1].message);
        }
        for (const chat_tokens::cut &cut : t.cuts) {
            out.cuts.push_back({done + cut.byte, out.tokens.size() + cut.token});
        }
        out.tokens.insert(out.tokens.end(), t.tokens.begin(), t.tokens.end());
        if (is_last) {
            return out;
        }
        out.cuts.push_back({end, out.tokens.size()});
        out.tokens.insert(out.tokens.end(), splices[i].tokens.begin(), splices[i].tokens.end());
        done = ranges[i].end;
        out.cuts.push_back({done, out.tokens.size()});
    }
}

bool spliced_text::is_inside_splice(size_t byte) const
{
    return std::any_of(ranges.begin(), ranges.end(), [byte](const range &r) { return r.begin < byte && byte < r.end; });
}

std::string spliced_text::shown() const
{
    std::string out;
    size_t done = 0;
    for (size_t i = 0; i < ranges.size(); i++) {
        out.append(rendered.text, done, ranges[i].begin - done);
        for (const int32_t token : splices[i].tokens) {
            out += chat_token_text(m, token);
        }
        done = ranges[i].end;
    }
    return out.append(rendered.text, done);
}
