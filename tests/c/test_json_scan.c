#include <stdlib.h>

#include "check.h"
#include "boundary/json_scan.h"

static const llm_json_limits WIDE = {.n_values = 100000,
                                     .n_containers = 100000,
                                     .n_keys = 100000,
                                     .depth = 1024,
                                     .n_key_bytes = 100000,
                                     .n_number_bytes = 100000,
                                     .n_floats = 100000,
                                     .n_text_bytes = 100000};

/* Scans exactly these bytes. `out` receives the copy as a string. */
static llm_json scanned(const char *text, size_t n, const llm_json_limits *limits, char *out, size_t n_out)
{
    char *exact = malloc(n > 0 ? n : 1); /* so that a sanitizer reports a read after the last byte */
    memcpy(exact, text, n);
    llm_json document;
    const int status = llm_json_scan(exact, n, limits, &document);
    free(exact);
    if (status == LLM_OK && document.n_bytes < n_out) {
        memcpy(out, document.text, document.n_bytes);
        out[document.n_bytes] = 0;
    }
    llm_json_free(&document);
    return document;
}

static void expect_copy(const char *text, const char *wanted)
{
    char out[512] = "";
    const llm_json document = scanned(text, strlen(text), &WIDE, out, sizeof out);
    CHECK_STR(llm_word(LLM_JSON_VERDICTS, (int)document.verdict), "ok");
    CHECK_STR(out, wanted);
    CHECK(document.text == NULL && document.depth == 0 && document.offset == strlen(text));
}

static void expect_fault(const char *text, const char *word, size_t offset)
{
    char out[512];
    const llm_json document = scanned(text, strlen(text), &WIDE, out, sizeof out);
    CHECK_STR(llm_word(LLM_JSON_VERDICTS, (int)document.verdict), word);
    CHECK_INT(document.offset, offset);
}

static void test_what_is_json_is_copied(void)
{
    static const char *const same[] = {
        "null",
        "true",
        "false",
        "0",
        "-0",
        "-12.5e+10",
        "1E5",
        "\"\"",
        "\"a\\n\\\"\\\\\\/\"",
        "[]",
        "{}",
        "[[]]",
        "[{},[],{}]",
        "[1,2]",
        "{\"\":1}",
        "\"\xf0\x9f\x98\x80\xc3\xbc\"",
        "{\"a\":[1,{\"b\":null}],\"a\":2}",
        "\"\x7f\"",
    };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        expect_copy(same[i], same[i]);
        CHECK_STILL_GOOD();
    }
    expect_copy(" \t\r\n{ \"a\" : [ 1 , 2 ] , \"b c\" : \" d \" } \n", "{\"a\":[1,2],\"b c\":\" d \"}");
}

