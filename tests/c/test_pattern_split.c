/* Tests splitting by patterns. For every supported pattern, the result is that of std::regex. The code needs little
 * stack, and the number of steps is linear in the text. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "check.h"
#include "pattern_split.h"
#include "random.h"

enum { N_PATTERNS = 3000, TEXTS_EACH = 6, PATTERN_BYTES_MAX = 512, TEXT_BYTES_MAX = 14, LONG_BYTES = 1 << 20 };

/* ---- the same as std::regex ------------------------------------------------------------------------------------------ */

typedef struct spelling {
    char text[PATTERN_BYTES_MAX];
    size_t n;
} spelling;

static void spell(spelling *s, const char *text)
{
    size_t n = strlen(text);
    if (s->n + n < sizeof s->text) {
        memcpy(s->text + s->n, text, n + 1);
        s->n += n;
    }
}

static const char *one_of(random_source *r, const char *const *choices, uint32_t n)
{
    return choices[random_below(r, n)];
}

static void spell_choice(random_source *r, int depth, spelling *s);

static void spell_atom(random_source *r, int depth, spelling *s)
{
    static const char *const simple[] = {"a",
                                         "b",
                                         "A",
                                         " ",
                                         "1",
                                         "\\s",
                                         "\\S",
                                         "\\d",
                                         "\\n",
                                         "[ab]",
                                         "[^a]",
                                         "[\\sb]",
                                         "[a-c1]",
                                         "[^\\s\\d]",
                                         "\\.",
                                         "\xd2",
                                         "[\xd2"
                                         "A-Za-z]",
                                         "[.\\-]"};
    static const char *const opening[] = {"(", "(?:", "(?:", "(?=", "(?!"};
    static const char *const repeated[] = {"", "", "", "", "*", "+", "?", "{2}", "{1,3}", "{2,}", "{0,2}"};
    const char *open = depth > 0 && random_below(r, 3) == 0 ? one_of(r, opening, 5) : NULL;
    if (open == NULL) {
        spell(s, one_of(r, simple, sizeof simple / sizeof *simple));
    } else {
        spell(s, open);
        spell_choice(r, depth - 1, s);
        spell(s, ")");
    }
    if (open == NULL || (strcmp(open, "(?=") != 0 && strcmp(open, "(?!") != 0)) {
        spell(s, one_of(r, repeated, sizeof repeated / sizeof *repeated));
    }
}

static void spell_choice(random_source *r, int depth, spelling *s)
{
    uint32_t n_choices = 1 + (random_below(r, 2) != 0 ? random_below(r, 3) : 0);
    for (uint32_t i = 0; i < n_choices; i++) {
        spell(s, i > 0 ? "|" : "");
        for (uint32_t n = 1 + random_below(r, 3); n > 0; n--) {
            spell_atom(r, depth, s);
        }
        spell(s, random_below(r, 12) == 0 ? "$" : "");
    }
}

static size_t random_text(random_source *r, char *out)
{
    size_t n = 1 + random_below(r, TEXT_BYTES_MAX);
    for (size_t i = 0; i < n; i++) {
        out[i] = "aabbcA  11\n.-\xd2"[random_below(r, 14)];
    }
    return n;
}

static void test_it_splits_as_std_regex_does(void)
{
    random_source r = {20251121};
    int n_compared = 0;
    for (int i = 0; i < N_PATTERNS; i++) {
        spelling s = {"", 0};
        spell_choice(&r, 2, &s);
        if (s.n + 8 > sizeof s.text) {
            continue; /* the pattern was cut off */
        }
        for (int k = 0; k < TEXTS_EACH; k++) {
            char text[TEXT_BYTES_MAX];
            size_t lengths[TEXT_BYTES_MAX + 1], expected[2 * TEXT_BYTES_MAX + 2];
            size_t n_bytes = random_text(&r, text);
            int64_t n = pattern_split(s.text, text, n_bytes, lengths);
            if (n < 0) {
                continue; /* the pattern can match the empty text, or matching takes too long */
            }
            int64_t n_expected = pattern_split_std(s.text, text, n_bytes, expected);
            bool is_same = n == n_expected && memcmp(lengths, expected, (size_t)n * sizeof *lengths) == 0;
            if (!is_same) {
                printf("%s on \"%.*s\"\n", s.text, (int)n_bytes, text);
            }
            CHECK(is_same);
            n_compared++;
        }
    }
    printf("%d compared\n", n_compared);
    CHECK(n_compared > N_PATTERNS);
}

