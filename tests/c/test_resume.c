#include "check.h"
#include "random.h"
#include "policy/resume.h"

enum { N_MAX = 40 };

static resume_input alone(const int32_t *resident, uint32_t n_resident, const int32_t *prompt, uint32_t n_prompt,
                          uint32_t floor)
{
    return (resume_input){
        .prompt = prompt,
        .n_prompt = n_prompt,
        .own = {.tokens = resident, .n_tokens = n_resident, .truncate_floor = floor},
    };
}

static resume_plan decide(const int32_t *resident, uint32_t n_resident, const int32_t *prompt, uint32_t n_prompt,
                          uint32_t floor)
{
    const resume_input in = alone(resident, n_resident, prompt, n_prompt, floor);
    return resume_decide(&in);
}

static const int32_t A[] = {1, 2, 3, 4, 5, 6};
static const int32_t B[] = {1, 2, 3, 9, 9, 9};

static void test_new(void)
{
    const resume_plan p = decide(A, 0, A, 6, 1);
    CHECK_INT(p.reason, LLM_REASON_NEW);
    CHECK_INT(p.n_keep, 0);
    CHECK_INT(p.diverged_at, -1);
}

static void test_exact_prefix_on_every_memory(void)
{
    for (uint32_t floor = 1; floor <= 4; floor++) {
        const resume_plan p = decide(A, 4, A, 6, floor);
        CHECK_INT(p.reason, LLM_REASON_EXACT_PREFIX);
        CHECK_INT(p.n_keep, 4);
    }
}

static void test_equal_needs_a_cut_of_one(void)
{
    const resume_plan dense = decide(A, 6, A, 6, 1);
    CHECK_INT(dense.reason, LLM_REASON_EQUAL);
    CHECK_INT(dense.n_keep, 5);
    const resume_plan recurrent = decide(A, 6, A, 6, 6);
    CHECK_INT(recurrent.reason, LLM_REASON_MISMATCH);
    CHECK_INT(recurrent.n_keep, 0);
}

static void test_rewind_to_the_divergence(void)
{
    const resume_plan p = decide(A, 6, B, 6, 1);
    CHECK_INT(p.reason, LLM_REASON_REWIND);
    CHECK_INT(p.n_keep, 3);
    CHECK_INT(p.diverged_at, 3);
}

static void test_rewind_only_inside_the_window(void)
{
    CHECK_INT(decide(A, 6, B, 6, 3).reason, LLM_REASON_REWIND);
    const resume_plan p = decide(A, 6, B, 6, 4);
    CHECK_INT(p.reason, LLM_REASON_MISMATCH);
    CHECK_INT(p.diverged_at, 3);
}

static void test_shorter_prompt_leaves_one_token_to_consume(void)
{
    const resume_plan p = decide(A, 6, A, 4, 1);
    CHECK_INT(p.reason, LLM_REASON_REWIND);
    CHECK_INT(p.n_keep, 3);
}

static void test_torn_and_cold_reuse_nothing(void)
{
    resume_input in = alone(A, 4, A, 6, 1);
    in.torn = true;
    CHECK_INT(resume_decide(&in).reason, LLM_REASON_TORN);
    CHECK_INT(resume_decide(&in).n_keep, 0);
    in.torn = false;
    in.cold = true;
    CHECK_INT(resume_decide(&in).reason, LLM_REASON_MISMATCH);
    CHECK_INT(resume_decide(&in).n_keep, 0);
}

static void test_checkpoint_inside_the_common_prefix(void)
{
    const resume_checkpoint checkpoints[] = {{.k = 2}, {.k = 3}};
    resume_input in = alone(A, 6, B, 6, 6); /* the recurrent memory cannot be truncated */
    in.checkpoints = checkpoints;
    in.n_checkpoints = 2;
    const resume_plan p = resume_decide(&in);
    CHECK_INT(p.reason, LLM_REASON_CHECKPOINT);
    CHECK_INT(p.n_keep, 3);
    CHECK_INT(p.checkpoint, 1);
    CHECK_INT(p.donor, -1);
    CHECK_INT(p.diverged_at, 3);
}

static void test_attached_checkpoint_needs_attention(void)
{
    const resume_checkpoint attached[] = {{.k = 4}};
    resume_input in = alone(A, 0, A, 6, 1);
    in.checkpoints = attached;
    in.n_checkpoints = 1;
    CHECK_INT(resume_decide(&in).reason, LLM_REASON_NEW);
    const resume_source donor = {.tokens = A, .n_tokens = 6, .truncate_floor = 6};
    in.donors = &donor;
    in.n_donors = 1;
    const resume_plan p = resume_decide(&in);
    CHECK_INT(p.reason, LLM_REASON_SHARED);
    CHECK_INT(p.n_keep, 4);
    CHECK_INT(p.donor, 0);
    CHECK_INT(p.checkpoint, 0);
    const resume_checkpoint whole[] = {{.k = 4, .is_whole = true}};
    in.checkpoints = whole;
    in.n_donors = 0;
    CHECK_INT(resume_decide(&in).n_keep, 4);
    CHECK_INT(resume_decide(&in).reason, LLM_REASON_SHARED);
}

