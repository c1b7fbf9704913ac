/* Tests that warm equals cold. After any history, a session's next answer must be that of a new session. It must reuse
 * as many tokens as resume.h promises. Sessions must not influence each other. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "engine_driver.h"
#include "logits_probe.h"

enum { N_CTX = 1024, N_TALKS = 4, N_ENTRIES = 32, N_BOUNDARIES = 4, WINDOW = 64, N_CLASSES = 4 };

static const char *const models[N_CLASSES] = {"sim:dense", "sim:window,window=64", "sim:recurrent", "sim:hybrid"};

/* What the test knows about an entry: its resident tokens, and the shortest prefix to which it can be truncated. */
typedef struct entry {
    int32_t tokens[N_CTX];
    uint32_t n;
    uint32_t oldest; /* for windows: the least number of tokens to which the sequence can be truncated */
} entry;

/* A conversation as its client sees it, and its running request. */
typedef struct talk {
    char name[32];
    int32_t prompt[N_CTX];
    uint32_t n_prompt;
    int32_t boundaries[N_BOUNDARIES];
    generate_call call;
    uint64_t request;
    bool is_cancelled;
} talk;

typedef struct party {
    driver *warm, *cold;
    bool one_branch; /* each name always has the same entry, so the test knows what it reuses */
    entry entries[N_ENTRIES];
    talk talks[N_TALKS];
    random_source random;
    uint32_t n_reasons[LLM_REASON_N];
} party;

/* ---- what resume.h promises ---- */

typedef struct promise {
    llm_reason reason;
    uint32_t n_reused;
    int32_t diverged_at;
    uint32_t n_common;
} promise;

static uint32_t truncate_floor(const party *p, const entry *at)
{
    switch (p->warm->info.memory) {
    case LLM_MEMORY_DENSE: return 1;
    case LLM_MEMORY_WINDOW: return at->oldest > 0 ? at->oldest : 1;
    default: return at->n;
    }
}

static promise promise_of(const party *p, const entry *at, const talk *t)
{
    uint32_t common = 0;
    while (common < at->n && common < t->n_prompt && at->tokens[common] == t->prompt[common]) {
        common++;
    }
    promise out = {.reason = LLM_REASON_NEW, .diverged_at = -1, .n_common = common};
    if (at->n == 0) {
        return out;
    }
    if (common < at->n && common < t->n_prompt) {
        out.diverged_at = (int32_t)common;
    }
    if (common == at->n && common < t->n_prompt) {
        out.reason = LLM_REASON_EXACT_PREFIX;
        out.n_reused = common;
        return out;
    }
    uint32_t keep = common < t->n_prompt ? common : t->n_prompt - 1;
    if (keep == 0 || keep < truncate_floor(p, at)) {
        out.reason = LLM_REASON_MISMATCH;
        return out;
    }
    out.reason = at->n == t->n_prompt && common == at->n ? LLM_REASON_EQUAL : LLM_REASON_REWIND;
    out.n_reused = keep;
    return out;
}

/* Returns whether the answer reuses as many tokens as promised, or more because the engine found a better way. */
static bool is_kept(const promise *want, const answer *a)
{
    if (a->diverged_at != want->diverged_at) {
        return false;
    }
    bool more = a->reason != LLM_REASON_NEW && a->reason != LLM_REASON_MISMATCH && a->reason != LLM_REASON_TORN;
    return (a->reason == want->reason && a->n_reused == want->n_reused) || (more && a->n_reused > want->n_reused);
}

/* ---- one round: every conversation asks something, all at the same time ---- */

static void append_words(party *p, talk *t, uint32_t n)
{
    make_prompt(t->prompt + t->n_prompt, n, random_next(&p->random));
    t->n_prompt += n;
}

