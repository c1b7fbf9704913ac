/* fuzz_json.c: the JSON scanner against arbitrary bytes, raw and as the characters that JSON is made of: raw bytes alone
 * would hardly ever get past the first bracket. The first byte of an input chooses. What was accepted must be its own
 * copy when it is scanned again, with the same counts. */
#include <stdlib.h>
#include <string.h>

#include "boundary/json_scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

static llm_json scan_exactly(const char *text, size_t n, const llm_json_limits *limits, char **copy)
{
    char *input = malloc(n > 0 ? n : 1);
    llm_json out;
    require(input != NULL);
    memcpy(input, text, n);
    *copy = malloc(n > 0 ? n : 1);
    require(*copy != NULL);
    json_scan(input, n, limits, *copy, &out);
    require(out.verdict < LLM_JSON_N && out.offset <= n && out.n_bytes <= n);
    require(out.n_values <= limits->n_values && out.n_containers <= limits->n_containers);
    require(out.n_keys <= limits->n_keys && out.depth <= limits->depth && out.n_text_bytes <= limits->n_text_bytes);
    require(out.n_floats <= limits->n_floats);
    free(input);
    return out;
}

static void check(const char *text, size_t n, const llm_json_limits *limits)
{
    char *copy, *again;
    const llm_json first = scan_exactly(text, n, limits, &copy);
    if (first.verdict == LLM_JSON_OK) {
        const llm_json second = scan_exactly(copy, first.n_bytes, limits, &again);
        require(second.verdict == LLM_JSON_OK && second.n_bytes == first.n_bytes);
        require(memcmp(copy, again, first.n_bytes) == 0);
        require(second.n_values == first.n_values && second.n_text_bytes == first.n_text_bytes);
        free(again);
    }
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const char *const parts[] = {"{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        ":",
                                        "\"",
                                        "\"a\"",
                                        "\\n",
                                        "\\u",
                                        "\\ud83d",
                                        "\\ude00",
                                        "\\u0041",
                                        "\\u0022",
                                        "12",
                                        "-",
                                        ".",
                                        "e",
                                        "0",
                                        "true",
                                        "null",
                                        "\xc3\xbc",
                                        "\xe2",
                                        " ",
                                        "[1,2",
                                        "{\"k\":",
                                        "}}",
                                        "]]",
                                        "\xf0\x9f\x98\x80",
                                        "\x80",
                                        "\t",
                                        "\\"};
    const llm_json_limits limits = {.n_values = 64,
                                    .n_containers = 32,
                                    .n_keys = 16,
                                    .depth = 8,
                                    .n_key_bytes = 8,
                                    .n_number_bytes = 8,
                                    .n_floats = 4,
                                    .n_text_bytes = 128};
    char text[4096];
    size_t n = 0;
    if (n_bytes == 0 || data[0] % 2 == 0) {
        check((const char *)data, n_bytes, &limits);
        return 0;
    }
    for (size_t i = 1; i < n_bytes && n + 16 < sizeof text; i++) {
        const char *part = parts[data[i] % (sizeof parts / sizeof parts[0])];
        memcpy(text + n, part, strlen(part));
        n += strlen(part);
    }
    check(text, n, &limits);
    return 0;
}
