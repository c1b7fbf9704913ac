#include "text/chat/chat_control.h"

#include <algorithm>
#include <stdexcept>
#include <sys/random.h>

namespace {

constexpr char DELETE = '\x7f'; /* JSON encoding, case changes and trimming leave this byte unchanged */
constexpr size_t SECRET_DIGITS = 16;

void append_tokens(const model *m, std::string_view text, bool parse_special, std::vector<int32_t> *out)
{
    if (text.empty()) {
        return;
    }
    const size_t before = out->size();
    out->resize(before + text.size() + 2);
    int64_t n =
        m->ops->tokenize(m, text.data(), text.size(), false, parse_special, out->data() + before, text.size() + 2);
    if (n < 0 && n != INT64_MIN) {
        out->resize(before + static_cast<size_t>(-n));
        n = m->ops->tokenize(m, text.data(), text.size(), false, parse_special, out->data() + before,
                             static_cast<size_t>(-n));
    }
    if (n < 0) {
        throw std::runtime_error("the rendered prompt cannot be tokenized");
    }
    out->resize(before + static_cast<size_t>(n));
}

/* Returns a random number in decimal digits. Template filters that change the case of letters do not change digits. */
std::string secret_number()
{
    uint64_t random;
    if (getentropy(&random, sizeof random) != 0) {
        throw std::runtime_error("the system gives no random numbers");
    }
    std::string digits;
    for (size_t i = 0; i < SECRET_DIGITS; i++, random /= 10) {
        digits += static_cast<char>('0' + random % 10);
    }
    return digits;
}

struct range {
    size_t begin, end;
};

/* The control words (texts of control tokens) in a rendered text. Words in `allowed` become control tokens. Words in
 * `refused` contain blocked bytes (chat_text), so they must not become control tokens. */
struct found_words {
    std::vector<range> allowed; /* ascending, without overlap */
    std::vector<range> refused; /* sorted by the begin of each range */
};

found_words find_words(const control_words &words, const chat_text &r)
{
    found_words out;
    std::vector<size_t> lengths;
    size_t taken = 0; /* end of the last allowed word */
    for (size_t at = words.next_begin(r.text, 0); at < r.text.size(); at = words.next_begin(r.text, at + 1)) {
        lengths.clear();
        if (words.longest_at(r.text, at, &lengths) == 0) {
            continue;
        }
        for (size_t i = lengths.size(); i-- > 0;) {
            const range place = {at, at + lengths[i]};
            const auto first = r.blocked.begin() + static_cast<ptrdiff_t>(at);
            const bool is_blocked =
                std::any_of(first, first + static_cast<ptrdiff_t>(lengths[i]), [](char b) { return b != 0; });
            if (is_blocked) {
                out.refused.push_back(place);
            } else if (at >= taken) {
                out.allowed.push_back(place);
                taken = place.end;
            }
        }
    }
    return out;
}

/* Finds the token of each allowed control word in out->tokens. Adds the positions before and after these tokens to
 * out->cuts. Returns false if the token of a word is not found. */
bool find_cuts(const control_words &words, const std::string &text, const std::vector<range> &allowed, size_t n_skipped,
               chat_tokens *out)
{
    size_t token = n_skipped;
    for (const range &word : allowed) {
        const int32_t id = words.token_of(std::string_view(text).substr(word.begin, word.end - word.begin));
        while (token < out->tokens.size() && out->tokens[token] != id) {
            token++;
        }
        if (token == out->tokens.size()) {
            return false;
        }
        if (out->cuts.empty() || out->cuts.back().byte != word.begin) {
            out->cuts.push_back({word.begin, token});
        }
        token++;
        out->cuts.push_back({word.end, token});
    }
    return true;
}

} // namespace

/* ---- control words ----------------------------------------------------------------------------------------------- */

control_words::control_words(const model *m)
{
    for (uint32_t t = 0; t < m->info.n_vocab; t++) {
        const int32_t token = static_cast<int32_t>(t);
        std::string text = m->ops->is_control(m, token) ? chat_token_text(m, token) : std::string();
        if (!text.empty()) {
            longest = std::max(longest, text.size());
            begins[static_cast<unsigned char>(text[0])] = true;
            words.push_back({std::move(text), token});
        }
    }
    std::stable_sort(words.begin(), words.end(), [](const word &a, const word &b) { return a.text < b.text; });
}

