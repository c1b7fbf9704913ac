#include "text/constraint/constraint.h"

#include <nlohmann/json.hpp>

#include "text/grammar/document_cache.h"

namespace {

using json = nlohmann::json;

/* Limits of a constraint document (constraint.h). llmd writes the document, but clients determine its size. Each tool
 * that a client offers adds triggers and end delimiters of reasoning (thinking.h). */
constexpr size_t SEQUENCE_MAX = 256; /* limit on the tokens of a delimiter that begins or ends reasoning */
constexpr size_t MARKS_MAX = 512, MARK_BYTES_MAX = 256;
constexpr size_t TRIGGERS_MAX = 1024, TRIGGER_BYTES_MAX = 4096;
constexpr size_t PRESERVED_MAX = 1024;

constexpr size_t GUESS_BYTES_MAX = 128;

} // namespace

/* Parses a constraint document. Members of the document can be missing. A member of the wrong type is an error. */
class constraint_reader {
  public:
    constraint_reader(const model *of, const std::string &document) : m(of), out(new constraint(of))
    {
        all = json::parse(document, nullptr, false);
        if (!all.is_object()) {
            throw grammar_fault("the constraint is no JSON object");
        }
    }

    std::unique_ptr<constraint> read()
    {
        try {
            for (const int32_t token : tokens_of(all, "preserved", PRESERVED_MAX)) {
                char piece[MODEL_PIECE_BYTES_MAX];
                const int32_t n = m->ops->piece(m, token, true, piece, sizeof piece);
                out->preserved.emplace(token, std::string(piece, n > 0 ? static_cast<size_t>(n) : 0));
            }
            read_thinking();
            read_grammar();
        } catch (const json::exception &e) {
            throw grammar_fault(std::string("the constraint document is malformed: ") + e.what());
        } catch (const std::regex_error &e) {
            throw grammar_fault(std::string("a trigger is no regular expression: ") + e.what());
        }
        return std::move(out);
    }

  private:
    const model *m;
    std::unique_ptr<constraint> out;
    json all;

    int32_t token_of(const json &number) const
    {
        const int64_t token = number.get<int64_t>();
        if (token < 0 || token >= static_cast<int64_t>(m->info.n_vocab)) {
            throw grammar_fault("the constraint has a token outside the vocabulary");
        }
        return static_cast<int32_t>(token);
    }

    std::vector<int32_t> tokens_of(const json &object, const char *name, size_t most) const
    {
        std::vector<int32_t> tokens;
        const auto list = object.find(name);
        if (list == object.end()) {
            return tokens;
        }
        if (!list->is_array() || list->size() > most) {
            throw grammar_fault(std::string("the constraint's ") + name + ": no list of tokens, or too long");
        }
        for (const json &one : *list) {
            tokens.push_back(token_of(one));
        }
        return tokens;
    }

    void read_thinking()
    {
        const auto found = all.find("thinking");
        if (found == all.end() || found->is_null()) {
            return;
        }
        thinking &t = out->thought;
        t.start = tokens_of(*found, "start", SEQUENCE_MAX);
        t.forced = tokens_of(*found, "forced", SEQUENCE_MAX);
        const json ends = found->value("ends", json::array());
        if (ends.size() > MARKS_MAX) {
            throw grammar_fault("the constraint has too many texts that end reasoning");
        }
        for (const json &end : ends) {
            const std::string text = end.value("text", std::string());
            if (text.size() > MARK_BYTES_MAX) {
                throw grammar_fault("a text of the constraint that ends reasoning is too long");
            }
            t.add_end({tokens_of(end, "tokens", SEQUENCE_MAX), text});
        }
        t.max = found->value("max", int64_t{-1});
        t.is_inside = found->value("is_open", false);
    }

    void read_trigger(const json &one)
    {
        const std::string type = one.at("type").get<std::string>();
        const std::string value = one.value("value", std::string());
        if (value.size() > TRIGGER_BYTES_MAX) {
            throw grammar_fault("a trigger of the constraint is too long");
        }
        if (type == "word") {
            out->triggers.add_word(value);
        } else if (type == "token") {
            out->triggers.add_token(token_of(one.at("token")));
        } else if (type == "pattern" || type == "pattern_full") {
            out->triggers.add_pattern(value, type == "pattern_full");
        } else {
            throw grammar_fault("the constraint has a trigger of an unknown type");
        }
    }

