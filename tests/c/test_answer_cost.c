/* Tests the cost of parsing long answers: how many bytes llama.cpp's parser parses per byte of the answer, and for the
 * most expensive piece. */
#include "answer_transcript.h"
#include "chat_families.h"
#include "check.h"

#define TOOL(name, city)                                                                                               \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"description\":\"d\",\"parameters\":{\"type\":"       \
    "\"object\",\"properties\":{\"city\":{\"type\":\"" city "\"}},\"required\":[\"city\"]}}}"
#define REQUEST(city)                                                                                                  \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"tools\":[" TOOL("get_weather",                           \
                                                                              city) "," TOOL("get_time", city) "]}"
#define CALL(name, arguments) "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " arguments "}\n</tool_call>"

enum {
    N_FAMILIES = sizeof chat_families / sizeof chat_families[0],
    N_SHORT = 8192,
    N_LONG = 40000,
    PIECE = 4,
    READ_MOST = 8192, /* limit of the bytes parsed for one piece, however long the answer is */
};

/* The text of a long answer, to which the functions below append. If a part contains a format for a number, the number
 * counts the parts. */
typedef struct long_answer {
    char text[2 * N_LONG + 4096];
    size_t n;
} long_answer;

static void add(long_answer *a, const char *text)
{
    a->n += (size_t)snprintf(a->text + a->n, sizeof a->text - a->n, "%s", text);
}

static unsigned add_parts(long_answer *a, size_t n_bytes, unsigned n_most, const char *part)
{
    unsigned i = 0;
    for (; a->n < n_bytes && i < n_most; i++) {
        a->n += (size_t)snprintf(a->text + a->n, sizeof a->text - a->n, part, i);
    }
    return i;
}

static bool is_flat(const answerer *a, const long_answer *answer, const char *name, double most, transcript *out)
{
    *out = transcript_of(&a->prompt, answer->text, answer->n, PIECE, NULL);
    const double cost = (double)out->work / (double)answer->n;
    const bool is_good = cost < most && out->work_most <= READ_MOST;
    if (!is_good) {
        printf("%s, %zu bytes: %.1f for each byte, %llu at once\n", name, answer->n, cost,
               (unsigned long long)out->work_most);
    }
    return is_good;
}

static void check_flat(const char *source, const char *head, const char *part, const char *tail, double most)
{
    static long_answer answer;
    for (size_t n_bytes = N_SHORT; n_bytes > 0; n_bytes = n_bytes == N_SHORT ? N_LONG : 0) {
        answerer a;
        transcript t;
        CHECK(answerer_open(&a, source));
        CHECK_INT(answerer_render(&a, REQUEST("string")), LLM_OK);
        answer.n = 0;
        add(&answer, head);
        add_parts(&answer, n_bytes, UINT32_MAX, part);
        add(&answer, tail);
        CHECK(is_flat(&a, &answer, part, most, &t));
        /* diffs come while the parser reads, not only at the end */
        CHECK(t.n_diffs >= answer.n / 64 || strchr(part, '<') != NULL);
        free(t.text);
        answerer_close(&a);
    }
}

static void test_text_and_thoughts(void)
{
    check_flat(FAMILY_HERMES, "", "plain words ", "", 1);
    check_flat(FAMILY_HERMES, "", "if (a < b) { ", "", 60);
    check_flat(FAMILY_QWEN3, "<think>\n", "thoughts < ", "</think>\n\nyes", 60);
    check_flat(FAMILY_LLAMA, "", "{ return } ", "", 60);
    check_flat(FAMILY_OSS, "<|channel|>analysis<|message|>", "thoughts ", "<|end|>", 60);
}

