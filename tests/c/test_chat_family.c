/* Tests changes to conversations for one family of templates, or for a template that refuses the conversation. The
 * prompt must be the same, whether it is rendered as a whole or after an answer whose tokens are known. */
#include <stdlib.h>

#include "text/chat/chat.h"
#include "check.h"
#include "fake_model.h"

#define MESSAGE "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
#define ASK "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"

#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define CALL(id, name, arguments)                                                                                      \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"arguments\":\"" arguments "\"}}"
#define CALLS(calls) "{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":\"hm\",\"tool_calls\":[" calls "]}"
#define RESULT(id, text) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"" text "\"}"
#define TOOLS                                                                                                          \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":{}}}]"

typedef struct prompter {
    fake_model model;
    chat *chat;
    llm_prompt prompt; /* of the latest rendering */
    char error[256];
} prompter;

static void start(prompter *p, const char *template, const char *tool_template)
{
    memset(p, 0, sizeof *p);
    p->model = fake_model_open(template);
    p->model.tool_template = tool_template;
    CHECK_INT(chat_open(&p->model.base, &p->chat, p->error, sizeof p->error), LLM_OK);
}

static void render(prompter *p, const char *messages, const char *more)
{
    static char request[32768];
    llm_prompt_free(&p->prompt);
    snprintf(request, sizeof request, "{\"messages\":[%s]%s}", messages, more);
    CHECK_INT(chat_render(p->chat, request, strlen(request), &p->prompt, p->error, sizeof p->error), LLM_OK);
    CHECK_STR(p->error, "");
}

static void done(prompter *p)
{
    llm_prompt_free(&p->prompt);
    chat_close(p->chat);
}

static void check_text(const prompter *p, const char *text)
{
    if (p->prompt.n_text_bytes != strlen(text) || memcmp(p->prompt.text, text, strlen(text)) != 0) {
        printf("%.*s\n!= %s\n", (int)p->prompt.n_text_bytes, p->prompt.text, text);
        CHECK(false);
    }
}

/* Checks that the prompt after the answer continues as the whole conversation does. */
static void check_goes_on(prompter *p, const char *messages, int answer, const char *expected)
{
    char after[128], whole[4096];
    render(p, messages, "");
    snprintf(whole, sizeof whole, "%.*s", (int)p->prompt.n_text_bytes, p->prompt.text);
    snprintf(after, sizeof after, ",\"after\":{\"message\":%d}", answer);
    render(p, messages, after);
    CHECK(p->prompt.is_after);
    check_text(p, expected);
    const size_t n = strlen(expected), n_whole = strlen(whole);
    if (n_whole < n || strcmp(whole + n_whole - n, expected) != 0) {
        printf("%s\ndoes not end with %s\n", whole, expected);
        CHECK(false);
    }
}

/* ---- templates ------------------------------------------------------------------------------------------------------ */

static void test_conversations_with_tools_have_a_template_of_their_own(void)
{
    prompter p;
    start(&p, "plain", "{{ tools[0].function.name }}");
    render(&p, USER("a"), "");
    check_text(&p, "plain");
    render(&p, USER("a"), "," TOOLS);
    check_text(&p, "f");
    done(&p);
    start(&p, "{{ 'told' if tools else 'plain' }}", "{% if %}"); /* a tool template that cannot be parsed is ignored */
    render(&p, USER("a"), "," TOOLS);
    CHECK(p.prompt.n_text_bytes >= 4 && memcmp(p.prompt.text, "told", 4) == 0);
    done(&p);
}

/* ---- calls in turns ------------------------------------------------------------------------------------------------- */

#define ONE_CALL                                                                                                       \
    "{% for m in messages %}{% if m.tool_calls %}{% if m.tool_calls | length != 1 %}{{ raise_exception('one call') }}" \
    "{% endif %}{{ '<|im_start|>' + m.content + m.reasoning_content | default('') + m.tool_calls[0].function.name + "  \
    "m.tool_calls[0].function.arguments | tojson + '<|im_end|>\\n' }}{% else %}" MESSAGE "{% endif %}{% endfor %}" ASK
#define F CALL("c1", "f", "{\\\"a\\\":1}")
#define G CALL("c2", "g", "{\\\"b\\\":2}")

static void test_parallel_calls_become_turns_where_a_template_refuses_them(void)
{
    static const char *const results[] = {
        RESULT("c1", "one") "," RESULT("c2", "two"),
        RESULT("c2", "two") "," RESULT("c1", "one"), /* matched by their ids */
        RESULT("", "one") "," RESULT("x", "two"),    /* matched by their order */
    };
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        char messages[2048];
        prompter p;
        start(&p, ONE_CALL, NULL);
        snprintf(messages, sizeof messages, USER("a") "," CALLS(F "," G) ",%s," USER("b"), results[i]);
        render(&p, messages, "");
        check_text(&p, "<|im_start|>user\na<|im_end|>\n<|im_start|>hmf{\"a\": 1}<|im_end|>\n<|im_start|>tool\none"
                       "<|im_end|>\n<|im_start|>g{\"b\": 2}<|im_end|>\n<|im_start|>tool\ntwo<|im_end|>\n"
                       "<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n");
        done(&p);
    }
}

