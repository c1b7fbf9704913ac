#include "check.h"
#include "policy/timeline.h"
#include "random.h"
#include "states/token_sketch.h"

enum { N_MAX = 1500 };

static int32_t tokens[N_MAX];
static int32_t prompt[2 * N_MAX];

static void fill(random_source *r, int32_t *out, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        out[i] = (int32_t)random_below(r, 1000);
    }
}

/* A prompt with exactly so many of the first n tokens. */
static void part_after(random_source *r, uint32_t n, uint32_t n_common, uint32_t n_prompt)
{
    fill(r, prompt, n_prompt);
    for (uint32_t i = 0; i < n_common; i++) {
        prompt[i] = tokens[i];
    }
    if (n_common < n && n_common < n_prompt) {
        prompt[n_common] = tokens[n_common] + 1;
    }
}

static bool continues(uint32_t n_history, uint32_t n_common, uint32_t n_head)
{
    return timeline_continues(&(timeline){.n_history = n_history, .n_common = n_common, .n_head = n_head});
}

static void test_nothing(void)
{
    const token_sketch none = token_sketch_of(NULL, 0);
    const token_sketch one = token_sketch_of((const int32_t[]){5}, 1);
    CHECK_INT(token_sketch_common(&none, NULL, 0), 0);
    CHECK_INT(token_sketch_common(&none, (const int32_t[]){5}, 1), 0);
    CHECK_INT(token_sketch_common(&one, NULL, 0), 0);
    CHECK_INT(token_sketch_common(&one, (const int32_t[]){6}, 1), 0);
    CHECK_INT(token_sketch_common(&one, (const int32_t[]){5, 6}, 2), 1);
}

/* What is proved is true; and it says as much as the tokens: without a head always, with one where most of what is behind it
 * is shared. */
static void test_as_good_as_the_tokens(void)
{
    random_source r = {.state = 3};
    for (int round = 0; round < 5000; round++) {
        const uint32_t n = 1 + random_below(&r, N_MAX);
        const uint32_t n_prompt = 1 + random_below(&r, 2 * N_MAX);
        const uint32_t n_shorter = n < n_prompt ? n : n_prompt;
        const uint32_t n_common = random_below(&r, 3) == 0 ? n_shorter : random_below(&r, n_shorter + 1);
        const uint32_t n_head = random_below(&r, n + 20);
        fill(&r, tokens, n);
        part_after(&r, n, n_common, n_prompt);
        const token_sketch s = token_sketch_of(tokens, n);
        const uint32_t proved = token_sketch_common(&s, prompt, n_prompt);
        CHECK(proved <= n_common);
        CHECK_INT(continues(n, proved, 0), continues(n, n_common, 0));
        CHECK(continues(n, n_common, n_head) || !continues(n, proved, n_head));
        const bool shares_most = n_common == n || (n_head < n && 4 * (n - n_common) + 8 < n - n_head);
        CHECK(!shares_most || continues(n, proved, n_head));
        CHECK_STILL_GOOD();
    }
}

int main(void)
{
    RUN(test_nothing);
    RUN(test_as_good_as_the_tokens);
    return CHECK_RESULT();
}
