/* Tests template loops whose iterations depend only on their items (chat_loop.h). Renderings that keep the outcomes of
 * iterations have the same texts, errors, costs and counts as renderings that run each iteration. */
#include <string.h>

#include "check.h"
#include "loop_renderings.h"

#define MESSAGES                                                                                                       \
    "[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"a\"},"                          \
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\"}}]},"         \
    "{\"role\":\"tool\",\"content\":\"b\"},{\"role\":\"assistant\",\"content\":\"c\"},"                                \
    "{\"role\":\"user\",\"content\":\"d\",\"x\":2},{\"role\":\"assistant\",\"content\":null}]"
#define N_MESSAGES 7

#define START "{% set n = namespace(found=false, text='', i=0) %}{% set o = namespace(found=false) %}"
#define END "{{ n.found }}{{ n.text }}{{ n.i }}{{ o.found }};{% endfor %}{{ n.found }}{{ n.text }}{{ n.i }}"
/* Runs a loop once for each message, over all later messages. */
#define LATER(body) START "{% for m in messages %}{% for k in messages[loop.index:] %}" body "{% endfor %}" END
#define IN(list, body) START "{% for m in messages %}{% for k in " list " %}" body "{% endfor %}" END

static const char *const kept[] = {
    LATER("{% if k.role == 'assistant' and 'tool_calls' not in k %}{% set n.found = true %}{% endif %}"),
    LATER("{% if k.role == 'user' %}{% set n.text = k.content %}{% else %}{% set n.found = not k.tool_calls %}{% endif "
          "%}"),
    LATER("{% if k.x is defined and k.x > 1 %}{% set n.i = k.x %}{% elif k.content is none %}{% set n.i = 7 %}{% endif "
          "%}"),
    LATER("{% set n.text = k['role'] %}{# a comment #}{% set n.found = k.nothing is defined %}"),
    LATER("{% set n.new_member = k.content %}{% if k.x %}{% set o.found = 'x' in k.content %}{% endif %}"),
    IN("messages", "{% if k.role == 'user' %}{% set n.found = true %}{% endif %}"),
    IN("messages[::-1]", "{% set n.text = k.role %}"),
    IN("messages[loop.index0 + 1:]", "{% set n.text = k.role %}"),
    /* a variable that the loop reads changes between its runs */
    START
    "{% for m in messages %}{% set t = 1 if loop.index < 4 else 2 %}{% for k in messages %}{% set n.i = t %}{% if "
    "k.x == "
    "t %}{% set n.found = true %}{% endif %}{% endfor %}" END,
    START
    "{% for m in messages %}{% set true = loop.first %}{% for k in messages %}{% set n.found = true %}{% endfor %}" END,
    START
    "{% for m in messages %}{% set n = namespace(i=loop.index) %}{% for k in messages %}{% if k.x %}{% set n.i = k.x %}"
    "{% endif %}{% endfor %}{{ n.i }};{% endfor %}",
    /* two variables contain the same object */
    START
    "{% set o = n %}{% for m in messages %}{% for k in messages %}{% set o.found = k.x %}{% set n.found = k.role %}"
    "{% endfor %}" END,
    /* the template changes an item */
    START "{% for m in messages %}{% for k in messages %}{% set n.text = k.role %}{% endfor %}"
          "{% if loop.index > 2 %}{% set l = messages[-1] %}{% set l.role = 'r' ~ loop.index %}{% endif %}" END,
    /* jinja treats `none` as a variable */
    LATER("{% if k.content == none %}{% set n.found = none %}{% endif %}"),
    /* `is sameas` compares addresses */
    START "{% for m in messages %}{% for k in messages %}{% set n.text = k.role %}{% set n.i = 1000 %}{% endfor %}"
          "{{ n.text is sameas text }}{{ n.i is sameas i }};{% set text = n.text %}{% set i = n.i %}" END,
};

static const char *const failing[] = {
    LATER("{% if k.content > 1 %}{% set n.i = 1 %}{% endif %}"),
    LATER("{% if k.role == 'tool' and k.content > 1 %}{% set n.i = 1 %}{% endif %}"),
    LATER("{% set n.text = k.nothing.more %}"),
};

