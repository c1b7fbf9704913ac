/* Tests the set of tokens that a grammar allows next. It must equal the result of checking each token alone, and the
 * result of a simple matcher. Uses random grammars, vocabularies and positions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "mask.h"
#include "random.h"

enum {
    N_VOCAB = 700,
    N_PLAIN = 256, /* the first tokens are the single bytes */
    WORD_BYTES_MAX = 32,
    N_NODES = 64,
    N_GRAMMARS = 160,
    N_STEPS = 6,
    N_DIGITS_MAX = 1 << 15,
    TEXT_BYTES_MAX = N_STEPS * WORD_BYTES_MAX,
    MOST = 99, /* marks a repetition without an upper limit */
};

static random_source source = {20261122};

static uint32_t below(uint32_t n)
{
    return random_below(&source, n);
}

/* ---- vocabularies ---- */

static char words[N_VOCAB][WORD_BYTES_MAX];
static uint8_t word_bytes[N_VOCAB];

static int32_t piece(const model *m, int32_t token, bool special, char *out, size_t n_out)
{
    (void)m;
    (void)special;
    memcpy(out, words[token], word_bytes[token] < n_out ? word_bytes[token] : n_out);
    return word_bytes[token];
}

static bool is_no_token(const model *m, int32_t token)
{
    (void)m;
    (void)token;
    return false;
}

static const model_ops ops = {.piece = piece, .is_end = is_no_token, .is_control = is_no_token};
static model vocabulary = {.ops = &ops, .info = {.n_vocab = N_VOCAB}};

/* Makes tokens of few different characters, so that many have the same beginning. Some end within a character, and some
 * begin within one. */
static void make_vocabulary(void)
{
    static const char *const characters[] = {"a",  "b", "e",  "e",  "\"", "0",       " ",
                                             "\n", "é", "中", "丮", "😀", "\xc2\xa0"};
    for (int32_t token = 0; token < N_VOCAB; token++) {
        size_t n = 0;
        if (token < N_PLAIN) {
            words[token][n++] = (char)token;
        }
        for (uint32_t left = token < N_PLAIN ? 0 : 1 + below(6); left > 0; left--) {
            const char *c = characters[below(sizeof characters / sizeof *characters)];
            memcpy(words[token] + n, c, strlen(c));
            n += strlen(c);
        }
        if (n > 1 && below(8) == 0) {
            n--;
        }
        if (n > 1 && below(8) == 0) {
            memmove(words[token], words[token] + 1, --n);
        }
        word_bytes[token] = (uint8_t)n;
    }
    for (size_t i = 0; i < sizeof vocabulary.info.identity; i++) {
        vocabulary.info.identity[i] = (uint8_t)below(256);
    }
}

/* ---- grammars ---- */

typedef enum kind { SET, SEQUENCE, CHOICE, REPETITION, NESTED } kind;

typedef struct range {
    uint32_t low, high;
} range;

typedef struct node {
    kind is;
    bool is_negated;
    uint32_t n; /* number of ranges (SET) or parts (others) */
    range ranges[3];
    uint32_t parts[3];
    uint32_t least, most;
} node;

static node nodes[N_NODES];
static uint32_t n_nodes;

static uint32_t any_character(void)
{
    static const uint32_t characters[] = {'a',  'b',  'e',    '"',    '0',     ' ', '\n',
                                          0xa0, 0xe9, 0x4e2d, 0x4e2e, 0x1f600, 0x7f};
    return characters[below(sizeof characters / sizeof *characters)];
}

static void make_set(node *set)
{
    set->n = 1 + below(3);
    set->is_negated = below(2) == 0;
    for (uint32_t i = 0; i < set->n; i++) {
        const uint32_t a = any_character(), b = below(3) == 0 ? any_character() : a;
        set->ranges[i] = (range){a < b ? a : b, a < b ? b : a};
    }
}

static uint32_t make_node(uint32_t depth)
{
    const uint32_t at = n_nodes++;
    node made = {.is = depth == 0 || n_nodes > N_NODES - 12 ? SET : (kind)below(NESTED + 1)};
    made.n = made.is == REPETITION || made.is == NESTED ? 1 : 1 + below(3);
    if (made.is == SET) {
        make_set(&made);
    }
    for (uint32_t i = 0; made.is != SET && i < made.n; i++) {
        made.parts[i] = make_node(depth - 1);
    }
    made.least = below(3);
    made.most = below(2) == 0 ? MOST : made.least + 1 + below(6);
    nodes[at] = made;
    return at;
}

