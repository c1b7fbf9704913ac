/* Tests the limit on the work of compiling a JSON schema, and how much of a schema is enforced beyond the limit. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "schema_document.h"
#include "schema_steps.h"

/* Each part of the schema takes less work than the budget, but all parts together take more. With strict, the schema is
 * refused. Without strict, the parts up to the limit are enforced, and the others are ignored. */
static void work_is_bounded(void)
{
    static char patterns[1 << 17], open[1 << 17], alternatives[1 << 16];
    size_t n =
        (size_t)sprintf(patterns, "{'type':'object','additionalProperties':false,'properties':{'a':{'type':'null'}");
    for (int i = 0; i < 300; i++) {
        n += schema_append(patterns + n, ",'p%d':{'type':'string','pattern':'^x$',", i);
        n += schema_append(patterns + n, "'allOf':[{'pattern':'^[ab]*a[ab]{9}%d$'}]}", i);
    }
    (void)sprintf(patterns + n, "}}");
    (void)sprintf(open, "{'type':'object',%s", strstr(patterns, "'properties'"));
    n = (size_t)sprintf(alternatives, "{'type':'object','allOf':[{'anyOf':[{'type':'null'}]}");
    for (int i = 0; i < 40; i++) { /* no combination is valid, which is known only at the end of each */
        n += schema_append(alternatives + n, ",{'anyOf':[{'properties':{'a%d':{'type':'null'}}},", i);
        n += schema_append(alternatives + n, "{'properties':{'b%d':{'type':'null'}}}]}", i);
    }
    (void)sprintf(alternatives + n, "]}");
    const struct {
        const char *schema, *lets, *refuses;
    } rows[] = {{patterns, "{'a':null,'p299':'z'}", "{'a':1}"},
                {open, "{'a':null,'more':1}", "{'more':1,'a':1}"}, /* the declared names are still enforced */
                {alternatives, "{'a':1}", "1"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char error[512];
        char *strict = schema_document(rows[i].schema, true, error);
        CHECK(strict == NULL && strstr(error, "steps to compile") != NULL);
        char *loose = schema_document(rows[i].schema, false, error);
        CHECK(loose != NULL && schema_accepts(loose, rows[i].lets) && !schema_accepts(loose, rows[i].refuses));
        free(loose);
        free(strict);
    }
}

/* Compiles the schema with and without strict. Both stop when the budget is spent, or at most 1 % later, when the
 * current part ends. Without strict, the grammar still accepts the valid value. */
static void check_steps(const char *schema, const char *valid)
{
    char error[512];
    for (int is_strict = 0; is_strict < 2; is_strict++) {
        const size_t n_steps = schema_steps(schema, is_strict != 0);
        if (n_steps > schema_steps_max() / 100 * 101) {
            printf("%.60s...: %zu steps\n", schema, n_steps);
        }
        CHECK(n_steps <= schema_steps_max() / 100 * 101);
    }
    char *loose = schema_document(schema, false, error);
    CHECK(loose != NULL && schema_accepts(loose, valid));
    free(loose);
}

/* The number of pairs of alternatives is the square of the number of alternatives. */
static void pairs_of_alternatives_are_bounded(void)
{
    static char constants[1 << 16], objects[1 << 17];
    size_t n = schema_append(constants, "{'oneOf':[{'const':%d}", 0);
    for (int i = 1; i < 1500; i++) {
        n += schema_append(constants + n, ",{'const':%d}", i);
    }
    (void)sprintf(constants + n, "]}");
    n = schema_append(objects, "{'oneOf':[{'const':%d}", 0);
    for (int i = 0; i < 800; i++) {
        n += schema_append(objects + n, ",{'type':'object','properties':{'k':{'const':%d}},'required':['k']}", i);
    }
    (void)sprintf(objects + n, "]}");
    check_steps(constants, "1499");
    check_steps(objects, "{'k':799}");
}

static void required_names_are_bounded(void)
{
    static char names[1 << 19];
    size_t n = schema_append(names, "{'required':['%d'", 0);
    for (int i = 1; i < 32000; i++) {
        n += schema_append(names + n, ",'%d'", i);
    }
    (void)sprintf(names + n, "]}");
    CHECK(schema_steps(names, true) >= 32000); /* each name counts */
    check_steps(names, "7");
}

/* Each dependency is a choice, and each level copies the remaining choices. */
static void copies_of_choices_are_bounded(void)
{
    static char names[1 << 19];
    for (int n_names = 3000; n_names <= 4000; n_names += 1000) {
        size_t n = schema_append(names, "{'type':'object','dependentRequired':{'%d':[]", 0);
        for (int i = 1; i < n_names; i++) {
            n += schema_append(names + n, ",'%d':[]", i);
        }
        (void)sprintf(names + n, "}}");
        check_steps(names, "{'1':2}");
    }
    CHECK(schema_steps(names, true) > schema_steps_max());
}

static void listed_items_are_bounded(void)
{
    static char items[1 << 19], valid[1 << 18];
    enum { N_ITEMS = 50000 };
    size_t n = schema_append(items, "{'type':'array','minItems':%d,'prefixItems':[true", N_ITEMS), n_valid = 0;
    for (int i = 1; i < N_ITEMS; i++) {
        n += schema_append(items + n, ",true", i);
    }
    (void)sprintf(items + n, "]}");
    for (int i = 0; i < N_ITEMS; i++) {
        n_valid += schema_append(valid + n_valid, i == 0 ? "[%d" : ",%d", i % 10);
    }
    (void)sprintf(valid + n_valid, "]");
    check_steps(items, valid);
}

/* The work for negations and for comparisons of listed values is a product of the lengths of lists. */
static void comparisons_are_counted(void)
{
    static char schema[1 << 19], valid[1 << 18];
    size_t n = schema_append(schema, "{'not':{'$ref':'#/$defs/%d'},'$defs':{", 0), n_valid = 0;
    for (int level = 0; level < 3; level++) { /* the negation of 200 * 200 * 200 schemas */
        n += schema_append(schema + n, level == 0 ? "'%d':{'anyOf':[false" : ",'%d':{'anyOf':[false", level);
        for (int i = 0; i < 200; i++) {
            n += schema_append(schema + n, ",{'$ref':'#/$defs/%d'}", level + 1);
        }
        n += schema_append(schema + n, "]}", 0);
    }
    (void)sprintf(schema + n, ",'3':{'const':1}}}");
    CHECK(schema_steps(schema, true) > schema_steps_max());
    check_steps(schema, "7");

    n = schema_append(schema, "{'enum':[%d", 0); /* each of many alternatives may exclude each of these values */
    for (int i = 1; i < 1700; i++) {
        n += schema_append(schema + n, ",%d", i);
    }
    n += schema_append(schema + n, "],'$defs':{'x':{'enum':[%d", 5000);
    for (int i = 5001; i <= 9000; i++) {
        n += schema_append(schema + n, ",%d", i);
    }
    n += schema_append(schema + n, "]}},'anyOf':[false", 0);
    for (int i = 0; i < 256; i++) {
        n += schema_append(schema + n, ",{'not':{'$ref':'#/$defs/x'},'minimum':-%d}", i);
    }
    (void)sprintf(schema + n, "]}");
    CHECK(schema_steps(schema, true) > schema_steps_max());
    check_steps(schema, "3");

    n = schema_append(schema, "{'enum':[%d", 0); /* two long lists with one common value */
    for (int i = 1; i < 1700; i++) {
        n += schema_append(schema + n, ",%d", i);
    }
    n += schema_append(schema + n, "],'allOf':[{'enum':[%d", 0);
    for (int i = 3000; i < 7000; i++) {
        n += schema_append(schema + n, ",%d", i);
    }
    (void)sprintf(schema + n, "]}]}");
    CHECK(schema_steps(schema, true) > schema_steps_max());
    check_steps(schema, "0");

    for (int i = 0; i < 4000; i++) { /* a long object that must have all names of a long list */
        n_valid += schema_append(valid + n_valid, i == 0 ? "{'k%d':0" : ",'k%d':0", i);
    }
    (void)sprintf(valid + n_valid, "}");
    n = (size_t)sprintf(schema, "{'enum':[%s],'dependentRequired':{'k0':['k0'", valid);
    for (int i = 1; i < 20000; i++) {
        n += schema_append(schema + n, ",'k%d'", i % 4000);
    }
    (void)sprintf(schema + n, "]}}");
    CHECK(schema_steps(schema, true) > schema_steps_max());
    check_steps(schema, valid);
}

int main(void)
{
    if (!schema_model_open()) {
        return 1;
    }
    RUN(work_is_bounded);
    RUN(pairs_of_alternatives_are_bounded);
    RUN(required_names_are_bounded);
    RUN(copies_of_choices_are_bounded);
    RUN(comparisons_are_counted);
    RUN(listed_items_are_bounded);
    schema_model_close();
    return CHECK_RESULT();
}
