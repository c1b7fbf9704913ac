#include "text/template/chat_compile.h"

#include <common/common.h>
#include <common/jinja/caps.h>
#include <common/jinja/lexer.h>
#include <common/jinja/parser.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "text/template/chat_budget.h"
#include "text/template/chat_guard.h"

namespace {

/* The largest known templates have a source of 60 KB. The parser recurses for each bracket, block and chained operator.
 * The destructors of the syntax tree recurse in the same way. These limits keep the parser and the destructors within
 * the stack of chat_call_with_stack. */
constexpr size_t SOURCE_BYTES_MAX = 512 << 10, TOKENS_MAX = 50'000;
constexpr size_t NESTING_MAX = 200; /* limit on open brackets, and on open blocks */
constexpr size_t CHAIN_MAX = 4'000; /* limit on consecutive words or operators, such as not, else, elif, +. Each of them
                                     * makes the syntax tree one level deeper */

constexpr size_t NAMES_MAX = 256; /* limit on the variables of a template */

using jinja::token;

[[noreturn]] void refuse(const std::string &why)
{
    throw std::runtime_error(why);
}

bool is_one_of(const std::string &word, std::initializer_list<const char *> words)
{
    return std::any_of(words.begin(), words.end(), [&](const char *one) { return word == one; });
}

/* Returns whether a statement opens a block. `set` opens a block only without a value: {% set a %}...{% endset %}. */
bool opens_block(const std::vector<token> &tokens, size_t at)
{
    const std::string &word = tokens[at].value;
    if (word != "set") {
        return is_one_of(word, {"if", "for", "macro", "call", "filter"});
    }
    while (++at < tokens.size() && tokens[at].t != token::close_statement) {
        if (tokens[at].t == token::equals) {
            return false;
        }
    }
    return true;
}

bool is_chained(const token &t)
{
    switch (t.t) {
    case token::identifier: return is_one_of(t.value, {"not", "else", "elif", "and", "or", "is", "in", "if"});
    case token::unary_operator:
    case token::additive_binary_operator:
    case token::multiplicative_binary_operator:
    case token::comparison_binary_operator:
    case token::pipe:
    case token::dot:
    case token::open_paren:
    case token::open_square_bracket: return true;
    default: return false;
    }
}

/* Checks the nesting before the template is parsed, because the parser recurses and would overflow the stack at a
 * template that nests too deeply. The limit CHAIN_MAX applies to each statement or expression, and to the number of
 * elif branches in the template. */
void check_nesting(const std::vector<token> &tokens)
{
    size_t n_brackets = 0, n_blocks = 0, n_chain = 0, n_branches = 0;
    for (size_t i = 0; i < tokens.size(); i++) {
        const token &t = tokens[i];
        const bool is_statement = i > 0 && tokens[i - 1].t == token::open_statement && t.t == token::identifier;
        switch (t.t) {
        case token::open_paren:
        case token::open_square_bracket:
        case token::open_curly_bracket: n_brackets++; break;
        case token::close_paren:
        case token::close_square_bracket:
        case token::close_curly_bracket: n_brackets -= n_brackets > 0; break;
        case token::open_statement:
        case token::open_expression: n_brackets = n_chain = 0; break;
        default: break;
        }
        n_chain += is_chained(t);
        n_branches += is_statement && t.value == "elif";
        if (is_statement && opens_block(tokens, i)) {
            n_blocks++;
        } else if (is_statement && t.value.rfind("end", 0) == 0) {
            n_blocks -= n_blocks > 0;
        }
        if (n_brackets > NESTING_MAX || n_blocks > NESTING_MAX) {
            refuse("it nests deeper than " + std::to_string(NESTING_MAX) + " levels");
        }
        if (n_chain > CHAIN_MAX || n_branches > CHAIN_MAX) {
            refuse("it has more than " + std::to_string(CHAIN_MAX) + " operators or branches in a row");
        }
    }
}

/* Limits the number of variables, because every call of a macro and every iteration of a loop copies all variables into
 * its own scope. */
void check_names(const std::vector<token> &tokens)
{
    std::set<std::string> names;
    bool is_naming = false;
    for (size_t i = 1; i < tokens.size(); i++) {
        const token &t = tokens[i];
        if (tokens[i - 1].t == token::open_statement) {
            is_naming = t.t == token::identifier && is_one_of(t.value, {"set", "for", "macro", "call"});
        } else if (t.t == token::equals || t.t == token::close_statement ||
                   (t.t == token::identifier && t.value == "in")) {
            is_naming = false;
        } else if (is_naming && t.t == token::identifier) {
            names.insert(t.value);
        }
    }
    if (names.size() > NAMES_MAX) {
        refuse("it has " + std::to_string(names.size()) + " variables; " + std::to_string(NAMES_MAX) + " are allowed");
    }
}

void replace_in(std::string *source, const char *where, const char *mark, const char *what, const char *by)
{
    if (source->find(where) != std::string::npos && source->find(mark) != std::string::npos) {
        string_replace_all(*source, what, by);
    }
}

/* Applies the same workarounds for known templates as llama.cpp's common_chat_templates_init. They are repeated here
 * because llama.cpp's function also runs the template. */
std::string patched(std::string source)
{
    replace_in(&source, "<|channel|>", "in message.content or",
               "{%- if \"<|channel|>analysis<|message|>\" in message.content or "
               "\"<|channel|>final<|message|>\" in message.content %}",
               "{%- if false %}");
    replace_in(&source, "[TOOL_CALLS]", "if (message['content'] is none or",
               "{%- if (message['content'] is none or message['content'] == '' or message['content']|length == 0) and "
               "(message['tool_calls'] is not defined or message['tool_calls'] is none or "
               "message['tool_calls']|length == 0) %}",
               "{%- if false %}");
    return source;
}

/* Replaces each \r\n or \r by \n, in one pass. jinja's own function moves the rest of the text for every line, which
 * takes quadratic time. */
std::string with_plain_newlines(const std::string &source)
{
    std::string out;
    for (size_t i = 0; i < source.size(); i++) {
        if (source[i] != '\r') {
            out += source[i];
        } else if (i + 1 == source.size() || source[i + 1] != '\n') {
            out += '\n';
        }
    }
    return out;
}

} // namespace