/* Changes the prompt to what a client could send next. */
static void change_prompt(party *p, talk *t, const entry *at)
{
    random_source *r = &p->random;
    if (t->n_prompt == 0 || t->n_prompt > N_CTX - 300) {
        t->n_prompt = 0;
        append_words(p, t, 1 + random_below(r, 120));
        return;
    }
    switch (random_below(r, 8)) {
    case 0: return; /* the same prompt again */
    case 1:         /* an edit near the end */
        t->n_prompt -= random_below(r, t->n_prompt < 60 ? t->n_prompt : 60);
        append_words(p, t, 1 + random_below(r, 20));
        return;
    case 2: t->n_prompt -= random_below(r, t->n_prompt < 90 ? t->n_prompt : 90); return; /* a shorter prompt */
    case 3:                                                                              /* an edit at any place */
        t->n_prompt = 1 + random_below(r, t->n_prompt);
        append_words(p, t, 1 + random_below(r, 20));
        return;
    case 4: /* the tokens that are resident */
        if (at != NULL && at->n > 0) {
            memcpy(t->prompt, at->tokens, at->n * sizeof *at->tokens);
            t->n_prompt = at->n;
        }
        return;
    default: /* the resident tokens with the answer, and the next question */
        if (at != NULL && at->n > 0) {
            memcpy(t->prompt, at->tokens, at->n * sizeof *at->tokens);
            t->n_prompt = at->n;
        }
        append_words(p, t, 1 + random_below(r, 60));
    }
}

static void ask_next(party *p, talk *t)
{
    static const char *const stops[] = {" the", ".", " of the"};
    random_source *r = &p->random;
    bool draws = random_below(r, 3) == 0;
    uint32_t n_boundaries = 0;
    for (uint32_t at = 0; n_boundaries < N_BOUNDARIES; n_boundaries++) {
        at += 1 + random_below(r, 150);
        if (at > t->n_prompt) {
            break;
        }
        t->boundaries[n_boundaries] = (int32_t)at;
    }
    t->call = (generate_call){.session = t->name,
                              .prompt = t->prompt,
                              .n_prompt = t->n_prompt,
                              .max_tokens = random_below(r, 5) == 0 ? 1 : 1 + random_below(r, 80),
                              .flags = random_below(r, 4) == 0 ? LLM_GENERATE_IGNORE_END : 0,
                              .stop = random_below(r, 4) == 0 ? stops[random_below(r, 3)] : NULL,
                              .temperature = draws ? 1 : 0,
                              .seed = random_below(r, 1000),
                              .boundaries = t->boundaries,
                              .n_boundaries = n_boundaries,
                              .n_head = n_boundaries > 1 ? (uint32_t)t->boundaries[0] : 0};
    t->is_cancelled = random_below(r, 6) == 0;
    t->request = driver_generate(p->warm, &t->call);
}

/* Updates the test's knowledge of an entry. The window has moved to the last consumed token, even if a stop string then
 * removed tokens. After a checkpoint or a copy, the test assumes that the sequence cannot be truncated. */
static void entry_follow(party *p, entry *at, const promise *was, const answer *a)
{
    const wire_finished *f = &a->finished;
    uint32_t peak = f->n_generated > 0 ? f->n_prompt + f->n_generated - 1 : f->n_reused + f->n_prefilled;
    if (a->n_reused == 0) {
        at->oldest = 0;
    } else if (a->n_reused != was->n_reused) {
        at->oldest = a->n_reused;
    }
    at->oldest = peak > WINDOW && peak - WINDOW > at->oldest ? peak - WINDOW : at->oldest;
    at->n = driver_tokens(p->warm, a->entry, at->tokens, N_CTX);
}

static void check_answer(party *p, talk *t)
{
    const answer *a = driver_wait(p->warm, t->request);
    CHECK(a->is_admitted && a->entry < N_ENTRIES);
    entry *at = &p->entries[a->entry];
    if (!a->is_started) { /* cancelled before it started */
        CHECK(t->is_cancelled && a->finished.outcome == LLM_OUTCOME_CANCELLED);
        return;
    }
    promise want = promise_of(p, at, t);
    bool kept = !p->one_branch || is_kept(&want, a);
    if (!kept) {
        printf("%s: %s reusing %u at %d, not %s reusing %u at %d\n", p->warm->info.name,
               llm_word(LLM_REASONS, (int)a->reason), a->n_reused, a->diverged_at,
               llm_word(LLM_REASONS, (int)want.reason), want.n_reused, want.diverged_at);
    }
    CHECK(kept);
    p->n_reasons[a->reason]++;
    entry_follow(p, at, &want, a);
    CHECK_INT(a->finished.n_resident, at->n);
    if (a->finished.outcome == LLM_OUTCOME_CANCELLED) {
        CHECK(t->is_cancelled);
        CHECK(memcmp(at->tokens, t->prompt, (at->n < t->n_prompt ? at->n : t->n_prompt) * sizeof *t->prompt) == 0);
    } else {
        CHECK(driver_equals_cold(p->cold, &t->call, a));
        CHECK(at->n >= t->n_prompt && memcmp(at->tokens, t->prompt, t->n_prompt * sizeof *t->prompt) == 0);
    }
}

