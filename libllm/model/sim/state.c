/* state.c: computes the next state after a token, and the logits of a state. Pure functions. */
#include <string.h>

#include "model/sim/sim_model.h"

/* splitmix64's finalizer (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

sim_state sim_state_empty(void)
{
    return (sim_state){.hash = UINT64_C(0x6c6c6d642073696d)};
}

/* Records the bytes of an incomplete UTF-8 character in the state. The model uses them to generate valid UTF-8. Only
 * byte tokens can leave a character incomplete, because pieces contain whole characters. */
static void follow_character(sim_state *s, int32_t token)
{
    uint8_t byte = (uint8_t)token;
    bool is_lead = token < 256 && byte >= 0xc2 && byte <= 0xf4;
    bool continues = token < 256 && (byte & 0xc0) == 0x80 && s->n_missing > 0;
    if (continues) {
        s->n_missing--;
    } else {
        s->n_character = 0;
        s->n_missing = !is_lead ? 0 : byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
    }
    if (s->n_missing > 0) {
        s->character[s->n_character++] = byte;
    } else {
        s->n_character = 0;
    }
}

uint64_t sim_state_after(uint64_t hash, int32_t token)
{
    return mix(hash ^ ((uint64_t)(uint32_t)token + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

static void follow_script(const sim_script *script, sim_cue *cue, int32_t token)
{
    char bytes[MODEL_PIECE_BYTES_MAX];
    int32_t n = sim_piece(NULL, token, false, bytes, sizeof bytes);
    if (n > 0) {
        sim_cue_follow(script, cue, bytes, (size_t)n);
    } else {
        sim_cue_break(cue);
    }
}

sim_state sim_state_next(const sim_script *script, const sim_state *s, int32_t token)
{
    sim_state next = *s;
    next.hash = sim_state_after(s->hash, token);
    next.n_since_control = sim_token_is_control(token) ? 0 : s->n_since_control + 1;
    follow_character(&next, token);
    if (script != NULL) {
        follow_script(script, &next.cue, token);
    }
    return next;
}

sim_state sim_state_wrong(const sim_state *s)
{
    sim_state wrong = *s;
    wrong.hash = mix(~s->hash);
    wrong.is_wrong = true;
    return wrong;
}

/* ---- the next token, and the logits ---- */

enum {
    TURN_TOKENS_MIN = 6, /* fewest tokens of a turn; two of them are the role and its line end */
    RUNNERS_UP = 4,
};

/* Of 256 generated tokens, the average numbers of punctuation marks and of first bytes of `characters`. */
enum { PUNCTUATION_SHARE = 24, CHARACTER_SHARE = 10 };

static const char punctuation[] = ".,.,.!?\n";
static const char *const characters[] = {"\xc3\xa9",     "\xc3\xbc",         "\xc3\xb1",        "\xce\xbb",
                                         "\xe2\x80\x94", "\xe2\x82\xac",     "\xe6\x97\xa5",    "\xe6\x9c\xac",
                                         "\xe2\x9c\x93", "\xf0\x9f\x99\x82", "\xf0\x9f\x8e\x89"};
enum { N_CHARACTERS = sizeof characters / sizeof characters[0] };

/* Returns a byte that continues the incomplete character. If possible, returns the next byte of one of `characters`.
 * Otherwise returns any valid byte. */
static int32_t continuation(const sim_state *s)
{
    for (uint64_t i = 0; i < N_CHARACTERS; i++) {
        const char *c = characters[(s->hash + i) % N_CHARACTERS];
        if (memcmp(c, s->character, s->n_character) == 0) {
            return (uint8_t)c[s->n_character];
        }
    }
    if (s->n_character > 1) {
        return 0x80 + (int32_t)(s->hash % 64);
    }
    switch (s->character[0]) { /* after these first bytes, only some second bytes are valid */
    case 0xe0: return 0xa0 + (int32_t)(s->hash % 32);
    case 0xf0: return 0x90 + (int32_t)(s->hash % 48);
    case 0xed: return 0x80 + (int32_t)(s->hash % 32);
    case 0xf4: return 0x80 + (int32_t)(s->hash % 16);
    default: return 0x80 + (int32_t)(s->hash % 64);
    }
}

/* Returns a token of ordinary text: a word, a punctuation mark, or the first byte of one of `characters`. */
static int32_t ordinary(uint64_t hash)
{
    uint64_t kind = hash % 256;
    uint64_t choice = hash >> 8;
    if (kind < CHARACTER_SHARE) {
        return (uint8_t)characters[choice % N_CHARACTERS][0];
    }
    if (kind < CHARACTER_SHARE + PUNCTUATION_SHARE) {
        return punctuation[choice % (sizeof punctuation - 1)];
    }
    return SIM_TOKEN_WORDS + (int32_t)(choice % sim_n_words());
}

static bool turn_is_over(const sim_state *s, uint64_t length)
{
    return length > 0 && s->n_since_control >= TURN_TOKENS_MIN && mix(s->hash + 1) % length == 0;
}

static int32_t winner(const sim_state *s, uint64_t length)
{
    if (s->is_wrong) {
        return SIM_TOKEN_WRONG_STATE;
    }
    if (s->n_missing > 0) {
        return continuation(s);
    }
    return turn_is_over(s, length) ? SIM_TOKEN_TURN_END : ordinary(mix(s->hash));
}

/* The logits of a script's reply are far above all other logits. So the reply is generated at any temperature. The
 * longest piece that continues the reply has the largest logit. The token of the reply's next byte has the second
 * largest logit, and is picked if a constraint forbids the longest piece. */
static bool script_logits(const sim_script *script, const sim_state *s, float *out)
{
    size_t n = 0, n_used;
    const char *rest = s->is_wrong ? NULL : sim_cue_rest(script, &s->cue, &n);
    if (rest == NULL) {
        return false;
    }
    if (n > 0) {
        out[(uint8_t)rest[0]] = 50.0f;
    }
    out[n > 0 ? sim_longest_piece(rest, n, &n_used) : SIM_TOKEN_TURN_END] = 60.0f;
    return true;
}

void sim_state_logits(const sim_script *script, const sim_state *s, uint64_t length, float *out)
{
    float ground = (float)(s->hash >> 44) * 0x1p-20f - 12.0f;
    int32_t order = (int32_t)(s->hash % SIM_VOCABULARY);
    for (int32_t i = 0; i < SIM_VOCABULARY; i++) { /* -12..-10: too small to be sampled, but different for each state */
        out[i] = (float)(i ^ order) * (1.0f / SIM_VOCABULARY) + ground;
    }
    if (script_logits(script, s, out)) {
        return;
    }
    if (s->n_missing == 0 && !s->is_wrong) {
        for (uint32_t i = RUNNERS_UP; i > 0; i--) {
            out[ordinary(mix(s->hash + 1 + i))] = 7.0f - 0.75f * (float)i;
        }
    }
    out[winner(s, length)] = 8.0f;
}
