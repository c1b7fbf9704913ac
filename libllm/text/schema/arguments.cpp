#include "text/schema/arguments.h"

#include <algorithm>
#include <set>

#include "text/schema/writer.h"

namespace {

/* How many levels of the schema are enforced in each attempt. If an attempt's grammar is too large, the next attempt
 * enforces fewer levels. */
const size_t LEVELS[] = {200, 8, 5, 3, 2, 1};
/* Limit on the parameters of one tool. Reason: the grammar of tool calls is built with one level of recursion per
 * required parameter. */
constexpr size_t NAMES_MAX = 256;

/* Limit on the parameters in all tools of one request. The grammar of tool calls takes about 0.7 ms and 40 KB for each
 * parameter. With more parameters, the grammar would not fit into the constraint document that the sampler gets. Agents
 * have up to 150 tools of 20 parameters. */
constexpr size_t NAMES_IN_ALL_MAX = 4096;

const schema_json &any_object()
{
    static const schema_json schema = {{"type", "object"}};
    return schema;
}

/* Returns the JSON types of the values that satisfy the node. A node is a set of conditions (shape.h). If the node has
 * an enum or const, the result is exact only for strings. Callers only ask whether the value can be a string. */
uint8_t types_of(expansion &meaning, const node &n)
{
    uint8_t all = n.empty() ? json_type::ANY : json_type::NOTHING;
    const std::vector<shape> shapes = n.empty() ? std::vector<shape>() : meaning.shapes_of(n);
    for (const shape &s : shapes) {
        if (!s.values.has_value()) {
            all = static_cast<uint8_t>(all | s.types);
            continue;
        }
        for (const schema_json *value : *s.values) {
            all = static_cast<uint8_t>(all |
                                       (value->is_string() ? json_type::STRING : json_type::ANY & ~json_type::STRING));
        }
    }
    return all;
}

/* Returns the names of all parameters, in the order of the schema. A parameter is a name that at least one shape
 * declares or requires. A shape is one alternative of the schema (shape.h). The empty name is left out for two reasons.
 * No template can write it, and an empty schema_argument::name means a group of undeclared parameters. */
std::vector<std::string> names_of(const std::vector<shape> &shapes)
{
    std::vector<std::string> names;
    std::set<std::string> seen;
    const auto add = [&](const std::string &name) {
        if (!name.empty() && seen.insert(name).second) {
            names.push_back(name);
        }
    };
    for (const shape &s : shapes) {
        for (const schema_json *source : s.object_sources) {
            if (source->contains("properties") && (*source)["properties"].is_object()) {
                for (auto it = (*source)["properties"].begin(); it != (*source)["properties"].end(); ++it) {
                    add(it.key());
                }
            }
        }
        for (const std::string &name : s.required) {
            add(name);
        }
    }
    return names;
}

bool declares(const shape &s, const std::string &name)
{
    return std::any_of(s.object_sources.begin(), s.object_sources.end(), [&](const schema_json *source) {
        return source->contains("properties") && (*source)["properties"].is_object() &&
               (*source)["properties"].contains(name);
    });
}

const schema_json &no_text()
{
    static const schema_json schema = {{"type", {"object", "array", "number", "boolean", "null"}}};
    return schema;
}

/* Compiles the parameters of one tool. */
class argument_compiler {
  public:
    argument_compiler(expansion &of_schema, writer &to, rules &all_rules, work_budget &spent)
        : meaning(of_schema), values(to), out(all_rules), budget(spent)
    {}