/* The control words with indices in [*low, *high) begin with the `depth` bytes of the text at `at`. Narrows this range
 * to the words in which the text's next byte follows. Returns false if there is no such word. */
bool control_words::narrow(std::string_view text, size_t at, size_t depth, size_t *low, size_t *high) const
{
    if (at + depth >= text.size()) {
        return false;
    }
    const auto byte_of = [depth](const word &w) {
        return w.text.size() > depth ? static_cast<int>(static_cast<unsigned char>(w.text[depth])) : -1;
    };
    const int next = static_cast<unsigned char>(text[at + depth]);
    const auto begin = words.begin() + static_cast<ptrdiff_t>(*low),
               end = words.begin() + static_cast<ptrdiff_t>(*high);
    const auto first = std::partition_point(begin, end, [&](const word &w) { return byte_of(w) < next; });
    const auto last = std::partition_point(first, end, [&](const word &w) { return byte_of(w) == next; });
    *low = static_cast<size_t>(first - words.begin());
    *high = static_cast<size_t>(last - words.begin());
    return *low < *high;
}

size_t control_words::longest_at(std::string_view text, size_t at, std::vector<size_t> *lengths) const
{
    size_t low = 0, high = begins[static_cast<unsigned char>(text[at])] ? words.size() : 0, best = 0;
    for (size_t depth = 0; narrow(text, at, depth, &low, &high); depth++) {
        if (words[low].text.size() == depth + 1) { /* the words are sorted, so the word that ends here is the first of
                                                    * the range */
            best = depth + 1;
            if (lengths != nullptr) {
                lengths->push_back(best);
            }
        }
    }
    return best;
}

bool control_words::is_begun_at(std::string_view text, size_t at) const
{
    size_t low = 0, high = begins[static_cast<unsigned char>(text[at])] ? words.size() : 0, depth = 0;
    while (narrow(text, at, depth, &low, &high)) {
        depth++;
    }
    return at + depth == text.size() && depth > 0 && low < high && words[high - 1].text.size() > depth;
}

int32_t control_words::token_of(std::string_view text) const
{
    const auto at = std::partition_point(words.begin(), words.end(), [&](const word &w) { return w.text < text; });
    return at != words.end() && at->text == text ? at->token : -1;
}

/* ---- markers ----------------------------------------------------------------------------------------------------- */

control_markers::control_markers(const control_words &words_, std::string_view request) : words(words_)
{
    /* Every marker begins with DELETE. A client could write a marker into a message. In JSON, DELETE is written as the
     * byte itself or with \u. This is so even in JSON inside JSON, such as the arguments of a tool call. If the request
     * contains neither the byte nor \u, the markers need no random number. An alternative would be a number that does
     * not occur in the request. The search for this number would take quadratic time, and could miss escaped digits. */
    const bool may_have_delete =
        request.find(DELETE) != std::string_view::npos || request.find("\\u") != std::string_view::npos;
    const std::string number = may_have_delete ? secret_number() : "0";
    open = DELETE + number + "(";
    close = DELETE + number + ")";
    cut = DELETE + number + "|";
}

/* Returns whether a control word begins at the end of the text. Text that follows in the prompt must not complete this
 * word. */
bool control_markers::ends_in_word(std::string_view text) const
{
    for (size_t at = text.size() - std::min(words.bytes_max(), text.size()); at < text.size(); at++) {
        if (words.is_begun_at(text, at)) {
            return true;
        }
    }
    return false;
}

bool control_markers::wraps(std::string_view text) const
{
    for (size_t at = 0; (at = words.next_begin(text, at)) < text.size(); at++) {
        if (words.longest_at(text, at) > 0) {
            return true;
        }
    }
    return ends_in_word(text);
}

std::string control_markers::wrap(std::string_view text) const
{
    std::string out;
    size_t copied = 0;
    for (size_t at = 0; (at = words.next_begin(text, at)) < text.size();) {
        const size_t n = words.longest_at(text, at);
        if (n == 0) {
            at++;
            continue;
        }
        out.append(text.substr(copied, at - copied)).append(open).append(text.substr(at, n)).append(close);
        at += n;
        copied = at;
    }
    out.append(text.substr(copied));
    return ends_in_word(text.substr(copied)) ? out.append(cut) : out;
}