static void test_calls_and_what_looks_like_them(void)
{
    check_flat(FAMILY_HERMES, "", CALL("get_time", "{\"city\": \"B\"}") "\n", "", 200);
    check_flat(FAMILY_HERMES, "", "<tool_call>\n", "", 200);
    check_flat(FAMILY_NEMO, "[TOOL_CALLS][",
               "{\"name\": \"get_time\", \"arguments\": {\"city\": \"%u\"}, \"id\": \"abcdefghi\"}, ", "]", 200);
    check_flat(FAMILY_CODER, "",
               "<tool_call>\n<function=get_time>\n<parameter=city>\nB\n</parameter>\n</function>\n</tool_call>\n", "",
               200);
}

/* A long value in place of the city `paris` in a call: a head, many parts and a tail. `told` is how a part appears
 * in the transcript. */
typedef struct long_value {
    const char *paris, *head, *part, *tail, *told;
} long_value;

static unsigned write_call(const chat_family *f, const long_value *v, long_answer *out)
{
    const char *at = strstr(f->call, v->paris);
    out->n = 0;
    add(out, f->always_thinks ? f->thought : "");
    for (const char *c = f->call; c < at; c++) {
        out->text[out->n++] = *c;
    }
    add(out, v->head);
    const unsigned n_parts = add_parts(out, N_LONG, UINT32_MAX, v->part);
    add(out, v->tail);
    add(out, at + strlen(v->paris));
    return n_parts;
}

static void check_long_value(const chat_family *f, const char *request, const long_value *v)
{
    static long_answer answer, expected;
    answerer a;
    transcript t;
    CHECK(answerer_open(&a, f->source));
    CHECK_INT(answerer_render(&a, request), LLM_OK);
    const unsigned n_parts = write_call(f, v, &answer);
    expected.n = 0;
    add_parts(&expected, SIZE_MAX, n_parts - 1, v->told);
    CHECK(is_flat(&a, &answer, f->name, 60, &t));
    CHECK(t.n_diffs >= answer.n / 64);
    const bool is_told = strstr(t.text, "[call 0 get_weather]{\\\"city\\\":") != NULL &&
                         strstr(t.text, "[text]") == NULL && strstr(t.text, "[call 1") == NULL &&
                         strstr(t.text, expected.text) != NULL;
    if (!is_told) {
        printf("%s: %.200s ... %s\n", f->name, t.text, t.text + (t.n > 200 ? t.n - 200 : 0));
    }
    CHECK(is_told);
    free(t.text);
    answerer_close(&a);
}

static void test_long_texts_in_arguments(void)
{
    const long_value text = {"Paris", "", "a [long] text with, number {%u ", "", "a [long] text with, number {%u "};
    for (size_t i = 0; i < N_FAMILIES; i++) {
        check_long_value(&chat_families[i], REQUEST("string"), &text);
    }
}

static void test_dense_arguments(void)
{
    static const char told[] = ",[[1,{\\\"a\\\":{\\\"b\\\":\\\"x,]\\\"}}],%u]";
    const long_value json = {"\"Paris\"", "[0", ",[[1,{\"a\":{\"b\":\"x,]\"}}],%u]", "]", told},
                     tagged = {"Paris", "[0", json.part, "]", told},
                     marked = {"<|\"|>Paris<|\"|>", "[0", ",[[1,{a:{b:<|\"|>x,]<|\"|>}}],%u]", "]", told};
    const long_value typed = {"true\">Paris", "false\">[0", json.part, "]", told},
                     items = {"Paris", "", MM "<item>\"x,%u]\"" MM "</item>", "", "\\\"x,%u]\\\","};
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const chat_family *f = &chat_families[i];
        check_long_value(f, REQUEST("array"),
                         strcmp(f->name, "minimax") == 0         ? &items
                         : strstr(f->call, typed.paris) != NULL  ? &typed
                         : strstr(f->call, marked.paris) != NULL ? &marked
                         : strstr(f->call, json.paris) != NULL   ? &json
                                                                 : &tagged);
    }
}

int main(void)
{
    RUN(test_text_and_thoughts);
    RUN(test_calls_and_what_looks_like_them);
    RUN(test_long_texts_in_arguments);
    RUN(test_dense_arguments);
    return CHECK_RESULT();
}
