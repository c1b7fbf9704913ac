/* Tests the simulated model: its text, the memory rules of each class, the rules for batches, and its faults. */
#include "model/sim/sim_model.h"

#include <limits.h>
#include <stdlib.h>
#include <time.h>

#include "check.h"
#include "random.h"

enum { N_SEQ = 4, N_CTX = 512, TOKENS_MAX = N_CTX };

static const char *const classes[] = {"dense", "window", "recurrent", "hybrid"};

static model *open_sim(const char *path)
{
    model_options options = {.path = path, .n_ctx = N_CTX, .n_seq = N_SEQ, .n_batch = 64};
    model *m = NULL;
    char error[LLM_TEXT_BYTES_MAX] = "";
    if (model_sim_open(&options, &m, error, sizeof error) != LLM_OK) {
        printf("%s\n", error);
        abort();
    }
    return m;
}

/* Feeds n tokens to a sequence in one call, and requests logits after the last one. */
static model_result feed(model *m, uint16_t seq, const int32_t *tokens, uint32_t n)
{
    int32_t positions[TOKENS_MAX];
    uint16_t seqs[TOKENS_MAX];
    uint8_t outputs[TOKENS_MAX] = {0};
    for (uint32_t i = 0; i < n; i++) {
        positions[i] = (int32_t)(m->ops->position(m, seq) + i);
        seqs[i] = seq;
    }
    outputs[n - 1] = 1;
    return m->ops->decode(
        m, &(model_batch){.n = n, .tokens = tokens, .positions = positions, .seqs = seqs, .outputs = outputs});
}

static bool feed_in_parts(model *m, uint16_t seq, const int32_t *tokens, uint32_t n, random_source *random)
{
    for (uint32_t at = 0; at < n;) {
        uint32_t part = 1 + random_below(random, 64);
        part = part < n - at ? part : n - at;
        if (feed(m, seq, tokens + at, part) != MODEL_OK) {
            return false;
        }
        at += part;
    }
    return true;
}

static int32_t largest(const model *m, const float *logits)
{
    int32_t best = 0;
    for (uint32_t i = 1; i < m->info.n_vocab; i++) {
        best = logits[i] > logits[best] ? (int32_t)i : best;
    }
    return best;
}

/* Consumes one more token. Returns the most likely next token. */
static int32_t winner_after(model *m, uint16_t seq, int32_t token)
{
    return feed(m, seq, &token, 1) == MODEL_OK ? largest(m, m->ops->logits(m, 0)) : -1;
}

static void make_tokens(int32_t *tokens, uint32_t n, random_source *random)
{
    for (uint32_t i = 0; i < n; i++) {
        tokens[i] = (int32_t)random_below(random, SIM_VOCABULARY);
    }
}

/* Consumes `next`, and returns whether the logits equal those of an empty sequence after `tokens` and `next`. */
static bool equals_cold(model *m, uint16_t seq, const int32_t *tokens, uint32_t n, int32_t next)
{
    random_source random = {n + 1};
    uint16_t cold = N_SEQ - 1;
    size_t bytes = m->info.n_vocab * sizeof(float);
    float *logits = malloc(bytes);
    m->ops->clear(m, cold);
    bool equal = feed_in_parts(m, cold, tokens, n, &random) && feed(m, cold, &next, 1) == MODEL_OK;
    if (equal) {
        memcpy(logits, m->ops->logits(m, 0), bytes);
        equal = feed(m, seq, &next, 1) == MODEL_OK && memcmp(logits, m->ops->logits(m, 0), bytes) == 0;
    }
    free(logits);
    return equal;
}

/* ---- opening ---- */

static void check_refused(const char *path, const char *named, const char *allowed)
{
    model_options options = {.path = path, .n_seq = 1};
    model *m = NULL;
    char error[LLM_TEXT_BYTES_MAX] = "";
    CHECK_INT(model_sim_open(&options, &m, error, sizeof error), LLM_INVALID);
    CHECK(m == NULL);
    if (strstr(error, named) == NULL || strstr(error, allowed) == NULL) {
        printf("\"%s\" says: %s\n", path, error);
    }
    CHECK(strstr(error, named) != NULL && strstr(error, allowed) != NULL);
}

static void wrong_options_are_named(void)
{
    check_refused("", "class", "hybrid");
    check_refused("sparse", "sparse", "dense, window, recurrent, hybrid or none");
    check_refused("dense,", "unknown", "fail_kind"); /* after a trailing comma, another option is missing */
    check_refused("dense,speed=3", "speed", "step_us");
    check_refused("dense,ctx", "ctx", "1 to 1048576");
    check_refused("dense,ctx=", "ctx", "1 to 1048576");
    check_refused("dense,ctx=0", "ctx=0", "1 to 1048576");
    check_refused("dense,ctx=-1", "ctx=-1", "1 to 1048576");
    check_refused("dense,ctx=12x", "ctx=12x", "1 to 1048576");
    check_refused("dense,step_us=99999999999999999999999", "step_us", "60000000");
    check_refused("dense,window=5", "window=5", "sim:window");
    check_refused("hybrid,fail_kind=some", "fail_kind=some", "half");
}

