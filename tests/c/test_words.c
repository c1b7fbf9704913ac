/* The vocabularies: every number has a word and a sentence, no word stands for two, nothing lies outside. */
#include <stdbool.h>

#include "check.h"
#include "llm.h"
#include "llm_page.h"

typedef const char *(*lookup)(int number);

static bool is_word(const char *word)
{
    return word[0] != '\0' && strspn(word, "abcdefghijklmnopqrstuvwxyz_") == strlen(word);
}

static void check_vocabulary(lookup word, lookup text, int n)
{
    for (int i = 0; i < n; i++) {
        CHECK(is_word(word(i)));
        CHECK(strcmp(word(i), "unknown") != 0);
        CHECK(text(i)[0] != '\0' && text(i)[strlen(text(i)) - 1] == '.');
        for (int j = 0; j < i; j++) {
            CHECK(strcmp(word(i), word(j)) != 0);
        }
    }
    CHECK_STR(word(n), "unknown");
    CHECK_STR(word(-1), "unknown");
    CHECK_STR(text(n), "");
    CHECK_STR(text(-1), "");
}

static void every_number_has_its_own_word(void)
{
    check_vocabulary(llm_status_word, llm_status_text, LLM_STATUS_N);
    check_vocabulary(llm_reason_word, llm_reason_text, LLM_REASON_N);
    check_vocabulary(llm_outcome_word, llm_outcome_text, LLM_OUTCOME_N);
    check_vocabulary(llm_state_word, llm_state_text, LLM_STATE_N);
    check_vocabulary(llm_memory_word, llm_memory_text, LLM_MEMORY_N);
    check_vocabulary(llm_policy_word, llm_policy_text, LLM_POLICY_N);
}

/* Numbers are on the wire and in segments: a table that is reordered must fail here. */
static void known_numbers_keep_their_words(void)
{
    CHECK_STR(llm_status_word(LLM_OK), "ok");
    CHECK_STR(llm_status_word(10), "capacity_exhausted");
    CHECK_STR(llm_status_word(20), "small_buffer");
    CHECK_STR(llm_reason_word(1), "exact_prefix");
    CHECK_STR(llm_reason_word(8), "torn");
    CHECK_STR(llm_outcome_word(6), "shutdown");
    CHECK_STR(llm_state_word(3), "idle");
    CHECK_STR(llm_memory_word(3), "hybrid");
    CHECK_STR(llm_policy_word(1), "evict");
}

static void counters_are_named_as_prometheus_wants(void)
{
    for (int i = 0; i < LLM_COUNTER_N; i++) {
        const char *name = llm_counter_name(i);
        size_t n = strlen(name);
        bool ends_in_total = n > 6 && strcmp(name + n - 6, "_total") == 0;
        CHECK(is_word(name));
        CHECK_INT(ends_in_total, !llm_counter_is_gauge(i));
        CHECK_INT(strstr(llm_counter_name(i), "_seconds_") != NULL, llm_counter_is_time(i));
        CHECK(llm_counter_help(i)[0] != '\0');
        for (int j = 0; j < i; j++) {
            CHECK(strcmp(name, llm_counter_name(j)) != 0);
        }
    }
    CHECK(llm_counter_name(LLM_COUNTER_N) == NULL);
    CHECK(llm_counter_help(-1) == NULL);
    CHECK_INT(llm_counter_is_gauge(LLM_COUNTER_N), 0);
    CHECK_INT(llm_counter_is_time(LLM_COUNTER_N), 0);
    CHECK_INT(llm_counter_is_time(LLM_COUNTER_STEP_US), 1);
    CHECK_INT(llm_counter_is_gauge(LLM_COUNTER_CELLS_USED), 1);
}

int main(void)
{
    RUN(every_number_has_its_own_word);
    RUN(known_numbers_keep_their_words);
    RUN(counters_are_named_as_prometheus_wants);
    return CHECK_RESULT();
}
