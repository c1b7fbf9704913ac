/* Tests hostile chat templates: they loop forever, recurse, build endless texts, or make jinja crash. Each must be
 * refused within the limits, when it is compiled or rendered. The templates run in a child process with little memory
 * and time. */
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "text/chat/chat.h"
#include "check.h"
#include "fake_model.h"
#include "random.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED
enum { PROGRAMS = 15, IS_QUICK = 1 };
#else
enum { PROGRAMS = 200, IS_QUICK = 0 };
#endif
enum { SOURCE_MAX = 1 << 20, SECONDS_MAX = 120, MEMORY_MAX_MIB = 3072 };

#define REQUEST "{\"messages\":[{\"role\":\"user\",\"content\":\"go\"}]}"
#define NS(members) "{% set ns = namespace(" members ") %}"
#define TIMES(n, what) "{% for i in range(" #n ") %}" what "{% endfor %}"

/* Compiles and renders. Returns the first status that is not LLM_OK, or LLM_OK. */
static int outcome_of(const char *source, char error[512])
{
    fake_model m = fake_model_open(source);
    chat *c = NULL;
    llm_prompt p = {0};
    error[0] = '\0';
    int status = chat_open(&m.base, &c, error, 512);
    if (status == LLM_OK) {
        status = chat_render(c, REQUEST, strlen(REQUEST), &p, error, 512);
        llm_prompt_free(&p);
    }
    chat_close(c);
    return status;
}

/* Returns the status in a child process, or -1 if the child crashed, hung or took too much memory. */
static int outcome_in_child(const char *source)
{
    int how = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        char error[512];
        alarm(SECONDS_MAX);
#ifndef IS_SANITIZED /* a sanitizer's shadow memory reserves more addresses than the limit */
        setrlimit(RLIMIT_AS, &(struct rlimit){(rlim_t)MEMORY_MAX_MIB << 20, (rlim_t)MEMORY_MAX_MIB << 20});
#endif
        const int status = outcome_of(source, error);
        if (getenv("LLMD_HOSTILE_SHOW") != NULL) {
            printf("    %d %s | %.70s\n", status, error, source);
            fflush(stdout);
        }
        _exit(status != LLM_OK && error[0] == '\0' ? 99 : status);
    }
    waitpid(child, &how, 0);
    return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

/* Checks that the template is refused when it is compiled, and also if it is inside a condition that only the request
 * fulfills. */
static void check_refused(const char *source)
{
    static char guarded[SOURCE_MAX + 128];
    const int bare = IS_QUICK ? LLM_TEMPLATE : outcome_in_child(source);
    snprintf(guarded, sizeof guarded, "{%% if messages[0].content == 'go' %%}%s{%% endif %%}", source);
    const int hidden = outcome_in_child(guarded);
    if (bare != LLM_TEMPLATE || hidden != LLM_TEMPLATE) {
        printf("%d, %d: %.300s\n", bare, hidden, source);
    }
    CHECK(bare == LLM_TEMPLATE && hidden == LLM_TEMPLATE);
}

static void check_all(const char *const *sources, size_t n)
{
    const int before = check_failures;
    for (size_t i = 0; i < n; i++) {
        check_refused(sources[i]);
    }
    CHECK_INT(check_failures, before);
}
#define CHECK_ALL(sources) check_all(sources, sizeof(sources) / sizeof *(sources))

static void test_loops_end(void)
{
    static const char *const sources[] = {
        TIMES(10000000, "x"),
        TIMES(10000000, ""),
        TIMES(1000, "{% for j in range(1000) %}{% for k in range(1000) %}{% endfor %}{% endfor %}"),
        "{% set a = range(2000) %}{% for x in a if x in a %}{% for y in a if y in a %}{% endfor %}{% endfor %}",
        "{{ range(9223372036854775800, 9223372036854775807, 5) | length }}",
        "{% set r = range %}{{ r(1000000000) | length }}",
        "{% call range(1000000000) %}{% endcall %}",
    };
    CHECK_ALL(sources);
}