std::unique_ptr<const common_chat_template> chat_compile(const std::string &source, const std::string &bos,
                                                         const std::string &eos)
{
    if (source.size() > SOURCE_BYTES_MAX) {
        refuse("it has " + std::to_string(source.size()) + " bytes; " + std::to_string(SOURCE_BYTES_MAX) +
               " are allowed");
    }
    const jinja::lexer_result words = jinja::lexer().tokenize(patched(with_plain_newlines(source)));
    if (words.tokens.size() > TOKENS_MAX) {
        refuse("it has more than " + std::to_string(TOKENS_MAX) + " words");
    }
    check_nesting(words.tokens);
    check_names(words.tokens);
    /* the constructor with a source is not used. That constructor would run the template without a guard */
    auto out = std::make_unique<common_chat_template>();
    out->prog = jinja::parse_from_tokens(words);
    out->src = words.source;
    out->bos_tok = bos;
    out->eos_tok = eos;
    out->params_init = common_chat_template_detect_params_init(out->src);
    chat_guard(&out->prog);
    out->caps = jinja::caps_get(out->prog);
    /* caps_get ran the template with a few short messages. Refuse a template that exceeds a limit even with these
     * messages */
    if (const char *why = chat_budget::current().exceeded_by()) {
        refuse(why);
    }
    return out;
}

std::string chat_reason(const std::exception &e)
{
    std::string text = e.what();
    for (const char *mark : {"Error: ", "Jinja Exception: "}) {
        const size_t at = text.rfind(mark);
        text = at == std::string::npos ? text : text.substr(at + strlen(mark));
    }
    return text;
}
