/* Tests conversations that diverge and return to earlier branches. They must prefill no more tokens than an engine with
 * unlimited memory, with fewer or more branches than slots, in memory and on disk. Their answers must be those of a new
 * session. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "engine_driver.h"

enum {
    N_CTX = 2048,
    N_HEAD = 200,
    N_END = 2,
    N_MESSAGES_MAX = 24,
    N_LEAVES = 3, /* the ends of one conversation to which its client may return */
    N_TALKS_MAX = 7,
    N_ROUNDS = 40,
    N_CLASSES = 4,
    ANSWER_MAX = 60,
    BRANCHES = 5,
};

/* Replaces the library's function. Each call advances the clock by a microsecond, and nothing else does. So estimated
 * times are the same on a busy machine. */
int clock_gettime(clockid_t clock, struct timespec *t)
{
    static _Atomic uint64_t n_looks;
    const uint64_t n = ++n_looks;
    if (clock != CLOCK_MONOTONIC) {
        return (int)syscall(SYS_clock_gettime, clock, t);
    }
    *t = (struct timespec){.tv_sec = (time_t)(n / 1000000), .tv_nsec = (long)(n % 1000000) * 1000};
    return 0;
}

static const char *const models[N_CLASSES] = {"sim:dense,length=0", "sim:window,window=64,length=0",
                                              "sim:recurrent,length=0", "sim:hybrid,length=0"};

/* One end of a conversation. After it, the client continued elsewhere. */
typedef struct leaf {
    int32_t tokens[N_CTX];
    uint32_t n;
    uint32_t n_consumed;              /* of them: the end of the last turn is not */
    uint32_t n_prompt;                /* idem, the last prompt */
    int32_t messages[N_MESSAGES_MAX]; /* indexes of the first tokens of messages, the user's and the model's in turn */
    uint32_t n_messages;
    uint64_t used;
} leaf;

typedef struct talk {
    char name[32];
    leaf leaves[N_LEAVES];
    uint32_t n_leaves;
} talk;

typedef struct party {
    driver *warm, *cold;
    bool has_disk;
    talk talks[N_TALKS_MAX];
    uint32_t n_talks;
    random_source random;
    uint64_t clock;
    uint64_t n_prefilled, n_needed;
    uint64_t n_returns;
} party;

/* ---- the oracle: it forgets nothing that a client may come back to ---- */

static uint32_t common(const leaf *l, const int32_t *prompt, uint32_t n_prompt)
{
    uint32_t n = 0;
    while (n < l->n_consumed && n < n_prompt && l->tokens[n] == prompt[n]) {
        n++;
    }
    return n;
}

/* Returns how many tokens an engine must prefill that has kept every leaf. At least one, because logits come from no
 * other source, unless they were kept. */
static uint32_t needed(const party *p, const int32_t *prompt, uint32_t n_prompt)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < p->n_talks; i++) {
        for (uint32_t k = 0; k < p->talks[i].n_leaves; k++) {
            const uint32_t n = common(&p->talks[i].leaves[k], prompt, n_prompt);
            most = n > most ? n : most;
        }
    }
    return n_prompt - (most < n_prompt ? most : n_prompt - 1);
}

/* ---- what a client does ---- */

static leaf *latest(talk *t)
{
    leaf *l = &t->leaves[0];
    for (uint32_t i = 1; i < t->n_leaves; i++) {
        l = t->leaves[i].used > l->used ? &t->leaves[i] : l;
    }
    return l;
}

/* Returns the leaf for a new branch. If all leaves are in use, this is the least recently used one. */
static leaf *another(talk *t)
{
    if (t->n_leaves < N_LEAVES) {
        return &t->leaves[t->n_leaves++];
    }
    leaf *oldest = &t->leaves[0];
    for (uint32_t i = 1; i < N_LEAVES; i++) {
        oldest = t->leaves[i].used < oldest->used ? &t->leaves[i] : oldest;
    }
    return oldest;
}

static void cut_to_message(leaf *l, uint32_t i)
{
    l->n = (uint32_t)l->messages[i];
    l->n_messages = i;
}

static void add_message(party *p, leaf *l)
{
    const uint32_t n = 40 + random_below(&p->random, 40);
    l->messages[l->n_messages++] = (int32_t)l->n;
    make_prompt(l->tokens + l->n, n, random_next(&p->random));
    l->n += n;
    l->n_prompt = l->n;
}

static void begin_talk(party *p, leaf *next)
{
    *next = (leaf){.n = N_HEAD};
    make_prompt(next->tokens, N_HEAD, 1);
    add_message(p, next);
}

