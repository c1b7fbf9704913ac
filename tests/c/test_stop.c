#include <stdbool.h>
#include <stdlib.h>

#include "check.h"
#include "random.h"
#include "policy/stop.h"

/* Feeds `text` in pieces of this size. Returns the text that was released. *index is the index of the stop string that
 * was found, or -1. */
static char *filter(const char *text, size_t n, uint32_t piece, uint32_t n_stops, const char *const *stops,
                    int32_t *index)
{
    size_t sizes[LLM_STOPS_MAX];
    for (uint32_t i = 0; i < n_stops; i++) {
        sizes[i] = strlen(stops[i]);
    }
    stop s;
    static stop_result result;
    char *out = calloc(1, 3 * n + 1);
    size_t n_out = 0;
    *index = -1;
    if (stop_open(&s, n_stops, stops, sizes) != LLM_OK) {
        return out;
    }
    for (size_t at = 0; at < n && *index < 0; at += piece) {
        const size_t left = n - at;
        stop_feed(&s, text + at, (uint32_t)(left < piece ? left : piece), &result);
        memcpy(out + n_out, result.text, result.n_text);
        n_out += result.n_text;
        *index = result.stop_index;
    }
    if (*index < 0) {
        stop_flush(&s, &result);
        memcpy(out + n_out, result.text, result.n_text);
    }
    stop_close(&s);
    return out;
}

static void expect(const char *text, const char *const *stops, uint32_t n_stops, const char *wanted,
                   int32_t wanted_index)
{
    for (uint32_t piece = 1; piece <= strlen(text) + 1; piece++) {
        int32_t index;
        char *out = filter(text, strlen(text), piece, n_stops, stops, &index);
        const bool same = strcmp(out, wanted) == 0;
        free(out);
        CHECK(same);
        CHECK_INT(index, wanted_index);
    }
}

static void test_stop_strings_at_any_split(void)
{
    const char *const stops[] = {"END", "ENDING", "##"};
    expect("hello END rest", stops, 3, "hello ", 0);
    CHECK_STILL_GOOD();
    expect("a # b ## c", stops, 3, "a # b ", 2);
    CHECK_STILL_GOOD();
    expect("EN EN E", stops, 3, "EN EN E", -1);
    CHECK_STILL_GOOD();
    const char *const overlapping[] = {"aab"};
    expect("aaaab!", overlapping, 1, "aa", 0);
}

static void test_utf8_is_never_split_and_always_valid(void)
{
    expect("h\xc3\xa9 \xf0\x9f\x98\x80!", NULL, 0, "h\xc3\xa9 \xf0\x9f\x98\x80!", -1);
    CHECK_STILL_GOOD();
    /* Unicode 15, section 3.9, table 3-11: one U+FFFD per maximal part. */
    expect("\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63", NULL, 0,
           "\x61\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\x62\xef\xbf\xbd\x63", -1);
    CHECK_STILL_GOOD();
    expect("\xc0\xaf\xed\xa0\x80", NULL, 0, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", -1);
    CHECK_STILL_GOOD();
    expect("ok\xe2\x82", NULL, 0, "ok\xef\xbf\xbd", -1);
}

static void test_partial_characters_and_stops_are_held(void)
{
    const char *const stops[] = {"stop"};
    const size_t sizes[] = {4};
    stop s;
    static stop_result r;
    CHECK_INT(stop_open(&s, 1, stops, sizes), LLM_OK);
    stop_feed(&s, "x\xe2\x82", 3, &r);
    CHECK_INT(r.n_text, 1);
    CHECK_INT(r.n_released, 1);
    stop_feed(&s,
              "\xac"
              "st",
              3, &r);
    CHECK_INT(r.n_text, 3);
    CHECK_INT(r.n_released, 4);
    stop_feed(&s, "op!", 3, &r);
    CHECK_INT(r.n_text, 0);
    CHECK_INT(r.stop_index, 0);
    CHECK_INT(r.n_released, 4);
    stop_close(&s);
}

static void test_limits(void)
{
    stop s;
    const char *const empty[] = {""};
    const size_t zero[] = {0};
    CHECK_INT(stop_open(&s, 1, empty, zero), LLM_INVALID);
    const size_t large[] = {LLM_STOP_BYTES_MAX + 1};
    CHECK_INT(stop_open(&s, 1, empty, large), LLM_INVALID);
}

/* Random texts of few different characters often contain a stop string, or a part of one. Any division into pieces
 * gives the same result as a search in the whole text. */
static void test_any_split_gives_the_same_answer(void)
{
    static const char alphabet[] = "ab\xc3\xa9";
    const char *const stops[] = {"ab",
                                 "\xc3\xa9"
                                 "b",
                                 "bba"};
    random_source random = {.state = 7};
    for (int round = 0; round < 20000; round++) {
        char text[40];
        const uint32_t n = 1 + random_below(&random, 30);
        for (uint32_t i = 0; i < n; i++) {
            text[i] = alphabet[random_below(&random, 4)];
        }
        int32_t index_whole;
        int32_t index_pieces;
        char *whole = filter(text, n, n, 3, stops, &index_whole);
        char *pieces = filter(text, n, 1 + random_below(&random, 4), 3, stops, &index_pieces);
        const bool same = strcmp(whole, pieces) == 0;
        bool leaked = false;
        for (int i = 0; i < 3; i++) {
            leaked = leaked || strstr(pieces, stops[i]) != NULL;
        }
        free(whole);
        free(pieces);
        CHECK(!leaked);
        CHECK(same);
    }
}

static void test_longest_stop_and_feed(void)
{
    static char text[STOP_FEED_BYTES_MAX];
    static char word[LLM_STOP_BYTES_MAX + 1];
    memset(word, 'y', LLM_STOP_BYTES_MAX);
    memset(text, 'y', sizeof text);
    const char *const stops[] = {word};
    const size_t sizes[] = {LLM_STOP_BYTES_MAX};
    stop s;
    static stop_result r;
    CHECK_INT(stop_open(&s, 1, stops, sizes), LLM_OK);
    stop_feed(&s, "z", 1, &r);
    stop_feed(&s, text, LLM_STOP_BYTES_MAX - 1, &r);
    CHECK_INT(r.n_text, 0);
    stop_feed(&s, text, STOP_FEED_BYTES_MAX, &r);
    CHECK_INT(r.stop_index, 0);
    CHECK_INT(r.n_released, 1);
    stop_close(&s);
}

int main(void)
{
    RUN(test_stop_strings_at_any_split);
    RUN(test_utf8_is_never_split_and_always_valid);
    RUN(test_partial_characters_and_stops_are_held);
    RUN(test_limits);
    RUN(test_any_split_gives_the_same_answer);
    RUN(test_longest_stop_and_feed);
    return CHECK_RESULT();
}
