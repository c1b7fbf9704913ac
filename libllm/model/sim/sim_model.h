/* sim_model.h: the simulated model, and its manual. The model is deterministic and has no weights. Used only in this
 * folder.
 *
 *   sim:CLASS[,option=value...]       CLASS is dense, window, recurrent, hybrid or none
 *
 * With this model every property of sessions can be tested in milliseconds. The state of a sequence is a hash chain
 * over exactly the tokens that the sequence has consumed, and the logits depend on the state alone. If a sequence has
 * the state of tokens that it has not consumed, the model generates other text, so a test notices the error at once. If
 * the model itself detects the error, the token " WRONG-STATE" has the largest logit from then on.
 *
 * What a sequence stores, by memory class (as llama.cpp does for models of this class):
 *   dense      the state after every token is kept, so truncating is always exact
 *   window     the states after the last `window` tokens are kept, so truncating within these tokens is exact
 *   recurrent  one state, so truncating is impossible
 *   hybrid     a dense part and a recurrent part, which must have consumed the same tokens
 *   none       no memory: the model only computes embeddings. Every decode call is invalid, and there is no chat
 *              template
 * If an exact truncation is impossible, `truncate` returns false and leaves a wrong state.
 *
 * A saved state of kind "full" contains the whole state. A checkpoint contains these parts, as in llama.cpp:
 *   dense      the whole state
 *   recurrent  the whole state
 *   window     the states after the last `window` tokens
 *   hybrid     the recurrent part
 * A checkpoint of class window or hybrid must be loaded on a sequence whose attention part holds the same tokens. On
 * any other sequence, loading succeeds, but the state becomes wrong. The state also becomes wrong if a failed call made
 * the sequence wrong when the sequence had more tokens than the checkpoint.
 *
 * A saved state does not contain its tokens. So the state of another prefix is loaded without an error. Loading is
 * refused if the saved state's header (saved.c), class, kind, number of tokens or length is not the expected one. A
 * copy shares its cells with the source until the copy or the source is truncated or cleared. With model_options.exact,
 * the copy has its own cells from the start.
 *
 * Text: The vocabulary has a token for each of the 256 bytes, three control tokens (<|endoftext|>, <|im_start|>,
 * <|im_end|>) and common English words and parts of words (pieces). The encoder chooses the longest piece at each
 * position, and is exactly reversible for any bytes. There is no BOS, EOS is <|im_end|>, and the template is ChatML.
 * The model writes mostly words, sometimes punctuation, and sometimes a character of two to four bytes as byte tokens.
 * One token always has a clearly largest logit, and four tokens have the next largest.
 *
 * Options, with their defaults in parentheses (all values are integers, except those of script and fail_kind; unknown
 * options and invalid values are refused):
 *   ctx=N        training context in tokens, 1..1048576 (4096)
 *   cells=N      KV cells shared by all sequences, 1..4294967294 (room for every sequence, within the budget;
 *                recurrent: no limit)
 *   window=N     tokens in the sliding window, 1..1048576 (64); sim:window only
 *   window_cells=N
 *                N additional cells for each of the first `window` tokens of a sequence, like the cells that a real
 *                model's layers with a sliding window take, 0..64 (0); sim:window only. With N > 0, a copy of a
 *                sequence has its own cells
 *   batch=N      most tokens of one decode call, 1..65536 (n_batch of model_options, or 512 if that is 0)
 *   state_kb=N   a saved state takes at least this many KiB, 0..1048576 (0)
 *   layout=N     layout of states in memory; states that were saved with another N cannot be loaded, 0..255 (0)
 *   script=FILE  a file of triggers and replies (script.h); no comma in the path (none)
 *   length=N     mean length of a turn in tokens, 0..1000000; 0: the model never ends a turn (48)
 *   step_us=N    a decode call takes at least this long, 0..60000000 (0)
 *   token_us=N   a decode call takes this much longer for each token without output, 0..1000000 (0)
 *   embed=N      length of an embedding vector, 0..4096; 0: no embeddings (0). A batch of texts takes step_us, and
 *                token_us for each token
 *   fim=N        1: the three control tokens are prefix, suffix and middle of fill-in-the-middle, in the order above,
 *                0..1 (0)
 *   fail_at=N    the N-th decode call fails, counted from 1 (none)
 *   fail_every=N every N-th decode call fails (none)
 *   fail_seq=S   fail_at and fail_every count only calls with tokens of sequence S; without these two options, every
 *                call with tokens of S fails
 *   fail_kind=K  what a failed call does (batch):
 *                batch  the sequences in the call become wrong; MODEL_FAILED_BATCH
 *                all    every sequence that holds tokens becomes wrong; MODEL_FAILED_ALL
 *                cells  nothing changes; MODEL_NO_CELLS
 *                half   dense and window: the first half of the tokens stays consumed; MODEL_FAILED_BATCH. recurrent
 *                       and hybrid: positions advance by all tokens, and the states of all sequences become wrong;
 *                       MODEL_FAILED_ALL
 */
