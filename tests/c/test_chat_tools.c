/* Tests what a chat request demands of the answer: tools, structured output, reasoning, and a message that the answer
 * continues. For every family of templates. */
#include <pthread.h>

#include "answer_transcript.h"
#include "chat_families.h"
#include "check.h"
#include "text/sampling/sampler.h"

#define PARAMETERS "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}},\"required\":[\"city\"]}"
#define TOOL(name, parameters)                                                                                         \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"description\":\"tells\",\"parameters\":" parameters  \
    "}}"
#define TOOLS "\"tools\":[" TOOL("get_weather", PARAMETERS) "," TOOL("get_time", PARAMETERS) "]"
#define USER "{\"role\":\"user\",\"content\":\"hi\"}"
#define REQUEST(more) "{\"messages\":[" USER "]," more "}"
#define REQUIRED(names) ",\"tool_choice\":{\"mode\":\"required\",\"names\":[" names "]}"
#define SCHEMA "\"constraint\":{\"kind\":\"json_schema\",\"text\":\"{\\\"enum\\\":[\\\"yes\\\",\\\"no\\\"]}\"}"

enum { N_FAMILIES = sizeof chat_families / sizeof chat_families[0], N_RENDERED = 40 };

static bool has(const char *text, size_t n, const char *part)
{
    return n > 0 && memmem(text, n, part, strlen(part)) != NULL;
}

static bool asks(const answerer *a, const char *part)
{
    return has(a->prompt.text, a->prompt.n_text_bytes, part);
}

static bool constrains(const answerer *a, const char *part)
{
    return has(a->prompt.constraint, a->prompt.n_constraint_bytes, part);
}

/* Opens a family's template, and renders one request. */
static void once(answerer *a, const char *source, const char *request)
{
    if (!answerer_open(a, source) || answerer_render(a, request) != LLM_OK) {
        printf("%s\n-> %s\n", request, a->error);
        check_failures++;
    }
}

static void check_refused(const char *source, const char *request, const char *why)
{
    answerer a;
    CHECK(answerer_open(&a, source));
    CHECK_INT(answerer_render(&a, request), LLM_INVALID);
    if (strstr(a.error, why) == NULL) {
        printf("%s\n", a.error);
    }
    CHECK(strstr(a.error, why) != NULL);
    answerer_close(&a);
}

static const chat_family *family(const char *name)
{
    size_t i = 0;
    while (strcmp(chat_families[i].name, name) != 0) {
        i++;
    }
    return &chat_families[i];
}

/* ---- tools ---------------------------------------------------------------------------------------------------------- */

static void test_every_template_is_told_of_the_tools(void)
{
    for (size_t i = 0; i < N_FAMILIES; i++) {
        answerer a;
        once(&a, chat_families[i].source, REQUEST(TOOLS));
        CHECK(asks(&a, "get_weather") && asks(&a, "get_time"));
        CHECK(a.prompt.n_syntax_bytes > 0);
        /* its calls begin like any JSON, so nothing can trigger the grammar */
        const bool has_trigger = strcmp(chat_families[i].name, "llama") != 0;
        CHECK(constrains(&a, "root ::=") == has_trigger && constrains(&a, "\"lazy\":true") == has_trigger);
        answerer_close(&a);
    }
}

static void test_required_and_named_calls_are_kept_to_by_a_grammar(void)
{
    for (size_t i = 0; i < N_FAMILIES; i++) {
        answerer any, named;
        once(&any, chat_families[i].source, REQUEST(TOOLS REQUIRED("")));
        once(&named, chat_families[i].source, REQUEST(TOOLS REQUIRED("\"get_time\"")));
        CHECK_STILL_GOOD();
        CHECK(constrains(&any, "root ::=") && constrains(&any, "\"lazy\":false") &&
              constrains(&any, "\"triggers\":[]"));
        CHECK(constrains(&any, "get_weather") && constrains(&any, "get_time"));
        CHECK(!constrains(&named, "get_weather") && constrains(&named, "get_time"));
        CHECK_INT(named.prompt.n_text_bytes, any.prompt.n_text_bytes); /* the prompt describes all tools */
        answerer_close(&any);
        answerer_close(&named);
    }
}

/* Some templates refuse the conversations that are rendered to find the form of calls. Then calls have llmd's own
 * form. */