static void test_escapes_become_characters(void)
{
    expect_copy("\"\\u0041\\u00e4\\u20AC\\ud83d\\ude00\"", "\"A\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"");
    CHECK_STILL_GOOD();
    expect_copy("\"\\u0022\\u005c\\u005C\\u0000\\u001F\\u007f\"", "\"\\\"\\\\\\\\\\u0000\\u001F\x7f\"");
    CHECK_STILL_GOOD();
    expect_copy("{\"\\u0061\":\"\\\\u0061\"}", "{\"a\":\"\\\\u0061\"}");
}

#define REPLACED "\xef\xbf\xbd"

static void test_half_a_pair_is_replaced(void)
{
    expect_copy("\"\\ud83d\"", "\"" REPLACED "\"");
    CHECK_STILL_GOOD();
    expect_copy("\"\\ude00x\"", "\"" REPLACED "x\"");
    CHECK_STILL_GOOD();
    expect_copy("\"\\ud83d\\ud83d\\ude00\"", "\"" REPLACED "\xf0\x9f\x98\x80\"");
    CHECK_STILL_GOOD();
    expect_copy("\"\\ud83d\\u0041\\ude00\\ud83d\\n\"", "\"" REPLACED "A" REPLACED REPLACED "\\n\"");
    CHECK_STILL_GOOD();
    expect_fault("\"\\ud83d\\ude0\"", "escape", 7); /* a truncated escape does not count as half of a surrogate pair */
}

static void test_what_is_no_json(void)
{
    static const struct {
        const char *text, *word;
        size_t offset;
    } cases[] = {
        {"", "truncated", 0},
        {"  ", "truncated", 2},
        {"[", "truncated", 1},
        {"[1", "truncated", 2},
        {"[1,", "truncated", 3},
        {"{\"a\"", "truncated", 4},
        {"{\"a\":", "truncated", 5},
        {"\"a", "truncated", 2},
        {"\"\\", "truncated", 1},
        {"\"\\u00", "truncated", 1},
        {"-", "truncated", 1},
        {"1.", "truncated", 2},
        {"1e", "truncated", 2},
        {"tru", "truncated", 3},
        {"1e+", "truncated", 3},
        {"x", "value", 0},
        {"trux", "value", 3},
        {"[,1]", "value", 1},
        {"[1,]", "value", 3},
        {"NaN", "value", 0},
        {"+1", "value", 0},
        {".5", "value", 0},
        {"'a'", "value", 0},
        {"{a:1}", "key", 1},
        {"{1:1}", "key", 1},
        {"{\"a\":1,}", "key", 7},
        {"{,}", "key", 1},
        {"{\"a\" 1}", "colon", 5},
        {"[1 2]", "comma", 3},
        {"[1}", "comma", 2},
        {"{\"a\":1]", "comma", 6},
        {"-x", "number", 1},
        {"1.x", "number", 2},
        {"1ex", "number", 2},
        {"-.5", "number", 1},
        {"\"\\x\"", "escape", 2},
        {"\"\\u00g0\"", "escape", 1},
        {"\"a\nb\"", "control", 2},
        {"\"\x80\"", "utf8", 1},
        {"\"\xc0\xaf\"", "utf8", 1},
        {"\"\xed\xa0\x80\"", "utf8", 1},
        {"\"\xf4\x90\x80\x80\"", "utf8", 1},
        {"\"\xc3\"", "utf8", 1},
        {"\"\xe2\x82\"", "utf8", 1},
        {"01", "trailing", 1},
        {"1 2", "trailing", 2},
        {"[]]", "trailing", 2},
        {"\xef\xbb\xbf{}", "value", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_fault(cases[i].text, cases[i].word, cases[i].offset);
        CHECK_STILL_GOOD();
    }
}

/* ---- limits ---------------------------------------------------------------------------------------------- */

/* `text` exactly reaches the limit. With a limit that is lower by one, it is refused at `offset`. */
static void expect_limit(const char *text, const char *word, uint64_t *limit, llm_json_limits *limits, size_t offset)
{
    char out[512];
    const uint64_t exact = *limit;
    CHECK_STR(llm_word(LLM_JSON_VERDICTS, (int)scanned(text, strlen(text), limits, out, sizeof out).verdict), "ok");
    *limit = exact - 1;
    const llm_json document = scanned(text, strlen(text), limits, out, sizeof out);
    *limit = exact;
    CHECK_STR(llm_word(LLM_JSON_VERDICTS, (int)document.verdict), word);
    CHECK_INT(document.offset, offset);
}

static void test_every_limit(void)
{
    llm_json_limits limits = {.n_values = 7,
                              .n_containers = 3,
                              .n_keys = 3,
                              .depth = 2,
                              .n_key_bytes = 4,
                              .n_number_bytes = 5,
                              .n_floats = 1,
                              .n_text_bytes = 12};
    const char *text = "{\"abcd\":[1,-1.25],\"e\":\"\\n\xc3\xbc\",\"f\":[null]}";
    expect_limit(text, "values", &limits.n_values, &limits, 34);
    CHECK_STILL_GOOD();
    expect_limit(text, "containers", &limits.n_containers, &limits, 33);
    CHECK_STILL_GOOD();
    expect_limit(text, "keys", &limits.n_keys, &limits, 29);
    CHECK_STILL_GOOD();
    expect_limit(text, "depth", &limits.depth, &limits, 8);
    CHECK_STILL_GOOD();
    expect_limit(text, "key_bytes", &limits.n_key_bytes, &limits, 6);
    CHECK_STILL_GOOD();
    expect_limit(text, "number_bytes", &limits.n_number_bytes, &limits, 11);
    CHECK_STILL_GOOD();
    expect_limit(text, "floats", &limits.n_floats, &limits, 11);
    CHECK_STILL_GOOD();
    limits.n_text_bytes = 10; /* abcd, e, \n and the ü, f */
    expect_limit(text, "text_bytes", &limits.n_text_bytes, &limits, 31);
}

static void test_slow_numbers_are_counted(void)
{
    static const char *const quick[] = {"0", "-1", "999999999999999999", "-999999999999999999"};
    static const char *const slow[] = {"1.0", "1e5", "1E5", "0.0", "1000000000000000000", "-1000000000000000000"};
    char out[64];
    for (size_t i = 0; i < sizeof quick / sizeof quick[0]; i++) {
        CHECK_INT(scanned(quick[i], strlen(quick[i]), &WIDE, out, sizeof out).n_floats, 0);
    }
    for (size_t i = 0; i < sizeof slow / sizeof slow[0]; i++) {
        CHECK_INT(scanned(slow[i], strlen(slow[i]), &WIDE, out, sizeof out).n_floats, 1);
    }
}

static void test_depth_takes_no_stack(void)
{
    enum { LEVELS = 1 << 20 };
    char *text = malloc(2 * LEVELS);
    char out[4];
    memset(text, '[', LEVELS);
    memset(text + LEVELS, ']', LEVELS);
    llm_json_limits limits = WIDE;
    limits.n_values = limits.n_containers = limits.depth = UINT64_MAX;
    const llm_json deep = scanned(text, 2 * LEVELS, &limits, out, sizeof out);
    const llm_json most = scanned(text + LEVELS - LLM_JSON_DEPTH_MAX, 2 * LLM_JSON_DEPTH_MAX, &limits, out, sizeof out);
    free(text);
    CHECK_STR(llm_word(LLM_JSON_VERDICTS, (int)deep.verdict), "depth");
    CHECK_INT(deep.offset, LLM_JSON_DEPTH_MAX);
    CHECK_STR(llm_word(LLM_JSON_VERDICTS, (int)most.verdict), "ok");
}

static void test_words_and_no_memory_to_free(void)
{
    for (int verdict = 0; verdict < LLM_JSON_N; verdict++) {
        CHECK(strcmp(llm_word(LLM_JSON_VERDICTS, verdict), "unknown") != 0 &&
              llm_sentence(LLM_JSON_VERDICTS, verdict)[0] != 0);
    }
    llm_json none = {0};
    llm_json_free(&none);
}

int main(void)
{
    RUN(test_what_is_json_is_copied);
    RUN(test_escapes_become_characters);
    RUN(test_half_a_pair_is_replaced);
    RUN(test_what_is_no_json);
    RUN(test_every_limit);
    RUN(test_slow_numbers_are_counted);
    RUN(test_depth_takes_no_stack);
    RUN(test_words_and_no_memory_to_free);
    return CHECK_RESULT();
}