    void read_grammar()
    {
        const std::string text = all.value("grammar", std::string());
        if (text.empty()) {
            return;
        }
        out->rules = std::make_shared<const grammar>(grammar::read(text, m));
        out->is_waiting = all.value("lazy", false);
        if (!out->is_waiting) {
            out->begin_walk();
            const std::string prefill = all.value("prefill", std::string());
            if (!prefill.empty() && !out->walk->accept(-1, prefill.data(), prefill.size())) {
                throw grammar_fault("the grammar does not allow the beginning of the answer");
            }
            return;
        }
        const json triggers = all.value("triggers", json::array());
        if (triggers.size() > TRIGGERS_MAX) {
            throw grammar_fault("the constraint has too many triggers");
        }
        for (const json &one : triggers) {
            read_trigger(one);
        }
    }
};

/* The key in the cache begins with the identity of the model, because a grammar can name tokens of the vocabulary. The
 * copy of a kept constraint gets the address of the model `m`, because the model of the kept constraint may be closed
 * by now. */
std::unique_ptr<constraint> constraint::read(const model *m, const std::string &document)
{
    static document_cache<constraint> *const kept = new document_cache<constraint>;
    const std::string identity(reinterpret_cast<const char *>(m->info.identity), sizeof m->info.identity);
    std::string key = identity + document;
    std::shared_ptr<const constraint> found = kept->find(key);
    if (found == nullptr) {
        found = constraint_reader(m, document).read();
        kept->keep(std::move(key), found);
    }
    std::unique_ptr<constraint> out(new constraint(*found));
    out->m = m;
    return out;
}

/* Returns the token's text as the grammar receives it. For most control tokens, this is the empty text. Exception: the
 * control tokens for which `shows` is true. */
std::string constraint::text_of(int32_t token) const
{
    char piece[MODEL_PIECE_BYTES_MAX];
    const int32_t n = m->ops->piece(m, token, shows(token), piece, sizeof piece);
    return std::string(piece, n > 0 ? static_cast<size_t>(n) : 0);
}

void constraint::begin_walk()
{
    vocabulary = vocabulary_trie::of(m);
    walk.emplace(rules, vocabulary);
    if (!is_guessed) {
        walk->never_guess();
    }
}

/* Called when the answer contains a trigger. Gives the grammar the text that begins with the trigger. If the grammar
 * does not accept this text, the text only looked like a trigger. In this case, the grammar stays inactive, and the
 * answer parser treats the text as ordinary text. */
bool constraint::holds()
{
    if (!begun.empty()) {
        const std::vector<trigger::piece> pieces = std::move(begun);
        begun.clear();
        begin_walk();
        for (const trigger::piece &p : pieces) {
            if (walk && !walk->accept(p.token, p.text.data(), p.text.size())) {
                walk.reset();
            }
            forget();
        }
        is_waiting = !walk;
        triggers.forget();
    }
    return walk.has_value();
}

bool constraint::allows(int32_t token)
{
    if (m->ops->is_end(m, token)) {
        return may_end();
    }
    const std::string text = text_of(token);
    return walk->allows(token, text.data(), text.size());
}

/* `walk` finds the allowed tokens in the prefix tree of the vocabulary. This tree has neither control tokens nor tokens
 * that end an answer. So tokens of these two kinds are checked one by one. */
void constraint::find_allowed(token_set &allowed)
{
    walk->find_allowed(m->info.n_vocab, allowed);
    for (const auto &[token, text] : preserved) {
        allowed.set(token, allows(token));
    }
    for (const int32_t token : vocabulary->ends) {
        allowed.set(token, may_end());
    }
}

/* Returns the token with the longest text with which the n bytes begin, and the length of this text. */
int32_t constraint::longest(const char *text, size_t n, size_t *n_bytes) const
{
    int32_t best = vocabulary->longest(text, n, n_bytes);
    for (const auto &[token, own] : preserved) {
        if (!own.empty() && own.size() <= n && (best < 0 || own.size() > *n_bytes) &&
            own.compare(0, own.size(), text, own.size()) == 0) {
            best = token;
            *n_bytes = own.size();
        }
    }
    return best;
}

