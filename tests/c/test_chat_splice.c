/* Spliced prompts: the tokens of an answer as they were generated take its place, in every form of template, or nothing
 * does. */
#include <stdlib.h>

#include "text/chat.h"
#include "check.h"
#include "fake_model.h"

#define CHATML_MESSAGE "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' }}"
#define CHATML_ASK "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
#define CHATML "{% for m in messages %}" CHATML_MESSAGE "{% endfor %}" CHATML_ASK

#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define ASSISTANT(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"

typedef struct prompter {
    fake_model model;
    chat *chat;
    llm_prompt prompt; /* of the last rendering */
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

/* One answer as it was generated: the prompt's opening, then one token for each byte, as no tokenizer would have it. */
typedef struct answer {
    int32_t history[512]; /* the tokens resident after it */
    size_t n_history;
    size_t n_opening;
    char tokens[4096]; /* for a splice */
} answer;

static void generate(const prompter *p, const char *text, answer *a)
{
    const llm_prompt *q = &p->prompt;
    CHECK_INT(p->status, LLM_OK);
    CHECK(q->n_history > 0);
    a->n_opening = q->n_tokens - q->n_history;
    a->n_history = q->n_tokens;
    memcpy(a->history, q->tokens, q->n_tokens * sizeof *q->tokens);
    for (; *text != '\0'; text++) {
        a->history[a->n_history++] = (unsigned char)*text;
    }
    char *out = a->tokens;
    for (size_t i = q->n_history; i < a->n_history; i++) {
        out += sprintf(out, "%s%d", i == q->n_history ? "" : ",", a->history[i]);
    }
}

static void render_spliced(prompter *p, const char *messages, const answer *a, size_t message, const char *rest)
{
    static char more[16384];
    snprintf(more, sizeof more, ",\"splices\":[{\"message\":%zu,\"tokens\":[%s],\"rest\":\"%s\"}]", message, a->tokens,
             rest);
    render(p, messages, more);
    CHECK_INT(p->status, LLM_OK);
}

static bool continues(const prompter *p, const answer *a)
{
    return p->prompt.n_tokens > a->n_history &&
           memcmp(p->prompt.tokens, a->history, a->n_history * sizeof(int32_t)) == 0;
}

static bool has_text(const prompter *p, const char *text)
{
    return p->prompt.n_text_bytes == strlen(text) && memcmp(p->prompt.text, text, strlen(text)) == 0;
}

/* ---- in every form of template ------------------------------------------------------------------------------------- */

typedef struct form {
    const char *name;
    const char *template;
    const char *text; /* of the second prompt */
} form;

static const form forms[] = {
    {"chatml", CHATML,
     "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n\nhello<|im_end|>\n<|im_start|>user\nb<|im_end|>\n"
     "<|im_start|>assistant\n"},
    {"headers of words around the role",
     "{% for m in messages %}{{ '<|im_start|>' + m.role + '<|user|>\\n\\n' + m.content | trim + '<|im_end|>' }}"
     "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant<|user|>\\n\\n' }}{% endif %}",
     "<|im_start|>user<|user|>\n\na<|im_end|><|im_start|>assistant<|user|>\n\n\nhello<|im_end|>"
     "<|im_start|>user<|user|>\n\nb<|im_end|><|im_start|>assistant<|user|>\n\n"},
    {"another word for the assistant",
     "{{ bos_token }}{% for m in messages %}{% set r = 'model' if m.role == 'assistant' else m.role %}"
     "{{ '<|im_start|>' + r + '\\n' + m.content | trim + '<|im_end|>\\n' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|im_start|>model\\n' }}{% endif %}",
     "<s><|im_start|>user\na<|im_end|>\n<|im_start|>model\n\nhello<|im_end|>\n<|im_start|>user\nb<|im_end|>\n"
     "<|im_start|>model\n"},
    {"no generation prompt",
     "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '<|user|> ' + m.content + ' <|assistant|>' }}"
     "{% else %}{{ ' ' + m.content + '</s>' }}{% endif %}{% endfor %}",
     "<s><|user|> a <|assistant|>\nhello</s><|user|> b <|assistant|>"},
    {"no generation prompt, and a blank that ends the prompt",
     "{% for m in messages %}{% if m.role == 'user' %}{{ 'Q: ' + m.content + '\\nA: ' }}"
     "{% else %}{{ m.content + '</s>' }}{% endif %}{% endfor %}",
     "Q: a\nA: \nhello</s>Q: b\nA: "},
    {"words that are no control tokens",
     "{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}",
     "user: a\nassistant: \nhello\nuser: b\nassistant: "},
    {"an empty block of reasoning opens only the next answer",
     "{% for m in messages %}" CHATML_MESSAGE "{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' }}{% endif %}",
     "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n\nhello<|im_end|>\n"
     "<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"},
    {"an empty block of reasoning opens only past answers",
     "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + ('<think>\\n\\n</think>\\n\\n' if m.role == "
     "'assistant' "
     "else '') + m.content + '<|im_end|>' + '\\n' }}{% endfor %}" CHATML_ASK,
     "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n\nhello<|im_end|>\n<|im_start|>user\nb<|im_end|>\n"
     "<|im_start|>assistant\n"},
    {"the next answer opens reasoning, past ones close it",
     "{% for m in messages %}{% if m.role == 'user' %}{{ '<|user|>' + m.content }}{% else %}"
     "{{ '<|assistant|></think>' + m.content + '</s>' }}{% endif %}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|assistant|><think>\\n' }}{% endif %}",
     "<|user|>a<|assistant|><think>\n\nhello</s><|user|>b<|assistant|><think>\n"},
};

static void test_the_next_prompt_goes_on_with_what_was_generated(void)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        prompter p;
        answer a;
        start(&p, forms[i].template);
        render(&p, USER("a"), "");
        generate(&p, "\nhello", &a);
        render_spliced(&p, USER("a") "," ASSISTANT("\\nhello") "," USER("b"), &a, 1, "");
        CHECK_INT(p.prompt.n_spliced, 1);
        if (!continues(&p, &a) || !has_text(&p, forms[i].text)) {
            fprintf(stderr, "%s: %.*s\n", forms[i].name, (int)p.prompt.n_text_bytes, p.prompt.text);
            CHECK(false);
        }
        CHECK(p.prompt.n_tokens - p.prompt.n_history == a.n_opening);
        done(&p);
    }
}