/* Writes a rule for each node. A NESTED node is its part within any number of brackets, "0" and "a". */
static void write_node(FILE *out, uint32_t at)
{
    const node *it = &nodes[at];
    fprintf(out, at == 0 ? "root ::= " : "n%u ::= ", at);
    if (it->is == SET) {
        fprintf(out, it->is_negated ? "[^" : "[");
        for (uint32_t i = 0; i < it->n; i++) {
            fprintf(out, "\\U%08x-\\U%08x", it->ranges[i].low, it->ranges[i].high);
        }
        fprintf(out, "]\n");
        return;
    }
    if (it->is == REPETITION) {
        fprintf(out, it->most == MOST ? "n%u{%u,}\n" : "n%u{%u,%u}\n", it->parts[0], it->least, it->most);
    } else if (it->is == NESTED) {
        fprintf(out, at == 0 ? "n%u | \"0\" root \"a\"\n" : "n%u | \"0\" n%u \"a\"\n", it->parts[0], at);
    } else {
        for (uint32_t i = 0; i < it->n; i++) {
            fprintf(out, it->is == CHOICE && i > 0 ? "| n%u " : "n%u ", it->parts[i]);
        }
        fprintf(out, "\n");
    }
    for (uint32_t i = 0; i < it->n; i++) {
        write_node(out, it->parts[i]);
    }
}

static char *random_grammar(void)
{
    char *text = NULL;
    size_t n_bytes = 0;
    n_nodes = 0;
    (void)make_node(4);
    FILE *out = open_memstream(&text, &n_bytes);
    write_node(out, 0);
    fclose(out);
    return text;
}

/* ---- a plain matcher ---- */

typedef struct text {
    uint32_t n;                    /* number of whole characters */
    uint32_t at[TEXT_BYTES_MAX];   /* the characters */
    uint32_t least, most;          /* the range of the characters that the incomplete character at the end can become */
    bool is_cut, is_text, is_open; /* is_open: an allowed character can follow, or can complete the incomplete one */
} text;

static uint32_t bytes_of(uint8_t first)
{
    return first < 0x80                    ? 1
           : first >= 0xf0 && first < 0xf5 ? 4
           : first >= 0xe0                 ? 3
           : first >= 0xc2 && first < 0xe0 ? 2
                                           : 0;
}

/* Returns whether c is a character that needs n_bytes bytes. */
static bool is_character(uint32_t c, uint32_t n_bytes)
{
    static const uint32_t shortest[] = {0, 0, 0x80, 0x800, 0x10000};
    return c >= shortest[n_bytes] && c <= 0x10ffff && (c < 0xd800 || c > 0xdfff);
}

static text read_text(const char *bytes, size_t n_bytes)
{
    text t = {.is_text = true};
    for (size_t i = 0; i < n_bytes && t.is_text;) {
        const uint8_t first = (uint8_t)bytes[i];
        const uint32_t n = first >= 0xf5 ? 0 : bytes_of(first);
        uint32_t c = n == 1 ? first : first & (0x3fu >> (n > 1 ? n - 1 : 0)), k = 1;
        for (; k < n && i + k < n_bytes && ((uint8_t)bytes[i + k] & 0xc0) == 0x80; k++) {
            c = c << 6 | ((uint8_t)bytes[i + k] & 0x3f);
        }
        const uint32_t n_missing = n > k ? n - k : 0;
        t.is_cut = n_missing > 0 && i + k == n_bytes;
        t.least = c << 6 * n_missing;
        t.most = t.least | ((1u << 6 * n_missing) - 1);
        while (t.is_cut && t.least <= t.most && !is_character(t.least, n)) {
            t.least++;
        }
        while (t.is_cut && t.most > t.least && !is_character(t.most, n)) {
            t.most--;
        }
        t.is_text = n > 0 && (t.is_cut ? t.least <= t.most : k == n && is_character(c, n));
        if (t.is_text && !t.is_cut) {
            t.at[t.n++] = c;
        }
        i += n > 0 ? n : 1;
    }
    return t;
}

static bool has(const node *set, uint32_t c)
{
    bool is_in = false;
    for (uint32_t i = 0; i < set->n; i++) {
        is_in = is_in || (set->ranges[i].low <= c && c <= set->ranges[i].high);
    }
    return is_in != set->is_negated;
}