/* ---- long texts ----------------------------------------------------------------------------------------------------- */

typedef struct long_case {
    const char *pattern, *run, *last;
} long_case;

/* For each of these, std::regex takes quadratic time, or recurses for each character. */
static const long_case long_cases[] = {
    {"\\s+$", " ", "x"},
    {"\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{1}", " ", "x"},
    {"[ab]*[a]+c|[ab]", "ab", ""},
    {"((?=[a-z])[^b])*((?=[a-z])[^a])+c|b", "ab", ""},
    {"(?:a[b]*(?: a[b]*)*)+", "a ab", ""},
    {"(?:ab)+", "ab", ""},
    {"<[0-9]+>", "<1", ""},
    {"a+(?=b)", "a", ""},
    {" ?[^\\s]+|\\s+(?!\\S)", "a ", ""},
};

typedef struct long_call {
    const long_case *c;
    char *text;
    size_t *lengths;
    size_t n_bytes;
    int64_t n;
} long_call;

static void *call_split(void *argument)
{
    long_call *call = argument;
    call->n = pattern_split(call->c->pattern, call->text, call->n_bytes, call->lengths);
    return NULL;
}

static void test_long_texts_take_few_steps_and_little_stack(void)
{
    for (size_t i = 0; i < sizeof long_cases / sizeof *long_cases; i++) {
        const long_case *c = &long_cases[i];
        long_call call = {c, malloc(LONG_BYTES + 1), malloc((LONG_BYTES + 2) * sizeof(size_t)), 0, 0};
        size_t n_run = strlen(c->run);
        for (; call.n_bytes + n_run <= LONG_BYTES; call.n_bytes += n_run) {
            memcpy(call.text + call.n_bytes, c->run, n_run);
        }
        memcpy(call.text + call.n_bytes, c->last, strlen(c->last));
        call.n_bytes += strlen(c->last);
        pthread_attr_t attributes;
        pthread_t thread;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, 64 * 1024);
        CHECK_INT(pthread_create(&thread, &attributes, call_split, &call), 0);
        pthread_join(thread, NULL);
        pthread_attr_destroy(&attributes);
        if (call.n < 1) {
            printf("%s: %lld\n", c->pattern, (long long)call.n);
        }
        CHECK(call.n >= 1);
        size_t total = 0;
        for (int64_t k = 0; k < call.n; k++) {
            total += call.lengths[k];
        }
        CHECK_INT(total, call.n_bytes);
        free(call.text);
        free(call.lengths);
    }
}

static void test_a_pattern_that_cannot_be_quick_is_an_error(void)
{
    char text[64];
    size_t lengths[sizeof text + 1];
    memset(text, 'a', sizeof text);
    CHECK_INT(pattern_split("(?:aa?|aa?)+b", text, sizeof text, lengths), PATTERN_TOO_MANY_STEPS);
}

static void test_other_dialects_are_refused(void)
{
    static const char *const patterns[] = {".",     "^a",     "a*?", "a++", "(?<a>b)", "(?>a)", "(?i:a)", "\\w",
                                           "\\b",   "\\p{L}", "(a",  "a)",  "[a",      "[b-a]", "a{2",    "a{2,1}",
                                           "a{x}",  "(a*)*",  "a**", "\\",  "[\\s-a]", "*a",    "a|*",    "a*",
                                           "(?=a)", "$",      "",    "a|",  "\\1"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        size_t lengths[4];
        if (pattern_split(patterns[i], "aab", 3, lengths) != PATTERN_REFUSED) {
            printf("taken: %s\n", patterns[i]);
        }
        CHECK_INT(pattern_split(patterns[i], "aab", 3, lengths), PATTERN_REFUSED);
    }
}

int main(void)
{
    RUN(test_it_splits_as_std_regex_does);
    RUN(test_long_texts_take_few_steps_and_little_stack);
    RUN(test_a_pattern_that_cannot_be_quick_is_an_error);
    RUN(test_other_dialects_are_refused);
    return CHECK_RESULT();
}