static void facts_follow_the_options(void)
{
    static const llm_memory memories[] = {LLM_MEMORY_DENSE, LLM_MEMORY_WINDOW, LLM_MEMORY_RECURRENT, LLM_MEMORY_HYBRID};
    for (size_t i = 0; i < 4; i++) {
        model *m = open_sim(classes[i]);
        char name[32];
        snprintf(name, sizeof name, "sim-%s", classes[i]);
        CHECK_STR(m->info.name, name);
        CHECK_INT(m->info.memory, memories[i]);
        CHECK_INT(m->info.n_ctx, N_CTX);
        CHECK_INT(m->info.n_ctx_train, 4096);
        CHECK_INT(m->info.n_batch, 64);
        CHECK_INT(m->info.n_window, memories[i] == LLM_MEMORY_WINDOW ? 64 : 0);
        CHECK_INT(m->info.n_cells, memories[i] == LLM_MEMORY_RECURRENT ? UINT32_MAX : N_CTX * N_SEQ);
        CHECK_INT(m->info.n_vocab, 512);
        m->ops->close(m);
    }
    model *small = open_sim("window,batch=16,window=7,cells=99,ctx=100");
    CHECK(small->info.n_batch == 16 && small->info.n_window == 7 && small->info.n_cells == 99);
    CHECK_INT(small->info.n_ctx_train, 100);
    model *other = open_sim("window,batch=16,window=8");
    CHECK(memcmp(small->info.identity, other->info.identity, 16) != 0);
    small->ops->close(small);
    small = open_sim("window,batch=16,window=8,ctx=50,cells=500,layout=1");
    CHECK(memcmp(small->info.identity, other->info.identity, 16) == 0);
    CHECK(memcmp(small->info.geometry, other->info.geometry, 16) != 0);
    small->ops->close(small);
    other->ops->close(other);
    model_options by_itself = {.path = "dense,ctx=100", .n_seq = 1, .chat_template = "{{ messages }}"};
    CHECK_INT(model_sim_open(&by_itself, &other, NULL, 0), LLM_OK);
    CHECK(other->info.n_ctx == 100 && other->info.n_batch == 512);
    CHECK_STR(other->ops->chat_template(other), "{{ messages }}");
    other->ops->close(other);
}

/* ---- text ---- */

static void any_bytes_come_back(void)
{
    model *m = open_sim("dense");
    random_source random = {7};
    static const char alphabet[] = " the and of<|im_end|>\xc3\xa9\xff\n";
    char text[300], back[300];
    int32_t tokens[300];
    for (int round = 0; round < 2000; round++) {
        size_t n = random_below(&random, sizeof text);
        for (size_t i = 0; i < n; i++) {
            char piece = alphabet[random_below(&random, sizeof alphabet - 1)];
            text[i] = round % 2 == 0 ? (char)random_next(&random) : piece;
        }
        int64_t count = m->ops->tokenize(m, text, n, round % 3 == 0, round % 5 == 0, tokens, 300);
        CHECK(count >= 0);
        size_t at = 0;
        for (int64_t i = 0; i < count; i++) {
            CHECK(round % 5 == 0 || !m->ops->is_control(m, tokens[i]));
            int32_t bytes = m->ops->piece(m, tokens[i], true, back + at, sizeof back - at);
            CHECK(bytes > 0);
            at += (size_t)bytes;
        }
        CHECK_INT(at, n);
        CHECK(memcmp(text, back, n) == 0);
    }
    m->ops->close(m);
}

static void the_longest_piece_wins(void)
{
    model *m = open_sim("dense");
    int32_t tokens[8], few[2];
    char piece[32];
    CHECK_INT(m->ops->tokenize(m, " they and", 9, true, false, tokens, 8), 2); /* not " the", "y" and more */
    CHECK_INT(m->ops->piece(m, tokens[0], false, piece, sizeof piece), 5);
    CHECK(memcmp(piece, " they", 5) == 0);
    CHECK_INT(m->ops->piece(m, tokens[0], false, piece, 4), -5);
    CHECK_INT(m->ops->tokenize(m, "x", 0, true, false, NULL, 0), 0);
    CHECK_INT(m->ops->tokenize(m, "qqq", 3, true, false, few, 2), -3);
    m->ops->close(m);
}

