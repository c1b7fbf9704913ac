/* template_driver.cpp: a separate program. tests/real_templates/driver.py starts it, and documents its commands. It
 * renders, masks and parses with libllm, and also renders with llama.cpp. It reads JSON commands from stdin, one per
 * line, and answers each with one line of JSON. Its models have only a vocabulary: 256 bytes, control tokens, and
 * words. */
#include <common/chat.h>
#include <nlohmann/json.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "text/answer/answer_parser.h"
#include "text/chat/chat.h"
#include "text/constraint/constraint.h"
#include "text/grammar/grammar.h"

namespace {

using json = nlohmann::ordered_json;

constexpr size_t N_BYTES = 256, LITERALS_MAX = 2000, STEPS_MAX = 100000;

/* ---- vocabulary ---------------------------------------------------------------------------------------------------- */

struct vocabulary {
    model base = {}; /* first: model_ops get a pointer to it */
    std::string source;
    std::vector<std::string> texts; /* texts of the tokens from N_BYTES on; the control tokens come first */
    size_t n_controls = 0;
    std::vector<int32_t> ends;
    int32_t bos = -1, eos = -1;

    std::string text(int32_t token) const
    {
        const size_t i = static_cast<size_t>(token);
        return i < N_BYTES ? std::string(1, static_cast<char>(i)) : texts[i - N_BYTES];
    }
    bool is_control(int32_t token) const
    {
        const size_t i = static_cast<size_t>(token);
        return i >= N_BYTES && i - N_BYTES < n_controls;
    }
    int32_t find(const std::string &word) const
    {
        const auto at = std::find(texts.begin(), texts.end(), word);
        return at == texts.end() ? -1 : static_cast<int32_t>(N_BYTES + static_cast<size_t>(at - texts.begin()));
    }
    /* Returns the tokens whose text occurs at byte `at` of `all`, from the longest text to the shortest. Looks only at
     * the first n texts. */
    std::vector<int32_t> tokens_at(const std::string &all, size_t at, bool with_controls, size_t n) const
    {
        std::vector<int32_t> out;
        for (size_t i = with_controls ? 0 : n_controls; i < n; i++) {
            if (all.compare(at, texts[i].size(), texts[i]) == 0) {
                out.push_back(static_cast<int32_t>(N_BYTES + i));
            }
        }
        std::stable_sort(out.begin(), out.end(),
                         [this](int32_t a, int32_t b) { return text(a).size() > text(b).size(); });
        out.push_back(static_cast<uint8_t>(all[at]));
        return out;
    }
};

const vocabulary *of(const model *m)
{
    return reinterpret_cast<const vocabulary *>(m);
}

int64_t op_tokenize(const model *m, const char *text, size_t n_bytes, bool, bool parse_special, int32_t *out,
                    size_t n_out)
{
    const std::string all(text, n_bytes);
    size_t n = 0;
    for (size_t at = 0; at < n_bytes; n++) {
        const int32_t token = of(m)->tokens_at(all, at, parse_special, of(m)->texts.size()).front();
        if (n < n_out) {
            out[n] = token;
        }
        at += of(m)->text(token).size();
    }
    return n <= n_out ? static_cast<int64_t>(n) : -static_cast<int64_t>(n);
}

int32_t op_piece(const model *m, int32_t token, bool special, char *out, size_t n_out)
{
    const std::string text = of(m)->is_control(token) && !special ? "" : of(m)->text(token);
    if (text.size() > n_out) {
        return -static_cast<int32_t>(text.size());
    }
    memcpy(out, text.data(), text.size());
    return static_cast<int32_t>(text.size());
}

bool op_is_end(const model *m, int32_t token)
{
    const std::vector<int32_t> &ends = of(m)->ends;
    return std::find(ends.begin(), ends.end(), token) != ends.end();
}

const model_ops *ops()
{
    static model_ops out = {};
    out.tokenize = op_tokenize;
    out.piece = op_piece;
    out.is_end = op_is_end;
    out.is_control = [](const model *m, int32_t token) { return of(m)->is_control(token); };
    out.chat_template = [](const model *m) { return of(m)->source.c_str(); };
    out.bos = [](const model *m) { return of(m)->bos; };
    out.eos = [](const model *m) { return of(m)->eos; };
    return &out;
}

void finish(vocabulary *v)
{
    static uint64_t n_made = 0; /* libllm keeps the tables of a vocabulary under this number */
    n_made++;
    v->base.ops = ops();
    v->base.info.n_vocab = static_cast<uint32_t>(N_BYTES + v->texts.size());
    v->base.info.n_ctx = 1 << 20;
    memcpy(v->base.info.identity, &n_made, sizeof n_made);
}

void add_word(const std::string &word, std::vector<std::string> *to)
{
    if (word.size() > 1 && word.size() <= MODEL_PIECE_BYTES_MAX &&
        std::find(to->begin(), to->end(), word) == to->end()) {
        to->push_back(word);
    }
}

int32_t control_of(const json &command, const char *name, const vocabulary &v)
{
    return command.contains(name) ? v.find(command.at(name).get<std::string>()) : -1;
}

/* ---- templates ----------------------------------------------------------------------------------------------------- */

struct opened {
    vocabulary words;
    chat *templ = nullptr;
    std::string bos, eos;

