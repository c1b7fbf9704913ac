/* Tests the answer parser with answers of every family of templates, whole and in pieces, well-formed and hostile. */
#include "answer_fragments.h"
#include "answer_transcript.h"
#include "chat_families.h"
#include "check.h"

#define TOOL(name)                                                                                                     \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"description\":\"d\",\"parameters\":{\"type\":"       \
    "\"object\",\"properties\":{\"city\":{\"type\":\"string\"}},\"required\":[\"city\"]}}}"
#define REQUEST(more)                                                                                                  \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"tools\":[" TOOL("get_weather") "," TOOL(                 \
        "get_time") "]" more "}"

enum { N_FAMILIES = sizeof chat_families / sizeof chat_families[0], ANSWER_MAX = 4096 };

static const char words[] = "Hello [a] {b} <c> | you";

/* Returns whether the answer gives the same result in pieces of one byte, and of random sizes. */
static bool is_the_same_in_pieces(const answerer *a, const char *answer, size_t n, bool is_cut, const transcript *whole,
                                  random_source *random)
{
    bool is_same = true;
    for (size_t i = 0; i < 4; i++) {
        transcript t = transcript_until(&a->prompt, answer, n, is_cut, i == 0, random);
        if (strcmp(t.text, whole->text) != 0) {
            printf("%.*s\nwhole:  %s\npieces: %s\n", (int)n, answer, whole->text, t.text);
            is_same = false;
        }
        free(t.text);
    }
    return is_same;
}

static transcript told(const answerer *a, const char *answer)
{
    return transcript_of(&a->prompt, answer, strlen(answer), strlen(answer) + 1, NULL);
}

static size_t count(const char *text, char c)
{
    size_t n = 0;
    for (; *text != '\0'; text++) {
        n += *text == c;
    }
    return n;
}

/* ---- well-formed ---------------------------------------------------------------------------------------------------- */

static void check_answer(const chat_family *f, const answerer *a, const char *answer, const char *expected,
                         const char *unexpected)
{
    random_source random = {7};
    transcript t = told(a, answer);
    const bool has_thought = f->thought != NULL && strncmp(answer, f->thought, strlen(f->thought)) == 0;
    const bool is_good = strstr(t.text, expected) != NULL && strstr(t.text, unexpected) == NULL &&
                         (strstr(t.text, "[reasoning]") != NULL) == has_thought;
    if (!is_good) {
        printf("%s: %s\n-> %s\n", f->name, answer, t.text);
    }
    const bool is_same = is_the_same_in_pieces(a, answer, strlen(answer), false, &t, &random);
    free(t.text);
    CHECK(is_good);
    CHECK(is_same);
}

static void check_family(const chat_family *f, bool thinks)
{
    static char answer[ANSWER_MAX];
    answerer a;
    CHECK(answerer_open(&a, f->source));
    CHECK_INT(answerer_render(&a, REQUEST("")), LLM_OK);
    const char *thought = thinks ? f->thought : "";
    snprintf(answer, sizeof answer, "%s%s", thought, f->call);
    check_answer(f, &a, answer, "[call 0 get_weather]{\\\"city\\\":", "[text]");
    snprintf(answer, sizeof answer, "%s%s%s%s", thought, f->before_text, words, f->after_text);
    check_answer(f, &a, answer, words, "[call");
    snprintf(answer, sizeof answer, "%s%s", thought, f->call);
    strstr(answer, "get_weather")[4] = 'x';
    check_answer(f, &a, answer, "get_xeather", "[call");
    answerer_close(&a);
}

static void test_every_family_calls_speaks_and_thinks(void)
{
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const chat_family *f = &chat_families[i];
        if (f->thought != NULL) {
            check_family(f, true);
        }
        if (!f->always_thinks) {
            check_family(f, false);
        }
        CHECK_STILL_GOOD();
    }
}

static void test_a_call_without_tools_is_text(void)
{
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const chat_family *f = &chat_families[i];
        answerer a;
        CHECK(answerer_open(&a, f->source));
        CHECK_INT(answerer_render(&a, REQUEST(",\"tool_choice\":{\"mode\":\"none\"}")), LLM_OK);
        transcript t = told(&a, f->call);
        CHECK(strstr(t.text, "[call") == NULL);
        free(t.text);
        answerer_close(&a);
    }
}

/* ---- one form, closely ---------------------------------------------------------------------------------------------- */

#define CALL(name, arguments) "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " arguments "}\n</tool_call>"