/* Returns whether the set contains a character from `low` to `high`. It is enough to look at `low` and at characters
 * where a range begins or ends. */
static bool has_one(const node *set, uint32_t low, uint32_t high)
{
    bool is_any = has(set, low);
    for (uint32_t i = 0; i < set->n; i++) {
        const uint32_t first = set->ranges[i].low, next = set->ranges[i].high + 1;
        is_any = is_any || (low <= first && first <= high && has(set, first));
        is_any = is_any || (low <= next && next <= high && has(set, next));
    }
    return is_any;
}

/* The places where a match can end, as a flag for each place in the text. */
typedef struct ends {
    bool at[TEXT_BYTES_MAX + 1];
    bool is_any;
} ends;

static void match(uint32_t at, text *t, const ends *from, ends *to);

static void match_characters(const node *set, text *t, const ends *from, ends *to)
{
    for (uint32_t i = 0; i <= t->n; i++) {
        if (!from->at[i]) {
            continue;
        }
        if (i < t->n) {
            to->at[i + 1] = to->at[i + 1] || has_one(set, t->at[i], t->at[i]);
            to->is_any = to->is_any || to->at[i + 1];
        } else {
            t->is_open = t->is_open || !t->is_cut || has_one(set, t->least, t->most);
        }
    }
}

static void add_ends(ends *to, const ends *more)
{
    for (size_t i = 0; i <= TEXT_BYTES_MAX; i++) {
        to->at[i] = to->at[i] || more->at[i];
    }
    to->is_any = to->is_any || more->is_any;
}

static bool is_same(const ends *a, const ends *b)
{
    return memcmp(a->at, b->at, sizeof a->at) == 0;
}

static void match_repeated(const node *it, text *t, const ends *from, ends *to)
{
    ends now = *from;
    for (uint32_t k = 0; now.is_any; k++) {
        ends next = {0}, before = *to;
        if (k >= it->least) {
            add_ends(to, &now);
        }
        if (k >= it->most || (k > it->least + t->n + 1 && is_same(&before, to))) {
            return;
        }
        match(it->parts[0], t, &now, &next);
        now = next;
    }
}

static void match_nested(uint32_t at, text *t, const ends *from, ends *to)
{
    static const node open = {.is = SET, .n = 1, .ranges = {{'0', '0'}}},
                      close = {.is = SET, .n = 1, .ranges = {{'a', 'a'}}};
    ends opened = {0}, inner = {0};
    match(nodes[at].parts[0], t, from, to);
    match_characters(&open, t, from, &opened);
    if (opened.is_any) {
        match_nested(at, t, &opened, &inner);
        match_characters(&close, t, &inner, to);
    }
}

static void match(uint32_t at, text *t, const ends *from, ends *to)
{
    const node *it = &nodes[at];
    if (it->is == SET) {
        match_characters(it, t, from, to);
    } else if (it->is == REPETITION) {
        match_repeated(it, t, from, to);
    } else if (it->is == NESTED) {
        match_nested(at, t, from, to);
    } else if (it->is == CHOICE) {
        for (uint32_t i = 0; i < it->n; i++) {
            match(it->parts[i], t, from, to);
        }
    } else {
        ends now = *from;
        for (uint32_t i = 0; i < it->n; i++) {
            ends next = {0};
            match(it->parts[i], t, &now, &next);
            now = next;
        }
        add_ends(to, &now);
    }
}

/* Returns whether a text of the grammar begins with these bytes. */
static bool is_beginning(const char *bytes, size_t n_bytes)
{
    text t = read_text(bytes, n_bytes);
    ends from = {.at = {true}, .is_any = true}, to = {0};
    if (!t.is_text) {
        return false;
    }
    match(0, &t, &from, &to);
    return t.is_open || (!t.is_cut && to.at[t.n]);
}

/* ---- */

static uint32_t n_compared, n_allowed, n_guessed, n_without_memory;

static bool has_blank(const char *bytes, size_t n)
{
    return memchr(bytes, ' ', n) != NULL || memchr(bytes, '\n', n) != NULL;
}

/* A guess continues to a text of the grammar. Each token that can come next agrees with the bytes of the guess, apart
 * from blanks. A guess does not change the walk, because `compare` then finds the same tokens. */
