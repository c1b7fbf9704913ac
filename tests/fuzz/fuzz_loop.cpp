/* fuzz_loop.cpp: templates whose inner loops mostly depend only on their items. The input chooses the loops, what they read
 * and set, what the template changes between them, and when the budget ends. Each renders the same, for the same cost, with
 * and without the outcomes that chat_loop.h keeps. */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "../c/loop_renderings.cpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

namespace {

constexpr size_t DEPTH_MAX = 2;

const char MESSAGES[] =
    R"([{"role":"system","content":"a"},{"role":"user","content":"b","x":1},{"role":"assistant","content":"","tool_calls":[{"id":"1","x":true}]},{"role":"tool","content":"b","y":{"role":"user","x":[1]}},{"role":"assistant","content":"c","x":1.5},{"role":"user","content":null,"y":{"x":"a"}},{"role":"assistant","content":[{"type":"text","text":"d"}]}])";

class maker {
  public:
    maker(const uint8_t *data_, size_t n_bytes_) : data(data_), n_bytes(n_bytes_) {}

    std::string whole()
    {
        std::string out = "{% set a = namespace(x=0, y='') %}{% set b = namespace(x=false) %}{% set t = true %}";
        out += "{% macro f(k) %}{% set a.x = 5 %}{{ k.role }}{% endmacro %}";
        out += some({"", "", "", "{% set c = a %}", "{% set c = messages[1] %}", "{% set c = [a, b] %}",
                     "{% set b.x = a %}", "{% set true = 7 %}", "{% set c = messages[3].y %}"});
        out += "{% for m in messages %}";
        for (size_t n = 1 + below(3); n > 0; n--) {
            out += between() + loop();
        }
        /* `is sameas` shows whether the values of a.x and b.x are the values of the pass before. */
        return out + between() +
               "{{ a.x }}{{ a.y }}{{ b.x }}{{ a.x is sameas p }}{{ b.x is sameas r }}{{ a.x is sameas b.x }};"
               "{% set p = a.x %}{% set r = b.x %}{% endfor %}{{ a.x }}{{ b.x }}" +
               loop();
    }

    uint64_t steps()
    {
        return below(4) == 0 ? 1 + below(256) * 16 + below(256) : 0;
    }

  private:
    size_t below(size_t n)
    {
        return at < n_bytes ? data[at++] % n : 0;
    }

    std::string some(std::initializer_list<const char *> texts)
    {
        return *(texts.begin() + static_cast<ptrdiff_t>(below(texts.size())));
    }

    /* Texts between the loops, which often change what the loops read. */
    std::string between()
    {
        return some({"", "", "", "{% set t = loop.index %}", "{% set t = not t %}",
                     "{% set a = namespace(x=loop.index, y=1) %}", "{% set m.role = 'r' %}", "{% set true = m.x %}",
                     "{% set b.x = m.y %}", "{{ f(m) }}", "{% set t = 'e' %}", "{% set t = m.role %}",
                     "{% set messages = messages[1:] %}", "{% set q = loop %}"});
    }

    std::string loop()
    {
        item = !is_rare() ? "k" : some({"m", "loop", "a", "k, v", "add_generation_prompt"});
        std::string out = "{% for " + item + " in ";
        out += below(4) < 3
                   ? some({"messages", "messages[loop.index:]", "messages[loop.index0 + 1:]", "messages[::-1]"})
                   : some({"messages[1:t]", "messages[f(m):]", "c", "m.tool_calls", "m.content", "[a, b]", "q",
                           "messages if t", "messages[2].tool_calls", "messages[-1:]"});
        out += " %}";
        item = item == "k, v" ? "k" : item;
        out += statements(0);
        return out + some({"", "", "", "", "{% else %}e"}) + "{% endfor %}";
    }

    std::string statements(size_t depth)
    {
        std::string out;
        for (size_t n = 1 + below(2); n > 0; n--) {
            out += statement(depth);
        }
        return out;
    }

    std::string statement(size_t depth)
    {
        if (depth < DEPTH_MAX && below(2) == 1) {
            return "{% if " + expression(0) + " %}" + statements(depth + 1) +
                   (below(2) == 1 ? "{% else %}" + statements(depth + 1) : "") + "{% endif %}";
        }
        if (is_rare()) {
            return some({"{{ k.role }}", "{% break %}", "{% continue %}", "{# c #}", " ", "{% set w = k.role %}",
                         "{% set t = 3 %}", "{{ f(k) }}", "{% set a.x.x = 1 %}", "{% set k.z = 1 %}"});
        }
        return "{% set " +
               (is_rare() ? some({"c.x", "loop.x", "q.first", "k.role", "add_generation_prompt.x"})
                          : some({"a.x", "a.y", "b.x", "a.z"})) +
               " = " + expression(0) + " %}";
    }

    /* Mostly an expression of the item, but sometimes one that depends on more, or fails. */
    std::string expression(size_t depth)
    {
        if (depth < DEPTH_MAX && below(3) == 2) {
            const std::string op = is_rare() ? some({" < ", " >= ", " in ", " not in ", " ~ ", " + "})
                                             : some({" and ", " or ", " == ", " != "});
            return "(" + expression(depth + 1) + op + expression(depth + 1) + ")";
        }
        if (depth < DEPTH_MAX && below(4) == 3) {
            return "(" + some({"not ", ""}) + "(" + expression(depth + 1) + ")" +
                   some({"", " is defined", " is none", " is string", " is mapping", " is not undefined"}) + ")";
        }
        if (is_rare()) {
            return some({"k", "a.x", "loop.first", "q.last", "add_generation_prompt", "missing", "m.x", "c", "m",
                         "f(m)", "a", "1.5", "k.tool_calls[0]", "k.items", "k.role.upper()", "k.y.role.x"});
        }
        return below(3) > 0 ? item + some({".role", ".content", "['x']", ".x", ".y", ".tool_calls", "['role']", ".y.x"})
                            : some({"'user'", "'x'", "1", "true", "t", "none", "'tool_calls'"});
    }

    bool is_rare()
    {
        return below(16) == 15;
    }

    const uint8_t *data;
    size_t n_bytes, at = 0;
    std::string item;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    char difference[4096];
    maker make(data, n_bytes);
    const uint64_t n_steps = make.steps();
    const std::string source = make.whole();
    loop_renderings_compare(source.c_str(), MESSAGES, n_steps, difference, sizeof difference);
    if (difference[0] != '\0') {
        printf("%s\n%s\n", source.c_str(), difference);
        abort();
    }
    return 0;
}
