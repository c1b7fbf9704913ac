/* fuzz_constraint.c: forms that clients ask for. The first byte of an input chooses the kind; the rest is the text, as it is
 * or spelled with fragments. What is made of it is kept to by a sampler, whose logits come from the input, too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "text/constraint/constraint_make.h"
#include "text/sampling/sampler.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { TEXT_MAX = 8192, VOCABULARY_MAX = 512, TOKENS_MAX = 12 };

static const char *const kinds[] = {"json",   "json_schema", "grammar",     "regex",
                                    "choice", "lark",        "lark_string", "regex_string"};

static const char *const fragments[] = {"root ::= ",
                                        "start: ",
                                        "\\n%import common.NUMBER\\n",
                                        "A: /a[^b]/\\n",
                                        "A",
                                        " -> b",
                                        "~2..3",
                                        "\\\"a\\\"..\\\"f\\\"",
                                        "\\\"\\\\n\\\"i",
                                        "\\\"a\\\"",
                                        "[a-z]",
                                        "[^\\\\x00-\\\\x1f]",
                                        "(",
                                        ")",
                                        "|",
                                        "*",
                                        "+",
                                        "?",
                                        "{2,5}",
                                        "{3}",
                                        "\\n",
                                        "x ::= ",
                                        "x",
                                        "root",
                                        "<[258]>",
                                        "!<[97]>",
                                        ".",
                                        "\\\\d",
                                        "\\\\w+",
                                        "^",
                                        "$",
                                        "\\\\",
                                        "\\\"type\\\":",
                                        "\\\"object\\\"",
                                        "\\\"properties\\\":{",
                                        "\\\"a\\\":",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        "\\\"items\\\":",
                                        "\\\"pattern\\\":",
                                        "\\\"string\\\"",
                                        "\\\"anyOf\\\":[",
                                        "\\\"integer\\\"",
                                        "\\\"minimum\\\":",
                                        "7",
                                        "-3",
                                        "\\\"$ref\\\":\\\"#/properties/a\\\"",
                                        "\\\"enum\\\":[",
                                        "true",
                                        "null",
                                        "\\u00e9",
                                        " the",
                                        "\\\"maxLength\\\":",
                                        "\\\"required\\\":[\\\"a\\\"]",
                                        "\\\"const\\\":"};

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

static const model *vocabulary(void)
{
    static model *m;
    if (m == NULL) {
        const model_options options = {.n_seq = 1, .n_batch = 16};
        require(model_open("sim:dense", &options, &m, NULL, 0) == LLM_OK);
    }
    return m;
}

/* The request; what is not a fragment's number is a character as it is. */
static size_t request_of(const uint8_t *data, size_t n, char *out)
{
    const char *kind = kinds[data[0] % (sizeof kinds / sizeof kinds[0])];
    size_t at =
        (size_t)sprintf(out, "{\"kind\":\"%s\",\"strict\":%s,\"text\":\"", kind, data[0] & 64 ? "true" : "false");
    for (size_t i = 1; i < n && at < TEXT_MAX - 64; i++) {
        if (data[i] >= 128) {
            at += (size_t)sprintf(out + at, "%s", fragments[data[i] % (sizeof fragments / sizeof fragments[0])]);
        } else if (data[i] >= ' ' && data[i] != '"' && data[i] != '\\') {
            out[at++] = (char)data[i];
        }
    }
    return at + (size_t)sprintf(out + at, "\"}");
}

static void keep_to(const model *m, const llm_document *d, const uint8_t *data, size_t n)
{
    sampler *s = NULL;
    const sampler_options options = {.sampling = {.temperature = 1, .top_p = 1, .repeat_penalty = 1, .typical_p = 1},
                                     .constraint = d->text,
                                     .n_constraint_bytes = d->n_bytes};
    require(sampler_open(m, &options, &s) == LLM_OK && m->info.n_vocab <= VOCABULARY_MAX);
    for (size_t i = 0; i < TOKENS_MAX; i++) {
        float logits[VOCABULARY_MAX];
        int32_t token = -1;
        for (size_t t = 0; t < VOCABULARY_MAX; t++) {
            logits[t] = (float)(data[(t * 31 + i * 7) % n] % 64);
        }
        const int status = sampler_next(s, logits, &token);
        require(status == LLM_OK || status == LLM_CONSTRAINT);
        if (status != LLM_OK || sampler_ends(s, token)) {
            break;
        }
        require(token >= 0 && (uint32_t)token < m->info.n_vocab);
    }
    sampler_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    char request[TEXT_MAX + 64], error[256] = "";
    llm_document d = {0};
    if (n_bytes < 2) {
        return 0;
    }
    const bool is_raw = (data[0] & 128) != 0;
    const size_t n = is_raw ? 0 : request_of(data, n_bytes, request);
    const int status = is_raw
                           ? constraint_make(vocabulary(), (const char *)data + 1, n_bytes - 1, &d, error, sizeof error)
                           : constraint_make(vocabulary(), request, n, &d, error, sizeof error);
    require(status == LLM_OK ? d.text != NULL && d.n_bytes <= LLM_CONSTRAINT_BYTES_MAX
                             : status == LLM_INVALID && d.text == NULL && error[0] != '\0');
    if (status == LLM_OK) {
        keep_to(vocabulary(), &d, data, n_bytes);
    }
    free(d.text);
    return 0;
}