static void test_templates_that_refuse_to_be_made_out_have_our_calls(void)
{
    static const char *const sources[] = {
        "{% if messages[0].role != 'system' %}{{ raise_exception('system first') }}{% endif %}" FAMILY_K3,
        "{% if messages[0].role != 'system' %}{{ raise_exception('system first') }}{% endif %}" FAMILY_QWEN3,
        "{% if messages[0].role != 'system' %}{{ raise_exception('system first') }}{% endif %}" FAMILY_PLAIN,
    };
    static const char *const choices[] = {"", REQUIRED(""), REQUIRED("\"get_weather\"")};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        for (size_t j = 0; j < sizeof choices / sizeof *choices; j++) {
            char request[2048];
            answerer a;
            snprintf(request, sizeof request,
                     "{\"messages\":[{\"role\":\"system\",\"content\":\"be\"}," USER "]," TOOLS "%s}", choices[j]);
            once(&a, sources[i], request);
            CHECK_STILL_GOOD();
            CHECK(asks(&a, "get_weather") && constrains(&a, "root ::=") && constrains(&a, "get_weather"));
            transcript t = transcript_of(&a.prompt, family("hermes")->call, strlen(family("hermes")->call), 3, NULL);
            CHECK_STR(t.text, "[call 0 get_weather]{\\\"city\\\": \\\"Paris\\\"}");
            free(t.text);
            t = transcript_of(&a.prompt, "Hello <you>", 11, 3, NULL);
            CHECK_STR(t.text, "[text]Hello <you>");
            free(t.text);
            answerer_close(&a);
        }
    }
}

static void test_templates_that_want_tools_have_the_calls_of_their_family(void)
{
    char answer[512];
    answerer a;
    once(&a, "{% if not tools %}{{ raise_exception('nothing without tools') }}{% endif %}" FAMILY_K3, REQUEST(TOOLS));
    snprintf(answer, sizeof answer, "%s%s", family("k3")->thought, family("k3")->call);
    transcript t = transcript_of(&a.prompt, answer, strlen(answer), 3, NULL);
    CHECK_STR(t.text, "[reasoning]hm[call 0 get_weather]{\\\"city\\\":\\\"Paris\\\"}");
    free(t.text);
    answerer_close(&a);
}

static void test_the_choice_does_not_change_the_prompt(void)
{
    static const char *const choices[] = {"", REQUIRED(""), ",\"tool_choice\":{\"mode\":\"none\"}",
                                          ",\"parallel_tool_calls\":false", ",\"parallel_tool_calls\":true"};
    char request[2048];
    for (size_t i = 0; i < N_FAMILIES; i++) {
        answerer first, a;
        once(&first, chat_families[i].source, REQUEST(TOOLS));
        for (size_t j = 0; j < sizeof choices / sizeof *choices; j++) {
            snprintf(request, sizeof request, REQUEST(TOOLS "%s"), choices[j]);
            once(&a, chat_families[i].source, request);
            CHECK_INT(a.prompt.n_text_bytes, first.prompt.n_text_bytes);
            CHECK(memcmp(a.prompt.text, first.prompt.text, first.prompt.n_text_bytes) == 0);
            answerer_close(&a);
        }
        answerer_close(&first);
    }
}

static void test_a_choice_that_cannot_be_made_is_refused(void)
{
    check_refused(FAMILY_HERMES, REQUEST(TOOLS REQUIRED("\"nobody\"")), "tool_choice names \"nobody\"");
    check_refused(FAMILY_HERMES, REQUEST("\"tool_choice\":{\"mode\":\"required\"}"), "tool_choice requires a call");
    check_refused(FAMILY_HERMES, REQUEST("\"tool_choice\":{\"mode\":\"perhaps\"}"), "tool_choice.mode");
    check_refused(FAMILY_HERMES, REQUEST("\"tool_choice\":{\"mode\":\"auto\",\"names\":[1]}"), "");
    check_refused(FAMILY_HERMES, REQUEST("\"tools\":[{\"type\":\"web_search\"}]"), "tools");
}

/* A tool that only a later message describes does not change the beginning of the prompt. */
static void test_a_tool_that_messages_tell_of_is_called_without_being_rendered(void)
{
#define DEFERRED                                                                                                       \
    "{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"is_deferred\":true,\"parameters\":" PARAMETERS "}}"
#define BOTH "\"tools\":[" DEFERRED "," TOOL("get_time", PARAMETERS) "]"
    for (size_t i = 0; i < N_FAMILIES; i++) {
        answerer without, a;
        once(&without, chat_families[i].source, REQUEST("\"tools\":[" TOOL("get_time", PARAMETERS) "]"));
        once(&a, chat_families[i].source, REQUEST(BOTH));
        CHECK_INT(a.prompt.n_text_bytes, without.prompt.n_text_bytes);
        CHECK(memcmp(a.prompt.text, without.prompt.text, without.prompt.n_text_bytes) == 0);
        answerer_close(&without);
        char answer[512];
        const chat_family *f = &chat_families[i];
        snprintf(answer, sizeof answer, "%s%s", f->always_thinks ? f->thought : "", f->call);
        transcript t = transcript_of(&a.prompt, answer, strlen(answer), 3, NULL);
        CHECK(strstr(t.text, "[call 0 get_weather]") != NULL);
        free(t.text);
        answerer_close(&a);
        once(&a, chat_families[i].source, REQUEST(BOTH REQUIRED("\"get_weather\"")));
        CHECK(constrains(&a, "get_weather") && !constrains(&a, "get_time"));
        answerer_close(&a);
        once(&a, chat_families[i].source, REQUEST("\"tools\":[" DEFERRED "]"));
        CHECK(!asks(&a, "get_weather"));
        answerer_close(&a);
    }
#undef BOTH
#undef DEFERRED
}

