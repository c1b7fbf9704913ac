/* words.c: finds the words and sentences of llm_words.h, and the texts of counters of llm_session_table.h. */
#include "llm.h"
#include "llm_session_table.h"

typedef struct word {
    llm_vocabulary vocabulary;
    int number;
    const char *word;
    const char *sentence;
} word;

#define STATUS_ROW(name, number, word, text) {LLM_STATUSES, number, word, text},
#define REASON_ROW(name, number, word, text) {LLM_REASONS, number, word, text},
#define OUTCOME_ROW(name, number, word, text) {LLM_OUTCOMES, number, word, text},
#define STATE_ROW(name, number, word, text) {LLM_STATES, number, word, text},
#define PLACE_ROW(name, number, word, text) {LLM_PLACES, number, word, text},
#define MEMORY_ROW(name, number, word, text) {LLM_MEMORIES, number, word, text},
#define POLICY_ROW(name, number, word, text) {LLM_POLICIES, number, word, text},
#define KV_TYPE_ROW(name, number, word, text) {LLM_KV_TYPES, number, word, text},
#define SAMPLER_ROW(name, number, word, text) {LLM_SAMPLERS, number, word, text},
#define JSON_ROW(name, number, word, text) {LLM_JSON_VERDICTS, number, word, text},

static const word words[] = {LLM_STATUS_TABLE(STATUS_ROW) LLM_REASON_TABLE(REASON_ROW) LLM_OUTCOME_TABLE(OUTCOME_ROW)
                                 LLM_STATE_TABLE(STATE_ROW) LLM_MEMORY_TABLE(MEMORY_ROW) LLM_POLICY_TABLE(POLICY_ROW)
                                     LLM_SAMPLER_TABLE(SAMPLER_ROW) LLM_JSON_TABLE(JSON_ROW) LLM_PLACE_TABLE(PLACE_ROW)
                                         LLM_KV_TYPE_TABLE(KV_TYPE_ROW)};

static const word *find(llm_vocabulary vocabulary, int number)
{
    static const word unknown = {.word = "unknown", .sentence = ""};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (words[i].vocabulary == vocabulary && words[i].number == number) {
            return &words[i];
        }
    }
    return &unknown;
}

const char *llm_word(llm_vocabulary vocabulary, int number)
{
    return find(vocabulary, number)->word;
}

const char *llm_sentence(llm_vocabulary vocabulary, int number)
{
    return find(vocabulary, number)->sentence;
}

/* ---- counters ---- */

typedef struct counter_row {
    const char *name;
    const char *help;
    char kind;
} counter_row;

#define COUNTER_ROW(name, metric, kind, help) {metric, help, kind},

static const counter_row counters[LLM_COUNTER_N] = {LLM_COUNTER_TABLE(COUNTER_ROW)};

static int counter_is_known(int counter)
{
    return counter >= 0 && counter < LLM_COUNTER_N;
}

const char *llm_counter_name(int counter)
{
    return counter_is_known(counter) ? counters[counter].name : NULL;
}

const char *llm_counter_help(int counter)
{
    return counter_is_known(counter) ? counters[counter].help : NULL;
}

int llm_counter_is_gauge(int counter)
{
    return counter_is_known(counter) && counters[counter].kind == 'g';
}

int llm_counter_is_time(int counter)
{
    return counter_is_known(counter) && counters[counter].kind == 't';
}
