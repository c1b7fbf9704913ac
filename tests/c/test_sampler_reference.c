/* Compares the sampler with llama.cpp's samplers: for all parameters, the distributions must be equal, and grammars
 * must allow the same tokens. */
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "llama_reference.h"
#include "random.h"
#include "text/sampling/sampler.h"
#include "vocabulary_model.h"

enum { N_DRAWS = 4000, N_FEW_DRAWS = 200, N_MAX = 4096, N_HISTORY = 80 };

static model *m;

static uint64_t order_of(const char *const *names)
{
    uint64_t order = names[0] == NULL ? 15 : 0;
    for (int i = 0; names[i] != NULL; i++) {
        for (uint64_t one = 1; one < LLM_SAMPLER_N; one++) {
            order |= strcmp(names[i], llm_word(LLM_SAMPLERS, (int)one)) == 0 ? one << (4 * i) : 0;
        }
    }
    return order;
}

static const char *const usual[] = {"penalties", "dry",   "top_n_sigma", "top_k",       "typ_p",
                                    "top_p",     "min_p", "xtc",         "temperature", NULL};

static void random_logits(uint64_t seed, float *logits)
{
    random_source random = {seed};
    for (uint32_t i = 0; i < m->info.n_vocab; i++) {
        logits[i] = (float)random_below(&random, 4000) / 400.0f;
    }
}

/* Compares how often each token is drawn with llama.cpp's probability. The difference must be within five standard
 * deviations, because the draws have other random numbers. */
static void compare_on(const float *logits, const llm_sampling *s, const char *const *order, int n_draws)
{
    static float copy[N_MAX];
    static double wanted[N_MAX];
    static uint32_t drawn[N_MAX];
    static const int32_t pattern[] = {70, 71, 72, 73, 74, 75, 90, 91};
    int32_t history[N_HISTORY];
    for (int i = 0; i < N_HISTORY; i++) {
        history[i] = pattern[i % 8];
    }
    llm_sampling own = *s;
    own.samplers = order != NULL ? order_of(order) : 0;
    reference_distribution(m, s, order != NULL ? order : usual, history, N_HISTORY, logits, wanted);
    const sampler_options options = {.sampling = own};
    sampler *one = NULL;
    CHECK_INT(sampler_open(m, &options, &one), LLM_OK);
    sampler_accept(one, history, N_HISTORY);
    memset(drawn, 0, sizeof drawn);
    for (int i = 0; i < n_draws; i++) {
        int32_t token = -1;
        memcpy(copy, logits, sizeof copy);
        CHECK_INT(sampler_pick(one, copy, &token), LLM_OK);
        drawn[token]++;
    }
    sampler_close(one);
    for (uint32_t i = 0; i < m->info.n_vocab; i++) {
        const double expected = wanted[i] * n_draws, bound = 5 * sqrt(expected) + 3;
        if (fabs(drawn[i] - expected) > bound || (wanted[i] == 0.0 && drawn[i] > 0)) {
            printf("seed %llu: token %u was drawn %u times, not %g\n", (unsigned long long)s->seed, i, drawn[i],
                   expected);
        }
        CHECK(fabs(drawn[i] - expected) <= bound && (wanted[i] > 0.0 || drawn[i] == 0));
    }
}

static void compare(const llm_sampling *s, const char *const *order)
{
    static float logits[N_MAX];
    random_logits(s->seed + 3, logits);
    compare_on(logits, s, order, N_DRAWS);
}

static llm_sampling plain(uint64_t seed)
{
    return (llm_sampling){.temperature = 0.9f,
                          .top_p = 1,
                          .repeat_penalty = 1,
                          .penalty_last_n = 64,
                          .seed = seed,
                          .typical_p = 1,
                          .top_n_sigma = -1,
                          .dynatemp_exponent = 1,
                          .xtc_threshold = 0.1f,
                          .dry_base = 1.75f,
                          .dry_allowed_length = 2,
                          .dry_penalty_last_n = 64,
                          .mirostat_tau = 5,
                          .mirostat_eta = 0.1f,
                          .adaptive_target = -1,
                          .adaptive_decay = 0.9f};
}

static void the_usual_ones(void)
{
    for (uint64_t seed = 1; seed < 6; seed++) {
        llm_sampling s = plain(seed);
        s.top_k = seed % 2 == 0 ? 30 : 0;
        s.top_p = seed % 3 == 0 ? 1 : 0.7f;
        s.min_p = seed % 3 == 1 ? 0.02f : 0;
        s.repeat_penalty = seed % 2 == 0 ? 1.4f : 1;
        s.frequency_penalty = seed == 3 ? 0.2f : 0;
        compare(&s, NULL);
    }
}