static void control_tokens_come_only_from_trusted_text(void)
{
    model *m = open_sim("dense");
    static const char text[] = "<|im_start|>user\nhello<|im_end|>";
    int32_t tokens[64];
    char piece[32];
    CHECK_INT(m->ops->tokenize(m, text, strlen(text), true, true, tokens, 64), 5);
    CHECK_INT(tokens[0], SIM_TOKEN_TURN_START);
    CHECK_INT(tokens[4], SIM_TOKEN_TURN_END);
    CHECK_INT(tokens[4], m->ops->eos(m));
    CHECK(m->ops->is_end(m, tokens[4]) && m->ops->is_control(m, tokens[4]));
    CHECK(!m->ops->is_end(m, tokens[0]) && m->ops->is_control(m, tokens[0]) && !m->ops->is_control(m, tokens[1]));
    CHECK(m->ops->is_end(m, SIM_TOKEN_END_OF_TEXT));
    CHECK_INT(m->ops->piece(m, tokens[0], false, piece, sizeof piece), 0);
    CHECK_INT(m->ops->piece(m, tokens[0], true, piece, sizeof piece), 12);
    CHECK_INT(m->ops->piece(m, -1, true, piece, sizeof piece), 0);
    CHECK_INT(m->ops->piece(m, (int32_t)m->info.n_vocab, true, piece, sizeof piece), 0);
    CHECK_INT(m->ops->bos(m), -1);
    CHECK(strstr(m->ops->chat_template(m), "<|im_start|>") != NULL);
    m->ops->close(m);
}

/* ---- what it writes ---- */

/* Generates the most likely tokens until the end of the turn, or n_tokens_max tokens. Returns the number of bytes. */
static size_t write_turn(model *m, uint16_t seq, char *out, size_t n_out, uint32_t n_tokens_max, uint32_t *n_tokens,
                         bool *has_ended)
{
    static const char start[] = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n";
    int32_t prompt[64];
    int64_t n = m->ops->tokenize(m, start, strlen(start), true, true, prompt, 64);
    size_t at = 0;
    *n_tokens = 0;
    *has_ended = false;
    if (feed(m, seq, prompt, (uint32_t)n) != MODEL_OK) {
        return 0;
    }
    int32_t token = largest(m, m->ops->logits(m, (uint32_t)n - 1));
    while (*n_tokens < n_tokens_max && m->ops->position(m, seq) < N_CTX) {
        if (m->ops->is_end(m, token)) {
            *has_ended = true;
            break;
        }
        at += (size_t)m->ops->piece(m, token, false, out + at, n_out - at);
        ++*n_tokens;
        token = winner_after(m, seq, token);
    }
    return at;
}

static void it_writes_words_and_whole_characters(void)
{
    model *m = open_sim("dense,length=0");
    char text[8192];
    uint32_t n_tokens, multibyte = 0, spaces = 0;
    bool has_ended;
    size_t n = write_turn(m, 0, text, sizeof text, N_CTX, &n_tokens, &has_ended);
    CHECK(!has_ended);
    CHECK(n_tokens > N_CTX - 20);
    for (size_t at = 0; at < n;) {
        uint8_t lead = (uint8_t)text[at];
        size_t length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
        CHECK(lead < 0x80 || lead >= 0xc2);
        for (size_t i = 1; i < length && at + i < n; i++) { /* the context may end within the last character */
            CHECK(((uint8_t)text[at + i] & 0xc0) == 0x80);
        }
        multibyte += length > 1;
        spaces += lead == ' ';
        at += length;
    }
    CHECK(multibyte >= 3);
    CHECK(spaces > n_tokens / 2);
    m->ops->close(m);
}

static void turns_end_at_about_the_asked_length(void)
{
    model *m = open_sim("dense,length=20");
    char text[8192];
    uint64_t total = 0;
    bool has_ended;
    enum { TURNS = 200 };
    int32_t salt = SIM_TOKEN_WORDS;
    for (int turn = 0; turn < TURNS; turn++, salt = SIM_TOKEN_WORDS + turn % 180) {
        uint32_t n_tokens;
        m->ops->clear(m, 0);
        for (int i = 0; i <= turn / 180; i++) {
            CHECK_INT(feed(m, 0, &salt, 1), MODEL_OK);
        }
        write_turn(m, 0, text, sizeof text, N_CTX, &n_tokens, &has_ended);
        CHECK(has_ended);
        CHECK(n_tokens >= 4);
        total += n_tokens;
    }
    CHECK(total / TURNS > 12 && total / TURNS < 36);
    m->ops->close(m);
}