static void check_until(const char *source, const char *request, const char *answer, bool is_cut, const char *expected)
{
    random_source random = {11};
    answerer a;
    CHECK(answerer_open(&a, source));
    CHECK_INT(answerer_render(&a, request), LLM_OK);
    transcript t = transcript_until(&a.prompt, answer, strlen(answer), is_cut, strlen(answer) + 1, NULL);
    CHECK_STR(t.text, expected);
    CHECK(is_the_same_in_pieces(&a, answer, strlen(answer), is_cut, &t, &random));
    free(t.text);
    answerer_close(&a);
}

static void check_told(const char *source, const char *request, const char *answer, const char *expected)
{
    check_until(source, request, answer, false, expected);
}

static void check_cut(const char *source, const char *request, const char *answer, const char *expected)
{
    check_until(source, request, answer, true, expected);
}

static void test_several_calls_and_text_around_them(void)
{
    check_told(FAMILY_HERMES, REQUEST(""),
               "First:\n" CALL("get_weather", "{\"city\": \"A\"}") "\n" CALL("get_time", "{\"city\": \"B\"}"),
               "[text]First:[call 0 get_weather]{\\\"city\\\": \\\"A\\\"}[call 1 get_time]{\\\"city\\\": \\\"B\\\"}");
    check_told(FAMILY_HERMES, REQUEST(""), CALL("get_weather", "{\"city\": \"A\"}") "\nThat was it.\n",
               "[call 0 get_weather]{\\\"city\\\": \\\"A\\\"}[text]That was it.\\n");
    check_told(FAMILY_HERMES, REQUEST(""),
               CALL("get_weather", "{\"city\": \"A\"}") " and " CALL("get_time", "{\"city\": \"B\"}"),
               "[call 0 get_weather]{\\\"city\\\": \\\"A\\\"}[text]and[call 1 get_time]{\\\"city\\\": \\\"B\\\"}");
    check_told(FAMILY_HERMES, REQUEST(""), CALL("no_tool", "{}") "\n" CALL("get_time", "{\"city\": \"B\"}"),
               "[text]<tool_call>\\n{\\\"name\\\": \\\"no_tool\\\", \\\"arguments\\\": {}}\\n</tool_call>"
               "[call 0 get_time]{\\\"city\\\": \\\"B\\\"}");
}

/* If the request allows only one call, everything that the model writes after this call is returned as text. */
static void test_one_call_is_the_most_where_several_are_not_wanted(void)
{
    static char answer[ANSWER_MAX];
    const char *request = REQUEST(",\"parallel_tool_calls\":false");
    check_told(FAMILY_HERMES, request,
               CALL("get_weather", "{\"city\": \"A\"}") "\n" CALL("get_time", "{\"city\": \"B\"}") "\nSo.",
               "[call 0 get_weather]{\\\"city\\\": \\\"A\\\"}[text]<tool_call>\\n{\\\"name\\\": \\\"get_time\\\", "
               "\\\"arguments\\\": {\\\"city\\\": \\\"B\\\"}}\\n</tool_call>\\nSo.");
    check_told(FAMILY_HERMES, request, CALL("get_time", "{\"city\": \"B\"}") "\n<tool_call>\n{\"name\": \"get_ti",
               "[call 0 get_time]{\\\"city\\\": \\\"B\\\"}[text]<tool_call>\\n{\\\"name\\\": \\\"get_ti");
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const chat_family *f = &chat_families[i];
        answerer a;
        CHECK(answerer_open(&a, f->source));
        CHECK_INT(answerer_render(&a, request), LLM_OK);
        snprintf(answer, sizeof answer, "%s%s 7\n%s7", f->thought == NULL ? "" : f->thought, f->call, f->call);
        check_answer(f, &a, answer, "[call 0 get_weather]", "[call 1");
        transcript t = told(&a, answer);
        CHECK_INT(count(t.text, '7'), 2);
        CHECK(strstr(strstr(t.text, "Paris") + 1, "Paris") != NULL);
        free(t.text);
        answerer_close(&a);
    }
}

