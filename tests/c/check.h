/* check.h: a minimal test harness. There is one executable per test file. Each test is a function, which main calls
 * with RUN. main returns CHECK_RESULT(). A failed check is reported with its position, and ends its test. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <string.h>

static int check_failures;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("FAIL %s:%d: %s\n", __FILE__, __LINE__, #condition);                                                \
            check_failures++;                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

#define CHECK_INT(actual, expected)                                                                                    \
    do {                                                                                                               \
        long long check_actual = (long long)(actual), check_expected = (long long)(expected);                          \
        if (check_actual != check_expected) {                                                                          \
            printf("FAIL %s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #actual, check_actual, check_expected);   \
            check_failures++;                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

#define CHECK_STR(actual, expected)                                                                                    \
    do {                                                                                                               \
        const char *check_actual = (actual), *check_expected = (expected);                                             \
        if (strcmp(check_actual, check_expected) != 0) {                                                               \
            printf("FAIL %s:%d: %s is \"%s\", not \"%s\"\n", __FILE__, __LINE__, #actual, check_actual,                \
                   check_expected);                                                                                    \
            check_failures++;                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

/* Ends a test early when a function that it called has already failed. */
#define CHECK_STILL_GOOD()                                                                                             \
    do {                                                                                                               \
        if (check_failures > 0) {                                                                                      \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

#define RUN(test)                                                                                                      \
    do {                                                                                                               \
        int check_before = check_failures;                                                                             \
        test();                                                                                                        \
        printf("%s %s\n", check_failures == check_before ? "ok" : "FAILED", #test);                                    \
        fflush(stdout);                                                                                                \
    } while (0)

#define CHECK_RESULT() (check_failures == 0 ? 0 : 1)

#endif
