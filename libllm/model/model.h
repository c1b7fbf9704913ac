/* model.h: the door to a model. Two implementations stand behind it: model_llama (llama.cpp) and model_sim (a
 * deterministic simulation with the same memory rules). Nothing else in libllm knows which one runs.
 *
 * A model holds up to info.n_seq sequences. What a sequence has consumed is the caller's business (session.c keeps
 * the tokens); the model keeps only the state. Positions are counts: position(seq) == number of tokens consumed.
 *
 * Threads: everything that touches sequences belongs to one thread (the decode thread).
 * The text operations (tokenize, piece, is_end) read immutable tables and may run on any thread.
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

enum { MODEL_OUTPUTS_BESIDE = 16 };        /* each takes a row of the vocabulary's size in the model's memory */
enum { MODEL_N_CTX_DEFAULT_MAX = 131072 }; /* the shared segment has room for so many tokens of each place */
enum { MODEL_PIECE_BYTES_MAX = 1024 };     /* most bytes of one token's text; a model with a longer one is refused */

typedef struct model_options {
    const char *path;          /* what follows "sim:" for the simulated model */
    const char *chat_template; /* replaces the model's own, or NULL */
    uint32_t n_ctx;            /* tokens per sequence; 0: what the model was trained for and the budget pays for */
    uint32_t n_seq;
    uint32_t n_batch;      /* most tokens of one decode call */
    uint64_t kv_bytes_max; /* most that the sequences' tokens may take; 0: a fraction of free memory */
    int32_t n_threads;     /* 0: by measurement */
    int32_t n_gpu_layers;
    bool exact;
    bool allow_oversize;
    const char *crash_notice; /* see llm_engine_options */
} model_options;

/* What a saved state holds. */
typedef enum model_state_kind {
    MODEL_STATE_FULL, /* everything: stands alone */
    MODEL_STATE_CHECKPOINT, /* what a cut cannot bring back: the running state, the sliding window. See model_checkpoint_kind */
} model_state_kind;

/* What MODEL_STATE_CHECKPOINT is worth. */
typedef enum model_checkpoint_kind {
    MODEL_CHECKPOINT_NONE,     /* not needed: any prefix can be cut to (dense) */
    MODEL_CHECKPOINT_ATTACHED, /* small; needs a sequence whose attention still holds the same prefix (window, hybrid) */
    MODEL_CHECKPOINT_WHOLE,    /* the same as MODEL_STATE_FULL (recurrent) */
} model_checkpoint_kind;

typedef struct model_info {
    LLM_MODEL_FACT_TABLE(LLM_MODEL_FACT_MEMBER)
    LLM_MODEL_TEXT_TABLE(LLM_MODEL_TEXT_MEMBER)
    llm_memory memory;
    uint32_t n_seq;
    uint32_t n_outputs_max; /* logits of one decode call: one for each sequence, and MODEL_OUTPUTS_BESIDE more */
    model_checkpoint_kind checkpoint;
    bool is_on_gpu;       /* some of it: prompts are read there */
    bool shares_cells;    /* a copied sequence costs no cells until it grows */
    bool mixed_calls;     /* one call may hold decode and prefill tokens at no extra cost */
    uint32_t n_stoppable; /* sequences of a call that can be given up, at most: model_batch.stop; 0: none can */
    uint8_t identity[16]; /* the model's file alone: whatever the options, its tokens mean the same */
    uint8_t geometry[16]; /* what the bytes of a saved state depend on beside the model: see state_load */
} model_info;

/* Tokens of one decode call. Tokens of one sequence are consecutive and in order, and start at its position. The sequences
 * may be any, in any order. */
typedef struct model_batch {
    uint32_t n;
    const int32_t *tokens;
    const int32_t *positions;
    const uint16_t *seqs;
    const uint8_t *outputs;      /* 1: logits wanted after this token; at most info.n_outputs_max in all */
    bool (*stop)(void *context); /* NULL, or asked often during the call, unless that is short: true gives it up; see
                                   * info.n_stoppable */
    void *stop_context;
} model_batch;

