/* What one family of templates needs, or one model. */
#include <stdlib.h>

#include "text/chat.h"
#include "check.h"
#include "fake_model.h"

#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define TOOLS                                                                                                          \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":{}}}]"

typedef struct prompter {
    fake_model model;
    chat *chat;
    llm_prompt prompt; /* of the last rendering */
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
    start(&p, "{{ 'told' if tools else 'plain' }}", "{% if %}"); /* one that cannot be read is left out */
    render(&p, USER("a"), "," TOOLS);
    CHECK(p.prompt.n_text_bytes >= 4 && memcmp(p.prompt.text, "told", 4) == 0);
    done(&p);
}

int main(void)
{
    RUN(test_conversations_with_tools_have_a_template_of_their_own);
    return CHECK_RESULT();
}