/* Chooses the next prompt, which is the first n_prompt tokens of *next. Returns the leaf that it becomes. */
static leaf *decide(party *p, talk *t, leaf *next)
{
    leaf *at = latest(t);
    *next = *at;
    switch (random_below(&p->random, 6)) {
    case 0: /* another answer to the same prompt */
        next->n = next->n_prompt;
        next->n_messages--;
        return another(t);
    case 1: /* another text for the last message */
        cut_to_message(next, next->n_messages - 2);
        add_message(p, next);
        return another(t);
    case 2: /* a branch that begins at one of the user's messages */
        cut_to_message(next, random_below(&p->random, next->n_messages / 2) * 2);
        add_message(p, next);
        return another(t);
    case 3: /* continue an earlier leaf */
        at = &t->leaves[random_below(&p->random, t->n_leaves)];
        p->n_returns += at != latest(t);
        *next = *at;
        break;
    }
    add_message(p, next);
    return at;
}

static bool is_any_full(const talk *t)
{
    bool is_full = false;
    for (uint32_t i = 0; i < t->n_leaves; i++) {
        is_full = is_full || t->leaves[i].n_messages + 3 > N_MESSAGES_MAX || t->leaves[i].n + 200 > N_CTX;
    }
    return is_full;
}

static leaf *next_prompt(party *p, talk *t, leaf *next)
{
    if (t->n_leaves == 0 || is_any_full(t)) {
        t->n_leaves = 0;
        begin_talk(p, next);
        return another(t);
    }
    return decide(p, t, next);
}

static void ask_next(party *p, talk *t)
{
    leaf next;
    const uint32_t n_leaves = t->n_leaves;
    leaf *at = next_prompt(p, t, &next);
    if (t->n_leaves > n_leaves) {
        at->n_consumed = 0; /* the leaf is new */
    }
    const generate_call call = {.session = t->name,
                                .prompt = next.tokens,
                                .n_prompt = next.n_prompt,
                                .max_tokens = 35 + random_below(&p->random, ANSWER_MAX - 35),
                                .flags = LLM_GENERATE_IGNORE_END,
                                .temperature = 1,
                                .seed = random_next(&p->random) % 1000,
                                .boundaries = next.messages,
                                .n_boundaries = next.n_messages,
                                .n_head = N_HEAD};
    const answer *a = driver_wait(p->warm, driver_generate(p->warm, &call));
    if (p->has_disk) {
        driver_wait(p->warm, driver_unsave(p->warm, 0, "nothing")); /* waits until states are written to the disk */
    }
    p->n_needed += needed(p, next.tokens, next.n_prompt);
    p->n_prefilled += a->finished.n_prefilled;
    CHECK_INT(a->finished.outcome, LLM_OUTCOME_LENGTH);
    CHECK(driver_equals_cold(p->cold, &call, a));
    next.messages[next.n_messages++] = (int32_t)next.n_prompt;
    next.n = driver_tokens(p->warm, a->entry, next.tokens, N_CTX);
    CHECK(next.n >= next.n_prompt);
    make_prompt(next.tokens + next.n, N_END, 2); /* the last token was not consumed; the template then ends the turn */
    next.n_consumed = next.n;
    next.n += N_END;
    next.used = ++p->clock;
    *at = next;
}

/* ---- rounds ---- */

typedef struct setting {
    const char *model;
    bool exact;
    bool has_disk;
    uint32_t n_talks, n_sessions;
    uint64_t parked_bytes_max;
    uint64_t seed;
} setting;

static void run_party(const setting *with)
{
    char directory[] = "/tmp/test_branches.XXXXXX";
    CHECK(!with->has_disk || mkdtemp(directory) != NULL);
    party *p = calloc(1, sizeof *p);
    p->warm = driver_open(&(llm_engine_options){
        .model = with->model,
        .n_sessions = with->n_sessions,
        .n_ctx = N_CTX,
        .capacity_policy = LLM_POLICY_PARK,
        .branches_max = BRANCHES,
        .parked_bytes_max = with->parked_bytes_max,
        .exact = with->exact,
        .state_dir = with->has_disk ? directory : NULL,
    });
    p->cold = driver_open(&(llm_engine_options){.model = with->model, .n_ctx = N_CTX});
    p->random = (random_source){with->seed};
    p->has_disk = with->has_disk;
    p->n_talks = with->n_talks;
    for (uint32_t i = 0; i < p->n_talks; i++) {
        snprintf(p->talks[i].name, sizeof p->talks[i].name, "talk-%u", i);
    }
    for (uint32_t round = 0; round < N_ROUNDS && check_failures == 0; round++) {
        for (uint32_t i = 0; i < p->n_talks && check_failures == 0; i++) {
            ask_next(p, &p->talks[i]);
        }
    }
    const uint64_t n_kept = driver_counter(p->warm, LLM_COUNTER_BRANCHES_KEPT);
    const uint64_t n_dropped = driver_counter(p->warm, LLM_COUNTER_PARKED_DROPPED);
    const uint64_t n_evicted = driver_counter(p->warm, LLM_COUNTER_CHECKPOINTS_EVICTED);
    CHECK_INT(driver_close(p->warm) + driver_close(p->cold), 0);
    if (p->n_prefilled * 100 > p->n_needed * 105) {
        printf("%s, %u talks, %u slots%s%s: %llu read, %llu needed\n", with->model, with->n_talks, with->n_sessions,
               with->exact ? ", exact" : "", with->has_disk ? ", disk" : "", (unsigned long long)p->n_prefilled,
               (unsigned long long)p->n_needed);
    }
    CHECK(p->n_prefilled * 100 <= p->n_needed * 105);
    CHECK(n_kept > 0 && p->n_returns > 0);
    CHECK(n_dropped == 0 && n_evicted == 0); /* the budgets are large enough for all states */
    free(p);
    if (with->has_disk) {
        char command[64];
        snprintf(command, sizeof command, "rm -rf %s", directory);
        CHECK_INT(system(command), 0);
    }
}