static const char *const not_kept[] = {
    LATER("{% set n.i = n.i + 1 %}"),
    LATER("{% if n.i < 3 %}{% set n.found = k.role %}{% endif %}"),
    LATER("{% if loop.first %}{% set n.text = k.role %}{% endif %}"),
    START "{% set loop = 3 %}{% for k in messages %}{% set n.found = loop == 3 %}{% endfor %}{{ n.found }}",
    LATER("{% if add_generation_prompt %}{% set n.text = k.role %}{% endif %}"),
    LATER("{% if k.role == 'tool' %}{% break %}{% endif %}{% set n.i = 1 %}"),
    LATER("{% if k.role == 'tool' %}{% continue %}{% endif %}{% set n.text = k.role %}"),
    LATER("{{ k.role }}"),
    LATER("x"),
    LATER("{% set n = namespace(found=k.role) %}"),
    LATER("{% set v = k.role %}{% set n.text = v %}"),
    LATER("{% if k.role == m.role %}{% set n.found = true %}{% endif %}"),
    LATER("{% set n.text = k.role.upper() %}"),
    LATER("{% set n.text = k.role | upper %}"),
    LATER("{% set n.found = k %}"),
    LATER("{% set k.role = 'x' %}"),
    LATER("{% set loop.role = k.role %}"),
    LATER("{% set messages.role = k.role %}"),
    LATER("{% set missing.role = k.role %}"),
    LATER("{% if missing %}{% set n.text = k.role %}{% endif %}"),
    LATER("{% set n.text = k.tool_calls %}") "{{ n.text }}",
    IN("messages if k.role == 'user'", "{% set n.text = k.role %}"),
    IN("'text'", "{% set n.text = k.role %}"),
    IN("messages[0]", "{% set n.text = k.role %}"),
    IN("nothing", "{% set n.text = k.role %}"),
    IN("messages[f():]", "{% set n.text = k.role %}"),
    START "{% macro f(m) %}{% set x = messages[3] %}{% set x.role = m.role %}{% endmacro %}{% for m in messages %}"
          "{% for k in messages[f(m) | length:] %}{% set n.text = k.role %}{% endfor %}" END,
    IN("[n, o]", "{% set n.text = k.found %}"),
    START "{% set l = [n, o] %}{% for m in messages %}{% for k in l %}{% set n.found = k.text %}{% set o.text = k.i %}"
          "{% endfor %}" END,
    START "{% for m in messages %}{% for k in messages %}{% set n.text = k.role %}{% else %}none{% endfor %}" END,
    START "{% for m in messages %}{% for loop in messages %}{% set n.text = loop.role %}{% endfor %}" END,
    START "{% for m in messages %}{% for add_generation_prompt in messages %}"
          "{% set n.text = add_generation_prompt.role %}{% endfor %}" END,
    START "{% set add_generation_prompt = namespace(x='') %}{% for m in messages %}{% for k in messages %}"
          "{% set add_generation_prompt.x = k.role %}{% endfor %}" END,
    START "{% for m in messages %}{% for k in messages %}{% set n.text = 'text' %}{% endfor %}"
          "{{ n.text is sameas text }};{% set text = n.text %}" END,
    START "{% for m in messages %}{% for k in messages %}{% set n.text = k.x or 'text' %}{% endfor %}"
          "{{ n.text is sameas text }};{% set text = n.text %}" END,
    START "{% for m in messages %}{% for k, v in m.items() %}{% set n.text = k %}{% endfor %}" END,
    START
    "{% set x = messages[0] %}{% for m in messages %}{% for k in messages %}{% set x.role = k.role %}{% endfor %}" END,
    START "{% set x = messages[0] %}{% set x.n = n %}{% for m in messages %}{% for k in messages %}{% set n.text = "
          "k.n.text %}"
          "{% endfor %}" END,
};

static const char *const refused[] = {
    LATER("{% set n.text = n %}"),
};

/* Compares with the whole budget only. */
static struct loop_counts compared_once(const char *source)
{
    char difference[4096];
    struct loop_counts counts = loop_renderings_compare(source, MESSAGES, 0, difference, sizeof difference);
    if (difference[0] != '\0') {
        printf("    %s\n    %s\n", source, difference);
        counts.n_outcomes = counts.n_repeated = -2;
    }
    return counts;
}

/* Compares with budgets that end everywhere, too. Returns the counts with the whole budget. */
static struct loop_counts compared(const char *source)
{
    struct loop_counts counts = compared_once(source);
    char difference[4096] = "";
    for (uint64_t n_steps = 1; n_steps < 3000 && difference[0] == '\0'; n_steps += 1 + n_steps / 40) {
        loop_renderings_compare(source, MESSAGES, n_steps, difference, sizeof difference);
    }
    if (difference[0] != '\0') {
        printf("    %s\n    %s\n", source, difference);
        counts.n_outcomes = counts.n_repeated = -2;
    }
    return counts;
}

static void test_loops_whose_iterations_depend_on_their_items(void)
{
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        const struct loop_counts counts = compared(kept[i]);
        if (counts.n_outcomes <= 0 || counts.n_repeated <= 0) {
            printf("    %s\n", kept[i]);
        }
        CHECK(counts.n_outcomes > 0 && counts.n_repeated > 0);
    }
}

static void test_failing_iterations(void)
{
    for (size_t i = 0; i < sizeof failing / sizeof *failing; i++) {
        CHECK(compared(failing[i]).n_outcomes >= 0);
    }
}

static void test_other_loops(void)
{
    for (size_t i = 0; i < sizeof not_kept / sizeof *not_kept; i++) {
        const struct loop_counts counts = compared(not_kept[i]);
        if (counts.n_outcomes != 0) {
            printf("    %s\n", not_kept[i]);
        }
        CHECK_INT(counts.n_outcomes, 0);
        CHECK_INT(counts.n_repeated, 0);
    }
}

static void test_refused_templates(void)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        CHECK_INT(compared(refused[i]).n_outcomes, -1);
    }
}

