/* Tests prompts that follow an answer whose tokens are known (`after`). For every form of template, either only the
 * text after the answer is rendered, or the whole chat. */
#include <stdlib.h>

#include "text/chat/chat.h"
#include "check.h"
#include "fake_model.h"

#define CHATML_MESSAGE "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' }}"
#define CHATML_ASK "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
#define CHATML "{% for m in messages %}" CHATML_MESSAGE "{% endfor %}" CHATML_ASK

#define SYSTEM(text) "{\"role\":\"system\",\"content\":\"" text "\"}"
#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define ASSISTANT(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define ARGUMENTS(value) "{\\\"a\\\":\\\"" value "\\\"}"
#define CALL(id, name, arguments)                                                                                      \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"arguments\":\"" arguments "\"}}"
#define CALLS(text, calls) "{\"role\":\"assistant\",\"content\":" text ",\"tool_calls\":[" calls "]}"
#define RESULT(id, text) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"" text "\"}"

typedef struct prompter {
    fake_model model;
    chat *chat;
    llm_prompt prompt; /* of the latest rendering */
    int status;
} prompter;

static void start(prompter *p, const char *template)
{
    char error[256];
    memset(p, 0, sizeof *p);
    p->model = fake_model_open(template);
    CHECK_INT(chat_open(&p->model.base, &p->chat, error, sizeof error), LLM_OK);
}

static void clear(llm_prompt *p)
{
    llm_prompt_free(p);
}

static void done(prompter *p)
{
    clear(&p->prompt);
    chat_close(p->chat);
}

static void render(prompter *p, const char *messages, const char *more)
{
    static char request[32768];
    char error[256];
    clear(&p->prompt);
    snprintf(request, sizeof request, "{\"messages\":[%s]%s}", messages, more);
    p->status = chat_render(p->chat, request, strlen(request), &p->prompt, error, sizeof error);
}

/* Renders a prompt after the answer `said`, which has one token for each byte. No tokenizer would divide it like
 * this. */
static void render_after(prompter *p, const char *messages, size_t message, const char *said, const char *rest)
{
    char more[4096];
    size_t n =
        (size_t)snprintf(more, sizeof more, ",\"after\":{\"message\":%zu,\"rest\":\"%s\",\"last\":[", message, rest);
    for (size_t i = 0; said[i] != '\0'; i++) {
        n += (size_t)snprintf(more + n, sizeof more - n, "%s%d", i > 0 ? "," : "", (unsigned char)said[i]);
    }
    snprintf(more + n, sizeof more - n, "]}");
    render(p, messages, more);
    CHECK_INT(p->status, LLM_OK);
}

static bool has_text(const llm_prompt *p, const char *text)
{
    return p->n_text_bytes == strlen(text) && memcmp(p->text, text, strlen(text)) == 0;
}

/* ---- in every form of template ------------------------------------------------------------------------------------- */

typedef struct form {
    const char *name;
    const char *template;
    const char *text; /* the text that follows the answer */
} form;

static const form forms[] = {
    {"chatml", CHATML, "<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"},
    {"texts are trimmed",
     "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n\\n' + m.content | trim + '<|im_end|>' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n\\n' }}{% endif %}",
     "<|im_end|><|im_start|>user\n\nb<|im_end|><|im_start|>assistant\n\n"},
    {"no generation prompt",
     "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '<|user|> ' + m.content + ' <|assistant|>' }}"
     "{% else %}{{ ' ' + m.content + '</s>' }}{% endif %}{% endfor %}",
     "</s><|user|> b <|assistant|>"},
    {"an opening that is always there",
     "{% for m in messages %}" CHATML_MESSAGE "{% endfor %}{{ '<|im_start|>assistant\\n' }}",
     "<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"},
    {"words that are no control tokens",
     "{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}",
     "\nuser: b\nassistant: "},
    {"past answers are rewritten",
     "{% for m in messages %}{% if m.role == 'user' %}" CHATML_MESSAGE "{% else %}"
     "{{ messages[0].content + '<think></think>' + m.content.split('</think>')[-1] + '<|im_end|>' }}{% endif %}"
     "{% endfor %}" CHATML_ASK,
     "<|im_end|><|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"},
    {"a word that the model writes, too, closes the answer",
     "{% for m in messages %}{% if m.role == 'user' %}" CHATML_MESSAGE "{% else %}"
     "{{ '<|im_start|>assistant\\n<say>' + m.content + '</say><|im_end|>' }}{% endif %}{% endfor %}" CHATML_ASK,
     "<|im_end|><|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"},
};