/* Returns the entry of the conversation's latest request, or NULL. */
static const entry *entry_of(const party *p, const talk *t)
{
    return t->request != 0 && driver_answer(p->warm, t->request)->is_admitted
               ? &p->entries[driver_answer(p->warm, t->request)->entry]
               : NULL;
}

static void run_round(party *p)
{
    for (int i = 0; i < N_TALKS; i++) {
        change_prompt(p, &p->talks[i], entry_of(p, &p->talks[i]));
        ask_next(p, &p->talks[i]);
    }
    for (int i = 0; i < N_TALKS; i++) {
        if (p->talks[i].is_cancelled) {
            if (random_below(&p->random, 2) == 0) {
                driver_wait_text(p->warm, p->talks[i].request);
            }
            driver_cancel(p->warm, p->talks[i].request);
        }
    }
    for (int i = 0; i < N_TALKS; i++) {
        check_answer(p, &p->talks[i]);
        CHECK_STILL_GOOD();
    }
}

static void run_party(const char *name, llm_policy policy, uint32_t n_sessions, uint32_t n_rounds, uint64_t seed)
{
    party *p = calloc(1, sizeof *p);
    p->one_branch = policy == LLM_POLICY_REFUSE && n_sessions == N_TALKS;
    p->warm = driver_open(&(llm_engine_options){
        .model = name, .n_sessions = n_sessions, .n_ctx = N_CTX, .capacity_policy = policy, .n_parked_max = 16});
    p->cold = driver_open(&(llm_engine_options){.model = name, .n_ctx = N_CTX});
    p->random = (random_source){seed};
    for (int i = 0; i < N_TALKS; i++) {
        snprintf(p->talks[i].name, sizeof p->talks[i].name, "talk-%d", i);
    }
    for (uint32_t round = 0; round < n_rounds && check_failures == 0; round++) {
        run_round(p);
    }
    uint32_t n_reasons[LLM_REASON_N];
    memcpy(n_reasons, p->n_reasons, sizeof n_reasons);
    llm_memory memory = (llm_memory)p->warm->info.memory;
    uint64_t n_returns = driver_counter(p->warm, LLM_COUNTER_SESSIONS_UNPARKED_TOTAL);
    uint32_t n_faults = driver_close(p->warm) + driver_close(p->cold);
    free(p);
    CHECK_STILL_GOOD();
    CHECK_INT(n_faults, 0);
    /* the rounds had different kinds of prompts */
    CHECK(n_reasons[LLM_REASON_EXACT_PREFIX] > 0 && n_reasons[LLM_REASON_NEW] > 0);
    /* A session that was parked comes back complete, without truncation. With fewer entries than conversations, it
     * depends on time whether a session was parked. */
    bool cuts = (memory == LLM_MEMORY_DENSE || memory == LLM_MEMORY_WINDOW) && n_sessions >= N_TALKS;
    CHECK(!cuts || n_reasons[LLM_REASON_REWIND] > 0);
    CHECK(n_reasons[LLM_REASON_EQUAL] > 0);
    CHECK(memory == LLM_MEMORY_DENSE || n_reasons[LLM_REASON_CHECKPOINT] > 0);
    /* With fewer entries than conversations, sessions are surely parked. With enough entries, it depends on time. */
    CHECK(policy == LLM_POLICY_PARK || n_returns == 0);
    CHECK(policy != LLM_POLICY_PARK || n_sessions >= N_TALKS || n_returns > 0);
}

static void warm_equals_cold_on_dense(void)
{
    run_party(models[0], LLM_POLICY_REFUSE, N_TALKS, 80, 1);
}

static void warm_equals_cold_on_window(void)
{
    run_party(models[1], LLM_POLICY_REFUSE, N_TALKS, 80, 2);
}

static void warm_equals_cold_on_recurrent(void)
{
    run_party(models[2], LLM_POLICY_REFUSE, N_TALKS, 80, 3);
}

static void warm_equals_cold_on_hybrid(void)
{
    run_party(models[3], LLM_POLICY_REFUSE, N_TALKS, 80, 4);
}

