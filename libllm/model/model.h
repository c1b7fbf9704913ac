/* model.h: the interface to a model. It has two implementations: model_llama (llama.cpp) and model_sim (a deterministic
 * simulation with the same memory rules). Nothing else in libllm knows which one runs.
 *
 * A model holds up to info.n_seq sequences. It keeps only their state; the tokens that a sequence has consumed are kept
 * by the caller (branch.c). Positions are counts: position(seq) == number of tokens consumed.
 *
 * Threads: everything that touches sequences belongs to one thread (the decode thread). The text operations (tokenize,
 * piece, is_end) read immutable tables and may run on any thread.
 */
#ifndef LLM_MODEL_H
#define LLM_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct model model;

/* Logits of one decode call beyond one for each sequence, for prompts whose log probabilities are requested. Each takes
 * a row of the vocabulary's size in the model's memory. */
enum { MODEL_OUTPUTS_BESIDE = 16 };
enum { MODEL_N_CTX_DEFAULT_MAX = 131072 }; /* the session table has room for so many tokens of each entry */
enum { MODEL_PIECE_BYTES_MAX = 1024 };     /* most bytes of one token's text; a model with a longer one is refused */

typedef struct model_options {
    const char *path;          /* what follows "sim:" for the simulated model */
    const char *chat_template; /* replaces the model's own, or NULL */
    uint32_t n_ctx;            /* tokens per sequence; 0: the length of its training, as far as the budget allows */
    uint32_t n_seq;
    uint32_t n_batch;      /* most tokens of one decode call */
    uint64_t kv_bytes_max; /* most bytes that the sequences' tokens may take; 0: a fraction of free memory */
    int32_t n_threads;     /* 0: the model measures at opening how many are fastest */
    int32_t n_gpu_layers;
    bool exact;
    bool allow_oversize;
    const char *crash_notice; /* see llm_engine_options */
} model_options;

/* The two kinds of saved states. */
typedef enum model_state_kind {
    MODEL_STATE_FULL, /* all of a sequence: stands alone */
    /* Only what truncating cannot bring back: the running state, the sliding window. See model_checkpoint_kind. */
    MODEL_STATE_CHECKPOINT,
} model_state_kind;

/* The contents of a MODEL_STATE_CHECKPOINT of this model, and what it needs. */
typedef enum model_checkpoint_kind {
    MODEL_CHECKPOINT_NONE,     /* not needed: a sequence can be truncated anywhere (dense) */
    MODEL_CHECKPOINT_ATTACHED, /* small; needs a sequence whose attention holds the same prefix (window, hybrid) */
    MODEL_CHECKPOINT_WHOLE,    /* the same as MODEL_STATE_FULL (recurrent) */
} model_checkpoint_kind;

typedef struct model_info {
    LLM_MODEL_FACT_TABLE(LLM_MODEL_FACT_MEMBER)
    LLM_MODEL_TEXT_TABLE(LLM_MODEL_TEXT_MEMBER)
    llm_memory memory;
    uint32_t n_seq;
    uint32_t n_outputs_max; /* logits of one decode call: one for each sequence, and MODEL_OUTPUTS_BESIDE more */
    model_checkpoint_kind checkpoint;
    bool is_on_gpu;       /* at least some layers: prompts are prefilled there */
    bool shares_cells;    /* a copied sequence costs no cells until it grows */
    bool mixed_calls;     /* one call may hold decode and prefill tokens at no extra cost */
    uint32_t n_stoppable; /* sequences of a call that can be given up, at most: model_batch.stop; 0: none can */
    uint8_t identity[16]; /* of the model's file alone: with all options its tokens mean the same */
    uint8_t geometry[16]; /* of all else that the bytes of a saved state depend on: see state_load */
} model_info;

/* Tokens of one decode call. Tokens of one sequence are consecutive and in order, and start at its position. The
 * sequences may be any, in any order. */
typedef struct model_batch {
    uint32_t n;
    const int32_t *tokens;
    const int32_t *positions;
    const uint16_t *seqs;
    const uint8_t *outputs; /* 1: logits are requested after this token; at most info.n_outputs_max in all */
    /* NULL, or called often during the call, unless that is short: true gives the call up (see info.n_stoppable). So a
     * cancel need not wait for the end of a long prefill. */
    bool (*stop)(void *context);
    void *stop_context;
} model_batch;

/* The outcome of a decode call, and the state that it leaves. */
typedef enum model_result {
    MODEL_OK,           /* all tokens consumed */
    MODEL_NO_CELLS,     /* no room in the KV cache, or its budget is used up; nothing changed */
    MODEL_STOPPED,      /* given up because stop() said so; nothing changed */
    MODEL_INVALID,      /* the batch breaks a rule (ids, positions, sizes); nothing changed */
    MODEL_FAILED_BATCH, /* the state of the sequences in the batch is invalid; others are unharmed */
    MODEL_FAILED_ALL,   /* the state of every sequence is invalid */
} model_result;