static void test_malformed_calls_are_text_and_what_was_told_is_not_told_again(void)
{
    check_told(FAMILY_HERMES, REQUEST(""), "a <tool_call>\nnonsense\n</tool_call> b",
               "[text]a <tool_call>\\nnonsense\\n</tool_call> b");
    check_told(FAMILY_HERMES, REQUEST(""), "a <tool_call>\n{\"name\": \"get_ti",
               "[text]a <tool_call>\\n{\\\"name\\\": \\\"get_ti");
    check_told(FAMILY_HERMES, REQUEST(""), "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {\"city\": \"B",
               "[call 0 get_time]{\\\"city\\\": \\\"B");
    check_told(FAMILY_HERMES, REQUEST(""), "ends <tool_", "[text]ends <tool_");
    check_told(FAMILY_HERMES, REQUEST(""), CALL("get_time", "{\"city\": \"B\"}") "\n<tool_call>\n{\"name\": \"get_ti",
               "[call 0 get_time]{\\\"city\\\": \\\"B\\\"}");
    check_told(FAMILY_HERMES, REQUEST(""), CALL("get_time", "{\"city\": \"B\"}") "\n" CALL("no_tool", "{}"),
               "[call 0 get_time]{\\\"city\\\": \\\"B\\\"}[text]<tool_call>\\n{\\\"name\\\": \\\"no_tool\\\", "
               "\\\"arguments\\\": "
               "{}}\\n</tool_call>");
    check_told(FAMILY_LLAMA, REQUEST(""), "function f() { return 1 } // {", "[text]function f() { return 1 } // {");
}

#define TORN "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {\"city\": \"B\", \"n\": nothing}}\n</tool_call>"
#define TORN_TOLD "[call 0 get_time]{\\\"city\\\": \\\"B\\\""

/* A malformed call is reported as far as its arguments are JSON. The rest of the call is not text. What follows the
 * call is parsed. */
static void test_a_call_that_breaks_its_form_is_a_call_as_far_as_it_came(void)
{
    check_told(FAMILY_HERMES, REQUEST(""), TORN, TORN_TOLD);
    check_told(FAMILY_HERMES, REQUEST(""), "So:\n" TORN "\nThat <was> it.\n",
               "[text]So:" TORN_TOLD "[text]That <was> it.\\n");
    check_told(FAMILY_HERMES, REQUEST(""), TORN "\n" CALL("get_time", "{\"city\": \"C\"}"),
               TORN_TOLD "[call 1 get_time]{\\\"city\\\": \\\"C\\\"}");
    check_told(FAMILY_HERMES, REQUEST(""), CALL("get_time", "{\"city\": \"B\"}, \"why\": 1"),
               "[call 0 get_time]{\\\"city\\\": \\\"B\\\"}");
    check_told(FAMILY_HERMES, REQUEST(""),
               "<tool_call>\n{\"name\": \"get_time\", \"arguments\": nothing}\n</tool_call> a",
               "[call 0 get_time]{[text]a");
}

#define TYPED                                                                                                          \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":" \
    "\"get_time\",\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":"       \
    "\"string\"},\"n\":{\"type\":\"integer\"},\"flag\":{\"type\":\"boolean\"},\"list\":{\"type\":\"array\"},\"what\":" \
    "{"                                                                                                                \
    "\"type\":\"object\"}},\"required\":[\"city\",\"n\"]}}}]}"
#define PARAMETER(name, value) "<parameter=" name ">\n" value "\n</parameter>\n"
#define TYPED_CALL(parameters) "<tool_call>\n<function=get_time>\n" parameters "</function>\n</tool_call>"

/* In this family, nothing marks the end of a malformed call. So everything after a complete call is text. */
static void test_text_after_a_whole_call_that_nothing_closes_is_text(void)
{
#define FIRST "[call 0 get_weather]{\\\"city\\\": \\\"Paris\\\"}"
    check_told(FAMILY_NEMO, REQUEST(""), "[TOOL_CALLS][" NEMO_CALL " It is 7 degrees.",
               FIRST "[text] It is 7 degrees.");
    check_told(FAMILY_NEMO, REQUEST(",\"parallel_tool_calls\":false"),
               "[TOOL_CALLS][" NEMO_CALL ", " NEMO_CALL "] It is 7 degrees.",
               FIRST "[text], {\\\"name\\\": \\\"get_weather\\\", \\\"arguments\\\": {\\\"city\\\": \\\"Paris\\\"}, "
                     "\\\"id\\\": \\\"abcdefghi\\\"}] It is 7 degrees.");
#undef FIRST
}

/* Templates of this family write the values of earlier calls as Python does, and models imitate this. A text that is
 * not a value becomes a string. */