    ~opened()
    {
        chat_close(templ);
    }
};

std::vector<std::unique_ptr<opened>> all_opened;

opened &chosen(const json &command)
{
    return *all_opened.at(command.at("model").get<size_t>());
}

json fault(int status, const std::string &text)
{
    return {{"status", status}, {"error", text}};
}

json open_template(const json &command)
{
    auto next = std::make_unique<opened>();
    vocabulary &v = next->words;
    v.source = command.at("source").get<std::string>();
    next->bos = command.value("bos", "");
    next->eos = command.value("eos", "");
    for (const std::string &word : {next->bos, next->eos}) {
        add_word(word, &v.texts);
    }
    for (const char *list : {"ends", "controls"}) {
        for (const json &word : command.value(list, json::array())) {
            add_word(word.get<std::string>(), &v.texts);
        }
    }
    v.n_controls = v.texts.size();
    for (const std::string &word : command.value("words", std::vector<std::string>())) {
        add_word(word, &v.texts);
    }
    v.bos = control_of(command, "bos", v);
    v.eos = control_of(command, "eos", v);
    v.ends.push_back(v.eos);
    for (const json &word : command.value("ends", json::array())) {
        v.ends.push_back(v.find(word.get<std::string>()));
    }
    finish(&v);
    char error[4096] = "";
    const int status = chat_open(&v.base, &next->templ, error, sizeof error);
    if (status != LLM_OK) {
        return fault(status, error);
    }
    all_opened.push_back(std::move(next));
    return {{"model", all_opened.size() - 1}, {"has_template", chat_has_template(all_opened.back()->templ) != 0}};
}

std::string text_of(const vocabulary &v, const json &tokens)
{
    std::string out;
    for (const json &token : tokens) {
        out += v.text(token.get<int32_t>());
    }
    return out;
}

/* Returns the token sequences of the constraint as text, because a test does not know the tokens' numbers. */
json thinking_of(const vocabulary &v, const json &constraint)
{
    json out = json::object();
    const json thinking = constraint.is_object() ? constraint.value("thinking", json::object()) : json::object();
    for (const auto &[name, value] : thinking.items()) {
        const bool is_list = value.is_array() && !value.empty();
        if (is_list && value.front().is_number()) {
            out[name] = text_of(v, value);
        } else if (name == "ends") {
            out[name] = json::array();
            for (const json &end : value) {
                out[name].push_back(end.at("text"));
            }
        } else {
            out[name] = value;
        }
    }
    return out;
}

json render(const json &command)
{
    const opened &o = chosen(command);
    const std::string request = command.at("request").dump();
    llm_prompt p;
    char error[4096] = "";
    const int status = chat_render(o.templ, request.data(), request.size(), &p, error, sizeof error);
    if (status != LLM_OK) {
        return fault(status, error);
    }
    const std::string constraint(p.constraint, p.n_constraint_bytes), stops(p.stops, p.n_stops_bytes);
    json out = {{"prompt", std::string(p.text, p.n_text_bytes)},
                {"n_tokens", p.n_tokens},
                {"n_history", p.n_history},
                {"n_head", p.n_head},
                {"boundaries", std::vector<int32_t>(p.boundaries, p.boundaries + p.n_boundaries)},
                {"is_after", p.is_after != 0},
                {"syntax", std::string(p.syntax, p.n_syntax_bytes)},
                {"constraint", constraint.empty() ? json() : json::parse(constraint)},
                {"stops", stops.empty() ? json::array() : json::parse(stops)}};
    out["thinking"] = thinking_of(o.words, out["constraint"]);
    llm_prompt_free(&p);
    return out;
}

/* ---- answers ------------------------------------------------------------------------------------------------------- */

std::string bytes_of(const json &command)
{
    if (!command.contains("hex")) {
        return command.at("text").get<std::string>();
    }
    const std::string hex = command.at("hex").get<std::string>();
    std::string out;
    for (size_t i = 0; i + 1 < hex.size(); i += 2) {
        out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    }
    return out;
}

void put_text(const std::string &text, json *out)
{
    static const char *const DIGITS = "0123456789abcdef";
    std::string hex;
    for (const char c : text) {
        const auto byte = static_cast<uint8_t>(c);
        hex += {DIGITS[byte >> 4], DIGITS[byte & 15]};
    }
    (*out)["text"] = text; /* JSON cannot contain invalid UTF-8, so `text` gets replacement characters; `hex` is
                            * exact */
    (*out)["hex"] = hex;
}

/* Appends a diff to the text or call that it belongs to, as a client of a stream does. */
void add_diff(const json &diff, json *out)
{
    const std::string kind = diff.at("kind").get<std::string>();
    const std::string text = diff.at("text").get<std::string>();
    if (kind != "call") {
        std::string &all = (*out)[kind == "text" ? "content" : "reasoning"].get_ref<std::string &>();
        all += text;
        return;
    }
    const auto number = diff.at("call").get<size_t>();
    json &calls = (*out)["calls"];
    while (calls.size() <= number) {
        calls.push_back({{"name", nullptr}, {"id", nullptr}, {"arguments", ""}});
    }
    for (const char *name : {"name", "id"}) {
        if (diff.contains(name)) {
            calls[number][name] = diff.at(name);
        }
    }
    calls[number]["arguments"].get_ref<std::string &>() += text;
}

/* The parser of one answer, and the message that a client assembles from the parser's diffs. */
class reader {
  public:
    json said = {{"content", ""}, {"reasoning", ""}, {"calls", json::array()}, {"diffs", json::array()}};