/* Returns a guess of the token with which the model begins to write this text, and the token's length. This is usually
 * the longest token with which the text begins. Exception: of several blanks before a word, the last blank belongs to
 * the token of the word. The tokenizer itself is not used, because some tokenizers treat the beginning of a text in a
 * special way. */
int32_t constraint::likely(const char *text, size_t n, size_t *n_bytes) const
{
    const int32_t token = longest(text, n, n_bytes);
    const size_t n_longest = *n_bytes;
    if (token < 0 || n_longest < 2 || n_longest == n || text[n_longest - 1] != ' ' || text[n_longest] == ' ' ||
        !blank_style::is_blank(static_cast<uint8_t>(text[n_longest - 2]))) {
        return token;
    }
    size_t n_word = 0;
    const bool has_word = longest(text + n_longest - 1, n - n_longest + 1, &n_word) >= 0 && n_word > 1;
    const int32_t shorter = has_word ? longest(text, n_longest - 1, n_bytes) : -1;
    *n_bytes = shorter >= 0 ? *n_bytes : n_longest;
    return shorter >= 0 ? shorter : token;
}

void constraint::never_guess()
{
    is_guessed = false;
    if (walk) {
        walk->never_guess();
    }
}

size_t constraint::guess(int32_t *tokens, size_t n_max)
{
    if (!walk) {
        return 0;
    }
    const std::string text = walk->guess(GUESS_BYTES_MAX);
    size_t n = 0;
    for (size_t at = 0, n_bytes = 0; n < n_max && at < text.size(); at += n_bytes) {
        const int32_t token = likely(text.data() + at, text.size() - at, &n_bytes);
        if (token < 0) {
            break;
        }
        tokens[n++] = token;
    }
    return n;
}

/* When the reasoning budget is used up, `thought` forces the tokens that end the reasoning. The grammar takes
 * precedence. A forced token that the grammar does not allow would end the request with grammar_fault. So the budget is
 * dropped instead. */
int32_t constraint::forced()
{
    const int32_t token = thought.due();
    if (token >= 0 && holds() && !allows(token)) {
        thought.give_up();
        return -1;
    }
    return token;
}

/* Counts the bytes that are still missing to complete the answer's last character. A forced token must not split a
 * character. */
void constraint::follow_characters(const std::string &text)
{
    for (const char c : text) {
        const uint8_t byte = static_cast<uint8_t>(c);
        if (n_missing > 0 && byte >> 6 == 2) {
            n_missing--;
        } else {
            n_missing = byte < 0xc0 ? 0 : byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
        }
    }
}

/* Some models begin a tool call inside <think> without closing the reasoning. So the delimiter that ended the reasoning
 * can itself begin a tool call. Therefore the delimiter's tokens are passed to the triggers. Earlier tokens are not
 * passed, because they are reasoning. */
void constraint::accept_ending()
{
    triggers.forget();
    for (const trigger::piece &p : thought.ending()) {
        if (is_waiting && begun.empty() && triggers.accept(p.token, p.text)) {
            begun = triggers.found();
        } else if (!begun.empty()) {
            begun.push_back(p);
        }
    }
    if (begun.empty()) {
        triggers.forget();
    }
}

/* Passes the token to `thought`, which tracks reasoning. Also passes the token to the grammar if the grammar is active.
 * If the grammar is not active, passes the token to the triggers, except in reasoning. The token that ended the
 * reasoning reaches the triggers through accept_ending, as part of the end delimiter. */
void constraint::accept(int32_t token)
{
    const std::string text = text_of(token);
    const bool was_thinking = thought.is_inside;
    follow_characters(text);
    thought.accept(token, text, n_missing == 0);
    if (m->ops->is_end(m, token)) {
        return;
    }
    if (walk) {
        if (!walk->accept(token, text.data(), text.size())) {
            throw grammar_fault("the answer no longer matches its grammar");
        }
    } else if (is_waiting && begun.empty() && !was_thinking && !thought.is_inside) {
        if (triggers.accept(token, text)) {
            begun = triggers.found();
        }
    } else if (was_thinking && !thought.is_inside) {
        accept_ending();
    }
}