static void run_all(const setting *with)
{
    for (int i = 0; i < N_CLASSES && check_failures == 0; i++) {
        for (int exact = 0; exact < 2 && check_failures == 0; exact++) {
            setting each = *with;
            each.model = models[i];
            each.exact = exact == 1;
            each.seed = with->seed + (uint64_t)(2 * i + exact);
            run_party(&each);
        }
    }
}

static void one_conversation(void)
{
    run_all(&(setting){.n_talks = 1, .n_sessions = 4, .seed = 1});
}

static void fewer_than_slots(void)
{
    run_all(&(setting){.n_talks = 3, .n_sessions = 4, .seed = 11});
}

static void more_than_slots(void)
{
    run_all(&(setting){.n_talks = 7, .n_sessions = 2, .seed = 21});
}

/* The memory budget has room for hardly any state. */
static void more_than_slots_on_the_disk(void)
{
    run_all(&(setting){.n_talks = 7, .n_sessions = 2, .has_disk = true, .parked_bytes_max = 100000, .seed = 31});
}

/* ---- beside others ---- */

enum { N_CTX_LARGE = 1 << 19, N_LARGE = 200000 };

/* Sends a prompt that no other session has, and then a branch of it. Before the branch, no copy was made, so its time
 * is not measured yet. */
static void branch_off(driver *d, const char *name, uint64_t seed, int32_t *prompt)
{
    make_prompt(prompt, N_LARGE, seed);
    const generate_call call = {
        .session = name, .prompt = prompt, .n_prompt = N_LARGE, .max_tokens = 20, .flags = LLM_GENERATE_IGNORE_END};
    CHECK_INT(driver_wait(d, driver_generate(d, &call))->finished.outcome, LLM_OUTCOME_LENGTH);
    make_prompt(prompt + N_LARGE / 4 * 3, N_LARGE / 4, seed + 1);
    CHECK_INT(driver_wait(d, driver_generate(d, &call))->finished.outcome, LLM_OUTCOME_LENGTH);
}

/* Cells are not shared, so a branch is a copy of 12 MB. By the assumed speed, this takes more than a millisecond. */
static void a_copy_that_others_would_wait_for(void)
{
    driver *d = driver_open(&(llm_engine_options){.model = "sim:dense,length=0,ctx=524288",
                                                  .n_ctx = N_CTX_LARGE,
                                                  .capacity_policy = LLM_POLICY_PARK,
                                                  .branches_max = BRANCHES,
                                                  .gap_ms_target = 1,
                                                  .exact = true});
    int32_t *prompt = malloc(N_LARGE * sizeof *prompt);
    make_prompt(prompt, 10, 9);
    const uint64_t other =
        driver_generate(d, &(generate_call){.prompt = prompt, .n_prompt = 10, .flags = LLM_GENERATE_IGNORE_END});
    driver_wait_text(d, other);
    branch_off(d, "beside", 10, prompt);
    CHECK_INT(driver_counter(d, LLM_COUNTER_BRANCHES_KEPT), 0);
    CHECK(!driver_answer(d, other)->is_over);
    driver_cancel(d, other);
    driver_wait(d, other);
    branch_off(d, "alone", 20, prompt);
    CHECK_INT(driver_counter(d, LLM_COUNTER_BRANCHES_KEPT), 1);
    CHECK_INT(driver_close(d), 0);
    free(prompt);
}

int main(void)
{
    RUN(one_conversation);
    RUN(fewer_than_slots);
    RUN(more_than_slots);
    RUN(more_than_slots_on_the_disk);
    RUN(a_copy_that_others_would_wait_for);
    return CHECK_RESULT();
}
