/* Tests how a constraint restricts the tokens of an answer: grammars, triggers and reasoning, on a model's
 * vocabulary. */
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "llm.h"
#include "model/model.h"
#include "random.h"
#include "text/constraint/constraint_make.h"
#include "text/sampling/sampler.h"

static model *sim;

enum { N = 512, SIM_END = 258, ANSWER_BYTES = 1 << 16 };

static sampler *constrained(const char *document, uint64_t seed, float temperature)
{
    sampler *s = NULL;
    const sampler_options options = {
        .sampling = {.temperature = temperature, .top_p = 1, .repeat_penalty = 1, .typical_p = 1, .seed = seed},
        .constraint = document,
        .n_constraint_bytes = strlen(document),
    };
    return sampler_open(sim, &options, &s) == LLM_OK ? s : NULL;
}

/* Generates with random logits until the end, or at most n_max tokens. Returns the last status. */
static int answer(sampler *s, uint64_t seed, uint32_t n_max, char *out)
{
    random_source random = {seed};
    size_t n_out = 0;
    int status = LLM_OK;
    for (uint32_t i = 0; i < n_max && status == LLM_OK; i++) {
        float logits[N];
        int32_t token = -1;
        for (int t = 0; t < N; t++) {
            logits[t] = (float)(random_below(&random, 1000)) / 100.0f;
        }
        status = sampler_next(s, logits, &token);
        if (status != LLM_OK || sampler_ends(s, token)) {
            break;
        }
        const int32_t n = sim->ops->piece(sim, token, sampler_shows(s, token), out + n_out, 256);
        n_out += n > 0 ? (size_t)n : 0;
    }
    out[n_out] = '\0';
    return status;
}

static llm_document made(const char *kind, const char *text, char *error)
{
    llm_document out = {0};
    char request[8192];
    snprintf(request, sizeof request, "{\"kind\":\"%s\",\"text\":%s}", kind, text);
    error[0] = '\0';
    (void)constraint_make(sim, request, strlen(request), &out, error, 512);
    return out;
}