    /* Compiles the parameter with this name. The value must satisfy one of the shapes. A shape is one alternative of
     * the schema (shape.h). The parameter is required if all shapes require it. Shapes that do not declare the name are
     * left out if another shape declares it. For example, let the schema be {"anyOf": [{"properties": {"a": A}},
     * {"properties": {"b": B}}]}. Its second alternative does not forbid undeclared members, so it allows any value of
     * `a`. But if a model writes `a`, it should write a value that satisfies A. */
    schema_argument declared(const std::vector<shape> &shapes, const std::string &name)
    {
        schema_argument one;
        one.name = name;
        one.is_required = !shapes.empty();
        const bool is_declared =
            std::any_of(shapes.begin(), shapes.end(), [&](const shape &s) { return declares(s, name); });
        std::vector<node> ways;
        for (const shape &s : shapes) {
            /* a shape that does not declare the name would allow any value */
            if (is_declared && !declares(s, name)) {
                one.is_required = false;
                continue;
            }
            if (s.absent.count(name) == 0) {
                ways.push_back(meaning.member_node(s, name));
            }
            one.is_required = one.is_required && s.required.has(name);
        }
        compile(ways, &one);
        return one;
    }

    schema_argument undeclared(const writer::undeclared &from)
    {
        schema_argument one;
        one.names = from.names;
        compile({from.value}, &one);
        return one;
    }

  private:
    expansion &meaning;
    writer &values;
    rules &out;
    work_budget &budget;

    /* Returns a rule of the values that satisfy at least one of the nodes. A node is a set of conditions (shape.h).
     * Returns "" if there is no such value. */
    std::string either(const std::vector<node> &ways)
    {
        std::string all;
        for (const node &n : ways) {
            const std::string way = values.value(n);
            all += (all.empty() || way.empty() ? "" : " | ") + way;
        }
        return all.find(' ') == std::string::npos ? all : out.add(all);
    }

    void compile(const std::vector<node> &ways, schema_argument *one)
    {
        uint8_t types = json_type::NOTHING;
        for (const node &n : ways) {
            const bool is_possible = !values.value(n).empty();
            types = static_cast<uint8_t>(types | (is_possible ? types_of(meaning, n) : json_type::NOTHING));
        }
        one->element = either(ways);
        one->may_be_text = (types & json_type::STRING) != 0;
        one->is_text = types == json_type::STRING;
        if (one->may_be_text) {
            find_texts(ways, one);
        }
    }

    /* Used for templates that write strings without quotes. Finds the strings that the parameter allows, and the rule
     * of its other values. If finding the strings takes too much work, any string is allowed. */
    void find_texts(const std::vector<node> &ways, schema_argument *one)
    {
        automaton all;
        try {
            for (const node &n : ways) {
                const std::optional<automaton> some = values.texts_of(n);
                if (!some.has_value()) {
                    return;
                }
                all = automaton_of(automaton_operation::EITHER, all, *some, budget);
            }
        } catch (const grammar_beyond &) { /* too much work: any string is allowed */
            return;
        }
        one->texts = all;
        std::vector<node> others;
        for (node both : one->is_text ? std::vector<node>() : ways) {
            both.push_back({&no_text()});
            others.push_back(meaning.node_of(std::move(both)));
        }
        one->not_text = either(others);
    }
};

} // namespace

/* Calls `compile` with fewer and fewer levels of the schema until the grammar is small enough. Each attempt can use
 * half of the remaining work budget. The other half is left for further attempts and other tools. Otherwise, one tool
 * with a costly schema would leave all later tools unconstrained. The rules of a failed attempt are removed, because
 * they can refer to rules that were never defined. Returns `nothing` if all attempts fail. */
template <typename T, typename F> T schema_arguments::with_levels(const T &nothing, F compile)
{
    for (const size_t n_levels : LEVELS) {
        work_budget part(budget.left() / 2);
        const rules::mark before = out.now();
        try {
            const T found = compile(n_levels, part);
            (void)budget.take(part.steps());
            return found;
        } catch (const grammar_too_large &) {
            (void)budget.take(part.steps());
            out.forget(before);
        } catch (const grammar_fault &) {
            (void)budget.take(part.steps());
            out.forget(before);
            return nothing;
        }
    }
    return nothing;
}

std::string schema_arguments::object(const schema_json &document)
{
    const std::string any = "object";
    const std::string found = with_levels(any, [&](size_t n_levels, work_budget &part) {
        const references refs(document);
        pattern_set patterns(part);
        expansion meaning(refs, schema_policy::LOOSE, patterns, part);
        return writer(meaning, patterns, out, n_levels, part).value(meaning.node_of({{&document}, {&any_object()}}));
    });
    return found.empty() ? any : found;
}