#ifndef LLM_MODEL_SIM_H
#define LLM_MODEL_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/model.h"
#include "model/shared_prefixes.h"
#include "model/sim/script.h"

/* ---- options: options.c ---- */

typedef enum sim_fail_kind { SIM_FAIL_BATCH, SIM_FAIL_ALL, SIM_FAIL_CELLS, SIM_FAIL_HALF } sim_fail_kind;

#define SIM_UNSET UINT64_MAX

/* Each KV cell takes this many bytes of the budget (kv_bytes_max). In a recurrent model, a whole sequence takes this
 * many bytes. */
enum { SIM_TOKEN_BYTES = 64 };

typedef struct sim_options {
    llm_memory memory;
    uint64_t ctx, cells, window, window_cells, batch, state_kb, layout, length, step_us, token_us, fail_at, fail_every,
        fail_seq, fim, embed;
    sim_fail_kind fail_kind;
    char script[512]; /* "" if there is no script */
} sim_options;

/* Parses "CLASS[,option=value...]". Returns LLM_OK, or LLM_INVALID with a message that names the option and its
 * possible values. */
int sim_options_read(const char *text, sim_options *out, char *error, size_t error_bytes);

/* ---- the state after tokens, and its logits: state.c ---- */

/* The state after a prefix of tokens. Equal prefixes give equal states in all memory classes. */
typedef struct sim_state {
    uint64_t hash;
    uint32_t n_since_control; /* tokens since the last control token, which is the position in the turn */
    uint8_t character[3];     /* bytes of an incomplete UTF-8 character */
    uint8_t n_character;
    uint8_t n_missing; /* number of bytes that the incomplete character still needs */
    bool is_wrong;     /* true for a wrong state, which is not the state after any tokens */
    sim_cue cue;       /* all zero without a script */
} sim_state;

sim_state sim_state_empty(void);
sim_state sim_state_next(const sim_script *script, const sim_state *s, int32_t token); /* script can be NULL */
sim_state sim_state_wrong(const sim_state *s);
uint64_t sim_state_after(uint64_t hash, int32_t token); /* the hash of the next state; the same token after two
                                                         * different hashes gives two different hashes */

/* Computes the SIM_VOCABULARY logits of the state. `length` is the value of the option of this name. */
void sim_state_logits(const sim_script *script, const sim_state *s, uint64_t length, float *out);

/* ---- memory and decode: memory.c ---- */

/* One sequence. `kept` is a ring. The state after k tokens is at k % n_kept, if k >= oldest. A checkpoint saves only a
 * part of a sequence of class hybrid or window. The other part is the attention part: `kept` for hybrid, `attention`
 * for window. */
typedef struct sim_sequence {
    uint32_t position; /* number of tokens in the attention part, or in the only part */
    uint32_t oldest;   /* smallest k for which the state after k tokens is kept */
    uint32_t sound;    /* 0, or the position at which the sequence was last made wrong. If a checkpoint of fewer tokens
                        * is loaded, the sequence becomes wrong again */
    sim_state *kept;
    uint64_t *attention;    /* for window only, the hash after each number of tokens */
    sim_state recurrent;    /* only for class hybrid */
    uint64_t seen_call;     /* number of the last decode call with tokens of this sequence */
    uint32_t next_position; /* position that the sequence's next token in this call must have */
} sim_sequence;