static void test_what_follows_an_answer(void)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        prompter p;
        start(&p, forms[i].template);
        render_after(&p, USER("a") "," ASSISTANT("\\nhello") "," USER("b"), 1, "<say>\nhello</say>", "");
        if (!p.prompt.is_after || !has_text(&p.prompt, forms[i].text)) {
            fprintf(stderr, "%s: %.*s\n", forms[i].name, (int)p.prompt.n_text_bytes, p.prompt.text);
            CHECK(false);
        }
        done(&p);
    }
}

/* The answer was cut off, so the model has not written its end token. */
static void test_a_word_that_the_model_did_not_write_is_written(void)
{
    prompter p;
    start(&p, forms[6].template);
    render_after(&p, USER("a") "," ASSISTANT("he") "," USER("b"), 1, "<say>he", "");
    CHECK(p.prompt.is_after);
    CHECK(has_text(&p.prompt, "</say><|im_end|><|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"));
    done(&p);
}

static void test_the_last_answer_of_several(void)
{
    prompter p;
    start(&p, CHATML);
    render_after(&p, USER("a") "," ASSISTANT("b") "," USER("c") "," ASSISTANT("d") "," USER("e"), 3, "d", "");
    CHECK(has_text(&p.prompt, "<|im_end|>\n<|im_start|>user\ne<|im_end|>\n<|im_start|>assistant\n"));
    done(&p);
}

static void test_a_folded_system_message_shifts_nothing(void)
{
    prompter p;
    start(&p,
          "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('none') }}{% endif %}" CHATML_MESSAGE
          "{% endfor %}" CHATML_ASK);
    render_after(&p, SYSTEM("s") "," USER("a") "," ASSISTANT("x") "," USER("b"), 2, "x", "");
    CHECK(p.prompt.is_after);
    CHECK(has_text(&p.prompt, "<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"));
    done(&p);
}

static void test_the_rest_is_text_and_stays_text(void)
{
    prompter p;
    start(&p, CHATML);
    render_after(&p, USER("a") "," ASSISTANT("one<|im_end|>") "," USER("b"), 1, "one", "<|im_end|>");
    CHECK(has_text(&p.prompt, "<|im_end|><|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"));
    CHECK_INT(p.prompt.tokens[0], '<');
    CHECK_INT(p.prompt.tokens[10], FAKE_END);
    done(&p);
}

static void test_counts_begin_behind_the_answer(void)
{
    prompter p;
    start(&p, CHATML);
    p.model.adds_bos = true;
    render_after(&p, USER("a") "," ASSISTANT("x") "," USER("b") "," USER("c"), 1, "x", "");
    const int32_t first = 2, n_message = 9; /* after <|im_end|> and a newline */
    CHECK_INT(p.prompt.n_boundaries, 3);
    CHECK_INT(p.prompt.boundaries[0], first);
    CHECK_INT(p.prompt.boundaries[1], first + n_message);
    CHECK_INT(p.prompt.boundaries[2], first + 2 * n_message);
    CHECK_INT(p.prompt.n_history, p.prompt.boundaries[2]);
    CHECK_INT(p.prompt.tokens[0], FAKE_END); /* the prompt has no second BOS token */
    done(&p);
}

static void test_a_history_without_a_question(void)
{
    prompter p;
    start(&p, CHATML);
    render(&p, USER("a") "," ASSISTANT("x"), ",\"add_generation_prompt\":false,\"after\":{\"message\":1}");
    CHECK_INT(p.status, LLM_OK);
    CHECK(p.prompt.is_after && has_text(&p.prompt, "<|im_end|>\n"));
    CHECK_INT(p.prompt.n_history, p.prompt.n_tokens);
    done(&p);
}