static void test_recursion_ends(void)
{
    static const char *const sources[] = {
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "{% macro f(x) %}{% if x %}{{ f(x) }}{% endif %}{% endmacro %}{% macro g() %}{{ f(1) }}{% endmacro %}{{ g() }}",
        "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% macro f(n) %}{% call f(n) %}{{ caller() }}{% endcall %}{% endmacro %}{% call f(1) %}{% endcall %}",
    };
    CHECK_ALL(sources);
}

static void test_texts_end(void)
{
    static const char *const sources[] = {
        NS("s='x'") TIMES(100, "{% set ns.s = ns.s ~ ns.s %}"),
        NS("s='x'") TIMES(100, "{% set ns.s = ns.s + ns.s %}") "{{ ns.s }}",
        "{{ 'x' * 1000000000000 }}",
        "{% set none_at_all %}{% endset %}{{ none_at_all * 1000000000000000000 }}",
        "{{ ('x' * 10000) | replace('x', 'x' * 10000) | replace('x', 'x' * 10000) }}",
        "{{ ('x' * 10000) | replace('', 'x' * 10000) }}",
        "{{ range(10000) | join('x' * 100000) }}",
        "{{ 'a\\nb' | indent(1000000000000) }}",
        "{{ ('\\n' * 100000) | indent('x' * 100000) }}",
        "{{ messages | tojson(indent=1000000000) }}",
        "{{ range(10000) | list | tojson(separators=['x' * 100000, ':']) }}",
        "{% filter replace('x', 'x' * 100000) %}{{ 'x' * 100000 }}{% endfilter %}",
        "{{ range(100000) | list | replace('1', 'x' * 100000) }}",
        "{% set a = 'a' * 8000000 %}{{ (a ~ 'b') in (a ~ a ~ a ~ 'b') }}",
        "{{ ('ab' * 8000000).split('b') | length }}",
        "{{ ('ab' * 4000000) | replace('b', 'bb') | length }}",
        "{{ (('x' * 3000000) ~ ' ').strip('y' * 3000000) | length }}",
    };
    CHECK_ALL(sources);
}

static void test_lists_end(void)
{
    static const char *const sources[] = {
        NS("a=[1]") TIMES(100, "{% set ns.a = ns.a + ns.a %}"),
        NS("a=[1]") TIMES(64, "{% set ns.a = [ns.a, ns.a] %}") "{{ ns.a }}",
        NS("a=(1,1)") TIMES(64, "{% set ns.a = (ns.a, ns.a) %}") "{{ ns.a == ns.a }}",
        NS("a=(1,1)") TIMES(64, "{% set ns.a = (ns.a, ns.a) %}") "{{ {ns.a: 1} }}",
        NS("a={'b':1}") TIMES(64, "{% set ns.a = {'b': ns.a, 'c': ns.a} %}") "{{ ns.a | tojson }}",
        NS("a=[1]") TIMES(15000, "{% set ns.a = [ns.a] %}"),
        NS("a=1") TIMES(15000, "{% set ns.a = namespace(a=ns.a) %}"),
        NS("a=[]") TIMES(15000, "{% set b = [] %}{{ ns.a.append(b) or '' }}{% set ns.a = b %}"),
        NS("a=1") "{% set ns.a = ns %}",
        NS("a=1") "{% set ns.a = [ns] %}",
        "{% set a = [] %}{{ a.append(a) }}",
        "{{ messages.append(messages) }}",
        NS("a=1") "{% macro m() %}{% set ns.a = caller %}{% endmacro %}{% call m() %}{% endcall %}",
        NS("a=1") "{% macro m() %}{% set ns.a = [caller] %}{% endmacro %}{% call m() %}{% endcall %}",
    };
    CHECK_ALL(sources);
}