static void an_incomplete_character_is_completed(void)
{
    model *m = open_sim("dense");
    for (int32_t lead = 0xc2; lead <= 0xf4; lead++) {
        m->ops->clear(m, 0);
        int32_t second = winner_after(m, 0, lead);
        CHECK(second >= 0x80 && second <= 0xbf);
        CHECK(lead != 0xe0 || second >= 0xa0);
        CHECK(lead != 0xed || second <= 0x9f);
        CHECK(lead != 0xf0 || second >= 0x90);
        CHECK(lead != 0xf4 || second <= 0x8f);
        int32_t third = winner_after(m, 0, second);
        CHECK((third >= 0x80 && third <= 0xbf) == (lead >= 0xe0));
    }
    m->ops->close(m);
}

static void there_is_one_winner_and_some_runners_up(void)
{
    model *m = open_sim("dense");
    random_source random = {3};
    for (int round = 0; round < 200; round++) {
        int32_t token = SIM_TOKEN_WORDS + (int32_t)random_below(&random, sim_n_words());
        CHECK_INT(feed(m, 0, &token, 1), MODEL_OK);
        const float *logits = m->ops->logits(m, 0);
        int above = 0;
        for (uint32_t i = 0; i < m->info.n_vocab; i++) {
            above += logits[i] > 3.0f;
            CHECK(logits[i] >= -12.0f && logits[i] <= 8.0f);
        }
        CHECK(above >= 2 && above <= 5);
    }
    m->ops->close(m);
}

/* ---- warm equals cold ---- */

static void check_warm_equals_cold(const char *path)
{
    model *m = open_sim(path);
    random_source random = {11};
    int32_t tokens[300];
    for (int round = 0; round < 100; round++) {
        uint32_t n = 1 + random_below(&random, 300);
        make_tokens(tokens, n, &random);
        m->ops->clear(m, 0);
        m->ops->clear(m, 1);
        CHECK(feed_in_parts(m, 0, tokens, n, &random));
        /* another sequence changes nothing */
        CHECK(feed_in_parts(m, 1, tokens, 1 + random_below(&random, n), &random));
        CHECK_INT(m->ops->position(m, 0), n);
        CHECK(equals_cold(m, 0, tokens, n, tokens[0]));
        tokens[random_below(&random, n)] ^= 1; /* the comparison can fail: a change of any token changes the logits */
        m->ops->clear(m, 0);
        CHECK(feed_in_parts(m, 0, tokens, n, &random));
        tokens[random_below(&random, n)] ^= 2;
        CHECK(!equals_cold(m, 0, tokens, n, tokens[0]));
    }
    m->ops->close(m);
}

static void warm_equals_cold_in_every_class(void)
{
    for (size_t i = 0; i < 4; i++) {
        check_warm_equals_cold(classes[i]);
    }
}

static void one_call_serves_many_sequences(void)
{
    model *m = open_sim("hybrid");
    const int32_t tokens[6] = {300, 301, 302, 300, 301, 400};
    const int32_t positions[6] = {0, 1, 2, 0, 1, 0};
    const uint16_t seqs[6] = {2, 2, 2, 0, 0, 1};
    const uint8_t outputs[6] = {0, 1, 0, 0, 1, 0};
    CHECK_INT(
        m->ops->decode(
            m, &(model_batch){.n = 6, .tokens = tokens, .positions = positions, .seqs = seqs, .outputs = outputs}),
        MODEL_OK);
    CHECK(m->ops->logits(m, 0) == NULL && m->ops->logits(m, 2) == NULL && m->ops->logits(m, 5) == NULL);
    CHECK(m->ops->logits(m, 64) == NULL);
    CHECK(m->ops->logits(m, 1) != NULL && m->ops->logits(m, 4) != NULL);
    CHECK(memcmp(m->ops->logits(m, 1), m->ops->logits(m, 4), 512 * sizeof(float)) == 0);
    CHECK(m->ops->position(m, 0) == 2 && m->ops->position(m, 1) == 1 && m->ops->position(m, 2) == 3);
    m->ops->close(m);
}

/* ---- truncate ---- */

static void dense_rewinds_anywhere(void)
{
    model *m = open_sim("dense");
    random_source random = {5};
    int32_t tokens[300];
    make_tokens(tokens, 300, &random);
    for (int round = 0; round < 100; round++) {
        uint32_t k = 1 + random_below(&random, 300);
        m->ops->clear(m, 0);
        CHECK(feed_in_parts(m, 0, tokens, 300, &random));
        CHECK_INT(m->ops->truncate_floor(m, 0), 1);
        CHECK(m->ops->truncate(m, 0, k));
        CHECK_INT(m->ops->position(m, 0), k);
        CHECK(equals_cold(m, 0, tokens, k, 260));
    }
    m->ops->close(m);
}