static void test_values_are_read_as_python_writes_them(void)
{
    check_told(
        FAMILY_CODER, TYPED,
        TYPED_CALL(PARAMETER("flag", "True") PARAMETER("n", "None") PARAMETER("list", "['a', \"b\", False]")
                       PARAMETER("what", "{'x': 'it\\'s \"q\"', \"y\": [True,],}") PARAMETER("city", "True")),
        "[call 0 get_time]{\\\"flag\\\":true,\\\"n\\\":null,\\\"list\\\":[\\\"a\\\", \\\"b\\\", false],"
        "\\\"what\\\":{\\\"x\\\": \\\"it's \\\\\\\"q\\\\\\\"\\\", \\\"y\\\": [true]},\\\"city\\\":\\\"True\\\"}");
    check_told(FAMILY_CODER, TYPED,
               TYPED_CALL(PARAMETER("n", "about 5") PARAMETER("flag", "'x'") PARAMETER("list", "5 6")),
               "[call 0 get_time]{\\\"n\\\":\\\"about 5\\\",\\\"flag\\\":\\\"x\\\",\\\"list\\\":\\\"5 6\\\"}");
    check_told(
        FAMILY_HERMES, TYPED,
        "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {'city': 'B', 'flag': True, \"n\": None}}\n</tool_call>",
        "[call 0 get_time]{\\\"city\\\": \\\"B\\\", \\\"flag\\\": true, \\\"n\\\": null}");
}

static void test_parameters_come_in_any_order_and_with_others(void)
{
    check_told(
        FAMILY_CODER, TYPED,
        TYPED_CALL(PARAMETER("flag", "true") PARAMETER("more", "[1]") PARAMETER("city", "B") PARAMETER("why", "so")),
        "[call 0 get_time]{\\\"flag\\\":true,\\\"more\\\":[1],\\\"city\\\":\\\"B\\\",\\\"why\\\":\\\"so\\\"}");
    check_told(FAMILY_CODER, TYPED, TYPED_CALL(""), "[call 0 get_time]{}");
    check_told(FAMILY_CODER, TYPED, TYPED_CALL(PARAMETER("n", "1234567890123456789")),
               "[call 0 get_time]{\\\"n\\\":1234567890123456789}");
}

#define TYPED_LFM2(arguments) "<|tool_call_start|>[get_time(" arguments ")]<|tool_call_end|>"

static void test_arguments_like_pythons_are_read(void)
{
    check_told(FAMILY_LFM2, TYPED, TYPED_LFM2("city='a\n\"b\" \\'c\\'', n=1, flag=True, list=['x', 2]"),
               "[call 0 get_time]{\\\"city\\\":\\\"a\\\\n\\\\\\\"b\\\\\\\" 'c'\\\",\\\"n\\\":1,\\\"flag\\\":true,"
               "\\\"list\\\":[\\\"x\\\", 2]}");
    check_told(FAMILY_LFM2, TYPED, TYPED_LFM2("city=5"), "[call 0 get_time]{\\\"city\\\":5}");
    check_told(FAMILY_LFM2, TYPED, TYPED_LFM2(""), "[call 0 get_time]{}");
}

/* Arguments are JSON, whatever a model writes into their strings. */
static void test_strings_are_made_json(void)
{
    check_told(FAMILY_HERMES, REQUEST(""), CALL("get_time", "{\"city\": \"a\n\tb\x01\"}"),
               "[call 0 get_time]{\\\"city\\\": \\\"a\\\\n\\\\tb\\\\u0001\\\"}");
    check_told(FAMILY_HERMES, REQUEST(""), CALL("get_time", "{\"city\": \"it\\'s \\x41 \\d \\ud83d. \\ud83d\\ude00\"}"),
               "[call 0 get_time]{\\\"city\\\": \\\"it's \\\\u0041 \\\\\\\\d \xef\xbf\xbd. \\\\ud83d\\\\ude00\\\"}");
}

/* If an answer is truncated after the name of a call, the rest of the call is not returned as text. The same
 * holds for an incomplete closing tag, and for the beginning of another call. */