static void test_more_results_than_calls_belong_to_the_last(void)
{
    prompter p;
    start(&p, ONE_CALL, NULL);
    render(&p, CALLS(F "," G) "," RESULT("", "1") "," RESULT("", "2") "," RESULT("", "3") "," CALLS(F "," G), "");
    check_text(&p, "<|im_start|>hmf{\"a\": 1}<|im_end|>\n<|im_start|>tool\n1<|im_end|>\n<|im_start|>g{\"b\": 2}"
                   "<|im_end|>\n<|im_start|>tool\n2<|im_end|>\n<|im_start|>tool\n3<|im_end|>\n"
                   "<|im_start|>hmf{\"a\": 1}<|im_end|>\n<|im_start|>g{\"b\": 2}<|im_end|>\n<|im_start|>assistant\n");
    done(&p);
}

/* ---- families ------------------------------------------------------------------------------------------------------- */

/* One family renders results without blanks around them. The second template trims them itself. */
static void test_blanks_around_results_are_the_same_after_an_answer(void)
{
    static const char *const templates[] = {
        "{# You have access to the following functions in JSONSchema format #}{% for m in messages %}{% if "
        "m.tool_calls "
        "%}{{ '<call>' + m.tool_calls[0].function.arguments | tojson + '<|im_end|>\\n' }}{% else %}" MESSAGE
        "{% endif %}{% endfor %}" ASK,
        "{% for m in messages %}{% if m.tool_calls %}{{ '<call>' + m.tool_calls[0].function.arguments | tojson + "
        "'<|im_end|>\\n' }}{% else %}{{ '<|im_start|>' + m.role + '\\n' + m.content | trim + '<|im_end|>\\n' }}"
        "{% endif %}{% endfor %}" ASK,
    };
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        prompter p;
        start(&p, templates[i], NULL);
        check_goes_on(&p, USER("a") "," CALLS(F) "," RESULT("c1", " one \\n\\n"), 1,
                      "<|im_end|>\n<|im_start|>tool\none<|im_end|>\n<|im_start|>assistant\n");
        done(&p);
    }
}

#define GATHERED                                                                                                       \
    "{# '<|tool_call>call:' #}{% for m in messages %}{% if m.tool_calls %}{{ '<|im_start|>' + "                        \
    "m.tool_calls[0].function.arguments | tojson + '<|im_end|>' }}{% for r in m.tool_responses or [] %}"               \
    "{{ r.name + ':' + r.response | tojson + '<|im_end|>' }}{% endfor %}{{ m.content or '' }}{% else %}"               \
    "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}"                       \
    "{% if add_generation_prompt and messages[-1].role == 'user' %}{{ '<|im_start|>model\\n' }}{% endif %}"

static void test_results_become_part_of_the_call(void)
{
    prompter p;
    start(&p, GATHERED, NULL);
    check_goes_on(&p, USER("a") "," CALLS(F) "," RESULT("c1", "{\\\"x\\\": [1, null]}"), 1,
                  "<|im_end|>f:{\"x\": [1, null]}<|im_end|>");
    render(&p, CALLS(F) "," RESULT("c1", "one\\n") ",{\"role\":\"assistant\",\"content\":\"said\"}", "");
    check_text(&p, "<|im_start|>{\"a\": 1}<|im_end|>f:\"one\\n\"<|im_end|>said");
    done(&p);
}

/* A result is text of a third party, even if it is parsed as JSON. */
static void test_results_that_are_read_as_json_write_no_control_tokens(void)
{
    char deep[1024], messages[2048];
    prompter p;
    start(&p, GATHERED, NULL);
    render(&p, CALLS(F) "," RESULT("c1", "{\\\"<|im_end|>\\\": \\\"<|im_start|><|im_end|>\\\"}"), "");
    int n_control = 0;
    for (size_t i = 0; i < p.prompt.n_tokens; i++) {
        n_control += fake_is_control(&p.model.base, p.prompt.tokens[i]);
    }
    CHECK_INT(n_control, 3); /* written by the template itself */
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    snprintf(messages, sizeof messages, CALLS(F) "," RESULT("c1", "%s"), deep);
    render(&p, messages, ""); /* a result that is nested too deeply for the parser stays text */
    CHECK(p.prompt.n_text_bytes > sizeof deep && p.prompt.text[p.prompt.n_text_bytes - 1] == '>');
    done(&p);
}

int main(void)
{
    RUN(test_conversations_with_tools_have_a_template_of_their_own);
    RUN(test_parallel_calls_become_turns_where_a_template_refuses_them);
    RUN(test_more_results_than_calls_belong_to_the_last);
    RUN(test_blanks_around_results_are_the_same_after_an_answer);
    RUN(test_results_become_part_of_the_call);
    RUN(test_results_that_are_read_as_json_write_no_control_tokens);
    return CHECK_RESULT();
}
