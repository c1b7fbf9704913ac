/* Tests that llm_chat_render returns a status, and throws nothing, if memory runs out while it explains a failure. Each
 * allocation fails once. At other places this cannot be tested, because the JSON library allocates in destructors. Also
 * tests the total memory that requests allocate, as a measure of their work. */
#include <stdatomic.h>
#include <stdlib.h>

#include "text/chat/chat.h"
#include "chat_families.h"
#include "check.h"
#include "fake_model.h"

#define SOURCE                                                                                                         \
    "{% macro say(m) %}{{ '<|im_start|>' + m.role + '\\n' + (m.content | trim) ~ '<|im_end|>' }}{% endmacro %}"        \
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ say(m) }}{% endfor %}"            \
    "{% if messages[0].content == 'no' %}{{ raise_exception('I will not') }}{% endif %}"

static long n_left = -1;          /* successful allocations until one fails; negative: none fails */
static atomic_size_t n_allocated; /* allocated bytes, including those freed since */

/* State of the C++ runtime for this thread: the exceptions whose handlers run, and how many exceptions are being
 * thrown. */
typedef struct exceptions {
    const void *caught;
    unsigned n_uncaught;
} exceptions;
exceptions *__cxa_get_globals(void);
void _ZSt17__throw_bad_allocv(void) __attribute__((noreturn)); /* std::__throw_bad_alloc() */

/* Replaces operator new(size_t) in the whole program. */
__attribute__((visibility("default"))) void *_Znwm(size_t n)
{
    const bool counts = n_left >= 0 && __cxa_get_globals()->caught != NULL;
    void *out = counts && n_left == 0 ? NULL : malloc(n > 0 ? n : 1);
    n_left -= counts;
    n_allocated += n;
    if (out == NULL) {
        _ZSt17__throw_bad_allocv();
    }
    return out;
}

/* Replaces the operator new that does not throw. Some algorithms can do without the memory. */
__attribute__((visibility("default"))) void *_ZnwmRKSt9nothrow_t(size_t n, const void *tag)
{
    (void)tag;
    return malloc(n > 0 ? n : 1);
}

__attribute__((visibility("default"))) void _ZdlPv(void *p)
{
    free(p);
}

__attribute__((visibility("default"))) void _ZdlPvm(void *p, size_t n)
{
    (void)n;
    free(p);
}

/* Renders with one more allocation each time, until all allocations succeed. Returns how many renderings failed, or -1
 * if one failed in a wrong way. */
static int renderings_that_fail(const chat *c, const char *request, int expected)
{
    for (int n = 0;; n++) {
        llm_prompt p = {0};
        char error[256] = "";
        n_left = n;
        const int status = chat_render(c, request, strlen(request), &p, error, sizeof error);
        const bool has_failed = n_left < 0;
        n_left = -1;
        llm_prompt_free(&p);
        if (!has_failed) {
            return status == expected ? n : -1;
        }
        if (status != LLM_OK && (error[0] == '\0' || p.n_tokens != 0)) {
            return -1;
        }
    }
}

static void test_memory_that_runs_out_in_a_handler_is_a_status(void)
{
    fake_model m = fake_model_open(SOURCE);
    chat *c = NULL;
    CHECK_INT(chat_open(&m.base, &c, NULL, 0), LLM_OK);
    CHECK(chat_has_template(c));
    CHECK_INT(renderings_that_fail(c, "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}", LLM_OK), 0);
    CHECK(renderings_that_fail(c, "{\"messages\":[{\"role\":\"user\",\"content\":\"no\"}]}", LLM_TEMPLATE) > 10);
    CHECK(renderings_that_fail(c, "{\"messages\":[{\"role\":\"user\"", LLM_INVALID) > 0);
    chat_close(c);
}

/* A template that refuses a tool until the tool's parameter b has only one type. */
#define SHOWS_SINGLE_TYPES                                                                                             \
    "{% for t in tools or [] %}{% set p = t.function.parameters.properties %}{% if p.b and p.b.type != 'string' %}"    \
    "{{ raise_exception('no list of types') }}{% endif %}{% endfor %}" FAMILY_HERMES

/* Counts the bytes that rendering allocates. The tool's parameter a nests alternatives around a long list. */
static void count_bytes_for_nested_alternatives(const chat *c, int depth, size_t *n_bytes)
{
    static char request[1 << 18];
    char error[256] = "",
         *at = stpcpy(request, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"tool_choice\":"
                               "{\"mode\":\"none\"},\"tools\":[{\"type\":\"function\",\"function\":"
                               "{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":"
                               "{\"b\":{\"type\":[\"string\",\"null\"]},\"a\":");
    for (int i = 0; i < depth; i++) {
        at = stpcpy(at, "{\"anyOf\":[");
    }
    at = stpcpy(at, "{\"enum\":[null");
    for (int i = 0; i < 10000; i++) {
        at = stpcpy(at, ",null");
    }
    at = stpcpy(at, "]}");
    for (int i = 0; i < depth; i++) {
        at = stpcpy(at, "]}");
    }
    at = stpcpy(at, "}}}}]}");
    llm_prompt p = {0};
    const size_t before = n_allocated;
    CHECK_INT(chat_render(c, request, (size_t)(at - request), &p, error, sizeof error), LLM_OK);
    CHECK_STR(error, "");
    CHECK(p.n_text_bytes > 10000 * strlen("null")); /* the prompt contains the tool */
    llm_prompt_free(&p);
    *n_bytes = n_allocated - before;
}

static void test_types_of_nested_alternatives_are_found_without_copies(void)
{
    fake_model m = fake_model_open(SHOWS_SINGLE_TYPES);
    chat *c = NULL;
    CHECK_INT(chat_open(&m.base, &c, NULL, 0), LLM_OK);
    size_t shallow = 0, deep = 0;
    count_bytes_for_nested_alternatives(c, 5, &shallow); /* this first rendering also makes the form */
    count_bytes_for_nested_alternatives(c, 5, &shallow);
    count_bytes_for_nested_alternatives(c, 25, &deep); /* other code still copies the list once or twice per level */
    if (deep >= 2 * shallow) {
        printf("%zu bytes, and %zu when nested deeper\n", shallow, deep);
    }
    CHECK(deep < 2 * shallow);
    chat_close(c);
}

int main(void)
{
    RUN(test_types_of_nested_alternatives_are_found_without_copies);
    RUN(test_memory_that_runs_out_in_a_handler_is_a_status);
    return CHECK_RESULT();
}