static void test_names_and_descriptions_are_strangers_texts(void)
{
    answerer a;
    once(&a, FAMILY_HERMES, REQUEST("\"tools\":[" TOOL("<|im_end|>", PARAMETERS) "],\"add_generation_prompt\":false"));
    size_t n_control = 0;
    for (size_t i = 0; i < a.prompt.n_tokens; i++) {
        n_control += fake_is_control(&a.model.base, a.prompt.tokens[i]);
    }
    CHECK_INT(n_control, 4); /* two around the tools, and two around the message */
    answerer_close(&a);
}

/* A tool can be called whatever its schema looks like. */
static void test_schemas_that_cannot_be_expressed_take_any_value(void)
{
    static const char *const schemas[] = {
        "{}", "{\"type\":\"object\"}", "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}}}",
        "{\"type\":\"object\",\"properties\":{\"a\":true,\"b\":{\"items\":false,\"type\":\"array\"}}}",
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"(\"}}}",
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"maxLength\":100000}}}",
        "{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[]}},\"required\":[\"a\"]}",
        "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"https://example.org/x\"}}}",
        "{\"type\":\"object\",\"properties\":[1,2]}", "{\"type\":\"nothing\"}",
        /* an allOf of two schemas that refer to a schema around them: llama.cpp's converter would unroll it without
         * end */
        "{\"type\":\"object\",\"properties\":{\"tree\":{\"$ref\":\"#/$defs/n\"}},\"$defs\":{\"n\":{\"type\":"
        "\"object\",\"properties\":{\"kids\":{\"type\":\"array\",\"items\":{\"allOf\":[{\"$ref\":\"#/$defs/n\"},"
        "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"integer\"}}}]}}}}}}",
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"minLength\":-1}},\"additionalProperties\":"
        "false}"};
    char request[2048];
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        for (size_t j = 0; j < 3; j++) {
            answerer a;
            snprintf(request, sizeof request, REQUEST("\"tools\":[" TOOL("f", "%s") "," TOOL("g", PARAMETERS) "]%s"),
                     schemas[i], j == 0 ? "" : REQUIRED(""));
            once(&a, j == 2 ? FAMILY_CODER : FAMILY_HERMES, request);
            CHECK_STILL_GOOD();
            if (!constrains(&a, "root ::=")) {
                printf("%s\n%.*s\n", request, (int)a.prompt.n_constraint_bytes, a.prompt.constraint);
            }
            CHECK(constrains(&a, "root ::="));
            answerer_close(&a);
        }
    }
}

static void test_large_and_deep_schemas_are_bounded(void)
{
    static char deep[8192], request[1 << 20];
    size_t n = 0;
    for (int i = 0; i < 60; i++) {
        n += (size_t)sprintf(deep + n, "{\"type\":\"object\",\"properties\":{\"a\":");
    }
    n += (size_t)sprintf(deep + n, "{}");
    for (int i = 0; i < 60; i++) {
        n += (size_t)sprintf(deep + n, "}}");
    }
    answerer a;
    snprintf(request, sizeof request, REQUEST("\"tools\":[" TOOL("f", "%s") "]" REQUIRED("")), deep);
    CHECK(answerer_open(&a, FAMILY_HERMES));
    const int status = answerer_render(&a, request);
    CHECK(status == LLM_INVALID || (status == LLM_OK && a.prompt.n_constraint_bytes < 65536));
    char *out = request + sprintf(request, "{\"messages\":[" USER "],\"tools\":[");
    for (int i = 0; i < 200; i++) { /* together, the schemas of all these tools are too large for one grammar */
        out +=
            sprintf(out,
                    "%s{\"type\":\"function\",\"function\":{\"name\":\"tool_%d\",\"parameters\":{\"type\":\"object\","
                    "\"properties\":{",
                    i == 0 ? "" : ",", i);
        for (int j = 0; j < 60; j++) {
            out += sprintf(out, "%s\"property_%d\":{\"type\":\"integer\"}", j == 0 ? "" : ",", j);
        }
        out += sprintf(out, "}}}}");
    }
    sprintf(out, "]" REQUIRED("") "}");
    CHECK_INT(answerer_render(&a, request), LLM_OK);
    CHECK(a.prompt.n_constraint_bytes > 0 && a.prompt.n_constraint_bytes < LLM_CONSTRAINT_BYTES_MAX);
    answerer_close(&a);
}