static void each_of_the_others(void)
{
    llm_sampling s = plain(11);
    s.typical_p = 0.3f;
    compare(&s, NULL);
    s = plain(12);
    s.top_n_sigma = 1.2f;
    compare(&s, NULL);
    s = plain(13);
    s.dynatemp_range = 0.5f;
    s.dynatemp_exponent = 1.5f;
    compare(&s, NULL);
    s = plain(14);
    s.xtc_probability = 1;
    s.xtc_threshold = 0.004f;
    compare(&s, NULL);
    s = plain(15);
    s.dry_multiplier = 0.8f;
    compare(&s, NULL);
    s = plain(16);
    s.top_p = 0.001f;
    s.min_keep = 7;
    compare(&s, NULL);
    s = plain(17);
    s.temperature = 0;
    s.typical_p = 0.5f;
    compare(&s, NULL);
}

static void in_the_order_asked_for(void)
{
    static const char *const heated[] = {"temperature", "top_p", "min_p", NULL};
    static const char *const few[] = {"top_k", "temperature", NULL};
    static const char *const cold[] = {"min_p", NULL};
    static const char *const none[] = {NULL};
    static const char *const all[] = {"top_k", "typ_p", "penalties", "temperature", "top_n_sigma", "dry", NULL};
    llm_sampling s = plain(21);
    s.temperature = 2.5f;
    s.top_p = 0.6f;
    s.min_p = 0.05f;
    s.top_k = 40;
    s.typical_p = 0.8f;
    s.repeat_penalty = 1.5f;
    s.dry_multiplier = 0.5f;
    s.top_n_sigma = 1.5f;
    compare(&s, heated);
    compare(&s, few);
    compare(&s, cold);
    compare(&s, all);
    compare(&s, none);
}

/* Compares a sequence of draws with those of llama.cpp's samplers with `seed`. */
static void compare_draws(const float *logits, const llm_sampling *s, const char *const *order, uint32_t seed)
{
    static float copy[N_MAX];
    int32_t wanted[N_FEW_DRAWS];
    llm_sampling own = *s;
    own.samplers = order != NULL ? order_of(order) : 0;
    reference_draws(m, s, order != NULL ? order : usual, seed, logits, wanted, N_FEW_DRAWS);
    const sampler_options options = {.sampling = own};
    sampler *one = NULL;
    CHECK_INT(sampler_open(m, &options, &one), LLM_OK);
    for (int i = 0; i < N_FEW_DRAWS; i++) {
        int32_t token = -1;
        memcpy(copy, logits, sizeof copy);
        CHECK_INT(sampler_next(one, copy, &token), LLM_OK);
        CHECK_INT(token, wanted[i]);
    }
    sampler_close(one);
}

static void mirostat_draws_the_same(void)
{
    static float logits[N_MAX];
    random_logits(5, logits);
    for (int32_t version = 1; version <= 2; version++) {
        llm_sampling s = plain(31);
        s.mirostat = version;
        compare_draws(logits, &s, NULL, 31);
    }
}

/* XTC draws from a generator of its own, which has the same seed. */
static void seeds_are_the_same(void)
{
    static const uint64_t seeds[] = {0, 7, UINT64_C(1) << 31, UINT64_C(5) << 32, (UINT64_C(5) << 32) + 9};
    static float logits[N_MAX];
    random_logits(8, logits);
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
        llm_sampling s = plain(seeds[i]);
        s.xtc_probability = 0.5f;
        s.xtc_threshold = 0.004f;
        compare_draws(logits, &s, NULL, (uint32_t)(seeds[i] ^ (seeds[i] >> 32)));
    }
}

/* For llama.cpp, this seed (LLAMA_DEFAULT_SEED) means a random one. */
static void the_seed_of_all_ones_is_one(void)
{
    static float logits[N_MAX];
    random_logits(9, logits);
    llm_sampling s = plain(UINT32_MAX);
    s.typical_p = 0.9f;
    compare_draws(logits, &s, NULL, UINT32_MAX - 1);
}

static void adaptive_p_draws_the_same(void)
{
    static const char *const recommended[] = {"min_p", "adaptive_p", NULL};
    static const char *const first[] = {"adaptive_p", "top_k", "temperature", NULL};
    static const float targets[] = {-1, 0, 0.05f, 0.3f, 1};
    static float logits[N_MAX];
    random_logits(6, logits);
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        llm_sampling s = plain(40 + i);
        s.min_p = 0.02f;
        s.top_k = 50;
        s.adaptive_target = targets[i];
        s.adaptive_decay = i % 2 == 0 ? 0.5f : 0.99f;
        compare_draws(logits, &s, recommended, (uint32_t)s.seed);
        compare_draws(logits, &s, first, (uint32_t)s.seed);
    }
}

