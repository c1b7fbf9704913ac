/* What a JSON schema lets be written: whole texts, byte by byte, against the mask of the answer's form. */
#include <stdlib.h>

#include "check.h"
#include "llm.h"
#include "model/model.h"
#include "text/constraint_make.h"
#include "text/sampler.h"

static model *sim;

enum { N = 512, SIM_END = 258, REQUEST_BYTES = 1 << 20 };

/* The document of a schema that is written with ' for "; the caller frees it. */
static char *made(const char *schema, bool is_strict, char *error)
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

static bool lets_be(const char *document, const char *text)
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

enum { TEXTS_MAX = 8 };

typedef struct row {
    const char *schema;
    const char *lets[TEXTS_MAX], *refuses[TEXTS_MAX];
} row;

static void each(const row *rows, size_t n_rows, bool is_strict)
{
    for (size_t i = 0; i < n_rows; i++) {
        char error[512];
        char *document = made(rows[i].schema, is_strict, error);
        if (document == NULL) {
            printf("%s: \"%s\"\n", rows[i].schema, error);
        }
        CHECK(document != NULL);
        size_t n_wrong = 0;
        for (size_t k = 0; document != NULL && k < TEXTS_MAX; k++) {
            const char *yes = rows[i].lets[k], *no = rows[i].refuses[k];
            if (yes != NULL && !lets_be(document, yes)) {
                printf("%s: refuses %s\n", rows[i].schema, yes);
                n_wrong++;
            }
            if (no != NULL && lets_be(document, no)) {
                printf("%s: lets be %s\n", rows[i].schema, no);
                n_wrong++;
            }
        }
        free(document);
        CHECK_INT(n_wrong, 0);
    }
}

#define PLAIN "'type':'object','additionalProperties':false"

static void what_it_says_is_kept_to(void)
{
    static const row rows[] = {
        /* allOf: one schema, as writers of schemas describe a field that has a type of its own */
        {"{" PLAIN
         ",'properties':{'a':{'description':'x','default':'u','allOf':[{'$ref':'#/$defs/E'}]}},'required':['a'],"
         "'$defs':{'E':{'enum':['u','v'],'type':'string'}}}",
         {"{'a':'v'}"},
         {"{'a':'w'}", "{'a':{}}", "{}"}},
        {"{'allOf':[{'type':'integer'}]}", {"7"}, {"{}", "'x'"}},
        {"{'allOf':[{'type':['string','null']}, {}, {'title':'x'}]}", {"'x'", "null"}, {"{}", "7"}},
        /* objects: what may be left out in each, may be left out of all */
        {"{'allOf':[{'$ref':'#/$defs/A'},{'type':'object','properties':{'b':{'type':'integer'}},'required':['b']}],"
         "'$defs':{'A':{'type':'object','properties':{'a':{'type':'integer'},'c':{'type':'null'}},'required':['c']}}}",
         {"{'c':null,'b':1}", "{'c':null,'b':1,'a':2}"},
         {"{'a':1,'b':1}", "{'c':null}"}},
        {"{'type':'object','properties':{'a':{'type':'integer'}},'required':['a'],'allOf':[{'properties':{'b':{'type':'"
         "null'}}}]}",
         {"{'a':1}", "{'a':1,'b':null}"},
         {"{'b':null}"}},
        {"{'allOf':[{'enum':['a','b']},{'enum':['b','c']}]}", {"'b'"}, {"'a'", "'c'"}},
        /* what is required, but no property */
        {"{'type':'object','properties':{'a':{'type':'null'}},'required':['b']}",
         {"{'b':1}", "{'b':[],'a':null}"},
         {"{}", "{'a':null}"}},
        {"{'type':'object','required':['b']}", {"{'b':1}", "{'b':1,'c':2}"}, {"{}", "{'c':2}"}},
        {"{'type':'object','required':['b'],'additionalProperties':{'type':'null'}}",
         {"{'b':null}"},
         {"{'b':1}", "{}"}},
        /* several types: each has its own words */
        {"{'type':['string','null'],'pattern':'^[ab]+$'}", {"'ab'", "null"}, {"'c'", "7"}},
        {"{'type':['integer','string'],'minimum':5,'maximum':7,'maxLength':1}", {"5", "7", "'x'"}, {"4", "8", "'xy'"}},
        {"{'type':['string','null'],'enum':['a',null]}", {"'a'", "null"}, {"'b'"}},
        /* bounds of integers */
        {"{'type':'integer','maximum':-5}", {"-5", "-17", "-100"}, {"-4", "0", "5", "-05", "-007"}},
        {"{'type':'integer','minimum':100}", {"100", "101", "999", "1000"}, {"10", "99", "17", "-100"}},
        {"{'type':'integer','minimum':105}", {"105", "110", "200", "1000"}, {"17", "104", "99"}},
        {"{'type':'integer','minimum':1,'exclusiveMinimum':3,'maximum':9,'exclusiveMaximum':6}",
         {"4", "5"},
         {"3", "6", "2", "9"}},
        {"{'type':'integer','minimum':0.5,'maximum':2.5}", {"1", "2"}, {"0", "3"}},
        {"{'type':'integer','minimum':1,'maximum':18446744073709551615}", {"1", "70"}, {"0", "-3"}},
        {"{'type':'integer','minimum':-18446744073709551616,'maximum':1}", {"1", "-70"}, {"2"}},
        {"{'type':'integer','minimum':3,'exclusiveMinimum':true}", {"4"}, {"3"}},
        {"{'type':'integer','minimum':-3}", {"-3", "0", "12"}, {"-4", "-12", "01"}},
        /* true is a schema */
        {"{" PLAIN ",'properties':{'a':true},'required':['a']}", {"{'a':[1]}"}, {"{}"}},
        /* the whole within itself */
        {"{" PLAIN ",'properties':{'next':{'anyOf':[{'$ref':'#'},{'type':'null'}]}},'required':['next']}",
         {"{'next':null}", "{'next':{'next':{'next':null}}}"},
         {"{'next':{}}", "{'next':1}"}},
        /* names that the converter takes for one */
        {"{" PLAIN ",'properties':{'x':{'$ref':'#/$defs/a_b'},'y':{'$ref':'#/$defs/a.b'},'z':{'$ref':'#/$defs/c~1d'}},"
         "'required':['x','y','z'],'$defs':{'a_b':{'type':'null'},'a.b':{'type':'integer'},'c/d':{'type':'boolean'}}}",
         {"{'x':null,'y':1,'z':true}"},
         {"{'x':null,'y':null,'z':true}", "{'x':1,'y':1,'z':true}"}},
        /* references into a schema keep it where it is */
        {"{" PLAIN
         ",'properties':{'a':{'type':['array','null'],'items':{'type':'integer'}},'b':{'$ref':'#/properties/a/items'}},"
         "'required':['a','b']}",
         {"{'a':[1],'b':2}", "{'a':null,'b':2}"},
         {"{'a':1,'b':2}", "{'a':null,'b':null}"}},
    };
    each(rows, sizeof rows / sizeof rows[0], true);
    each(rows, sizeof rows / sizeof rows[0], false);
}

