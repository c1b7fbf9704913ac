/* corpus_driver.cpp: measures the schema compiler on files of schemas with instances; started by hand. Each line of the
 * input is the path of a file: MaskBench's ({schema, tests: [{valid, data}]}) or the JSON-Schema-Test-Suite's (a list of those). For each
 * schema and policy, one line of JSON.
 *
 * An instance is accepted if the grammar takes it with its members in some order: a search that goes back, of bounded work, which first
 * tries the order in which the document names the properties. */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <set>
#include <sstream>
#include <unordered_map>

#include "c/vocabulary_model.h"
#include "llm.h"
#include "text/chat_budget.h"
#include "text/grammar_walk.h"
#include "text/schema/compile.h"

namespace {

constexpr size_t STEPS_MAX = 20000;
constexpr size_t MASKED_INSTANCES_MAX = 3, MASKED_TOKENS_MAX = 400;

double cpu_us()
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

/* Where in a grammar a text is: sets of stacks, which share their lower parts. Small to copy, unlike a grammar_walk. */
class positions {
  public:
    using place = std::vector<uint32_t>;

    explicit positions(const grammar &rules) : g(rules), stacks(1) {}

    place start()
    {
        place todo;
        open_rule(g.root, 0, todo);
        return expanded(todo);
    }

    place after(const place &from, const std::string &text)
    {
        place at = from;
        character c;
        for (const char byte : text) {
            if (!c.take(static_cast<uint8_t>(byte))) {
                return {};
            }
            if (c.n_missing > 0) {
                continue;
            }
            place todo;
            for (const uint32_t id : at) {
                const grammar_element &e = g.elements[stacks[id].first];
                if (id != 0 && e.is == grammar_element::CHARACTER && g.matches(e, c.value)) {
                    todo.push_back(behind(id));
                }
            }
            at = expanded(todo);
        }
        return at;
    }

    static bool may_end(const place &at)
    {
        return !at.empty() && at.front() == 0;
    }

  private:
    const grammar &g;
    std::vector<std::pair<uint32_t, uint32_t>> stacks; /* element, stack below */
    std::unordered_map<uint64_t, uint32_t> known;

    uint32_t pushed(uint32_t element, uint32_t below)
    {
        const auto [found, is_new] =
            known.try_emplace(static_cast<uint64_t>(element) << 32 | below, static_cast<uint32_t>(stacks.size()));
        if (is_new) {
            stacks.emplace_back(element, below);
        }
        return found->second;
    }

    uint32_t behind(uint32_t id)
    {
        const auto [element, below] = stacks[id];
        return g.elements[element + 1].ends_sequence() ? below : pushed(element + 1, below);
    }

    void open_rule(uint32_t rule, uint32_t below, place &todo)
    {
        for (uint32_t i = g.rules[rule];; i++) {
            todo.push_back(g.elements[i].ends_sequence() ? below : pushed(i, below));
            while (!g.elements[i].ends_sequence()) {
                i++;
            }
            if (g.elements[i].is == grammar_element::END) {
                return;
            }
        }
    }

    place expanded(place &todo)
    {
        std::set<uint32_t> seen;
        place found;
        while (!todo.empty()) {
            const uint32_t id = todo.back();
            todo.pop_back();
            if (!seen.insert(id).second) {
                continue;
            }
            if (id != 0 && g.elements[stacks[id].first].is == grammar_element::RULE) {
                open_rule(g.elements[stacks[id].first].value, behind(id), todo);
            } else {
                found.push_back(id);
            }
        }
        std::sort(found.begin(), found.end());
        return found;
    }
};

using order = std::unordered_map<std::string, size_t>;

void find_order(const schema_json &value, order &out)
{
    for (auto it = value.begin(); value.is_structured() && it != value.end(); ++it) {
        if (value.is_object() && it.key() == "properties" && it->is_object()) {
            for (auto member = it->begin(); member != it->end(); ++member) {
                out.try_emplace(member.key(), out.size());
            }
        }
        find_order(*it, out);
    }
}

/* As JSON.stringify writes it: 1.0 as 1. */
std::string scalar(const schema_json &value)
{
    const std::string text = value.dump();
    const bool is_whole = value.is_number_float() && text.size() > 2 && text.compare(text.size() - 2, 2, ".0") == 0;
    return is_whole ? text.substr(0, text.size() - 2) : text;
}

class search {
  public:
    search(positions &where, const order &properties) : walk(where), named(properties) {}
    std::string text; /* the one that was taken */
    size_t n_steps = 0;

    using place = positions::place;
    using continuation = std::function<bool(const place &, const std::string &)>;

    bool takes(const schema_json &value)
    {
        return write(value, walk.start(), "", [&](const place &at, const std::string &written) {
            text = written;
            return positions::may_end(at);
        });
    }

  private:
    positions &walk;
    const order &named;

    bool put(const std::string &more, const place &at, const std::string &written, const continuation &then)
    {
        if (++n_steps > STEPS_MAX) {
            return false;
        }
        const place next = walk.after(at, more);
        return !next.empty() && then(next, written + more);
    }

