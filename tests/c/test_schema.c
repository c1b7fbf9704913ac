/* Tests which texts a JSON schema allows. Each text is fed byte by byte, and each byte is checked against the mask of
 * the constraint. */
#include <stdlib.h>

#include "check.h"
#include "random.h"
#include "schema_document.h"

enum { TEXTS_MAX = 8 };

typedef struct row {
    const char *schema;
    const char *lets[TEXTS_MAX], *refuses[TEXTS_MAX];
} row;

static void each(const row *rows, size_t n_rows, bool is_strict)
{
    for (size_t i = 0; i < n_rows; i++) {
        char error[512];
        char *document = schema_document(rows[i].schema, is_strict, error);
        if (document == NULL) {
            printf("%s: \"%s\"\n", rows[i].schema, error);
        }
        CHECK(document != NULL);
        size_t n_wrong = 0;
        for (size_t k = 0; document != NULL && k < TEXTS_MAX; k++) {
            const char *yes = rows[i].lets[k], *no = rows[i].refuses[k];
            if (yes != NULL && !schema_accepts(document, yes)) {
                printf("%s: refuses %s\n", rows[i].schema, yes);
                n_wrong++;
            }
            if (no != NULL && schema_accepts(document, no)) {
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
        /* allOf with one schema: so a field is described that has a type of its own */
        {"{" PLAIN
         ",'properties':{'a':{'description':'x','default':'u','allOf':[{'$ref':'#/$defs/E'}]}},'required':['a'],"
         "'$defs':{'E':{'enum':['u','v'],'type':'string'}}}",
         {"{'a':'v'}"},
         {"{'a':'w'}", "{'a':{}}", "{}"}},
        {"{'allOf':[{'type':'integer'}]}", {"7"}, {"{}", "'x'"}},
        {"{'allOf':[{'type':['string','null']}, {}, {'title':'x'}]}", {"'x'", "null"}, {"{}", "7"}},
        /* objects: a member that is optional in each part is optional */
        {"{'allOf':[{'$ref':'#/$defs/A'},{'type':'object','properties':{'b':{'type':'integer'}},'required':['b']}],"
         "'$defs':{'A':{'type':'object','properties':{'a':{'type':'integer'},'c':{'type':'null'}},'required':['c']}}}",
         {"{'c':null,'b':1}", "{'a':2,'c':null,'b':1}"},
         {"{'a':1,'b':1}", "{'c':null}"}},
        {"{'type':'object','properties':{'a':{'type':'integer'}},'required':['a'],'allOf':[{'properties':{'b':{'type':'"
         "null'}}}]}",
         {"{'a':1}", "{'a':1,'b':null}"},
         {"{'b':null}"}},
        {"{'allOf':[{'enum':['a','b']},{'enum':['b','c']}]}", {"'b'"}, {"'a'", "'c'"}},
        /* a required name without a property */
        {"{'type':'object','properties':{'a':{'type':'null'}},'required':['b']}",
         {"{'b':1}", "{'a':null,'b':[]}"},
         {"{}", "{'a':null}"}},
        {"{'type':'object','required':['b']}", {"{'b':1}", "{'b':1,'c':2}"}, {"{}", "{'c':2}"}},
        {"{'type':'object','required':['b'],'additionalProperties':{'type':'null'}}",
         {"{'b':null}"},
         {"{'b':1}", "{}"}},
        /* several types: each has keywords of its own */
        {"{'type':['string','null'],'pattern':'^[ab]+$'}", {"'ab'", "null"}, {"'c'", "7"}},
        {"{'type':['integer','string'],'minimum':5,'maximum':7,'maxLength':1}", {"5", "7", "'x'"}, {"4", "8", "'xy'"}},
        {"{'type':['string','null'],'enum':['a',null]}", {"'a'", "null"}, {"'b'"}},
        /* true is a schema */
        {"{" PLAIN ",'properties':{'a':true},'required':['a']}", {"{'a':[1]}"}, {"{}"}},
        /* the whole schema occurs within itself */
        {"{" PLAIN ",'properties':{'next':{'anyOf':[{'$ref':'#'},{'type':'null'}]}},'required':['next']}",
         {"{'next':null}", "{'next':{'next':{'next':null}}}"},
         {"{'next':{}}", "{'next':1}"}},
        /* names that the converter could confuse */
        {"{" PLAIN ",'properties':{'x':{'$ref':'#/$defs/a_b'},'y':{'$ref':'#/$defs/a.b'},'z':{'$ref':'#/$defs/c~1d'}},"
         "'required':['x','y','z'],'$defs':{'a_b':{'type':'null'},'a.b':{'type':'integer'},'c/d':{'type':'boolean'}}}",
         {"{'x':null,'y':1,'z':true}"},
         {"{'x':null,'y':null,'z':true}", "{'x':1,'y':1,'z':true}"}},
        /* a schema keeps its meaning if a reference points into it */
        {"{" PLAIN
         ",'properties':{'a':{'type':['array','null'],'items':{'type':'integer'}},'b':{'$ref':'#/properties/a/items'}},"
         "'required':['a','b']}",
         {"{'a':[1],'b':2}", "{'a':null,'b':2}"},
         {"{'a':1,'b':2}", "{'a':null,'b':null}"}},
    };
    each(rows, sizeof rows / sizeof rows[0], true);
    each(rows, sizeof rows / sizeof rows[0], false);
}

static void bounds_of_integers_are_kept_to(void)
{
    static const row rows[] = {
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
        {"{'type':'integer','minimum':-9223372036854775808,'maximum':9223372036854775807}",
         {"0", "-7", "1234567890123456"},
         {"01", "0.5", "'x'"}},
        {"{'type':'integer','minimum':105,'maximum':9223372036854775807}", {"105", "1000"}, {"17", "104"}},
        {"{'type':'integer','minimum':-9223372036854775807,'maximum':-105}", {"-105", "-1000"}, {"-17", "-104", "5"}},
        {"{'type':'integer','minimum':10000000000000005}", {"10000000000000005", "10000000000000017"}, {"17", "7"}},
        {"{'type':'integer','minimum':-3}", {"-3", "0", "12"}, {"-4", "-12", "01"}},
    };
    each(rows, sizeof rows / sizeof rows[0], true);
    each(rows, sizeof rows / sizeof rows[0], false);
}

static void a_text_looks_as_its_pattern_says(void)
{
    static const row rows[] = {
        /* a known format is enforced together with a pattern, an unknown format is ignored */
        {"{'type':'string','format':'uri','pattern':'a$'}", {"'x:a'"}, {"'a'", "'x:b'"}},
        {"{'type':'string','format':'no-such','pattern':'^a$'}", {"'a'"}, {"'b'"}},
        {"{'type':'integer','format':'regex'}", {"7"}, {"'a'"}}, /* a format does not restrict integers */
        /* categories of characters */
        {"{'type':'string','pattern':'^\\\\\\\\p{Lu}\\\\\\\\p{Ll}+$'}",
         {"'Ab'", "'\u00c9\u00e9'"},
         {"'ab'", "'AB'", "'A'"}},
        {"{'type':'string','pattern':'^[\\\\\\\\p{L}\\\\\\\\p{N} .-]{1,100}$'}",
         {"'\u4e2d\u6587 7'", "'O-k.'"},
         {"''", "'a_b'", "'a!'"}},
        {"{'type':'string','pattern':'^\\\\\\\\P{Letter}$'}", {"'1'", "'_'"}, {"'a'", "'\u00e9'"}},
        {"{'type':'string','pattern':'^[^\\\\\\\\p{P}\\\\\\\\p{S}\\\\\\\\p{Z}]$'}",
         {"'a'", "'1'"},
         {"'.'", "'+'", "' '"}},
        /* both the format and the pattern are enforced */
        {"{'type':'string','format':'date','pattern':'^[0-9]{4}-02-29$'}",
         {"'2024-02-29'"},
         {"'2024-02-28'", "'2024-01-01'", "'x'"}},
        {"{'type':'string','format':'hash','pattern':'^[ab]-4$'}", {"'a-4'"}, {"'a-5'", "'c-4'"}},
        {"{'type':'string','format':'hash','pattern':'x'}", {"'x'", "'axb'"}, {"'y'"}},
        {"{'type':'string','format':'date','pattern':'^(?!x)'}", {"'2024-02-28'"}, {"'y'", "'2024-13-01'"}},
        {"{'format':'date','pattern':'^(?!x)'}", {"'2024-02-28'"}, {"'y'"}},
        /* only a format */
        {"{'type':'string','format':'duration'}",
         {"'P1W'", "'P1Y2M10DT2H30M'", "'PT36H'", "'P1D'", "'PT1M5S'", "'P2M'"},
         {"'P'", "'PT'", "'1D'", "'P1H'", "'P1DT'", "'P1W2D'", "'PT1D'", "'P1234567890D'"}},
        {"{'type':'string','format':'email'}",
         {"'a@b.co'", "'a.b+c@d-e.f.org'", "'a@b'"},
         {"'a'", "'.a@b.co'", "'a..b@c.de'", "'a@-b.co'", "'a b@c.de'", "''"}},
        {"{'type':'string','format':'email','pattern':'^[ab]@'}", {"'a@b.co'"}, {"'c@b.co'", "'a'"}},
        {"{'type':'string','format':'email','maxLength':4}", {"'a@bc'"}, {"'a@bcd'", "'ab'"}},
        {"{'type':'string','format':'email','enum':['x','y']}", {"'x'"}, {"'a@b.co'"}},
        {"{'type':['string','null'],'format':'email'}", {"'a@b.co'", "null"}, {"'a'"}},
        {"{'format':'email'}", {"'a@b.co'", "7"}, {"'a'"}},
        /* lengths together with a pattern: they limit the pattern's texts, or its only part without a limit */
        {"{'type':'string','pattern':'^[ab]+$','minLength':1}", {"'a'", "'ab'"}, {"''", "'c'"}},
        {"{'type':'string','pattern':'^[ab]{2,3}$','minLength':2,'maxLength':3}", {"'ab'", "'aba'"}, {"'a'", "'abab'"}},
        {"{'type':'string','pattern':'^[ab]+$','minLength':2,'maxLength':3}",
         {"'ab'", "'aba'"},
         {"'a'", "'abab'", "'ac'", "''"}},
        {"{'type':'string','pattern':'^a[b\\u00e9]*(?:cd|ef)$','minLength':4,'maxLength':5}",
         {"'abcd'",
          "'ab\xc3\xa9"
          "cd'",
          "'abbef'"},
         {"'acd'", "'abcd", "'abbbcd'"}},
        {"{'type':'string','pattern':'^[ab]*$','maxLength':2}", {"''", "'ab'"}, {"'aba'"}},
        {"{'type':'string','pattern':'^ab.*','maxLength':4}", {"'ab'", "'abcd'", "'ab\\nc'"}, {"'abcde'", "'a'"}},
        {"{'type':'string','pattern':'^([^,]+(,|$)){2,}$'}", {"'a,b'", "'a,b,'"}, {"'a'", "'a,,b'"}},
        {"{'type':'string','pattern':'^(^|,)a$$'}", {"'a'", "',a'"}, {"'ba'", "'aa'"}},
        {"{'type':'string','pattern':'b$','minLength':2,'maxLength':3}", {"'ab'", "'aab'"}, {"'b'", "'aaab'", "'aba'"}},
        {"{'type':'string','pattern':'a','minLength':1}", {"'a'", "'bab'"}, {"''", "'b'"}},
        {"{'type':'string','pattern':'^(?:a|bc)*$','minLength':0,'maxLength':9007199254740991}",
         {"''", "'abc'"},
         {"'b'"}},
        {"{'type':'string','format':'hash','pattern':'^[ab]+$','maxLength':1}", {"'a'"}, {"'ab'"}},
    };
    each(rows, sizeof rows / sizeof rows[0], true);
    each(rows, sizeof rows / sizeof rows[0], false);
}

static void what_is_always_so_says_nothing(void)
{
    static const row rows[] = {
        {"{'type':'object','propertyNames':{'type':'string'},'additionalProperties':{'type':'integer'}}",
         {"{'a':1}", "{}"},
         {"{'a':null}"}},
        {"{'allOf':[{'type':'object','propertyNames':true,'properties':{'a':{'type':'null'}}},{'type':'object'}]}",
         {"{'a':null}"},
         {"{'a':1}"}},
        {"{'type':'array','prefixItems':[{'type':'null'},{'type':'integer'}],'items':false,'minItems':2,'maxItems':2}",
         {"[null,1]"},
         {"[null]", "[null,1,2]", "[1,null]", "[]"}},
        {"{" PLAIN ",'properties':{'a':{'type':['array','null'],'prefixItems':[{'type':'null'}],'items':false}},"
         "'required':['a']}",
         {"{'a':[null]}", "{'a':null}"},
         {"{'a':[null,null]}", "{'a':[1]}"}},
    };
    each(rows, sizeof rows / sizeof rows[0], true);
    each(rows, sizeof rows / sizeof rows[0], false);
}

static void bounds_of_numbers_are_kept_to(void)
{
    static const row rows[] = {
        {"{'type':'number','minimum':0,'maximum':1}",
         {"0", "1", "0.5", "0.999", "1.0", "0.0", "0.000001"},
         {"-1", "-0.1", "1.01", "2", "10", "1e1", ".5", "01"}},
        {"{'type':'number','exclusiveMinimum':0}", {"0.1", "7", "123.456", "0.0001", "1234567890"}, {"0", "0.0", "-1"}},
        {"{'type':'number','exclusiveMinimum':0.5,'maximum':12.25}",
         {"0.51", "0.500001", "1", "12.25", "12.250", "12.2", "12", "9.99"},
         {"0.5", "0.50", "0", "12.251", "12.3", "13", "100", "-1"}},
        {"{'type':'number','minimum':-1.5,'maximum':-0.25}",
         {"-1.5", "-1", "-0.25", "-0.3"},
         {"-1.51", "-2", "-0.2", "0", "1"}},
        {"{'type':'number','maximum':100,'exclusiveMaximum':true}",
         {"99.99", "10", "7", "-5000.5"},
         {"100", "100.0", "101", "200"}},
        {"{'type':'number','minimum':3,'exclusiveMinimum':5,'maximum':1e300}", {"5.1", "6", "100"}, {"5", "4", "-6"}},
        {"{'type':'number','minimum':1e-7,'maximum':2.5e-7}",
         {"0.0000001", "0.00000025", "0.00000019"},
         {"0", "0.00000009", "0.00000026", "1"}},
        {"{'type':'number','minimum':7,'maximum':7}", {"7", "7.0"}, {"7.01", "6.99", "70"}},
        {"{'type':['number','string'],'minimum':5,'maxLength':1}", {"5.5", "'x'"}, {"4.5", "'xy'"}},
        {"{" PLAIN
         ",'properties':{'p':{'type':'number','minimum':0,'maximum':1},'q':{'type':'string','pattern':'^a$'}},"
         "'required':['p','q']}",
         {"{'p':0.25,'q':'a'}"},
         {"{'p':1.25,'q':'a'}", "{'p':0.25,'q':'b'}"}},
    };
    each(rows, sizeof rows / sizeof rows[0], true);
    each(rows, sizeof rows / sizeof rows[0], false);
}

static void other_properties_have_other_names(void)
{
    static const row rows[] = {
        {"{'type':'object','properties':{'a]-^b':{'type':'null'},'ab':{'type':'null'}},'additionalProperties':{'type':'"
         "integer'}}",
         {"{'x':1}", "{'a]-^c':1}", "{'a]-^bc':1}", "{'ac':1,'^':2}", "{'ab':null,'-':3}"},
         {"{'a]-^b':1}", "{'ab':1}", "{'\n':1}", "{'a\n':1}", "{'\\x':1}", "{'\\u0061b':1}"}},
    };
    each(rows, sizeof rows / sizeof rows[0], true);
    each(rows, sizeof rows / sizeof rows[0], false);
}

/* With and without strict: no valid value is forbidden, and no invalid value is accepted. */
static void objects_are_open_unless_they_say_otherwise(void)
{
    static const row rows[] = {
        {"{'type':'object','properties':{'a':{'type':'string'}}}",
         {"{'a':'x','b':1}", "{'b':[{}]}", "{}"},
         {"{'a':1}", "{'b':1,'a':'x'}", "{'a':'x','a':1}"}},
        {"{'type':'object','properties':{}}", {"{}", "{'any':{'thing':[1]}}"}, {"[]"}},
        {"{'type':'object','properties':{'user_id':{},'':{'type':'null'}},'additionalProperties':{'type':'integer'}}",
         {"{'us':1}", "{'user_id':'x','user_i':2,'user_idx':3}", "{'':null}"},
         {"{'us':'x'}", "{'':1}"}},
        {"{'properties':{'a':{'type':'null'}}}", {"5", "'x'", "{'a':null}"}, {"{'a':1}"}},
        {"{" PLAIN ",'properties':{'a':{'type':'null'},'b':false}}", {"{'a':null}", "{}"}, {"{'b':1}", "{'c':1}"}},
    };
    each(rows, sizeof rows / sizeof rows[0], true);
    each(rows, sizeof rows / sizeof rows[0], false);
}

static void names_meet_patterns(void)
{
    static const row rows[] = {
        {"{'type':'object','propertyNames':{'minLength':2,'maxLength':3}}",
         {"{'ab':1,'abc':2}", "{}"},
         {"{'a':1}", "{'ab':1,'abcd':2}"}},
        {"{'type':'object','patternProperties':{'^x-':{'type':'string'}},'additionalProperties':false}",
         {"{'x-a':'b'}", "{}", "{'x-a':'b','x-b':''}"},
         {"{'x-a':1}", "{'y':'b'}"}},
        {"{'type':'object','properties':{'ab':{'type':'null'}},'patternProperties':{'^a':{'type':['null','integer']},"
         "'b$':{'minimum':3}},'additionalProperties':{'type':'boolean'}}",
         {"{'ab':null}", "{'a':2}", "{'acb':3}", "{'b':'x'}", "{'c':true}"},
         {"{'ab':3}", "{'a':true}", "{'acb':2}", "{'b':2}", "{'c':1}"}},
        {"{'type':'object','propertyNames':{'pattern':'^[a-c]{2}$'}}", {"{'ab':1}", "{}"}, {"{'ad':1}", "{'a':1}"}},
        {"{'type':'object','propertyNames':{'enum':['x','y']},'properties':{'z':{}}}", {"{'x':1}"}, {"{'z':1}"}},
    };
    each(rows, sizeof rows / sizeof rows[0], true);
    each(rows, sizeof rows / sizeof rows[0], false);
}

static void members_are_counted(void)
{
    static const row rows[] = {
        {"{'type':'object','properties':{'a':{},'b':{},'c':{}},'additionalProperties':false,'minProperties':2}",
         {"{'a':1,'c':1}", "{'a':1,'b':1,'c':1}"},
         {"{}", "{'b':1}"}},
        {"{'type':'object','maxProperties':1}", {"{}", "{'a':1}"}, {"{'a':1,'b':2}"}},
        {"{'type':'object','additionalProperties':{'type':'integer'},'minProperties':2,'maxProperties':3}",
         {"{'a':1,'b':2}", "{'a':1,'b':2,'c':3}"},
         {"{'a':1}", "{'a':1,'b':2,'c':3,'d':4}"}},
    };
    each(rows, sizeof rows / sizeof rows[0], true);
    each(rows, sizeof rows / sizeof rows[0], false);
}

static void choices_have_siblings(void)
{
    static const row rows[] = {
        {"{'type':'object','properties':{'a':{'type':'integer'},'b':{'type':'null'}},'anyOf':[{'required':['a']},{"
         "'required':['b']}]}",
         {"{'a':1}", "{'b':null}", "{'a':1,'b':null,'c':0}"},
         {"{}", "{'c':1}", "{'a':'x'}"}},
        {"{'oneOf':[{'required':['a']},{'required':['b']}],'type':'object'}",
         {"{'a':1}", "{'b':1,'c':1}"},
         {"{'a':1,'b':1}", "{'c':1}"}},
        {"{'oneOf':[{'type':'string'},{'type':'number','minimum':1},{'const':0}]}",
         {"0", "1.5", "'x'"},
         {"0.5", "null"}},
        {"{'$ref':'#/$defs/a','maxLength':2,'$defs':{'a':{'type':'string','minLength':1}}}",
         {"'x'", "'xy'"},
         {"''", "'xyz'"}},
        {"{'allOf':[{'type':'string'},{'not':{'const':'x'}}]}", {"'y'", "'xx'", "''"}, {"'x'", "1"}},
        {"{'allOf':[{'properties':{'a':{'type':['null','string']}}},{'properties':{'a':{'type':['null','integer']}}}],'"
         "type':'object'}",
         {"{'a':null}", "{}"},
         {"{'a':1}", "{'a':'x'}"}},
        {"{'allOf':[{'properties':{'a':{}},'additionalProperties':false},{'properties':{'b':{}}}],'type':'object'}",
         {"{'a':1}", "{}"},
         {"{'b':1}"}},
        {"{'type':'object','if':{'properties':{'k':{'const':1}},'required':['k']},'then':{'required':['v']},'"
         "properties':{'k':{},'v':{}}}",
         {"{'k':1,'v':0}", "{'k':2}", "{}"},
         {"{'k':1}"}},
        {"{'type':'object','dependentRequired':{'a':['b']},'properties':{'a':{},'b':{}}}",
         {"{'a':1,'b':1}", "{'b':1}", "{}"},
         {"{'a':1}"}},
        {"{'$id':'https://x/"
         "y','items':{'$ref':'z#q'},'type':'array','$defs':{'p':{'$id':'z','$defs':{'r':{'$anchor':'q','type':'null'}}}"
         "}}",
         {"[null]"},
         {"[1]"}},
    };
    each(rows, sizeof rows / sizeof rows[0], true);
    each(rows, sizeof rows / sizeof rows[0], false);
}

static void lists_and_numbers_are_what_they_may_be(void)
{
    static const row rows[] = {
        {"{'type':'array','prefixItems':[{'type':'number'},{'type':'null'}]}",
         {"[]", "[1]", "[1,null]", "[1,null,'x']"},
         {"[null]", "[1,2]"}},
        {"{'type':'array','items':[{'type':'number'}],'additionalItems':{'type':'null'},'minItems':2}",
         {"[1,null]", "[1,null,null]"},
         {"[1]", "[1,2]"}},
        {"{'type':'array','prefixItems':[{'type':'null'}],'items':false}", {"[]", "[null]"}, {"[null,null]"}},
        {"{'type':'array','contains':{'const':7}}", {"[7]", "[1,7,'x']"}, {"[]", "[1]"}},
        /* numbers */
        {"{'type':'number'}", {"1e-07", "1.5E+20", "0.30000000000000004"}, {"01", ".5"}},
        {"{'type':'integer'}", {"12345678901234567890", "-1234567890123456789"}, {"1.5", "1e5"}},
        {"{'type':'integer','minimum':0}", {"12345678901234567890", "0"}, {"-1"}},
        {"{'type':'number','minimum':0,'maximum':1}", {"1e-07", "0.30000000000000004", "1"}, {"1e1", "-1e-07", "1.5"}},
        {"{'minimum':4}", {"4", "'x'", "null"}, {"3"}},
        {"{'type':'integer','multipleOf':5}", {"0", "-15", "25"}, {"3", "51"}},
        {"{'type':'number','multipleOf':0.01}", {"1.25", "7"}, {"1.255"}},
        {"{'type':'integer','exclusiveMinimum':3.5,'exclusiveMaximum':6}", {"4", "5"}, {"3", "6", "4.5"}},
    };
    each(rows, sizeof rows / sizeof rows[0], true);
    each(rows, sizeof rows / sizeof rows[0], false);
}

static void texts_and_constants_are_what_they_may_be(void)
{
    static const row rows[] = {
        {"{'format':'date-time','type':'string'}",
         {"'2024-05-01T12:00:00.123456Z'", "'2024-02-29t00:00:00z'"},
         {"'2023-02-30T00:00:00Z'", "'2024-05-01'"}},
        {"{'format':'ipv4','type':'string'}", {"'127.0.0.1'"}, {"'256.0.0.1'", "'1.2.3'"}},
        {"{'format':'uri-template','type':'string'}", {"'http://h/{a}{?b,c:3}'"}, {"'http://h/{'", "'{a-b}'"}},
        {"{'format':'email','type':'string','maxLength':8}", {"'a+b@x.io'"}, {"'abcdef@x.io'"}},
        {"{'type':'string','pattern':'^a+b+$','maxLength':3}", {"'ab'", "'aab'"}, {"'aabb'", "'a'"}},
        {"{'type':'string','pattern':'a|^b','maxLength':2}", {"'xa'", "'b'"}, {"'xb'", "'xxa'"}},
        {"{'type':'string','pattern':'^(?!a)[a-c]+$'}", {"'ba'"}, {"'ab'", "'x'"}},
        {"{'type':'string'}", {"'\x7f\\/\\u00e9\\ud83d\\ude00'"}, {"'\\ud83d'"}},
        /* constants together with other keywords */
        {"{'type':'string','enum':['x',null]}", {"'x'"}, {"null"}},
        {"{'enum':[1,'a',{'b':[2]}],'not':{'type':'string'}}", {"1", "{'b':[2]}", "{ 'b': [ 2 ] }"}, {"'a'", "2"}},
        {"{'enum':[1.0]}", {"1", "1.0"}, {"1.5"}},
        {"{'type':'array','items':{'allOf':[{'$ref':'#'},{'maxItems':1}]},'maxItems':2}",
         {"[[],[[]]]"},
         {"[[[],[]]]", "[1]"}},
    };
    each(rows, sizeof rows / sizeof rows[0], true);
    each(rows, sizeof rows / sizeof rows[0], false);
}

/* Lengths that are too large to write the characters out one by one. */
static void lengths_are_counted(void)
{
    static char text[5200];
    char error[512];
    for (int is_strict = 0; is_strict < 2; is_strict++) {
        char *document = schema_document("{'type':'string','minLength':2345,'maxLength':5001}", is_strict != 0, error);
        CHECK(document != NULL);
        static const struct {
            size_t n;
            bool is_valid;
        } rows[] = {{0, false},   {2344, false}, {2345, true}, {2346, true},
                    {4999, true}, {5000, true},  {5001, true}, {5002, false}};
        for (size_t i = 0; document != NULL && i < sizeof rows / sizeof rows[0]; i++) {
            memset(text, 'x', rows[i].n + 2);
            text[0] = text[rows[i].n + 1] = '"';
            text[rows[i].n + 2] = '\0';
            CHECK_INT(schema_accepts(document, text), rows[i].is_valid);
        }
        free(document);
    }
}

/* Without strict, a keyword that cannot be enforced is ignored. All other keywords are enforced. */
static void what_cannot_be_enforced_is_left_open(void)
{
    static const row rows[] = {
        {"{'type':'array','uniqueItems':true,'items':{'type':'integer'}}", {"[1,1]", "[1,2]"}, {"['x']"}},
        {"{'type':'string','pattern':'(?<=x)a','maxLength':3}", {"'xa'", "'b'"}, {"'abcd'"}},
        {"{'type':'object','properties':{'a':{'type':'null'}},'unevaluatedProperties':false}",
         {"{'a':null}"},
         {"{'a':1}"}},
        {"{'$ref':'https://example.org/x','type':'string'}", {"'x'"}, {"1"}},
        {"{'type':'any'}", {"1", "'x'"}, {"x"}},
        {"{'type':'string','nullable':true}", {"null", "'x'"}, {"1"}},
        {"{'$ref':'#'}", {"1", "'x'"}, {"x"}},
    };
    each(rows, sizeof rows / sizeof rows[0], false);
}

/* A keyword whose value has a wrong type does not restrict anything. So its negation allows nothing. */
static void a_keyword_of_a_wrong_type_says_nothing(void)
{
    static const row rows[] = {
        {"{'not':{'type':'null','minimum':{'type':'string','maxLength':32767,'minLength':50}}}",
         {"1", "'x'"},
         {"null"}},
        {"{'not':{'type':'null','exclusiveMaximum':true}}", {"1"}, {"null"}},
        {"{'not':{'type':'null','maxLength':'7'}}", {"'12345678'"}, {"null"}},
        {"{'not':{'type':'null','pattern':7}}", {"'x'"}, {"null"}},
        {"{'not':{'type':'null','enum':{'a':1}}}", {"1", "2"}, {"null"}},
        {"{'not':{'type':'null','properties':[{'type':'null'}]}}", {"{}"}, {"null"}},
        {"{'not':{'type':'null','required':{'a':'b'}}}", {"{'a':1}"}, {"null"}},
    };
    each(rows, sizeof rows / sizeof rows[0], true);
    each(rows, sizeof rows / sizeof rows[0], false);
}

static void what_cannot_be_kept_to_is_refused(void)
{
    static const struct {
        const char *schema, *says;
    } rows[] = {
        {"{'type':'array','uniqueItems':true}", "keyword uniqueItems"},
        {"{'properties':{'a':{'unevaluatedProperties':false}}}",
         "schema/properties/a: the keyword unevaluatedProperties"},
        {"{'not':{}}", "no value is valid"},
        {"{'not':{'multipleOf':3}}", "negation"},
        {"{'not':{'type':['integer','boolean']}}", "negation"},
        {"{" PLAIN ",'required':['a'],'properties':{}}", "no value is valid"},
        {"{'type':'integer','exclusiveMinimum':4,'maximum':4}", "no value is valid"},
        {"{'type':'number','minimum':1e47}", "digits before the point"},
        {"{'type':'number','minimum':1e-50}", "digits after the point"},
        {"{'type':'number','minimum':4,'maximum':3}", "no value is valid"},
        {"{'type':'array','prefixItems':[{'type':'null'}],'items':false,'minItems':2}", "no value is valid"},
        {"{'type':'string','format':'date','maxLength':3}", "no value is valid"},
        /* a client may rely on a format that JSON Schema defines; other formats only cause a note */
        {"{'type':'string','format':'regex'}", "format: \"regex\""},
        {"{'format':'idn-email'}", "format: \"idn-email\""},
        {"{'type':['null','string'],'format':'idn-hostname'}", "format: \"idn-hostname\""},
        {"{'type':'string','pattern':'^\\\\\\\\p{Script=Greek}$'}", "\\p{Script=Greek}"},
        {"{'type':'string','pattern':'\\\\\\\\pL'}", "\\p"},
        {"{'type':'string','pattern':'(?<=x)'}", "(?<"},
        {"{'type':'string','pattern':'a\\\\\\\\b'}", "\\b"},
        {"{'type':'string','pattern':'^ab$','maxLength':1}", "no value is valid"},
        {"{'type':'string','format':'date','pattern':'(x'}", "not closed"},
        {"{'oneOf':[{'multipleOf':3},{'multipleOf':5}]}", "oneOf"},
        {"{'type':'any'}", "keyword type"},
        {"{'oneOf':[{'type':'integer'},{'type':'number','minimum':1}]}", "oneOf"},
        {"{'$ref':'#/nowhere'}", "keyword $ref leads nowhere"},
        {"{'$dynamicRef':'#x'}", "$dynamicRef"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char error[512];
        char *document = schema_document(rows[i].schema, true, error);
        if (document != NULL || strstr(error, rows[i].says) == NULL) {
            printf("%s: \"%s\"\n", rows[i].schema, error);
        }
        CHECK(document == NULL && strstr(error, rows[i].says) != NULL);
        free(document);
    }
}

/* A value stays in the list if a keyword cannot be tested, especially within a negation. With strict, the error names
 * the keyword. */
static void listed_values_are_tested(void)
{
    static const row both[] = {
        {"{'enum':['a','b'],'format':'of-our-own'}", {"'a'", "'b'"}, {"'c'"}},
        {"{'enum':['x',7],'anyOf':[{'not':{'const':'x'}},{'const':'x'}]}", {"'x'", "7"}, {"8"}},
        {"{'enum':[[1,1],[1,1.0],[2],[{'a':1,'b':2},{'b':2,'a':1}]],'uniqueItems':true}",
         {"[2]"},
         {"[1,1]", "[1,1.0]", "[{'a':1,'b':2},{'b':2,'a':1}]"}},
        {"{'enum':[3,4],'divisibleBy':3}", {"3"}, {"4"}},
        {"{'enum':[{'a':1},{'ab':1}],'propertyNames':{'maxLength':1}}", {"{'a':1}"}, {"{'ab':1}"}},
        {"{'enum':[{'a':1},{'a':1,'b':2}],'dependentRequired':{'a':['b']}}", {"{'a':1,'b':2}"}, {"{'a':1}"}},
        {"{'enum':[[1],[2]],'contains':{'const':1},'minContains':1}", {"[1]"}, {"[2]"}},
        {"{'enum':[{'a':1},{'a':1,'b':2},{}],'dependencies':{'a':{'minProperties':2}}}",
         {"{'a':1,'b':2}", "{}"},
         {"{'a':1}"}},
    };
    static const row loose[] = {
        {"{'enum':['a','b'],'not':{'format':'date'}}", {"'a'", "'b'"}, {"'c'"}},
        {"{'enum':['2024-02-01','b'],'not':{'format':'date'}}", {"'2024-02-01'", "'b'"}, {"'c'"}},
        {"{'enum':['a','b'],'not':{'format':'of-our-own'}}", {"'a'", "'b'"}, {"'c'"}},
        {"{'enum':[{'a':1},2],'not':{'unevaluatedProperties':false}}", {"{'a':1}", "2"}, {"3"}},
        {"{'enum':[[1],[2]],'not':{'contains':{'const':1},'minContains':0}}", {"[1]", "[2]"}, {"[3]"}},
        {"{'enum':['a','b'],'not':{'pattern':'(a)\\\\\\\\1'}}", {"'a'", "'b'"}, {"'c'"}},
        {"{'enum':['a','b'],'if':{'format':'of-our-own'},'then':false}", {"'a'", "'b'"}, {"'c'"}},
        {"{'enum':['x',null,7],'oneOf':[{'type':'string','format':'date'},{'enum':['x',null]}]}",
         {"'x'", "null"},
         {"7", "'y'"}},
        {"{'enum':['a','b'],'oneOf':[{'format':'x'},{'format':'y'}]}", {"'a'", "'b'"}, {"'c'"}},
    };
    each(both, sizeof both / sizeof both[0], true);
    each(both, sizeof both / sizeof both[0], false);
    each(loose, sizeof loose / sizeof loose[0], false);
    static const struct {
        const char *schema, *says;
    } refused[] = {
        {"{'enum':['a','b'],'not':{'format':'date'}}", "negation"},
        {"{'enum':[{'a':'x'}],'properties':{'a':{'not':{'format':'date-of-our-own'}}}}", "keyword not"},
        {"{'enum':[{'a':'x'}],'properties':{'a':{'pattern':'(x)\\\\\\\\1?'}}}", "keyword pattern"},
        {"{'enum':[{'a':{}}],'properties':{'a':{'unevaluatedProperties':false}}}", "keyword unevaluatedProperties"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char error[512];
        char *document = schema_document(refused[i].schema, true, error);
        if (document != NULL || strstr(error, refused[i].says) == NULL) {
            printf("%s: \"%s\"\n", refused[i].schema, error);
        }
        CHECK(document == NULL && strstr(error, refused[i].says) != NULL);
        free(document);
    }
}

/* References in a nested listed value are followed only to a limited depth. At the limit, nothing is proved. */
static void listed_values_that_nest_are_refused(void)
{
    char schema[512], error[512];
    size_t n = schema_append(schema, "{'enum':[", 0);
    for (int i = 0; i < 40; i++) {
        n += schema_append(schema + n, "[", i);
    }
    n += schema_append(schema + n, "'x'", 0);
    for (int i = 0; i < 40; i++) {
        n += schema_append(schema + n, "]", i);
    }
    (void)sprintf(schema + n, "],'$ref':'#/$defs/a','$defs':{'a':{'items':{'$ref':'#/$defs/a'},'not':{'const':'x'}}}}");
    char *strict = schema_document(schema, true, error);
    CHECK(strict == NULL && strstr(error, "keyword $ref cannot be tested") != NULL);
    free(strict);
}

/* Equal schemas are compiled once, but not if the same $ref leads to different schemas. */
static void equal_schemas_mean_the_same(void)
{
    static const row rows[] = {
        {"{'type':'object','properties':{'a':{'type':'object','properties':{'x':{'type':'integer'}},'required':['x']},'"
         "b':{"
         "'type':'object','properties':{'x':{'type':'integer'}},'required':['x']}}}",
         {"{'a':{'x':1},'b':{'x':2}}"},
         {"{'a':{'x':1},'b':{}}", "{'a':{'x':'1'}}"}},
        {"{'type':'object','properties':{'a':{'$id':'http://h/a','properties':{'v':{'$ref':'#/$defs/"
         "t'}},'$defs':{'t':{'type'"
         ":'null'}}},'b':{'$id':'http://h/b','properties':{'v':{'$ref':'#/$defs/"
         "t'}},'$defs':{'t':{'type':'boolean'}}}}}",
         {"{'a':{'v':null},'b':{'v':true}}"},
         {"{'a':{'v':true}}", "{'b':{'v':null}}"}},
    };
    each(rows, sizeof rows / sizeof rows[0], true);
}

/* Compiling ends if a schema refers to itself while it is merged, or if its references multiply. */
static void recursion_ends(void)
{
    static const row rows[] = {
        {"{'$ref':'#/$defs/A','$defs':{'A':{'type':'object','properties':{'l':{'allOf':[{'$ref':'#/$defs/A'},"
         "{'properties':{'x':{'type':'null'}}}]},'r':{'allOf':[{'$ref':'#/$defs/"
         "A'},{'properties':{'y':{'type':'null'}}}]}}}}}",
         {"{'l':{'r':{'l':{}},'x':null}}"},
         {"{'l':{'x':1}}", "{'r':{'l':{'y':1,'x':2}}}"}},
        {"{'type':'object','properties':{'tree':{'$ref':'#/$defs/n'}},'$defs':{'n':{'type':'object','properties':{"
         "'kids':{'type':'array','items':{'allOf':[{'$ref':'#/$defs/n'},{'type':'object','properties':{'x':{'type':"
         "'integer'}}}]}}}}}}",
         {"{'tree':{'kids':[{'kids':[{'x':1}],'x':2}]}}"},
         {"{'tree':{'kids':[{'x':'a'}]}}"}},
        {"{'allOf':[{'$ref':'#'},{'type':'null'}]}", {"null"}, {"1"}},
    };
    each(rows, sizeof rows / sizeof rows[0], true);
    each(rows, sizeof rows / sizeof rows[0], false);
}

enum { SCALE = 1000, BOUND_MAX = 120 * SCALE };

static int random_between(random_source *random, int least, int most)
{
    return least + (int)random_below(random, (uint32_t)(most - least + 1));
}

/* Returns a number of thousandths. About one in three is close to `near`. */
static int random_value(random_source *random, int near)
{
    static const int grains[] = {1, 10, 100, 1000, 10000};
    const int grain = grains[random_between(random, 0, 4)];
    return random_between(random, 0, 2) == 0 ? near + random_between(random, -2, 2)
                                             : random_between(random, -BOUND_MAX / grain, BOUND_MAX / grain) * grain;
}

static void write_number(char *out, int value, bool with_zeros)
{
    size_t n = (size_t)sprintf(out, "%s%d.%03d", value < 0 ? "-" : "", abs(value) / SCALE, abs(value) % SCALE);
    while (!with_zeros && out[n - 1] == '0') {
        out[--n] = '\0';
    }
    if (out[n - 1] == '.') {
        out[--n] = '\0';
    }
}

/* For random bounds, exactly the numbers within the bounds are allowed. */
static void numbers_are_within_their_bounds(void)
{
    random_source random = {.state = 20};
    for (int i = 0; i < 400; i++) {
        const int side = random_between(&random, 1, 3); /* 1: a minimum, 2: a maximum, 3: both */
        int least = random_value(&random, 0), most = random_value(&random, least);
        if (side == 3 && least > most) {
            const int other = least;
            least = most;
            most = other;
        }
        const bool is_beyond = random_between(&random, 0, 1) == 0;
        if (side == 3 && is_beyond && least == most) {
            continue;
        }
        char schema[256], number[32], error[512];
        size_t n = (size_t)sprintf(schema, "{'type':'number'");
        if (side & 1) {
            write_number(number, least, false);
            n += (size_t)sprintf(schema + n, ",'%s':%s", is_beyond ? "exclusiveMinimum" : "minimum", number);
        }
        if (side & 2) {
            write_number(number, most, false);
            n += (size_t)sprintf(schema + n, ",'%s':%s", is_beyond ? "exclusiveMaximum" : "maximum", number);
        }
        (void)sprintf(schema + n, "}");
        char *document = schema_document(schema, true, error);
        CHECK(document != NULL);
        for (int k = 0; document != NULL && k < 20; k++) {
            const int value = random_value(&random, k % 2 ? least : most);
            const bool is_within =
                (!(side & 1) || value >= least + is_beyond) && (!(side & 2) || value <= most - is_beyond);
            write_number(number, value, k % 3 == 0);
            if (schema_accepts(document, number) != is_within) {
                printf("%s: %s %s\n", schema, is_within ? "refuses" : "lets be", number);
                CHECK(false);
            }
        }
        free(document);
    }
}

/* The addresses and the order of objects differ in each compilation, because memory of the last one is used again. The
 * grammar must be the same. */
static void the_same_schema_has_the_same_grammar(void)
{
    enum { N_MEMBERS = 12, ROUNDS = 24 };
    static char schema[1 << 14], other[1 << 12];
    char error[512];
    size_t n = (size_t)sprintf(schema, "{'allOf':[");
    for (int part = 0; part < 4; part++) { /* each member is merged from four objects */
        n += (size_t)sprintf(schema + n, "%s{'properties':{", part > 0 ? "," : "");
        for (int i = 0; i < N_MEMBERS; i++) {
            n += (size_t)sprintf(schema + n, "%s'm%d':{'properties':{'p%d':{'maximum':%d}}}", i > 0 ? "," : "", i, part,
                                 i + 100 * part);
        }
        n += (size_t)sprintf(schema + n, "}}");
    }
    (void)sprintf(schema + n, "]}");
    random_source random = {.state = 7};
    char *first = schema_document(schema, true, error);
    CHECK(first != NULL);
    for (int round = 0; round < ROUNDS; round++) {
        size_t n_other = (size_t)sprintf(other, "{'enum':[0");
        for (uint32_t i = random_below(&random, 200); i > 0; i--) {
            n_other += (size_t)sprintf(other + n_other, ",{'%u':%u}", i, random_below(&random, 1000));
        }
        (void)sprintf(other + n_other, "]}");
        free(schema_document(other, true, error));
        char *again = schema_document(schema, true, error);
        CHECK(again != NULL && strcmp(first, again) == 0);
        free(again);
    }
    free(first);
}

int main(void)
{
    if (!schema_model_open()) {
        return 1;
    }
    RUN(what_it_says_is_kept_to);
    RUN(bounds_of_integers_are_kept_to);
    RUN(a_text_looks_as_its_pattern_says);
    RUN(what_is_always_so_says_nothing);
    RUN(bounds_of_numbers_are_kept_to);
    RUN(other_properties_have_other_names);
    RUN(objects_are_open_unless_they_say_otherwise);
    RUN(names_meet_patterns);
    RUN(members_are_counted);
    RUN(choices_have_siblings);
    RUN(lists_and_numbers_are_what_they_may_be);
    RUN(texts_and_constants_are_what_they_may_be);
    RUN(lengths_are_counted);
    RUN(what_cannot_be_enforced_is_left_open);
    RUN(a_keyword_of_a_wrong_type_says_nothing);
    RUN(what_cannot_be_kept_to_is_refused);
    RUN(listed_values_that_nest_are_refused);
    RUN(listed_values_are_tested);
    RUN(recursion_ends);
    RUN(equal_schemas_mean_the_same);
    RUN(numbers_are_within_their_bounds);
    RUN(the_same_schema_has_the_same_grammar);
    schema_model_close();
    return CHECK_RESULT();
}