static void test_a_template_has_stops_of_its_own(void)
{
    answerer a;
    once(&a, FAMILY_LING3, REQUEST(TOOLS));
    CHECK(has(a.prompt.stops, a.prompt.n_stops_bytes, "<|role_end|>"));
    answerer_close(&a);
    once(&a, FAMILY_HERMES, REQUEST(TOOLS));
    CHECK_INT(a.prompt.n_stops_bytes, 0);
    answerer_close(&a);
}

static void test_the_same_tools_have_the_same_form(void)
{
    answerer a;
    char *syntax;
    size_t n;
    once(&a, FAMILY_QWEN3, REQUEST(TOOLS));
    n = a.prompt.n_syntax_bytes;
    syntax = malloc(n);
    memcpy(syntax, a.prompt.syntax, n);
    for (int i = 0; i < 40; i++) {
        char request[2048];
        snprintf(request, sizeof request, REQUEST("\"tools\":[" TOOL("f%d", PARAMETERS) "]"), i);
        CHECK_INT(answerer_render(&a, request), LLM_OK);
    }
    CHECK_INT(answerer_render(&a, REQUEST(TOOLS)), LLM_OK);
    CHECK_INT(a.prompt.n_syntax_bytes, n);
    CHECK(memcmp(a.prompt.syntax, syntax, n) == 0);
    free(syntax);
    answerer_close(&a);
}

/* Uses more forms than the cache holds. So forms are dropped while other threads use them. */
static void *render_often(void *of)
{
    const answerer *shared = of;
    size_t n_good = 0;
    for (int i = 0; i < N_RENDERED; i++) {
        char request[2048], name[32], error[256];
        llm_prompt prompt = {0};
        const int number = i * 7 % 40;
        snprintf(name, sizeof name, "tool_%d_x", number);
        snprintf(request, sizeof request, REQUEST("\"tools\":[" TOOL("tool_%d_x", PARAMETERS) "]" REQUIRED("")),
                 number);
        if (chat_render(shared->chat, request, strlen(request), &prompt, error, sizeof error) == LLM_OK) {
            const char *answer = "<tool_call>\n{\"name\": \"nobody\"}\n</tool_call>";
            transcript t = transcript_of(&prompt, answer, strlen(answer), 5, NULL);
            n_good += has(prompt.constraint, prompt.n_constraint_bytes, name) && strstr(t.text, "nobody") != NULL;
            free(t.text);
        }
        llm_prompt_free(&prompt);
    }
    return (void *)n_good;
}