/* There are more conversations than entries, and each has several branches. So they are parked and come back. */
static void warm_equals_cold_when_parked(void)
{
    for (int i = 0; i < N_CLASSES && check_failures == 0; i++) {
        run_party(models[i], LLM_POLICY_PARK, 2, 60, (uint64_t)i + 11);
    }
}

/* The KV cache has room for about two of the four conversations. */
static void warm_equals_cold_when_cells_are_short(void)
{
    static const char *const short_models[] = {"sim:dense,cells=1300", "sim:window,window=64,cells=1300",
                                               "sim:hybrid,cells=1300"};
    for (int i = 0; i < 3 && check_failures == 0; i++) {
        run_party(short_models[i], LLM_POLICY_PARK, 4, 60, (uint64_t)i + 21);
    }
}

/* ---- to the logit ---- */

/* A session continues, goes back to an earlier place, or begins anew. The logits are always those of a cold session. */
static void warm_logits_equal_cold_ones(void)
{
    enum { LONGEST = 400, LENGTH_MAX = 4 };
    for (int i = 0; i < N_CLASSES; i++) {
        const llm_engine_options options = {.model = models[i], .branches_max = 1};
        driver *warm = driver_open(&options), *cold = driver_open(&options);
        random_source random = {9};
        int32_t prompt[LONGEST];
        uint32_t n = 0, n_reused = 0;
        for (int round = 0; round < 60; round++) {
            uint32_t keep = n == 0 ? 0 : random_below(&random, n + 1), more = 1 + random_below(&random, 60);
            if (random_below(&random, 3) > 0) {
                keep = n; /* usually it continues */
            }
            keep = keep + more < LONGEST ? keep : 0;
            n = keep + more;
            make_prompt(prompt + keep, more, random_next(&random));
            generate_call call = {.session = "it",
                                  .prompt = prompt,
                                  .n_prompt = n,
                                  .max_tokens = 1 + random_below(&random, LENGTH_MAX),
                                  .flags = LLM_GENERATE_IGNORE_END};
            n_reused += driver_wait(warm, driver_generate(warm, &call))->n_reused;
            call.flags |= LLM_GENERATE_COLD;
            CHECK_INT(driver_wait(cold, driver_generate(cold, &call))->n_reused, 0);
            const float *a = probe_logits(warm->engine, "it", n), *b = probe_logits(cold->engine, "it", n);
            CHECK(a != NULL && b != NULL && memcmp(a, b, warm->info.n_vocab * sizeof *a) == 0);
        }
        CHECK(n_reused > 0);
        CHECK_INT(driver_close(warm) + driver_close(cold), 0);
    }
}

/* The memory cannot be truncated. So there are checkpoints where prompts diverged once, and within the answer. */
static void what_parted_once_is_reused_the_next_time(void)
{
    enum { SHARED = 60, PROMPT = 150, LENGTH = 40, EVERY = 16 };
    driver *d = driver_open(
        &(llm_engine_options){.model = "sim:hybrid", .n_sessions = 1, .branches_max = 1, .checkpoint_every = EVERY});
    int32_t prompt[PROMPT + LENGTH];
    generate_call call = {.session = "it", .prompt = prompt, .n_prompt = PROMPT, .max_tokens = 1};
    make_prompt(prompt, PROMPT, 1);
    driver_wait(d, driver_generate(d, &call));
    make_prompt(prompt + SHARED, PROMPT - SHARED, 2);
    CHECK_INT(driver_wait(d, driver_generate(d, &call))->n_reused, 0);
    make_prompt(prompt + SHARED, PROMPT - SHARED, 3); /* the prompts diverge at the same place again */
    call.flags = LLM_GENERATE_IGNORE_END;
    call.max_tokens = LENGTH + 1; /* the last token is not consumed */
    const answer *a = driver_wait(d, driver_generate(d, &call));
    CHECK_INT(a->n_reused, SHARED);
    CHECK_INT(driver_tokens(d, a->entry, prompt, PROMPT + LENGTH), PROMPT + LENGTH);
    prompt[PROMPT + LENGTH - 2] ^= 1; /* diverges within the answer, after a checkpoint */
    call.n_prompt = PROMPT + LENGTH;
    CHECK_INT(driver_wait(d, driver_generate(d, &call))->n_reused, PROMPT + LENGTH / EVERY * EVERY);
    CHECK_INT(driver_close(d), 0);
}

