/* fuzz_template.c: chat templates. Each byte of an input is a fragment of a template; whatever they say together, compiling
 * and rendering end with a prompt or a refusal. */
#include <stdlib.h>
#include <string.h>

#include "../c/fake_model.h"
#include "text/chat/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { FRAGMENTS_MAX = 400, FRAGMENT_BYTES_MAX = 64 };

static const char *const fragments[] = {
    "{{ ",
    " }}",
    "{%- ",
    " -%}",
    "{% if ",
    "{% endif %}",
    "{% elif ",
    "{% else %}",
    "{% for ",
    " in ",
    "{% endfor %}",
    "{% set ",
    " = ",
    "{% endset %}",
    "{% macro f(x) %}",
    "{% endmacro %}",
    "{% call f(1) %}",
    "{% endcall %}",
    "{% filter upper %}",
    "{% endfilter %}",
    "{% break %}",
    "{% continue %}",
    "{# ",
    " #}",
    " %}",
    "x",
    "y",
    "ns.a",
    "messages",
    "message",
    ".content",
    "['role']",
    "[0]",
    "[-1]",
    "[::-1]",
    "[1:",
    "]",
    "[",
    "(",
    ")",
    "{",
    "}",
    ", ",
    ": ",
    "'a'",
    "\"b\"",
    "'\\n'",
    "'",
    "0",
    "1",
    "-",
    "17",
    "1.5",
    " + ",
    " - ",
    " * ",
    " / ",
    " % ",
    " ~ ",
    " == ",
    " != ",
    " < ",
    " not ",
    " and ",
    " or ",
    " is ",
    "defined",
    "string",
    "divisibleby(",
    " if ",
    " else ",
    "|",
    "tojson",
    "tojson(indent=2)",
    "length",
    "join('-')",
    "replace('a', 'bb')",
    "trim",
    "list",
    "sort",
    "items",
    "map(attribute='role')",
    "selectattr('role', 'equalto', 'user')",
    "select('in', x)",
    "default('d')",
    "indent(2)",
    "dictsort",
    "first",
    "int",
    ".split('a')",
    ".strip()",
    ".append(x)",
    ".items()",
    ".get('role')",
    "range(",
    "range(9999)",
    "namespace(a=",
    "dict(",
    "raise_exception('no')",
    "strftime_now('%Y')",
    "loop.index0",
    "loop.previtem",
    "caller()",
    "f(x)",
    "f(f)",
    "true",
    "none",
    "\n",
    " ",
    "text <|im_start|>",
    "\xc3\xa9",
    "\\",
    "{%",
    "%}",
    "{{",
    "}}",
    "**",
    "generation %}",
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const char request[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"go on\"},{\"role\":\"assistant\","
                                  "\"content\":\"aaa\"},{\"role\":\"user\",\"content\":\"b\"}]}";
    static char source[FRAGMENTS_MAX * FRAGMENT_BYTES_MAX];
    char *at = source, error[512];
    chat *c = NULL;
    llm_prompt p = {0};
    for (size_t i = 0; i < n_bytes && i < FRAGMENTS_MAX; i++) {
        at = stpcpy(at, fragments[data[i] % (sizeof fragments / sizeof *fragments)]);
    }
    fake_model model = fake_model_open(source);
    const int opened = chat_open(&model.base, &c, error, sizeof error);
    if (opened != LLM_OK) {
        abort();
    }
    const int status = chat_render(c, request, sizeof request - 1, &p, error, sizeof error);
    if (status != LLM_OK && status != LLM_TEMPLATE && status != LLM_INVALID) {
        abort();
    }
    llm_prompt_free(&p);
    chat_close(c);
    return 0;
}