static void test_threads_share_the_forms(void)
{
    pthread_t threads[4];
    answerer a;
    once(&a, FAMILY_QWEN3, REQUEST(TOOLS));
    for (size_t i = 0; i < 4; i++) {
        CHECK_INT(pthread_create(&threads[i], NULL, render_often, &a), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        void *n_good = NULL;
        pthread_join(threads[i], &n_good);
        CHECK_INT((size_t)n_good, N_RENDERED);
    }
    answerer_close(&a);
}

/* ---- how many calls -------------------------------------------------------------------------------------------------- */

#define ONE ",\"parallel_tool_calls\":false"

/* Returns how many bytes of `text` the answer's form allows, one byte per token. */
static size_t n_written(const answerer *a, const char *text)
{
    sampler *s = NULL;
    const sampler_options options = {
        .sampling = {.top_p = 1, .repeat_penalty = 1, .typical_p = 1},
        .constraint = a->prompt.constraint,
        .n_constraint_bytes = a->prompt.n_constraint_bytes,
    };
    size_t n = 0;
    for (bool is_open = sampler_open(&a->model.base, &options, &s) == LLM_OK; is_open && text[n] != '\0'; n++) {
        float logits[FAKE_VOCABULARY] = {0};
        int32_t token = -1;
        logits[(unsigned char)text[n]] = 1;
        if (sampler_next(s, logits, &token) != LLM_OK || token != (unsigned char)text[n]) {
            break;
        }
    }
    sampler_close(s);
    return n;
}

/* Renders a request. *is_written tells whether the form allows the whole answer. Returns how many calls the answer
 * has. */
static size_t calls_of(const chat_family *f, const char *more, const char *answer, bool *is_written)
{
    char request[2048];
    answerer a;
    snprintf(request, sizeof request, REQUEST(TOOLS "%s"), more);
    once(&a, f->source, request);
    *is_written = a.prompt.n_constraint_bytes == 0 || n_written(&a, answer) == strlen(answer);
    transcript t = transcript_of(&a.prompt, answer, strlen(answer), 3, NULL);
    const size_t n_calls = strstr(t.text, "[call 0 ") == NULL ? 0 : strstr(t.text, "[call 1 ") == NULL ? 1 : 2;
    free(t.text);
    answerer_close(&a);
    return n_calls;
}

static const char *const call_choices[] = {"", REQUIRED(""), REQUIRED("\"get_weather\"")};
enum { N_CHOICES = sizeof call_choices / sizeof *call_choices };

static void check_calls(const chat_family *f, const char *more, const char *between, bool may_call_twice)
{
    char answer[2048];
    const char *thought = f->always_thinks ? f->thought : "";
    bool is_written = false;
    for (size_t i = 0; i < N_CHOICES; i++) {
        char parameters[256];
        snprintf(parameters, sizeof parameters, "%s%s", more, call_choices[i]);
        snprintf(answer, sizeof answer, "%s%s", thought, f->call);
        CHECK_INT(calls_of(f, parameters, answer, &is_written), 1);
        CHECK(is_written);
        if (between == NULL) {
            snprintf(answer, sizeof answer, "%s%s", thought, f->twice);
        } else {
            snprintf(answer, sizeof answer, "%s%s%s%s", thought, f->call, between, f->call);
        }
        const size_t n_calls = calls_of(f, parameters, answer, &is_written);
        /* its calls begin like any JSON, so nothing can trigger the grammar */
        const bool has_grammar = strcmp(f->name, "llama") != 0 || i > 0;
        if (n_calls != 1U + may_call_twice || is_written != (may_call_twice || !has_grammar)) {
            printf("%s%s: %zu calls, written: %d: %s\n", f->name, parameters, n_calls, is_written, answer);
        }
        CHECK_INT(n_calls, 1U + may_call_twice);
        CHECK(is_written == (may_call_twice || !has_grammar));
    }
}

static void test_one_call_is_the_most_where_several_are_not_wanted(void)
{
    static const char *const between[] = {"", "\n", " and then ", ">>>"};
    for (size_t i = 0; i < N_FAMILIES; i++) {
        for (size_t j = 0; j < sizeof between / sizeof *between; j++) {
            check_calls(&chat_families[i], ONE, between[j], false);
        }
        if (chat_families[i].twice != NULL) {
            check_calls(&chat_families[i], ONE, NULL, false);
        }
    }
}

static void test_several_calls_are_possible_where_the_family_has_them(void)
{
    for (size_t i = 0; i < N_FAMILIES; i++) {
        if (chat_families[i].twice != NULL) {
            check_calls(&chat_families[i], "", NULL, true);
            check_calls(&chat_families[i], ",\"parallel_tool_calls\":true", NULL, true);
        }
    }
}

static void test_a_form_of_the_text_leaves_the_number_of_calls(void)
{
    static const char *const several[] = {"hermes", "qwen3", "plain"};
    char answer[1024];
    for (size_t i = 0; i < sizeof several / sizeof *several; i++) {
        const chat_family *f = family(several[i]);
        bool is_written = false;
        snprintf(answer, sizeof answer, "%s\n%s", f->call, f->call);
        CHECK_INT(calls_of(f, ONE "," SCHEMA, answer, &is_written), 1);
        CHECK(!is_written);
        CHECK_INT(calls_of(f, "," SCHEMA, answer, &is_written), 2);
        CHECK(is_written);
    }
}

/* An argument has a form that allows it, a form that does not, and a form that no grammar can express. Families whose
 * arguments are JSON allow any text. */
static void test_a_text_argument_is_kept_to_its_form(void)
{
#define FORMED(text)                                                                                                   \
    REQUEST("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":" PARAMETERS      \
            ",\"form\":{\"argument\":\"city\",\"kind\":\"lark_string\",\"text\":\"" text "\"}}}]" REQUIRED(""))
    static const char *const requests[] = {FORMED("start: \\\"P\\\" /[a-z]+/"), FORMED("start: \\\"Q\\\""),
                                           FORMED("start: \\\"Q\\\"\\n%ignore \\\" \\\"")};
    size_t n_kept = 0;
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const chat_family *f = &chat_families[i];
        size_t n[3];
        char text[1024];
        snprintf(text, sizeof text, "%s%s", f->always_thinks ? f->thought : "", f->call);
        for (size_t k = 0; k < 3; k++) {
            answerer a;
            once(&a, f->source, requests[k]);
            CHECK(!constrains(&a, "f0rm0f4n4rgum3n7-0\\\""));
            CHECK(!asks(&a, "lark_string") && !asks(&a, "start:"));
            n[k] = n_written(&a, text);
            answerer_close(&a);
        }
        CHECK_INT(n[0], strlen(text));
        CHECK_INT(n[2], strlen(text)); /* no grammar can express this form, so it is ignored */
        CHECK(n[1] == strlen(text) || strncmp(text + n[1], "Paris", 5) == 0);
        n_kept += n[1] < strlen(text);
    }
    CHECK(n_kept > N_FAMILIES / 2);
    check_refused(FAMILY_HERMES, FORMED("start: missing"),
                  "tools: the grammar of get_weather: there is no rule missing");
#undef FORMED
}