std::vector<schema_argument> schema_arguments::members(const schema_json &document)
{
    schema_argument any;
    any.element = "value";
    any.may_be_text = true;
    any.names = automaton_of_any();
    return with_levels(std::vector<schema_argument>(1, any), [&](size_t n_levels, work_budget &part) {
        const references refs(document);
        pattern_set patterns(part);
        expansion meaning(refs, schema_policy::LOOSE, patterns, part);
        writer values(meaning, patterns, out, n_levels, part);
        std::vector<shape> shapes = meaning.shapes_of(meaning.node_of({{&document}, {&any_object()}}));
        shapes.erase(std::remove_if(shapes.begin(), shapes.end(),
                                    [](const shape &s) { return (s.types & json_type::OBJECT) == 0; }),
                     shapes.end());
        std::vector<schema_argument> all;
        argument_compiler compiler(meaning, values, out, part);
        const std::vector<std::string> names = names_of(shapes);
        if (names.size() > std::min(NAMES_MAX, NAMES_IN_ALL_MAX - n_names)) {
            /* 20,000 parameters in one tool overflowed the stack, which ended the process */
            throw grammar_beyond("too many names");
        }
        for (const std::string &name : names) {
            schema_argument one = compiler.declared(shapes, name);
            if (!one.element.empty()) {
                all.push_back(std::move(one));
            }
        }
        for (const shape &s : shapes) {
            for (const writer::undeclared &other : values.undeclared_of(s, meaning.node_of({{&document}}), names)) {
                schema_argument one = compiler.undeclared(other);
                if (!one.element.empty()) {
                    all.push_back(std::move(one));
                }
            }
        }
        n_names += names.size();
        return all;
    });
}

std::optional<std::string> schema_arguments::bare_names(const automaton &names)
{
    automaton possible; /* names without control characters and without characters of delimiters such as `</` */
    possible.states.resize(2);
    possible.states[0].ways = {{' ', '!', 1}, {'#', '.', 1}, {'0', ';', 1}, {'=', '=', 1}, {'?', CHARACTER_LAST, 1}};
    possible.states[1].ways = {{' ', '!', 1}, {'#', ';', 1}, {'=', '=', 1}, {'?', CHARACTER_LAST, 1}};
    possible.states[1].is_end = true;
    const rules::mark before = out.now();
    try {
        const automaton all = automaton_of(automaton_operation::BOTH, names, possible, budget);
        return all.is_empty() ? "" : out.add_bare_texts(all, "");
    } catch (const grammar_fault &) {
        out.forget(before);
    }
    return std::nullopt;
}

std::optional<std::string> schema_arguments::quoted_texts(const automaton &texts)
{
    automaton plain; /* strings that need no escapes */
    plain.states.push_back({{{' ', '&', 0}, {'(', '[', 0}, {']', CHARACTER_LAST, 0}}, true});
    const rules::mark before = out.now();
    try {
        const automaton all = automaton_of(automaton_operation::BOTH, texts, plain, budget);
        if (!all.is_empty()) {
            return out.add("\"'\" " + out.add_bare_texts(all, "'"));
        }
    } catch (const grammar_fault &) {
        out.forget(before);
    }
    return std::nullopt;
}

std::optional<std::string> schema_arguments::bare_texts(const automaton &texts, const std::string &close)
{
    constexpr size_t STATES_MAX = 512; /* each state of the automaton takes about 40 bytes of grammar */
    const rules::mark before = out.now();
    try {
        const automaton all = automaton_of(automaton_operation::BOTH, texts, automaton_of_text_before(close), budget);
        if (all.states.size() <= STATES_MAX && !all.is_empty()) {
            return out.add_bare_texts(all, close);
        }
    } catch (const grammar_fault &) { /* too much work, or the grammar is too large */
        out.forget(before);
    }
    return std::nullopt;
}
