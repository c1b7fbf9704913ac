/* Tests token ids and log probabilities in TEXT events. They are sent only if requested, and only for tokens whose text
 * was delivered. */
#include <math.h>
#include <poll.h>
#include <stdlib.h>

#include "check.h"
#include "engine_driver.h"
#include "logits_probe.h"

enum { N_PROMPT = 20, ROOM = 1 << 16 };

static driver *opened(const char *name)
{
    return driver_open(&(llm_engine_options){.model = name, .n_ctx = 8192});
}

static generate_call call_of(const int32_t *prompt, uint32_t n_tokens, uint32_t flags)
{
    return (generate_call){
        .session = "a", .prompt = prompt, .n_prompt = N_PROMPT, .max_tokens = n_tokens, .flags = flags};
}

/* Writes the bytes of the first n returned tokens. Returns their number. */
static size_t spell(const driver *d, const answer *a, size_t n, char *out)
{
    const int64_t n_bytes = llm_detokenize(d->engine, a->token_ids, n, 0, out, ROOM);
    return n_bytes > 0 ? (size_t)n_bytes : 0;
}

static size_t bytes_of_characters(const char *text, uint32_t n)
{
    size_t at = 0;
    while (n > 0 && text[at] != '\0') {
        for (at++; ((uint8_t)text[at] & 0xc0) == 0x80; at++) {
        }
        n--;
    }
    return at;
}

/* Returns whether each token's end is where the text so far ends. If it ends within a character, the end is before this
 * character. */
static bool ends_are_right(const driver *d, const answer *a)
{
    static char spelled[ROOM];
    for (size_t i = 0; i < a->n_token_ids; i++) {
        const size_t n = spell(d, a, i + 1, spelled);
        const size_t end = bytes_of_characters(a->text, a->ends[i]);
        if (end > n || memcmp(spelled, a->text, end) != 0 || (end < n && n - end > 3)) {
            printf("token %zu ends at %zu, not %zu\n", i, end, n);
            return false;
        }
    }
    return true;
}

static void only_who_asks_is_told(void)
{
    driver *d = opened("sim:dense,length=0");
    int32_t prompt[N_PROMPT];
    make_prompt(prompt, N_PROMPT, 1);
    generate_call call = call_of(prompt, 50, LLM_GENERATE_IGNORE_END);
    const answer *a = driver_wait(d, driver_generate(d, &call));
    CHECK(a->status == LLM_OK && a->n_token_ids == 0 && a->n_logprobs == 0);
    call.session = "b";
    call.flags |= LLM_GENERATE_RETURN_TOKENS;
    const answer *b = driver_wait(d, driver_generate(d, &call));
    CHECK(b->n_token_ids == 50 && b->n_logprobs == 0 && b->n_likeliest == 0);
    CHECK_STR(a->text, b->text);
    CHECK(ends_are_right(d, b));
    CHECK_INT(b->ends[49], b->n_chars);
    int32_t resident[N_PROMPT + 64];
    CHECK_INT(driver_tokens(d, b->entry, resident, N_PROMPT + 64), N_PROMPT + 49); /* the last token was not consumed */
    CHECK(memcmp(resident + N_PROMPT, b->token_ids, 49 * sizeof *resident) == 0);
    CHECK_INT(driver_close(d), 0);
}

static void the_end_of_a_turn_is_not_told(void)
{
    driver *d = opened("sim:dense,length=9");
    int32_t prompt[N_PROMPT];
    uint32_t n_ended = 0;
    for (uint64_t seed = 0; seed < 8; seed++) {
        make_prompt(prompt, N_PROMPT, seed);
        const generate_call call = call_of(prompt, 300, LLM_GENERATE_RETURN_TOKENS);
        const answer *a = driver_wait(d, driver_generate(d, &call));
        const bool has_ended = a->finished.outcome == LLM_OUTCOME_END;
        CHECK_INT(a->n_token_ids, a->finished.n_generated - has_ended);
        CHECK(ends_are_right(d, a));
        n_ended += has_ended;
    }
    CHECK(n_ended > 0);
    CHECK_INT(driver_close(d), 0);
}

/* A stop string can begin within a token. No details of this token are returned, although a part of its text may be. */
static void what_a_stop_string_cuts_off_is_not_told(void)
{
    static char spelled[ROOM];
    driver *d = opened("sim:dense,length=0");
    int32_t prompt[N_PROMPT];
    make_prompt(prompt, N_PROMPT, 3);
    generate_call call = call_of(prompt, 60, LLM_GENERATE_IGNORE_END | LLM_GENERATE_RETURN_TOKENS);
    const answer *whole = driver_wait(d, driver_generate(d, &call));
    uint32_t n_within = 0;
    for (size_t at = 20; at + 5 < whole->n_text; at += 7) {
        char stop[6] = "";
        memcpy(stop, whole->text + at, 5);
        call.stop = stop;
        const answer *a = driver_wait(d, driver_generate(d, &call));
        CHECK_INT(a->finished.outcome, LLM_OUTCOME_STOP);
        const size_t n = spell(d, a, a->n_token_ids, spelled);
        CHECK(n <= a->n_text && memcmp(spelled, a->text, n) == 0);
        CHECK(a->n_token_ids < whole->n_token_ids &&
              memcmp(a->token_ids, whole->token_ids, a->n_token_ids * sizeof *a->token_ids) == 0);
        /* the text of the next token is not complete */
        CHECK(spell(d, whole, a->n_token_ids + 1, spelled) > a->n_text);
        n_within += n < a->n_text;
    }
    CHECK(n_within > 0);
    CHECK_INT(driver_close(d), 0);
}