static void test_what_is_left_of_a_cut_call_is_no_text(void)
{
    check_told(FAMILY_HERMES, REQUEST(""), "a <tool_call>\n{\"name\": \"get_time\", \"argum",
               "[text]a[call 0 get_time]{");
    check_told(FAMILY_HERMES, REQUEST(""), "a <tool_call>\n{\"name\": \"get_time\", \"arguments\": {\"city\": \"B\\",
               "[text]a[call 0 get_time]{\\\"city\\\": \\\"B");
    check_told(FAMILY_HERMES, REQUEST(""),
               "a <tool_call>\n{\"name\": \"get_time\", \"arguments\": {\"city\": \"B\"}}\n</tool_c",
               "[text]a[call 0 get_time]{\\\"city\\\": \\\"B\\\"}");
    check_told(FAMILY_CODER, REQUEST(""),
               "a <tool_call>\n<function=get_time>\n<parameter=city>\nB\n</parameter>\n</func",
               "[text]a[call 0 get_time]{\\\"city\\\":\\\"B\\\"");
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const chat_family *f = &chat_families[i];
        answerer a;
        CHECK(answerer_open(&a, f->source));
        CHECK_INT(answerer_render(&a, REQUEST("")), LLM_OK);
        static char answer[ANSWER_MAX];
        snprintf(answer, sizeof answer, "%s%s", f->thought == NULL ? "" : f->thought, f->call);
        for (size_t n = 0; n <= strlen(answer); n++) {
            if (((unsigned char)answer[n] & 0xc0) == 0x80) {
                continue; /* pieces end between characters */
            }
            transcript t = transcript_of(&a.prompt, answer, n, n + 1, NULL);
            const char *call = strstr(t.text, "[call 0");
            if (call != NULL && strstr(call, "[text]") != NULL) {
                printf("%s: %.*s\n-> %s\n", f->name, (int)n, answer, t.text);
                CHECK(false);
            }
            free(t.text);
        }
        answerer_close(&a);
    }
}

#define MUST_CALL ",\"tool_choice\":{\"mode\":\"required\"}"

/* If an answer is truncated before a call has its whole name, nothing of the call is returned, not even as text. Bytes
 * that may still be text are returned as text. */
static void test_a_call_that_is_cut_before_it_has_a_name_is_nothing(void)
{
    check_cut(FAMILY_HERMES, REQUEST(""), "a\n<tool_call>\n{\"name\": \"get_ti", "[text]a");
    check_cut(FAMILY_HERMES, REQUEST(""), "a <tool_call>", "[text]a");
    check_cut(FAMILY_HERMES, REQUEST(""), "if a <", "[text]if a <");
    check_cut(FAMILY_HERMES, REQUEST(MUST_CALL), "<tool_", "");
    check_cut(FAMILY_HERMES, REQUEST(""), "a <tool_call>\nnonsense", "[text]a <tool_call>\\nnonsense");
    check_cut(FAMILY_HERMES, REQUEST(""), "a <tool_call>\n{\"name\": \"get_time\", \"argum",
              "[text]a[call 0 get_time]{");
    check_cut(FAMILY_HERMES, REQUEST(",\"parallel_tool_calls\":false"),
              CALL("get_time", "{\"city\": \"B\"}") "\n<tool_call>\n{\"name\": \"get_ti",
              "[call 0 get_time]{\\\"city\\\": \\\"B\\\"}");
    check_cut(FAMILY_QWEN3, REQUEST(""), "<think>\nhm\n</thi", "[reasoning]hm\\n");
    check_cut(FAMILY_QWEN3, REQUEST(""), "<think>\nhm\n</think>\n\na <", "[reasoning]hm\\n[text]a <");
}

/* Returns whether the transcript has text that is not blank. */
static bool has_text(const transcript *t)
{
    const char *text = strstr(t->text, "[text]");
    while (text != NULL && strncmp(text, text[0] == '[' ? "[text]" : "\\n", text[0] == '[' ? 6 : 2) == 0) {
        text += text[0] == '[' ? 6 : 2;
    }
    return text != NULL && *text != '\0';
}

static void test_wherever_a_call_is_cut_there_is_no_text(void)
{
    static char answer[ANSWER_MAX];
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const chat_family *f = &chat_families[i];
        answerer a;
        CHECK(answerer_open(&a, f->source));
        for (int must_call = 0; must_call < 2; must_call++) {
            CHECK_INT(answerer_render(&a, must_call ? REQUEST(MUST_CALL) : REQUEST("")), LLM_OK);
            snprintf(answer, sizeof answer, "%s%s", f->thought == NULL ? "" : f->thought, f->call);
            const size_t n_to_name = (size_t)(strstr(answer, "get_weather") - answer);
            for (size_t n = must_call ? 0 : n_to_name; n <= strlen(answer); n++) {
                if (((unsigned char)answer[n] & 0xc0) == 0x80) {
                    continue; /* pieces end between characters */
                }
                transcript t = transcript_until(&a.prompt, answer, n, true, n + 1, NULL);
                if (has_text(&t)) {
                    printf("%s: %.*s\n-> %s\n", f->name, (int)n, answer, t.text);
                }
                CHECK(!has_text(&t));
                free(t.text);
            }
        }
        answerer_close(&a);
    }
}