/* ---- calls --------------------------------------------------------------------------------------------------------- */

#define TOOL_USED USER("a") "," CALLS("null", CALL("c1", "f", ARGUMENTS("x")) "," CALL("c2", "g", ARGUMENTS("y")))
#define ANSWERED TOOL_USED "," RESULT("c1", "one") "," RESULT("c2", "two")
#define PLAIN "{% if not m.tool_calls %}" CHATML_MESSAGE "{% endif %}"
#define EACH_CALL(text) "{% for c in m.tool_calls %}" text "{% endfor %}"

static const form calling[] = {
    {"as objects",
     "{% for m in messages %}" PLAIN "{% if m.tool_calls %}{{ '<|im_start|>assistant\\n' }}" EACH_CALL(
         "{{ '<call>' + c.function | tojson + '</call>\\n' }}") "{{ '<|im_end|>\\n' }}{% endif %}{% endfor "
                                                                "%}" CHATML_ASK,
     "<|im_end|>\n<|im_start|>tool\none<|im_end|>\n<|im_start|>tool\ntwo<|im_end|>\n<|im_start|>assistant\n"},
    {"as strings, with an id behind the arguments",
     "{% for m in messages %}" PLAIN "{% if m.tool_calls %}{{ '<|im_start|>assistant\\n' }}" EACH_CALL(
         "{{ c.function.name + c.function.arguments + c.id + ';' }}") "{{ '</s>' }}{% endif %}{% endfor %}" CHATML_ASK,
     "</s><|im_start|>tool\none<|im_end|>\n<|im_start|>tool\ntwo<|im_end|>\n<|im_start|>assistant\n"},
    {"argument by argument",
     "{% for m in messages %}" PLAIN "{% if m.tool_calls %}{{ '<|im_start|>assistant\\n' }}" EACH_CALL(
         "{{ c.function.name }}{% for k, v in c.function.arguments.items() %}{{ '<' + k + '>' + v + '</>' }}{% endfor "
         "%}") "{{ '<|im_end|>' }}{% endif %}{% endfor %}" CHATML_ASK,
     "<|im_end|><|im_start|>tool\none<|im_end|>\n<|im_start|>tool\ntwo<|im_end|>\n<|im_start|>assistant\n"},
    {"results ask for the name of the call",
     "{% set ns = namespace(name='') %}{% for m in messages %}{% if m.role == 'tool' %}"
     "{{ '<|user|>' + ns.name + ':' + m.content + '<|im_end|>' }}{% else %}" PLAIN
     "{% if m.tool_calls %}" EACH_CALL("{{ '<|assistant|>' + c.function.arguments | tojson + '</s>' }}"
                                       "{% set ns.name = c.function.name %}") "{% endif %}{% endif %}{% endfor %}",
     "</s><|user|>g:one<|im_end|><|user|>g:two<|im_end|>"},
    {"a template that knows no calls", CHATML,
     "<|im_end|>\n<|im_start|>user\n<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>"
     "<|im_end|>\n<|im_start|>assistant\n"},
};

static void test_what_follows_a_call(void)
{
    for (size_t i = 0; i < sizeof calling / sizeof *calling; i++) {
        prompter p;
        start(&p, calling[i].template);
        render_after(&p, ANSWERED, 1, "</call>\n", "");
        if (!p.prompt.is_after || !has_text(&p.prompt, calling[i].text)) {
            fprintf(stderr, "%s: %.*s\n", calling[i].name, (int)p.prompt.n_text_bytes, p.prompt.text);
            CHECK(false);
        }
        done(&p);
    }
}

#define TOOLS                                                                                                          \
    ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":{}}}]"
#define IS_LAST "loop.index0 == messages|length - 1"

/* The tools and the system message have been seen. They are not written again if the next prompt has them after the
 * answer. */
