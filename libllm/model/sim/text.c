/* text.c: vocabulary, encoder and template of the simulated model. Their tables are immutable after sim_text_open, so
 * any thread can use them. */
#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "model/sim/sim_model.h"

/* ---- vocabulary: 256 bytes, three control tokens, the token " WRONG-STATE", then these pieces ---- */

static const char *const controls[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
enum { N_CONTROLS = sizeof controls / sizeof controls[0] };

static const char wrong_state[] = " WRONG-STATE";

/* The words that the model generates. */
static const char *const words[] = {
    " the",    " of",        " and",      " to",     " in",     " is",      " that",    " for",     " it",    " as",
    " with",   " on",        " be",       " at",     " by",     " this",    " had",     " not",     " are",   " but",
    " from",   " or",        " have",     " an",     " they",   " which",   " one",     " you",     " were",  " her",
    " all",    " she",       " there",    " would",  " their",  " we",      " him",     " been",    " has",   " when",
    " who",    " will",      " more",     " no",     " if",     " out",     " so",      " said",    " what",  " up",
    " its",    " about",     " into",     " than",   " them",   " can",     " only",    " other",   " new",   " some",
    " could",  " time",      " these",    " two",    " may",    " then",    " do",      " first",   " any",   " my",
    " now",    " such",      " like",     " our",    " over",   " man",     " me",      " even",    " most",  " made",
    " after",  " also",      " did",      " many",   " before", " must",    " through", " back",    " years", " where",
    " much",   " your",      " way",      " well",   " down",   " should",  " because", " each",    " just",  " those",
    " people", " how",       " too",      " little", " state",  " good",    " very",    " make",    " world", " still",
    " own",    " see",       " men",      " work",   " long",   " get",     " here",    " between", " both",  " life",
    " being",  " under",     " never",    " day",    " same",   " another", " know",    " while",   " last",  " might",
    " us",     " great",     " old",      " year",   " off",    " come",    " since",   " against", " go",    " came",
    " right",  " used",      " take",     " three",  " small",  " found",   " house",   " light",   " river", " number",
    " always", " water",     " city",     " part",   " place",  " put",     " kind",    " hand",    " high",  " every",
    " near",   " night",     " open",     " seem",   " side",   " mind",    " eat",     " began",   " idea",  " story",
    " cut",    " real",      " list",     " turn",   " walk",   " example", " ease",    " paper",   " group", " often",
    " run",    " important", " children", " car",    " white",  " sea",     " draw",    " left",
};
enum { N_WORDS = sizeof words / sizeof words[0] };

/* Pieces that the encoder uses, but the model never writes. */
static const char *const fragments[] = {
    "ing",    "ed",   "er",    "ly",    "tion",  "ment",    "ness", "able",   "al",       "est",     "ous",
    "ive",    "The",  "This",  "That",  "There", "It",      "In",   "What",   "When",     "How",     "Why",
    "Yes",    "No",   "And",   "But",   "For",   "You",     "We",   "He",     "She",      "user",    "assistant",
    "system", "tool", "hello", "world", "name",  "content", "role", "answer", "question", "session", "token",
    "model",  "  ",   "    ",  "\n\n",  ". ",    ", ",      "; ",   ": ",     "? ",       "! ",      "'s",
    "n't",    "...",  "--",    "](",    "```",   "()",      "==",   "\": \"", "\", \"",
};
enum { N_FRAGMENTS = sizeof fragments / sizeof fragments[0] };

_Static_assert(SIM_TOKEN_WORDS + N_WORDS + N_FRAGMENTS == SIM_VOCABULARY, "every id has its piece");

uint32_t sim_n_words(void)
{
    return N_WORDS;
}

bool sim_token_is_control(int32_t token)
{
    return token >= SIM_TOKEN_END_OF_TEXT && token < SIM_TOKEN_END_OF_TEXT + N_CONTROLS;
}

/* Returns the text of a token that is not a single byte. */
static const char *piece_text(int32_t token)
{
    assert(token >= 256 && token < SIM_VOCABULARY);
    if (token < SIM_TOKEN_WRONG_STATE) {
        return controls[token - SIM_TOKEN_END_OF_TEXT];
    }
    if (token == SIM_TOKEN_WRONG_STATE) {
        return wrong_state;
    }
    int32_t i = token - SIM_TOKEN_WORDS;
    return i < N_WORDS ? words[i] : fragments[i - N_WORDS];
}

uint32_t sim_token_bytes_max(void)
{
    size_t longest = 1;
    for (int32_t token = 256; token < SIM_VOCABULARY; token++) {
        const size_t n = strlen(piece_text(token));
        longest = n > longest ? n : longest;
    }
    return (uint32_t)longest;
}

int32_t sim_piece(const model *m, int32_t token, bool special, char *out, size_t n_out)
{
    (void)m;
    if (token < 0 || token >= SIM_VOCABULARY || (sim_token_is_control(token) && !special)) {
        return 0;
    }
    char byte = (char)token;
    const char *text = token < 256 ? &byte : piece_text(token);
    int32_t n = token < 256 ? 1 : (int32_t)strlen(text);
    if ((size_t)n > n_out) {
        return -n;
    }
    memcpy(out, text, (size_t)n);
    return n;
}

/* ---- encoder: a trie over the pieces that are not control tokens ---- */

enum { TRIE_NODES_MAX = 4096 };

typedef struct trie_node {
    uint16_t child; /* first child, or 0 */
    uint16_t next;  /* next sibling, or 0 */
    int16_t token;  /* the token that ends at this node, or -1 */
    uint8_t byte;
} trie_node;

static trie_node trie[TRIE_NODES_MAX]; /* node 0 is the root */
static uint32_t n_trie;

static uint16_t trie_child(uint16_t parent, uint8_t byte)
{
    uint16_t at = trie[parent].child;
    while (at != 0 && trie[at].byte != byte) {
        at = trie[at].next;
    }
    return at;
}

static void trie_add(const char *text, int32_t token)
{
    uint16_t at = 0;
    for (; *text != '\0'; text++) {
        uint16_t child = trie_child(at, (uint8_t)*text);
        if (child == 0) {
            assert(n_trie < TRIE_NODES_MAX);
            child = (uint16_t)n_trie++;
            trie[child] = (trie_node){.next = trie[at].child, .token = -1, .byte = (uint8_t)*text};
            trie[at].child = child;
        }
        at = child;
    }
    trie[at].token = (int16_t)token;
}

static void trie_build(void)
{
    n_trie = 1;
    trie[0].token = -1;
    for (int32_t token = SIM_TOKEN_WRONG_STATE; token < SIM_VOCABULARY; token++) {
        trie_add(piece_text(token), token);
    }
}

void sim_text_open(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, trie_build);
}