static void test_text_before_a_call_that_is_cut_is_all_there_is(void)
{
    static char answer[ANSWER_MAX];
    size_t n_families = 0;
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const chat_family *f = &chat_families[i];
        answerer a;
        CHECK(answerer_open(&a, f->source));
        CHECK_INT(answerer_render(&a, REQUEST("")), LLM_OK);
        snprintf(answer, sizeof answer, "%s%sHello%s%s", f->thought == NULL ? "" : f->thought, f->before_text,
                 f->after_text, f->call);
        transcript all = told(&a, answer);
        const bool is_known = strstr(all.text, "[text]Hello[call 0 get_weather]") != NULL;
        free(all.text);
        n_families += is_known;
        for (size_t n = (size_t)(strstr(answer, "get_weather") - answer); is_known && n <= strlen(answer); n++) {
            if (((unsigned char)answer[n] & 0xc0) == 0x80) {
                continue;
            }
            transcript t = transcript_until(&a.prompt, answer, n, true, n + 1, NULL);
            const char *text = strstr(t.text, "[text]Hello");
            const bool is_all =
                text != NULL && (text[11] == '\0' || text[11] == '[') && strstr(text + 11, "[text]") == NULL;
            if (!is_all) {
                printf("%s: %.*s\n-> %s\n", f->name, (int)n, answer, t.text);
            }
            CHECK(is_all);
            free(t.text);
        }
        answerer_close(&a);
    }
    CHECK(n_families > N_FAMILIES / 2);
}

static void test_text_that_is_cut_is_what_it_is_at_its_end(void)
{
    static char answer[ANSWER_MAX];
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const chat_family *f = &chat_families[i];
        answerer a;
        CHECK(answerer_open(&a, f->source));
        CHECK_INT(answerer_render(&a, REQUEST("")), LLM_OK);
        const int n_before =
            snprintf(answer, sizeof answer, "%s%s", f->thought == NULL ? "" : f->thought, f->before_text);
        for (size_t n = 1; n <= strlen(words); n++) {
            snprintf(answer + n_before, sizeof answer - (size_t)n_before, "%.*s", (int)n, words);
            transcript cut = transcript_until(&a.prompt, answer, strlen(answer), true, ANSWER_MAX, NULL);
            transcript end = told(&a, answer);
            const bool may_call = words[n - 1] == '{'; /* a call of a Llama model begins like this */
            if (!may_call && strcmp(cut.text, end.text) != 0) {
                printf("%s: %s\n-> %s\n", f->name, answer, cut.text);
            }
            CHECK(may_call || strcmp(cut.text, end.text) == 0);
            free(cut.text);
            free(end.text);
        }
        answerer_close(&a);
    }
}

static void test_what_is_no_text_becomes_a_mark(void)
{
    check_told(FAMILY_HERMES, REQUEST(""), "a\xff\xc3(\xe2\x82<\xf0\x9f\x98\x80>\xe2\x82",
               "[text]a\xef\xbf\xbd\xef\xbf\xbd(\xef\xbf\xbd<\xf0\x9f\x98\x80>\xef\xbf\xbd");
    check_told(FAMILY_HERMES, REQUEST(""), CALL("get_time", "{\"city\": \"\xff\"}"),
               "[call 0 get_time]{\\\"city\\\": \\\"\xef\xbf\xbd\\\"}");
}