    bool write(const schema_json &value, const place &at, const std::string &written, const continuation &then)
    {
        if (value.is_object()) {
            std::vector<schema_json::const_iterator> members;
            for (auto it = value.begin(); it != value.end(); ++it) {
                members.push_back(it);
            }
            const auto rank = [&](const auto &it) {
                const auto found = named.find(it.key());
                return found != named.end() ? found->second : SIZE_MAX;
            };
            std::stable_sort(members.begin(), members.end(),
                             [&](const auto &a, const auto &b) { return rank(a) < rank(b); });
            return put("{", at, written, [&](const place &next, const std::string &so_far) {
                return write_members(members, true, next, so_far, then);
            });
        }
        if (value.is_array()) {
            return put("[", at, written, [&](const place &next, const std::string &so_far) {
                return write_items(value, 0, next, so_far, then);
            });
        }
        return put(scalar(value), at, written, then);
    }

    bool write_members(const std::vector<schema_json::const_iterator> &left, bool is_first, const place &at,
                       const std::string &written, const continuation &then)
    {
        if (left.empty()) {
            return put("}", at, written, then);
        }
        for (size_t i = 0; i < left.size() && n_steps <= STEPS_MAX; i++) {
            std::vector<schema_json::const_iterator> others = left;
            others.erase(others.begin() + static_cast<long>(i));
            const std::string head = (is_first ? "" : ", ") + schema_json(left[i].key()).dump() + ": ";
            const bool is_taken = put(head, at, written, [&](const place &next, const std::string &so_far) {
                return write(*left[i], next, so_far, [&](const place &last, const std::string &all) {
                    return write_members(others, false, last, all, then);
                });
            });
            if (is_taken) {
                return true;
            }
        }
        return false;
    }

    bool write_items(const schema_json &all, size_t i, const place &at, const std::string &written,
                     const continuation &then)
    {
        if (i == all.size()) {
            return put("]", at, written, then);
        }
        const auto item = [&](const place &next, const std::string &so_far) {
            return write(all[i], next, so_far, [&](const place &last, const std::string &more) {
                return write_items(all, i + 1, last, more, then);
            });
        };
        return i == 0 ? item(at, written) : put(", ", at, written, item);
    }
};

/* Times of the mask before each token of the text. */
void measure_masks(const model *m, const std::shared_ptr<const grammar> &rules, const std::string &text,
                   schema_json &out)
{
    std::vector<int32_t> tokens(text.size() + 8);
    const long n = m->ops->tokenize(m, text.data(), text.size(), false, false, tokens.data(), tokens.size());
    grammar_walk walk(rules, vocabulary_trie::of(m));
    token_set allowed;
    for (long i = 0; i < n && i < static_cast<long>(MASKED_TOKENS_MAX); i++) {
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

schema_json measured(const model *m, const schema_json &group, schema_policy policy)
{
    schema_json out = schema_json::object();
    const schema_json &schema = group["schema"];
    const double before = cpu_us();
    std::shared_ptr<const grammar> rules;
    work_budget budget;
    try {
        const std::string text = schema_grammar(schema, policy, LLM_CONSTRAINT_BYTES_MAX - 4096, budget);
        out["bytes"] = text.size();
        out["text_us"] = cpu_us() - before;
        rules = std::make_shared<const grammar>(grammar::read(text, m));
    } catch (const std::exception &e) {
        out["refused"] = e.what();
    }
    out["steps"] = budget.steps();
    out["compile_us"] = cpu_us() - before;
    if (rules == nullptr) {
        return out;
    }
    positions walk(*rules);
    order properties;
    find_order(schema, properties);
    schema_json tests = schema_json::array(), masks = schema_json::array();
    size_t n_masked = 0;
    for (const schema_json &test : group["tests"]) {
        search s(walk, properties);
        const bool is_taken = s.takes(test["data"]);
        const bool is_undecided = !is_taken && s.n_steps > STEPS_MAX;
        tests.push_back({test["valid"].get<bool>(), is_undecided ? schema_json() : schema_json(is_taken)});
        if (is_taken && m != nullptr && n_masked++ < MASKED_INSTANCES_MAX) {
            measure_masks(m, rules, s.text, masks);
        }
    }
    out["tests"] = tests;
    out["masks_us"] = masks;
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
            for (const auto &[name, policy] :
                 {std::make_pair("strict", schema_policy::STRICT), std::make_pair("loose", schema_policy::LOOSE)}) {
                out[name] = measured(m, groups[i], policy);
            }
        });
        std::cout << out.dump(-1, ' ', false, schema_json::error_handler_t::replace) << std::endl;
    }
}

} // namespace

/* argv[1], if it is given: a file with a vocabulary, for the times of masks. */
int main(int argc, char **argv)
{
    const model *m = argc > 1 ? vocabulary_open(argv[1], "", "", "") : nullptr;
    for (std::string path; std::getline(std::cin, path);) {
        measure_file(m, path);
    }
    return 0;
}