static void test_reasoning_and_calls_come_from_the_tokens(void)
{
    prompter p;
    answer a;
    start(&p, "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.reasoning_content %}"
              "{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}{{ m.content }}"
              "{% for c in m.tool_calls %}{{ '<call>' + c.function.name }}{% endfor %}{{ '<|im_end|>\\n' }}{% endfor "
              "%}" CHATML_ASK);
    render(&p, USER("a"), "");
    generate(&p, "<think>x</think><call>f(1)", &a);
    render_spliced(
        &p,
        USER("a") ",{\"role\":\"assistant\",\"content\":null,\"reasoning_content\":\"y\",\"tool_calls\":[{\"type\":"
                  "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"b\\\":1}\"}}]}," USER("b"),
        &a, 1, "");
    CHECK_INT(p.prompt.n_spliced, 1);
    CHECK(continues(&p, &a));
    CHECK(has_text(&p, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>x</think><call>f(1)<|im_end|>\n"
                       "<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"));
    done(&p);
}

static void test_a_folded_system_message_shifts_no_splice(void)
{
    prompter p;
    answer a;
    start(
        &p,
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}" CHATML_MESSAGE
        "{% endfor %}" CHATML_ASK);
    render(&p, "{\"role\":\"system\",\"content\":\"s\"}," USER("a"), "");
    generate(&p, "\nhello", &a);
    render_spliced(&p, "{\"role\":\"system\",\"content\":\"s\"}," USER("a") "," ASSISTANT("\\nhello") "," USER("b"), &a,
                   2, "");
    CHECK_INT(p.prompt.n_spliced, 1);
    CHECK(continues(&p, &a));
    done(&p);
}

static void test_the_rest_is_text_and_stays_text(void)
{
    prompter p;
    answer a;
    start(&p, CHATML);
    render(&p, USER("a"), "");
    generate(&p, "one", &a);
    render_spliced(&p, USER("a") "," ASSISTANT("one<|im_end|>") "," USER("b"), &a, 1, "<|im_end|>");
    CHECK(continues(&p, &a));
    CHECK(has_text(&p, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\none<|im_end|><|im_end|>\n"
                       "<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"));
    CHECK_INT(p.prompt.tokens[a.n_history], '<');
    CHECK_INT(p.prompt.tokens[a.n_history + 10], FAKE_END);
    done(&p);
}