static void test_what_crashes_jinja_is_refused(void)
{
    static const char *const sources[] = {
        "{{ 5 is divisibleby(0) }}",
        "{{ (0 - 9223372036854775807 - 1) is divisibleby(-1) }}",
        "{{ range(3) | select('divisibleby', 0) | list }}",
        "{{ [{'a': 1}] | selectattr('a', 'divisibleby', 0) | list }}",
        "{{ ((range(100) | list) + ['9', '91x', '10']) | sort }}",
        "{{ ([10, '9', 11, '1x', 2] + (range(90) | list)) | sort }}",
        "{{ ([1.0, 'nan' | float, 2.0] + (range(90) | list)) | sort }}",
        "{{ {1: 1, 'a': 2} | dictsort }}",
        "{{ {'a': 1, 'b': '2'} | dictsort(by='value') }}",
        "{{ {'a': 1, 'b': '2'} | dictsort(false, 'value') }}",
    };
    CHECK_ALL(sources);
}

/* Filters like dictsort compare only the names, not the values. */
static void test_values_of_every_kind_are_sorted_by_their_names(void)
{
    char error[512];
    CHECK_INT(outcome_of("{{ {'b': 1, 'a': 'x', 'c': {'d': [none]}} | dictsort }}", error), LLM_OK);
    CHECK_INT(outcome_of("{% for k, v in {'b': 1, 'a': 'x'} | dictsort(by='key') %}{{ k }}{% endfor %}", error),
              LLM_OK);
}

/* Checks a template with `begin`, n times `part`, and `end`. */
static void check_repeated(const char *begin, const char *part, size_t n, const char *end)
{
    static char source[SOURCE_MAX];
    char *at = stpcpy(source, begin);
    for (size_t i = 0; i < n && at + strlen(part) + strlen(end) < source + sizeof source - 1; i++) {
        at = stpcpy(at, part);
    }
    strcpy(at, end);
    check_refused(source);
}

static void test_sources_that_nest_without_end_are_refused(void)
{
    check_repeated("{{ ", "(", 15000, " }}");
    check_repeated("{{ ", "[", 15000, " }}");
    check_repeated("{{ ", "not ", 15000, "1 }}");
    check_repeated("{{ ", "- ", 15000, "1 }}");
    check_repeated("{{ 1", " + 1", 15000, " }}");
    check_repeated("{{ 'a'", " ~ 'a'", 15000, " }}");
    check_repeated("{{ a", ".a", 15000, " }}");
    check_repeated("{{ a", "()", 15000, " }}");
    check_repeated("{{ a", "[0]", 15000, " }}");
    check_repeated("{{ a", "|e", 15000, " }}");
    check_repeated("{{ ", "1 if 0 else ", 8000, "1 }}");
    check_repeated("{% if 0 %}", "{% elif 0 %}", 8000, "{% endif %}");
    check_repeated("", "{% if 1 %}", 8000, "");
    check_repeated("", "{% for i in a %}", 8000, "");
    check_repeated("", "{% set a %}", 8000, "");
    check_repeated("", "{% macro a() %}", 8000, "");
    check_repeated("", "{% filter e %}", 8000, "");
    check_repeated("", "{{ 1 }}", 60000, "");
    check_repeated("{{ '", "x", 600000, "' }}");
}

static void test_variables_without_end_are_refused(void)
{
    static char source[SOURCE_MAX], request[SOURCE_MAX];
    char error[512], *at = source;
    for (int i = 0; i < 300; i++) {
        at += sprintf(at, "{%% set a%d = 1 %%}", i);
    }
    check_refused(source);
    fake_model m = fake_model_open("{{ messages[0].content }}");
    chat *c = NULL;
    llm_prompt p;
    at = stpcpy(request, "{\"messages\":[{\"role\":\"user\",\"content\":\"go\"}],\"chat_template_kwargs\":{\"a\":1");
    for (int i = 0; i < 64; i++) {
        at += sprintf(at, ",\"a%d\":1", i);
    }
    strcpy(at, "}}");
    CHECK_INT(chat_open(&m.base, &c, NULL, 0), LLM_OK);
    CHECK_INT(chat_render(c, request, strlen(request), &p, error, sizeof error), LLM_INVALID);
    CHECK_STR(error, "chat_template_kwargs has 65 members; at most 64 are allowed");
    chat_close(c);
}

static char *write_object(char *at, int n)
{
    *at++ = '{';
    for (int i = 0; i < n; i++) {
        at += sprintf(at, "%s\"k%d\":1", i > 0 ? "," : "", i);
    }
    return stpcpy(at, "}");
}