static void a_window_rewinds_while_it_covers(void)
{
    model *m = open_sim("window,window=20");
    random_source random = {5};
    int32_t tokens[300];
    make_tokens(tokens, 300, &random);
    CHECK(feed_in_parts(m, 0, tokens, 15, &random));
    CHECK_INT(m->ops->truncate_floor(m, 0), 1); /* all tokens are still in the window */
    CHECK(feed_in_parts(m, 0, tokens + 15, 285, &random));
    CHECK_INT(m->ops->truncate_floor(m, 0), 280);
    CHECK(m->ops->truncate(m, 0, 290));
    CHECK_INT(m->ops->truncate_floor(m, 0), 280); /* truncating restores no state of an earlier token */
    CHECK(m->ops->truncate(m, 0, 280));
    CHECK(equals_cold(m, 0, tokens, 280, 260));
    for (uint32_t k = 1; k < 280; k += 7) {
        m->ops->clear(m, 0);
        CHECK(feed_in_parts(m, 0, tokens, 300, &random));
        CHECK(!m->ops->truncate(m, 0, k));
        CHECK_INT(winner_after(m, 0, 260), SIM_TOKEN_WRONG_STATE);
    }
    m->ops->clear(m, 0);
    CHECK(equals_cold(m, 0, tokens, 0, 260));
    m->ops->close(m);
}

static void check_no_rewind(const char *path)
{
    model *m = open_sim(path);
    random_source random = {5};
    int32_t tokens[100];
    make_tokens(tokens, 100, &random);
    CHECK(feed_in_parts(m, 0, tokens, 100, &random));
    CHECK_INT(m->ops->truncate_floor(m, 0), 100);
    CHECK(m->ops->truncate(m, 0, 100)); /* removes no token */
    CHECK(equals_cold(m, 0, tokens, 100, 260));
    CHECK(!m->ops->truncate(m, 0, 99));
    CHECK_INT(m->ops->position(m, 0), 99);
    for (int i = 0; i < 10; i++) { /* more tokens do not repair the sequence */
        CHECK_INT(winner_after(m, 0, 260 + i), SIM_TOKEN_WRONG_STATE);
    }
    m->ops->clear(m, 0);
    CHECK_INT(m->ops->position(m, 0), 0);
    CHECK(feed_in_parts(m, 0, tokens, 50, &random));
    CHECK(equals_cold(m, 0, tokens, 50, 260));
    m->ops->close(m);
}

static void recurrent_and_hybrid_do_not_rewind(void)
{
    check_no_rewind("recurrent");
    check_no_rewind("hybrid");
}

/* ---- batch rules ---- */

enum { RULE_TOKENS = 4 };

typedef struct rule_batch {
    int32_t tokens[RULE_TOKENS], positions[RULE_TOKENS];
    uint16_t seqs[RULE_TOKENS];
    uint8_t outputs[RULE_TOKENS];
    uint32_t n;
} rule_batch;

static const rule_batch good_batch = {{300, 301, 302, 303}, {3, 4, 0, 1}, {0, 0, 1, 1}, {0, 1, 0, 1}, RULE_TOKENS};

static model_result decode_rule(model *m, const rule_batch *b)
{
    return m->ops->decode(
        m, &(model_batch){
               .n = b->n, .tokens = b->tokens, .positions = b->positions, .seqs = b->seqs, .outputs = b->outputs});
}

static void a_batch_that_breaks_a_rule_changes_nothing(void)
{
    model *m = open_sim("hybrid");
    const int32_t before[3] = {270, 271, 272};
    CHECK_INT(feed(m, 0, before, 3), MODEL_OK);
    rule_batch bad[11];
    for (size_t i = 0; i < 11; i++) {
        bad[i] = good_batch;
    }
    bad[0].n = 0;
    bad[1].tokens[2] = -1;
    bad[2].tokens[2] = 512;
    bad[3].positions[1] = 5; /* a gap */
    bad[4].positions[1] = 3; /* the same position twice */
    bad[5].positions[0] = 2; /* the position of a token that exists */
    bad[6].positions[2] = -1;
    bad[7].seqs[3] = N_SEQ;
    bad[8].seqs[1] = 1; /* the tokens of sequence 0 are not consecutive */
    bad[8].positions[1] = 0;
    bad[8].seqs[2] = 0;
    bad[8].positions[2] = 4;
    bad[9].positions[2] = 1; /* an empty sequence must begin at 0 */
    bad[9].positions[3] = 2;
    bad[10].positions[0] = INT32_MAX;
    for (size_t i = 0; i < 11; i++) {
        if (decode_rule(m, &bad[i]) != MODEL_INVALID) {
            printf("batch %zu was not refused\n", i);
        }
        CHECK_INT(decode_rule(m, &bad[i]), MODEL_INVALID);
        CHECK(m->ops->logits(m, 1) == NULL);
        CHECK(m->ops->position(m, 0) == 3 && m->ops->position(m, 1) == 0);
    }
    CHECK_INT(decode_rule(m, &good_batch), MODEL_OK);
    const int32_t all[5] = {270, 271, 272, 300, 301};
    CHECK(equals_cold(m, 0, all, 5, 260));
    m->ops->close(m);
}

