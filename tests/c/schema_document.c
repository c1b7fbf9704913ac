#include "schema_document.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "llm.h"
#include "model/model.h"
#include "text/constraint/constraint_make.h"
#include "text/sampling/sampler.h"

enum { N = 512, SIM_END = 258, REQUEST_BYTES = 1 << 20 };

static model *sim;

bool schema_model_open(void)
{
    char error[256];
    const model_options options = {.path = "dense", .n_seq = 1, .n_batch = 64};
    return model_open("sim:dense", &options, &sim, error, sizeof error) == LLM_OK;
}

void schema_model_close(void)
{
    sim->ops->close(sim);
}

char *schema_document(const char *schema, bool is_strict, char *error)
{
    static char request[REQUEST_BYTES];
    llm_document out = {0};
    size_t n =
        (size_t)sprintf(request, "{\"kind\":\"json_schema\",\"strict\":%s,\"text\":\"", is_strict ? "true" : "false");
    for (const char *c = schema; *c != '\0'; c++) {
        n += (size_t)sprintf(request + n, *c == '\'' ? "\\\"" : "%c", *c);
    }
    n += (size_t)sprintf(request + n, "\"}");
    error[0] = '\0';
    (void)constraint_make(sim, request, n, &out, error, 512);
    return out.text;
}

bool schema_accepts(const char *document, const char *text)
{
    sampler *s = NULL;
    const sampler_options options = {
        .sampling = {.top_p = 1, .repeat_penalty = 1, .typical_p = 1, .seed = 1},
        .constraint = document,
        .n_constraint_bytes = strlen(document),
    };
    bool is_next = sampler_open(sim, &options, &s) == LLM_OK;
    for (const char *c = text; is_next; c++) {
        float logits[N] = {0};
        const int32_t wanted = *c == '\0' ? SIM_END : *c == '\'' ? '"' : (uint8_t)*c;
        int32_t token = -1;
        logits[wanted] = 9;
        is_next = sampler_next(s, logits, &token) == LLM_OK && token == wanted;
        if (*c == '\0') {
            break;
        }
    }
    sampler_close(s); /* NULL is none */
    return is_next;
}

size_t schema_append(char *to, const char *format, int i)
{
    return (size_t)sprintf(to, format, i);
}