static void check_status(const chat *c, const char *request, int status, const char *error_part)
{
    char error[512] = "";
    llm_prompt p;
    CHECK_INT(chat_render(c, request, strlen(request), &p, error, sizeof error), status);
    CHECK(strstr(error, error_part) != NULL);
    llm_prompt_free(&p);
}

static void test_objects_of_too_many_members_are_refused(void)
{
    static const struct {
        int n[3], status;
    } cases[] = {{{4096}, LLM_OK}, {{4097}, LLM_INVALID}, {{2890, 2890}, LLM_OK}, {{2900, 2900}, LLM_INVALID}};
    static char request[SOURCE_MAX];
    fake_model m = fake_model_open("{{ messages[0].content }}");
    chat *c = NULL;
    CHECK_INT(chat_open(&m.base, &c, NULL, 0), LLM_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *at = stpcpy(
            request, "{\"messages\":[{\"role\":\"user\",\"content\":\"{\\\"a\"}],\"chat_template_kwargs\":{\"a\":[1");
        for (const int *n = cases[i].n; *n > 0; n++) {
            at = write_object(stpcpy(at, ","), *n);
        }
        strcpy(at, "]}}");
        check_status(c, request, cases[i].status,
                     cases[i].status == LLM_OK ? "" : "too many members; one object may have 4096");
    }
    chat_close(c);
}

/* Templates within the limits are rendered, even at the limits of depth. */
static void test_templates_at_the_limits_work(void)
{
    static char source[SOURCE_MAX];
    char error[512], *at = stpcpy(source, "{{ 0");
    for (int i = 0; i < 3900; i++) {
        at = stpcpy(at, " + 1");
    }
    at = stpcpy(at, " }}");
    for (int i = 0; i < 190; i++) {
        at = stpcpy(at, "{% if 1 %}");
    }
    for (int i = 0; i < 190; i++) {
        at = stpcpy(at, "{% endif %}");
    }
    at = stpcpy(at, "{{ ");
    for (int i = 0; i < 190; i++) {
        at = stpcpy(at, "[");
    }
    for (int i = 0; i < 190; i++) {
        at = stpcpy(at, "]");
    }
    strcpy(at, "| length }}{% for i in range(2000) %}{{ i }}{% endfor %}");
    CHECK_INT(outcome_of(source, error), LLM_OK);
}

/* ---- random programs -------------------------------------------------------------------------------------------------- */

typedef struct program {
    random_source random;
    char text[1 << 14];
    size_t n;
    int depth;
} program;

static void put(program *p, const char *text)
{
    const size_t n = strlen(text);
    if (p->n + n < sizeof p->text) {
        memcpy(p->text + p->n, text, n + 1);
        p->n += n;
    }
}

static const char *one_of(program *p, const char *const *words, uint32_t n)
{
    return words[random_below(&p->random, n)];
}
#define ONE_OF(p, words) one_of(p, words, sizeof(words) / sizeof *(words))

static void put_expression(program *p)
{
    static const char *const atoms[] = {"ns.a", "ns.b",    "'x'", "3",  "5000",   "messages", "a",       "''",
                                        "[]",   "{'k':1}", "0",   "-1", "100000", "caller",   "'\\n a'", "1.5"};
    static const char *const operators[] = {" + ", " * ", " ~ ", " in ", " == ", " and ", " % ", " < ", " - "};
    static const char *const filters[] = {"|string",
                                          "|tojson",
                                          "|length",
                                          "|list",
                                          "|join('ab')",
                                          "|replace('a','xx')",
                                          "|upper",
                                          "|sort",
                                          "|first",
                                          "|items",
                                          "|indent(9)",
                                          "|trim",
                                          "|reverse",
                                          "|select('in', ns.a)",
                                          "|dictsort",
                                          "[::2]",
                                          "[0]",
                                          ".split('x')",
                                          "|int",
                                          "|map(attribute='k')",
                                          "|tojson(indent=3)",
                                          "|select('divisibleby', ns.b)"};
    if (++p->depth > 5 || random_below(&p->random, 3) == 0) {
        put(p, ONE_OF(p, atoms));
    } else {
        switch (random_below(&p->random, 6)) {
        case 0:
            put(p, "[");
            put_expression(p);
            put(p, ", ");
            put_expression(p);
            put(p, "]");
            break;
        case 1:
            put(p, "f(");
            put_expression(p);
            put(p, ")");
            break;
        case 2:
            put(p, "range(");
            put_expression(p);
            put(p, ")");
            break;
        case 3:
            put_expression(p);
            put(p, ONE_OF(p, filters));
            break;
        default:
            put(p, "(");
            put_expression(p);
            put(p, ONE_OF(p, operators));
            put_expression(p);
            put(p, ")");
        }
    }
    p->depth--;
}