static void test_what_is_moved_behind_the_answer_is_not_written_again(void)
{
    prompter p;
    start(&p, "{% for m in messages %}{% if tools and " IS_LAST " %}{{ tools | tojson }}{% endif %}"
              "{% if messages[0].role == 'system' and " IS_LAST " %}{{ messages[0].content }}{% endif %}" CHATML_MESSAGE
              "{% endfor %}" CHATML_ASK);
    render(&p, SYSTEM("s") "," USER("a") "," ASSISTANT("x") "," USER("b"), TOOLS ",\"after\":{\"message\":2}");
    CHECK_INT(p.status, LLM_OK);
    CHECK(p.prompt.is_after);
    CHECK(has_text(&p.prompt, "<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"));
    done(&p);
}

/* Without knowing that there are tools, the template would write the end of the prompt in another way. */
static void test_tools_in_front_are_told_to_the_template(void)
{
    prompter p;
    start(&p, "{{ tools | tojson }}{% for m in messages %}" CHATML_MESSAGE "{% endfor %}{{ '!' if tools }}" CHATML_ASK);
    render(&p, USER("a") "," ASSISTANT("x") "," USER("b"), TOOLS ",\"after\":{\"message\":1}");
    CHECK(p.prompt.is_after);
    CHECK(has_text(&p.prompt, "<|im_end|>\n<|im_start|>user\nb<|im_end|>\n!<|im_start|>assistant\n"));
    done(&p);
}

/* In this template, only another message follows a call. So the call counts as text, and nothing ends it. */
static void test_nothing_but_another_message_ends_a_call(void)
{
    prompter p;
    start(&p, "{% for m in messages %}{{ m.role + ':' + m.content }}{% if m.tool_calls %}"
              "{{ m.tool_calls[0].function.arguments }}{% endif %}{% endfor %}{{ '</s>' }}");
    render_after(&p, USER("a") "," CALLS("\"hello\"", CALL("c1", "f", ARGUMENTS("x"))) "," USER("some words"), 1, "",
                 "");
    CHECK(p.prompt.is_after);
    CHECK(has_text(&p.prompt, "user:some words</s>"));
    done(&p);
}

/* The arguments of the answer's own call are not read, so they can be anything. */
static void test_broken_arguments_of_known_answers_do_not_count(void)
{
    prompter p;
    start(&p, calling[2].template);
    render_after(&p, USER("a") "," CALLS("null", CALL("c1", "f", "{broken")) "," RESULT("c1", "one"), 1, "", "");
    CHECK(p.prompt.is_after);
    CHECK(has_text(&p.prompt, "<|im_end|><|im_start|>tool\none<|im_end|>\n<|im_start|>assistant\n"));
    done(&p);
}

/* ---- in doubt, all --------------------------------------------------------------------------------------------------- */

typedef struct doubt {
    const char *name;
    const char *template;
    const char *messages;
} doubt;

#define TALK USER("a") "," ASSISTANT("hello") "," USER("b")
#define REMINDED USER("a") "," ASSISTANT("hello") "," SYSTEM("now") "," USER("b")

static const doubt doubtful[] = {
    {"the answer is left out",
     "{% for m in messages %}{% if m.role == 'user' %}" CHATML_MESSAGE "{% endif %}{% endfor %}" CHATML_ASK, TALK},
    {"the answer comes twice",
     "{% for m in messages %}" CHATML_MESSAGE "{% if m.role == 'assistant' %}{{ m.content }}{% endif %}{% endfor %}",
     TALK},
    {"the answer is changed",
     "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content[:3] + '<|im_end|>\\n' }}"
     "{% endfor %}" CHATML_ASK,
     TALK},
    {"the template refuses what it has not seen",
     "{% for m in messages %}{% if m.role == 'assistant' and 'hello' not in m.content %}{{ raise_exception('?') }}"
     "{% endif %}" CHATML_MESSAGE "{% endfor %}" CHATML_ASK,
     TALK},
    {"a later message is moved to the front",
     "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}{% endif %}{% endfor %}"
     "{% for m in messages %}{% if m.role != 'system' %}" CHATML_MESSAGE "{% endif %}{% endfor %}" CHATML_ASK,
     REMINDED},
    {"a later message is left out",
     "{% for m in messages %}{% if m.role != 'system' %}" CHATML_MESSAGE "{% endif %}{% endfor %}" CHATML_ASK,
     REMINDED},
    {"results name their calls, and no known word ends these",
     "{% set ns = namespace(name='') %}{% for m in messages %}{% if m.role == 'tool' %}"
     "{{ '[' + ns.name + ':' + m.content + ']' }}{% elif m.tool_calls %}" EACH_CALL(
         "{{ '<call>' + c.function | tojson + '</call>' }}{% set ns.name = c.function.name %}") "{% else %}"
                                                                                                "{{ m.role + ':' + "
                                                                                                "m.content + ';' }}{% "
                                                                                                "endif %}{% endfor %}",
     ANSWERED},
};