/* ---- infill ---- */

static uint8_t first_byte(int32_t token)
{
    char piece[64];
    const int32_t n = m->ops->piece(m, token, false, piece, sizeof piece);
    return n > 0 ? (uint8_t)piece[0] : 0;
}

/* Fills logits in which tokens with the same first byte are probable. Tokens that end the answer get `of_ends`, and the
 * EOS token a little more. */
static void alike_logits(random_source *random, float of_ends, float *logits)
{
    const uint8_t first = first_byte((int32_t)random_below(random, m->info.n_vocab));
    for (uint32_t i = 0; i < m->info.n_vocab; i++) {
        const int32_t token = (int32_t)i;
        const float more = (float)random_below(random, 1000) / 100.0f;
        logits[i] = m->ops->is_end(m, token) ? of_ends : first_byte(token) == first ? 5 + more : -10;
    }
    logits[m->ops->eos(m)] += 0.01f;
}

static void infill_joins_the_same(void)
{
    static const char *const editors[] = {"top_k", "top_p", "infill", NULL};
    static const char *const only[] = {"infill", NULL};
    static const char *const others[] = {"penalties", "infill", "temperature", "top_k", NULL};
    static float logits[N_MAX];
    for (uint64_t seed = 1; seed <= 30; seed++) {
        random_source random = {seed};
        llm_sampling s = plain(seed);
        s.top_k = 40;
        s.top_p = 0.99f;
        s.repeat_penalty = 1.3f;
        alike_logits(&random, seed % 3 == 0 ? 5 : seed % 3 == 1 ? -5 : -30, logits);
        compare_on(logits, &s, editors, N_FEW_DRAWS);
        compare_on(logits, &s, only, N_FEW_DRAWS);
        compare_on(logits, &s, others, N_FEW_DRAWS);
        CHECK_STILL_GOOD();
    }
}

/* No token is probable enough for infill, and none is joined with others. Then llama.cpp ends the answer. */
static void infill_does_not_end_what_must_go_on(void)
{
    static float logits[N_MAX];
    for (uint32_t i = 0; i < m->info.n_vocab; i++) {
        char piece[64];
        logits[i] = m->ops->piece(m, (int32_t)i, false, piece, sizeof piece) == 1 ? 0 : -30;
    }
    for (uint32_t n_least = 0; n_least < 2; n_least++) {
        sampler_options options = {.sampling = plain(1), .min_tokens = n_least};
        options.sampling.samplers = LLM_SAMPLER_INFILL;
        sampler *one = NULL;
        int32_t token = -1;
        CHECK_INT(sampler_open(m, &options, &one), LLM_OK);
        CHECK_INT(sampler_next(one, logits, &token), LLM_OK);
        CHECK_INT(m->ops->is_end(m, token), n_least == 0);
        sampler_close(one);
    }
}

/* ---- grammars ---- */

static const char *const grammars[] = {
    "root ::= (\"a\" | \"b\" | \"the \")+ [0-9]{2,4} \"!\"?",
    "root ::= object\nobject ::= \"{\" ws (pair (\",\" ws pair)*)? \"}\"\npair ::= string \":\" ws value\n"
    "value ::= string | [0-9]+ | object | \"true\" | \"null\"\nstring ::= \"\\\"\" [^\"\\\\\\x00-\\x1f]{0,6} \"\\\"\"\n"
    "ws ::= [ ]?",
    "root ::= . [^a-z] (\"\\u00e9\" | \"\\xe9\" | [\\u4e00-\\u9fff])* | \"x\" root # a comment",
    "root ::= (\"ab\"? \"c\"){3} | ((\"q\"+ | \"r\")* \"s\"){1,}",
};

/* Returns whether the sampler picks this token if it is the most likely one. */
static bool is_allowed(sampler *s, int32_t wanted)
{
    static float logits[N_MAX];
    int32_t token = -1;
    for (uint32_t i = 0; i < m->info.n_vocab; i++) {
        logits[i] = 0;
    }
    logits[wanted] = 50;
    return sampler_pick(s, logits, &token) == LLM_OK && token == wanted;
}

/* Returns whether llama.cpp treats the token differently: it accepts control tokens as text, and bytes that are no
 * characters. */
