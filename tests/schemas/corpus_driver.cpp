/* corpus_driver.cpp: compiles schemas with instances under three policies and measures it; `python -m tests.schemas` starts it.
 *
 * Each line of the input is an object: {path, masks}. The file is MaskBench's ({schema, tests: [{valid, data}]}) or the
 * JSON-Schema-Test-Suite's (a list of those). For each schema one line of JSON, and after each file a line {"end": path}, so that a
 * crash can be told apart from a file without schemas. With masks, and a vocabulary as the only argument, the mask before each token
 * of a few instances is timed, too. Times are CPU time of this thread: the machine may be busy. */
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>

#include "c/vocabulary_model.h"
#include "llm.h"
#include "schemas/instance_search.h"
#include "text/grammar/grammar_walk.h"
#include "text/schema/arguments.h"
#include "text/schema/compile.h"
#include "text/template/chat_budget.h"

namespace {

constexpr size_t MASKED_INSTANCES_MAX = 3;
constexpr long MASKED_TOKENS_MAX = 400;
const char *const POLICIES[] = {"strict", "loose", "tools"};

double cpu_us()
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

/* Times of the mask before each token of the text. */
void measure_masks(const model *m, const std::shared_ptr<const grammar> &rules, const std::string &text,
                   schema_json &out)
{
    std::vector<int32_t> tokens(text.size() + 8);
    const long n = m->ops->tokenize(m, text.data(), text.size(), false, false, tokens.data(), tokens.size());
    grammar_walk walk(rules, vocabulary_trie::of(m));
    token_set allowed;
    for (long i = 0; i < n && i < MASKED_TOKENS_MAX; i++) {
        const double before = cpu_us();
        walk.find_allowed(m->info.n_vocab, allowed);
        out.push_back(cpu_us() - before);
        char piece[MODEL_PIECE_BYTES_MAX];
        const int32_t size = m->ops->piece(m, tokens[static_cast<size_t>(i)], false, piece, sizeof piece);
        if (!allowed.has(tokens[static_cast<size_t>(i)]) ||
            !walk.accept(tokens[static_cast<size_t>(i)], piece, static_cast<size_t>(size))) {
            return;
        }
    }
}

/* The arguments of one call as an object, or each by itself, as templates need them. */
std::string tool_grammar(const schema_json &schema, bool is_whole)
{
    schema_arguments arguments(LLM_CONSTRAINT_BYTES_MAX / 2);
    std::string uses = "root ::= " + (is_whole ? arguments.object(schema) : "object") + "\n";
    if (!is_whole) {
        size_t n = 0;
        for (const schema_argument &one : arguments.members(schema)) {
            uses += "argument-" + std::to_string(n++) + " ::= " + one.element + "\n";
        }
    }
    const std::string all = arguments.grammar();
    return uses + all.substr(all.find('\n') + 1); /* its own root is any object */
}

std::string grammar_for(const schema_json &schema, const std::string &policy, schema_json &out)
{
    if (policy == "tools") {
        return tool_grammar(schema, true);
    }
    work_budget budget;
    const schema_policy what = policy == "strict" ? schema_policy::STRICT : schema_policy::LOOSE;
    std::string text;
    try {
        text = schema_grammar(schema, what, LLM_CONSTRAINT_BYTES_MAX - 4096, budget);
    } catch (...) {
        out["steps"] = budget.steps();
        throw;
    }
    out["steps"] = budget.steps();
    return text;
}

/* Each instance as [valid, taken]; taken: null where it was not found out. */
void judge(const model *m, const schema_json &group, const std::shared_ptr<const grammar> &rules,
           const std::string &policy, schema_json &out)
{
    instance_search search(*rules, group["schema"]);
    schema_json tests = schema_json::array(), masks = schema_json::array();
    size_t n_masked = 0;
    for (const schema_json &test : group["tests"]) {
        if (policy == "tools" && !test["data"].is_object()) {
            continue; /* arguments are always an object */
        }
        std::string text;
        const search_verdict verdict = search.find(test["data"], &text);
        tests.push_back({test["valid"].get<bool>(), verdict == search_verdict::UNDECIDED
                                                        ? schema_json()
                                                        : schema_json(verdict == search_verdict::TAKEN)});
        if (m != nullptr && !text.empty() && n_masked++ < MASKED_INSTANCES_MAX) {
            measure_masks(m, rules, text, masks);
        }
    }
    out["tests"] = tests;
    out["masks_us"] = masks;
}

schema_json measured(const model *m, const schema_json &group, const std::string &policy)
{
    schema_json out = schema_json::object();
    const double before = cpu_us();
    std::shared_ptr<const grammar> rules;
    try {
        const std::string text = grammar_for(group["schema"], policy, out);
        out["text_us"] = cpu_us() - before;
        out["bytes"] = text.size();
        out["hash"] = std::hash<std::string>{}(text);
        rules = std::make_shared<const grammar>(grammar::read(text, m));
    } catch (const std::exception &e) {
        out["refused"] = e.what();
    }
    out["compile_us"] = cpu_us() - before;
    if (rules != nullptr) {
        judge(m, group, rules, policy, out);
    }
    if (policy == "tools") {
        (void)grammar::read(tool_grammar(group["schema"], false), m);
    }
    return out;
}

void measure_file(const model *m, const std::string &path)
{
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    const schema_json all = schema_json::parse(text.str(), nullptr, false);
    const schema_json groups = all.is_array() ? all : schema_json::array({all});
    for (size_t i = 0; i < groups.size(); i++) {
        if (!groups[i].is_object() || !groups[i].contains("schema")) {
            continue;
        }
        schema_json out = {{"file", path}, {"group", i}};
        (void)chat_call_with_stack([&] {
            for (const char *policy : POLICIES) {
                out[policy] = measured(m, groups[i], policy);
            }
        });
        std::cout << out.dump(-1, ' ', false, schema_json::error_handler_t::replace) << '\n';
    }
    std::cout << schema_json({{"end", path}}).dump() << std::endl;
}

} // namespace

int main(int argc, char **argv)
{
    const model *m = argc > 1 ? vocabulary_open(argv[1], "", "", "") : nullptr;
    if (argc > 1 && m == nullptr) {
        fprintf(stderr, "corpus_driver: %s is no vocabulary that llama.cpp reads\n", argv[1]);
        return 1;
    }
    for (std::string line; std::getline(std::cin, line);) {
        const schema_json task = schema_json::parse(line);
        measure_file(task["masks"].get<bool>() ? m : nullptr, task["path"].get<std::string>());
    }
    return 0;
}