static void what_need_not_be_kept_to_is_wider(void)
{
    static const row rows[] = {
        {"{'allOf':[{'type':'string'},{'not':{'const':'x'}}]}", {"'x'", "'y'"}, {"{}"}},
        {"{'allOf':[{'properties':{'a':{'type':'null'}}},{'properties':{'a':{'type':'integer'}}}]}",
         {"{'a':null}", "{}"},
         {"7"}},
        {"{" PLAIN ",'required':['a'],'properties':{}}", {"{}"}, {"{'a':1}"}},
    };
    each(rows, sizeof rows / sizeof rows[0], false);
}

static void what_cannot_be_kept_to_is_refused(void)
{
    static const struct {
        const char *schema, *says;
    } rows[] = {
        {"{'allOf':[{'type':'string'},{'not':{'const':'x'}}]}", "keyword allOf"},
        {"{'allOf':[{'properties':{'a':{'type':'null'}}},{'properties':{'a':{'type':'integer'}}}]}", "keyword allOf"},
        {"{'allOf':[{'properties':{'a':{}},'additionalProperties':false},{'properties':{'b':{}}}]}", "keyword allOf"},
        {"{'allOf':[{'type':'object','patternProperties':{}},{'type':'object','properties':{'a':{}}}]}",
         "keyword allOf"},
        {"{'allOf':[{'patternProperties':{}}]}", "patternProperties"},
        {"{'type':['string','null'],'not':{}}", "keyword not"},
        {"{" PLAIN ",'required':['a'],'properties':{}}", "required names \"a\""},
        {"{'type':'integer','minimum':18446744073709551615}", "minimum is beyond"},
        {"{'type':'integer','exclusiveMinimum':4,'maximum':4}", "minimum is more"},
        {"{'$ref':'#'}", "leads to itself"},
        {"{'allOf':[{'$ref':'#'},{'type':'object','properties':{'a':{}}}]}", "allOf"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char error[512];
        char *document = made(rows[i].schema, true, error);
        if (document != NULL || strstr(error, rows[i].says) == NULL) {
            printf("%s: \"%s\"\n", rows[i].schema, error);
        }
        CHECK(document == NULL && strstr(error, rows[i].says) != NULL);
        free(document);
    }
}

/* Schemas that would be copied for ever are refused. */
static void copies_are_bounded(void)
{
    static const char *const schemas[] = {
        "{'$ref':'#/$defs/A','$defs':{'A':{'type':'object','properties':{'l':{'allOf':[{'$ref':'#/$defs/"
        "A'},{'properties':{'x':{}}}]},"
        "'r':{'allOf':[{'$ref':'#/$defs/A'},{'properties':{'y':{}}}]}}}}}",
        "{'type':'object','required':['a','b','c','d'],'additionalProperties':{'type':'object','required':['a','b','c',"
        "'d'],"
        "'additionalProperties':{'type':'object','required':['a','b','c','d'],'additionalProperties':{'type':'object',"
        "'required':['a','b','c','d'],'additionalProperties':{'type':'object','required':['a','b','c','d'],"
        "'additionalProperties':{'type':'object','required':['a','b','c','d'],'additionalProperties':{'type':'object',"
        "'required':['a','b','c','d'],'additionalProperties':{'type':'null'}}}}}}}}",
    };
    for (size_t i = 0; i < sizeof schemas / sizeof schemas[0]; i++) {
        for (int is_strict = 0; is_strict < 2; is_strict++) {
            char error[512];
            char *document = made(schemas[i], is_strict != 0, error);
            CHECK(document == NULL && error[0] != '\0');
            free(document);
        }
    }
}

int main(void)
{
    char error[256];
    const model_options options = {.path = "dense", .n_seq = 1, .n_batch = 64};
    if (model_open("sim:dense", &options, &sim, error, sizeof error) != LLM_OK) {
        return 1;
    }
    RUN(what_it_says_is_kept_to);
    RUN(what_need_not_be_kept_to_is_wider);
    RUN(what_cannot_be_kept_to_is_refused);
    RUN(copies_are_bounded);
    sim->ops->close(sim);
    return CHECK_RESULT();
}