/* Feeds n tokens to sequence 0 in one call, and requests logits after each of the first n_outputs. */
static model_result feed_for_outputs(model *m, const int32_t *tokens, uint32_t n, uint32_t n_outputs)
{
    int32_t positions[64];
    uint16_t seqs[64] = {0};
    uint8_t outputs[64] = {0};
    for (uint32_t i = 0; i < n; i++) {
        positions[i] = (int32_t)(m->ops->position(m, 0) + i);
        outputs[i] = i < n_outputs;
    }
    return m->ops->decode(
        m, &(model_batch){.n = n, .tokens = tokens, .positions = positions, .seqs = seqs, .outputs = outputs});
}

static void a_sequence_may_have_several_outputs(void)
{
    for (size_t i = 0; i < 4; i++) {
        model *m = open_sim(classes[i]);
        const uint32_t n = m->info.n_outputs_max;
        random_source random = {11};
        int32_t tokens[64];
        make_tokens(tokens, 64, &random);
        CHECK_INT(n, N_SEQ + MODEL_OUTPUTS_BESIDE);
        CHECK_INT(feed_for_outputs(m, tokens, n + 1, n + 1), MODEL_INVALID); /* more outputs than allowed */
        CHECK_INT(m->ops->position(m, 0), 0);
        CHECK_INT(feed_for_outputs(m, tokens, n + 1, n), MODEL_OK);
        float *together = malloc(n * m->info.n_vocab * sizeof *together);
        for (uint32_t k = 0; k < n; k++) {
            memcpy(together + k * m->info.n_vocab, m->ops->logits(m, k), m->info.n_vocab * sizeof *together);
        }
        CHECK(m->ops->logits(m, n) == NULL); /* no logits were requested */
        for (uint32_t k = 0; k < n; k++) {
            CHECK_INT(feed(m, 1, tokens + k, 1), MODEL_OK);
            CHECK(memcmp(m->ops->logits(m, 0), together + k * m->info.n_vocab, m->info.n_vocab * sizeof *together) ==
                  0);
        }
        free(together);
        m->ops->close(m);
    }
}

static void batch_and_context_have_an_end(void)
{
    model *m = open_sim("dense");
    int32_t tokens[N_CTX];
    random_source random = {9};
    make_tokens(tokens, N_CTX, &random);
    CHECK_INT(feed(m, 0, tokens, 65), MODEL_INVALID); /* n_batch is only 64 */
    CHECK(feed_in_parts(m, 0, tokens, N_CTX, &random));
    CHECK_INT(feed(m, 0, tokens, 1), MODEL_INVALID);
    CHECK_INT(m->ops->position(m, 0), N_CTX);
    m->ops->close(m);
}

static void cells_run_out_and_come_back(void)
{
    model *m = open_sim("dense,cells=50");
    int32_t tokens[64];
    random_source random = {9};
    make_tokens(tokens, 64, &random);
    CHECK_INT(feed(m, 0, tokens, 30), MODEL_OK);
    CHECK_INT(feed(m, 1, tokens, 21), MODEL_NO_CELLS);
    CHECK_INT(m->ops->position(m, 1), 0);
    CHECK_INT(feed(m, 1, tokens, 20), MODEL_OK);
    CHECK_INT(feed(m, 0, tokens, 1), MODEL_NO_CELLS);
    CHECK(m->ops->truncate(m, 0, 10));
    CHECK_INT(feed(m, 1, tokens, 20), MODEL_OK);
    m->ops->clear(m, 1);
    CHECK_INT(feed(m, 0, tokens + 10, 40), MODEL_OK);
    m->ops->clear(m, 0);
    m->ops->close(m);
}