/* ---- forms of text ---------------------------------------------------------------------------------------------------- */

static void test_every_family_keeps_text_to_a_form(void)
{
    for (size_t i = 0; i < N_FAMILIES; i++) {
        answerer a, both;
        once(&a, chat_families[i].source, REQUEST(SCHEMA));
        once(&both, chat_families[i].source, REQUEST(TOOLS "," SCHEMA));
        CHECK_STILL_GOOD();
        CHECK(constrains(&a, "\"lazy\":false") && constrains(&a, "yes"));
        CHECK(!constrains(&a, "f0rm0f7h373x7"));
        CHECK(constrains(&both, "\"lazy\":false") && constrains(&both, "yes") && constrains(&both, "get_time"));
        answerer_close(&a);
        answerer_close(&both);
    }
}

static void test_forms_that_cannot_be_had_are_refused(void)
{
    check_refused(FAMILY_HERMES, REQUEST("\"constraint\":{\"kind\":\"json_schema\",\"text\":\"{\"}"), "constraint: ");
    check_refused(FAMILY_HERMES, REQUEST("\"constraint\":{\"kind\":\"grammar\",\"text\":\"root ::= missing\"}"),
                  "constraint: ");
    check_refused(FAMILY_HERMES, REQUEST("\"constraint\":{\"kind\":\"poem\",\"text\":\"\"}"), "constraint: ");
    check_refused(FAMILY_HERMES, REQUEST("\"constraint\":{\"kind\":\"json\"}"), "constraint needs");
    check_refused(FAMILY_HERMES, REQUEST("\"constraint\":{\"kind\":\"json_schema\",\"text\":\"{\\\"not\\\":{}}\"}"),
                  "no value is valid");
}

static void test_grammars_of_clients_keep_their_meaning(void)
{
    answerer a;
    once(&a, FAMILY_HERMES,
         REQUEST("\"constraint\":{\"kind\":\"grammar\",\"text\":\"root ::= word{1,3} # a root\\nword ::= \\\"a "
                 "root\\\" | [a-c\\\\]]\"}"));
    CHECK(constrains(&a, "given-root ::= given-word{1,3} # a root\\ngiven-word ::= \\\"a root\\\" | [a-c\\\\]]"));
    answerer_close(&a);
}

/* llama.cpp would follow the reference forever. The tool works, and this argument can have any value. */
static void test_a_tool_s_schema_may_refer_to_itself(void)
{
    answerer a;
    once(&a, FAMILY_HERMES,
         "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"tool_choice\":{\"mode\":\"required\"},\"tools\":[{"
         "\"type\":"
         "\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"x\":{"
         "\"allOf\":[{"
         "\"$ref\":\"#/$defs/A\"}]}},\"$defs\":{\"A\":{\"$ref\":\"#/$defs/A\"}}}}}]}");
    CHECK(constrains(&a, "\\\"x\\\\\\\""));
    answerer_close(&a);
}

/* The root of these schemas is not a plain object. In families with a tag around each argument, llama.cpp would give
 * such tools no arguments. In other families, it would ignore their schema. */
static void test_tools_with_any_root_have_arguments(void)
{
    static const struct {
        const char *schema, *argument;
    } rows[] = {
        {"{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"integer\"},\"url\":{\"type\":\"integer\"}},"
         "\"anyOf\":"
         "[{\"required\":[\"path\"]},{\"required\":[\"url\"]}]}",
         "path"},
        {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"integer\"}},\"required\":[\"path\"]},{"
         "\"type\":\"object\",\"properties\":{\"url\":{\"type\":\"integer\"}},\"required\":[\"url\"]}]}",
         "url"},
        {"{\"$ref\":\"#/definitions/Args\",\"definitions\":{\"Args\":{\"type\":\"object\",\"properties\":{\"path\":{"
         "\"type\":\"integer\"},\"more\":{\"$ref\":\"#/definitions/Args\"}}}}}",
         "path"},
        {"{\"type\":[\"object\",\"null\"],\"properties\":{\"path\":{\"type\":\"integer\"}}}", "path"},
        {"{\"properties\":{\"path\":{\"type\":\"integer\"}}}", "path"},
        {"{\"allOf\":[{\"properties\":{\"path\":{\"type\":\"integer\"}}},{\"required\":[\"url\"],\"properties\":{"
         "\"url\":{\"type\":\"integer\"}}}]}",
         "url"},
    };
    char request[2048], wanted[64];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int is_tagged = 0; is_tagged < 2; is_tagged++) {
            answerer a;
            snprintf(request, sizeof request, REQUEST("\"tools\":[" TOOL("f", "%s") "]" REQUIRED("")), rows[i].schema);
            once(&a, is_tagged ? FAMILY_CODER : FAMILY_HERMES, request);
            snprintf(wanted, sizeof wanted, is_tagged ? " \\\"%s\\\" " : "%s\\\\\\\"", rows[i].argument);
            /* the rule for the beginning of an argument, which all names share */
            const char *mark = is_tagged ? " ::= \\\"<parameter=\\\"" : "";
            if (!constrains(&a, wanted) || !constrains(&a, mark) || !constrains(&a, "j-integer")) {
                printf("%s: %s\n%.*s\n", rows[i].schema, wanted, (int)a.prompt.n_constraint_bytes, a.prompt.constraint);
            }
            CHECK(constrains(&a, wanted) && constrains(&a, mark) && constrains(&a, "j-integer"));
            answerer_close(&a);
        }
    }
}