    explicit reader(const std::string &syntax)
    {
        char error[4096] = "";
        if (!syntax.empty() &&
            answer_parser_open(syntax.data(), syntax.size(), &parser, error, sizeof error) != LLM_OK) {
            throw std::runtime_error(error);
        }
    }
    reader(const reader &) = delete;
    reader &operator=(const reader &) = delete;
    ~reader()
    {
        answer_parser_close(parser);
    }

    void feed(const std::string &text, bool is_final, bool is_cut)
    {
        if (parser == nullptr) { /* without a syntax, all is text */
            said["content"].get_ref<std::string &>() += text;
            return;
        }
        const char *diffs = nullptr;
        size_t n_diffs = 0;
        if (answer_parser_feed(parser, text.data(), text.size(), is_final, is_cut, &diffs, &n_diffs) != LLM_OK) {
            throw std::runtime_error("the parser refused: " + text);
        }
        for (const json &diff : json::parse(std::string(diffs, n_diffs))) {
            add_diff(diff, &said);
            said["diffs"].push_back(diff);
        }
    }

  private:
    llm_answer_parser *parser = nullptr;
};

json parse(const json &command)
{
    const std::string text = bytes_of(command);
    const auto sizes = command.value("pieces", std::vector<size_t>()); /* a longer text repeats this list */
    reader answer(command.at("syntax").get<std::string>());
    for (size_t at = 0, i = 0; at <= text.size(); i++) {
        const size_t wanted = sizes.empty() ? text.size() : std::max<size_t>(1, sizes[i % sizes.size()]);
        const size_t n = std::min(text.size() - at, wanted);
        const bool is_final = at + n == text.size();
        answer.feed(text.substr(at, n), is_final, command.value("cut", false));
        at += is_final ? n + 1 : n;
    }
    return answer.said;
}

/* Runs the function in a fork of this process: nothing changes here. */
json in_a_fork(const std::function<json()> &function)
{
    int ends[2];
    const pid_t child = pipe(ends) == 0 ? fork() : -1;
    if (child == 0) {
        const auto write_result =
            [&]() noexcept { /* an exception ends the child, which must never return */
                             const std::string said = function().dump(-1, ' ', false, json::error_handler_t::replace);
                             return write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size());
            };
        _exit(write_result() ? 0 : 1);
    }
    if (child < 0) {
        throw std::runtime_error(strerror(errno));
    }
    close(ends[1]);
    std::string said;
    char buffer[4096];
    for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) {
        said.append(buffer, static_cast<size_t>(n));
    }
    close(ends[0]);
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) {
        throw std::runtime_error("the fork failed");
    }
    return json::parse(said);
}