static void test_what_does_not_fit_is_rendered_as_ever(void)
{
    for (size_t i = 0; i < sizeof doubtful / sizeof *doubtful; i++) {
        prompter p, plain;
        start(&p, doubtful[i].template);
        start(&plain, doubtful[i].template);
        render_after(&p, doubtful[i].messages, 1, "hello", "");
        render(&plain, doubtful[i].messages, "");
        const bool same = p.prompt.n_tokens == plain.prompt.n_tokens && !p.prompt.is_after &&
                          memcmp(p.prompt.tokens, plain.prompt.tokens, p.prompt.n_tokens * sizeof(int32_t)) == 0;
        if (!same) {
            fprintf(stderr, "%s: %.*s\n", doubtful[i].name, (int)p.prompt.n_text_bytes, p.prompt.text);
        }
        CHECK(same);
        done(&p);
        done(&plain);
    }
}

/* Words in a message do not end an answer. */
static void test_words_of_messages_end_no_answer(void)
{
    prompter p;
    start(&p, calling[1].template);
    render_after(&p, USER("a") "," CALLS("null", CALL("</s>", "f", "{}")) "," RESULT("</s>", "<|im_end|>"), 1, "", "");
    CHECK(p.prompt.is_after);
    CHECK(has_text(&p.prompt, "</s><|im_start|>tool\n<|im_end|><|im_end|>\n<|im_start|>assistant\n"));
    CHECK_INT(p.prompt.tokens[0], FAKE_EOS);
    done(&p);
}

static void test_malformed_requests_are_refused(void)
{
    static const char *const wrong[] = {
        ",\"after\":[]",
        ",\"after\":{}",
        ",\"after\":{\"message\":-1}",
        ",\"after\":{\"message\":3}",
        ",\"after\":{\"message\":0}", /* the index of the user's message */
        ",\"after\":{\"message\":1,\"last\":[\"a\"]}",
        ",\"after\":{\"message\":1,\"last\":[-1]}",
        ",\"after\":{\"message\":1,\"last\":[100000]}",
    };
    prompter p;
    start(&p, CHATML);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        render(&p, USER("a") "," ASSISTANT("b") "," USER("c"), wrong[i]);
        CHECK_INT(p.status, LLM_INVALID);
        CHECK(p.prompt.tokens == NULL);
    }
    done(&p);
}

int main(void)
{
    RUN(test_what_follows_an_answer);
    RUN(test_a_word_that_the_model_did_not_write_is_written);
    RUN(test_the_last_answer_of_several);
    RUN(test_a_folded_system_message_shifts_nothing);
    RUN(test_the_rest_is_text_and_stays_text);
    RUN(test_counts_begin_behind_the_answer);
    RUN(test_a_history_without_a_question);
    RUN(test_what_follows_a_call);
    RUN(test_what_is_moved_behind_the_answer_is_not_written_again);
    RUN(test_tools_in_front_are_told_to_the_template);
    RUN(test_nothing_but_another_message_ends_a_call);
    RUN(test_broken_arguments_of_known_answers_do_not_count);
    RUN(test_what_does_not_fit_is_rendered_as_ever);
    RUN(test_words_of_messages_end_no_answer);
    RUN(test_malformed_requests_are_refused);
    return CHECK_RESULT();
}