/* ---- thinking ---------------------------------------------------------------------------------------------------------- */

static void test_thinking_is_described_where_there_is_a_budget(void)
{
    answerer a;
    once(&a, FAMILY_QWEN35, REQUEST("\"thinking_tokens_max\":5"));
    CHECK(constrains(&a, "\"max\":5") && constrains(&a, "\"is_open\":true"));
    CHECK(!constrains(&a, "\"start\":[]") && !constrains(&a, "\"ends\":[]") && !constrains(&a, "\"forced\":[]"));
    CHECK_INT(
        answerer_render(&a, REQUEST("\"thinking_tokens_max\":5,\"chat_template_kwargs\":{\"enable_thinking\":false}")),
        LLM_OK);
    CHECK(constrains(&a, "\"is_open\":false"));
    answerer_close(&a);
    once(&a, FAMILY_HERMES, REQUEST("\"thinking_tokens_max\":5"));
    CHECK_INT(a.prompt.n_constraint_bytes, 0);
    answerer_close(&a);
}

static void test_thinking_is_described_where_it_is_followed(void)
{
    answerer a;
    once(&a, FAMILY_QWEN35, REQUEST("\"follows_thinking\":true"));
    CHECK(constrains(&a, "\"max\":-1") && constrains(&a, "\"is_open\":true"));
    CHECK(constrains(&a, "\"text\":\"</think>\""));
    answerer_close(&a);
    once(&a, FAMILY_HERMES, REQUEST("\"follows_thinking\":true"));
    CHECK_INT(a.prompt.n_constraint_bytes, 0);
    answerer_close(&a);
}

static void test_thinking_may_stay_in_the_text(void)
{
    answerer a;
    once(&a, FAMILY_QWEN3, REQUEST("\"reasoning_apart\":false"));
    const char *answer = "<think>\nhm\n</think>\n\nyes";
    transcript t = transcript_of(&a.prompt, answer, strlen(answer), 3, NULL);
    CHECK_STR(t.text, "[text]<think>\\nhm\\n</think>\\n\\nyes");
    free(t.text);
    answerer_close(&a);
}

static void test_control_words_of_the_form_are_preserved(void)
{
    answerer a; /* in this vocabulary, token 259 is <|im_end|> */
    once(
        &a,
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<|user|>{{ m.reasoning_content }}"
        "<|assistant|>{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        REQUEST("\"tools\":null"));
    CHECK(constrains(&a, "\"preserved\":[260,261]"));
    CHECK_INT(a.prompt.n_preserved, 2);
    CHECK(a.prompt.preserved[0] == 260 && a.prompt.preserved[1] == 261);
    answerer_close(&a);
}

/* ---- the past ---------------------------------------------------------------------------------------------------------- */

#define PAST(id, arguments)                                                                                            \
    USER ",{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"" id                                     \
         "\",\"type\":\"function\",\"function\":{"                                                                     \
         "\"name\":\"get_time\",\"arguments\":\"" arguments "\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"" id         \
         "\",\"content\":\"noon\"}"

static void test_calls_of_the_past_in_every_family(void)
{
    static const char *const pasts[] = {PAST("abcdefghi", "{\\\"city\\\":\\\"Rome\\\"}"),
                                        PAST("call_0123456789abcdefghijklmnop", "{\\\"city\\\":\\\"Rome\\\"}"),
                                        PAST("x", "Rome {"), PAST("", "[\\\"Rome\\\"]")};
    char request[4096];
    for (size_t i = 0; i < N_FAMILIES; i++) {
        for (size_t j = 0; j < sizeof pasts / sizeof *pasts; j++) {
            answerer a;
            snprintf(request, sizeof request, "{\"messages\":[%s," USER "]," TOOLS "}", pasts[j]);
            if (!answerer_open(&a, chat_families[i].source) || answerer_render(&a, request) != LLM_OK) {
                printf("%s %zu: %s\n", chat_families[i].name, j, a.error);
            }
            CHECK_INT(a.status, LLM_OK);
            CHECK(asks(&a, "Rome") && asks(&a, "noon"));
            answerer_close(&a);
        }
    }
}