/* Ends the answer after each piece, and returns two results for each end: one of a parser that got the text in pieces,
 * and one of a parser that got it whole. A parser takes no more text after the end. So a fork of this process ends the
 * answer. To parse the text before each end again would take minutes. */
json cuts(const json &command)
{
    const std::string syntax = command.at("syntax").get<std::string>(), text = bytes_of(command);
    const bool is_cut = command.at("cut").get<bool>();
    reader streamed(syntax), whole(syntax);
    json out = json::array();
    size_t at = 0;
    for (const size_t n : command.at("pieces").get<std::vector<size_t>>()) {
        streamed.feed(text.substr(at, n), false, false);
        at += n;
        out.push_back(in_a_fork([&]() -> json {
            streamed.feed("", true, is_cut);
            whole.feed(text.substr(0, at), true, is_cut);
            return {{"n_bytes", at}, {"streamed", streamed.said}, {"whole", whole.said}};
        }));
    }
    return {{"cuts", out}};
}

/* ---- walks --------------------------------------------------------------------------------------------------------- */

/* The quoted texts of the grammar. With a token for each of them, a random walk finds the end of a free text. */
std::vector<std::string> literals_of(const std::string &grammar)
{
    std::vector<std::string> out;
    bool is_set = false;
    for (size_t i = 0; i < grammar.size() && out.size() < LITERALS_MAX; i++) {
        if (grammar[i] == '\\') {
            i++;
        } else if (grammar[i] == '[') {
            is_set = true;
        } else if (grammar[i] == ']') {
            is_set = false;
        } else if (grammar[i] == '#' && !is_set) {
            i = std::min(grammar.find('\n', i), grammar.size());
        } else if (grammar[i] == '"' && !is_set) {
            std::string text;
            for (i++; i < grammar.size() && grammar[i] != '"'; i++) {
                const char c = grammar[i] == '\\' ? grammar[++i] : grammar[i];
                const bool is_escape = grammar[i - 1] == '\\';
                text += !is_escape ? c : c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
            }
            add_word(text, &out);
        }
    }
    return out;
}