/* What a decode call did. */
typedef enum model_result {
    MODEL_OK,           /* all tokens consumed */
    MODEL_NO_CELLS,     /* no room in the KV cache, or its budget is used up; nothing changed */
    MODEL_STOPPED,      /* given up as asked; nothing changed */
    MODEL_INVALID,      /* the batch breaks a rule (ids, positions, sizes); nothing changed */
    MODEL_FAILED_BATCH, /* state of the sequences in the batch is not trusted; others are unharmed */
    MODEL_FAILED_ALL,   /* state of every sequence is not trusted */
} model_result;

typedef struct model_ops {
    void (*close)(model *m);

    /* ---- sequences: owner thread ---- */

    model_result (*decode)(model *m, const model_batch *batch);

    /* Logits wanted at batch index i of the last decode call that returned MODEL_OK: n_vocab floats, valid until the
     * next decode call or the close, whatever is rewound or cleared meanwhile. NULL if none were asked for there. The
     * caller may modify them in place. */
    float *(*logits)(model *m, uint32_t i);

    /* Smallest k > 0 such that the sequence, at `position`, can be cut back to k tokens exactly: 1 for dense memory,
     * `position` itself (no cut) for recurrent and hybrid, in between while a sliding window still covers it. */
    uint32_t (*rewind_floor)(const model *m, uint16_t seq);

    /* Cuts the sequence back to its first k tokens, 0 < k <= position, k >= rewind_floor. False: refused, and the
     * state is not trusted any more (the caller marks the session torn). */
    bool (*rewind)(model *m, uint16_t seq, uint32_t k);

    void (*clear)(model *m, uint16_t seq);              /* always succeeds; also heals a sequence that is not trusted */
    uint32_t (*position)(const model *m, uint16_t seq); /* tokens consumed, as the model's memory sees it */
    uint64_t (*used_bytes)(const model *m);             /* what all sequences take, of info.state_bytes */
    /* What one of n_tokens takes of that and shares with none. Those of all add up, but for rounding. */
    uint64_t (*sequence_bytes)(const model *m, uint32_t n_tokens);

    /* ---- state: owner thread, between decode calls. A state is meaningful only to a model of the same identity and geometry. ---- */

    /* Makes dst, which is empty, an exact copy of src. False: refused, dst is empty. */
    bool (*copy)(model *m, uint16_t src, uint16_t dst);

    size_t (*state_bytes)(model *m, uint16_t seq, model_state_kind kind);
    /* Bytes written, 0 on failure. */
    size_t (*state_save)(model *m, uint16_t seq, model_state_kind kind, void *out, size_t n_bytes);
    /* FULL: the sequence, whatever it holds, becomes the saved one of k tokens. CHECKPOINT: the sequence's attention
     * holds the same first k tokens and perhaps more (for WHOLE models: holds anything); it becomes the saved one.
     * MODEL_OK; MODEL_NO_CELLS or MODEL_INVALID (not such a state): the sequence is empty then. */
    model_result (*state_load)(model *m, uint16_t seq, model_state_kind kind, uint32_t k, const void *bytes,
                               size_t n_bytes);

    /* ---- embeddings: any thread; one call works at a time ---- */

    /* See llm_embed, which has checked everything. The vectors are as the model makes them. Models without embeddings
     * (info.n_embedding 0) are not asked. */
    int (*embed)(model *m, const int32_t *tokens, const uint32_t *n_tokens, uint32_t n_texts, const int32_t *given_up,
                 float *out, uint32_t *n_done);

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

/* Whoever waits for an embedding has given it up: see llm_embed. */
static inline bool model_embedding_is_given_up(const int32_t *given_up)
{
    return given_up != NULL && __atomic_load_n(given_up, __ATOMIC_RELAXED) != 0;
}

struct model {
    const model_ops *ops; /* implementations embed `struct model` as their first member */
    model_info info;
};

/* Opens "sim:..." with model_sim and anything else with model_llama. LLM_OK, LLM_INVALID, LLM_MODEL_LOAD or
 * LLM_NO_MEMORY with `error` filled. */
int model_open(const char *name, const model_options *options, model **out, char *error, size_t error_bytes);

/* A recommendation that states nothing. */
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
