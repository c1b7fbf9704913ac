/* words.c: finds words and sentences. They are written in llm_words.h, those of counters in llm_page.h. */
#include "llm.h"
#include "llm_page.h"

typedef struct word {
    int number;
    const char *word;
    const char *text;
} word;

#define WORD_ROW(name, number, word, text) {number, word, text},

static const word status_words[] = {LLM_STATUS_TABLE(WORD_ROW)};
static const word reason_words[] = {LLM_REASON_TABLE(WORD_ROW)};
static const word outcome_words[] = {LLM_OUTCOME_TABLE(WORD_ROW)};
static const word state_words[] = {LLM_STATE_TABLE(WORD_ROW)};
static const word memory_words[] = {LLM_MEMORY_TABLE(WORD_ROW)};
static const word policy_words[] = {LLM_POLICY_TABLE(WORD_ROW)};
static const word sampler_words[] = {LLM_SAMPLER_TABLE(WORD_ROW)};
static const word json_words[] = {LLM_JSON_TABLE(WORD_ROW)};

static const word *word_find(const word *table, size_t n, int number)
{
    static const word unknown = {-1, "unknown", ""};
    for (size_t i = 0; i < n; i++) {
        if (table[i].number == number) {
            return &table[i];
        }
    }
    return &unknown;
}

#define WORD_FIND(table, number) word_find(table, sizeof table / sizeof table[0], number)

const char *llm_status_word(int status)
{
    return WORD_FIND(status_words, status)->word;
}

const char *llm_status_text(int status)
{
    return WORD_FIND(status_words, status)->text;
}

const char *llm_reason_word(int reason)
{
    return WORD_FIND(reason_words, reason)->word;
}

const char *llm_reason_text(int reason)
{
    return WORD_FIND(reason_words, reason)->text;
}

const char *llm_outcome_word(int outcome)
{
    return WORD_FIND(outcome_words, outcome)->word;
}

const char *llm_outcome_text(int outcome)
{
    return WORD_FIND(outcome_words, outcome)->text;
}

const char *llm_state_word(int state)
{
    return WORD_FIND(state_words, state)->word;
}

const char *llm_state_text(int state)
{
    return WORD_FIND(state_words, state)->text;
}

const char *llm_memory_word(int memory)
{
    return WORD_FIND(memory_words, memory)->word;
}

const char *llm_memory_text(int memory)
{
    return WORD_FIND(memory_words, memory)->text;
}

const char *llm_policy_word(int policy)
{
    return WORD_FIND(policy_words, policy)->word;
}

const char *llm_policy_text(int policy)
{
    return WORD_FIND(policy_words, policy)->text;
}

const char *llm_sampler_word(int sampler)
{
    return WORD_FIND(sampler_words, sampler)->word;
}

const char *llm_sampler_text(int sampler)
{
    return WORD_FIND(sampler_words, sampler)->text;
}

const char *llm_json_word(int verdict)
{
    return WORD_FIND(json_words, verdict)->word;
}

const char *llm_json_text(int verdict)
{
    return WORD_FIND(json_words, verdict)->text;
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