static double softmax_of(const float *logits, uint32_t n, int32_t token)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += exp((double)(logits[i] - logits[token]));
    }
    return -log(sum);
}

static void log_probabilities_are_the_models_own(void)
{
    driver *d = opened("sim:hybrid,length=0");
    int32_t prompt[N_PROMPT];
    make_prompt(prompt, N_PROMPT, 5);
    generate_call call = call_of(prompt, 40, LLM_GENERATE_IGNORE_END);
    call.n_logprobs_and_1 = 1 + 3;
    const answer *a = driver_wait(d, driver_generate(d, &call));
    CHECK(a->n_token_ids == 40 && a->n_logprobs == 40 && a->n_likeliest == 3 * 40);
    const float *logits = probe_logits(d->engine, "a", N_PROMPT);
    CHECK(fabs((double)a->logprobs[0] - softmax_of(logits, d->info.n_vocab, a->token_ids[0])) < 1e-4);
    for (size_t i = 0; i < 40; i++) { /* temperature is 0, so the most likely token is chosen */
        const token_logprob *likeliest = a->likeliest + 3 * i;
        CHECK(likeliest[0].token == a->token_ids[i] && likeliest[0].logprob == a->logprobs[i]);
        CHECK(likeliest[0].logprob >= likeliest[1].logprob && likeliest[1].logprob >= likeliest[2].logprob);
    }
    const int32_t forced = a->likeliest[1].token;
    call.bias = (logit_bias){forced, 100};
    call.session = "b";
    /* The bias changes no log probability, not even the first one, which comes from logits that "a" has kept. */
    const answer *b = driver_wait(d, driver_generate(d, &call));
    CHECK(b->token_ids[0] == forced && b->token_ids[39] == forced);
    CHECK(b->logprobs[0] == a->likeliest[1].logprob && b->likeliest[0].token == a->token_ids[0]);
    call = call_of(prompt, 5, LLM_GENERATE_IGNORE_END);
    call.n_logprobs_and_1 = 1; /* only the log probability of the chosen token */
    const answer *c = driver_wait(d, driver_generate(d, &call));
    CHECK(c->n_logprobs == 5 && c->n_likeliest == 0 && c->logprobs[0] == a->logprobs[0]);
    CHECK(memcmp(c->token_ids, a->token_ids, 5 * sizeof *c->token_ids) == 0);
    CHECK_INT(driver_close(d), 0);
}

/* The engine stops at a bounded number of token details that nobody takes. All details arrive later. */
static void a_slow_reader_gets_everything(void)
{
    driver *d = opened("sim:dense,length=0,ctx=8192");
    int32_t prompt[N_PROMPT];
    make_prompt(prompt, N_PROMPT, 6);
    generate_call call = call_of(prompt, 6000, LLM_GENERATE_IGNORE_END);
    call.n_logprobs_and_1 = 1 + LLM_LOGPROBS_MAX;
    const uint64_t slow = driver_generate(d, &call);
    while (driver_counter(d, LLM_COUNTER_OUTBOX_STALLS) == 0) {
        poll(NULL, 0, 1); /* gives the processor to the decode thread */
    }
    const answer *a = driver_wait(d, slow);
    CHECK(a->n_token_ids == 6000 && a->n_logprobs == 6000 && a->n_likeliest == 6000 * LLM_LOGPROBS_MAX);
    call.session = "b";
    const answer *b = driver_wait(d, driver_generate(d, &call));
    CHECK_STR(a->text, b->text);
    CHECK(memcmp(a->token_ids, b->token_ids, 6000 * sizeof *a->token_ids) == 0);
    CHECK(memcmp(a->logprobs, b->logprobs, 6000 * sizeof *a->logprobs) == 0);
    CHECK(memcmp(a->ends, b->ends, 6000 * sizeof *a->ends) == 0);
    CHECK_INT(driver_close(d), 0);
}

/* A prompt takes three calls. Each can cause an event with the number of consumed tokens. The last one has the number
 * of all tokens. */
static void a_prompt_tells_how_far_it_is(void)
{
    driver *d = opened("sim:dense,length=0,batch=16");
    int32_t prompt[40];
    make_prompt(prompt, 40, 7);
    generate_call call = {.session = "a", .prompt = prompt, .n_prompt = 40, .max_tokens = 5};
    const answer *silent = driver_wait(d, driver_generate(d, &call));
    CHECK_INT(silent->n_consumed_events, 0);
    call.session = "b";
    call.flags = LLM_GENERATE_RETURN_CONSUMED;
    const answer *a = driver_wait(d, driver_generate(d, &call));
    CHECK(a->n_consumed_events >= 1 && a->n_consumed_events <= 3); /* events that wait in the outbox are merged */
    CHECK_INT(a->n_consumed, 40);
    CHECK_STR(a->text, silent->text);
    const answer *again = driver_wait(d, driver_generate(d, &call));
    CHECK_INT(again->n_consumed_events, again->n_reused < 40);
    CHECK_INT(driver_close(d), 0);
}

int main(void)
{
    RUN(only_who_asks_is_told);
    RUN(the_end_of_a_turn_is_not_told);
    RUN(what_a_stop_string_cuts_off_is_not_told);
    RUN(log_probabilities_are_the_models_own);
    RUN(a_slow_reader_gets_everything);
    RUN(a_prompt_tells_how_far_it_is);
    return CHECK_RESULT();
}