static void a_budget_is_of_what_is_used(void)
{
    char error[LLM_TEXT_BYTES_MAX] = "";
    model_options o = {.path = "dense,ctx=1000", .n_seq = 2, .n_batch = 64, .kv_bytes_max = 100 * SIM_TOKEN_BYTES + 1};
    model *m = NULL;
    CHECK_INT(model_sim_open(&o, &m, error, sizeof error), LLM_OK);
    CHECK(m->info.n_ctx == 100 && m->info.n_cells == 100 && m->info.state_bytes == 100 * SIM_TOKEN_BYTES);
    int32_t tokens[64];
    random_source random = {9};
    make_tokens(tokens, 64, &random);
    CHECK_INT(m->ops->used_bytes(m), 0);
    CHECK_INT(feed(m, 0, tokens, 60), MODEL_OK);
    CHECK_INT(feed(m, 1, tokens, 41), MODEL_NO_CELLS);
    CHECK_INT(feed(m, 1, tokens, 40), MODEL_OK);
    CHECK_INT(m->ops->used_bytes(m), m->info.state_bytes);
    m->ops->clear(m, 1);
    CHECK_INT(m->ops->used_bytes(m), 60 * SIM_TOKEN_BYTES);
    m->ops->close(m);
    o.n_ctx = 101;
    CHECK_INT(model_sim_open(&o, &m, error, sizeof error), LLM_NO_MEMORY);
    CHECK(strstr(error, "101 tokens (--ctx-size)") != NULL && strstr(error, "enough for 100 tokens") != NULL);
}

static void a_window_costs_more_than_its_tokens(void)
{
    enum { CELLS = 260 };
    char error[LLM_TEXT_BYTES_MAX] = "";
    model_options o = {.path = "window,window=40,window_cells=2,cells=260", .n_seq = 2, .n_batch = 64};
    model *m = NULL;
    CHECK_INT(model_sim_open(&o, &m, error, sizeof error), LLM_OK);
    CHECK_INT(m->info.n_cells, CELLS - 2 * 40);
    CHECK_INT(m->info.state_bytes, CELLS * SIM_TOKEN_BYTES);
    int32_t tokens[64];
    random_source random = {9};
    make_tokens(tokens, 64, &random);
    CHECK_INT(feed(m, 0, tokens, 60), MODEL_OK);
    CHECK_INT(feed(m, 1, tokens, 41), MODEL_NO_CELLS);
    CHECK_INT(feed(m, 1, tokens, 40), MODEL_OK);
    CHECK_INT(m->ops->used_bytes(m), m->info.state_bytes);
    CHECK_INT(m->ops->sequence_bytes(m, 60) + m->ops->sequence_bytes(m, 40), m->info.state_bytes);
    m->ops->clear(m, 0);
    CHECK(m->ops->copy(m, 1, 0));
    CHECK_INT(m->ops->used_bytes(m), 2 * m->ops->sequence_bytes(m, 40));
    m->ops->close(m);
}

/* ---- faults ---- */

/* Sequence 0 gets three tokens, and sequence 2 gets five. The third call adds four tokens to sequence 0, and fails. */
static model *open_and_fail(const char *path, model_result expected)
{
    static const int32_t tokens[8] = {260, 261, 262, 263, 264, 265, 266, 267};
    model *m = open_sim(path);
    bool good = feed(m, 0, tokens, 3) == MODEL_OK && feed(m, 2, tokens, 5) == MODEL_OK;
    if (!good || feed(m, 0, tokens + 3, 4) != expected) {
        printf("%s did not fail as told\n", path);
        m->ops->close(m);
        return NULL;
    }
    return m;
}

static void a_failed_batch_spoils_its_own(void)
{
    for (size_t i = 0; i < 4; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s,fail_at=3", classes[i]);
        model *m = open_and_fail(path, MODEL_FAILED_BATCH);
        CHECK(m != NULL);
        CHECK(m->ops->logits(m, 3) == NULL);
        const int32_t other[5] = {260, 261, 262, 263, 264};
        CHECK(equals_cold(m, 2, other, 5, 270)); /* the other sequence is unchanged */
        CHECK_INT(winner_after(m, 0, 270), SIM_TOKEN_WRONG_STATE);
        m->ops->clear(m, 0);
        CHECK(equals_cold(m, 0, other, 0, 270));
        m->ops->close(m);
    }
}

static void a_failed_model_spoils_all(void)
{
    for (size_t i = 0; i < 4; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s,fail_at=3,fail_kind=all", classes[i]);
        model *m = open_and_fail(path, MODEL_FAILED_ALL);
        CHECK(m != NULL);
        CHECK_INT(winner_after(m, 0, 270), SIM_TOKEN_WRONG_STATE);
        CHECK_INT(winner_after(m, 2, 270), SIM_TOKEN_WRONG_STATE);
        CHECK(equals_cold(m, 1, NULL, 0, 270)); /* an empty sequence cannot become wrong */
        m->ops->clear(m, 2);
        CHECK(equals_cold(m, 2, NULL, 0, 270));
        m->ops->close(m);
    }
}