class walker {
  public:
    walker(const vocabulary &from, const json &command)
        : v(from), closers(command.value("closers", std::vector<std::string>())),
          avoided(command.value("avoid", std::vector<std::string>())), random(command.value("seed", 0u)),
          n_soft(command.value("soft_bytes", size_t{200})), n_most(command.value("max_bytes", size_t{0}))
    {
        const json &document = command.at("constraint");
        n_spelling = v.texts.size();
        for (const std::string &word : closers) {
            add_word(word, &v.texts);
        }
        for (const std::string &word : literals_of(document.value("grammar", ""))) {
            add_word(word, &v.texts);
        }
        finish(&v);
        rules = constraint::read(&v.base, document.dump());
    }

    json walk(const std::string &given, const std::string &instead)
    {
        follow(given, instead);
        if (refused_at.is_null()) {
            wander();
        }
        const bool holds = rules->holds();
        json out = {{"is_complete", is_done || !holds || rules->may_end()},
                    {"holds", holds},
                    {"refused_at", refused_at},
                    {"pieces", pieces},
                    {"forced", forced}};
        put_text(text, &out);
        return out;
    }

  private:
    vocabulary v;
    std::vector<std::string> closers, avoided;
    std::unique_ptr<constraint> rules;
    std::mt19937 random;
    size_t n_spelling; /* of the vocabulary's texts: those that the constraint was made with */
    size_t n_soft, n_most;
    std::string text;
    std::vector<size_t> pieces;
    json forced = json::array(); /* [byte, text] of the tokens that the constraint chose instead of the model */
    json refused_at;             /* byte of the text that the grammar does not allow; null: it allows all */
    bool is_done = false;

    void accept(int32_t token)
    {
        const std::string piece = v.is_control(token) && !rules->shows(token) ? "" : v.text(token);
        text += piece;
        pieces.push_back(piece.size());
        rules->accept(token);
        if (pieces.size() > STEPS_MAX) {
            throw std::runtime_error("the walk has no end");
        }
    }

    bool accept_forced()
    {
        const int32_t token = rules->forced();
        if (token >= 0) {
            forced.push_back({text.size(), v.text(token)});
            accept(token);
        }
        return token >= 0;
    }

    /* Generates the text `given` as a model with no other preference would, up to the first byte that the grammar does
     * not allow. After the constraint has chosen a token itself, the model continues with `instead`, unless that is
     * empty. */
    void follow(std::string given, std::string instead)
    {
        for (size_t at = 0; !is_done && refused_at.is_null();) {
            if (accept_forced()) {
                given = instead.empty() ? given : instead;
                at = instead.empty() ? at : 0;
                instead.clear();
                continue;
            }
            if (at == given.size()) {
                return;
            }
            const bool holds = rules->holds();
            const std::vector<int32_t> tokens = v.tokens_at(given, at, true, n_spelling);
            const auto next = std::find_if(tokens.begin(), tokens.end(),
                                           [&](int32_t token) { return !holds || rules->allows(token); });
            if (next == tokens.end()) {
                refused_at = at;
            } else if (op_is_end(&v.base, *next)) {
                is_done = true;
            } else {
                accept(*next);
                at += v.text(*next).size();
            }
        }
    }

    /* Returns the weight of the token in a random choice. After n_soft bytes, closing marks get a larger weight. */
    double weight(int32_t token) const
    {
        const bool winds_down = text.size() >= n_soft;
        const std::string piece = v.text(token);
        if (op_is_end(&v.base, token)) {
            return winds_down ? 1e6 : 5;
        }
        const auto is_in = [&](const std::vector<std::string> &list) {
            return std::find(list.begin(), list.end(), piece) != list.end();
        };
        if (is_in(avoided)) {
            return 1e-9;
        }
        if (piece.size() > 1) {
            return winds_down && is_in(closers) ? 300 : 3;
        }
        const auto byte = static_cast<uint8_t>(piece[0]);
        if (winds_down && byte != 0 && strchr("\"'}])", byte) != nullptr) {
            return byte == '"' ? 300 : 50;
        }
        return byte >= 0x80 ? 0.1 : byte < ' ' ? 0.2 : byte == ' ' ? 0.5 : winds_down ? 0.3 : 1;
    }