static void test_boundaries_count_spliced_tokens(void)
{
    prompter p;
    answer a;
    start(&p, CHATML);
    render(&p, USER("a"), "");
    generate(&p, "\nhello", &a);
    render_spliced(&p, USER("a") "," ASSISTANT("\\nhello") "," USER("b") "," USER("c"), &a, 1, "");
    const int32_t first = (int32_t)a.n_history + 2, n_message = 9; /* after <|im_end|> and a newline */
    CHECK_INT(p.prompt.n_boundaries, 3);
    CHECK_INT(p.prompt.boundaries[0], first);
    CHECK_INT(p.prompt.boundaries[1], first + n_message);
    CHECK_INT(p.prompt.boundaries[2], first + 2 * n_message);
    CHECK_INT(p.prompt.n_history, p.prompt.boundaries[2]);
    done(&p);
}

static void test_a_history_without_a_question_is_spliced_too(void)
{
    prompter p;
    answer a;
    start(&p, CHATML);
    render(&p, USER("a"), "");
    generate(&p, "\nhello", &a);
    static char more[16384];
    snprintf(more, sizeof more, ",\"add_generation_prompt\":false,\"splices\":[{\"message\":1,\"tokens\":[%s]}]",
             a.tokens);
    render(&p, USER("a") "," ASSISTANT("\\nhello"), more);
    CHECK_INT(p.status, LLM_OK);
    CHECK_INT(p.prompt.n_spliced, 1);
    CHECK(continues(&p, &a));
    CHECK_INT(p.prompt.n_history, p.prompt.n_tokens);
    done(&p);
}

/* ---- in doubt, not at all ------------------------------------------------------------------------------------------ */

#define TRIMMED(before, after)                                                                                         \
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}" before "{{ m.content }}" after                      \
    "{{ '<|im_end|>\\n' }}{% endfor %}" CHATML_ASK

static const form doubtful[] = {
    {"the answer is left out",
     "{% for m in messages %}{% if m.role == 'user' %}" CHATML_MESSAGE "{% endif %}{% endfor %}" CHATML_ASK, NULL},
    {"the answer comes twice", TRIMMED("", "{{ m.content }}"), NULL},
    {"the answer is changed",
     "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content[:3] + '<|im_end|>\\n' }}"
     "{% endfor %}" CHATML_ASK,
     NULL},
    {"another message's text stands in front of it", TRIMMED("{{ messages[0].content }}", ""), NULL},
    {"the answer has no opening of its own",
     "{% for m in messages %}{% if m.role == 'user' %}" CHATML_MESSAGE
     "{% else %}{{ m.content }}{% endif %}{% endfor %}" CHATML_ASK,
     NULL},
    {"the template refuses what it has not seen",
     "{% for m in messages %}{% if m.role == 'assistant' and 'hello' not in m.content %}{{ raise_exception('?') }}"
     "{% endif %}" CHATML_MESSAGE "{% endfor %}" CHATML_ASK,
     NULL},
    {"the generation prompt rewrites the history",
     "{% for m in messages %}{{ '<|im_start|>' + ('x' if add_generation_prompt else 'y') + m.content }}{% endfor %}"
     "{{ '<|im_start|>' }}",
     NULL},
};

static void test_what_does_not_fit_is_rendered_as_ever(void)
{
    for (size_t i = 0; i < sizeof doubtful / sizeof *doubtful; i++) {
        const char *messages = USER("a") "," ASSISTANT("\\nhello") "," USER("b");
        prompter p, plain;
        answer a;
        start(&p, CHATML);
        render(&p, USER("a"), "");
        generate(&p, "\nhello", &a);
        done(&p);
        start(&p, doubtful[i].template);
        start(&plain, doubtful[i].template);
        render_spliced(&p, messages, &a, 1, "");
        render(&plain, messages, "");
        const bool same = p.prompt.n_tokens == plain.prompt.n_tokens && p.prompt.n_spliced == 0 &&
                          memcmp(p.prompt.tokens, plain.prompt.tokens, p.prompt.n_tokens * sizeof(int32_t)) == 0;
        if (!same) {
            fprintf(stderr, "%s: %.*s\n", doubtful[i].name, (int)p.prompt.n_text_bytes, p.prompt.text);
        }
        CHECK(same);
        done(&p);
        done(&plain);
    }
}