static void missing_cells_change_nothing(void)
{
    model *m = open_and_fail("hybrid,fail_at=3,fail_kind=cells", MODEL_NO_CELLS);
    CHECK(m != NULL);
    const int32_t tokens[3] = {260, 261, 262};
    CHECK_INT(m->ops->position(m, 0), 3);
    CHECK(equals_cold(m, 0, tokens, 3, 270));
    m->ops->close(m);
}

/* Dense memory stops at a position in the middle. Recurrent memory reports the position at the end, but its state is
 * wrong. */
static void a_step_that_stops_half_way(void)
{
    const int32_t tokens[8] = {260, 261, 262, 263, 264, 265, 266, 267};
    for (size_t i = 0; i < 2; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s,fail_at=3,fail_kind=half", classes[i]);
        model *m = open_and_fail(path, MODEL_FAILED_BATCH);
        CHECK(m != NULL);
        CHECK_INT(m->ops->position(m, 0), 5);
        CHECK(equals_cold(m, 0, tokens, 5, 270));
        CHECK(equals_cold(m, 2, tokens, 5, 270));
        m->ops->close(m);
    }
    for (size_t i = 2; i < 4; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s,fail_at=3,fail_kind=half", classes[i]);
        model *m = open_and_fail(path, MODEL_FAILED_ALL);
        CHECK(m != NULL);
        CHECK_INT(m->ops->position(m, 0), 7);
        CHECK_INT(winner_after(m, 0, 270), SIM_TOKEN_WRONG_STATE);
        CHECK_INT(winner_after(m, 2, 270), SIM_TOKEN_WRONG_STATE);
        m->ops->close(m);
    }
}

static void faults_come_when_told(void)
{
    const int32_t token = 300;
    model *m = open_sim("dense,fail_every=3,fail_kind=cells");
    for (int call = 1; call <= 9; call++) {
        CHECK_INT(feed(m, 0, &token, 1), call % 3 == 0 ? MODEL_NO_CELLS : MODEL_OK);
    }
    m->ops->close(m);
    m = open_sim("dense,fail_seq=1,fail_kind=cells");
    for (int call = 0; call < 4; call++) {
        CHECK_INT(feed(m, 0, &token, 1), MODEL_OK);
        CHECK_INT(feed(m, 1, &token, 1), MODEL_NO_CELLS);
    }
    m->ops->close(m);
    m = open_sim("dense,fail_seq=1,fail_at=2,fail_kind=cells");
    CHECK_INT(feed(m, 1, &token, 1), MODEL_OK);
    CHECK_INT(feed(m, 0, &token, 1), MODEL_OK); /* calls of other sequences do not count */
    CHECK_INT(feed(m, 1, &token, 1), MODEL_NO_CELLS);
    CHECK_INT(feed(m, 1, &token, 1), MODEL_OK);
    m->ops->close(m);
}

static void a_step_takes_the_time_it_is_told(void)
{
    model *m = open_sim("dense,step_us=2000,token_us=1000");
    const int32_t tokens[4] = {300, 301, 302, 303};
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    CHECK_INT(feed(m, 0, tokens, 4), MODEL_OK); /* three of the tokens have no output */
    clock_gettime(CLOCK_MONOTONIC, &after);
    CHECK((after.tv_sec - before.tv_sec) * 1000000 + (after.tv_nsec - before.tv_nsec) / 1000 >= 5000);
    m->ops->close(m);
}

int main(void)
{
    RUN(wrong_options_are_named);
    RUN(facts_follow_the_options);
    RUN(any_bytes_come_back);
    RUN(the_longest_piece_wins);
    RUN(control_tokens_come_only_from_trusted_text);
    RUN(it_writes_words_and_whole_characters);
    RUN(turns_end_at_about_the_asked_length);
    RUN(an_incomplete_character_is_completed);
    RUN(there_is_one_winner_and_some_runners_up);
    RUN(warm_equals_cold_in_every_class);
    RUN(one_call_serves_many_sequences);
    RUN(dense_rewinds_anywhere);
    RUN(a_window_rewinds_while_it_covers);
    RUN(recurrent_and_hybrid_do_not_rewind);
    RUN(a_batch_that_breaks_a_rule_changes_nothing);
    RUN(a_sequence_may_have_several_outputs);
    RUN(batch_and_context_have_an_end);
    RUN(cells_run_out_and_come_back);
    RUN(a_budget_is_of_what_is_used);
    RUN(a_window_costs_more_than_its_tokens);
    RUN(a_failed_batch_spoils_its_own);
    RUN(a_failed_model_spoils_all);
    RUN(missing_cells_change_nothing);
    RUN(a_step_that_stops_half_way);
    RUN(faults_come_when_told);
    RUN(a_step_takes_the_time_it_is_told);
    return CHECK_RESULT();
}