/* ---- controls ---- */

/* The comparison above can fail: another token early in a long prompt leads to another text. */
static void one_early_token_changes_the_text(void)
{
    for (int i = 0; i < N_CLASSES; i++) {
        driver *d = driver_open_model(models[i]);
        int32_t prompt[400];
        make_prompt(prompt, 400, 9);
        generate_call call = {.prompt = prompt, .n_prompt = 400, .max_tokens = 30, .flags = LLM_GENERATE_IGNORE_END};
        uint64_t request = driver_generate(d, &call);
        driver_wait(d, request);
        CHECK(driver_equals_cold(d, &call, driver_answer(d, request)));
        prompt[1] ^= 1;
        CHECK(!driver_equals_cold(d, &call, driver_answer(d, request)));
        CHECK_INT(driver_close(d), 0);
    }
}

/* ---- isolation ---- */

static void eight_sessions_do_not_meet(void)
{
    enum { N = 8, LONGEST = 700 };
    for (int i = 0; i < N_CLASSES; i++) {
        driver *d = driver_open(&(llm_engine_options){.model = models[i], .n_sessions = N});
        driver *cold = driver_open_model(models[i]);
        int32_t prompts[N][LONGEST];
        generate_call calls[N];
        uint64_t requests[N];
        char names[N][32];
        for (uint32_t k = 0; k < N; k++) { /* short prompts are complete while long ones are still being prefilled */
            snprintf(names[k], sizeof names[k], "s%u", k);
            make_prompt(prompts[k], LONGEST, k);
            calls[k] = (generate_call){.session = names[k],
                                       .prompt = prompts[k],
                                       .n_prompt = 1 + k * 97,
                                       .max_tokens = 250,
                                       .flags = LLM_GENERATE_IGNORE_END,
                                       .temperature = (float)(k % 2),
                                       .seed = k};
            requests[k] = driver_generate(d, &calls[k]);
        }
        for (uint32_t k = 0; k < N; k++) {
            const answer *a = driver_wait(d, requests[k]);
            CHECK_INT(a->finished.outcome, LLM_OUTCOME_LENGTH);
            CHECK(driver_equals_cold(cold, &calls[k], a));
        }
        CHECK(driver_is_idle(d));
        CHECK_INT(driver_close(d) + driver_close(cold), 0);
    }
}

/* Two owners can use the same name for two sessions. */
static void owners_do_not_meet(void)
{
    driver *d = driver_open_model("sim:dense");
    int32_t prompt[100];
    make_prompt(prompt, 100, 1);
    generate_call call = {.owner = 1, .session = "same", .prompt = prompt, .n_prompt = 100, .max_tokens = 5};
    uint32_t first = driver_wait(d, driver_generate(d, &call))->entry;
    call.owner = 2;
    const answer *a = driver_wait(d, driver_generate(d, &call));
    CHECK(a->entry != first);
    CHECK_STR(llm_word(LLM_REASONS, (int)a->reason), "new");
    CHECK_INT(driver_wait(d, driver_close_session(d, 2, "same"))->status, LLM_OK);
    CHECK_INT(driver_wait(d, driver_close_session(d, 2, "same"))->status, LLM_NOT_FOUND);
    call.owner = 1;
    CHECK_STR(llm_word(LLM_REASONS, (int)driver_wait(d, driver_generate(d, &call))->reason), "equal");
    call.session = NULL; /* a scratch request reuses tokens only of its own owner */
    driver_wait(d, driver_generate(d, &call));
    CHECK(driver_wait(d, driver_generate(d, &call))->n_reused > 0);
    call.owner = 3;
    CHECK_INT(driver_wait(d, driver_generate(d, &call))->n_reused, 0);
    CHECK_INT(driver_close(d), 0);
}

int main(void)
{
    RUN(warm_equals_cold_on_dense);
    RUN(warm_equals_cold_on_window);
    RUN(warm_equals_cold_on_recurrent);
    RUN(warm_equals_cold_on_hybrid);
    RUN(warm_equals_cold_when_parked);
    RUN(warm_equals_cold_when_cells_are_short);
    RUN(warm_logits_equal_cold_ones);
    RUN(what_parted_once_is_reused_the_next_time);
    RUN(one_early_token_changes_the_text);
    RUN(eight_sessions_do_not_meet);
    RUN(owners_do_not_meet);
    return CHECK_RESULT();
}
