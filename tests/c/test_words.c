/* Tests the vocabularies: each number has a word and a sentence, no word stands for two numbers, and numbers outside
 * are unknown. */
#include <stdbool.h>

#include "check.h"
#include "llm.h"
#include "llm_session_table.h"

static bool is_word(const char *word)
{
    return word[0] != '\0' && strspn(word, "abcdefghijklmnopqrstuvwxyz_0123456789") == strlen(word);
}

static void check_vocabulary(llm_vocabulary vocabulary, int first, int n)
{
    for (int i = first; i < n; i++) {
        const char *word = llm_word(vocabulary, i), *sentence = llm_sentence(vocabulary, i);
        CHECK(is_word(word));
        CHECK(strcmp(word, "unknown") != 0);
        CHECK(sentence[0] != '\0' && sentence[strlen(sentence) - 1] == '.');
        for (int j = first; j < i; j++) {
            CHECK(strcmp(word, llm_word(vocabulary, j)) != 0);
        }
    }
    CHECK_STR(llm_word(vocabulary, n), "unknown");
    CHECK_STR(llm_word(vocabulary, first - 1), "unknown");
    CHECK_STR(llm_sentence(vocabulary, n), "");
    CHECK_STR(llm_sentence(vocabulary, first - 1), "");
}

static void every_number_has_its_own_word(void)
{
    check_vocabulary(LLM_STATUSES, 0, LLM_STATUS_N);
    check_vocabulary(LLM_REASONS, 0, LLM_REASON_N);
    check_vocabulary(LLM_OUTCOMES, 0, LLM_OUTCOME_N);
    check_vocabulary(LLM_STATES, 0, LLM_STATE_N);
    check_vocabulary(LLM_MEMORIES, 0, LLM_MEMORY_N);
    check_vocabulary(LLM_POLICIES, 0, LLM_POLICY_N);
    check_vocabulary(LLM_SAMPLERS, 1, LLM_SAMPLER_N);
    check_vocabulary(LLM_PLACES, 0, LLM_PLACE_N);
    check_vocabulary(LLM_KV_TYPES, 0, LLM_KV_TYPE_N);
}

/* The numbers are part of the wire format and of the session table, so they must not change if a table is reordered. */
static void known_numbers_keep_their_words(void)
{
    CHECK_STR(llm_word(LLM_STATUSES, LLM_OK), "ok");
    CHECK_STR(llm_word(LLM_STATUSES, 10), "capacity_exhausted");
    CHECK_STR(llm_word(LLM_STATUSES, 20), "small_buffer");
    CHECK_STR(llm_word(LLM_REASONS, 1), "exact_prefix");
    CHECK_STR(llm_word(LLM_REASONS, 8), "torn");
    CHECK_STR(llm_word(LLM_OUTCOMES, 6), "shutdown");
    CHECK_STR(llm_word(LLM_STATES, 3), "idle");
    CHECK_STR(llm_word(LLM_MEMORIES, 3), "hybrid");
    CHECK_STR(llm_word(LLM_POLICIES, 1), "evict");
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