static bool is_special(int32_t token)
{
    char piece[64];
    const int32_t n = m->ops->piece(m, token, false, piece, sizeof piece);
    for (int32_t i = 0; i < n; i++) {
        const uint8_t byte = (uint8_t)piece[i];
        if (byte == 0 || byte >= 0xf5 || byte == 0xc0 || byte == 0xc1 || (i == 0 && byte >> 6 == 2)) {
            return true;
        }
    }
    return m->ops->is_control(m, token) && !m->ops->is_end(m, token);
}

/* Returns whether the text may end within a character. Then llama.cpp lets the answer end. */
static bool is_within_character(const int32_t *tokens, uint32_t n)
{
    char piece[64];
    const int32_t n_bytes = n > 0 ? m->ops->piece(m, tokens[n - 1], false, piece, sizeof piece) : 0;
    return n_bytes > 0 && (uint8_t)piece[n_bytes - 1] >= 0x80;
}

static void check_step(sampler *s, const char *grammar, const int32_t *tokens, uint32_t n)
{
    static bool wanted[N_MAX];
    CHECK(reference_allowed(m, grammar, tokens, n, wanted));
    for (uint32_t t = 0; t < m->info.n_vocab; t++) {
        const int32_t token = (int32_t)t;
        if (is_special(token) || (m->ops->is_end(m, token) && is_within_character(tokens, n))) {
            continue;
        }
        const bool is = is_allowed(s, token);
        if (is != wanted[t]) {
            char piece[64] = "";
            (void)m->ops->piece(m, token, true, piece, sizeof piece - 1);
            printf("%s\n after %u tokens: token %u \"%s\" (%02x) is %s\n", grammar, n, t, piece, (uint8_t)piece[0],
                   is ? "allowed" : "not");
        }
        CHECK_INT(is, wanted[t]);
    }
}

static void escaped(const char *text, char *out)
{
    for (; *text != '\0'; text++) {
        const char *escape = *text == '\n' ? "\\n" : *text == '"' ? "\\\"" : *text == '\\' ? "\\\\" : NULL;
        out += escape != NULL ? sprintf(out, "%s", escape) : sprintf(out, "%c", *text);
    }
}

static void grammars_allow_the_same(void)
{
    for (size_t g = 0; g < sizeof grammars / sizeof grammars[0]; g++) {
        char text[2048] = "", document[4096];
        escaped(grammars[g], text);
        snprintf(document, sizeof document, "{\"grammar\":\"%s\"}", text);
        for (uint64_t seed = 1; seed < 4; seed++) {
            sampler *s = NULL;
            int32_t tokens[16];
            random_source random = {seed};
            const sampler_options options = {
                .sampling = plain(seed), .constraint = document, .n_constraint_bytes = strlen(document)};
            CHECK_INT(sampler_open(m, &options, &s), LLM_OK);
            for (uint32_t n = 0; n < 8; n++) {
                static float logits[N_MAX];
                check_step(s, grammars[g], tokens, n);
                CHECK_STILL_GOOD();
                for (uint32_t i = 0; i < m->info.n_vocab; i++) {
                    logits[i] = (float)random_below(&random, 100) / 20.0f;
                }
                CHECK_INT(sampler_next(s, logits, &tokens[n]), LLM_OK);
                if (sampler_ends(s, tokens[n])) {
                    break;
                }
            }
            sampler_close(s);
        }
    }
}

int main(void)
{
    char path[512];
    const char *models = getenv("LLMD_TEST_MODELS");
    if (models == NULL) {
        printf("SKIPPED: LLMD_TEST_MODELS does not name a folder with the tiny models\n");
        return 0;
    }
    snprintf(path, sizeof path, "%s/tiny-dense.gguf", models);
    m = vocabulary_open(path, "", "", "");
    if (m == NULL || m->info.n_vocab > N_MAX) {
        printf("%s: not a vocabulary of at most %d tokens, but of %u\n", path, N_MAX, m == NULL ? 0 : m->info.n_vocab);
        return 1;
    }
    RUN(the_usual_ones);
    RUN(each_of_the_others);
    RUN(in_the_order_asked_for);
    RUN(mirostat_draws_the_same);
    RUN(seeds_are_the_same);
    RUN(the_seed_of_all_ones_is_one);
    RUN(adaptive_p_draws_the_same);
    RUN(infill_joins_the_same);
    RUN(infill_does_not_end_what_must_go_on);
    RUN(grammars_allow_the_same);
    m->ops->close(m);
    return CHECK_RESULT();
}