static bool begins_with_one_of(const char *text, const char *const *all, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(text, all[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- grammars ---- */

static void a_choice_is_one_of_them(void)
{
    static const char *const all[] = {"yes", "no", "ja\xc3\xa9", " the the"};
    char error[512], text[ANSWER_BYTES];
    llm_document d = made("choice", "\"[\\\"yes\\\",\\\"no\\\",\\\"ja\\u00e9\\\",\\\" the the\\\"]\"", error);
    CHECK_STR(error, "");
    uint32_t seen = 0;
    for (uint64_t seed = 1; seed < 60; seed++) {
        sampler *s = constrained(d.text, seed, 1);
        CHECK(s != NULL && sampler_is_slow(s));
        CHECK_INT(answer(s, seed, 100, text), LLM_OK);
        CHECK(begins_with_one_of(text, all, 4));
        for (size_t i = 0; i < 4; i++) {
            seen |= strcmp(text, all[i]) == 0 ? 1u << i : 0;
        }
        sampler_close(s);
    }
    CHECK_INT(seen, 15);
    free(d.text);
}

/* Answers with the same document share a constraint that was parsed only once (document_cache.h). */
static void answers_with_one_document_do_not_change_each_other(void)
{
    char error[512], alone[2][ANSWER_BYTES], text[ANSWER_BYTES];
    llm_document d = made("regex", "\"[a-c]{3,40}(1|22|333)*x\"", error);
    CHECK_STR(error, "");
    for (uint64_t i = 0; i < 2; i++) {
        sampler *s = constrained(d.text, i, 1);
        CHECK_INT(answer(s, i, 100, alone[i]), LLM_OK);
        sampler_close(s);
    }
    CHECK(strcmp(alone[0], alone[1]) != 0);
    sampler *both[2] = {constrained(d.text, 0, 1), constrained(d.text, 1, 1)};
    for (int i = 1; i >= 0; i--) {
        CHECK_INT(answer(both[i], (uint64_t)i, 100, text), LLM_OK);
        CHECK_STR(text, alone[i]);
    }
    sampler_close(both[0]);
    sampler_close(both[1]);
    free(d.text);
}

static void json_is_json(void)
{
    char error[512], text[ANSWER_BYTES];
    llm_document d =
        made("json_schema",
             "\"{\\\"type\\\":\\\"object\\\",\\\"required\\\":[\\\"n\\\",\\\"p\\\"],\\\"properties\\\":{"
             "\\\"n\\\":{\\\"type\\\":\\\"integer\\\",\\\"minimum\\\":3,\\\"maximum\\\":12},"
             "\\\"p\\\":{\\\"type\\\":\\\"string\\\",\\\"pattern\\\":\\\"^[a-c]{2}\\\\\\\\d+\\\\\\\"?$\\\"},"
             "\\\"l\\\":{\\\"type\\\":\\\"array\\\",\\\"maxItems\\\":3,\\\"items\\\":{\\\"type\\\":"
             "\\\"boolean\\\"}}},\\\"additionalProperties\\\":false}\"",
             error);
    CHECK_STR(error, "");
    for (uint64_t seed = 1; seed < 30; seed++) {
        sampler *s = constrained(d.text, seed, 1);
        const llm_json_limits limits = {.n_values = 100,
                                        .n_containers = 100,
                                        .n_keys = 100,
                                        .depth = 9,
                                        .n_key_bytes = 100,
                                        .n_number_bytes = 100,
                                        .n_floats = 100,
                                        .n_text_bytes = 1000};
        llm_json json = {0};
        CHECK_INT(answer(s, seed, 400, text), LLM_OK);
        CHECK_INT(llm_json_scan(text, strlen(text), &limits, &json), LLM_OK);
        CHECK(strstr(json.text, "\"n\":") != NULL && strstr(json.text, "\"p\":\"") != NULL);
        const int n = atoi(strstr(json.text, "\"n\":") + 4);
        CHECK(n >= 3 && n <= 12);
        const char *p = strstr(json.text, "\"p\":\"") + 5;
        CHECK(p[0] >= 'a' && p[0] <= 'c' && p[1] >= 'a' && p[1] <= 'c' && p[2] >= '0' && p[2] <= '9');
        llm_json_free(&json);
        sampler_close(s);
    }
    free(d.text);
}

static void an_expression_is_matched(void)
{
    char error[512], text[ANSWER_BYTES];
    llm_document d = made("regex", "\"(?:\\\\w{3}-)?[^a-z\\\\s]\\\\d{2,4}|zz*?\"", error);
    CHECK_STR(error, "");
    for (uint64_t seed = 1; seed < 40; seed++) {
        sampler *s = constrained(d.text, seed, 1);
        CHECK_INT(answer(s, seed, 40, text), LLM_OK);
        const char *rest = strlen(text) > 4 && text[3] == '-' ? text + 4 : text;
        CHECK(text[0] == 'z' || strlen(rest) >= 3);
        for (const char *c = text[0] == 'z' && text[1] != '-' ? text + strlen(text) : rest + strlen(rest) - 2;
             *c != '\0'; c++) {
            CHECK((*c >= '0' && *c <= '9') || (text[0] == 'z'));
        }
        sampler_close(s);
    }
    free(d.text);
}

/* The logits always prefer tokens that the grammar does not allow. The answer nevertheless follows the grammar, and
 * does not end early. */
static void what_the_model_wants_is_not_enough(void)
{
    char text[64] = "";
    sampler *s = constrained("{\"grammar\":\"root ::= \\\"ab\\\" [0-9]{3}\"}", 1, 0);
    for (int i = 0; i < 6; i++) {
        float logits[N] = {0};
        int32_t token = -1;
        logits[SIM_END] = 50;
        logits['7'] = 1;
        logits[300] = 9;
        CHECK_INT(sampler_next(s, logits, &token), LLM_OK);
        if (i == 5) {
            CHECK_INT(token, SIM_END);
        } else {
            text[i] = (char)token;
        }
    }
    CHECK_STR(text, "ab777");
    sampler_close(s);
}

static void faults_have_a_status(void)
{
    static const char *const faulty[] = {
        "[]",
        "{",
        "{\"grammar\":5}",
        "{\"grammar\":\"root ::= \"}x",
        "{\"grammar\":\"root ::= a\"}",
        "{\"grammar\":\"toot ::= \\\"a\\\"\"}",
        "{\"grammar\":\"root ::= root \\\"a\\\"\"}",
        "{\"grammar\":\"root ::= x root x | \\\"a\\\"\\nx ::= \\\"b\\\"?\"}",
        "{\"grammar\":\"root ::= \\\"a\\\"{3000}\"}",
        "{\"grammar\":\"root ::= \\\"a\\\"{900}{900}\"}",
        "{\"grammar\":\"root ::= \\\"a\"}",
        "{\"grammar\":\"root ::= [a\"}",
        "{\"grammar\":\"root ::= \\\"a\\\" | (\"}",
        "{\"preserved\":[512]}",
        "{\"thinking\":{\"start\":[-1]}}",
        "{\"grammar\":\"root ::= \\\"a\\\"\",\"prefill\":\"b\"}",
        "{\"grammar\":\"root ::= \\\"a\\\"\",\"lazy\":true,\"triggers\":[{\"type\":\"pattern\",\"value\":\"(\"}]}",
        "{\"grammar\":\"root ::= <[511]> <[512]\"}",
        "{\"grammar\":\"root ::= \\\"\\\\q\\\"\"}",
    };
    for (size_t i = 0; i < sizeof faulty / sizeof faulty[0]; i++) {
        char text[ANSWER_BYTES];
        sampler *s = constrained(faulty[i], 1, 1);
        CHECK(s != NULL);
        const int status = answer(s, 1, 3, text);
        if (status != LLM_CONSTRAINT) {
            printf("%s\n", faulty[i]);
        }
        CHECK_INT(status, LLM_CONSTRAINT);
        sampler_close(s);
    }
}

/* A rule that can be empty can be repeated. The grammars of some templates contain this. */
static void nothing_may_repeat(void)
{
    char text[ANSWER_BYTES];
    sampler *s = constrained("{\"grammar\":\"root ::= one | all\\none ::= \\\"a\\\" s\\nall ::= (one? s)+ [!]\\n"
                             "s ::= | \\\" \\\" | [\\n]{1,2} [ ]{0,3}\"}",
                             1, 1);
    CHECK_INT(answer(s, 4, 300, text), LLM_OK);
    CHECK(text[0] != '\0' && text[strspn(text, "a \n!")] == '\0');
    sampler_close(s);
}

/* If no token can continue the answer, it ends with a status, not in a loop. */
static void a_dead_end_is_one(void)
{
    char text[ANSWER_BYTES];
    sampler *s = constrained("{\"grammar\":\"root ::= \\\"a\\\" <[258]> \\\"b\\\"\"}", 1, 1);
    CHECK_INT(answer(s, 1, 5, text), LLM_CONSTRAINT);
    CHECK_STR(text, "a");
    sampler_close(s);
}

/* 40 levels of closing brackets, and a text of a megabyte. The memory of the walk stays bounded, and its result is
 * right. */
static void a_long_answer_is_walked(void)
{
    char *text = malloc(1 << 20);
    sampler *s = constrained(
        "{\"grammar\":\"root ::= (b | [x-z]+)* \\\"!\\\"\\nb ::= \\\"[\\\" (b | [a-c])* \\\"]\\\"\"}", 1, 1);
    CHECK_INT(answer(s, 3, 60000, text), LLM_OK);
    int depth = 0;
    for (const char *c = text; *c != '\0'; c++) {
        depth += *c == '[' ? 1 : *c == ']' ? -1 : 0;
        CHECK(depth >= 0);
        CHECK(strchr(depth > 0 ? "[]abc" : "xyz]!", *c) != NULL);
    }
    CHECK(strlen(text) > 0);
    sampler_close(s);
    free(text);
}

static void ambiguity_is_bounded(void)
{
    char text[ANSWER_BYTES];
    sampler *s = constrained(
        "{\"grammar\":\"root ::= (x x x x x x x x)* \\\"!\\\"\\nx ::= (\\\"a\\\" | \\\"aa\\\" | \\\"aaa\\\" "
        "| [a-b] [a] )+\"}",
        1, 1);
    const int status = answer(s, 5, 500, text);
    CHECK(status == LLM_OK || status == LLM_CONSTRAINT);
    for (const char *c = text; *c != '\0'; c++) {
        CHECK(*c == 'a' || *c == 'b' || *c == '!');
    }
    sampler_close(s);
}

/* ---- Lark ---- */

/* The grammar that agents send for changes of files. */
static const char patch_grammar[] = "start: begin_patch hunk+ end_patch\n"
                                    "begin_patch: \"*** Begin Patch\" LF\n"
                                    "end_patch: \"*** End Patch\" LF?\n"
                                    "\n"
                                    "// what is done to a file\n"
                                    "hunk: add_hunk | delete_hunk\n"
                                    "    | update_hunk\n"
                                    "add_hunk: \"*** Add File: \" filename LF add_line+\n"
                                    "delete_hunk: \"*** Delete File: \" filename LF\n"
                                    "update_hunk: \"*** Update File: \" filename LF change_move? change?\n"
                                    "filename: /(.+)/\n"
                                    "add_line: \"+\" /(.*)/ LF -> line\n"
                                    "change_move: \"*** Move to: \" filename LF\n"
                                    "change: (change_context | change_line)+ eof_line?\n"
                                    "change_context: (\"@@\" | \"@@ \" /(.+)/) LF\n"
                                    "change_line: (\"+\" | \"-\" | \" \") /(.*)/ LF\n"
                                    "eof_line: \"*** End of File\" LF\n"
                                    "%import common.LF\n";

static llm_document made_of(const char *kind, const char *text, char *error)
{
    char json[4096];
    size_t n = 0;
    json[n++] = '"';
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\' || *c == '\n') {
            json[n++] = '\\';
        }
        json[n++] = (char)(*c == '\n' ? 'n' : *c);
    }
    snprintf(json + n, sizeof json - n, "\"");
    return made(kind, json, error);
}

/* Checks how many bytes of the text the form allows, and whether the answer can end after them. */
static void check_written(const char *kind, const char *grammar, const char *text, size_t n, bool may_end)
{
    char error[512];
    llm_document d = made_of(kind, grammar, error);
    CHECK_STR(error, "");
    sampler *s = constrained(d.text, 1, 0);
    size_t n_written = 0;
    for (bool is_written = true; is_written && text[n_written] != '\0'; n_written += is_written) {
        float logits[N] = {0};
        int32_t token = -1;
        logits[(unsigned char)text[n_written]] = 90;
        is_written = sampler_next(s, logits, &token) == LLM_OK && token == (unsigned char)text[n_written];
    }
    if (n_written != n) {
        printf("%s: %.*s|%s\n", grammar, (int)n_written, text, text + n_written);
    }
    CHECK_INT(n_written, n);
    if (text[n_written] == '\0') {
        float logits[N] = {0};
        int32_t token = -1;
        logits[SIM_END] = 90;
        const bool ends = sampler_next(s, logits, &token) == LLM_OK && token == SIM_END;
        if (ends != may_end) {
            printf("%s: %s\n", grammar, text);
        }
        CHECK_INT(ends, may_end);
    }
    sampler_close(s);
    free(d.text);
}

static void a_patch_is_one(void)
{
    static const char right[] =
        "*** Begin Patch\n*** Update File: a b.c\n*** Move to: c\n@@ int f\n-a \"\\n\"\n+\tb\n c\n"
        "*** End of File\n*** Delete File: \xc3\xa9\n*** Add File: x\n+\n+y\n*** End Patch";
    static const char escaped[] =
        "\"*** Begin Patch\\n*** Update File: a b.c\\n-a \\\"\\\\n\\\"\\n+\\tb\\n*** End Patch\\n\"";
    check_written("lark", patch_grammar, right, strlen(right), true);
    check_written("lark_string", patch_grammar, escaped, strlen(escaped), true);
    check_written("lark", patch_grammar, "*** Begin Patch\n*** Update File: a\n*x", 36, false);
    check_written("lark", patch_grammar, "*** Begin Patch\n*** Add File: a\n*** End Patch", 32, false);
    check_written("lark_string", patch_grammar, "\"*** Begin Patch\n", 16, false);
    check_written("lark_string", patch_grammar, "\"*** Begin Patch\\n*** Delete File: a\\nx", 38, false);
}

static void lark_has_its_parts(void)
{
    static const struct {
        const char *grammar, *text;
        size_t n;
        bool may_end;
    } rows[] = {
        {"start: \"a\"..\"c\" [\"x\"] \"\\u00e9\"~2", "bx\xc3\xa9\xc3\xa9", 6, true},
        {"start: \"a\"..\"c\" [\"x\"]", "d", 0, false},
        {"start: \"Ab\"i /\\d+/ ~ 1..2", "aB7", 3, true},
        {"?start: (x | Y)*\n!x.2: \"x\"\nY: \"y\"", "xyyx", 4, true},
        {"start: NUMBER WS_INLINE N\n%import common (NUMBER, WS_INLINE)\n%import common.CNAME -> N", "1.5e-3 \t_a1", 11,
         true},
        {"start: NUMBER\n%import common.NUMBER", "-", 0, false},
        {"start: S\n%import common.ESCAPED_STRING -> S", "\"a\\\"b\"", 6, true},
        {"start: \"(\" [start] \")\" # brackets", "((()))", 6, true},
        {"start: \"(\" [start] \")\"", "((", 2, false},
        {"start: | \"a\"\n", "", 0, true},
        {"start:\n  | \"a\"\n  // or\n  | \"b\"\n", "b", 1, true},
        {"start: /a\\/[^b]/", "a/c", 3, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        check_written("lark", rows[i].grammar, rows[i].text, rows[i].n, rows[i].may_end);
    }
    check_written("regex_string", "[^a]+\\s\"", "\"x\\\"\\\\\\n\\\"\"", 11, true);
    check_written("regex_string", "[^a]+", "\"xa", 2, false);
    check_written("regex", "^a$|^(?:b|c)$", "c", 1, true);
    check_written("regex", "\\s{3}", "\xe3\x80\x80\xe2\x80\x83 ", 7, true); /* the blanks that ECMA-262 knows */
    check_written("regex", "(?<year>\\d{2})\\u{1F600}", "26\xf0\x9f\x98\x80", 6, true);
}

static void what_is_not_lark_is_refused(void)
{
    static const char *const rows[][2] = {
        {"start: a", "no rule a"},
        {"a: \"x\"", "no rule start"},
        {"start: \"x", "line 1: a text is not closed"},
        {"start: \"x\"\nstart: \"y\"", "start is there twice"},
        {"start: (\"x\"", ") is expected"},
        {"start: \"x\")", "the end of the line"},
        {"start: /x", "an expression is not closed"},
        {"start: /(/", "not closed"},
        {"start \"x\"", ": is expected"},
        {"start: \"\\q\"", "no escape \\q"},
        {"start: \"b\"..\"a\"", "a range"},
        {"start: \"a\"~3..2", "maximum"},
        {"%nonsense x", "no %nonsense"},
        {"start: &", "not expected: &"},
        {"start: \"x\"\n%ignore \" \"", "%ignore"},
        {"start: a{\"x\"}", "templates"},
        {"start: /x/i", "flags"},
        {"start: /(?=x)/", "(?="},
        {"start: start \"x\" | \"y\"", "left recursion"},
        {"start: PY\n%import python.PY", "python.PY"},
        {"start: \"x\"~5000", "2000 repetitions"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char error[512];
        llm_document d = made_of("lark", rows[i][0], error);
        if (d.text != NULL || strstr(error, rows[i][1]) == NULL) {
            printf("%s: \"%s\"\n", rows[i][0], error);
        }
        CHECK(d.text == NULL && strstr(error, rows[i][1]) != NULL);
    }
}

/* ---- what begins a grammar ---- */

/* Makes the tokens of the text the most likely ones, one after the other. Returns how many of them were picked. */
static size_t fed(sampler *s, const char *wanted)
{
    int32_t tokens[256];
    const int64_t n = sim->ops->tokenize(sim, wanted, strlen(wanted), false, true, tokens, 256);
    for (int64_t i = 0; i < n; i++) {
        float logits[N] = {0};
        int32_t token = -1;
        logits[tokens[i]] = 90;
        if (sampler_next(s, logits, &token) != LLM_OK || token != tokens[i]) {
            return (size_t)i;
        }
    }
    return (size_t)n;
}

static size_t n_tokens(const char *text)
{
    int32_t tokens[256];
    return (size_t)sim->ops->tokenize(sim, text, strlen(text), false, true, tokens, 256);
}

static void a_word_begins_it(void)
{
    static const char document[] = "{\"grammar\":\"root ::= \\\"<call>\\\" [0-9]+ \\\"</call>\\\"\",\"lazy\":true,"
                                   "\"triggers\":[{\"type\":\"word\",\"value\":\"<call>\"}]}";
    sampler *s = constrained(document, 1, 0);
    CHECK(sampler_is_slow(s)); /* because the document is not parsed yet */
    CHECK_INT(fed(s, "some <cal words the <call"), n_tokens("some <cal words the <call"));
    CHECK(!sampler_is_slow(s));
    CHECK_INT(fed(s, ">"), 1);
    CHECK(sampler_is_slow(s));
    CHECK_INT(fed(s, "12</call>x"), n_tokens("12</call>"));
    sampler_close(s);
}

static void a_word_that_is_another_begins_nothing(void)
{
    static const char document[] = "{\"grammar\":\"root ::= \\\" the\\\" [0-9]\",\"lazy\":true,"
                                   "\"triggers\":[{\"type\":\"word\",\"value\":\" th\"}]}";
    sampler *s = constrained(document, 1, 0);
    CHECK_INT(fed(s, " then more"), n_tokens(" then more")); /* " then" is one token, and not allowed by the grammar */
    CHECK_INT(fed(s, " the5"), n_tokens(" the5"));
    CHECK_INT(fed(s, "x"), 0); /* only the end is allowed */
    sampler_close(s);
}

static void a_token_or_an_expression_begins_it(void)
{
    char document[512];
    snprintf(document, sizeof document,
             "{\"grammar\":\"root ::= <[257]> \\\"a\\\"\",\"lazy\":true,\"preserved\":[257],"
             "\"triggers\":[{\"type\":\"token\",\"token\":257}]}");
    sampler *s = constrained(document, 1, 0);
    CHECK_INT(fed(s, "x<|im_start|>ab"), 3);
    CHECK(sampler_shows(s, 257) && !sampler_shows(s, SIM_END));
    sampler_close(s);
    s = constrained("{\"grammar\":\"root ::= \\\"b\\\" [0-9]\",\"lazy\":true,"
                    "\"triggers\":[{\"type\":\"pattern\",\"value\":\"a+(b)$\"}]}",
                    1, 0);
    CHECK_INT(fed(s, "b7 aab7x"), n_tokens("b7 aab7"));
    sampler_close(s);
    s = constrained("{\"grammar\":\"root ::= \\\"b\\\" [0-9]\",\"lazy\":true,"
                    "\"triggers\":[{\"type\":\"pattern_full\",\"value\":\"a+(b)\"}]}",
                    1, 0);
    CHECK_INT(fed(s, "xaab:"), n_tokens("xaab:"));
    sampler_close(s);
}

/* ---- thinking ---- */

static void thinking_ends_at_its_budget(void)
{
    char document[512];
    snprintf(
        document, sizeof document,
        "{\"grammar\":\"root ::= \\\"(\\\" [0-9]\",\"lazy\":true,\"triggers\":[{\"type\":\"word\",\"value\":\"(\"}],"
        "\"thinking\":{\"start\":[60],\"ends\":[{\"tokens\":[62]}],\"forced\":[46,62],\"max\":3,\"is_open\":true}}");
    sampler *s = constrained(document, 1, 0);
    CHECK_INT(fed(s, "(a("), 3);  /* during reasoning, no trigger is searched for */
    CHECK_INT(fed(s, ".>"), 2);   /* these tokens are forced, as the line with "no" below shows */
    CHECK_INT(fed(s, "x<ab"), 4); /* reasoning begins again */
    CHECK_INT(fed(s, "\xc3"), 1); /* the first byte of a character, which can be completed */
    CHECK_INT(fed(s, "\xa9"), 1);
    CHECK_INT(fed(s, "no"), 0);
    CHECK_INT(fed(s, ">"), 1);
    CHECK_INT(fed(s, "(5x"), 2);
    sampler_close(s);
    s = constrained(
        "{\"thinking\":{\"start\":[60],\"ends\":[{\"tokens\":[62]}],\"forced\":[62],\"max\":0,\"is_open\":true}}", 1,
        0);
    CHECK_INT(fed(s, "a"), 0);
    CHECK_INT(fed(s, "ab<"), 3);
    CHECK_INT(fed(s, "a"), 0);
    sampler_close(s);
}

static void check_before_answer(sampler *s, const char *text, bool expected)
{
    CHECK_INT(fed(s, text), n_tokens(text));
    CHECK_INT(sampler_is_before_answer(s), expected);
}

/* Reasoning ends at certain tokens or at a certain text. Blanks after the reasoning belong neither to it nor to the
 * answer. */
static void thoughts_and_blanks_are_before_the_answer(void)
{
    sampler *s = constrained("{\"thinking\":{\"start\":[60],\"ends\":[{\"tokens\":[62]},{\"text\":\"/x\"}]}}", 1, 0);
    check_before_answer(s, "a ", false);
    check_before_answer(s, "<", true);
    check_before_answer(s, "b /", true);
    check_before_answer(s, ">", false);
    check_before_answer(s, "\n", true);
    check_before_answer(s, " ", true);
    check_before_answer(s, "c", false);
    check_before_answer(s, "\n", false);
    check_before_answer(s, "<a/", true);
    check_before_answer(s, "x", false);
    sampler_close(s);
    s = constrained("{\"thinking\":{\"start\":[60],\"ends\":[{\"tokens\":[62]}],\"is_open\":true}}", 1, 0);
    check_before_answer(s, "a", true);
    check_before_answer(s, ">", false);
    sampler_close(s);
}

/* ---- least length, stop tokens ---- */

static void an_answer_has_its_least_length(void)
{
    const int32_t stops[] = {'q'};
    sampler *s = NULL;
    const sampler_options options = {.sampling = {.top_p = 1, .repeat_penalty = 1, .typical_p = 1, .seed = 1},
                                     .stop_tokens = stops,
                                     .n_stop_tokens = 1,
                                     .min_tokens = 3};
    CHECK_INT(sampler_open(sim, &options, &s), LLM_OK);
    for (int i = 0; i < 4; i++) {
        float logits[N] = {0};
        int32_t token = -1;
        logits[SIM_END] = 9;
        logits['q'] = 8;
        logits['r'] = 7;
        CHECK_INT(sampler_next(s, logits, &token), LLM_OK);
        CHECK_INT(token, i < 3 ? 'r' : SIM_END);
    }
    CHECK(sampler_ends(s, 'q') && sampler_ends(s, SIM_END) && !sampler_ends(s, 'r'));
    sampler_close(s);
    const int32_t outside[] = {N};
    CHECK_INT(sampler_open(sim, &(sampler_options){.stop_tokens = outside, .n_stop_tokens = 1}, &s), LLM_TOKEN);
}

/* ---- what clients ask for ---- */

static void what_cannot_be_is_refused(void)
{
    static const struct {
        const char *kind, *text, *says;
    } rows[] = {
        {"json_schema", "\"{\"", "no JSON"},
        {"json_schema", "\"5\"", "no object"},
        {"json_schema", "\"{\\\"not\\\":{}}\"", "no value is valid"},
        {"json_schema", "\"{\\\"properties\\\":{\\\"a\\\":{\\\"uniqueItems\\\":true}}}\"",
         "/properties/a: the keyword uniqueItems"},
        {"json_schema", "\"{\\\"$ref\\\":\\\"#/$defs/x\\\"}\"", "keyword $ref leads nowhere"},
        {"json_schema", "\"{\\\"$ref\\\":\\\"#/x/y\\\",\\\"x\\\":{\\\"y\\\":{\\\"not\\\":{}}}}\"", "no value is valid"},
        {"json_schema", "\"{\\\"$ref\\\":\\\"https://x/y\\\"}\"", "keyword $ref leads nowhere: \"https://x/y\""},
        {"json_schema", "\"{\\\"type\\\":\\\"integer\\\",\\\"minimum\\\":3,\\\"maximum\\\":1}\"", "no value is valid"},
        {"json_schema", "\"{\\\"type\\\":\\\"string\\\",\\\"pattern\\\":\\\"b(?=a)\\\"}\"", "(?="},
        {"regex", "\"a\\\\1\"", "\\1"},
        {"regex", "\"(a\"", "not closed"},
        {"regex", "\"a)\"", "unbalanced"},
        {"regex", "\"[z-a]\"", "backwards"},
        {"regex", "\"a^b\"", "^ inside"},
        {"regex", "\"a{,3}\"", "counts like {,3}"}, /* ECMA-262 reads {,3} as characters, Python as a count */
        {"choice", "\"[]\"", "1 to"},
        {"choice", "\"[5]\"", "no text"},
        {"grammar", "\"root ::= x\"", "no rule named x"},
        {"grammar", "\"root ::= root\"", "left recursion"},
        {"nonsense", "\"\"", "not one of"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char error[512];
        llm_document d = made(rows[i].kind, rows[i].text, error);
        if (d.text != NULL || strstr(error, rows[i].says) == NULL) {
            printf("%s %s: \"%s\"\n", rows[i].kind, rows[i].text, error);
        }
        CHECK(d.text == NULL && strstr(error, rows[i].says) != NULL);
    }
    char error[512];
    const char lenient[] =
        "{\"kind\":\"json_schema\",\"strict\":false,\"text\":\"{\\\"type\\\":\\\"object\\\",\\\"not\\\":{},"
        "\\\"minProperties\\\":1}\"}";
    llm_document d = {0};
    CHECK_INT(constraint_make(sim, lenient, strlen(lenient), &d, error, sizeof error), LLM_OK);
    free(d.text);
}

/* Deep, wide or long documents are refused or compiled without delay. */
static void size_is_bounded(void)
{
    const size_t n_max = 1 << 19;
    char *request = malloc(n_max + 64), error[512];
    llm_document d = {0};
    for (int kind = 0; kind < 4; kind++) {
        static const char *const open[] = {"[", "{\\\"items\\\":", "(", "start: ("};
        static const char *const kinds[] = {"json_schema", "json_schema", "regex", "lark"};
        size_t n = (size_t)sprintf(request, "{\"kind\":\"%s\",\"text\":\"", kinds[kind]);
        while (n < n_max - 64) {
            n += (size_t)sprintf(request + n, "%s", open[kind]);
        }
        n += (size_t)sprintf(request + n, "\"}");
        CHECK_INT(constraint_make(sim, request, n, &d, error, sizeof error), LLM_INVALID);
        CHECK(d.text == NULL && error[0] != '\0');
    }
    /* each name of an object is compared with all its other names, so their number is limited */
    for (int n_members = 4096; n_members <= 4097; n_members++) {
        size_t n = (size_t)sprintf(request, "{\"kind\":\"json_schema\",\"text\":\"{\\\"examples\\\":[{\\\"a\\\":1");
        for (int i = 1; i < n_members; i++) {
            n += (size_t)sprintf(request + n, ",\\\"k%d\\\":1", i);
        }
        n += (size_t)sprintf(request + n, "}]}\"}");
        CHECK_INT(constraint_make(sim, request, n, &d, error, sizeof error), n_members > 4096 ? LLM_INVALID : LLM_OK);
        CHECK(n_members <= 4096 || strstr(error, "one object may have 4096") != NULL);
        free(d.text);
    }
    /* nested lists of types do not multiply the grammar */
    size_t n = (size_t)sprintf(request, "{\"kind\":\"json_schema\",\"text\":\"");
    for (int level = 0; level < 40; level++) {
        n +=
            (size_t)sprintf(request + n, "{\\\"type\\\":[\\\"object\\\",\\\"array\\\"],\\\"properties\\\":{\\\"a\\\":");
    }
    n += (size_t)sprintf(request + n, "{}");
    for (int level = 0; level < 40; level++) {
        n += (size_t)sprintf(request + n, "}}");
    }
    n += (size_t)sprintf(request + n, "\"}");
    CHECK_INT(constraint_make(sim, request, n, &d, error, sizeof error), LLM_OK);
    CHECK(d.n_bytes < 65536);
    free(d.text);
    /* combinations of alternatives that exceed the limit are refused if strict, and otherwise ignored */
    for (int is_strict = 0; is_strict < 2; is_strict++) {
        n = (size_t)sprintf(request, "{\"kind\":\"json_schema\",\"strict\":%s,\"text\":\"{\\\"allOf\\\":[",
                            is_strict ? "true" : "false");
        for (int i = 0; i < 40; i++) {
            n += (size_t)sprintf(
                request + n, "%s{\\\"anyOf\\\":[{\\\"required\\\":[\\\"a%d\\\"]},{\\\"required\\\":[\\\"b%d\\\"]}]}",
                i > 0 ? "," : "", i, i);
        }
        n += (size_t)sprintf(request + n, "]}\"}");
        CHECK_INT(constraint_make(sim, request, n, &d, error, sizeof error), is_strict ? LLM_INVALID : LLM_OK);
        CHECK(!is_strict || strstr(error, "alternatives") != NULL);
        free(d.text);
    }
    free(request);
}

int main(void)
{
    char error[256];
    const model_options options = {.path = "dense", .n_seq = 1, .n_batch = 64};
    if (model_open("sim:dense", &options, &sim, error, sizeof error) != LLM_OK) {
        return 1;
    }
    RUN(a_choice_is_one_of_them);
    RUN(answers_with_one_document_do_not_change_each_other);
    RUN(json_is_json);
    RUN(an_expression_is_matched);
    RUN(what_the_model_wants_is_not_enough);
    RUN(faults_have_a_status);
    RUN(nothing_may_repeat);
    RUN(a_dead_end_is_one);
    RUN(a_long_answer_is_walked);
    RUN(ambiguity_is_bounded);
    RUN(a_patch_is_one);
    RUN(lark_has_its_parts);
    RUN(what_is_not_lark_is_refused);
    RUN(a_word_begins_it);
    RUN(a_word_that_is_another_begins_nothing);
    RUN(a_token_or_an_expression_begins_it);
    RUN(thinking_ends_at_its_budget);
    RUN(thoughts_and_blanks_are_before_the_answer);
    RUN(an_answer_has_its_least_length);
    RUN(what_cannot_be_is_refused);
    RUN(size_is_bounded);
    sim->ops->close(sim);
    return CHECK_RESULT();
}