static void test_renamed_ids_belong_together(void)
{
    answerer a;
    once(&a, FAMILY_NEMO, "{\"messages\":[" PAST("call_1", "{}") "," USER "]}");
    const char *call = memmem(a.prompt.text, a.prompt.n_text_bytes, "\"id\": \"", 7),
               *result = memmem(a.prompt.text, a.prompt.n_text_bytes, "\"call_id\": \"", 12);
    CHECK(call != NULL && result != NULL && memcmp(call + 7, result + 12, 10) == 0);
    CHECK(call[16] == '"');
    answerer_close(&a);
}

static void test_what_was_thought_before_a_call_is_told_again(void)
{
    static const char *const keeping[] = {"qwen3", "oss", "glm", "kimi", "command"};
    const char *request =
        "{\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":\"And\",\"reasoning_content\":"
        "\"I wonder\",\"tool_calls\":[{\"id\":\"abcdefghi\",\"type\":\"function\",\"function\":{\"name\":"
        "\"get_time\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"abcdefghi\","
        "\"content\":\"noon\"}]," TOOLS "}";
    for (size_t i = 0; i < N_FAMILIES; i++) {
        for (size_t j = 0; j < sizeof keeping / sizeof *keeping; j++) {
            if (strcmp(keeping[j], chat_families[i].name) == 0) {
                answerer a;
                once(&a, chat_families[i].source, request);
                CHECK(asks(&a, "I wonder"));
                answerer_close(&a);
            }
        }
    }
}

/* ---- begun answers ------------------------------------------------------------------------------------------------------ */

static void test_a_begun_answer_stands_open_at_the_end(void)
{
    const char *request =
        "{\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":\"Once <|im_end|>\"}],\"continues\":true}";
    answerer a;
    once(&a, FAMILY_HERMES, request);
    const char *end = "<|im_start|>assistant\nOnce <|im_end|>";
    CHECK(a.prompt.n_text_bytes > strlen(end) &&
          memcmp(a.prompt.text + a.prompt.n_text_bytes - strlen(end), end, strlen(end)) == 0);
    CHECK(a.prompt.tokens[a.prompt.n_tokens - 1] != FAKE_END);
    CHECK(a.prompt.n_history > 0 && a.prompt.n_history < a.prompt.n_tokens);
    answerer_close(&a);
    check_refused(FAMILY_HERMES, "{\"messages\":[" USER "],\"continues\":true}", "messages[0] cannot be continued");
    for (size_t i = 0; i < N_FAMILIES; i++) {
        once(&a, chat_families[i].source, request);
        CHECK_STILL_GOOD();
        CHECK(a.prompt.n_text_bytes > 10 && memcmp(a.prompt.text + a.prompt.n_text_bytes - 10, "<|im_end|>", 10) == 0);
        answerer_close(&a);
    }
}

int main(void)
{
    RUN(test_every_template_is_told_of_the_tools);
    RUN(test_required_and_named_calls_are_kept_to_by_a_grammar);
    RUN(test_a_text_argument_is_kept_to_its_form);
    RUN(test_templates_that_refuse_to_be_made_out_have_our_calls);
    RUN(test_templates_that_want_tools_have_the_calls_of_their_family);
    RUN(test_the_choice_does_not_change_the_prompt);
    RUN(test_a_choice_that_cannot_be_made_is_refused);
    RUN(test_a_tool_that_messages_tell_of_is_called_without_being_rendered);
    RUN(test_names_and_descriptions_are_strangers_texts);
    RUN(test_schemas_that_cannot_be_expressed_take_any_value);
    RUN(test_large_and_deep_schemas_are_bounded);
    RUN(test_a_template_has_stops_of_its_own);
    RUN(test_the_same_tools_have_the_same_form);
    RUN(test_threads_share_the_forms);
    RUN(test_one_call_is_the_most_where_several_are_not_wanted);
    RUN(test_several_calls_are_possible_where_the_family_has_them);
    RUN(test_a_form_of_the_text_leaves_the_number_of_calls);
    RUN(test_every_family_keeps_text_to_a_form);
    RUN(test_forms_that_cannot_be_had_are_refused);
    RUN(test_grammars_of_clients_keep_their_meaning);
    RUN(test_a_tool_s_schema_may_refer_to_itself);
    RUN(test_tools_with_any_root_have_arguments);
    RUN(test_thinking_is_described_where_there_is_a_budget);
    RUN(test_thinking_is_described_where_it_is_followed);
    RUN(test_thinking_may_stay_in_the_text);
    RUN(test_control_words_of_the_form_are_preserved);
    RUN(test_calls_of_the_past_in_every_family);
    RUN(test_renamed_ids_belong_together);
    RUN(test_what_was_thought_before_a_call_is_told_again);
    RUN(test_a_begun_answer_stands_open_at_the_end);
    return CHECK_RESULT();
}