typedef struct model_ops {
    void (*close)(model *m);

    /* ---- sequences: owner thread ---- */

    model_result (*decode)(model *m, const model_batch *batch);

    /* Logits after the token at batch index i of the last decode call, if that returned MODEL_OK: n_vocab floats, valid
     * until the next decode call or the close, whatever is truncated or cleared meanwhile. NULL if none were requested
     * there. The caller may modify them in place. */
    float *(*logits)(model *m, uint32_t i);

    /* Smallest k > 0 to which the sequence, at `position`, can be truncated exactly: 1 for dense memory, `position`
     * itself (not at all) for recurrent and hybrid, in between as long as a sliding window covers it. */
    uint32_t (*truncate_floor)(const model *m, uint16_t seq);

    /* Truncates the sequence to its first k tokens, 0 < k <= position, k >= truncate_floor. False: refused, and the
     * state is invalid (the caller marks the session). */
    bool (*truncate)(model *m, uint16_t seq, uint32_t k);

    void (*clear)(model *m, uint16_t seq);              /* always succeeds; makes an invalid sequence usable again */
    uint32_t (*position)(const model *m, uint16_t seq); /* tokens consumed, as the model's memory counts them */
    uint64_t (*used_bytes)(const model *m);             /* bytes that all sequences take, of info.state_bytes */
    /* Bytes that a sequence of n_tokens takes of that and shares with no other. But for rounding, those of all
     * sequences add up to used_bytes. */
    uint64_t (*sequence_bytes)(const model *m, uint32_t n_tokens);

    /* ---- state: owner thread, between decode calls. Only a model of the same identity and geometry may load it
     * ---- */

    /* Makes dst, which is empty, an exact copy of src. False: refused, dst is empty. Called only where sequences share cells: a
     * copy between cells of their own is a save and a load, so that its bytes are in an account. */
    bool (*copy)(model *m, uint16_t src, uint16_t dst);

    size_t (*state_bytes)(model *m, uint16_t seq, model_state_kind kind);
    /* Bytes written, 0 on failure. */
    size_t (*state_save)(model *m, uint16_t seq, model_state_kind kind, void *out, size_t n_bytes);
    /* FULL: the sequence, whatever it holds, becomes the saved one of k tokens. CHECKPOINT: the caller warrants that
     * the sequence's attention holds the same first k tokens, and perhaps more (for WHOLE models it may hold anything);
     * the sequence becomes the saved one. MODEL_OK; MODEL_NO_CELLS, or MODEL_INVALID if the bytes are no such state:
     * then the sequence is empty. */
    model_result (*state_load)(model *m, uint16_t seq, model_state_kind kind, uint32_t k, const void *bytes,
                               size_t n_bytes);

    /* ---- embeddings: any thread; one call works at a time ---- */

    /* See llm_embed, which has checked its arguments. The vectors are not normalized. Not called for models without
     * embeddings (info.n_embedding 0). */
    int (*embed)(model *m, const int32_t *tokens, const uint32_t *n_tokens, uint32_t n_texts,
                 const int32_t *cancel_flag, float *out, uint32_t *n_done);

    /* ---- text: any thread ---- */

    /* Count of tokens, or -count if n_out is too small, or INT64_MIN on error. `text` need not be NUL-terminated. */
    int64_t (*tokenize)(const model *m, const char *text, size_t n_bytes, bool add_special, bool parse_special,
                        int32_t *out, size_t n_out);
    /* Bytes of one token, or -bytes if n_out is too small. Control tokens are empty unless `special`. */
    int32_t (*piece)(const model *m, int32_t token, bool special, char *out, size_t n_out);
    bool (*is_end)(const model *m, int32_t token);     /* ends a turn or the text */
    bool (*is_control)(const model *m, int32_t token); /* only a template may produce it */
    const char *(*chat_template)(const model *m);      /* Jinja source, or NULL */
    int32_t (*bos)(const model *m);                    /* -1: none */
    int32_t (*eos)(const model *m);                    /* -1: none */
    int32_t (*fim)(const model *m, llm_fim mark);      /* -1: none */
    const char *(*tool_template)(const model *m);      /* Jinja source only for conversations with tools, or NULL */
} model_ops;

/* Returns whether the caller of llm_embed has given the embedding up. It sets the flag in another thread; a relaxed
 * load is enough, since no other memory is read because of it. */
static inline bool model_embedding_is_cancelled(const int32_t *cancel_flag)
{
    return cancel_flag != NULL && __atomic_load_n(cancel_flag, __ATOMIC_RELAXED) != 0;
}

struct model {
    const model_ops *ops; /* implementations embed `struct model` as their first member */
    model_info info;
};

/* Opens "sim:..." with model_sim and anything else with model_llama. LLM_OK, LLM_INVALID, LLM_MODEL_LOAD or
 * LLM_NO_MEMORY with `error` filled. */
int model_open(const char *name, const model_options *options, model **out, char *error, size_t error_bytes);

/* Returns a recommendation in which every parameter is unstated. */
llm_sampling model_sampling_unstated(void);

int model_llama_open(const model_options *options, model **out, char *error, size_t error_bytes);
uint32_t model_llama_progress(void);                   /* see llm_loading_progress */
const char *model_llama_gpu_trouble(void);             /* see llm_gpu_trouble */
size_t model_llama_processor(char *out, size_t n_out); /* see llm_processor */
int model_sim_open(const model_options *options, model **out, char *error, size_t error_bytes);

#ifdef __cplusplus
}
#endif
#endif