static void test_ids_are_the_models_or_nine_letters_and_digits(void)
{
    answerer a;
    CHECK(answerer_open(&a, FAMILY_HERMES));
    CHECK_INT(answerer_render(&a, REQUEST("")), LLM_OK);
    transcript t = told(&a, CALL("get_time", "{\"city\": \"B\"}") "\n" CALL("get_time", "{\"city\": \"B\"}"));
    CHECK_INT(strlen(t.ids), 20);
    CHECK(t.ids[9] == ' ' && t.ids[19] == ' ' && memcmp(t.ids, t.ids + 10, 9) != 0);
    CHECK_INT(strspn(t.ids, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"), 9);
    free(t.text);
    answerer_close(&a);
    CHECK(answerer_open(&a, FAMILY_SMALL));
    CHECK_INT(answerer_render(&a, REQUEST("")), LLM_OK);
    t = told(&a, "[TOOL_CALLS]get_time[CALL_ID]abcdefghi[ARGS]{\"city\": \"B\"}");
    CHECK_STR(t.ids, "abcdefghi ");
    free(t.text);
    answerer_close(&a);
}

static void test_text_comes_as_it_is_written(void)
{
    answerer a;
    random_source random = {3};
    CHECK(answerer_open(&a, FAMILY_QWEN3));
    CHECK_INT(answerer_render(&a, REQUEST("")), LLM_OK);
    const char *answer = "<think>\nabcdef\n</think>\n\nghijkl";
    transcript t = transcript_of(&a.prompt, answer, strlen(answer), 1, &random);
    CHECK_STR(t.text, "[reasoning]abcdef\\n[text]ghijkl");
    CHECK_INT(t.n_diffs, 13); /* one diff for each byte of text */
    free(t.text);
    answerer_close(&a);
}

static void test_plain_templates_need_no_parser(void)
{
    answerer a;
    CHECK(answerer_open(&a, FAMILY_PLAIN));
    CHECK_INT(answerer_render(&a, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"), LLM_OK);
    CHECK_INT(a.prompt.n_syntax_bytes, 0);
    CHECK_INT(a.prompt.n_constraint_bytes, 0);
    transcript t = told(&a, "<tool_call> </think>");
    CHECK_STR(t.text, "[text]<tool_call> </think>");
    free(t.text);
    answerer_close(&a);
}

static void test_an_answer_that_was_begun_is_not_told_again(void)
{
    const char *request = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":"
                          "\"Once <|im_end|>\"}],\"continues\":true}";
    check_told(FAMILY_QWEN3, request, " upon a time", "[text] upon a time");
    check_told(FAMILY_OSS, request, " upon a time", "[text] upon a time");
    check_told(FAMILY_PLAIN, request, " upon a time", "[text] upon a time");
    const char *thinking = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":"
                           "null,\"reasoning_content\":\"I <|im_end|>\"}],\"continues\":true}";
    check_told(FAMILY_QWEN3, thinking, " think</think>\n\nyes", "[reasoning] think[text]yes");
}

/* In this template, a marker ends the reasoning, but no marker begins it. The prompt already has its first words. */
static void test_what_the_prompt_says_for_the_model_is_not_told(void)
{
    const char *begun_thinking =
        "{% for m in messages %}{% if m.role == 'assistant' %}<|begin_assistant|>\n{% if m.reasoning_content %}"
        "{{ m.reasoning_content + '\n[ANSWER]\n' }}{% endif %}{{ m.content }}\n<|end|>\n{% else %}"
        "<|begin_{{ m.role }}|>\n{{ m.content }}\n{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|begin_assistant|>\nMy steps:\n{% endif %}";
    const char *request = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";
    check_told(begun_thinking, request, " one\n[ANSWER]\nyes", "[reasoning] one\\n[text]yes");
    check_told(begun_thinking, request, "one", "[reasoning]one");
    check_told(begun_thinking, request, "[ANSWER]\nyes", "[text]yes");
}

static void test_syntax_that_is_none_is_refused(void)
{
    llm_answer_parser *p;
    char error[256];
    static const char *const bad[] = {"{", "[]", "{}", "{\"format\":99}", "\"a\"", "null"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_INT(answer_parser_open(bad[i], strlen(bad[i]), &p, error, sizeof error), LLM_INVALID);
        CHECK(p == NULL);
    }
    CHECK_INT(answer_parser_open(NULL, 0, &p, error, sizeof error), LLM_OK);
    const char *diffs;
    size_t n;
    CHECK_INT(answer_parser_feed(p, "a", 1, true, false, &diffs, &n), LLM_OK);
    CHECK_INT(answer_parser_feed(p, "a", 1, true, false, &diffs, &n), LLM_MISUSE);
    answer_parser_close(p);
    answer_parser_close(NULL);
}

/* ---- hostile --------------------------------------------------------------------------------------------------------- */

static size_t spell_hostile(char *out, size_t n_max, random_source *random)
{
    size_t n = 0;
    for (uint32_t left = 1 + random_below(random, 24); left > 0; left--) {
        const char *fragment = answer_fragments[random_below(random, N_ANSWER_FRAGMENTS)];
        if (n + strlen(fragment) < n_max) {
            memcpy(out + n, fragment, strlen(fragment));
            n += strlen(fragment);
        }
    }
    out[n] = '\0';
    return n;
}

static void test_whatever_a_model_writes_pieces_make_no_difference(void)
{
    random_source random = {20261};
    static char answer[ANSWER_MAX];
    for (size_t i = 0; i < N_FAMILIES; i++) {
        answerer a;
        CHECK(answerer_open(&a, chat_families[i].source));
        CHECK_INT(answerer_render(&a, REQUEST("")), LLM_OK);
        for (int round = 0; round < 60; round++) {
            const size_t n = spell_hostile(answer, sizeof answer, &random);
            transcript t = transcript_of(&a.prompt, answer, n, n + 1, NULL);
            transcript cut = transcript_until(&a.prompt, answer, n, true, n + 1, NULL);
            const bool is_same = is_the_same_in_pieces(&a, answer, n, false, &t, &random) &&
                                 is_the_same_in_pieces(&a, answer, n, true, &cut, &random);
            const size_t n_sevens = count(t.text, '7'); /* bytes are omitted only from a malformed call */
            const bool is_all = n_sevens == count(answer, '7') || (strstr(t.text, "[call") != NULL && n_sevens < n);
            if (!is_same || !is_all) {
                printf("%s: %s\n-> %s\n", chat_families[i].name, answer, t.text);
            }
            free(cut.text);
            free(t.text);
            CHECK(is_same && is_all);
        }
        answerer_close(&a);
    }
}

static void test_answers_may_end_anywhere(void)
{
    static char answer[ANSWER_MAX];
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const chat_family *f = &chat_families[i];
        answerer a;
        CHECK(answerer_open(&a, f->source));
        CHECK_INT(answerer_render(&a, REQUEST("")), LLM_OK);
        snprintf(answer, sizeof answer, "%s%s", f->thought == NULL ? "" : f->thought, f->call);
        for (size_t n = 0; n <= strlen(answer); n++) {
            transcript t = transcript_of(&a.prompt, answer, n, n + 1, NULL);
            CHECK(strstr(t.text, "[refused]") == NULL);
            free(t.text);
        }
        answerer_close(&a);
    }
}

/* A call whose values are nested as deeply as the parser allows. */
static void test_deep_nesting_ends_a_call(void)
{
    enum { N_DEEP = 100000, N_READ = 900 };
    static char answer[N_DEEP + 256];
    for (size_t i = 0; i < N_FAMILIES; i++) {
        answerer a;
        CHECK(answerer_open(&a, chat_families[i].source));
        CHECK_INT(answerer_render(&a, REQUEST("")), LLM_OK);
        strcpy(answer, chat_families[i].call);
        char *at = strstr(answer, "Paris");
        at -= at[-1] == '"';
        memset(at, '[', N_DEEP);
        at[N_DEEP] = '\0';
        transcript t = told(&a, answer);
        CHECK(count(t.text, '[') >= N_READ);
        free(t.text);
        answerer_close(&a);
    }
}

int main(void)
{
    RUN(test_every_family_calls_speaks_and_thinks);
    RUN(test_a_call_without_tools_is_text);
    RUN(test_several_calls_and_text_around_them);
    RUN(test_one_call_is_the_most_where_several_are_not_wanted);
    RUN(test_malformed_calls_are_text_and_what_was_told_is_not_told_again);
    RUN(test_a_call_that_breaks_its_form_is_a_call_as_far_as_it_came);
    RUN(test_text_after_a_whole_call_that_nothing_closes_is_text);
    RUN(test_values_are_read_as_python_writes_them);
    RUN(test_parameters_come_in_any_order_and_with_others);
    RUN(test_arguments_like_pythons_are_read);
    RUN(test_strings_are_made_json);
    RUN(test_what_is_left_of_a_cut_call_is_no_text);
    RUN(test_a_call_that_is_cut_before_it_has_a_name_is_nothing);
    RUN(test_wherever_a_call_is_cut_there_is_no_text);
    RUN(test_text_before_a_call_that_is_cut_is_all_there_is);
    RUN(test_text_that_is_cut_is_what_it_is_at_its_end);
    RUN(test_what_is_no_text_becomes_a_mark);
    RUN(test_ids_are_the_models_or_nine_letters_and_digits);
    RUN(test_text_comes_as_it_is_written);
    RUN(test_plain_templates_need_no_parser);
    RUN(test_an_answer_that_was_begun_is_not_told_again);
    RUN(test_what_the_prompt_says_for_the_model_is_not_told);
    RUN(test_syntax_that_is_none_is_refused);
    RUN(test_whatever_a_model_writes_pieces_make_no_difference);
    RUN(test_answers_may_end_anywhere);
    RUN(test_deep_nesting_ends_a_call);
    return CHECK_RESULT();
}