typedef struct sim_model {
    model base;
    sim_options options;
    uint32_t n_kept;  /* number of states that are kept for each sequence */
    uint32_t n_cells; /* UINT32_MAX for no limit */
    sim_sequence *sequences;
    sim_state *states;    /* memory for the rings `kept` of all sequences */
    uint64_t *attentions; /* memory for the arrays `attention` of all sequences */
    shared_prefixes shared;
    uint64_t n_calls;   /* number of decode calls */
    uint64_t n_counted; /* number of decode calls that fail_at and fail_every count */
    float *logits;      /* n_outputs_max rows of SIM_VOCABULARY logits */
    /* the states of a recurrent or hybrid sequence after each token of the last call, if the call contained drafts */
    sim_state after_call[MODEL_OUTPUTS_BESIDE + 1];
    uint32_t n_after_call; /* 0 if the call contained no drafts, or if the sequence has changed after the call */
    uint16_t drafted_seq;
    int32_t *row_of; /* for each batch index of the last successful call, its row in `logits`, or -1. The array has
                           * n_batch entries */
    uint32_t n_rows;
    sim_script *script; /* NULL for no script */
    const char *chat_template;
    char *own_template; /* copy of the caller's template */
} sim_model;

static inline sim_model *sim_of(model *m)
{
    return (sim_model *)m;
}

static inline const sim_model *sim_of_const(const model *m)
{
    return (const sim_model *)m;
}

model_result sim_decode(model *m, const model_batch *batch);
float *sim_logits(model *m, uint32_t i);
uint32_t sim_truncate_floor(const model *m, uint16_t seq);
bool sim_truncate(model *m, uint16_t seq, uint32_t k);
model_result sim_remove_drafts(model *m, uint16_t seq, uint32_t k);
void sim_clear(model *m, uint16_t seq);
uint32_t sim_position(const model *m, uint16_t seq);
uint64_t sim_used_bytes(const model *m);
uint64_t sim_sequence_bytes(const model *m, uint32_t n_tokens);
uint32_t sim_shared_tokens(const model *m, uint16_t seq);

/* Returns the address of the state after k tokens in the ring `kept`. If k < oldest, another state is stored there. */
static inline sim_state *sim_kept_at(const sim_model *m, const sim_sequence *s, uint32_t k)
{
    return &s->kept[k % m->n_kept];
}

void sim_sequence_spoil(sim_model *m, sim_sequence *s);         /* makes the sequence's state wrong, until the
                                                                   * sequence is cleared or a saved state is loaded */
uint64_t sim_cells_of(const sim_options *o, uint64_t n_tokens); /* cells of a sequence that shares no cells */
bool sim_cells_suffice(const sim_model *m, uint64_t n_more);

/* ---- copies and saved states: saved.c ---- */

bool sim_copy(model *m, uint16_t src, uint16_t dst);
size_t sim_saved_bytes(model *m, uint16_t seq, model_state_kind kind);
size_t sim_save(model *m, uint16_t seq, model_state_kind kind, void *out, size_t n_bytes);
model_result sim_load(model *m, uint16_t seq, model_state_kind kind, uint32_t k, const void *bytes, size_t n_bytes);

/* ---- embeddings: embed.c ---- */

int sim_embed(model *m, const int32_t *tokens, const uint32_t *n_tokens, uint32_t n_texts, const int32_t *cancel_flag,
              float *out, uint32_t *n_done);

/* ---- text: text.c; the vocabulary is the same for every simulated model ---- */

enum {
    SIM_TOKEN_END_OF_TEXT = 256,
    SIM_TOKEN_TURN_START,
    SIM_TOKEN_TURN_END,
    SIM_TOKEN_WRONG_STATE,
    SIM_TOKEN_WORDS,     /* token id of the first piece that the model writes */
    SIM_VOCABULARY = 512 /* constant, so that the loop over the logits is vectorized */
};

extern const char sim_chat_template[];

uint32_t sim_token_bytes_max(void);
uint32_t sim_n_words(void); /* number of pieces that the model writes; their ids begin at SIM_TOKEN_WORDS */
bool sim_token_is_control(int32_t token);

/* Builds the encoder's tables once per process; any thread. */
void sim_text_open(void);

int64_t sim_tokenize(const model *m, const char *text, size_t n_bytes, bool add_special, bool parse_special,
                     int32_t *out, size_t n_out);
int32_t sim_piece(const model *m, int32_t token, bool special, char *out, size_t n_out);
int32_t sim_longest_piece(const char *text, size_t n, size_t *n_used); /* returns the longest token at the start of the
                                                                        * text; n > 0 */

#endif