/* An empty message in front, with an opening like the answer's, is not the answer's opening. */
static void test_an_empty_message_is_not_swallowed(void)
{
    prompter p;
    answer a;
    start(&p, CHATML);
    render(&p, USER("a"), "");
    generate(&p, "\nhello", &a);
    done(&p);
    start(&p, "{% for m in messages %}{% if m.role == 'user' %}" CHATML_MESSAGE
              "{% else %}{{ m.content }}{% endif %}{% endfor %}" CHATML_ASK);
    render_spliced(&p, USER("") "," ASSISTANT("\\nhello") "," USER("b"), &a, 1, "");
    CHECK_INT(p.prompt.n_spliced, 0);
    CHECK(has_text(&p, "<|im_start|>user\n<|im_end|>\n\nhello<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"));
    done(&p);
}

static void test_one_refused_splice_leaves_the_others(void)
{
    prompter p;
    answer a;
    start(&p, "{% for m in messages %}{% if not loop.first %}" CHATML_MESSAGE "{% endif %}{% endfor %}" CHATML_ASK);
    render(&p, USER("x") "," USER("a"), "");
    generate(&p, "\nhello", &a);
    static char more[16384];
    snprintf(more, sizeof more, ",\"splices\":[{\"message\":0,\"tokens\":[%s]},{\"message\":2,\"tokens\":[%s]}]",
             a.tokens, a.tokens);
    render(&p, ASSISTANT("x") "," USER("a") "," ASSISTANT("\\nhello") "," USER("b"), more);
    CHECK_INT(p.status, LLM_OK);
    CHECK_INT(p.prompt.n_spliced, 1);
    CHECK(continues(&p, &a));
    done(&p);
}

/* Each attempt without the last splice hides the one before. Of 8, the first two would be left after 6 more attempts:
 * it gives up before, for a request costs a bounded number of renderings. */
static void test_splices_that_refuse_each_other_are_all_left_out(void)
{
    prompter p;
    answer a;
    start(&p,
          "{% for m in messages %}{% if m.role == 'user' or loop.index0 < 4 or (loop.index0 + 2 < messages|length and "
          "messages[loop.index0 + 2].content|length > 3) %}" CHATML_MESSAGE "{% endif %}{% endfor %}" CHATML_ASK);
    render(&p, USER("a"), "");
    generate(&p, "x", &a);
    static char messages[8192], more[32768];
    size_t n = 0, n_more = (size_t)snprintf(more, sizeof more, ",\"splices\":[");
    for (int i = 0; i < 8; i++) {
        n += (size_t)snprintf(messages + n, sizeof messages - n, "%s,%s,", USER("a"), ASSISTANT("x"));
        n_more += (size_t)snprintf(more + n_more, sizeof more - n_more, "%s{\"message\":%d,\"tokens\":[%s]}",
                                   i > 0 ? "," : "", 2 * i + 1, a.tokens);
    }
    snprintf(messages + n, sizeof messages - n, "%s", USER("b"));
    snprintf(more + n_more, sizeof more - n_more, "]");
    render(&p, messages, more);
    CHECK_INT(p.status, LLM_OK);
    CHECK_INT(p.prompt.n_spliced, 0);
    done(&p);
}

static void test_malformed_splices_are_refused(void)
{
    static const char *const wrong[] = {
        ",\"splices\":{}",
        ",\"splices\":[1]",
        ",\"splices\":[{\"tokens\":[1]}]",
        ",\"splices\":[{\"message\":1}]",
        ",\"splices\":[{\"message\":-1,\"tokens\":[1]}]",
        ",\"splices\":[{\"message\":3,\"tokens\":[1]}]",
        ",\"splices\":[{\"message\":0,\"tokens\":[1]}]", /* the user's */
        ",\"splices\":[{\"message\":1,\"tokens\":[\"a\"]}]",
        ",\"splices\":[{\"message\":1,\"tokens\":[-1]}]",
        ",\"splices\":[{\"message\":1,\"tokens\":[100000]}]",
        ",\"splices\":[{\"message\":1,\"tokens\":[1]},{\"message\":1,\"tokens\":[1]}]",
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
    RUN(test_the_next_prompt_goes_on_with_what_was_generated);
    RUN(test_reasoning_and_calls_come_from_the_tokens);
    RUN(test_a_folded_system_message_shifts_no_splice);
    RUN(test_the_rest_is_text_and_stays_text);
    RUN(test_boundaries_count_spliced_tokens);
    RUN(test_a_history_without_a_question_is_spliced_too);
    RUN(test_what_does_not_fit_is_rendered_as_ever);
    RUN(test_an_empty_message_is_not_swallowed);
    RUN(test_one_refused_splice_leaves_the_others);
    RUN(test_splices_that_refuse_each_other_are_all_left_out);
    RUN(test_malformed_splices_are_refused);
    return CHECK_RESULT();
}