    void wander()
    {
        token_set allowed;
        while (!is_done && text.size() < n_most && rules->holds()) {
            if (accept_forced()) {
                continue;
            }
            allowed.assign(v.base.info.n_vocab, false);
            rules->find_allowed(allowed);
            std::vector<int32_t> tokens;
            std::vector<double> weights;
            for (int32_t token = 0; token < static_cast<int32_t>(v.base.info.n_vocab); token++) {
                if (allowed.has(token)) {
                    tokens.push_back(token);
                    weights.push_back(weight(token));
                }
            }
            if (tokens.empty()) {
                throw std::runtime_error("the mask allows nothing, and no end");
            }
            const int32_t token = tokens[std::discrete_distribution<size_t>(weights.begin(), weights.end())(random)];
            if (op_is_end(&v.base, token)) {
                is_done = true;
            } else {
                accept(token);
            }
        }
    }
};

json walk(const json &command)
{
    const std::string given = command.contains("text") || command.contains("hex") ? bytes_of(command) : "";
    return walker(chosen(command).words, command).walk(given, command.value("instead", ""));
}

/* ---- llama.cpp ----------------------------------------------------------------------------------------------------- */

json upstream(const json &command)
{
    const opened &o = chosen(command);
    common_chat_templates_inputs in;
    in.messages = common_chat_msgs_parse_oaicompat(common_json::parse(command.at("messages").dump()));
    if (command.contains("tools")) {
        in.tools = common_chat_tools_parse_oaicompat(common_json::parse(command.at("tools").dump()));
    }
    in.tool_choice = common_chat_tool_choice_parse_oaicompat(command.value("tool_choice", "auto"));
    in.parallel_tool_calls = command.value("parallel_tool_calls", false);
    in.add_generation_prompt = command.value("add_generation_prompt", true);
    in.continue_final_message = common_chat_continuation_parse(common_json::make(command.value("continues", false)));
    in.enable_thinking = command.value("enable_thinking", true);
    in.reasoning_format = common_reasoning_format_from_name(command.value("reasoning_format", "auto"));
    in.json_schema = command.contains("json_schema") ? command.at("json_schema").dump() : "";
    const json kwargs = command.value("kwargs", json::object());
    for (const auto &[name, value] : kwargs.items()) {
        in.chat_template_kwargs[name] = value.dump();
    }
    const common_chat_templates_ptr all = common_chat_templates_init(nullptr, o.words.source, o.bos, o.eos);
    const common_chat_params found = common_chat_templates_apply(all.get(), in);
    json triggers = json::array();
    for (const common_grammar_trigger &one : found.grammar_triggers) {
        triggers.push_back({{"type", static_cast<int>(one.type)}, {"value", one.value}});
    }
    return {{"prompt", found.prompt},
            {"generation_prompt", found.generation_prompt},
            {"grammar", found.grammar},
            {"is_lazy", found.grammar_lazy},
            {"triggers", triggers},
            {"thinking_start", found.thinking_start_tag},
            {"thinking_ends", found.thinking_end_tags},
            {"preserved", found.preserved_tokens},
            {"stops", found.additional_stops}};
}

json answer(const json &command)
{
    const std::string op = command.at("op").get<std::string>();
    if (op == "open") {
        return open_template(command);
    }
    if (op == "render") {
        return render(command);
    }
    if (op == "parse") {
        return parse(command);
    }
    if (op == "cuts") {
        return cuts(command);
    }
    if (op == "walk") {
        return walk(command);
    }
    if (op == "upstream") {
        return upstream(command);
    }
    return fault(LLM_INVALID, "unknown command " + op);
}

} // namespace

int main()
{
    for (std::string line; std::getline(std::cin, line);) {
        json out;
        try {
            out = answer(json::parse(line));
        } catch (const std::exception &e) {
            out = fault(LLM_TEMPLATE, e.what());
        }
        std::cout << out.dump(-1, ' ', false, json::error_handler_t::replace) << std::endl;
    }
    return 0;
}