static void put_statements(program *p)
{
    if (++p->depth <= 5) {
        for (uint32_t i = 1 + random_below(&p->random, 3); i > 0; i--) {
            switch (random_below(&p->random, 6)) {
            case 0:
                put(p, "{% for i in ");
                put_expression(p);
                put(p, " %}");
                put_statements(p);
                put(p, "{% endfor %}");
                break;
            case 1:
                put(p, "{% for i in range(300) %}");
                put_statements(p);
                put(p, "{% endfor %}");
                break;
            case 2:
                put(p, random_below(&p->random, 2) == 0 ? "{% set ns.a = " : "{% set ns.b = ");
                put_expression(p);
                put(p, " %}");
                break;
            case 3:
                put(p, "{{ ns.a.append(");
                put_expression(p);
                put(p, ") }}");
                break;
            default:
                put(p, "{{ ");
                put_expression(p);
                put(p, " }}");
            }
        }
    }
    p->depth--;
}

static uint32_t setting(const char *name, uint32_t otherwise)
{
    const char *text = getenv(name);
    return text == NULL ? otherwise : (uint32_t)strtoul(text, NULL, 10);
}

/* LLMD_HOSTILE_RUNS and LLMD_HOSTILE_SEED choose longer and other runs. */
static void test_random_programs_stay_within_the_bounds(void)
{
    static program p;
    const uint32_t seed = setting("LLMD_HOSTILE_SEED", 1), n = setting("LLMD_HOSTILE_RUNS", PROGRAMS);
    uint32_t n_rendered = 0, n_refused = 0;
    for (uint32_t i = 0; i < n; i++) {
        p.random = (random_source){seed + i + 0x9e3779b97f4a7c15ull};
        random_next(&p.random);
        p.n = 0;
        put(&p, NS("a=[], b='x'") "{% set a = ns %}{% macro f(x) %}{% if x %}{{ x }}{{ f(x ~ 'y') }}");
        put_statements(&p);
        put(&p, "{% endif %}{% endmacro %}");
        put_statements(&p);
        const int status = outcome_in_child(p.text);
        if (status != LLM_OK && status != LLM_TEMPLATE) {
            printf("%d LLMD_HOSTILE_SEED=%u LLMD_HOSTILE_RUNS=1: %s\n", status, seed + i, p.text);
        }
        CHECK(status == LLM_OK || status == LLM_TEMPLATE);
        n_rendered += status == LLM_OK;
        n_refused += status == LLM_TEMPLATE;
    }
    /* enough of the programs are rendered, and enough are refused */
    CHECK(n < PROGRAMS || (n_rendered > n / 10 && n_refused > n / 10));
}

int main(void)
{
    RUN(test_loops_end);
    RUN(test_recursion_ends);
    RUN(test_texts_end);
    RUN(test_lists_end);
    RUN(test_what_crashes_jinja_is_refused);
    RUN(test_values_of_every_kind_are_sorted_by_their_names);
    RUN(test_sources_that_nest_without_end_are_refused);
    RUN(test_variables_without_end_are_refused);
    RUN(test_objects_of_too_many_members_are_refused);
    RUN(test_templates_at_the_limits_work);
    RUN(test_random_programs_stay_within_the_bounds);
    return CHECK_RESULT();
}