static void test_each_item_runs_once(void)
{
    const struct loop_counts counts = compared(kept[0]);
    CHECK_INT(counts.n_outcomes, N_MESSAGES - 1); /* the first message comes after no other message */
    /* There are 6 + 5 + 4 + 3 + 2 + 1 iterations with all messages, and one of each item runs. With all but the last
     * message, there are 5 + 4 + 3 + 2 + 1. */
    CHECK_INT(counts.n_repeated, 21 - (N_MESSAGES - 1) + 15);
}

/* Writes a template to `out`: `head`, then `one` n times with its number, then `tail`. */
static void repeated(char *out, size_t n_bytes, const char *head, const char *one, size_t n, const char *tail)
{
    size_t at = (size_t)snprintf(out, n_bytes, "%s", head);
    for (size_t i = 0; i < n; i++) {
        const char *number = strchr(one, '#');
        at += (size_t)snprintf(out + at, n_bytes - at, "%.*s%zu%s", (int)(number - one), one, i, number + 1);
    }
    snprintf(out + at, n_bytes - at, "%s", tail);
}

/* Returns the counts of a template that sets two members of an object. The object has n_members members at first. */
static struct loop_counts with_members(size_t n_members)
{
    char source[8192];
    repeated(
        source, sizeof source, "{% set n = namespace(b=0", ", a#=0", n_members - 1,
        ") %}{% for m in messages %}{% for k in messages %}{% set n.b = k.role %}{% set n.a0 = k.content %}{% endfor %}"
        "{{ n.b }};{% endfor %}");
    return compared_once(source);
}

static void test_objects_with_many_members(void)
{
    CHECK_INT(with_members(31).n_outcomes, N_MESSAGES);
    CHECK(with_members(31).n_repeated > 0);
    CHECK_INT(with_members(32).n_outcomes, 0);
    CHECK_INT(with_members(70).n_outcomes, 0);
}

/* Setting a member costs more in an object with 64 members. So the outcomes for a small object are not used for it. */
static void test_objects_of_two_sizes(void)
{
    char source[8192];
    repeated(source, sizeof source, "{% set s = namespace(b=0) %}{% set n = namespace(b=0", ", a#=0", 70,
             ") %}{% for m in messages %}{% set o = s if loop.index < 4 else n %}"
             "{% for k in messages %}{% set o.b = k.role %}{% endfor %}{{ o.b }};{% endfor %}");
    const struct loop_counts counts = compared_once(source);
    CHECK_INT(counts.n_outcomes, N_MESSAGES);
    /* the runs of the loop that set members of the small object */
    CHECK_INT(counts.n_repeated, 2 * N_MESSAGES + 3 * (N_MESSAGES - 1));
}

static struct loop_counts with_assignments(size_t n)
{
    char source[8192];
    repeated(source, sizeof source, START "{% for m in messages %}{% for k in messages %}", "{% set n.a# = k.role %}",
             n, "{% endfor %}" END);
    return compared_once(source);
}

static void test_bodies_with_many_assignments(void)
{
    CHECK(with_assignments(16).n_repeated > 0);
    CHECK_INT(with_assignments(17).n_outcomes, 0);
}

/* Returns the counts of a template whose loop reads n variables, each of them twice. */
static struct loop_counts with_variables(size_t n)
{
    char variables[2048], reads[4096], source[8192];
    repeated(variables, sizeof variables, START, "{% set v# = 1 %}", n, "");
    repeated(reads, sizeof reads, "{% for m in messages %}{% for k in messages %}{% if k.x", " or v# == k.x", n, "");
    repeated(source, sizeof source, "", "#", 0, variables);
    repeated(source + strlen(source), sizeof source - strlen(source), reads, " or v# == k.role", n,
             " %}{% set n.found = k.role %}{% endif %}{% endfor %}" END);
    return compared_once(source);
}

static void test_bodies_with_many_variables(void)
{
    CHECK(with_variables(16).n_repeated > 0);
    CHECK_INT(with_variables(17).n_outcomes, 0);
}

/* A variable that the loop reads has another value in each pass. So no outcome is used twice, and all are kept until
 * there are too many. The loop is short for the few messages with which a template is compiled. */
static void test_many_outcomes(void)
{
    const struct loop_counts counts =
        compared_once(START "{% for i in range(2400 if messages | length > 5 else 1) %}{% for k in messages %}{% set "
                            "n.i = i %}{% endfor %}{% endfor %}"
                            "{{ n.i }}{% for m in messages %}{% for k in messages %}{% set n.text = k.role %}"
                            "{% endfor %}" END);
    CHECK_INT(counts.n_outcomes, 16384);
    CHECK_INT(counts.n_repeated, 0);
}

int main(void)
{
    RUN(test_loops_whose_iterations_depend_on_their_items);
    RUN(test_failing_iterations);
    RUN(test_other_loops);
    RUN(test_refused_templates);
    RUN(test_each_item_runs_once);
    RUN(test_objects_with_many_members);
    RUN(test_objects_of_two_sizes);
    RUN(test_bodies_with_many_assignments);
    RUN(test_bodies_with_many_variables);
    RUN(test_many_outcomes);
    return CHECK_RESULT();
}
