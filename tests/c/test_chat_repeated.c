/* Tests that the renderings of one request do not influence each other, although they share a beginning and values. */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "fake_model.h"
#include "text/chat/chat.h"

#define TURNS "{% for m in messages %}{{ m.content }};{% endfor %}"
#define ANSWER "{% if add_generation_prompt %}a:{% endif %}"

static const char *const MESSAGES =
    "\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":\"y\"},"
    "{\"role\":\"user\",\"content\":\"z\"}]";
static const char *const TOOLS =
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}}]";

static void render(const char *template, const char *members, llm_prompt *out)
{
    fake_model m = fake_model_open(template);
    chat *c = NULL;
    char request[1024], error[512] = "";
    snprintf(request, sizeof request, "{%s,%s%s}", MESSAGES, TOOLS, members);
    CHECK_INT(chat_open(&m.base, &c, error, sizeof error), LLM_OK);
    CHECK_INT(chat_render(c, request, strlen(request), out, error, sizeof error), LLM_OK);
    chat_close(c);
}

/* The part of the prompt before the generation prompt must be the text that the template writes without a generation
 * prompt. */
static void test_the_history_is_the_text_without_a_generation_prompt(void)
{
    static const struct {
        const char *template;
        bool is_prefix;
    } rows[] = {
        {TURNS ANSWER, true},
        {TURNS, true},
        {TURNS "{% if add_generation_prompt %}{% set x = 'a:' %}{{ x }}{% endif %}", true},
        {"{% if not add_generation_prompt %}{% set end = '' %}{% endif %}" TURNS ANSWER, true},
        {"{% set n = namespace(asks=add_generation_prompt) %}" TURNS "{% if n.asks %}a:{% endif %}", true},
        {"{% macro answer() %}" ANSWER "{% endmacro %}" TURNS "{{ answer() }}", true},
        {"{% if add_generation_prompt %}+{% endif %}" TURNS ANSWER, false},
        {"{% set n = namespace(i=0) %}" TURNS "{% if add_generation_prompt %}{% set n.i = 1 %}{% endif %}{{ n.i }}",
         false},
        {"{% set list = [1] %}" TURNS "{% if add_generation_prompt %}{% set _ = list.append(2) %}{% endif %}"
         "{{ list|length }}",
         false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        llm_prompt with = {0}, without = {0};
        render(rows[i].template, "", &with);
        render(rows[i].template, ",\"add_generation_prompt\":false", &without);
        const bool is_prefix =
            without.n_text_bytes <= with.n_text_bytes && memcmp(with.text, without.text, without.n_text_bytes) == 0;
        CHECK_INT(is_prefix, rows[i].is_prefix);
        CHECK_INT(with.n_history, is_prefix ? without.n_tokens : 0);
        llm_prompt_free(&with);
        llm_prompt_free(&without);
    }
}

/* A template may change objects of the request. The next rendering must get them unchanged. Otherwise the first
 * messages alone would have another text, and the boundary after them would be lost. */
static void test_no_rendering_sees_what_another_has_changed(void)
{
    static const char *const rows[] = {
        TURNS ANSWER,
        "{% for m in messages %}{% set m.content = m.content ~ '!' %}{{ m.content }};{% endfor %}" ANSWER,
        "{% set _ = tools.append(tools[0]) %}{{ tools|length }}" TURNS ANSWER,
        "{% set f = tools[0].function %}{% set f.name = f.name ~ 'g' %}{{ tools[0].function.name }}" TURNS ANSWER,
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        llm_prompt prompt = {0};
        render(rows[i], "", &prompt);
        CHECK(prompt.n_boundaries >= 2); /* before and after the user's last message */
        CHECK_INT(prompt.n_history, prompt.n_tokens - 2);
        llm_prompt_free(&prompt);
    }
}

int main(void)
{
    RUN(test_the_history_is_the_text_without_a_generation_prompt);
    RUN(test_no_rendering_sees_what_another_has_changed);
    return CHECK_RESULT();
}