static void test_donor_with_a_longer_prefix(void)
{
    const resume_source donor = {.tokens = A, .n_tokens = 5, .truncate_floor = 1};
    resume_input in = alone(B, 6, A, 6, 1);
    in.donors = &donor;
    in.n_donors = 1;
    const resume_plan p = resume_decide(&in);
    CHECK_INT(p.reason, LLM_REASON_SHARED);
    CHECK_INT(p.n_keep, 5);
    in.own.tokens = A; /* the own branch is as good, so it is not replaced with a copy */
    CHECK_INT(resume_decide(&in).donor, -1);
}

static void test_a_copy_has_to_gain_more_than_it_costs(void)
{
    resume_source donors[] = {{.tokens = A, .n_tokens = 5, .truncate_floor = 1, .n_cost = 2}};
    resume_input in = alone(B, 6, A, 6, 1); /* the own branch gives 3 of the prompt's 6 tokens */
    in.donors = donors;
    in.n_donors = 1;
    CHECK_INT(resume_decide(&in).donor, -1);
    CHECK_INT(resume_decide(&in).n_keep, 3);
    CHECK_INT(resume_decide(&in).reason, LLM_REASON_REWIND);
    donors[0].n_cost = 1;
    CHECK_INT(resume_decide(&in).donor, 0);
    donors[0].n_cost = UINT32_MAX;
    CHECK_INT(resume_decide(&in).donor, -1);
    const resume_checkpoint checkpoints[] = {{.k = 4, .n_cost = 1}, {.k = 5, .is_whole = true, .n_cost = 3}};
    in.checkpoints = checkpoints;
    in.n_checkpoints = 2;
    in.own.n_tokens = 0; /* with a copy of the donor, the first checkpoint gives 4 tokens at a higher cost */
    donors[0] = (resume_source){.tokens = A, .n_tokens = 6, .truncate_floor = 6, .n_cost = 2};
    CHECK_INT(resume_decide(&in).checkpoint, 1);
    CHECK_INT(resume_decide(&in).donor, -1);
    donors[0].n_cost = 0;
    in.n_checkpoints = 1;
    CHECK_INT(resume_decide(&in).n_keep, 4);
    CHECK_INT(resume_decide(&in).donor, 0);
}

static void test_kept_logits_make_the_same_prompt_free(void)
{
    resume_input in = alone(A, 6, A, 4, 1);
    in.own_logits_at = 4;
    resume_plan p = resume_decide(&in);
    CHECK_INT(p.reason, LLM_REASON_EQUAL);
    CHECK_INT(p.n_keep, 4);
    CHECK(p.has_logits);
    in.own.truncate_floor = 6;
    CHECK_INT(resume_decide(&in).n_keep, 0);
    const resume_checkpoint kept[] = {{.k = 4, .has_logits = true}};
    in.checkpoints = kept;
    in.n_checkpoints = 1;
    p = resume_decide(&in);
    CHECK_INT(p.reason, LLM_REASON_EQUAL);
    CHECK_INT(p.n_keep, 4);
    CHECK(p.has_logits);
}

static void test_restored_says_so(void)
{
    resume_input in = alone(A, 4, A, 6, 4);
    in.was_parked = true;
    CHECK_INT(resume_decide(&in).reason, LLM_REASON_RESTORED);
    in.prompt = B + 3;
    in.n_prompt = 3;
    CHECK_INT(resume_decide(&in).reason, LLM_REASON_MISMATCH);
}

/* ---- the oracle: every k by every way, tried one by one ---- */

static bool agrees(const int32_t *a, uint32_t n_a, const resume_input *in, uint32_t k)
{
    return k <= n_a && k <= in->n_prompt && memcmp(a, in->prompt, k * sizeof *a) == 0;
}