/* Returns the longest piece at the start of the text, or the text's first byte if no piece matches. */
int32_t sim_longest_piece(const char *text, size_t n, size_t *n_used)
{
    int32_t token = (uint8_t)text[0];
    uint16_t at = 0;
    *n_used = 1;
    for (size_t i = 0; i < n; i++) {
        at = trie_child(at, (uint8_t)text[i]);
        if (at == 0) {
            break;
        }
        if (trie[at].token >= 0) {
            token = trie[at].token;
            *n_used = i + 1;
        }
    }
    return token;
}

static int32_t control_at(const char *text, size_t n, size_t *n_used)
{
    for (int32_t i = 0; i < N_CONTROLS; i++) {
        *n_used = strlen(controls[i]);
        if (*n_used <= n && memcmp(controls[i], text, *n_used) == 0) {
            return SIM_TOKEN_END_OF_TEXT + i;
        }
    }
    return -1;
}

int64_t sim_tokenize(const model *m, const char *text, size_t n_bytes, bool add_special, bool parse_special,
                     int32_t *out, size_t n_out)
{
    (void)m;
    (void)add_special; /* this vocabulary has no token to add */
    size_t count = 0;
    for (size_t at = 0; at < n_bytes;) {
        size_t n_used = 0;
        int32_t token = parse_special && text[at] == '<' ? control_at(text + at, n_bytes - at, &n_used) : -1;
        if (token < 0) {
            token = sim_longest_piece(text + at, n_bytes - at, &n_used);
        }
        if (count < n_out) {
            out[count] = token;
        }
        count++;
        at += n_used;
    }
    return count <= n_out ? (int64_t)count : -(int64_t)count;
}

/* ---- template ---- */

const char sim_chat_template[] = "{%- for message in messages -%}\n"
                                 "{{- '<|im_start|>' + message.role + '\\n' -}}\n"
                                 "{%- if message.content -%}{{- message.content -}}{%- endif -%}\n"
                                 "{{- '<|im_end|>\\n' -}}\n"
                                 "{%- endfor -%}\n"
                                 "{%- if add_generation_prompt -%}\n"
                                 "{{- '<|im_start|>assistant\\n' -}}\n"
                                 "{%- endif -%}\n";