std::string control_markers::sentinel(size_t i) const
{
    return open.substr(0, open.size() - 1) + "#" + std::to_string(i) + ";";
}

void control_markers::unwrap(chat_text *rendered) const
{
    const std::string_view stem = std::string_view(open).substr(0, open.size() - 1);
    chat_text out;
    std::vector<size_t> opened, closed; /* byte offsets in the text without markers */
    size_t copied = 0;
    const std::string &text = rendered->text;
    for (size_t at = text.find(stem); at != std::string::npos; at = text.find(stem, at)) {
        const char kind = at + stem.size() < text.size() ? text[at + stem.size()] : '\0';
        if (kind != '(' && kind != ')' && kind != '|') {
            at++;
            continue;
        }
        out.text.append(text, copied, at - copied);
        out.blocked.append(rendered->blocked, copied, at - copied);
        (kind == '(' ? opened : closed).push_back(out.text.size());
        at += open.size();
        copied = at;
    }
    if (copied == 0) {
        return;
    }
    out.text.append(text, copied);
    out.blocked.append(rendered->blocked, copied);
    for (const size_t at : opened) { /* block the control word after each opening marker. The template may have removed
                                      * the word */
        const size_t n = words.longest_at(out.text, at);
        std::fill_n(out.blocked.begin() + static_cast<ptrdiff_t>(at), n, '\1');
    }
    for (const size_t at : closed) { /* block every control word that ends at a closing marker or a marker `cut` (see
                                      * wrap), or extends beyond such a marker */
        const size_t first = at - std::min(at, words.bytes_max());
        for (size_t begin = first; begin < at; begin++) {
            if (begin + words.longest_at(out.text, begin) >= at) {
                out.blocked[at - 1] = '\1';
            }
        }
    }
    *rendered = std::move(out);
}

/* ---- tokenizing -------------------------------------------------------------------------------------------------- */

std::string chat_token_text(const model *m, int32_t token)
{
    std::string text(64, '\0');
    int32_t n = m->ops->piece(m, token, true, text.data(), text.size());
    if (n < 0) {
        text.resize(static_cast<size_t>(-n));
        n = m->ops->piece(m, token, true, text.data(), text.size());
    }
    text.resize(static_cast<size_t>(std::max(n, 0)));
    return text;
}

bool chat_adds_bos(const model *m)
{
    int32_t tokens[4];
    const int64_t n = m->ops->tokenize(m, "", 0, true, false, tokens, 4);
    return n > 0 && tokens[0] == m->ops->bos(m);
}

/* The allowed control words divide the text into passages. If a passage contains a refused control word, the passage is
 * tokenized separately, as plain text. All other passages are tokenized together with the allowed control words, by the
 * model's own rules. So a refused control word affects only its own passage. If it changed the tokens of earlier
 * messages, a session's tokens would not be a prefix of its next prompt. */
chat_tokens chat_tokenize(const model *m, const control_words &words, bool adds_bos, const chat_text &rendered)
{
    const found_words found = find_words(words, rendered);
    const std::string_view text = rendered.text;
    chat_tokens out;
    size_t done = 0, refused = 0;
    for (size_t i = 0; i <= found.allowed.size(); i++) {
        const size_t begin = i == 0 ? 0 : found.allowed[i - 1].end;
        const size_t end = i == found.allowed.size() ? text.size() : found.allowed[i].begin;
        while (refused < found.refused.size() && found.refused[refused].begin < begin &&
               found.refused[refused].end <= begin) {
            refused++;
        }
        if (refused < found.refused.size() && found.refused[refused].begin < end) {
            append_tokens(m, text.substr(done, begin - done), true, &out.tokens);
            append_tokens(m, text.substr(begin, end - begin), false, &out.tokens);
            done = end;
        }
    }
    append_tokens(m, text.substr(done), true, &out.tokens);
    const int32_t bos = m->ops->bos(m);
    const bool is_missing = adds_bos && bos >= 0 && (out.tokens.empty() || out.tokens[0] != bos);
    if (is_missing) {
        out.tokens.insert(out.tokens.begin(), bos);
    }
    if (!find_cuts(words, rendered.text, found.allowed, is_missing ? 1 : 0, &out)) {
        out.cuts.clear();
    }
    return out;
}