static bool source_gives(const resume_source *s, const resume_input *in, uint32_t k)
{
    return agrees(s->tokens, s->n_tokens, in, k) && (k == s->n_tokens || k >= s->truncate_floor);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Returns the largest gain with this checkpoint: alone, with the own branch, or with a donor. */
static int64_t gain_with_checkpoint(const resume_input *in, const resume_checkpoint *c)
{
    if (c->k == in->n_prompt && !c->has_logits) {
        return 0;
    }
    const int64_t gain = (int64_t)c->k - c->n_cost;
    const bool is_own = !in->torn && in->own.n_tokens > 0 && agrees(in->own.tokens, in->own.n_tokens, in, c->k);
    int64_t most = c->is_whole || is_own ? gain : 0;
    for (uint32_t i = 0; i < in->n_donors; i++) {
        const resume_source *donor = &in->donors[i];
        most = agrees(donor->tokens, donor->n_tokens, in, c->k) ? larger(most, gain - donor->n_cost) : most;
    }
    return most;
}

/* Returns the largest gain of all ways: the tokens that a way saves minus its cost. */
static int64_t largest_gain(const resume_input *in)
{
    int64_t most = 0;
    for (uint32_t k = 1; !in->cold && k <= in->n_prompt; k++) {
        const bool last = k == in->n_prompt; /* all tokens can be kept only with the logits after them */
        const bool is_own = !in->torn && in->own.n_tokens > 0 && source_gives(&in->own, in, k);
        most = is_own && (!last || in->own_logits_at == k) ? larger(most, k) : most;
        for (uint32_t i = 0; i < in->n_donors && !last; i++) {
            const resume_source *donor = &in->donors[i];
            most = source_gives(donor, in, k) ? larger(most, (int64_t)k - donor->n_cost) : most;
        }
    }
    for (uint32_t i = 0; !in->cold && i < in->n_checkpoints; i++) {
        most = larger(most, gain_with_checkpoint(in, &in->checkpoints[i]));
    }
    return most;
}

static int64_t gain_of(const resume_input *in, const resume_plan *p)
{
    return (int64_t)p->n_keep - (p->donor >= 0 ? in->donors[p->donor].n_cost : 0) -
           (p->checkpoint >= 0 ? in->checkpoints[p->checkpoint].n_cost : 0);
}

enum { DONORS = 3, CHECKPOINTS = 6 };

typedef struct world {
    int32_t own[N_MAX];
    int32_t prompt[N_MAX];
    int32_t donor_tokens[DONORS][N_MAX];
    resume_source donors[DONORS];
    resume_checkpoint checkpoints[CHECKPOINTS];
    resume_input in;
} world;

static void grow_from_prompt(random_source *random, const int32_t *prompt, int32_t *out)
{
    const uint32_t shared = random_below(random, N_MAX);
    for (uint32_t i = 0; i < N_MAX; i++) {
        out[i] = i < shared ? prompt[i] : (int32_t)random_below(random, 3);
    }
}

static resume_source some_source(random_source *random, const int32_t *tokens)
{
    const uint32_t n = random_below(random, N_MAX);
    return (resume_source){.tokens = tokens, .n_tokens = n, .truncate_floor = 1 + random_below(random, n + 1)};
}

static void make_world(random_source *random, world *w)
{
    for (uint32_t i = 0; i < N_MAX; i++) {
        w->prompt[i] = (int32_t)random_below(random, 3);
    }
    grow_from_prompt(random, w->prompt, w->own);
    const uint32_t n_prompt = 1 + random_below(random, N_MAX - 1);
    const uint32_t n_checkpoints = random_below(random, CHECKPOINTS + 1);
    const uint32_t most_cost =
        1 + random_below(random, 2) * random_below(random, N_MAX); /* in half of the cases, nothing has a cost */
    for (uint32_t i = 0; i < n_checkpoints; i++) {
        w->checkpoints[i] = (resume_checkpoint){.k = 1 + random_below(random, n_prompt),
                                                .is_whole = random_below(random, 3) == 0,
                                                .has_logits = random_below(random, 2) == 0,
                                                .n_cost = random_below(random, most_cost)};
    }
    for (uint32_t i = 0; i < DONORS; i++) {
        grow_from_prompt(random, w->prompt, w->donor_tokens[i]);
        w->donors[i] = some_source(random, w->donor_tokens[i]);
        w->donors[i].n_cost = random_below(random, most_cost);
    }
    w->in = (resume_input){
        .prompt = w->prompt,
        .n_prompt = n_prompt,
        .own = some_source(random, w->own),
        .own_logits_at = random_below(random, 2) == 0 ? n_prompt : 0,
        .torn = random_below(random, 8) == 0,
        .cold = random_below(random, 16) == 0,
        .donors = w->donors,
        .n_donors = random_below(random, DONORS + 1),
        .checkpoints = w->checkpoints,
        .n_checkpoints = n_checkpoints,
    };
    if (w->in.own_logits_at > w->in.own.n_tokens) {
        w->in.own_logits_at = 0;
    }
}

/* Returns whether the plan's donor and checkpoint lead to its n_keep. */
static bool plan_is_sound(const resume_input *in, const resume_plan *p)
{
    if (p->n_keep == 0) {
        return p->donor < 0 && p->checkpoint < 0 && !p->has_logits;
    }
    const resume_source *base = p->donor >= 0 ? &in->donors[p->donor] : &in->own;
    if (p->checkpoint >= 0) {
        const resume_checkpoint *c = &in->checkpoints[p->checkpoint];
        const bool based = c->is_whole || agrees(base->tokens, base->n_tokens, in, c->k);
        return c->k == p->n_keep && based && (p->has_logits ? c->has_logits : p->n_keep < in->n_prompt);
    }
    return source_gives(base, in, p->n_keep) &&
           (p->has_logits ? in->own_logits_at == in->n_prompt : p->n_keep < in->n_prompt);
}

static void test_always_the_largest_provable_gain(void)
{
    random_source random = {.state = 20261120};
    static world w;
    for (int round = 0; round < 200000; round++) {
        make_world(&random, &w);
        const resume_plan p = resume_decide(&w.in);
        CHECK_INT(gain_of(&w.in, &p), largest_gain(&w.in));
        CHECK(plan_is_sound(&w.in, &p));
        CHECK(p.has_logits == (p.n_keep == w.in.n_prompt));
        if (p.diverged_at >= 0) {
            CHECK(w.own[p.diverged_at] != w.prompt[p.diverged_at]);
            CHECK(memcmp(w.own, w.prompt, (size_t)p.diverged_at * sizeof *w.prompt) == 0);
        }
    }
}

static size_t n_compared; /* number of bytes */

int __real_memcmp(const void *a, const void *b, size_t n);
int __wrap_memcmp(const void *a, const void *b, size_t n);

int __wrap_memcmp(const void *a, const void *b, size_t n)
{
    n_compared += n;
    return __real_memcmp(a, b, n);
}

/* Agents share a system prompt. Hundreds of sessions begin with the same tokens, but only few sessions are compared. */
static void test_many_donors_that_share_a_long_head(void)
{
    enum { N_DONORS = 300, HEAD = 20000, END = 100, N_TOKENS = HEAD + END };
    static int32_t tokens[N_DONORS][N_TOKENS], prompt[N_TOKENS];
    resume_source donors[N_DONORS];
    const resume_checkpoint checkpoint = {.k = HEAD};
    for (int32_t k = 0; k < N_TOKENS; k++) {
        prompt[k] = k;
        for (int32_t i = 0; i < N_DONORS; i++) {
            tokens[i][k] = k < HEAD ? k : -1 - i;
        }
    }
    for (uint32_t floor = 1; floor <= N_TOKENS;
         floor += N_TOKENS - 1) { /* memory that can be truncated, then memory that cannot */
        for (uint32_t i = 0; i < N_DONORS; i++) {
            donors[i] =
                (resume_source){.tokens = tokens[i], .n_tokens = N_TOKENS, .truncate_floor = floor, .n_cost = 10};
        }
        const resume_input in = {.prompt = prompt,
                                 .n_prompt = N_TOKENS,
                                 .donors = donors,
                                 .n_donors = N_DONORS,
                                 .checkpoints = &checkpoint,
                                 .n_checkpoints = floor > 1};
        n_compared = 0;
        CHECK_INT(resume_longest(prompt, N_TOKENS, donors, N_DONORS, 0), HEAD);
        const resume_plan p = resume_decide(&in);
        CHECK_INT(p.n_keep, HEAD);
        CHECK_INT(p.donor, 0);
        CHECK_INT(p.checkpoint, floor > 1 ? 0 : -1);
        CHECK(n_compared < 4 * sizeof prompt);
    }
}

int main(void)
{
    RUN(test_new);
    RUN(test_exact_prefix_on_every_memory);
    RUN(test_equal_needs_a_cut_of_one);
    RUN(test_rewind_to_the_divergence);
    RUN(test_rewind_only_inside_the_window);
    RUN(test_shorter_prompt_leaves_one_token_to_consume);
    RUN(test_torn_and_cold_reuse_nothing);
    RUN(test_checkpoint_inside_the_common_prefix);
    RUN(test_attached_checkpoint_needs_attention);
    RUN(test_donor_with_a_longer_prefix);
    RUN(test_a_copy_has_to_gain_more_than_it_costs);
    RUN(test_kept_logits_make_the_same_prompt_free);
    RUN(test_restored_says_so);
    RUN(test_always_the_largest_provable_gain);
    RUN(test_many_donors_that_share_a_long_head);
    return CHECK_RESULT();
}