static void check_guess(mask *k, const char *so_far, size_t n_so_far, const bool *allowed)
{
    static char whole[TEXT_BYTES_MAX + WORD_BYTES_MAX];
    memcpy(whole, so_far, n_so_far);
    const char *guess = whole + n_so_far;
    const size_t n = mask_guess(k, whole + n_so_far, WORD_BYTES_MAX);
    CHECK(n == 0 || is_beginning(whole, n_so_far + n));
    for (int32_t token = 0; token < N_VOCAB; token++) {
        const size_t n_least = word_bytes[token] < n ? word_bytes[token] : n;
        CHECK(!allowed[token] || has_blank(guess, n) || has_blank(words[token], word_bytes[token]) ||
              memcmp(guess, words[token], n_least) == 0);
    }
    n_guessed += n > 0;
}

static void compare(mask *k, const char *so_far, size_t n_so_far, bool *allowed, const char *grammar)
{
    static char whole[TEXT_BYTES_MAX + WORD_BYTES_MAX];
    memcpy(whole, so_far, n_so_far);
    /* a guess that runs out of memory does not change the walk either */
    for (uint32_t n = 0; !mask_guess_within(k, n); n++) {
        n_without_memory++;
    }
    mask_find(k, allowed);
    check_guess(k, so_far, n_so_far, allowed);
    mask_find(k, allowed);
    for (int32_t token = 0; token < N_VOCAB; token++) {
        memcpy(whole + n_so_far, words[token], word_bytes[token]);
        const bool is_wanted = is_beginning(whole, n_so_far + word_bytes[token]);
        if (allowed[token] != is_wanted) {
            printf("%s\"%.*s\", then \"%.*s\"\n", grammar, (int)n_so_far, so_far, word_bytes[token], words[token]);
        }
        CHECK(allowed[token] == is_wanted);
        CHECK(mask_allows(k, token) == is_wanted);
        n_compared++;
        n_allowed += is_wanted;
    }
}

/* Returns an allowed token, or -1 if there is none. */
static int32_t any_of(const bool *allowed)
{
    const int32_t first = (int32_t)below(N_VOCAB);
    for (int32_t i = 0; i < N_VOCAB; i++) {
        const int32_t token = (first + i) % N_VOCAB;
        if (allowed[token]) {
            return token;
        }
    }
    return -1;
}

static void walk(const char *grammar)
{
    char so_far[TEXT_BYTES_MAX];
    size_t n_so_far = 0;
    bool allowed[N_VOCAB];
    mask *k = mask_open(&vocabulary, grammar);
    for (int step = 0; k != NULL && step < N_STEPS; step++) {
        compare(k, so_far, n_so_far, allowed, grammar);
        const int32_t token = any_of(allowed);
        if (token < 0) {
            break;
        }
        CHECK(mask_accept(k, token));
        memcpy(so_far + n_so_far, words[token], word_bytes[token]);
        n_so_far += word_bytes[token];
    }
    mask_close(k);
}

static void all_at_once_as_one_by_one(void)
{
    for (int i = 0; i < N_GRAMMARS; i++) {
        if (i % 8 == 0) {
            make_vocabulary();
        }
        char *grammar = random_grammar();
        walk(grammar);
        free(grammar);
    }
    CHECK(n_compared > 2 * N_GRAMMARS * N_VOCAB && n_allowed > n_compared / 100 && n_guessed > 20 &&
          n_without_memory > 20);
}

static bool allows_digits(uint32_t n, bool is_guessed)
{
    static char digits[N_DIGITS_MAX];
    memset(digits, '7', n);
    mask *k = mask_open(&vocabulary, "root ::= a{300,400}\na ::= \"7\"{1,30}");
    const bool is_allowed = mask_accept_text(k, digits, n, is_guessed);
    mask_close(k);
    return is_allowed;
}

/* Learning how an answer writes blanks also takes work. This must not make an answer fail that is just within the
 * limit. */
static void guesses_forbid_no_text(void)
{
    uint32_t n_right = 1, n_wrong = N_DIGITS_MAX;
    CHECK(allows_digits(n_right, false) && !allows_digits(n_wrong, false));
    while (n_wrong - n_right > 1) {
        const uint32_t n = (n_right + n_wrong) / 2;
        *(allows_digits(n, false) ? &n_right : &n_wrong) = n;
    }
    CHECK(allows_digits(n_right, true));
}

int main(void)
{
    RUN(all_at_once_as_one_by_one);
    RUN(guesses_forbid_no_text);
    return CHECK_RESULT();
}
